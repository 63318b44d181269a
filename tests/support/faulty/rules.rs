//! Rules: the requests that fail, how often, and in which way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::message::{Request, Response};

/// A fault of a response.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Another response: a status, headers and a body. See [`Fault::status`] and similar functions.
    Answer(Response),
    /// The connection is reset before any byte is sent.
    Reset,
    /// The connection is reset after this number of body bytes, at least one byte before the end.
    ResetAfter(usize),
    /// The connection is closed before any byte is sent.
    Close,
    /// The connection is closed after this number of body bytes, at least one byte before the end.
    CloseAfter(usize),
    /// No byte is ever sent.
    Stall,
    /// No byte is sent after this number of body bytes, at least one byte before the end.
    StallAfter(usize),
    /// Each byte of the body takes this time.
    Drip(Duration),
    /// The response is delayed by this time.
    Late(Duration),
    /// The response is not HTTP.
    Garbage,
    /// A part that is off by one byte, with a matching `Content-Range`.
    WrongContentRange,
    /// Another `Content-Range`, or none if the text is empty.
    ContentRange(String),
    /// The whole value with status 200, whatever part was requested.
    IgnoreRange,
    /// A part wrapped into multipart/byteranges.
    Multipart,
    /// A compressed body with `Content-Encoding`, although the client did not accept that.
    Gzip,
    /// A chunked body, without `Content-Length`.
    Chunked,
    /// A body that ends with the connection.
    Unframed,
    /// A body that never ends.
    Endless,
    /// No `ETag`, so that conditions on it are ignored.
    NoEtag,
    /// No `Last-Modified`.
    NoLastModified,
    /// The value has this `ETag` from now on, also for conditions.
    Etag(String),
    /// The value is replaced by this one from now on.
    Replace(Vec<u8>),
    /// A part with status 200 instead of 206, as from `rclone serve s3`.
    PartsAs200,
    /// HEAD returns a size of 0.
    EmptyHead,
    /// Another `Last-Modified`.
    LastModified(String),
    /// A directory URL without a trailing slash returns the listing instead of a redirect.
    NoRedirect,
    /// Pages of a listing have at most this number of names.
    MostNames(usize),
    /// A page of a listing whose continuation token leads to the same page.
    RepeatedToken,
    /// Listings begin with the first name, whatever `start-after` says, as from Azure.
    NoStartAfter,
    /// As [`Self::NoStartAfter`], and the names of a page have no order, as in a directory bucket of S3.
    UnsortedPage,
    /// A page of a listing without names, but with a continuation token.
    EmptyPage,
    /// A page of a listing that is cut off in the middle.
    TruncatedPage,
}

impl Fault {
    /// Creates a status with an HTML page, as from a proxy or a load balancer.
    pub fn status(status: u16) -> Self {
        let page = format!("<html><body><h1>{status} from the fault server</h1></body></html>\n");
        Self::Answer(Response::with(status, "text/html", page))
    }

    /// Creates a successful HTML page.
    pub fn html() -> Self {
        Self::status(200)
    }

    /// Creates an error in the form of S3.
    pub fn s3(status: u16, code: &str) -> Self {
        Self::Answer(s3_error(status, code, "said by the fault server"))
    }

    /// Creates a redirect.
    pub fn redirect(location: impl Into<String>) -> Self {
        Self::Answer(Response::empty(302).header("Location", location))
    }

    /// Adds a header, to responses of [`Fault::status`] and similar functions.
    pub fn with(self, name: &str, value: impl Into<String>) -> Self {
        match self {
            Self::Answer(response) => Self::Answer(response.header(name, value)),
            other => panic!("{other:?} has no headers"),
        }
    }

    /// Adds a `Retry-After` header, in seconds.
    pub fn retry_after(self, seconds: u32) -> Self {
        self.with("Retry-After", seconds.to_string())
    }
}

/// Creates an S3 error with its XML document.
pub fn s3_error(status: u16, code: &str, message: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>{message}</Message><RequestId>FAULTY</RequestId></Error>"
    );
    Response::with(status, "application/xml", body)
}

