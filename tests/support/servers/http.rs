//! A minimal HTTP client: one request per connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The response of a server.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Requests a URL `http://ADDRESS/PATH`. In HTTP/1.0, the response ends with the connection.
pub fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let rest = url.strip_prefix("http://").expect("an http URL");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(address)?;
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(limit)?;
    let mut head = format!("{method} /{path} HTTP/1.0\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "PUT" || method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parsed(&bytes).ok_or_else(|| io::Error::other(format!("no answer from {url}")))
}

/// Requests a URL, and fails without a response.
pub fn get(url: &str) -> Answer {
    request("GET", url, &[], b"").unwrap_or_else(|e| panic!("{url}: {e}"))
}

/// Requests a byte range, such as `0-3`.
pub fn get_range(url: &str, range: &str) -> Answer {
    let range = format!("bytes={range}");
    request("GET", url, &[("Range", &range)], b"").unwrap_or_else(|e| panic!("{url}: {e}"))
}

fn parsed(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Answer {
        status,
        headers,
        body: bytes[end + 4..].to_vec(),
    })
}

/// Returns a key in URL encoding.
pub fn escaped(key: &str) -> String {
    const NOT_IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(key, NOT_IN_A_PATH).to_string()
}
