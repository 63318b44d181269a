//! Level: real mounts, read by test suites of other projects, which are Debian packages: fio reads with each of its
//! engines and verifies what it wrote itself; stress-ng stresses an overlay above a mount. And
//! a store that changes all the time, as several sources.
//!
//! Suites that have to be compiled run with `scripts/suites`, which also has the reasons why parts of them are excluded.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

mod fio;
mod soak;
mod stress;

use std::process::Command;

/// Whether a program can be started here.
fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
