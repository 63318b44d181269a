//! The FUSE session: decodes the requests of the kernel, lets [`crate::fs`] answer them, and replies.
//!
//! A session thread sends a reply that needs no waiting. Otherwise it builds the future of the
//! request and polls it once. Executors poll a pending future (`operation`, `readdir`, `read`); it
//! is cancelled when its caller has a fatal signal or its deadline has passed (`in_flight`).
//!
//! **Architecture Invariant:** only this module and its submodules name `fuser`. They hold no
//! policy of the file system, and only the state that the FUSE protocol needs: backing files of
//! passthrough, and pending replies.
//!
//! A handler that panics fails only its own request, with EIO: every handler runs under
//! `catch_unwind`, and a reply that is dropped unsent sends EIO. Any other panic of a session thread ends the daemon
//! (`panics`).

mod in_flight;
mod negotiate;
mod operation;
mod panics;
mod passthrough;
mod read;
mod readdir;
mod reply;
mod signals;
mod small_files;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};

use self::in_flight::RequestTracker;
use self::operation::{Getattr, Getxattr, Listxattr, Lookup, Open, Opendir};
pub use self::panics::ends_session_thread;
use self::passthrough::Backings;
use self::readdir::DirectoryRange;
use self::small_files::SmallFiles;
use crate::fs::{Fs, Handle, Ino};
use crate::sync::Mutex;

/// The transport, and the newest protocol version that it supports.
pub const TRANSPORT: &str = "FUSE 7.40 (fuser 0.18.0)";

/// Options of a FUSE session.
#[derive(Debug, Clone, Copy)]
pub struct Transport {
    /// The number of session threads, which read requests and send replies that need no waiting.
    pub threads: usize,
    /// Whether the kernel may read files of a local directory itself (FUSE_PASSTHROUGH).
    pub passthrough: bool,
    /// The deadline of store operations. A request that is still pending one second later is cancelled.
    pub deadline: Duration,
}

/// A mounted session that is ready to run.
#[derive(Debug)]
pub struct Mounted(Session<Adapter>);

impl Mounted {
    /// Negotiates FUSE init on an open `/dev/fuse` that is already mounted.
    ///
    /// # Errors
    /// The error of the system, if the kernel does not answer or is too old.
    pub fn start(device: OwnedFd, fs: Arc<Fs>, transport: Transport) -> io::Result<Self> {
        let service = Arc::new(Service {
            fs,
            passthrough: AtomicBool::new(transport.passthrough),
            is_open_infallible: AtomicBool::new(false),
            backings: Mutex::default(),
            small_files: SmallFiles::default(),
            tracker: RequestTracker::start(transport.deadline)?,
        });
        let adapter = Adapter(Arc::clone(&service));
        let mut config = Config::default();
        config.n_threads = Some(transport.threads.max(1));
        // All threads read from one descriptor. Cloning it needs `/dev/fuse` by name, which a container without
        // the device lacks, and which belongs to another user namespace in others. It is no faster.
        config.clone_fd = false;
        let session = Session::from_fd(adapter, device, SessionACL::All, config)?;
        service.small_files.set_notifier(session.notifier());
        Ok(Self(session))
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// The error of the system, if the connection fails in any other way.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

/// The state that handlers and pending requests share.
#[derive(Debug)]
struct Service {
    fs: Arc<Fs>,
    passthrough: AtomicBool,
    /// Whether the kernel opens files without an open request (FUSE_NO_OPEN_SUPPORT).
    is_open_infallible: AtomicBool,
    backings: Mutex<Backings>,
    small_files: SmallFiles,
    tracker: Arc<RequestTracker>,
}

impl Service {
    /// Runs a handler; a panic in the handler ends only its request.
    fn guard(&self, operation: &str, handler: impl FnOnce()) {
        if panics::catch_in_handler(handler).is_err() {
            self.fs.stats().panicked();
            log::error!("bug: panic in {operation}");
        }
    }
}

/// The implementation of `fuser`'s trait for [`Fs`].
#[derive(Debug)]
struct Adapter(Arc<Service>);

impl Drop for Adapter {
    fn drop(&mut self) {
        // A stuck request may keep the service alive, so the tracker is ended here.
        self.0.tracker.end();
    }
}

/// Returns the handle of a request, or `None` if the file was opened without an open request.
fn handle(fh: FileHandle) -> Option<Handle> {
    (fh.0 != 0).then_some(Handle(fh.0))
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.0.negotiate_init(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = Cow::Borrowed(name);
        self.0.guard("lookup", || {
            self.0.serve(request, Lookup { parent, name }, reply);
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.0
            .guard("forget", || self.0.fs.forget(Ino(ino.0), lookups));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let handle = fh.and_then(handle);
        self.0.guard("getattr", || {
            self.0.serve(request, Getattr { ino, handle }, reply);
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != fuser::OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        if self.0.is_open_infallible.load(Ordering::Relaxed) {
            return reply.error(Errno::ENOSYS);
        }
        self.0
            .guard("open", || self.0.serve(request, Open(ino), reply));
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (ino, size) = (Ino(ino.0), size as usize);
        // The `Drop` of the reply counts and reports a panic.
        let _ = panics::catch_in_handler(|| {
            self.0
                .read(request.pid(), ino, handle(fh), offset, size, reply);
        });
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.guard("release", || {
            if let Some(handle) = handle(fh) {
                self.0.close_passthrough(handle);
                self.0.small_files.closed(ino);
                self.0.fs.release(handle);
            }
            reply.ok();
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // After ENOSYS, the kernel sends no more flush requests.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0
            .guard("opendir", || self.0.serve(request, Opendir(ino), reply));
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let handle = handle(fh);
        let part = DirectoryRange {
            ino,
            handle,
            offset,
        };
        self.0
            .guard("readdir", || self.0.list(request, part, reply));
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let handle = handle(fh);
        let part = DirectoryRange {
            ino,
            handle,
            offset,
        };
        self.0
            .guard("readdirplus", || self.0.list(request, part, reply));
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.guard("releasedir", || {
            if let Some(handle) = handle(fh) {
                self.0.fs.releasedir(handle);
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0.guard("statfs", || {
            let space = self.0.fs.statfs();
            reply.statfs(
                space.bytes.div_ceil(4096),
                0,
                0,
                space.files,
                0,
                4096,
                255,
                4096,
            );
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        room: u32,
        reply: ReplyXattr,
    ) {
        let name = Cow::Borrowed(name);
        self.0.guard("getxattr", || {
            self.0.serve(request, Getxattr { ino, name, room }, reply);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, room: u32, reply: ReplyXattr) {
        self.0.guard("listxattr", || {
            self.0.serve(request, Listxattr { ino, room }, reply);
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        #[cfg(feature = "test-faults")]
        panics::inject();
        // Programs call isatty(3), an ioctl, and ENOTTY means that the file is no terminal.
        reply.error(Errno::ENOTTY);
    }

    fn access(&self, _: &Request, _: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS)
        } else {
            reply.ok()
        }
    }

    // Operations that would change the file system. On a read-only mount, the kernel itself refuses
    // most of them.

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &std::path::Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }
}
