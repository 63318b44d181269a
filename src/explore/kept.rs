//! What was learnt, for as long as it may be used.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::known::Known;
use crate::store::{Key, Stat};

/// Prefixes and keys of which something is kept.
pub(super) const MAX_KEPT: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// What is kept may take about so much; the last that was learnt is kept in any case.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// A refusal that leaves open what is at a prefix is not repeated for longer than this.
const REFUSED_TTL: Duration = Duration::from_secs(1);

/// What was learnt, least recently used first out.
#[derive(Debug)]
pub(super) struct Kept {
    ttl: Duration,
    absent_ttl: Duration,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    known: LruCache<Key, (Arc<Known>, Instant)>,
    bytes: usize,
    told: LruCache<Key, (Told, Instant)>,
}

/// What the inner store said of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Told {
    /// It is a prefix.
    Prefix(Stat),
    /// Proven: there is no such key, and no document below it.
    Absent,
}

impl Kept {
    /// Keeps what there is for `ttl`, and that something is absent for `absent_ttl`.
    pub(super) fn new(ttl: Duration, absent_ttl: Duration) -> Self {
        Self {
            ttl,
            absent_ttl,
            entries: Mutex::new(Entries {
                known: LruCache::new(MAX_KEPT),
                bytes: 0,
                told: LruCache::new(MAX_KEPT),
            }),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was learnt at a prefix, and since when it is known.
    pub(super) fn known(&self, prefix: &Key) -> Option<(Arc<Known>, Instant)> {
        let mut entries = self.entries();
        let (known, since) = entries.known.get(prefix)?;
        let ttl = match known.is_node() {
            true => self.ttl,
            false => self.absent_ttl,
        };
        let ttl = match known.is_certain() || known.is_consolidated() {
            true => ttl,
            false => ttl.min(REFUSED_TTL),
        };
        (since.elapsed() < ttl).then(|| (Arc::clone(known), *since))
    }

    /// Whether absence that was proved then may still be told.
    pub(super) fn is_absence_fresh(&self, since: Instant) -> bool {
        since.elapsed() < self.absent_ttl
    }

    /// Keeps what is known of a prefix since then.
    pub(super) fn keep(&self, prefix: &Key, known: &Arc<Known>, since: Instant) {
        let mut entries = self.entries();
        entries.bytes = entries.bytes.saturating_add(known.memory_bytes());
        let entry = (Arc::clone(known), since);
        let mut out = entries.known.push(prefix.clone(), entry);
        loop {
            if let Some((_, (old, _))) = out {
                entries.bytes = entries.bytes.saturating_sub(old.memory_bytes());
            }
            if entries.bytes <= MAX_KEPT_BYTES || entries.known.len() <= 1 {
                break;
            }
            out = entries.known.pop_lru();
        }
    }

    /// What the inner store said of a key.
    pub(super) fn told(&self, key: &Key) -> Option<Told> {
        let mut entries = self.entries();
        let (told, since) = entries.told.get(key)?;
        let ttl = match told {
            Told::Prefix(_) => self.ttl,
            Told::Absent => self.absent_ttl,
        };
        (since.elapsed() < ttl).then_some(*told)
    }

    /// Keeps what the inner store said.
    pub(super) fn tell(&self, key: &Key, told: Told) {
        let entry = (told, Instant::now());
        self.entries().told.put(key.clone(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(number.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_kept_is_bounded_and_counted() {
        let kept = Kept::new(Duration::MAX, Duration::MAX);
        let since = Instant::now();
        for number in 0..MAX_KEPT.get() + 100 {
            let number = number / 2 * 2;
            kept.keep(&key(number), &Arc::new(Known::of(&[])), since);
            kept.tell(&key(number), Told::Absent);
        }
        for number in 0..2 * MAX_KEPT.get() {
            kept.keep(&key(number), &Arc::new(Known::of(&[])), since);
            kept.tell(&key(number), Told::Absent);
        }
        let entries = kept.entries();
        assert_eq!(entries.known.len(), MAX_KEPT.get());
        assert_eq!(entries.told.len(), MAX_KEPT.get());
        let bytes: usize = entries
            .known
            .iter()
            .map(|(_, (k, _))| k.memory_bytes())
            .sum();
        assert_eq!(entries.bytes, bytes);
    }

    #[test]
    fn absence_is_told_for_less_long() {
        let kept = Kept::new(Duration::MAX, Duration::ZERO);
        kept.keep(&key(1), &Arc::new(Known::of(&[])), Instant::now());
        kept.tell(&key(1), Told::Absent);
        assert!(kept.known(&key(1)).is_none() && kept.told(&key(1)).is_none());
        assert!(!kept.is_absence_fresh(Instant::now()));
    }
}
