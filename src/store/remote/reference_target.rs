//! Remote objects that references refer to, each pinned to the version that was found first.
//!
//! Ranges of one object that are requested at about the same time are fetched together, but ranges that a
//! read waits for separately from prefetched ones. All targets of a store share one cache and one memory
//! budget.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::{Either, join, join_all, select};
use futures_util::pin_mut;
use lru::LruCache;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::sync::{SemaphorePermit, oneshot};

use super::bytes::blocks::Blocks;
use super::bytes::value::{GAP_BYTES, fetch, insert_parts, joined};
use super::client::{Client, Shared};
use super::memory::ReservedBody;
use super::protocol::Protocol;
use super::protocol::error::RemoteError;
use super::protocol::web::Address;
use super::store::{RemoteSource, panicked};
use crate::runtime::{self, leave_session_thread};
use crate::store::remote::protocol::options::{RedirectPolicy, RemoteOptions};
use crate::store::remote::request::transfer_stats::TransferStats;
use crate::store::remote::request::{ByteRange, Get, Meta, RequestError};
use crate::store::{Data, Key, KeyClasses, Object, Stat, StoreError, Version, in_memory};
use crate::sync::Mutex;

/// Number of servers and buckets whose connections are kept.
const MAX_ORIGINS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
/// Ranges that are requested within this time are fetched together.
const JOIN_TIME: Duration = Duration::from_millis(1);
/// The response to the first range pins a target, if the range has at most this many bytes.
const MAX_FIRST_BYTES: u64 = 8 << 20;

/// Why a target may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) enum AllowedBy {
    /// The target is at the server or bucket of the references.
    SameOrigin,
    /// The user allows the target by its name.
    Name,
    /// The user allows all public targets.
    Any,
}

/// The first range to read of a target.
#[derive(Debug, Clone)]
pub(in crate::store) struct FirstRead {
    pub(in crate::store) range: Range<u64>,
    /// No read waits for the range, so the target is opened only if memory is free.
    pub(in crate::store) is_prefetch: bool,
}

/// The servers and buckets of targets.
#[derive(Debug)]
pub(in crate::store) struct RemoteTargets {
    options: RemoteOptions,
    classes: KeyClasses,
    shared: Shared,
    origins: Mutex<LruCache<(String, AllowedBy), Arc<RemoteSource>>>,
}

impl RemoteTargets {
    /// `redirects` judges where redirects of targets may lead.
    pub(in crate::store) fn new(
        options: &RemoteOptions,
        classes: KeyClasses,
        redirects: Arc<dyn RedirectPolicy>,
    ) -> Self {
        Self {
            options: RemoteOptions {
                redirects: Some(redirects),
                ..options.clone()
            },
            classes,
            shared: Shared::new(options, classes),
            origins: Mutex::new(LruCache::new(MAX_ORIGINS)),
        }
    }

    /// Acquires a permit to prefetch a target that is not open; half of `--parallel` is for waiting reads.
    pub(in crate::store) async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.shared.prefetches.acquire().await.ok()
    }

    /// Opens the object at a URL; `first` is the range that will be read first. The user's headers are sent
    /// only to the server of the references.
    ///
    /// # Errors
    /// [`StoreError`] with another key than that of the reference.
    pub(in crate::store) async fn open(
        &self,
        url: &str,
        allowed_by: AllowedBy,
        first: Option<FirstRead>,
    ) -> Result<Arc<RemoteTarget>, StoreError> {
        let (origin, key) = split(url);
        let source = self.origin(origin, allowed_by).map_err(unusable)?;
        let target = RemoteTarget::open(&source, &key, first).await?;
        Ok(Arc::new(target))
    }

    fn origin(&self, url: String, allowed_by: AllowedBy) -> Result<Arc<RemoteSource>, RemoteError> {
        let origin = (url, allowed_by);
        if let Some(source) = self.origins.lock().get(&origin) {
            return Ok(Arc::clone(source));
        }
        let mut options = self.options.clone();
        if allowed_by != AllowedBy::SameOrigin {
            options.headers.clear();
        }
        options.is_public_only = allowed_by == AllowedBy::Any;
        let client = Client::new(&origin.0, &options, self.classes)?;
        let source = client.source(&options, self.classes, &self.shared)?;
        // Another caller may have inserted a source meanwhile; both work.
        let evicted = self.origins.lock().push(origin, Arc::clone(&source));
        drop(evicted);
        Ok(source)
    }

    /// Counters of all targets together.
    pub(in crate::store) fn transfer_stats(&self) -> TransferStats {
        TransferStats {
            total: self.shared.counters.total(),
            arrays: Vec::new(),
            disk: self.options.disk.as_ref().map(|disk| disk.counters()),
            memory_bytes: self.shared.ranges.bytes(),
        }
    }
}

