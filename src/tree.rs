//! The namespace: the keys of inode numbers, and the names in directories.
//!
//! If the store has an index, an inode number is an index position and needs no table (`indexed`).
//! Otherwise the number is a hash of key and version, with a table of the numbers that the kernel
//! holds (`hashed`). Views (`views`) and the hierarchy in another version (`translations`) have
//! numbers of their own. A mount shows all of them together (`mux`). All numbers are the same after
//! a remount.
//!
//! **Architecture Invariant:** modules below this one have no inode numbers.
//!
//! **Architecture Invariant:** an inode number stands for one content of one key. When the content
//! changes, the key gets another number. So data that the kernel caches for a number are never
//! wrong, and no handle ever reads two contents.
//!
//! # A listing
//!
//! [`Tree::open_dir`] makes a [`DirStream`], which `fs` keeps until the kernel closes the directory. The stream of a
//! native directory wraps a listing of the store, with the store's cookies, or counts in its index. `mux` gives `.` and
//! `..` the numbers of the mount, and adds `.zarrfs` if it is listed. The names of views are computed when their
//! directory is opened, those of chunks one by one as they are read.
//!
//! Each request visits names from a cookie on and writes them into its reply. A reply with names is sent as soon as
//! the next name needs waiting, so the first page of a long listing is shown while the source sends the second. Only a
//! request that has no name yet becomes a future: it locks the stream, awaits [`DirStream::load`] and visits again.
//! Requests for the same open directory wait for that lock. If the kernel wants attributes, [`Tree::lookup_entry`]
//! returns those at hand and counts a lookup, as if the name had been looked up. A name whose attributes need a request
//! gets those that the kernel has cached ([`Tree::count_lookup`]), or none: a listing sends no request for each name.
//! Every count is undone if its reply is not sent.
//!
//! A failure before the first name is the errno of the request. After names it is not reported: the kernel asks for
//! the rest, and that request fails. A store that cannot list takes names from metadata ([`crate::hierarchy`]); a chunk
//! that is only a name there may turn out to be absent when it is looked up.
//!
//! # A change of the source
//!
//! No source reports its changes. The next request that looks finds them: a lookup after `--ttl`, or a read that
//! reaches the source, because it proves its version ([`crate::store::DocumentStore`]). A lookup of a native key gets
//! the version of the store. If that is another one, the name gets another number. The kernel then uses the new inode;
//! the old one keeps its pages until it is forgotten, and its requests read the old content or fail with
//! [`StoreError::Stale`].
//!
//! A view follows its node. If the documents of the node have another version, so has the number of each of its views,
//! and opens of the old number fail, after which the kernel looks the name up again. A read that finds another document
//! marks its array as outdated, so that this lookup reads the new node also within `--ttl`. If only a chunk is
//! replaced, the number stays: `array::served` compares what the inode has served with the source at the next open. If
//! a chunk differs, or the comparison takes too long, the kernel drops its pages at that open. If another handle is
//! still open, the two would share pages; then the inode is retired, the open is [`StoreError::Stale`], and the next
//! lookup takes another number.
//!
//! Listings are read from the store each time, because the kernel caches no directories. The store may have cached
//! names for `--ttl`, and drops them when a key below has changed or a document was written later. If consolidated
//! metadata name the keys, the own documents of the nodes decide (`hierarchy::listing`). Archives are pinned: their
//! numbers never change, and every read of an archive that was overwritten is [`StoreError::Stale`] until the next
//! mount.

mod answer;
mod hashed;
mod indexed;
mod mux;
mod translations;
mod views;

pub use answer::Answer;
pub use hashed::HashedTree;
pub use indexed::IndexedTree;
pub use mux::{MountedTrees, MuxTree};
pub use views::ERRORS_FILE;

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::recent_errors::RecentErrors;
use crate::store::{Key, Kind, Object, Stat, Store, StoreError, Visited};

/// An inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// An inode number and its attributes.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// The inode number.
    pub ino: Ino,
    /// The attributes: kind, size and times.
    pub stat: Stat,
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The name. Listings include `.` and `..`.
    pub name: &'a [u8],
    /// The inode number that a lookup of the name returns, if the listing has the attributes.
    pub ino: Ino,
    /// The kind: file or directory.
    pub kind: Kind,
    /// All attributes, if the listing has them without another request; never for `.` and `..`.
    pub stat: Option<Stat>,
    /// The cookie of the next entry.
    pub next: u64,
}

