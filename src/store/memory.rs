//! A store in memory, for tests: small, immutable and infallible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::{
    AccessHint, Capabilities, Data, Extent, Key, Kind, Listed, Listing, ListingSupport,
    LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError, SyncStore, Version, Visit,
    Visited,
};

/// Keys and values in a map.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    values: Arc<BTreeMap<Key, Arc<Vec<u8>>>>,
}

impl MemoryStore {
    /// Creates a store of keys and values. A key that is also a prefix of others is only a prefix.
    pub fn new(values: impl IntoIterator<Item = (Key, Vec<u8>)>) -> Self {
        let values = values
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        Self {
            values: Arc::new(values),
        }
    }

    /// Returns the names directly below a prefix, in order.
    fn names(&self, prefix: &Key) -> BTreeMap<Vec<u8>, Kind> {
        let mut names = BTreeMap::new();
        for key in self.values.keys() {
            let below = match key.as_bytes().strip_prefix(prefix.as_bytes()) {
                Some(below) if prefix.is_root() => below,
                Some([b'/', below @ ..]) => below,
                _ => continue,
            };
            match below.iter().position(|b| *b == b'/') {
                Some(end) => {
                    names.insert(below.get(..end).unwrap_or_default().to_vec(), Kind::Prefix)
                }
                None if names.contains_key(below) => None,
                None => names.insert(below.to_vec(), Kind::Object),
            };
        }
        names
    }
}

impl SyncStore for MemoryStore {
    fn label(&self) -> &str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: true,
            open_infallible: true,
            is_remote: false,
            listing: ListingSupport::Complete,
            joins_prefetches: false,
            lists_without_requests: true,
        }
    }

    fn extent(&self) -> Extent {
        let bytes = self.values.values().map(|v| v.len() as u64).sum();
        Extent {
            bytes,
            keys: self.values.len() as u64,
        }
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let names = self.names(key);
        let mut stat = Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: UNIX_EPOCH,
            version: Version(0),
            links: 2,
        };
        if !names.is_empty() || key.is_root() {
            let prefixes = names.values().filter(|kind| **kind == Kind::Prefix).count();
            stat.links = stat
                .links
                .saturating_add(u32::try_from(prefixes).unwrap_or(u32::MAX));
            return Ok(stat);
        }
        match self.values.get(key) {
            Some(value) => {
                stat.kind = Kind::Object;
                stat.size_bytes = value.len() as u64;
                stat.links = 1;
                Ok(stat)
            }
            None if self.values.contains_key(&key.parent()) => {
                Err(StoreError::NotAPrefix { key: key.clone() })
            }
            None => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    fn open(&self, key: &Key, _: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let stat = self.stat(key)?;
        match self.values.get(key) {
            Some(value) if stat.kind == Kind::Object => Ok(Arc::new(MemoryObject {
                value: Arc::clone(value),
                stat,
            })),
            _ => Err(StoreError::NotAPrefix { key: key.clone() }),
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        if self.stat(prefix)?.kind != Kind::Prefix {
            return Err(StoreError::NotAPrefix {
                key: prefix.clone(),
            });
        }
        Ok(Box::new(MemoryListing::new(self.names(prefix))))
    }
}

#[derive(Debug)]
struct MemoryObject {
    value: Arc<Vec<u8>>,
    stat: Stat,
}

impl Object for MemoryObject {
    fn size_bytes(&self) -> u64 {
        self.value.len() as u64
    }

    fn version(&self) -> Version {
        Version(0)
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        Some(self)
    }
}

impl LocalObject for MemoryObject {
    fn read_local(
        &self,
        offset: u64,
        size: usize,
        _: &mut [u8],
        _: ReadMode,
    ) -> Result<Data, LocalReadError> {
        Ok(Data::part_of(&self.value, offset, size))
    }
}

/// A listing of names in memory.
#[derive(Debug)]
pub(super) struct MemoryListing(Vec<(Vec<u8>, Kind)>);

impl MemoryListing {
    /// Returns the listing of a prefix with these names.
    pub(super) fn new(names: impl IntoIterator<Item = (Vec<u8>, Kind)>) -> Self {
        let dots = [b"." as &[u8], b".."].map(|dot| (dot.to_vec(), Kind::Prefix));
        Self(dots.into_iter().chain(names).collect())
    }
}

impl Listing for MemoryListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        for (position, (name, kind)) in (0_u64..).zip(&self.0) {
            if position < cookie {
                continue;
            }
            let listed = Listed {
                name,
                kind: *kind,
                stat: None,
                next: position.saturating_add(1),
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        Ok(Visited::End)
    }
}
