//! Schedules of the chunk cache.

use std::sync::Arc;

use super::super::memory_limit::MemoryLimit;
use super::tests::{decoded, id, lead};
use super::{CHUNK_OVERHEAD_BYTES, ChunkCache, ChunkLookup};
use crate::runtime::block_on;
use crate::sync::schedules::explore;
use crate::sync::thread;

const CHUNK_BYTES: usize = 100;

/// Gets a chunk as a read does; the first attempt of a caller that is interrupted decodes nothing.
fn get(cache: &Arc<ChunkCache>, memory: &Arc<MemoryLimit>, chunk: u64, mut is_interrupted: bool) {
    loop {
        match cache.get_or_lead(id(chunk), |_| true).unwrap() {
            ChunkLookup::Ready(_) => return,
            ChunkLookup::Wait(load) => match block_on(load.wait()) {
                Some(outcome) => return drop(outcome.unwrap()),
                None => continue,
            },
            ChunkLookup::Lead(leader) if is_interrupted => {
                is_interrupted = false;
                thread::yield_now();
                drop(leader);
            }
            ChunkLookup::Lead(leader) => {
                thread::yield_now();
                return leader.complete(Ok(decoded(memory, CHUNK_BYTES)));
            }
        }
    }
}

#[test]
fn every_caller_gets_its_chunk_and_memory_returns() {
    explore(|| {
        let budget_bytes = CHUNK_BYTES as u64 + CHUNK_OVERHEAD_BYTES;
        let cache = Arc::new(ChunkCache::new(budget_bytes));
        let memory = Arc::new(MemoryLimit::new(1 << 20));
        let callers = [(1, false), (1, true), (2, false)].map(|(chunk, is_interrupted)| {
            let (cache, memory) = (Arc::clone(&cache), Arc::clone(&memory));
            thread::spawn(move || get(&cache, &memory, chunk, is_interrupted))
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(cache.lock().loads.is_empty());
        assert!(cache.lock().chunks.weight() <= budget_bytes);
        assert_eq!(memory.used_bytes(), CHUNK_BYTES as u64);
        assert!(cache.evict(1));
        assert_eq!(memory.used_bytes(), 0);
    });
}

#[test]
fn a_load_ends_when_no_caller_waits_for_it() {
    explore(|| {
        let cache = Arc::new(ChunkCache::new(1 << 20));
        let mut leader = lead(&cache, 5);
        let (own, abandoned) = (leader.take_load().unwrap(), leader.abandoned());
        let decoder = thread::spawn(move || {
            block_on(abandoned.notified());
            drop(leader);
        });
        let others = [(); 2].map(|()| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || drop(cache.get_or_lead(id(5), |_| true).unwrap()))
        });
        drop(own);
        for other in others {
            other.join().unwrap();
        }
        decoder.join().unwrap();
        assert!(cache.lock().loads.is_empty());
    });
}
