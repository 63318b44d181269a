//! A remote tree of keys as a [`Store`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::bytes::speculation::Speculation;
use super::bytes::value::{FetchedValue, RemoteObject};
use super::known::attr_cache::{AttrCache, Attrs, CachedAttrs};
use super::known::listing::{ListingCache, RemoteListing};
use super::known::revalidate::AsOf;
use super::known::write_times::DocumentWriteTimes;
use super::memory::{BodyBudget, ReservedBody};
use super::memory::{RangeCache, RangeKey};
use super::request::transfer_stats::{Counters, ServerClock, TransferStats};
use crate::cache::SingleFlight;
use crate::runtime;
use crate::store::remote::request::{ByteRange, Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::{
    AccessHint, Capabilities, DiskCache, Freshness, Key, KeyClasses, Kind, Listing, ListingSupport,
    Object, Prefetch, SourceInfo, Stat, Store, StoreError, Version,
};

/// State that a store and its open objects share.
#[derive(Debug)]
pub(super) struct RemoteSource {
    pub(super) remote: Arc<dyn Remote>,
    /// Identifies the source in a range cache that several sources share.
    pub(super) number: u64,
    pub(super) label: String,
    /// Identifies the source in the disk cache.
    pub(super) identity: String,
    pub(super) classes: KeyClasses,
    /// Whether all keys below a prefix can be listed; determined when the source is opened.
    pub(super) can_list: AtomicBool,
    /// Whether directories can be listed completely, one at a time.
    pub(super) lists_directories: bool,
    pub(super) timeout: Duration,
    /// Whether values are always fetched whole, because no request returns a part of a known version.
    pub(super) reads_whole: bool,
    /// The clock of the source.
    pub(super) clock: Arc<ServerClock>,
    /// Whether names and contents never change, so that the disk cache is always valid.
    pub(super) is_immutable: bool,
    pub(super) attrs: AttrCache,
    pub(super) write_times: DocumentWriteTimes,
    pub(super) listings: ListingCache,
    pub(super) ranges: Arc<RangeCache>,
    pub(super) body_budget: Arc<BodyBudget>,
    pub(super) disk: Option<Arc<DiskCache>>,
    pub(super) counters: Arc<Counters>,
    pub(super) speculation: Speculation,
    /// Permits for prefetches, half of `--parallel`: the other half is for reads that wait.
    pub(super) prefetches: Arc<Semaphore>,
    /// Permits for lookups that also fetch the value, half of `--parallel`: the other half is for requests
    /// that return only names and attributes.
    pub(super) value_lookups: Arc<Semaphore>,
    /// A metadata document at the root that existed when the source was opened. If it is gone, the source is
    /// gone, and the absence of other keys is not proven.
    pub(super) root_document: OnceLock<Key>,
    /// When the source was changed, as far as it reports that.
    pub(super) modified: OnceLock<SystemTime>,
    /// Loads of attributes in flight.
    pub(super) attr_loads: SingleFlight<Key, Attrs, StoreError>,
    /// Requests in flight for attributes that are cached but have to be more recent.
    pub(super) revalidations: SingleFlight<Key, CachedAttrs, StoreError>,
    /// Listings in flight that are requested again.
    pub(super) repeated_listings: SingleFlight<Key, (), StoreError>,
    /// Loads of values, or of their ends, in flight; the key of a whole value is `whole_objects::WHOLE`.
    pub(super) value_loads: SingleFlight<(Key, ByteRange), FetchedValue, StoreError>,
    /// Loads of ranges in flight.
    pub(super) range_loads: SingleFlight<RangeKey, Arc<Vec<u8>>, StoreError>,
}

impl RemoteSource {
    pub(super) fn can_list(&self) -> bool {
        self.can_list.load(Ordering::Relaxed)
    }

    /// Whether listings have all existing names.
    pub(super) fn lists_completely(&self) -> bool {
        self.can_list() || self.lists_directories
    }

    pub(super) fn transfer_stats(&self) -> TransferStats {
        TransferStats {
            total: self.counters.total(),
            arrays: self.counters.by_prefix(),
            disk: self.disk.as_ref().map(|disk| disk.counters()),
            memory_bytes: self.ranges.bytes(),
        }
    }

    /// Reserves memory for a body of `bytes` bytes that is copied once.
    pub(super) async fn reserve(&self, key: &Key, bytes: u64) -> Result<ReservedBody, StoreError> {
        let bytes = bytes.saturating_mul(2);
        let reserved = self.body_budget.reserve(bytes, self.timeout).await;
        reserved.ok_or_else(|| StoreError::TimedOut {
            key: key.clone(),
            what: format!("memory for the answer ({:.1?})", self.timeout),
        })
    }

    /// As [`RemoteSource::reserve`], for a prefetch; `None` if requests need the memory.
    pub(super) fn try_reserve_spare(&self, bytes: u64) -> Option<ReservedBody> {
        self.body_budget.try_reserve_spare(bytes.saturating_mul(2))
    }

    /// Returns the attributes of a prefix, which are the same for all prefixes.
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
        let response = runtime::on_network(async move { remote.get(&get).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    pub(super) async fn request_head(&self, key: &Key) -> Result<Meta, RequestError> {
        let (remote, key) = (Arc::clone(&self.remote), key.clone());
        let response = runtime::on_network(async move { remote.head(&key).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    pub(super) async fn request_list(&self, list: List) -> Result<Page, RequestError> {
        let remote = Arc::clone(&self.remote);
        let response = runtime::on_network(async move { remote.list(&list).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Requests one page of names.
    pub(super) async fn list(&self, list: List) -> Result<Page, StoreError> {
        let prefix = list.prefix.clone();
        let page = self.request_list(list).await;
        page.map_err(|error| error.of(&prefix))
    }

    /// Requests bytes of an object, and caches the attributes in the response.
    pub(super) async fn get(&self, get: Get) -> Result<Got, RequestError> {
        let requested_at = Instant::now();
        let (key, is_expected) = (get.key.clone(), get.expected.is_some());
        let response = self.request_get(get).await;
        match &response {
            Ok(Got { meta, .. }) | Err(RequestError::TooLong(meta)) => {
                self.cache_attrs(
                    &key,
                    CachedAttrs::new(Attrs::Object(meta.clone()), requested_at),
                );
            }
            Err(RequestError::IsPrefix) => {
                self.cache_attrs(&key, CachedAttrs::new(Attrs::Prefix, requested_at));
            }
            Err(RequestError::Changed(_)) => self.invalidate(&key),
            // The object existed before, so its cached attributes are wrong.
            Err(RequestError::NotFound) if is_expected => self.invalidate(&key),
            Err(_) => {}
        }
        response
    }

    /// Drops the cached attributes of a key.
    pub(super) fn invalidate(&self, key: &Key) {
        self.attrs.invalidate(key);
        self.listings.invalidate(&key.parent());
    }
}

/// The error after the network runtime has ended, or a request has panicked.
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
    fn object(&self, key: &Key, value: FetchedValue, is_exact: bool) -> Arc<dyn Object> {
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
impl Freshness for RemoteStore {
    async fn stat_after(
        &self,
        document: &Key,
        version: Version,
        values: &[Key],
    ) -> Result<Stat, StoreError> {
        let stat = |attrs| self.stat_of(document, attrs);
        if values.is_empty() {
            return stat(self.source.attrs_as_of(document, AsOf::Now).await?);
        }
        // One request is enough for all values.
        let answered = Instant::now();
        let mut found = None;
        for value in values {
            let as_of = AsOf::Answer(value, answered);
            let own = stat(self.source.attrs_as_of(document, as_of).await?)?;
            if own.version != version {
                return Ok(own);
            }
            found = Some(own);
        }
        found.ok_or_else(|| StoreError::internal("a document that was not checked"))
    }

    fn drop_older(&self, value: &Key, document: &Key) -> bool {
        self.source.invalidate_before(value, document)
    }

    async fn drop_value(&self, value: &Key) {
        self.source.invalidate(value);
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
            listing: match self.source.lists_completely() {
                true => ListingSupport::Complete,
                false => ListingSupport::BestEffort,
            },
            joins_prefetches: false,
            lists_without_requests: false,
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.stat_of(key, self.source.attrs(key).await?)
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        Some(self.stat_of(key, self.source.cached_attrs(key)?))
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.source.speculation.opened();
        let value = match hint {
            AccessHint::Tail(_) if self.source.reads_whole => {
                let limit = self.source.whole_limit();
                self.source.read_whole(key, limit).await?
            }
            AccessHint::Ranges => {
                let meta = match self.source.attrs(key).await? {
                    Attrs::Object(meta) => meta,
                    Attrs::Prefix => return Err(StoreError::NotAPrefix { key: key.clone() }),
                    Attrs::Absent => return Err(StoreError::NotFound { key: key.clone() }),
                };
                return Ok(self.object(key, FetchedValue { meta, bytes: None }, false));
            }
            AccessHint::Whole(at_most) => self.source.read_whole(key, at_most).await?,
            AccessHint::Tail(bytes) => FetchedValue {
                meta: self.source.tail(key, bytes).await?,
                bytes: None,
            },
        };
        Ok(self.object(key, value, !self.source.reads_whole))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        if !prefix.is_root() {
            let key = prefix.clone();
            match self.source.cached_attrs(prefix) {
                Some(Attrs::Object(_)) => return Err(StoreError::NotAPrefix { key }),
                // A web server can have no value at a key, and a page for the directory: `rclone serve http` answers
                // 404 without a slash at the end.
                Some(Attrs::Absent) if self.source.lists_completely() => {
                    return Err(StoreError::NotFound { key });
                }
                _ => {}
            }
        }
        let listing = RemoteListing::open(&self.source, prefix).await?;
        Ok(Box::new(listing))
    }

    fn freshness(&self) -> Option<&dyn Freshness> {
        Some(self)
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match what {
            Prefetch::Value => self.source.prefetch_value(key).await,
            Prefetch::Attributes if self.source.speculation.is_stat_only() => {
                self.source.attrs(key).await.is_ok()
            }
            Prefetch::Attributes => false,
        }
    }
}

impl SourceInfo for RemoteStore {
    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(self.source.transfer_stats())
    }
}
