//! One version of an object, of which ranges are read.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use super::KnownBytes;
use crate::cache::Waiter;
use crate::fallible::List;
use crate::runtime::leave_session_thread;
use crate::store::remote::memory::{RangeKey, ReservedBody};
use crate::store::remote::request::body::Body;
use crate::store::remote::request::{ByteRange, Get, Meta, RequestError, panicked};
use crate::store::{Key, StoreError, in_memory, part};

/// Ranges with gaps up to this number of bytes are fetched together.
pub(in crate::store::remote) const GAP_BYTES: u64 = 64 << 10;
/// Size limit in bytes of ranges that are fetched together.
const JOINED_BYTES: u64 = 8 << 20;
/// The response to the first range pins a version, if the range has at most this many bytes.
const MAX_FIRST_BYTES: u64 = 8 << 20;

/// The first range to read of an object.
#[derive(Debug, Clone)]
pub(in crate::store) struct FirstRead {
    pub(in crate::store) range: Range<u64>,
    /// No read waits for the range, so the object is opened only if memory is free.
    pub(in crate::store) is_prefetch: bool,
}

/// The bytes of a range, or why it was not fetched.
pub(in crate::store::remote) type RangeResult = Result<Arc<Vec<u8>>, StoreError>;

/// A caller that waits for a range.
pub(in crate::store::remote) type RangeLoad<'a> = Waiter<'a, RangeKey, Arc<Vec<u8>>, StoreError>;

/// One version of an object.
#[derive(Debug)]
pub(in crate::store::remote) struct PinnedObject {
    pub(super) source: Arc<KnownBytes>,
    pub(super) key: Key,
    pub(super) meta: Meta,
}

impl PinnedObject {
    pub(in crate::store::remote) fn new(source: &Arc<KnownBytes>, key: &Key, meta: Meta) -> Self {
        Self {
            source: Arc::clone(source),
            key: key.clone(),
            meta,
        }
    }

    /// Pins the current version of an object, with the response to the request for its first range.
    ///
    /// # Errors
    /// [`StoreError`] of the request; [`StoreError::Internal`] for a prefetch without memory, which no user sees.
    pub(in crate::store::remote) async fn open(
        source: &Arc<KnownBytes>,
        key: &Key,
        first: Option<FirstRead>,
    ) -> Result<Self, StoreError> {
        let meta = source.current_meta(key, first).await?;
        Ok(Self::new(source, key, meta))
    }

    /// The source of the object.
    pub(in crate::store::remote) fn source(&self) -> &Arc<KnownBytes> {
        &self.source
    }

    pub(in crate::store::remote) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(in crate::store::remote) fn size_bytes(&self) -> u64 {
        self.meta.size_bytes
    }

    /// The range of all bytes.
    pub(super) fn whole(&self) -> Range<u64> {
        0..self.meta.size_bytes
    }

    /// Counts a read that needed no request.
    pub(super) fn hit(&self) {
        self.source.requests.counters().hit(&self.key);
    }

    /// Returns a range, if it is in memory.
    pub(in crate::store::remote) fn in_memory(&self, range: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        self.source.in_memory(&self.key, &self.meta, range)
    }

    /// Returns a range, if it is in memory or in the disk cache. May block on the disk.
    pub(super) fn cached(&self, range: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        self.source.cached(&self.key, &self.meta, range)
    }

    /// As [`PinnedObject::cached`], and leaves the session thread before it asks the disk.
    pub(in crate::store::remote) async fn find_cached(
        &self,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        self.source.find_cached(&self.key, &self.meta, range).await
    }

    /// Returns a range for a read that is counted, if it is in memory.
    pub(in crate::store::remote) fn read_in_memory(
        &self,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        self.in_memory(range).inspect(|_| self.hit())
    }

    /// Returns a range for a read that is counted, if it is in memory or in the disk cache.
    pub(in crate::store::remote) async fn read_cached(
        &self,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        self.find_cached(range).await.inspect(|_| self.hit())
    }

