//! A server that a simulation imitates, below the client and above the parser of its responses.
//!
//! [`SimulatedServer`] has the keys of a source, or one archive of them at the root, each with all of its versions. A
//! mount sends its requests to it through a `Remote` (`mounted`) in place of one that sends HTTP. Latencies, failures and lies are random numbers of the simulation. Its responses are those of an HTTP
//! client, with headers and a body that arrives in parts, so that the parser of web servers judges them.

mod fault;
mod history;
mod mounted;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, RETRY_AFTER,
};
use reqwest::Response;

use super::protocol::web::wanted;
use super::request::transfer_stats::{headers_received, request_sent};
use super::request::{ByteRange, Depth, Failed, FailureKind, Get, List, Meta, Page, RequestError};
use crate::clock;
use crate::runtime;
use crate::runtime::simulated::{below, record};
use crate::store::{Key, KeyClasses};
use crate::sync::Mutex;
use fault::Fault;
pub(crate) use fault::Faults;
pub(crate) use history::{History, Value};
pub(crate) use mounted::{ArchiveOptions, SimulatedSource};

/// The longest time in milliseconds until a request arrives, or a part of a response.
const LATENCY_MILLIS: u64 = 60;
/// The longest time in milliseconds until the next part of a body.
const PART_MILLIS: u64 = 15;
/// The number of bytes of each part of a body.
const PART_BYTES: usize = 32 << 10;

/// The entity tags of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tags {
    Strong,
    /// As those of servers that compress responses. No request can require a version.
    Weak,
    /// Only sizes and times, in whole seconds, tell versions apart.
    None,
}

/// A source with a history, and the network in front of it.
#[derive(Debug)]
pub(crate) struct SimulatedServer {
    classes: KeyClasses,
    /// The number of names of a page; `None` if the server does not list.
    page_names: Option<usize>,
    tags: Tags,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    history: History,
    faults: Faults,
    /// Until when no connection is accepted.
    down_until: Duration,
    in_flight: BTreeMap<String, usize>,
    /// When a request was last sent, answered or cancelled.
    last_event: Duration,
    /// Rules that the client has broken.
    broken: Vec<String>,
}

/// A request in flight; it was cancelled if it is dropped without a status.
struct Sent<'a> {
    server: &'a SimulatedServer,
    request: String,
    status: Option<String>,
    is_slow: bool,
}

impl Sent<'_> {
    async fn latency(&self) {
        // Without faults, a read with many requests one after the other is answered before its deadline.
        let is_calm = self.server.state.lock().faults.is_none();
        let millis = if is_calm { 1 } else { LATENCY_MILLIS };
        latency(millis, self.is_slow).await;
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut state = self.server.state.lock();
        state.last_event = now();
        if let Some(count) = state.in_flight.get_mut(&self.request) {
            *count -= 1;
        }
        state.in_flight.retain(|_, count| *count > 0);
        drop(state);
        let status = self.status.as_deref().unwrap_or("cancelled");
        record(format!("  {}: {status}", self.request));
    }
}

/// Returns the virtual time.
fn now() -> Duration {
    clock::virtual_now().unwrap_or_default()
}

/// Waits for a random time of at most `millis` milliseconds; on a slow network, rarely for much longer.
async fn latency(millis: u64, is_slow: bool) {
    let slow = if is_slow && below(40) == 0 { 50 } else { 1 };
    let micros = below((millis * slow * 1000).max(1));
    runtime::sleep(Duration::from_micros(micros)).await;
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("a header")
}

impl SimulatedServer {
    /// Returns a server without keys. With `page_names` it is a bucket, which lists pages of at most this number of
    /// names.
    pub(crate) fn new(classes: KeyClasses, page_names: Option<usize>) -> Self {
        Self {
            classes,
            page_names,
            tags: Tags::Strong,
            state: Mutex::new(State {
                history: History::default(),
                faults: Faults::none(),
                down_until: Duration::ZERO,
                in_flight: BTreeMap::new(),
                last_event: Duration::ZERO,
                broken: Vec::new(),
            }),
        }
    }

