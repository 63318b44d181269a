//! Open files of a directory. Descriptors of idle files beyond a budget are closed, and opened again when they are
//! used: a program may open more files than this process may have descriptors.
//!
//! A file that is opened again must be of the version that was opened first; otherwise its reads fail.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use lru::LruCache;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::snapshot::SnapshotFile;
use crate::sync::Mutex;

/// The number of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OpenFileId(u64);

/// Descriptors that are left for everything else: the mount, sockets, threads, files in use, listings.
const SPARE: u64 = 32;
/// The least number of idle files that keep their descriptors.
const MIN_IDLE: u64 = 8;

/// The open files, from the least to the most recently used.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: Mutex<LruCache<OpenFileId, Arc<SnapshotFile>>>,
    budget: usize,
    next: AtomicU64,
}

/// The table of all directories: descriptors are those of the process, and a collection has many directories.
static OF_PROCESS: LazyLock<OpenFiles> = LazyLock::new(OpenFiles::new);

impl OpenFiles {
    /// Returns the table of this process.
    pub(super) fn of_process() -> &'static Self {
        &OF_PROCESS
    }

    /// Returns an empty table, whose budget is about half of the descriptors of this process (`RLIMIT_NOFILE`).
    fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let budget = limit.map_or(u64::MAX, |limit| limit.saturating_sub(SPARE) / 2);
        Self::with_budget(usize::try_from(budget.max(MIN_IDLE)).unwrap_or(usize::MAX))
    }

    fn with_budget(budget: usize) -> Self {
        Self {
            files: Mutex::new(LruCache::unbounded()),
            budget,
            next: AtomicU64::new(0),
        }
    }

    /// Adds a file that was opened for the first time.
    pub(super) fn add(&self, file: Arc<SnapshotFile>) -> OpenFileId {
        let id = OpenFileId(self.next.fetch_add(1, Ordering::Relaxed));
        self.put(id, file);
        id
    }

    /// Returns a file, unless its descriptor was closed.
    pub(super) fn get(&self, id: OpenFileId) -> Option<Arc<SnapshotFile>> {
        self.files.lock().get(&id).map(Arc::clone)
    }

    /// Keeps a file, and closes those that have not been used for the longest time if there are too many.
    pub(super) fn put(&self, id: OpenFileId, file: Arc<SnapshotFile>) {
        let mut files = self.files.lock();
        let mut closed = vec![files.put(id, file)];
        while files.len() > self.budget {
            closed.push(files.pop_lru().map(|(_, file)| file));
        }
        // Files are closed without the lock, because that can take time.
        drop(files);
    }

    /// Removes a file that its user has closed.
    pub(super) fn remove(&self, id: OpenFileId) {
        let file = self.files.lock().pop(&id);
        drop(file);
    }

    /// Calls `open`, and again after closing half of the idle files if this process has no descriptor left.
    pub(super) fn with_descriptor<T>(
        &self,
        mut open: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_descriptors(&error) && self.close_half() => open(),
            opened => opened,
        }
    }

    /// Closes half of the files, those that have not been used for the longest time. Returns whether there were any.
    fn close_half(&self) -> bool {
        let mut files = self.files.lock();
        let half = files.len().div_ceil(2);
        let closed: Vec<_> = (0..half).filter_map(|_| files.pop_lru()).collect();
        drop(files);
        !closed.is_empty()
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn files_beyond_the_budget_are_closed_and_a_lack_of_descriptors_closes_half() {
        let open = || Arc::new(SnapshotFile::new(File::open("/etc/passwd").unwrap()).unwrap());
        let files = OpenFiles::with_budget(4);
        let ids: Vec<_> = (0..6).map(|_| files.add(open())).collect();
        let kept = || {
            let kept: Vec<bool> = ids
                .iter()
                .map(|id| files.files.lock().contains(id))
                .collect();
            kept
        };
        assert_eq!(kept(), [false, false, true, true, true, true]);
        assert!(files.get(ids[2]).is_some() && files.get(ids[0]).is_none());
        let mut attempts = 0;
        let opened = files.with_descriptor(|| {
            attempts += 1;
            match attempts {
                1 => Err(Errno::MFILE.into()),
                attempt => Ok(attempt),
            }
        });
        assert_eq!(opened.unwrap(), 2);
        assert_eq!(kept(), [false, false, true, false, false, true]);
        files.remove(ids[2]);
        files.remove(ids[5]);
        let refused = files.with_descriptor(|| io::Result::<()>::Err(Errno::MFILE.into()));
        assert!(refused.is_err(), "nothing is left to close");
    }
}
