//! Revalidates cached attributes. A chunk counts only if the metadata document of its array had its version
//! when the chunk was fetched or found absent, and absence counts only if the source itself still existed.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::attr_cache::{Attrs, CachedAttrs};
use crate::store::remote::request::{ByteRange, Get, Meta, RequestError};
use crate::store::remote::store::{RemoteSource, panicked};
use crate::store::{Key, StoreError};

/// Added to the time of a value, because times have whole seconds, and servers of one source differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(2);
/// How much earlier than the absence of a document the existence of the source may have been checked.
const SOURCE_CHECK_MAX_AGE: Duration = Duration::from_millis(200);
/// How long after a check of a document the time of a value is taken as a proof that it is older.
const MODIFIED_TIME_WINDOW: Duration = Duration::from_secs(1);
/// How long after the response about a value its document may be checked. Programs that read keys check no
/// documents; a view that reads the same key later compares its version again. Otherwise a chunk of another array that
/// had the same keys for a while would be decoded with the metadata of the array that was restored.
const UNCHECKED_MAX_AGE: Duration = Duration::from_secs(1);

/// A point in time for [`RemoteSource::attrs_as_of`].
#[derive(Debug, Clone, Copy)]
pub(in crate::store::remote) enum AsOf<'a> {
    /// The call.
    Now,
    /// When the source last answered about this key, which was before a moment; or any earlier time, if the
    /// value of this key was written before it.
    Answer(&'a Key, Instant),
}

impl RemoteSource {
    /// Drops cached attributes of a value from before its document was written, and those after which the
    /// document was not checked: it may have been another one in between. Returns whether there were any.
    pub(in crate::store::remote) fn invalidate_before(&self, key: &Key, document: &Key) -> bool {
        let is_expired = !self.classes.is_document(key)
            && !self.attrs.never_expires()
            && self.attrs.expire_unchecked(key, UNCHECKED_MAX_AGE);
        let Some(written) = self.write_times.get(document) else {
            return is_expired;
        };
        self.listings.invalidate_before(key, written);
        self.attrs.invalidate_before(key, written) || is_expired
    }