fn unusable(error: RemoteError) -> StoreError {
    match error {
        RemoteError::Failed { error, .. } => error,
        error => StoreError::Unavailable {
            key: Key::root(),
            what: error.to_string(),
        },
    }
}

/// Splits a URL into its server or bucket, and the key there. A URL with a query, or one that no key
/// represents, is a server of its own with the root as its key.
fn split(url: &str) -> (String, Key) {
    let whole = || (url.to_owned(), Key::root());
    let (Some((scheme, rest)), Some(protocol)) = (url.split_once("://"), Protocol::of_url(url))
    else {
        return whole();
    };
    if !protocol.has_escapes() {
        let (origin, path) = protocol.divide(rest);
        return match Key::new(path.as_bytes()) {
            Ok(key) => (format!("{scheme}://{origin}"), key),
            Err(_) => whole(),
        };
    }
    let Ok(mut origin) = Url::parse(url) else {
        return whole();
    };
    origin.set_fragment(None);
    let full = Address::new(&origin);
    let path: Vec<u8> = percent_decode_str(origin.path()).collect();
    let key = Key::new(path.strip_prefix(b"/").unwrap_or(&path));
    let is_plain = origin.query().is_none() && !origin.path().ends_with('/');
    origin.set_path("/");
    let same = |key: &Key| Some(Address::new(&origin).of(key).ok()? == full.of(&Key::root()).ok()?);
    match key {
        Ok(key) if is_plain && same(&key) == Some(true) => (origin.to_string(), key),
        _ => whole(),
    }
}

/// One version of an object.
#[derive(Debug)]
pub(in crate::store) struct RemoteTarget {
    source: Arc<RemoteSource>,
    key: Key,
    meta: Meta,
    /// Ranges that will be fetched soon.
    waiting: Mutex<Vec<PendingRange>>,
}

type RangeResult = Result<Arc<Vec<u8>>, StoreError>;

/// A requested range, and the callers that wait for it.
#[derive(Debug)]
struct PendingRange {
    range: Range<u64>,
    senders: Vec<oneshot::Sender<RangeResult>>,
    /// Memory for a prefetched range; `None` for a range that a read waits for.
    reserved: Option<ReservedBody>,
}

impl PendingRange {
    fn is_cancelled(&self) -> bool {
        self.senders.iter().all(oneshot::Sender::is_closed)
    }

    fn response(self, response: &RangeResult) {
        for sender in self.senders {
            // A caller that was cancelled has dropped its receiver.
            let _ = sender.send(response.clone());
        }
    }
}

impl RemoteTarget {
    async fn open(
        source: &Arc<RemoteSource>,
        key: &Key,
        first: Option<FirstRead>,
    ) -> Result<Self, StoreError> {
        let meta = pin_version(source, key, first).await?;
        Ok(Self {
            source: Arc::clone(source),
            key: key.clone(),
            meta,
            waiting: Mutex::default(),
        })
    }

    pub(in crate::store) fn size_bytes(&self) -> u64 {
        self.meta.size_bytes
    }

    /// When the object was written, if the server reports it.
    pub(in crate::store) fn modified(&self) -> Option<SystemTime> {
        self.meta.modified
    }

