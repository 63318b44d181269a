//! Values that a metadata document describes.
//!
//! The document of an array says what its values mean: which keys are chunks, and how they are decoded. An array can be
//! replaced while it is read, and the keys of the new array are often the same. Writers write the document before the
//! values, so a value counts only if the document still had its version after the value was read, or if the value is
//! known to be older than the document.
//!
//! The modules above read such values through a [`DocumentStore`] only. [`DocumentStore::fetch`] calls a function that
//! opens keys with [`DocumentReads`], then checks the document, and returns what the function has made of the values
//! as [`Fetched`]. All keys of one call share the check. How a check is answered is the business of the store
//! ([`Freshness`]): a remote store sends a request only if it cannot prove the order of both from earlier responses,
//! and an immutable store has no checks.
//!
//! After a check that fails, [`DocumentStore::is_outdated`] makes the next lookup read the document again before `--ttl`
//! ends. After a chunk of another version than expected, [`DocumentStore::expire`] makes reads compare each cached chunk
//! with the store. The head of `tree` says how a change reaches views, the pages of the kernel and listings.
//!
//! **Architecture Invariant:** only this module makes a [`Fetched`], after the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::future::join;

use super::{
    AccessHint, Capabilities, Key, Kind, Object, Stat, Store, StoreError, Ttl, Version,
    list_prefixes,
};
use crate::clock::{self, Instant};
use crate::sync::Mutex;
use crate::units::FOREVER;

/// The largest number of keys whose order with the document is decided one by one. After more keys, the document is
/// checked as of now.
const MAX_RECORDED_KEYS: usize = 4096;

/// How a store with caches compares values with their documents.
#[async_trait]
pub trait Freshness: Send + Sync {
    /// Returns the attributes of a document as they were when these values were read, or later: now, if no value is
    /// given. Stops at attributes of another version than `version`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    async fn stat_after(
        &self,
        document: &Key,
        version: Version,
        values: &[Key],
    ) -> Result<Stat, StoreError>;

    /// Drops cached attributes of a value from before its document was written: an array that is replaced can have
    /// the same keys. Returns whether there were any, or whether another caller has dropped any that arrived after
    /// `since`.
    fn drop_older(&self, _value: &Key, _document: &Key, _since: Instant) -> bool {
        false
    }

    /// Drops cached data of a value that turned out to be wrong.
    async fn drop_value(&self, _value: &Key) {}
}

/// Reads a document and, at the same time, another value that belongs to it, such as the attributes of an array. `read`
/// returns `None` if the absence of a key is proven.
///
/// An array that is replaced can have the same keys. If the store has cached attributes of the value from before the
/// document was written, the value is read again.
pub async fn read_with_document<'a, T, F>(
    store: &dyn Store,
    document: &'a Key,
    value: &'a Key,
    read: impl Fn(&'a Key) -> F,
) -> [Result<Option<T>, StoreError>; 2]
where
    F: Future<Output = Result<Option<T>, StoreError>>,
{
    let since = Instant::now();
    let (found, mut belonging) = join(read(document), read(value)).await;
    if let Ok(Some(_)) = &found
        && let Some(freshness) = store.freshness()
        && freshness.drop_older(value, document, since)
    {
        belonging = read(value).await;
    }
    [found, belonging]
}

/// What was made of values that were read from a store, with the proof that their document did not change meanwhile.
#[derive(Debug, Clone)]
#[must_use]
pub struct Fetched<T> {
    value: T,
}

impl<T> Fetched<T> {
    /// Returns the value.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Returns the value by reference.
    pub fn value(&self) -> &T {
        &self.value
    }
}

/// Whether a value exists in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    Present,
    /// Its absence is proven.
    Absent,
}

impl Presence {
    /// Returns the presence of a value of this version.
    pub fn of(version: Option<Version>) -> Self {
        match version {
            Some(_) => Self::Present,
            None => Self::Absent,
        }
    }
}

/// Returns the milliseconds of [`clock::uptime`], plus 1; never 0.
pub fn now_ms() -> u64 {
    let uptime = clock::uptime().as_millis();
    u64::try_from(uptime).unwrap_or(u64::MAX).saturating_add(1)
}

