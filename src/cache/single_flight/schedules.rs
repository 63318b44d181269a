//! Schedules of single flights.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use shuttle::future::yield_now;

use super::SingleFlight;
use crate::runtime::block_on;
use crate::sync::schedules::explore;
use crate::sync::thread;

type Loads = SingleFlight<u8, u32, &'static str>;

#[test]
fn no_two_loads_of_a_key_run_at_a_time() {
    explore(|| {
        let (loads, running) = (Arc::new(Loads::default()), Arc::new(AtomicUsize::new(0)));
        let callers = [1, 1, 2].map(|key| {
            let (loads, running) = (Arc::clone(&loads), Arc::clone(&running));
            thread::spawn(move || {
                let load = || async move {
                    let others = running.fetch_add(usize::from(key == 1), Ordering::SeqCst);
                    assert!(others == 0 || key == 2);
                    yield_now().await;
                    running.fetch_sub(usize::from(key == 1), Ordering::SeqCst);
                    Ok(7)
                };
                assert_eq!(block_on(loads.run(key, load, "panicked")), Ok(7));
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(loads.0.lock().by_key.is_empty());
    });
}

#[test]
fn a_caller_that_is_interrupted_leaves_the_others_their_load() {
    explore(|| {
        let loads = Arc::new(Loads::default());
        let callers = [true, false, false].map(|is_interrupted| {
            let loads = Arc::clone(&loads);
            thread::spawn(move || {
                let load = || async {
                    yield_now().await;
                    Ok(7)
                };
                let run = loads.run(1, load, "panicked");
                match is_interrupted {
                    true => drop(run.now_or_never()),
                    false => assert_eq!(block_on(run), Ok(7)),
                }
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(loads.0.lock().by_key.is_empty());
    });
}
