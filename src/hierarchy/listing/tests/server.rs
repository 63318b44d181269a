//! An imitated web server.

use super::*;

/// A failure of the server for a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    Denied,
    TimedOut,
    Unavailable,
}

/// A web server that has only values, and lists only the pages of the test.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) values: Mutex<MemoryStore>,
    pub(super) faults: Mutex<BTreeMap<Key, Fault>>,
    pub(super) listings: BTreeMap<Key, Vec<(&'static str, Kind)>>,
    /// Directories without a page, which the server has attributes of.
    pub(super) directories: BTreeSet<Key>,
    pub(super) refuses_listings: bool,
    pub(super) opens: AtomicU32,
    pub(super) stats: AtomicU32,
    pub(super) lists: AtomicU32,
    /// Opens in progress, and their largest number at any time.
    pub(super) opening: AtomicUsize,
    pub(super) most: AtomicUsize,
    pub(super) latency: Duration,
}

impl Server {
    pub(super) fn new(values: &[(&str, Value)]) -> Self {
        let server = Self::default();
        server.put(values);
        server
    }

    pub(super) fn put(&self, values: &[(&str, Value)]) {
        let values = values.iter();
        let values = values.map(|(name, value)| (key(name), value.to_string().into_bytes()));
        *self.values.lock() = MemoryStore::new(values);
    }

    pub(super) fn values(&self) -> MemoryStore {
        self.values.lock().clone()
    }

    pub(super) fn fault(&self, name: &str, fault: Fault) {
        self.faults.lock().insert(key(name), fault);
    }

    pub(super) fn mend(&self) {
        self.faults.lock().clear();
    }

    async fn check(&self, key: &Key) -> Result<(), StoreError> {
        leave_session_thread().await;
        let fault = self.faults.lock().get(key).copied();
        let (key, what) = (key.clone(), "as the test wants it".to_owned());
        match fault {
            Some(Fault::Denied) => Err(StoreError::Denied {
                key,
                what,
                status: None,
            }),
            Some(Fault::TimedOut) => Err(StoreError::TimedOut { key, what }),
            Some(Fault::Unavailable) => Err(StoreError::Unavailable { key, what }),
            None => Ok(()),
        }
    }

    /// Returns the numbers of opens, stats and listings since the last call.
    pub(super) fn asked(&self) -> (u32, u32, u32) {
        let count = |count: &AtomicU32| count.swap(0, Ordering::Relaxed);
        (count(&self.opens), count(&self.stats), count(&self.lists))
    }
}

fn not_found<T>(key: &Key, result: Result<T, StoreError>) -> Result<T, StoreError> {
    result.map_err(|error| match error {
        StoreError::NotAPrefix { .. } => StoreError::NotFound { key: key.clone() },
        error => error,
    })
}

#[async_trait]
impl Store for Server {
    fn label(&self) -> &str {
        "https://example.org/x.zarr"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: true,
            listing: ListingSupport::BestEffort,
            joins_prefetches: false,
            lists_without_requests: false,
        }
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.stats.fetch_add(1, Ordering::Relaxed);
        self.check(key).await?;
        let found = not_found(key, self.values().stat(key).await)?;
        let is_directory = self.listings.contains_key(key) || self.directories.contains(key);
        match found.kind == Kind::Object || key.is_root() || is_directory {
            true => Ok(found),
            false => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        let opening = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(opening, Ordering::SeqCst);
        if !self.latency.is_zero() {
            timeout(self.latency, pending::<()>()).await;
        }
        self.opening.fetch_sub(1, Ordering::SeqCst);
        self.check(key).await?;
        not_found(key, self.values().open(key, hint).await)
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let (key, what) = (prefix.clone(), "listings".to_owned());
        match self.listings.get(prefix) {
            Some(names) => Ok(Box::new(Page(names.clone()))),
            None if self.refuses_listings => Err(StoreError::Denied {
                key,
                what,
                status: None,
            }),
            None => Err(StoreError::Unsupported { key, what }),
        }
    }
}

/// A page of names, whose cookies are not positions.
#[derive(Debug)]
struct Page(Vec<(&'static str, Kind)>);

impl Listing for Page {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        assert_eq!(cookie, 0);
        for (name, kind) in &self.0 {
            let listed = Listed {
                name: name.as_bytes(),
                kind: *kind,
                stat: None,
                next: u64::MAX,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        Ok(Visited::End)
    }
}
