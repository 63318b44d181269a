//! Sources that are asked over a network: web servers and object stores.
//!
//! From the ground up: a [`Remote`] sends one request and says exactly what came back
//! (`web`, `bucket`, `hdfs`, `keyvalue`); decorators of the same trait count requests (`traffic`), bound how many are
//! on their way (`limit`), and try again within a deadline (`retry`); `store` makes a
//! [`Store`](super::Store) of it, with caches of names (`attr_cache`, `listing`) and of bytes
//! (`range_cache`, `value`); `archive` reads a zip that is there.
//!
//! **Architecture Invariant:** absence is said only for an answer that proves it (404 for the key,
//! in a bucket that exists). What could not be asked is an error and is never remembered.
//!
//! **Architecture Invariant:** every request names the version that it expects, where one is known,
//! and every answer is compared with it: bytes of two versions are never put together.

mod archive;
mod attr_cache;
mod attributes;
mod blocks;
mod bodies;
mod body;
mod bucket;
mod cached;
mod client;
mod error;
mod hdfs;
mod keyvalue;
mod limit;
mod listing;
mod missing;
mod open;
mod options;
mod range_cache;
mod retry;
mod speculation;
mod store;
mod target;
mod traffic;
mod turn;
mod value;
mod web;
mod whole;

#[cfg(feature = "fuzzing")]
pub use bucket::fuzz_listing;
pub use client::RemoteMemory;
pub(super) use client::label;
pub use error::RemoteError as RemoteOpenError;
pub(super) use open::{Found, open, refuse};
pub use options::RemoteOptions;
pub(super) use target::{First, RemoteTarget, RemoteTargets, Trust};
pub use traffic::{TransferCounters, TransferStats};
#[cfg(feature = "fuzzing")]
pub use web::fuzz_page;
pub(super) use web::is_public;

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use http::StatusCode;
use siphasher::sip::SipHasher13;
use tokio::sync::oneshot;

use super::{Key, Kind, Stat, StoreError, Version};
use crate::sync::Mutex;
use body::Body;

/// What a source tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Meta {
    size_bytes: u64,
    /// As it was sent, with quotes and a `W/` if it is weak.
    etag: Option<String>,
    modified: Option<SystemTime>,
}

impl Meta {
    /// Whether the tag says of itself that it is weak. (Some listings leave the quotes out, and
    /// then it may begin with any letters.)
    fn is_weak(&self) -> bool {
        let tag = self.etag.as_deref();
        tag.is_some_and(|tag| tag.starts_with("W/\""))
    }

    /// The tag without quotes and without what says that it is weak: a proxy that packs bytes
    /// weakens it.
    fn opaque_tag(&self) -> Option<&str> {
        let tag = self.etag.as_deref()?;
        let tag = if self.is_weak() { tag.get(2..)? } else { tag };
        Some(tag.trim_matches('"'))
    }

    /// A tag that may stand in `If-Match`.
    fn strong_tag(&self) -> Option<String> {
        let tag = self.opaque_tag().filter(|_| !self.is_weak())?;
        Some(format!("\"{tag}\""))
    }

    /// Whether both are the same content, as far as the source can tell them apart.
    fn is_same(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && match (self.opaque_tag(), other.opaque_tag()) {
                (Some(one), Some(two)) => one == two,
                // Where both have neither, the size alone is the weaker promise of the source.
                (None, None) => self.modified_seconds() == other.modified_seconds(),
                // A tag or a date that only one of them has proves nothing.
                _ => false,
            }
    }

    /// Headers and listings tell the time in different steps.
    fn modified_seconds(&self) -> Option<u64> {
        let since = self.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }

    fn version(&self) -> Version {
        let mut hasher = SipHasher13::new();
        self.size_bytes.hash(&mut hasher);
        match self.opaque_tag() {
            Some(tag) => tag.hash(&mut hasher),
            None => self.modified_seconds().hash(&mut hasher),
        }
        Version(hasher.finish())
    }

    fn stat(&self) -> Stat {
        Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes,
            modified: self.modified.unwrap_or(SystemTime::UNIX_EPOCH),
            version: self.version(),
            links: 1,
        }
    }
}

/// Which bytes of an object are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    /// All of it, if it is not longer than so many bytes.
    All(u64),
    /// These, fewer only at its end.
    Range(Range<u64>),
    /// Its last so many bytes, or all of a shorter one.
    Tail(u64),
}

/// One question for bytes.
#[derive(Debug, Clone)]
struct Get {
    key: Key,
    part: Part,
    /// Only this content will do.
    expected: Option<Meta>,
    /// Nothing needs to be sent if this is still the content.
    known: Option<Meta>,
    /// The bytes are wanted in pieces of this length; 0 is one piece.
    piece_bytes: usize,
    /// Receives the attributes of the object before its bytes.
    early: Option<EarlyMeta>,
}

/// Receives the attributes of an object as soon as the headers of an answer have come.
#[derive(Debug, Clone)]
struct EarlyMeta(Arc<Mutex<Option<oneshot::Sender<Meta>>>>);

impl EarlyMeta {
    fn new() -> (Self, oneshot::Receiver<Meta>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }
}

impl Get {
    fn new(key: &Key, part: Part) -> Self {
        Self {
            key: key.clone(),
            part,
            expected: None,
            known: None,
            piece_bytes: 0,
            early: None,
        }
    }