    /// The entity tag without quotes and without the prefix of a weak tag.
    pub(in crate::store) fn etag(&self) -> Option<&str> {
        self.meta.opaque_tag()
    }

    pub(in crate::store) fn version(&self) -> Version {
        self.meta.version()
    }

    /// Returns a range of the object, which lies within it. `is_exact` means that exactly the requested
    /// ranges are fetched, without blocks and readahead.
    pub(in crate::store) fn span(
        self: &Arc<Self>,
        span: Range<u64>,
        is_exact: bool,
    ) -> Arc<dyn Object> {
        let blocks = Blocks::new(&self.source, &self.key, &self.meta, span.clone());
        Arc::new(RemoteSpan {
            target: Arc::clone(self),
            span,
            is_exact,
            is_read: AtomicBool::new(false),
            blocks,
        })
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        let bytes = self.source.in_memory(&self.key, &self.meta, range)?;
        self.source.counters.hit(&self.key);
        Some(bytes)
    }

    /// Reads a range of the object, together with other ranges that are requested now.
    async fn read(self: &Arc<Self>, range: Range<u64>) -> RangeResult {
        let cached = self.source.find_cached(&self.key, &self.meta, &range);
        if let Some(bytes) = cached.await {
            self.source.counters.hit(&self.key);
            return Ok(bytes);
        }
        let response = self.wait_for(range, None).await;
        response.unwrap_or_else(|_| Err(panicked()))
    }

    /// Fetches a range of the object that will most likely be read, together with others; returns whether
    /// that was possible.
    pub(in crate::store) async fn prefetch(self: &Arc<Self>, range: Range<u64>) -> bool {
        let source = &self.source;
        let bytes = range.end.saturating_sub(range.start);
        // Longer ranges are read in blocks, and an invalid range fails when it is read.
        if bytes == 0 || bytes > source.whole_limit() || range.end > self.meta.size_bytes {
            return true;
        }
        let cached = source.find_cached(&self.key, &self.meta, &range);
        if cached.await.is_some() {
            return true;
        }
        let Some(reserved) = source.try_reserve_ahead(bytes.saturating_add(GAP_BYTES)) else {
            return false;
        };
        // On failure, a read of the range requests it again and returns the error.
        let response = self.wait_for(range, Some(reserved)).await;
        response.is_ok_and(|response| response.is_ok())
    }

