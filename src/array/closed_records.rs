//! The version records of closed files. If memory for records runs out, the least recently used
//! ones are evicted.

use std::fmt::Debug;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;

use crate::sync::{Mutex, MutexGuard};

/// A version record that can be evicted.
pub(super) trait Evict: Debug + Send + Sync {
    /// Drops the record if the file is not open. Returns whether memory was freed.
    fn evict(&self) -> bool;
}

/// A record and its size in bytes.
type Closed = (Weak<dyn Evict>, u64);

/// The records of closed files, whose pages the kernel may still cache.
#[derive(Debug)]
pub(super) struct ClosedRecords {
    records: Mutex<LruCache<u64, Closed>>,
    numbers: AtomicU64,
}

impl Default for ClosedRecords {
    fn default() -> Self {
        Self {
            records: Mutex::new(LruCache::unbounded()),
            numbers: AtomicU64::new(0),
        }
    }
}

impl ClosedRecords {
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<u64, Closed>> {
        self.records.lock()
    }

    pub(super) fn put(&self, number: u64, record: Weak<dyn Evict>, bytes: u64) {
        self.lock().put(number, (record, bytes));
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().pop(&number);
    }

    /// Evicts records of at least `bytes` in total. Returns whether any memory was freed.
    pub(super) fn evict(&self, bytes: u64) -> bool {
        let mut freed = 0;
        while freed < bytes {
            let Some((_, (record, size))) = self.lock().pop_lru() else {
                break;
            };
            if record.upgrade().is_some_and(|record| record.evict()) {
                freed += size;
            }
        }
        freed > 0
    }
}
