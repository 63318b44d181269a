//! A value in an asset, whose errors have the key in the collection.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::store::{Data, Key, Object, Stat, StoreError, Version};

/// A value of a member, which is not local.
#[derive(Debug)]
pub(super) struct MemberObject {
    object: Arc<dyn Object>,
    member: Key,
}

impl MemberObject {
    /// Returns a value of a member. Local values are returned as they are, because the kernel may read their files.
    pub(super) fn wrap(object: Arc<dyn Object>, member: &Key) -> Arc<dyn Object> {
        match object.as_local() {
            Some(_) => object,
            None => Arc::new(Self {
                object,
                member: member.clone(),
            }),
        }
    }
}

/// Returns the error of a member with the key in the collection.
pub(super) fn in_member(member: &Key, error: StoreError) -> StoreError {
    let key = member.join_key(error.key());
    error.with_key(key)
}

#[async_trait]
impl Object for MemberObject {
    fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    fn version(&self) -> Version {
        self.object.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let stat = self.object.stat();
        stat.map_err(|error| in_member(&self.member, error))
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let data = self.object.read(offset, size_bytes).await;
        data.map_err(|error| in_member(&self.member, error))
    }

    async fn verify_empty(&self) -> Result<(), StoreError> {
        let verified = self.object.verify_empty().await;
        verified.map_err(|error| in_member(&self.member, error))
    }

    fn is_parallel(&self) -> bool {
        self.object.is_parallel()
    }

    fn is_constant(&self) -> bool {
        self.object.is_constant()
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        self.object.prefetch(ranges).await;
    }

    async fn prefetch_whole(&self) -> bool {
        self.object.prefetch_whole().await
    }
}
