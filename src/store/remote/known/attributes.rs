//! Attributes of keys: from listings and earlier responses, or from a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join, select};
use tokio::sync::oneshot;

use super::attr_cache::{Attrs, CachedAttrs};
use super::listing::{MAX_EMPTY_PAGES, RemoteListing};
use crate::runtime::{self, leave_session_thread};
use crate::store::remote::bytes::whole_objects::LoadPurpose;
use crate::store::remote::request::{ByteRange, Depth, EarlyMeta, Get, List, Meta, RequestError};
use crate::store::remote::store::{RemoteSource, panicked};
use crate::store::{Key, Listing, StoreError};

/// How long the fetch of a value that a lookup has started continues without a reader.
const READER_GRACE: Duration = Duration::from_secs(2);
/// Size limit of metadata documents in bytes; values with the name of a document are fetched whole.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

impl RemoteSource {
    /// Returns attributes that need no request.
    pub(in crate::store::remote) fn cached_attrs(&self, key: &Key) -> Option<Attrs> {
        match key.is_root() {
            true => Some(Attrs::Prefix),
            false => self.trusted(key).map(|known| known.attrs),
        }
    }

    /// Returns attributes that are still trusted.
    pub(in crate::store::remote) fn trusted(&self, key: &Key) -> Option<CachedAttrs> {
        let is_document = self.classes.is_document(key);
        let known = self.attrs.get(key);
        known.or_else(|| self.listings.find(key, is_document, None))
    }

    /// As [`cached_attrs`](Self::cached_attrs). If a listing lacked the key some time ago, its prefix is listed again, because
    /// one request then answers about all its absent keys.
    async fn cached_or_listed(self: &Arc<Self>, key: &Key) -> Option<Attrs> {
        let known = self.cached_attrs(key);
        // A database lists all keys at once, from an index of its own.
        if known.is_some() || !self.can_list() || self.reads_whole || self.attrs.trusts_nothing() {
            return known;
        }
        let prefix = self.listings.absent_before(key)?;
        let called = Instant::now();
        // A shared listing may have been requested before this call.
        for _ in 0..2 {
            let (own, listed) = (Arc::clone(self), prefix.clone());
            let load = || async move {
                let mut listing = RemoteListing::request(&own, &listed).await?;
                while !listing.is_at_end() {
                    listing.load().await?;
                }
                Ok(())
            };
            let repeated = self.repeated_listings.run(prefix.clone(), load, panicked());
            // On failure, the request for the key returns the error.
            repeated.await.ok()?;
            let is_document = self.classes.is_document(key);
            if let Some(known) = self.listings.find(key, is_document, Some(called)) {
                return Some(known.attrs);
            }
        }
        None
    }

    /// Returns the attributes of a key.
    pub(in crate::store::remote) async fn attrs(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<Attrs, StoreError> {
        if let Some(attrs) = self.cached_or_listed(key).await {
            return Ok(attrs);
        }
        if self.is_immutable && self.disk.is_some() {
            leave_session_thread().await;
            if let Some(meta) = self.last_meta_from_disk(key) {
                let known = CachedAttrs::new(Attrs::Object(meta.clone()), Instant::now());
                self.cache_attrs(key, known);
                return Ok(Attrs::Object(meta));
            }
        }
        let (own, wanted) = (Arc::clone(self), key.clone());
        let load = move || async move { own.load_attrs(&wanted).await };
        self.attr_loads.run(key.clone(), load, panicked()).await
    }

    async fn load_attrs(self: Arc<Self>, key: &Key) -> Result<Attrs, StoreError> {
        if self.classes.is_document(key) {
            // The caller will most likely read the document.
            return match self.read_whole(key, MAX_DOCUMENT_BYTES).await {
                Ok(value) => {
                    self.speculation.looked_up_document();
                    Ok(Attrs::Object(value.meta))
                }
                Err(StoreError::NotFound { .. }) => Ok(Attrs::Absent),
                Err(StoreError::NotAPrefix { .. }) => Ok(Attrs::Prefix),
                Err(error) => Err(error),
            };
        }
        let requested_at = Instant::now();
        let (object, page) = match self.can_list() {
            // The lookup of a key also tells whether it is a prefix. A listing would read all keys.
            true if self.reads_whole => match self.object_attrs(key).await {
                object @ Err(StoreError::NotFound { .. }) => {
                    (object, Some(self.has_names(key).await))
                }
                object => (object, None),
            },
            true => {
                let (object, page) = join(self.object_attrs(key), self.has_names(key)).await;
                (object, Some(page))
            }
            false => (self.object_attrs(key).await, None),
        };
        let (is_prefix, refusal) = match page {
            Some(Ok(has_names)) => (has_names, None),
            // A user without permission to list may still be allowed to read.
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
                self.insert_absent(key, requested_at).await?;
                return Ok(Attrs::Absent);
            }
            (Err(error), _) => return Err(error),
        };
        self.cache_attrs(key, CachedAttrs::new(attrs.clone(), requested_at));
        Ok(attrs)
    }

