//! The kernel's requests: decoded here, answered by [`crate::fs`], replied here.
//!
//! **Architecture Invariant:** only this module and those below it name `fuser`. It holds no policy of the file
//! system's and no state but what the kernel's protocol needs (backing files of passthrough).
//!
//! A handler that panics costs its request an EIO and nothing else: every handler runs under
//! `catch_unwind`, and a reply that is dropped unanswered says EIO.

mod passthrough;
mod reply;

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};

use self::passthrough::Backings;
use self::reply::{PendingRead, answer_lookup, file_attr, kind, report};
use crate::fs::{Fs, FsError, Handle, Ino, Kind, MAX_READ_BYTES};

/// How requests are taken from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Transport {
    /// Session threads: they answer from memory and never wait for a decoder.
    pub threads: usize,
    /// Let the kernel read files of a local directory itself, where it can.
    pub passthrough: bool,
}

/// A mounted session, ready to be run.
#[derive(Debug)]
pub struct Mounted(Session<Adapter>);

impl Mounted {
    /// Shakes hands with the kernel on an open `/dev/fuse` that is mounted somewhere.
    ///
    /// # Errors
    /// The system's, if the kernel does not answer or is too old.
    pub fn start(device: OwnedFd, fs: Fs, transport: Transport) -> io::Result<Self> {
        let adapter = Adapter {
            fs: Arc::new(fs),
            passthrough: AtomicBool::new(transport.passthrough),
            open_never_asked: false,
            backings: Mutex::default(),
        };
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

/// Files smaller than this cost more to hand to the kernel than to read.
const PASSTHROUGH_MIN_BYTES: u64 = 64 << 10;
/// Names in the first answer to READDIRPLUS. The kernel always begins a directory with it, and
/// every name in it costs the kernel an inode; it goes on with it only if the names are then
/// looked at, so that a listing of names alone stays one.
const FIRST_PLUS_NAMES: usize = 16;

/// [`Fs`] as `fuser` wants to see it.
#[derive(Debug)]
struct Adapter {
    fs: Arc<Fs>,
    passthrough: AtomicBool,
    /// The kernel opens files without asking.
    open_never_asked: bool,
    backings: Mutex<Backings>,
}

impl Adapter {
    /// Runs a handler; a panic in it ends only the request.
    fn guard(&self, operation: &str, handler: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(handler)).is_err() {
            self.fs.stats().panicked();
            log::error!("bug: panic in {operation}");
        }
    }

    fn fail(&self, operation: &str, ino: INodeNo, name: Option<&OsStr>, error: &FsError) -> Errno {
        report(&self.fs, operation, ino, name, error)
    }
}

/// A handle that was given out, or none if opens are not asked for.
fn handle(fh: FileHandle) -> Option<Handle> {
    (fh.0 != 0).then_some(Handle(fh.0))
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO;
        if self.fs.is_pinned() {
            wanted |= InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        }
        if self.fs.all_open() {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if self.passthrough.load(Ordering::Relaxed) {
            let can = config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
                && config.set_max_stack_depth(2).is_ok();
            self.passthrough.store(can, Ordering::Relaxed);
            if can {
                wanted |= InitFlags::FUSE_PASSTHROUGH;
            }
        }
        let wanted = wanted & config.capabilities();
        self.open_never_asked = wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        // What the kernel lacks it does without; every flag is an optimisation.
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(u32::try_from(MAX_READ_BYTES).unwrap_or(u32::MAX));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.guard("lookup", || {
            if !self.fs.lookup_waits(Ino(parent.0), name.as_bytes()) {
                return answer_lookup(&self.fs, parent, name, reply);
            }
            let (fs, name) = (Arc::clone(&self.fs), name.to_owned());
            self.fs
                .offload(parent.0, move || answer_lookup(&fs, parent, &name, reply));
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.guard("forget", || self.fs.forget(Ino(ino.0), lookups));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        self.guard("getattr", || {
            match self.fs.getattr(Ino(ino.0), fh.and_then(handle)) {
                Ok(attr) => reply.attr(&self.fs.policy().ttl, &file_attr(&attr)),
                Err(error) => reply.error(self.fail("getattr", ino, None, &error)),
            }
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.guard("open", || {
            if flags.acc_mode() != fuser::OpenAccMode::O_RDONLY {
                return reply.error(Errno::EROFS);
            }
            if self.open_never_asked {
                return reply.error(Errno::ENOSYS);
            }
            let opened = match self.fs.open(Ino(ino.0)) {
                Ok(opened) => opened,
                Err(error) => return reply.error(self.fail("open", ino, None, &error)),
            };
            let mut reply = reply;
            // What is open that way must be opened that way.
            let passthrough = self.passthrough.load(Ordering::Relaxed) || self.has_backing(ino);
            if passthrough
                && opened.object.size_bytes() >= PASSTHROUGH_MIN_BYTES
                && let Some(file) = opened.object.backing()
            {
                match self.open_passthrough(ino, opened.handle, file, reply) {
                    None => return,
                    Some(back) => reply = back,
                }
            }
            // An inode stands for one content (see `tree`), so its pages are never stale, unless
            // it is made of what can change.
            let flags = match opened.object.is_constant() {
                true => FopenFlags::FOPEN_KEEP_CACHE,
                false => FopenFlags::empty(),
            };
            reply.opened(FileHandle(opened.handle.0), flags);
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let reply = PendingRead::new(reply, Arc::clone(&self.fs), ino);
        // A panic drops the reply, which answers and counts it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.fs
                .read(Ino(ino.0), handle(fh), offset, size as usize, reply);
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
        self.guard("release", || {
            if let Some(handle) = handle(fh) {
                self.close_passthrough(handle);
                self.fs.release(handle);
            }
            reply.ok();
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel stops asking.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.guard("opendir", || match self.fs.opendir(Ino(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
            Err(error) => reply.error(self.fail("opendir", ino, None, &error)),
        });
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.guard("readdir", || {
            let read = self.fs.readdir(Ino(ino.0), handle(fh), offset, |entry| {
                let name = OsStr::from_bytes(entry.name);
                let kind = kind(entry.kind == Kind::Prefix);
                match reply.add(INodeNo(entry.ino.0), entry.next, kind, name) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            match read {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(self.fail("readdir", ino, None, &error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.guard("readdirplus", || {
            let mut left = if offset == 0 {
                FIRST_PLUS_NAMES
            } else {
                usize::MAX
            };
            let read = self
                .fs
                .readdirplus(Ino(ino.0), handle(fh), offset, |entry, attr| {
                    let Some(fewer) = left.checked_sub(1) else {
                        return ControlFlow::Break(());
                    };
                    left = fewer;
                    // Without attributes (or with `.` and `..`, which the kernel only lists) the name
                    // is to be looked up again before it is believed.
                    let ttl = attr.map_or(Duration::ZERO, |_| self.fs.policy().ttl);
                    let attr = attr.unwrap_or_else(|| self.fs.unproven(entry));
                    let name = OsStr::from_bytes(entry.name);
                    match reply.add(
                        INodeNo(attr.ino.0),
                        entry.next,
                        name,
                        &ttl,
                        &file_attr(&attr),
                        Generation(0),
                    ) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
            match read {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(self.fail("readdirplus", ino, None, &error)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.guard("releasedir", || {
            if let Some(handle) = handle(fh) {
                self.fs.releasedir(handle);
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.guard("statfs", || {
            let space = self.fs.statfs();
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

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.guard("getxattr", || {
            match self.fs.getxattr(Ino(ino.0), name.as_bytes()) {
                Ok(value) => send_xattr(&value, size, reply),
                Err(error) => reply.error(self.fail("getxattr", ino, Some(name), &error)),
            }
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.guard("listxattr", || {
            let names = match self.fs.listxattr(Ino(ino.0)) {
                Ok(names) => names,
                Err(error) => return reply.error(self.fail("listxattr", ino, None, &error)),
            };
            let list: Vec<u8> = names
                .iter()
                .flat_map(|name| name.bytes().chain([0]))
                .collect();
            send_xattr(&list, size, reply);
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

/// Answers with the value, or with its size if that was asked for.
fn send_xattr(value: &[u8], room: u32, reply: ReplyXattr) {
    match u32::try_from(value.len()) {
        Ok(size) if room == 0 => reply.size(size),
        Ok(size) if size <= room => reply.data(value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(_) => reply.error(Errno::E2BIG),
    }
}
