//! Parses responses, and checks that they match the request.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    LAST_MODIFIED, RETRY_AFTER, TRANSFER_ENCODING,
};
use reqwest::Response;
use tokio::sync::Semaphore;

use super::causes;
use crate::store::Key;
use crate::store::remote::request::arrival::Arrival;
use crate::store::remote::request::body::Body;
use crate::store::remote::request::{
    ByteRange, Failed, FailureKind, Get, Got, Meta, Refusal, RequestError,
};

/// If a server sends the whole value when a part was requested, at most this many bytes are read: the
/// first limit applies if the response states its length, the second one otherwise.
const MAX_SKIPPED_BYTES: u64 = 256 << 20;
const MAX_UNSIZED_BYTES: u64 = 16 << 20;
/// Metadata documents, and bodies of unknown length, that are longer than this are received two at a
/// time, because their readers have reserved no memory for them.
const LONG_BYTES: u64 = 256 << 10;
static LONG_BODIES: Semaphore = Semaphore::const_new(2);
/// Most bytes that are allocated for a body before any of it has arrived.
const FIRST_ROOM_BYTES: u64 = 32 << 20;

/// Returns the text of a header.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The longest ETag that is used in bytes. Very many are held, for as long as attributes are trusted.
const MAX_ETAG_BYTES: usize = 512;

/// Returns the attributes in the headers, for an object of `size_bytes`.
fn meta(headers: &HeaderMap, size_bytes: u64) -> Meta {
    let modified = text(headers, LAST_MODIFIED);
    Meta {
        size_bytes,
        etag: text(headers, ETAG)
            .filter(|tag| (1..=MAX_ETAG_BYTES).contains(&tag.len()))
            .map(str::to_owned),
        modified: modified.and_then(|date| httpdate::parse_http_date(date).ok()),
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_LENGTH)?.parse().ok()
}

/// Whether the end of the body is marked only by the end of the connection (RFC 9112, 6.3).
pub(super) fn is_unframed(response: &Response) -> bool {
    let headers = response.headers();
    let coding = text(headers, TRANSFER_ENCODING).unwrap_or_default();
    content_length(headers).is_none() && !coding.to_ascii_lowercase().ends_with("chunked")
}

/// Whether the body of a document is markup, such as an HTML page, which no metadata document is.
pub(in crate::store::remote) fn is_markup(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"<")
}

/// Whether the body is an HTML page, as servers generate for a directory.
pub(super) fn is_page(response: &Response) -> bool {
    let kind = text(response.headers(), CONTENT_TYPE).unwrap_or_default();
    response.status() == StatusCode::OK && kind.to_ascii_lowercase().starts_with("text/html")
}

/// How long the server asks clients to wait: seconds or a date (RFC 9110, 10.2.3).
pub(in crate::store::remote) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, RETRY_AFTER)?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Converts a status other than success.
pub(in crate::store::remote) fn refusal(status: StatusCode, headers: &HeaderMap) -> RequestError {
    match status.as_u16() {
        304 => RequestError::NotModified,
        401 | 403 | 407 => RequestError::Denied(Refusal {
            what: status.to_string(),
            status: Some(status.as_u16()),
        }),
        // No other status proves absence, such as 410, or 403 without `--missing-status`.
        404 => RequestError::NotFound,
        412 => RequestError::Changed("it has another ETag by now".into()),
        408 | 425 | 429 | 500 | 502..=504 | 506..=599 => RequestError::Failed(Failed {
            what: status.to_string(),
            kind: FailureKind::of_status(status),
            is_transient: true,
            retry_after: retry_after(headers),
            partial: None,
        }),
        _ => RequestError::lasting(status.to_string()),
    }
}

/// Fails if the bytes of the body are encoded, and so are not those of the value.
fn check_encoding(headers: &HeaderMap) -> Result<(), RequestError> {
    match text(headers, CONTENT_ENCODING) {
        None | Some("" | "identity") => Ok(()),
        Some(encoding) => Err(RequestError::lasting(format!(
            "the server sends it with Content-Encoding {encoding}, which was not asked for"
        ))),
    }
}

/// Parses the response to HEAD; `None` if another request is needed.
pub(in crate::store::remote) fn of_head(response: &Response) -> Result<Option<Meta>, RequestError> {
    let headers = response.headers();
    match response.status().as_u16() {
        200 => {
            // With a content encoding, the length would be that of the encoded bytes.
            let length = content_length(headers).filter(|_| check_encoding(headers).is_ok());
            Ok(length.map(|length| meta(headers, length)))
        }
        400 | 405 | 501 => Ok(None),
        _ => Err(refusal(response.status(), headers)),
    }
}

