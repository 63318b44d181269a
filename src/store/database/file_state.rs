//! The state of one file of a database: which file it is, its size and its times.
//!
//! A program that overwrites a database in place takes no lock, and the new content can have the change counter
//! or the transaction number of the old one. Each write changes the times of the file, so the state of the file
//! is a part of the version of every value.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::store::snapshot::{SETTLING, time};

/// Identifies one state of a file. The change time is included: `cp -p` and `rsync -t` set the modification
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileState {
    device: u64,
    inode: u64,
    pub(super) size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// Returns the state of the file at a path.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&fs::metadata(path)?))
    }

    pub(super) fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size_bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// When the file was last written.
    pub(super) fn modified(&self) -> SystemTime {
        time_of(self.modified)
    }

    /// How long ago the file was changed; `None` if its change time is in the future.
    pub(super) fn age(&self) -> Option<Duration> {
        SystemTime::now().duration_since(time_of(self.changed)).ok()
    }

    /// How long it takes until any later write gives the file another time; zero if each one already does.
    pub(super) fn settles_in(&self) -> Duration {
        // A time in the future does not tell when it was set.
        self.age()
            .map_or(Duration::ZERO, |age| SETTLING.saturating_sub(age))
    }

    /// Whether any later write gives the file another time.
    pub(super) fn is_settled(&self) -> bool {
        self.settles_in().is_zero()
    }
}

fn time_of((seconds, nanoseconds): (i64, i64)) -> SystemTime {
    time((seconds, u64::try_from(nanoseconds).unwrap_or(0)))
}
