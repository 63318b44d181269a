//! Level: documentation for users: the commands of the README and the manual, manual pages, completions.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::place;

mod commands;
mod help;
mod pages;
mod shells;
