//! The cache of decoded chunks, with a size limit. A chunk is decoded once for all requests that wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::Shared;

use super::buffer_pool::BufferPool;
use super::memory_limit::Reservation;
use crate::cache::WeightedLru;
use crate::fallible::NoMemory;
use crate::store::{Fetched, StoreError, Version};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, Notify, oneshot};

/// Identifies a read chunk of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ChunkId {
    /// The number of the array in its mount.
    pub(super) array: u64,
    /// The number of the chunk in C order over the grid.
    pub(super) chunk: u64,
    /// The number of the inner chunk in C order over its shard; `None` for a whole chunk.
    pub(super) inner: Option<u64>,
}

/// A decoded read chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The elements in C order; `None` for fill values, if the chunk is proven to be absent.
    pub(super) bytes: Option<Arc<Vec<u8>>>,
    /// The version of the stored chunk that was decoded; `None` if the store has none.
    pub(super) version: Option<Version>,
    /// When the version was last known to be current, as [`now_ms`](crate::store::now_ms) counts.
    checked_ms: AtomicU64,
    memory: Option<(Reservation, Arc<BufferPool>)>,
}

impl Chunk {
    /// Creates a decoded chunk, whose drop returns its buffer to `buffers`. `checked_ms` is the time when
    /// the stored chunk was opened.
    pub(super) fn decoded(
        bytes: Vec<u8>,
        version: Version,
        checked_ms: u64,
        memory: Reservation,
        buffers: Arc<BufferPool>,
    ) -> Self {
        Self {
            bytes: Some(Arc::new(bytes)),
            version: Some(version),
            checked_ms: AtomicU64::new(checked_ms),
            memory: Some((memory, buffers)),
        }
    }

    /// Creates a chunk that is proven to be absent; `version` is that of the shard without it.
    pub(super) fn absent(version: Option<Version>, checked_ms: u64) -> Self {
        Self {
            bytes: None,
            version,
            checked_ms: AtomicU64::new(checked_ms),
            memory: None,
        }
    }

    /// Returns when the chunk was last known to be current, as [`now_ms`](crate::store::now_ms) counts.
    pub(super) fn checked_ms(&self) -> u64 {
        self.checked_ms.load(Ordering::Relaxed)
    }

    /// Records that the chunk was current at this time.
    pub(super) fn refresh(&self, checked_ms: u64) {
        self.checked_ms.fetch_max(checked_ms, Ordering::Relaxed);
    }

