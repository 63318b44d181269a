//! The correct response to a request, and its change by faults.

use std::io::Write;
use std::time::{Duration, SystemTime};

use super::ServerKind;
use super::content::{Content, Entity};
use super::listing::{self, Page};
use super::message::{Part, Request, Response, part};
use super::rules::{Fault, RequestKind, s3_error};

/// The end of the bytes of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Right,
    Reset,
    Close,
    Stall,
}

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    Length,
    Chunks,
    Connection,
}

/// The combined faults of one request.
#[derive(Debug)]
pub struct Plan {
    pub end: End,
    /// The number of body bytes before the end; `None` ends the response before the headers.
    pub after: Option<usize>,
    pub frame: Frame,
    pub is_endless: bool,
    pub is_garbage: bool,
    pub drip: Option<Duration>,
    pub late: Duration,
    pub replace: Option<Vec<u8>>,
    answer: Option<Response>,
    etag: Option<String>,
    has_etag: bool,
    has_modified: bool,
    takes_ranges: bool,
    shift: bool,
    content_range: Option<String>,
    multipart: bool,
    parts_as_200: bool,
    empty_head: bool,
    modified: Option<String>,
    redirects: bool,
    gzip: bool,
    page: Page,
    most_names: usize,
}

impl Plan {
    /// Combines faults; later faults override earlier ones.
    pub fn new(faults: Vec<Fault>) -> Self {
        let mut plan = Self {
            end: End::Right,
            after: None,
            frame: Frame::Length,
            is_endless: false,
            is_garbage: false,
            drip: None,
            late: Duration::ZERO,
            replace: None,
            answer: None,
            etag: None,
            has_etag: true,
            has_modified: true,
            takes_ranges: true,
            shift: false,
            content_range: None,
            multipart: false,
            parts_as_200: false,
            empty_head: false,
            modified: None,
            redirects: true,
            gzip: false,
            page: Page::Right,
            most_names: 1000,
        };
        for fault in faults {
            plan.add(fault);
        }
        plan
    }

    fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Answer(response) => self.answer = Some(response),
            Fault::Reset => self.ends(End::Reset, None),
            Fault::ResetAfter(bytes) => self.ends(End::Reset, Some(bytes)),
            Fault::Close => self.ends(End::Close, None),
            Fault::CloseAfter(bytes) => self.ends(End::Close, Some(bytes)),
            Fault::Stall => self.ends(End::Stall, None),
            Fault::StallAfter(bytes) => self.ends(End::Stall, Some(bytes)),
            Fault::Drip(each) => self.drip = Some(each),
            Fault::Late(by) => self.late = by,
            Fault::Garbage => self.is_garbage = true,
            Fault::WrongContentRange => self.shift = true,
            Fault::ContentRange(text) => self.content_range = Some(text),
            Fault::IgnoreRange => self.takes_ranges = false,
            Fault::Multipart => self.multipart = true,
            Fault::Gzip => self.gzip = true,
            Fault::Chunked => self.frame = Frame::Chunks,
            Fault::Unframed => self.frame = Frame::Connection,
            Fault::Endless => (self.is_endless, self.frame) = (true, Frame::Chunks),
            Fault::NoEtag => self.has_etag = false,
            Fault::NoLastModified => self.has_modified = false,
            Fault::Etag(etag) => self.etag = Some(etag),
            Fault::Replace(bytes) => self.replace = Some(bytes),
            Fault::PartsAs200 => self.parts_as_200 = true,
            Fault::EmptyHead => self.empty_head = true,
            Fault::LastModified(text) => self.modified = Some(text),
            Fault::NoRedirect => self.redirects = false,
            Fault::MostNames(names) => self.most_names = names,
            Fault::RepeatedToken => self.page = Page::RepeatedToken,
            Fault::EmptyPage => self.page = Page::Empty,
            Fault::NoStartAfter => self.page = Page::WithoutStartAfter,
            Fault::UnsortedPage => self.page = Page::Unsorted,
            Fault::TruncatedPage => self.page = Page::Truncated,
        }
    }

    fn ends(&mut self, end: End, after: Option<usize>) {
        (self.end, self.after) = (end, after);
    }
}

