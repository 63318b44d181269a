//! Level: a real mount of a source that is backend away, over a server of this process that does
//! everything wrong that rows D of the fault table name (and I4, I5, F1, F7 and G2 for such a
//! source). Each test carries its row in its name.
//!
//! No element of any array here equals the fill value: one fill byte is a failure. What fails must
//! fail within the deadline, its siblings go on, and when the server is well again the next read
//! succeeds within two seconds.
//!
//! Not here: a redirect from https to http (row D12) and a certificate that is wrong (D6), which
//! take a server with TLS; packets that are lost without a word (D16) are requests that are held.

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
mod failures;
mod listings;
mod redirects;
mod server;
mod server_s3;
mod stalls;
