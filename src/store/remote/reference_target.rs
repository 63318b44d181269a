//! Remote objects that references refer to, each pinned to the version that was found first.
//!
//! Ranges of one object that are requested at about the same time are fetched together, but ranges that a
//! read waits for separately from prefetched ones. All targets of a store share one cache and one memory
//! budget.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::{Either, join, join_all, select};
use futures_util::pin_mut;
use lru::LruCache;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::sync::{SemaphorePermit, oneshot};

use super::bytes::{Blocks, FirstRead, GAP_BYTES, KnownBytes, PinnedObject, RangeResult, joined};
use super::client::{Client, Shared};
use super::memory::ReservedBody;
use super::protocol::Protocol;
use super::protocol::error::RemoteError;
use super::protocol::options::{RedirectPolicy, RemoteOptions};
use super::protocol::web::Address;
use super::request::panicked;
use super::request::transfer_stats::TransferStats;
use crate::cache::bounded_lru;
use crate::runtime;
use crate::store::{Data, Key, KeyClasses, Object, Stat, StoreError, Version, in_memory};
use crate::sync::Mutex;

/// Number of servers and buckets whose connections are kept.
const MAX_ORIGINS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
/// Ranges that are requested within this time are fetched together.
const JOIN_TIME: Duration = Duration::from_millis(1);

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

/// The servers and buckets of targets.
#[derive(Debug)]
pub(in crate::store) struct RemoteTargets {
    options: RemoteOptions,
    redirects: Arc<dyn RedirectPolicy>,
    classes: KeyClasses,
    shared: Shared,
    origins: Mutex<LruCache<(String, AllowedBy), Arc<KnownBytes>>>,
}

impl RemoteTargets {
    /// `redirects` judges where redirects of targets may lead.
    pub(in crate::store) fn new(
        options: &RemoteOptions,
        classes: KeyClasses,
        redirects: Arc<dyn RedirectPolicy>,
    ) -> Self {
        Self {
            options: options.clone(),
            redirects,
            classes,
            shared: Shared::new(options, classes),
            origins: Mutex::new(bounded_lru(MAX_ORIGINS)),
        }
    }

    /// Acquires a permit to prefetch a target that is not open; half of `--parallel` is for waiting reads.
    pub(in crate::store) async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.shared.prefetch_permit().await
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
        let object = PinnedObject::open(&source, &key, first).await?;
        Ok(Arc::new(RemoteTarget {
            object: Arc::new(object),
            waiting: Mutex::default(),
        }))
    }

    fn origin(&self, url: String, allowed_by: AllowedBy) -> Result<Arc<KnownBytes>, RemoteError> {
        let origin = (url, allowed_by);
        if let Some(source) = self.origins.lock().get(&origin) {
            return Ok(Arc::clone(source));
        }
        let redirects = Arc::clone(&self.redirects);
        let options = target_options(&self.options, &origin.0, allowed_by, redirects);
        let client = Client::new(&origin.0, &options, self.classes)?;
        let source = client.source(&options, self.classes, &self.shared)?.bytes;
        // Another caller may have inserted a source meanwhile; both work.
        let evicted = self.origins.lock().push(origin, Arc::clone(&source));
        drop(evicted);
        Ok(source)
    }

    /// Counters of all targets together.
    pub(in crate::store) fn transfer_stats(&self) -> TransferStats {
        TransferStats {
            arrays: Vec::new(),
            disk: self.options.disk.as_ref().map(|disk| disk.counters()),
            ..self.shared.transfer_stats()
        }
    }
}

