//! Files that are computed from nodes: decoded chunks, whole arrays in formats of other tools, and the
//! metadata of nodes as JSON.
//!
//! A file of elements is a [`FileLayout`]: an ordered list of headers, gaps and arrays, whose size and byte
//! ranges follow by arithmetic. A format is a pure function from the metadata of a node to a layout, so the
//! size of a file is known without decoding.

mod anndata;
mod beginning;
mod classic;
mod content;
mod csv;
mod dataset;
mod decoded;
mod elements;
mod encode;
mod file;
mod fits;
mod format;
mod format_set;
mod geotiff;
mod group_column;
mod group_tree;
mod layout;
mod load_tree;
mod missing_times;
mod mrc;
mod netcdf4;
mod nifti;
mod nodes;
mod npy;
mod ome_tiff;
mod packed;
mod padding;
mod parquet;
mod pictures;
mod plain_hdf5;
mod png;
mod read;
mod readme;
mod render;
mod resolve;
mod sidecar;
mod source_name;
mod stale_copies;
mod table;
mod texts;
mod view_list;

pub use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
pub use content::{CachedFile, Content, ContentId};
pub use encode::hdf5::ChunkIndex;
pub use file::ViewFile;
pub use format::{ESCAPE, Format, RenderHierarchy, Renderer};
pub use format_set::FormatSet;
pub use group_tree::{DecodedTexts, GroupArray, GroupTree, TreeScope};
pub use layout::{
    ArrayExtent, ElementOrder, FileLayout, RecordSlice, Segment, SegmentSlice, StoredExtent,
    VirtualFile,
};
pub use nodes::{Nodes, NodesOptions, alias};
pub use png::Picture;
pub(crate) use readme::shell_quoted;
