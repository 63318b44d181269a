//! The requests of one connection, served in order.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::answer::{ParsedRequest, Plan};
use super::journal::Entry;
use super::message::{Request, read_request};
use super::rules::{Fault, Rule};
use super::wire::{self, Progress, Sent};
use super::{Shared, TICK, lock};

impl Shared {
    /// Serves the requests of one connection.
    pub(super) fn serve(&self, stream: &TcpStream, id: u64) {
        let _ = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream);
        loop {
            match read_request(&mut reader) {
                Ok(Some(request)) => {
                    if self.reply(stream, &request, id) != Some(Sent::Whole)
                        || request.header("connection") == Some("close")
                    {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    let mut out = stream;
                    let _ = out.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                    break;
                }
                Ok(None) | Err(_) => break,
            }
        }
        // The cloned stream would keep the connection open.
        lock(&self.connections).remove(&id);
    }

    /// Answers one request; `None` if the client has disconnected.
    fn reply(&self, stream: &TcpStream, request: &Request, connection: u64) -> Option<Sent> {
        let parsed = ParsedRequest::new(request, &self.server_kind);
        let entry = self.journal.begin(request, &parsed, connection);
        let latency = *lock(&self.latency);
        if !latency.is_zero() {
            std::thread::sleep(latency);
        }
        self.gates
            .pass(&parsed.key, || self.is_there(stream))
            .then_some(())?;
        let plan = Plan::new(self.faults(&parsed));
        if !plan.late.is_zero() && !self.wait(stream, Some(plan.late)) {
            return None;
        }
        let response = {
            let mut content = lock(&self.content);
            if let Some(bytes) = plan.replace.clone() {
                content.put(&parsed.key, bytes);
            }
            parsed.answer(&content, &self.server_kind, &plan)
        };
        entry.answered(response.status);
        let has_body = request.method != "HEAD";
        let progress = ResponseProgress {
            shared: self,
            stream,
            entry: &entry,
        };
        wire::send(stream, &response, &plan, has_body, &progress).ok()
    }

    fn faults(&self, parsed: &ParsedRequest<'_>) -> Vec<Fault> {
        let rules = lock(&self.rules);
        let fits = |rule: &Rule| rule.fits(parsed.request, &parsed.key, parsed.request_kind);
        rules
            .iter()
            .filter(|(rule, _)| fits(rule) && rule.applies())
            .map(|(_, fault)| fault.clone())
            .collect()
    }

    /// Waits for `time`, or forever. Returns `false` early if the client disconnects.
    fn wait(&self, stream: &TcpStream, time: Option<Duration>) -> bool {
        let end = time.map(|time| Instant::now() + time);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return true;
            }
            if !self.is_there(stream) {
                return false;
            }
            std::thread::sleep(left.map_or(TICK, |left| left.min(TICK)));
        }
    }

    /// Returns whether the client is connected and the server is running.
    fn is_there(&self, stream: &TcpStream) -> bool {
        if self.is_over.load(Ordering::SeqCst) {
            return false;
        }
        let _ = stream.set_nonblocking(true);
        let peeked = stream.peek(&mut [0]);
        let _ = stream.set_nonblocking(false);
        match peeked {
            Ok(n) => n > 0,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// A response that is being sent.
struct ResponseProgress<'a> {
    shared: &'a Shared,
    stream: &'a TcpStream,
    entry: &'a Entry<'a>,
}

impl Progress for ResponseProgress<'_> {
    fn sends(&self, bytes: u64, is_end: bool) {
        self.entry.sends(bytes);
        if is_end {
            self.entry.ends();
        }
    }

    fn wait(&self, time: Option<Duration>) -> bool {
        self.shared.wait(self.stream, time)
    }
}
