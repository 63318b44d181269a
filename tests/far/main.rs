//! A store that is far away and hangs, on a real mount: what is at hand is answered, who is told
//! to end ends, and nobody waits longer than the deadline. The store is a directory behind a gate
//! (`ZARRFS_TEST_FAR`), which the feature `test-faults` adds to the daemon.

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

mod at_hand;
mod deadline;
mod near;
mod told_to_end;
