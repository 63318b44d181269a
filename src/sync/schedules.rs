//! Runs unit tests under many schedules of their threads. shuttle chooses at each operation of a primitive of
//! [`sync`](super) which thread continues; a deadlock is a failure.
//!
//! Each schedule has a seed. `ZARRFS_SCHEDULES` is the number of schedules of each test, and `ZARRFS_SCHEDULE_SEED` the
//! seed of a single one. Atomic operations are sequentially consistent here: weaker orders are not tested. Reference
//! counts ([`Arc`]) are not points where threads change.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// The number of schedules of each test in an ordinary run.
const DEFAULT_SCHEDULES: u64 = 1000;
/// The size of the stack of a thread in bytes.
const STACK_BYTES: usize = 1 << 20;
/// The number of steps after which threads are taken to wait for each other without blocking.
const MAX_STEPS: usize = 100_000;

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

/// Runs `body` under many schedules.
///
/// # Panics
/// If the body panics or its threads wait for each other; then the seed of the schedule is printed.
pub(crate) fn explore(body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let seeds = match number("ZARRFS_SCHEDULE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ZARRFS_SCHEDULES").unwrap_or(DEFAULT_SCHEDULES),
    };
    for seed in seeds {
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::None;
        config.stack_size = STACK_BYTES;
        config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
        let runner = Runner::new(RandomScheduler::new_from_seed(seed, 1), config);
        let own = Arc::clone(&body);
        let run = AssertUnwindSafe(|| runner.run(move || own()));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("to repeat this schedule: ZARRFS_SCHEDULE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_notification_is_found() {
    explore(|| {
        let shared = Arc::new((super::Mutex::new(false), super::Condvar::new()));
        let other = Arc::clone(&shared);
        let waiter = super::thread::spawn(move || {
            // The lock is released between the look and the wait.
            if !*other.0.lock() {
                drop(other.1.wait(other.0.lock()));
            }
        });
        *shared.0.lock() = true;
        shared.1.notify_one();
        waiter.join().unwrap();
    });
}
