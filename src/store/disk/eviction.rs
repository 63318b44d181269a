//! Counts the bytes in the cache and evicts the least recently used blocks.
//!
//! Nothing is kept in memory per file. The first walk adds up the bytes by age. The second walk
//! removes files above the age at which enough is removed. Each file is inspected again right
//! before its removal, so a file that was used in between stays.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Stat as FileStat, unlinkat};
use rustix::io::Errno;

use super::cache_dir::{CacheDir, CacheFileKind};
use crate::clock;
use crate::store::snapshot::time;
use crate::store::system;

/// Longer than writing any block takes.
const TEMPORARY_LIFE: Duration = Duration::from_secs(60 * 60);

/// Allocation unit of file systems. An underestimate would let many small blocks fill the disk.
const UNIT_BYTES: u64 = 4096;

/// Returns the bytes of the budget that a file of this length takes: whole allocation units.
pub(super) fn allocated_bytes(file_bytes: u64) -> u64 {
    file_bytes
        .checked_next_multiple_of(UNIT_BYTES)
        .unwrap_or(u64::MAX)
}

/// The result of a count, with the evictions that it caused.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    /// Bytes that remain, of all files that could be inspected.
    pub(super) total_bytes: u64,
    /// Number of removed blocks.
    pub(super) blocks: u64,
    /// How long the most recently used of the removed blocks had not been used.
    pub(super) unused_for: Option<Duration>,
    /// The last error, if a block could not be removed.
    pub(super) error: Option<Errno>,
}

/// Counts the bytes, and removes blocks until `target_bytes` are left.
pub(super) fn count_and_evict(
    cache_dir: &CacheDir,
    target_bytes: u64,
    continues: &dyn Fn() -> bool,
) -> Evicted {
    let now = clock::system_time();
    let mut evicted = Evicted::default();
    let mut ages = AgeHistogram::new();
    cache_dir.visit(&mut |subdir, name, kind, stat| {
        let (allocated_bytes, age) = (disk_bytes(stat), age(stat, now));
        let is_leftover = kind == CacheFileKind::Temporary && age > TEMPORARY_LIFE;
        if !is_leftover || remove(subdir, name).is_err() {
            evicted.total_bytes = evicted.total_bytes.saturating_add(allocated_bytes);
            if kind == CacheFileKind::Block {
                ages.add(age, allocated_bytes);
            }
        }
        continues()
    });
    if evicted.total_bytes <= target_bytes || !continues() {
        return evicted;
    }
    let (oldest, mut allowance) = ages.threshold(evicted.total_bytes.saturating_sub(target_bytes));
    cache_dir.visit(&mut |subdir, name, kind, stat| {
        let (allocated_bytes, age) = (disk_bytes(stat), age(stat, now));
        let bucket = bucket(age);
        if kind == CacheFileKind::Block && bucket >= oldest && (bucket > oldest || allowance > 0) {
            match remove(subdir, name) {
                Ok(is_ours) => {
                    evicted.total_bytes = evicted.total_bytes.saturating_sub(allocated_bytes);
                    evicted.blocks += u64::from(is_ours);
                    evicted.unused_for =
                        Some(evicted.unused_for.map_or(age, |other| other.min(age)));
                    if bucket == oldest {
                        allowance = allowance.saturating_sub(allocated_bytes);
                    }
                }
                Err(e) => evicted.error = Some(e),
            }
        }
        continues()
    });
    evicted
}

/// Removes a file; returns false if another process has removed it first.
fn remove(subdir: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(subdir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

fn disk_bytes(stat: &FileStat) -> u64 {
    allocated_bytes(u64::try_from(stat.st_size).unwrap_or(0))
}

/// How long a file has not been used; zero if its time is in the future.
pub(super) fn age(stat: &FileStat, now: SystemTime) -> Duration {
    now.duration_since(modified(stat)).unwrap_or_default()
}

pub(super) fn modified(stat: &FileStat) -> SystemTime {
    time(system::modified(stat))
}

/// Bytes by age, in buckets whose width is at most 1/64 of the age.
struct AgeHistogram {
    bytes: Vec<u64>,
}

const BUCKETS: usize = 58 * 64 + 64;

fn bucket(age: Duration) -> usize {
    let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    let shift = age.checked_ilog2().unwrap_or(0).saturating_sub(6);
    let bucket = u64::from(shift) * 64 + (age >> shift);
    usize::try_from(bucket).unwrap_or(BUCKETS)
}

impl AgeHistogram {
    fn new() -> Self {
        Self {
            bytes: vec![0; BUCKETS],
        }
    }

    fn add(&mut self, age: Duration, allocated_bytes: u64) {
        if let Some(bytes) = self.bytes.get_mut(bucket(age)) {
            *bytes = bytes.saturating_add(allocated_bytes);
        }
    }

    /// Returns the lowest bucket from which blocks are removed, and how many bytes to remove from it.
    fn threshold(&self, mut need: u64) -> (usize, u64) {
        for (bucket, bytes) in self.bytes.iter().enumerate().rev() {
            if *bytes >= need {
                return (bucket, need);
            }
            need -= bytes;
        }
        (0, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_blocks_are_never_in_a_lower_bucket_and_all_buckets_exist() {
        let mut last = 0;
        for exponent in 0..64 {
            for step in 0..256_u64 {
                let part = (u128::from(step) << exponent) >> 8;
                let micros = (1_u64 << exponent) + u64::try_from(part).unwrap();
                let bucket = bucket(Duration::from_micros(micros));
                assert!(bucket >= last && bucket < BUCKETS, "{micros}: {bucket}");
                last = bucket;
            }
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert!(bucket(Duration::MAX) < BUCKETS);
        let hour = Duration::from_secs(3600);
        assert!(bucket(hour) < bucket(hour + hour / 32));
    }

    #[test]
    fn eviction_takes_the_oldest_blocks_and_only_as_many_of_one_age_as_needed() {
        let mut ages = AgeHistogram::new();
        let second = Duration::from_secs(1);
        ages.add(second, 100);
        ages.add(second * 10, 100);
        ages.add(second * 100, 100);
        assert_eq!(ages.threshold(50), (bucket(second * 100), 50));
        assert_eq!(ages.threshold(150), (bucket(second * 10), 50));
        assert_eq!(ages.threshold(300), (bucket(second), 100));
        assert_eq!(ages.threshold(301), (0, u64::MAX), "more than there is");
    }

    #[test]
    fn small_files_are_counted_with_their_allocated_size() {
        assert_eq!(
            [0, 1, 4096, 4097].map(allocated_bytes),
            [0, 4096, 4096, 8192]
        );
        assert_eq!(allocated_bytes(u64::MAX), u64::MAX);
    }
}
