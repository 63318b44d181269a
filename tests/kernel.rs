//! Real mounts of directories and zips against the real kernel: the client is this process or one
//! it starts, the daemon is always another. Each test carries the row of the fault table (`tests/faults.md`)
//! it proves in its name (`g06_...` is row G6). Tests that need root say so and pass when they are not root.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod support;

#[path = "kernel/clients.rs"]
mod clients;
#[path = "kernel/sources.rs"]
mod sources;

#[path = "kernel/concurrency.rs"]
mod concurrency;
#[path = "kernel/lifecycle.rs"]
mod lifecycle;
#[path = "kernel/limits.rs"]
mod limits;
#[path = "kernel/links.rs"]
mod links;
#[path = "kernel/mutation.rs"]
mod mutation;
#[path = "kernel/reads.rs"]
mod reads;
#[path = "kernel/refusals.rs"]
mod refusals;
#[path = "kernel/tools.rs"]
mod tools;
