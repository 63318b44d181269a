//! Decoded pieces: kept within a budget, and each decoded once however many wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lru::LruCache;

use super::buffers::Buffers;
use super::memory::Reservation;
use crate::store::{StoreError, Version};

/// Which piece of which array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PieceKey {
    /// The array, as one mount counts them.
    pub(super) array: u64,
    /// The chunk, in C order over the grid.
    pub(super) chunk: u64,
    /// The inner chunk of a shard, in C order; the whole chunk if there is none.
    pub(super) inner: Option<u64>,
}

/// One decoded piece.
#[derive(Debug)]
pub(super) struct Piece {
    /// The elements in C order; nothing if the piece is proven to be absent: all fill values.
    pub(super) bytes: Option<Arc<Vec<u8>>>,
    /// The content of the chunk that it was decoded from; nothing if there was none.
    pub(super) version: Option<Version>,
    /// When that was last known to be so, in milliseconds since the process began to count.
    checked_ms: AtomicU64,
    memory: Option<(Reservation, Arc<Buffers>)>,
}

impl Piece {
    /// A piece that was decoded; its buffer goes to `buffers` in the end. `checked_ms` is when the
    /// chunk was opened for it.
    pub(super) fn decoded(
        bytes: Vec<u8>,
        version: Version,
        checked_ms: u64,
        memory: Reservation,
        buffers: Arc<Buffers>,
    ) -> Self {
        Self {
            bytes: Some(Arc::new(bytes)),
            version: Some(version),
            checked_ms: AtomicU64::new(checked_ms),
            memory: Some((memory, buffers)),
        }
    }

    /// A piece that is proven to be absent; `version` is that of the shard that lacks it.
    pub(super) fn absent(version: Option<Version>, checked_ms: u64) -> Self {
        Self {
            bytes: None,
            version,
            checked_ms: AtomicU64::new(checked_ms),
            memory: None,
        }
    }

    /// When it was last known to be current, as [`now_ms`] counts.
    pub(super) fn checked_ms(&self) -> u64 {
        self.checked_ms.load(Ordering::Relaxed)
    }

    /// It was current at that time.
    pub(super) fn refresh(&self, checked_ms: u64) {
        self.checked_ms.fetch_max(checked_ms, Ordering::Relaxed);
    }

    fn cost(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let (Some(bytes), Some((_, buffers))) = (self.bytes.take(), &self.memory)
            && let Ok(bytes) = Arc::try_unwrap(bytes)
        {
            buffers.give(bytes);
        }
    }
}

/// Milliseconds since the process first counted them; never 0.
pub(super) fn now_ms() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
}

/// Decoded pieces, the least recently used ones first to go.
#[derive(Debug)]
pub(super) struct PieceCache {
    state: Mutex<State>,
    budget_bytes: u64,
}

#[derive(Debug)]
struct State {
    pieces: LruCache<PieceKey, Arc<Piece>>,
    bytes: u64,
    flights: HashMap<PieceKey, Arc<Flight>>,
    /// Pieces that were read to their end, oldest first, and their bytes.
    used_up: VecDeque<(PieceKey, u64)>,
    used_up_bytes: u64,
}

impl State {
    fn remove(&mut self, key: &PieceKey) -> Option<Arc<Piece>> {
        let piece = self.pieces.pop(key)?;
        self.bytes = self.bytes.saturating_sub(piece.cost());
        Some(piece)
    }
}

/// Pieces that were read to their end are kept for so many bytes more: the kernel asks for parts
/// of a file ahead and not always in order, and what it has it does not ask for again.
const USED_UP_BYTES: u64 = 16 << 20;
/// And for so many pieces more.
const USED_UP_PIECES: usize = 4;

/// Absent pieces take no bytes; more of them than this are not remembered.
const MAX_PIECES: usize = 1 << 18;

/// What a caller has to do for a piece.
#[derive(Debug)]
pub(super) enum Claim {
    /// Nothing: here it is.
    Ready(Arc<Piece>),
    /// Decode it, and tell the others.
    Lead(Lead),
    /// Wait for who decodes it.
    Follow(Arc<Flight>),
}

