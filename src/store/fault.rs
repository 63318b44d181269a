//! Stores with injected faults, for tests of the modules above.

#[cfg(test)]
mod replaced;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    AccessHint, Capabilities, Data, Freshness, Key, Listing, LocalObject, LocalReadError, Object,
    ReadMode, Stat, Store, StoreError, Version, Visit, Visited,
};
use crate::clock::Instant;
use crate::runtime;
use crate::sync::Mutex;

#[cfg(test)]
pub(crate) use replaced::ReplacedStore;

/// Wraps any store; reads of one key panic, like a decoder with a bug.
#[derive(Debug)]
pub struct FaultStore {
    inner: Box<dyn Store>,
    panics: Key,
}

impl FaultStore {
    /// Wraps `inner` so that reads of `panics` panic; the index of `inner` is not exposed.
    pub fn new(inner: Box<dyn Store>, panics: Key) -> Self {
        Self { inner, panics }
    }
}

#[async_trait]
impl Store for FaultStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.inner.stat(key).await
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        self.inner.try_stat(key)
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let object = self.inner.open(key, hint).await?;
        Ok(match *key == self.panics {
            true => Arc::new(PanickingObject(object)),
            false => object,
        })
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.inner.list(prefix).await
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

#[derive(Debug)]
struct PanickingObject(Arc<dyn Object>);

#[async_trait]
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

    async fn read(&self, _: u64, _: usize) -> Result<Data, StoreError> {
        panic!("injected fault: a panic in a read")
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        self.0.as_local().map(|_| self as _)
    }
}

impl LocalObject for PanickingObject {
    fn read_local(
        &self,
        _: u64,
        _: usize,
        _: &mut [u8],
        _: ReadMode,
    ) -> Result<Data, LocalReadError> {
        panic!("injected fault: a panic in a read")
    }
}

/// Wraps any store as if it were remote: an answer that was given once counts as cached, all other calls hang
/// while a gate file exists. If that file is not empty, nothing counts as cached.
#[derive(Debug)]
pub struct HangingStore {
    inner: Box<dyn Store>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    path: PathBuf,
    timeout: Duration,
    cached_calls: Mutex<HashSet<Call>>,
}

/// A call about a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Call {
    Stat(Key),
    Open(Key),
    List(Key),
    Visit(Key, u64),
    Read(Key),
}

impl HangingStore {
    /// Wraps `inner` so that calls hang, for `timeout` at most, while the file `gate` exists.
    pub fn new(inner: Box<dyn Store>, gate: PathBuf, timeout: Duration) -> Self {
        let gate = Arc::new(Gate {
            path: gate,
            timeout,
            cached_calls: Mutex::default(),
        });
        Self { inner, gate }
    }
}

/// How often the gate file is checked.
const POLL_PERIOD: Duration = Duration::from_millis(10);

impl Gate {
    fn is_cached(&self, call: &Call) -> bool {
        let is_forgetful = || self.path.metadata().is_ok_and(|gate| gate.len() > 0);
        self.cached_calls.lock().contains(call) && !is_forgetful()
    }

    fn note<T>(&self, call: Call, result: &Result<T, StoreError>) {
        if matches!(result, Ok(_) | Err(StoreError::NotFound { .. })) {
            self.cached_calls.lock().insert(call);
        }
    }

    /// Waits until the gate is open, unless the answer counts as cached.
    async fn pass(&self, key: &Key, call: &Call) -> Result<(), StoreError> {
        if self.is_cached(call) {
            return Ok(());
        }
        runtime::leave_session_thread().await;
        let begun = Instant::now();
        while self.path.exists() {
            if begun.elapsed() >= self.timeout {
                return Err(StoreError::TimedOut {
                    key: key.clone(),
                    what: "open gate".into(),
                });
            }
            let _ = runtime::timeout(POLL_PERIOD, std::future::pending::<()>()).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for HangingStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_remote: true,
            open_infallible: false,
            lists_without_requests: false,
            ..self.inner.capabilities()
        }
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let call = Call::Stat(key.clone());
        self.gate.pass(key, &call).await?;
        let result = self.inner.stat(key).await;
        self.gate.note(call, &result);
        result
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        let is_cached = self.gate.is_cached(&Call::Stat(key.clone()));
        is_cached.then(|| self.inner.try_stat(key)).flatten()
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let call = Call::Open(key.clone());
        self.gate.pass(key, &call).await?;
        let result = self.inner.open(key, hint).await;
        self.gate.note(call, &result);
        Ok(Arc::new(HangingObject {
            inner: result?,
            key: key.clone(),
            gate: Arc::clone(&self.gate),
        }))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let call = Call::List(prefix.clone());
        self.gate.pass(prefix, &call).await?;
        let result = self.inner.list(prefix).await;
        self.gate.note(call, &result);
        Ok(Box::new(HangingListing {
            inner: result?,
            key: prefix.clone(),
            gate: Arc::clone(&self.gate),
            asked: None,
            passed: None,
        }))
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }

    /// As if the store had no caches that are older than a call.
    fn freshness(&self) -> Option<&dyn Freshness> {
        None
    }
}

#[derive(Debug)]
struct HangingObject {
    inner: Arc<dyn Object>,
    key: Key,
    gate: Arc<Gate>,
}

#[async_trait]
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

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let call = Call::Read(self.key.clone());
        self.gate.pass(&self.key, &call).await?;
        let result = self.inner.read(offset, size_bytes).await;
        self.gate.note(call, &result);
        result
    }
}

#[derive(Debug)]
struct HangingListing {
    inner: Box<dyn Listing>,
    key: Key,
    gate: Arc<Gate>,
    /// The cookie of the visit that the next [`Listing::load`] will let through.
    asked: Option<u64>,
    /// The cookie of the visit that [`Listing::load`] has let through.
    passed: Option<u64>,
}

#[async_trait]
impl Listing for HangingListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let call = Call::Visit(self.key.clone(), cookie);
        if !self.gate.is_cached(&call) && self.passed.take() != Some(cookie) {
            self.asked = Some(cookie);
            return Ok(Visited::Pending);
        }
        let (gate, key) = (&self.gate, &self.key);
        let visited = self.inner.visit(cookie, &mut |listed| {
            // Attributes in a listing count as cached, too.
            if let (Some(_), Ok(key)) = (&listed.stat, key.join(listed.name)) {
                gate.cached_calls.lock().insert(Call::Stat(key));
            }
            visit(listed)
        });
        self.gate.note(call, &visited);
        visited
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        match self.asked.take() {
            Some(cookie) => {
                let call = Call::Visit(self.key.clone(), cookie);
                self.gate.pass(&self.key, &call).await?;
                self.passed = Some(cookie);
                Ok(())
            }
            None => self.inner.load().await,
        }
    }
}
