//! A zip archive as a store: entry names are keys, the central directory is the index.
//!
//! The directory is parsed by `rawzip`; this module and `index` decide which of its claims are accepted
//! (faults A1-A17). Names are checked component by component. Every entry's byte range must lie
//! before the directory and overlap no other. The local header must agree with the directory, and
//! decoded bytes must have the declared size and CRC-32. The archive is read by ranges, never
//! mapped, and pinned: if it changes, reads fail with [`StoreError::Stale`].
//!
//! In a remote archive every read is a request. The directory comes with the end of the archive or with
//! one more range, and an entry together with its local header in one range.
//!
//! CRC policy: a compressed entry is checked whenever it is decoded (one of more than 64 MiB when its
//! end is first reached). A stored entry is checked once all of it was read, in whatever order; a
//! corrupt one fails permanently from then on. With [`ZipOptions::verify`] every entry is checked
//! before its first byte is served.

#[cfg(test)]
pub(crate) mod builder;
mod central_directory;
mod crc_progress;
mod entry;
mod header;
mod index;
mod inflate;
mod prefetched_tail;
mod streams;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::warn;

use self::central_directory::{DIRECTORY_BUFFER_BYTES, read_directory};
use self::crc_progress::CrcProgress;
use self::entry::ZipObject;
use self::index::{CACHE_NAME, Directory, ZipIndex, deserialize, deserialized_bytes};
use self::inflate::{Inflaters, SEGMENT_BYTES, WHOLE_MAX_BYTES};
use self::prefetched_tail::PrefetchedTail;
use super::snapshot::{SnapshotError, SnapshotFile, SnapshotReader};
use super::{
    AccessHint, Capabilities, Extent, Index, Key, Kind, Listed, Listing, ListingSupport, Object,
    Omission, Position, Stat, StoreError, SyncStore, TransferStats, Version, Visit, VisitChild,
    Visited,
};
use crate::cache::{SingleFlight, WeightedLru};
use crate::fallible::{self, NoMemory};
use crate::sync::Mutex;

/// Options for opening an archive.
#[derive(Debug, Clone, Copy)]
pub struct ZipOptions {
    /// Check every entry completely before its first byte is served.
    pub verify: bool,
    /// Fail if any entry of the archive would be hidden or unreadable.
    pub strict: bool,
    /// Budget of the cache of decoded entries, in bytes.
    pub cache_bytes: u64,
    /// Memory limit of the index, and of one decoded entry, in bytes.
    pub memory_limit_bytes: u64,
}

impl Default for ZipOptions {
    fn default() -> Self {
        Self {
            verify: false,
            strict: false,
            cache_bytes: 64 << 20,
            memory_limit_bytes: 1 << 30,
        }
    }
}

/// Why an archive cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// The file has no end-of-central-directory record: it is not a zip archive, or a truncated one.
    #[error(
        "no end of central directory: not a zip archive, or a truncated one (a source is a \
         directory with a Zarr hierarchy, a zip archive of one, or another kind: `zarrfs help sources`)"
    )]
    NoDirectory,
    /// The directory contradicts its end record.
    #[error("bad central directory: {0}")]
    BadDirectory(String),
    /// The index exceeds the memory limit.
    #[error(
        "{entries} entries need about {need_bytes} bytes of memory, the limit is {limit_bytes} \
         (see --memory-limit)"
    )]
    TooLarge {
        /// The number of entries that the archive claims.
        entries: u64,
        /// Bytes that the index needs.
        need_bytes: u64,
        /// Bytes that are allowed.
        limit_bytes: u64,
    },
    /// The system has no memory for the index, or for reading the directory.
    #[error("no memory for the index of the archive: it {0}")]
    NoMemory(#[from] NoMemory),
    /// With `--strict`: an entry would not be shown as it is.
    #[error("refused by --strict: {0}")]
    Strict(String),
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The source failed, or the archive changed while it was opened.
    #[error(transparent)]
    Source(StoreError),
}

