//! Bytes of objects that are at hand, within a budget; each part of one version of an object.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::store::{Key, Version};

/// A part of one version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Segment {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Segments, the least recently used first to go.
#[derive(Debug)]
pub(super) struct Segments {
    state: Mutex<State>,
    budget_bytes: u64,
}

#[derive(Debug)]
struct State {
    kept: LruCache<Segment, Arc<Vec<u8>>>,
    bytes: u64,
}

/// What keeping a segment takes beside its bytes.
const ENTRY_BYTES: u64 = 256;

impl Segments {
    pub(super) fn new(budget_bytes: u64) -> Self {
        let state = State {
            kept: LruCache::unbounded(),
            bytes: 0,
        };
        Self {
            state: Mutex::new(state),
            budget_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Bytes that are kept now.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    pub(super) fn get(&self, segment: &Segment) -> Option<Arc<Vec<u8>>> {
        self.lock().kept.get(segment).cloned()
    }

    pub(super) fn has(&self, segment: &Segment) -> bool {
        self.lock().kept.contains(segment)
    }

    /// Keeps a segment, if it is not too big to be kept with others.
    pub(super) fn put(&self, segment: Segment, bytes: Arc<Vec<u8>>) {
        let cost = |bytes: &Vec<u8>| (bytes.len() as u64).saturating_add(ENTRY_BYTES);
        let own = cost(&bytes);
        if own > self.budget_bytes / 2 {
            return;
        }
        // Freed only behind the lock: it takes time.
        let mut given = Vec::new();
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_add(own);
        if let Some(old) = state.kept.put(segment, bytes) {
            state.bytes = state.bytes.saturating_sub(cost(&old));
            given.push(old);
        }
        while state.bytes > self.budget_bytes {
            let Some((_, old)) = state.kept.pop_lru() else {
                break;
            };
            state.bytes = state.bytes.saturating_sub(cost(&old));
            given.push(old);
        }
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_what_was_used_last_stays() {
        let segments = Segments::new(10 * (1000 + ENTRY_BYTES));
        let segment = |start: u64| Segment {
            key: Key::new(b"a").unwrap(),
            version: Version(1),
            start,
            end: start + 1000,
        };
        for start in 0..50 {
            segments.put(segment(start), Arc::new(vec![1; 1000]));
            assert!(segments.get(&segment(0)).is_some());
        }
        assert!(segments.bytes() <= segments.budget_bytes());
        assert!(segments.has(&segment(49)) && !segments.has(&segment(30)));
        segments.put(segment(99), Arc::new(vec![0; 1 << 20]));
        assert!(!segments.has(&segment(99)), "it would push out all others");
    }
}
