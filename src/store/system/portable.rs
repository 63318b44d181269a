//! What stands in for `linux.rs` on other systems, on which zarrfs reads sources but mounts nothing. Nothing
//! is less safe here; reads of files wait, listings and lookups take more system calls, and processes that
//! share a disk cache do not know what the others fetch.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use cap_primitives::fs::{OpenOptions, OpenOptionsExt, open};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat as FileStat};
use rustix::io::Errno;

/// As on Linux, but for reading: there is nothing less on all systems.
pub(in crate::store) const PATH_ONLY: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Opens a path for reading that does not lead out of `root`, unless `may_leave`.
pub(in crate::store) fn open_beneath(
    root: &OwnedFd,
    path: &OsStr,
    flags: OFlags,
    may_leave: bool,
) -> Result<OwnedFd, Errno> {
    if may_leave {
        return rustix::fs::openat(root, path, flags, Mode::empty());
    }
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let root = File::from(root.try_clone().map_err(failed)?);
    let mut options = OpenOptions::new();
    let flags = i32::try_from(flags.bits()).map_err(|_| Errno::INVAL)?;
    options.read(true).custom_flags(flags);
    // What leads out is a permission error without a number; on Linux it is EXDEV.
    match open(&root, Path::new(path), &options) {
        Err(error) if error.raw_os_error().is_none() => Err(Errno::XDEV),
        opened => opened.map(OwnedFd::from).map_err(failed),
    }
}

/// The same open file again.
pub(in crate::store) fn reopen(file: &OwnedFd, _: OFlags) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(file, 0)
}

/// Whether a read waits is never known.
pub(in crate::store) fn read_cached(_: &File, _: &mut [u8], _: u64) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// What is called for each name of a directory: the name, its type if the directory tells, and the position
/// behind it.
pub(in crate::store) type Visit<'a> = dyn FnMut(&CStr, FileType, u64) -> ControlFlow<()> + 'a;

/// Names need no memory of the caller.
#[derive(Debug, Default)]
pub(in crate::store) struct NamesBuffer;

/// Visits the names of a directory from a position on (0 is the beginning); returns whether `visit` broke.
/// Positions are counts.
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

/// An empty file that has no name.
pub(in crate::store) fn memory_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// There are no locks of a part of a file that the system releases with the file.
pub(in crate::store) fn set_lock(_: &OwnedFd, _: i64, _: bool) -> nix::Result<()> {
    Err(nix::errno::Errno::ENOTSUP)
}

/// All file systems are taken to keep the times of writes.
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

/// The device that a file is on.
pub(in crate::store) fn device(stat: &FileStat) -> u64 {
    // As many bits as there are: it is only compared.
    u64::from(stat.st_dev.cast_unsigned())
}

/// When a file was last written: seconds since 1970, and nanoseconds.
pub(in crate::store) fn modified(stat: &FileStat) -> (i64, u64) {
    let nanoseconds = u64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    (stat.st_mtime, nanoseconds)
}