    /// Returns the size of the elements in bytes.
    fn size_bytes(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    /// Returns the memory that the chunk takes in the cache, in bytes.
    fn cost(&self) -> u64 {
        self.size_bytes().saturating_add(CHUNK_OVERHEAD_BYTES)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let (Some(bytes), Some((_, buffers))) = (self.bytes.take(), &self.memory)
            && let Ok(bytes) = Arc::try_unwrap(bytes)
        {
            buffers.give(bytes);
        }
    }
}

/// A cache of decoded chunks, which evicts the least recently used ones first.
#[derive(Debug)]
pub(super) struct ChunkCache {
    state: Mutex<State>,
    budget_bytes: u64,
}

#[derive(Debug)]
struct State {
    chunks: WeightedLru<ChunkId, Arc<Chunk>>,
    loads: HashMap<ChunkId, InFlight>,
    next_load: u64,
    /// The chunks that a sequential reader has read to their end, oldest first, and their sizes in bytes.
    marked: VecDeque<(ChunkId, u64)>,
    marked_bytes: u64,
}

/// The total size in bytes of the chunks that stay after they were read to their end. Some must stay, because
/// the kernel's readahead is not always in order; few are enough, because the kernel caches the pages.
const MARKED_BYTES: u64 = 16 << 20;
/// The number of these chunks that stay even if they are larger.
const MARKED_CHUNKS: usize = 4;

/// The memory of a cached chunk without its elements, in bytes: its entry in the cache, the chunk, and three
/// allocations.
const CHUNK_OVERHEAD_BYTES: u64 = 320;

/// What a caller has to do to get a chunk.
#[derive(Debug)]
pub(super) enum ChunkLookup {
    /// Nothing: the cache has the chunk.
    Ready(Arc<Chunk>),
    /// Decode the chunk, and complete the load.
    Lead(Leader),
    /// Wait for the caller that decodes the chunk.
    Wait(LoadWaiter),
}

impl ChunkCache {
    /// Creates an empty cache for at most `budget_bytes`.
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            state: Mutex::new(State {
                chunks: WeightedLru::new(budget_bytes, usize::MAX),
                loads: HashMap::new(),
                next_load: 0,
                marked: VecDeque::new(),
                marked_bytes: 0,
            }),
            budget_bytes,
        }
    }

    /// Returns the largest total size of the cached chunks in bytes.
    pub(super) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns a cached chunk.
    pub(super) fn get(&self, id: &ChunkId) -> Option<Arc<Chunk>> {
        self.lock().chunks.get(id).cloned()
    }

    /// Returns a cached chunk that is `fresh`, a leader to decode the chunk, or a load in flight to wait for.
    ///
    /// # Errors
    /// The system has no memory for one more load.
    pub(super) fn get_or_lead(
        self: &Arc<Self>,
        id: ChunkId,
        fresh: impl FnOnce(&Chunk) -> bool,
    ) -> Result<ChunkLookup, NoMemory> {
        let mut state = self.lock();
        if let Some(chunk) = state.chunks.get(&id)
            && fresh(chunk)
        {
            return Ok(ChunkLookup::Ready(Arc::clone(chunk)));
        }
        if let Some(running) = state.loads.get(&id)
            && let Some(interest) = running.interest.upgrade()
        {
            let result = running.result.clone();
            return Ok(ChunkLookup::Wait(LoadWaiter { result, interest }));
        }
        if state.loads.try_reserve(1).is_err() {
            return Err(NoMemory::of::<(ChunkId, InFlight)>(state.loads.len() + 1));
        }
        let (sender, receiver) = oneshot::channel();
        let (result, abandoned) = (receiver.shared(), Arc::new(Notify::new()));
        let interest = Arc::new(Interest(Arc::clone(&abandoned)));
        let number = state.next_load;
        state.next_load = number.wrapping_add(1);
        state.loads.insert(
            id,
            InFlight {
                number,
                result: result.clone(),
                interest: Arc::downgrade(&interest),
            },
        );
        Ok(ChunkLookup::Lead(Leader {
            cache: Arc::clone(self),
            id,
            number,
            load: Some(LoadWaiter { result, interest }),
            abandoned,
            sender: Some(sender),
        }))
    }

    /// Evicts chunks until at least `bytes` are free or none are left. Returns whether this freed any bytes.
    pub(super) fn evict(&self, bytes: u64) -> bool {
        let mut evicted = Vec::new();
        let mut state = self.lock();
        let mut freed = 0;
        while freed < bytes
            && let Some(chunk) = state.chunks.pop_lru()
        {
            freed += chunk.size_bytes();
            evicted.push(chunk);
        }
        // The chunks are dropped without the lock, because freeing them takes time.
        drop(state);
        freed > 0
    }

    /// Marks a chunk that a sequential reader has read to its end for early eviction. Otherwise a long
    /// file would evict the chunks of random reads.
    pub(super) fn mark_for_eviction(&self, id: ChunkId) {
        let mut given = Vec::new();
        let mut state = self.lock();
        let Some((_, cost)) = state
            .chunks
            .peek(&id)
            .filter(|(chunk, _)| chunk.bytes.is_some())
        else {
            return;
        };
        if state.marked.back() == Some(&(id, cost)) {
            return;
        }
        state.marked_bytes += cost;
        state.marked.push_back((id, cost));
        while state.marked_bytes > MARKED_BYTES && state.marked.len() > MARKED_CHUNKS {
            let Some((oldest, cost)) = state.marked.pop_front() else {
                break;
            };
            state.marked_bytes -= cost;
            given.extend(state.chunks.remove(&oldest));
        }
        drop(state);
    }

    fn complete(&self, id: ChunkId, number: u64, chunk: Option<&Arc<Chunk>>) {
        let mut state = self.lock();
        if state
            .loads
            .get(&id)
            .is_some_and(|load| load.number == number)
        {
            state.loads.remove(&id);
        }
        let evicted = match chunk {
            Some(chunk) if chunk.size_bytes() <= self.budget_bytes => {
                state.chunks.insert(id, Arc::clone(chunk), chunk.cost())
            }
            _ => Vec::new(),
        };
        drop(state);
        drop(evicted);
    }
}

