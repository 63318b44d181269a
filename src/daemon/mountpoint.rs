//! The directory that is mounted on: checked, locked, held open.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::kernel::Target;
use super::{Failure, answer, arguments, kernel};

/// A directory that this process alone mounts on.
#[derive(Debug)]
pub(super) struct Mountpoint {
    path: PathBuf,
    directory: File,
    recovered: bool,
    is_source: bool,
}

/// Why a mountpoint cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It is missing, no directory or not empty.
    Unfit(Failure),
    /// Something is mounted there, or the system failed.
    Other(Failure),
}

impl From<String> for Unusable {
    fn from(failure: String) -> Self {
        Self::Other(failure.into())
    }
}

impl From<io::Error> for Unusable {
    fn from(failure: io::Error) -> Self {
        Self::Other(failure.into())
    }
}

impl Mountpoint {
    /// Checks a mountpoint and locks it; a dead mount of ours that is in the way is taken away.
    pub(super) fn claim(given: &Path, nonempty: bool) -> Result<Self, Unusable> {
        let shown = given.display();
        let failed = |e: io::Error| format!("mountpoint {shown}: {e}");
        // A mountpoint that is a source is hidden by no mount.
        let unfit = |what: String| {
            Unusable::Unfit(match arguments::is_source(given) {
                true => format!(
                    "mountpoint {shown}: it is a Zarr source itself; SOURCE comes first and \
                     MOUNTPOINT second, so the two may be swapped"
                )
                .into(),
                false => what.into(),
            })
        };
        let path = resolve(given).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => unfit(format!(
                "mountpoint {shown}: {e}; it has to be a directory that is there"
            )),
            _ => failed(e).into(),
        })?;
        let taken = |entry: &MountEntry| {
            format!(
                "mountpoint {shown}: {} is already mounted there (to end that: zarrfs umount \
                 {shown})",
                entry.source
            )
        };
        let mut recovered = false;
        match entry(&path)? {
            Some(entry) if entry.kind == kernel::FS_TYPE => {
                if !answer::is_dead(&path) {
                    return Err(taken(&entry).into());
                }
                kernel::unmount(&path, true).map_err(failed)?;
                recovered = true;
            }
            Some(entry) if entry.kind == AUTOMOUNT => {
                // Whoever opens or lists this directory waits for the mount that is made here.
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let directory = rustix::fs::open(&path, flags, Mode::empty());
                return Ok(Self {
                    directory: directory.map_err(|e| failed(e.into()))?.into(),
                    path,
                    recovered,
                    // Looking into it would wait for this mount.
                    is_source: false,
                });
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOTDIR => unfit(failed(e.into())),
            _ => failed(e.into()).into(),
        })?;
        // Some file systems have no locks; then the mount table alone decides.
        let lock = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive);
        if lock == Err(Errno::AGAIN) {
            return Err(format!("mountpoint {shown}: another zarrfs is mounting there").into());
        }
        // Who had the lock before may have mounted since.
        if let Some(entry) = entry(&path)?
            && entry.kind == kernel::FS_TYPE
        {
            return Err(taken(&entry).into());
        }
        let directory = File::from(directory);
        if !nonempty && std::fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(unfit(format!(
                "mountpoint {shown}: the directory is not empty (--nonempty hides what is \
                     in it while the mount lasts)"
            )));
        }
        Ok(Self {
            is_source: nonempty && arguments::is_source(&path),
            path,
            directory,
            recovered,
        })
    }

    /// Lets go of the directory once it is mounted on, and keeps its path. A directory of an
    /// automount that is open would keep it from unmounting what nobody uses.
    pub(super) fn release(self) -> PathBuf {
        self.path
    }

    /// The path, without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is a Zarr hierarchy.
    pub(super) fn is_source(&self) -> bool {
        self.is_source
    }

    /// Whether a dead mount of ours was there.
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// What is to be mounted on.
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            directory: self.directory.as_fd(),
            path: &self.path,
        }
    }

    /// Refuses a path that is above or below the mountpoint, by whatever name.
    pub(super) fn check_apart(&self, path: &Path, what: &str) -> Result<(), Failure> {
        self.check_outside(path, what)?;
        if is_at_or_above(path, &self.path) {
            return Err(format!("mountpoint {}: lies inside {what}", self.path.display()).into());
        }
        Ok(())
    }

    /// Refuses a path below the mountpoint, or that will be there.
    pub(super) fn check_outside(&self, path: &Path, what: &str) -> Result<(), Failure> {
        if is_within(path, &self.path) {
            return Err(
                format!("mountpoint {}: {what} lies inside it", self.path.display()).into(),
            );
        }
        Ok(())
    }
}

/// Whether `upper` is `lower` or a directory above it, compared as the file system sees them.
fn is_at_or_above(upper: &Path, lower: &Path) -> bool {
    // Not `std::fs::metadata`: its statx(2) would have an automount mount, and wait for it.
    let identity = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(upper) = identity(upper) else {
        return false;
    };
    lower
        .ancestors()
        .any(|directory| identity(directory) == Ok(upper))
}

/// Whether a path, which need not be there yet, is or will be inside a directory.
pub(super) fn is_within(path: &Path, directory: &Path) -> bool {
    let there = path.ancestors().find_map(|upper| match upper {
        upper if upper.as_os_str().is_empty() => std::fs::canonicalize(".").ok(),
        upper => std::fs::canonicalize(upper).ok(),
    });
    there.is_some_and(|there| is_at_or_above(directory, &there))
}

/// What the mount table calls a place where something is mounted as soon as somebody looks.
const AUTOMOUNT: &str = "autofs";

/// The path without links; the last component may be a dead mount, which can not be looked at.
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
    /// The mount's own number.
    id: String,
    device: String,
    pub(super) kind: String,
    pub(super) source: String,
}

/// What is mounted on a path, on top.
pub(super) fn entry(path: &Path) -> io::Result<Option<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let wanted = escape(path.as_os_str().as_bytes());
    let lines = table.split(|b| *b == b'\n');
    let mut found = None;
    for line in lines {
        let mut fields = line.split(|b| *b == b' ');
        let (id, device) = (fields.next(), fields.nth(1));
        if fields.nth(1) != Some(&wanted) {
            continue;
        }
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let text =
            |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (id, device) = (text(id), text(device));
        found = Some(MountEntry {
            id,
            device,
            kind: text(rest.next()),
            source: text(rest.next()),
        });
    }
    Ok(found)
}

/// Where a mount is now: a directory above it may have been renamed.
pub(super) fn place_of(mount: &MountEntry) -> io::Result<Option<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|b| *b == b'\n');
    for line in lines {
        let mut fields = line.split(|b| *b == b' ');
        let (id, device) = (fields.next(), fields.nth(1));
        if id == Some(mount.id.as_bytes()) && device == Some(mount.device.as_bytes()) {
            let path = fields.nth(1).map(unescape);
            return Ok(path.map(|path| PathBuf::from(OsString::from_vec(path))));
        }
    }
    Ok(None)
}

fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

/// As the kernel writes paths in the mount table.
fn escape(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped
}
