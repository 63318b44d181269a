//! A map with a weight limit, which evicts the least recently used entries.

use std::hash::Hash;

use lru::LruCache;

/// A map from keys to values with a weight each, usually their memory in bytes.
#[derive(Debug)]
pub struct WeightedLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, u64)>,
    weight: u64,
    budget: u64,
    max_entries: usize,
}

impl<K: Hash + Eq, V> WeightedLru<K, V> {
    /// Creates an empty map for at most `max_entries` entries that weigh at most `budget` in total.
    pub fn new(budget: u64, max_entries: usize) -> Self {
        Self {
            entries: LruCache::unbounded(),
            weight: 0,
            budget,
            max_entries,
        }
    }

    /// Returns the total weight of all entries.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns the largest total weight.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a key, which becomes the most recently used one.
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Returns the value of a key, which becomes the most recently used one, for a change that keeps its weight.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Returns the value of a key and its weight, without making it the most recently used one.
    pub fn peek(&self, key: &K) -> Option<(&V, u64)> {
        self.entries
            .peek(key)
            .map(|(value, weight)| (value, *weight))
    }

    /// Inserts a value. Returns the replaced and evicted values, so that the caller can drop them after
    /// it releases its lock. A value that alone exceeds the budget stays until the next insertion.
    #[must_use = "evicted values are best dropped without a lock"]
    pub fn insert(&mut self, key: K, value: V, weight: u64) -> Vec<V> {
        let mut evicted = Vec::new();
        if let Some((old, old_weight)) = self.entries.put(key, (value, weight)) {
            self.weight = self.weight.saturating_sub(old_weight);
            evicted.push(old);
        }
        self.weight = self.weight.saturating_add(weight);
        while (self.weight > self.budget || self.entries.len() > self.max_entries)
            && self.entries.len() > 1
        {
            evicted.extend(self.pop_lru());
        }
        evicted
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (value, weight) = self.entries.pop(key)?;
        self.weight = self.weight.saturating_sub(weight);
        Some(value)
    }

    /// Removes the least recently used entry.
    pub fn pop_lru(&mut self) -> Option<V> {
        let (_, (value, weight)) = self.entries.pop_lru()?;
        self.weight = self.weight.saturating_sub(weight);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_counts_weights_and_the_newest_entry_stays() {
        let mut map = WeightedLru::new(100, 10);
        for key in 0..4 {
            let _ = map.insert(key, key, 40);
        }
        let kept: Vec<_> = (0..4).filter(|key| map.get(key).is_some()).collect();
        assert_eq!((kept, map.weight()), (vec![2, 3], 80));
        assert_eq!(map.insert(9, 9, 1000), [2, 3]);
        assert_eq!(map.get(&9), Some(&9));
        assert_eq!(map.insert(1, 1, 10), [9]);
        assert_eq!(map.insert(1, 7, 20), [1], "a replaced entry counts once");
        assert_eq!(
            (map.weight(), map.remove(&1), map.weight()),
            (20, Some(7), 0)
        );
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let mut map = WeightedLru::new(u64::MAX, 3);
        for key in 0..10 {
            let _ = map.insert(key, (), 0);
        }
        assert_eq!(map.len(), 3);
        assert!(map.get(&7).is_some() && map.get(&6).is_none());
    }
}