/// Parses `Content-Range`: the range, and the size of the object (RFC 9110, 14.4).
fn content_range(headers: &HeaderMap) -> Option<(Option<Range<u64>>, u64)> {
    let value = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?;
    let (range, size) = value.split_once('/')?;
    let size: u64 = size.trim().parse().ok()?;
    if range.trim() == "*" {
        return Some((None, size));
    }
    let (first, last) = range.trim().split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    (first < end && end <= size).then_some((Some(first..end), size))
}

/// Returns the bounds of a requested range for an object of `size` bytes.
pub(in crate::store::remote) fn wanted(requested: &ByteRange, size: u64) -> Range<u64> {
    match requested {
        ByteRange::Whole(_) => 0..size,
        ByteRange::Bounded(range) => range.start.min(size)..range.end.min(size),
        ByteRange::Suffix(bytes) => size.saturating_sub(*bytes)..size,
    }
}

/// Parses the response to GET. `size_bytes` is the size of the value, if known from another response.
pub(in crate::store::remote) async fn of_get(
    get: &Get,
    is_document: fn(&Key) -> bool,
    response: Response,
    size_bytes: Option<u64>,
) -> Result<Got, RequestError> {
    let headers = response.headers();
    match response.status().as_u16() {
        // Some servers send a range with this status.
        200 if headers.contains_key(CONTENT_RANGE) => {
            check_encoding(headers)?;
            partial(get, response).await
        }
        200 => {
            check_encoding(headers)?;
            let length = whole_length(get, &response, size_bytes)?;
            match get.range {
                ByteRange::Whole(most) => whole(get, is_document, response, length, most).await,
                _ => part_of_whole(get, response, length).await,
            }
        }
        206 => {
            check_encoding(headers)?;
            partial(get, response).await
        }
        416 => match content_range(headers) {
            // An empty object has no ranges.
            Some((None, 0)) => {
                let meta = meta(headers, 0);
                check_expected(get, &meta)?;
                let (start, bytes) = (0, Body::default());
                Ok(Got { meta, start, bytes })
            }
            Some((_, size))
                if get
                    .expected
                    .as_ref()
                    .is_some_and(|own| own.size_bytes != size) =>
            {
                Err(RequestError::Changed(format!("it has {size} bytes by now")))
            }
            // A refusal that its own size contradicts does not show another version.
            Some((_, size)) => Err(RequestError::lasting(format!(
                "416 for a part of {size} bytes"
            ))),
            None => Err(RequestError::NoSuchRange),
        },
        _ => Err(refusal(response.status(), headers)),
    }
}

fn check_expected(get: &Get, meta: &Meta) -> Result<(), RequestError> {
    match &get.expected {
        Some(expected) if !expected.is_same(meta) => {
            let what = format!(
                "expected {}, there is {}",
                describe(expected),
                describe(meta)
            );
            Err(RequestError::Changed(what))
        }
        _ => Ok(()),
    }
}

/// Describes a version in a message.
fn describe(meta: &Meta) -> String {
    let tag = meta.etag.as_deref().unwrap_or("no ETag");
    format!("{} bytes, {tag}", meta.size_bytes)
}

/// Returns the length of a whole value, if it is known before its end.
fn whole_length(
    get: &Get,
    response: &Response,
    size_bytes: Option<u64>,
) -> Result<Option<u64>, RequestError> {
    if !is_unframed(response) {
        return Ok(content_length(response.headers()));
    }
    let expected = get.expected.as_ref().map(|meta| meta.size_bytes);
    match expected.or(size_bytes) {
        None => Err(RequestError::Unframed),
        length => Ok(length),
    }
}

/// Reads a part of a whole value that was sent in place of the part.
async fn part_of_whole(
    get: &Get,
    response: Response,
    length: Option<u64>,
) -> Result<Got, RequestError> {
    let Some(length) = length else {
        return part_of_unsized(get, response).await;
    };
    let meta = meta(response.headers(), length);
    check_expected(get, &meta)?;
    if length > MAX_SKIPPED_BYTES {
        return Err(RequestError::lasting(format!(
            "the server sends all {length} bytes where a part was asked for"
        )));
    }
    let range = wanted(&get.range, length);
    let start = range.start;
    let arrival = get.begin_arrival(None);
    let received = body(response, Some(length), length, range, &arrival).await;
    let bytes = received.map_err(|(error, _)| error)?.bytes;
    Ok(Got { meta, start, bytes })
}

