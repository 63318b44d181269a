//! Sources of Zarr keys. All other modules see only [`Store`]: keys are byte strings, values are
//! byte ranges, and a store reports a key as missing only if it has proved that.
//!
//! **Architecture Invariant:** only this module does I/O to a source. Nothing in it knows inodes,
//! handles, the kernel or Zarr metadata.
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is produced only where absence is proven
//! (`ENOENT` below an open root, a name that is not in a complete index). A failure of any other
//! kind is never turned into [`StoreError::NotFound`].
//!
//! # Reads under a document
//!
//! [`Store::stat`], [`Store::open`] and [`Store::list`] answer about one key. What the value of a chunk means is in
//! another value, the document of its array, and both can be replaced at any time. The modules above therefore read
//! chunks through a [`DocumentStore`], which returns a [`Fetched`] once it has checked that the document was the same
//! after the read. A store with caches says how old they are (`document_store::Freshness`); no other module judges
//! that.
//!
//! # Caches
//!
//! All caches of the program. A *version* in the key means that an entry is never wrong, only unused; an entry
//! without one is trusted for the time in the third column, and an entry of an immutable source for good. Where
//! nothing else is said, the least recently used entries are evicted, beyond a number or a size.
//!
//! | cache | key | trusted for | evicted or dropped by |
//! |---|---|---|---|
//! | `remote::known::attr_cache` attributes, absence | key | `--ttl`, absence for a shorter time by default; 1 s if no document was checked | a response that differs; a document that was written later |
//! | `remote::known::listing` names of a prefix | prefix | as attributes | a key below it that has changed; a document that was written later |
//! | `remote::known::write_times` when documents were written | document | for good | - |
//! | `remote::memory::range_cache` bytes | source, key, version, range | for good | readers with readahead share its budget |
//! | `remote::bytes::speculation` prefetched values without a reader | key, offset | some seconds | the first read |
//! | `disk` bytes, attributes of a conditional request, listings and indexes of immutable sources | identity of the source, key, version, range | for good; attributes only after a request confirms them | `--disk-cache-size`, the oldest first, in all processes |
//! | `remote::reference_target` servers of targets; `reference::targets` open targets | origin; URL | for good: a target is pinned to its first version | - |
//! | `remote::protocol::keyvalue` index of all keys | - | `--ttl` | the next listing |
//! | `database::value_cache` short values | key | 0.1 s | the open of the key; a change of the database |
//! | `database::versions` versions that opened values have proved | key | one generation of the database | - |
//! | `icechunk` index of a branch; its arrays and manifests | -; node; object | `--ttl`; for good | the next snapshot |
//! | `reference::kerchunk::parquet` partitions | partition | for good | - |
//! | `stac` open assets; failures to open one | asset | for good; as absence | -; the next attempt |
//! | `zip` decoded entries, checkpoints, checked ranges | position | for good: a changed archive is an error | - |
//! | `open_files` descriptors of idle files | open file | one version of the file | the limit of descriptors |
//! | `hierarchy::listing::cache` metadata, prefixes, comparisons with consolidated metadata | prefix | `--ttl`, absence for a shorter time by default | a document with another version |
//! | `hierarchy::shard_index` indexes | shard, its version, that of the document | for good | the newest index stays |
//! | `array::chunk_cache` decoded chunks | array, chunk | `--ttl`; then the version decides ([`DocumentStore::is_trusted`]) | a change that any read notices ([`DocumentStore::expire`]); other uses of `--memory-limit` |
//! | `array::served` versions that an inode has served | inode, chunk | as long as the kernel caches pages | closed files first |
//! | `translate` nodes, rendered consolidated metadata | prefix | `--ttl` | a read that finds another document |
//! | `view::file::nodes` nodes | prefix | `--ttl` | a document with another version |
//! | `view::file::nodes` files, texts, pictures | node, version, format | `--ttl` and four times the rendering | a reader with another document |
//! | `prefetch::key_order` names of directories, in the order of readahead | prefix | 60 s | - |
//! | kernel: names, attributes; pages | inode | `--ttl`; while `array::served` says so | - |

