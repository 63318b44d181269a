//! Attributes of keys: from listings, from earlier responses, or from a request.
//!
//! Cached attributes are revalidated. A chunk counts only if the metadata document of its array had its version
//! when the chunk was fetched or found absent, and absence counts only if the source itself still existed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::attr_cache::{Attrs, CachedAttrs};
use super::listing::RemoteListing;
use super::{KnownNames, RootDocument};
use crate::clock::Instant;
use crate::store::remote::request::{ByteRange, Get, Got, Meta, RequestError, panicked};
use crate::store::{Freshness, Key, Listing, Stat, StoreError, Version};

/// Added to the time of a value, because times have whole seconds, and servers of one source differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(2);
/// How much earlier than the absence of a document the existence of the source may have been checked.
const SOURCE_CHECK_MAX_AGE: Duration = Duration::from_millis(200);
/// How long after a check of a document the time of a value is taken as a proof that it is older.
pub(in crate::store::remote) const MODIFIED_TIME_WINDOW: Duration = Duration::from_secs(1);
/// How long after the response about a value its document may be checked. Programs that read keys check no
/// documents; a view that reads the same key later compares its version again. Otherwise a chunk of another array that
/// had the same keys for a while would be decoded with the metadata of the array that was restored.
const UNCHECKED_MAX_AGE: Duration = Duration::from_secs(1);

#[async_trait]
impl Freshness for Arc<KnownNames> {
    async fn stat_after(
        &self,
        document: &Key,
        version: Version,
        values: &[Key],
    ) -> Result<Stat, StoreError> {
        let called_at = Instant::now();
        // A document that never changes needs no request.
        let is_after_call =
            |own: &CachedAttrs| self.attrs.never_expires() || own.requested_at >= called_at;
        if values.is_empty() || self.attrs.never_expires() {
            return self.stat_of(document, self.revalidated(document, is_after_call).await?);
        }
        let mut stat = None;
        for value in values {
            // When the source last answered about the value; or any earlier time, if it was written before that.
            let answer = self.last_known(value);
            let is_recent = |own: &CachedAttrs| match &answer {
                Some(answer) => {
                    own.requested_at >= answer.received_at
                        || self.is_older(answer, own.requested_at)
                }
                None => is_after_call(own),
            };
            // One request at most is sent for all values, because their answers are older than it.
            let own = self.stat_of(document, self.revalidated(document, is_recent).await?)?;
            if let Some(answer) = &answer {
                self.attrs.mark_checked(value, answer.received_at);
            }
            if own.version != version {
                return Ok(own);
            }
            stat = Some(own);
        }
        stat.ok_or_else(|| StoreError::internal("a document that was not checked"))
    }

    fn drop_older(&self, value: &Key, document: &Key, since: Instant) -> bool {
        // Values after whose response no document was checked are dropped too: the document may have been another one
        // in between.
        let is_expired = !self.identity.is_document(value)
            && !self.attrs.never_expires()
            && self.attrs.expire_unchecked(value, UNCHECKED_MAX_AGE);
        let Some(written) = self.write_times.get(document) else {
            return is_expired;
        };
        self.listings.invalidate_before(value, written);
        self.attrs.invalidate_before(value, written, since) || is_expired
    }

