//! Decoded views through real mounts: the test matrix of zarr-python 2 and 3, the namespace of
//! `.zarrfs`, hostile metadata and chunks, memory, and sources that change. The client is this
//! process or one it starts, the daemon is always another. Tests of the fault table carry its row in
//! their name (`c04_...` is row C4).
//!
//! Rows C3 (a page of HTML that fits exactly can not be told from a chunk) and C12 (there is no
//! decoder that loops) have no more than what is said here; C14 and C15 are proven by the matrix.
//!
//! The matrix is written by `tests/fixtures/setup.sh`.

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
#[path = "views/stores.rs"]
mod stores;

#[path = "views/changes.rs"]
mod changes;
#[path = "views/chunks.rs"]
mod chunks;
#[path = "views/claims.rs"]
mod claims;
#[path = "views/conflicts.rs"]
mod conflicts;
#[path = "views/geometry.rs"]
mod geometry;
#[path = "views/georef.rs"]
mod georef;
#[path = "views/holes.rs"]
mod holes;
#[path = "views/limits.rs"]
mod limits;
#[path = "views/load.rs"]
mod load;
#[path = "views/matrix.rs"]
mod matrix;
#[path = "views/metadata.rs"]
mod metadata;
#[path = "views/mutations.rs"]
mod mutations;
#[path = "views/namespace.rs"]
mod namespace;
#[path = "views/netcdf.rs"]
mod netcdf;
#[path = "views/rasters.rs"]
mod rasters;
#[path = "views/shards.rs"]
mod shards;
#[path = "views/translated.rs"]
mod translated;
#[path = "views/versions.rs"]
mod versions;
#[path = "views/writers.rs"]
mod writers;
