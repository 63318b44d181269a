//! Level: the commands that mount nothing (`tree`, `info`, `check`, `completions`, `man`) and
//! `stats`, as a person and a script use them: what they print, and their exit codes (0 good,
//! 1 failure or something bad, 2 usage).
//!
//! The stores are written by `tests/fixtures/setup.sh` or, byte for byte, here.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::{faulty, place};

mod check;
mod export;
mod far;
mod generated;
mod json;
mod messages;
mod pages;
mod show;
mod stores;
mod without_fuse;
