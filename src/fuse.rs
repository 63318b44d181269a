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
//! `catch_unwind`, and a reply that is dropped unsent sends EIO.

mod in_flight;
mod negotiate;
mod operation;
mod passthrough;
mod read;
mod readdir;
mod reply;
mod signals;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use self::passthrough::Backings;
use self::readdir::Part;
use crate::fs::{Fs, Handle, Ino};
use crate::sync::Mutex;

/// The transport, and the newest version of the protocol that it knows.
pub const TRANSPORT: &str = "FUSE 7.40 (fuser 0.18.0)";

/// How requests are taken from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Transport {
    /// Session threads: they answer what is at hand.
    pub threads: usize,
    /// Let the kernel read files of a local directory itself, where it can.
    pub passthrough: bool,
    /// How long anything below may take; a request that is still pending a second later is cancelled.
    pub deadline: Duration,
}

/// A mounted session, ready to be run.
#[derive(Debug)]
pub struct Mounted(Session<Adapter>);

impl Mounted {
    /// Negotiates with the kernel on an open `/dev/fuse` that is mounted somewhere.
    ///
    /// # Errors
    /// The system's, if the kernel does not answer or is too old.
    pub fn start(device: OwnedFd, fs: Arc<Fs>, transport: Transport) -> io::Result<Self> {
        let adapter = Adapter(Arc::new(Service {
            fs,
            passthrough: AtomicBool::new(transport.passthrough),
            is_open_infallible: AtomicBool::new(false),
            backings: Mutex::default(),
            tracker: RequestTracker::start(transport.deadline)?,
        }));
        let mut config = Config::default();
        config.n_threads = Some(transport.threads.max(1));
        config.clone_fd = true;
        Ok(Self(Session::from_fd(
            adapter,
            device,
            SessionACL::All,
            config,
        )?))
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// The system's, if the connection fails in any other way.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

/// What handlers and pending requests need.
#[derive(Debug)]
struct Service {
    fs: Arc<Fs>,
    passthrough: AtomicBool,
    /// The kernel opens files without asking.
    is_open_infallible: AtomicBool,
    backings: Mutex<Backings>,
    tracker: Arc<RequestTracker>,
}

impl Service {
    /// Runs a handler; a panic in it ends only the request.
    fn guard(&self, operation: &str, handler: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(handler)).is_err() {
            self.fs.stats().panicked();
            log::error!("bug: panic in {operation}");
        }
    }
}

/// [`Fs`] as `fuser` wants to see it.
#[derive(Debug)]
struct Adapter(Arc<Service>);

impl Drop for Adapter {
    fn drop(&mut self) {
        // A request that is stuck may keep the rest.
        self.0.tracker.end();
    }
}

/// A handle that was given out, or none if opens are not asked for.
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
        // The reply counts and reports a panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.0
                .read(request.pid(), ino, handle(fh), offset, size, reply);
        }));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.guard("release", || {
            if let Some(handle) = handle(fh) {
                self.0.close_passthrough(handle);
                self.0.fs.release(handle);
            }
            reply.ok();
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel stops asking.
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
        let part = Part {
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
        let part = Part {
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
        // What a program asks of a file to learn that it is no terminal.
        reply.error(Errno::ENOTTY);
    }

    fn access(&self, _: &Request, _: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS)
        } else {
            reply.ok()
        }
    }

    // Everything that would change something: the kernel refuses most of it on a read-only mount
    // before it gets here.

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