/// How often a rule applies, counted over the matching requests.
#[derive(Debug, Clone, Copy)]
pub enum Frequency {
    Always,
    First(u64),
    From(u64),
    Every(u64),
    /// This percentage of requests, chosen by a seed.
    Percent(u64, u64),
}

impl Frequency {
    /// Returns whether the rule applies to the `nth` request, counted from 1.
    pub fn holds(self, nth: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(n) => nth <= n,
            Self::From(n) => nth >= n,
            Self::Every(n) => nth.is_multiple_of(n),
            Self::Percent(percent, seed) => split_mix64(seed ^ nth) % 100 < percent,
        }
    }
}

/// Returns a pseudorandom number (SplitMix64).
fn split_mix64(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Value,
    Listing,
}

/// The requests that fail. Keys are those of the content, without a bucket; that of a listing is
/// its prefix. `*` matches any text, including slashes.
#[derive(Debug, Clone)]
pub struct Rule {
    key: String,
    method: Option<&'static str>,
    request_kind: Option<RequestKind>,
    header: Option<(&'static str, String)>,
    frequency: Frequency,
    seen: Arc<AtomicU64>,
    hits: Arc<AtomicU64>,
}

/// Matches requests for keys of this pattern.
pub fn on(key: &str) -> Rule {
    Rule {
        key: key.to_owned(),
        method: None,
        request_kind: None,
        header: None,
        frequency: Frequency::Always,
        seen: Arc::default(),
        hits: Arc::default(),
    }
}

impl Rule {
    pub fn get(mut self) -> Self {
        self.method = Some("GET");
        self
    }

    pub fn head(mut self) -> Self {
        self.method = Some("HEAD");
        self
    }

    /// Matches only listings.
    pub fn lists(mut self) -> Self {
        self.request_kind = Some(RequestKind::Listing);
        self
    }

    /// Matches no listings.
    pub fn values(mut self) -> Self {
        self.request_kind = Some(RequestKind::Value);
        self
    }

    /// Matches only requests with a header of this pattern.
    pub fn header(mut self, name: &'static str, pattern: &str) -> Self {
        self.header = Some((name, pattern.to_owned()));
        self
    }

    /// Applies to the first `n` requests only.
    pub fn first(self, n: u64) -> Self {
        self.frequency(Frequency::First(n))
    }

    /// Applies only from the `n`-th request on, counted from 1.
    pub fn from(self, n: u64) -> Self {
        self.frequency(Frequency::From(n))
    }

    /// Applies to each `n`-th request only.
    pub fn every(self, n: u64) -> Self {
        self.frequency(Frequency::Every(n))
    }

    /// Applies to this percentage of requests only, chosen by a seed.
    pub fn percent(self, percent: u64, seed: u64) -> Self {
        self.frequency(Frequency::Percent(percent, seed))
    }

    fn frequency(mut self, frequency: Frequency) -> Self {
        self.frequency = frequency;
        self
    }

    /// Returns the number of requests to which this rule was applied.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }

    /// Returns whether a request matches the rule, however often the rule applies.
    pub fn fits(&self, request: &Request, key: &str, request_kind: RequestKind) -> bool {
        self.method.is_none_or(|m| m == request.method)
            && self.request_kind.is_none_or(|a| a == request_kind)
            && is_like(&self.key, key)
            && self.header.as_ref().is_none_or(|(name, pattern)| {
                request.header(name).is_some_and(|v| is_like(pattern, v))
            })
    }

    /// Counts a matching request. Returns whether the rule applies to it.
    pub fn applies(&self) -> bool {
        let nth = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        let applies = self.frequency.holds(nth);
        if applies {
            self.hits.fetch_add(1, Ordering::SeqCst);
        }
        applies
    }
}

/// Returns whether `text` matches a pattern in which `*` is any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            let mut ends = tail.char_indices().map(|(i, _)| i).chain([tail.len()]);
            ends.any(|i| is_like(rest, &tail[i..]))
        }),
    }
}
