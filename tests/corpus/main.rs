//! Level: hostile zips, rows A1 to A17 of the fault table: a table of archives with their expected
//! results. Every case runs three times: against the store in this process (also with `--strict`,
//! with `--verify` and under a counting allocator), against the same archive on a server, and
//! through a real mount, with this process as the client and the daemon as another. `mutations`
//! adds random mutations of good archives.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod cases;
mod coders;
mod in_process;
mod mounted;
mod records;
mod remote;
mod zipmaker;

mod mutations;
mod rows;
mod scenarios;
