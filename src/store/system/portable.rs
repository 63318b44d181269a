//! Replaces `linux.rs` on other systems, where zarrfs reads sources but cannot mount them. It is equally
//! safe, with three limits: reads of files may block, listings and lookups take more system calls, and
//! processes that share a disk cache do not coordinate their fetches.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use cap_primitives::fs::{OpenOptions, OpenOptionsExt, open};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat as FileStat};
use rustix::io::Errno;

use crate::store::dir::Links;

/// As on Linux, but opens for reading, because weaker access does not exist on all systems.
pub(in crate::store) const PATH_ONLY: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Opens a path below `root` for reading. With [`Links::Refused`] it always fails, because it is unknown
/// whether the path has links.
pub(in crate::store) fn open_beneath(
    root: &OwnedFd,
    path: &OsStr,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    match links {
        Links::Refused => return Err(Errno::LOOP),
        Links::Beneath => {}
        Links::Followed => return rustix::fs::openat(root, path, flags, Mode::empty()),
    }
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let root = File::from(root.try_clone().map_err(failed)?);
    let mut options = OpenOptions::new();
    let flags = i32::try_from(flags.bits()).map_err(|_| Errno::INVAL)?;
    options.read(true).custom_flags(flags);
    // Leaving the root is a permission error without a number here; on Linux it is EXDEV.
    match open(&root, Path::new(path), &options) {
        Err(error) if error.raw_os_error().is_none() => Err(Errno::XDEV),
        opened => opened.map(OwnedFd::from).map_err(failed),
    }
}

/// Opens a name of a directory, unless it is a link.
pub(in crate::store) fn open_on_same_mount(
    parent: &OwnedFd,
    name: &OsStr,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// Duplicates the open file.
pub(in crate::store) fn reopen(file: &OwnedFd, _: OFlags) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(file, 0)
}

/// Always fails, because whether a read would block is unknown.
pub(in crate::store) fn read_cached(_: &File, _: &mut [u8], _: u64) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// The callback for each name of a directory: the name, its type if the directory has it, and the position
/// after it.
pub(in crate::store) type Visit<'a> = dyn FnMut(&CStr, FileType, u64) -> ControlFlow<()> + 'a;

/// Empty, because names need no buffer here.
#[derive(Debug, Default)]
pub(in crate::store) struct NamesBuffer;

/// Visits the names of a directory from a position on (0 is the beginning); returns whether `visit` broke.
/// Positions are numbers of names.
pub(in crate::store) fn visit_names(
    directory: &OwnedFd,
    _: &mut NamesBuffer,
    position: u64,
    visit: &mut Visit<'_>,
) -> Result<bool, Errno> {
    let skipped = usize::try_from(position).map_err(|_| Errno::INVAL)?;
    for (entry, next) in Dir::read_from(directory)?.zip(1_u64..).skip(skipped) {
        let entry = entry?;
        if visit(entry.file_name(), entry.file_type(), next).is_break() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Creates an empty file without a name.
pub(in crate::store) fn memory_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// Always fails: these systems have no byte-range locks that are released with the open file.
pub(in crate::store) fn set_lock(_: &OwnedFd, _: i64, _: bool) -> nix::Result<()> {
    Err(nix::errno::Errno::ENOTSUP)
}

/// Locks of other processes are not seen.
pub(in crate::store) fn is_locked_elsewhere(_: &File) -> nix::Result<bool> {
    Err(nix::errno::Errno::ENOTSUP)
}

/// Has no values: all file systems are assumed to update times on writes.
#[derive(Debug)]
pub(in crate::store) enum Watch {}

impl Watch {
    pub(in crate::store) fn of_untimed(_: &File) -> Result<Option<Self>, Errno> {
        Ok(None)
    }

    pub(in crate::store) fn was_used(&self) -> bool {
        match *self {}
    }
}

/// Returns the device of a file.
pub(in crate::store) fn device(stat: &FileStat) -> u64 {
    // The sign is irrelevant, because the number is only compared.
    u64::from(stat.st_dev.cast_unsigned())
}

/// Returns when a file was last written: seconds since 1970, and nanoseconds.
pub(in crate::store) fn modified(stat: &FileStat) -> (i64, u64) {
    let nanoseconds = u64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    (stat.st_mtime, nanoseconds)
}
