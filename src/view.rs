//! Files that are computed from nodes: decoded chunks, whole arrays in formats of other tools, and the
//! metadata of nodes as JSON.
//!
//! A file of elements is a [`FileLayout`]: an ordered list of headers, gaps and arrays, whose size and byte
//! ranges follow by arithmetic. A format is a pure function from the metadata of a node to a layout, so the
//! size of a file is known without decoding.

mod beginning;
mod content;
mod dataset;
mod decoded;
mod encode;
mod file;
mod format;
mod group_column;
mod group_table;
mod group_tree;
mod layout;
mod load_tree;
mod nodes;
mod null_rows;
mod padding;
mod read;
mod render;
mod resolve;
mod segment_content;
mod source_name;
mod texts;
mod whole_file;

pub use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
pub use content::{CachedFile, Content, ContentId};
pub use file::ViewFile;
pub use format::format_set::FormatSet;
pub(crate) use format::metadata::readme::shell_quoted;
pub use format::{ESCAPE, Format, ParsedName, RenderHierarchy, Renderer};
pub use group_tree::{DecodedTexts, GroupArray, GroupTree, TreeScope};
pub use layout::{
    ArrayExtent, ElementOrder, FileLayout, RecordSlice, Segment, SegmentSlice, StoredExtent,
    VirtualFile,
};
pub use nodes::{Nodes, NodesOptions, alias};
pub use segment_content::{RenderedContent, SegmentContent};
