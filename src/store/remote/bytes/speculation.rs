//! Values that are fetched before a read: with the lookup of a key, and by readahead across keys.
//!
//! A lookup needs only the headers of a response. It sends GET instead of HEAD as long as lookups are
//! followed by reads, so that the read needs no request. Programs that only look up (`ls -l`,
//! `find -size`, and `rsync` at first) look up a second key before they open the first one; from then on
//! lookups send HEAD. They do so, too, when values that are not read have used up a credit.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;

use crate::cache::bounded_lru;
use crate::clock::Instant;
use crate::store::Key;
use crate::sync::Mutex;

/// Size limit of values that are fetched whole, in bytes.
pub(super) const WHOLE_BYTES: u64 = 8 << 20;
/// Credit before the first read, in bytes.
const FIRST_CREDIT_BYTES: i64 = 4 << 20;
/// Upper limit of the credit in bytes.
const MAX_CREDIT_BYTES: i64 = 16 << 20;
/// Number of consecutive lookups without an open that may fetch values. open(2) sends the lookup and the
/// open of a file right after each other, so the second lookup in a row is that of a program like `ls -l`.
const MAX_LOOKUPS_WITHOUT_OPEN: u32 = 1;
/// Least size limit, in bytes, of values that a lookup fetches.
const MIN_LIMIT_BYTES: u64 = 1 << 20;
/// Number of unread values that are remembered.
const MAX_UNREAD: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// A value that was not read for this long no longer counts as waiting for a reader.
const UNREAD_TTL: Duration = Duration::from_secs(5);

/// A lookup that waits for a response.
#[derive(Debug)]
pub(super) struct InFlightLookup<'a>(&'a AtomicU32);

impl Drop for InFlightLookup<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides how values are fetched before a read, and tracks which of them were read since.
#[derive(Debug)]
pub(super) struct Speculation {
    /// Number of bytes that lookups may still fetch.
    credit: AtomicI64,
    /// Number of lookups that wait for a response.
    lookups_in_flight: AtomicU32,
    /// Number of lookups, since the last open of any value, that began while no other was in flight: the
    /// threads of a program look up their first keys at the same time (zarr-python does, before its first read).
    lookups_without_open: AtomicU32,
    /// Size in bytes of the largest of the latest values; 0 if none is known.
    typical_bytes: AtomicU64,
    unread: Mutex<Unread>,
}

#[derive(Debug)]
struct Unread {
    /// Unread values: size in bytes and time of the fetch, by key and offset.
    values: LruCache<(Key, u64), (u64, Instant)>,
    bytes: u64,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            credit: AtomicI64::new(FIRST_CREDIT_BYTES),
            lookups_in_flight: AtomicU32::new(0),
            lookups_without_open: AtomicU32::new(0),
            typical_bytes: AtomicU64::new(0),
            unread: Mutex::new(Unread {
                values: bounded_lru(MAX_UNREAD),
                bytes: 0,
            }),
        }
    }
}

impl Speculation {
    /// Size limit of values that a lookup fetches; `None` if it requests attributes only.
    pub(super) fn lookup_limit(&self) -> Option<u64> {
        match self.is_stat_only() {
            true => None,
            false => self.limit(),
        }
    }

    /// Size limit of values that readahead fetches; `None` if values seem to be longer than
    /// [`WHOLE_BYTES`].
    pub(super) fn limit(&self) -> Option<u64> {
        let typical = self.typical_bytes.load(Ordering::Relaxed);
        let limit = typical.saturating_mul(2).max(MIN_LIMIT_BYTES);
        (typical <= WHOLE_BYTES).then(|| limit.min(WHOLE_BYTES))
    }

    /// Whether lookups request attributes only, because no opens or reads follow them.
    pub(super) fn is_stat_only(&self) -> bool {
        let lookups = self.lookups_without_open.load(Ordering::Relaxed);
        lookups > MAX_LOOKUPS_WITHOUT_OPEN || self.credit.load(Ordering::Relaxed) <= 0
    }

    /// Records the size of a value.
    pub(super) fn observe_size(&self, bytes: u64) {
        let decayed = |typical: u64| Some(bytes.max(typical.saturating_mul(7) / 8));
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.typical_bytes.fetch_update(set, get, decayed);
    }

