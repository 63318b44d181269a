//! Lookups that need a request. If a read will most likely follow, the request also fetches the value.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use tokio::sync::oneshot;

use super::whole_values::LoadPurpose;
use super::{FetchedValue, KnownBytes};
use crate::clock::Instant;
use crate::runtime::{self, leave_session_thread};
use crate::store::remote::known::{Attrs, CachedAttrs};
use crate::store::remote::request::{EarlyMeta, Meta, RequestError, panicked};
use crate::store::{Key, StoreError};

/// How long the fetch of a value that a lookup has started continues without a reader.
const READER_GRACE: Duration = Duration::from_secs(2);
/// Size limit of metadata documents in bytes; values with the name of a document are fetched whole.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

impl KnownBytes {
    /// Returns the attributes of a key.
    pub(in crate::store::remote) async fn attrs(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<Attrs, StoreError> {
        if let Some(attrs) = self.names.cached_or_listed(key).await {
            return Ok(attrs);
        }
        if self.identity.is_immutable() && self.disk.is_present() {
            leave_session_thread().await;
            if let Some(meta) = self.disk.last_meta(key) {
                let known = CachedAttrs::new(Attrs::Object(meta.clone()), Instant::now());
                self.names.insert(key, known);
                return Ok(Attrs::Object(meta));
            }
        }
        if self.identity.is_document(key) {
            return self.document_attrs(key).await;
        }
        let called_at = Instant::now();
        let run = || {
            let (own, wanted) = (Arc::clone(self), key.clone());
            let load = move || async move { own.load_attrs(&wanted).await };
            self.attr_loads.run(key.clone(), load, panicked())
        };
        let found = run().await?;
        match found.requested_at >= called_at || self.names.is_trusted(&found) {
            true => Ok(found.attrs),
            // A shared request that was sent too long before this call.
            false => Ok(run().await?.attrs),
        }
    }

    /// Looks up a key before a program does, if lookups fetch no values; returns whether the key was looked up.
    pub(in crate::store::remote) async fn prefetch_attrs(self: &Arc<Self>, key: &Key) -> bool {
        self.speculation.is_stat_only() && self.attrs(key).await.is_ok()
    }

    /// Returns the attributes of a document, and fetches it, because the caller will most likely read it.
    async fn document_attrs(self: &Arc<Self>, key: &Key) -> Result<Attrs, StoreError> {
        let load = self.load_whole(key, MAX_DOCUMENT_BYTES, LoadPurpose::Read);
        match load.await {
            Ok(FetchedValue { meta, .. }) => {
                self.record_read(key, 0, meta.size_bytes);
                self.speculation.looked_up_document();
                Ok(Attrs::Object(meta))
            }
            Err(StoreError::NotFound { .. }) => Ok(Attrs::Absent),
            Err(StoreError::NotAPrefix { .. }) => Ok(Attrs::Prefix),
            Err(error) => Err(error),
        }
    }

    /// Requests the attributes of a key, for all its callers.
    pub(in crate::store::remote) async fn load_attrs(
        self: Arc<Self>,
        key: &Key,
    ) -> Result<CachedAttrs, StoreError> {
        // An earlier load can have ended after its caller looked into the cache.
        if let Some(known) = self.names.trusted(key) {
            return Ok(known);
        }
        let called_at = Instant::now();
        let (object, page) = match self.names.can_list() {
            // The lookup of a key also tells whether it is a prefix. A listing would read all keys.
            true if self.identity.reads_whole() => match self.object_attrs(key).await {
                object @ Err(StoreError::NotFound { .. }) => {
                    (object, Some(self.requests.has_keys(key).await))
                }
                object => (object, None),
            },
            true => {
                let (object, page) =
                    join(self.object_attrs(key), self.requests.has_keys(key)).await;
                (object, Some(page))
            }
            false => (self.object_attrs(key).await, None),
        };
        let requested_at = self.names.answer_requested_at(key, called_at);
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
                return self.names.insert_absent(key, requested_at).await;
            }
            (Err(error), _) => return Err(error),
        };
        let found = CachedAttrs::new(attrs, requested_at);
        self.names.insert(key, found.clone());
        Ok(found)
    }

    /// Reserves memory for fetching a value during a lookup. Returns the longest value to fetch and the
    /// reservation; `None` if the lookup should request attributes only.
    fn reserve_value_lookup(&self) -> Option<(u64, impl Send + use<>)> {
        let limit = self.speculation.lookup_limit()?;
        let place = Arc::clone(&self.value_lookups).try_acquire_owned().ok()?;
        Some((limit, (place, self.requests.try_reserve_spare(limit)?)))
    }

    /// Returns attributes of an object that is in no listing. If a read will most likely follow, they come
    /// from the headers of a request that also fetches the value.
    async fn object_attrs(self: &Arc<Self>, key: &Key) -> Result<Meta, StoreError> {
        let _lookup = self.speculation.begin_lookup();
        let Some((limit, reserved)) = self.reserve_value_lookup() else {
            let meta = self
                .requests
                .meta(key)
                .await
                .map_err(|error| error.of(key))?;
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
}