    /// Reserves memory for fetching a value during a lookup. Returns the longest value to fetch and the
    /// reservation; `None` if the lookup should request attributes only.
    fn reserve_value_lookup(&self) -> Option<(u64, impl Send + use<>)> {
        let limit = self.speculation.lookup_limit()?;
        let place = Arc::clone(&self.value_lookups).try_acquire_owned().ok()?;
        Some((limit, (place, self.try_reserve_spare(limit)?)))
    }

    /// Returns attributes of an object that is in no listing. If a read will most likely follow, they come
    /// from the headers of a request that also fetches the value.
    async fn object_attrs(self: &Arc<Self>, key: &Key) -> Result<Meta, StoreError> {
        let _lookup = self.speculation.begin_lookup();
        let Some((limit, reserved)) = self.reserve_value_lookup() else {
            let meta = self.head(key).await.map_err(|error| error.of(key))?;
            self.speculation.observe_size(meta.size_bytes);
            return Ok(meta);
        };
        let (own, wanted) = (Arc::clone(self), key.clone());
        let (early, headers) = EarlyMeta::new();
        let (done, end) = oneshot::channel();
        let fetch = runtime::spawn(async move {
            let lookup = LoadPurpose::Lookup(early);
            let value = own.load_whole(&wanted, limit, lookup).await;
            drop(reserved);
            // The receiver is gone if the headers have already answered the lookup.
            let _ = done.send(value.map(|value| value.meta));
        });
        let meta = match select(headers, end).await {
            Either::Left((Ok(meta), _)) => {
                // The value arrives while the caller opens it.
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

    /// Returns attributes of an object. A size of 0 is trusted only if GET returns no bytes either, because
    /// some servers answer every HEAD with `Content-Length: 0`.
    pub(in crate::store::remote) async fn head(&self, key: &Key) -> Result<Meta, RequestError> {
        let meta = self.request_head(key).await?;
        if meta.size_bytes > 0 {
            return Ok(meta);
        }
        let first_byte = Get::new(key, ByteRange::Bounded(0..1));
        match self.request_get(first_byte).await {
            Ok(got) => Ok(got.meta),
            Err(RequestError::NoSuchRange) => Ok(meta),
            Err(error) => Err(error),
        }
    }

    /// Whether keys exist below a prefix; reads several pages, because the first ones can be empty.
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
            if page.is_marked || !page.objects.is_empty() || !page.prefixes.is_empty() {
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

    /// Fails if a key is known not to be an object; returns its attributes if they are known.
    pub(in crate::store::remote) async fn cached_object(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<Option<Meta>, StoreError> {
        match self.cached_or_listed(key).await {
            Some(Attrs::Absent) => Err(StoreError::NotFound { key: key.clone() }),
            Some(Attrs::Prefix) => Err(StoreError::NotAPrefix { key: key.clone() }),
            Some(Attrs::Object(meta)) => Ok(Some(meta)),
            None => Ok(None),
        }
    }

    /// Returns the error of a failed request for an object; absence is proven and cached.
    pub(in crate::store::remote) async fn absent_or(
        self: &Arc<Self>,
        key: &Key,
        error: RequestError,
        requested_at: Instant,
    ) -> StoreError {
        if let RequestError::NotFound = error
            && let Err(gone) = self.insert_absent(key, requested_at).await
        {
            return gone;
        }
        error.of(key)
    }
}
