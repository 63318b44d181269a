//! What all arrays of a mount share: threads, memory, decoded chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::buffers::Buffers;
use super::cache::ChunkCache;
use super::closed_records::ClosedRecords;
use super::memory::{Memory, Refused, Reservation};
use super::raw::share_scratch;
use crate::hierarchy::ShardIndexCache;
use crate::runtime;
use crate::store::{Key, StoreError};

/// How much an engine may take.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Decoded chunks that are kept, in bytes.
    pub cache_bytes: u64,
    /// All that decoding may take at a time, in bytes.
    pub memory_limit_bytes: u64,
    /// Chunks that are fetched and decoded at the same time.
    pub parallel: usize,
    /// How long a reader waits for a chunk.
    pub timeout: Duration,
}

/// Decodes for all arrays of a mount.
#[derive(Debug)]
pub struct Engine {
    pub(super) cache: Arc<ChunkCache>,
    pub(super) buffers: Arc<Buffers>,
    memory: Arc<Memory>,
    /// The part of it that the versions of served chunks may take.
    pub(super) versions: Arc<Memory>,
    pub(super) closed: ClosedRecords,
    timeout: Duration,
    parallel: usize,
    /// Reads that hold chunks while they wait for more.
    readers: Semaphore,
    arrays: AtomicU64,
    decoded: AtomicU64,
    reused: AtomicU64,
    pub(super) indexes: ShardIndexCache<()>,
}

/// The versions of served chunks take no more than this part of the memory limit.
const VERSIONS_PART: u64 = 8;

/// Cached indexes of shards take no more than this part of the memory limit.
const INDEXES_PART: u64 = 32;

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
            cache: Arc::new(ChunkCache::new(cache_bytes)),
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
            indexes: ShardIndexCache::new(options.memory_limit_bytes / INDEXES_PART),
        })
    }

    fn most_readers(parallel: usize) -> usize {
        parallel.saturating_mul(4).max(64)
    }

    /// Chunks that are fetched and decoded at the same time.
    pub(super) fn parallel(&self) -> u64 {
        self.parallel as u64
    }

    /// How much one read may hold while it waits for more: all readers together cannot fill the memory
    /// and wait for each other.
    pub(super) fn held_bytes(&self) -> u64 {
        self.memory.limit_bytes() / Self::most_readers(self.parallel) as u64
    }

    /// Waits until a read may hold chunks.
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

    /// Gauges for the statistics: bytes that are reserved now and their limit, chunks that were decoded so
    /// far, and chunks that readers found decoded.
    pub fn gauges(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("decoded_bytes", self.memory.used_bytes()),
            ("decoded_limit_bytes", self.memory_limit_bytes()),
            ("chunks_decoded", read(&self.decoded)),
            ("chunks_reused", read(&self.reused)),
        ]
    }

    /// A chunk was decoded.
    pub(super) fn count_decoded(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader found chunks decoded.
    pub(super) fn count_reused(&self, chunks: usize) {
        self.reused.fetch_add(chunks as u64, Ordering::Relaxed);
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
}

/// The deadline is over.
pub(super) fn timed_out(key: &Key, what: &str) -> StoreError {
    StoreError::TimedOut {
        key: key.clone(),
        what: what.into(),
    }
}
