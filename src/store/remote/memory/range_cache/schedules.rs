//! Schedules of the range cache, which is a weighted LRU map behind a lock.

use std::sync::Arc;

use super::{ENTRY_BYTES, RangeCache, RangeKey};
use crate::store::{Key, Version};
use crate::sync::schedules::explore;
use crate::sync::thread;

#[test]
fn the_cache_stays_within_its_budget_and_has_the_bytes_of_each_range() {
    explore(|| {
        let cache = Arc::new(RangeCache::new(2 * (100 + ENTRY_BYTES)));
        let range = |start: u64| RangeKey {
            source: 0,
            key: Key::new(b"a").unwrap(),
            version: Version(1),
            start,
            end: start + 100,
        };
        let callers = [0_u8, 1, 2].map(|caller| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                for start in [caller, (caller + 1) % 3] {
                    let key = range(u64::from(start));
                    if let Some(bytes) = cache.get(&key) {
                        assert_eq!(*bytes, [start; 100]);
                    }
                    cache.insert(key, Arc::new(vec![start; 100]));
                    assert!(cache.bytes() <= cache.budget_bytes());
                }
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        let kept = (0..3)
            .filter(|start| cache.get(&range(*start)).is_some())
            .count();
        assert_eq!(cache.bytes(), kept as u64 * (100 + ENTRY_BYTES));
    });
}
