//! One version of a remote object, read in parts.
//!
//! A decoder reads exactly the ranges that it needs. For other readers, a short value is fetched whole
//! with one request, and a long one in blocks, with readahead for sequential readers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::future::join_all;

use super::blocks::Blocks;
use super::whole_objects::LoadPurpose;
use crate::store::remote::memory::RangeKey;
use crate::store::remote::memory::ReservedBody;
use crate::store::remote::request::body::Body;
use crate::store::remote::request::{ByteRange, Get, Meta, RequestError};
use crate::store::remote::store::{RemoteSource, panicked};
use crate::store::{Data, Key, Object, Stat, StoreError, Version, in_memory};

/// The content of a response.
#[derive(Debug, Clone)]
pub(in crate::store::remote) struct FetchedValue {
    pub(in crate::store::remote) meta: Meta,
    /// The whole value, if it was requested and is not too long.
    pub(in crate::store::remote) bytes: Option<Arc<Vec<u8>>>,
}

/// Ranges with gaps up to this number of bytes are fetched together.
pub(in crate::store::remote) const GAP_BYTES: u64 = 64 << 10;
/// Size limit in bytes of ranges that are fetched together.
const JOINED_BYTES: u64 = 8 << 20;

/// One version of an object.
#[derive(Debug)]
pub(in crate::store::remote) struct RemoteObject {
    source: Arc<RemoteSource>,
    key: Key,
    value: FetchedValue,
    is_exact: bool,
    /// The blocks of a value that is not read whole, from the first read.
    blocks: OnceLock<Blocks>,
    /// Whether a read was answered.
    is_read: AtomicBool,
    /// Whether the whole value was fetched for this object; it is not fetched whole again.
    is_fetched: AtomicBool,
    /// The bytes of a value that is too long for the cache and cannot be read in parts.
    held: OnceLock<(Arc<Vec<u8>>, ReservedBody)>,
}

impl RemoteObject {
    /// `is_exact` means that exactly the requested ranges are fetched, without blocks and readahead.
    pub(in crate::store::remote) fn new(
        source: &Arc<RemoteSource>,
        key: &Key,
        value: FetchedValue,
        is_exact: bool,
    ) -> Self {
        Self {
            source: Arc::clone(source),
            key: key.clone(),
            blocks: OnceLock::new(),
            value,
            is_exact,
            is_read: AtomicBool::new(false),
            is_fetched: AtomicBool::new(false),
            held: OnceLock::new(),
        }
    }

    fn blocks(&self) -> &Blocks {
        let meta = &self.value.meta;
        let blocks = || Blocks::new(&self.source, &self.key, meta, 0..meta.size_bytes);
        self.blocks.get_or_init(blocks)
    }

    /// Cuts a range at the end of the object.
    fn clamp(&self, offset: u64, size_bytes: usize) -> Range<u64> {
        let end = offset.saturating_add(size_bytes as u64);
        offset..end.min(self.value.meta.size_bytes)
    }

    /// Returns a range of the value, if the open has already fetched the whole value.
    fn in_value(&self, range: &Range<u64>) -> Result<Option<Data>, StoreError> {
        let held = self.held.get().map(|(bytes, _)| bytes);
        let bytes = self.value.bytes.as_ref().or(held);
        bytes
            .map(|bytes| shared(Arc::clone(bytes), range))
            .transpose()
    }

    /// Whether the whole value is fetched for a read of any part of it. After the value was evicted from the
    /// cache, only the blocks of each read are fetched.
    fn is_whole(&self) -> bool {
        if self.source.reads_whole {
            return true;
        }
        let is_short = self.size_bytes() <= self.source.whole_limit();
        !self.is_exact && is_short && !self.is_fetched.load(Ordering::Relaxed)
    }