/// A store as the source of the values that one version of a document describes.
#[derive(Debug)]
pub struct DocumentStore {
    store: Arc<dyn Store>,
    /// The document, if it is known and can change.
    document: Option<(Key, Version)>,
    /// How long facts about values are trusted; `None` if the store is immutable.
    ttl: Option<Ttl>,
    /// Facts that were checked at or before this time of [`now_ms`] are not trusted.
    expired_ms: AtomicU64,
    /// Whether the last check has found another version of the document, or none.
    has_changed: AtomicBool,
}

impl DocumentStore {
    /// Returns the source of the values that `document`, a key with its version, describes. Facts about them are
    /// trusted for `ttl`.
    pub fn new(store: Arc<dyn Store>, document: Option<(Key, Version)>, ttl: Ttl) -> Self {
        let ttl = (!store.capabilities().immutable).then_some(ttl);
        Self {
            store,
            document: document.filter(|_| ttl.is_some()),
            ttl,
            expired_ms: AtomicU64::new(0),
            has_changed: AtomicBool::new(false),
        }
    }

    /// Returns what the store supports.
    pub fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Returns whether the store has a complete index in memory.
    pub fn has_index(&self) -> bool {
        self.store.index().is_some()
    }

    /// Returns whether opening a value takes only a system call.
    pub fn opens_without_waiting(&self) -> bool {
        self.store.as_sync().is_some()
    }

    /// Returns the version of the document; 0 if it cannot change.
    pub fn document_version(&self) -> u64 {
        self.document.as_ref().map_or(0, |(_, version)| version.0)
    }

    /// Reads values: calls `read`, and checks then that the document has not changed.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the document has changed or is gone, the error of checking it, or that of `read`.
    pub async fn fetch<'a, T, F>(
        &'a self,
        read: impl FnOnce(DocumentReads<'a>) -> F,
    ) -> Result<Fetched<T>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.recording_checks().fetch(read).await
    }

    /// Reads several values with one check of the document, as [`DocumentStore::fetch`]. Each value can fail by itself.
    ///
    /// # Errors
    /// As [`DocumentStore::fetch`].
    pub async fn fetch_each<'a, T, F>(
        &'a self,
        read: impl FnOnce(DocumentReads<'a>) -> F,
    ) -> Result<Vec<Result<Fetched<T>, StoreError>>, StoreError>
    where
        F: Future<Output = Result<Vec<Result<T, StoreError>>, StoreError>>,
    {
        let values = self.fetch(read).await?.into_value();
        if let Some(freshness) = self.store.freshness() {
            for value in &values {
                if let Err(StoreError::Corrupt { key, .. }) = value {
                    freshness.drop_value(key).await;
                }
            }
        }
        let fetched = values.into_iter();
        Ok(fetched.map(|value| Ok(Fetched { value: value? })).collect())
    }

    /// Opens a value whose bytes are served as they are stored: only its absence depends on the document.
    ///
    /// # Errors
    /// As [`Store::open`]; if the value is absent, those of [`DocumentStore::fetch`] too.
    pub async fn open_stored(
        &self,
        key: &Key,
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let opened = self
            .recording_checks()
            .without_check()
            .open(key, hint)
            .await;
        self.check_absence(key, opened).await
    }

    /// Returns the attributes of a value as [`DocumentStore::open_stored`] opens it.
    ///
    /// # Errors
    /// As [`DocumentStore::open_stored`].
    pub async fn stat_stored(&self, key: &Key) -> Result<Stat, StoreError> {
        self.current().without_check().look_up(key);
        let found = self.store.stat(key).await;
        self.check_absence(key, found).await
    }

    async fn check_absence<T>(
        &self,
        key: &Key,
        found: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Err(StoreError::NotFound { .. }) = &found {
            self.recording_checks()
                .check(std::slice::from_ref(key))
                .await?;
        }
        found
    }

    /// Returns the store and the document by reference, for reads that keep no facts about values.
    pub fn current(&self) -> DocumentRef<'_> {
        DocumentRef::new(&*self.store, self.document.as_ref())
    }

    /// As [`DocumentStore::current`], for reads whose checks are recorded.
    fn recording_checks(&self) -> DocumentRef<'_> {
        DocumentRef {
            has_changed: Some(&self.has_changed),
            ..self.current()
        }
    }

    /// Returns whether the store is known to have another document by now. Sends no request.
    pub fn is_outdated(&self) -> bool {
        if self.has_changed.load(Ordering::Relaxed) {
            return true;
        }
        let is_remote = self.store.capabilities().is_remote;
        let Some((key, version)) = self.document.as_ref().filter(|_| is_remote) else {
            return false;
        };
        match self.store.try_stat(key) {
            Some(Ok(stat)) => stat.version != *version,
            Some(Err(StoreError::Stale { .. })) => true,
            Some(Err(error)) => is_gone(&error),
            None => false,
        }
    }

    /// Returns whether the store is immutable.
    pub fn is_constant(&self) -> bool {
        self.ttl.is_none()
    }

    /// Returns whether facts about values are trusted forever.
    pub fn trusts_forever(&self) -> bool {
        self.ttl.is_none_or(|ttl| ttl.absent >= FOREVER)
    }

    /// Returns whether the presence or the absence of a value, checked at a time of [`now_ms`], is trusted.
    pub fn is_trusted(&self, presence: Presence, checked_ms: u64) -> bool {
        let age_ms = u128::from(now_ms().saturating_sub(checked_ms));
        self.ttl.is_none_or(|ttl| {
            let ttl = match presence {
                Presence::Present => ttl.present,
                Presence::Absent => ttl.absent,
            };
            age_ms < ttl.as_millis() && !self.is_expired(checked_ms)
        })
    }

    /// Returns whether the store is known to have changed since a time of [`now_ms`].
    pub fn is_expired(&self, checked_ms: u64) -> bool {
        self.ttl.is_some() && checked_ms <= self.expired_ms.load(Ordering::Relaxed)
    }

    /// Stops trusting all facts that were checked until now, because the store has changed.
    pub fn expire(&self) {
        self.expired_ms.fetch_max(now_ms(), Ordering::Relaxed);
    }
}

