//! An LRU cache with a memory budget.

use std::hash::Hash;

use lru::LruCache;

/// Values with their memory, evicted in least recently used order.
#[derive(Debug)]
pub(super) struct Kept<K: Hash + Eq, V> {
    values: LruCache<K, (V, u64)>,
    bytes: u64,
}

impl<K: Hash + Eq, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self {
            values: LruCache::unbounded(),
            bytes: 0,
        }
    }
}

impl<K: Hash + Eq, V> Kept<K, V> {
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Inserts a value of `bytes`, and evicts others until at most `most` values take at most `most_bytes`.
    /// The new value is never evicted: its caller has not used it yet.
    pub(super) fn put(&mut self, key: K, value: V, bytes: u64, most_bytes: u64, most: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some((_, old)) = self.values.put(key, (value, bytes)) {
            self.bytes = self.bytes.saturating_sub(old);
        }
        while (self.bytes > most_bytes || self.values.len() > most) && self.values.len() > 1 {
            let Some((_, (_, old))) = self.values.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_of(kept: &Kept<i32, i32>) -> Vec<i32> {
        let mut keys: Vec<i32> = kept.values.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn the_newest_stays_and_the_oldest_go() {
        let mut kept = Kept::default();
        for key in 0..5 {
            kept.put(key, key, 10, 30, 100);
        }
        assert_eq!(kept_of(&kept), [2, 3, 4]);
        assert_eq!(kept.get(&2), Some(&2));
        kept.put(5, 5, 10, 30, 100);
        assert_eq!(kept_of(&kept), [2, 4, 5]);
        kept.put(6, 6, 1000, 30, 100);
        assert_eq!(kept_of(&kept), [6]);
        kept.put(7, 7, 1, 30, 100);
        kept.put(7, 8, 2, 30, 100);
        assert_eq!((kept_of(&kept), kept.bytes), (vec![7], 2));
        kept.put(8, 8, 2, 30, 1);
        assert_eq!((kept_of(&kept), kept.bytes), (vec![8], 2));
    }
}