    /// Caches bytes from an offset on.
    pub(super) fn insert(&self, start: u64, bytes: &Arc<Vec<u8>>) {
        self.source.insert(&self.key, &self.meta, start, bytes);
    }

    /// Fetches a range; never returns fewer bytes.
    pub(in crate::store::remote) async fn fetch(
        &self,
        range: Range<u64>,
    ) -> Result<Vec<u8>, StoreError> {
        let body = self.fetch_in_pieces(range, 0).await?;
        Ok(body.into_bytes())
    }

    /// As [`PinnedObject::fetch`], in pieces of `piece_bytes`.
    pub(super) async fn fetch_in_pieces(
        &self,
        range: Range<u64>,
        piece_bytes: usize,
    ) -> Result<Body, StoreError> {
        let length = range.end.saturating_sub(range.start);
        let mut get = Get::new(&self.key, ByteRange::Bounded(range));
        get.expected = Some(self.meta.clone());
        get.piece_bytes = piece_bytes;
        let got = self.source.names.get(get).await;
        let got = got.map_err(|error| gone(error, &self.key))?;
        match got.bytes.len() as u64 == length && got.meta.is_same(&self.meta) {
            true => Ok(got.bytes),
            false => {
                let what = format!("{} bytes came, {length} were asked for", got.bytes.len());
                Err(RequestError::lasting(what).of(&self.key))
            }
        }
    }

    /// Returns a range: cached, or fetched once for all readers and cached.
    pub(in crate::store::remote) async fn read(self: &Arc<Self>, range: Range<u64>) -> RangeResult {
        if let Some(bytes) = self.read_cached(&range).await {
            return Ok(bytes);
        }
        let place = self.source.range_key(&self.key, &self.meta, &range);
        let own = Arc::clone(self);
        let load = move || async move { own.load(range).await };
        self.source.range_loads.run(place, load, panicked()).await
    }

    /// As [`PinnedObject::fetch`], once for all callers that wait at the same time. The range is not cached.
    pub(in crate::store::remote) async fn fetch_shared(
        self: &Arc<Self>,
        range: Range<u64>,
    ) -> RangeResult {
        let place = self.source.range_key(&self.key, &self.meta, &range);
        let own = Arc::clone(self);
        let load = move || async move { own.fetch(range).await.map(Arc::new) };
        self.source.range_loads.run(place, load, panicked()).await
    }

    async fn load(&self, range: Range<u64>) -> RangeResult {
        // Another load may have ended between the search of the cache and the start of this one.
        if let Some(bytes) = self.read_in_memory(&range) {
            return Ok(bytes);
        }
        let place = format!("{}-{}", range.start, range.end);
        let bytes = range.end.saturating_sub(range.start);
        let name = [self.key.as_bytes(), place.as_bytes()];
        let fetch_guard = self.source.disk.fetch_guard(&name, bytes).await;
        if fetch_guard.is_shared()
            && let Some(bytes) = self.cached(&range)
        {
            self.hit();
            return Ok(bytes);
        }
        let start = range.start;
        let bytes = Arc::new(self.fetch(range).await?);
        self.insert(start, &bytes);
        Ok(bytes)
    }

    /// Waits for ranges. `start` gets the indexes of those that are not in flight, and returns groups of them, each
    /// with a load that returns the bytes of its ranges in order.
    pub(super) fn load_ranges<F>(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
        start: impl FnOnce(Vec<usize>) -> Vec<(Vec<usize>, F)>,
    ) -> Vec<RangeLoad<'_>>
    where
        F: Future<Output = Result<Vec<Arc<Vec<u8>>>, StoreError>> + Send + 'static,
    {
        let key = |range| self.source.range_key(&self.key, &self.meta, &range);
        let keys: Vec<RangeKey> = ranges.map(key).collect();
        let loads = &self.source.range_loads;
        loads.run_groups(&keys, start, panicked())
    }

