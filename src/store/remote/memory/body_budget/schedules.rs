//! Schedules of the budget of response bodies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::{BodyBudget, UNIT_BYTES};
use crate::runtime::block_on;
use crate::sync::schedules::explore;
use crate::sync::thread;

#[test]
fn every_body_gets_memory_and_returns_it() {
    explore(|| {
        let budget = Arc::new(BodyBudget::new(10 * UNIT_BYTES));
        let callers = [(6, false), (7, true), (8, false)].map(|(units, is_interrupted)| {
            let budget = Arc::clone(&budget);
            thread::spawn(move || {
                let spare = budget.try_reserve_spare(UNIT_BYTES);
                drop(spare);
                let reserve = budget.reserve(units * UNIT_BYTES, Duration::from_secs(3600));
                let reserved = match is_interrupted {
                    true => reserve.now_or_never().flatten(),
                    false => Some(block_on(reserve).unwrap()),
                };
                thread::yield_now();
                drop(reserved);
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(budget.free.available_permits(), 10);
    });
}
