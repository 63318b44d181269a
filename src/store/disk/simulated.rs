//! Disk caches in a simulation: the real files of a directory, which several simulated mounts share, and which is damaged
//! while they use it.
//!
//! The files and locks are those of the file system, because each call of a cache is synchronous. Only the thread that
//! evicts is a task of the simulation, and the times of the files are set to those of the virtual clock, in steps of
//! one eviction: otherwise the system would decide which blocks are evicted.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Timespec, Timestamps, utimensat};
use tempfile::TempDir;

use super::cache_dir::{CacheFileKind, VERSION_NAME};
use super::{DiskCache, Shared, eviction};
use crate::clock;
use crate::runtime;
use crate::runtime::simulated::{below, record};

/// A directory in memory, if there is one: a simulation needs no disk.
const MEMORY: &str = "/dev/shm";

/// The longest time in milliseconds between two looks of a cache whether an eviction is due.
const EVICTION_MILLIS: u64 = 2000;

thread_local! {
    /// Whether the disk of the simulation on this thread is full.
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
}

/// A directory for the disk caches of simulated mounts.
#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    directory: TempDir,
    budget_bytes: u64,
}

/// Fails if the disk is full.
pub(super) fn check_space() -> io::Result<()> {
    match IS_FULL.get() {
        true => Err(rustix::io::Errno::NOSPC.into()),
        false => Ok(()),
    }
}

/// Returns the files of blocks, and unfinished ones, in an order that is the same each time.
fn files(directory: &Path) -> Vec<PathBuf> {
    let list = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let subdirs = list(&directory.join(VERSION_NAME));
    let subdirs = subdirs.into_iter().filter(|path| path.is_dir());
    subdirs.flat_map(|subdir| list(&subdir)).collect()
}

impl SimulatedDisk {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        IS_FULL.set(false);
        let memory = tempfile::tempdir_in(MEMORY);
        let directory = memory.or_else(|_| tempfile::tempdir());
        Self {
            directory: directory.expect("a temporary directory"),
            budget_bytes,
        }
    }

    /// Opens the directory as another process does.
    pub(crate) fn open(&self) -> Arc<DiskCache> {
        let opened = DiskCache::open_without_eviction(self.directory.path(), self.budget_bytes);
        let cache = Arc::new(opened.expect("a directory for a cache"));
        runtime::spawn(evict(Arc::downgrade(&cache.shared))).detach();
        cache
    }

    /// Does to the files of the caches what a crash, a user or another program may do.
    pub(crate) fn damage(&self) {
        let files = files(self.directory.path());
        let one = || {
            let number = usize::try_from(below(files.len() as u64)).expect("short");
            files.get(number).cloned()
        };
        let (Some(file), Some(other)) = (one(), one()) else {
            return;
        };
        let what = match below(30) {
            23..29 | 0..5 => change_bytes(&file),
            5..8 => {
                replace(&other, &file);
                "another block"
            }
            8..12 => {
                // It may be a directory.
                let _ = fs::remove_file(&file);
                "a removed block"
            }
            12..14 => {
                let _ = fs::remove_file(&file);
                let _ = fs::create_dir(&file);
                "a directory in place of a block"
            }
            14..16 => {
                let written = fs::read(&other).unwrap_or_default();
                let part = written.get(..written.len() / 2).unwrap_or_default();
                let killed = file.with_file_name(format!("tmp-killed-{}", below(4)));
                // A directory of blocks may be gone.
                let _ = fs::write(&killed, part);
                set_time(
                    &killed,
                    clock::system_time() - Duration::from_secs(below(8000)),
                );
                "an unfinished block"
            }
            16..20 => {
                set_time(
                    &file,
                    clock::system_time() - Duration::from_secs(below(80_000)),
                );
                "an old block"
            }
            20 => {
                let _ = fs::remove_dir_all(file.parent().expect("it has one"));
                "a removed directory of blocks"
            }
            21 => {
                let _ = fs::remove_file(self.directory.path().join(VERSION_NAME).join("claims"));
                "removed locks"
            }
            22 => {
                let _ = fs::remove_dir_all(self.directory.path());
                "a removed cache"
            }
            _ => {
                IS_FULL.set(!IS_FULL.get());
                "a full disk, or no longer"
            }
        };
        record(format!("* on disk: {what}"));
    }

    /// Ends all that keeps the caches from working.
    pub(crate) fn repair(&self) {
        IS_FULL.set(false);
    }

    /// Evicts once more with the open `caches`, and returns what is wrong with the directory then.
    pub(crate) fn check(&self, caches: &[Arc<DiskCache>]) -> Vec<String> {
        let mut wrong = Vec::new();
        for cache in caches {
            cache.shared.stamp();
            cache.shared.count_and_evict();
            let mut unfinished_bytes = 0;
            cache.shared.cache_dir.visit(&mut |_, _, kind, stat| {
                if kind == CacheFileKind::Temporary {
                    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
                    unfinished_bytes += eviction::allocated_bytes(file_bytes);
                }
                true
            });
            let total_bytes = cache.counters().total_bytes;
            if total_bytes > self.budget_bytes + unfinished_bytes {
                let budget_bytes = self.budget_bytes;
                wrong.push(format!("{total_bytes} bytes on disk of {budget_bytes}"));
            }
        }
        wrong
    }
}

