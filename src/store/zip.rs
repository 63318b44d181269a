//! A zip archive as a store: entry names are keys, the central directory is the index.
//!
//! The directory is parsed by `rawzip`; what is believed of it is decided here and in `index`
//! (faults A1-A17): names are checked component by component, every entry's byte range must lie
//! before the directory and overlap no other, the local header must agree with the directory, and
//! decoded bytes must have the declared size and CRC-32. The archive is read with pread, never
//! mapped, and pinned: if the file changes, reads say [`StoreError::Stale`].
//!
//! CRC policy: a compressed entry is checked whenever it is decoded (one of more than
//! 64 MiB when its end is first reached). A stored entry is checked when all of it has
//! been read once, in whatever order; a bad one fails from then on, for good. With
//! [`ZipOptions::verify`] every entry is checked before its first byte is served.

mod cache;
mod checked;
mod entry;
mod header;
mod index;
mod inflate;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::warn;
use rawzip::{ReaderAt, ZipArchive, ZipLocator};

use self::cache::DecodedCache;
use self::checked::CheckProgress;
use self::entry::ZipObject;
use self::index::{Built, ZipIndex};
use self::inflate::{Inflaters, SEGMENT_BYTES, WHOLE_MAX_BYTES};
use super::pinned::PinnedFile;
use super::{
    Extent, Index, Key, Kind, Listed, Listing, Listings, Object, Position, Promises, Stat, Store,
    StoreError, Version, Visit, VisitChild,
};

/// How an archive is opened.
#[derive(Debug, Clone, Copy)]
pub struct ZipOptions {
    /// Check every entry whole before its first byte is served.
    pub verify: bool,
    /// Fail if anything in the archive would be hidden or could not be read.
    pub strict: bool,
    /// Budget of decoded entries that are kept, in bytes.
    pub cache_bytes: u64,
    /// The most that the index, or one decoded entry, may take, in bytes.
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

/// Why an archive can not be mounted at all.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// There is no end-of-central-directory record: not a zip, or a truncated one.
    #[error("no end of central directory: not a zip archive, or a truncated one")]
    NoDirectory,
    /// The directory is not what its end record claims.
    #[error("bad central directory: {0}")]
    BadDirectory(String),
    /// The index would not fit.
    #[error(
        "{entries} entries need about {need_bytes} bytes of memory, the limit is {limit_bytes} \
         (see --memory-limit)"
    )]
    TooLarge {
        /// What the archive claims to hold.
        entries: u64,
        /// What the index would take.
        need_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// `--strict`, and something would not be shown as it is.
    #[error("refused by --strict: {0}")]
    Strict(String),
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An open archive; shared by the store and the entries that are being read.
#[derive(Debug)]
struct Archive {
    file: PinnedFile,
    index: ZipIndex,
    /// Where the central directory begins: entries end before it.
    data_end: u64,
    options: ZipOptions,
    /// When the archive was last changed.
    modified: SystemTime,
    decoded: DecodedCache,
    /// Deflated entries up to this size are decoded at once, bigger ones in segments.
    whole_max_bytes: u64,
    inflaters: Inflaters,
    checks: Mutex<CheckProgress>,
}

/// A store in a zip archive.
#[derive(Debug)]
pub struct ZipStore {
    archive: Arc<Archive>,
    label: String,
}

/// Decoded entries are kept only to bridge the pieces that the kernel asks for; it caches the rest.
const DECODED_MAX_BYTES: u64 = 256 << 20;

impl ZipStore {
    /// Reads the central directory of an open archive.
    ///
    /// # Errors
    /// [`ZipError`]; nothing is allocated by a number from the archive before it is proved to fit.
    pub fn open(file: File, label: &str, options: ZipOptions) -> Result<Self, ZipError> {
        let file = PinnedFile::new(file)?;
        let (located, mut buffer) = locate(&file)?;
        let data_end = located.directory_offset();
        let split = is_split(&file, located.eocd_offset())?;
        let Built { index, notes } = index::build(&located, &mut buffer, split, &options)?;
        for note in &notes {
            if options.strict {
                return Err(ZipError::Strict(note.clone()));
            }
            warn!("{label}: {note}");
        }
        let modified = file.modified();
        let decoded_bytes = options
            .cache_bytes
            .min(DECODED_MAX_BYTES)
            .min(options.memory_limit_bytes / 8);
        let archive = Archive {
            modified,
            decoded: DecodedCache::new(decoded_bytes),
            whole_max_bytes: WHOLE_MAX_BYTES.min(decoded_bytes / 2).max(SEGMENT_BYTES),
            inflaters: Inflaters::default(),
            checks: Mutex::new(CheckProgress::default()),
            file,
            index,
            data_end,
            options,
        };
        archive
            .file
            .check()
            .map_err(|e| ZipError::BadDirectory(format!("changed while being read: {e:?}")))?;
        Ok(Self {
            archive: Arc::new(archive),
            label: label.to_owned(),
        })
    }
}

impl ReaderAt for &PinnedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file().read_at(buffer, offset)
    }
}

