//! Byte ranges of objects in memory, within a budget.

use std::sync::Arc;

use crate::cache::WeightedLru;
use crate::store::{Key, Version};
use crate::sync::Mutex;

/// A range of one version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RangeKey {
    /// The source, where several have one cache.
    pub(super) source: u64,
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Byte ranges; the least recently used ones are evicted first.
#[derive(Debug)]
pub(super) struct RangeCache {
    ranges: Mutex<WeightedLru<RangeKey, Arc<Vec<u8>>>>,
    budget_bytes: u64,
    /// Each object that is read ahead has a reference.
    readers: Arc<()>,
}

/// A reader for which ranges are fetched ahead, as long as it lives.
#[derive(Debug)]
pub(super) struct Reader {
    _counted: Arc<()>,
}

/// What an entry takes beside its bytes.
const ENTRY_BYTES: u64 = 256;

impl RangeCache {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            ranges: Mutex::new(WeightedLru::new(budget_bytes, usize::MAX)),
            budget_bytes,
            readers: Arc::default(),
        }
    }

    pub(super) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Counts a reader for which ranges will be fetched ahead.
    pub(super) fn reader(&self) -> Reader {
        Reader {
            _counted: Arc::clone(&self.readers),
        }
    }

    /// What may be fetched ahead of one reader: what is fetched for all of them together fits into half of the
    /// budget, so that nothing is evicted before it is read.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let readers = Arc::strong_count(&self.readers).saturating_sub(1).max(1) as u64;
        self.budget_bytes / 2 / readers
    }

    /// Bytes that are cached now.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.lock().weight()
    }

    pub(super) fn get(&self, range: &RangeKey) -> Option<Arc<Vec<u8>>> {
        self.ranges.lock().get(range).cloned()
    }

    /// Inserts a range, unless it would evict most others.
    pub(super) fn insert(&self, range: RangeKey, bytes: Arc<Vec<u8>>) {
        let weight = (bytes.len() as u64).saturating_add(ENTRY_BYTES);
        if weight <= self.budget_bytes() / 2 {
            let evicted = self.ranges.lock().insert(range, bytes, weight);
            drop(evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_what_was_used_last_stays() {
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
