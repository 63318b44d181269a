//! Blocks of bytes kept in a directory: they outlive the process, and several processes can
//! share them.
//!
//! A block is believed only as a whole and only when it is proven: format, full name, length
//! and checksum ([`block`]). Whatever else is found in its place is removed and is a miss, so
//! nothing needs to be synced, locked or repaired: after a crash, what is torn is not there.
//!
//! A process that is about to fetch something can [claim](DiskCache::claim) it, so that the others wait
//! for the block instead of fetching the same bytes.
//!
//! **Architecture Invariant:** [`DiskCache::get`] takes no lock, and neither it nor
//! [`DiskCache::put`] waits for the removal of other blocks. That is done by one thread
//! ([`sweep`]); while it has no room made, blocks are not kept.

mod block;
mod claim;
mod place;
mod room;
mod sweep;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Stat as FileStat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::Errno;

use block::{BlockPath, Unproven};
use claim::Claims;
pub(super) use claim::{Claim, Claimed};
use place::{Opened, Place};
use room::Room;

/// A directory that cannot be used as a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskCacheError {
    /// The path leads to a symbolic link or to something else that is no directory.
    #[error("{}: not a directory, or a symbolic link", path.display())]
    NotADirectory {
        /// What was opened.
        path: PathBuf,
    },
    /// The directory belongs to somebody else, who could change what is in it.
    #[error("{}: belongs to user {owner}, not to user {user}", path.display())]
    Foreign {
        /// What was opened.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        user: u32,
    },
    /// The group or everybody can change what is in the directory.
    #[error("{}: mode {mode:04o} lets other users write to it", path.display())]
    Writable {
        /// What was opened.
        path: PathBuf,
        /// Its permissions.
        mode: rustix::fs::RawMode,
    },
    /// The operating system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was opened.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What a cache has done since it was opened, and how it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Blocks that were given out.
    pub hits: u64,
    /// Blocks that were asked for and not there, or dropped.
    pub misses: u64,
    /// Blocks that were there and not proven whole.
    pub dropped: u64,
    /// Bytes written for blocks that were kept.
    pub written_bytes: u64,
    /// Blocks that were not kept: too big, or room was still being made.
    pub skipped: u64,
    /// Blocks that were removed to make room.
    pub evicted: u64,
    /// What all blocks take, those of other processes as of the last count.
    pub total_bytes: u64,
    /// Whether writing has failed and is not tried any more.
    pub is_off: bool,
}

/// Blocks of bytes in a directory.
#[derive(Debug)]
pub struct DiskCache {
    shared: Arc<Shared>,
    claims: Arc<Claims>,
}

/// What the thread that removes blocks needs, too.
#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    place: Place,
    room: Room,
    /// Part of the names of temporary files, so that no two processes take the same.
    unique: u64,
    names: AtomicU64,
    /// How long a block is used before its time is set again.
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

/// A time of use is worth a write this often; oftener only where blocks do not live that long.
const TOUCH_AFTER_MS: u64 = 60 * 60 * 1000;
/// Of the life of a block.
const TOUCHES_PER_LIFE: u64 = 8;
const TOUCH_AFTER_MIN_MS: u64 = 1000;

impl DiskCache {
    /// Opens a directory, which is made if it does not exist. What is in it is counted later.
    ///
    /// The process must not fork afterwards: the thread that removes blocks would be lost.
    ///
    /// # Errors
    /// The directory is not one, is not ours alone, or cannot be opened or made.
    pub fn open(directory: &Path, budget_bytes: u64) -> Result<Self, DiskCacheError> {
        // Without the slash at the end, which would follow a link.
        let directory: PathBuf = directory.components().collect();
        let place = Place::open(&directory)?;
        let claims = Claims::new(place.directory().map_err(|source| DiskCacheError::Io {
            path: directory.clone(),
            source,
        })?);
        let shared = Arc::new(Shared {
            directory: directory.clone(),
            place,
            room: Room::new(budget_bytes),
            unique: RandomState::new().hash_one(()),
            names: AtomicU64::new(0),
            touch_after_ms: AtomicU64::new(TOUCH_AFTER_MS),
            counts: Counts::default(),
        });
        let sweeper = Arc::clone(&shared);
        thread::Builder::new()
            .name("zarrfs-disk".into())
            .spawn(move || sweeper.work())
            .map_err(|source| DiskCacheError::Io {
                path: directory,
                source,
            })?;
        Ok(Self { shared, claims })
    }

    /// The directory, as it was given.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The block of that name, if it is there, proven whole and not longer than `max_bytes`.
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