/// The parts of a request that determine the response.
#[derive(Debug)]
pub struct ParsedRequest<'a> {
    pub request: &'a Request,
    pub key: String,
    pub request_kind: RequestKind,
    /// Whether the key is in the existing bucket.
    pub is_inside: bool,
}

impl<'a> ParsedRequest<'a> {
    pub fn new(request: &'a Request, server_kind: &ServerKind) -> Self {
        let (key, request_kind, is_inside) = match server_kind {
            ServerKind::Files { .. } => (request.path.as_str(), RequestKind::Value, true),
            ServerKind::S3 { bucket } => {
                let (named, key) = request.path.split_once('/').unwrap_or((&request.path, ""));
                let is_listing = key.is_empty() && request.method == "GET";
                match is_listing {
                    true => {
                        let prefix = request.query("prefix").unwrap_or_default();
                        (prefix, RequestKind::Listing, named == bucket)
                    }
                    false => (key, RequestKind::Value, named == bucket),
                }
            }
        };
        Self {
            request,
            key: key.to_owned(),
            request_kind,
            is_inside,
        }
    }

    /// Returns the response.
    pub fn answer(&self, content: &Content, server_kind: &ServerKind, plan: &Plan) -> Response {
        let mut response = match &plan.answer {
            Some(response) => response.clone(),
            None => self.right(content, server_kind, plan),
        };
        if plan.multipart && response.status == 206 {
            wrap_in_multipart(&mut response);
        }
        if let Some(text) = &plan.content_range
            && response.status == 206
        {
            match text.is_empty() {
                true => response.unset("Content-Range"),
                false => response.set("Content-Range", text.as_str()),
            }
        }
        if plan.parts_as_200 && response.status == 206 {
            response.status = 200;
        }
        if plan.empty_head && self.request.method == "HEAD" && response.status == 200 {
            response.set_body(Vec::new());
        }
        if let Some(modified) = &plan.modified {
            response.set("Last-Modified", modified.as_str());
        }
        let now = std::time::SystemTime::now();
        response.set("Date", httpdate::fmt_http_date(now));
        if plan.gzip && matches!(response.status, 200 | 206) {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
            encoder.write_all(response.body()).unwrap();
            response.set_body(encoder.finish().unwrap());
            response.set("Content-Encoding", "gzip");
        }
        response
    }

    fn right(&self, content: &Content, server_kind: &ServerKind, plan: &Plan) -> Response {
        if !matches!(self.request.method.as_str(), "GET" | "HEAD") {
            return Response::empty(405).header("Allow", "GET, HEAD");
        }
        match server_kind {
            ServerKind::Files { lists } => match content.get(&self.key) {
                Some(entity) => self.value(&entity, plan),
                None => self.directory(content, *lists, plan),
            },
            ServerKind::S3 { .. } if !self.is_inside => {
                s3_error(404, "NoSuchBucket", "The specified bucket does not exist")
            }
            ServerKind::S3 { bucket } if self.request_kind == RequestKind::Listing => {
                listing::list(content, bucket, self.request, plan.page, plan.most_names)
            }
            // HEAD of a bucket.
            ServerKind::S3 { .. } if self.key.is_empty() => Response::empty(200),
            ServerKind::S3 { .. } => match content.get(&self.key) {
                Some(entity) => self.value(&entity, plan),
                None => s3_error(404, "NoSuchKey", "The specified key does not exist."),
            },
        }
    }

    /// Returns the response of a web server for a path that is not a file.
    fn directory(&self, content: &Content, lists: bool, plan: &Plan) -> Response {
        let path = &self.key;
        let bare = path.strip_suffix('/').unwrap_or(path);
        if !content.is_prefix(bare) {
            return Fault::status(404).into_response();
        }
        if bare == path && !path.is_empty() && plan.redirects {
            let (target, query) = self
                .request
                .target
                .split_once('?')
                .unwrap_or((&self.request.target, ""));
            let mark = if query.is_empty() { "" } else { "?" };
            return Response::empty(301).header("Location", format!("{target}/{mark}{query}"));
        }
        match lists {
            true => listing::autoindex(content, bare),
            false => Fault::status(403).into_response(),
        }
    }

