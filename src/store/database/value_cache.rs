//! Caches short values: from the transaction of a lookup, for the open that follows, together with the values
//! of the next keys.
//!
//! A program that uses keys in order gets the values of the next keys from one transaction, because
//! transactions cost more than rows. Values that were read ahead are trusted for [`MAX_AGE`] at most, so
//! that a change is seen no later than with a listing.
//!
//! **Invariant:** values are cached only after the transaction that read them was proved.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::object::ShortObject;
use super::{Columns, Failure, Snapshot, object_stat};
use crate::cache::WeightedLru;
use crate::store::{Key, Object, Stat, Version};
use crate::sync::Mutex;

/// How long a value is cached for an open. The kernel repeats the lookup of a name once its attributes
/// have expired.
const MAX_AGE: Duration = Duration::from_millis(100);
/// Limits of the cache: their total bytes, and their number.
const MAX_BYTES: u64 = 4 << 20;
const MAX_VALUES: usize = 1024;
/// Limit in bytes of all short values in memory, cached or open. Other values are read by ranges.
const MAX_RESERVED_BYTES: u64 = 64 << 20;
/// Number of values that are read ahead: at first, and at most.
const FIRST_WINDOW: usize = 8;
const MAX_WINDOW: usize = 128;

/// The cached values of one database.
#[derive(Debug)]
pub(super) struct ValueCache {
    max_age: Duration,
    values: Mutex<WeightedLru<Key, CachedValue>>,
    sequence: Mutex<SequentialAccess>,
    reserved_bytes: Arc<AtomicU64>,
    max_bytes: u64,
    max_reserved_bytes: u64,
}