    /// Returns a range of the value, if the whole value is in memory.
    fn in_memory(&self, range: &Range<u64>) -> Option<Result<Data, StoreError>> {
        let meta = &self.value.meta;
        let bytes = self
            .source
            .in_memory(&self.key, meta, &(0..meta.size_bytes))?;
        self.source.counters.hit(&self.key);
        self.record_read();
        Some(shared(bytes, range))
    }

    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            self.source.record_read(&self.key, 0, self.size_bytes());
        }
    }

    /// Returns a range of the value, after fetching and caching the whole value.
    async fn read_whole(&self, range: &Range<u64>) -> Result<Data, StoreError> {
        let (source, key, meta) = (&self.source, &self.key, &self.value.meta);
        let whole = 0..meta.size_bytes;
        if let Some(bytes) = source.find_cached(key, meta, &whole).await {
            source.counters.hit(key);
            self.record_read();
            return shared(bytes, range);
        }
        let reserved = source.reserve(key, meta.size_bytes).await?;
        if let Some((bytes, _)) = self.held.get() {
            return shared(Arc::clone(bytes), range);
        }
        let fetched = source
            .load_whole(key, meta.size_bytes, LoadPurpose::Read)
            .await;
        self.is_fetched.store(true, Ordering::Relaxed);
        self.record_read();
        let gone = |what: &str| RequestError::Changed(what.into()).of(key);
        match fetched {
            Ok(FetchedValue {
                meta: now,
                bytes: Some(bytes),
            }) if now.is_same(meta) => {
                if source.reads_whole && meta.size_bytes > source.whole_limit() {
                    // A concurrent read may have set it first.
                    let _ = self.held.set((Arc::clone(&bytes), reserved));
                }
                shared(bytes, range)
            }
            Ok(_) => Err(gone("it has another content by now")),
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                Err(gone("it is gone"))
            }
            Err(error) => Err(error),
        }
    }

    async fn fetch_exact(&self, range: Range<u64>) -> Result<Data, StoreError> {
        let length = in_memory(range.end - range.start)?;
        let bytes = fetch_cached(&self.source, &self.key, &self.value.meta, range).await?;
        Ok(Data::Shared(bytes, 0..length))
    }

    fn range_key(&self, range: &Range<u64>) -> RangeKey {
        self.source.range_key(&self.key, &self.value.meta, range)
    }
}

/// Returns a range of a value.
fn shared(bytes: Arc<Vec<u8>>, range: &Range<u64>) -> Result<Data, StoreError> {
    let range = in_memory(range.start)?..in_memory(range.end)?;
    Ok(Data::Shared(bytes, range))
}

/// Returns a range of one version of an object: cached, or fetched once for all readers and cached.
pub(in crate::store::remote) async fn fetch_cached(
    source: &Arc<RemoteSource>,
    key: &Key,
    meta: &Meta,
    range: Range<u64>,
) -> Result<Arc<Vec<u8>>, StoreError> {
    if let Some(bytes) = source.find_cached(key, meta, &range).await {
        source.counters.hit(key);
        return Ok(bytes);
    }
    let place = source.range_key(key, meta, &range);
    let (own, wanted, version) = (Arc::clone(source), key.clone(), meta.clone());
    let load = move || async move {
        let start = range.start;
        let place = format!("{}-{}", range.start, range.end);
        let bytes = range.end.saturating_sub(start);
        let fetch_guard = own
            .fetch_guard(&[wanted.as_bytes(), place.as_bytes()], bytes)
            .await;
        if fetch_guard.has_waited
            && let Some(bytes) = own.cached(&wanted, &version, &range)
        {
            own.counters.hit(&wanted);
            return Ok(bytes);
        }
        let bytes = Arc::new(fetch(&own, &wanted, &version, range).await?);
        own.insert(&wanted, &version, start, &bytes);
        Ok(bytes)
    };
    source.range_loads.run(place, load, panicked()).await
}

pub(in crate::store::remote) fn wrong_length(key: &Key, got: u64, wanted: u64) -> StoreError {
    RequestError::lasting(format!("{got} bytes came, {wanted} were asked for")).of(key)
}

/// Fetches a range of one version of an object; never returns fewer bytes.
pub(in crate::store::remote) async fn fetch(
    source: &RemoteSource,
    key: &Key,
    meta: &Meta,
    range: Range<u64>,
) -> Result<Vec<u8>, StoreError> {
    let body = fetch_in_pieces(source, key, meta, range, 0).await?;
    Ok(body.into_bytes())
}