    fn value(&self, entity: &Entity, plan: &Plan) -> Response {
        let etag = plan.etag.clone().unwrap_or_else(|| entity.etag.clone());
        let etag = plan.has_etag.then_some(etag);
        let modified = plan.has_modified.then_some(entity.modified);
        let size = entity.bytes.len();
        let mut response = match self.condition(etag.as_deref(), modified) {
            Some(status) => Response::empty(status),
            None => match self.range(size, etag.as_deref(), plan) {
                None => Response::part(200, entity.bytes.clone(), 0..size),
                Some(Part::Unsatisfiable) => {
                    return Fault::status(416)
                        .into_response()
                        .header("Content-Range", format!("bytes */{size}"));
                }
                Some(Part::Of(mut range)) => {
                    if plan.shift {
                        range = match range.end < size {
                            true => range.start + 1..range.end + 1,
                            false => range.start.saturating_sub(1)..range.end - 1,
                        };
                    }
                    let last = range.end.saturating_sub(1);
                    let content_range = format!("bytes {}-{last}/{size}", range.start);
                    Response::part(206, entity.bytes.clone(), range)
                        .header("Content-Range", content_range)
                }
            },
        };
        if let Some(etag) = etag {
            response.set("ETag", etag);
        }
        if let Some(modified) = modified {
            response.set("Last-Modified", httpdate::fmt_http_date(modified));
        }
        if plan.takes_ranges {
            response.set("Accept-Ranges", "bytes");
        }
        if matches!(response.status, 200 | 206) {
            response.set("Content-Type", "application/octet-stream");
        }
        response
    }

    /// Returns the requested part, if ranges are supported and `If-Range` matches.
    fn range(&self, size: usize, etag: Option<&str>, plan: &Plan) -> Option<Part> {
        let header = self.request.header("range").filter(|_| plan.takes_ranges)?;
        let same = self
            .request
            .header("if-range")
            .is_none_or(|wanted| etag == Some(wanted));
        same.then(|| part(header, size)).flatten()
    }

    /// Returns the status of a condition that does not hold, in the order of RFC 9110, 13.2.2.
    fn condition(&self, etag: Option<&str>, modified: Option<SystemTime>) -> Option<u16> {
        let header = |name| self.request.header(name);
        // HTTP dates have no fractions of a second.
        let seconds = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs())
        };
        let is_after = |date: &str| {
            let date = httpdate::parse_http_date(date).ok().map(seconds);
            modified.map(seconds).zip(date).map(|(m, d)| m > d)
        };
        // Without an ETag, these conditions are ignored, as by servers without ETags.
        let has = |wanted: &str| {
            etag.map(|etag| {
                wanted
                    .split(',')
                    .any(|w| matches!(w.trim(), "*") || w.trim() == etag)
            })
        };
        match header("if-match") {
            Some(wanted) if has(wanted) == Some(false) => return Some(412),
            Some(_) => {}
            None => {
                if header("if-unmodified-since").and_then(is_after) == Some(true) {
                    return Some(412);
                }
            }
        }
        match header("if-none-match") {
            Some(wanted) => (has(wanted) == Some(true)).then_some(304),
            None => (header("if-modified-since").and_then(is_after) == Some(false)).then_some(304),
        }
    }
}

impl Fault {
    fn into_response(self) -> Response {
        match self {
            Self::Answer(response) => response,
            other => panic!("{other:?} is no answer"),
        }
    }
}

fn wrap_in_multipart(response: &mut Response) {
    let range = super::message::value(&response.headers, "Content-Range").unwrap_or_default();
    let mut body = format!(
        "--FAULTY\r\nContent-Type: application/octet-stream\r\nContent-Range: {range}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(response.body());
    body.extend_from_slice(b"\r\n--FAULTY--\r\n");
    response.unset("Content-Range");
    response.set("Content-Type", "multipart/byteranges; boundary=FAULTY");
    response.set_body(body);
}
