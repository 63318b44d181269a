//! What all arrays of a mount share: threads, memory, decoded pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::buffers::Buffers;
use super::cache::{PieceCache, PieceKey};
use super::memory::{Memory, Refused, Reservation};
use super::raw::share_scratch;
use super::served::{ClosedRecords, Room};
use crate::cache::WeightedLru;
use crate::codec::ShardIndex;
use crate::runtime;
use crate::store::{Key, StoreError, Version};
use crate::sync::Mutex;

/// How much an engine may take.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Decoded pieces that are kept, in bytes.
    pub cache_bytes: u64,
    /// All that decoding may take at a time, in bytes.
    pub memory_limit_bytes: u64,
    /// Pieces that are fetched and decoded at the same time.
    pub parallel: usize,
    /// How long a reader waits for a piece.
    pub timeout: Duration,
}

/// Decodes for all arrays of a mount.
#[derive(Debug)]
pub struct Engine {
    pub(super) cache: Arc<PieceCache>,
    pub(super) buffers: Arc<Buffers>,
    memory: Arc<Memory>,
    /// The part of it that the versions of served chunks may take.
    versions: Arc<Memory>,
    pub(super) closed: ClosedRecords,
    timeout: Duration,
    parallel: usize,
    /// Reads that hold pieces while they wait for more.
    readers: Semaphore,
    arrays: AtomicU64,
    decoded: AtomicU64,
    reused: AtomicU64,
    indexes: Mutex<WeightedLru<Shard, (Version, Arc<ShardIndex>)>>,
}

/// An array and a chunk of it.
type Shard = (u64, u64);

/// The versions of served chunks take no more than this part of the memory limit.
const VERSIONS_PART: u64 = 8;

/// What an inner chunk takes in the index of its shard.
const INDEX_ENTRY_BYTES: u64 = 16;

impl Engine {
    /// Prepares decoding, and starts its threads.
    ///
    /// # Errors
    /// The system's, if not even one thread can be started.
    pub fn new(options: EngineOptions) -> std::io::Result<Self> {
        runtime::start(crate::machine::cores())?;
        share_scratch(crate::machine::cores());
        let parallel = options.parallel.max(1);
        let cache_bytes = options.cache_bytes.min(options.memory_limit_bytes / 2);
        Ok(Self {
            cache: Arc::new(PieceCache::new(cache_bytes)),
            buffers: Arc::default(),
            memory: Arc::new(Memory::new(options.memory_limit_bytes)),
            versions: Arc::new(Memory::new(options.memory_limit_bytes / VERSIONS_PART)),
            closed: ClosedRecords::default(),
            timeout: options.timeout,
            parallel,
            readers: Semaphore::new(Self::most_readers(parallel)),
            arrays: AtomicU64::new(0),
            decoded: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            indexes: Mutex::new(WeightedLru::new(
                options.memory_limit_bytes / 32,
                usize::MAX,
            )),
        })
    }

    fn most_readers(parallel: usize) -> usize {
        parallel.saturating_mul(4).max(64)
    }

    /// Pieces that are fetched and decoded at the same time.
    pub(super) fn parallel(&self) -> u64 {
        self.parallel as u64
    }

    /// How much one read may hold while it waits for more: all readers together cannot fill the memory
    /// and wait for each other.
    pub(super) fn held_bytes(&self) -> u64 {
        self.memory.limit_bytes() / Self::most_readers(self.parallel) as u64
    }

    /// Waits until a read may hold pieces.
    pub(super) async fn admit_reader(&self, key: &Key) -> Result<SemaphorePermit<'_>, StoreError> {
        let permit = runtime::timeout(self.timeout, self.readers.acquire()).await;
        let permit = permit.ok_or_else(|| timed_out(key, "memory"))?;
        permit.map_err(|_| StoreError::internal("the readers of an engine are closed"))
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
    pub async fn reserve(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        let evict = |missing| self.cache.evict(missing);
        let reserved = self.memory.reserve(bytes, self.deadline(), evict).await;
        reserved.map_err(|refused| self.refused(key, bytes, refused))
    }

    /// Reserves what parsing `key` takes, if that can be had without waiting for others.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::TimedOut`].
    pub fn reserve_now(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        let reserved = self
            .memory
            .try_reserve(bytes, |missing| self.cache.evict(missing));
        reserved.map_err(|refused| self.refused(key, bytes, refused))
    }

    fn refused(&self, key: &Key, need_bytes: u64, refused: Refused) -> StoreError {
        match refused {
            Refused::Never => StoreError::TooLarge {
                key: key.clone(),
                need_bytes,
                limit_bytes: self.memory.limit_bytes(),
            },
            Refused::InTime => timed_out(key, "memory"),
        }
    }

    /// Reserves what the versions of served chunks take if that is free; records of closed files make
    /// room. `None` if decoding takes it.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files take all that versions may take.
    pub(super) fn try_reserve_versions(
        &self,
        key: &Key,
        bytes: u64,
    ) -> Result<Option<Room>, StoreError> {
        let versions = self.reserve_of_versions(key, bytes)?;
        match self.reserve_now(key, bytes) {
            Ok(memory) => Ok(Some(Room { versions, memory })),
            Err(StoreError::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Engine::try_reserve_versions`]; waits for memory.
    ///
    /// # Errors
    /// As [`Engine::try_reserve_versions`], and those of [`Engine::reserve`].
    pub(super) async fn reserve_versions(&self, key: &Key, bytes: u64) -> Result<Room, StoreError> {
        let versions = self.reserve_of_versions(key, bytes)?;
        let memory = self.reserve(key, bytes).await?;
        Ok(Room { versions, memory })
    }

    fn reserve_of_versions(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        let reserved = self
            .versions
            .try_reserve(bytes, |missing| self.closed.evict(missing));
        reserved.map_err(|_| StoreError::TooLarge {
            key: key.clone(),
            need_bytes: self.versions.used_bytes().saturating_add(bytes),
            limit_bytes: self.versions.limit_bytes(),
        })
    }

    pub(super) fn index(&self, key: &PieceKey, version: Version) -> Option<Arc<ShardIndex>> {
        let mut indexes = self.indexes.lock();
        let (of, index) = indexes.get(&(key.array, key.chunk))?;
        (*of == version).then(|| Arc::clone(index))
    }

    pub(super) fn keep_index(&self, key: &PieceKey, version: Version, index: Arc<ShardIndex>) {
        let weight = index.len() as u64 * INDEX_ENTRY_BYTES;
        let shard = (key.array, key.chunk);
        let evicted = self.indexes.lock().insert(shard, (version, index), weight);
        drop(evicted);
    }
}

/// The deadline is over.
pub(super) fn timed_out(key: &Key, what: &str) -> StoreError {
    StoreError::TimedOut {
        key: key.clone(),
        what: what.into(),
    }
}
