//! The file system: what each request means, without any type of the kernel's.
//!
//! Requests come from the transport ([`crate::fuse`]) as plain values and are answered with plain
//! values. What takes a decoder or a network is not done on the thread that took the request: asked
//! with [`Patience::Now`], every question is answered from what is at hand, or
//! [`FsError::would_wait`]; then a worker asks it again (`offload`). A read is answered through a
//! callback, because its bytes are lent.
//!
//! **Architecture Invariant:** nothing here names the transport, so that another one can be added.

mod handles;
mod offload;
mod read;
mod stats;
mod xattr;

pub use read::{LaterReply, ReadReply};
pub use stats::Stats;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

pub use crate::store::{Kind, Patience, StoreError};
pub use crate::tree::{Entry, Ino};

use crate::store::{
    Key, ListingSupport, MAX_COMPONENT_BYTES, Object, Stat, Version, never_waiting,
};
use crate::tree::{Directory, Node, Tree};
pub use handles::Handle;
use handles::Handles;
use offload::Offload;

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
    /// Who asked has been told to end, and does not wait for the answer.
    #[error("interrupted by a signal")]
    Interrupted,
    /// Nobody had answered when the time was over, whoever should have.
    #[error("no answer in time")]
    TimedOut,
    /// The system gives no memory.
    #[error("the system has no memory left")]
    OutOfMemory,
    /// A bug: the request's handler panicked.
    #[error("bug: the handler panicked")]
    Panicked,
}

impl FsError {
    /// Whether the question can only be answered by a thread that may wait.
    pub fn would_wait(&self) -> bool {
        matches!(self, Self::Store(StoreError::WouldWait { .. }))
    }
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
    /// Threads that decode, or wait for a network.
    pub workers: usize,
}

/// What stat(2) tells of a file.
#[derive(Debug, Clone, Copy)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Directory or file.
    pub is_directory: bool,
    /// Exact size in bytes.
    pub size_bytes: u64,
    /// Time of the last change.
    pub modified: SystemTime,
    /// Permission bits.
    pub mode: u16,
    /// Number of links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
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

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Fs {
    tree: Box<dyn Tree>,
    is_remote: bool,
    /// What is known of the root since the beginning.
    root: Option<Stat>,
    /// Where the daemon tells what it has counted.
    socket: Option<Vec<u8>>,
    policy: Policy,
    files: Handles<Arc<dyn Object>>,
    directories: Handles<Arc<Mutex<Directory>>>,
    offload: Offload,
    stats: Stats,
}

impl Fs {
    /// Serves a tree; starts the workers.
    ///
    /// # Errors
    /// The system's, if not even one worker can be started.
    pub fn new(tree: Box<dyn Tree>, policy: Policy) -> std::io::Result<Self> {
        Ok(Self {
            is_remote: tree.store().capabilities().is_remote,
            root: tree.stat(Ino::ROOT).ok(),
            socket: None,
            tree,
            policy,
            files: Handles::default(),
            directories: Handles::default(),
            offload: Offload::new(policy.workers)?,
            stats: Stats::default(),
        })
    }

    /// Has the root tell where the daemon's socket is.
    pub fn tell_socket(&mut self, path: &[u8]) {
        self.socket = Some(path.to_vec());
    }

    /// How things are shown.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Counters of this mount.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether what is served can not change, so that the kernel may keep everything.
    pub fn is_pinned(&self) -> bool {
        self.tree.store().capabilities().immutable
    }

    /// Whether no open can fail, so that the kernel need not ask.
    pub fn open_infallible(&self) -> bool {
        let capabilities = self.tree.store().capabilities();
        capabilities.immutable && capabilities.open_infallible
    }

    /// Whether asking the source takes a network.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether listings have attributes without asking for each name.
    pub fn lists_attributes(&self) -> bool {
        !self.is_remote || self.tree.store().capabilities().listing == ListingSupport::Complete
    }

    /// Asks the tree, on a thread that waits for nothing unless `patience` lets it.
    fn ask<T>(
        &self,
        patience: Patience,
        ask: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        match patience {
            Patience::Now => never_waiting(ask),
            Patience::Wait => ask(),
        }
    }

    fn attr(&self, node: Node) -> Attr {
        let Node { ino, stat } = node;
        let is_directory = stat.kind == Kind::Prefix;
        // The mount is read-only whatever the modes say. They let users change and remove copies.
        let full: u16 = if is_directory { 0o755 } else { 0o644 };
        Attr {
            ino,
            is_directory,
            size_bytes: stat.size_bytes,
            modified: stat.modified,
            mode: full & !self.policy.umask,
            links: stat.links,
            uid: self.policy.uid,
            gid: self.policy.gid,
        }
    }

