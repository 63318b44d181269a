//! The files of an SQLite database: the database, its write-ahead log and its rollback journal.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::store::snapshot::{SETTLING, time};

/// Local file systems that update the times of a file before its bytes: btrfs, ext2 to ext4, f2fs,
/// overlayfs, tmpfs, XFS and ZFS. Others may cache times of files that another machine writes.
const LOCAL: [u64; 7] = [
    0x9123_683E,
    0xEF53,
    0xF2F5_2010,
    0x794C_7630,
    0x0102_1994,
    0x5846_5342,
    0x2FC1_2FC1,
];

/// Identity, sizes and times of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Files {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    wal_bytes: u64,
    journal_bytes: u64,
}

impl Files {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            wal_bytes: size_of(&beside(path, "-wal"))?,
            journal_bytes: size_of(&beside(path, "-journal"))?,
            ..Self::of_database(path)?
        })
    }

    /// As [`Files::of`], of the database file alone.
    pub(super) fn of_database(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            size_bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
            wal_bytes: 0,
            journal_bytes: 0,
        })
    }

    /// Whether the last write is old enough that any later write changes the times.
    pub(super) fn is_settled(&self) -> bool {
        // A time in the future does not tell when it was set.
        let is_old = |then| age(then).is_none_or(|age| age > SETTLING);
        is_old(self.modified) && is_old(self.changed)
    }

    /// Whether each later write to the database changes its times.
    pub(super) fn has_exact_times(&self, path: &Path) -> bool {
        let is_old = |then| age(then).is_some_and(|age| age > SETTLING);
        let is_local = || {
            let system = rustix::fs::statfs(path);
            system.is_ok_and(|system| {
                u64::try_from(system.f_type).is_ok_and(|kind| LOCAL.contains(&kind))
            })
        };
        is_old(self.modified) && is_old(self.changed) && is_local()
    }

    /// Whether the path still refers to the same file.
    pub(super) fn is_file_at(&self, path: &Path) -> io::Result<bool> {
        let file = fs::metadata(path)?;
        Ok((self.device, self.inode) == (file.dev(), file.ino()))
    }

    /// Whether both database files are the same file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether the write-ahead log has content that is not in the database.
    pub(super) fn has_wal(&self) -> bool {
        self.wal_bytes > 0
    }

    /// Whether an interrupted transaction may have to be rolled back.
    pub(super) fn has_journal(&self) -> bool {
        self.journal_bytes > 0
    }
}

/// How long ago a time was; `None` if it is in the future.
fn age((seconds, nanoseconds): (i64, i64)) -> Option<Duration> {
    let then = time((seconds, u64::try_from(nanoseconds).unwrap_or(0)));
    SystemTime::now().duration_since(then).ok()
}

/// The size of a file in bytes; 0 if it does not exist.
fn size_of(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Ok(file) => Ok(file.len()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(e),
    }
}

/// The path of the database with a suffix added.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// When the database or its write-ahead log was last written.
pub(super) fn modified(path: &Path) -> SystemTime {
    let time = |file: Metadata| file.modified().ok();
    let files = [path.to_owned(), beside(path, "-wal")];
    let times = files
        .iter()
        .filter_map(|path| fs::metadata(path).ok().and_then(time));
    times.max().unwrap_or(UNIX_EPOCH)
}
