//! Attributes of keys: from listings and earlier responses.

use std::sync::Arc;

use super::KnownNames;
use super::attr_cache::{Attrs, CachedAttrs};
use super::listing::RemoteListing;
use crate::clock::Instant;
use crate::store::remote::request::{Get, Got, Meta, RequestError, panicked};
use crate::store::{Key, Listing, StoreError};

impl KnownNames {
    /// Returns attributes that need no request.
    pub(in crate::store::remote) fn cached(&self, key: &Key) -> Option<Attrs> {
        match key.is_root() {
            true => Some(Attrs::Prefix),
            false => self.trusted(key).map(|known| known.attrs),
        }
    }

    /// Returns attributes that are still trusted.
    pub(in crate::store::remote) fn trusted(&self, key: &Key) -> Option<CachedAttrs> {
        let is_document = self.identity.is_document(key);
        let known = self.attrs.get(key);
        known.or_else(|| self.listings.find(key, is_document, None))
    }

    /// Returns the last known attributes, trusted ones if there are any.
    pub(super) fn last_known(&self, key: &Key) -> Option<CachedAttrs> {
        self.trusted(key).or_else(|| self.attrs.last(key))
    }

    /// As [`cached`](Self::cached). If a listing lacked the key some time ago, its prefix is listed again, because
    /// one request then answers about all its absent keys.
    pub(in crate::store::remote) async fn cached_or_listed(
        self: &Arc<Self>,
        key: &Key,
    ) -> Option<Attrs> {
        let known = self.cached(key);
        // A database lists all keys at once, from an index of its own.
        if known.is_some()
            || !self.can_list()
            || self.identity.reads_whole()
            || self.attrs.trusts_nothing()
        {
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
            let is_document = self.identity.is_document(key);
            if let Some(known) = self.listings.find(key, is_document, Some(called)) {
                return Some(known.attrs);
            }
        }
        None
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

    /// Returns the last known attributes of an object, however old.
    pub(in crate::store::remote) fn last_meta(&self, key: &Key) -> Option<Meta> {
        self.attrs.last_meta(key)
    }

    /// Requests bytes of an object, and caches the attributes in the response.
    pub(in crate::store::remote) async fn get(&self, get: Get) -> Result<Got, RequestError> {
        let requested_at = Instant::now();
        let (key, is_expected) = (get.key.clone(), get.expected.is_some());
        let response = self.requests.get(get).await;
        match &response {
            Ok(Got { meta, .. }) | Err(RequestError::TooLong(meta)) => {
                self.insert(
                    &key,
                    CachedAttrs::new(Attrs::Object(meta.clone()), requested_at),
                );
            }
            Err(RequestError::IsPrefix) => {
                self.insert(&key, CachedAttrs::new(Attrs::Prefix, requested_at));
            }
            Err(RequestError::Changed(_)) => self.invalidate(&key),
            // The object existed before, so its cached attributes are wrong.
            Err(RequestError::NotFound) if is_expected => self.invalidate(&key),
            Err(_) => {}
        }
        response
    }

    /// Drops the cached attributes of a key.
    pub(in crate::store::remote) fn invalidate(&self, key: &Key) {
        self.attrs.invalidate(key);
        self.listings.invalidate(&key.parent());
    }
}
