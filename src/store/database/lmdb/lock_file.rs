//! The lock file beside the data, which each process locks that has the database open.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::store::system::is_locked_elsewhere;

/// The possible lock files of a database: that of a database in a directory, and that of a single file.
#[derive(Debug)]
pub(super) struct LockFiles([PathBuf; 2]);

impl LockFiles {
    pub(super) fn of(data: &Path) -> Self {
        let mut name = data.file_name().unwrap_or_default().to_owned();
        name.push("-lock");
        Self(["lock.mdb".as_ref(), name.as_os_str()].map(|name| data.with_file_name(name)))
    }

    /// Whether another process has the database open, so that a writer may be active. False if that is not
    /// known.
    pub(super) fn are_in_use(&self) -> bool {
        let mut files = self.0.iter().filter_map(|path| File::open(path).ok());
        files.any(|file| is_locked_elsewhere(&file).unwrap_or(false))
    }
}