/// Reads a part of a whole value whose length is known only at its end. Only for a request of its last
/// bytes are all bytes kept.
async fn part_of_unsized(get: &Get, response: Response) -> Result<Got, RequestError> {
    let ByteRange::Bounded(range) = &get.range else {
        let got = whole(get, |_| false, response, None, MAX_UNSIZED_BYTES).await?;
        return Ok(part_of(got, &get.range));
    };
    let meta = meta(response.headers(), 0);
    let most = MAX_UNSIZED_BYTES;
    let arrival = get.begin_arrival(None);
    let received = body(response, None, most, range.clone(), &arrival).await;
    let Received { bytes, size_bytes } = received.map_err(|(error, _)| error)?;
    let meta = Meta { size_bytes, ..meta };
    check_expected(get, &meta)?;
    let start = range.start.min(size_bytes);
    Ok(Got { meta, start, bytes })
}

/// Reads a whole value of at most `most` bytes.
async fn whole(
    get: &Get,
    is_document: fn(&Key) -> bool,
    response: Response,
    length: Option<u64>,
    most: u64,
) -> Result<Got, RequestError> {
    let mut meta = meta(response.headers(), length.unwrap_or_default());
    if let Some(length) = length {
        check_expected(get, &meta)?;
        if length > most {
            return Err(RequestError::TooLong(meta));
        }
        get.headers_received(&meta);
    }
    let is_long = is_document(&get.key) && length.is_some_and(|length| length > LONG_BYTES);
    let _turn = match is_long {
        true => LONG_BODIES.acquire().await.ok(),
        false => None,
    };
    let start = 0;
    let arrival = get.begin_arrival(length.map(|_| &meta));
    let bytes = match body(response, length, most, ALL_BYTES, &arrival).await {
        Ok(received) => received.bytes,
        Err((error, bytes)) => {
            let part = length.map(|_| Got { meta, start, bytes });
            return Err(broken(error, part));
        }
    };
    if length.is_none() {
        meta.size_bytes = bytes.len() as u64;
        check_expected(get, &meta)?;
    }
    Ok(Got { meta, start, bytes })
}

/// Cuts the requested part out of a whole value.
fn part_of(got: Got, requested: &ByteRange) -> Got {
    let range = wanted(requested, got.meta.size_bytes);
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let bytes = got.bytes.into_bytes();
    let own = bytes.get(index(range.start)..index(range.end));
    Got {
        start: range.start,
        bytes: own.unwrap_or_default().to_vec().into(),
        meta: got.meta,
    }
}

/// Reads a range; fails if its `Content-Range` is not the requested one.
async fn partial(get: &Get, response: Response) -> Result<Got, RequestError> {
    let headers = response.headers();
    let status = response.status().as_u16();
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default();
    if kind.to_ascii_lowercase().starts_with("multipart/") {
        return Err(RequestError::lasting(format!(
            "{status} with a body of the kind {kind}"
        )));
    }
    let (range, size) = match content_range(headers) {
        Some((Some(range), size)) => (range, size),
        _ => {
            let what = text(headers, CONTENT_RANGE).unwrap_or("no Content-Range");
            return Err(RequestError::lasting(format!("{status} with {what}")));
        }
    };
    let meta = meta(headers, size);
    check_expected(get, &meta)?;
    let expected = wanted(&get.range, size);
    if range != expected {
        return Err(RequestError::lasting(format!(
            "asked for bytes {}-{} of {size}, got {}-{}",
            expected.start, expected.end, range.start, range.end
        )));
    }
    let length = range.end - range.start;
    if let ByteRange::Whole(most) = get.range
        && length > most
    {
        return Err(RequestError::TooLong(meta));
    }
    let start = range.start;
    let arrival = get.begin_arrival(None);
    match body(response, Some(length), length, ALL_BYTES, &arrival).await {
        Ok(Received { bytes, .. }) => Ok(Got { meta, start, bytes }),
        Err((error, bytes)) => Err(broken(error, Some(Got { meta, start, bytes }))),
    }
}

/// Adds the bytes that were received to a failure.
fn broken(error: RequestError, part: Option<Got>) -> RequestError {
    match error {
        RequestError::Failed(failed) => RequestError::Failed(Failed {
            partial: part.filter(|part| !part.bytes.is_empty()).map(Box::new),
            ..failed
        }),
        error => error,
    }
}

/// A range of all bytes.
pub(in crate::store::remote) const ALL_BYTES: Range<u64> = 0..u64::MAX;

/// A body that has arrived.
#[derive(Debug)]
pub(in crate::store::remote) struct Received {
    /// The bytes of the range that was kept.
    pub(in crate::store::remote) bytes: Body,
    /// The size of the whole body.
    size_bytes: u64,
}