    /// Requests a range and waits for it; `reserved` is the memory of a prefetch.
    fn wait_for(
        self: &Arc<Self>,
        range: Range<u64>,
        reserved: Option<ReservedBody>,
    ) -> oneshot::Receiver<RangeResult> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let is_first = waiting.is_empty();
        match waiting.iter_mut().find(|there| there.range == range) {
            Some(there) => {
                there.reserved = there.reserved.take().filter(|_| reserved.is_some());
                there.senders.push(sender);
            }
            None => waiting.push(PendingRange {
                range,
                senders: vec![sender],
                reserved,
            }),
        }
        drop(waiting);
        if is_first {
            let own = Arc::clone(self);
            let fetch = async move {
                runtime::sleep(JOIN_TIME).await;
                own.fetch_waiting().await;
            };
            runtime::spawn(fetch).detach();
        }
        receiver
    }

    /// Fetches the requested ranges, except those whose readers were cancelled.
    async fn fetch_waiting(self: Arc<Self>) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.retain(|part| !part.is_cancelled());
        waiting.sort_by_key(|part| (part.range.start, part.range.end));
        let (wanted, ahead) = waiting
            .into_iter()
            .partition(|part: &PendingRange| part.reserved.is_none());
        join(self.fetch_parts(wanted), self.fetch_ahead(ahead)).await;
    }

    /// Prefetches ranges in order. Each request acquires its permit before it counts as in flight, so that a
    /// read of its ranges does not wait for the permit.
    async fn fetch_ahead(self: &Arc<Self>, parts: Vec<PendingRange>) {
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.range.clone()).collect();
        let mut parts = parts.into_iter();
        let groups = joined(&ranges, (0..ranges.len()).collect());
        let groups = groups.into_iter().map(|(group, _)| {
            let parts: Vec<PendingRange> = parts.by_ref().take(group.len()).collect();
            async move {
                let Ok(_permit) = self.source.prefetches.acquire().await else {
                    return;
                };
                let mut missing = Vec::new();
                for part in parts {
                    match self.in_memory(&part.range) {
                        Some(bytes) => part.response(&Ok(bytes)),
                        None if part.is_cancelled() => {}
                        None => missing.push(part),
                    }
                }
                self.fetch_parts(missing).await;
            }
        });
        let groups: Vec<_> = groups.collect();
        join_all(groups).await;
    }

    /// Fetches ranges in order, and answers the callers that wait for them.
    async fn fetch_parts(self: &Arc<Self>, mut parts: Vec<PendingRange>) {
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.range.clone()).collect();
        let mut reserved: Vec<_> = parts.iter_mut().map(|part| part.reserved.take()).collect();
        let key_of = |range| self.source.range_key(&self.key, &self.meta, range);
        let keys: Vec<_> = ranges.iter().map(key_of).collect();
        let start = |idle: Vec<usize>| {
            let groups = joined(&ranges, idle).into_iter().map(|(group, all)| {
                let own = group.iter().filter_map(|i| ranges.get(*i).cloned());
                let held = group.iter().filter_map(|i| reserved.get_mut(*i)?.take());
                let fetch = Arc::clone(self).fetch(all, own.collect(), held.collect());
                (group, fetch)
            });
            groups.collect()
        };
        let loads = self.source.range_loads.run_groups(&keys, start, panicked());
        let answers = parts
            .into_iter()
            .zip(loads)
            .map(|(mut part, load)| async move {
                let response = {
                    let closed = part.senders.iter_mut().map(oneshot::Sender::closed);
                    let closed = join_all(closed);
                    pin_mut!(load, closed);
                    match select(load, closed).await {
                        Either::Left((response, _)) => response,
                        Either::Right(_) => return,
                    }
                };
                part.response(&response);
            });
        join_all(answers).await;
    }

    /// Fetches a range, and caches the parts `own` of it. `held` is the memory of a prefetch.
    async fn fetch(
        self: Arc<Self>,
        all: Range<u64>,
        own: Vec<Range<u64>>,
        held: Vec<ReservedBody>,
    ) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
        let (source, key, meta) = (&self.source, &self.key, &self.meta);
        let (start, length) = (all.start, all.end.saturating_sub(all.start));
        let _reserved = match held.is_empty() {
            true => Some(source.reserve(key, length).await?),
            false => None,
        };
        let bytes = fetch(source, key, meta, all).await?;
        if !held.is_empty() {
            // Recorded before any reader gets the bytes.
            for range in &own {
                source.record_prefetched(key, range.start, range.end.saturating_sub(range.start));
            }
        }
        insert_parts(source, key, meta, (start, &bytes), own)
    }
}

