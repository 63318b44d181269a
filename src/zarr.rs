//! Parses metadata of Zarr versions 2 and 3, and of N5: bytes in, types out, no I/O.
//!
//! The module owns nodes (groups and arrays), data types, chunk grids and chunk key encodings. It does not
//! depend on stores, and knows codecs only by name and configuration.

pub mod array;
pub mod chunk_key;
pub mod chunk_names;
pub mod codec_chain;
pub mod consolidated;
pub mod data_type;
pub mod document;
pub mod error;
mod fanout;
pub mod fill_value;
pub mod grid;
#[cfg(test)]
mod hostile;
mod info;
mod key_template;
mod n5;
pub mod narrow_float;
pub mod node;
pub mod real;
mod unused_edges;
pub mod v1;
mod v2;
mod v3;

pub use array::{Array, Decodable};
pub use chunk_key::ChunkKeys;
pub use chunk_names::ChunkNames;
pub use codec_chain::{CodecChain, CodecSpec, Order};
pub use consolidated::Consolidated;
pub use data_type::{ByteOrder, DataType, Field, Fixed, Scalar, Variable};
pub use error::{MetadataError, Unsupported};
pub use fill_value::FillValue;
pub use grid::ChunkGrid;
pub use n5::{is_n5_dataset, is_n5_root};
pub use node::{ATTRIBUTES_JSON, DOCUMENT_NAMES, Detected, Documents, Group, Node};
pub(crate) use v2::ARRAY_DIMENSIONS;
pub use v2::{chunk_names_without_separator, with_nested_chunks};

/// The specification of a node's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZarrFormat {
    /// Zarr version 2: `.zarray`, `.zgroup`, `.zattrs`.
    V2,
    /// Zarr version 3: `zarr.json`.
    V3,
    /// N5: `attributes.json`.
    N5,
}