    /// A listed name whose attributes are not proven: its number and kind, and nothing that could
    /// be taken for more.
    pub fn unproven(&self, entry: &Entry<'_>) -> Attr {
        let stat = Stat {
            kind: entry.kind,
            size_bytes: 0,
            modified: SystemTime::UNIX_EPOCH,
            version: Version(0),
            links: 1,
        };
        self.attr(Node {
            ino: entry.ino,
            stat,
        })
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only if it is proven that there is none.
    pub fn lookup(&self, parent: Ino, name: &[u8], patience: Patience) -> Result<Attr, FsError> {
        if name.len() > MAX_COMPONENT_BYTES {
            return Err(FsError::NameTooLong);
        }
        if patience == Patience::Now && self.tree.lookup_waits(parent, name) {
            return Err(would_wait());
        }
        self.ask(patience, || Ok(self.attr(self.tree.lookup(parent, name)?)))
    }

    /// Has a worker do something about a number: behind other work of the same, so that it is
    /// decoded once, but not where that would be waiting for a network.
    pub fn offload(&self, ino: Ino, job: impl FnOnce() + Send + 'static) {
        match self.is_remote {
            true => self.offload.submit_alone(job),
            false => self.offload.submit(ino.0, job),
        }
    }

    /// The kernel has forgotten lookups of a number.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.tree.forget(ino, lookups);
    }

    /// Attributes of a number; of what was opened, if a handle is given.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the file has been replaced.
    pub fn getattr(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        patience: Patience,
    ) -> Result<Attr, FsError> {
        let open = handle.and_then(|handle| self.files.get(handle));
        let asked = self.ask(patience, || {
            let stat: Stat = match open {
                Some(object) => object.stat()?,
                None => self.tree.stat(ino)?,
            };
            Ok(self.attr(Node { ino, stat }))
        });
        match (asked, self.root) {
            // As long as there is a mount it has a root, and nobody waits for a network to hear that.
            (Err(error), Some(stat)) if ino == Ino::ROOT && error.would_wait() => {
                Ok(self.attr(Node { ino, stat }))
            }
            (asked, _) => asked,
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] and the like if it can never be read.
    pub fn open(&self, ino: Ino, patience: Patience) -> Result<Opened, FsError> {
        let object = self.ask(patience, || Ok(self.tree.open(ino)?))?;
        let handle = self.files.insert(Arc::clone(&object));
        Ok(Opened { handle, object })
    }

    /// Closes a file.
    pub fn release(&self, handle: Handle) {
        self.files.remove(handle);
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn opendir(&self, ino: Ino, patience: Patience) -> Result<Handle, FsError> {
        let directory = self.ask(patience, || Ok(self.tree.open_dir(ino)?))?;
        Ok(self.directories.insert(Arc::new(Mutex::new(directory))))
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        self.directories.remove(handle);
    }

    /// Visits the names of a directory from a cookie until `visit` says that it has enough.
    ///
    /// # Errors
    /// Those of the source.
    pub fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        patience: Patience,
        mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.with_directory(ino, handle, patience, |directory| {
            Ok(self
                .tree
                .visit(directory, cookie, &mut |entry| visit(&entry))?)
        })
    }

    /// As [`Fs::readdir`], with the attributes of each name but `.` and `..`, which count as a
    /// lookup. A name whose attributes can not be had, or would have to be waited for one by one,
    /// is left to a lookup of its own.
    ///
    /// # Errors
    /// Those of the source.
    pub fn readdirplus(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        patience: Patience,
        mut visit: impl FnMut(&Entry<'_>, Option<Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.with_directory(ino, handle, patience, |directory| {
            let visited = self.tree.visit(directory, cookie, &mut |entry| {
                if matches!(entry.name, b"." | b"..") {
                    return visit(&entry, None);
                }
                let adopted = self.ask(Patience::Now, || Ok(self.tree.adopt(ino, &entry)?));
                let Ok(node) = adopted else {
                    return visit(&entry, None);
                };
                let flow = visit(&entry, Some(self.attr(node)));
                if flow.is_break() {
                    // It did not fit: the kernel has not seen it.
                    self.tree.forget(node.ino, 1);
                }
                flow
            });
            Ok(visited?)
        })
    }

    fn with_directory<T>(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        patience: Patience,
        read: impl FnOnce(&mut Directory) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let Some(handle) = handle else {
            return self.ask(patience, || read(&mut self.tree.open_dir(ino)?));
        };
        let directory = self.directories.get(handle).ok_or(FsError::BadHandle)?;
        let mut directory = match directory.try_lock() {
            Ok(directory) => directory,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Who has it may be waiting for a network.
            Err(TryLockError::WouldBlock) if self.is_remote && patience == Patience::Now => {
                return Err(would_wait());
            }
            Err(TryLockError::WouldBlock) => {
                directory.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        self.ask(patience, || read(&mut directory))
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

fn would_wait() -> FsError {
    StoreError::WouldWait { key: Key::root() }.into()
}
