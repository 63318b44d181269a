//! Level: a real mount of a remote source, over a server in the process of the test that produces
//! all faults of rows D of the fault table (and I4, I5, F1, F7 and G2 for remote sources). Each
//! test has its row in its name.
//!
//! No element of any array equals the fill value, so a single fill byte is a failure. A faulty
//! access must fail within the deadline, and other arrays keep working. When the server works
//! again, the next read succeeds within two seconds.
//!
//! `tests/remote/tls.rs` covers a redirect from https to http (row D12) and certificates (D6), which
//! need a server with TLS. Lost packets (D16) are simulated by held requests.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

use support::{clients, faulty};

mod client;
mod remote;

mod absence;
mod access;
mod bodies;
mod changes;
mod counters;
mod disk_cache;
mod failures;
mod listings;
mod redirects;
mod server;
mod server_s3;
mod stale_metadata;
mod stalls;
mod stories;