    /// As [`PinnedObject::load_ranges`], for sorted ranges, of which neighbours are one group. `load` gets the indexes
    /// of a group, the range that contains it, and its own ranges.
    pub(in crate::store::remote) fn load_joined<F>(
        &self,
        ranges: &[Range<u64>],
        mut load: impl FnMut(&[usize], Range<u64>, Vec<Range<u64>>) -> F,
    ) -> Vec<RangeLoad<'_>>
    where
        F: Future<Output = Result<Vec<Arc<Vec<u8>>>, StoreError>> + Send + 'static,
    {
        let start = |idle: Vec<usize>| {
            let groups = joined(ranges, idle).into_iter().map(|(group, all)| {
                let own = group.iter().filter_map(|index| ranges.get(*index).cloned());
                let load = load(&group, all, own.collect());
                (group, load)
            });
            groups.collect()
        };
        self.load_ranges(ranges.iter().cloned(), start)
    }

    /// Caches the parts `own` of bytes that were fetched from an offset on.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if a part is not among the bytes; `ENOMEM` if the system has no memory for a copy of it.
    pub(in crate::store::remote) fn insert_parts(
        &self,
        (start, bytes): (u64, &[u8]),
        own: Vec<Range<u64>>,
    ) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
        let mut parts = Vec::with_capacity(own.len());
        for range in own {
            let place = in_memory(range.start - start)?..in_memory(range.end - start)?;
            let mut copied = List::default();
            copied.extend_from_slice(part(bytes, place)?);
            let no_memory = |_| RequestError::no_memory().of(&self.key);
            let part = Arc::new(copied.finish().map_err(no_memory)?);
            self.insert(range.start, &part);
            parts.push(part);
        }
        Ok(parts)
    }

    /// Reserves memory to fetch `bytes` bytes.
    ///
    /// # Errors
    /// [`StoreError::TimedOut`] if none is free in time.
    pub(in crate::store::remote) async fn reserve(
        &self,
        bytes: u64,
    ) -> Result<ReservedBody, StoreError> {
        self.source.requests.reserve(&self.key, bytes).await
    }

    /// Records the first read of the object, or of a part of it from `start`.
    pub(in crate::store::remote) fn record_read(&self, start: u64, bytes: u64) {
        self.source.record_read(&self.key, start, bytes);
    }

    /// Records a part from `start` that was fetched before a read.
    pub(in crate::store::remote) fn record_prefetched(&self, start: u64, bytes: u64) {
        self.source.record_prefetched(&self.key, start, bytes);
    }

    /// Records that a part from `start` will be fetched before a read, if memory is free for it and at most
    /// `budget_bytes` wait for a read; returns whether that is so.
    pub(in crate::store::remote) fn begin_prefetch(
        &self,
        start: u64,
        bytes: u64,
        budget_bytes: u64,
    ) -> bool {
        let source = &self.source;
        let unread_bytes = source.speculation.unread_bytes();
        let is_free = unread_bytes.saturating_add(bytes) <= budget_bytes
            && source.try_reserve_ahead(bytes).is_some();
        if is_free {
            source.speculation.insert_unread(&self.key, start, bytes);
        }
        is_free
    }

    /// Records the end of a prefetch that [`PinnedObject::begin_prefetch`] has recorded.
    pub(in crate::store::remote) fn end_prefetch(&self, start: u64, bytes: u64, is_fetched: bool) {
        match is_fetched {
            true => self.source.requests.counters().prefetched(&self.key, bytes),
            false => drop(self.source.speculation.read(&self.key, start)),
        }
    }

    /// Whether ranges are cached on disk.
    pub(in crate::store::remote) fn is_on_disk(&self) -> bool {
        self.source.disk.is_present()
    }

    /// Returns bytes that were derived from this version, if they are in the disk cache. May block on the disk.
    pub(in crate::store::remote) fn derived(&self, what: &str, max_bytes: u64) -> Option<Vec<u8>> {
        let disk = &self.source.disk;
        disk.derived(&self.key, &self.meta, what, max_bytes)
    }

    /// Caches bytes that were derived from this version on disk; `make` is called only if there is a disk cache.
    pub(in crate::store::remote) fn insert_derived(
        &self,
        what: &str,
        make: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) {
        let disk = &self.source.disk;
        disk.insert_derived(&self.key, &self.meta, what, make);
    }
}

