//! Schedules of the writers and the eviction thread of the disk cache.

use std::sync::Arc;
use std::time::Duration;

use super::SpaceBudget;
use crate::sync::schedules::explore;
use crate::sync::{Mutex, thread};

const FILE_BYTES: u64 = 100;

#[test]
fn writers_get_space_and_the_eviction_thread_ends() {
    explore(|| {
        let budget = Arc::new(SpaceBudget::new(400));
        let files = Arc::new(Mutex::new(0_u64));
        let evictor = {
            let (budget, files) = (Arc::clone(&budget), Arc::clone(&files));
            thread::spawn(move || {
                while budget.wait(Duration::ZERO) {
                    budget.begin_count();
                    let counted = *files.lock();
                    if budget.end_count(counted) {
                        budget.begin_count();
                        let mut files = files.lock();
                        *files = (*files).min(budget.target_bytes());
                        let counted = *files;
                        drop(files);
                        budget.end_count(counted);
                    }
                }
            })
        };
        let writers = [true, true, false].map(|is_written| {
            let (budget, files) = (Arc::clone(&budget), Arc::clone(&files));
            thread::spawn(move || {
                for _ in 0..3 {
                    while !budget.try_reserve(FILE_BYTES) {
                        thread::yield_now();
                    }
                    if is_written {
                        *files.lock() += FILE_BYTES;
                    }
                    budget.finish_write(FILE_BYTES, is_written);
                }
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(budget.usage().in_progress_bytes, 0);
        budget.close();
        evictor.join().unwrap();
        // The next count, which no writer disturbs, corrects what was counted twice.
        budget.begin_count();
        budget.end_count(*files.lock());
        assert_eq!(budget.total_bytes(), *files.lock());
    });
}
