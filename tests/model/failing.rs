//! A store that fails at chosen calls, over any other store.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use zarrfs::fs::FsError;
use zarrfs::runtime::leave_session_thread;
use zarrfs::store::{
    AccessHint, Capabilities, Data, Extent, Index, Key, Kind, Listed, Listing, ListingSupport,
    LocalObject, LocalReadError, Object, Position, ReadMode, SourceInfo, Stat, Store, StoreError,
    SyncStore, Version, Visit, VisitChild, Visited,
};

/// The kind of an injected failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Failure {
    Unavailable,
    TimedOut,
    Io,
}

/// The calls that fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The number of the first failing call, from 0.
    pub first: u64,
    /// Whether all later calls fail too.
    pub is_lasting: bool,
    pub failure: Failure,
}

/// The text of every injected failure.
const TEXT: &str = "injected failure";

/// Counts the calls of a store, and makes some of them fail.
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicU64,
    fired: AtomicU64,
    plan: Mutex<Option<Plan>>,
}

impl Faults {
    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of injected failures so far.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }

    pub fn set(&self, plan: Option<Plan>) {
        *self.plan.lock().unwrap() = plan;
    }

    fn call(&self, key: &Key) -> Result<(), StoreError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut plan = self.plan.lock().unwrap();
        let Some(now) = plan.filter(|plan| number >= plan.first) else {
            return Ok(());
        };
        if !now.is_lasting {
            *plan = None;
        }
        self.fired.fetch_add(1, Ordering::SeqCst);
        let (key, what) = (key.clone(), TEXT.to_owned());
        Err(match now.failure {
            Failure::Unavailable => StoreError::Unavailable { key, what },
            Failure::TimedOut => StoreError::TimedOut { key, what },
            Failure::Io => StoreError::Io {
                key,
                source: Arc::new(io::Error::other(TEXT)),
            },
        })
    }
}

/// Returns whether an error is an injected one.
pub fn is_injected(error: &FsError) -> bool {
    error.to_string().contains(TEXT)
}

/// A local store with failures.
#[derive(Debug)]
pub struct LocalStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    index: Option<FailingIndex>,
}

impl LocalStore {
    pub fn new(inner: Arc<dyn Store>, faults: Arc<Faults>) -> Self {
        let index = inner.index().is_some().then(|| FailingIndex {
            store: Arc::clone(&inner),
            faults: Arc::clone(&faults),
        });
        Self {
            inner,
            faults,
            index,
        }
    }

    fn inner(&self) -> &dyn SyncStore {
        self.inner
            .as_sync()
            .expect("the inner store is a local one")
    }
}

impl SyncStore for LocalStore {
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
        self.faults.call(key)?;
        self.inner().stat(key)
    }

    fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.faults.call(key)?;
        let object = self.inner().open(key, hint)?;
        Ok(object_with(object, key, &self.faults, true))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.faults.call(prefix)?;
        let inner = self.inner().list(prefix)?;
        Ok(Box::new(FailingListing {
            inner,
            key: prefix.clone(),
            faults: Arc::clone(&self.faults),
            loaded: None,
        }))
    }

    fn index(&self) -> Option<&dyn Index> {
        let index = self.index.as_ref()?;
        Some(index)
    }
}

/// A remote store with failures, in which every access has to wait.
#[derive(Debug)]
pub struct RemoteStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    /// Whether the store has listings, and knows prefixes.
    is_listed: bool,
}

impl RemoteStore {
    pub fn new(inner: Arc<dyn Store>, faults: Arc<Faults>, is_listed: bool) -> Self {
        Self {
            inner,
            faults,
            is_listed,
        }
    }

    async fn call(&self, key: &Key) -> Result<(), StoreError> {
        leave_session_thread().await;
        self.faults.call(key)
    }
}

