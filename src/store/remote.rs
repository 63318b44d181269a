//! Sources behind a network: web servers and object stores.
//!
//! The rooms, from bottom to top:
//!
//! ```text
//! memory < request < protocol < known < bytes < store
//! ```
//!
//! - `memory` bounds cached bytes and response bodies, for all sources together.
//! - `request` has decorators of [`Remote`], which sends one request and returns the exact result: they count
//!   requests (`transfer_stats`), bound the requests in flight (`limit`), and retry within a deadline (`retry`).
//! - `protocol` implements [`Remote`] for each kind of server (`web`, `bucket`, `hdfs`, `hf`, `keyvalue`).
//! - `known` caches what is known about names (`attr_cache`, `listing`, `write_times`).
//! - `bytes` caches values and ranges of them (`value`, `blocks`, `whole_objects`).
//!
//! Above them, `store` makes a [`Store`](super::Store) of a source, `open` determines what a URL refers to, `archive`
//! reads a remote zip archive, and `reference_target` the targets of references.
//!
//! **Architecture Invariant:** absence is reported only for a response that proves it (404 for the key,
//! in a bucket that exists). A request that could not be sent is an error and is never cached.
//!
//! **Architecture Invariant:** every request names the version that it expects, if one is known,
//! and every response is compared with it: bytes of two versions are never mixed.

mod archive;
mod bytes;
mod client;
mod known;
mod memory;
mod open;
mod protocol;
mod reference_target;
mod request;
mod store;

pub use client::RemoteMemory;
pub(super) use open::{OpenedSource, open, other_format_error};
#[cfg(feature = "fuzzing")]
pub use protocol::bucket::fuzz_listing;
pub use protocol::error::RemoteError as RemoteOpenError;
pub use protocol::options::{RedirectPolicy, RemoteOptions};
pub use protocol::web::TlsOptions;
#[cfg(feature = "fuzzing")]
pub use protocol::web::fuzz_page;
pub(super) use protocol::web::is_public;
pub(super) use protocol::{Protocol, Syntax, label, remote_examples};
pub use protocol::{has_escaped_path, is_remote_url, remote_schemes};
pub(super) use reference_target::{AllowedBy, FirstRead, RemoteTarget, RemoteTargets};
pub use request::transfer_stats::{TransferCounters, TransferStats};

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
use request::body::Body;

/// Attributes of an object, as reported by its source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Meta {
    size_bytes: u64,
    /// The entity tag as sent, with quotes, and with `W/` if it is weak.
    etag: Option<String>,
    modified: Option<SystemTime>,
}

impl Meta {
    /// Whether the tag is marked as weak. (Some listings omit the quotes; such a tag may begin with any
    /// letters.)
    fn is_weak(&self) -> bool {
        let tag = self.etag.as_deref();
        tag.is_some_and(|tag| tag.starts_with("W/\""))
    }

    /// The tag without quotes and without the mark of a weak tag, because a proxy that compresses bytes
    /// makes the tag weak.
    fn opaque_tag(&self) -> Option<&str> {
        let tag = self.etag.as_deref()?;
        let tag = if self.is_weak() { tag.get(2..)? } else { tag };
        Some(tag.trim_matches('"'))
    }

    /// The tag for `If-Match`; `None` if it is weak.
    fn strong_tag(&self) -> Option<String> {
        let tag = self.opaque_tag().filter(|_| !self.is_weak())?;
        Some(format!("\"{tag}\""))
    }

    /// Whether both have the same content, as far as the source can distinguish contents.
    fn is_same(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && match (self.opaque_tag(), other.opaque_tag()) {
                (Some(one), Some(two)) => one == two,
                // If neither has a tag nor a time, the size alone decides, which is a weaker guarantee.
                (None, None) => self.modified_seconds() == other.modified_seconds(),
                // A tag or a time that only one of them has proves nothing.
                _ => false,
            }
    }

    /// The time in whole seconds, because headers and listings have different precisions.
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

/// The requested bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ByteRange {
    /// The whole object, if it has at most this many bytes.
    Whole(u64),
    /// This range, shorter only at the end of the object.
    Bounded(Range<u64>),
    /// The last bytes, at most this many.
    Suffix(u64),
}

/// A request for bytes.
#[derive(Debug, Clone)]
struct Get {
    key: Key,
    range: ByteRange,
    /// The only acceptable version.
    expected: Option<Meta>,
    /// A version that the caller has cached: the condition of the request, as in `If-None-Match`.
    cached: Option<Meta>,
    /// The length of the pieces in which the bytes are returned; 0 for one piece.
    piece_bytes: usize,
    /// Receives the attributes of the object before its bytes.
    early: Option<EarlyMeta>,
}

