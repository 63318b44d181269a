//! The order of what a source has said about several keys: whether the metadata document of an array had
//! its version when a chunk was fetched or found absent, and whether the source itself still existed.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::attr_cache::{Attrs, Known};
use super::store::{RemoteSource, panicked};
use super::{Get, Meta, Part, RequestError};
use crate::store::{AsOf, Key, StoreError};

/// Added to the time of a value, because times have whole seconds, and servers of one source differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(2);
/// How much earlier than the absence of a document the existence of the source may have been checked.
const DOCUMENT_ANCHOR_TRUST: Duration = Duration::from_millis(200);
/// How long after a check of a document the time of a value is taken as a proof that it is older.
const OLD_TIME_TRUST: Duration = Duration::from_secs(1);
/// How long after the response about a value its document may be checked. Programs that read keys check no
/// documents; a view that reads the same key later compares its version again.
const UNCHECKED_TRUST: Duration = Duration::from_secs(1);

impl RemoteSource {
    /// Drops cached attributes of a value from before its document was written, and those after which the
    /// document was not checked: it may have been another one in between. Returns whether there were any.
    pub(super) fn invalidate_before(&self, key: &Key, document: &Key) -> bool {
        let is_expired = !self.classes.is_document(key)
            && !self.attrs.is_trusted_for_good()
            && self.attrs.expire_unchecked(key, UNCHECKED_TRUST);
        let Some(written) = self.written.get(document) else {
            return is_expired;
        };
        self.listings.invalidate_before(key, written);
        self.attrs.invalidate_before(key, written) || is_expired
    }

    /// Caches attributes, and when the document was written if they are of a new version of one.
    pub(super) fn remember(&self, key: &Key, known: Known) {
        if let Attrs::Object(meta) = &known.attrs
            && self.classes.is_document(key)
            && !self.attrs.is_trusted_for_good()
        {
            let moment = match self.attrs.last_meta(key) {
                Some(last) if last.is_same(meta) => None,
                Some(_) => Some(known.answered),
                None => match written_by(meta).zip(self.clock.at(known.answered)) {
                    Some((written, now)) => {
                        let age = now.duration_since(written);
                        known.answered.checked_sub(age.unwrap_or_default())
                    }
                    None => Some(known.answered),
                },
            };
            if let Some(moment) = moment.filter(|moment| self.attrs.trusts_before(*moment)) {
                self.written.insert(key, moment);
            }
        }
        self.attrs.insert(key, known);
    }

    /// Caches the absence of a key, from the response to a request that was sent at `asked` and has arrived
    /// by now.
    ///
    /// # Errors
    /// The source itself is gone, so that nothing is proven about the key.
    pub(super) async fn insert_absent(
        self: &Arc<Self>,
        key: &Key,
        asked: Instant,
    ) -> Result<(), StoreError> {
        let absent = Known::new(Attrs::Absent, asked);
        self.check_anchor(key, absent.answered).await?;
        self.remember(key, absent);
        Ok(())
    }

    /// Fails if the source itself is gone, so that a key is not reported as absent. The check begins after
    /// `answered`, when the response about the key had arrived, because a server that is being replaced may
    /// answer 404 about all keys for a while. For a document it may be a little older: most documents that are
    /// looked up are absent, and each check takes as long as the lookup.
    pub(super) async fn check_anchor(
        self: &Arc<Self>,
        key: &Key,
        answered: Instant,
    ) -> Result<(), StoreError> {
        let Some(anchor) = self.anchor.get().filter(|anchor| *anchor != key) else {
            return Ok(());
        };
        let trust = match self.classes.is_document(key) {
            true => DOCUMENT_ANCHOR_TRUST,
            false => Duration::ZERO,
        };
        let found = self.confirmed(anchor, |anchor| anchor.asked + trust >= answered);
        match found.await.map_err(|error| error.with_key(key.clone()))? {
            Attrs::Object(_) => Ok(()),
            Attrs::Prefix | Attrs::Absent => Err(StoreError::Unavailable {
                key: key.clone(),
                what: format!("not there, and neither is {anchor}: the whole source is gone"),
            }),
        }
    }

