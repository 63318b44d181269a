//! An HTTP client that records every response, complete or not.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::faulty::Server;

/// The response that a client received, as far as it came.
#[derive(Debug)]
pub struct ReceivedResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The reason why the body is incomplete.
    pub error: Option<io::ErrorKind>,
}

impl ReceivedResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection for several requests in sequence.
pub struct Client(pub BufReader<TcpStream>);

impl Client {
    pub fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.url()["http://".len()..]).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self(BufReader::new(stream))
    }

    pub fn timeout(self, time: Duration) -> Self {
        self.0.get_ref().set_read_timeout(Some(time)).unwrap();
        self
    }

    pub fn send_request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<ReceivedResponse> {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: faulty\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        self.0
            .get_mut()
            .write_all(format!("{text}\r\n").as_bytes())?;
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut got = ReceivedResponse {
            status,
            headers,
            body: Vec::new(),
            error: None,
        };
        if method != "HEAD" {
            got.error = self.body(&mut got).err().map(|e| e.kind());
        }
        Ok(got)
    }

    pub fn body(&mut self, got: &mut ReceivedResponse) -> io::Result<()> {
        if got.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let size = self.line()?;
                let size = usize::from_str_radix(&size, 16).unwrap();
                self.exactly(size, &mut got.body)?;
                assert_eq!(self.line()?, "");
                if size == 0 {
                    return Ok(());
                }
            }
        }
        match got.header("Content-Length").map(|n| n.parse().unwrap()) {
            Some(size) => self.exactly(size, &mut got.body),
            None => self.0.read_to_end(&mut got.body).map(|_| ()),
        }
    }

    pub fn exactly(&mut self, size: usize, body: &mut Vec<u8>) -> io::Result<()> {
        let end = body.len() + size;
        let read = self.0.by_ref().take(size as u64).read_to_end(body);
        read?;
        match body.len() == end {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

pub fn send_request(
    server: &Server,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
) -> ReceivedResponse {
    Client::new(server)
        .send_request(method, target, headers)
        .unwrap()
}

pub fn get(server: &Server, target: &str) -> ReceivedResponse {
    send_request(server, "GET", target, &[])
}

pub fn ranged(server: &Server, range: &str) -> ReceivedResponse {
    send_request(server, "GET", "/v", &[("Range", range)])
}
