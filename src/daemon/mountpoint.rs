//! The mountpoint, which is checked, locked and held open.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::kernel::MountDirectory;
use super::{Failure, kernel, probe, server};
use crate::machine::mountinfo::parse_table;
use crate::store::ErrorKind;

/// A directory that is locked for a mount of this process.
#[derive(Debug)]
pub(super) struct Mountpoint {
    path: PathBuf,
    directory: File,
    recovered: bool,
    is_source: bool,
}

/// An error of a mountpoint.
#[derive(Debug)]
pub(super) enum MountpointError {
    /// The directory is missing, not a directory, or not empty.
    Unsuitable(Failure),
    /// The directory is a mountpoint already, or a system call failed.
    Other(Failure),
}

impl From<String> for MountpointError {
    fn from(failure: String) -> Self {
        Self::Other(failure.into())
    }
}

impl From<io::Error> for MountpointError {
    fn from(failure: io::Error) -> Self {
        Self::Other(failure.into())
    }
}

/// The messages about a mountpoint, which have the path that the user typed.
struct Messages<'a>(&'a Path);

impl Messages<'_> {
    fn failed(&self, error: io::Error) -> String {
        format!("mountpoint {}: {error}", self.0.display())
    }

    /// A source as mountpoint is an error of its own, even with `--nonempty`.
    fn unsuitable(&self, reason: String) -> MountpointError {
        MountpointError::Unsuitable(match server::is_source(self.0) {
            true => format!(
                "mountpoint {}: it is a Zarr source itself; SOURCE comes first and \
                 MOUNTPOINT second, so the two may be swapped",
                self.0.display()
            )
            .into(),
            false => reason.into(),
        })
    }

    fn mounted(&self, entry: &MountEntry) -> String {
        let shown = self.0.display();
        format!(
            "mountpoint {shown}: {} is already mounted there (to end that: zarrfs umount {shown})",
            entry.source
        )
    }

    /// Opens the directory, whose path without symbolic links is `path`.
    fn open(&self, path: &Path, flags: OFlags) -> Result<File, MountpointError> {
        let directory = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let directory = directory.map_err(|e| match e {
            Errno::NOTDIR => self.unsuitable(format!(
                "{}; a mountpoint is an empty directory (--mkdir creates one)",
                self.failed(e.into())
            )),
            _ => self.failed(e.into()).into(),
        })?;
        Ok(directory.into())
    }
}

impl Mountpoint {
    /// Checks and locks a mountpoint, and removes a dead mount of zarrfs there.
    pub(super) fn claim(requested: &Path, nonempty: bool) -> Result<Self, MountpointError> {
        let messages = Messages(requested);
        let shown = requested.display();
        let path = resolve(requested).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => messages.unsuitable(format!(
                "mountpoint {shown}: {e}; it must be an existing directory (--mkdir creates it)"
            )),
            _ => messages.failed(e).into(),
        })?;
        let mut recovered = false;
        match entry(&path)? {
            Some(entry) if entry.kind == kernel::FS_TYPE => {
                if !probe::is_dead(&path) {
                    return Err(messages.mounted(&entry).into());
                }
                kernel::unmount(&path, true).map_err(|e| messages.failed(e))?;
                recovered = true;
            }
            Some(entry) if entry.kind == AUTOMOUNT => {
                // Opening or listing this directory would wait for this mount.
                let directory = messages.open(&path, OFlags::PATH)?;
                return Ok(Self {
                    path,
                    directory,
                    recovered,
                    is_source: false,
                });
            }
            _ => {}
        }
        let directory = messages.open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        // If the file system has no locks, only the mount table is checked.
        let lock = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive);
        if lock == Err(Errno::AGAIN) {
            return Err(format!("mountpoint {shown}: another zarrfs is mounting there").into());
        }
        // The previous holder of the lock may have mounted.
        if let Some(entry) = entry(&path)?
            && entry.kind == kernel::FS_TYPE
        {
            return Err(messages.mounted(&entry).into());
        }
        let is_empty = || -> io::Result<bool> { Ok(std::fs::read_dir(&path)?.next().is_none()) };
        if !nonempty && !is_empty().map_err(|e| messages.failed(e))? {
            return Err(messages.unsuitable(format!(
                "mountpoint {shown}: the directory is not empty (--nonempty hides what is \
                     in it while the mount lasts)"
            )));
        }
        Ok(Self {
            is_source: nonempty && server::is_source(&path),
            path,
            directory,
            recovered,
        })
    }

    /// Closes the directory after the mount and returns its path. An open directory of an automount
    /// would prevent the unmount of an unused mount.
    pub(super) fn release(self) -> PathBuf {
        self.path
    }

    /// Returns the path without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the directory is a Zarr hierarchy.
    pub(super) fn is_source(&self) -> bool {
        self.is_source
    }

    /// Returns whether a dead mount of zarrfs was removed.
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Returns the target of mount(2).
    pub(super) fn target(&self) -> MountDirectory<'_> {
        MountDirectory {
            directory: self.directory.as_fd(),
            path: &self.path,
        }
    }

    /// Rejects a path above or below the mountpoint, even through links and bind mounts.
    pub(super) fn check_apart(&self, path: &Path, what: &str) -> Result<(), Failure> {
        self.check_outside(path, what)?;
        if is_at_or_above(path, &self.path) {
            let shown = self.path.display();
            return Err(ErrorKind::Mountpoint.failure(format!(
                "mountpoint {shown}: lies inside {what}; choose a directory outside of it"
            )));
        }
        Ok(())
    }

    /// Rejects a path, existing or not, below the mountpoint.
    pub(super) fn check_outside(&self, path: &Path, what: &str) -> Result<(), Failure> {
        if is_within(path, &self.path) {
            let shown = self.path.display();
            return Err(ErrorKind::Mountpoint.failure(format!(
                "mountpoint {shown}: {what} lies inside it; choose a directory beside it"
            )));
        }
        Ok(())
    }
}