    /// Returns the server with other entity tags than strong ones.
    pub(crate) fn with_tags(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    /// Returns the kind of its entity tags.
    pub(crate) fn tags(&self) -> Tags {
        self.tags
    }

    /// Returns the entity tag of a value.
    fn tag(&self, value: &Value) -> Option<String> {
        match self.tags {
            Tags::Strong => Some(value.etag.clone()),
            Tags::Weak => Some(format!("W/{}", value.etag)),
            Tags::None => None,
        }
    }

    /// Writes a value, or removes it.
    pub(crate) fn write(&self, key: &str, bytes: Option<Vec<u8>>) {
        let text = bytes.as_ref().map(|bytes| format!("{} bytes", bytes.len()));
        record(format!("* {key}: {}", text.as_deref().unwrap_or("gone")));
        self.state.lock().history.write(key, bytes, now());
    }

    /// Calls `look` with all versions of all keys.
    pub(crate) fn history<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.state.lock().history)
    }

    /// Sets how often requests fail from now on. Without faults, the server is up.
    pub(crate) fn set_faults(&self, faults: Faults) {
        let mut state = self.state.lock();
        if faults.is_none() {
            state.down_until = Duration::ZERO;
            state.history.end_blackouts(now());
        }
        state.faults = faults;
    }

    /// Restarts the server: it accepts no connection for a while, and then has no keys for a while.
    pub(crate) fn restart(&self, down: Duration, empty: Duration) {
        record(format!("* down for {down:?}, without keys for {empty:?}"));
        let mut state = self.state.lock();
        state.down_until = now() + down;
        let back = state.down_until + empty;
        let gone = state.down_until..back;
        if !empty.is_zero() {
            state.history.add_blackout(gone);
        }
    }

    /// Returns when a request was last sent, answered or cancelled.
    pub(crate) fn last_event(&self) -> Duration {
        self.state.lock().last_event
    }

    /// Returns the requests in flight.
    pub(crate) fn in_flight(&self) -> Vec<String> {
        self.state.lock().in_flight.keys().cloned().collect()
    }

    /// Returns the rules that the client has broken.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.state.lock().broken.clone()
    }

    /// Records a request, waits for it to arrive, and chooses how it fails.
    async fn receive(&self, request: String) -> Result<(Sent<'_>, Fault), RequestError> {
        request_sent();
        record(format!("  {request}"));
        let (is_down, fault, is_slow, is_second) = {
            let mut state = self.state.lock();
            state.last_event = now();
            let count = state.in_flight.entry(request.clone()).or_insert(0);
            *count += 1;
            let is_second = *count > 1;
            let is_slow = state.faults.is_slow();
            let is_down = now() < state.down_until;
            (is_down, state.faults.next(), is_slow, is_second)
        };
        let mut sent = Sent {
            server: self,
            request,
            status: None,
            is_slow,
        };
        sent.latency().await;
        // By now, an earlier request that was cancelled when this one was sent is gone. A check has to begin after some
        // moment, and a listing after its call: they cannot join one in flight.
        let may_repeat =
            sent.request.starts_with("LIST") || sent.request.contains(" if-none-match ");
        {
            let mut state = self.state.lock();
            if is_second
                && !may_repeat
                && state
                    .in_flight
                    .get(&sent.request)
                    .is_some_and(|count| *count > 1)
            {
                let broken = format!("in flight twice at once: {}", sent.request);
                state.broken.push(broken);
            }
        }
        let failed = |what: &str, kind, after| {
            RequestError::Failed(Failed {
                what: what.into(),
                kind,
                is_transient: true,
                retry_after: after,
                partial: None,
            })
        };
        if is_down || fault == Fault::Refused {
            sent.status = Some("refused".into());
            return Err(failed("refused", FailureKind::Unreachable, None));
        }
        if fault == Fault::Reset {
            sent.status = Some("reset".into());
            return Err(failed("reset", FailureKind::Other, None));
        }
        if fault == Fault::StalledHeaders {
            std::future::pending::<()>().await;
        }
        Ok((sent, fault))
    }

    /// Returns the present value of a key.
    fn value(&self, key: &Key) -> Option<Value> {
        let state = self.state.lock();
        let is_there = !state.history.was_empty(now(), now());
        let key = String::from_utf8_lossy(key.as_bytes());
        state.history.present(&key).filter(|_| is_there).cloned()
    }

    /// Returns the response to a request with a status other than success.
    fn refusal(status: u16, fault: Fault) -> Response {
        let mut headers = date();
        if let Fault::Status(_, Some(seconds)) = fault {
            headers.insert(RETRY_AFTER, header(&seconds.to_string()));
        }
        empty(status, headers)
    }

    fn respond(&self, get: &Get, fault: Fault, is_slow: bool) -> Response {
        if let Fault::Status(status, _) = fault {
            return Self::refusal(status, fault);
        }
        let Some(value) = self.value(&get.key) else {
            return Self::refusal(404, fault);
        };
        let tag = self.tag(&value);
        let is_current = |meta: &Meta| tag.is_some() && meta.etag == tag;
        let expected = get.expected.as_ref().and_then(Meta::strong_tag);
        let is_changed = expected.is_some_and(|tag| tag != value.etag);
        if is_changed && fault != Fault::NoConditions {
            return Self::refusal(412, fault);
        }
        if get.cached.as_ref().is_some_and(is_current) && fault != Fault::NoConditions {
            return Self::refusal(304, fault);
        }
        let size = value.bytes.len() as u64;
        let is_whole = matches!(get.range, ByteRange::Whole(_)) || fault == Fault::WholeValue;
        let mut headers = value_headers(&value, tag.as_deref());
        let mut range = match is_whole {
            true => 0..size,
            false => wanted(&get.range, size),
        };
        if !is_whole && (range.is_empty() || fault == Fault::NoSuchRange) {
            headers.insert(CONTENT_RANGE, header(&format!("bytes */{size}")));
            return empty(416, headers);
        }
        if fault == Fault::OtherRange && !is_whole && range.start > 0 {
            range.start -= 1 + below(range.start);
        }
        let index = |at: u64| usize::try_from(at).expect("in memory");
        let mut body = value.bytes[index(range.start)..index(range.end)].to_vec();
        let mut status = 200;
        if !is_whole {
            status = 206;
            let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            headers.insert(CONTENT_RANGE, header(&text));
        }
        headers.insert(CONTENT_LENGTH, header(&body.len().to_string()));
        let at = index(below(body.len() as u64 + 1));
        let ending = match fault {
            Fault::BrokenBody => Ending::Broken(at),
            Fault::ShortBody => Ending::Short(at),
            Fault::StalledBody => Ending::Stalled(at),
            _ => Ending::Complete,
        };
        if fault == Fault::LongBody {
            body.extend([0xee; 7]);
        }
        response(status, headers, (body, ending), is_slow)
    }

    async fn page(&self, list: &List, by: &str) -> Result<Page, RequestError> {
        let Some(most) = self.page_names else {
            return Err(RequestError::NoListing("no listing".into()));
        };
        let depth = match list.depth {
            Depth::One => "names",
            Depth::All => "keys",
        };
        let after = list.after.as_deref().map(String::from_utf8_lossy);
        let after = list.page.as_deref().or(after.as_deref()).unwrap_or("");
        let request = format!("LIST {depth} of {} after {after}{by}", list.prefix);
        let (mut sent, fault) = self.receive(request).await?;
        let page = match fault {
            Fault::Status(status, _) => {
                sent.status = Some(status.to_string());
                let refused = Self::refusal(status, fault);
                sent.latency().await;
                return Err(super::protocol::web::refusal(
                    refused.status(),
                    refused.headers(),
                ));
            }
            _ => self.names(list, after, list.most.unwrap_or(most).min(most)),
        };
        sent.latency().await;
        headers_received(&date());
        sent.status = Some(format!(
            "{} names",
            page.objects.len() + page.prefixes.len()
        ));
        Ok(page)
    }

    /// Returns the names below a prefix after one of them.
    fn names(&self, list: &List, after: &str, most: usize) -> Page {
        let state = self.state.lock();
        let prefix = match list.prefix.is_root() {
            true => String::new(),
            false => format!("{}/", list.prefix),
        };
        let mut page = Page {
            is_complete: true,
            ..Page::default()
        };
        if state.history.was_empty(now(), now()) {
            return page;
        }
        // A page without names is correct, too.
        let most = if state.faults.is_none() || below(8) > 0 {
            most
        } else {
            0
        };
        let mut last = after.to_owned();
        for (key, value) in state.history.all_present() {
            let Some(name) = key.strip_prefix(&prefix) else {
                continue;
            };
            let name = match (list.depth, name.split_once('/')) {
                (Depth::One, Some((first, _))) => first,
                _ => name,
            };
            if name <= &*last && !(last.is_empty() && name.is_empty()) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() >= most {
                page.next = Some(last);
                break;
            }
            let is_prefix = prefix.len() + name.len() < key.len();
            match is_prefix {
                true => page.prefixes.push(name.into()),
                false => page.objects.push((name.into(), Some(value_meta(value)))),
            }
            name.clone_into(&mut last);
        }
        page
    }
}

