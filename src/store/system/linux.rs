//! System calls on files that only Linux has, and attributes whose types differ on other systems (see
//! `portable.rs`, which replaces this module there).

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{
    FileType, MemfdFlags, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat as FileStat,
};
use rustix::io::{Errno, ReadWriteFlags};

use crate::store::dir::Links;

/// Opens a path without access to its content (`O_PATH`), which has no effect on devices.
pub(in crate::store) const PATH_ONLY: OFlags = OFlags::PATH;

/// Opens a path below `root`. A link that is not followed is [`Errno::LOOP`] or [`Errno::XDEV`]. May fail
/// with [`Errno::AGAIN`] during a concurrent rename.
pub(in crate::store) fn open_beneath(
    root: &OwnedFd,
    path: &OsStr,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let resolve = match links {
        Links::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::Followed => ResolveFlags::empty(),
    };
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Opens a name of a directory, unless it is a link or something is mounted on it, such as zarrfs itself.
pub(in crate::store) fn open_on_same_mount(
    parent: &OwnedFd,
    name: &OsStr,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve)
}

/// Reopens a file that was opened with [`PATH_ONLY`]: the same file, even if it was renamed.
pub(in crate::store) fn reopen(file: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty())
}

/// Reads bytes from the page cache. [`Errno::AGAIN`] if they are not cached; [`Errno::OPNOTSUPP`] and others
/// if the file system does not support this.
pub(in crate::store) fn read_cached(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let mut slices = [IoSliceMut::new(buffer)];
    rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT)
}

/// The callback for each name of a directory: the name, its type if the directory has it, and the position
/// after it.
pub(in crate::store) type Visit<'a> = dyn FnMut(&CStr, FileType, u64) -> ControlFlow<()> + 'a;

/// Buffer size for about 1,000 names of 10 bytes, the same as in glibc.
const NAMES_BYTES: usize = 32 * 1024;

/// The buffer for the names of a directory.
#[derive(Debug, Default)]
pub(in crate::store) struct NamesBuffer(Vec<MaybeUninit<u8>>);

/// Visits the names of a directory from a position on (0 is the beginning); returns whether `visit` broke.
pub(in crate::store) fn visit_names(
    directory: &OwnedFd,
    buffer: &mut NamesBuffer,
    position: u64,
    visit: &mut Visit<'_>,
) -> Result<bool, Errno> {
    rustix::fs::seek(directory, SeekFrom::Start(position))?;
    buffer.0.resize(NAMES_BYTES, MaybeUninit::uninit());
    let mut names = RawDir::new(directory, &mut buffer.0);
    while let Some(entry) = names.next() {
        let entry = entry?;
        let next = entry.next_entry_cookie();
        if visit(entry.file_name(), entry.file_type(), next).is_break() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Creates an empty file in memory.
pub(in crate::store) fn memory_file() -> io::Result<File> {
    let memory = rustix::fs::memfd_create("zarrfs", MemfdFlags::CLOEXEC)?;
    Ok(File::from(memory))
}

/// Locks one byte of a file for this process, or unlocks it (an open file description lock, see fcntl(2)).
/// `EAGAIN` or `EACCES` if another process holds the lock.
pub(in crate::store) fn set_lock(file: &OwnedFd, offset: i64, is_locked: bool) -> nix::Result<()> {
    let kind = match is_locked {
        true => libc::F_WRLCK,
        false => libc::F_UNLCK,
    };
    let lock = libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or(libc::c_short::MAX),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or(libc::c_short::MAX),
        l_start: offset,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
}

/// Whether another process has a lock on any part of a file (fcntl(2), `F_GETLK`).
pub(in crate::store) fn is_locked_elsewhere(file: &File) -> nix::Result<bool> {
    let kind = |kind: libc::c_int| libc::c_short::try_from(kind).unwrap_or(libc::c_short::MAX);
    let mut lock = libc::flock {
        l_type: kind(libc::F_WRLCK),
        l_whence: kind(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok(lock.l_type != kind(libc::F_UNLCK))
}

/// File systems on which a write through a memory map updates no time: tmpfs and ramfs.
const UNTIMED: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// An inotify(7) watch for opens, writes and closes of a file whose times do not reveal writes. A writer
/// opens a file before it locks it.
#[derive(Debug)]
pub(in crate::store) struct Watch(Option<OwnedFd>);

impl Watch {
    /// Watches a file on a file system of [`UNTIMED`]; `None` on any other file system.
    pub(in crate::store) fn of_untimed(file: &File) -> Result<Option<Self>, Errno> {
        let kind = u64::try_from(rustix::fs::fstatfs(file)?.f_type);
        let is_untimed = kind.is_ok_and(|kind| UNTIMED.contains(&kind));
        Ok(is_untimed.then(|| Self::new(file)))
    }

    fn new(file: &File) -> Self {
        let start = || {
            let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = WatchFlags::OPEN | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
            inotify::add_watch(&events, path, flags)?;
            Ok::<_, Errno>(events)
        };
        let events = start();
        if let Err(error) = &events {
            log::debug!("a database cannot be watched, and is indexed for each read: {error}");
        }
        Self(events.ok())
    }

    /// Whether the file was used since the last call; true if that is unknown.
    pub(in crate::store) fn was_used(&self) -> bool {
        let Some(events) = &self.0 else { return true };
        let mut buffer = [0; 4096];
        let mut was_used = false;
        loop {
            match rustix::io::read(events, &mut buffer[..]) {
                Ok(0) | Err(Errno::AGAIN) => return was_used,
                Ok(_) => was_used = true,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }
}

/// Returns the device of a file.
pub(in crate::store) fn device(stat: &FileStat) -> u64 {
    stat.st_dev
}

/// Returns when a file was last written: seconds since 1970, and nanoseconds.
pub(in crate::store) fn modified(stat: &FileStat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}
