//! The cache of the metadata of prefixes.

use std::sync::Arc;
use std::time::Duration;

use super::metadata::PrefixMetadata;
use super::own::ComparedDocuments;
use crate::cache::WeightedLru;
use crate::clock::Instant;
use crate::store::{Key, Stat};
use crate::sync::Mutex;

/// The largest number of prefixes with metadata, and of keys with an answer of the inner store.
const MAX_ENTRIES: usize = 4096;
/// The largest approximate size of all metadata, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The longest time that a denied request is cached if it leaves open what the prefix is.
const REFUSED_TTL: Duration = Duration::from_secs(1);

/// Metadata and answers; the least recently used entries are evicted first.
#[derive(Debug)]
pub(super) struct MetadataCache {
    ttl: Duration,
    absent_ttl: Duration,
    metadata: Mutex<WeightedLru<Key, (Arc<PrefixMetadata>, Instant)>>,
    stats: Mutex<WeightedLru<Key, (CachedStat, Instant)>>,
    /// Comparisons of nodes' own documents with consolidated metadata.
    own: Mutex<WeightedLru<Key, ComparedDocuments>>,
    /// Whether the inner store lists a prefix.
    is_listed: Mutex<WeightedLru<Key, (bool, Instant)>>,
}

/// An answer of the inner store about a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum CachedStat {
    /// The key is a prefix.
    Prefix(Stat),
    /// The absence of the key, and of all documents below it, is proven.
    Absent,
}

impl MetadataCache {
    /// Caches existing keys for `ttl`, and absence for `absent_ttl`.
    pub(super) fn new(ttl: Duration, absent_ttl: Duration) -> Self {
        Self {
            ttl,
            absent_ttl,
            metadata: Mutex::new(WeightedLru::new(MAX_BYTES, MAX_ENTRIES)),
            stats: Mutex::new(WeightedLru::new(u64::MAX, MAX_ENTRIES)),
            own: Mutex::new(WeightedLru::new(MAX_BYTES, MAX_ENTRIES)),
            is_listed: Mutex::new(WeightedLru::new(u64::MAX, MAX_ENTRIES)),
        }
    }

    /// Returns the metadata of a prefix, and the time when their fetch began.
    pub(super) fn metadata(&self, prefix: &Key) -> Option<(Arc<PrefixMetadata>, Instant)> {
        let mut cached = self.metadata.lock();
        let (metadata, since) = cached.get(prefix)?;
        let ttl = match metadata.is_node() {
            true => self.ttl,
            false => self.absent_ttl,
        };
        let ttl = match metadata.is_certain() || metadata.is_consolidated() {
            true => ttl,
            false => ttl.min(REFUSED_TTL),
        };
        (since.elapsed() < ttl).then(|| (Arc::clone(metadata), *since))
    }

    /// Returns the last metadata of a prefix, which may have expired.
    pub(super) fn last(&self, prefix: &Key) -> Option<Arc<PrefixMetadata>> {
        let mut cached = self.metadata.lock();
        let (metadata, _) = cached.get(prefix)?;
        Some(Arc::clone(metadata))
    }

    /// Returns whether the last metadata of a prefix, which may have expired, were consolidated.
    pub(super) fn was_consolidated(&self, prefix: &Key) -> bool {
        let last = self.last(prefix);
        last.is_some_and(|metadata| metadata.is_consolidated())
    }

    /// Returns whether an absence that was proved at `since` is still valid.
    pub(super) fn is_absence_fresh(&self, since: Instant) -> bool {
        since.elapsed() < self.absent_ttl
    }

    /// Inserts the metadata of a prefix, unless the cache has metadata whose fetch began later.
    pub(super) fn insert(&self, prefix: &Key, metadata: &Arc<PrefixMetadata>, since: Instant) {
        let entry = (Arc::clone(metadata), since);
        let bytes = metadata.memory_bytes();
        let mut cached = self.metadata.lock();
        if cached.get(prefix).is_some_and(|(_, later)| *later > since) {
            return;
        }
        let evicted = cached.insert(prefix.clone(), entry, bytes);
        drop((cached, evicted));
    }

