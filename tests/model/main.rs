//! Store and file system against a small reference model, in process: random requests, changes of the
//! source and failures of the store, and a fixed scenario in which every call of the store fails.
//!
//! `proptest` shrinks what fails to a small case. `ZARRFS_MODEL_CASES` is the number of random cases.

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

/// Cases of a run in which everything else is tested, too.
const DEFAULT_CASES: u32 = 400;

/// The number of random cases.
fn cases() -> u32 {
    let wanted = std::env::var("ZARRFS_MODEL_CASES");
    wanted.map_or(DEFAULT_CASES, |cases| {
        cases.parse().expect("ZARRFS_MODEL_CASES is a number")
    })
}

/// Whether more cases than in an ordinary run are wanted.
fn is_long() -> bool {
    cases() > DEFAULT_CASES
}

#[test]
fn random_operations_have_the_answers_of_the_model() {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    // An ordinary run has the same cases each time: what it finds was changed by the change at hand.
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