    /// Caches attributes, and when the document was written if they are of a new version of one.
    pub(in crate::store::remote) fn cache_attrs(&self, key: &Key, entry: CachedAttrs) {
        if let Attrs::Object(meta) = &entry.attrs
            && self.classes.is_document(key)
            && !self.attrs.never_expires()
        {
            let moment = match self.attrs.last_meta(key) {
                Some(last) if last.is_same(meta) => None,
                Some(_) => Some(entry.received_at),
                None => match written_by(meta).zip(self.clock.at(entry.received_at)) {
                    Some((written, now)) => {
                        let age = now.duration_since(written);
                        entry.received_at.checked_sub(age.unwrap_or_default())
                    }
                    None => Some(entry.received_at),
                },
            };
            if let Some(moment) = moment.filter(|moment| self.attrs.trusts_before(*moment)) {
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
    ) -> Result<(), StoreError> {
        let absent = CachedAttrs::new(Attrs::Absent, requested_at);
        self.check_source_exists(key, absent.received_at).await?;
        self.cache_attrs(key, absent);
        Ok(())
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
        let Some(root_document) = self
            .root_document
            .get()
            .filter(|root_document| *root_document != key)
        else {
            return Ok(());
        };
        let max_age = match self.classes.is_document(key) {
            true => SOURCE_CHECK_MAX_AGE,
            false => Duration::ZERO,
        };
        let found = self.revalidated(root_document, |root_document| {
            root_document.requested_at + max_age >= received_at
        });
        match found.await.map_err(|error| error.with_key(key.clone()))? {
            Attrs::Object(_) => Ok(()),
            Attrs::Prefix | Attrs::Absent => Err(StoreError::Unavailable {
                key: key.clone(),
                what: format!(
                    "not there, and neither is {root_document}: the whole source is gone"
                ),
            }),
        }
    }

    /// Returns the attributes of a document as of a point in time.
    pub(in crate::store::remote) async fn attrs_as_of(
        self: &Arc<Self>,
        document: &Key,
        as_of: AsOf<'_>,
    ) -> Result<Attrs, StoreError> {
        if self.attrs.never_expires() {
            return self.attrs(document).await;
        }
        let (other, moment) = match as_of {
            AsOf::Now => (None, Instant::now()),
            AsOf::Answer(key, before) => {
                let other = self.trusted(key).or_else(|| self.attrs.last(key));
                (other, before)
            }
        };
        let is_recent = |entry: &CachedAttrs| match &other {
            Some(other) => {
                entry.requested_at >= other.received_at || self.is_older(other, entry.requested_at)
            }
            None => entry.requested_at >= moment,
        };
        let attrs = self.revalidated(document, is_recent).await?;
        if let (AsOf::Answer(key, _), Some(other)) = (as_of, &other) {
            self.attrs.mark_checked(key, other.received_at);
        }
        Ok(attrs)
    }

    /// Whether a value was written before `time`, and not only seen later.
    ///
    /// The time of a value is trusted only if the value was seen soon after `time`: a file on a server can have
    /// the time of the file that it was copied from, and in a bucket an old version can become the present one.
    fn is_older(&self, value: &CachedAttrs, time: Instant) -> bool {
        let Attrs::Object(meta) = &value.attrs else {
            return false;
        };
        let is_soon = value.received_at.saturating_duration_since(time) < MODIFIED_TIME_WINDOW;
        is_soon && written_by(meta).is_some_and(|written| self.clock.at(time) >= Some(written))
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
            own.request_attrs(wanted)
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
    fn request_attrs(
        self: Arc<Self>,
        key: Key,
    ) -> BoxFuture<'static, Result<CachedAttrs, StoreError>> {
        async move { self.revalidate(&key).await }.boxed()
    }

    async fn revalidate(self: &Arc<Self>, key: &Key) -> Result<CachedAttrs, StoreError> {
        let last = match self.trusted(key).or_else(|| self.attrs.last(key)) {
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
                let _reserved = self.reserve(key, meta.size_bytes).await?;
                let mut get = Get::new(key, ByteRange::Whole(meta.size_bytes));
                get.cached = Some(meta.clone());
                let requested_at = Instant::now();
                let response = match self.request_get(get).await {
                    Ok(got) => Ok(got.meta),
                    Err(RequestError::NotModified) => Ok(meta.clone()),
                    // A longer value is another one.
                    Err(RequestError::TooLong(meta)) => Ok(meta),
                    Err(error) => Err(error),
                };
                (requested_at, response)
            }
            None => (Instant::now(), self.head(key).await),
        };
        let received_at = Instant::now();
        let attrs = match response {
            Ok(meta) => Attrs::Object(meta),
            Err(RequestError::IsPrefix) => Attrs::Prefix,
            Err(RequestError::NotFound) => {
                self.check_source_exists(key, received_at).await?;
                Attrs::Absent
            }
            Err(error) => return Err(error.of(key)),
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
        self.cache_attrs(key, entry.clone());
        Ok(entry)
    }
}

/// Returns a time on the clock of the source before which a value was written, if the source says so.
fn written_by(meta: &Meta) -> Option<SystemTime> {
    meta.modified?.checked_add(CLOCK_MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::header::{DATE, HeaderMap};

    use crate::runtime::{self, block_on};
    use crate::store::KeyClasses;
    use crate::store::remote::client::{Client, Shared};
    use crate::store::remote::protocol::Protocol;
    use crate::store::remote::protocol::options::RemoteOptions;
    use crate::store::remote::request::transfer_stats::headers_received;
    use crate::store::remote::request::{Got, List, Page, Remote};
    use crate::sync::Mutex;

    /// A source of two keys, the document `d` and the chunk `c`.
    #[derive(Debug)]
    struct FakeRemote {
        has_date: bool,
        /// The age of both values.
        age: Duration,
        document: Mutex<&'static str>,
        has_chunk: bool,
        asked_for_document: AtomicUsize,
    }

    impl FakeRemote {
        fn new(has_date: bool, age_seconds: u64, has_chunk: bool) -> Self {
            Self {
                has_date,
                age: Duration::from_secs(age_seconds),
                document: Mutex::new("\"1\""),
                has_chunk,
                asked_for_document: AtomicUsize::new(0),
            }
        }

        fn response(&self, key: &Key) -> Result<Meta, RequestError> {
            let now = SystemTime::now();
            if self.has_date {
                let date = httpdate::fmt_http_date(now).parse().unwrap();
                headers_received(&HeaderMap::from_iter([(DATE, date)]));
            }
            let tag = match key.as_bytes() {
                b"d" => {
                    self.asked_for_document.fetch_add(1, Ordering::Relaxed);
                    *self.document.lock()
                }
                b"c" if self.has_chunk => "\"chunk\"",
                _ => return Err(RequestError::NotFound),
            };
            Ok(Meta {
                size_bytes: 1,
                etag: Some(tag.into()),
                modified: Some(now - self.age),
            })
        }
    }

    impl Remote for FakeRemote {
        fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
            async move {
                runtime::sleep(Duration::from_millis(20)).await;
                let (start, bytes) = (0, vec![0].into());
                let meta = self.response(&get.key)?;
                Ok(Got { meta, start, bytes })
            }
            .boxed()
        }

        fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
            async move { self.response(key) }.boxed()
        }

        fn list<'a>(&'a self, _: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
            async { Err(RequestError::NoListing("fake".into())) }.boxed()
        }
    }

