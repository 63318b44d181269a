//! Level: the daemon as a process, on a real mount: start, end and recovery (rows J of the fault
//! table), mountpoints (G12) and users (H). The daemon is always another process. Each test has its
//! row in its name. Tests that need root are skipped if they do not run as root.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::place;

mod commands;
mod descriptor;
mod discovery;
mod ends;
mod mountpoints;
mod names;
mod run;
mod socket;
mod sources;
mod starts;
mod users;