/// An open archive, shared by the store and the entries that are being read.
#[derive(Debug)]
struct Archive {
    bytes: ArchiveBytes,
    index: ZipIndex,
    /// Where the central directory begins: entries end before it.
    data_end: u64,
    options: ZipOptions,
    /// When the archive was last changed.
    modified: SystemTime,
    decoded: DecodedCache,
    /// Loads in flight of entries whose bytes, compressed or decoded, are fetched whole.
    decoding: SingleFlight<Position, Arc<Vec<u8>>, StoreError>,
    /// For a remote archive: cached compressed bytes of the entries that are decoded in segments.
    compressed: DecodedCache,
    /// Limit of one entry in `compressed`, in bytes.
    compressed_max_bytes: u64,
    /// Deflated entries up to this size, in bytes, are decoded whole, larger ones in segments.
    whole_max_bytes: u64,
    /// For a remote archive: stored entries up to this size, in bytes, are fetched whole.
    stored_max_bytes: u64,
    /// For a remote archive: limit of the bytes that are fetched before a read, and wait for it.
    prefetch_max_bytes: u64,
    inflaters: Inflaters,
    checks: Mutex<CrcProgress>,
    /// Notes for users about the archive.
    notes: Vec<String>,
}

/// The location of the bytes of an archive.
#[derive(Debug)]
enum ArchiveBytes {
    Local(SnapshotFile),
    Remote(Arc<dyn SnapshotReader>),
}

impl ArchiveBytes {
    fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    fn size_bytes(&self) -> u64 {
        match self {
            Self::Local(file) => file.size_bytes(),
            Self::Remote(reader) => reader.size_bytes(),
        }
    }

    fn modified(&self) -> SystemTime {
        match self {
            Self::Local(file) => file.modified(),
            Self::Remote(reader) => reader.modified(),
        }
    }

    /// Fails if the archive is known to have changed.
    fn check(&self) -> Result<(), SnapshotError> {
        match self {
            Self::Local(file) => file.check(),
            Self::Remote(reader) => reader.check(),
        }
    }
}

/// Decoded bytes of entries: the number is 0 for a whole entry, or else that of a segment.
type DecodedCache = Mutex<WeightedLru<(Position, u32), Arc<Vec<u8>>>>;

fn decoded_cache(budget_bytes: u64) -> DecodedCache {
    Mutex::new(WeightedLru::new(budget_bytes, usize::MAX))
}

/// A store in a zip archive.
#[derive(Debug)]
pub struct ZipStore {
    archive: Arc<Archive>,
    label: String,
}

/// Limit of cached decoded bytes; they only serve consecutive reads of the kernel, which caches the rest. That is room
/// for two entries of each of a dozen readers, since a usual chunk has a few MiB.
const LOCAL_DECODED_MAX_BYTES: u64 = 88 << 20;
/// The same limit for a remote archive, whose entries are fetched ahead.
const REMOTE_DECODED_MAX_BYTES: u64 = 256 << 20;
/// Limit in bytes of the cache of compressed entries: two entries of the largest size that is decoded whole.
const COMPRESSED_MAX_BYTES: u64 = 2 * WHOLE_MAX_BYTES;
/// Size limit in bytes of stored entries that are fetched whole, as other keys of remote sources.
const STORED_MAX_BYTES: u64 = 8 << 20;

impl ZipStore {
    /// Reads the central directory of an archive in an open local file.
    ///
    /// # Errors
    /// [`ZipError`]; sizes in the archive cause no allocation before they are proved to fit.
    pub fn open(file: File, label: &str, options: ZipOptions) -> Result<Self, ZipError> {
        let file = SnapshotFile::new(file)?;
        let mut buffer = fallible::zeros(DIRECTORY_BUFFER_BYTES)?;
        let directory = read_directory(&file, &mut buffer, 0, &options)?;
        Self::with_directory(ArchiveBytes::Local(file), directory, label, options)
    }

    /// Reads the central directory of a remote archive. `tail` is its end, which was fetched together
    /// with its size.
    ///
    /// Makes two requests at most: none if the directory is in the tail or its index was cached,
    /// otherwise mostly one.
    ///
    /// # Errors
    /// As [`ZipStore::open`]; [`ZipError::Source`] if the source fails.
    pub async fn open_remote(
        reader: Arc<dyn SnapshotReader>,
        tail: impl Into<Arc<Vec<u8>>>,
        label: &str,
        options: ZipOptions,
    ) -> Result<Self, ZipError> {
        let mut held = PrefetchedTail::new(reader.size_bytes(), tail.into())?;
        let is_long = !held.is_complete();
        if is_long && let Some(directory) = kept_directory(&*reader, &options) {
            return Self::with_directory(ArchiveBytes::Remote(reader), directory, label, options);
        }
        held.complete(&*reader, &options).await?;
        let fetched_bytes = held.fetched_bytes();
        let mut buffer = fallible::zeros(DIRECTORY_BUFFER_BYTES)?;
        let directory = read_directory(&held, &mut buffer, fetched_bytes, &options)?;
        drop(held);
        if is_long {
            keep_directory(&*reader, &directory, &options);
        }
        Self::with_directory(ArchiveBytes::Remote(reader), directory, label, options)
    }

