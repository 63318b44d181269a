//! Blocks of bytes kept in a directory: they outlive the process, and several processes can
//! share them.
//!
//! A block is used only if it is complete and proven: format, full name, length and checksum
//! ([`block`]). Any other file in its place is removed and counts as a miss. So nothing needs to
//! be synced, locked or repaired: after a crash, a torn block counts as missing.
//!
//! A process that is about to fetch a value can [lock](DiskCache::try_fetch_lock) its name, so that others
//! wait for the block instead of fetching the same bytes.
//!
//! **Architecture Invariant:** [`DiskCache::get`] takes no lock, and neither it nor
//! [`DiskCache::put`] waits for evictions. One thread evicts ([`eviction`]); while it has not freed
//! space, new blocks are not kept.

mod block;
mod cache_dir;
mod eviction;
mod fetch_lock;
#[cfg(test)]
pub(crate) mod simulated;
mod space_budget;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Stat as FileStat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::Errno;

use block::{BlockPath, InvalidBlock};
use cache_dir::{CacheDir, OpenedFile};
use fetch_lock::FetchLocks;
pub(super) use fetch_lock::{FetchLock, TryLock};
use space_budget::SpaceBudget;

use crate::clock::{self, Instant};

/// Why a directory cannot be used as a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskCacheError {
    /// The path leads to a symbolic link or to something else that is no directory.
    #[error("{}: not a directory, or a symbolic link", path.display())]
    NotADirectory {
        /// The path that was opened.
        path: PathBuf,
    },
    /// The directory belongs to another user, who could change its content.
    #[error("{}: belongs to user {owner}, not to user {user}", path.display())]
    Foreign {
        /// The path that was opened.
        path: PathBuf,
        /// The user ID of the owner.
        owner: u32,
        /// The user ID of this process.
        user: u32,
    },
    /// The group or all users can change the content of the directory.
    #[error("{}: mode {mode:04o} lets other users write to it", path.display())]
    Writable {
        /// The path that was opened.
        path: PathBuf,
        /// The permissions of the directory.
        mode: rustix::fs::RawMode,
    },
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path that was opened.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Counters since the cache was opened, and its current state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Blocks that were returned.
    pub hits: u64,
    /// Requests for blocks that did not exist or were dropped.
    pub misses: u64,
    /// Blocks that existed but were not proven complete.
    pub dropped: u64,
    /// Bytes written for blocks that were kept.
    pub written_bytes: u64,
    /// Blocks that were not kept: too long, or space was not free yet.
    pub skipped: u64,
    /// Blocks that were evicted.
    pub evicted: u64,
    /// Bytes that all blocks take; blocks of other processes as of the last count.
    pub total_bytes: u64,
    /// Whether writing has failed and is no longer attempted.
    pub is_off: bool,
}

/// Blocks of bytes in a directory.
#[derive(Debug)]
pub struct DiskCache {
    shared: Arc<Shared>,
    fetch_locks: Arc<FetchLocks>,
}

/// State that is shared with the eviction thread.
#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    cache_dir: CacheDir,
    budget: SpaceBudget,
    /// Part of the names of temporary files, which makes them unique to this process.
    unique: u64,
    temporary_files: AtomicU64,
    /// How old the time of a block may be before a use sets it again, in milliseconds.
    touch_after_ms: AtomicU64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    dropped: AtomicU64,
    written_bytes: AtomicU64,
    skipped: AtomicU64,
    evicted: AtomicU64,
    is_off: AtomicBool,
}

/// Interval between updates of the time of use, unless blocks live too short for that, in milliseconds.
const TOUCH_AFTER_MS: u64 = 60 * 60 * 1000;
/// Updates of the time of use during the life of a block.
const TOUCHES_PER_LIFE: u64 = 8;
const TOUCH_AFTER_MIN_MS: u64 = 1000;

