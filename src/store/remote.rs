//! Sources behind a network: web servers and object stores.
//!
//! The rooms, from bottom to top. None names one above it, which `tests/layering` checks with this line:
//!
//! ```text
//! memory < request < protocol < known < bytes < store
//! ```
//!
//! - `memory` bounds cached bytes and response bodies, for all sources together.
//! - `request` has [`Remote`](request::Remote), which sends one request and returns the exact result, and a decorator
//!   that repeats failed requests within a deadline (`retry`), bounds the requests in flight (`limit`), and counts them
//!   (`transfer_stats`).
//! - `protocol` implements [`Remote`](request::Remote) for each kind of server (`web`, `bucket`, `hdfs`, `hf`, `keyvalue`).
//! - `known` has the names of one source (`KnownNames`): attributes, absence, listings, and when each was true.
//! - `bytes` has the values of one source (`KnownBytes`): whole, or ranges of one version of them.
//! - `store` is for everything above: `client` builds a source from its URL, `store` implements
//!   [`Store`](super::Store) for it, `open` determines what a URL refers to, `archive` reads a remote zip archive, and
//!   `reference_target` the targets of references.
//!
//! **Architecture Invariant:** absence is reported only for a response that proves it (404 for the key,
//! in a bucket that exists). A request that could not be sent is an error and is never cached.
//!
//! **Architecture Invariant:** every request names the version that it expects, if one is known,
//! and every response is compared with it: bytes of two versions are never mixed.

// What protocols share is not used by a build with few of them.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]

mod archive;
mod bytes;
mod client;
mod known;
mod memory;
mod open;
mod protocol;
mod reference_target;
mod request;
#[cfg(test)]
pub(crate) mod simulated;
mod store;
#[cfg(test)]
mod tests;

pub(super) use bytes::FirstRead;
pub use memory::RemoteMemory;
pub(super) use open::{OpenedSource, open, other_format_error};
pub use protocol::CredentialCommand;
#[cfg(feature = "fuzzing")]
pub use protocol::bucket::fuzz_listing;
pub use protocol::error::RemoteError as RemoteOpenError;
#[cfg(feature = "fuzzing")]
pub use protocol::hf::fuzz_hub_page;
pub use protocol::options::{RedirectPolicy, RemoteOptions};
pub use protocol::web::TlsOptions;
#[cfg(feature = "fuzzing")]
pub use protocol::web::fuzz_page;
pub(super) use protocol::web::{is_public, may_be_redirected, redirected_storage};
pub(super) use protocol::{
    Protocol, Syntax, label, lists_all_names, missing_feature, remote_examples,
};
pub use protocol::{has_escaped_path, is_remote_url, remote_schemes, schemes_without_feature};
pub(super) use reference_target::{AllowedBy, RemoteTarget, RemoteTargets, target_options};
pub use request::transfer_stats::{TransferCounters, TransferStats};