/// The location of the views of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewsOfDir {
    /// The path relative to the directory.
    pub path: &'static str,
    /// The name of the directory's node, with which the names of the views begin.
    pub name: String,
}

/// A directory that is open for reading.
#[async_trait]
pub trait DirStream: Debug + Send {
    /// Visits names from `cookie` (0 is the beginning) until `visit` breaks or further names need
    /// waiting. A name for which `visit` breaks counts as not visited.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError>;

    /// As [`DirStream::visit`], for callers that use no attributes.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit(cookie, visit)
    }

    /// Fetches the names that follow the ones available without waiting.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    async fn load(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Visits `.` and `..` of a directory whose cookies are counts. Returns whether `visit` broke.
fn visit_dots(ino: Ino, parent: Ino, cookie: u64, visit: &mut Visit<'_>) -> bool {
    for (next, name, ino) in [(1, &b"."[..], ino), (DOTS, b"..", parent)] {
        let entry = Entry {
            name,
            ino,
            kind: Kind::Prefix,
            stat: None,
            next,
        };
        if next > cookie && visit(entry).is_break() {
            return true;
        }
    }
    false
}

/// The number of the entries `.` and `..`, where cookies are counts.
const DOTS: u64 = 2;

/// A callback for each name of a directory.
pub type Visit<'a> = dyn FnMut(Entry<'_>) -> ControlFlow<()> + 'a;

/// A namespace over a store.
#[async_trait]
pub trait Tree: Debug + Send + Sync {
    /// Looks up a name and increments the lookup count of its number, until [`Tree::forget`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if the absence is proven.
    fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> Answer<'a, Node>;

    /// Increments the lookup count of a listed name, as [`Tree::lookup`] does. `None` if its
    /// attributes are not available without waiting.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn lookup_entry(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>>;

    /// Increments the lookup count of a number that the kernel holds, and returns the attributes that the kernel
    /// has cached; a listing must not contain others. `None` if the kernel does not hold the number.
    fn count_lookup(&self, ino: Ino) -> Option<Stat>;

    /// Decrements the lookup count of a number.
    fn forget(&self, ino: Ino, lookups: u64);

    /// Returns the attributes of a number.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the content of its key has changed.
    fn stat(&self, ino: Ino) -> Answer<'_, Stat>;

    /// Returns the key of a number.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the number is unknown.
    fn key(&self, ino: Ino) -> Result<Key, StoreError>;

    /// Opens the value of a number.
    ///
    /// # Errors
    /// The errors of [`Tree::stat`] and [`Store::open`].
    fn open(&self, ino: Ino) -> Answer<'_, Arc<dyn Object>>;

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    fn open_dir(&self, ino: Ino) -> Answer<'_, Box<dyn DirStream>>;

    /// Returns the metadata of the node of a number, by name.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    async fn attributes(&self, _: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the location of the views of a directory; `None` if it has no views.
    ///
    /// # Errors
    /// The errors of [`Tree::stat`], and of reading the metadata of the directory's node.
    async fn views(&self, _: Ino) -> Result<Option<ViewsOfDir>, StoreError> {
        Ok(None)
    }

    /// Returns the names of at most three views of the root, for the mount report.
    async fn example_views(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the last failed requests, which the tree may show as a file.
    fn recent_errors(&self) -> Arc<RecentErrors> {
        Arc::default()
    }

    /// Returns gauges for the statistics.
    fn gauges(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Returns the store of the tree.
    fn store(&self) -> &dyn Store;

    /// Returns the number of inodes that take memory, for the statistics.
    fn known_inodes(&self) -> usize;
}

/// Returns the native tree: exactly the keys of the store below `root`.
///
/// # Errors
/// [`StoreError::NotFound`] or [`StoreError::NotAPrefix`] if `root` is not a prefix of the store.
pub async fn native(store: Arc<dyn Store>, root: &Key) -> Result<Box<dyn Tree>, StoreError> {
    if store.stat(root).await?.kind != Kind::Prefix {
        return Err(StoreError::NotAPrefix { key: root.clone() });
    }
    if store.index().is_some() {
        Ok(Box::new(IndexedTree::new(store, root)?))
    } else {
        Ok(Box::new(HashedTree::new(store, root.clone())))
    }
}

/// Returns the error for an unknown inode number.
fn unknown(ino: Ino) -> StoreError {
    StoreError::Stale {
        key: Key::root(),
        what: format!("inode {} is not known", ino.0),
    }
}
