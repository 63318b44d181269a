//! Files that are computed from nodes: decoded chunks, whole arrays in formats that old tools
//! read, and what is known of a node as JSON.
//!
//! A file of elements is a [`Layout`]: an ordered list of headers, gaps and arrays, of which size
//! and any byte range follow by arithmetic. A format is a pure function from a node's metadata to
//! a layout, so nothing is decoded to know how long a file is.

mod elements;
mod file;
mod format;
mod layout;
mod node;
mod nodes;
mod npy;
mod sidecar;

use crate::translate::documents as document;
pub use crate::zarr::chunk_names::{Cell, ChunkNames, Found};
pub use file::ViewFile;
pub use format::{Format, FormatSet};
pub use layout::{Layout, Part, Placement};
pub use node::{ViewNode, attributes_at};
pub use nodes::{Content, NoContent, Nodes, NodesOptions, Rendering};
