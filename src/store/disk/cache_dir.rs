//! The directory of the cache: checks of its owner and permissions, and the files in it.
//!
//! Every path is resolved from a directory that is held open, one component at a time, without
//! following links.

use std::ffi::{CStr, OsStr};
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat as FileStat, flock, fstat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::DiskCacheError;
use super::block::BlockPath;
use crate::store::system::{self, NamesBuffer};

/// The directory with the blocks of this format. Other versions of the format do not use it.
pub(super) const VERSION_NAME: &str = "zarrfs-v1";
const VERSION_PREFIX: &[u8] = b"zarrfs-v";
/// Part of the name of a version directory that is being removed.
const REMOVED: &str = ".removed-";

/// Prefix of the name of a file that is being written.
const TEMPORARY: &str = "tmp-";

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Non-blocking, because the path may be a FIFO, or a leased file.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// How often to open a directory that another version is removing.
const OPEN_ATTEMPTS: usize = 32;

/// The open directories of the cache.
#[derive(Debug)]
pub(super) struct CacheDir {
    root: OwnedFd,
    /// The directory of the version. Its lock tells other versions that it is in use.
    version: OwnedFd,
}

/// The result of opening the file of a block.
#[derive(Debug)]
pub(super) enum OpenedFile {
    /// A regular file.
    File(File, FileStat),
    /// No file, or one that cannot be inspected now.
    Nothing,
    /// Something that cannot be a block.
    Other,
}

