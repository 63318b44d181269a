//! Decoded views through real mounts: the test matrix of zarr-python 2 and 3, the namespace of
//! `.zarrfs`, hostile metadata and chunks, memory, and sources that change. The client is this
//! process or one it starts, the daemon is always another. Tests of the fault table carry its row in
//! their name (`c04_...` is row C4).
//!
//! Rows C3 (a page of HTML that fits exactly cannot be told from a chunk) and C12 (there is no
//! decoder that loops) have no more than what is said here; C14 and C15 are proven by the matrix.
//!
//! The matrix is written by `tests/fixtures/setup.sh`.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

use support::clients;

mod stores;

mod changes;
mod chunks;
mod claims;
mod conflicts;
mod discovery;
mod extensions;
mod geometry;
mod georef;
mod h5;
mod holes;
mod images;
mod limits;
mod load;
mod matrix;
mod metadata;
mod mutations;
mod n5;
mod namespace;
mod netcdf;
mod packed;
mod pictures;
mod rasters;
mod shards;
mod stacks;
mod tables;
mod translated;
mod unlimited;
mod versions;
mod writers;
mod zfp;