    const CLASSES: KeyClasses = KeyClasses {
        is_document: |key| key.as_bytes() == b"d",
        node_documents: &["d"],
        node_of: Key::parent,
    };

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    fn source(scheme: &str, fake: FakeRemote) -> (Arc<RemoteSource>, Arc<FakeRemote>) {
        let fake = Arc::new(fake);
        let options = RemoteOptions::default();
        let shared = Shared::new(&options, CLASSES);
        let protocol = Protocol::of_scheme(scheme).unwrap();
        let client = Client::fake(Arc::clone(&fake) as _, protocol);
        (client.source(&options, CLASSES, &shared).unwrap(), fake)
    }

    /// Returns the number of requests for the document after the chunk was read twice.
    fn checks(scheme: &str, has_date: bool, age: u64, has_chunk: bool) -> usize {
        let (source, fake) = source(scheme, FakeRemote::new(has_date, age, has_chunk));
        block_on(async {
            source.attrs(&key("d")).await.unwrap();
            let chunk_key = key("c");
            for _ in 0..2 {
                let chunk = source.read_whole(&key("c"), 9).await;
                assert_eq!(chunk.is_ok(), has_chunk);
                let as_of = AsOf::Answer(&chunk_key, Instant::now());
                source.attrs_as_of(&key("d"), as_of).await.unwrap();
            }
        });
        fake.asked_for_document.load(Ordering::Relaxed) - 1
    }

    #[test]
    fn a_document_is_revalidated_unless_the_chunk_is_known_to_be_older() {
        for scheme in ["http", "s3"] {
            assert_eq!(
                checks(scheme, true, 60, true),
                0,
                "{scheme}: written before"
            );
            assert_eq!(checks(scheme, true, 0, true), 1, "{scheme}: just written");
            assert_eq!(checks(scheme, false, 60, true), 1, "{scheme}: no date");
            assert_eq!(checks(scheme, true, 60, false), 1, "{scheme}: absent");
        }
    }

    #[test]
    fn the_time_of_a_value_is_trusted_for_a_short_time() {
        let (source, _) = source("http", FakeRemote::new(true, 60, true));
        let chunk = block_on(async {
            source.read_whole(&key("c"), 9).await.unwrap();
            source.trusted(&key("c")).unwrap()
        });
        let moment = chunk.received_at;
        assert!(source.is_older(&chunk, moment));
        let later = CachedAttrs {
            received_at: moment + MODIFIED_TIME_WINDOW,
            ..chunk
        };
        assert!(!source.is_older(&later, moment));
    }

    #[test]
    fn callers_share_a_request_that_starts_after_their_calls() {
        let (source, fake) = source("http", FakeRemote::new(false, 0, true));
        let versions = block_on(async {
            source.attrs(&key("d")).await.unwrap();
            *fake.document.lock() = "\"2\"";
            let document = key("d");
            let calls = (0..8).map(|_| source.attrs_as_of(&document, AsOf::Now));
            futures_util::future::join_all(calls).await
        });
        for attrs in versions {
            let tag = match attrs.unwrap() {
                Attrs::Object(meta) => meta.etag,
                other => panic!("{other:?}"),
            };
            assert_eq!(tag.as_deref(), Some("\"2\""));
        }
        // The first call sends a request, and all others share the next one.
        assert_eq!(fake.asked_for_document.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn attributes_from_before_a_document_was_written_are_dropped() {
        let (source, fake) = source("s3", FakeRemote::new(true, 60, true));
        block_on(async {
            let (document, chunk) = (key("d"), key("c"));
            source.attrs(&document).await.unwrap();
            source.read_whole(&chunk, 9).await.unwrap();
            source.invalidate_before(&chunk, &document);
            assert!(source.trusted(&chunk).is_some(), "the document is older");
            *fake.document.lock() = "\"2\"";
            source.attrs_as_of(&document, AsOf::Now).await.unwrap();
            source.invalidate_before(&chunk, &document);
            assert!(
                source.trusted(&chunk).is_none(),
                "the document is another one"
            );
        });
    }
}
