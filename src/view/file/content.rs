//! The content of a node in each format.

use std::sync::Arc;
use std::time::Duration;

use super::layout::VirtualFile;
use super::nodes::FileId;
use crate::array::{ArrayReader, Reservation};
use crate::clock::Instant;
use crate::zarr::chunk_names::ChunkNames;

/// The content of a node in one format.
#[derive(Debug, Clone)]
pub enum Content {
    /// A rendered text.
    Text(Vec<u8>),
    /// A text of decoded elements; `Nodes::text` renders it.
    Elements(ContentId),
    /// A file with a layout.
    File(Arc<CachedFile>),
    /// A directory of chunks.
    Chunks(Arc<ArrayReader>, ChunkNames),
    /// A directory of inner chunks.
    Inner(Arc<ArrayReader>, ChunkNames),
}

/// Identifies a content that depends on more than the metadata of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentId {
    /// A hash of everything that determines the content.
    pub hash: u64,
    /// The size in bytes.
    pub size_bytes: u64,
}

/// A text that was rendered from decoded elements.
#[derive(Debug, Clone)]
pub(in crate::view) struct CachedText {
    pub(in crate::view) bytes: Arc<Vec<u8>>,
    pub(in crate::view) content_id: ContentId,
    pub(in crate::view) rendered: Instant,
}

/// A rendered file, with the memory of its headers.
#[derive(Debug)]
pub struct CachedFile {
    pub(in crate::view) id: FileId,
    pub(in crate::view) file: VirtualFile,
    /// The identity of the content, if it depends on more than its own node.
    pub content_id: Option<ContentId>,
    pub(in crate::view) inputs: InputTime,
    /// How long rendering took.
    pub(in crate::view) render_time: Duration,
    pub(in crate::view) _memory: Reservation,
}

/// How long a file is trusted if one of its inputs could not be read.
const FAILED_INPUT_TTL: Duration = Duration::from_secs(1);
/// A file is trusted for `--ttl` plus this multiple of the time that rendering took.
const RENDER_TIME_FACTOR: u32 = 4;

impl CachedFile {
    /// Returns whether the cached file can be served without rendering it again.
    pub(in crate::view) fn is_trusted(&self, is_immutable: bool, ttl: Duration) -> bool {
        if self
            .file
            .sources
            .iter()
            .any(|reader| reader.chunks().is_outdated())
        {
            return false;
        }
        let (age, has_failed_input) = (self.inputs.oldest.elapsed(), self.inputs.has_failed_input);
        match has_failed_input {
            // The input is read again as soon as errors of other reads would be.
            true => age < trust(ttl.min(FAILED_INPUT_TTL), self.render_time),
            false => is_immutable || age < trust(ttl, self.render_time),
        }
    }
}

/// Returns how long a file is trusted. Without the extra time, a file that takes longer to render than
/// `--ttl` would be rendered for each request. With `--ttl 0`, each request renders it.
fn trust(ttl: Duration, render_time: Duration) -> Duration {
    match ttl.is_zero() {
        true => ttl,
        false => ttl.saturating_add(render_time.saturating_mul(RENDER_TIME_FACTOR)),
    }
}

/// When the oldest input of a file was requested.
#[derive(Debug, Clone, Copy)]
pub(in crate::view) struct InputTime {
    pub(in crate::view) oldest: Instant,
    /// Whether an input could not be read, although a later attempt may succeed.
    pub(in crate::view) has_failed_input: bool,
}

impl InputTime {
    pub(in crate::view) fn now() -> Self {
        Self {
            oldest: Instant::now(),
            has_failed_input: false,
        }
    }
}

impl CachedFile {
    /// Size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.layout.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_slow_to_render_have_a_longer_ttl_unless_it_is_zero() {
        let seconds = Duration::from_secs;
        assert_eq!(trust(seconds(1), seconds(3)), seconds(13));
        assert_eq!(trust(seconds(60), Duration::ZERO), seconds(60));
        assert_eq!(trust(Duration::ZERO, seconds(3)), Duration::ZERO);
        assert_eq!(trust(Duration::MAX, seconds(3)), Duration::MAX);
    }
}
