//! Level: store and file system against a small reference model, in process: random requests,
//! source changes and store failures, and a fixed scenario in which every call of the store fails.
//!
//! `proptest` shrinks failures to small cases. `ZARRFS_MODEL_CASES` is the number of random cases.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod arrays;
mod assembly;
mod failing;
mod kernel;
mod operations;
mod reference;
mod walk;

#[allow(dead_code)]
#[path = "../corpus/coders.rs"]
mod coders;
#[allow(dead_code)]
#[path = "../corpus/records.rs"]
mod records;
#[allow(dead_code)]
#[path = "../corpus/zipmaker.rs"]
mod zipmaker;

use proptest::test_runner::{Config, TestError, TestRng, TestRunner};

/// The number of cases in an ordinary run of all tests.
const DEFAULT_CASES: u32 = 400;

/// Returns the number of random cases.
fn cases() -> u32 {
    let wanted = std::env::var("ZARRFS_MODEL_CASES");
    wanted.map_or(DEFAULT_CASES, |cases| {
        cases.parse().expect("ZARRFS_MODEL_CASES is a number")
    })
}

/// Returns whether the run has more cases than an ordinary one.
fn is_long() -> bool {
    cases() > DEFAULT_CASES
}

#[test]
fn random_operations_have_the_results_of_the_model() {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    // An ordinary run has the same cases each time, so that a new failure is due to the current change.
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = match is_long() {
        true => TestRunner::new(config),
        false => TestRunner::new_with_rng(config, rng),
    };
    let run = runner.run(&operations::case(), |case| {
        operations::run(&case);
        Ok(())
    });
    match run {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => panic!("{reason}\n{case}"),
        Err(error) => panic!("{error}"),
    }
}