impl CacheDir {
    /// Opens the directory, and creates its missing parts.
    pub(super) fn open(directory: &Path) -> Result<Self, DiskCacheError> {
        let failed = |e: io::Error| DiskCacheError::Io {
            path: directory.to_path_buf(),
            source: e,
        };
        let mut opened = openat(CWD, directory, DIRECTORY, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(failed)?;
            opened = openat(CWD, directory, DIRECTORY, Mode::empty());
        }
        let root = checked(opened, directory)?;
        let version_path = directory.join(VERSION_NAME);
        for _ in 0..OPEN_ATTEMPTS {
            let made = mkdirat(&root, VERSION_NAME, Mode::RWXU);
            let opened = openat(&root, VERSION_NAME, DIRECTORY, Mode::empty());
            if let (Err(e), Err(Errno::NOENT)) = (made, &opened) {
                return Err(failed(e.into()));
            }
            let version = checked(opened, &version_path)?;
            // Without locks on the file system, processes that remove versions cannot lock either.
            let locked = flock(&version, FlockOperation::NonBlockingLockShared);
            if locked != Err(Errno::WOULDBLOCK) && is_named(&root, VERSION_NAME, &version) {
                return Ok(Self { root, version });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(failed(io::Error::other(
            "another version of zarrfs keeps removing its content",
        )))
    }

    pub(super) fn file(&self, path: &BlockPath) -> OpenedFile {
        let opened = self
            .subdir(&path.subdir)
            .and_then(|subdir| openat(subdir, path.file.as_str(), READ, Mode::empty()));
        match opened {
            Ok(file) => match fstat(&file) {
                Ok(stat) if is_regular(&stat) => OpenedFile::File(File::from(file), stat),
                Ok(_) => OpenedFile::Other,
                Err(_) => OpenedFile::Nothing,
            },
            // The path is a link or a socket.
            Err(Errno::LOOP | Errno::NXIO) => OpenedFile::Other,
            Err(_) => OpenedFile::Nothing,
        }
    }

    /// Writes a file and renames it into place, so that later opens see it complete.
    pub(super) fn write(
        &self,
        path: &BlockPath,
        unique: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let subdir = match self.subdir(&path.subdir) {
            Err(Errno::NOENT) => {
                match mkdirat(&self.version, path.subdir.as_str(), Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                self.subdir(&path.subdir)
            }
            opened => opened,
        }?;
        let temporary = format!("{TEMPORARY}{unique}");
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&subdir, &temporary, CREATE, mode)?);
        let written = write(&mut file).and_then(|()| {
            renameat(&subdir, &temporary, &subdir, path.file.as_str()).map_err(io::Error::from)
        });
        if written.is_err() {
            // If the temporary file stays, it is removed when it is old.
            let _ = unlinkat(&subdir, &temporary, AtFlags::empty());
        }
        written
    }

    /// Returns another descriptor of the directory of the blocks.
    pub(super) fn directory(&self) -> io::Result<OwnedFd> {
        self.version.try_clone()
    }

    pub(super) fn remove(&self, path: &BlockPath) {
        if let Ok(subdir) = self.subdir(&path.subdir) {
            remove_any(&subdir, OsStr::new(&path.file));
        }
    }

    fn subdir(&self, name: &str) -> Result<OwnedFd, Errno> {
        openat(&self.version, name, DIRECTORY, Mode::empty())
    }

    /// Visits all files that can be inspected, until `visit` returns false.
    pub(super) fn visit(&self, visit: &mut Visit<'_>) {
        for number in 0..=u8::MAX {
            let Ok(subdir) = self.subdir(&format!("{number:02x}")) else {
                continue;
            };
            if matches!(visit_subdir(&subdir, visit), Ok(false)) {
                return;
            }
        }
    }

    /// Removes the directories of versions that no process uses.
    pub(super) fn remove_other_versions(&self, unique: &str, continues: &dyn Fn() -> bool) {
        let Ok(listed) = openat(&self.root, ".", DIRECTORY, Mode::empty()) else {
            return;
        };
        // Directories that cannot be removed now can be removed another time.
        let _ = each_name(&listed, &mut |name| {
            if is_version(name.to_bytes()) && name.to_bytes() != VERSION_NAME.as_bytes() {
                self.remove_version(OsStr::from_bytes(name.to_bytes()), unique, continues);
            }
            continues()
        });
    }

    fn remove_version(&self, name: &OsStr, unique: &str, continues: &dyn Fn() -> bool) {
        let Ok(other) = openat(&self.root, name, DIRECTORY, Mode::empty()) else {
            return;
        };
        if flock(&other, FlockOperation::NonBlockingLockExclusive).is_err()
            || !is_named(&self.root, name, &other)
        {
            return;
        }
        let mut removed = name.to_os_string();
        // Renamed first, so that a process of that version can start anew without waiting for the removal.
        if !name.to_string_lossy().contains(REMOVED) {
            removed.push(format!("{REMOVED}{unique}"));
            if renameat(&self.root, name, &self.root, &removed).is_err() {
                return;
            }
        }
        if let Ok(device) = fstat(&other).map(|stat| system::device(&stat)) {
            remove_content(&other, device, TREE_DEPTH, continues);
            let _ = unlinkat(&self.root, &removed, AtFlags::REMOVEDIR);
        }
    }
}

/// The callback for each file: its directory, its name, its kind and its stat; returns false to stop.
pub(super) type Visit<'a> = dyn FnMut(BorrowedFd<'_>, &CStr, CacheFileKind, &FileStat) -> bool + 'a;

/// The kind of a file in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheFileKind {
    /// A block.
    Block,
    /// A block that is being written, or that was when its writer died.
    Temporary,
}

impl CacheFileKind {
    fn of(name: &[u8]) -> Option<Self> {
        if name.starts_with(TEMPORARY.as_bytes()) {
            Some(Self::Temporary)
        } else if name.len() == 32 && name.iter().all(u8::is_ascii_hexdigit) {
            Some(Self::Block)
        } else {
            None
        }
    }
}

fn visit_subdir(subdir: &OwnedFd, visit: &mut Visit<'_>) -> Result<bool, Errno> {
    each_name(subdir, &mut |name| {
        let Some(kind) = CacheFileKind::of(name.to_bytes()) else {
            return true;
        };
        match statat(subdir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_regular(&stat) => visit(subdir.as_fd(), name, kind, &stat),
            Ok(_) => {
                remove_any(subdir, OsStr::from_bytes(name.to_bytes()));
                true
            }
            Err(_) => true,
        }
    })
}