#[async_trait]
impl Store for RemoteStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities {
            is_remote: true,
            open_infallible: false,
            lists_without_requests: false,
            listing: match self.is_listed {
                true => inner.listing,
                false => ListingSupport::BestEffort,
            },
            ..inner
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        self.inner.info()
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.call(key).await?;
        let stat = self.inner.stat(key).await?;
        match self.is_listed || stat.kind == Kind::Object {
            true => Ok(stat),
            false => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.call(key).await?;
        match self.inner.open(key, hint).await {
            Ok(object) => Ok(object_with(object, key, &self.faults, false)),
            Err(StoreError::NotAPrefix { key }) if !self.is_listed => {
                Err(StoreError::NotFound { key })
            }
            Err(error) => Err(error),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.call(prefix).await?;
        if !self.is_listed {
            return Err(StoreError::Unsupported {
                key: prefix.clone(),
                what: "listings".into(),
            });
        }
        Ok(Box::new(FailingListing {
            inner: self.inner.list(prefix).await?,
            key: prefix.clone(),
            faults: Arc::clone(&self.faults),
            loaded: Some(false),
        }))
    }
}

fn object_with(
    inner: Arc<dyn Object>,
    key: &Key,
    faults: &Arc<Faults>,
    is_local: bool,
) -> Arc<dyn Object> {
    Arc::new(FailingObject {
        inner,
        key: key.clone(),
        faults: Arc::clone(faults),
        is_local,
    })
}

#[derive(Debug)]
struct FailingObject {
    inner: Arc<dyn Object>,
    key: Key,
    faults: Arc<Faults>,
    is_local: bool,
}

#[async_trait]
impl Object for FailingObject {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        self.faults.call(&self.key)?;
        self.inner.stat()
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        if !self.is_local {
            leave_session_thread().await;
        }
        self.faults.call(&self.key)?;
        self.inner.read(offset, size_bytes).await
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        let inner = self.inner.as_local().filter(|_| self.is_local);
        inner.map(|_| self as _)
    }

    async fn verify_empty(&self) -> Result<(), StoreError> {
        self.faults.call(&self.key)?;
        self.inner.verify_empty().await
    }

    fn is_parallel(&self) -> bool {
        self.inner.is_parallel()
    }

    fn is_constant(&self) -> bool {
        self.inner.is_constant()
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        if self.faults.call(&self.key).is_ok() {
            self.inner.prefetch(ranges).await;
        }
    }
}

impl LocalObject for FailingObject {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        self.faults.call(&self.key)?;
        let local = self.inner.as_local().expect("checked by as_local");
        local.read_local(offset, size_bytes, buffer, mode)
    }
}

/// A listing in which each visit, each load and each name counts as a call.
#[derive(Debug)]
struct FailingListing {
    inner: Box<dyn Listing>,
    key: Key,
    faults: Arc<Faults>,
    /// For a remote store, whether the next visit has names.
    loaded: Option<bool>,
}

#[async_trait]
impl Listing for FailingListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        if let Some(loaded) = &mut self.loaded
            && !std::mem::take(loaded)
        {
            return Ok(Visited::Pending);
        }
        self.faults.call(&self.key)?;
        let mut failed = None;
        let visited =
            self.inner.visit(
                cookie,
                &mut |listed: Listed<'_>| match self.faults.call(&self.key) {
                    Ok(()) => visit(listed),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                },
            );
        match failed {
            Some(error) => Err(error),
            None => visited,
        }
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        leave_session_thread().await;
        self.faults.call(&self.key)?;
        match &mut self.loaded {
            Some(loaded) => {
                *loaded = true;
                Ok(())
            }
            None => self.inner.load().await,
        }
    }
}

/// The index of a store with failing values.
#[derive(Debug)]
struct FailingIndex {
    store: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl FailingIndex {
    fn inner(&self) -> &dyn Index {
        self.store.index().expect("new() has seen the index")
    }
}

impl Index for FailingIndex {
    fn child(&self, parent: Position, name: &[u8]) -> Option<Position> {
        self.inner().child(parent, name)
    }

    fn parent(&self, position: Position) -> Position {
        self.inner().parent(position)
    }

    fn stat(&self, position: Position) -> Option<Stat> {
        self.inner().stat(position)
    }

    fn key(&self, position: Position) -> Key {
        self.inner().key(position)
    }

    fn open(&self, position: Position) -> Result<Arc<dyn Object>, StoreError> {
        let key = self.key(position);
        self.faults.call(&key)?;
        let object = self.inner().open(position)?;
        Ok(object_with(object, &key, &self.faults, true))
    }

    fn children(&self, parent: Position, skip: u64, visit: &mut VisitChild<'_>) {
        self.inner().children(parent, skip, visit);
    }
}
