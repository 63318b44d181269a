//! Memory for the versions of served chunks.

use super::engine::Engine;
use super::memory::Reservation;
use crate::store::{Key, StoreError};

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