/// A store and a document that describes its values.
#[derive(Debug, Clone, Copy)]
pub struct DocumentRef<'a> {
    store: &'a dyn Store,
    document: Option<&'a (Key, Version)>,
    /// Where each check records whether the document has changed.
    has_changed: Option<&'a AtomicBool>,
}

impl<'a> DocumentRef<'a> {
    /// Returns the source of the values that `document`, a key with its version, describes.
    pub fn new(store: &'a dyn Store, document: Option<&'a (Key, Version)>) -> Self {
        let document = document.filter(|_| !store.capabilities().immutable);
        Self {
            store,
            document,
            has_changed: None,
        }
    }

    /// Returns the values without a check of the document.
    fn without_check(self) -> DocumentReads<'a> {
        DocumentReads {
            of: self,
            looked_up: None,
        }
    }

    /// Reads values as [`DocumentStore::fetch`].
    ///
    /// # Errors
    /// As [`DocumentStore::fetch`].
    pub async fn fetch<T, F>(
        self,
        read: impl FnOnce(DocumentReads<'a>) -> F,
    ) -> Result<Fetched<T>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let is_recorded = self.document.is_some() && self.store.capabilities().is_remote;
        let looked_up = is_recorded.then(Arc::<Mutex<LookedUp>>::default);
        let reads = DocumentReads {
            of: self,
            looked_up: looked_up.clone(),
        };
        let read = read(reads).await;
        let looked_up = looked_up.map(|looked_up| std::mem::take(&mut *looked_up.lock()));
        // Checked after a failure too, because a changed document may be its cause.
        let checked = match looked_up {
            Some(LookedUp::Keys(keys)) if keys.is_empty() => Ok(()),
            Some(LookedUp::Keys(keys)) => self.check(&keys).await,
            Some(LookedUp::Many) | None => self.check(&[]).await,
        };
        if let (Err(StoreError::Corrupt { key, .. }), Ok(()), Some(freshness)) =
            (&read, &checked, self.store.freshness())
        {
            freshness.drop_value(key).await;
        }
        checked?;
        Ok(Fetched { value: read? })
    }

    /// Fails if the document did not have its version after these values were read. Records the result, so that the
    /// next lookup reads a new document before `--ttl` ends.
    async fn check(self, values: &[Key]) -> Result<(), StoreError> {
        let Some((key, version)) = self.document else {
            return Ok(());
        };
        let found = match self.store.freshness() {
            Some(freshness) => freshness.stat_after(key, *version, values).await,
            None => self.store.stat(key).await,
        };
        let stale = |what: &str| StoreError::Stale {
            key: key.clone(),
            what: what.into(),
        };
        let checked = match found {
            Ok(stat) if stat.version == *version => Ok(()),
            Ok(_) => Err(stale("the metadata of the array have changed")),
            Err(error) if is_gone(&error) => Err(stale("the array is gone")),
            Err(error @ StoreError::Stale { .. }) => Err(error),
            Err(error) => return Err(error),
        };
        // Most checks find no change, and do not write to memory that is shared by all readers.
        if let Some(has_changed) = self.has_changed
            && has_changed.load(Ordering::Relaxed) != checked.is_err()
        {
            has_changed.store(checked.is_err(), Ordering::Relaxed);
        }
        checked
    }
}

