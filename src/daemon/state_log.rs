//! The log file for machines without syslog: `zarrfs/zarrfs.log` in the state directory of the user
//! (XDG Base Directory Specification).
//!
//! All daemons of a user append to this file. Names are reached through the open directory, because
//! its path may lead through a mount of this daemon.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

/// The names of the file and of the previous file.
const NAME: &str = "zarrfs.log";
const PREVIOUS: &str = "zarrfs.log.1";
/// The size after which a new file is started, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The open log file.
#[derive(Debug)]
pub(super) struct StateLog {
    directory: OwnedFd,
    file: File,
}

impl StateLog {
    /// Opens the log file; `None` if the user has no state directory that can be written to.
    pub(super) fn open() -> Option<Self> {
        Self::open_in(state_directory()?.join("zarrfs")).ok()
    }

    fn open_in(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let file = open_at(&directory)?;
        Ok(Self { directory, file })
    }

    /// Starts a new file and renames the previous one, unless another daemon has done so.
    fn rotate(&mut self) -> io::Result<()> {
        rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive)?;
        let rotated = self.rotate_locked();
        rustix::fs::flock(&self.directory, FlockOperation::Unlock)?;
        rotated
    }

    fn rotate_locked(&mut self) -> io::Result<()> {
        let named = rustix::fs::statat(&self.directory, NAME, AtFlags::SYMLINK_NOFOLLOW)?;
        if named.st_ino == self.file.metadata()?.ino() {
            rustix::fs::renameat(&self.directory, NAME, &self.directory, PREVIOUS)?;
        }
        self.file = open_at(&self.directory)?;
        Ok(())
    }
}

fn open_at(directory: &OwnedFd) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(File::from(rustix::fs::openat(
        directory, NAME, flags, mode,
    )?))
}

impl Write for StateLog {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        if self.file.metadata()?.len() >= MAX_BYTES {
            // If the rotation fails, the current file grows until the next attempt.
            let _ = self.rotate();
        }
        self.file.write_all(record)?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn state_directory() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let given = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    given.or_else(|| {
        let home = variable("HOME").filter(|path| path.is_absolute())?;
        Some(home.join(".local/state"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_retains_one_previous_file_and_all_daemons_write_to_the_new_one() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state/zarrfs");
        let mut first = StateLog::open_in(path.clone()).unwrap();
        let mut second = StateLog::open_in(path.clone()).unwrap();
        let long = vec![b'x'; usize::try_from(MAX_BYTES).unwrap()];
        first.write_all(&long).unwrap();
        first.write_all(b"first\n").unwrap();
        second.write_all(b"second\n").unwrap();
        let read = |name: &str| std::fs::read(path.join(name)).unwrap();
        assert!(read(PREVIOUS) == long);
        assert_eq!(read(NAME), b"first\nsecond\n");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 2);
        let mode = |path: &PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(NAME))), (0o700, 0o600));
    }
}
