//! Locks, notifications and threads of the whole crate.
//!
//! A panic is confined to its request, and every critical section leaves its data consistent, so a
//! poisoned lock is locked like any other.
//!
//! In unit tests with the feature `schedules`, the types are those of shuttle, which runs a test under many
//! schedules (`sync/schedules.rs`). Code that is tested so takes its primitives from here.

#[cfg(test)]
#[cfg(feature = "schedules")]
pub(crate) mod schedules;

#[cfg(not(all(test, feature = "schedules")))]
mod primitives {
    pub use std::sync::MutexGuard;
    pub(super) use std::sync::{Condvar, Mutex, PoisonError, TryLockError};

    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::*;
    }
    pub(crate) use std::thread;
    pub(crate) use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
}

#[cfg(all(test, feature = "schedules"))]
mod primitives {
    pub use shuttle::sync::MutexGuard;
    pub(super) use shuttle::sync::{Condvar, Mutex, PoisonError, TryLockError};

    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread;
    pub(crate) use shuttle_tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
}

pub use primitives::MutexGuard;
pub(crate) use primitives::{Notify, OwnedSemaphorePermit, Semaphore, atomic, oneshot, thread};

/// A mutex without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(primitives::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }

    /// Blocks until the lock is acquired.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(primitives::PoisonError::into_inner)
    }

    /// Acquires the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(primitives::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(primitives::TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(primitives::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(primitives::Condvar::new())
    }

    /// Releases the lock and blocks until the variable is notified.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let woken = self.0.wait(guard);
        woken.unwrap_or_else(primitives::PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], for at most `limit`.
    #[cfg(not(all(test, feature = "schedules")))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        let woken = self.0.wait_timeout(guard, limit);
        woken.unwrap_or_else(primitives::PoisonError::into_inner).0
    }

    /// As [`Condvar::wait`], for at most `limit`. Time does not pass under a model checker, so the wait ends at once,
    /// as a wait may.
    #[cfg(all(test, feature = "schedules"))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        thread::yield_now();
        guard
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
