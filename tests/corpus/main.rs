//! Hostile zips, rows A1 to A17 of the fault table: a table of archives, each with what must
//! become of it. Every case is run three times: against the store in this process (also with
//! `--strict`, with `--verify` and under a counting allocator), against the same as a remote archive,
//! and through a real mount, where this process is the client and the daemon another. Random
//! mutations of good archives follow in `mutations`.

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
