//! Level: remote stores through real mounts. The fixture stores behind nginx and in S3, Google and
//! Azure object stores are identical to those in a local directory, byte for byte. The servers are
//! real and run on this machine; `tests/servers/setup.sh` installs them, `tests/fixtures/setup.sh`
//! writes the stores.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::servers;

mod chunk_keys;
mod compare;

mod credentials;
mod hdfs;
mod hf;
mod http;
mod objects;
mod packed;
mod refusals;
mod requests;
mod round_trips;
mod shared_cache;
mod test_servers;
mod tls;
