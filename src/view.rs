//! Files that are computed from nodes: decoded chunks, whole arrays in formats of other tools, and the
//! metadata of nodes as JSON.
//!
//! A file of elements is a [`FileLayout`]: an ordered list of headers, gaps and arrays, whose size and byte
//! ranges follow by arithmetic. A format is a pure function from the metadata of a node to a layout, so the
//! size of a file is known without decoding.

mod dataset;
mod encode;
mod file;
mod format;
mod group;
mod resolve;

pub use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
pub use file::ViewFile;
pub use file::content::{CachedFile, Content, ContentId};
pub use file::layout::{
    ArrayExtent, ElementOrder, FileLayout, RecordSlice, Segment, SegmentSlice, StoredExtent,
    VirtualFile,
};
pub use file::nodes::{Nodes, NodesOptions, alias};
pub use file::segment_content::{RenderedContent, SegmentContent};
pub use format::format_set::FormatSet;
pub(crate) use format::metadata::readme::shell_quoted;
pub use format::{ESCAPE, Format, ParsedName, Renderer};
pub use group::tree::{DecodedTexts, GroupArray, GroupTree, TreeScope};