mod database;
mod dir;
mod disk;
mod document_store;
mod error;
mod error_kind;
mod fault;
mod file_type;
mod icechunk;
mod key;
mod key_classes;
mod memory;
mod object;
mod open_files;
mod prefixes;
mod read;
mod read_buffer;
mod readahead;
mod reference;
mod remote;
mod snapshot;
mod source;
mod source_info;
mod stac;
#[cfg_attr(target_os = "linux", path = "store/system/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "store/system/portable.rs")]
mod system;
mod url_scheme;
mod zip;

#[cfg(feature = "fuzzing")]
pub use database::fuzz_dbm;
pub use database::{DatabaseError, DatabaseOptions, DatabaseStore};
pub use dir::{DirOptions, DirStore};
#[cfg(test)]
pub(crate) use disk::simulated::SimulatedDisk;
pub use disk::{DiskCache, DiskCacheError, DiskCounters};
use document_store::Freshness;
pub use document_store::{
    DocumentReads, DocumentRef, DocumentStore, Fetched, Presence, now_ms, read_with_document,
};
pub use error::StoreError;
pub use error_kind::ErrorKind;
#[cfg(test)]
pub(crate) use fault::ReplacedStore;
pub use fault::{FaultStore, HangingStore};
pub use file_type::{HEADER_BYTES as FORMAT_HEADER_BYTES, file_format, stand_in};
#[cfg(feature = "fuzzing")]
pub use icechunk::fuzz_icechunk;
pub use icechunk::{IcechunkError, IcechunkOptions};
pub use key::{InvalidKey, Key, MAX_COMPONENT_BYTES, MAX_KEY_BYTES, check_component, check_key};
pub use key_classes::KeyClasses;
pub use memory::MemoryStore;
pub use object::{
    BUFFER_HEADROOM_BYTES, Data, InMemoryObject, LocalObject, LocalReadError, Object, ReadMode,
    in_memory, nonblocking_first, part, part_mut, read_owned,
};
pub use prefixes::{list_prefixes, map_concurrent, visit_all};
pub use read::{read_into, read_range, read_to_end};
pub use read_buffer::ReadBuffer;
pub use readahead::{Readahead, Window};
pub use reference::{AllowedTarget, ReferenceError, TargetOptions};
#[cfg(feature = "fuzzing")]
pub use reference::{fuzz_json, fuzz_parquet};
#[cfg(test)]
pub(crate) use remote::simulated;
pub use remote::{
    CredentialCommand, RedirectPolicy, RemoteMemory, RemoteOpenError, RemoteOptions, TlsOptions,
    TransferCounters, TransferStats, has_escaped_path, is_remote_url, remote_schemes,
    schemes_without_feature,
};
#[cfg(feature = "fuzzing")]
pub use remote::{fuzz_hub_page, fuzz_listing, fuzz_page};
pub use snapshot::{SnapshotError, SnapshotReader, SpanGuard};
pub use source::{ListByMetadata, OpenError, OpenOptions, SourceName, open_demo};
pub use source_info::{Extent, History, NamedVersion, Omission, SourceInfo, VersionInfo};
pub use stac::StacError;
#[cfg(feature = "fuzzing")]
pub use stac::fuzz_stac;
pub use url_scheme::with_lower_scheme;
#[cfg(test)]
pub(crate) use zip::builder::ZipBuilder;
pub use zip::{ZipError, ZipOptions, ZipStore};

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value: bytes under a key (a file).
    Object,
    /// The common beginning of other keys (a directory).
    Prefix,
}

/// Identifies one content of an object: two different contents of a key never share a version, as
/// far as the source can tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// Attributes of a key, known without reading its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Whether the key is an object or a prefix.
    pub kind: Kind,
    /// Exact size of the value in bytes; 0 for a prefix.
    pub size_bytes: u64,
    /// When the value was last changed, as reported by the source.
    pub modified: SystemTime,
    /// Identifies the content. A prefix always has the same version.
    pub version: Version,
    /// 2 + the number of prefixes directly below a prefix, as far as known; 1 for an object.
    pub links: u32,
}

