//! Memory for the versions of served chunks. Records of closed files are evicted, least recently used
//! first, when it runs out.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;

use super::engine::Engine;
use super::memory::Reservation;
use super::served::ServedVersions;
use crate::store::{Key, StoreError};
use crate::sync::{Mutex, MutexGuard};

/// Memory for pages: as part of what all records may take, and of what all decoding may take.
#[derive(Debug)]
pub(super) struct Room {
    versions: Reservation,
    memory: Reservation,
}

impl Room {
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.versions.add(other.versions);
        self.memory.add(other.memory);
    }

    pub(super) fn shrink(&mut self, bytes: u64) {
        self.versions.shrink(bytes);
        self.memory.shrink(bytes);
    }
}

impl Engine {
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
}

/// Records of files that are closed, whose pages the kernel may still have.
#[derive(Debug)]
pub(super) struct ClosedRecords {
    records: Mutex<LruCache<u64, (Weak<ServedVersions>, u64)>>,
    numbers: AtomicU64,
}

impl Default for ClosedRecords {
    fn default() -> Self {
        Self {
            records: Mutex::new(LruCache::unbounded()),
            numbers: AtomicU64::new(0),
        }
    }
}

impl ClosedRecords {
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<u64, (Weak<ServedVersions>, u64)>> {
        self.records.lock()
    }

    pub(super) fn put(&self, number: u64, record: Weak<ServedVersions>, bytes: u64) {
        self.lock().put(number, (record, bytes));
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().pop(&number);
    }

    /// Gives up records of at least `bytes`; returns whether any memory was freed.
    pub(super) fn evict(&self, bytes: u64) -> bool {
        let mut freed = 0;
        while freed < bytes {
            let Some((_, (record, size))) = self.lock().pop_lru() else {
                break;
            };
            if record.upgrade().is_some_and(|record| record.evict()) {
                freed += size;
            }
        }
        freed > 0
    }
}
