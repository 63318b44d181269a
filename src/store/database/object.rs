//! Open values of a database.

use std::sync::Arc;

use async_trait::async_trait;

use super::value_cache::ValueReservation;
use super::versions::{Digest, VersionProof, revalidate};
use super::{Failure, Shared, Snapshot, ValueMeta, object_stat};
use crate::store::{
    Data, Key, LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError, Version,
};
use crate::sync::Mutex;

/// A short value that was read when it was looked up or opened.
#[derive(Debug)]
pub(super) struct ShortObject {
    content: Arc<Vec<u8>>,
    stat: Stat,
    _reserved: ValueReservation,
}

impl ShortObject {
    /// Creates an object from all bytes of a value, and its attributes.
    pub(super) fn new(content: Vec<u8>, stat: Stat, reserved: ValueReservation) -> Self {
        Self {
            content: Arc::new(content),
            stat,
            _reserved: reserved,
        }
    }

    pub(super) fn attributes(&self) -> Stat {
        self.stat
    }
}

impl Object for ShortObject {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        Some(self)
    }

    fn is_parallel(&self) -> bool {
        true
    }
}

impl LocalObject for ShortObject {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        _: &mut [u8],
        _: ReadMode,
    ) -> Result<Data, LocalReadError> {
        Ok(Data::part_of(&self.content, offset, size_bytes))
    }
}

/// A long value that is read by ranges.
#[derive(Debug)]
pub(super) struct LongObject {
    shared: Arc<Shared>,
    key: Key,
    stat: Stat,
    proof: Mutex<VersionProof>,
}

impl LongObject {
    pub(super) fn new(
        shared: Arc<Shared>,
        snapshot: &dyn Snapshot,
        key: &Key,
        value: ValueMeta,
        proof: VersionProof,
    ) -> Self {
        Self {
            shared,
            key: key.clone(),
            stat: object_stat(snapshot, value, proof.version),
            proof: Mutex::new(proof),
        }
    }

    /// Fails if the value in the snapshot is not the one that was opened.
    fn check(&self, snapshot: &mut dyn Snapshot) -> Result<(), Failure> {
        let known = *self.proof.lock();
        if known.is_of(snapshot) {
            return Ok(());
        }
        let stale = |what: &str| {
            Failure::Failed(StoreError::Stale {
                key: self.key.clone(),
                what: what.into(),
            })
        };
        let Some(found) = snapshot.find(self.key.as_bytes())? else {
            return Err(stale("it is gone"));
        };
        let proof = revalidate(snapshot, &self.key, found.value, known, Digest::Allowed)?;
        match proof.filter(|proof| proof.version == known.version) {
            Some(proof) => {
                *self.proof.lock() = proof;
                Ok(())
            }
            None => Err(stale("the database has changed")),
        }
    }
}

#[async_trait]
impl Object for LongObject {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    // No `LocalObject`: a lock of a writer can last long, and the threads that read it must not wait for it.
    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let left = self.stat.size_bytes.saturating_sub(offset);
        let length = usize::try_from(left).map_or(size_bytes, |left| left.min(size_bytes));
        let no_memory = |()| StoreError::TooLarge {
            key: self.key.clone(),
            need_bytes: length as u64,
            limit_bytes: 0,
        };
        let mut bytes = bytemuck::try_zeroed_vec(length).map_err(no_memory)?;
        if length > 0 {
            let read = self.shared.read(&self.key, |snapshot| {
                self.check(snapshot)?;
                snapshot.read_at(self.key.as_bytes(), offset, &mut bytes)
            });
            read.await?;
        }
        Ok(Data::Shared(Arc::new(bytes), 0..length))
    }
}
