//! A store that is far away and hangs, on a real mount: what is at hand is answered, who is told
//! to end ends, and nobody waits longer than the deadline. The store is a directory behind a gate
//! (`ZARRFS_TEST_FAR`), which only builds for tests have.

#![cfg(debug_assertions)]
#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod support;

#[allow(dead_code)]
#[path = "kernel/clients.rs"]
mod clients;
#[path = "far/gate.rs"]
mod gate;

#[path = "far/at_hand.rs"]
mod at_hand;
#[path = "far/deadline.rs"]
mod deadline;
#[path = "far/near.rs"]
mod near;
#[path = "far/told_to_end.rs"]
mod told_to_end;
