//! A single flight between processes: of the mounts that share a disk cache, one fetches a value, and the
//! others wait and find it in the cache.

use std::time::Duration;

use super::disk::SourceDisk;
use crate::clock::Instant;
use crate::runtime;
use crate::store::disk::{FetchLock, TryLock};

/// Interval between attempts to get a lock that another process holds: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(16);

/// Excludes other mounts from fetching a value until it is dropped.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct FetchGuard {
    lock: Option<FetchLock>,
    /// Whether the caller has waited. Another process has then most likely put the value into the disk cache.
    pub(in crate::store::remote) has_waited: bool,
}

impl FetchGuard {
    /// Whether another process may have put the value into the disk cache since the caller found it missing.
    pub(in crate::store::remote) fn is_shared(&self) -> bool {
        self.has_waited || self.lock.is_some()
    }
}

impl SourceDisk {
    /// Returns the guard for a fetch of `name`, of at most `bytes`; `None` if another process has it.
    pub(in crate::store::remote) fn try_fetch_guard(
        &self,
        name: &[&[u8]],
        bytes: u64,
    ) -> Option<FetchGuard> {
        let lock = match self.fetch_lock(name, bytes) {
            TryLock::Acquired(lock) => Some(lock),
            TryLock::Unsupported => None,
            TryLock::Busy => return None,
        };
        Some(FetchGuard {
            lock,
            has_waited: false,
        })
    }

    /// Waits for the guard for a fetch of `name`, of at most `bytes`.
    ///
    /// The wait ends after half of the request's time limit: if a process hangs, others are delayed and
    /// then fetch for themselves.
    pub(in crate::store::remote) async fn fetch_guard(
        &self,
        name: &[&[u8]],
        bytes: u64,
    ) -> FetchGuard {
        let started = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut has_waited = false;
        loop {
            if let Some(fetch_guard) = self.try_fetch_guard(name, bytes) {
                return FetchGuard {
                    has_waited,
                    ..fetch_guard
                };
            }
            has_waited = true;
            if started.elapsed() >= self.timeout() / 2 {
                return FetchGuard {
                    lock: None,
                    has_waited,
                };
            }
            runtime::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}
