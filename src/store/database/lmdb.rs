//! LMDB data files, read without a lock file and without a memory map.
//!
//! Liblmdb needs to write to the lock file beside the data, maps a file of up to 1 TiB, and crashes if a
//! mapped file is truncated. This reader uses pread(2) and takes no locks.
//!
//! **Invariant:** a result is returned only if the meta page of its state is the same before and after the
//! reads. A commit of transaction N writes the meta page that N - 2 wrote. A writer reuses only pages that
//! were freed at least two transactions before its own. A page of state N is freed by N + 1 at the earliest,
//! and so overwritten by N + 3 at the earliest. N + 3 begins after N + 2 has replaced the meta page of N. A
//! state that an earlier call has proved is current if both meta pages are unchanged since then. So most
//! calls read the meta pages once, after the pages that they need.
//!
//! That holds for writers that use liblmdb. A program such as cp(1) overwrites any page, and the new database can
//! have the transactions of the old one. So the state of the file is a part of each state, cached pages and meta
//! pages are of one state of the file, and a read is valid if the file was settled before it and is the same
//! after it. A writer also changes the times of the file, at any moment of its transaction. While another
//! process has the lock file of a database open, the meta pages alone prove a read.
//!
//! Pages are untrusted: numbers, kinds, levels, bounds, and the order of keys within a page and between
//! a page and those above it are checked. Damage is an error, and never the absence of a key.

mod format;
mod lock_file;
mod page;
mod read_txn;

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use self::format::{Format, MAX_HEAD_BYTES, META_BYTES, Meta, format_of};
use self::lock_file::LockFiles;
use self::page::Page;
use self::read_txn::ReadTxn;
use super::file_state::FileState;
use super::{Database, Failure, Wait, Work, corrupt, file_error};
use crate::store::{Extent, Key, StoreError};
use crate::sync::Mutex;

/// The name of the data file in the directory of a database.
pub(super) const DATA_FILE: &str = "data.mdb";

/// Whether a file begins like an LMDB data file.
pub(super) fn is_lmdb(header: &[u8]) -> bool {
    format_of(header).is_some()
}

/// An LMDB database.
#[derive(Debug)]
pub(super) struct LmdbDatabase {
    path: PathBuf,
    lock_files: LockFiles,
    file: Mutex<Arc<DataFile>>,
    cache_bytes: usize,
}

/// An open data file in one state.
#[derive(Debug)]
struct DataFile {
    file: File,
    state: FileState,
    format: Format,
    cache_bytes: usize,
    cache: Mutex<Cache>,
    /// The state of the last call.
    last: Mutex<Option<Metas>>,
}

/// A state, and the bytes of both meta pages.
#[derive(Debug, Clone)]
struct Metas {
    meta: Meta,
    pages: Arc<[Vec<u8>; 2]>,
}

impl Metas {
    /// Returns the bytes of the meta page that describes the state.
    fn own(&self) -> &[u8] {
        let [zero, one] = &*self.pages;
        match self.meta.txn & 1 {
            0 => zero,
            _ => one,
        }
    }
}

/// Branches of one proved state.
#[derive(Debug, Default)]
struct Cache {
    txn: u64,
    pages: HashMap<u64, Arc<Page>>,
}

/// Limit of the cached pages in bytes.
const CACHE_BYTES: usize = 8 << 20;
/// Two meta pages of up to this page size, in bytes, are read together.
const MAX_NEAR_BYTES: usize = 8 << 10;
/// Number of states that one call tries before it waits.
const MAX_ATTEMPTS: usize = 16;

impl LmdbDatabase {
    /// Opens a data file. Cached pages may use a part of the memory limit.
    pub(super) fn new(path: &Path, memory_limit_bytes: u64) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let part = usize::try_from(memory_limit_bytes / 128).unwrap_or(CACHE_BYTES);
        let cache_bytes = part.min(CACHE_BYTES);
        let file = Mutex::new(Arc::new(DataFile::open(&path, cache_bytes)?));
        Ok(Self {
            lock_files: LockFiles::of(&path),
            path,
            file,
            cache_bytes,
        })
    }

    fn state(&self) -> Result<FileState, Failure> {
        FileState::at(&self.path).map_err(|error| Failure::Failed(file_error(error)))
    }

    /// Returns the file at the path in its present state.
    fn current(&self) -> Result<Arc<DataFile>, Failure> {
        let state = self.state()?;
        let mut file = self.file.lock();
        if file.state != state {
            let opened = DataFile::open(&self.path, self.cache_bytes);
            *file = Arc::new(opened.map_err(|error| Failure::Failed(file_error(error)))?);
        }
        Ok(Arc::clone(&file))
    }

    /// Whether a read of a file that was settled or not when it began is of one state of the file.
    fn is_of_one_state(&self, file: &DataFile, was_settled: bool) -> Result<bool, Failure> {
        let is_same = was_settled && self.state()? == file.state;
        Ok(is_same || self.lock_files.are_in_use())
    }
}

/// What a read waits for while the file changes.
const UNSETTLED: &str = "end of a write to the database";

