//! The resources that all arrays of a mount share: threads, memory and decoded chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::buffer_pool::BufferPool;
use super::chunk_cache::ChunkCache;
use super::closed_records::ClosedRecords;
use super::decode::share_scratch;
use super::memory_limit::{MemoryLimit, Reservation, ReserveError};
use crate::clock::Instant;
use crate::hierarchy::ShardIndexCache;
use crate::runtime;
use crate::store::{Key, StoreError};

/// The limits of an engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// The size of the cache of decoded chunks in bytes.
    pub cache_bytes: u64,
    /// The largest total memory of decoding, in bytes.
    pub memory_limit_bytes: u64,
    /// The number of chunks that are fetched and decoded at the same time.
    pub parallel: usize,
    /// The time that a reader waits for a chunk.
    pub timeout: Duration,
}

/// The shared decoder of all arrays of a mount.
#[derive(Debug)]
pub struct Engine {
    pub(super) cache: Arc<ChunkCache>,
    pub(super) buffers: Arc<BufferPool>,
    memory: Arc<MemoryLimit>,
    /// The part of `memory` for the versions of served chunks.
    pub(super) versions: Arc<MemoryLimit>,
    pub(super) closed: ClosedRecords,
    timeout: Duration,
    parallel: usize,
    /// Admits the reads that may hold chunks while they wait for more.
    readers: Semaphore,
    arrays: AtomicU64,
    decoded: AtomicU64,
    reused: AtomicU64,
    pub(super) indexes: ShardIndexCache<()>,
}

/// The divisor of the memory limit that gives the largest size of the versions of served chunks.
const VERSIONS_PART: u64 = 8;

/// The divisor of the memory limit that gives the largest size of the cached shard indexes.
const INDEXES_PART: u64 = 32;

impl Engine {
    /// Prepares decoding, and starts its threads.
    ///
    /// # Errors
    /// The error of the system, if it cannot start a single thread.
    pub fn new(options: EngineOptions) -> std::io::Result<Self> {
        runtime::start(crate::machine::cores())?;
        share_scratch(crate::machine::cores(), options.memory_limit_bytes);
        let parallel = options.parallel.max(1);
        let cache_bytes = options.cache_bytes.min(options.memory_limit_bytes / 2);
        Ok(Self {
            cache: Arc::new(ChunkCache::new(cache_bytes)),
            buffers: Arc::default(),
            memory: Arc::new(MemoryLimit::new(options.memory_limit_bytes)),
            versions: Arc::new(MemoryLimit::new(options.memory_limit_bytes / VERSIONS_PART)),
            closed: ClosedRecords::default(),
            timeout: options.timeout,
            parallel,
            readers: Semaphore::new(Self::most_readers(parallel)),
            arrays: AtomicU64::new(0),
            decoded: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            indexes: ShardIndexCache::new(options.memory_limit_bytes / INDEXES_PART),
        })
    }

    fn most_readers(parallel: usize) -> usize {
        parallel.saturating_mul(4).max(64)
    }

    /// Returns the number of chunks that are fetched and decoded at the same time.
    pub(super) fn parallel(&self) -> u64 {
        self.parallel as u64
    }

    /// Returns the largest size in bytes that one read may hold while it waits for more. All
    /// readers together cannot fill the memory and then wait for each other.
    pub(super) fn held_bytes(&self) -> u64 {
        self.memory.limit_bytes() / Self::most_readers(self.parallel) as u64
    }

    /// Waits until a read may hold chunks.
    pub(super) async fn admit_reader(&self, key: &Key) -> Result<SemaphorePermit<'_>, StoreError> {
        if let Ok(permit) = self.readers.try_acquire() {
            return Ok(permit);
        }
        let permit = runtime::timeout(self.timeout, self.readers.acquire()).await;
        let permit = permit.ok_or_else(|| timed_out(key, "memory"))?;
        permit.map_err(|_| StoreError::internal("the readers of an engine are closed"))
    }

    /// Returns the number of a newly opened array.
    pub(super) fn next_array(&self) -> u64 {
        self.arrays.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the time limit of a request.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the deadline of a request that starts now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Returns the largest total memory of decoding in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.memory.limit_bytes()
    }

    /// Evicts all decoded chunks and returns what is in use; nothing if no read is in flight.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> Vec<String> {
        while self.cache.evict(u64::MAX) {}
        let mut used = Vec::new();
        match self.memory.used_bytes() {
            0 => {}
            bytes => used.push(format!("{bytes} bytes for decoding")),
        }
        let readers = Self::most_readers(self.parallel) - self.readers.available_permits();
        if readers > 0 {
            used.push(format!("{readers} admitted reads"));
        }
        used
    }

    /// Returns gauges for the statistics: reserved bytes and their limit, decoded chunks, and
    /// chunks that readers found in the cache.
    pub fn gauges(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("decoded_bytes", self.memory.used_bytes()),
            ("decoded_limit_bytes", self.memory_limit_bytes()),
            ("chunks_decoded", read(&self.decoded)),
            ("chunks_reused", read(&self.reused)),
        ]
    }

    /// Counts a decoded chunk.
    pub(super) fn count_decoded(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts chunks that a reader found in the cache.
    pub(super) fn count_reused(&self, chunks: usize) {
        self.reused.fetch_add(chunks as u64, Ordering::Relaxed);
    }

    /// Reserves memory for parsing or decoding `key`, and waits for it until the deadline.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::TimedOut`].
    pub async fn reserve(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        let evict = |missing| self.cache.evict(missing);
        let reserved = self.memory.reserve(bytes, self.deadline(), evict).await;
        reserved.map_err(|refused| self.refused(key, bytes, refused))
    }

    /// Reserves memory for parsing `key`, if it is free now.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::TimedOut`].
    pub fn reserve_now(&self, key: &Key, bytes: u64) -> Result<Reservation, StoreError> {
        let reserved = self
            .memory
            .try_reserve(bytes, |missing| self.cache.evict(missing));
        reserved.map_err(|refused| self.refused(key, bytes, refused))
    }

    fn refused(&self, key: &Key, need_bytes: u64, refused: ReserveError) -> StoreError {
        match refused {
            ReserveError::ExceedsLimit => StoreError::TooLarge {
                key: key.clone(),
                need_bytes,
                limit_bytes: self.memory.limit_bytes(),
            },
            ReserveError::TimedOut => timed_out(key, "memory"),
        }
    }
}

/// Returns the error of a deadline that has passed.
pub(super) fn timed_out(key: &Key, what: &str) -> StoreError {
    StoreError::TimedOut {
        key: key.clone(),
        what: what.into(),
    }
}
