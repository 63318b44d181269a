//! Level: the commands without a mount (`tree`, `info`, `check`, `completions`, `man`) and `stats`,
//! as users and scripts use them: their output and exit codes (0 success, 1 failure or a bad
//! finding, 2 usage).
//!
//! The stores are written by `tests/fixtures/setup.sh` or, byte by byte, in these tests.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::{faulty, place};

mod check;
mod collections;
mod export;
mod generated;
mod json;
mod messages;
mod pages;
mod preview;
mod remote;
mod show;
mod stac;
mod stale_metadata;
mod stand_ins;
mod stores;
mod without_fuse;