type Outcome = Result<Arc<Chunk>, StoreError>;

/// A chunk that is being decoded.
#[derive(Debug)]
struct InFlight {
    number: u64,
    result: Shared<oneshot::Receiver<Outcome>>,
    interest: Weak<Interest>,
}

/// The interest in a chunk, shared by all requests that wait for it. The last drop notifies the leader.
#[derive(Debug)]
pub(super) struct Interest(Arc<Notify>);

impl Interest {
    /// Returns whether the leader is gone, because the chunk was decoded or its load has failed.
    pub(super) fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A request's interest in a chunk that is being decoded.
#[derive(Debug)]
pub(super) struct LoadWaiter {
    result: Shared<oneshot::Receiver<Outcome>>,
    interest: Arc<Interest>,
}

impl LoadWaiter {
    /// Returns the interest, for a caller that does not wait for the chunk.
    pub(super) fn into_interest(self) -> Arc<Interest> {
        self.interest
    }

    /// Waits for the chunk; `None` if its leader was dropped.
    pub(super) async fn wait(self) -> Option<Outcome> {
        let _interest = self.interest;
        self.result.await.ok()
    }
}

/// The duty to decode a chunk. If a leader is dropped without a result, a waiter takes over.
#[derive(Debug)]
pub(super) struct Leader {
    cache: Arc<ChunkCache>,
    id: ChunkId,
    number: u64,
    /// The leader's own interest, which a request can take.
    load: Option<LoadWaiter>,
    abandoned: Arc<Notify>,
    sender: Option<oneshot::Sender<Outcome>>,
}

impl Leader {
    /// Gives the load to a request, so that the load is abandoned once no request waits for it. Returns
    /// `None` the second time.
    pub(super) fn take_load(&mut self) -> Option<LoadWaiter> {
        self.load.take()
    }

    /// Returns the [`Notify`] that is notified once no request waits for the chunk any more.
    pub(super) fn abandoned(&self) -> Arc<Notify> {
        Arc::clone(&self.abandoned)
    }