    /// Returns the attributes of a document as of a point in time.
    pub(super) async fn attrs_as_of(
        self: &Arc<Self>,
        document: &Key,
        as_of: AsOf<'_>,
    ) -> Result<Attrs, StoreError> {
        if self.attrs.is_trusted_for_good() {
            return self.attrs(document).await;
        }
        let (other, moment) = match as_of {
            AsOf::Now => (None, Instant::now()),
            AsOf::Answer(key, before) => {
                let other = self.trusted(key).or_else(|| self.attrs.last(key));
                (other, before)
            }
        };
        let is_recent = |known: &Known| match &other {
            Some(other) => known.asked >= other.answered || self.is_older(other, known.asked),
            None => known.asked >= moment,
        };
        let attrs = self.confirmed(document, is_recent).await?;
        if let (AsOf::Answer(key, _), Some(other)) = (as_of, &other) {
            self.attrs.mark_checked(key, other.answered);
        }
        Ok(attrs)
    }

    /// Whether a value was written before `time`, and not only seen later.
    ///
    /// The time of a value is trusted only if the value was seen soon after `time`: a file on a server can have
    /// the time of the file that it was copied from, and in a bucket an old version can become the present one.
    fn is_older(&self, value: &Known, time: Instant) -> bool {
        let Attrs::Object(meta) = &value.attrs else {
            return false;
        };
        let is_soon = value.answered.saturating_duration_since(time) < OLD_TIME_TRUST;
        is_soon && written_by(meta).is_some_and(|written| self.clock.at(time) >= Some(written))
    }

    /// Returns attributes for which `is_recent` holds: trusted ones, or those of a request that concurrent
    /// callers share. `is_recent` must hold for a request that is sent from now on.
    async fn confirmed(
        self: &Arc<Self>,
        key: &Key,
        is_recent: impl Fn(&Known) -> bool,
    ) -> Result<Attrs, StoreError> {
        if let Some(known) = self.trusted(key).filter(&is_recent) {
            return Ok(known.attrs);
        }
        let load = || {
            let (own, wanted) = (Arc::clone(self), key.clone());
            own.request_attrs(wanted)
        };
        let run = || self.confirmations.run(key.clone(), load, panicked());
        let known = run().await?;
        match is_recent(&known) {
            true => Ok(known.attrs),
            // A shared request that was sent before this call.
            false => Ok(run().await?.attrs),
        }
    }

