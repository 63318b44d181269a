//! Memory for the versions of served chunks.

use super::engine::Engine;
use super::memory_limit::Reservation;
use crate::store::{Key, StoreError};

/// Reserved memory of pages, counted in the limit of all records and in the limit of all decoding.
#[derive(Debug)]
pub(super) struct PageReservation {
    versions: Reservation,
    memory: Reservation,
}

impl PageReservation {
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
    /// Reserves memory for the versions of served chunks, evicting records of closed files; waits for memory that
    /// decoding uses.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files use all memory for versions, and the errors of
    /// [`Engine::reserve`].
    pub(super) async fn reserve_versions(
        &self,
        key: &Key,
        bytes: u64,
    ) -> Result<PageReservation, StoreError> {
        let versions = self.reserve_of_versions(key, bytes)?;
        let memory = self.reserve(key, bytes).await?;
        Ok(PageReservation { versions, memory })
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
