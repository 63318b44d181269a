//! What all arrays of a mount share: threads, memory, decoded pieces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::buffers::Buffers;
use super::cache::{PieceCache, PieceKey};
use super::memory::{Memory, Refused, Reservation};
use super::pool::Pool;
use super::raw::share_scratch;
use super::served::{ClosedRecords, Room};
use crate::codec::ShardIndex;
use crate::store::{Key, Patience, StoreError, Version};

/// How much an engine may take.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Decoded pieces that are kept, in bytes.
    pub cache_bytes: u64,
    /// All that decoding may take at a time, in bytes.
    pub memory_limit_bytes: u64,
    /// Threads that decode.
    pub threads: usize,
    /// How long a reader waits for a piece.
    pub timeout: Duration,
}

/// Decodes for all arrays of a mount.
#[derive(Debug)]
pub struct Engine {
    pub(super) cache: Arc<PieceCache>,
    pub(super) pool: Pool,
    pub(super) buffers: Arc<Buffers>,
    memory: Arc<Memory>,
    /// The part of it that the versions of served chunks may take.
    versions: Arc<Memory>,
    pub(super) closed: ClosedRecords,
    timeout: Duration,
    threads: usize,
    arrays: AtomicU64,
    decoded: AtomicU64,
    reused: AtomicU64,
    indexes: Mutex<Indexes>,
}

/// An array and a chunk of it.
type Shard = (u64, u64);

/// Shard indexes, the least recently used ones first to go.
#[derive(Debug)]
struct Indexes {
    kept: LruCache<Shard, (Version, Arc<ShardIndex>)>,
    bytes: u64,
}

/// The versions of served chunks take no more than this part of the memory limit.
const VERSIONS_PART: u64 = 8;

/// What an inner chunk takes in the index of its shard.
const INDEX_ENTRY_BYTES: u64 = 16;

impl Engine {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's, if not even one thread can be started.
    pub fn new(options: EngineOptions) -> std::io::Result<Self> {
        share_scratch(options.threads);
        let cache_bytes = options.cache_bytes.min(options.memory_limit_bytes / 2);
        Ok(Self {
            cache: Arc::new(PieceCache::new(cache_bytes)),
            pool: Pool::new(options.threads)?,
            buffers: Arc::default(),
            memory: Arc::new(Memory::new(options.memory_limit_bytes)),
            versions: Arc::new(Memory::new(options.memory_limit_bytes / VERSIONS_PART)),
            closed: ClosedRecords::default(),
            timeout: options.timeout,
            threads: options.threads.max(1),
            arrays: AtomicU64::new(0),
            decoded: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            indexes: Mutex::new(Indexes {
                kept: LruCache::unbounded(),
                bytes: 0,
            }),
        })
    }

    /// Threads that fetch and decode.
    pub(super) fn threads(&self) -> u64 {
        self.threads as u64
    }

    /// A number for an array that is opened.
    pub(super) fn next_array(&self) -> u64 {
        self.arrays.fetch_add(1, Ordering::Relaxed)
    }

    /// When what is asked for now has to be there.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// The most that decoding may take at a time, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.memory.limit_bytes()
    }

    /// Gauges for the statistics: bytes that are reserved now, pieces that were decoded so far,
    /// and pieces that readers found decoded.
    pub fn gauges(&self) -> [(&'static str, u64); 3] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("decoded_bytes", self.memory.used_bytes()),
            ("pieces_decoded", read(&self.decoded)),
            ("pieces_reused", read(&self.reused)),
        ]
    }

    /// A piece was decoded.
    pub(super) fn count_decoded(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader found pieces decoded.
    pub(super) fn count_reused(&self, pieces: usize) {
        self.reused.fetch_add(pieces as u64, Ordering::Relaxed);
    }

    /// Reserves what parsing or decoding `key` takes, and waits for it until the deadline.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::TimedOut`].
    pub fn reserve(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        self.reserve_until(key, bytes, self.deadline())
    }

    /// Reserves what parsing `key` takes, if that can be had without waiting for others.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::TimedOut`].
    pub fn reserve_now(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        self.reserve_until(key, bytes, Instant::now())
    }

    /// Reserves what the versions of served chunks take; records of closed files make room.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files take all that versions may take; those of
    /// [`Engine::reserve`], or [`StoreError::WouldWait`] for [`Patience::Now`].
    pub(super) fn reserve_versions(
        &self,
        key: &Key,
        bytes: u64,
        patience: Patience,
    ) -> Result<Room, StoreError> {
        let evict = |missing| self.closed.evict(missing);
        let versions = self.versions.reserve(bytes, Instant::now(), evict);
        let versions = versions.map_err(|_| StoreError::TooLarge {
            key: key.clone(),
            need_bytes: self.versions.used_bytes().saturating_add(bytes),
            limit_bytes: self.versions.limit_bytes(),
        })?;
        let memory = match patience {
            Patience::Wait => self.reserve(key, bytes)?,
            Patience::Now => self.reserve_now(key, bytes).map_err(|error| match error {
                StoreError::TimedOut { key, .. } => StoreError::WouldWait { key },
                error => error,
            })?,
        };
        Ok(Room { versions, memory })
    }

    fn reserve_until(
        &self,
        key: &Key,
        bytes: u64,
        deadline: Instant,
    ) -> Result<Reservation, StoreError> {
        let evict = |missing| self.cache.evict(missing);
        self.memory
            .reserve(bytes, deadline, evict)
            .map_err(|refused| match refused {
                Refused::Never => StoreError::TooLarge {
                    key: key.clone(),
                    need_bytes: bytes,
                    limit_bytes: self.memory.limit_bytes(),
                },
                Refused::InTime => timed_out(key, "memory"),
            })
    }

    pub(super) fn index(&self, key: &PieceKey, version: Version) -> Option<Arc<ShardIndex>> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, index) = indexes.kept.get(&(key.array, key.chunk))?;
        (*of == version).then(|| Arc::clone(index))
    }

    pub(super) fn keep_index(&self, key: &PieceKey, version: Version, index: Arc<ShardIndex>) {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |index: &ShardIndex| index.len() as u64 * INDEX_ENTRY_BYTES;
        indexes.bytes = indexes.bytes.saturating_add(size(&index));
        let place = (key.array, key.chunk);
        if let Some((_, old)) = indexes.kept.put(place, (version, index)) {
            indexes.bytes = indexes.bytes.saturating_sub(size(&old));
        }
        // The newest stays: its inner chunks are about to be read.
        let most = self.memory.limit_bytes() / 32;
        while indexes.bytes > most && indexes.kept.len() > 1 {
            let Some((_, (_, old))) = indexes.kept.pop_lru() else {
                break;
            };
            indexes.bytes = indexes.bytes.saturating_sub(size(&old));
        }
    }
}

/// Nobody answered before the deadline.
pub(super) fn timed_out(key: &Key, what: &str) -> StoreError {
    StoreError::TimedOut {
        key: key.clone(),
        what: what.into(),
    }
}
