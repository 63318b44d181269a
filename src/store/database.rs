//! Stores in databases of keys and values: one flat, ordered set of keys becomes a tree.
//!
//! - [`Database`] is implemented by each kind of database: consistent snapshots of its keys in byte order.
//! - `tree` maps flat keys to prefixes and children with index seeks, without a scan of all keys.
//! - `listing` and `object` are open directories and values; `versions` distinguishes contents.
//! - `value_cache` keeps short values from the transaction of their lookup, which also reads the next ones.
//!
//! **Invariant:** a result is returned only after [`Database::read`] has proved that all of it comes from
//! one state of the database. A value that has changed fails with [`StoreError::Stale`]. If another process
//! holds a lock, calls wait for it until the deadline. Neither case is reported as absence.
//!
//! Lock order: the lock of a database, then the locks of the versions and of `value_cache`.

mod dbm;
mod file_state;
mod listing;
mod lmdb;
mod object;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod value_cache;
mod versions;

use std::borrow::Cow;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub(super) use self::dbm::file_of_stem;
#[cfg(feature = "fuzzing")]
pub use self::dbm::fuzz_dbm;
use self::lmdb::LmdbDatabase;
use self::object::{LongObject, ShortObject};
use self::sqlite::SqliteDatabase;
use self::tree::{KeyWarnings, TreeEntry};
use self::value_cache::{TransactionRead, ValueCache, ValueReservation};
use self::versions::{Digest, ValueVersions};
use super::{Extent, Key, Kind, Object, Stat, StoreError, Version};
use crate::runtime::{self, leave_session_thread};

/// Values up to this size, in bytes, are identified by a hash of their content.
const SMALL_BYTES: u64 = 4096;
/// Values up to this size, in bytes, are read whole when they are looked up or opened.
const WHOLE_BYTES: u64 = 64 << 10;

/// How long to wait before trying a lock of another process again.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// Whether a call may wait for another thread of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Return [`Failure::Busy`] instead of waiting.
    NonBlocking,
    /// Wait for the other thread.
    Blocking,
}

/// Why a snapshot could not be read.
#[derive(Debug)]
enum Failure {
    /// Another thread or process holds a lock; a later call can succeed.
    Busy(&'static str),
    /// A failure for the caller. Its key is a placeholder that [`StoreError::with_key`] replaces.
    Failed(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// The error of a failed system call on the files of a database; never the absence of a key.
fn file_error(error: io::Error) -> StoreError {
    let key = Key::root();
    match error.kind() {
        io::ErrorKind::NotFound => StoreError::Stale {
            key,
            what: "the database is gone".into(),
        },
        _ => StoreError::from_io(&key, error),
    }
}

fn corrupt(what: impl Into<String>) -> Failure {
    Failure::Failed(StoreError::Corrupt {
        key: Key::root(),
        what: what.into(),
    })
}

fn unsupported(what: impl Into<String>) -> Failure {
    Failure::Failed(StoreError::Unsupported {
        key: Key::root(),
        what: what.into(),
    })
}

/// A value of a database, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValueMeta {
    /// Exact size in bytes.
    size_bytes: u64,
    /// Identifies the content permanently; `None` if a value is identified only within one generation.
    identity: Option<u64>,
}

/// A value that was looked up.
#[derive(Debug)]
struct FoundValue {
    value: ValueMeta,
    /// All bytes, up to [`WHOLE_BYTES`].
    content: Option<Vec<u8>>,
}

/// A value, and the bound of the keys after it.
type FoundWithNext = Option<(FoundValue, Vec<u8>)>;

/// A value, and its bytes if it is short.
type ReadValue<'a> = (ValueMeta, Option<Cow<'a, [u8]>>);

/// The columns that a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// Keys only.
    Keys,
    /// Keys and values.
    All,
}

/// One state of a database.
trait Snapshot {
    /// The number of the state. Two snapshots with the same number have the same content.
    fn generation(&self) -> u64;

    /// When the database was last changed.
    fn modified(&self) -> SystemTime;

