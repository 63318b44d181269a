//! Whole values, and their last bytes: cached, or fetched once for all waiting callers.

use std::ops::Range;
use std::sync::Arc;

use super::KnownBytes;
use crate::clock::Instant;
use crate::store::remote::known::{Attrs, CachedAttrs};
use crate::store::remote::request::{ByteRange, EarlyMeta, Get, Meta, RequestError, panicked};
use crate::store::{Key, StoreError};

/// The content of a response.
#[derive(Debug, Clone)]
pub(in crate::store::remote) struct FetchedValue {
    pub(in crate::store::remote) meta: Meta,
    /// The whole value, if it was requested and is not too long.
    pub(in crate::store::remote) bytes: Option<Arc<Vec<u8>>>,
}

/// The reason why a whole value is loaded.
#[derive(Debug)]
pub(in crate::store::remote) enum LoadPurpose {
    /// A read waits for the value.
    Read,
    /// A lookup waits for the headers of the response.
    Lookup(EarlyMeta),
    /// A read will most likely follow.
    Prefetch,
}

/// Bytes of a value, and where they are from.
enum Loaded {
    /// A response.
    Fetched(FetchedValue),
    /// A cache; the source has the same version.
    Confirmed(FetchedValue),
}

/// The range that identifies a load of a whole value, whatever its limit.
const WHOLE: ByteRange = ByteRange::Whole(u64::MAX);

impl KnownBytes {
    /// Returns a whole value of at most `at_most` bytes; for a longer value, only its attributes.
    pub(in crate::store::remote) async fn read_whole(
        self: &Arc<Self>,
        key: &Key,
        at_most: u64,
    ) -> Result<FetchedValue, StoreError> {
        if let Some(attrs) = self.names.cached_or_listed(key).await {
            let meta = attrs.into_object(key)?;
            if meta.size_bytes > at_most {
                return Ok(FetchedValue { meta, bytes: None });
            }
            if let Some(bytes) = self.cached(key, &meta, &(0..meta.size_bytes)) {
                self.requests.counters().hit(key);
                self.record_read(key, 0, meta.size_bytes);
                let bytes = Some(bytes);
                return Ok(FetchedValue { meta, bytes });
            }
        }
        let value = self.load_whole(key, at_most, LoadPurpose::Read).await?;
        self.record_read(key, 0, value.meta.size_bytes);
        Ok(value)
    }

    /// As [`KnownBytes::read_whole`], without checking the caches first. A load that is already in flight keeps
    /// its own purpose.
    pub(in crate::store::remote) async fn load_whole(
        self: &Arc<Self>,
        key: &Key,
        at_most: u64,
        purpose: LoadPurpose,
    ) -> Result<FetchedValue, StoreError> {
        let load = |purpose| {
            let (own, wanted) = (Arc::clone(self), key.clone());
            async move { own.fetch_whole(&wanted, at_most, purpose).await }
        };
        let place = || (key.clone(), WHOLE);
        let is_enough =
            |value: &FetchedValue| value.bytes.is_some() || value.meta.size_bytes > at_most;
        let first = self.value_loads.run(place(), || load(purpose), panicked());
        let value = first.await?;
        if is_enough(&value) {
            return Ok(value);
        }
        // The shared load had a smaller limit, or was a lookup. All that waited for it share the next one.
        let read = || load(LoadPurpose::Read);
        let value = self.value_loads.run(place(), read, panicked()).await?;
        match is_enough(&value) {
            true => Ok(value),
            false => read().await,
        }
    }

    async fn fetch_whole(
        self: Arc<Self>,
        key: &Key,
        at_most: u64,
        purpose: LoadPurpose,
    ) -> Result<FetchedValue, StoreError> {
        // Another load may have ended since the caller checked.
        if let Some(Attrs::Object(meta)) = self.names.cached(key)
            && let Some(bytes) = self.in_memory(key, &meta, &(0..meta.size_bytes))
        {
            let bytes = Some(bytes);
            return Ok(FetchedValue { meta, bytes });
        }
        let is_prefetched = !matches!(purpose, LoadPurpose::Read);
        let arriving = self.arriving.begin(key);
        let mut get = Get::new(key, ByteRange::Whole(at_most));
        get.arrival = Some(Arc::clone(&arriving.arrival));
        if let LoadPurpose::Lookup(early) = purpose {
            get.early = Some(early);
        }
        let is_lookup = get.early.is_some();
        let bytes = at_most.min(self.whole_limit());
        let fetch_guard = match is_lookup {
            true => self.disk.try_fetch_guard(&[key.as_bytes()], bytes),
            false => Some(self.disk.fetch_guard(&[key.as_bytes()], bytes).await),
        };
        let Some(fetch_guard) = fetch_guard else {
            // A lookup does not wait for a value; the read that follows may wait.
            let meta = self
                .requests
                .meta(key)
                .await
                .map_err(|error| error.of(key))?;
            get.headers_received(&meta);
            return Ok(FetchedValue { meta, bytes: None });
        };
        if fetch_guard.has_waited
            && let Some(Attrs::Object(meta)) = self.names.cached(key)
            && let Some(bytes) = self.cached(key, &meta, &(0..meta.size_bytes))
        {
            self.requests.counters().hit(key);
            let bytes = Some(bytes);
            return Ok(FetchedValue { meta, bytes });
        }
        match self
            .get_unless_current(get, |meta| 0..meta.size_bytes)
            .await
        {
            Ok(Loaded::Fetched(value)) => {
                let bytes = value.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                // Recorded before any reader gets the value.
                if is_prefetched {
                    self.record_prefetched(key, 0, bytes);
                }
                if is_lookup {
                    self.speculation.charge(bytes);
                }
                Ok(value)
            }
            Ok(Loaded::Confirmed(value)) => Ok(value),
            Err((error, requested_at)) if is_lookup => {
                self.refused_lookup(key, error, requested_at).await
            }
            Err((RequestError::TooLong(meta), _)) => Ok(FetchedValue { meta, bytes: None }),
            Err((error, requested_at)) => Err(self.names.absent_or(key, error, requested_at).await),
        }
    }