    /// Returns the answer of the inner store about a key.
    pub(super) fn stat(&self, key: &Key) -> Option<CachedStat> {
        let mut cached = self.stats.lock();
        let (stat, since) = cached.get(key)?;
        let ttl = match stat {
            CachedStat::Prefix(_) => self.ttl,
            CachedStat::Absent => self.absent_ttl,
        };
        (since.elapsed() < ttl).then_some(*stat)
    }

    /// Inserts an answer of the inner store.
    pub(super) fn insert_stat(&self, key: &Key, stat: CachedStat) {
        let entry = (stat, Instant::now());
        let _evicted = self.stats.lock().insert(key.clone(), entry, 0);
    }

    /// Returns the comparison of a node's own documents with consolidated metadata.
    pub(super) fn own(&self, node: &Key) -> Option<ComparedDocuments> {
        let mut cached = self.own.lock();
        let compared = cached.get(node)?;
        let ttl = match &compared.own {
            own if own.denied().is_some() => self.ttl.min(REFUSED_TTL),
            own if own.is_absent() => self.absent_ttl,
            _ => self.ttl,
        };
        (compared.since.elapsed() < ttl).then(|| compared.clone())
    }

    /// Inserts the comparison of a node's own documents with consolidated metadata, unless the cache has one whose fetch
    /// began later.
    pub(super) fn insert_own(&self, node: &Key, compared: ComparedDocuments) {
        let bytes = compared.own.memory_bytes();
        let mut cached = self.own.lock();
        if cached
            .get(node)
            .is_some_and(|later| later.since > compared.since)
        {
            return;
        }
        let evicted = cached.insert(node.clone(), compared, bytes);
        drop((cached, evicted));
    }

    /// Returns whether the inner store has listed a prefix; `None` if it was not asked for a while.
    pub(super) fn is_listed(&self, prefix: &Key) -> Option<bool> {
        let mut cached = self.is_listed.lock();
        let (is_listed, since) = cached.get(prefix)?;
        self.is_absence_fresh(*since).then_some(*is_listed)
    }

    /// Records whether the inner store lists a prefix.
    pub(super) fn insert_is_listed(&self, prefix: &Key, is_listed: bool) {
        let entry = (is_listed, Instant::now());
        let _evicted = self.is_listed.lock().insert(prefix.clone(), entry, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(number.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn entries_are_bounded_and_counted() {
        let cache = MetadataCache::new(Duration::MAX, Duration::MAX);
        let metadata = Arc::new(PrefixMetadata::new(&[]));
        for number in 0..2 * MAX_ENTRIES {
            let number = number / 2 * 2;
            cache.insert(&key(number), &metadata, Instant::now());
            cache.insert_stat(&key(number), CachedStat::Absent);
        }
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(&key(number), &metadata, Instant::now());
            cache.insert_stat(&key(number), CachedStat::Absent);
        }
        let cached = cache.metadata.lock();
        assert_eq!(cached.len(), MAX_ENTRIES);
        assert_eq!(cache.stats.lock().len(), MAX_ENTRIES);
        let bytes = MAX_ENTRIES as u64 * metadata.memory_bytes();
        assert_eq!(cached.weight(), bytes);
    }

    #[test]
    fn later_metadata_are_not_replaced_by_earlier_ones() {
        let cache = MetadataCache::new(Duration::MAX, Duration::MAX);
        let [first, second, third] = [(); 3].map(|()| Arc::new(PrefixMetadata::new(&[])));
        let since = Instant::now();
        let later = since + Duration::from_millis(1);
        for (inserted, since, cached) in [
            (&first, later, &first),
            (&second, since, &first),
            (&third, later, &third),
        ] {
            cache.insert(&key(1), inserted, since);
            let (metadata, _) = cache.metadata(&key(1)).unwrap();
            assert!(Arc::ptr_eq(&metadata, cached));
        }
    }

    #[test]
    fn absence_is_trusted_for_less_time() {
        let cache = MetadataCache::new(Duration::MAX, Duration::ZERO);
        let metadata = Arc::new(PrefixMetadata::new(&[]));
        cache.insert(&key(1), &metadata, Instant::now());
        cache.insert_stat(&key(1), CachedStat::Absent);
        assert!(cache.metadata(&key(1)).is_none() && cache.stat(&key(1)).is_none());
        assert!(!cache.is_absence_fresh(Instant::now()));
    }
}