    /// Whether another process has the database open and may write to it. False if that is not known.
    fn may_have_writer(&self) -> bool {
        false
    }

    /// Returns the first key at or after `bound`, in byte order.
    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Finds the value of a key; `None` proves absence.
    fn find(&mut self, key: &[u8]) -> Result<Option<FoundValue>, Failure>;

    /// As [`Snapshot::find`]; also returns a bound that no key at or after `_bound` precedes. `None` if the
    /// key has no value, or if finding the bound needs further reads.
    fn find_with_next(&mut self, _key: &[u8], _bound: &[u8]) -> Result<FoundWithNext, Failure> {
        Ok(None)
    }

    /// Visits the rows at and after `bound` in byte order, until `visit` breaks.
    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure>;

    /// Fills `target` from `offset` of the value of a key. The caller has found the value in this
    /// generation, and the range lies within the value.
    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure>;
}

/// The callback of a scan, called for each row. The value is `None` if it was not read or cannot be read; its
/// bytes are present if it has at most [`SMALL_BYTES`].
type VisitRow<'a> = dyn FnMut(&[u8], Option<ReadValue<'_>>) -> ControlFlow<()> + 'a;

/// A callback that works on one snapshot. It may be called again with another snapshot.
type Work<'a> = dyn FnMut(&mut dyn Snapshot) -> Result<(), Failure> + Send + 'a;

/// A database of keys and values.
trait Database: Debug + Send + Sync {
    /// Calls `work` with a snapshot of the current state. The results of `work` are valid only if this
    /// returns `Ok`.
    fn read(&self, wait: Wait, work: &mut Work<'_>) -> Result<(), Failure>;

    /// The size of the database.
    fn extent(&self) -> Extent;
}

/// Options for opening a database.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseOptions {
    /// How long to wait for a lock of another process.
    pub timeout: Duration,
    /// Memory limit for the index of the keys of a database, in bytes. Pages and values take at most an
    /// eighth of it.
    pub memory_limit_bytes: u64,
    /// How long names and attributes are trusted.
    pub ttl: Duration,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            memory_limit_bytes: 1 << 30,
            ttl: Duration::from_secs(1),
        }
    }
}

/// Why a database cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The file is no key-value database, or it is of a kind that cannot be read.
    #[error("{0}")]
    Unsupported(String),
    /// The database cannot be read now.
    #[error(transparent)]
    Store(StoreError),
    /// The operating system could not open the database.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a database, recognised by its content. `path` is a file, one of the files of `dbm.dumb`, or the
