//! Chunks that exist but cannot be read.

use crate::store::{Data, Object, Stat, StoreError, Version};

/// A chunk that opens, but whose reads fail. Some programs treat a chunk that does not open as
/// absent.
#[derive(Debug)]
pub(super) struct UnreadableChunk {
    pub(super) stat: Stat,
    pub(super) error: StoreError,
}

impl Object for UnreadableChunk {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    fn try_read(&self, _: u64, _: usize, _: &mut [u8]) -> Option<Result<Data, StoreError>> {
        Some(Err(self.error.clone()))
    }
}