impl DiskCache {
    /// Opens a directory, creating it if it does not exist. Its content is counted later.
    ///
    /// The process must not fork afterwards, because the child would lack the eviction thread.
    ///
    /// # Errors
    /// If the path is no directory, if other users can write to it, or if it cannot be opened or created.
    pub fn open(directory: &Path, budget_bytes: u64) -> Result<Self, DiskCacheError> {
        let cache = Self::open_without_eviction(directory, budget_bytes)?;
        let evictor = Arc::clone(&cache.shared);
        thread::Builder::new()
            .name("zarrfs-disk".into())
            .spawn(move || evictor.run_eviction_thread())
            .map_err(|source| DiskCacheError::Io {
                path: cache.directory().to_owned(),
                source,
            })?;
        Ok(cache)
    }

    /// As [`DiskCache::open`], without the thread that evicts.
    fn open_without_eviction(directory: &Path, budget_bytes: u64) -> Result<Self, DiskCacheError> {
        // Without a trailing slash, which would follow a link.
        let directory: PathBuf = directory.components().collect();
        let cache_dir = CacheDir::open(&directory)?;
        let fetch_locks =
            FetchLocks::new(cache_dir.directory().map_err(|source| DiskCacheError::Io {
                path: directory.clone(),
                source,
            })?);
        let shared = Shared {
            directory,
            cache_dir,
            budget: SpaceBudget::new(budget_bytes),
            unique: RandomState::new().hash_one(()),
            temporary_files: AtomicU64::new(0),
            touch_after_ms: AtomicU64::new(TOUCH_AFTER_MS),
            counts: Counts::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            fetch_locks,
        })
    }

    /// The directory, as passed to [`DiskCache::open`].
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns the block with this name, if it exists, is proven complete and has at most `max_bytes`.
    pub fn get(&self, name: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
        let found = self.shared.read(name, max_bytes);
        let counts = &self.shared.counts;
        let count = if found.is_some() {
            &counts.hits
        } else {
            &counts.misses
        };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps a block, unless it is longer than a quarter of the budget or space is not free yet.
    ///
    /// The first failure is logged and ends all writing.
    pub fn put(&self, name: &[u8], bytes: &[u8]) {
        let counts = &self.shared.counts;
        if counts.is_off.load(Ordering::Relaxed) {
            return;
        }
        let written = match self.shared.write(name, bytes) {
            Err(e) if !is_transient(&e) => return self.shared.turn_off(&e),
            written => written.ok().flatten(),
        };
        match written {
            Some(bytes) => counts.written_bytes.fetch_add(bytes, Ordering::Relaxed),
            None => counts.skipped.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Tries to lock a value that the caller will fetch and store in blocks of at most `bytes`. The lock
    /// excludes other processes that use the directory.
    pub(super) fn try_fetch_lock(&self, name: &[u8], bytes: u64) -> TryLock {
        // No process can wait for a block that is not kept.
        let is_kept = bytes <= self.shared.budget.max_file_bytes();
        match is_kept && !self.shared.counts.is_off.load(Ordering::Relaxed) {
            true => self.fetch_locks.try_lock(name),
            false => TryLock::Unsupported,
        }
    }

    /// Returns the counters and the current state of the cache.
    pub fn counters(&self) -> DiskCounters {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DiskCounters {
            hits: read(&counts.hits),
            misses: read(&counts.misses),
            dropped: read(&counts.dropped),
            written_bytes: read(&counts.written_bytes),
            skipped: read(&counts.skipped),
            evicted: read(&counts.evicted),
            total_bytes: self.shared.budget.total_bytes(),
            is_off: counts.is_off.load(Ordering::Relaxed),
        }
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        // The thread is not joined: a disk that hangs must not keep the process from ending.
        self.shared.budget.close();
    }
}

impl Shared {
    fn read(&self, name: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
        let path = BlockPath::of(name);
        let unproven = match self.cache_dir.file(&path) {
            OpenedFile::Nothing => return None,
            OpenedFile::Other => InvalidBlock::Invalid("it is not a file"),
            OpenedFile::File(file, stat) => {
                let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
                match block::read(&file, file_bytes, name, max_bytes) {
                    Ok(data) => {
                        self.touch(&file, &stat);
                        return Some(data);
                    }
                    Err(InvalidBlock::NoMemory) => return None,
                    Err(unproven) => unproven,
                }
            }
        };
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        log::debug!(
            "{}: block {} is dropped: {unproven}",
            self.directory.display(),
            path.file
        );
        self.cache_dir.remove(&path);
        None
    }

    /// Records the use of a block in its modification time, because not all mounts update the access
    /// time.
    fn touch(&self, file: &std::fs::File, stat: &FileStat) {
        let now = clock::system_time();
        let after = Duration::from_millis(self.touch_after_ms.load(Ordering::Relaxed));
        // A time in the future would keep the block until then.
        let is_ahead = eviction::modified(stat) > now;
        if is_ahead || eviction::age(stat, now) >= after {
            let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            // If this fails, the block is only evicted earlier.
            let _ = futimens(
                file,
                &Timestamps {
                    last_access: at(UTIME_OMIT),
                    last_modification: at(UTIME_NOW),
                },
            );
        }
    }

    /// Writes a block; returns the bytes written, or `None` if the block is not kept.
    fn write(&self, name: &[u8], bytes: &[u8]) -> io::Result<Option<u64>> {
        let Some(head) = block::head(name, bytes) else {
            return Ok(None);
        };
        let file_bytes = u64::try_from(head.len().saturating_add(bytes.len())).unwrap_or(u64::MAX);
        let allocated_bytes = eviction::allocated_bytes(file_bytes);
        if file_bytes > self.budget.max_file_bytes() || !self.budget.try_reserve(allocated_bytes) {
            return Ok(None);
        }
        let number = self.temporary_files.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{:016x}-{number:x}", self.unique);
        let written = self.cache_dir.write(&BlockPath::of(name), &unique, |file| {
            file.write_all(&head)?;
            #[cfg(test)]
            simulated::check_space()?;
            file.write_all(bytes)
        });
        self.budget.finish_write(allocated_bytes, written.is_ok());
        written.map(|()| Some(file_bytes))
    }

    fn turn_off(&self, why: &dyn std::fmt::Display) {
        if !self.counts.is_off.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}: nothing is written to the cache any more: {why}",
                self.directory.display()
            );
        }
    }

    /// The main loop of the eviction thread.
    fn run_eviction_thread(&self) {
        let mut rest = self.count_and_evict();
        let unique = format!("{:016x}", self.unique);
        self.cache_dir
            .remove_other_versions(&unique, &|| !self.budget.is_closed());
        while self.budget.wait(rest) {
            rest = self.count_and_evict();
        }
    }

    /// Counts, and evicts blocks if necessary. Returns how long that took, which is also the least pause
    /// before the next count: a cache that fills too fast must not occupy a whole processor.
    fn count_and_evict(&self) -> Duration {
        let started = Instant::now();
        self.budget.begin_count();
        let target_bytes = self.budget.target_bytes();
        let evicted =
            eviction::count_and_evict(&self.cache_dir, target_bytes, &|| !self.budget.is_closed());
        self.counts
            .evicted
            .fetch_add(evicted.blocks, Ordering::Relaxed);
        if let Some(unused_for) = evicted.unused_for {
            let life_ms = u64::try_from(unused_for.as_millis()).unwrap_or(u64::MAX);
            let after_ms = (life_ms / TOUCHES_PER_LIFE).clamp(TOUCH_AFTER_MIN_MS, TOUCH_AFTER_MS);
            self.touch_after_ms.store(after_ms, Ordering::Relaxed);
        }
        let is_full = self.budget.end_count(evicted.total_bytes);
        if let Some(why) = evicted.error.filter(|_| is_full) {
            self.turn_off(&format!("no space can be freed: {why}"));
        }
        started.elapsed()
    }
}

/// Whether a failure is specific to this block or moment, not to the directory.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::INTR
                | Errno::AGAIN
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::EXIST
                | Errno::ISDIR
                | Errno::NOTEMPTY
        )
    )
}

#[cfg(test)]
mod tests;
