//! Schedules of the fetch locks of one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{FetchLocks, TryLock};
use crate::sync::schedules::explore;
use crate::sync::thread;

#[test]
fn one_task_at_a_time_holds_a_lock_and_the_file_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    explore(move || {
        let locks = FetchLocks::new(std::fs::File::open(directory.path()).unwrap().into());
        let holders = Arc::new(AtomicUsize::new(0));
        let callers = [(); 3].map(|()| {
            let (locks, holders) = (Arc::clone(&locks), Arc::clone(&holders));
            thread::spawn(move || match locks.try_lock(b"x") {
                TryLock::Acquired(lock) => {
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                }
                TryLock::Busy => {}
                TryLock::Unsupported => panic!("a file system with locks"),
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(locks.held.lock().file.is_none());
        assert!(matches!(locks.try_lock(b"x"), TryLock::Acquired(_)));
    });
}