/// Returns whether `upper` is `lower` or a directory above it, by device and inode.
fn is_at_or_above(upper: &Path, lower: &Path) -> bool {
    // Not `std::fs::metadata`: its statx(2) would trigger an automount and wait for it.
    let identity = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(upper) = identity(upper) else {
        return false;
    };
    lower
        .ancestors()
        .any(|directory| identity(directory) == Ok(upper))
}

/// Returns whether a path, existing or not, is inside a directory.
pub(super) fn is_within(path: &Path, directory: &Path) -> bool {
    let there = path.ancestors().find_map(|upper| match upper {
        upper if upper.as_os_str().is_empty() => std::fs::canonicalize(".").ok(),
        upper => std::fs::canonicalize(upper).ok(),
    });
    there.is_some_and(|there| is_at_or_above(directory, &there))
}

/// The type of an automount in the mount table.
const AUTOMOUNT: &str = "autofs";

/// Returns the path without symbolic links; the last component may be a dead mount.
pub(super) fn resolve(given: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(given) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NOTCONN) => {
            let absolute = std::path::absolute(given)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join(name)),
                _ => Err(e),
            }
        }
        resolved => resolved,
    }
}

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// The mount ID.
    id: String,
    device: String,
    pub(super) kind: String,
    pub(super) source: String,
    /// The user ID of a FUSE mount.
    pub(super) user_id: Option<u32>,
}

impl MountEntry {
    /// Returns the number of requests of a FUSE mount that have no reply; `None` if the kernel does not say it to this
    /// user (Linux, `fuse.rst`, "Control filesystem").
    pub(super) fn waiting_requests(&self) -> Option<u64> {
        // The connection has the minor number of the device, which has no other major number than 0.
        let minor = self.device.strip_prefix("0:")?;
        let path = format!("/sys/fs/fuse/connections/{minor}/waiting");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

/// Returns the topmost mount on a path.
pub(super) fn entry(path: &Path) -> io::Result<Option<MountEntry>> {
    let mounts = mount_table()?.into_iter().rev();
    let found = mounts.into_iter().find(|(there, _)| there == path);
    Ok(found.map(|(_, entry)| entry))
}

/// Returns the current mountpoint of a mount: a directory above it may have been renamed. The kernel gives the ID and
/// the device of a mount that has ended to the next one, so the type and the source have to be equal too.
pub(super) fn current_path(mount: &MountEntry) -> io::Result<Option<PathBuf>> {
    let mut mounts = mount_table()?.into_iter();
    let found = mounts.find(|(_, entry)| entry == mount);
    Ok(found.map(|(path, _)| path))
}

/// Returns the mounts of a type in the order of the mount table.
pub(super) fn all(kind: &str) -> io::Result<Vec<(PathBuf, MountEntry)>> {
    let mut mounts = mount_table()?;
    mounts.retain(|(_, entry)| entry.kind == kind);
    Ok(mounts)
}

/// Reads the mount table.
fn mount_table() -> io::Result<Vec<(PathBuf, MountEntry)>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let mounts = parse_table(&table).map(|mount| {
        let user_id = mount
            .options()
            .find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        let entry = MountEntry {
            id: mount.id,
            device: mount.device,
            kind: mount.kind,
            source: mount.source,
            user_id,
        };
        (mount.mountpoint, entry)
    });
    Ok(mounts.collect())
}
