//! HTTP/1.1 messages: the requests of a client, and the responses.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

/// A request line with its headers.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The target as it was sent, without an authority.
    pub target: String,
    /// The decoded path without the leading slash.
    pub path: String,
    /// The decoded names and values of the query.
    pub query: Vec<(String, String)>,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The authority of a target that was sent to a proxy, otherwise the header `Host`.
    pub host: String,
    /// Whether the target was a complete URL, as sent to a proxy.
    pub is_proxied: bool,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        value(&self.query, name)
    }
}

/// Returns the first value of a name.
pub fn value<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut pairs = pairs.iter();
    pairs
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v.as_str())
}

/// Reads the next request of a connection; `None` at the end of the connection.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the request is not HTTP.
pub fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    // The first bytes of TLS may not contain the end of a line.
    if reader
        .fill_buf()?
        .first()
        .is_some_and(|b| !b.is_ascii_uppercase())
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let Some(first) = line(reader)? else {
        return Ok(None);
    };
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(protocol)) = (words.next(), words.next(), words.next())
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !protocol.starts_with("HTTP/1.") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut headers = Vec::new();
    loop {
        let text = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = value(&headers, "content-length").and_then(|n| n.parse().ok());
    io::copy(
        &mut reader.by_ref().take(length.unwrap_or(0)),
        &mut io::sink(),
    )?;

    let (authority, target) = match target.split_once("://") {
        Some((_, rest)) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", target),
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (plain(name, true), plain(value, true))
    };
    let host = value(&headers, "host").unwrap_or_default();
    Ok(Some(Request {
        method: method.to_owned(),
        target: target.to_owned(),
        path: plain(path.strip_prefix('/').unwrap_or(path), false),
        query: query
            .split('&')
            .filter(|q| !q.is_empty())
            .map(pair)
            .collect(),
        host: if authority.is_empty() {
            host
        } else {
            authority
        }
        .to_owned(),
        is_proxied: !authority.is_empty(),
        headers,
    }))
}

/// Reads one line without its end; `None` at the end of the connection.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    reader
        .by_ref()
        .take(64 * 1024)
        .read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(text))
}

/// Decodes percent-encoding.
fn plain(text: &str, plus_is_space: bool) -> String {
    let text = match plus_is_space {
        true => text.replace('+', " "),
        false => text.to_owned(),
    };
    percent_encoding::percent_decode_str(&text)
        .decode_utf8_lossy()
        .into_owned()
}

/// The effect of a single `Range` on a value of `size` bytes; `None` means that it is ignored.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    Of(Range<usize>),
    Unsatisfiable,
}

/// Parses `bytes=a-b`, `bytes=a-` and `bytes=-n`.
pub fn part(header: &str, size: usize) -> Option<Part> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(count)) if first.is_empty() => match count {
            0 => return Some(Part::Unsatisfiable),
            _ => size.saturating_sub(count)..size,
        },
        _ => return None,
    };
    match range.is_empty() {
        true => Some(Part::Unsatisfiable),
        false => Some(Part::Of(range)),
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Response {
    /// Creates a response with only a status.
    pub fn empty(status: u16) -> Self {
        Self::part(status, Arc::default(), 0..0)
    }

    /// Creates a response with a status and a body.
    pub fn with(status: u16, kind: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let range = 0..bytes.len();
        Self::part(status, Arc::new(bytes), range).header("Content-Type", kind)
    }

    /// Creates a response with a part of a value.
    pub fn part(status: u16, bytes: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            bytes,
            range,
        }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.unset(name);
        self.headers.push((name.to_owned(), value.into()));
    }

    pub fn unset(&mut self, name: &str) {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    /// Replaces the body, but not the headers.
    pub fn set_body(&mut self, bytes: Vec<u8>) {
        self.range = 0..bytes.len();
        self.bytes = Arc::new(bytes);
    }

    /// Returns the status line and the headers, without those that determine the end of the body.
    pub fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Some Status",
    }
}