/// What a store supports and guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The content cannot change while the store is open: reads return the same bytes every time,
    /// or fail with [`StoreError::Stale`].
    pub immutable: bool,
    /// Every object can be opened; only reads can fail.
    pub open_infallible: bool,
    /// Calls use a network: data that is not cached takes milliseconds at best, and calls can fail.
    pub is_remote: bool,
    /// Whether listings are complete.
    pub listing: ListingSupport,
    /// Concurrent prefetches of values can share one request.
    pub joins_prefetches: bool,
    /// All names of a prefix can be listed without a request once some of them were listed.
    pub lists_without_requests: bool,
}

/// Whether the listings of a store are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingSupport {
    /// Listings hold exactly the names that exist.
    Complete,
    /// The store has no listings, or listings may lack names: a name that is not listed may still exist.
    BestEffort,
}

/// Describes the listing of a prefix that may lack names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncompleteListing {
    /// The source lists no names: any child may be missing, and chunks are those that metadata allows.
    pub is_unlisted: bool,
    /// Which names may be missing, and why, for users.
    pub what: String,
}

impl IncompleteListing {
    /// Returns the description of a listing that failed.
    pub fn failed(error: &StoreError) -> Self {
        Self {
            is_unlisted: true,
            what: format!("anything: {error}"),
        }
    }
}

/// How long data of a mutable store are trusted without asking it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl {
    /// Values, attributes and metadata.
    pub present: Duration,
    /// The absence of a key.
    pub absent: Duration,
}

impl From<Duration> for Ttl {
    /// Trusts absence as long as anything else.
    fn from(ttl: Duration) -> Self {
        Self {
            present: ttl,
            absent: ttl,
        }
    }
}

/// How much of a value will be read, so that a remote store sends one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessHint {
    /// Ranges that are not known yet.
    Ranges,
    /// The whole value, if it is not longer than this number of bytes.
    Whole(u64),
    /// This number of bytes at the end of the value, first.
    Tail(u64),
}

/// What readahead fetches of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// The attributes of the key.
    Attributes,
    /// The attributes of the key, which is a document. A program that has listed the directory has looked it up after
    /// another document, and has opened none of them: it looks up keys and opens none.
    AttributesOfVisited,
    /// The attributes and the value of the key.
    Value,
}

/// One name in a listing.
#[derive(Debug)]
pub struct Listed<'a> {
    /// The last component of the key; `.` and `..` are listed too.
    pub name: &'a [u8],
    /// Object or prefix.
    pub kind: Kind,
    /// The attributes, if they take no request and were not left out ([`Listing::visit_names`]).
    pub stat: Option<Stat>,
    /// The cookie at which a listing continues after this name. Never 0.
    pub next: u64,
}

/// How a visit of a listing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visited {
    /// The visitor stopped it.
    Stopped,
    /// All names were visited.
    End,
    /// All loaded names were visited; [`Listing::load`] fetches more.
    Pending,
}

/// A prefix opened for listing, one level deep.
#[async_trait]
pub trait Listing: Debug + Send {
    /// Visits names from `cookie` (0 is the beginning) until `visit` breaks or no more names are
    /// loaded.
    ///
    /// A name for which `visit` breaks counts as not visited. Cookies stay valid for the life of the
    /// listing: a name that exists during all of that time is visited exactly once.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError>;

    /// As [`Listing::visit`], for callers that use only names and kinds: attributes that take a system call
    /// for each name are left out.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit(cookie, visit)
    }

    /// Fetches the names after those that are loaded, if any remain.
    ///
    /// # Errors
    /// As [`Store::stat`].
    async fn load(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records that a program reads the names, not a part of zarrfs. A store whose names come from copies of documents
    /// must know this: see `hierarchy::listing`.
    fn record_shown(&self) {}
}

