//! Locks of the whole crate.
//!
//! A panic is confined to its request, and every critical section leaves its data consistent, so a
//! poisoned lock is locked like any other. A model checker can replace these types.

pub use std::sync::MutexGuard;

/// A mutex without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Blocks until the lock is acquired.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Acquires the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
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
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock and blocks until the variable is notified.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let woken = self.0.wait(guard);
        woken.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], for at most `limit`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        let woken = self.0.wait_timeout(guard, limit);
        woken.unwrap_or_else(std::sync::PoisonError::into_inner).0
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
