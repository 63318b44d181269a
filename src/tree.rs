//! The namespace: which inode numbers stand for which keys, and what is inside a directory.
//!
//! A pinned store with an index needs no table: an inode number is a place in the index
//! (`indexed`). Any other store gets numbers from a hash of key and version, and a table of
//! those that the kernel knows (`hashed`). Computed files stand beside them (`views`). All give the
//! same numbers after a remount.
//!
//! **Architecture Invariant:** nothing below this module knows an inode number.
//!
//! **Architecture Invariant:** a number stands for one content of one key. When the content
//! changes, the key gets another number, so what the kernel has cached of a number is never wrong
//! and no handle ever sees two contents.

mod hashed;
mod indexed;
mod views;

pub use hashed::HashedTree;
pub use indexed::IndexedTree;
pub use views::{Shown, ViewTree};

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::store::{Key, Kind, Listing, Object, Stat, Store, StoreError};

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

/// A directory opened for reading; [`Tree::visit`] reads it.
#[derive(Debug)]
pub struct Directory {
    ino: Ino,
    parent: Ino,
    key: Key,
    names: Names,
}

/// Where the names of an open directory come from.
#[derive(Debug)]
enum Names {
    /// The tree has them itself.
    Tree,
    /// The store's listing.
    Store(Box<dyn Listing>),
    /// They were made when the directory was opened.
    Made(Vec<views::Made>),
    /// They are made as they are asked for.
    Cells(views::Place),
}

impl Directory {
    fn made(ino: Ino, names: Names) -> Self {
        Self {
            ino,
            parent: Ino::ROOT,
            key: Key::root(),
            names,
        }
    }
}

/// What is called for each name of a directory.
pub type Visit<'a> = dyn FnMut(Entry<'_>) -> ControlFlow<()> + 'a;

/// A namespace over a store.
pub trait Tree: Debug + Send + Sync {
    /// Finds a name; the kernel then knows the number until [`Tree::forget`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if absence is proven.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError>;

    /// Whether [`Tree::lookup`] may have to wait for a decoder, or for what only a worker should do.
    fn lookup_waits(&self, _parent: Ino, _name: &[u8]) -> bool {
        false
    }

    /// Makes a name known that a directory has listed, as [`Tree::lookup`] does.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn adopt(&self, parent: Ino, entry: &Entry<'_>) -> Result<Node, StoreError>;

    /// The kernel has forgotten that many lookups of a number.
    fn forget(&self, ino: Ino, lookups: u64);

    /// What a number stands for.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if its key has another content by now.
    fn stat(&self, ino: Ino) -> Result<Stat, StoreError>;

    /// The key of a number.
    ///
    /// # Errors
    /// [`StoreError::Stale`] for a number that was never given out.
    fn key(&self, ino: Ino) -> Result<Key, StoreError>;

    /// Opens the value that a number stands for.
    ///
    /// # Errors
    /// As [`Tree::stat`], and those of [`Store::open`].
    fn open(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError>;

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    fn open_dir(&self, ino: Ino) -> Result<Directory, StoreError>;

    /// Visits names from `cookie` (0 is the beginning) until `visit` breaks; a name that breaks
    /// counts as not visited.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    fn visit(
        &self,
        directory: &mut Directory,
        cookie: u64,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;

    /// What the metadata of the node behind a number say, name by name.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    fn attributes(&self, _: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    /// What else there is to count, for the statistics.
    fn gauges(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The store below.
    fn store(&self) -> &dyn Store;

    /// Numbers that take memory now, for the statistics.
    fn known_inodes(&self) -> usize;
}

/// The native tree: exactly the store's keys from `root` down.
///
/// # Errors
/// [`StoreError::NotFound`] or [`StoreError::NotAPrefix`] if `root` is not a prefix of the store.
pub fn native(store: Arc<dyn Store>, root: &Key) -> Result<Box<dyn Tree>, StoreError> {
    if store.stat(root)?.kind != Kind::Prefix {
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
