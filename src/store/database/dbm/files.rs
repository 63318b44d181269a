//! The files of a database, their locks, and what proves that they have not changed.
//!
//! - Writers of GNU dbm hold an exclusive flock(2) while they have a file open. They write through a memory
//!   map, which updates the times of a file late or, on tmpfs, never. Reads hold a shared lock, so that no
//!   writer is active meanwhile. Between two reads, the times reveal a writer, and on tmpfs inotify(7) does.
//! - Writers of Berkeley DB and `dbm.dumb` take no lock, and use write(2), which updates the times.
//! - `dbm.dumb` writes a value into its file at once, but the size of a replaced value into the index only
//!   when the database is closed. Closing creates a new index file, so an index that is older than the last
//!   write to the values is not read.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::bytes::Bytes;
use crate::store::database::file_state::FileState;
use crate::store::database::{Failure, file_error};
use crate::store::snapshot::time;
use crate::store::system::Watch;
use crate::sync::Mutex;

/// One state of the files of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FilesState {
    index: FileState,
    values: Option<FileState>,
    /// The number of the lock, which reveals writers that leave file times unchanged.
    lock: u64,
}

impl FilesState {
    pub(super) fn modified(&self) -> SystemTime {
        let values = self.values.map(|file| file.modified());
        values.map_or(self.index.modified(), |values| {
            values.max(self.index.modified())
        })
    }
}

/// The paths of a database.
#[derive(Debug)]
pub(super) struct Files {
    index: PathBuf,
    /// The file of values of `dbm.dumb`, whose index is a separate file.
    values: Option<PathBuf>,
    /// Whether writers of this format lock the file.
    is_locked: bool,
    open: Mutex<Option<Arc<OpenFiles>>>,
}

impl Files {
    /// A database in one file.
    pub(super) fn single(path: &Path, is_locked: bool) -> io::Result<Self> {
        Ok(Self {
            index: path.canonicalize()?,
            values: None,
            is_locked,
            open: Mutex::default(),
        })
    }

    /// A database with its values in a separate file.
    pub(super) fn pair(index: &Path, values: &Path) -> io::Result<Self> {
        Ok(Self {
            values: Some(values.canonicalize()?),
            ..Self::single(index, false)?
        })
    }

    /// Returns the files at the paths, if they can be read now.
    ///
    /// # Errors
    /// [`Failure::Busy`] while a writer is known to be active.
    pub(super) fn current(&self) -> Result<OpenState, Failure> {
        let open = self.open(&self.state()?)?;
        let guard = match &open.lock {
            Some(_) => Some(LockGuard::new(&open)?),
            None => None,
        };
        let mut state = self.state()?;
        if !open.is_of(&state) {
            return Err(CHANGING);
        }
        state.lock = guard.as_ref().map_or(0, |guard| guard.number);
        let is_settled = state.index.is_settled() && state.values.is_none_or(|v| v.is_settled());
        match is_settled {
            true => Ok(OpenState {
                open,
                state,
                _guard: guard,
            }),
            false => Err(CHANGING),
        }
    }

    /// Whether the files still have the given state.
    pub(super) fn are_in(&self, state: &FilesState) -> Result<bool, Failure> {
        let now = self.state()?;
        Ok((now.index, now.values) == (state.index, state.values))
    }

    fn state(&self) -> Result<FilesState, Failure> {
        let Some(values) = &self.values else {
            let index = fs::metadata(&self.index).map_err(|e| Failure::Failed(file_error(e)))?;
            return Ok(FilesState {
                index: FileState::of(&index),
                values: None,
                lock: 0,
            });
        };
        let values = fs::metadata(values).map_err(|e| Failure::Failed(file_error(e)))?;
        let index = match fs::metadata(&self.index) {
            // A writer creates a new index when it closes the database.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(UNFINISHED),
            index => index.map_err(|e| Failure::Failed(file_error(e)))?,
        };
        if !is_complete(&values, &index, &self.index.with_extension("bak")) {
            return Err(UNFINISHED);
        }
        Ok(FilesState {
            index: FileState::of(&index),
            values: Some(FileState::of(&values)),
            lock: 0,
        })
    }

    /// Returns the open files of a state, opening them if necessary.
    fn open(&self, state: &FilesState) -> Result<Arc<OpenFiles>, Failure> {
        let mut held = self.open.lock();
        if let Some(open) = held.as_ref().filter(|open| open.is_of(state)) {
            return Ok(Arc::clone(open));
        }
        let failed = |error| Failure::Failed(file_error(error));
        let open = OpenFiles::new(self).map_err(failed)?;
        Ok(Arc::clone(held.insert(Arc::new(open))))
    }

    /// The total size of the files in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        let paths = [Some(&self.index), self.values.as_ref()];
        let files = paths.into_iter().flatten().map(fs::metadata);
        files.flatten().map(|file| file.len()).sum()
    }
}

