//! A remote tree of keys as a [`Store`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures_util::future::{Either, join, select};
use tokio::sync::{Semaphore, oneshot};

use super::attr_cache::{AttrCache, Attrs};
use super::bodies::{BodyBudget, ReservedBody};
use super::listing::{ListingCache, MAX_EMPTY_PAGES, RemoteListing};
use super::range_cache::{RangeCache, RangeKey};
use super::speculation::{Speculation, WHOLE_BYTES};
use super::traffic::{Counters, TransferStats};
use super::value::{RemoteObject, Value};
use super::{Depth, EarlyMeta, Get, Got, List, Meta, Page, Part, Remote, RequestError};
use crate::cache::SingleFlight;
use crate::runtime::{self, leave_session_thread};
use crate::store::{
    AccessHint, Capabilities, DiskCache, Extent, Key, Kind, Listing, ListingSupport, Object,
    Prefetch, Stat, Store, StoreError, Version,
};

/// What a store and its open objects share.
#[derive(Debug)]
pub(super) struct RemoteSource {
    pub(super) remote: Arc<dyn Remote>,
    pub(super) label: String,
    /// What tells the source from any other one, for the disk cache.
    pub(super) identity: String,
    pub(super) classes: crate::store::KeyClasses,
    /// Whether it lists; found out when it is opened.
    pub(super) can_list: AtomicBool,
    pub(super) timeout: Duration,
    /// Names and contents do not change: what is in the disk cache is right.
    pub(super) is_immutable: bool,
    pub(super) attrs: AttrCache,
    pub(super) listings: ListingCache,
    pub(super) ranges: RangeCache,
    pub(super) bodies: BodyBudget,
    pub(super) disk: Option<Arc<DiskCache>>,
    pub(super) counters: Arc<Counters>,
    pub(super) speculation: Speculation,
    /// Places for prefetches, half of `--parallel`: the others are for reads that wait.
    pub(super) prefetches: Semaphore,
    /// A key that was there when the source was opened: without it nothing is absent, all is gone.
    pub(super) anchor: OnceLock<Key>,
    /// When the source was changed, as far as it tells.
    pub(super) modified: OnceLock<SystemTime>,
    /// Attributes that are being asked for.
    pub(super) attr_loads: SingleFlight<Key, Attrs, StoreError>,
    /// Values, or their ends, that are being fetched; all of a value is [`WHOLE`].
    pub(super) value_loads: SingleFlight<(Key, Part), Value, StoreError>,
    /// Ranges that are being fetched.
    pub(super) range_loads: SingleFlight<RangeKey, Arc<Vec<u8>>, StoreError>,
}

/// Why a whole value is loaded.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A read waits for it.
    Read,
    /// A lookup waits for the headers of the answer.
    Lookup(EarlyMeta),
    /// A read will most likely follow.
    Prefetch,
}

/// Absence is believed for so long without looking whether the source itself is still there.
const ANCHOR_TTL: Duration = Duration::from_secs(1);
/// A load of a whole value, whatever its limit.
const WHOLE: Part = Part::All(u64::MAX);
/// A value that a lookup has begun to fetch is fetched for so long without a reader.
const READER_GRACE: Duration = Duration::from_secs(2);
/// Documents of metadata are not longer than this; a value that looks like one is fetched whole.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

impl RemoteSource {
    pub(super) fn can_list(&self) -> bool {
        self.can_list.load(Ordering::Relaxed)
    }

    pub(super) fn transfer_stats(&self) -> TransferStats {
        TransferStats {
            total: self.counters.total(),
            arrays: self.counters.by_prefix(),
            disk: self.disk.as_ref().map(|disk| disk.counters()),
            memory_bytes: self.ranges.bytes(),
        }
    }

    /// Reserves memory for a body of so many bytes that is copied once.
    pub(super) async fn reserve(&self, key: &Key, bytes: u64) -> Result<ReservedBody, StoreError> {
        let bytes = bytes.saturating_mul(2);
        let reserved = self.bodies.reserve(bytes, self.timeout).await;
        reserved.ok_or_else(|| StoreError::TimedOut {
            key: key.clone(),
            what: format!("memory for the answer ({:.1?})", self.timeout),
        })
    }

