//! The namespace: which inode numbers stand for which keys, and what is inside a directory.
//!
//! A pinned store with an index needs no table: an inode number is a place in the index
//! (`indexed`). Any other store gets numbers from a hash of key and version, and a table of
//! those that the kernel knows (`hashed`). Views have numbers of their own (`views`), and so has the
//! hierarchy in another version (`translations`). A mount shows them together (`mux`). All give the same
//! numbers after a remount.
//!
//! **Architecture Invariant:** nothing below this module knows an inode number.
//!
//! **Architecture Invariant:** a number stands for one content of one key. When the content
//! changes, the key gets another number, so what the kernel has cached of a number is never wrong
//! and no handle ever sees two contents.

mod hashed;
mod indexed;
mod key_order;
mod key_readahead;
mod mux;
mod translations;
mod views;

pub use hashed::HashedTree;
pub use indexed::IndexedTree;
pub use mux::{MuxTree, Shown};
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

/// An inode number and what it stands for.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// The number.
    pub ino: Ino,
    /// Kind, size, times.
    pub stat: Stat,
}

/// One name of a directory.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The name; `.` and `..` come too.
    pub name: &'a [u8],
    /// The inode number that a lookup of the name would give.
    pub ino: Ino,
    /// File or directory.
    pub kind: Kind,
    /// The rest, where it was free. Never there for `.` and `..`.
    pub stat: Option<Stat>,
    /// The cookie that goes on behind this name.
    pub next: u64,
}

/// Where the views of a directory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewsOfDir {
    /// The path relative to the directory.
    pub path: &'static str,
    /// The name of its node, which the names of the views begin with.
    pub name: String,
}

/// A directory opened for reading.
#[async_trait]
pub trait DirStream: Debug + Send {
    /// Visits names from `cookie` (0 is the beginning) until `visit` breaks or no more names are at
    /// hand; a name that breaks counts as not visited.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError>;

    /// Fetches the names that follow those at hand.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    async fn load(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Visits `.` and `..` of a directory whose cookies are counts; returns whether `visit` broke.
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

/// Cookies of `.` and `..` where cookies are counts.
const DOTS: u64 = 2;

/// What is called for each name of a directory.
pub type Visit<'a> = dyn FnMut(Entry<'_>) -> ControlFlow<()> + 'a;

/// A namespace over a store.
///
/// The methods that begin with `try_` answer what is at hand, and return `None` for anything that
/// takes a network, a decoder, or more than a system call.
#[async_trait]
pub trait Tree: Debug + Send + Sync {
    /// As [`Tree::lookup`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn try_lookup(&self, parent: Ino, name: &[u8]) -> Option<Result<Node, StoreError>>;

    /// Finds a name; the kernel then knows the number until [`Tree::forget`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if absence is proven.
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError> {
        at_hand(self.try_lookup(parent, name))
    }

    /// Makes a name known that a directory has listed, as [`Tree::lookup`] does, if its attributes are
    /// at hand.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn try_adopt(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>>;

    /// The kernel has forgotten that many lookups of a number.
    fn forget(&self, ino: Ino, lookups: u64);

    /// As [`Tree::stat`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    fn try_stat(&self, ino: Ino) -> Option<Result<Stat, StoreError>>;

    /// What a number stands for.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if its key has another content by now.
    async fn stat(&self, ino: Ino) -> Result<Stat, StoreError> {
        at_hand(self.try_stat(ino))
    }

    /// The key of a number.
    ///
    /// # Errors
    /// [`StoreError::Stale`] for a number that was never given out.
    fn key(&self, ino: Ino) -> Result<Key, StoreError>;

    /// As [`Tree::open`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Tree::open`].
    fn try_open(&self, ino: Ino) -> Option<Result<Arc<dyn Object>, StoreError>>;

    /// Opens the value that a number stands for.
    ///
    /// # Errors
    /// As [`Tree::stat`], and those of [`Store::open`].
    async fn open(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError>;

    /// As [`Tree::open_dir`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Tree::open_dir`].
    fn try_open_dir(&self, ino: Ino) -> Option<Result<Box<dyn DirStream>, StoreError>>;

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    async fn open_dir(&self, ino: Ino) -> Result<Box<dyn DirStream>, StoreError> {
        at_hand(self.try_open_dir(ino))
    }

    /// The metadata of the node behind a number, by name.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    async fn attributes(&self, _: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    /// The views of a directory; `None` if it has none.
    ///
    /// # Errors
    /// As [`Tree::stat`], and those of reading the metadata of its node.
    async fn views(&self, _: Ino) -> Result<Option<ViewsOfDir>, StoreError> {
        Ok(None)
    }

    /// Names of at most three views of the root, for the report of a mount.
    async fn example_views(&self) -> Vec<String> {
        Vec::new()
    }

    /// The last failed requests, which the tree may show.
    fn recent_errors(&self) -> Arc<RecentErrors> {
        Arc::default()
    }

    /// Gauges for the statistics.
    fn gauges(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The store below.
    fn store(&self) -> &dyn Store;

    /// Numbers that take memory now, for the statistics.
    fn known_inodes(&self) -> usize;
}

/// The answer of a tree that has all answers at hand.
fn at_hand<T>(answer: Option<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer.unwrap_or_else(|| Err(StoreError::internal("an answer that is not at hand")))
}

/// The native tree: exactly the store's keys from `root` down.
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

/// The error for a number that nothing stands behind.
fn unknown(ino: Ino) -> StoreError {
    StoreError::Stale {
        key: Key::root(),
        what: format!("inode {} is not known", ino.0),
    }
}
