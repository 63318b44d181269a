//! Schedules of the memory limit.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::MemoryLimit;
use crate::clock::Instant;
use crate::runtime::block_on;
use crate::sync::schedules::explore;
use crate::sync::thread;

#[test]
fn every_reservation_is_granted_when_others_are_released() {
    explore(|| {
        let memory = Arc::new(MemoryLimit::new(100));
        let callers = [(60, false), (70, true), (80, false)].map(|(bytes, is_interrupted)| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(3600);
                let reserve = memory.reserve(bytes, deadline, |_| false);
                let reserved = match is_interrupted {
                    true => reserve.now_or_never(),
                    false => Some(block_on(reserve)),
                };
                thread::yield_now();
                assert!(memory.used_bytes() <= 100);
                drop(reserved);
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(memory.used_bytes(), 0);
    });
}
