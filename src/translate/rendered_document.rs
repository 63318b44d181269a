//! A rendered document as an object.

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

use crate::store::{Data, Kind, Object, Stat, StoreError, Version};

/// A document without a key in the store.
#[derive(Debug)]
pub(super) struct RenderedDocument {
    text: Arc<Vec<u8>>,
    version: Version,
    modified: SystemTime,
}

impl RenderedDocument {
    /// Creates a document whose version is a hash of its bytes.
    pub(super) fn new(text: Arc<Vec<u8>>, modified: SystemTime) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(&text);
        let version = Version(hasher.finish());
        Self {
            text,
            version,
            modified,
        }
    }
}

impl RenderedDocument {
    fn part(&self, offset: u64, size_bytes: usize) -> Data {
        let length = self.text.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let range: Range<usize> = start..start.saturating_add(size_bytes).min(length);
        Data::Shared(Arc::clone(&self.text), range)
    }
}

#[async_trait]
impl Object for RenderedDocument {
    fn size_bytes(&self) -> u64 {
        self.text.len() as u64
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes(),
            modified: self.modified,
            version: self.version,
            links: 1,
        })
    }

    fn try_read(
        &self,
        offset: u64,
        size_bytes: usize,
        _: &mut [u8],
    ) -> Option<Result<Data, StoreError>> {
        Some(Ok(self.part(offset, size_bytes)))
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        Ok(self.part(offset, size_bytes))
    }

    fn is_parallel(&self) -> bool {
        true
    }
}
