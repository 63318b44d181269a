//! Level: decoded views through real mounts: the test matrix of zarr-python 2 and 3, the namespace
//! of `.zarrfs`, hostile metadata and chunks, memory, and sources that change. The client is this
//! process or one of its children, the daemon always another process. Tests of the fault table have
//! their row in their name (`c04_...` is row C4).
//!
//! Two rows have no test: C3 (an HTML page that fits exactly is indistinguishable from a chunk) and
//! C12 (no decoder can loop). The matrix proves C14 and C15.
//!
//! `tests/fixtures/setup.sh` writes the matrix.

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

mod bgen;
mod changes;
mod chunks;
mod claims;
mod conflicts;
mod conventions;
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
mod missing;
mod mutations;
mod n5;
mod namespace;
mod netcdf;
mod newest;
mod packed;
mod pictures;
mod plink;
mod rasters;
mod shards;
mod stacks;
mod tables;
mod translated;
mod translated_xarray;
mod unlimited;
mod versions;
mod writers;
mod xarrays;
mod zfp;