/// directory of an LMDB database. `None` if `path` is no database.
///
/// # Errors
/// [`DatabaseError`].
pub(super) fn open(
    path: &Path,
    label: &str,
    options: DatabaseOptions,
) -> Result<Option<DatabaseStore>, DatabaseError> {
    let data = match path.is_dir() {
        true => path.join(lmdb::DATA_FILE),
        false => path.to_owned(),
    };
    let mut header = [0; HEADER_BYTES];
    let filled = match File::open(&data) {
        Ok(file) => file.read_at(&mut header, 0)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.is_dir() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let header = header.get(..filled).unwrap_or_default();
    let database: Box<dyn Database> = match header {
        header if lmdb::is_lmdb(header) => {
            Box::new(LmdbDatabase::new(&data, options.memory_limit_bytes)?)
        }
        header if header.starts_with(sqlite::MAGIC) && !path.is_dir() => {
            Box::new(SqliteDatabase::new(path, options.memory_limit_bytes)?)
        }
        _ if path.is_dir() => return Ok(None),
        header => match dbm::open(path, header, options.memory_limit_bytes)? {
            Some(database) => Box::new(database),
            None => return Ok(None),
        },
    };
    let store = DatabaseStore::new(label, database, options);
    match store.shared.read_blocking(&Key::root(), |_| Ok(())) {
        Ok(()) => Ok(Some(store)),
        Err(StoreError::Unsupported { what, .. }) => Err(DatabaseError::Unsupported(what)),
        Err(error) => Err(DatabaseError::Store(error)),
    }
}

/// Number of leading bytes that identify the kind of a database.
const HEADER_BYTES: usize = 64;

/// A store in a database.
#[derive(Debug)]
pub struct DatabaseStore {
    shared: Arc<Shared>,
}

/// State that the store, its objects and its listings share.
#[derive(Debug)]
struct Shared {
    label: String,
    database: Box<dyn Database>,
    timeout: Duration,
    versions: ValueVersions,
    notes: KeyWarnings,
    /// Number of attribute lookups by key, from which listings learn whether attributes are needed.
    lookups: AtomicU64,
    value_cache: ValueCache,
}

/// The result of a lookup.
#[derive(Debug)]
enum LookedUp {
    Stat(Stat),
    Short(TransactionRead),
}

/// The result of an open.
#[derive(Debug)]
enum Opened {
    Long(LongObject),
    Short(TransactionRead),
}

impl DatabaseStore {
    fn new(label: &str, database: Box<dyn Database>, options: DatabaseOptions) -> Self {
        let shared = Shared {
            label: label.to_owned(),
            database,
            timeout: options.timeout,
            versions: ValueVersions::default(),
            notes: KeyWarnings::default(),
            lookups: AtomicU64::new(0),
            value_cache: ValueCache::new(options.ttl, options.memory_limit_bytes),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    /// Calls `work` once. The outer error is the name of a lock that is not free.
    fn try_once<T: Send>(
        &self,
        key: &Key,
        wait: Wait,
        mut work: impl FnMut(&mut dyn Snapshot) -> Result<T, Failure> + Send,
    ) -> Result<Result<T, StoreError>, &'static str> {
        let mut found = None;
        let read = self.database.read(wait, &mut |snapshot| {
            found = Some(work(snapshot)?);
            Ok(())
        });
        match (read, found) {
            (Ok(()), Some(found)) => Ok(Ok(found)),
            (Ok(()), None) => Ok(Err(StoreError::internal("a snapshot that was not read"))),
            (Err(Failure::Failed(error)), _) => Ok(Err(error.with_key(key.clone()))),
            (Err(Failure::Busy(what)), _) => Err(what),
        }
    }

    /// As [`Shared::try_once`], but waits for locks until the deadline, outside of session threads.
    async fn read<T: Send>(
        &self,
        key: &Key,
        mut work: impl FnMut(&mut dyn Snapshot) -> Result<T, Failure> + Send,
    ) -> Result<T, StoreError> {
        leave_session_thread().await;
        let begun = Instant::now();
        loop {
            let what = match self.try_once(key, Wait::Blocking, &mut work) {
                Ok(read) => return read,
                Err(what) => what,
            };
            if begun.elapsed() >= self.timeout {
                return Err(timed_out(key, what));
            }
            let _ = runtime::timeout(RETRY_PERIOD, std::future::pending::<()>()).await;
        }
    }

    /// As [`Shared::read`], for the thread that opens the source.
    fn read_blocking<T: Send>(
        &self,
        key: &Key,
        mut work: impl FnMut(&mut dyn Snapshot) -> Result<T, Failure> + Send,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        loop {
            let what = match self.try_once(key, Wait::Blocking, &mut work) {
                Ok(read) => return read,
                Err(what) => what,
            };
            if begun.elapsed() >= self.timeout {
                return Err(timed_out(key, what));
            }
            std::thread::sleep(RETRY_PERIOD);
        }
    }

    /// Returns the attributes of a value that was read ahead, for a lookup.
    fn cached_stat(&self, key: &Key) -> Option<Stat> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.value_cache.attributes(key)
    }

    /// Looks up a key; `None` if its attributes require reads of a long value, and `digests` forbids them.
    fn look_up(
        &self,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        digests: Digest,
    ) -> Result<Option<LookedUp>, Failure> {
        let (found, next) = tree::find_with_next(snapshot, key, &self.notes)?;
        let FoundValue { value, content } = match found {
            TreeEntry::Prefix => return Ok(Some(LookedUp::Stat(prefix_stat(snapshot)))),
            TreeEntry::Object(found) => found,
        };
        if let Some(content) = content
            && let Some(reserved) = self.value_cache.reserve(content.len())
        {
            let read =
                self.short_object(snapshot, key, (value, content, reserved), next, digests)?;
            return Ok(read.map(LookedUp::Short));
        }
        let version = self.versions.version(snapshot, key, value, digests)?;
        let stat = version.map(|version| object_stat(snapshot, value, version));
        Ok(stat.map(LookedUp::Stat))
    }

    /// Makes an object of a short value, and reads the next values if the program is expected to use them.
    /// `next` is the key after this one.
    fn short_object(
        &self,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        (value, content, reserved): (ValueMeta, Vec<u8>, ValueReservation),
        next: Option<Vec<u8>>,
        digests: Digest,
    ) -> Result<Option<TransactionRead>, Failure> {
        let version = match value.identity {
            Some(identity) => Some(Version(identity)),
            None => {
                let proof = self.versions.open(snapshot, key, value, digests)?;
                proof.map(|proof| proof.version)
            }
        };
        let Some(version) = version else {
            return Ok(None);
        };
        let stat = object_stat(snapshot, value, version);
        let object = ShortObject::new(content, stat, reserved);
        Ok(Some(
            self.value_cache.read_ahead(snapshot, key, object, next),
        ))
    }

    /// Returns the attributes of a proved lookup, and caches a short value for the open that follows.
    fn cache_lookup(&self, key: &Key, found: LookedUp) -> Stat {
        match found {
            LookedUp::Stat(stat) => stat,
            LookedUp::Short(read) => {
                let object = self.value_cache.insert_read(read);
                self.value_cache.insert(key, &object);
                object.attributes()
            }
        }
    }

    /// Opens a key; `None` if that requires reads of a long value, and `digests` forbids them.
    fn open(
        self: &Arc<Self>,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        digests: Digest,
    ) -> Result<Option<Opened>, Failure> {
        let (found, next) = tree::find_with_next(snapshot, key, &self.notes)?;
        let TreeEntry::Object(FoundValue { value, content }) = found else {
            return Err(not_an_object(key));
        };
        if let Some(content) = content
            && let Some(reserved) = self.value_cache.reserve(content.len())
        {
            let read =
                self.short_object(snapshot, key, (value, content, reserved), next, digests)?;
            return Ok(read.map(Opened::Short));
        }
        let Some(proof) = self.versions.open(snapshot, key, value, digests)? else {
            return Ok(None);
        };
        let object = LongObject::new(Arc::clone(self), snapshot, key, value, proof);
        Ok(Some(Opened::Long(object)))
    }

    /// Returns the object of a proved open.
    fn opened(&self, opened: Opened) -> Arc<dyn Object> {
        match opened {
            Opened::Long(object) => Arc::new(object),
            Opened::Short(read) => self.value_cache.insert_read(read),
        }
    }
}

fn timed_out(key: &Key, what: &str) -> StoreError {
    StoreError::TimedOut {
        key: key.clone(),
        what: what.into(),
    }
}

/// The error for a prefix that was opened as a value.
fn not_an_object(key: &Key) -> Failure {
    Failure::Failed(StoreError::NotAPrefix { key: key.clone() })
}

fn prefix_stat(snapshot: &dyn Snapshot) -> Stat {
    Stat {
        kind: Kind::Prefix,
        size_bytes: 0,
        modified: snapshot.modified(),
        version: Version(0),
        // Prefixes below are not counted, because that would take a seek for each name.
        links: 2,
    }
}

fn object_stat(snapshot: &dyn Snapshot, value: ValueMeta, version: Version) -> Stat {
    Stat {
        kind: Kind::Object,
        size_bytes: value.size_bytes,
        modified: snapshot.modified(),
        version,
        links: 1,
    }
}