/// Returns the current version of an object, from the response to the request for its first range.
async fn pin_version(
    source: &Arc<RemoteSource>,
    key: &Key,
    first: Option<FirstRead>,
) -> Result<Meta, StoreError> {
    let mut last = None;
    if source.disk.is_some() {
        leave_session_thread().await;
        last = source.last_meta_from_disk(key);
    }
    if let (true, Some(meta)) = (source.is_immutable, &last) {
        return Ok(meta.clone());
    }
    let known = last.filter(|meta| meta.etag.is_some());
    let is_short = |first: &FirstRead| {
        let length = first.range.end.saturating_sub(first.range.start);
        (1..=MAX_FIRST_BYTES).contains(&length)
    };
    let Some(FirstRead { range, is_prefetch }) = first.filter(is_short) else {
        let meta = source.request_head(key).await;
        return meta.map_err(|error| error.of(key));
    };
    let length = range.end.saturating_sub(range.start);
    let _reserved = match is_prefetch {
        true => source.try_reserve_ahead(length).ok_or_else(no_memory)?,
        false => source.reserve(key, length).await?,
    };
    let mut get = Get::new(key, ByteRange::Bounded(range.clone()));
    get.cached = known.clone();
    match (source.get(get).await, known) {
        (Ok(got), _) => {
            if got.start == range.start && got.bytes.len() as u64 == length {
                if is_prefetch {
                    source.record_prefetched(key, range.start, length);
                }
                source.insert(
                    key,
                    &got.meta,
                    range.start,
                    &Arc::new(got.bytes.into_bytes()),
                );
            }
            Ok(got.meta)
        }
        (Err(RequestError::NotModified), Some(meta)) => Ok(meta),
        // The range begins after the end of the object; the caller compares it with the size.
        (Err(RequestError::NoSuchRange), _) => {
            let meta = source.request_head(key).await;
            meta.map_err(|error| error.of(key))
        }
        (Err(error), _) => Err(error.of(key)),
    }
}

/// The error of a prefetch without memory; it is never returned to a user.
fn no_memory() -> StoreError {
    StoreError::internal("a prefetch without memory")
}

/// A range of one version of an object.
#[derive(Debug)]
struct RemoteSpan {
    target: Arc<RemoteTarget>,
    span: Range<u64>,
    is_exact: bool,
    /// Whether any part of the span was read.
    is_read: AtomicBool,
    blocks: Blocks,
}

impl RemoteSpan {
    /// Converts a range of the span to a range of the object, cut at the end of the span.
    fn within(&self, offset: u64, size_bytes: usize) -> Range<u64> {
        let start = self.span.start.saturating_add(offset).min(self.span.end);
        start..start.saturating_add(size_bytes as u64).min(self.span.end)
    }

    /// Whether the whole span is fetched for a read of any part of it.
    fn is_whole(&self) -> bool {
        self.size_bytes() <= self.target.source.whole_limit()
    }

    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            let target = &self.target;
            target
                .source
                .record_read(&target.key, self.span.start, self.size_bytes());
        }
    }

    /// Returns a range, given the bytes of the whole span.
    fn part(&self, bytes: Arc<Vec<u8>>, range: &Range<u64>) -> Result<Data, StoreError> {
        let start = in_memory(range.start - self.span.start)?;
        let end = in_memory(range.end - self.span.start)?;
        Ok(Data::Shared(bytes, start..end))
    }
}

/// Returns all of `bytes`.
fn all(bytes: Arc<Vec<u8>>) -> Data {
    let length = bytes.len();
    Data::Shared(bytes, 0..length)
}

#[async_trait]
impl Object for RemoteSpan {
    fn size_bytes(&self) -> u64 {
        self.span.end - self.span.start
    }

    fn version(&self) -> Version {
        self.target.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(Stat {
            size_bytes: self.size_bytes(),
            ..self.target.meta.stat()
        })
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let range = self.within(offset, size_bytes);
        if range.is_empty() {
            return Ok(Data::empty());
        }
        let wanted = match (self.is_exact, self.is_whole()) {
            (true, _) => range.clone(),
            (false, true) => self.span.clone(),
            (false, false) => return self.blocks.read(range).await,
        };
        let bytes = self.target.read(wanted).await?;
        self.record_read();
        match self.is_exact {
            true => Ok(all(bytes)),
            false => self.part(bytes, &range),
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    /// Fetches neighbouring ranges together; each is cached separately.
    async fn prefetch(&self, ranges: &[Range<u64>]) {
        let loads = ranges.iter().filter_map(|range| {
            let length = usize::try_from(range.end.saturating_sub(range.start)).ok()?;
            let range = self.within(range.start, length);
            (!range.is_empty()).then(|| self.target.read(range))
        });
        // A range that cannot be fetched fails when it is read.
        let _ = join_all(loads).await;
    }
}

#[cfg(test)]
mod tests;