/// Flips a bit, cuts, or extends a file.
fn change_bytes(file: &Path) -> &'static str {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(file) else {
        return "nothing";
    };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let at = below(length);
    let done = match below(6) {
        0 => file.set_len(at),
        1 => file.set_len(length + 1 + below(9000)),
        _ => {
            let mut byte = [0];
            let read = file.read_at(&mut byte, at);
            read.and_then(|_| file.write_all_at(&[byte[0] ^ (1 << below(8))], at))
        }
    };
    match done {
        Ok(()) => "a changed block",
        Err(_) => "nothing",
    }
}

/// Puts a copy of a block in the place of another one.
fn replace(block: &Path, place: &Path) {
    let copy = place.with_extension("copy");
    // They may be directories.
    let _ = fs::copy(block, &copy);
    let _ = fs::rename(&copy, place);
    let _ = fs::remove_file(&copy);
}

fn set_time(path: &Path, time: SystemTime) {
    // It may be a directory, or gone.
    let _ = File::open(path).and_then(|file| file.set_modified(time));
}

/// Evicts as the thread of a cache does, until the cache is closed.
async fn evict(shared: Weak<Shared>) {
    loop {
        runtime::sleep(Duration::from_millis(1 + below(EVICTION_MILLIS))).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if !shared.budget.is_counted() || shared.budget.is_count_due() {
            shared.stamp();
            let before = shared.counts.evicted.load(super::Ordering::Relaxed);
            shared.count_and_evict();
            let evicted = shared.counts.evicted.load(super::Ordering::Relaxed) - before;
            record(format!("  {evicted} blocks evicted"));
        }
    }
}

impl Shared {
    /// Sets the times of the files that were written or used since the last time.
    fn stamp(&self) {
        let now = clock::system_time();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let time = Timespec {
            tv_sec: i64::try_from(since.as_secs()).unwrap_or(0),
            tv_nsec: since.subsec_nanos().into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        self.cache_dir.visit(&mut |subdir, name, _, stat| {
            if eviction::modified(stat) > now {
                utimensat(subdir, name, &times, AtFlags::SYMLINK_NOFOLLOW).expect("its own file");
            }
            true
        });
    }
}

impl DiskCache {
    /// Returns what is in use; nothing if no request is in flight.
    pub(crate) fn in_use(&self) -> Vec<String> {
        let (locks, bytes) = (
            self.fetch_locks.held(),
            self.shared.budget.in_progress_bytes(),
        );
        let mut used = Vec::new();
        if locks > 0 {
            used.push(format!("{locks} fetch locks"));
        }
        if bytes > 0 {
            used.push(format!("{bytes} bytes of blocks in progress"));
        }
        used
    }
}
