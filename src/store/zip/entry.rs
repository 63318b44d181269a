//! Reads one entry. Its local header is checked against the directory once; then a stored entry is
//! read in place, and a compressed one is decoded. The header is read together with the data where
//! that is worthwhile, and no byte is read twice.

mod decoded;
mod local;
pub(super) mod remote;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use flate2::Crc;

use super::header::{HEADER_BYTES, LocalHeader};
use super::index::{EntryMethod, Node};
use super::{Archive, ArchiveBytes, DecodedCache, archive_error};
use crate::fallible::NoMemory;
use crate::store::{
    Data, Key, LocalObject, Object, Position, SpanGuard, Stat, StoreError, Version, in_memory,
    nonblocking_first, part, read_owned,
};

/// Bytes that are read after the name in the header; they usually contain the whole extra field.
const USUAL_EXTRA_BYTES: usize = 64;
/// Size of the pieces in which an entry is read that is checked before it is served, in bytes.
const CHECK_PIECE_BYTES: usize = 1 << 20;
/// The length of the longest local header in bytes.
const MAX_HEADER_BYTES: usize = HEADER_BYTES + 2 * 0xFFFF;

/// An entry that can be read.
#[derive(Debug, Clone)]
pub(super) struct ZipObject {
    archive: Arc<Archive>,
    position: Position,
    /// Whether exactly the requested ranges are read, without blocks and readahead.
    is_exact: bool,
    /// The readahead of an entry of a remote archive.
    span: Arc<OnceLock<Option<SpanGuard>>>,
}

impl ZipObject {
    /// Opens an entry; fails if it is known to be unreadable.
    pub(super) fn open(archive: &Arc<Archive>, position: Position) -> Result<Self, StoreError> {
        let object = Self {
            archive: Arc::clone(archive),
            position,
            is_exact: false,
            span: Arc::default(),
        };
        let node = object.node();
        let unsupported = |what| {
            Err(StoreError::Unsupported {
                key: object.key(),
                what,
            })
        };
        match node.method() {
            EntryMethod::Stored
            | EntryMethod::Deflated
            | EntryMethod::Zstd
            | EntryMethod::Bzip2
            | EntryMethod::Lzma
            | EntryMethod::Xz => {}
            EntryMethod::Directory => return Err(StoreError::NotAPrefix { key: object.key() }),
            EntryMethod::Encrypted => return unsupported("encrypted zip entry".into()),
            EntryMethod::UnsupportedMethod => {
                return unsupported(unknown_method(node.crc()));
            }
            EntryMethod::Split => return unsupported("part of an archive of several files".into()),
            EntryMethod::Overlapping => {
                return Err(
                    object.corrupt(format!("entries overlap at {:#x}", node.header_offset()))
                );
            }
            EntryMethod::OutOfBounds => {
                return Err(object.corrupt(format!(
                    "{} bytes at {:#x} reach into the central directory at {:#x}",
                    node.compressed_bytes(),
                    node.header_offset(),
                    archive.data_end
                )));
            }
            EntryMethod::ImpossibleSize => {
                return Err(object.corrupt(format!(
                    "{} bytes cannot hold {} bytes",
                    node.compressed_bytes(),
                    node.size_bytes()
                )));
            }
        }
        if node.crc_verdict() == Some(false) {
            return Err(object.bad_crc(None));
        }
        Ok(object)
    }

    /// The same object, for reading exactly the requested ranges.
    pub(super) fn exact(self) -> Self {
        let is_exact = true;
        Self { is_exact, ..self }
    }

    fn node(&self) -> &Node {
        self.archive.index.node(self.position)
    }

    fn key(&self) -> Key {
        self.archive.index.key(self.position)
    }

    fn corrupt(&self, what: String) -> StoreError {
        StoreError::Corrupt {
            key: self.key(),
            what,
        }
    }

