//! Caches that belong to no single module: weighted LRU maps and single flights.

mod single_flight;
mod weighted_lru;

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

pub use single_flight::{SingleFlight, Waiter};
pub use weighted_lru::WeightedLru;

/// Creates an LRU map for at most `entries`, whose memory grows with its content. [`LruCache::new`] allocates
/// the memory of all entries, and ends the process if the system has none.
pub fn bounded_lru<K: Hash + Eq, V>(entries: NonZeroUsize) -> LruCache<K, V> {
    let mut map = LruCache::unbounded();
    map.resize(entries);
    map
}