/// Finds the end record, also behind a comment that looks like one.
fn locate(file: &PinnedFile) -> Result<(ZipArchive<&PinnedFile>, Vec<u8>), ZipError> {
    let mut buffer = vec![0; 1 << 20];
    let mut end = file.size_bytes();
    let mut first_failure = None;
    // Each round begins before the last false end record.
    for _ in 0..64 {
        match ZipLocator::new().locate_in_reader(file, &mut buffer, end) {
            Ok(archive) => {
                // Nothing shows that an empty directory is one, but that nothing follows it.
                let begins_well = match archive.entries_hint() {
                    0 => comment_fits(file, archive.eocd_offset())?,
                    _ => archive.entries(&mut buffer).next_entry().is_ok(),
                };
                if begins_well && archive.directory_offset() <= archive.eocd_offset() {
                    return Ok((archive, buffer));
                }
                first_failure.get_or_insert("does not begin where the end record says".to_owned());
                end = archive.eocd_offset();
            }
            Err((_, e)) => {
                let offset = e.eocd_offset().filter(|offset| *offset < end);
                let (what, is_false_record) = match e.into_kind() {
                    // What a false record points at is not there.
                    rawzip::ErrorKind::IO(e) if is_beyond(&e) => {
                        ("it points behind the end of the file".into(), true)
                    }
                    rawzip::ErrorKind::IO(e) => return Err(e.into()),
                    kind => (rawzip::Error::from(kind).to_string(), true),
                };
                let (Some(offset), true) = (offset, is_false_record) else {
                    break;
                };
                first_failure.get_or_insert(what);
                end = offset;
            }
        }
    }
    Err(first_failure.map_or(ZipError::NoDirectory, ZipError::BadDirectory))
}

/// A read behind the end of the file, or behind all that a file can have.
fn is_beyond(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput
    )
}

/// The end record (APPNOTE 4.3.16).
fn end_record(file: &PinnedFile, eocd_offset: u64) -> io::Result<[u8; 22]> {
    let mut record = [0; 22];
    file.file().read_exact_at(&mut record, eocd_offset)?;
    Ok(record)
}

/// Whether the comment of an end record ends where the file does.
fn comment_fits(file: &PinnedFile, eocd_offset: u64) -> io::Result<bool> {
    let [.., low, high] = end_record(file, eocd_offset)?;
    let comment_bytes = u64::from(u16::from_le_bytes([low, high]));
    Ok(eocd_offset.saturating_add(22 + comment_bytes) == file.size_bytes())
}

/// Whether the end record belongs to an archive of several files.
fn is_split(file: &PinnedFile, eocd_offset: u64) -> io::Result<bool> {
    let [_, _, _, _, disk_low, disk_high, first_low, first_high, ..] =
        end_record(file, eocd_offset)?;
    let disk = u16::from_le_bytes([disk_low, disk_high]);
    let first = u16::from_le_bytes([first_low, first_high]);
    if disk != first || !matches!(disk, 0 | u16::MAX) {
        return Ok(true);
    }
    let Some(locator_offset) = eocd_offset.checked_sub(20) else {
        return Ok(false);
    };
    // The zip64 locator says how many files there are (APPNOTE 4.3.15).
    let mut locator = [0; 20];
    file.file().read_exact_at(&mut locator, locator_offset)?;
    let [b'P', b'K', 6, 7, a, b, c, d, .., e, f, g, h] = locator else {
        return Ok(false);
    };
    let files = u32::from_le_bytes([e, f, g, h]);
    Ok(u32::from_le_bytes([a, b, c, d]) != 0 || files > 1)
}

impl Store for ZipStore {
    fn label(&self) -> &str {
        &self.label
    }

    fn promises(&self) -> Promises {
        Promises {
            pinned: true,
            all_open: self.archive.index.all_open(),
            is_far: false,
            listings: Listings::Complete,
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            bytes: self.archive.file.size_bytes(),
            keys: self.archive.index.len(),
        }
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        Ok(self.archive.stat_of(self.archive.find(key)?))
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        Index::open(self, self.archive.find(key)?)
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
        // A directory that is only implied has no time of its own.
        let modified = match node.modified_unix() {
            0 => None,
            seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds.into())),
        };
        Stat {
            kind,
            size_bytes,
            blocks: size_bytes.div_ceil(512),
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

/// A directory of the archive.
#[derive(Debug)]
struct ZipListing {
    archive: Arc<Archive>,
    position: Position,
}

impl Listing for ZipListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
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
                break;
            }
        }
        Ok(())
    }
}
