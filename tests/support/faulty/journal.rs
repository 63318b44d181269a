//! The journal of requests and responses.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::Instant;

use super::answer::ParsedRequest;
use super::lock;
use super::message::{Request, value};
use super::rules::RequestKind;

/// A request in the journal.
#[derive(Debug, Clone)]
pub struct LoggedRequest {
    pub method: String,
    /// The request target as it was sent.
    pub target: String,
    /// The key of the content, or the prefix of a listing.
    pub key: String,
    pub request_kind: RequestKind,
    pub query: Vec<(String, String)>,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub host: String,
    pub is_proxied: bool,
    /// The number of the connection.
    pub connection: u64,
    pub began: Instant,
    /// `None` while the request waits, and if the client has disconnected before the response.
    pub status: Option<u16>,
    /// Bytes of the body that were sent, or are being sent.
    pub sent: u64,
    pub is_under_way: bool,
    id: u64,
}

impl LoggedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        value(&self.query, name)
    }

    pub fn range(&self) -> Option<&str> {
        self.header("range")
    }
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<LoggedRequest>,
    next: u64,
    under_way: usize,
    most: usize,
}

#[derive(Debug, Default)]
pub struct Journal(Mutex<State>);

impl Journal {
    pub fn begin(
        &self,
        request: &Request,
        parsed: &ParsedRequest<'_>,
        connection: u64,
    ) -> Entry<'_> {
        let mut state = lock(&self.0);
        let id = state.next;
        state.next += 1;
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        state.requests.push(LoggedRequest {
            method: request.method.clone(),
            target: request.target.clone(),
            key: parsed.key.clone(),
            request_kind: parsed.request_kind,
            query: request.query.clone(),
            headers: request.headers.clone(),
            host: request.host.clone(),
            is_proxied: request.is_proxied,
            connection,
            began: Instant::now(),
            status: None,
            sent: 0,
            is_under_way: true,
            id,
        });
        Entry {
            journal: self,
            id,
            is_over: Cell::new(false),
        }
    }

    pub fn requests(&self) -> Vec<LoggedRequest> {
        lock(&self.0).requests.clone()
    }

    pub fn forget(&self) {
        let mut state = lock(&self.0);
        state.requests.retain(|r| r.is_under_way);
        state.most = state.under_way;
    }

    pub fn most(&self) -> usize {
        lock(&self.0).most
    }

    pub fn under_way(&self) -> usize {
        lock(&self.0).under_way
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut LoggedRequest)) {
        let mut state = lock(&self.0);
        if let Some(logged) = state.requests.iter_mut().rev().find(|r| r.id == id) {
            change(logged);
        }
    }
}

/// A request in progress, which ends when this is dropped, or before.
#[derive(Debug)]
pub struct Entry<'a> {
    journal: &'a Journal,
    id: u64,
    is_over: Cell<bool>,
}

impl Entry<'_> {
    pub fn answered(&self, status: u16) {
        self.journal.change(self.id, |r| r.status = Some(status));
    }

    pub fn sends(&self, bytes: u64) {
        self.journal.change(self.id, |r| r.sent += bytes);
    }

    /// Ends the request.
    pub fn ends(&self) {
        if !self.is_over.replace(true) {
            self.journal.change(self.id, |r| r.is_under_way = false);
            lock(&self.journal.0).under_way -= 1;
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}
