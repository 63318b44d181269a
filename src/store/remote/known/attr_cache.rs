//! Caches attributes of single keys for as long as they are trusted. Failures are never cached.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use crate::cache::bounded_lru;
use crate::clock::Instant;
use crate::store::remote::request::Meta;
use crate::store::{Key, StoreError};
use crate::sync::{Mutex, MutexGuard};
use crate::units::FOREVER;

/// Number of cached keys.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");

/// The cached result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::remote) enum Attrs {
    /// The key is a value.
    Object(Meta),
    /// The key is a prefix of other keys.
    Prefix,
    /// The source has proved that the key does not exist.
    Absent,
}

impl Attrs {
    /// Returns the attributes of the value at `key`.
    ///
    /// # Errors
    /// The key has no value.
    pub(in crate::store::remote) fn into_object(self, key: &Key) -> Result<Meta, StoreError> {
        match self {
            Self::Object(meta) => Ok(meta),
            Self::Prefix => Err(StoreError::NotAPrefix { key: key.clone() }),
            Self::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }
}

/// The attributes of a key, and when the source has returned them.
#[derive(Debug, Clone)]
pub(in crate::store::remote) struct CachedAttrs {
    pub(in crate::store::remote) attrs: Attrs,
    /// When the request was sent: the attributes were valid at this time or later.
    pub(in crate::store::remote) requested_at: Instant,
    /// When the response had arrived: the attributes were valid at this time or earlier.
    pub(in crate::store::remote) received_at: Instant,
    /// Whether the version of the metadata document was known soon after the response.
    pub(in crate::store::remote) is_checked: bool,
}

impl CachedAttrs {
    /// Attributes from the response to a request that was sent at `requested_at` and has arrived by now.
    pub(in crate::store::remote) fn new(attrs: Attrs, requested_at: Instant) -> Self {
        Self {
            attrs,
            requested_at,
            received_at: Instant::now(),
            is_checked: false,
        }
    }
}

/// The longest time in which the answer to a request is expected.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);
/// The number of keys whose outdated attributes are remembered. Only readers that run now ask for them.
const MAX_DROPPED: NonZeroUsize = NonZeroUsize::new(1 << 12).expect("not zero");

/// Attributes by key; the least recently used entries are evicted first.
#[derive(Debug)]
pub(in crate::store::remote) struct AttrCache {
    entries: Mutex<LruCache<Key, CachedAttrs>>,
    /// When the last attributes arrived that were dropped because they were outdated, by key.
    dropped: Mutex<LruCache<Key, Instant>>,
    ttl: Duration,
    absent_ttl: Duration,
}

impl AttrCache {
    pub(in crate::store::remote) fn new(ttl: Duration, absent_ttl: Duration) -> Self {
        Self {
            entries: Mutex::new(bounded_lru(MAX_KEYS)),
            dropped: Mutex::new(bounded_lru(MAX_DROPPED)),
            ttl,
            absent_ttl,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, CachedAttrs>> {
        self.entries.lock()
    }

    /// Returns the attributes of a key, if they are still trusted.
    pub(in crate::store::remote) fn get(&self, key: &Key) -> Option<CachedAttrs> {
        let mut cached = self.lock();
        let entry = cached.get(key)?;
        self.is_trusted(entry).then(|| entry.clone())
    }

    /// Whether attributes are still trusted.
    pub(in crate::store::remote) fn is_trusted(&self, entry: &CachedAttrs) -> bool {
        let ttl = match entry.attrs {
            Attrs::Absent => self.absent_ttl,
            Attrs::Object(_) | Attrs::Prefix => self.ttl,
        };
        entry.requested_at.elapsed() < ttl
    }

    /// Returns the last known attributes of a key, however old.
    pub(in crate::store::remote) fn last(&self, key: &Key) -> Option<CachedAttrs> {
        self.lock().get(key).cloned()
    }

    /// Returns the last known attributes of an object, however old.
    pub(in crate::store::remote) fn last_meta(&self, key: &Key) -> Option<Meta> {
        match self.last(key)?.attrs {
            Attrs::Object(meta) => Some(meta),
            _ => None,
        }
    }

    /// Whether attributes that were requested before a moment can still be used: they are cached, or arrive only now.
    pub(in crate::store::remote) fn uses_before(&self, moment: Instant) -> bool {
        moment.elapsed() < self.ttl.max(LONGEST_REQUEST)
    }

    /// Whether every lookup needs a request (`--ttl 0`).
    pub(in crate::store::remote) fn trusts_nothing(&self) -> bool {
        self.absent_ttl.is_zero()
    }

    /// Whether attributes are never outdated.
    pub(in crate::store::remote) fn never_expires(&self) -> bool {
        self.ttl >= FOREVER
    }

    /// Caches attributes.
    pub(in crate::store::remote) fn insert(&self, key: &Key, entry: CachedAttrs) {
        self.lock().put(key.clone(), entry);
    }

    /// Removes attributes that were requested before a moment. Returns whether there were any, or whether any that
    /// arrived after `since` were removed before: all callers that shared their request learn that it was outdated.
    pub(in crate::store::remote) fn invalidate_before(
        &self,
        key: &Key,
        moment: Instant,
        since: Instant,
    ) -> bool {
        let outdated = {
            let mut entries = self.lock();
            let is_outdated = |entry: &CachedAttrs| entry.requested_at < moment;
            match entries.get(key).is_some_and(is_outdated) {
                true => entries.pop(key),
                false => None,
            }
        };
        let mut dropped = self.dropped.lock();
        match outdated {
            Some(entry) => {
                dropped.put(key.clone(), entry.received_at);
                true
            }
            None => dropped.get(key).is_some_and(|arrived| *arrived >= since),
        }
    }

    /// Records that the version of the metadata document was known soon after these attributes.
    pub(in crate::store::remote) fn mark_checked(&self, key: &Key, received_at: Instant) {
        let mut cached = self.lock();
        let entry = cached.get_mut(key);
        if let Some(entry) = entry.filter(|entry| entry.received_at == received_at) {
            entry.is_checked = true;
        }
    }

    /// Stops trusting attributes that are at least this old and not checked. The next lookup compares the
    /// version. Returns whether there were any.
    pub(in crate::store::remote) fn expire_unchecked(&self, key: &Key, age: Duration) -> bool {
        let mut cached = self.lock();
        let entry = cached.get_mut(key);
        let Some(entry) =
            entry.filter(|entry| !entry.is_checked && entry.received_at.elapsed() >= age)
        else {
            return false;
        };
        match Instant::now().checked_sub(self.ttl) {
            Some(expired) => entry.requested_at = expired.min(entry.requested_at),
            None => drop(cached.pop(key)),
        }
        true
    }

    /// Removes attributes that are no longer true.
    pub(in crate::store::remote) fn invalidate(&self, key: &Key) {
        self.lock().pop(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchecked_attributes_expire_after_the_given_time() {
        let attrs = AttrCache::new(Duration::from_secs(60), Duration::from_secs(1));
        let key = Key::new(b"a").unwrap();
        let entry = CachedAttrs::new(Attrs::Prefix, Instant::now());
        attrs.insert(&key, entry.clone());
        assert!(!attrs.expire_unchecked(&key, Duration::from_secs(60)));
        attrs.mark_checked(&key, entry.received_at);
        assert!(!attrs.expire_unchecked(&key, Duration::ZERO));
        assert!(attrs.get(&key).is_some());
        attrs.insert(&key, CachedAttrs::new(Attrs::Prefix, Instant::now()));
        attrs.mark_checked(&key, entry.received_at);
        assert!(attrs.expire_unchecked(&key, Duration::ZERO), "another one");
        assert!(attrs.get(&key).is_none() && attrs.last(&key).is_some());
    }

    #[test]
    fn attributes_and_absence_have_separate_ttls() {
        let attrs = AttrCache::new(Duration::from_secs(60), Duration::from_secs(1));
        let (there, gone) = (Key::new(b"a").unwrap(), Key::new(b"b").unwrap());
        let now = Instant::now();
        attrs.insert(&there, CachedAttrs::new(Attrs::Prefix, now));
        attrs.insert(&gone, CachedAttrs::new(Attrs::Absent, now));
        let found = |key| attrs.get(key).map(|entry| entry.attrs);
        assert_eq!(found(&there), Some(Attrs::Prefix));
        assert_eq!(found(&gone), Some(Attrs::Absent));
        let before = now.checked_sub(Duration::from_secs(2)).unwrap();
        attrs.insert(&there, CachedAttrs::new(Attrs::Prefix, before));
        attrs.insert(&gone, CachedAttrs::new(Attrs::Absent, before));
        assert_eq!(found(&there), Some(Attrs::Prefix));
        assert_eq!(found(&gone), None);
    }
}
