//! AccessHint one entry: its local header is checked against the directory once, then a stored entry
//! is read in place and a compressed one decoded. The header is read together with the data where
//! that is worth it, and no byte is read twice.

mod decoded;

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use flate2::Crc;

use super::cache::{Piece, PieceCache};
use super::header::{HEADER_BYTES, LocalHeader};
use super::index::{Coding, Node};
use super::{Archive, archive_error};
use crate::store::waiting::may_wait;
use crate::store::{
    BUFFER_HEADROOM_BYTES, Data, Key, Object, Patience, Position, Stat, StoreError, Version,
    in_memory, part, part_mut,
};

/// What is read with the header in the hope that it holds all of the extra field.
const USUAL_EXTRA_BYTES: usize = 64;
/// Pieces in which an entry is read that is checked before it is served.
const CHECK_PIECE_BYTES: usize = 1 << 20;
/// The same of an archive that is far away.
const FAR_CHECK_PIECE_BYTES: usize = 8 << 20;
/// The longest local header.
const MAX_HEADER_BYTES: usize = HEADER_BYTES + 2 * 0xFFFF;
/// Data before a part that is wanted, up to here, is no reason for a second request.
const NEAR_HEADER_BYTES: u64 = 64 << 10;

/// An entry that can be read.
#[derive(Debug)]
pub(super) struct ZipObject {
    archive: Arc<Archive>,
    position: Position,
    /// Parts are asked for as they are needed, and not as a file is read.
    is_exact: bool,
}

impl ZipObject {
    /// Fails for what is known never to be readable.
    pub(super) fn open(archive: &Arc<Archive>, position: Position) -> Result<Self, StoreError> {
        let object = Self {
            archive: Arc::clone(archive),
            position,
            is_exact: false,
        };
        let node = object.node();
        let unsupported = |what| {
            Err(StoreError::Unsupported {
                key: object.key(),
                what,
            })
        };
        match node.coding() {
            Coding::Stored | Coding::Deflated | Coding::Zstd => {}
            Coding::Directory => return Err(StoreError::NotAPrefix { key: object.key() }),
            Coding::Encrypted => return unsupported("encrypted zip entry".into()),
            Coding::UnknownMethod => {
                return unsupported(unknown_method(node.crc()));
            }
            Coding::Split => return unsupported("part of an archive of several files".into()),
            Coding::Overlapping => {
                return Err(
                    object.corrupt(format!("entries overlap at {:#x}", node.header_offset()))
                );
            }
            Coding::OutOfBounds => {
                return Err(object.corrupt(format!(
                    "{} bytes at {:#x} reach into the central directory at {:#x}",
                    node.compressed_bytes(),
                    node.header_offset(),
                    archive.data_end
                )));
            }
            Coding::ImpossibleSize => {
                return Err(object.corrupt(format!(
                    "{} bytes can not hold {} bytes",
                    node.compressed_bytes(),
                    node.size_bytes()
                )));
            }
        }
        if node.crc_verdict() == Some(false) {
            return Err(object.bad_crc(None));
        }
        if node.size_bytes() == 0 && node.crc_verdict().is_none() {
            // Nobody reads from an empty file, so it is judged here.
            object.read(0, 0, &mut [0; BUFFER_HEADROOM_BYTES], Patience::Wait)?;
        }
        Ok(object)
    }

    /// The same, to be read in exactly the parts that are asked for.
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

    fn judge_crc(&self, actual: u32) -> Result<(), StoreError> {
        if self.node().judge_crc(actual) {
            Ok(())
        } else {
            Err(self.bad_crc(Some(actual)))
        }
    }

    fn pread(&self, buffer: &mut [u8], offset: u64, patience: Patience) -> Result<(), StoreError> {
        let bytes = &self.archive.bytes;
        let result = if buffer.is_empty() {
            bytes.check()
        } else {
            bytes.read_exact_at(buffer, offset, patience)
        };
        result.map_err(|error| archive_error(error, self.key()))
    }

    /// A piece from a cache, if the archive is still the one that it came from.
    fn cached(&self, cache: &PieceCache, piece: Piece) -> Result<Option<Arc<Vec<u8>>>, StoreError> {
        let Some(bytes) = cache.get(piece) else {
            return Ok(None);
        };
        let unchanged = self.archive.bytes.check();
        unchanged.map_err(|error| archive_error(error, self.key()))?;
        Ok(Some(bytes))
    }

