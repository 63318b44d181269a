//! One file of a node: which nodes and files are kept, what a file consists of, and how it is read.
//!
//! [`nodes`] opens nodes and keeps them. `render` makes the content of a file with a format, and keeps that too. A file
//! of elements is a [`layout`] of segments; [`read`](mod@read) serves a range of it, and `view_file` has its open
//! handles. Content that is neither bytes nor elements implements [`segment_content::SegmentContent`]; nothing here
//! names a format.

mod beginning;
pub(super) mod content;
pub(super) mod layout;
pub(super) mod nodes;
mod read;
pub(super) mod render;
pub(super) mod segment_content;
mod source_name;
mod texts;
mod view_file;
mod whole_file;

pub use view_file::ViewFile;