    /// Requests the attributes of a key that most likely has not changed.
    fn request_attrs(self: Arc<Self>, key: Key) -> BoxFuture<'static, Result<Known, StoreError>> {
        async move { self.request_known(&key).await }.boxed()
    }

    async fn request_known(self: &Arc<Self>, key: &Key) -> Result<Known, StoreError> {
        let last = match self.trusted(key).or_else(|| self.attrs.last(key)) {
            Some(Known {
                attrs: Attrs::Object(meta),
                ..
            }) => Some(meta),
            _ => None,
        };
        let tagged = last.as_ref().filter(|meta| meta.etag.is_some());
        let (asked, answer) = match tagged {
            // Not HEAD, because a signed URL is valid for GET only.
            Some(meta) => {
                let _reserved = self.reserve(key, meta.size_bytes).await?;
                let mut get = Get::new(key, Part::All(meta.size_bytes));
                get.known = Some(meta.clone());
                let asked = Instant::now();
                let answer = match self.request_get(get).await {
                    Ok(got) => Ok(got.meta),
                    Err(RequestError::NotModified) => Ok(meta.clone()),
                    // A longer value is another one.
                    Err(RequestError::TooLong(meta)) => Ok(meta),
                    Err(error) => Err(error),
                };
                (asked, answer)
            }
            None => (Instant::now(), self.head(key).await),
        };
        let answered = Instant::now();
        let attrs = match answer {
            Ok(meta) => Attrs::Object(meta),
            Err(RequestError::IsPrefix) => Attrs::Prefix,
            Err(RequestError::NotFound) => {
                self.check_anchor(key, answered).await?;
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
        let known = Known {
            attrs,
            asked,
            answered,
            is_checked: false,
        };
        self.remember(key, known.clone());
        Ok(known)
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

    use super::super::client::{Client, Protocol, Shared};
    use super::super::traffic::headers_came;
    use super::super::{Got, List, Page, Remote, RemoteOptions};
    use crate::runtime::{self, block_on};
    use crate::store::KeyClasses;
    use crate::sync::Mutex;

    /// A source of two keys, the document `d` and the chunk `c`.
    #[derive(Debug)]
    struct Imitated {
        has_date: bool,
        /// The age of both values.
        age: Duration,
        document: Mutex<&'static str>,
        has_chunk: bool,
        asked_for_document: AtomicUsize,
    }

    impl Imitated {
        fn new(has_date: bool, age_seconds: u64, has_chunk: bool) -> Self {
            Self {
                has_date,
                age: Duration::from_secs(age_seconds),
                document: Mutex::new("\"1\""),
                has_chunk,
                asked_for_document: AtomicUsize::new(0),
            }
        }

        fn answer(&self, key: &Key) -> Result<Meta, RequestError> {
            let now = SystemTime::now();
            if self.has_date {
                let date = httpdate::fmt_http_date(now).parse().unwrap();
                headers_came(&HeaderMap::from_iter([(DATE, date)]));
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

    impl Remote for Imitated {
        fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
            async move {
                runtime::sleep(Duration::from_millis(20)).await;
                let (start, bytes) = (0, vec![0].into());
                let meta = self.answer(&get.key)?;
                Ok(Got { meta, start, bytes })
            }
            .boxed()
        }

        fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
            async move { self.answer(key) }.boxed()
        }

        fn list<'a>(&'a self, _: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
            async { Err(RequestError::NoListing("imitated".into())) }.boxed()
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

    fn source(protocol: Protocol, imitated: Imitated) -> (Arc<RemoteSource>, Arc<Imitated>) {
        let imitated = Arc::new(imitated);
        let options = RemoteOptions::default();
        let shared = Shared::new(&options, CLASSES);
        let client = Client::imitated(Arc::clone(&imitated) as _, protocol);
        (client.source(&options, CLASSES, &shared).unwrap(), imitated)
    }

    /// Returns the number of requests for the document after the chunk was read twice.
    fn checks(protocol: Protocol, has_date: bool, age: u64, has_chunk: bool) -> usize {
        let (source, imitated) = source(protocol, Imitated::new(has_date, age, has_chunk));
        block_on(async {
            source.attrs(&key("d")).await.unwrap();
            let chunk_key = key("c");
            for _ in 0..2 {
                let chunk = source.whole(&key("c"), 9).await;
                assert_eq!(chunk.is_ok(), has_chunk);
                let as_of = AsOf::Answer(&chunk_key, Instant::now());
                source.attrs_as_of(&key("d"), as_of).await.unwrap();
            }
        });
        imitated.asked_for_document.load(Ordering::Relaxed) - 1
    }

    #[test]
    fn a_document_is_confirmed_unless_the_chunk_is_known_to_be_older() {
        use Protocol::{Bucket, Web};
        for protocol in [Web, Bucket] {
            assert_eq!(
                checks(protocol, true, 60, true),
                0,
                "{protocol:?}: written before"
            );
            assert_eq!(
                checks(protocol, true, 0, true),
                1,
                "{protocol:?}: just written"
            );
            assert_eq!(
                checks(protocol, false, 60, true),
                1,
                "{protocol:?}: no date"
            );
            assert_eq!(checks(protocol, true, 60, false), 1, "{protocol:?}: absent");
        }
    }

    #[test]
    fn the_time_of_a_value_is_trusted_for_a_moment() {
        let (source, _) = source(Protocol::Web, Imitated::new(true, 60, true));
        let chunk = block_on(async {
            source.whole(&key("c"), 9).await.unwrap();
            source.trusted(&key("c")).unwrap()
        });
        let moment = chunk.answered;
        assert!(source.is_older(&chunk, moment));
        let later = Known {
            answered: moment + OLD_TIME_TRUST,
            ..chunk
        };
        assert!(!source.is_older(&later, moment));
    }

    #[test]
    fn callers_share_a_request_that_begins_after_their_calls() {
        let (source, imitated) = source(Protocol::Web, Imitated::new(false, 0, true));
        let versions = block_on(async {
            source.attrs(&key("d")).await.unwrap();
            *imitated.document.lock() = "\"2\"";
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
        assert_eq!(imitated.asked_for_document.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn attributes_from_before_a_document_was_written_are_dropped() {
        let (source, imitated) = source(Protocol::Bucket, Imitated::new(true, 60, true));
        block_on(async {
            let (document, chunk) = (key("d"), key("c"));
            source.attrs(&document).await.unwrap();
            source.whole(&chunk, 9).await.unwrap();
            source.invalidate_before(&chunk, &document);
            assert!(source.trusted(&chunk).is_some(), "the document is older");
            *imitated.document.lock() = "\"2\"";
            source.attrs_as_of(&document, AsOf::Now).await.unwrap();
            source.invalidate_before(&chunk, &document);
            assert!(
                source.trusted(&chunk).is_none(),
                "the document is another one"
            );
        });
    }
}