    /// Reads the local header into `buffer`, and the first `data_bytes` behind it if they fit;
    /// checks the header; returns its length and how many bytes were read.
    fn read_header(
        &self,
        buffer: &mut [u8],
        data_bytes: usize,
        patience: Patience,
    ) -> Result<(usize, usize), StoreError> {
        let node = self.node();
        let name_bytes =
            usize::try_from(self.archive.index.key_length(self.position)).unwrap_or(usize::MAX);
        let room = self.archive.data_end.saturating_sub(node.header_offset());
        let limit = buffer
            .len()
            .min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut length = HEADER_BYTES
            .saturating_add(name_bytes)
            .saturating_add(USUAL_EXTRA_BYTES)
            .saturating_add(data_bytes)
            .min(limit);
        let first = part_mut(buffer, 0..length)?;
        self.pread(first, node.header_offset(), patience)?;
        let header = LocalHeader::parse(first)
            .ok_or_else(|| self.corrupt("no local header where the directory says".into()))?;
        let name_end = HEADER_BYTES.saturating_add(header.name_bytes);
        let header_bytes = name_end.saturating_add(header.extra_bytes);
        let data_end = (header_bytes as u64).checked_add(node.compressed_bytes());
        if data_end.is_none_or(|end| end > room) {
            return Err(self.corrupt("reaches into the central directory".into()));
        }
        if header_bytes > buffer.len() {
            return Err(self.corrupt(format!("local header of {header_bytes} bytes")));
        }
        let wanted = match header_bytes.saturating_add(data_bytes) {
            all if all <= buffer.len() => all,
            _ => header_bytes,
        };
        if let Some(rest) = buffer.get_mut(length..wanted).filter(|r| !r.is_empty()) {
            // The extra field is longer than usual.
            let at = node.header_offset().saturating_add(length as u64);
            self.pread(rest, at, patience)?;
            length = wanted;
        }
        let name = part(buffer, HEADER_BYTES..name_end)?;
        let extra = part(buffer, name_end..header_bytes)?;
        if !self.archive.index.is_named(self.position, name) {
            return Err(self.corrupt(format!(
                "its local header is named {:?}",
                String::from_utf8_lossy(name)
            )));
        }
        if let Err((what, there, here)) = header.agrees(node, extra) {
            return Err(self.corrupt(format!(
                "{what} is {there} in the directory and {here} in the local header"
            )));
        }
        node.set_header_length(u32::try_from(header_bytes).unwrap_or(0));
        Ok((header_bytes, length))
    }

    /// Where the entry's data begins in the archive.
    fn data_start(&self, patience: Patience) -> Result<u64, StoreError> {
        let node = self.node();
        let header_length = match node.header_length() {
            Some(length) => length,
            None => {
                let mut buffer = vec![0; MAX_HEADER_BYTES];
                self.read_header(&mut buffer, 0, patience)?.0 as u64
            }
        };
        Ok(node.header_offset().saturating_add(header_length))
    }

    fn read_stored(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let node = self.node();
        if self.archive.options.verify
            && node.crc_verdict().is_none()
            && (size as u64) < node.size_bytes()
        {
            self.check_stored(patience)?;
        }
        let mut start = None;
        if node.header_length().is_none() {
            // Header and data together: of a small entry, or if a second request costs more than
            // what lies between.
            let end = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .saturating_add(size);
            let is_near = match self.archive.is_remote {
                true => offset <= NEAR_HEADER_BYTES,
                false => end <= buffer.len() / 2,
            };
            let data_bytes = if is_near { end } else { 0 };
            let (header, length) = self.read_header(buffer, data_bytes, patience)?;
            let wanted = header.saturating_add(end);
            start = (wanted <= length).then(|| wanted.saturating_sub(size));
        }
        let start = match start {
            Some(start) => start,
            None => {
                let data = self.data_start(patience)?;
                let at = data.saturating_add(offset);
                let target = part_mut(buffer, 0..size)?;
                match self.archive.is_remote && !self.is_exact && !target.is_empty() {
                    true => {
                        let span = data..data.saturating_add(node.size_bytes());
                        let read = self.archive.bytes.read_within(target, at, span, patience);
                        read.map_err(|error| archive_error(error, self.key()))?;
                    }
                    false => self.pread(target, at, patience)?,
                }
                0
            }
        };
        let range = start..start.saturating_add(size);
        if node.crc_verdict().is_none() {
            self.note_stored(offset, part(buffer, range.clone())?)?;
        }
        Ok(Data::Filled(range))
    }

