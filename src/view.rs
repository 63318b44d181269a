//! Files that are computed from nodes: decoded chunks, whole arrays in formats that old tools
//! read, and what is known of a node as JSON.
//!
//! A file of elements is a [`FileLayout`]: an ordered list of headers, gaps and arrays, of which size
//! and any byte range follow by arithmetic. A format is a pure function from a node's metadata to
//! a layout, so nothing is decoded to know how long a file is.

mod around;
mod branch;
mod cf;
mod classic;
mod content;
mod dataset;
mod elements;
mod file;
mod fits;
mod format;
mod gather;
mod georef;
mod geotiff;
mod hdf5;
mod layout;
mod making;
mod mrc;
mod netcdf4;
mod nifti;
mod node;
mod nodes;
mod npy;
mod number;
mod placed;
mod readme;
mod resolve;
mod sidecar;
mod texts;
mod tiff;

pub use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
pub use around::{ArrayView, NodeResolver};
pub use branch::{DecodedTexts, Depth, GroupArray, GroupTree};
pub use content::{CachedFile, Content, NoContent, Rendering};
pub use file::ViewFile;
pub use format::{Format, FormatSet, RenderHierarchy, Renderer};
pub use hdf5::ChunkIndex;
pub use layout::{
    ArrayExtent, ElementOrder, FileLayout, RecordSlice, Segment, SegmentSlice, VirtualFile,
};
pub use node::{ViewNode, attributes_at};
pub use nodes::{Nodes, NodesOptions};
pub use number::{Conversion, Number, NumberKind, Value};
pub(crate) use readme::shell_quoted;
