//! A web server and an S3-like server that respond correctly, except for requests with a fault
//! rule. The server runs in the process of the test, on a port of its own. Its content can be
//! changed at any time, and every request is recorded.
//!
//! ```ignore
//! let server = Server::files();                   // or Server::s3("bucket"), Server::over(path)
//! server.put("store/a/c/0", bytes);
//! server.add(on("store/a/c/0").get().first(2), Fault::status(503).retry_after(1));
//! let gate = server.hold("store/a/c/1");          // requests wait until it is dropped
//! gate.wait_for(1);
//! server.heal();                                  // no rule holds any more
//! assert_eq!(server.requests_for("store/a/c/0").len(), 3);
//! ```

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations
)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answer;
mod content;
mod gate;
mod journal;
mod listing;
mod message;
mod rules;
mod serving;
mod wire;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use content::{Content, Counted};
use gate::Gates;
use journal::Journal;

pub use gate::Gate;
pub use journal::LoggedRequest;
pub use rules::{Fault, Frequency, RequestKind, Rule, is_like, on};

/// The kind of server.
#[derive(Debug, Clone)]
pub enum ServerKind {
    /// A web server, with or without directory pages.
    Files { lists: bool },
    /// S3 with one bucket, with path-style URLs.
    S3 { bucket: String },
}

/// The polling interval of waiting threads.
const TICK: Duration = Duration::from_millis(10);

/// A running server, which ends on drop, with all its connections.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Mutex<Option<Acceptor>>,
}

#[derive(Debug)]
struct Acceptor {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server_kind: ServerKind,
    content: Mutex<Content>,
    rules: Mutex<Vec<(Rule, Fault)>>,
    gates: Gates,
    journal: Journal,
    latency: Mutex<Duration>,
    connections: Mutex<HashMap<u64, TcpStream>>,
    accepted: AtomicU64,
    is_over: AtomicBool,
}

impl Server {
    /// Starts an empty web server without listings.
    pub fn files() -> Self {
        let server_kind = ServerKind::Files { lists: false };
        Self::new(server_kind, Content::memory(), Ipv4Addr::LOCALHOST.into())
    }

