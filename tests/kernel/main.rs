//! Real mounts of directories and zips on the real kernel. The client is this process or one of its children,
//! the daemon always another process. Each test has the row of the fault table (`tests/faults.md`) that it
//! proves in its name (`g06_...` is row G6). Tests that need root are skipped without it.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

use support::clients;

mod sources;

mod concurrency;
mod lifecycle;
mod limits;
mod links;
mod mutation;
mod reads;
mod refusals;
mod small_files;
mod tools;