    fn bad_crc(&self, actual: Option<u32>) -> StoreError {
        let expected = self.node().crc();
        self.corrupt(match actual {
            Some(actual) => format!("crc32 mismatch: expected {expected:08x}, got {actual:08x}"),
            None => format!("crc32 mismatch: expected {expected:08x}, found wrong before"),
        })
    }

    fn verify_crc(&self, actual: u32) -> Result<(), StoreError> {
        if self.node().verify_crc(actual) {
            Ok(())
        } else {
            Err(self.bad_crc(Some(actual)))
        }
    }

    fn archive_error(&self, error: super::SnapshotError) -> StoreError {
        archive_error(error, self.key())
    }

    /// Returns bytes from a cache, if the archive has not changed since they were read.
    fn cached(
        &self,
        cache: &DecodedCache,
        number: u32,
    ) -> Result<Option<Arc<Vec<u8>>>, StoreError> {
        let found = cache.lock().get(&(self.position, number)).map(Arc::clone);
        if found.is_some() {
            let unchanged = self.archive.bytes.check();
            unchanged.map_err(|error| self.archive_error(error))?;
        }
        Ok(found)
    }

    fn cache(&self, cache: &DecodedCache, number: u32, bytes: &Arc<Vec<u8>>) {
        let place = (self.position, number);
        let weight = bytes.len() as u64;
        let evicted = cache.lock().insert(place, Arc::clone(bytes), weight);
        drop(evicted);
    }

    /// Returns the number of bytes from the entry's header to the central directory.
    fn room_bytes(&self) -> u64 {
        let start = self.node().header_offset();
        self.archive.data_end.saturating_sub(start)
    }

    /// Returns how many bytes to read for the local header and `data_bytes` after it; mostly enough.
    fn first_read_bytes(&self, data_bytes: usize) -> usize {
        let name_bytes = self.archive.index.key_length(self.position);
        let room = usize::try_from(self.room_bytes()).unwrap_or(usize::MAX);
        HEADER_BYTES
            .saturating_add(usize::try_from(name_bytes).unwrap_or(usize::MAX))
            .saturating_add(USUAL_EXTRA_BYTES)
            .saturating_add(data_bytes)
            .min(room)
    }

    /// Returns the length of the local header at the beginning of `bytes`.
    fn header_bytes(&self, bytes: &[u8]) -> Result<usize, StoreError> {
        let header = LocalHeader::parse(bytes)
            .ok_or_else(|| self.corrupt("no local header where the directory says".into()))?;
        let header_bytes = HEADER_BYTES
            .saturating_add(header.name_bytes)
            .saturating_add(header.extra_bytes);
        let data_end = (header_bytes as u64).checked_add(self.node().compressed_bytes());
        match data_end.is_none_or(|end| end > self.room_bytes()) {
            true => Err(self.corrupt("reaches into the central directory".into())),
            false => Ok(header_bytes),
        }
    }

    /// Verifies the complete local header against the directory.
    fn verify_header(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let header = LocalHeader::parse(bytes)
            .ok_or_else(|| StoreError::internal("a local header that was there before"))?;
        let name_end = HEADER_BYTES.saturating_add(header.name_bytes);
        let name = part(bytes, HEADER_BYTES..name_end)?;
        let extra = part(bytes, name_end..bytes.len())?;
        if !self.archive.index.is_named(self.position, name) {
            return Err(self.corrupt(format!(
                "its local header is named {:?}",
                String::from_utf8_lossy(name)
            )));
        }
        if let Err((what, there, here)) = header.agrees(self.node(), extra) {
            return Err(self.corrupt(format!(
                "{what} is {there} in the directory and {here} in the local header"
            )));
        }
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        self.node().set_header_length(length);
        Ok(())
    }

