//! The space that the budget leaves, and when blocks must be evicted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The space that the budget leaves. Its lock is taken by writers and by the eviction thread, and
/// never held for longer than an addition takes.
#[derive(Debug)]
pub(super) struct Room {
    budget_bytes: u64,
    ledger: Mutex<Ledger>,
    work: Condvar,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Ledger {
    total_bytes: u64,
    /// Bytes written since the last count began, or being written at that time.
    fresh_bytes: u64,
    /// Bytes being written. A count may or may not see them.
    unfinished_bytes: u64,
    is_counted: bool,
    is_count_due: bool,
}

impl Room {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            ledger: Mutex::default(),
            work: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The longest file that is kept, in bytes: one file must not evict all others.
    pub(super) fn longest_bytes(&self) -> u64 {
        self.budget_bytes / 4
    }

    /// The size to evict down to, in bytes: below the budget, so that evictions are not due all the time.
    pub(super) fn keep_bytes(&self) -> u64 {
        self.budget_bytes - self.budget_bytes / 10
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.ledger().total_bytes
    }

    #[cfg(test)]
    pub(super) fn is_counted(&self) -> bool {
        self.ledger().is_counted
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes space for a file. Space is granted while the budget is not exceeded, so one file at most
    /// exceeds it.
    pub(super) fn take(&self, cost: u64) -> bool {
        let mut ledger = self.ledger();
        let has_room = if ledger.is_counted {
            ledger.total_bytes <= self.budget_bytes
        } else {
            // Until the first count, treat the cache as full: its content was within the budget, or nearly.
            let fresh_bytes = ledger.fresh_bytes.saturating_add(cost);
            ledger.fresh_bytes == 0 || fresh_bytes <= self.longest_bytes()
        };
        if has_room {
            ledger.total_bytes = ledger.total_bytes.saturating_add(cost);
            ledger.fresh_bytes = ledger.fresh_bytes.saturating_add(cost);
            ledger.unfinished_bytes = ledger.unfinished_bytes.saturating_add(cost);
        }
        // A count is due even with free space, since only a count sees what other processes have written.
        let is_due = !has_room || ledger.fresh_bytes > self.budget_bytes / 20;
        if is_due && !ledger.is_count_due {
            ledger.is_count_due = true;
            self.work.notify_all();
        }
        has_room
    }

    /// Ends the write of a file for which space was taken.
    pub(super) fn settle(&self, cost: u64, is_written: bool) {
        let mut ledger = self.ledger();
        ledger.unfinished_bytes = ledger.unfinished_bytes.saturating_sub(cost);
        if !is_written {
            ledger.total_bytes = ledger.total_bytes.saturating_sub(cost);
            ledger.fresh_bytes = ledger.fresh_bytes.saturating_sub(cost);
        }
    }

    pub(super) fn begin_count(&self) {
        let mut ledger = self.ledger();
        ledger.fresh_bytes = ledger.unfinished_bytes;
        ledger.is_count_due = false;
    }

    /// Records the result of the count that has begun; returns whether the budget is exceeded.
    pub(super) fn end_count(&self, counted_bytes: u64) -> bool {
        let mut ledger = self.ledger();
        // Bytes that were written meanwhile may be counted twice. The next count corrects that, and also
        // a count that could not list a directory.
        ledger.total_bytes = counted_bytes.saturating_add(ledger.fresh_bytes);
        ledger.is_counted = true;
        ledger.total_bytes > self.budget_bytes
    }

    /// Waits until a count is due, and at least for `rest`; returns false after [`Room::close`].
    pub(super) fn wait(&self, rest: Duration) -> bool {
        let resting = |_: &mut Ledger| !self.is_closed();
        let idle = |ledger: &mut Ledger| !self.is_closed() && !ledger.is_count_due;
        let (ledger, _) = self
            .work
            .wait_timeout_while(self.ledger(), rest, resting)
            .unwrap_or_else(PoisonError::into_inner);
        let ledger = self.work.wait_while(ledger, idle);
        drop(ledger.unwrap_or_else(PoisonError::into_inner));
        !self.is_closed()
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        // The lock is held, so that a thread that is about to wait does not miss the notification.
        let _ledger = self.ledger();
        self.is_closed.store(true, Ordering::Relaxed);
        self.work.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(budget_bytes: u64, counted_bytes: u64) -> Room {
        let room = Room::new(budget_bytes);
        room.begin_count();
        room.end_count(counted_bytes);
        room
    }

    #[test]
    fn the_budget_is_exceeded_by_one_file_at_most() {
        let room = counted(1000, 900);
        assert!(room.take(100) && room.take(200) && !room.take(1));
        room.settle(200, false);
        assert!(room.take(1));
        assert_eq!(room.total_bytes(), 1001);
    }

    #[test]
    fn what_was_not_counted_yet_is_taken_for_a_full_cache() {
        let room = Room::new(1000);
        assert!(room.take(200) && room.take(50) && !room.take(1));
        let room = Room::new(1000);
        assert!(room.take(300), "one file is always kept");
    }

    #[test]
    fn what_is_written_during_a_count_is_not_forgotten() {
        let room = counted(1000, 0);
        assert!(room.take(100) && room.take(100));
        room.settle(100, true);
        room.begin_count();
        assert!(room.take(50));
        // The count saw the finished file, and perhaps not the other two.
        assert!(!room.end_count(100));
        assert_eq!(room.total_bytes(), 250);
    }

    #[test]
    fn a_count_is_due_after_a_twentieth_of_the_budget() {
        let room = counted(1000, 0);
        assert!(room.take(50) && !room.ledger().is_count_due);
        assert!(room.take(1) && room.ledger().is_count_due);
        assert!(room.wait(Duration::ZERO));
        room.close();
        assert!(!room.wait(Duration::from_secs(1000)));
    }
}