    /// Follows what has been seen of a stored entry; judges it when that is all.
    fn note_stored(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let entry_bytes = self.node().size_bytes();
        let crc_of = |bytes: &[u8]| {
            let mut crc = Crc::new();
            crc.update(bytes);
            crc
        };
        if offset == 0 && bytes.len() as u64 == entry_bytes {
            return self.judge_crc(crc_of(bytes).sum());
        }
        let checks = || {
            let checks = &self.archive.checks;
            checks.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let end = offset.saturating_add(bytes.len() as u64);
        // The sums are made without the lock; parts that another thread has seen in the meantime
        // are left out.
        let unseen = checks().unseen(self.position, offset, end);
        for Range { start, end } in unseen {
            let own = part(bytes, in_memory(start - offset)?..in_memory(end - offset)?)?;
            let crc = crc_of(own);
            let whole = checks().add(self.position, start, end, crc, entry_bytes);
            whole.map_or(Ok(()), |actual| self.judge_crc(actual))?;
        }
        Ok(())
    }

    /// Reads all of a stored entry and judges it.
    fn check_stored(&self, patience: Patience) -> Result<(), StoreError> {
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: self.key() });
        }
        let start = self.data_start(patience)?;
        let size = self.node().size_bytes();
        let most = match self.archive.is_remote {
            true => FAR_CHECK_PIECE_BYTES,
            false => CHECK_PIECE_BYTES,
        };
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(most)];
        let mut crc = Crc::new();
        let mut done = 0;
        while done < size {
            let piece = usize::try_from(size.saturating_sub(done))
                .unwrap_or(usize::MAX)
                .min(most);
            let target = part_mut(&mut buffer, 0..piece)?;
            self.pread(target, start.saturating_add(done), patience)?;
            crc.update(target);
            done = done.saturating_add(piece as u64);
        }
        self.judge_crc(crc.sum())
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

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

    fn read(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let node = self.node();
        let patience = match self.archive.is_remote && may_wait(&Key::root()).is_err() {
            true => Patience::Now,
            false => patience,
        };
        if node.crc_verdict() == Some(false) {
            return Err(self.bad_crc(None));
        }
        // An empty entry is decoded too, which proves its header and checksum.
        let offset = offset.min(node.size_bytes());
        let left = usize::try_from(node.size_bytes() - offset).unwrap_or(usize::MAX);
        let size = size.min(left);
        if node.size_bytes() > 0 && size == 0 {
            return Ok(Data::Filled(0..0));
        }
        if node.coding() == Coding::Stored {
            return self.read_stored(offset, size, buffer, patience);
        }
        let mut data = self.read_decoded(offset, size, buffer, patience)?;
        let mut done = data.bytes(buffer)?.len();
        if done < size {
            // The range crosses segments: put them together in the buffer.
            let mut joined = Vec::with_capacity(size);
            joined.extend_from_slice(data.bytes(buffer)?);
            while done < size {
                data = self.read_decoded(
                    offset.saturating_add(done as u64),
                    size.saturating_sub(done),
                    buffer,
                    patience,
                )?;
                if data.bytes(buffer)?.is_empty() {
                    return Err(
                        self.corrupt(format!("ends at {}", offset.saturating_add(done as u64)))
                    );
                }
                joined.extend_from_slice(data.bytes(buffer)?);
                done = joined.len();
            }
            return Ok(Data::Shared(Arc::new(joined), 0..size));
        }
        Ok(data)
    }
}

/// What APPNOTE.TXT (4.4.5) calls a method, and what is read instead.
fn unknown_method(method: u32) -> String {
    let name = match method {
        1 => " (shrink)",
        6 => " (implode)",
        9 => " (deflate64)",
        12 => " (bzip2)",
        14 => " (lzma)",
        95 => " (xz)",
        98 => " (ppmd)",
        99 => " (AES encryption)",
        _ => "",
    };
    format!("zip compression method {method}{name}; stored, deflated and zstd entries are read")
}