    /// Says what the headers of the answer tell of the object; only the first answer counts.
    fn headers_came(&self, meta: &Meta) {
        if let Some(sender) = self.early.as_ref().and_then(|early| early.0.lock().take()) {
            // The receiver may have what it needs from elsewhere.
            let _ = sender.send(meta.clone());
        }
    }
}

/// The answer to a [`Get`].
#[derive(Debug)]
struct Got {
    meta: Meta,
    /// Where the bytes begin in the object.
    start: u64,
    bytes: Body,
}

/// Some names below a prefix, one level deep or all the way down.
#[derive(Debug, Default)]
struct Page {
    /// Keys of objects, relative to the prefix, and what was told of them.
    objects: Vec<(Vec<u8>, Option<Meta>)>,
    /// Names of prefixes, without the slash.
    prefixes: Vec<Vec<u8>>,
    /// Where the next page begins.
    next: Option<String>,
    /// Whether all pages together hold all names that there are.
    is_complete: bool,
    /// When the names were read, if that was before they were asked for.
    since: Option<Instant>,
}

/// How deep a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Names directly below.
    One,
    /// All keys below.
    All,
}

/// What is to be listed.
#[derive(Debug, Clone)]
struct List {
    prefix: Key,
    depth: Depth,
    /// From the [`Page::next`] of the page before.
    page: Option<String>,
    /// Behind this name, relative to the prefix.
    after: Option<Vec<u8>>,
    most: Option<usize>,
}

/// A source that answers one request at a time, each with one attempt.
trait Remote: Debug + Send + Sync {
    /// Bytes of an object.
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>>;

    /// What is known of an object.
    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>>;

    /// One page of names.
    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>>;
}

/// Why a request brought nothing.
#[derive(Debug)]
enum RequestError {
    /// Proven: there is no such object.
    NotFound,
    /// What is known is still so.
    NotModified,
    /// The key is that of a directory, says the server.
    IsPrefix,
    /// The object is longer than was asked for.
    TooLong(Meta),
    /// It is not any more what was expected.
    Changed(String),
    /// The source refuses.
    Denied(Refusal),
    /// The source refuses credentials that were good once.
    Expired(Refusal),
    /// The bucket is in this region, and not where it was asked for (S3).
    OtherRegion(String),
    /// There is no way to list.
    NoListing(String),
    /// The range does not lie in the object (416), and the answer does not say how long it is.
    NoSuchRange,
    /// The answer does not say where its body ends, so that a part of it would look whole.
    Unframed,
    /// Nobody answered in time.
    TimedOut(String),
    /// Anything else.
    Failed(Failed),
}

/// A source that refuses a request, or that there is nothing to sign with.
#[derive(Debug)]
struct Refusal {
    what: String,
    /// The HTTP status; none if nothing was sent.
    status: Option<u16>,
}

/// What kind of failure a request met.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The server has too many requests (429, 503).
    Throttled,
    /// No connection: the name of the host does not resolve, or the host refuses or has no route.
    Unreachable,
    #[default]
    Other,
}

impl FailureKind {
    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::Throttled,
            _ => Self::Other,
        }
    }
}

/// A request that failed.
#[derive(Debug, Default)]
struct Failed {
    what: String,
    kind: FailureKind,
    /// Whether another attempt may bring more.
    is_transient: bool,
    /// Before that it is no use, says the source.
    retry_after: Option<Duration>,
    /// What came before it broke off.
    partial: Option<Box<Got>>,
}

impl RequestError {
    /// A failure that another attempt does not change.
    fn lasting(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            ..Failed::default()
        })
    }

    fn no_memory() -> Self {
        Self::lasting("there is no memory for it")
    }

    /// A failure that may be over soon.
    fn transient(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            is_transient: true,
            ..Failed::default()
        })
    }

    /// As an error of a key.
    fn of(self, key: &Key) -> StoreError {
        let key = key.clone();
        match self {
            Self::NotFound => StoreError::NotFound { key },
            Self::Changed(what) => StoreError::Stale { key, what },
            Self::Denied(Refusal { what, status }) | Self::Expired(Refusal { what, status }) => {
                StoreError::Denied { key, what, status }
            }
            Self::OtherRegion(region) => StoreError::Unavailable {
                key,
                what: format!("the bucket is in the region {region}"),
            },
            Self::NoListing(what) => StoreError::Unsupported { key, what },
            Self::NoSuchRange => StoreError::Unavailable {
                key,
                what: "416: the server does not send this range".into(),
            },
            Self::Unframed => StoreError::Unsupported {
                key,
                what: "the server sends neither its length (Content-Length) nor chunks: where the \
                       connection ends, all of it may have come or a part"
                    .into(),
            },
            Self::TimedOut(what) => StoreError::TimedOut { key, what },
            Self::Failed(Failed {
                what,
                kind: FailureKind::Unreachable,
                ..
            }) => StoreError::Unreachable { key, what },
            Self::Failed(failed) => StoreError::Unavailable {
                key,
                what: failed.what,
            },
            Self::IsPrefix => StoreError::NotAPrefix { key },
            Self::TooLong(meta) => StoreError::Unavailable {
                key,
                what: format!("{} bytes, which was not expected", meta.size_bytes),
            },
            Self::NotModified => StoreError::Unavailable {
                key,
                what: "\"not modified\" to a question without a condition".into(),
            },
        }
    }
}
