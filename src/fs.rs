//! The file system: what each request means, without any type of the kernel's.
//!
//! Requests come from the transport ([`crate::fuse`]) as plain values and are answered with plain
//! values; a read is answered through a callback, because it may have to wait for a decoder and
//! then is finished by a worker (`offload`). The calling thread never waits for one.
//!
//! **Architecture Invariant:** nothing here names the transport, so that another one can be added.

mod handles;
mod offload;
mod stats;
mod xattr;

pub use stats::Stats;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

pub use crate::store::{Kind, StoreError};
pub use crate::tree::{Entry, Ino};

use crate::store::{
    BUFFER_HEADROOM_BYTES, Data, Key, MAX_COMPONENT_BYTES, Object, Patience, Stat, Version,
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
    /// Permission bits that are taken away from 0444 and 0555.
    pub umask: u16,
    /// Threads that decode.
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
    /// 512-byte blocks.
    pub blocks: u64,
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

/// What statfs(2) tells.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Bytes in all; none are free.
    pub bytes: u64,
    /// Files in all.
    pub files: u64,
}

/// How a read is answered, now or later, by this thread or another.
pub trait ReadReply: Send + 'static {
    /// Takes the bytes (fewer than asked for only at the end of the file), or why there are none.
    fn answer(self, result: Result<&[u8], FsError>);
}

impl<F: FnOnce(Result<&[u8], FsError>) + Send + 'static> ReadReply for F {
    fn answer(self, result: Result<&[u8], FsError>) {
        self(result);
    }
}

thread_local! {
    /// Where reads are put together: one buffer a thread, never allocated per request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Fs {
    tree: Box<dyn Tree>,
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
            tree,
            policy,
            files: Handles::default(),
            directories: Handles::default(),
            offload: Offload::new(policy.workers)?,
            stats: Stats::default(),
        })
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
        self.tree.store().promises().pinned
    }

    /// Whether no open can fail, so that the kernel need not ask.
    pub fn all_open(&self) -> bool {
        let promises = self.tree.store().promises();
        promises.pinned && promises.all_open
    }

    fn attr(&self, node: Node) -> Attr {
        let Node { ino, stat } = node;
        let is_directory = stat.kind == Kind::Prefix;
        let full: u16 = if is_directory { 0o555 } else { 0o444 };
        Attr {
            ino,
            is_directory,
            size_bytes: stat.size_bytes,
            blocks: stat.blocks,
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
            blocks: 0,
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
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, FsError> {
        if name.len() > MAX_COMPONENT_BYTES {
            return Err(FsError::NameTooLong);
        }
        Ok(self.attr(self.tree.lookup(parent, name)?))
    }

    /// Whether finding a name may have to wait for a decoder, so that a worker should do it.
    pub fn lookup_waits(&self, parent: Ino, name: &[u8]) -> bool {
        self.tree.lookup_waits(parent, name)
    }

    /// Has a worker do something, behind other work of the same `queue`.
    pub fn offload(&self, queue: u64, job: impl FnOnce() + Send + 'static) {
        self.offload.submit(queue, job);
    }

    /// The kernel has forgotten lookups of a number.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.tree.forget(ino, lookups);
    }

    /// Attributes of a number; of what was opened, if a handle is given.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the file has been replaced.
    pub fn getattr(&self, ino: Ino, handle: Option<Handle>) -> Result<Attr, FsError> {
        let open = handle.and_then(|handle| self.files.get(handle));
        let stat: Stat = match open {
            Some(object) => object.stat()?,
            None => self.tree.stat(ino)?,
        };
        Ok(self.attr(Node { ino, stat }))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] and the like if it can never be read.
    pub fn open(&self, ino: Ino) -> Result<Opened, FsError> {
        let object = self.tree.open(ino)?;
        let handle = self.files.insert(Arc::clone(&object));
        Ok(Opened { handle, object })
    }

    /// Closes a file.
    pub fn release(&self, handle: Handle) {
        self.files.remove(handle);
    }

    /// Reads from a file: by its handle, or by its number where nothing needs to be opened.
    pub fn read(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        size: usize,
        reply: impl ReadReply,
    ) {
        let object = match handle {
            Some(handle) => self.files.get(handle).ok_or(FsError::BadHandle),
            None => self.tree.open(ino).map_err(FsError::from),
        };
        let object = match object {
            Ok(object) => object,
            Err(error) => return reply.answer(Err(error)),
        };
        let size = size.min(MAX_READ_BYTES);
        let reply = match with_buffer(size, |buffer| {
            match object.read(offset, size, buffer, Patience::Now) {
                Err(StoreError::WouldWait { .. }) => Some(reply),
                result => {
                    answer(reply, result, buffer);
                    None
                }
            }
        }) {
            Some(reply) => reply,
            None => return,
        };
        self.stats.offloaded();
        // Reads of one file keep their order, unless the file does not mind.
        let queue = match object.is_parallel() {
            true => self.stats.next_queue(),
            false => ino.0,
        };
        self.offload.submit(queue, move || {
            with_buffer(size, |buffer| {
                let result = object.read(offset, size, buffer, Patience::Wait);
                answer(reply, result, buffer);
            });
        });
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn opendir(&self, ino: Ino) -> Result<Handle, FsError> {
        let directory = self.tree.open_dir(ino)?;
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
        mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.with_directory(ino, handle, |directory| {
            Ok(self
                .tree
                .visit(directory, cookie, &mut |entry| visit(&entry))?)
        })
    }

    /// As [`Fs::readdir`], with the attributes of each name but `.` and `..`, which count as a
    /// lookup. A name whose attributes can not be had is left to a lookup of its own.
    ///
    /// # Errors
    /// Those of the source.
    pub fn readdirplus(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        mut visit: impl FnMut(&Entry<'_>, Option<Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.with_directory(ino, handle, |directory| {
            let visited = self.tree.visit(directory, cookie, &mut |entry| {
                if matches!(entry.name, b"." | b"..") {
                    return visit(&entry, None);
                }
                let Ok(node) = self.tree.adopt(ino, &entry) else {
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
        read: impl FnOnce(&mut Directory) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        match handle {
            Some(handle) => {
                let directory = self.directories.get(handle).ok_or(FsError::BadHandle)?;
                read(&mut directory.lock().unwrap_or_else(PoisonError::into_inner))
            }
            None => read(&mut self.tree.open_dir(ino)?),
        }
    }

    /// How much room the source takes.
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

fn answer(reply: impl ReadReply, result: Result<Data, StoreError>, buffer: &[u8]) {
    match result {
        Ok(data) => reply.answer(Ok(data.bytes(buffer))),
        Err(error) => reply.answer(Err(error.into())),
    }
}

/// Lends this thread's buffer, with room for `size` bytes and the store's headroom.
fn with_buffer<T>(size: usize, read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        let needed = size.saturating_add(BUFFER_HEADROOM_BYTES);
        if buffer.len() < needed {
            buffer.resize(needed, 0);
        }
        read(buffer.get_mut(..needed).unwrap_or_default())
    })
}