/// The callback of a listing, called once per name.
pub type Visit<'a> = dyn FnMut(Listed<'_>) -> ControlFlow<()> + 'a;

/// The position of a key in an [`Index`]; position 0 is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u32);

/// The whole content of an immutable store as a tree with numbered positions.
pub trait Index: Debug + Send + Sync {
    /// The child with a name. `None` proves absence; a parent that is no prefix has no children.
    fn child(&self, parent: Position, name: &[u8]) -> Option<Position>;

    /// The position of a key. `None` proves absence.
    fn find(&self, key: &Key) -> Option<Position> {
        let names = key.as_bytes().split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty());
        names.try_fold(Position(0), |parent, name| self.child(parent, name))
    }

    /// The prefix that holds a position; the root is its own parent.
    fn parent(&self, position: Position) -> Position;

    /// Attributes of a position; `None` if the position does not exist.
    fn stat(&self, position: Position) -> Option<Stat>;

    /// The full key of a position.
    fn key(&self, position: Position) -> Key;

    /// The value of a position, ready to be read.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] or [`StoreError::Corrupt`] if the value is known to be unreadable.
    fn open(&self, position: Position) -> Result<Arc<dyn Object>, StoreError>;

    /// Visits the children of a prefix, beginning with number `skip`, with their positions.
    fn children(&self, parent: Position, skip: u64, visit: &mut VisitChild<'_>);
}

/// The callback of an index, called for each child: name, kind, position.
pub type VisitChild<'a> = dyn FnMut(&[u8], Kind, Position) -> ControlFlow<()> + 'a;

/// A source of Zarr keys and values.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use zarrfs::runtime::block_on;
/// use zarrfs::store::{AccessHint, Key, MemoryStore, Store, StoreError};
///
/// let key = Key::new(b"temperature/c/0")?;
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new([(key.clone(), vec![1, 2, 3, 4])]));
/// block_on(async {
///     let object = store.open(&key, AccessHint::Ranges).await?;
///     // A range that ends after the value is shorter.
///     let data = object.read(2, 1024).await?;
///     assert_eq!(data.bytes(&[])?, [3, 4]);
///
///     // Only a proof of absence is `NotFound`.
///     let absent = store.stat(&key.parent().join(b"1")?).await;
///     assert!(matches!(absent, Err(StoreError::NotFound { .. })));
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The source as a user would write it, without secrets.
    fn label(&self) -> &str;

    /// What the store supports.
    fn capabilities(&self) -> Capabilities;

    /// Attributes of a key.
    ///
    /// [`StoreError::NotFound`] only if absence is proven; [`StoreError::Denied`] and other errors if
    /// the store could not find out.
    async fn stat(&self, key: &Key) -> Result<Stat, StoreError>;

    /// Opens the value of a key; `hint` says how much of it will be read.
    ///
    /// # Errors
    /// As [`Store::stat`]; [`StoreError::Unsupported`] if the value can never be read.
    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError>;

    /// Opens a prefix for listing.
    ///
    /// # Errors
    /// As [`Store::stat`].
    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError>;

    /// Which names of a prefix its listing may lack; `None` if the listing is complete.
    ///
    /// # Errors
    /// As [`Store::stat`], if it is unknown whether the listing is complete.
    async fn incomplete_listing(
        &self,
        _prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        Ok(None)
    }

    /// The store that this one wraps with the same keys, for all that a wrapper does not change.
    fn inner(&self) -> Option<&dyn Store> {
        None
    }

    /// What users are told about the source.
    fn info(&self) -> Option<&dyn SourceInfo> {
        self.inner()?.info()
    }

    /// How the store compares values with their documents; `None` if its caches are never older than a call. Only
    /// [`DocumentStore`] asks.
    fn freshness(&self) -> Option<&dyn Freshness> {
        self.inner()?.freshness()
    }

    /// Fetches data that a later call will most likely need; returns whether the store wants more prefetches.
    /// A failure is reported only when the key is read.
    async fn prefetch(&self, _key: &Key, _what: Prefetch) -> bool {
        false
    }

    /// The store as a [`SyncStore`], which answers without waiting; `None` for other stores.
    fn as_sync(&self) -> Option<&dyn SyncStore> {
        None
    }

    /// Attributes of a key; `None` if they are not cached.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        Some(self.as_sync()?.stat(key))
    }

    /// As [`Store::open`]; `None` if the call would wait or take long.
    ///
    /// # Errors
    /// As [`Store::open`].
    fn try_open(&self, key: &Key, hint: AccessHint) -> Option<Result<Arc<dyn Object>, StoreError>> {
        Some(self.as_sync()?.open(key, hint))
    }
}