/// Reads a body of at most `most` bytes into `arrival`, and keeps the range `kept`. Fails, with the bytes kept so far, if
/// the body is longer, or not of the announced length.
pub(in crate::store::remote) async fn body(
    response: Response,
    length: Option<u64>,
    most: u64,
    kept: Range<u64>,
    arrival: &Arrival,
) -> Result<Received, (RequestError, Body)> {
    let received = receive(response, length, most, kept, arrival).await;
    let bytes = arrival.take();
    match received {
        Ok(came) if length.is_some_and(|length| came != length) => {
            let what = format!("{came} of {} bytes came", length.unwrap_or_default());
            Err((RequestError::transient(what), bytes))
        }
        Ok(size_bytes) => Ok(Received { bytes, size_bytes }),
        Err(error) => Err((error, bytes)),
    }
}

/// Reads a body into `arrival`; returns its length.
async fn receive(
    mut response: Response,
    length: Option<u64>,
    most: u64,
    kept: Range<u64>,
    arrival: &Arrival,
) -> Result<u64, RequestError> {
    let whole = kept.end.min(length.unwrap_or(0)).saturating_sub(kept.start);
    let room = whole.min(most).min(FIRST_ROOM_BYTES);
    let no_memory = |_| RequestError::no_memory();
    arrival
        .reserve(usize::try_from(room).unwrap_or(0))
        .map_err(no_memory)?;
    let (mut came, mut turn) = (0_u64, None);
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                if length.is_none() && turn.is_none() && arrival.len() as u64 > LONG_BYTES {
                    turn = LONG_BODIES.acquire().await.ok();
                }
                let start = came;
                came = came.saturating_add(chunk.len() as u64);
                if came > most {
                    drop(arrival.take());
                    let what = format!("the server sends more than {most} bytes");
                    return Err(RequestError::lasting(what));
                }
                let index = |at: u64| {
                    let within = at.clamp(start, came).saturating_sub(start);
                    usize::try_from(within).unwrap_or(usize::MAX)
                };
                let own = chunk.get(index(kept.start)..index(kept.end));
                let own = own.unwrap_or_default();
                arrival.extend(own).map_err(no_memory)?;
            }
            Ok(None) => return Ok(came),
            Err(error) => {
                let what = format!("{} behind {came} bytes", causes(&error));
                return Err(RequestError::transient(what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_content_range_is_used_only_if_it_is_consistent() {
        let parse = |value: &str| content_range(&headers(&[(CONTENT_RANGE, value)]));
        assert_eq!(parse("bytes 0-9/100"), Some((Some(0..10), 100)));
        assert_eq!(parse("bytes */100"), Some((None, 100)));
        for wrong in [
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes 0-9/*",
            "bytes 0-18446744073709551615/18446744073709551615",
            "items 0-9/100",
            "bytes -9/100",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let parse = |value: &str| retry_after(&headers(&[(RETRY_AFTER, value)]));
        assert_eq!(parse("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(parse("soon"), None);
    }

    #[test]
    fn only_another_size_in_a_refused_range_is_another_version() {
        let mut get = Get::new(&Key::default(), ByteRange::Bounded(10..20));
        get.expected = Some(meta(&headers(&[]), 100));
        let refused = |size: &str| {
            let mut response = http::Response::new(Vec::new());
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            *response.headers_mut() = headers(&[(CONTENT_RANGE, size)]);
            crate::runtime::block_on(of_get(&get, |_| false, response.into(), None))
        };
        let same = refused("bytes */100");
        assert!(matches!(same, Err(RequestError::Failed(failed)) if !failed.is_transient));
        let other = refused("bytes */5");
        assert!(matches!(other, Err(RequestError::Changed(_))));
    }

    #[test]
    fn http_statuses_have_their_errors() {
        let refusal = |status: u16| refusal(StatusCode::from_u16(status).unwrap(), &headers(&[]));
        assert!(matches!(refusal(404), RequestError::NotFound));
        assert!(matches!(refusal(403), RequestError::Denied(_)));
        assert!(matches!(refusal(401), RequestError::Denied(_)));
        assert!(matches!(refusal(412), RequestError::Changed(_)));
        for status in [408, 429, 500, 502, 503, 504] {
            let RequestError::Failed(failed) = refusal(status) else {
                panic!("{status}");
            };
            assert!(failed.is_transient, "{status}");
        }
        for status in [400, 405, 418, 501, 505] {
            let RequestError::Failed(failed) = refusal(status) else {
                panic!("{status}");
            };
            let is_transient = status == 505 && failed.is_transient;
            assert!(!failed.is_transient || is_transient, "{status}");
        }
    }
}
