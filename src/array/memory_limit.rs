//! The memory limit of decoding: bytes are reserved before they are allocated.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::runtime;
use crate::sync::{Mutex, MutexGuard, Notify};

/// A limit for the bytes that all decoding together reserves.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit_bytes: u64,
    used: Mutex<u64>,
    freed: Notify,
}

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The reason why a reservation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReserveError {
    /// More bytes than the limit.
    ExceedsLimit,
    /// Other reservations did not free enough bytes in time.
    TimedOut,
}

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<MemoryLimit>,
    bytes: u64,
}

impl MemoryLimit {
    /// Creates a limit without reservations.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used: Mutex::new(0),
            freed: Notify::new(),
        }
    }

    /// Returns the limit in bytes.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the number of reserved bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.used.lock()
    }

    /// Reserves bytes if they are free or `evict` frees them.
    ///
    /// # Errors
    /// [`ReserveError`].
    pub(super) fn try_reserve(
        self: &Arc<Self>,
        bytes: u64,
        evict: impl Fn(u64) -> bool,
    ) -> Result<Reservation, ReserveError> {
        if bytes > self.limit_bytes {
            return Err(ReserveError::ExceedsLimit);
        }
        let mut used = self.lock();
        loop {
            let free = self.limit_bytes - *used;
            if free >= bytes {
                break;
            }
            drop(used);
            let has_evicted = evict(bytes - free);
            used = self.lock();
            if !has_evicted && self.limit_bytes - *used < bytes {
                return Err(ReserveError::TimedOut);
            }
        }
        *used += bytes;
        Ok(Reservation {
            memory: Arc::clone(self),
            bytes,
        })
    }

    /// As [`MemoryLimit::try_reserve`], but waits until `deadline` for other reservations to be released.
    ///
    /// A caller must hold no other reservation that another caller could wait for: each request
    /// reserves once, so that no two requests wait for each other.
    ///
    /// # Errors
    /// [`ReserveError`].
    pub(super) async fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        deadline: Instant,
        evict: impl Fn(u64) -> bool,
    ) -> Result<Reservation, ReserveError> {
        loop {
            // Created before the attempt, so that no release between the attempt and the wait is missed.
            let freed = self.freed.notified();
            match self.try_reserve(bytes, &evict) {
                Err(ReserveError::TimedOut) => {}
                reserved => return reserved,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ReserveError::TimedOut);
            }
            // Chunks that others decode become evictable once they are cached, and the cache does not notify.
            let _ = runtime::timeout(left.min(LOOK_AGAIN), freed).await;
        }
    }
}

impl Reservation {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over another reservation of the same memory.
    pub(super) fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Splits off a reservation of `bytes`, or of all bytes if there are fewer.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            memory: Arc::clone(&self.memory),
            bytes,
        }
    }

    /// Releases all but `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let free = self.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.min(bytes);
        self.memory.give_back(free);
    }
}

impl MemoryLimit {
    fn give_back(&self, bytes: u64) {
        let mut used = self.lock();
        *used -= bytes;
        drop(used);
        self.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn reservations_never_exceed_the_limit() {
        let memory = Arc::new(MemoryLimit::new(100));
        let none = |_| false;
        let mut first = block_on(memory.reserve(60, soon(), none)).unwrap();
        assert_eq!(
            block_on(memory.reserve(50, soon(), none)).unwrap_err(),
            ReserveError::TimedOut
        );
        assert_eq!(
            block_on(memory.reserve(101, soon(), none)).unwrap_err(),
            ReserveError::ExceedsLimit
        );
        first.shrink(50);
        let second = block_on(memory.reserve(50, soon(), none)).unwrap();
        assert_eq!(memory.used_bytes(), 100);
        drop((first, second));
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn evicted_memory_goes_to_the_waiting_reservation() {
        let memory = Arc::new(MemoryLimit::new(100));
        let cached = Mutex::new(Some(memory.try_reserve(80, |_| false).unwrap()));
        let evict = |missing| {
            assert_eq!(missing, 70);
            cached.lock().take().is_some()
        };
        memory.try_reserve(90, evict).unwrap();
    }

    #[test]
    fn a_waiting_request_continues_when_another_one_ends() {
        let memory = Arc::new(MemoryLimit::new(100));
        let first = memory.try_reserve(100, |_| false).unwrap();
        let other = Arc::clone(&memory);
        let waiting = std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(20);
            block_on(other.reserve(40, deadline, |_| false)).is_ok()
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
