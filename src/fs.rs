//! The file system: what each request means, without any type of the kernel's.
//!
//! Requests come from the transport ([`crate::fuse`]) as plain values and are answered with plain
//! values. A method that begins with `try_` answers what is at hand, on the session thread; otherwise
//! the asynchronous method of the same name is awaited. Reads of local files that would block on the
//! disk run on the local I/O pool (`local_io`).
//!
//! **Architecture Invariant:** nothing here names the transport, so that another one can be added.

mod handles;
mod local_io;
mod read;
mod stats;
mod xattr;

pub use read::{Buffer, Bytes, Reader, with_buffer};
pub use stats::Stats;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

pub use crate::store::{Kind, StoreError, Visited};
pub use crate::tree::{Entry, Ino, Node};

use crate::recent_errors::RecentErrors;
use crate::store::{Key, ListingSupport, MAX_COMPONENT_BYTES, Object, Stat};
use crate::tree::{DirStream, ERRORS_FILE, Tree};
pub use handles::Handle;
use handles::Handles;
use local_io::LocalIoPool;

/// The longest read that the kernel asks for.
pub const MAX_READ_BYTES: usize = 1 << 20;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    /// The source failed or said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request that would change something.
    #[error("the file system is read-only")]
    ReadOnly,
    /// A name below a file.
    #[error("not a directory")]
    NotADirectory,
    /// A file was wanted.
    #[error("is a directory")]
    IsADirectory,
    /// A name that no file system here can hold.
    #[error("name too long")]
    NameTooLong,
    /// A handle that is not open.
    #[error("handle is not open")]
    BadHandle,
    /// No extended attribute of that name.
    #[error("no such extended attribute")]
    NoAttribute,
    /// Extended attributes of a kind that files here never have.
    #[error("no extended attributes of this kind")]
    NoSuchAttributeSpace,
    /// The caller has a fatal signal, and does not wait for the answer.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The deadline of the request is over.
    #[error("no answer in time")]
    TimedOut,
    /// The system gives no memory.
    #[error("the system has no memory left")]
    OutOfMemory,
    /// A bug: the request's handler panicked.
    #[error("bug: the handler panicked")]
    Panicked,
}

/// How the file system shows what it has.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long the kernel may trust names and attributes.
    pub ttl: Duration,
    /// How long it may trust that a name does not exist.
    pub absent_ttl: Duration,
    /// Owner of all files.
    pub uid: u32,
    /// Group of all files.
    pub gid: u32,
    /// Permission bits that are taken away from 0644 and 0755.
    pub umask: u16,
    /// Threads that read local files which are not in the page cache.
    pub local_io_threads: usize,
}

/// An opened file.
#[derive(Debug)]
pub struct Opened {
    /// To be given with reads, and back when it is closed.
    pub handle: Handle,
    /// The object, for a transport that can hand its file to the kernel.
    pub object: Arc<dyn Object>,
}

/// What statfs(2) tells; zeros where it is not known. Nothing is free.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Files in all.
    pub files: u64,
}

/// A directory that is open.
pub type OpenDir = Arc<Mutex<Box<dyn DirStream>>>;

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Fs {
    tree: Box<dyn Tree>,
    is_remote: bool,
    /// Attributes of the root when it was mounted.
    root: Option<Stat>,
    /// Where the daemon's counters can be read.
    socket: Option<Vec<u8>>,
    policy: Policy,
    files: Handles<Arc<dyn Object>>,
    directories: Handles<OpenDir>,
    local_io: LocalIoPool,
    stats: Stats,
    recent_errors: Arc<RecentErrors>,
    /// When the file system was built.
    started: Instant,
}