    /// Records that a lookup begins; it ends when the returned value is dropped.
    pub(super) fn begin_lookup(&self) -> InFlightLookup<'_> {
        if self.lookups_in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.lookups_without_open.fetch_add(1, Ordering::Relaxed);
        }
        InFlightLookup(&self.lookups_in_flight)
    }

    /// Records the lookup of a document, which has fetched it in any case.
    pub(super) fn looked_up_document(&self) {
        self.lookups_without_open.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a program looks up keys and opens none. Lookups request attributes only until the next open.
    pub(super) fn visited(&self) {
        let no_value = MAX_LOOKUPS_WITHOUT_OPEN.saturating_add(1);
        self.lookups_without_open
            .fetch_max(no_value, Ordering::Relaxed);
    }

    /// Records that a lookup has fetched a value.
    pub(super) fn charge(&self, bytes: u64) {
        self.add_credit(-signed(bytes));
    }

    /// Records the first read of a value.
    pub(super) fn earn(&self, bytes: u64) {
        self.add_credit(signed(bytes));
    }

    /// Records the open of a value.
    pub(super) fn opened(&self) {
        self.lookups_without_open.store(0, Ordering::Relaxed);
    }

    fn add_credit(&self, bytes: i64) {
        let add = |credit: i64| Some(credit.saturating_add(bytes).min(MAX_CREDIT_BYTES));
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.credit.fetch_update(set, get, add);
    }

    /// Records a value, or a part of one from `start`, that was fetched but not read yet.
    pub(super) fn insert_unread(&self, key: &Key, start: u64, bytes: u64) {
        let mut unread = self.unread.lock();
        let place = (key.clone(), start);
        let replaced = unread.values.push(place, (bytes, Instant::now()));
        let replaced = replaced.map_or(0, |(_, (bytes, _))| bytes);
        unread.bytes = unread.bytes.saturating_add(bytes).saturating_sub(replaced);
    }

    /// Records the first read of a value, or of a part of one from `start`; returns its size if it was
    /// fetched before.
    pub(super) fn read(&self, key: &Key, start: u64) -> Option<u64> {
        let mut unread = self.unread.lock();
        let (bytes, _) = unread.values.pop(&(key.clone(), start))?;
        unread.bytes = unread.bytes.saturating_sub(bytes);
        Some(bytes)
    }

    /// Returns the number of bytes that were fetched and wait for a read.
    pub(super) fn unread_bytes(&self) -> u64 {
        let mut unread = self.unread.lock();
        while let Some((_, (bytes, since))) = unread.values.peek_lru()
            && since.elapsed() > UNREAD_TTL
        {
            unread.bytes = unread.bytes.saturating_sub(*bytes);
            unread.values.pop_lru();
        }
        unread.bytes
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::new(number.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn lookups_without_opens_soon_request_attributes_only_until_a_read() {
        let speculation = Speculation::default();
        let mut fetched = 0;
        loop {
            let _lookup = speculation.begin_lookup();
            if speculation.lookup_limit().is_none() {
                break;
            }
            speculation.observe_size(700_000);
            speculation.charge(700_000);
            speculation.insert_unread(&key(fetched), 0, 700_000);
            fetched += 1;
        }
        assert_eq!(fetched, u64::from(MAX_LOOKUPS_WITHOUT_OPEN));
        assert_eq!(speculation.unread_bytes(), fetched * 700_000);
        assert_eq!(speculation.read(&key(0), 0), Some(700_000));
        assert_eq!(speculation.read(&key(0), 0), None);
        speculation.earn(700_000);
        assert_eq!(speculation.lookup_limit(), None);
        speculation.opened();
        assert!(speculation.lookup_limit().is_some());
        speculation.visited();
        assert_eq!(speculation.lookup_limit(), None);
        speculation.opened();
        // Concurrent lookups of several threads count only once.
        let lookups: Vec<_> = (0..10).map(|_| speculation.begin_lookup()).collect();
        assert!(speculation.lookup_limit().is_some());
        drop(lookups);
        assert_eq!(speculation.lookup_limit(), Some(1_400_000));
        assert_eq!(speculation.unread_bytes(), (fetched - 1) * 700_000);
    }

    #[test]
    fn long_values_are_not_fetched_with_a_lookup_until_short_ones_are_seen_again() {
        let speculation = Speculation::default();
        assert_eq!(speculation.lookup_limit(), Some(MIN_LIMIT_BYTES));
        speculation.observe_size(5 << 20);
        assert_eq!(speculation.lookup_limit(), Some(WHOLE_BYTES));
        speculation.observe_size(9 << 20);
        assert_eq!(speculation.lookup_limit(), None);
        speculation.observe_size(1);
        speculation.observe_size(1);
        assert_eq!(speculation.lookup_limit(), Some(WHOLE_BYTES));
    }
}