/// Converts an error; an object that existed before and is gone now is stale for its readers. An object at the root is
/// the whole source, such as an archive: it may come back as it was.
fn gone(error: RequestError, key: &Key) -> StoreError {
    match error {
        RequestError::NotFound if key.is_root() => StoreError::Unavailable {
            key: key.clone(),
            what: "the whole source is gone".into(),
        },
        RequestError::NotFound => RequestError::Changed("it is gone".into()).of(key),
        error => error.of(key),
    }
}

/// Groups sorted ranges; each group is fetched with one request.
pub(in crate::store::remote) fn joined(
    ranges: &[Range<u64>],
    indexes: Vec<usize>,
) -> Vec<(Vec<usize>, Range<u64>)> {
    let mut groups: Vec<(Vec<usize>, Range<u64>)> = Vec::new();
    for index in indexes {
        let Some(range) = ranges.get(index) else {
            continue;
        };
        match groups.last_mut() {
            Some((group, all))
                if range.start <= all.end.saturating_add(GAP_BYTES)
                    && range.end.max(all.end) - all.start <= JOINED_BYTES =>
            {
                all.end = all.end.max(range.end);
                group.push(index);
            }
            _ => groups.push((vec![index], range.clone())),
        }
    }
    groups
}

impl KnownBytes {
    /// Returns the attributes of the current version of an object, from the response to the request for its first range.
    async fn current_meta(&self, key: &Key, first: Option<FirstRead>) -> Result<Meta, StoreError> {
        let mut last = None;
        if self.disk.is_present() {
            leave_session_thread().await;
            last = self.disk.last_meta(key);
        }
        if let (true, Some(meta)) = (self.identity.is_immutable(), &last) {
            return Ok(meta.clone());
        }
        let known = last.filter(|meta| meta.etag.is_some());
        let is_short = |first: &FirstRead| {
            let length = first.range.end.saturating_sub(first.range.start);
            (1..=MAX_FIRST_BYTES).contains(&length)
        };
        let Some(FirstRead { range, is_prefetch }) = first.filter(is_short) else {
            let meta = self.requests.head(key).await;
            return meta.map_err(|error| error.of(key));
        };
        let length = range.end.saturating_sub(range.start);
        let _reserved = match is_prefetch {
            true => self.try_reserve_ahead(length).ok_or_else(no_memory)?,
            false => self.requests.reserve(key, length).await?,
        };
        let mut get = Get::new(key, ByteRange::Bounded(range.clone()));
        get.cached = known.clone();
        match (self.names.get(get).await, known) {
            (Ok(got), _) => {
                if got.start == range.start && got.bytes.len() as u64 == length {
                    if is_prefetch {
                        self.record_prefetched(key, range.start, length);
                    }
                    let bytes = Arc::new(got.bytes.into_bytes());
                    self.insert(key, &got.meta, range.start, &bytes);
                }
                Ok(got.meta)
            }
            (Err(RequestError::NotModified), Some(meta)) => Ok(meta),
            // The range begins after the end of the object; the caller compares it with the size.
            (Err(RequestError::NoSuchRange), _) => {
                let meta = self.requests.head(key).await;
                meta.map_err(|error| error.of(key))
            }
            (Err(error), _) => Err(error.of(key)),
        }
    }
}

/// The error of a prefetch without memory; it is never returned to a user.
fn no_memory() -> StoreError {
    StoreError::internal("a prefetch without memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_gone_is_stale_unless_it_is_the_whole_source() {
        let value = Key::new(b"a/c/0").unwrap();
        let stale = gone(RequestError::NotFound, &value);
        assert!(matches!(stale, StoreError::Stale { .. }));
        let source = gone(RequestError::NotFound, &Key::root());
        assert!(matches!(source, StoreError::Unavailable { .. }));
    }
}
