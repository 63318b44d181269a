//! Handle numbers of open files and directories.

use slab::Slab;

use crate::sync::{Mutex, MutexGuard};

/// The number of an open file or directory. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// Open files or directories, with densely assigned numbers.
#[derive(Debug)]
pub(super) struct Handles<T>(Mutex<Slab<T>>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self(Mutex::new(Slab::new()))
    }
}

impl<T: Clone> Handles<T> {
    fn slab(&self) -> MutexGuard<'_, Slab<T>> {
        self.0.lock()
    }

    pub(super) fn insert(&self, open: T) -> Handle {
        Handle(self.slab().insert(open) as u64 + 1)
    }

    pub(super) fn get(&self, handle: Handle) -> Option<T> {
        self.slab().get(slot(handle)?).cloned()
    }

    pub(super) fn remove(&self, handle: Handle) {
        // Dropped after the lock is released: closing a file can take time.
        let closed = slot(handle).and_then(|slot| self.slab().try_remove(slot));
        drop(closed);
    }

    pub(super) fn len(&self) -> usize {
        self.slab().len()
    }
}

fn slot(handle: Handle) -> Option<usize> {
    handle
        .0
        .checked_sub(1)
        .and_then(|slot| usize::try_from(slot).ok())
}
