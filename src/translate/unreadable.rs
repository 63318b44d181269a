//! A chunk that is there and can not be read.

use crate::store::{Data, Object, Patience, Stat, StoreError, Version};

/// Opened like any other, as some readers take what they can not open for absent; each read fails.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) stat: Stat,
    pub(super) error: StoreError,
}

impl Object for Unreadable {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    fn read(&self, _: u64, _: usize, _: &mut [u8], _: Patience) -> Result<Data, StoreError> {
        Err(self.error.clone())
    }
}
