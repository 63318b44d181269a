//! The file system: the semantics of each request, without any type of the kernel.
//!
//! The transport ([`crate::fuse`]) passes requests and receives replies as plain values. A method that begins
//! with `try_` runs on the session thread and returns `None` if it would block. Then the transport awaits the
//! asynchronous method of the same name. Reads of local files that would block on the disk run on the local
//! I/O pool (`local_io`).
//!
//! **Architecture Invariant:** this module does not name the transport, so that another one can be added.

mod handles;
mod local_io;
mod read;
#[cfg(test)]
mod simulation;
mod stats;
pub mod xattr;

pub use read::Reader;
pub use stats::Stats;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::Mutex;

pub use crate::store::{Data, Kind, StoreError, Visited};
pub use crate::tree::{Answer, Entry, Ino, Node};

use crate::clock::Instant;
use crate::recent_errors::RecentErrors;
use crate::store::{Key, ListingSupport, MAX_COMPONENT_BYTES, Object, Stat};
use crate::sync;
use crate::tree::{DirStream, ERRORS_FILE, Tree};
pub use handles::Handle;
use handles::Handles;
use local_io::LocalIoPool;

/// The length of the longest read that the kernel requests, in bytes.
pub const MAX_READ_BYTES: usize = 1 << 20;

/// The reason why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    /// The source failed or refused the request.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request would change the file system.
    #[error("the file system is read-only")]
    ReadOnly,
    /// A name is looked up below a file.
    #[error("not a directory")]
    NotADirectory,
    /// The request needs a file, but names a directory.
    #[error("is a directory")]
    IsADirectory,
    /// A name is longer than any file system here allows.
    #[error("name too long")]
    NameTooLong,
    /// The handle is not open.
    #[error("handle is not open")]
    BadHandle,
    /// The file has no extended attribute of that name.
    #[error("no such extended attribute")]
    NoAttribute,
    /// Extended attributes of that namespace are not supported.
    #[error("no extended attributes of this kind")]
    NoSuchAttributeSpace,
    /// The caller has a fatal signal and does not wait for the reply.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The deadline of the request has passed.
    #[error("no answer in time")]
    TimedOut,
    /// The handler of the request panicked, which is a bug.
    #[error("bug: the handler panicked")]
    Panicked,
}

/// How files are presented to the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// The time that the kernel may cache names and attributes.
    pub ttl: Duration,
    /// The time that the kernel may cache the absence of a name.
    pub absent_ttl: Duration,
    /// The owner of all files.
    pub uid: u32,
    /// The group of all files.
    pub gid: u32,
    /// Permission bits that are removed from 0644 and 0755.
    pub umask: u16,
    /// The number of threads that read local files outside of the page cache.
    pub local_io_threads: usize,
}

/// An answer to a request of the kernel.
pub type FsAnswer<'a, T> = Answer<'a, T, FsError>;

/// An opened file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The handle, which reads and the release of the file name.
    pub handle: Handle,
    /// The object, for a transport that can pass its file to the kernel.
    pub object: Arc<dyn Object>,
}

/// The result of statfs(2); unknown values are 0, and no space is free.
#[derive(Debug, Clone, Copy)]
pub struct FsStatistics {
    /// Total bytes.
    pub bytes: u64,
    /// Total files.
    pub files: u64,
}

/// An open directory.
pub type OpenDir = Arc<Mutex<Box<dyn DirStream>>>;

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Fs {
    tree: Box<dyn Tree>,
    is_remote: bool,
    /// Attributes of the root at the time of the mount.
    root: Option<Stat>,
    /// The path of the metrics socket.
    socket: Option<Vec<u8>>,
    policy: Policy,
    files: Handles<Arc<dyn Object>>,
    directories: Handles<OpenDir>,
    local_io: LocalIoPool,
    stats: Stats,
    recent_errors: Arc<RecentErrors>,
    /// Lookups of listed names without attributes. The kernel counts them; the tree does not have their numbers.
    placeholders: sync::Mutex<HashMap<Ino, u64>>,
    /// The time when the file system was built.
    started: Instant,
}

