//! Values in objects of the store that contains the references.
//!
//! An object of a remote store is opened by the first read, so that a value takes one request.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::span::{SpanObject, target_error};
use crate::store::{AccessHint, Data, Key, Object, Stat, Store, StoreError, Version};

/// Objects up to this size, in bytes, are fetched whole.
const WHOLE_BYTES: u64 = 8 << 20;

/// A range of an object, as the value of a key.
#[derive(Debug)]
pub(super) struct SameStoreRange {
    pub(super) store: Arc<dyn Store>,
    /// The key of the object.
    pub(super) object_key: Key,
    pub(super) range: Range<u64>,
    /// The key of the value; `stat` has its attributes.
    pub(super) key: Key,
    pub(super) stat: Stat,
}

impl SameStoreRange {
    /// Opens the range: now if the store is local, else with the first read.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the object is too short; never [`StoreError::NotFound`].
    pub(super) async fn open(self, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.store.capabilities().is_remote {
            true => Ok(self.lazy(hint)),
            false => {
                let object = self.store.open(&self.object_key, AccessHint::Ranges).await;
                self.span(object)
            }
        }
    }

    /// As [`SameStoreRange::open`]; `None` if the call would wait.
    pub(super) fn try_open(self, hint: AccessHint) -> Option<Result<Arc<dyn Object>, StoreError>> {
        match self.store.capabilities().is_remote {
            true => Some(Ok(self.lazy(hint))),
            false => {
                let object = self.store.try_open(&self.object_key, AccessHint::Ranges)?;
                Some(self.span(object))
            }
        }
    }

    fn lazy(self, hint: AccessHint) -> Arc<dyn Object> {
        Arc::new(LazyRange {
            hint: self.hint(hint),
            part: self,
            object: OnceCell::new(),
        })
    }

    /// Returns the hint for opening the object. Most objects have one value, at their beginning.
    fn hint(&self, hint: AccessHint) -> AccessHint {
        match hint {
            _ if self.range.start > 0 => AccessHint::Ranges,
            AccessHint::Whole(most) => AccessHint::Whole(most.min(self.range.end)),
            AccessHint::Ranges if self.range.end <= WHOLE_BYTES => {
                AccessHint::Whole(self.range.end)
            }
            hint => hint,
        }
    }

    fn span(
        &self,
        object: Result<Arc<dyn Object>, StoreError>,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let object = object.map_err(|error| target_error(error, &self.key, &self.object_key))?;
        let label = self.object_key.to_string();
        SpanObject::open(object, &self.key, &label, self.range.clone(), self.stat)
    }
}

/// A range of an object in a remote store.
#[derive(Debug)]
struct LazyRange {
    part: SameStoreRange,
    hint: AccessHint,
    object: OnceCell<Arc<dyn Object>>,
}

impl LazyRange {
    async fn object(&self) -> Result<&Arc<dyn Object>, StoreError> {
        let open = || async {
            let object = self.part.store.open(&self.part.object_key, self.hint).await;
            self.part.span(object)
        };
        self.object.get_or_try_init(open).await
    }
}

#[async_trait]
impl Object for LazyRange {
    fn size_bytes(&self) -> u64 {
        self.part.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.part.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        match self.object.get() {
            Some(object) => object.stat(),
            None => Ok(self.part.stat),
        }
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        self.object().await?.read(offset, size_bytes).await
    }

    fn is_parallel(&self) -> bool {
        true
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        // If the object cannot be opened, the read reports the error.
        if let Ok(object) = self.object().await {
            object.prefetch(ranges).await;
        }
    }
}
