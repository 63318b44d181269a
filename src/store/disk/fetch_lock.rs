//! Locks between the processes that share a directory, so that one of them fetches a value and the others
//! wait for its block.
//!
//! A lock is an open file description lock (`fcntl(2)`) of one byte in a file of the directory, at an
//! offset that is a hash of the name. The kernel releases it when the process ends. The locks are advisory:
//! a process that waits too long fetches for itself. Two names with one hash only wait for each other.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use rustix::fs::{Mode, OFlags, openat};
use siphasher::sip::SipHasher24;

use crate::store::system::set_lock;
use crate::sync::Mutex;

/// The name of the file.
const FILE: &str = "claims";

/// The locks of a process.
#[derive(Debug)]
pub(super) struct FetchLocks {
    directory: OwnedFd,
    held: Mutex<HeldLocks>,
}

#[derive(Debug, Default)]
struct HeldLocks {
    /// Open only while locks are held, because a file that is open for writing keeps its file system from
    /// being remounted read-only.
    file: Option<OwnedFd>,
    /// Offsets that this process has locked; the kernel would grant it the same lock twice.
    offsets: HashSet<i64>,
}

/// The result of an attempt to lock.
#[derive(Debug)]
pub(in crate::store) enum TryLock {
    /// The caller holds the lock until it is dropped.
    Acquired(FetchLock),
    /// Another process, or another task of this process, holds the lock.
    Busy,
    /// The file system has no locks.
    Unsupported,
}

/// The right to fetch a value, held until it is dropped.
#[derive(Debug)]
pub(in crate::store) struct FetchLock {
    locks: Arc<FetchLocks>,
    offset: i64,
}

impl FetchLocks {
    pub(super) fn new(directory: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            directory,
            held: Mutex::default(),
        })
    }

    pub(super) fn try_lock(self: &Arc<Self>, name: &[u8]) -> TryLock {
        let offset = i64::from_ne_bytes(SipHasher24::new().hash(name).to_ne_bytes()) & i64::MAX;
        // The locked byte must not end beyond the largest offset.
        let offset = offset.min(i64::MAX - 1);
        let mut held = self.held.lock();
        if held.offsets.contains(&offset) {
            return TryLock::Busy;
        }
        if held.file.is_none() {
            held.file = self.open().ok();
        }
        let locked = held.file.as_ref().map(|file| set_lock(file, offset, true));
        let attempt = match locked {
            Some(Ok(())) => {
                held.offsets.insert(offset);
                TryLock::Acquired(FetchLock {
                    locks: Arc::clone(self),
                    offset,
                })
            }
            Some(Err(Errno::EAGAIN | Errno::EACCES)) => TryLock::Busy,
            // The file system is read-only or has no locks.
            Some(Err(_)) | None => TryLock::Unsupported,
        };
        held.close_if_unused();
        attempt
    }

    /// Returns the number of locks that this process holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.lock().offsets.len()
    }

    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Non-blocking, as for blocks, because the path may be a FIFO.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(&self.directory, FILE, flags, Mode::RUSR | Mode::WUSR)
    }
}

impl HeldLocks {
    fn close_if_unused(&mut self) {
        if self.offsets.is_empty() {
            self.file = None;
        }
    }
}

impl Drop for FetchLock {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        held.offsets.remove(&self.offset);
        if let Some(file) = &held.file {
            // If unlocking fails, closing the file releases the lock.
            let _ = set_lock(file, self.offset, false);
        }
        held.close_if_unused();
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_holds_a_fetch_lock() {
        let directory = tempfile::tempdir().unwrap();
        let locks = || FetchLocks::new(std::fs::File::open(directory.path()).unwrap().into());
        let (a, b) = (locks(), locks());
        let TryLock::Acquired(fetch_lock) = a.try_lock(b"x") else {
            panic!("nobody has it");
        };
        assert!(matches!(a.try_lock(b"x"), TryLock::Busy));
        assert!(matches!(b.try_lock(b"x"), TryLock::Busy));
        assert!(matches!(b.try_lock(b"y"), TryLock::Acquired(_)));
        drop(fetch_lock);
        assert!(matches!(b.try_lock(b"x"), TryLock::Acquired(_)));
        assert!(a.held.lock().file.is_none() && b.held.lock().file.is_none());
        std::fs::remove_file(directory.path().join(FILE)).unwrap();
        std::fs::create_dir(directory.path().join(FILE)).unwrap();
        assert!(matches!(a.try_lock(b"x"), TryLock::Unsupported));
    }
}
