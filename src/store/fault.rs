//! Stores that fail on purpose, for tests of everything above.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::waiting::may_wait;
use super::{
    Capabilities, Data, Extent, Index, Key, Listing, Object, Patience, Stat, Store, StoreError,
    TransferStats, Version, Visit,
};

/// Any store, with one key whose reads panic as a decoder with a bug would.
#[derive(Debug)]
pub struct FaultStore {
    inner: Box<dyn Store>,
    panics: Key,
}

impl FaultStore {
    /// Lets reads of `panics` panic; all else is as in `inner`, without its index.
    pub fn new(inner: Box<dyn Store>, panics: Key) -> Self {
        Self { inner, panics }
    }
}

impl Store for FaultStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn extent(&self) -> Extent {
        self.inner.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.inner.stat(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        let object = self.inner.open(key)?;
        if *key == self.panics {
            Ok(Arc::new(PanickingObject(object)))
        } else {
            Ok(object)
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.inner.list(prefix)
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        self.inner.transfer_stats()
    }

    fn index(&self) -> Option<&dyn Index> {
        None
    }
}

#[derive(Debug)]
struct PanickingObject(Arc<dyn Object>);

impl Object for PanickingObject {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn version(&self) -> Version {
        self.0.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        self.0.stat()
    }

    fn read(&self, _: u64, _: usize, _: &mut [u8], _: Patience) -> Result<Data, StoreError> {
        panic!("injected fault: a panic in a read")
    }
}

/// Any store as if it were far away: what has been asked once is at hand, all else hangs for as
/// long as there is a gate file. If that is not empty, nothing is at hand.
#[derive(Debug)]
pub struct HangingStore {
    inner: Box<dyn Store>,
    network: Arc<Network>,
}

#[derive(Debug)]
struct Network {
    gate: PathBuf,
    timeout: Duration,
    known: Mutex<HashSet<Question>>,
}

/// What can be asked of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Stat(Key),
    Open(Key),
    List(Key),
    Visit(Key, u64),
    Read(Key),
}

impl HangingStore {
    /// Makes `inner` hang, for `timeout` at most, while there is a file `gate`.
    pub fn new(inner: Box<dyn Store>, gate: PathBuf, timeout: Duration) -> Self {
        let network = Arc::new(Network {
            gate,
            timeout,
            known: Mutex::default(),
        });
        Self { inner, network }
    }
}

impl Network {
    fn know(&self, question: Question) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(question);
    }

    /// Asks what is not known yet, once that is possible.
    fn ask<T>(
        &self,
        key: &Key,
        question: Question,
        patience: Patience,
        ask: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_forgetful = || self.gate.metadata().is_ok_and(|gate| gate.len() > 0);
        let is_known = known().contains(&question);
        if is_known && !is_forgetful() {
            return ask();
        }
        may_wait(key)?;
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: key.clone() });
        }
        let begun = Instant::now();
        while self.gate.exists() {
            if begun.elapsed() >= self.timeout {
                return Err(StoreError::TimedOut {
                    key: key.clone(),
                    what: "open gate".into(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        let answer = ask();
        if matches!(answer, Ok(_) | Err(StoreError::NotFound { .. })) {
            known().insert(question);
        }
        answer
    }
}

impl Store for HangingStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_remote: true,
            open_infallible: false,
            ..self.inner.capabilities()
        }
    }

    fn extent(&self) -> Extent {
        self.inner.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let question = Question::Stat(key.clone());
        let ask = || self.inner.stat(key);
        self.network.ask(key, question, Patience::Wait, ask)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        let question = Question::Open(key.clone());
        let ask = || self.inner.open(key);
        Ok(Arc::new(HangingObject {
            inner: self.network.ask(key, question, Patience::Wait, ask)?,
            key: key.clone(),
            network: Arc::clone(&self.network),
        }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let question = Question::List(prefix.clone());
        let ask = || self.inner.list(prefix);
        Ok(Box::new(HangingListing {
            inner: self.network.ask(prefix, question, Patience::Wait, ask)?,
            key: prefix.clone(),
            network: Arc::clone(&self.network),
        }))
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        self.inner.transfer_stats()
    }
}

#[derive(Debug)]
struct HangingObject {
    inner: Arc<dyn Object>,
    key: Key,
    network: Arc<Network>,
}

impl Object for HangingObject {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        self.inner.stat()
    }

    fn read(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let question = Question::Read(self.key.clone());
        self.network.ask(&self.key, question, patience, || {
            self.inner.read(offset, size_bytes, buffer, Patience::Wait)
        })
    }
}

#[derive(Debug)]
struct HangingListing {
    inner: Box<dyn Listing>,
    key: Key,
    network: Arc<Network>,
}

impl Listing for HangingListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let question = Question::Visit(self.key.clone(), cookie);
        let (inner, network, key) = (&mut self.inner, &self.network, &self.key);
        let ask = || {
            inner.visit(cookie, &mut |listed| {
                // What a listing tells of a name is at hand, too.
                if let (Some(_), Ok(key)) = (&listed.stat, key.join(listed.name)) {
                    network.know(Question::Stat(key));
                }
                visit(listed)
            })
        };
        self.network.ask(&self.key, question, Patience::Wait, ask)
    }
}
