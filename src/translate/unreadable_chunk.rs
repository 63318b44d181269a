//! Chunks that exist but cannot be read.

use async_trait::async_trait;

use crate::store::{Data, Object, Stat, StoreError, Version};

/// A chunk that opens, but whose reads fail. Some programs treat a chunk that does not open as
/// absent.
#[derive(Debug)]
pub(super) struct UnreadableChunk {
    pub(super) stat: Stat,
    pub(super) error: StoreError,
}

#[async_trait]
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

    async fn read(&self, _: u64, _: usize) -> Result<Data, StoreError> {
        Err(self.error.clone())
    }
}
