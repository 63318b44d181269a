//! A store whose content is replaced while a chunk is opened, as by a writer at the worst moment.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use siphasher::sip::SipHasher13;

use crate::store::{
    AccessHint, Capabilities, Extent, InMemoryObject, Key, Kind, Listing, ListingSupport,
    MemoryStore, Object, Stat, StoreError, SyncStore, Version,
};

/// Two hierarchies. Once the store is armed, the first lookup of a chunk sees the second one, and so do all calls
/// after it. Clones share this state.
#[derive(Debug, Clone)]
pub(crate) struct ReplacedStore {
    before: Hierarchy,
    after: Hierarchy,
    chunk: Key,
    is_armed: Arc<AtomicBool>,
    is_replaced: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
struct Hierarchy {
    store: MemoryStore,
    values: BTreeMap<Key, Arc<Vec<u8>>>,
}

impl Hierarchy {
    fn new(values: &[(&str, &[u8])]) -> Self {
        let values = values.iter().map(|(key, value)| {
            let key = Key::new(key.as_bytes()).unwrap();
            (key, value.to_vec())
        });
        Self {
            store: MemoryStore::new(values.clone()),
            values: values.map(|(key, value)| (key, value.into())).collect(),
        }
    }
}

impl ReplacedStore {
    /// Creates a store from its keys and values before and after the lookup of `chunk`.
    pub(crate) fn new(before: &[(&str, &[u8])], after: &[(&str, &[u8])], chunk: &str) -> Self {
        Self {
            before: Hierarchy::new(before),
            after: Hierarchy::new(after),
            chunk: Key::new(chunk.as_bytes()).unwrap(),
            is_armed: Arc::default(),
            is_replaced: Arc::default(),
        }
    }

    /// Replaces the hierarchy at the next lookup of the chunk.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::Relaxed);
    }

    /// Returns the hierarchy that a call about a key sees.
    fn current(&self, key: &Key) -> &Hierarchy {
        if *key == self.chunk && self.is_armed.load(Ordering::Relaxed) {
            self.is_replaced.store(true, Ordering::Relaxed);
        }
        match self.is_replaced.load(Ordering::Relaxed) {
            true => &self.after,
            false => &self.before,
        }
    }
}

impl SyncStore for ReplacedStore {
    fn label(&self) -> &str {
        "replaced"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: false,
            listing: ListingSupport::Complete,
            joins_prefetches: false,
            lists_without_requests: true,
        }
    }

    fn extent(&self) -> Extent {
        Extent::default()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let current = self.current(key);
        let stat = SyncStore::stat(&current.store, key)?;
        let mut hasher = SipHasher13::new();
        if let Some(value) = current.values.get(key) {
            hasher.write(value);
        }
        let version = match stat.kind {
            Kind::Object => Version(hasher.finish()),
            Kind::Prefix => Version(0),
        };
        let modified = UNIX_EPOCH;
        Ok(Stat {
            version,
            modified,
            ..stat
        })
    }

    fn open(&self, key: &Key, _: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let stat = SyncStore::stat(self, key)?;
        match self.current(key).values.get(key) {
            Some(value) if stat.kind == Kind::Object => {
                Ok(Arc::new(InMemoryObject::new(Arc::clone(value), stat)))
            }
            _ => Err(StoreError::NotAPrefix { key: key.clone() }),
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        SyncStore::list(&self.current(prefix).store, prefix)
    }
}