    /// Returns the result of a lookup whose request for the whole value has failed.
    async fn refused_lookup(
        self: &Arc<Self>,
        key: &Key,
        error: RequestError,
        requested_at: Instant,
    ) -> Result<FetchedValue, StoreError> {
        match error {
            RequestError::TooLong(meta) => Ok(FetchedValue { meta, bytes: None }),
            // The value may still be readable in parts.
            RequestError::Failed(failed) if !failed.is_transient => {
                let meta = self
                    .requests
                    .meta(key)
                    .await
                    .map_err(|error| error.of(key))?;
                Ok(FetchedValue { meta, bytes: None })
            }
            // The key has no value, but it may be a prefix; the lookup checks that.
            RequestError::NotFound => {
                self.names.check_source_exists(key, Instant::now()).await?;
                Err(RequestError::NotFound.of(key))
            }
            error => Err(self.names.absent_or(key, error, requested_at).await),
        }
    }

    /// Requests bytes of a value, unless the same range of its last version is cached and still current: that of an
    /// immutable source is, and another source confirms it by the ETag. `range` returns the wanted range of a version.
    ///
    /// # Errors
    /// The failure of the request, and when it was sent.
    async fn get_unless_current(
        &self,
        mut get: Get,
        range: impl Fn(&Meta) -> Range<u64>,
    ) -> Result<Loaded, (RequestError, Instant)> {
        let key = get.key.clone();
        let is_immutable = self.identity.is_immutable();
        let last = self.names.last_meta(&key);
        let last = last.or_else(|| self.disk.last_meta(&key));
        let last = last.filter(|meta| is_immutable || meta.etag.is_some());
        let cached = last.and_then(|meta| {
            let bytes = Some(self.cached(&key, &meta, &range(&meta))?);
            Some(FetchedValue { meta, bytes })
        });
        let requested_at = Instant::now();
        let response = match &cached {
            Some(_) if is_immutable => Err(RequestError::NotModified),
            _ => {
                get.cached = cached.as_ref().map(|value| value.meta.clone());
                self.names.get(get).await
            }
        };
        match (response, cached) {
            (Ok(got), _) => {
                let bytes = Arc::new(got.bytes.into_bytes());
                self.insert(&key, &got.meta, got.start, &bytes);
                let (meta, bytes) = (got.meta, Some(bytes));
                Ok(Loaded::Fetched(FetchedValue { meta, bytes }))
            }
            (Err(RequestError::NotModified), Some(value)) => {
                let current = Attrs::Object(value.meta.clone());
                let current = CachedAttrs::new(current, requested_at);
                self.names.insert(&key, current);
                self.requests.counters().hit(&key);
                Ok(Loaded::Confirmed(value))
            }
            (Err(error), _) => Err((error, requested_at)),
        }
    }

    /// Fetches a value that will most likely be read; returns whether memory was available.
    pub(in crate::store::remote) async fn prefetch_value(self: &Arc<Self>, key: &Key) -> bool {
        let limit = match self.names.cached(key) {
            Some(Attrs::Object(meta)) => {
                let is_cached = || self.in_memory(key, &meta, &(0..meta.size_bytes)).is_some();
                if meta.size_bytes > self.whole_limit() || is_cached() {
                    return true;
                }
                meta.size_bytes
            }
            Some(Attrs::Prefix | Attrs::Absent) => return true,
            None if self.names.can_list() => return true,
            None => match self.speculation.limit() {
                Some(limit) => limit.min(self.whole_limit()),
                None => return true,
            },
        };
        let Some(_permit) = self.requests.prefetch_permit().await else {
            return false;
        };
        let Some(_reserved) = self.try_reserve_ahead(limit) else {
            return false;
        };
        match self.load_whole(key, limit, LoadPurpose::Prefetch).await {
            Ok(value) => {
                self.speculation.observe_size(value.meta.size_bytes);
                true
            }
            // Other keys may exist.
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => true,
            // A read of the key sends a request again, and returns the error.
            Err(_) => false,
        }
    }

    /// Returns the attributes of a value, and caches its last bytes.
    pub(in crate::store::remote) async fn tail(
        self: &Arc<Self>,
        key: &Key,
        bytes: u64,
    ) -> Result<Meta, StoreError> {
        if let Some(attrs) = self.names.cached_or_listed(key).await {
            return attrs.into_object(key);
        }
        let (own, wanted) = (Arc::clone(self), key.clone());
        let load = move || async move { own.fetch_tail(&wanted, bytes).await };
        let place = (key.clone(), ByteRange::Suffix(bytes));
        let value = self.value_loads.run(place, load, panicked()).await?;
        Ok(value.meta)
    }

    /// Fetches the attributes and the last bytes of a value.
    pub(in crate::store::remote) async fn fetch_tail(
        self: &Arc<Self>,
        key: &Key,
        bytes: u64,
    ) -> Result<FetchedValue, StoreError> {
        let get = Get::new(key, ByteRange::Suffix(bytes));
        let tail = |meta: &Meta| meta.size_bytes.saturating_sub(bytes)..meta.size_bytes;
        match self.get_unless_current(get, tail).await {
            Ok(Loaded::Fetched(value) | Loaded::Confirmed(value)) => Ok(value),
            Err((error, requested_at)) => Err(self.names.absent_or(key, error, requested_at).await),
        }
    }
}
