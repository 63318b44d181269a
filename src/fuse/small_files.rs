//! Small files, whose content the kernel gets with the open.
//!
//! A program that opens and reads a small key waits for three requests: LOOKUP, OPEN and READ. Before the reply to
//! OPEN, FUSE_NOTIFY_STORE puts the bytes into the page cache of the inode, so the kernel sends no READ. That is
//! possible because an inode has one content (see [`crate::tree`]), and only worthwhile if the bytes can be read
//! without waiting.
//!
//! **Invariant:** FUSE_NOTIFY_STORE waits for the locks of pages, which a READ of the same inode holds until it is
//! answered. Bytes are therefore stored only if no other handle of the inode is open. Assume that all session threads
//! wait for such locks. The one that began last waits for a READ of a handle that another thread opened after that
//! beginning. But that other thread began its own wait later still, which contradicts the assumption.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fuser::{Errno, INodeNo, Notifier};

use super::{Service, panics};
use crate::fs::{Handle, Ino, OpenedFile};
use crate::sync::Mutex;

/// Files of this size in bytes and larger are read with READ or passthrough, which cost more to open and less to
/// read.
pub(super) const SMALL_BYTES: u64 = 64 << 10;

/// The open handles of small files, and the way to send their content to the kernel.
#[derive(Debug, Default)]
pub(super) struct SmallFiles {
    notifier: OnceLock<Notifier>,
    is_refused: AtomicBool,
    /// The number of open handles of an inode.
    handles: Mutex<HashMap<INodeNo, u32>>,
}

impl SmallFiles {
    /// Sets the channel to the kernel, after the session has begun.
    pub(super) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Counts an opened handle. Returns whether it is the only one of its inode.
    fn count(&self, ino: INodeNo) -> bool {
        match self.handles.lock().entry(ino) {
            Entry::Vacant(slot) => {
                slot.insert(1);
                true
            }
            Entry::Occupied(mut slot) => {
                *slot.get_mut() = slot.get().saturating_add(1);
                false
            }
        }
    }

    /// Counts a closed handle.
    pub(super) fn closed(&self, ino: INodeNo) {
        if let Entry::Occupied(mut slot) = self.handles.lock().entry(ino) {
            match slot.get() {
                0 | 1 => drop(slot.remove()),
                more => *slot.get_mut() = more - 1,
            }
        }
    }
}

impl Service {
    /// Puts the content of an opened file into the page cache, if the file is small and its bytes are at hand. If it
    /// does not, the kernel sends READ, whose reply has the error, if there is one.
    pub(super) fn store_small_file(&self, ino: INodeNo, opened: &OpenedFile) {
        let size_bytes = opened.object.size_bytes();
        let is_small = (1..SMALL_BYTES).contains(&size_bytes);
        if !is_small || !opened.object.is_constant() || opened.object.as_local().is_none() {
            return;
        }
        let small_files = &self.small_files;
        if !small_files.count(ino) || small_files.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let Some(notifier) = small_files.notifier.get() else {
            return;
        };
        let since = Instant::now();
        let mut stored = Ok(false);
        // A read that panics has to fail its own request, not the open.
        let _ = panics::catch_in_handler(|| {
            stored = self.store_bytes(notifier, ino, opened.handle, size_bytes);
        });
        match stored {
            Ok(true) => self.fs.stats().read(since.elapsed()),
            Ok(false) => {}
            // The kernel knows no such notification. Other failures, such as a lack of memory, may pass.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL.code()) => {
                small_files.is_refused.store(true, Ordering::Relaxed);
                log::info!("the kernel does not take contents with an open: {error}");
            }
            Err(error) => log::debug!("content of inode {ino}: {error}"),
        }
    }

    /// Returns whether all bytes of the file were at hand and are in the page cache by now.
    fn store_bytes(
        &self,
        notifier: &Notifier,
        ino: INodeNo,
        handle: Handle,
        size_bytes: u64,
    ) -> io::Result<bool> {
        let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let reader = self.fs.reader(Ino(ino.0), Some(handle), 0, size).at_hand();
        let read = reader.and_then(|reader| reader.ok()?.read_at_hand());
        let Some(Ok(data)) = read else {
            return Ok(false);
        };
        match data.bytes(&[]) {
            // The kernel takes the last page for complete only if the bytes end where the file ends.
            Ok(bytes) if bytes.len() == size => notifier.store(ino, 0, bytes).map(|()| true),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_handle_of_an_inode_may_store() {
        let files = SmallFiles::default();
        let (one, other) = (INodeNo(7), INodeNo(8));
        assert!(files.count(one));
        assert!(!files.count(one));
        assert!(files.count(other));
        files.closed(one);
        assert!(!files.count(one));
        files.closed(one);
        files.closed(one);
        assert!(files.count(one));
        // A handle of a large file is not counted.
        files.closed(INodeNo(9));
        assert_eq!(files.handles.lock().len(), 2);
    }
}
