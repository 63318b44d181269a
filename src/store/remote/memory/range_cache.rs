//! Caches byte ranges of objects in memory, within a budget.

use std::sync::Arc;

use crate::cache::WeightedLru;
use crate::store::{Key, Version};
use crate::sync::Mutex;

/// A range of one version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::store::remote) struct RangeKey {
    /// The number of the source, because several sources can share a cache.
    pub(in crate::store::remote) source: u64,
    pub(in crate::store::remote) key: Key,
    pub(in crate::store::remote) version: Version,
    pub(in crate::store::remote) start: u64,
    pub(in crate::store::remote) end: u64,
}

/// Byte ranges; the least recently used ones are evicted first.
#[derive(Debug)]
pub(in crate::store::remote) struct RangeCache {
    ranges: Mutex<WeightedLru<RangeKey, Arc<Vec<u8>>>>,
    budget_bytes: u64,
    /// Each object with readahead holds a reference, so that readers can be counted.
    readers: Arc<()>,
}

/// Registers a reader with readahead, until it is dropped.
#[derive(Debug)]
pub(in crate::store::remote) struct ReaderRegistration {
    _counted: Arc<()>,
}

/// Estimated bytes of an entry besides its content.
const ENTRY_BYTES: u64 = 256;

impl RangeCache {
    pub(in crate::store::remote) fn new(budget_bytes: u64) -> Self {
        Self {
            ranges: Mutex::new(WeightedLru::new(budget_bytes, usize::MAX)),
            budget_bytes,
            readers: Arc::default(),
        }
    }

    pub(in crate::store::remote) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Registers a reader with readahead.
    pub(in crate::store::remote) fn reader(&self) -> ReaderRegistration {
        ReaderRegistration {
            _counted: Arc::clone(&self.readers),
        }
    }

    /// Readahead limit of one reader in bytes. All readers together may use half of the budget, so that
    /// nothing is evicted before it is read.
    pub(in crate::store::remote) fn ahead_bytes(&self) -> u64 {
        let readers = Arc::strong_count(&self.readers).saturating_sub(1).max(1) as u64;
        self.budget_bytes / 2 / readers
    }

    /// Bytes that are cached now.
    pub(in crate::store::remote) fn bytes(&self) -> u64 {
        self.ranges.lock().weight()
    }

    pub(in crate::store::remote) fn get(&self, range: &RangeKey) -> Option<Arc<Vec<u8>>> {
        self.ranges.lock().get(range).cloned()
    }

    /// Inserts a range, unless it would evict most others.
    pub(in crate::store::remote) fn insert(&self, range: RangeKey, bytes: Arc<Vec<u8>>) {
        let weight = (bytes.len() as u64).saturating_add(ENTRY_BYTES);
        if weight <= self.budget_bytes() / 2 {
            let evicted = self.ranges.lock().insert(range, bytes, weight);
            drop(evicted);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_stays_within_its_budget_and_retains_the_last_used_ranges() {
        let ranges = RangeCache::new(10 * (1000 + ENTRY_BYTES));
        let range = |start: u64| RangeKey {
            source: 0,
            key: Key::new(b"a").unwrap(),
            version: Version(1),
            start,
            end: start + 1000,
        };
        for start in 0..50 {
            ranges.insert(range(start), Arc::new(vec![1; 1000]));
            assert!(ranges.get(&range(0)).is_some());
        }
        assert!(ranges.bytes() <= ranges.budget_bytes());
        assert!(ranges.get(&range(49)).is_some() && ranges.get(&range(30)).is_none());
        ranges.insert(range(99), Arc::new(vec![0; 1 << 20]));
        assert!(
            ranges.get(&range(99)).is_none(),
            "it would evict all others"
        );
    }
}