/// The keys that one fetch has looked up in a remote store.
#[derive(Debug)]
enum LookedUp {
    /// The document is compared with each key.
    Keys(Vec<Key>),
    /// The document is checked as of now.
    Many,
}

impl Default for LookedUp {
    fn default() -> Self {
        Self::Keys(Vec::new())
    }
}

/// Opens the values of one fetch.
#[derive(Debug, Clone)]
pub struct DocumentReads<'a> {
    of: DocumentRef<'a>,
    /// `None` if the keys make no difference.
    looked_up: Option<Arc<Mutex<LookedUp>>>,
}

impl DocumentReads<'_> {
    /// Opens a value; see [`Store::open`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let since = self.look_up(key);
        let opened = self.of.store.open(key, hint).await;
        match self.drop_older(key, since) {
            true => self.of.store.open(key, hint).await,
            false => opened,
        }
    }

    /// Returns the attributes of a value.
    ///
    /// # Errors
    /// As [`Store::stat`]; [`StoreError::NotAPrefix`] for a prefix.
    pub async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let since = self.look_up(key);
        let found = self.of.store.stat(key).await;
        let stat = match self.drop_older(key, since) {
            true => self.of.store.stat(key).await?,
            false => found?,
        };
        match stat.kind {
            Kind::Object => Ok(stat),
            Kind::Prefix => Err(StoreError::NotAPrefix { key: key.clone() }),
        }
    }

    /// Lists the prefix of a value, so that the store caches the attributes of the values in it. A prefix that does
    /// not exist is no error.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn list_prefix_of(&self, key: &Key) -> Result<(), StoreError> {
        self.of.without_check().look_up(key);
        match list_prefixes(self.of.store, &key.parent(), usize::MAX).await {
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the fetch check the document as of now, with one request, also if earlier responses would prove enough.
    pub fn check_as_of_now(&self) {
        if let Some(looked_up) = &self.looked_up {
            *looked_up.lock() = LookedUp::Many;
        }
    }

    /// Records a key that is looked up, and drops what the store has cached of it before the document was written.
    /// Returns when the lookup begins.
    fn look_up(&self, key: &Key) -> Instant {
        if let Some(looked_up) = &self.looked_up {
            let mut looked_up = looked_up.lock();
            match &mut *looked_up {
                LookedUp::Keys(keys) if keys.len() < MAX_RECORDED_KEYS => keys.push(key.clone()),
                _ => *looked_up = LookedUp::Many,
            }
        }
        let now = Instant::now();
        self.drop_older(key, now);
        now
    }

    /// Drops what the store has cached of a value from before the document was written; returns whether there was
    /// anything. After a lookup that began at `since`, this means that the lookup shared a request which another reader had
    /// sent before.
    fn drop_older(&self, key: &Key, since: Instant) -> bool {
        let Some((document, _)) = self.of.document else {
            return false;
        };
        let freshness = self.of.store.freshness();
        freshness.is_some_and(|freshness| freshness.drop_older(key, document, since))
    }
}

/// Returns whether an error about a document means that it is gone.
fn is_gone(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotFound { .. } | StoreError::NotAPrefix { .. } | StoreError::NotAFile { .. }
    )
}