/// Receives the attributes of an object as soon as the headers of a response have arrived.
#[derive(Debug, Clone)]
struct EarlyMeta(Arc<Mutex<Option<oneshot::Sender<Meta>>>>);

impl EarlyMeta {
    fn new() -> (Self, oneshot::Receiver<Meta>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }
}

impl Get {
    fn new(key: &Key, range: ByteRange) -> Self {
        Self {
            key: key.clone(),
            range,
            expected: None,
            cached: None,
            piece_bytes: 0,
            early: None,
        }
    }

    /// Passes on the attributes in the headers of a response; only the first response counts.
    fn headers_received(&self, meta: &Meta) {
        if let Some(sender) = self.early.as_ref().and_then(|early| early.0.lock().take()) {
            // The receiver may have got the attributes in another way.
            let _ = sender.send(meta.clone());
        }
    }
}

/// The response to a [`Get`].
#[derive(Debug)]
struct Got {
    meta: Meta,
    /// The offset of the bytes in the object.
    start: u64,
    bytes: Body,
}

/// Some names below a prefix, one level deep or all the way down.
#[derive(Debug, Default)]
struct Page {
    /// Keys of objects, relative to the prefix, and their attributes if the listing has them.
    objects: Vec<(Vec<u8>, Option<Meta>)>,
    /// Prefixes without the slash: names, or in a listing of all keys those that have an object of their own.
    prefixes: Vec<Vec<u8>>,
    /// Whether the prefix itself has an object, whose key ends with a slash.
    is_marked: bool,
    /// The token of the next page.
    next: Option<String>,
    /// Whether all pages together hold all existing names.
    is_complete: bool,
    /// When the names were read, if that was before the request.
    since: Option<Instant>,
}

/// The depth of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Names directly below the prefix.
    One,
    /// All keys below the prefix.
    All,
}

/// A request for a listing.
#[derive(Debug, Clone)]
struct List {
    prefix: Key,
    depth: Depth,
    /// The [`Page::next`] of the page before.
    page: Option<String>,
    /// List only names after this one, relative to the prefix.
    after: Option<Vec<u8>>,
    most: Option<usize>,
}

/// A source that answers requests, each with one attempt.
trait Remote: Debug + Send + Sync {
    /// Requests bytes of an object.
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>>;

    /// Requests the attributes of an object.
    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>>;

    /// Requests one page of names.
    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>>;
}

/// Why a request failed.
#[derive(Debug)]
enum RequestError {
    /// The object does not exist; this is proven.
    NotFound,
    /// The version that the caller has is current.
    NotModified,
    /// The server reports that the key is a directory.
    IsPrefix,
    /// The object is longer than the requested limit.
    TooLong(Meta),
    /// The object no longer has the expected version.
    Changed(String),
    /// The source refuses the request.
    Denied(Refusal),
    /// The source refuses credentials that were valid before.
    Expired(Refusal),
    /// The bucket is in this region, and not in that of the request (S3).
    OtherRegion(String),
    /// The source cannot list.
    NoListing(String),
    /// The range does not lie within the object (416), and the response does not report its size.
    NoSuchRange,
    /// The response does not mark the end of its body, so a truncated body would look complete.
    Unframed,
    /// No response arrived in time.
    TimedOut(String),
    /// Any other failure.
    Failed(Failed),
}

/// A refused request, or one that could not be signed.
#[derive(Debug)]
struct Refusal {
    what: String,
    /// The HTTP status; `None` if nothing was sent.
    status: Option<u16>,
}

/// The kind of a failure.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The server has too many requests (429, 503).
    Throttled,
    /// No connection: the host name does not resolve, or the host refuses or has no route.
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
    /// Whether another attempt may succeed.
    is_transient: bool,
    /// The delay that the source asks for before another attempt.
    retry_after: Option<Duration>,
    /// The bytes that arrived before the response broke off.
    partial: Option<Box<Got>>,
}

impl RequestError {
    /// A failure that would recur with every attempt.
    fn lasting(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            ..Failed::default()
        })
    }

    fn no_memory() -> Self {
        Self::lasting("there is no memory for it")
    }

    /// A failure that may be temporary.
    fn transient(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            is_transient: true,
            ..Failed::default()
        })
    }

    /// Converts the failure to an error of a key.
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