    /// Starts an empty web server with directory pages like those of nginx.
    pub fn listing_files() -> Self {
        let server_kind = ServerKind::Files { lists: true };
        Self::new(server_kind, Content::memory(), Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a web server over a directory.
    pub fn over(directory: &Path) -> Self {
        let server_kind = ServerKind::Files { lists: false };
        let content = Content::directory(directory);
        Self::new(server_kind, content, Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a web server that is reachable only over IPv6.
    pub fn files_on_v6() -> Self {
        let server_kind = ServerKind::Files { lists: false };
        Self::new(server_kind, Content::memory(), Ipv6Addr::LOCALHOST.into())
    }

    /// Starts an S3 server with one empty bucket.
    pub fn s3(bucket: &str) -> Self {
        let bucket = bucket.to_owned();
        let server_kind = ServerKind::S3 { bucket };
        Self::new(server_kind, Content::memory(), Ipv4Addr::LOCALHOST.into())
    }

    fn new(server_kind: ServerKind, content: Content, ip: std::net::IpAddr) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let server = Self {
            shared: Arc::new(Shared {
                server_kind,
                content: Mutex::new(content),
                rules: Mutex::default(),
                gates: Gates::default(),
                journal: Journal::default(),
                latency: Mutex::default(),
                connections: Mutex::default(),
                accepted: AtomicU64::new(0),
                is_over: AtomicBool::new(false),
            }),
            address: listener.local_addr().unwrap(),
            acceptor: Mutex::default(),
        };
        server.listen(listener);
        server
    }

    /// Returns `http://host:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of a key.
    pub fn url_of(&self, key: &str) -> String {
        match &self.shared.server_kind {
            ServerKind::Files { .. } => format!("{}/{key}", self.url()),
            ServerKind::S3 { bucket } => format!("{}/{bucket}/{key}", self.url()),
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    // Content.

    /// Sets a value.
    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        lock(&self.shared.content).put(key, bytes.into());
    }

    /// Sets a value below `prefix` for each file of a directory.
    pub fn put_tree(&self, prefix: &str, directory: &Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let key = format!("{prefix}/{name}");
            match path.is_dir() {
                true => self.put_tree(&key, &path),
                false => self.put(&key, std::fs::read(&path).unwrap()),
            }
        }
    }

    /// Removes a value.
    pub fn remove(&self, key: &str) {
        lock(&self.shared.content).remove(key);
    }

    /// Returns a value, if it exists.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let entity = lock(&self.shared.content).get(key)?;
        Some(entity.bytes.to_vec())
    }

    /// Adds generated keys: `prefix` and seven digits, counted from 0. They take no memory.
    pub fn count(&self, prefix: &str, count: u32) {
        let prefix = prefix.to_owned();
        lock(&self.shared.content).count(Counted { prefix, count });
    }

    // Faults.

    /// Adds a fault rule. If several rules match a request, all apply, and later ones take precedence.
    pub fn add(&self, rule: Rule, fault: Fault) -> Rule {
        lock(&self.shared.rules).push((rule.clone(), fault));
        rule
    }

    /// Removes all rules. Requests that already stall continue to stall.
    pub fn heal(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Lets requests for keys of this pattern, including listings, wait until the gate is opened or
    /// dropped.
    pub fn hold(&self, pattern: &str) -> Gate {
        self.shared.gates.add(pattern)
    }

    /// Delays every request by this time.
    pub fn set_latency(&self, latency: Duration) {
        *lock(&self.shared.latency) = latency;
    }

    /// Resets all connections and refuses new ones.
    pub fn refuse(&self) {
        if let Some(acceptor) = lock(&self.acceptor).take() {
            acceptor.ends.store(true, Ordering::SeqCst);
            // Wakes the acceptor, which waits for a connection.
            let _ = TcpStream::connect(self.address);
            acceptor.thread.join().unwrap();
        }
        self.cut();
    }

    /// Resets all connections.
    pub fn cut(&self) {
        for (_, stream) in lock(&self.shared.connections).drain() {
            let _ = wire::reset_on_close(&stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again, on the same port.
    pub fn accept(&self) {
        let end = Instant::now() + Duration::from_secs(5);
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(e) if Instant::now() > end => panic!("{}: {e}", self.address),
                Err(_) => std::thread::sleep(TICK),
            }
        };
        self.listen(listener);
    }

    fn listen(&self, listener: TcpListener) {
        let ends = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&self.shared);
        let over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let id = shared.accepted.fetch_add(1, Ordering::SeqCst);
                let Ok(own) = stream.try_clone() else {
                    continue;
                };
                lock(&shared.connections).insert(id, own);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(&stream, id));
            }
        });
        *lock(&self.acceptor) = Some(Acceptor { ends, thread });
    }

    // Requests.

    /// Returns every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.shared.journal.requests()
    }

    /// Returns the requests for keys of this pattern.
    pub fn requests_for(&self, pattern: &str) -> Vec<LoggedRequest> {
        let mut requests = self.requests();
        requests.retain(|r| is_like(pattern, &r.key));
        requests
    }

    /// Removes completed requests from the journal, and resets the largest number of concurrent ones.
    pub fn forget_requests(&self) {
        self.shared.journal.forget();
    }

    /// Returns the largest number of concurrent requests.
    pub fn most_at_a_time(&self) -> usize {
        self.shared.journal.most()
    }

    /// Returns the number of requests in progress.
    pub fn under_way(&self) -> usize {
        self.shared.journal.under_way()
    }

    /// Returns the number of connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.refuse();
    }
}

/// Locks a mutex, even if a failed test has poisoned it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
