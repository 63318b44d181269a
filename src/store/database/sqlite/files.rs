//! The files of an SQLite database: the database, its write-ahead log and its rollback journal.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::database::file_state::FileState;
use crate::store::snapshot::SETTLING;

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

/// The states of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Files {
    database: FileState,
    wal_bytes: u64,
    journal_bytes: u64,
}

impl Files {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            wal_bytes: size_of(&beside(path, "-wal"))?,
            journal_bytes: size_of(&beside(path, "-journal"))?,
            database: FileState::at(path)?,
        })
    }

    /// The files of a database that has neither a write-ahead log nor a journal.
    pub(super) fn alone(database: FileState) -> Self {
        Self {
            database,
            wal_bytes: 0,
            journal_bytes: 0,
        }
    }

    /// The state of the database file.
    pub(super) fn database(&self) -> &FileState {
        &self.database
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

/// Whether each later write to a database changes the times of its file, on a file system that does not cache
/// them.
pub(super) fn has_exact_times(path: &Path, database: &FileState) -> bool {
    let is_local = || {
        let system = rustix::fs::statfs(path);
        system.is_ok_and(|system| {
            u64::try_from(system.f_type).is_ok_and(|kind| LOCAL.contains(&kind))
        })
    };
    database.age().is_some_and(|age| age > SETTLING) && is_local()
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