    /// Wakes the waiters, and inserts the chunk of a successful load into the cache.
    pub(super) fn complete(mut self, result: Result<Fetched<Arc<Chunk>>, StoreError>) {
        let result = result.map(Fetched::into_value);
        self.cache
            .complete(self.id, self.number, result.as_ref().ok());
        if let Some(sender) = self.sender.take() {
            // The send fails if no request waits any more.
            let _ = sender.send(result);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.sender.is_some() {
            self.cache.complete(self.id, self.number, None);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
pub(super) mod tests {
    use super::super::memory_limit::MemoryLimit;
    use super::*;
    use crate::runtime::block_on;
    use crate::store::{DocumentStore, MemoryStore, now_ms};
    use crate::units::FOREVER;

    pub(super) fn id(chunk: u64) -> ChunkId {
        ChunkId {
            array: 1,
            chunk,
            inner: None,
        }
    }

    pub(super) fn decoded(memory: &Arc<MemoryLimit>, bytes: usize) -> Fetched<Arc<Chunk>> {
        let reserved = memory.try_reserve(bytes as u64, |_| false).unwrap();
        let chunk = Arc::new(Chunk::decoded(
            vec![1; bytes],
            Version(1),
            now_ms(),
            reserved,
            Arc::default(),
        ));
        let store = DocumentStore::new(Arc::new(MemoryStore::default()), None, FOREVER.into());
        block_on(store.fetch(|_| async { Ok(chunk) })).unwrap()
    }

    pub(super) fn lead(cache: &Arc<ChunkCache>, chunk: u64) -> Leader {
        match cache.get_or_lead(id(chunk), |_| true).unwrap() {
            ChunkLookup::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn eviction_removes_the_least_recently_used_chunks_and_releases_their_memory() {
        let budget_bytes = 3 * (100 + CHUNK_OVERHEAD_BYTES);
        let cache = Arc::new(ChunkCache::new(budget_bytes));
        let memory = Arc::new(MemoryLimit::new(10_000));
        for chunk in 0..3 {
            lead(&cache, chunk).complete(Ok(decoded(&memory, 100)));
        }
        assert!(cache.get(&id(0)).is_some());
        lead(&cache, 3).complete(Ok(decoded(&memory, 100)));
        assert!(cache.get(&id(1)).is_none() && cache.get(&id(0)).is_some());
        assert_eq!(memory.used_bytes(), 300);
        assert!(cache.evict(150));
        assert_eq!(memory.used_bytes(), 100);
        lead(&cache, 9).complete(Ok(decoded(&memory, 2000)));
        assert_eq!(
            memory.used_bytes(),
            100,
            "what is over the budget is not kept"
        );
    }

    #[test]
    fn one_leader_decodes_a_chunk_for_all_waiters() {
        let (cache, memory) = (
            Arc::new(ChunkCache::new(1 << 20)),
            Arc::new(MemoryLimit::new(1 << 20)),
        );
        let leader = lead(&cache, 5);
        let followers: Vec<_> = (0..8)
            .map(|_| match cache.get_or_lead(id(5), |_| true).unwrap() {
                ChunkLookup::Wait(load) => std::thread::spawn(move || block_on(load.wait())),
                other => panic!("{other:?}"),
            })
            .collect();
        leader.complete(Ok(decoded(&memory, 10)));
        for follower in followers {
            let outcome = follower.join().unwrap();
            assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
        }
        assert!(matches!(
            cache.get_or_lead(id(5), |_| true).unwrap(),
            ChunkLookup::Ready(_)
        ));
    }

    #[test]
    fn a_waiter_takes_over_an_abandoned_load_and_a_failure_is_not_cached() {
        let cache = Arc::new(ChunkCache::new(1 << 20));
        let mut leader = lead(&cache, 5);
        let load = leader.take_load().unwrap();
        drop(leader);
        assert!(block_on(load.wait()).is_none());
        let failure = StoreError::Corrupt {
            key: crate::store::Key::root(),
            what: "x".into(),
        };
        let mut leader = lead(&cache, 5);
        let load = leader.take_load().unwrap();
        leader.complete(Err(failure));
        assert!(matches!(block_on(load.wait()), Some(Err(_))));
        lead(&cache, 5);
    }

    #[test]
    fn a_load_that_no_request_waits_for_is_abandoned_unless_it_is_a_prefetch() {
        let cache = Arc::new(ChunkCache::new(1 << 20));
        let prefetch = lead(&cache, 5);
        assert!(matches!(
            cache.get_or_lead(id(5), |_| true).unwrap(),
            ChunkLookup::Wait(_)
        ));
        let mut demand = lead(&cache, 6);
        let (own, abandoned) = (demand.take_load().unwrap(), demand.abandoned());
        let ChunkLookup::Wait(other) = cache.get_or_lead(id(6), |_| true).unwrap() else {
            panic!("it is being decoded");
        };
        drop(own);
        assert!(abandoned.notified().now_or_never().is_none());
        drop(other);
        assert!(abandoned.notified().now_or_never().is_some());
        // Another request starts a new load, which the end of the first load does not affect.
        let again = lead(&cache, 6);
        drop(demand);
        assert!(matches!(
            cache.get_or_lead(id(6), |_| true).unwrap(),
            ChunkLookup::Wait(_)
        ));
        drop((prefetch, again));
    }

    #[test]
    fn a_stale_chunk_is_loaded_again() {
        let (cache, memory) = (
            Arc::new(ChunkCache::new(1 << 20)),
            Arc::new(MemoryLimit::new(1 << 20)),
        );
        lead(&cache, 5).complete(Ok(decoded(&memory, 10)));
        assert!(matches!(
            cache.get_or_lead(id(5), |_| false).unwrap(),
            ChunkLookup::Lead(_)
        ));
        let kept = cache.get(&id(5)).unwrap();
        let checked_ms = kept.checked_ms();
        kept.refresh(checked_ms - 1);
        assert_eq!(kept.checked_ms(), checked_ms, "an older check says nothing");
        kept.refresh(checked_ms + 1);
        assert_eq!(kept.checked_ms(), checked_ms + 1);
    }
}
