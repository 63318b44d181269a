//! Level: the commands that mount nothing (`tree`, `info`, `check`, `completions`, `man`) and
//! `stats`, as a person and a script use them: what they print, and their exit codes (0 good,
//! 1 failure or something bad, 2 usage).
//!
//! The stores are written by `tests/fixtures/setup.sh` or, byte for byte, here.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "commands/check.rs"]
mod check;
#[path = "commands/far.rs"]
mod far;
#[allow(unused_imports)]
#[path = "support/faulty.rs"]
mod faulty;
#[path = "commands/generated.rs"]
mod generated;
#[path = "commands/pages.rs"]
mod pages;
#[allow(dead_code)]
#[path = "daemon/place.rs"]
mod place;
#[path = "commands/show.rs"]
mod show;
#[path = "commands/stores.rs"]
mod stores;
mod support;