impl PieceCache {
    /// An empty cache for at most `budget_bytes`.
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            state: Mutex::new(State {
                pieces: LruCache::unbounded(),
                bytes: 0,
                flights: HashMap::new(),
                used_up: VecDeque::new(),
                used_up_bytes: 0,
            }),
            budget_bytes,
        }
    }

    /// Bytes that may be kept.
    pub(super) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece that is there.
    pub(super) fn get(&self, key: &PieceKey) -> Option<Arc<Piece>> {
        self.lock().pieces.get(key).cloned()
    }

    /// A piece that is there and `fresh`; or the duty to decode it, or to wait for who does.
    pub(super) fn claim(
        self: &Arc<Self>,
        key: PieceKey,
        fresh: impl FnOnce(&Piece) -> bool,
    ) -> Claim {
        let mut state = self.lock();
        if let Some(piece) = state.pieces.get(&key)
            && fresh(piece)
        {
            return Claim::Ready(Arc::clone(piece));
        }
        if let Some(flight) = state.flights.get(&key) {
            return Claim::Follow(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        state.flights.insert(key, Arc::clone(&flight));
        Claim::Lead(Lead {
            cache: Arc::clone(self),
            key,
            flight,
            is_over: false,
        })
    }

    /// Gives up pieces of at least `bytes`; says whether there were any.
    pub(super) fn evict(&self, bytes: u64) -> bool {
        let mut given = Vec::new();
        let mut state = self.lock();
        let mut freed = 0;
        while freed < bytes
            && let Some((_, piece)) = state.pieces.pop_lru()
        {
            freed += piece.cost();
            state.bytes = state.bytes.saturating_sub(piece.cost());
            given.push(piece);
        }
        // Freed only behind the lock: it takes time.
        drop(state);
        freed > 0
    }

    /// A reader that goes from beginning to end has come to the end of a piece: it goes soon, so
    /// that a long file does not push out what is read at random.
    pub(super) fn use_up(&self, key: PieceKey) {
        let mut given = Vec::new();
        let mut state = self.lock();
        let Some(piece) = state.pieces.peek(&key) else {
            return;
        };
        let cost = piece.cost();
        if cost == 0 {
            // Absent: there is nothing to give up.
            return;
        }
        if state.used_up.back() == Some(&(key, cost)) {
            return;
        }
        state.used_up_bytes = state.used_up_bytes.saturating_add(cost);
        state.used_up.push_back((key, cost));
        while state.used_up_bytes > USED_UP_BYTES && state.used_up.len() > USED_UP_PIECES {
            let Some((oldest, cost)) = state.used_up.pop_front() else {
                break;
            };
            state.used_up_bytes = state.used_up_bytes.saturating_sub(cost);
            given.extend(state.remove(&oldest));
        }
        drop(state);
    }

    fn land(&self, key: PieceKey, result: Option<&Arc<Piece>>) {
        let mut given = Vec::new();
        let mut state = self.lock();
        state.flights.remove(&key);
        if let Some(piece) = result
            && piece.cost() <= self.budget_bytes
        {
            state.bytes = state.bytes.saturating_add(piece.cost());
            if let Some((_, old)) = state.pieces.push(key, Arc::clone(piece)) {
                state.bytes = state.bytes.saturating_sub(old.cost());
                given.push(old);
            }
            while state.bytes > self.budget_bytes || state.pieces.len() > MAX_PIECES {
                let Some((_, old)) = state.pieces.pop_lru() else {
                    break;
                };
                state.bytes = state.bytes.saturating_sub(old.cost());
                given.push(old);
            }
        }
        drop(state);
    }
}

/// A piece that is being decoded.
#[derive(Debug, Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    landed: Condvar,
}

/// How a flight has ended; nothing is remembered of it once those who wait have it.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The piece, or why there is none.
    Done(Result<Arc<Piece>, StoreError>),
    /// Its leader has gone without a word: somebody else may lead.
    Abandoned,
}

impl Flight {
    /// Waits for the outcome until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Outcome> {
        let left = deadline.saturating_duration_since(Instant::now());
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, _) = self
            .landed
            .wait_timeout_while(outcome, left, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.clone()
    }

    fn tell(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.landed.notify_all();
    }
}

/// The duty to decode a piece. Dropped without an outcome, it is abandoned and those who wait
/// take over.
#[derive(Debug)]
pub(super) struct Lead {
    cache: Arc<PieceCache>,
    key: PieceKey,
    flight: Arc<Flight>,
    is_over: bool,
}

impl Lead {
    /// What others, and the leader itself if somebody else does the work, wait for.
    pub(super) fn flight(&self) -> Arc<Flight> {
        Arc::clone(&self.flight)
    }

