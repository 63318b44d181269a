//! What the formats of a node are, or why there are none.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// How long it took to make it.
    pub(super) took: Duration,
    pub(super) _memory: Reservation,
}

/// How long a file is trusted beside `--ttl`, in multiples of the time that it took to make it.
const TRUST: u32 = 4;

impl CachedFile {
    /// Whether the file is as good as a new one.
    pub(super) fn is_trusted(&self, is_immutable: bool, ttl: Duration) -> bool {
        let is_certain = is_immutable && !self.asked.is_in_vain;
        is_certain || self.asked.when.elapsed() < trust(ttl, self.took)
    }
}

/// How long a file is trusted. One that takes longer to make than `--ttl` would be made again for each request;
/// with `--ttl 0` it is.
fn trust(ttl: Duration, took: Duration) -> Duration {
    match ttl.is_zero() {
        true => ttl,
        false => ttl.saturating_add(took.saturating_mul(TRUST)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_make_is_trusted_for_longer_unless_nothing_is() {
        let seconds = Duration::from_secs;
        assert_eq!(trust(seconds(1), seconds(3)), seconds(13));
        assert_eq!(trust(seconds(60), Duration::ZERO), seconds(60));
        assert_eq!(trust(Duration::ZERO, seconds(3)), Duration::ZERO);
        assert_eq!(trust(Duration::MAX, seconds(3)), Duration::MAX);
    }
}