impl dyn Store + '_ {
    /// The complete index, if the store has one in memory.
    pub fn index(&self) -> Option<&dyn Index> {
        self.as_sync()?.index()
    }

    /// As [`SourceInfo::extent`].
    pub fn extent(&self) -> Extent {
        self.info().map(SourceInfo::extent).unwrap_or_default()
    }

    /// As [`SourceInfo::transfer_stats`].
    pub fn transfer_stats(&self) -> Option<TransferStats> {
        self.info()?.transfer_stats()
    }

    /// As [`SourceInfo::members`].
    pub fn members(&self) -> Option<Vec<Key>> {
        self.info()?.members()
    }

    /// As [`SourceInfo::omissions`].
    pub async fn omissions(&self) -> Vec<Omission> {
        match self.info() {
            Some(info) => info.omissions().await,
            None => Vec::new(),
        }
    }

    /// As [`SourceInfo::history`].
    pub async fn history(&self) -> Option<Result<History, StoreError>> {
        self.info()?.history().await
    }
}

/// A store that answers about keys from memory or with a system call. Each one is also a [`Store`].
pub trait SyncStore: Debug + Send + Sync {
    /// As [`Store::label`].
    fn label(&self) -> &str;

    /// As [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// As [`SourceInfo::extent`].
    fn extent(&self) -> Extent;

    /// As [`Store::stat`].
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn stat(&self, key: &Key) -> Result<Stat, StoreError>;

    /// As [`Store::open`].
    ///
    /// # Errors
    /// As [`Store::open`].
    fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError>;

    /// As [`Store::list`].
    ///
    /// # Errors
    /// As [`Store::list`].
    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError>;

    /// As [`SourceInfo::omissions`].
    fn omissions(&self) -> Vec<Omission> {
        Vec::new()
    }

    /// As [`SourceInfo::transfer_stats`].
    fn transfer_stats(&self) -> Option<TransferStats> {
        None
    }

    /// The complete index, if the store has one in memory.
    fn index(&self) -> Option<&dyn Index> {
        None
    }
}

#[async_trait]
impl<S: SyncStore> Store for S {
    fn label(&self) -> &str {
        SyncStore::label(self)
    }

    fn capabilities(&self) -> Capabilities {
        SyncStore::capabilities(self)
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        SyncStore::stat(self, key)
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let object = SyncStore::open(self, key, hint)?;
        if object.size_bytes() == 0 {
            object.verify_empty().await?;
        }
        Ok(object)
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        SyncStore::list(self, prefix)
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match (what, SyncStore::open(self, key, AccessHint::Ranges)) {
            (Prefetch::Value, Ok(object)) => object.prefetch_whole().await,
            _ => false,
        }
    }

    fn as_sync(&self) -> Option<&dyn SyncStore> {
        Some(self)
    }
}

#[async_trait]
impl<S: SyncStore> SourceInfo for S {
    fn extent(&self) -> Extent {
        SyncStore::extent(self)
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        SyncStore::transfer_stats(self)
    }

    async fn omissions(&self) -> Vec<Omission> {
        SyncStore::omissions(self)
    }
}
