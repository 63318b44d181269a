//! Values and ranges of values of one source: cached, or fetched once for all readers.
//!
//! [`KnownBytes`] fetches whole values (`whole_values`), also together with the lookup of a key (`lookup`). Readers of
//! the first bytes of a value need not wait for its last ones (`arriving`).
//! [`PinnedObject`] is one version of an object, of which ranges are read. A [`RemoteObject`] reads either, or
//! [`Blocks`] of a long value, with readahead.

mod arriving;
mod blocks;
mod lookup;
mod object;
mod pinned;
mod speculation;
mod whole_values;

pub(super) use blocks::Blocks;
pub(super) use object::RemoteObject;
pub(in crate::store) use pinned::FirstRead;
pub(super) use pinned::{GAP_BYTES, PinnedObject, RangeResult, joined};
pub(super) use whole_values::FetchedValue;

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::known::{CachedAttrs, KnownNames, SourceDisk, SourceIdentity};
use super::memory::{RangeCache, RangeKey, ReservedBody};
use super::request::transfer_stats::TransferStats;
use super::request::{ByteRange, Meta, Requests};
use crate::cache::SingleFlight;
use crate::runtime::{leave_session_thread, may_block};
use crate::store::{Key, StoreError};
use arriving::ArrivingValues;
use speculation::{Speculation, WHOLE_BYTES};

/// The bytes of one source, as far as they are known.
#[derive(Debug)]
pub(super) struct KnownBytes {
    requests: Arc<Requests>,
    identity: Arc<SourceIdentity>,
    disk: Arc<SourceDisk>,
    names: Arc<KnownNames>,
    ranges: Arc<RangeCache>,
    speculation: Speculation,
    /// Permits for lookups that also fetch the value, half of `--parallel`: the other half is for requests
    /// that return only names and attributes.
    value_lookups: Arc<Semaphore>,
    /// What has arrived of the values in flight.
    arriving: ArrivingValues,
    /// Loads of attributes in flight.
    attr_loads: SingleFlight<Key, CachedAttrs, StoreError>,
    /// Loads of values, or of their ends, in flight; the key of a whole value is `whole_values::WHOLE`.
    value_loads: SingleFlight<(Key, ByteRange), FetchedValue, StoreError>,
    /// Loads of ranges in flight.
    range_loads: SingleFlight<RangeKey, Arc<Vec<u8>>, StoreError>,
}

impl KnownBytes {
    /// `parallel` is the largest number of concurrent requests.
    pub(super) fn new(
        requests: Arc<Requests>,
        identity: Arc<SourceIdentity>,
        disk: Arc<SourceDisk>,
        names: Arc<KnownNames>,
        ranges: Arc<RangeCache>,
        parallel: usize,
    ) -> Self {
        Self {
            requests,
            identity,
            disk,
            names,
            ranges,
            speculation: Speculation::default(),
            value_lookups: Arc::new(Semaphore::new((parallel / 2).max(1))),
            arriving: ArrivingValues::default(),
            attr_loads: SingleFlight::default(),
            value_loads: SingleFlight::default(),
            range_loads: SingleFlight::default(),
        }
    }

    pub(super) fn transfer_stats(&self) -> TransferStats {
        let counters = self.requests.counters();
        TransferStats {
            total: counters.total(),
            arrays: counters.by_prefix(),
            disk: self.disk.counters(),
            memory_bytes: self.ranges.bytes(),
            latencies: counters.latencies(),
        }
    }

    /// Returns what is in use; nothing if no request is in flight.
    #[cfg(test)]
    pub(super) fn in_use(&self, parallel: usize) -> Vec<String> {
        let lookups = (parallel / 2).max(1) - self.value_lookups.available_permits();
        let lookups = (lookups > 0).then(|| format!("{lookups} lookups of values"));
        let loads = [
            self.attr_loads.in_use("attributes"),
            self.value_loads.in_use("values"),
            self.range_loads.in_use("ranges"),
            self.arriving.in_use(),
            lookups,
        ];
        loads.into_iter().flatten().collect()
    }

    /// Identifies a range of a version of an object, for caches and loads.
    fn range_key(&self, key: &Key, meta: &Meta, range: &Range<u64>) -> RangeKey {
        RangeKey {
            source: self.identity.number(),
            key: key.clone(),
            version: meta.version(),
            start: range.start,
            end: range.end,
        }
    }

    /// Returns a range of a version of an object, if it is in memory.
    fn in_memory(&self, key: &Key, meta: &Meta, range: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        self.ranges.get(&self.range_key(key, meta, range))
    }

    /// Returns a range of a version of an object, if it is in memory or in the disk cache. May block on
    /// the disk.
    fn cached(&self, key: &Key, meta: &Meta, range: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        if let Some(bytes) = self.in_memory(key, meta, range) {
            return Some(bytes);
        }
        let bytes = Arc::new(self.disk.range(key, meta, range)?);
        let place = self.range_key(key, meta, range);
        self.ranges.insert(place, Arc::clone(&bytes));
        Some(bytes)
    }

    /// As [`KnownBytes::cached`], and leaves the session thread before it asks the disk.
    async fn find_cached(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        let found = self.in_memory(key, meta, range);
        if found.is_some() || !self.disk.is_present() {
            return found;
        }
        if !may_block() {
            leave_session_thread().await;
        }
        self.cached(key, meta, range)
    }

    /// Caches bytes of a version of an object.
    fn insert(&self, key: &Key, meta: &Meta, start: u64, bytes: &Arc<Vec<u8>>) {
        let range = start..start.saturating_add(bytes.len() as u64);
        let place = self.range_key(key, meta, &range);
        self.ranges.insert(place, Arc::clone(bytes));
        self.disk.insert(key, meta, &range, bytes);
    }

    /// Returns the size limit in bytes of values that are fetched whole and cached.
    pub(super) fn whole_limit(&self) -> u64 {
        let share = self.ranges.budget_bytes() / 4;
        match self.identity.reads_whole() {
            true => share,
            false => WHOLE_BYTES.min(share),
        }
    }

    /// Records the open of a value.
    pub(super) fn record_open(&self) {
        self.speculation.opened();
    }

    /// Records that a program looks up keys and opens none.
    pub(super) fn record_visited(&self) {
        self.speculation.visited();
    }

    /// Records the first read of an opened value, or of a part of one from `start`.
    fn record_read(&self, key: &Key, start: u64, bytes: u64) {
        // Documents are always fetched with their lookup, so their reads say nothing about values.
        if !self.identity.is_document(key) {
            self.speculation.earn(bytes);
        }
        if let Some(bytes) = self.speculation.read(key, start) {
            self.requests.counters().prefetch_read(key, bytes);
        }
    }

    /// Records a value, or a part of one from `start`, that was fetched before a read.
    fn record_prefetched(&self, key: &Key, start: u64, bytes: u64) {
        self.requests.counters().prefetched(key, bytes);
        self.speculation.insert_unread(key, start, bytes);
    }

    /// Reserves memory for a prefetch of `bytes` bytes; `None` if requests need it, or if many prefetched
    /// bytes are still unread.
    pub(super) fn try_reserve_ahead(&self, bytes: u64) -> Option<ReservedBody> {
        let is_full = self.speculation.unread_bytes() > self.ranges.budget_bytes() / 4;
        (!is_full)
            .then(|| self.requests.try_reserve_spare(bytes))
            .flatten()
    }

    /// Waits for the permit of a prefetch.
    pub(super) async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.requests.prefetch_permit().await
    }
}
