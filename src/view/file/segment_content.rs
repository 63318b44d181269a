//! The content of segments that only one format or encoder has, which implements it beside its own code.

use std::fmt::Debug;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::layout::SegmentSlice;
use crate::array::{ArrayReader, ServedVersions};
use crate::store::StoreError;

/// The content of a segment that is neither bytes nor elements, such as the rows of a table as text.
///
/// Its size and the bytes that are in memory follow from metadata.
pub trait SegmentContent: Debug + Send + Sync {
    /// Returns the size in the file in bytes; `None` if it overflows.
    fn size_bytes(&self) -> Option<u64>;

    /// Returns the memory of the content in bytes, including that of the value itself.
    fn memory_bytes(&self) -> u64;

    /// Hashes all that determines the bytes, apart from the arrays of the file and their tables of stored chunks. Files
    /// with the same hash may share pages of the kernel.
    fn hash_into(&self, hasher: &mut dyn Hasher);

    /// Returns the slice at the beginning of a range that is not empty: at least one byte, and no byte after the
    /// range. `None` if the content has no such byte.
    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>>;

    /// Returns `None` if any range of the content can be read. Otherwise the content is only read as a whole, and
    /// the file is made on the first read and cached: returns the memory that this takes in bytes, without that of
    /// the file.
    fn whole_read_bytes(&self) -> Option<u64> {
        None
    }
}

/// Bytes of a file that are made when they are read.
#[async_trait]
pub trait RenderedContent: Debug + Send + Sync {
    /// Fills `target` with a range of the bytes, which has the length of `target`. `sources` are the arrays of the
    /// file ([`VirtualFile::sources`](super::layout::VirtualFile::sources)); `served` is as in
    /// [`ArrayReader::read`].
    ///
    /// # Errors
    /// As [`ArrayReader::read`]; [`StoreError::Unsupported`] for an element that the format cannot express.
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError>;
}

// Slices are compared by the content that they are of.
impl PartialEq for dyn RenderedContent + '_ {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn RenderedContent + '_ {}

/// Returns the array with an index in the arrays of a file.
///
/// # Errors
/// [`StoreError::Internal`] if there is none.
pub(in crate::view) fn source(
    sources: &[Arc<ArrayReader>],
    number: usize,
) -> Result<&Arc<ArrayReader>, StoreError> {
    let reader = sources.get(number);
    reader.ok_or_else(|| StoreError::internal("a layout without its array"))
}
