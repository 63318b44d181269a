//! Caches attributes of single keys for as long as they are trusted. Failures are never cached.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::Meta;
use crate::store::Key;
use crate::sync::{Mutex, MutexGuard};

/// Number of cached keys.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");

/// The cached result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attrs {
    /// The key is a value.
    Object(Meta),
    /// The key is a prefix of other keys.
    Prefix,
    /// The source has proved that the key does not exist.
    Absent,
}

/// Attributes by key; the least recently used entries are evicted first.
#[derive(Debug)]
pub(super) struct AttrCache {
    known: Mutex<LruCache<Key, (Attrs, Instant)>>,
    ttl: Duration,
    absent_ttl: Duration,
}

impl AttrCache {
    pub(super) fn new(ttl: Duration, absent_ttl: Duration) -> Self {
        Self {
            known: Mutex::new(LruCache::new(MAX_KEYS)),
            ttl,
            absent_ttl,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, (Attrs, Instant)>> {
        self.known.lock()
    }

    /// Returns the attributes of a key, if they are still trusted.
    pub(super) fn get(&self, key: &Key) -> Option<Attrs> {
        let mut known = self.lock();
        let (attrs, since) = known.get(key)?;
        let ttl = match attrs {
            Attrs::Absent => self.absent_ttl,
            Attrs::Object(_) | Attrs::Prefix => self.ttl,
        };
        (since.elapsed() < ttl).then(|| attrs.clone())
    }

    /// Returns the last known attributes of an object, however old.
    pub(super) fn last(&self, key: &Key) -> Option<Meta> {
        match self.lock().get(key) {
            Some((Attrs::Object(meta), _)) => Some(meta.clone()),
            _ => None,
        }
    }

    /// Whether a value was seen under a key less than `ttl` ago.
    pub(super) fn is_fresh(&self, key: &Key, ttl: Duration) -> bool {
        let mut known = self.lock();
        let found = known.get(key);
        found.is_some_and(|(attrs, since)| {
            matches!(attrs, Attrs::Object(_)) && since.elapsed() < ttl
        })
    }

    /// Caches attributes that were true at `since`.
    pub(super) fn insert(&self, key: &Key, attrs: Attrs, since: Instant) {
        self.lock().put(key.clone(), (attrs, since));
    }

    /// Removes attributes that are no longer true.
    pub(super) fn invalidate(&self, key: &Key) {
        self.lock().pop(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_trusted_for_a_while_and_absence_for_another() {
        let attrs = AttrCache::new(Duration::from_secs(60), Duration::from_secs(1));
        let (there, gone) = (Key::new(b"a").unwrap(), Key::new(b"b").unwrap());
        let now = Instant::now();
        attrs.insert(&there, Attrs::Prefix, now);
        attrs.insert(&gone, Attrs::Absent, now);
        assert_eq!(attrs.get(&there), Some(Attrs::Prefix));
        assert_eq!(attrs.get(&gone), Some(Attrs::Absent));
        let before = now.checked_sub(Duration::from_secs(2)).unwrap();
        attrs.insert(&there, Attrs::Prefix, before);
        attrs.insert(&gone, Attrs::Absent, before);
        assert_eq!(attrs.get(&there), Some(Attrs::Prefix));
        assert_eq!(attrs.get(&gone), None);
    }
}