    fn with_directory(
        bytes: ArchiveBytes,
        directory: Directory,
        label: &str,
        options: ZipOptions,
    ) -> Result<Self, ZipError> {
        for note in &directory.notes {
            if options.strict {
                return Err(ZipError::Strict(note.clone()));
            }
            warn!("{label}: {note}");
        }
        let most = match bytes {
            ArchiveBytes::Local(_) => LOCAL_DECODED_MAX_BYTES,
            ArchiveBytes::Remote(_) => REMOTE_DECODED_MAX_BYTES,
        };
        let decoded_bytes = options
            .cache_bytes
            .min(most)
            .min(options.memory_limit_bytes / 8);
        let compressed_bytes = COMPRESSED_MAX_BYTES.min(options.memory_limit_bytes / 8);
        let archive = Archive {
            modified: bytes.modified(),
            decoded: decoded_cache(decoded_bytes),
            compressed: decoded_cache(compressed_bytes),
            compressed_max_bytes: compressed_bytes.min(WHOLE_MAX_BYTES),
            decoding: SingleFlight::default(),
            whole_max_bytes: WHOLE_MAX_BYTES.min(decoded_bytes / 2).max(SEGMENT_BYTES),
            stored_max_bytes: STORED_MAX_BYTES.min(decoded_bytes / 8),
            prefetch_max_bytes: decoded_bytes / 2,
            inflaters: Inflaters::default(),
            checks: Mutex::default(),
            notes: directory.notes,
            bytes,
            index: directory.index,
            data_end: directory.data_end,
            options,
        };
        let unchanged = archive.bytes.check();
        unchanged.map_err(|error| ZipError::Source(archive_error(error, Key::root())))?;
        Ok(Self {
            archive: Arc::new(archive),
            label: label.to_owned(),
        })
    }
}

/// Returns the directory whose index was cached for this version of the archive, if it fits into the memory
/// limit.
fn kept_directory(reader: &dyn SnapshotReader, options: &ZipOptions) -> Option<Directory> {
    let bytes = reader.derived(CACHE_NAME, options.memory_limit_bytes / 2)?;
    let length = bytes.len() as u64;
    let need_bytes = length.saturating_add(deserialized_bytes(length));
    (need_bytes <= options.memory_limit_bytes)
        .then(|| deserialize(&bytes, reader.size_bytes()))
        .flatten()
}

/// Caches the index of a directory for later mounts, if a copy of it fits into the memory limit.
fn keep_directory(reader: &dyn SnapshotReader, directory: &Directory, options: &ZipOptions) {
    reader.cache_derived(CACHE_NAME, &mut || {
        let archive_bytes = reader.size_bytes();
        index::serialize(directory, archive_bytes, options.memory_limit_bytes / 2)
    });
}

/// Converts a failed read of the archive to an error of a key in it.
fn archive_error(error: SnapshotError, key: Key) -> StoreError {
    match error {
        SnapshotError::Changed(what) => StoreError::Stale {
            key,
            what: format!("the archive: {what}"),
        },
        SnapshotError::WouldBlock => StoreError::internal("a blocking read that would block"),
        error @ SnapshotError::Short { .. } => StoreError::Corrupt {
            key,
            what: format!("the archive: {error}"),
        },
        SnapshotError::Io(source) => StoreError::Io {
            key,
            source: Arc::new(source),
        },
        // A missing archive does not prove that its entries are absent.
        SnapshotError::Store(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
            StoreError::Stale {
                key,
                what: "the archive is gone".into(),
            }
        }
        SnapshotError::Store(error) => error.with_key(key),
    }
}

