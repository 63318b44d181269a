//! FUSE passthrough: files of a local directory that the kernel reads itself.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{BackingId, FileHandle, FopenFlags, INodeNo, ReplyOpen};

use super::Service;
use crate::fs::Handle;

/// Files that the kernel reads itself, with one backing for all handles of an inode.
#[derive(Debug, Default)]
pub(super) struct Backings {
    by_inode: HashMap<u64, (Arc<BackingId>, usize)>,
    by_handle: HashMap<u64, u64>,
}

impl Service {
    /// Replies to an open with the backing file, so that the kernel reads it without requests. Returns the
    /// reply if the kernel refuses.
    pub(super) fn open_passthrough(
        &self,
        ino: INodeNo,
        handle: Handle,
        file: BorrowedFd<'_>,
        reply: ReplyOpen,
    ) -> Option<ReplyOpen> {
        let mut backings = self.backings.lock();
        let backing = match backings.by_inode.get_mut(&ino.0) {
            Some((backing, handles)) => {
                *handles = handles.saturating_add(1);
                Arc::clone(backing)
            }
            None => match reply.open_backing(file) {
                Ok(backing) => {
                    let backing = Arc::new(backing);
                    backings.by_inode.insert(ino.0, (Arc::clone(&backing), 1));
                    backing
                }
                Err(e) => {
                    if self.passthrough.swap(false, Ordering::Relaxed) {
                        log::info!("the kernel does not take files over: {e}");
                    }
                    return Some(reply);
                }
            },
        };
        backings.by_handle.insert(handle.0, ino.0);
        reply.opened_passthrough(FileHandle(handle.0), FopenFlags::empty(), &backing);
        None
    }

    /// Returns whether an open handle of the inode uses passthrough.
    pub(super) fn has_backing(&self, ino: INodeNo) -> bool {
        let backings = self.backings.lock();
        backings.by_inode.contains_key(&ino.0)
    }

    pub(super) fn close_passthrough(&self, handle: Handle) {
        let mut backings = self.backings.lock();
        let Some(ino) = backings.by_handle.remove(&handle.0) else {
            return;
        };
        if let Some((_, handles)) = backings.by_inode.get_mut(&ino) {
            *handles = handles.saturating_sub(1);
            if *handles == 0 {
                backings.by_inode.remove(&ino);
            }
        }
    }
}