    /// Records which bytes of a stored entry were read; verifies its checksum once all were read.
    fn update_crc(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if self.node().crc_verdict().is_some() {
            return Ok(());
        }
        let entry_bytes = self.node().size_bytes();
        let crc_of = |bytes: &[u8]| {
            let mut crc = Crc::new();
            crc.update(bytes);
            crc
        };
        if offset == 0 && bytes.len() as u64 == entry_bytes {
            return self.verify_crc(crc_of(bytes).sum());
        }
        let checks = &self.archive.checks;
        let end = offset.saturating_add(bytes.len() as u64);
        // Checksums are computed without the lock. Parts that another thread has recorded in the meantime
        // are left out.
        let unseen = checks.lock().unseen(self.position, offset, end);
        for Range { start, end } in unseen {
            let own = part(bytes, in_memory(start - offset)?..in_memory(end - offset)?)?;
            let crc = crc_of(own);
            let whole = checks
                .lock()
                .add(self.position, start, end, crc, entry_bytes);
            whole.map_or(Ok(()), |actual| self.verify_crc(actual))?;
        }
        Ok(())
    }

    /// Whether a whole stored entry must be verified before a part of it is served.
    fn is_verified_first(&self, size: usize) -> bool {
        let node = self.node();
        self.archive.options.verify
            && node.crc_verdict().is_none()
            && (size as u64) < node.size_bytes()
    }

    /// Cuts a range at the end of the entry; fails if the entry is known to be corrupt.
    fn clamp(&self, offset: u64, size: usize) -> Result<(u64, usize), StoreError> {
        let node = self.node();
        if node.crc_verdict() == Some(false) {
            return Err(self.bad_crc(None));
        }
        let offset = offset.min(node.size_bytes());
        let left = usize::try_from(node.size_bytes() - offset).unwrap_or(usize::MAX);
        Ok((offset, size.min(left)))
    }

    /// Returns the error of an entry that alone exceeds the memory limit.
    fn exceeds_limit(&self, need_bytes: u64) -> StoreError {
        StoreError::TooLarge {
            key: self.key(),
            need_bytes,
            limit_bytes: self.archive.options.memory_limit_bytes,
        }
    }

    /// Returns that the system has no memory for a buffer.
    fn no_memory(&self, need_bytes: u64) -> StoreError {
        StoreError::from(NoMemory(need_bytes)).of(&self.key())
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[async_trait]
impl Object for ZipObject {
    fn size_bytes(&self) -> u64 {
        self.node().size_bytes()
    }

    fn version(&self) -> Version {
        Version(0)
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.archive.stat_of(self.position))
    }

    async fn read(&self, offset: u64, size: usize) -> Result<Data, StoreError> {
        match &self.archive.bytes {
            ArchiveBytes::Local(_) => {
                nonblocking_first(|mode| read_owned(self, offset, size, mode)).await
            }
            ArchiveBytes::Remote(reader) => self.read_remote(reader, offset, size).await,
        }
    }

    async fn prefetch_whole(&self) -> bool {
        match &self.archive.bytes {
            ArchiveBytes::Local(_) => false,
            ArchiveBytes::Remote(reader) => self.prefetch_remote(reader).await,
        }
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        match &self.archive.bytes {
            ArchiveBytes::Local(_) => Some(self),
            ArchiveBytes::Remote(_) => None,
        }
    }

    fn is_decoded_whole(&self) -> bool {
        // Longer entries of other methods than deflate take their memory besides the limit of all chunks.
        !self.archive.bytes.is_remote()
            && self.node().method() != EntryMethod::Stored
            && self.node().size_bytes() <= self.archive.whole_max_bytes
    }

    async fn verify_empty(&self) -> Result<(), StoreError> {
        match self.node().crc_verdict() {
            None => self.read(0, 0).await.map(drop),
            Some(_) => Ok(()),
        }
    }
}

/// Returns the name of a method in APPNOTE.TXT (4.4.5), and the supported methods.
fn unknown_method(method: u32) -> String {
    let name = match method {
        1 => " (shrink)",
        6 => " (implode)",
        9 => " (deflate64)",
        98 => " (ppmd)",
        99 => " (AES encryption)",
        _ => "",
    };
    format!(
        "zip compression method {method}{name}; methods that are read: stored, deflate, bzip2, lzma, zstd, xz"
    )
}