/// Memory reserved for a short value; released on drop.
#[derive(Debug)]
pub(super) struct ValueReservation {
    reserved_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for ValueReservation {
    fn drop(&mut self) {
        self.reserved_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
struct CachedValue {
    since: Instant,
    object: Arc<ShortObject>,
    /// The value was read ahead, and no lookup has found it yet.
    is_prefetched: bool,
}

/// The state of a program that uses keys in order.
#[derive(Debug)]
struct SequentialAccess {
    /// The key that the program will use next; `None` if no key follows.
    expected: Option<Vec<u8>>,
    window: usize,
    /// The generation of the last transaction.
    generation: u64,
}

/// The values that one transaction has read.
#[derive(Debug)]
pub(super) struct TransactionRead {
    object: Arc<ShortObject>,
    /// The values of the next keys.
    ahead: Vec<(Key, Arc<ShortObject>)>,
    /// The first key after all of them.
    next: Option<Vec<u8>>,
    generation: u64,
}

impl ValueCache {
    /// `ttl` is how long names and attributes are trusted. Values may use a part of the memory limit.
    pub(super) fn new(ttl: Duration, memory_limit_bytes: u64) -> Self {
        let max_bytes = MAX_BYTES.min(memory_limit_bytes / 256);
        Self {
            max_age: ttl.min(MAX_AGE),
            values: Mutex::new(WeightedLru::new(max_bytes, MAX_VALUES)),
            max_bytes,
            max_reserved_bytes: MAX_RESERVED_BYTES.min(memory_limit_bytes / 16),
            sequence: Mutex::new(SequentialAccess {
                expected: None,
                window: FIRST_WINDOW,
                generation: 0,
            }),
            reserved_bytes: Arc::default(),
        }
    }

    /// Reserves memory for a value; `None` if the limit is reached.
    pub(super) fn reserve(&self, bytes: usize) -> Option<ValueReservation> {
        let bytes = bytes as u64;
        let reserved_bytes = Arc::clone(&self.reserved_bytes);
        let cached = reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Dropping `reserved` gives the bytes back.
        let reserved = ValueReservation {
            reserved_bytes,
            bytes,
        };
        (cached.saturating_add(bytes) <= self.max_reserved_bytes).then_some(reserved)
    }

    /// Returns the attributes of a value that was read ahead. Only the first lookup gets them: a later one
    /// checks whether they have changed.
    pub(super) fn attributes(&self, key: &Key) -> Option<Stat> {
        let mut values = self.values.lock();
        let fresh =
            |cached: &&CachedValue| cached.is_prefetched && cached.since.elapsed() < self.max_age;
        let cached = values.get(key).filter(fresh)?.clone();
        let stat = cached.object.attributes();
        let seen = CachedValue {
            is_prefetched: false,
            ..cached
        };
        let replaced = values.insert(key.clone(), seen, stat.size_bytes);
        drop(values);
        drop(replaced);
        Some(stat)
    }

    /// Returns a value that was recently looked up or read ahead.
    pub(super) fn take(&self, key: &Key) -> Option<Arc<dyn Object>> {
        let cached = self.values.lock().remove(key)?;
        let max_age = match cached.is_prefetched {
            true => self.max_age,
            // The kernel has already trusted the lookup.
            false => MAX_AGE,
        };
        (cached.since.elapsed() < max_age).then_some(cached.object as _)
    }

    /// Caches a value that was looked up.
    pub(super) fn insert(&self, key: &Key, object: &Arc<ShortObject>) {
        self.put(key.clone(), Arc::clone(object), false);
    }

    fn put(&self, key: Key, object: Arc<ShortObject>, is_prefetched: bool) {
        let bytes = object.size_bytes();
        let cached = CachedValue {
            since: Instant::now(),
            object,
            is_prefetched,
        };
        let evicted = self.values.lock().insert(key, cached, bytes);
        drop(evicted);
    }

    /// Reads the values of the next keys, if `key` follows the key that was used before. `next` is the key
    /// after it. A value that cannot be read fails when it is opened.
    pub(super) fn read_ahead(
        &self,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        object: ShortObject,
        next: Option<Vec<u8>>,
    ) -> TransactionRead {
        let mut read = TransactionRead {
            object: Arc::new(object),
            ahead: Vec::new(),
            next,
            generation: snapshot.generation(),
        };
        let window = self.sequence.lock().window(key);
        let window = window.filter(|_| !self.max_age.is_zero());
        if let (Some(window), Some(bound)) = (window, &read.next) {
            let followed = self.read_next(snapshot, &key.parent(), bound, window);
            (read.ahead, read.next) = followed.unwrap_or_default();
        }
        read
    }

    /// Caches the values that a proved transaction has read; returns the value that was requested.
    pub(super) fn insert_read(&self, read: TransactionRead) -> Arc<ShortObject> {
        let TransactionRead {
            object,
            ahead,
            next,
            generation,
        } = read;
        let is_same = self.sequence.lock().record(ahead.len(), next, generation);
        if !is_same {
            // Values that were read before are older than the value that the caller gets.
            *self.values.lock() = WeightedLru::new(self.max_bytes, MAX_VALUES);
        }
        for (key, object) in ahead {
            self.put(key, object, true);
        }
        object
    }
}

impl SequentialAccess {
    /// Returns how many values to read ahead after a key.
    fn window(&self, key: &Key) -> Option<usize> {
        (self.expected.as_deref() == Some(key.as_bytes())).then_some(self.window)
    }

    /// Records a transaction; returns whether its generation is the same as before.
    fn record(&mut self, ahead: usize, next: Option<Vec<u8>>, generation: u64) -> bool {
        self.expected = next;
        self.window = match ahead {
            0 => FIRST_WINDOW,
            _ => self.window.saturating_mul(2).min(MAX_WINDOW),
        };
        std::mem::replace(&mut self.generation, generation) == generation
    }
}

/// Values below a prefix from `bound` on, and the first key after them.
type NextValues = (Vec<(Key, Arc<ShortObject>)>, Option<Vec<u8>>);

impl ValueCache {
    /// Reads up to `most` small values directly below a prefix, from the key `bound` on.
    fn read_next(
        &self,
        snapshot: &mut dyn Snapshot,
        prefix: &Key,
        bound: &[u8],
        most: usize,
    ) -> Result<NextValues, Failure> {
        let mut found = Vec::new();
        let mut next = None;
        let mut rows = 0;
        let scanned = snapshot.scan(bound, Columns::All, &mut |key, value| {
            // If a key continues with a byte up to `/`, it may have keys below it that hide its value.
            let is_open = |(last, ..): &(Key, _, _)| {
                let rest = key.strip_prefix(last.as_bytes());
                rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte <= b'/'))
            };
            found.pop_if(|last| is_open(last));
            let here = Key::new(key).ok().filter(|here| here.parent() == *prefix);
            match (here, value) {
                (Some(here), Some((value, Some(content)))) if rows < most => {
                    found.push((here, value, content.into_owned()));
                    rows += 1;
                    ControlFlow::Continue(())
                }
                _ => {
                    next = Some(key.to_vec());
                    ControlFlow::Break(())
                }
            }
        });
        scanned?;
        let cached = found.into_iter().filter_map(|(key, value, content)| {
            let stat = object_stat(snapshot, value, Version(value.identity?));
            let reserved = self.reserve(content.len())?;
            Some((key, Arc::new(ShortObject::new(content, stat, reserved))))
        });
        Ok((cached.collect(), next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_values_take_a_part_of_the_memory_limit() {
        let values = ValueCache::new(MAX_AGE, 16 * 1000);
        let long = values.reserve(900).unwrap();
        let short = values.reserve(100).unwrap();
        assert!(values.reserve(1).is_none());
        drop(short);
        assert!(values.reserve(101).is_none());
        assert!(values.reserve(100).is_some());
        drop(long);
        assert_eq!(values.reserved_bytes.load(Ordering::Relaxed), 0);
    }
}
