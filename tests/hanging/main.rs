//! A remote store that hangs, on a real mount: cached values are returned, a fatal signal ends its
//! process, and no call outlasts the deadline. The store is a directory behind a gate
//! (`ZARRFS_TEST_HANG`), which the feature `test-faults` adds to the daemon.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

use support::clients;

mod gate;

mod cached;
mod deadline;
mod non_blocking;
mod probes;
mod signals;
