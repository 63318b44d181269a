//! Which requests go wrong, how often, and in what way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::message::{Request, Response};

/// Something that goes wrong with an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Another answer: a status, its headers and its body. See [`Fault::status`] and the like.
    Answer(Response),
    /// The connection is reset before anything is sent.
    Reset,
    /// The connection is reset behind so many bytes of the body, at least one byte too early.
    ResetAfter(usize),
    /// The connection is closed before anything is sent.
    Close,
    /// The connection is closed behind so many bytes, at least one too early: a short body.
    CloseAfter(usize),
    /// Nothing is ever sent.
    Stall,
    /// Nothing more is sent behind so many bytes of the body, at least one byte too early.
    StallAfter(usize),
    /// Each byte of the body takes so long.
    Drip(Duration),
    /// The answer comes late.
    Late(Duration),
    /// What is sent is no HTTP.
    Garbage,
    /// A part that is one byte off, and says so.
    WrongContentRange,
    /// Another `Content-Range`, or none if it is empty.
    ContentRange(String),
    /// The whole value with 200, whatever part was asked for.
    IgnoreRange,
    /// A part wrapped into multipart/byteranges.
    Multipart,
    /// The body compressed, and said to be so, although nobody asked for it.
    Gzip,
    /// A body in chunks, of no announced length.
    Chunked,
    /// A body that ends with the connection.
    Unframed,
    /// A body that never ends.
    Endless,
    /// No `ETag`, which makes conditions on it fail to be heard.
    NoEtag,
    /// No `Last-Modified`.
    NoLastModified,
    /// The value has this `ETag` now, for conditions too.
    Etag(String),
    /// The value is this one from now on.
    Replace(Vec<u8>),
    /// The body of a part with status 200 instead of 206, as `rclone serve s3` sends it.
    PartsAs200,
    /// HEAD says that the value is empty.
    EmptyHead,
    /// Another `Last-Modified`.
    LastModified(String),
    /// A directory answers without a slash behind its URL as it does with one.
    NoRedirect,
    /// Pages of a listing have at most so many names.
    MostNames(usize),
    /// A page of a listing that leads to itself.
    RepeatedToken,
    /// A page of a listing without names that leads to the next one.
    EmptyPage,
    /// A page of a listing that ends in the middle.
    TruncatedPage,
}

impl Fault {
    /// A status with a page of HTML, as a proxy or a load balancer makes it.
    pub fn status(status: u16) -> Self {
        let page = format!("<html><body><h1>{status} from the fault server</h1></body></html>\n");
        Self::Answer(Response::with(status, "text/html", page))
    }

    /// A page of HTML that says that all is well.
    pub fn html() -> Self {
        Self::status(200)
    }

    /// An error as S3 says it.
    pub fn s3(status: u16, code: &str) -> Self {
        Self::Answer(s3_error(status, code, "said by the fault server"))
    }

    /// A redirect to another place.
    pub fn redirect(location: impl Into<String>) -> Self {
        Self::Answer(Response::empty(302).header("Location", location))
    }

    /// The same answer with another header; for answers of [`Fault::status`] and the like.
    pub fn with(self, name: &str, value: impl Into<String>) -> Self {
        match self {
            Self::Answer(response) => Self::Answer(response.header(name, value)),
            other => panic!("{other:?} has no headers"),
        }
    }

    /// The same answer, which says when to come again.
    pub fn retry_after(self, seconds: u32) -> Self {
        self.with("Retry-After", seconds.to_string())
    }
}

/// An error of S3 with its document.
pub fn s3_error(status: u16, code: &str, message: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>{message}</Message><RequestId>FAULTY</RequestId></Error>"
    );
    Response::with(status, "application/xml", body)
}

/// How often a rule holds, counted over the requests that fit it.
#[derive(Debug, Clone, Copy)]
pub enum Often {
    Always,
    First(u64),
    From(u64),
    Every(u64),
    /// So many of 100, by a seed.
    Percent(u64, u64),
}

impl Often {
    /// Whether it holds for the `nth` request, counted from 1.
    pub fn holds(self, nth: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(n) => nth <= n,
            Self::From(n) => nth >= n,
            Self::Every(n) => nth.is_multiple_of(n),
            Self::Percent(percent, seed) => scattered(seed ^ nth) % 100 < percent,
        }
    }
}

/// A number that looks like chance (SplitMix64).
fn scattered(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Value,
    Listing,
}

/// Requests that go wrong. Keys are those of the content, without a bucket; a listing's is the
/// prefix that is listed. `*` stands for any text, slashes too.
#[derive(Debug, Clone)]
pub struct Rule {
    key: String,
    method: Option<&'static str>,
    asks: Option<Asks>,
    header: Option<(&'static str, String)>,
    often: Often,
    seen: Arc<AtomicU64>,
    hits: Arc<AtomicU64>,
}

/// Requests for keys of this pattern.
pub fn on(key: &str) -> Rule {
    Rule {
        key: key.to_owned(),
        method: None,
        asks: None,
        header: None,
        often: Often::Always,
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

    /// Only listings.
    pub fn lists(mut self) -> Self {
        self.asks = Some(Asks::Listing);
        self
    }

    /// No listings.
    pub fn values(mut self) -> Self {
        self.asks = Some(Asks::Value);
        self
    }

    /// Only requests with a header of this pattern.
    pub fn header(mut self, name: &'static str, pattern: &str) -> Self {
        self.header = Some((name, pattern.to_owned()));
        self
    }

    /// Only the first `n` requests.
    pub fn first(self, n: u64) -> Self {
        self.often(Often::First(n))
    }

    /// Only requests from the `n`-th on, counted from 1.
    pub fn from(self, n: u64) -> Self {
        self.often(Often::From(n))
    }

    /// Only each `n`-th request.
    pub fn every(self, n: u64) -> Self {
        self.often(Often::Every(n))
    }

    /// Only so many of 100 requests, by a seed.
    pub fn percent(self, percent: u64, seed: u64) -> Self {
        self.often(Often::Percent(percent, seed))
    }

    fn often(mut self, often: Often) -> Self {
        self.often = often;
        self
    }

    /// How many requests have gone wrong by this rule.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }

    /// Whether it is a request that this rule is for, however often it holds.
    pub fn fits(&self, request: &Request, key: &str, asks: Asks) -> bool {
        self.method.is_none_or(|m| m == request.method)
            && self.asks.is_none_or(|a| a == asks)
            && is_like(&self.key, key)
            && self.header.as_ref().is_none_or(|(name, pattern)| {
                request.header(name).is_some_and(|v| is_like(pattern, v))
            })
    }

    /// Counts a request that fits; whether it goes wrong.
    pub fn strikes(&self) -> bool {
        let nth = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        let strikes = self.often.holds(nth);
        if strikes {
            self.hits.fetch_add(1, Ordering::SeqCst);
        }
        strikes
    }
}

/// Whether `text` is of a pattern in which `*` is any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            let mut ends = tail.char_indices().map(|(i, _)| i).chain([tail.len()]);
            ends.any(|i| is_like(rest, &tail[i..]))
        }),
    }
}