impl Database for LmdbDatabase {
    fn read(&self, _: Wait, work: &mut Work<'_>) -> Result<(), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let file = self.current()?;
            let was_settled = file.state.is_settled();
            if !was_settled && !self.lock_files.are_in_use() {
                return Err(Failure::Busy(UNSETTLED));
            }
            let last = file.last.lock().clone();
            let is_fresh = last.is_none();
            let Some(metas) = last.map_or_else(|| file.metas(), |last| Ok(Some(last)))? else {
                continue;
            };
            let meta = metas.meta;
            let mut snapshot = ReadTxn::new(&file, meta, &self.lock_files);
            let result = work(&mut snapshot);
            let read = snapshot.into_branches();
            let has_metas = match is_fresh {
                true => file.meta_page(meta.page_bytes, meta.txn & 1)? == metas.own(),
                false => file.has_meta_pages(meta.page_bytes, &metas.pages)?,
            };
            if has_metas && self.is_of_one_state(&file, was_settled)? {
                file.remember(&meta, read);
                *file.last.lock() = Some(metas);
                return result;
            }
            *file.last.lock() = None;
        }
        Err(Failure::Busy(
            "state of the database that lasts for one read",
        ))
    }

    fn extent(&self) -> Extent {
        // The apparent size is often the size of the map, which writers choose to be large.
        let blocks = |file: fs::Metadata| file.blocks().saturating_mul(512);
        let metas = || self.current().ok()?.metas().ok()?;
        Extent {
            bytes: fs::metadata(&self.path).map_or(0, blocks),
            keys: metas().map_or(0, |metas| metas.meta.entries),
        }
    }
}

impl DataFile {
    fn open(path: &Path, cache_bytes: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        let state = FileState::of(&file.metadata()?);
        let mut header = [0; 64];
        let filled = file.read_at(&mut header, 0)?;
        let header = header.get(..filled).unwrap_or_default();
        let format = format_of(header).ok_or_else(|| io::Error::other("no LMDB data file"))?;
        Ok(Self {
            file,
            state,
            format,
            cache_bytes,
            cache: Mutex::default(),
            last: Mutex::default(),
        })
    }

    /// Reads bytes of the file; `None` if the file is too short.
    fn bytes(&self, offset: u64, target: &mut [u8]) -> Result<Option<()>, Failure> {
        match self.file.read_exact_at(target, offset) {
            Ok(()) => Ok(Some(())),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Failure::Failed(StoreError::from_io(&Key::root(), e))),
        }
    }

    /// Reads the head and the body of a meta page.
    fn meta_page(&self, page_bytes: usize, number: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; self.format.head_bytes + META_BYTES];
        let offset = (page_bytes as u64).saturating_mul(number);
        let read = self.bytes(offset, &mut bytes)?;
        let ends = || corrupt(format!("the file ends in meta page {number}"));
        read.map(|()| bytes).ok_or_else(ends)
    }

    /// Whether both meta pages have these bytes; takes one read if they are close together.
    fn has_meta_pages(&self, page_bytes: usize, pages: &[Vec<u8>; 2]) -> Result<bool, Failure> {
        let [zero, one] = pages;
        let mut near = [0; MAX_NEAR_BYTES + MAX_HEAD_BYTES + META_BYTES];
        let end = page_bytes.saturating_add(one.len());
        let Some(near) = near.get_mut(..end) else {
            return Ok(
                self.meta_page(page_bytes, 0)? == *zero && self.meta_page(page_bytes, 1)? == *one
            );
        };
        let ends = || corrupt("the file ends in its meta pages");
        self.bytes(0, near)?.ok_or_else(ends)?;
        Ok(near.starts_with(zero) && near.ends_with(one))
    }

    /// Returns the current state; `None` if a commit happened during the reads.
    ///
    /// Meta page 0 is read again after page 1. A page that is being written is that of the older state, and
    /// both pages would have to change to make the older state look like the newer one.
    fn metas(&self) -> Result<Option<Metas>, Failure> {
        let first = self.meta_page(0, 0)?;
        let state = self.parse_metas(&first);
        if self.meta_page(0, 0)? != first {
            return Ok(None);
        }
        match state {
            Ok(state) => Ok(Some(state)),
            // Page 1 may have been in the middle of a write; the caller reads it again.
            Err(error) => match self.parse_metas(&first) {
                Ok(_) => Ok(None),
                Err(_) => Err(error),
            },
        }
    }

    fn parse_metas(&self, first: &[u8]) -> Result<Metas, Failure> {
        let zero = Meta::parse(&self.format, first, 0)?;
        let second = self.meta_page(zero.page_bytes, 1)?;
        let one = Meta::parse(&self.format, &second, 1)?;
        if zero.page_bytes != one.page_bytes {
            return Err(corrupt("its meta pages have different page sizes"));
        }
        // Commits alternate between the pages, so their transactions are consecutive.
        if zero.txn.abs_diff(one.txn) > 1 {
            return Err(corrupt("its meta pages are of transactions far apart"));
        }
        Ok(Metas {
            meta: match zero.txn < one.txn {
                true => one,
                false => zero,
            },
            pages: Arc::new([first.to_vec(), second]),
        })
    }

    fn generation(&self, txn: u64) -> u64 {
        let mut hasher = SipHasher13::new();
        (self.state, txn).hash(&mut hasher);
        hasher.finish()
    }

    fn cached(&self, txn: u64, number: u64) -> Option<Arc<Page>> {
        let cache = self.cache.lock();
        let page = cache.pages.get(&number).filter(|_| cache.txn == txn);
        page.cloned()
    }

    /// Caches branches of a proved state.
    fn remember(&self, meta: &Meta, pages: HashMap<u64, Arc<Page>>) {
        let most = self.cache_bytes / meta.page_bytes.max(1);
        let mut cache = self.cache.lock();
        if cache.txn != meta.txn || cache.pages.len().saturating_add(pages.len()) > most {
            cache.pages.clear();
        }
        cache.txn = meta.txn;
        cache.pages.extend(pages);
    }
}
