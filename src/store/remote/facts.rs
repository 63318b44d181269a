//! What is known of single keys, for as long as it is trusted. Failures are never known.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::Meta;
use crate::store::Key;

/// Keys that are known at a time.
const MAX_FACTS: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");

/// What a key leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    /// A value.
    Object(Meta),
    /// Other keys.
    Prefix,
    /// Nothing: the source has proved it.
    Absent,
}

/// Facts, the least recently used first to go.
#[derive(Debug)]
pub(super) struct Facts {
    known: Mutex<LruCache<Key, (Fact, Instant)>>,
    ttl: Duration,
    absent_ttl: Duration,
}

impl Facts {
    pub(super) fn new(ttl: Duration, absent_ttl: Duration) -> Self {
        Self {
            known: Mutex::new(LruCache::new(MAX_FACTS)),
            ttl,
            absent_ttl,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, (Fact, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a key and still trusted.
    pub(super) fn get(&self, key: &Key) -> Option<Fact> {
        let mut known = self.lock();
        let (fact, since) = known.get(key)?;
        let ttl = match fact {
            Fact::Absent => self.absent_ttl,
            Fact::Object(_) | Fact::Prefix => self.ttl,
        };
        (since.elapsed() < ttl).then(|| fact.clone())
    }

    /// What was last known of the content of a key, however long ago.
    pub(super) fn last(&self, key: &Key) -> Option<Meta> {
        match self.lock().get(key) {
            Some((Fact::Object(meta), _)) => Some(meta.clone()),
            _ => None,
        }
    }

    /// Whether a value was seen under a key less than `ttl` ago.
    pub(super) fn is_fresh(&self, key: &Key, ttl: Duration) -> bool {
        let mut known = self.lock();
        let found = known.get(key);
        found.is_some_and(|(fact, since)| matches!(fact, Fact::Object(_)) && since.elapsed() < ttl)
    }

    /// It was so at `since`.
    pub(super) fn put(&self, key: &Key, fact: Fact, since: Instant) {
        self.lock().put(key.clone(), (fact, since));
    }

    /// It is not so any more.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().pop(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_trusted_for_a_while_and_absence_for_another() {
        let facts = Facts::new(Duration::from_secs(60), Duration::from_secs(1));
        let (there, gone) = (Key::new(b"a").unwrap(), Key::new(b"b").unwrap());
        let now = Instant::now();
        facts.put(&there, Fact::Prefix, now);
        facts.put(&gone, Fact::Absent, now);
        assert_eq!(facts.get(&there), Some(Fact::Prefix));
        assert_eq!(facts.get(&gone), Some(Fact::Absent));
        let before = now.checked_sub(Duration::from_secs(2)).unwrap();
        facts.put(&there, Fact::Prefix, before);
        facts.put(&gone, Fact::Absent, before);
        assert_eq!(facts.get(&there), Some(Fact::Prefix));
        assert_eq!(facts.get(&gone), None);
    }
}