    /// The same for a prefetch; `None` if requests need the memory.
    pub(super) fn try_reserve_spare(&self, bytes: u64) -> Option<ReservedBody> {
        self.bodies.try_reserve_spare(bytes.saturating_mul(2))
    }

    /// Attributes of a prefix: it has none but that it is one.
    pub(super) fn prefix_stat(&self) -> Stat {
        let modified = self.modified.get().copied();
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            version: Version(0),
            links: 2,
        }
    }

    /// Sends a request; dropping the future cancels it.
    pub(super) async fn request_get(&self, get: Get) -> Result<Got, RequestError> {
        let remote = Arc::clone(&self.remote);
        let answer = runtime::on_network(async move { remote.get(&get).await });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    async fn request_head(&self, key: &Key) -> Result<Meta, RequestError> {
        let (remote, key) = (Arc::clone(&self.remote), key.clone());
        let answer = runtime::on_network(async move { remote.head(&key).await });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    async fn request_list(&self, list: List) -> Result<Page, RequestError> {
        let remote = Arc::clone(&self.remote);
        let answer = runtime::on_network(async move { remote.list(&list).await });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// One page of names.
    pub(super) async fn list(&self, list: List) -> Result<Page, StoreError> {
        let prefix = list.prefix.clone();
        let page = self.request_list(list).await;
        page.map_err(|error| error.of(&prefix))
    }

    /// Bytes of an object; the attributes in the answer are cached.
    pub(super) async fn get(&self, get: Get) -> Result<Got, RequestError> {
        let asked = Instant::now();
        let (key, is_expected) = (get.key.clone(), get.expected.is_some());
        let answer = self.request_get(get).await;
        match &answer {
            Ok(Got { meta, .. }) | Err(RequestError::TooLong(meta)) => {
                self.attrs.insert(&key, Attrs::Object(meta.clone()), asked);
            }
            Err(RequestError::IsPrefix) => self.attrs.insert(&key, Attrs::Prefix, asked),
            Err(RequestError::Changed(_)) => self.invalidate(&key),
            // It was there.
            Err(RequestError::NotFound) if is_expected => self.invalidate(&key),
            Err(_) => {}
        }
        answer
    }

    /// Forgets the attributes of a key.
    fn invalidate(&self, key: &Key) {
        self.attrs.invalidate(key);
        self.listings.invalidate(&key.parent());
    }

    /// Attributes that need no request.
    fn known(&self, key: &Key) -> Option<Attrs> {
        if key.is_root() {
            return Some(Attrs::Prefix);
        }
        let is_settled = self.classes.is_document(key);
        let attrs = self.attrs.get(key);
        attrs.or_else(|| self.listings.find(key, is_settled))
    }

    /// Attributes of a key.
    pub(super) async fn attrs(self: &Arc<Self>, key: &Key) -> Result<Attrs, StoreError> {
        if let Some(attrs) = self.known(key) {
            return Ok(attrs);
        }
        if self.is_immutable && self.disk.is_some() {
            leave_session_thread().await;
            if let Some(meta) = self.last_on_disk(key) {
                self.attrs
                    .insert(key, Attrs::Object(meta.clone()), Instant::now());
                return Ok(Attrs::Object(meta));
            }
        }
        let (own, wanted) = (Arc::clone(self), key.clone());
        let load = move || async move { own.load_attrs(&wanted).await };
        self.attr_loads.run(key.clone(), load, panicked()).await
    }

    async fn load_attrs(self: Arc<Self>, key: &Key) -> Result<Attrs, StoreError> {
        if self.classes.is_document(key) {
            // The caller will most likely read it.
            return match self.whole(key, MAX_DOCUMENT_BYTES).await {
                Ok(value) => Ok(Attrs::Object(value.meta)),
                Err(StoreError::NotFound { .. }) => Ok(Attrs::Absent),
                Err(StoreError::NotAPrefix { .. }) => Ok(Attrs::Prefix),
                Err(error) => Err(error),
            };
        }
        let asked = Instant::now();
        let (object, page) = match self.can_list() {
            true => {
                let head = async { self.head(key).await.map_err(|error| error.of(key)) };
                let (object, page) = join(head, self.has_names(key)).await;
                (object, Some(page))
            }
            false => (self.object_attrs(key).await, None),
        };
        let (is_prefix, refusal) = match page {
            Some(Ok(has_names)) => (has_names, None),
            // A user without the right to list may still read.
            Some(Err(error @ (RequestError::Denied(_) | RequestError::Expired(_)))) => {
                (false, Some(error))
            }
            None => (false, None),
            Some(Err(error)) => return Err(error.of(key)),
        };
        let attrs = match (object, refusal) {
            _ if is_prefix => Attrs::Prefix,
            (Ok(meta), _) => Attrs::Object(meta),
            (Err(StoreError::NotAPrefix { .. }), _) => Attrs::Prefix,
            (Err(StoreError::NotFound { .. }), Some(refusal)) => return Err(refusal.of(key)),
            (Err(StoreError::NotFound { .. }), None) => {
                self.check_anchor(key).await?;
                Attrs::Absent
            }
            (Err(error), _) => return Err(error),
        };
        self.attrs.insert(key, attrs.clone(), asked);
        Ok(attrs)
    }

    /// Attributes of an object of a source without listings, from the headers of an answer that brings its
    /// value, too, if a read will most likely follow.
    async fn object_attrs(self: &Arc<Self>, key: &Key) -> Result<Meta, StoreError> {
        let limit = self.speculation.lookup_limit();
        let reserved = limit.and_then(|limit| Some((limit, self.try_reserve_spare(limit)?)));
        let Some((limit, reserved)) = reserved else {
            let meta = self.head(key).await.map_err(|error| error.of(key))?;
            self.speculation.observe_size(meta.size_bytes);
            return Ok(meta);
        };
        let (own, wanted) = (Arc::clone(self), key.clone());
        let (early, headers) = EarlyMeta::new();
        let (done, end) = oneshot::channel();
        let fetch = runtime::spawn(async move {
            let lookup = Purpose::Lookup(early);
            let value = own.load_whole(&wanted, limit, lookup).await;
            drop(reserved);
            // The lookup may have been answered by the headers.
            let _ = done.send(value.map(|value| value.meta));
        });
        let meta = match select(headers, end).await {
            Either::Left((Ok(meta), _)) => {
                // The value comes while the caller opens it.
                runtime::spawn(async move {
                    runtime::timeout(READER_GRACE, fetch).await;
                })
                .detach();
                meta
            }
            Either::Left((Err(_), end)) => end.await.unwrap_or_else(|_| Err(panicked()))?,
            Either::Right((end, _)) => end.unwrap_or_else(|_| Err(panicked()))?,
        };
        self.speculation.observe_size(meta.size_bytes);
        Ok(meta)
    }

    /// Notes the first read of an opened value.
    pub(super) fn note_read(&self, key: &Key, bytes: u64) {
        if let Some(bytes) = self.speculation.read(key, bytes) {
            self.counters.prefetch_read(key, bytes);
        }
    }

    /// The largest value that is fetched whole and cached.
    pub(super) fn whole_limit(&self) -> u64 {
        WHOLE_BYTES.min(self.ranges.budget_bytes() / 4)
    }

    /// Attributes of an object. A size of 0 is believed only if GET brings nothing, too: some servers
    /// answer every HEAD with `Content-Length: 0`.
    async fn head(&self, key: &Key) -> Result<Meta, RequestError> {
        let meta = self.request_head(key).await?;
        if meta.size_bytes > 0 {
            return Ok(meta);
        }
        let first_byte = Get::new(key, Part::Range(0..1));
        match self.request_get(first_byte).await {
            Ok(got) => Ok(got.meta),
            Err(RequestError::NoSuchRange) => Ok(meta),
            Err(error) => Err(error),
        }
    }

    /// Whether there are keys below a prefix: the first pages can be empty.
    async fn has_names(&self, prefix: &Key) -> Result<bool, RequestError> {
        let mut list = List {
            prefix: prefix.clone(),
            depth: Depth::All,
            page: None,
            after: None,
            most: Some(1),
        };
        for _ in 0..MAX_EMPTY_PAGES {
            let page = self.request_list(list.clone()).await?;
            if !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(true);
            }
            match page.next {
                None => return Ok(false),
                next => list.page = next,
            }
        }
        let what = "the listing has page after page without a name";
        Err(RequestError::lasting(what))
    }

    /// Fails if the source itself is gone, so that its keys are not taken for absent.
    async fn check_anchor(self: &Arc<Self>, key: &Key) -> Result<(), StoreError> {
        let Some(anchor) = self.anchor.get().filter(|anchor| *anchor != key) else {
            return Ok(());
        };
        if self.attrs.is_fresh(anchor, ANCHOR_TTL) {
            return Ok(());
        }
        let gone = |key: &Key, anchor: &Key| StoreError::Unavailable {
            key: key.clone(),
            what: format!("not there, and neither is {anchor}: the whole source is gone"),
        };
        let (own, wanted, about) = (Arc::clone(self), anchor.clone(), key.clone());
        let load = move || async move {
            let asked = Instant::now();
            match own.head(&wanted).await {
                Ok(meta) => {
                    // Another content is still there; what is cached of it is older.
                    match own.attrs.last(&wanted) {
                        Some(last) if !last.is_same(&meta) => own.attrs.invalidate(&wanted),
                        _ => {}
                    }
                    let attrs = Attrs::Object(meta);
                    own.attrs.insert(&wanted, attrs.clone(), asked);
                    Ok(attrs)
                }
                Err(RequestError::NotFound) => Err(gone(&about, &wanted)),
                Err(error) => Err(error.of(&about)),
            }
        };
        match self
            .attr_loads
            .run(anchor.clone(), load, panicked())
            .await?
        {
            Attrs::Object(_) => Ok(()),
            // Another load has asked for it, and it is not there.
            Attrs::Prefix | Attrs::Absent => Err(gone(key, anchor)),
        }
    }

    /// Fails for a key that is known not to be an object; returns its attributes if they are known.
    fn known_object(&self, key: &Key) -> Result<Option<Meta>, StoreError> {
        match self.known(key) {
            Some(Attrs::Absent) => Err(StoreError::NotFound { key: key.clone() }),
            Some(Attrs::Prefix) => Err(StoreError::NotAPrefix { key: key.clone() }),
            Some(Attrs::Object(meta)) => Ok(Some(meta)),
            None => Ok(None),
        }
    }

    /// A whole value of at most `at_most` bytes; only its attributes, if it is longer.
    pub(super) async fn whole(
        self: &Arc<Self>,
        key: &Key,
        at_most: u64,
    ) -> Result<Value, StoreError> {
        if let Some(meta) = self.known_object(key)? {
            if meta.size_bytes > at_most {
                return Ok(Value { meta, bytes: None });
            }
            if let Some(bytes) = self.cached(key, &meta, &(0..meta.size_bytes)) {
                self.counters.hit(key);
                self.note_read(key, meta.size_bytes);
                let bytes = Some(bytes);
                return Ok(Value { meta, bytes });
            }
        }
        let value = self.load_whole(key, at_most, Purpose::Read).await?;
        self.note_read(key, value.meta.size_bytes);
        Ok(value)
    }

    /// As [`RemoteSource::whole`], without a look at what is known. A load that is in flight already
    /// keeps its own purpose.
    pub(super) async fn load_whole(
        self: &Arc<Self>,
        key: &Key,
        at_most: u64,
        purpose: Purpose,
    ) -> Result<Value, StoreError> {
        let load = |purpose| {
            let (own, wanted) = (Arc::clone(self), key.clone());
            async move { own.fetch_whole(&wanted, at_most, purpose).await }
        };
        let place = || (key.clone(), WHOLE);
        let first = self.value_loads.run(place(), || load(purpose), panicked());
        let value = first.await?;
        if value.bytes.is_some() || value.meta.size_bytes > at_most {
            return Ok(value);
        }
        // That load had a smaller limit.
        load(Purpose::Read).await
    }

    async fn fetch_whole(
        self: Arc<Self>,
        key: &Key,
        at_most: u64,
        purpose: Purpose,
    ) -> Result<Value, StoreError> {
        // Another load may have ended since the caller looked.
        if let Some(Attrs::Object(meta)) = self.known(key)
            && let Some(bytes) = self.in_memory(key, &meta, &(0..meta.size_bytes))
        {
            let bytes = Some(bytes);
            return Ok(Value { meta, bytes });
        }
        let is_speculative = !matches!(purpose, Purpose::Read);
        let mut get = Get::new(key, Part::All(at_most));
        if let Purpose::Lookup(early) = purpose {
            get.early = Some(early);
        }
        let is_lookup = get.early.is_some();
        let last = self.attrs.last(key).or_else(|| self.last_on_disk(key));
        let last = last.filter(|meta| self.is_immutable || meta.etag.is_some());
        let cached = last.and_then(|meta| {
            let bytes = self.cached(key, &meta, &(0..meta.size_bytes))?;
            Some((meta, bytes))
        });
        let asked = Instant::now();
        if let (true, Some((meta, bytes))) = (self.is_immutable, &cached) {
            self.attrs.insert(key, Attrs::Object(meta.clone()), asked);
            self.counters.hit(key);
            let (meta, bytes) = (meta.clone(), Some(Arc::clone(bytes)));
            return Ok(Value { meta, bytes });
        }
        get.known = cached.as_ref().map(|(meta, _)| meta.clone());
        match (self.get(get).await, cached) {
            (Ok(got), _) => {
                let bytes = Arc::new(got.bytes);
                self.insert(key, &got.meta, 0, &bytes);
                // Before any reader has the value.
                if is_speculative {
                    self.counters.prefetched(key, bytes.len() as u64);
                    self.speculation.insert_unread(key, bytes.len() as u64);
                }
                if is_lookup {
                    self.speculation.charge(bytes.len() as u64);
                }
                Ok(Value {
                    meta: got.meta,
                    bytes: Some(bytes),
                })
            }
            (Err(RequestError::NotModified), Some((meta, bytes))) => {
                self.attrs.insert(key, Attrs::Object(meta.clone()), asked);
                self.counters.hit(key);
                let bytes = Some(bytes);
                Ok(Value { meta, bytes })
            }
            (Err(RequestError::TooLong(meta)), _) => Ok(Value { meta, bytes: None }),
            // The value may be readable in parts.
            (Err(RequestError::Failed(failed)), _) if is_lookup && !failed.is_transient => {
                let meta = self.head(key).await.map_err(|error| error.of(key))?;
                Ok(Value { meta, bytes: None })
            }
            (Err(error), _) => Err(self.absent_or(key, error, asked).await),
        }
    }

    /// Fetches a value that a read will most likely ask for; returns whether there was memory for it.
    async fn prefetch_value(self: &Arc<Self>, key: &Key) -> bool {
        let limit = match self.known(key) {
            Some(Attrs::Object(meta)) => {
                let is_cached = || self.in_memory(key, &meta, &(0..meta.size_bytes)).is_some();
                if meta.size_bytes > self.whole_limit() || is_cached() {
                    return true;
                }
                meta.size_bytes
            }
            Some(Attrs::Prefix | Attrs::Absent) => return true,
            None if self.can_list() => return true,
            None => match self.speculation.limit() {
                Some(limit) => limit.min(self.whole_limit()),
                None => return true,
            },
        };
        let Ok(_turn) = self.prefetches.acquire().await else {
            return false;
        };
        let is_full = self.speculation.unread_bytes() > self.ranges.budget_bytes() / 4;
        let reserved = (!is_full).then(|| self.try_reserve_spare(limit)).flatten();
        let Some(_reserved) = reserved else {
            return false;
        };
        match self.load_whole(key, limit, Purpose::Prefetch).await {
            Ok(value) => {
                self.speculation.observe_size(value.meta.size_bytes);
                true
            }
            // Another key may be there.
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => true,
            // A read of the key asks again, and returns the error.
            Err(_) => false,
        }
    }

    /// The error of a failed request for an object; absence is proven and cached.
    async fn absent_or(
        self: &Arc<Self>,
        key: &Key,
        error: RequestError,
        asked: Instant,
    ) -> StoreError {
        if let RequestError::NotFound = error {
            if let Err(gone) = self.check_anchor(key).await {
                return gone;
            }
            self.attrs.insert(key, Attrs::Absent, asked);
        }
        error.of(key)
    }

    /// Attributes of a value; its last bytes are cached.
    async fn tail(self: &Arc<Self>, key: &Key, bytes: u64) -> Result<Meta, StoreError> {
        if let Some(meta) = self.known_object(key)? {
            return Ok(meta);
        }
        let (own, wanted) = (Arc::clone(self), key.clone());
        let load = move || async move { own.fetch_tail(&wanted, bytes).await };
        let place = (key.clone(), Part::Tail(bytes));
        let value = self.value_loads.run(place, load, panicked()).await?;
        Ok(value.meta)
    }

    /// Attributes and the last bytes of a value.
    pub(super) async fn fetch_tail(
        self: Arc<Self>,
        key: &Key,
        bytes: u64,
    ) -> Result<Value, StoreError> {
        let asked = Instant::now();
        let mut get = Get::new(key, Part::Tail(bytes));
        let last = self.attrs.last(key).or_else(|| self.last_on_disk(key));
        let last = last.filter(|meta| self.is_immutable || meta.etag.is_some());
        let cached = last.and_then(|meta| {
            let tail = meta.size_bytes.saturating_sub(bytes)..meta.size_bytes;
            let bytes = Some(self.cached(key, &meta, &tail)?);
            Some(Value { meta, bytes })
        });
        get.known = cached.as_ref().map(|value| value.meta.clone());
        let answer = match (self.is_immutable, &cached) {
            (true, Some(_)) => Err(RequestError::NotModified),
            _ => self.get(get).await,
        };
        match (answer, cached) {
            (Err(RequestError::NotModified), Some(value)) => {
                let attrs = Attrs::Object(value.meta.clone());
                self.attrs.insert(key, attrs, asked);
                self.counters.hit(key);
                Ok(value)
            }
            (Ok(got), _) => {
                let bytes = Arc::new(got.bytes);
                self.insert(key, &got.meta, got.start, &bytes);
                let (meta, bytes) = (got.meta, Some(bytes));
                Ok(Value { meta, bytes })
            }
            (Err(error), _) => Err(self.absent_or(key, error, asked).await),
        }
    }
}

/// The network runtime has ended, or a request panicked.
fn ended() -> RequestError {
    RequestError::lasting("the request was not completed")
}

pub(super) fn panicked() -> StoreError {
    StoreError::internal("a panic while a request was sent")
}

/// A remote tree of keys.
#[derive(Debug)]
pub(super) struct RemoteStore {
    pub(super) source: Arc<RemoteSource>,
}

impl RemoteStore {
    fn object(&self, key: &Key, value: Value, is_exact: bool) -> Arc<dyn Object> {
        Arc::new(RemoteObject::new(&self.source, key, value, is_exact))
    }

    fn stat_of(&self, key: &Key, attrs: Attrs) -> Result<Stat, StoreError> {
        match attrs {
            Attrs::Prefix => Ok(self.source.prefix_stat()),
            Attrs::Object(meta) => Ok(meta.stat()),
            Attrs::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }
}

#[async_trait]
impl Store for RemoteStore {
    fn label(&self) -> &str {
        &self.source.label
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: true,
            listing: match self.source.can_list() {
                true => ListingSupport::Complete,
                false => ListingSupport::BestEffort,
            },
        }
    }

    fn extent(&self) -> Extent {
        Extent::default()
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.stat_of(key, self.source.attrs(key).await?)
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        Some(self.stat_of(key, self.source.known(key)?))
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let value = match hint {
            AccessHint::Ranges => {
                let meta = match self.source.attrs(key).await? {
                    Attrs::Object(meta) => meta,
                    Attrs::Prefix => return Err(StoreError::NotAPrefix { key: key.clone() }),
                    Attrs::Absent => return Err(StoreError::NotFound { key: key.clone() }),
                };
                return Ok(self.object(key, Value { meta, bytes: None }, false));
            }
            AccessHint::Whole(at_most) => self.source.whole(key, at_most).await?,
            AccessHint::Tail(bytes) => Value {
                meta: self.source.tail(key, bytes).await?,
                bytes: None,
            },
        };
        Ok(self.object(key, value, true))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        if !prefix.is_root() {
            let key = prefix.clone();
            match self.source.known(prefix) {
                Some(Attrs::Object(_)) => return Err(StoreError::NotAPrefix { key }),
                Some(Attrs::Absent) => return Err(StoreError::NotFound { key }),
                _ => {}
            }
        }
        let listing = RemoteListing::open(&self.source, prefix).await?;
        Ok(Box::new(listing))
    }

    async fn invalidate(&self, key: &Key) {
        self.source.invalidate(key);
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match what {
            Prefetch::Value => self.source.prefetch_value(key).await,
            Prefetch::Attributes if self.source.speculation.is_credit_used_up() => {
                self.source.attrs(key).await.is_ok()
            }
            Prefetch::Attributes => false,
        }
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(self.source.transfer_stats())
    }
}
