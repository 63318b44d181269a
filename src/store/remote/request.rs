//! How one request is sent.
//!
//! A [`Remote`] sends one request, with one attempt, and returns the exact result. Each kind of server implements it
//! (`protocol`). Decorators of the same trait repeat failed requests within a deadline (`retry`), and take statuses that
//! the user names for absence (`missing_status`). Each attempt waits until few enough requests are in flight (`limit`),
//! and is counted (`transfer_stats`). [`Requests`] sends the requests of one source.

pub(super) mod arrival;
pub(super) mod body;
mod failure;
pub(super) mod limit;
mod meta;
pub(super) mod missing_status;
mod requests;
pub(super) mod retry;
pub(super) mod transfer_stats;

pub(super) use failure::{Failed, FailureKind, Refusal, RequestError};
pub(super) use meta::Meta;
pub(super) use requests::{MAX_EMPTY_PAGES, Requests, panicked};

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::clock::Instant;
use crate::store::Key;
use crate::sync::Mutex;
use arrival::Arrival;
use body::Body;

/// The requested bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ByteRange {
    /// The whole object, if it has at most this many bytes.
    Whole(u64),
    /// This range, shorter only at the end of the object.
    Bounded(Range<u64>),
    /// The last bytes, at most this many.
    Suffix(u64),
}

/// A request for bytes.
#[derive(Debug, Clone)]
pub(super) struct Get {
    pub(super) key: Key,
    pub(super) range: ByteRange,
    /// The only acceptable version.
    pub(super) expected: Option<Meta>,
    /// A version that the caller has cached: the condition of the request, as in `If-None-Match`.
    pub(super) cached: Option<Meta>,
    /// The length of the pieces in which the bytes are returned; 0 for one piece.
    pub(super) piece_bytes: usize,
    /// Receives the attributes of the object before its bytes.
    pub(super) early: Option<EarlyMeta>,
    /// Where the bytes of a whole value arrive, if readers may have the first ones before the last ones are there.
    pub(super) arrival: Option<Arc<Arrival>>,
}

/// Receives the attributes of an object as soon as the headers of a response have arrived.
#[derive(Debug, Clone)]
pub(super) struct EarlyMeta(Arc<Mutex<Option<oneshot::Sender<Meta>>>>);

impl EarlyMeta {
    pub(super) fn new() -> (Self, oneshot::Receiver<Meta>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }
}

impl Get {
    pub(super) fn new(key: &Key, range: ByteRange) -> Self {
        Self {
            key: key.clone(),
            range,
            expected: None,
            cached: None,
            piece_bytes: 0,
            early: None,
            arrival: None,
        }
    }

    /// Returns where the bytes of a response arrive; they are those of `version` from its first byte on, if it is given.
    pub(super) fn begin_arrival(&self, version: Option<&Meta>) -> Arc<Arrival> {
        let arrival = self.arrival.clone().unwrap_or_default();
        arrival.begin(Body::new(self.piece_bytes), version);
        arrival
    }

    /// Passes on the attributes in the headers of a response; only the first response counts.
    pub(super) fn headers_received(&self, meta: &Meta) {
        if let Some(sender) = self.early.as_ref().and_then(|early| early.0.lock().take()) {
            // The receiver may have got the attributes in another way.
            let _ = sender.send(meta.clone());
        }
    }
}

/// The response to a [`Get`].
#[derive(Debug)]
pub(super) struct Got {
    pub(super) meta: Meta,
    /// The offset of the bytes in the object.
    pub(super) start: u64,
    pub(super) bytes: Body,
}

/// Some names below a prefix, one level deep or all the way down.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Keys of objects, relative to the prefix, and their attributes if the listing has them.
    pub(super) objects: Vec<(Vec<u8>, Option<Meta>)>,
    /// Prefixes without the slash: names, or in a listing of all keys those that have an object of their own.
    pub(super) prefixes: Vec<Vec<u8>>,
    /// Whether the prefix itself has an object, whose key ends with a slash.
    pub(super) is_marked: bool,
    /// The token of the next page.
    pub(super) next: Option<String>,
    /// Whether all pages together hold all existing names.
    pub(super) is_complete: bool,
    /// When the names were read, if that was before the request.
    pub(super) since: Option<Instant>,
}

/// The depth of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Names directly below the prefix.
    One,
    /// All keys below the prefix.
    All,
}

/// A request for a listing.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub(super) prefix: Key,
    pub(super) depth: Depth,
    /// The [`Page::next`] of the page before.
    pub(super) page: Option<String>,
    /// List only names after this one, relative to the prefix.
    pub(super) after: Option<Vec<u8>>,
    pub(super) most: Option<usize>,
}

/// A source that answers requests, each with one attempt.
pub(super) trait Remote: Debug + Send + Sync {
    /// Requests bytes of an object.
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>>;

    /// Requests the attributes of an object.
    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>>;

    /// Requests one page of names.
    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>>;
}
