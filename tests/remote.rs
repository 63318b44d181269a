//! Remote stores through real mounts: the fixture stores behind nginx and in object stores of S3,
//! Google and Azure are, byte for byte, what they are in a local directory. The servers are real and
//! on this machine; `tests/servers/setup.sh` installs them, `tests/fixtures/setup.sh` writes the
//! stores.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

#[path = "support/servers.rs"]
mod servers;

#[path = "remote/compare.rs"]
mod compare;

#[path = "remote/http.rs"]
mod http;
#[path = "remote/objects.rs"]
mod objects;
#[path = "remote/refusals.rs"]
mod refusals;
#[path = "remote/requests.rs"]
mod requests;
#[path = "remote/themselves.rs"]
mod themselves;