const CHANGING: Failure = Failure::Busy("database that stays as it is for one read");
const UNFINISHED: Failure = Failure::Busy(
    "index (.dir) that was made after the last change of the values (.dat): a program has the database open, or \
     was stopped; if the files were only copied in another order, replace .dir with a copy of it",
);
const LOCKED: Failure =
    Failure::Busy("lock of the database, which another process has open for writing");

/// Whether the values were not written after the index was created. Where the file system keeps no creation
/// time, the change time of the backup index is used, because that file was renamed at that moment.
fn is_complete(values: &Metadata, index: &Metadata, backup: &Path) -> bool {
    let renamed = || {
        let backup = fs::metadata(backup).ok()?;
        let nanoseconds = u64::try_from(backup.ctime_nsec()).ok()?;
        Some(time((backup.ctime(), nanoseconds)))
    };
    let made = index.created().ok().or_else(renamed);
    let written = values.modified().ok();
    made.zip(written)
        .is_some_and(|(made, written)| made >= written)
}

/// The files of one state, readable for the life of this value.
#[derive(Debug)]
pub(super) struct OpenState {
    open: Arc<OpenFiles>,
    pub(super) state: FilesState,
    _guard: Option<LockGuard>,
}

impl OpenState {
    pub(super) fn open(&self) -> &Arc<OpenFiles> {
        &self.open
    }
}

/// The open files of a database.
#[derive(Debug)]
pub(super) struct OpenFiles {
    index: (File, FileState),
    values: Option<(File, FileState)>,
    lock: Option<Lock>,
}

impl OpenFiles {
    fn new(files: &Files) -> io::Result<Self> {
        let open = |path: &PathBuf| {
            let file = File::open(path)?;
            let state = FileState::of(&file.metadata()?);
            Ok::<_, io::Error>((file, state))
        };
        let index = open(&files.index)?;
        let lock = files.is_locked.then(|| Lock::new(&index.0)).transpose()?;
        Ok(Self {
            values: files.values.as_ref().map(open).transpose()?,
            index,
            lock,
        })
    }

    fn is_of(&self, state: &FilesState) -> bool {
        let is_same = |open: &(File, FileState), state: &FileState| open.1.is_same_file(state);
        let values = match (&self.values, &state.values) {
            (Some(open), Some(state)) => is_same(open, state),
            (open, state) => open.is_none() && state.is_none(),
        };
        values && is_same(&self.index, &state.index)
    }

    /// The file with the keys.
    pub(super) fn index(&self, state: &FilesState) -> Bytes<'_> {
        Bytes::new(&self.index.0, state.index.size_bytes)
    }

    /// The file with the values, which may be the same as the file with the keys.
    pub(super) fn values(&self, state: &FilesState) -> Bytes<'_> {
        match (&self.values, &state.values) {
            (Some((file, _)), Some(values)) => Bytes::new(file, values.size_bytes),
            _ => self.index(state),
        }
    }
}

/// The shared lock of a file, used by all reads of this process.
#[derive(Debug)]
struct Lock {
    /// Reveals writers that leave file times unchanged.
    watch: Option<Watch>,
    held: Mutex<LockState>,
}

#[derive(Debug, Default)]
struct LockState {
    is_locked: bool,
    readers: usize,
    /// Increases when a writer may have used the file since the lock was last held.
    number: u64,
}

impl Lock {
    fn new(file: &File) -> io::Result<Self> {
        Ok(Self {
            watch: Watch::of_untimed(file)?,
            held: Mutex::default(),
        })
    }
}

/// One reader's share of the lock, released on drop.
#[derive(Debug)]
struct LockGuard {
    open: Arc<OpenFiles>,
    number: u64,
}

impl LockGuard {
    fn new(open: &Arc<OpenFiles>) -> Result<Self, Failure> {
        let mut number = 0;
        if let Some(lock) = &open.lock {
            let mut held = lock.held.lock();
            if !held.is_locked {
                match flock(&open.index.0, FlockOperation::NonBlockingLockShared) {
                    Ok(()) => held.is_locked = true,
                    Err(Errno::WOULDBLOCK) => return Err(LOCKED),
                    // The file system has no locks: gdbm does not open a database there.
                    Err(error) => log::debug!("a database cannot be locked: {error}"),
                }
                if lock.watch.as_ref().is_some_and(Watch::was_used) {
                    held.number = held.number.wrapping_add(1);
                }
            }
            held.readers = held.readers.saturating_add(1);
            number = held.number;
        }
        Ok(Self {
            open: Arc::clone(open),
            number,
        })
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(lock) = &self.open.lock else { return };
        let mut held = lock.held.lock();
        held.readers = held.readers.saturating_sub(1);
        if held.readers == 0 && std::mem::take(&mut held.is_locked) {
            // Unlocking cannot fail for an open, locked file; closing the file also releases the lock.
            let _ = flock(&self.open.index.0, FlockOperation::Unlock);
        }
    }
}
