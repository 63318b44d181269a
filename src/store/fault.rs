//! A store that fails on purpose, for tests of everything above.

use std::sync::Arc;

use super::{
    Data, Extent, Index, Key, Listing, Object, Patience, Promises, Stat, Store, StoreError, Version,
};

/// Any store, with one key whose reads panic as a decoder with a bug would.
#[derive(Debug)]
pub struct FaultStore {
    inner: Box<dyn Store>,
    panics: Key,
}

impl FaultStore {
    /// Lets reads of `panics` panic; all else is as in `inner`, without its index.
    pub fn new(inner: Box<dyn Store>, panics: Key) -> Self {
        Self { inner, panics }
    }
}

impl Store for FaultStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    fn extent(&self) -> Extent {
        self.inner.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.inner.stat(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        let object = self.inner.open(key)?;
        if *key == self.panics {
            Ok(Arc::new(PanickingObject(object)))
        } else {
            Ok(object)
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.inner.list(prefix)
    }

    fn index(&self) -> Option<&dyn Index> {
        None
    }
}

#[derive(Debug)]
struct PanickingObject(Arc<dyn Object>);

impl Object for PanickingObject {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn version(&self) -> Version {
        self.0.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        self.0.stat()
    }

    fn read(&self, _: u64, _: usize, _: &mut [u8], _: Patience) -> Result<Data, StoreError> {
        panic!("injected fault: a panic in a read")
    }
}
