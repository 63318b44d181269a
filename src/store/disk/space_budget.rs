//! Accounts the bytes of the cache against its budget, and decides when blocks must be evicted.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The budget of the cache, and the bytes in use. Its lock is taken by writers and by the eviction thread, and
/// never held for longer than an addition takes.
#[derive(Debug)]
pub(super) struct SpaceBudget {
    budget_bytes: u64,
    usage: Mutex<Usage>,
    work: Condvar,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Usage {
    total_bytes: u64,
    /// Bytes written since the last count began, or being written at that time.
    uncounted_bytes: u64,
    /// Bytes being written. A count may or may not see them.
    in_progress_bytes: u64,
    is_counted: bool,
    is_count_due: bool,
}

impl SpaceBudget {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            usage: Mutex::default(),
            work: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The longest file that is kept, in bytes: one file must not evict all others.
    pub(super) fn max_file_bytes(&self) -> u64 {
        self.budget_bytes / 4
    }

    /// The size to evict down to, in bytes: below the budget, so that evictions are not due all the time.
    pub(super) fn target_bytes(&self) -> u64 {
        self.budget_bytes - self.budget_bytes / 10
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.usage().total_bytes
    }

    #[cfg(test)]
    pub(super) fn is_counted(&self) -> bool {
        self.usage().is_counted
    }

    #[cfg(test)]
    pub(super) fn is_count_due(&self) -> bool {
        self.usage().is_count_due
    }

    #[cfg(test)]
    pub(super) fn in_progress_bytes(&self) -> u64 {
        self.usage().in_progress_bytes
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock()
    }

    /// Reserves space for a file. Space is granted while the budget is not exceeded, so one file at most
    /// exceeds it.
    pub(super) fn try_reserve(&self, allocated_bytes: u64) -> bool {
        let mut usage = self.usage();
        let is_granted = if usage.is_counted {
            usage.total_bytes <= self.budget_bytes
        } else {
            // Until the first count, treat the cache as full: its content was within the budget, or nearly.
            let uncounted_bytes = usage.uncounted_bytes.saturating_add(allocated_bytes);
            usage.uncounted_bytes == 0 || uncounted_bytes <= self.max_file_bytes()
        };
        if is_granted {
            usage.total_bytes = usage.total_bytes.saturating_add(allocated_bytes);
            usage.uncounted_bytes = usage.uncounted_bytes.saturating_add(allocated_bytes);
            usage.in_progress_bytes = usage.in_progress_bytes.saturating_add(allocated_bytes);
        }
        // A count is due even with free space, since only a count sees what other processes have written.
        let is_due = !is_granted || usage.uncounted_bytes > self.budget_bytes / 20;
        if is_due && !usage.is_count_due {
            usage.is_count_due = true;
            self.work.notify_all();
        }
        is_granted
    }

    /// Ends the write of a file for which space was reserved.
    pub(super) fn finish_write(&self, allocated_bytes: u64, is_written: bool) {
        let mut usage = self.usage();
        usage.in_progress_bytes = usage.in_progress_bytes.saturating_sub(allocated_bytes);
        if !is_written {
            usage.total_bytes = usage.total_bytes.saturating_sub(allocated_bytes);
            usage.uncounted_bytes = usage.uncounted_bytes.saturating_sub(allocated_bytes);
        }
    }

    pub(super) fn begin_count(&self) {
        let mut usage = self.usage();
        usage.uncounted_bytes = usage.in_progress_bytes;
        usage.is_count_due = false;
    }

    /// Records the result of the count that has begun; returns whether the budget is exceeded.
    pub(super) fn end_count(&self, counted_bytes: u64) -> bool {
        let mut usage = self.usage();
        // Bytes that were written meanwhile may be counted twice. The next count corrects that, and also
        // a count that could not list a directory.
        usage.total_bytes = counted_bytes.saturating_add(usage.uncounted_bytes);
        usage.is_counted = true;
        usage.total_bytes > self.budget_bytes
    }

    /// Waits until a count is due, and at least for `rest`; returns false after [`SpaceBudget::close`].
    pub(super) fn wait(&self, rest: Duration) -> bool {
        let begun = Instant::now();
        let mut usage = self.usage();
        while !self.is_closed() {
            let left = rest.saturating_sub(begun.elapsed());
            usage = match (left.is_zero(), usage.is_count_due) {
                (false, _) => self.work.wait_timeout(usage, left),
                (true, false) => self.work.wait(usage),
                (true, true) => break,
            };
        }
        drop(usage);
        !self.is_closed()
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        // The lock is held, so that a thread that is about to wait does not miss the notification.
        let _usage = self.usage();
        self.is_closed.store(true, Ordering::Relaxed);
        self.work.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(budget_bytes: u64, counted_bytes: u64) -> SpaceBudget {
        let budget = SpaceBudget::new(budget_bytes);
        budget.begin_count();
        budget.end_count(counted_bytes);
        budget
    }

    #[test]
    fn the_budget_is_exceeded_by_one_file_at_most() {
        let budget = counted(1000, 900);
        assert!(budget.try_reserve(100) && budget.try_reserve(200) && !budget.try_reserve(1));
        budget.finish_write(200, false);
        assert!(budget.try_reserve(1));
        assert_eq!(budget.total_bytes(), 1001);
    }

    #[test]
    fn the_budget_before_the_first_count_is_that_of_a_full_cache() {
        let budget = SpaceBudget::new(1000);
        assert!(budget.try_reserve(200) && budget.try_reserve(50) && !budget.try_reserve(1));
        let budget = SpaceBudget::new(1000);
        assert!(budget.try_reserve(300), "one file is always kept");
    }

    #[test]
    fn a_count_includes_files_that_are_written_meanwhile() {
        let budget = counted(1000, 0);
        assert!(budget.try_reserve(100) && budget.try_reserve(100));
        budget.finish_write(100, true);
        budget.begin_count();
        assert!(budget.try_reserve(50));
        // The count saw the finished file, and perhaps not the other two.
        assert!(!budget.end_count(100));
        assert_eq!(budget.total_bytes(), 250);
    }

    #[test]
    fn a_count_is_due_after_a_twentieth_of_the_budget() {
        let budget = counted(1000, 0);
        assert!(budget.try_reserve(50) && !budget.usage().is_count_due);
        assert!(budget.try_reserve(1) && budget.usage().is_count_due);
        assert!(budget.wait(Duration::ZERO));
        budget.close();
        assert!(!budget.wait(Duration::from_secs(1000)));
    }
}