    async fn drop_value(&self, value: &Key) {
        self.invalidate(value);
    }
}

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

    /// Returns the last known attributes: trusted ones of an answer about the key itself, or else the newest. A listing can
    /// have come before the answer with the bytes that a reader has.
    pub(super) fn last_known(&self, key: &Key) -> Option<CachedAttrs> {
        let newest = || {
            let is_document = self.identity.is_document(key);
            let listed = self.listings.find(key, is_document, None);
            let answers = [listed, self.attrs.last(key)].into_iter().flatten();
            answers.max_by_key(|answer| answer.received_at)
        };
        self.attrs.get(key).or_else(newest)
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

    /// Caches attributes, and when the document was written if they are of a new version of one.
    pub(in crate::store::remote) fn insert(&self, key: &Key, entry: CachedAttrs) {
        if let Attrs::Object(meta) = &entry.attrs
            && self.identity.is_document(key)
            && !self.attrs.never_expires()
        {
            let moment = match self.attrs.last_meta(key) {
                Some(last) if last.is_same(meta) => None,
                Some(_) => Some(entry.received_at),
                None => match written_by(meta).zip(self.requests.server_time(entry.received_at)) {
                    Some((written, now)) => {
                        let age = now.duration_since(written);
                        entry.received_at.checked_sub(age.unwrap_or_default())
                    }
                    None => Some(entry.received_at),
                },
            };
            if let Some(moment) = moment.filter(|moment| self.attrs.uses_before(*moment)) {
                self.write_times.insert(key, moment);
            }
        }
        self.attrs.insert(key, entry);
    }

    /// Caches the absence of a key, from the response to a request that was sent at `requested_at` and has arrived
    /// by now.
    ///
    /// # Errors
    /// The source itself is gone, so that nothing is proven about the key.
    pub(in crate::store::remote) async fn insert_absent(
        self: &Arc<Self>,
        key: &Key,
        requested_at: Instant,
    ) -> Result<CachedAttrs, StoreError> {
        let absent = CachedAttrs::new(Attrs::Absent, requested_at);
        self.check_source_exists(key, absent.received_at).await?;
        self.insert(key, absent.clone());
        Ok(absent)
    }

    /// Whether attributes are still trusted.
    pub(in crate::store::remote) fn is_trusted(&self, known: &CachedAttrs) -> bool {
        self.attrs.is_trusted(known)
    }

    /// Returns when the request was sent whose answer about a key has arrived since `called_at`: another caller may have
    /// sent it before.
    pub(in crate::store::remote) fn answer_requested_at(
        &self,
        key: &Key,
        called_at: Instant,
    ) -> Instant {
        let answer = self.attrs.last(key);
        let answer = answer.filter(|answer| answer.received_at >= called_at);
        answer.map_or(called_at, |answer| answer.requested_at.min(called_at))
    }

    /// Fails if the source itself is gone, so that a key is not reported as absent. The check begins after
    /// `received_at`, when the response about the key had arrived, because a server that is being replaced may
    /// answer 404 about all keys for a while. For a document it may be a little older: most documents that are
    /// looked up are absent, and each check takes as long as the lookup.
    pub(in crate::store::remote) async fn check_source_exists(
        self: &Arc<Self>,
        key: &Key,
        received_at: Instant,
    ) -> Result<(), StoreError> {
        let Some(RootDocument { key: root, .. }) = self.root.get().filter(|root| root.key != *key)
        else {
            return Ok(());
        };
        let max_age = match self.identity.is_document(key) {
            true => SOURCE_CHECK_MAX_AGE,
            false => Duration::ZERO,
        };
        let found = self.revalidated(root, |root| root.requested_at + max_age >= received_at);
        match found.await.map_err(|error| error.with_key(key.clone()))? {
            Attrs::Object(_) => Ok(()),
            Attrs::Prefix | Attrs::Absent => Err(StoreError::Unavailable {
                key: key.clone(),
                what: format!("not there, and neither is {root}: the whole source is gone"),
            }),
        }
    }

    /// Whether a value was written before `time`, and not only seen later.
    ///
    /// The time of a value is trusted only if the value was seen soon after `time`: a file on a server can have
    /// the time of the file that it was copied from, and in a bucket an old version can become the present one.
    pub(in crate::store::remote) fn is_older(&self, value: &CachedAttrs, time: Instant) -> bool {
        let Attrs::Object(meta) = &value.attrs else {
            return false;
        };
        let is_soon = value.received_at.saturating_duration_since(time) < MODIFIED_TIME_WINDOW;
        is_soon
            && written_by(meta)
                .is_some_and(|written| self.requests.server_time(time) >= Some(written))
    }

    /// Returns attributes for which `is_recent` holds: trusted ones, or those of a request that concurrent
    /// callers share. `is_recent` must hold for a request that is sent from now on.
    async fn revalidated(
        self: &Arc<Self>,
        key: &Key,
        is_recent: impl Fn(&CachedAttrs) -> bool,
    ) -> Result<Attrs, StoreError> {
        if let Some(entry) = self.trusted(key).filter(&is_recent) {
            return Ok(entry.attrs);
        }
        let load = || {
            let (own, wanted) = (Arc::clone(self), key.clone());
            own.revalidate(wanted)
        };
        let run = || self.revalidations.run(key.clone(), load, panicked());
        let entry = run().await?;
        match is_recent(&entry) {
            true => Ok(entry.attrs),
            // A shared request that was sent before this call.
            false => Ok(run().await?.attrs),
        }
    }

    /// Requests the attributes of a key that most likely has not changed.
    ///
    /// The future is boxed, because an absent key revalidates the document at the root.
    fn revalidate(
        self: Arc<Self>,
        key: Key,
    ) -> BoxFuture<'static, Result<CachedAttrs, StoreError>> {
        async move {
            let last = match self.last_known(&key) {
                Some(CachedAttrs {
                    attrs: Attrs::Object(meta),
                    ..
                }) => Some(meta),
                _ => None,
            };
            let tagged = last.as_ref().filter(|meta| meta.etag.is_some());
            let (requested_at, response) = match tagged {
                // Not HEAD, because a signed URL is valid for GET only.
                Some(meta) => {
                    let _reserved = self.requests.reserve(&key, meta.size_bytes).await?;
                    let mut get = Get::new(&key, ByteRange::Whole(meta.size_bytes));
                    get.cached = Some(meta.clone());
                    let requested_at = Instant::now();
                    let response = match self.requests.get(get).await {
                        Ok(got) => Ok(got.meta),
                        Err(RequestError::NotModified) => Ok(meta.clone()),
                        // A longer value is another one.
                        Err(RequestError::TooLong(meta)) => Ok(meta),
                        Err(error) => Err(error),
                    };
                    (requested_at, response)
                }
                None => (Instant::now(), self.requests.meta(&key).await),
            };
            let received_at = Instant::now();
            let attrs = match response {
                Ok(meta) => Attrs::Object(meta),
                Err(RequestError::IsPrefix) => Attrs::Prefix,
                Err(RequestError::NotFound) => {
                    self.check_source_exists(&key, received_at).await?;
                    Attrs::Absent
                }
                Err(error) => return Err(error.of(&key)),
            };
            let is_changed = |last: &Meta| match &attrs {
                Attrs::Object(meta) => !meta.is_same(last),
                Attrs::Prefix | Attrs::Absent => true,
            };
            if last.as_ref().is_some_and(is_changed) {
                self.listings.invalidate(&key.parent());
            }
            let entry = CachedAttrs {
                attrs,
                requested_at,
                received_at,
                is_checked: false,
            };
            self.insert(&key, entry.clone());
            Ok(entry)
        }
        .boxed()
    }
}

/// Returns a time on the clock of the source before which a value was written, if the source says so.
fn written_by(meta: &Meta) -> Option<SystemTime> {
    meta.modified?.checked_add(CLOCK_MARGIN)
}
