//! Zarr metadata, version 2 and 3: bytes in, types out, no I/O.
//!
//! Owns what a node is (group or array), what its elements are ([`DataType`]), how an array is cut
//! into chunks and how these are named. Knows nothing of stores, and of codecs only their names and
//! configurations.

pub mod data_type;