impl SyncStore for ZipStore {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: true,
            open_infallible: self.archive.index.open_infallible(),
            is_remote: self.archive.bytes.is_remote(),
            listing: ListingSupport::Complete,
            joins_prefetches: false,
            lists_without_requests: !self.archive.bytes.is_remote(),
        }
    }

    fn omissions(&self) -> Vec<Omission> {
        let notes = self.archive.notes.iter();
        let omissions = notes.map(|note| Omission {
            what: note.clone(),
            is_lost: index::is_loss(note),
        });
        omissions.collect()
    }

    fn extent(&self) -> Extent {
        Extent {
            bytes: self.archive.bytes.size_bytes(),
            keys: self.archive.index.len(),
        }
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        Ok(self.archive.stat_of(self.archive.find(key)?))
    }

    fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let object = ZipObject::open(&self.archive, self.archive.find(key)?)?;
        Ok(match hint {
            AccessHint::Ranges => Arc::new(object),
            AccessHint::Whole(_) | AccessHint::Tail(_) => Arc::new(object.exact()),
        })
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let position = self.archive.find(prefix)?;
        if self.archive.stat_of(position).kind != Kind::Prefix {
            return Err(StoreError::NotAPrefix {
                key: prefix.clone(),
            });
        }
        Ok(Box::new(ZipListing {
            archive: Arc::clone(&self.archive),
            position,
        }))
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        match &self.archive.bytes {
            ArchiveBytes::Local(_) => None,
            ArchiveBytes::Remote(reader) => reader.transfer_stats(),
        }
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }
}

impl Archive {
    fn find(&self, key: &Key) -> Result<Position, StoreError> {
        let mut position = Position(0);
        if key.is_root() {
            return Ok(position);
        }
        for name in key.as_bytes().split(|b| *b == b'/') {
            if self.stat_of(position).kind != Kind::Prefix {
                return Err(StoreError::NotAPrefix { key: key.clone() });
            }
            let child = self.index.child(position, name);
            position = child.ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
        }
        Ok(position)
    }

    fn stat_of(&self, position: Position) -> Stat {
        let node = self.index.node(position);
        let (kind, size_bytes, links) = match node.subdirectories() {
            Some(subdirectories) => (Kind::Prefix, 0, subdirectories.saturating_add(2)),
            None => (Kind::Object, node.size_bytes(), 1),
        };
        // An implied directory has no time of its own.
        let modified = match node.modified_unix() {
            0 => None,
            seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds.into())),
        };
        Stat {
            kind,
            size_bytes,
            modified: modified.unwrap_or(self.modified),
            version: Version(0),
            links,
        }
    }
}

impl Index for ZipStore {
    fn child(&self, parent: Position, name: &[u8]) -> Option<Position> {
        self.archive.index.child(parent, name)
    }

    fn parent(&self, position: Position) -> Position {
        self.archive.index.parent(position)
    }

    fn stat(&self, position: Position) -> Option<Stat> {
        (u64::from(position.0) < self.archive.index.len()).then(|| self.archive.stat_of(position))
    }

    fn key(&self, position: Position) -> Key {
        self.archive.index.key(position)
    }

    fn open(&self, position: Position) -> Result<Arc<dyn Object>, StoreError> {
        ZipObject::open(&self.archive, position).map(|object| Arc::new(object) as _)
    }

    fn children(&self, parent: Position, skip: u64, visit: &mut VisitChild<'_>) {
        let children = self.archive.index.children(parent);
        for &child in children
            .get(usize::try_from(skip).unwrap_or(usize::MAX)..)
            .unwrap_or_default()
        {
            let node = self.archive.index.node(child);
            let kind = if node.subdirectories().is_some() {
                Kind::Prefix
            } else {
                Kind::Object
            };
            if visit(self.archive.index.name(child), kind, child).is_break() {
                break;
            }
        }
    }
}

/// An open directory of the archive.
#[derive(Debug)]
struct ZipListing {
    archive: Arc<Archive>,
    position: Position,
}

impl Listing for ZipListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let index = &self.archive.index;
        let dots = [b"." as &[u8], b".."]
            .into_iter()
            .map(|dot| (dot, Kind::Prefix, None));
        let children = index.children(self.position).iter().map(|&child| {
            let stat = self.archive.stat_of(child);
            (index.name(child), stat.kind, Some(stat))
        });
        for (next, (name, kind, stat)) in (1_u64..).zip(dots.chain(children)) {
            if next > cookie
                && visit(Listed {
                    name,
                    kind,
                    stat,
                    next,
                })
                .is_break()
            {
                return Ok(Visited::Stopped);
            }
        }
        Ok(Visited::End)
    }
}
