//! Remote stores through real mounts: the fixture stores behind nginx and in object stores of S3,
//! Google and Azure are, byte for byte, what they are in a local directory. The servers are real and
//! on this machine; `tests/servers/setup.sh` installs them, `tests/fixtures/setup.sh` writes the
//! stores.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::servers;

mod compare;

mod hdfs;
mod http;
mod objects;
mod packed;
mod refusals;
mod requests;
mod themselves;