/// Visits the names in a directory that has not been read yet; false if `visit` stopped.
fn each_name(directory: &OwnedFd, visit: &mut dyn FnMut(&CStr) -> bool) -> Result<bool, Errno> {
    let mut buffer = NamesBuffer::default();
    let stopped = system::visit_names(directory, &mut buffer, 0, &mut |name, _, _| {
        let goes_on = matches!(name.to_bytes(), b"." | b"..") || visit(name);
        match goes_on {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(!stopped)
}

/// Whether a name is `zarrfs-v` and a number, or the same while being removed; nothing else may be removed.
fn is_version(name: &[u8]) -> bool {
    name.strip_prefix(VERSION_PREFIX).is_some_and(|rest| {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let tail = rest.get(digits..).unwrap_or_default();
        digits > 0 && (tail.is_empty() || tail.starts_with(REMOVED.as_bytes()))
    })
}

/// Depth of the directories of any version, including future ones.
const TREE_DEPTH: usize = 4;

/// Removes the content of a directory, within its own file system only.
fn remove_content(directory: &OwnedFd, device: u64, depth: usize, continues: &dyn Fn() -> bool) {
    // Files that cannot be removed now stay for another time.
    let _ = each_name(directory, &mut |name| {
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if depth > 0 => {
                if let Ok(below) = openat(directory, name, DIRECTORY, Mode::empty())
                    && fstat(&below).is_ok_and(|stat| system::device(&stat) == device)
                {
                    remove_content(&below, device, depth - 1, continues);
                    let _ = unlinkat(directory, name, AtFlags::REMOVEDIR);
                }
            }
            _ => {}
        }
        continues()
    });
}

/// Removes a file, or a directory if it is empty.
fn remove_any(directory: &OwnedFd, name: &OsStr) {
    if let Err(Errno::ISDIR | Errno::PERM) = unlinkat(directory, name, AtFlags::empty()) {
        let _ = unlinkat(directory, name, AtFlags::REMOVEDIR);
    }
}

fn is_regular(stat: &FileStat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn is_named<P: rustix::path::Arg>(root: &OwnedFd, name: P, directory: &OwnedFd) -> bool {
    let there = statat(root, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!(
        (there, fstat(directory)),
        (Ok(there), Ok(here)) if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    )
}

/// Checks that a directory belongs to this user and that no other user can write to it.
fn checked(opened: Result<OwnedFd, Errno>, path: &Path) -> Result<OwnedFd, DiskCacheError> {
    let path = path.to_path_buf();
    let directory = match opened {
        Ok(directory) => directory,
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(DiskCacheError::NotADirectory { path }),
        Err(e) => {
            let source = e.into();
            return Err(DiskCacheError::Io { path, source });
        }
    };
    let stat = match fstat(&directory) {
        Ok(stat) => stat,
        Err(e) => {
            let source = e.into();
            return Err(DiskCacheError::Io { path, source });
        }
    };
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        return Err(DiskCacheError::Foreign {
            path,
            owner: stat.st_uid,
            user,
        });
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        let mode = mode.as_raw_mode();
        return Err(DiskCacheError::Writable { path, mode });
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_versions_are_versions() {
        for name in ["zarrfs-v0", "zarrfs-v12", "zarrfs-v2.removed-00ff"] {
            assert!(is_version(name.as_bytes()), "{name}");
        }
        for name in ["zarrfs-v", "zarrfs-view", "zarrfs-v2.bak", "zarrfs", "v1"] {
            assert!(!is_version(name.as_bytes()), "{name}");
        }
        let version = super::super::block::FORMAT_VERSION;
        assert_eq!(VERSION_NAME, format!("zarrfs-v{version}"));
    }
}
