//! Claims: processes that share a directory avoid fetching the same bytes at the same time.
//!
//! A claim is an open file description lock (`fcntl(2)`) of one byte in a file of the directory, at an
//! offset that is a hash of the name. The kernel releases it when the process ends. Claims are advisory:
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

/// The claims of a process.
#[derive(Debug)]
pub(super) struct Claims {
    directory: OwnedFd,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Open only while claims exist, because a file that is open for writing keeps its file system from
    /// being remounted read-only.
    file: Option<OwnedFd>,
    /// Offsets that this process has locked; the kernel would grant it the same lock twice.
    offsets: HashSet<i64>,
}

/// The result of an attempt to claim.
#[derive(Debug)]
pub(in crate::store) enum Claimed {
    /// The caller holds the claim until it is dropped.
    Held(Claim),
    /// Another process, or another task of this process, is fetching.
    Busy,
    /// Unknown, because the file system has no locks.
    Unknown,
}

/// The right to fetch a value, held until it is dropped.
#[derive(Debug)]
pub(in crate::store) struct Claim {
    claims: Arc<Claims>,
    offset: i64,
}

impl Claims {
    pub(super) fn new(directory: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            directory,
            held: Mutex::default(),
        })
    }

    pub(super) fn claim(self: &Arc<Self>, name: &[u8]) -> Claimed {
        let offset = i64::from_ne_bytes(SipHasher24::new().hash(name).to_ne_bytes()) & i64::MAX;
        // The locked byte must not end beyond the largest offset.
        let offset = offset.min(i64::MAX - 1);
        let mut held = self.held.lock();
        if held.offsets.contains(&offset) {
            return Claimed::Busy;
        }
        if held.file.is_none() {
            held.file = self.open().ok();
        }
        let locked = held.file.as_ref().map(|file| set_lock(file, offset, true));
        let claimed = match locked {
            Some(Ok(())) => {
                held.offsets.insert(offset);
                Claimed::Held(Claim {
                    claims: Arc::clone(self),
                    offset,
                })
            }
            Some(Err(Errno::EAGAIN | Errno::EACCES)) => Claimed::Busy,
            // The file system is read-only or has no locks.
            Some(Err(_)) | None => Claimed::Unknown,
        };
        held.close_if_unused();
        claimed
    }

    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Non-blocking, as for blocks, because the path may be a FIFO.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(&self.directory, FILE, flags, Mode::RUSR | Mode::WUSR)
    }
}

impl Held {
    fn close_if_unused(&mut self) {
        if self.offsets.is_empty() {
            self.file = None;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.claims.held.lock();
        held.offsets.remove(&self.offset);
        if let Some(file) = &held.file {
            // If unlocking fails, closing the file releases the lock.
            let _ = set_lock(file, self.offset, false);
        }
        held.close_if_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_among_those_who_opened_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let claims = || Claims::new(std::fs::File::open(directory.path()).unwrap().into());
        let (a, b) = (claims(), claims());
        let Claimed::Held(claim) = a.claim(b"x") else {
            panic!("nobody has it");
        };
        assert!(matches!(a.claim(b"x"), Claimed::Busy));
        assert!(matches!(b.claim(b"x"), Claimed::Busy));
        assert!(matches!(b.claim(b"y"), Claimed::Held(_)));
        drop(claim);
        assert!(matches!(b.claim(b"x"), Claimed::Held(_)));
        assert!(a.held.lock().file.is_none() && b.held.lock().file.is_none());
        std::fs::remove_file(directory.path().join(FILE)).unwrap();
        std::fs::create_dir(directory.path().join(FILE)).unwrap();
        assert!(matches!(a.claim(b"x"), Claimed::Unknown));
    }
}