/// Returns the options for reading a URL that a document names: the user's headers and credentials are sent only to
/// the server of the document. `redirects` judges where redirects may lead.
pub(in crate::store) fn target_options(
    options: &RemoteOptions,
    url: &str,
    allowed_by: AllowedBy,
    redirects: Arc<dyn RedirectPolicy>,
) -> RemoteOptions {
    let mut options = RemoteOptions {
        redirects: Some(redirects),
        ..options.clone()
    };
    if allowed_by != AllowedBy::SameOrigin {
        options.headers.clear();
        // Only keys sign requests without being sent.
        if !matches!(Protocol::of_url(url), Some(protocol) if protocol.signs_requests()) {
            options.credential_command = None;
        }
    }
    // References that a document names are no less restricted than the document says.
    options.is_public_only |= allowed_by == AllowedBy::Any;
    options
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
    object: Arc<PinnedObject>,
    /// Ranges that will be fetched soon.
    waiting: Mutex<Vec<PendingRange>>,
}

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
    pub(in crate::store) fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    /// When the object was written, if the server reports it.
    pub(in crate::store) fn modified(&self) -> Option<SystemTime> {
        self.object.meta().modified
    }

    /// The entity tag without quotes and without the prefix of a weak tag.
    pub(in crate::store) fn etag(&self) -> Option<&str> {
        self.object.meta().opaque_tag()
    }

    pub(in crate::store) fn version(&self) -> Version {
        self.object.meta().version()
    }

    /// Returns a range of the object, which lies within it. `is_exact` means that exactly the requested
    /// ranges are fetched, without blocks and readahead.
    pub(in crate::store) fn span(
        self: &Arc<Self>,
        span: Range<u64>,
        is_exact: bool,
    ) -> Arc<dyn Object> {
        Arc::new(RemoteSpan {
            target: Arc::clone(self),
            span,
            is_exact,
            is_read: AtomicBool::new(false),
            blocks: OnceLock::new(),
        })
    }

    /// Reads a range of the object, together with other ranges that are requested now.
    async fn read(self: &Arc<Self>, range: Range<u64>) -> RangeResult {
        if let Some(bytes) = self.object.read_cached(&range).await {
            return Ok(bytes);
        }
        let response = self.wait_for(range, None).await;
        response.unwrap_or_else(|_| Err(panicked()))
    }

    /// Fetches a range of the object that will most likely be read, together with others; returns whether
    /// that was possible.
    pub(in crate::store) async fn prefetch(self: &Arc<Self>, range: Range<u64>) -> bool {
        let source = self.object.source();
        let bytes = range.end.saturating_sub(range.start);
        // Longer ranges are read in blocks, and an invalid range fails when it is read.
        if bytes == 0 || bytes > source.whole_limit() || range.end > self.size_bytes() {
            return true;
        }
        if self.object.find_cached(&range).await.is_some() {
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

    /// Fetches the requested ranges, except those that have arrived meanwhile, with a prefetch that was in flight, and
    /// those whose readers were cancelled.
    async fn fetch_waiting(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let mut waiting = self.missing(waiting);
        waiting.sort_by_key(|part| (part.range.start, part.range.end));
        let (wanted, ahead) = waiting
            .into_iter()
            .partition(|part: &PendingRange| part.reserved.is_none());
        join(self.fetch_parts(wanted), self.fetch_ahead(ahead)).await;
    }

    /// Prefetches ranges in order. Each request acquires its permit before it counts as in flight, so that a
    /// read of its ranges does not wait for the permit.
    async fn fetch_ahead(&self, parts: Vec<PendingRange>) {
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.range.clone()).collect();
        let mut parts = parts.into_iter();
        let groups = joined(&ranges, (0..ranges.len()).collect());
        let groups = groups.into_iter().map(|(group, _)| {
            let parts: Vec<PendingRange> = parts.by_ref().take(group.len()).collect();
            async move {
                let Some(_permit) = self.object.source().prefetch_permit().await else {
                    return;
                };
                self.fetch_parts(self.missing(parts)).await;
            }
        });
        let groups: Vec<_> = groups.collect();
        join_all(groups).await;
    }

    /// Answers the callers of ranges that are in memory, and returns the other ranges that anyone waits for.
    fn missing(&self, parts: Vec<PendingRange>) -> Vec<PendingRange> {
        let mut missing = Vec::new();
        for part in parts {
            match self.object.read_in_memory(&part.range) {
                Some(bytes) => part.response(&Ok(bytes)),
                None if part.is_cancelled() => {}
                None => missing.push(part),
            }
        }
        missing
    }

    /// Fetches ranges in order, and answers the callers that wait for them.
    async fn fetch_parts(&self, mut parts: Vec<PendingRange>) {
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.range.clone()).collect();
        let mut reserved: Vec<_> = parts.iter_mut().map(|part| part.reserved.take()).collect();
        let load = |group: &[usize], all, own| {
            let held = group.iter().filter_map(|i| reserved.get_mut(*i)?.take());
            fetch(Arc::clone(&self.object), all, own, held.collect())
        };
        let loads = self.object.load_joined(&ranges, load);
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
}

/// Fetches a range, and caches the parts `own` of it. `held` is the memory of a prefetch.
async fn fetch(
    object: Arc<PinnedObject>,
    all: Range<u64>,
    own: Vec<Range<u64>>,
    held: Vec<ReservedBody>,
) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
    let (start, length) = (all.start, all.end.saturating_sub(all.start));
    let _reserved = match held.is_empty() {
        true => Some(object.reserve(length).await?),
        false => None,
    };
    let bytes = object.fetch(all).await?;
    if !held.is_empty() {
        // Recorded before any reader gets the bytes.
        for range in &own {
            let length = range.end.saturating_sub(range.start);
            object.record_prefetched(range.start, length);
        }
    }
    object.insert_parts((start, &bytes), own)
}

/// A range of one version of an object.
#[derive(Debug)]
struct RemoteSpan {
    target: Arc<RemoteTarget>,
    span: Range<u64>,
    is_exact: bool,
    /// Whether any part of the span was read.
    is_read: AtomicBool,
    /// The blocks of a span that is not read whole, from the first read.
    blocks: OnceLock<Blocks>,
}

impl RemoteSpan {
    /// Converts a range of the span to a range of the object, cut at the end of the span.
    fn within(&self, offset: u64, size_bytes: usize) -> Range<u64> {
        let start = self.span.start.saturating_add(offset).min(self.span.end);
        start..start.saturating_add(size_bytes as u64).min(self.span.end)
    }

    /// Whether the whole span is fetched for a read of any part of it.
    fn is_whole(&self) -> bool {
        self.size_bytes() <= self.target.object.source().whole_limit()
    }

    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            let object = &self.target.object;
            object.record_read(self.span.start, self.size_bytes());
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
            ..self.target.object.meta().stat()
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
            (false, false) => {
                let object = &self.target.object;
                let blocks = || Blocks::new(object, self.span.clone());
                return self.blocks.get_or_init(blocks).read(range).await;
            }
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