fn value_meta(value: &Value) -> Meta {
    Meta {
        size_bytes: value.bytes.len() as u64,
        etag: Some(value.etag.clone()),
        modified: Some(clock::system_time_at(value.since)),
    }
}

/// Returns the headers of each response.
fn date() -> HeaderMap {
    let date = httpdate::fmt_http_date(clock::system_time_at(now()));
    HeaderMap::from_iter([(DATE, header(&date))])
}

fn value_headers(value: &Value, tag: Option<&str>) -> HeaderMap {
    let mut headers = date();
    let modified = httpdate::fmt_http_date(clock::system_time_at(value.since));
    headers.insert(LAST_MODIFIED, header(&modified));
    if let Some(tag) = tag {
        headers.insert(ETAG, header(tag));
    }
    headers
}

/// How a body ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Complete,
    /// The connection breaks behind this number of bytes.
    Broken(usize),
    /// The body seems to be complete behind this number of bytes.
    Short(usize),
    /// No more arrives behind this number of bytes.
    Stalled(usize),
}

/// Returns a response whose body arrives in parts.
fn response(
    status: u16,
    headers: HeaderMap,
    (bytes, ending): (Vec<u8>, Ending),
    is_slow: bool,
) -> Response {
    let (bytes, ending) = match ending {
        Ending::Complete => (Bytes::from(bytes), ending),
        Ending::Broken(at) | Ending::Short(at) | Ending::Stalled(at) => {
            (Bytes::from(bytes).slice(..at), ending)
        }
    };
    let parts = stream::unfold((bytes, ending), move |(mut bytes, ending)| async move {
        latency(PART_MILLIS, is_slow).await;
        if !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(PART_BYTES));
            return Some((Ok(part), (bytes, ending)));
        }
        match ending {
            Ending::Complete | Ending::Short(_) => None,
            Ending::Broken(_) => {
                let broken = std::io::Error::other("the connection broke");
                Some((Err(broken), (bytes, Ending::Complete)))
            }
            Ending::Stalled(_) => std::future::pending().await,
        }
    });
    let mut response = http::Response::new(reqwest::Body::wrap_stream(parts));
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    *response.headers_mut() = headers;
    response.into()
}

/// Returns a response without a body.
fn empty(status: u16, headers: HeaderMap) -> Response {
    response(status, headers, (Vec::new(), Ending::Complete), false)
}

/// Describes a request by what HTTP would send of it, and by the version that it expects: requests of different versions
/// are different, also if HTTP cannot say so (seed 94536).
fn request_line(get: &Get) -> String {
    let mut line = format!("GET {}", get.key);
    match &get.range {
        ByteRange::Whole(_) => {}
        ByteRange::Bounded(range) => line += &format!(" bytes={}-{}", range.start, range.end),
        ByteRange::Suffix(bytes) => line += &format!(" bytes=-{bytes}"),
    }
    match get.expected.as_ref().map(|meta| (meta.strong_tag(), meta)) {
        Some((Some(tag), _)) => line += &format!(" if-match {tag}"),
        Some((None, meta)) => line += &format!(" expects {:?}", meta.version()),
        None => {}
    }
    if let Some(tag) = get.cached.as_ref().and_then(|meta| meta.etag.as_ref()) {
        line += &format!(" if-none-match {tag}");
    }
    line
}