/// The attributes of a listed name.
#[derive(Debug, Clone, Copy)]
pub enum EntryAttributes {
    /// The present attributes.
    Current(Node),
    /// The present attributes need waiting; these are the ones that the kernel has cached. The kernel applies
    /// attributes of a listing to the inode, whatever their time to live. Others, such as a size of 0, would
    /// truncate a file that is being read: `cp` would end early with status 0, and a mapped file with SIGBUS. GDAL
    /// lists the directory of each file that it opens.
    Cached(Node),
    /// The present attributes need waiting, and the tree does not have the number. The kernel makes an inode
    /// of it, which it looks up before use.
    Placeholder(Ino),
    /// The name is `.` or `..`, which the kernel only lists.
    None,
}

impl EntryAttributes {
    /// Returns the number whose lookup count was incremented. If the kernel does not get the name,
    /// [`Fs::forget`] has to decrement the count.
    pub fn counted(self) -> Option<Ino> {
        match self {
            Self::Current(node) | Self::Cached(node) => Some(node.ino),
            Self::Placeholder(ino) => Some(ino),
            Self::None => None,
        }
    }
}

impl Fs {
    /// Builds the file system of a tree, and starts the local I/O pool.
    ///
    /// # Errors
    /// The error of the system, if it cannot start a single thread.
    pub async fn new(tree: Box<dyn Tree>, policy: Policy) -> std::io::Result<Self> {
        Ok(Self {
            is_remote: tree.store().capabilities().is_remote,
            root: tree.stat(Ino::ROOT).await.ok(),
            socket: None,
            recent_errors: tree.recent_errors(),
            tree,
            policy,
            files: Handles::default(),
            directories: Handles::default(),
            local_io: LocalIoPool::new(policy.local_io_threads)?,
            stats: Stats::default(),
            placeholders: sync::Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Publishes the path of the daemon's socket as an extended attribute of the root.
    pub fn set_socket(&mut self, path: &[u8]) {
        self.socket = Some(path.to_vec());
    }

    /// Returns how files are presented to the kernel.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the counters of this mount.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the names of some views of the root.
    pub async fn example_views(&self) -> Vec<String> {
        self.tree.example_views().await
    }

    /// Returns the last failed requests.
    pub fn recent_errors(&self) -> &RecentErrors {
        &self.recent_errors
    }

    /// Returns the time that the kernel may cache the result of a lookup of `name`.
    pub fn entry_ttl(&self, name: &[u8]) -> Duration {
        match name == ERRORS_FILE {
            // The content of `errors.txt` changes with each failed request.
            true => Duration::ZERO,
            false => self.policy.ttl,
        }
    }

    /// Returns whether the content cannot change, so that the kernel may cache everything.
    pub fn is_immutable(&self) -> bool {
        self.tree.store().capabilities().immutable
    }

    /// Returns whether no open can fail, so that the kernel need not send open requests.
    pub fn is_open_infallible(&self) -> bool {
        let capabilities = self.tree.store().capabilities();
        capabilities.immutable && capabilities.open_infallible
    }

    /// Returns whether the source is remote.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Returns whether listings have attributes without a request for each name.
    pub fn lists_attributes(&self) -> bool {
        !self.is_remote || self.tree.store().capabilities().listing == ListingSupport::Complete
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if the absence of the name is proven.
    pub fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> FsAnswer<'a, Node> {
        match name.len() > MAX_COMPONENT_BYTES {
            true => Answer::now(Err(FsError::NameTooLong)),
            false => (self.tree.lookup(parent, name)).map(|found| found.map_err(Into::into)),
        }
    }

    /// Records that the kernel has forgotten `lookups` lookups of an inode number.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let of_placeholders = {
            let mut placeholders = self.placeholders.lock();
            match placeholders.get_mut(&ino) {
                Some(count) => {
                    let forgotten = lookups.min(*count);
                    *count -= forgotten;
                    if *count == 0 {
                        placeholders.remove(&ino);
                    }
                    forgotten
                }
                None => 0,
            }
        };
        if lookups > of_placeholders {
            self.tree.forget(ino, lookups - of_placeholders);
        }
    }

    /// Counts a lookup of a listed name without attributes. Its FORGET may arrive after the kernel has looked the
    /// name up again, and would otherwise remove the number of an open file.
    fn add_placeholder(&self, ino: Ino) {
        let mut placeholders = self.placeholders.lock();
        let count = placeholders.entry(ino).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// Returns the attributes of an inode number; with a handle, those of the opened file.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the file has been replaced.
    pub fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsAnswer<'_, Node> {
        let open = handle.and_then(|handle| self.files.get(handle));
        let stat = match open {
            Some(object) => Answer::now(object.stat()),
            None => self.tree.stat(ino),
        };
        // A mounted root always exists, and its attributes need no request.
        let stat = match (stat, self.root) {
            (Answer::Later(_), Some(root)) if ino == Ino::ROOT => Answer::now(Ok(root)),
            (stat, _) => stat,
        };
        stat.map(move |stat| Ok(Node { ino, stat: stat? }))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`], for example, if the file can never be read.
    pub fn open(&self, ino: Ino) -> FsAnswer<'_, OpenedFile> {
        (self.tree.open(ino)).map(|object| self.opened(object))
    }

    fn opened(&self, object: Result<Arc<dyn Object>, StoreError>) -> Result<OpenedFile, FsError> {
        let object = object?;
        let handle = self.files.insert(Arc::clone(&object));
        Ok(OpenedFile { handle, object })
    }

    /// Closes a file.
    pub fn release(&self, handle: Handle) {
        self.files.remove(handle);
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn opendir(&self, ino: Ino) -> FsAnswer<'_, Handle> {
        (self.tree.open_dir(ino)).map(|directory| self.opened_dir(directory))
    }

    fn opened_dir(
        &self,
        directory: Result<Box<dyn DirStream>, StoreError>,
    ) -> Result<Handle, FsError> {
        Ok(self.directories.insert(Arc::new(Mutex::new(directory?))))
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        self.directories.remove(handle);
    }

    /// Returns the open directory of a handle, or opens one for this request.
    ///
    /// # Errors
    /// As [`Fs::opendir`]; [`FsError::BadHandle`].
    pub fn directory(&self, ino: Ino, handle: Option<Handle>) -> FsAnswer<'_, OpenDir> {
        match handle {
            Some(handle) => Answer::now(self.directories.get(handle).ok_or(FsError::BadHandle)),
            None => (self.tree.open_dir(ino)).map(|stream| Ok(Arc::new(Mutex::new(stream?)))),
        }
    }

    /// Visits the names of an open directory from a cookie on, as far as that needs no waiting.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn readdir(
        &self,
        directory: &mut dyn DirStream,
        cookie: u64,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        Ok(directory.visit_names(cookie, &mut |entry| visit(&entry))?)
    }

    /// As [`Fs::readdir`], with the attributes of each name. Each name but `.` and `..` counts as a lookup.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn readdirplus(
        &self,
        ino: Ino,
        directory: &mut dyn DirStream,
        cookie: u64,
        visit: &mut dyn FnMut(&Entry<'_>, EntryAttributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        let visited = directory.visit(cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return visit(&entry, EntryAttributes::None);
            }
            let known = || {
                let stat = self.tree.count_lookup(entry.ino)?;
                let ino = entry.ino;
                Some(EntryAttributes::Cached(Node { ino, stat }))
            };
            let placeholder = || {
                self.add_placeholder(entry.ino);
                EntryAttributes::Placeholder(entry.ino)
            };
            // A name whose attributes cannot be read is listed all the same, so that an access to it fails visibly.
            let attributes = match self.tree.lookup_entry(ino, &entry) {
                Some(Ok(node)) => EntryAttributes::Current(node),
                _ => known().unwrap_or_else(placeholder),
            };
            let flow = visit(&entry, attributes);
            if flow.is_break()
                && let Some(ino) = attributes.counted()
            {
                // The entry did not fit, so the kernel has not seen it.
                self.forget(ino, 1);
            }
            flow
        });
        Ok(visited?)
    }

    /// Returns the size of the source.
    pub fn statfs(&self) -> FsStatistics {
        let extent = self.tree.store().extent();
        FsStatistics {
            bytes: extent.bytes,
            files: extent.keys,
        }
    }

    /// Returns the key of an inode number for messages.
    pub fn key(&self, ino: Ino) -> Key {
        self.tree.key(ino).unwrap_or_default()
    }
}