    /// Keeps a block, unless it is longer than a quarter of the budget or there is no room yet.
    ///
    /// The first failure is told in the log and ends all writing.
    pub fn put(&self, name: &[u8], bytes: &[u8]) {
        let counts = &self.shared.counts;
        if counts.is_off.load(Ordering::Relaxed) {
            return;
        }
        let written = match self.shared.write(name, bytes) {
            Err(e) if !is_passing(&e) => return self.shared.turn_off(&e),
            written => written.ok().flatten(),
        };
        match written {
            Some(bytes) => counts.written_bytes.fetch_add(bytes, Ordering::Relaxed),
            None => counts.skipped.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Claims the right to fetch what will be put as blocks of at most `bytes`, against other processes
    /// that use the directory.
    pub(super) fn claim(&self, name: &[u8], bytes: u64) -> Claimed {
        // Nobody can wait for a block that is not kept.
        let is_kept = bytes <= self.shared.room.longest_bytes();
        match is_kept && !self.shared.counts.is_off.load(Ordering::Relaxed) {
            true => self.claims.claim(name),
            false => Claimed::Unknown,
        }
    }

    /// What the cache has done so far, and how it is.
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
            total_bytes: self.shared.room.total_bytes(),
            is_off: counts.is_off.load(Ordering::Relaxed),
        }
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        // Not joined: a disk that hangs must not keep the process from ending.
        self.shared.room.close();
    }
}

impl Shared {
    fn read(&self, name: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
        let path = BlockPath::of(name);
        let unproven = match self.place.file(&path) {
            Opened::Nothing => return None,
            Opened::Other => Unproven::Wrong("it is not a file"),
            Opened::File(file, stat) => {
                let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
                match block::read(&file, file_bytes, name, max_bytes) {
                    Ok(data) => {
                        self.touch(&file, &stat);
                        return Some(data);
                    }
                    Err(Unproven::NoMemory) => return None,
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
        self.place.remove(&path);
        None
    }

    /// Notes the use of a block: in its time of modification, as the time of access is not kept
    /// by all mounts.
    fn touch(&self, file: &std::fs::File, stat: &FileStat) {
        let now = SystemTime::now();
        let after = Duration::from_millis(self.touch_after_ms.load(Ordering::Relaxed));
        // A time that lies ahead would keep the block for as long.
        let is_ahead = sweep::modified(stat) > now;
        if is_ahead || sweep::age(stat, now) >= after {
            let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            // Without it the block only goes earlier.
            let _ = futimens(
                file,
                &Timestamps {
                    last_access: at(UTIME_OMIT),
                    last_modification: at(UTIME_NOW),
                },
            );
        }
    }

    /// The bytes written; none if the block is not to be kept.
    fn write(&self, name: &[u8], bytes: &[u8]) -> io::Result<Option<u64>> {
        let Some(head) = block::head(name, bytes) else {
            return Ok(None);
        };
        let file_bytes = u64::try_from(head.len().saturating_add(bytes.len())).unwrap_or(u64::MAX);
        let cost = sweep::cost(file_bytes);
        if file_bytes > self.room.longest_bytes() || !self.room.take(cost) {
            return Ok(None);
        }
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{:016x}-{number:x}", self.unique);
        let written = self.place.write(&BlockPath::of(name), &unique, |file| {
            file.write_all(&head)?;
            file.write_all(bytes)
        });
        self.room.settle(cost, written.is_ok());
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

    /// The life of the thread that removes blocks.
    fn work(&self) {
        let mut rest = self.sweep();
        let unique = format!("{:016x}", self.unique);
        self.place
            .remove_other_versions(&unique, &|| !self.room.is_closed());
        while self.room.wait(rest) {
            rest = self.sweep();
        }
    }

    /// Counts, and makes room if need be. Returns how long it took: what cannot be kept up
    /// with must not take a whole processor.
    fn sweep(&self) -> Duration {
        let started = Instant::now();
        self.room.begin_count();
        let keep_bytes = self.room.keep_bytes();
        let swept = sweep::sweep(&self.place, keep_bytes, &|| !self.room.is_closed());
        self.counts
            .evicted
            .fetch_add(swept.evicted, Ordering::Relaxed);
        if let Some(lifetime) = swept.lifetime {
            let life_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            let after_ms = (life_ms / TOUCHES_PER_LIFE).clamp(TOUCH_AFTER_MIN_MS, TOUCH_AFTER_MS);
            self.touch_after_ms.store(after_ms, Ordering::Relaxed);
        }
        let is_full = self.room.end_count(swept.total_bytes);
        if let Some(why) = swept.refused.filter(|_| is_full) {
            self.turn_off(&format!("no room can be made: {why}"));
        }
        started.elapsed()
    }
}

/// Whether a failure is of this block and moment, and not of the directory.
fn is_passing(error: &io::Error) -> bool {
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