impl Fs {
    /// Serves a tree; starts the local I/O pool.
    ///
    /// # Errors
    /// The system's, if not even one thread can be started.
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
            started: Instant::now(),
        })
    }

    /// Shows the path of the daemon's socket as an attribute of the root.
    pub fn set_socket(&mut self, path: &[u8]) {
        self.socket = Some(path.to_vec());
    }

    /// How the file system shows what it has.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Counters of this mount.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Names of some views of the root.
    pub async fn example_views(&self) -> Vec<String> {
        self.tree.example_views().await
    }

    /// The last failed requests.
    pub fn recent_errors(&self) -> &RecentErrors {
        &self.recent_errors
    }

    /// How long the kernel may trust what a lookup of a name has found.
    pub fn entry_ttl(&self, name: &[u8]) -> Duration {
        match name == ERRORS_FILE {
            // Each lookup finds the file of the errors until then.
            true => Duration::ZERO,
            false => self.policy.ttl,
        }
    }

    /// Whether the content cannot change, so that the kernel may cache everything.
    pub fn is_immutable(&self) -> bool {
        self.tree.store().capabilities().immutable
    }

    /// Whether no open can fail, so that the kernel need not ask.
    pub fn is_open_infallible(&self) -> bool {
        let capabilities = self.tree.store().capabilities();
        capabilities.immutable && capabilities.open_infallible
    }

    /// Whether the source is remote.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether listings have attributes without a request for each name.
    pub fn lists_attributes(&self) -> bool {
        !self.is_remote || self.tree.store().capabilities().listing == ListingSupport::Complete
    }

    /// As [`Fs::lookup`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Fs::lookup`].
    pub fn try_lookup(&self, parent: Ino, name: &[u8]) -> Option<Result<Node, FsError>> {
        if name.len() > MAX_COMPONENT_BYTES {
            return Some(Err(FsError::NameTooLong));
        }
        let found = self.tree.try_lookup(parent, name)?;
        Some(found.map_err(Into::into))
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if it is proven that there is none.
    pub async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, FsError> {
        Ok(self.tree.lookup(parent, name).await?)
    }

    /// The kernel has forgotten lookups of a number.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.tree.forget(ino, lookups);
    }

    /// As [`Fs::getattr`], if the answer is at hand.
    ///
    /// # Errors
    /// As [`Fs::getattr`].
    pub fn try_getattr(&self, ino: Ino, handle: Option<Handle>) -> Option<Result<Node, FsError>> {
        let open = handle.and_then(|handle| self.files.get(handle));
        let stat = match open {
            Some(object) => Some(object.stat()),
            None => self.tree.try_stat(ino),
        };
        // As long as there is a mount it has a root, whose attributes need no request.
        let stat = match (stat, self.root) {
            (None, Some(root)) if ino == Ino::ROOT => Ok(root),
            (stat, _) => stat?,
        };
        Some(stat.map(|stat| Node { ino, stat }).map_err(Into::into))
    }

    /// Attributes of a number; of what was opened, if a handle is given.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the file has been replaced.
    pub async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> Result<Node, FsError> {
        let open = handle.and_then(|handle| self.files.get(handle));
        let stat = match open {
            Some(object) => object.stat(),
            None => self.tree.stat(ino).await,
        };
        Ok(Node { ino, stat: stat? })
    }

    /// As [`Fs::open`], if that is at hand.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub fn try_open(&self, ino: Ino) -> Option<Result<Opened, FsError>> {
        let object = self.tree.try_open(ino)?;
        Some(self.opened(object))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] and the like if it can never be read.
    pub async fn open(&self, ino: Ino) -> Result<Opened, FsError> {
        self.opened(self.tree.open(ino).await)
    }

    fn opened(&self, object: Result<Arc<dyn Object>, StoreError>) -> Result<Opened, FsError> {
        let object = object?;
        let handle = self.files.insert(Arc::clone(&object));
        Ok(Opened { handle, object })
    }

    /// Closes a file.
    pub fn release(&self, handle: Handle) {
        self.files.remove(handle);
    }

    /// As [`Fs::opendir`], if that is at hand.
    ///
    /// # Errors
    /// As [`Fs::opendir`].
    pub fn try_opendir(&self, ino: Ino) -> Option<Result<Handle, FsError>> {
        let directory = self.tree.try_open_dir(ino)?;
        Some(self.opened_dir(directory))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub async fn opendir(&self, ino: Ino) -> Result<Handle, FsError> {
        self.opened_dir(self.tree.open_dir(ino).await)
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

    /// A directory that is open: by its handle, or opened for this request.
    ///
    /// # Errors
    /// As [`Fs::opendir`]; [`FsError::BadHandle`].
    pub async fn directory(&self, ino: Ino, handle: Option<Handle>) -> Result<OpenDir, FsError> {
        match handle {
            Some(handle) => self.directories.get(handle).ok_or(FsError::BadHandle),
            None => Ok(Arc::new(Mutex::new(self.tree.open_dir(ino).await?))),
        }
    }

    /// As [`Fs::directory`], if that is at hand.
    ///
    /// # Errors
    /// As [`Fs::directory`].
    pub fn try_directory(
        &self,
        ino: Ino,
        handle: Option<Handle>,
    ) -> Option<Result<OpenDir, FsError>> {
        match handle {
            Some(handle) => Some(self.directories.get(handle).ok_or(FsError::BadHandle)),
            None => {
                let opened = self.tree.try_open_dir(ino)?;
                Some(
                    opened
                        .map(|stream| Arc::new(Mutex::new(stream)))
                        .map_err(Into::into),
                )
            }
        }
    }

    /// Visits the names of an open directory from a cookie on that are at hand.
    ///
    /// # Errors
    /// Those of the source.
    pub fn readdir(
        &self,
        directory: &mut dyn DirStream,
        cookie: u64,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        Ok(directory.visit(cookie, &mut |entry| visit(&entry))?)
    }

    /// As [`Fs::readdir`], with the attributes of each name but `.` and `..`, which count as a
    /// lookup. A name whose attributes are not at hand is left to a lookup of its own.
    ///
    /// # Errors
    /// Those of the source.
    pub fn readdirplus(
        &self,
        ino: Ino,
        directory: &mut dyn DirStream,
        cookie: u64,
        visit: &mut dyn FnMut(&Entry<'_>, Option<Node>) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        let visited = directory.visit(cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return visit(&entry, None);
            }
            let Some(Ok(node)) = self.tree.try_adopt(ino, &entry) else {
                return visit(&entry, None);
            };
            let flow = visit(&entry, Some(node));
            if flow.is_break() {
                // It did not fit: the kernel has not seen it.
                self.tree.forget(node.ino, 1);
            }
            flow
        });
        Ok(visited?)
    }

    /// The size of the source.
    pub fn statfs(&self) -> Space {
        let extent = self.tree.store().extent();
        Space {
            bytes: extent.bytes,
            files: extent.keys,
        }
    }

    /// The key of a number, for messages.
    pub fn key(&self, ino: Ino) -> Key {
        self.tree.key(ino).unwrap_or_default()
    }
}
