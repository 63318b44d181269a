//! How long values and documents are trusted, with a source that a test imitates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use http::header::{DATE, HeaderMap};

use super::bytes::FetchedValue;
use super::client::{Client, Shared};
use super::known::{Attrs, CachedAttrs, MODIFIED_TIME_WINDOW};
use super::protocol::Protocol;
use super::protocol::options::RemoteOptions;
use super::request::transfer_stats::headers_received;
use super::request::{Get, Got, List, Meta, Page, Remote, RequestError};
use super::store::RemoteSource;
use crate::clock::Instant;
use crate::runtime::{self, block_on};
use crate::store::{
    AccessHint, DocumentRef, Freshness, Key, KeyClasses, StoreError, Version, read_with_document,
};
use crate::sync::Mutex;

/// A source of two keys, the document `d` and the chunk `c`.
#[derive(Debug)]
pub(super) struct FakeRemote {
    has_date: bool,
    /// The age of both values.
    age: Duration,
    document: Mutex<&'static str>,
    has_chunk: bool,
    chunk_latency: Duration,
    asked_for_document: AtomicUsize,
    pub(super) asked_for_chunk: AtomicUsize,
}

impl FakeRemote {
    pub(super) fn new(has_date: bool, age_seconds: u64, has_chunk: bool) -> Self {
        Self {
            has_date,
            age: Duration::from_secs(age_seconds),
            document: Mutex::new("\"1\""),
            has_chunk,
            chunk_latency: Duration::from_millis(20),
            asked_for_document: AtomicUsize::new(0),
            asked_for_chunk: AtomicUsize::new(0),
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
            b"c" if self.has_chunk => {
                self.asked_for_chunk.fetch_add(1, Ordering::Relaxed);
                "\"chunk\""
            }
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
            runtime::sleep(match get.key.as_bytes() {
                b"c" => self.chunk_latency,
                _ => Duration::from_millis(20),
            })
            .await;
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

pub(super) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

pub(super) fn source(scheme: &str, fake: FakeRemote) -> (RemoteSource, Arc<FakeRemote>) {
    source_with(scheme, fake, RemoteOptions::default())
}

fn source_with(
    scheme: &str,
    fake: FakeRemote,
    options: RemoteOptions,
) -> (RemoteSource, Arc<FakeRemote>) {
    let fake = Arc::new(fake);
    let shared = Shared::new(&options, CLASSES);
    let protocol = Protocol::of_scheme(scheme).unwrap();
    let client = Client::fake(Arc::clone(&fake) as _, protocol);
    (client.source(&options, CLASSES, &shared).unwrap(), fake)
}

/// Returns the number of requests for the document after the chunk was read twice.
fn checks(scheme: &str, has_date: bool, age: u64, has_chunk: bool) -> usize {
    let (source, fake) = source(scheme, FakeRemote::new(has_date, age, has_chunk));
    block_on(async {
        source.bytes.attrs(&key("d")).await.unwrap();
        for _ in 0..2 {
            let chunk = source.bytes.read_whole(&key("c"), 9).await;
            assert_eq!(chunk.is_ok(), has_chunk);
            let (document, chunks) = (key("d"), [key("c")]);
            let checked = source.names.stat_after(&document, Version(0), &chunks);
            checked.await.unwrap();
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
        source.bytes.read_whole(&key("c"), 9).await.unwrap();
        source.names.trusted(&key("c")).unwrap()
    });
    let moment = chunk.received_at;
    assert!(source.names.is_older(&chunk, moment));
    let later = CachedAttrs {
        received_at: moment + MODIFIED_TIME_WINDOW,
        ..chunk
    };
    assert!(!source.names.is_older(&later, moment));
}

#[test]
fn a_lookup_that_begins_after_another_one_has_ended_sends_no_request() {
    let (source, fake) = source("http", FakeRemote::new(true, 60, true));
    let chunk = key("c");
    block_on(async {
        source.bytes.attrs(&chunk).await.unwrap();
        let load = Arc::clone(&source.bytes).load_attrs(&chunk);
        assert!(matches!(load.await.unwrap().attrs, Attrs::Object(_)));
    });
    assert_eq!(fake.asked_for_chunk.load(Ordering::Relaxed), 1);
}

#[test]
fn callers_share_a_request_that_starts_after_their_calls() {
    let (source, fake) = source("http", FakeRemote::new(false, 0, true));
    let versions = block_on(async {
        source.bytes.attrs(&key("d")).await.unwrap();
        *fake.document.lock() = "\"2\"";
        let document = key("d");
        let calls = (0..8).map(|_| source.names.stat_after(&document, Version(0), &[]));
        join_all(calls).await
    });
    let Attrs::Object(meta) = source.names.trusted(&key("d")).unwrap().attrs else {
        panic!("no document");
    };
    assert_eq!(meta.etag.as_deref(), Some("\"2\""));
    for stat in versions {
        assert_eq!(stat.unwrap().version, meta.version());
    }
    // The first call sends a request, and all others share the next one.
    assert_eq!(fake.asked_for_document.load(Ordering::Relaxed), 3);
}

#[test]
fn attributes_from_before_a_document_was_written_are_dropped() {
    let (source, fake) = source("s3", FakeRemote::new(true, 60, true));
    block_on(async {
        let (document, chunk) = (key("d"), key("c"));
        source.bytes.attrs(&document).await.unwrap();
        source.bytes.read_whole(&chunk, 9).await.unwrap();
        source.names.drop_older(&chunk, &document, Instant::now());
        assert!(
            source.names.trusted(&chunk).is_some(),
            "the document is older"
        );
        *fake.document.lock() = "\"2\"";
        let changed = source.names.stat_after(&document, Version(0), &[]).await;
        changed.unwrap();
        source.names.drop_older(&chunk, &document, Instant::now());
        assert!(
            source.names.trusted(&chunk).is_none(),
            "the document is another one"
        );
    });
}

#[test]
fn a_value_that_is_cached_from_before_its_document_was_written_is_read_again() {
    let (source, fake) = source("s3", FakeRemote::new(true, 60, true));
    let (document, value) = (key("d"), key("c"));
    let read = async |key: &Key| source.bytes.read_whole(key, 9).await.map(Some);
    let requests_after = |_: [Result<Option<FetchedValue>, StoreError>; 2]| {
        fake.asked_for_chunk.load(Ordering::Relaxed)
    };
    block_on(async {
        for _ in 0..2 {
            let both = read_with_document(&source, &document, &value, read).await;
            assert_eq!(requests_after(both), 1, "the document is older");
        }
        *fake.document.lock() = "\"2\"";
        let changed = source.names.stat_after(&document, Version(0), &[]).await;
        changed.unwrap();
        for _ in 0..2 {
            let both = read_with_document(&source, &document, &value, read).await;
            assert_eq!(requests_after(both), 2, "the document is another one");
        }
    });
}

/// Seeds 4959 and 24069 of the simulation: a view shared the slow request of a program for the same key, and decoded the
/// chunk of an array that was replaced meanwhile with the metadata of the new one.
#[test]
fn a_value_that_was_requested_before_its_document_was_written_is_requested_again() {
    for ttl in [Duration::from_secs(60), Duration::ZERO] {
        let mut fake = FakeRemote::new(true, 60, true);
        fake.chunk_latency = Duration::from_millis(500);
        let options = RemoteOptions {
            ttl,
            absent_ttl: ttl,
            ..RemoteOptions::default()
        };
        let (source, fake) = source_with("s3", fake, options);
        let (document, value) = (key("d"), key("c"));
        block_on(async {
            source.bytes.attrs(&document).await.unwrap();
            let (own, wanted) = (source.clone(), value.clone());
            let other = runtime::spawn(async move { own.bytes.read_whole(&wanted, 9).await });
            runtime::sleep(Duration::from_millis(50)).await;
            *fake.document.lock() = "\"2\"";
            let changed = source.names.stat_after(&document, Version(0), &[]).await;
            let document = (document, changed.unwrap().version);
            assert_eq!(fake.asked_for_chunk.load(Ordering::Relaxed), 0, "in flight");
            let reads = DocumentRef::new(&source, Some(&document));
            // The first of them that learns that the answer is outdated drops it.
            let read = || {
                let value = &value;
                reads.fetch(
                    move |reads| async move { reads.open(value, AccessHint::Whole(9)).await },
                )
            };
            let (one, two) = join(read(), read()).await;
            let _objects = (one.unwrap().into_value(), two.unwrap().into_value());
            other.await.unwrap();
        });
        assert_eq!(fake.asked_for_chunk.load(Ordering::Relaxed), 2, "{ttl:?}");
    }
}