/// As [`fetch`], in pieces of `piece_bytes`.
pub(in crate::store::remote) async fn fetch_in_pieces(
    source: &RemoteSource,
    key: &Key,
    meta: &Meta,
    range: Range<u64>,
    piece_bytes: usize,
) -> Result<Body, StoreError> {
    let length = range.end.saturating_sub(range.start);
    let mut get = Get::new(key, ByteRange::Bounded(range));
    get.expected = Some(meta.clone());
    get.piece_bytes = piece_bytes;
    let got = source.get(get).await.map_err(|error| gone(error, key))?;
    match got.bytes.len() as u64 == length && got.meta.is_same(meta) {
        true => Ok(got.bytes),
        false => Err(wrong_length(key, got.bytes.len() as u64, length)),
    }
}

/// Converts an error; an object that existed before and is gone now is stale for its readers.
fn gone(error: RequestError, key: &Key) -> StoreError {
    match error {
        RequestError::NotFound => RequestError::Changed("it is gone".into()).of(key),
        error => error.of(key),
    }
}

#[async_trait]
impl Object for RemoteObject {
    fn size_bytes(&self) -> u64 {
        self.value.meta.size_bytes
    }

    fn version(&self) -> Version {
        self.value.meta.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.value.meta.stat())
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let range = self.clamp(offset, size_bytes);
        if range.is_empty() {
            return Ok(Data::empty());
        }
        if let Some(data) = self.in_value(&range)? {
            return Ok(data);
        }
        match (self.is_exact, self.is_whole()) {
            (true, _) => self.fetch_exact(range).await,
            (false, true) => self.read_whole(&range).await,
            (false, false) => match self.in_memory(&range) {
                Some(whole) => whole,
                None => self.blocks().read(range).await,
            },
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    /// Fetches neighbouring ranges together; each is cached separately.
    async fn prefetch(&self, ranges: &[Range<u64>]) {
        let (source, meta) = (&self.source, &self.value.meta);
        if self.value.bytes.is_some() {
            return;
        }
        if source.reads_whole {
            // On failure, the next read fetches the value again.
            let _ = self.read_whole(&(0..0)).await;
            return;
        }
        let is_missing = |range: &&Range<u64>| {
            let is_inside = range.start < range.end && range.end <= meta.size_bytes;
            is_inside && source.cached(&self.key, meta, range).is_none()
        };
        let mut missing: Vec<Range<u64>> = ranges.iter().filter(is_missing).cloned().collect();
        missing.sort_by_key(|range| range.start);
        missing.dedup();
        let keys: Vec<RangeKey> = missing.iter().map(|range| self.range_key(range)).collect();
        let start = |idle: Vec<usize>| {
            let groups = joined(&missing, idle);
            let loads = groups.into_iter().map(|(group, all)| {
                let own: Vec<_> = group
                    .iter()
                    .filter_map(|i| missing.get(*i).cloned())
                    .collect();
                let source = Arc::clone(source);
                let (key, meta) = (self.key.clone(), meta.clone());
                (group, fetch_joined(source, key, meta, all, own))
            });
            loads.collect()
        };
        // A range that cannot be fetched fails when it is read.
        let _ = join_all(source.range_loads.run_groups(&keys, start, panicked())).await;
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

/// Fetches a range of an object, and caches the parts `own` of it.
pub(in crate::store::remote) async fn fetch_joined(
    source: Arc<RemoteSource>,
    key: Key,
    meta: Meta,
    all: Range<u64>,
    own: Vec<Range<u64>>,
) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
    let start = all.start;
    let bytes = fetch(&source, &key, &meta, all).await?;
    insert_parts(&source, &key, &meta, (start, &bytes), own)
}

/// Caches the parts `own` of bytes that were fetched from an offset on.
pub(in crate::store::remote) fn insert_parts(
    source: &RemoteSource,
    key: &Key,
    meta: &Meta,
    (start, bytes): (u64, &[u8]),
    own: Vec<Range<u64>>,
) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
    let mut parts = Vec::with_capacity(own.len());
    for range in own {
        let place = in_memory(range.start - start)?..in_memory(range.end - start)?;
        let part = Arc::new(crate::store::part(bytes, place)?.to_vec());
        source.insert(key, meta, range.start, &part);
        parts.push(part);
    }
    Ok(parts)
}