    /// Keeps the piece, if it is one, and tells those who wait.
    pub(super) fn finish(mut self, result: Result<Arc<Piece>, StoreError>) {
        self.is_over = true;
        self.cache.land(self.key, result.as_ref().ok());
        self.flight.tell(Outcome::Done(result));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_over {
            self.cache.land(self.key, None);
            self.flight.tell(Outcome::Abandoned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use std::time::Duration;

    fn key(chunk: u64) -> PieceKey {
        PieceKey {
            array: 1,
            chunk,
            inner: None,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn piece(memory: &Arc<Memory>, bytes: usize) -> Arc<Piece> {
        let reserved = memory.reserve(bytes as u64, soon(), |_| false).unwrap();
        Arc::new(Piece::decoded(
            vec![1; bytes],
            Version(1),
            now_ms(),
            reserved,
            Arc::default(),
        ))
    }

    fn lead(cache: &Arc<PieceCache>, chunk: u64) -> Lead {
        match cache.claim(key(chunk), |_| true) {
            Claim::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_least_recently_used_go_first_and_give_their_memory_back() {
        let (cache, memory) = (Arc::new(PieceCache::new(300)), Arc::new(Memory::new(1000)));
        for chunk in 0..3 {
            lead(&cache, chunk).finish(Ok(piece(&memory, 100)));
        }
        assert!(cache.get(&key(0)).is_some());
        lead(&cache, 3).finish(Ok(piece(&memory, 100)));
        assert!(cache.get(&key(1)).is_none() && cache.get(&key(0)).is_some());
        assert_eq!(memory.used_bytes(), 300);
        assert!(cache.evict(150));
        assert_eq!(memory.used_bytes(), 100);
        lead(&cache, 9).finish(Ok(piece(&memory, 400)));
        assert_eq!(
            memory.used_bytes(),
            100,
            "what is over the budget is not kept"
        );
    }

    #[test]
    fn one_decodes_and_all_get_it() {
        let (cache, memory) = (
            Arc::new(PieceCache::new(1 << 20)),
            Arc::new(Memory::new(1 << 20)),
        );
        let leader = lead(&cache, 5);
        let followers: Vec<_> = (0..8)
            .map(|_| match cache.claim(key(5), |_| true) {
                Claim::Follow(flight) => std::thread::spawn(move || flight.wait(soon())),
                other => panic!("{other:?}"),
            })
            .collect();
        leader.finish(Ok(piece(&memory, 10)));
        for follower in followers {
            let outcome = follower.join().unwrap();
            assert!(matches!(outcome, Some(Outcome::Done(Ok(_)))), "{outcome:?}");
        }
        assert!(matches!(cache.claim(key(5), |_| true), Claim::Ready(_)));
    }

    #[test]
    fn an_abandoned_flight_is_taken_over_and_a_failure_is_not_kept() {
        let cache = Arc::new(PieceCache::new(1 << 20));
        let leader = lead(&cache, 5);
        let flight = leader.flight();
        drop(leader);
        assert!(matches!(flight.wait(soon()), Some(Outcome::Abandoned)));
        let failure = StoreError::Corrupt {
            key: crate::store::Key::root(),
            what: "x".into(),
        };
        let leader = lead(&cache, 5);
        let flight = leader.flight();
        leader.finish(Err(failure));
        assert!(matches!(flight.wait(soon()), Some(Outcome::Done(Err(_)))));
        lead(&cache, 5);
    }

    #[test]
    fn a_follower_does_not_wait_past_its_deadline() {
        let cache = Arc::new(PieceCache::new(1 << 20));
        let leader = lead(&cache, 5);
        let flight = leader.flight();
        assert!(
            flight
                .wait(Instant::now() + Duration::from_millis(10))
                .is_none()
        );
    }

    #[test]
    fn a_piece_that_is_not_fresh_is_claimed_again() {
        let (cache, memory) = (
            Arc::new(PieceCache::new(1 << 20)),
            Arc::new(Memory::new(1 << 20)),
        );
        lead(&cache, 5).finish(Ok(piece(&memory, 10)));
        assert!(matches!(cache.claim(key(5), |_| false), Claim::Lead(_)));
        let kept = cache.get(&key(5)).unwrap();
        let checked_ms = kept.checked_ms();
        kept.refresh(checked_ms - 1);
        assert_eq!(kept.checked_ms(), checked_ms, "an older check says nothing");
        kept.refresh(checked_ms + 1);
        assert_eq!(kept.checked_ms(), checked_ms + 1);
    }
}
