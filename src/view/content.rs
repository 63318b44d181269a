//! What the formats of a node are, or why there are none.

use std::sync::Arc;
use std::time::Instant;

use super::layout::VirtualFile;
use crate::array::{ArrayReader, Reservation};
use crate::store::StoreError;
use crate::translate::NoOutline;
use crate::zarr::chunk_names::ChunkNames;

/// What a format of a node is.
#[derive(Debug, Clone)]
pub enum Content {
    /// A text that was made.
    Text(Vec<u8>),
    /// The text of decoded elements; `Nodes::text` has it.
    Elements(Rendering),
    /// A file of parts.
    File(Arc<CachedFile>),
    /// A directory of chunks.
    Chunks(Arc<ArrayReader>, ChunkNames),
    /// A directory of inner chunks.
    Inner(Arc<ArrayReader>, ChunkNames),
}

/// Which content a file has that is not told by the metadata of its node alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// A hash of all that makes it.
    pub hash: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// A text that was made of decoded elements.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) rendering: Rendering,
    pub(super) made: Instant,
}

/// A computed file, with the memory that its headers take.
#[derive(Debug)]
pub struct CachedFile {
    pub(super) made: VirtualFile,
    /// What it is made of, where that is more than its own node.
    pub rendering: Option<Rendering>,
    pub(super) asked: Asked,
    pub(super) _memory: Reservation,
}

/// When the oldest was asked for of what a file is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) when: Instant,
    /// Whether something of it could not be had: that may be another time.
    pub(super) is_in_vain: bool,
}

impl Asked {
    pub(super) fn now() -> Self {
        Self {
            when: Instant::now(),
            is_in_vain: false,
        }
    }
}

/// Why there is no file of a format.
#[derive(Debug, Clone)]
pub enum NoContent {
    /// It cannot be made of this node.
    Absent(String),
    /// What it is made of could not be read.
    Failed(StoreError),
    /// A node or numbers that it is made of have to be read first (`resolve`).
    Unresolved,
}

impl NoContent {
    /// Why what a user or the kernel asked for is not there, as an error of a key.
    pub fn into_error(self, key: &crate::store::Key) -> StoreError {
        match self {
            Self::Absent(_) => StoreError::NotFound { key: key.clone() },
            Self::Failed(error) => error,
            Self::Unresolved => StoreError::internal("a node that was not resolved"),
        }
    }
}

impl From<StoreError> for NoContent {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for NoContent {
    fn from(why: String) -> Self {
        Self::Absent(why)
    }
}

impl From<NoOutline> for NoContent {
    fn from(none: NoOutline) -> Self {
        match none {
            NoOutline::Absent(why) => Self::Absent(why),
            NoOutline::Failed(error) => Self::Failed(error),
        }
    }
}

impl CachedFile {
    /// Size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.made.layout.size_bytes()
    }
}
