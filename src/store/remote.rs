//! Sources behind a network: web servers and object stores.
//!
//! The rooms, from bottom to top:
//!
//! ```text
//! memory < request < protocol < known < bytes < store
//! ```
//!
//! - `memory` bounds cached bytes and response bodies, for all sources together.
//! - `request` has [`Remote`](request::Remote), which sends one request and returns the exact result, and decorators
//!   of it: they count requests (`transfer_stats`), bound the requests in flight (`limit`), and retry within a deadline
//!   (`retry`).
//! - `protocol` implements [`Remote`](request::Remote) for each kind of server (`web`, `bucket`, `hdfs`, `hf`, `keyvalue`).
//! - `known` caches what is known about names (`attr_cache`, `listing`, `write_times`).
//! - `bytes` caches values and ranges of them (`value`, `blocks`, `whole_objects`).
//!
//! Above them, `store` makes a [`Store`](super::Store) of a source, `open` determines what a URL refers to, `archive`
//! reads a remote zip archive, and `reference_target` the targets of references.
//!
//! **Architecture Invariant:** absence is reported only for a response that proves it (404 for the key,
//! in a bucket that exists). A request that could not be sent is an error and is never cached.
//!
//! **Architecture Invariant:** every request names the version that it expects, if one is known,
//! and every response is compared with it: bytes of two versions are never mixed.

mod archive;
mod bytes;
mod client;
mod known;
mod memory;
mod open;
mod protocol;
mod reference_target;
mod request;
mod store;

pub use memory::RemoteMemory;
pub(super) use open::{OpenedSource, open, other_format_error};
#[cfg(feature = "fuzzing")]
pub use protocol::bucket::fuzz_listing;
pub use protocol::error::RemoteError as RemoteOpenError;
pub use protocol::options::{RedirectPolicy, RemoteOptions};
pub use protocol::web::TlsOptions;
#[cfg(feature = "fuzzing")]
pub use protocol::web::fuzz_page;
pub(super) use protocol::web::is_public;
pub(super) use protocol::{Protocol, Syntax, label, remote_examples};
pub use protocol::{has_escaped_path, is_remote_url, remote_schemes};
pub(super) use reference_target::{AllowedBy, FirstRead, RemoteTarget, RemoteTargets};
pub use request::transfer_stats::{TransferCounters, TransferStats};
