//! The layout of a virtual file: segments whose sizes follow by arithmetic.
//!
//! The variants of [`Segment`] are general. Content that only one format or encoder has implements
//! [`SegmentContent`] beside it.

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use super::segment_content::{RenderedContent, SegmentContent};
use crate::array::{ArrayReader, ChunkTable};
use crate::node::Conversion;
use crate::store::{StoreError, in_memory, part};

/// The order of an array's elements in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementOrder {
    /// In C order over the whole array.
    RowMajor,
    /// Chunk by chunk (inner chunks of shards), in C order over the chunk grid. Each chunk is complete, in C
    /// order, including the elements beyond the edges of the array.
    ChunkMajor,
}

/// The elements of an array in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayExtent {
    /// The index of the array in [`VirtualFile::sources`].
    pub source: usize,
    /// The order of the elements.
    pub order: ElementOrder,
    /// The conversion of the numbers, if the file has a different type.
    pub conversion: Option<Conversion>,
    /// Size in the file, in bytes.
    pub size_bytes: u64,
}

impl ArrayExtent {
    /// Returns the extent of all elements of an array; `None` if their converted size overflows.
    pub fn new(
        source: usize,
        reader: &ArrayReader,
        order: ElementOrder,
        conversion: Option<Conversion>,
    ) -> Option<Self> {
        let size_bytes = match order {
            ElementOrder::RowMajor => reader.size_bytes(),
            // Chunks of different shapes have no chunk-major order.
            ElementOrder::ChunkMajor => reader
                .read_chunk_shape()
                .map(|_| reader.chunk_major_bytes())?,
        };
        let conversion = conversion.filter(|conversion| !conversion.is_identity());
        let size_bytes = match &conversion {
            Some(conversion) => conversion.target_bytes(size_bytes)?,
            None => size_bytes,
        };
        Some(Self {
            source,
            order,
            conversion,
            size_bytes,
        })
    }
}

/// The stored chunks of an array, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredExtent {
    /// The index of the array in [`VirtualFile::sources`].
    pub source: usize,
    /// The sizes and offsets of the stored chunks.
    pub table: Arc<ChunkTable>,
}

/// A part of a record: bytes of an array, followed by zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSlice {
    /// The array; each record has its next `size_bytes` bytes.
    pub extent: ArrayExtent,
    /// Number of bytes of the array in each record.
    pub size_bytes: u64,
    /// Number of zero bytes after them.
    pub padding_bytes: u64,
}

/// The elements of an array with one axis moved inwards. The array has blocks along the leading axes `outer`,
/// `moved` and `inner`; the file has them in the order `outer`, `inner`, `moved`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAxis {
    /// The array, in row-major order, without a conversion that changes sizes.
    pub extent: ArrayExtent,
    /// Number of blocks along the axes before the moved axis.
    pub outer: u64,
    /// Number of blocks along the moved axis.
    pub moved: u64,
    /// Number of blocks along the axes that the moved axis is moved behind.
    pub inner: u64,
}

impl MovedAxis {
    /// Returns the slice at the beginning of a range, up to the end of its block.
    fn at(&self, range: &Range<u64>) -> Option<SegmentSlice<'_>> {
        let whole = self.moved.checked_mul(self.inner)?;
        let block_bytes = (self.extent.size_bytes).checked_div(self.outer.checked_mul(whole)?)?;
        let block = range.start.checked_div(block_bytes)?;
        let (outer, rest) = (block / whole, block % whole);
        let (inner, moved) = (rest / self.moved, rest % self.moved);
        let block = (outer * self.moved + moved) * self.inner + inner;
        let within = range.start % block_bytes;
        let length = range.end.saturating_sub(range.start);
        let start = block.checked_mul(block_bytes)?.checked_add(within)?;
        let end = start.checked_add(length.min(block_bytes - within))?;
        Some(SegmentSlice::Array(&self.extent, start..end))
    }
}

/// A segment of a file.
#[derive(Debug, Clone)]
pub enum Segment {
    /// Literal bytes.
    Bytes(Vec<u8>),
    /// A number of zero bytes.
    Zeros(u64),
    /// The elements of an array.
    Array(ArrayExtent),
    /// The stored chunks of an array.
    Stored(StoredExtent),
    /// The elements of an array with one axis moved inwards.
    Moved(MovedAxis),
    /// A number of records, each with a slice of every array.
    Records(u64, Vec<RecordSlice>),
    /// Content of one format or encoder.
    Content(Arc<dyn SegmentContent>),
    /// A number of bytes that cannot be read, for the reason with this index in `Readability::errors`.
    Unread(usize, u64),
}

impl Segment {
    /// Returns a segment with the content of one format or encoder.
    pub(in crate::view) fn content(content: impl SegmentContent + 'static) -> Self {
        Self::Content(Arc::new(content))
    }

    /// Returns the size in bytes; `None` if it overflows.
    fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Zeros(size) | Self::Unread(_, size) => Some(*size),
            Self::Array(extent) => Some(extent.size_bytes),
            Self::Moved(moved) => Some(moved.extent.size_bytes),
            Self::Stored(extent) => Some(extent.table.size_bytes()),
            Self::Records(count, slices) => record_bytes(slices)?.checked_mul(*count),
            Self::Content(content) => content.size_bytes(),
        }
    }
}

impl From<ArrayExtent> for Segment {
    fn from(extent: ArrayExtent) -> Self {
        Self::Array(extent)
    }
}

impl From<StoredExtent> for Segment {
    fn from(extent: StoredExtent) -> Self {
        Self::Stored(extent)
    }
}

fn record_bytes(slices: &[RecordSlice]) -> Option<u64> {
    slices.iter().try_fold(0_u64, |sum, slice| {
        sum.checked_add(slice.size_bytes)?
            .checked_add(slice.padding_bytes)
    })
}

/// Alignment of the elements of each array. The kernel reads whole pages: an element that fails to decode must
/// not share a page with another array.
pub(in crate::view) const ARRAY_ALIGNMENT_BYTES: u64 = 8192;
/// Alignment of the elements of a large file.
const ELEMENTS_ALIGNMENT_BYTES: u64 = 1 << 20;
/// The bytes that netCDF-C 4.10 reads to open a file. If any of them cannot be read, it does not open the file.
pub(in crate::view) const READ_TO_OPEN_BYTES: u64 = 4 << 20;
/// The minimum gap between the header and the elements of a file with a gap. This range must not contain elements,
/// whose decoding takes time and may fail; the kernel adds readahead.
const GAP_BYTES: u64 = READ_TO_OPEN_BYTES;
/// A file with more bytes of elements is large, and has a gap. In a smaller file, the gap would be most of the
/// file: it has one only if its beginning cannot be read (`view/beginning.rs`).
const MAX_BYTES_WITHOUT_GAP: u64 = 16 << 20;

/// Returns whether a file with `size_bytes` of elements in total has a gap before them.
pub(in crate::view) fn has_gap(size_bytes: u64) -> bool {
    size_bytes > MAX_BYTES_WITHOUT_GAP
}

/// Returns the offset of elements after a header that ends at `header_end`: after a gap, or at the next multiple of
/// `alignment`. `None` on overflow.
pub(in crate::view) fn elements_start(
    header_end: u64,
    has_gap: bool,
    alignment: u64,
) -> Option<u64> {
    match has_gap {
        true => header_end
            .checked_add(GAP_BYTES)?
            .checked_next_multiple_of(ELEMENTS_ALIGNMENT_BYTES),
        false => header_end.checked_next_multiple_of(alignment),
    }
}

/// An ordered list of segments.
#[derive(Debug, Clone)]
pub struct FileLayout {
    /// Each segment with its end offset in the file.
    segments: Vec<(u64, Segment)>,
}

/// A range of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentSlice<'a> {
    /// Literal bytes.
    Bytes(&'a [u8]),
    /// A number of zero bytes.
    Zeros(u64),
    /// A range of the bytes of an array extent.
    Array(&'a ArrayExtent, Range<u64>),
    /// A range of the bytes of stored chunks.
    Stored(&'a StoredExtent, Range<u64>),
    /// A range of bytes that their format or encoder makes.
    Rendered(&'a dyn RenderedContent, Range<u64>),
    /// A number of bytes that cannot be read, as [`Segment::Unread`].
    Unread(usize, u64),
}

impl SegmentSlice<'_> {
    /// Returns the size in bytes.
    pub(in crate::view) fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(count) | Self::Unread(_, count) => *count,
            Self::Array(_, range) | Self::Stored(_, range) | Self::Rendered(_, range) => {
                range.end - range.start
            }
        }
    }
}

impl FileLayout {
    /// Returns the layout of consecutive segments; `None` above 2^63 - 1 bytes, the kernel's file size limit.
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Option<Self> {
        let mut end: u64 = 0;
        let mut ends = Vec::new();
        for segment in segments {
            end = end.checked_add(segment.size_bytes()?)?;
            ends.push((end, segment));
        }
        i64::try_from(end).ok()?;
        Some(Self { segments: ends })
    }

    /// Returns the size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |(end, _)| *end)
    }

    /// Returns the memory of the layout in bytes: its headers and tables of stored chunks.
    pub fn header_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(|(_, segment)| match segment {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Records(_, slices) => size_of_val(&slices[..]) as u64,
            Segment::Content(content) => content.memory_bytes(),
            Segment::Stored(extent) => extent.table.memory_bytes(),
            Segment::Zeros(_) | Segment::Array(_) | Segment::Moved(_) | Segment::Unread(..) => 0,
        });
        segments.sum::<u64>() + size_of_val(&self.segments[..]) as u64
    }

    /// Hashes the headers and the content of one format, in order.
    pub(in crate::view) fn hash_into(&self, hasher: &mut dyn Hasher) {
        for (_, segment) in &self.segments {
            match segment {
                Segment::Bytes(bytes) => hasher.write(bytes),
                Segment::Content(content) => content.hash_into(hasher),
                _ => {}
            }
        }
    }

    /// Returns `None` if any range of the file can be read. Otherwise the file is only read as a whole: returns the
    /// memory that this takes in bytes, without that of the file.
    pub(in crate::view) fn whole_read_bytes(&self) -> Option<u64> {
        let contents = self.segments.iter();
        let bytes = contents.filter_map(|(_, segment)| match segment {
            Segment::Content(content) => content.whole_read_bytes(),
            _ => None,
        });
        bytes.reduce(u64::saturating_add)
    }

    /// Returns the tables of stored chunks, in order.
    pub fn tables(&self) -> impl Iterator<Item = &ChunkTable> {
        self.segments
            .iter()
            .filter_map(|(_, segment)| match segment {
                Segment::Stored(extent) => Some(&*extent.table),
                _ => None,
            })
    }

    /// Returns the slice at `offset`, up to `size` bytes of one segment; `None` at the end of the file.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if a segment contradicts its size.
    pub fn at(&self, offset: u64, size: u64) -> Result<Option<SegmentSlice<'_>>, StoreError> {
        let index = self.segments.partition_point(|(end, _)| *end <= offset);
        let Some((end, segment)) = self.segments.get(index) else {
            return Ok(None);
        };
        let start = match index
            .checked_sub(1)
            .and_then(|before| self.segments.get(before))
        {
            Some((end, _)) => *end,
            None => 0,
        };
        let inside = offset.saturating_sub(start)..offset.saturating_add(size).min(*end) - start;
        Ok(Some(match segment {
            Segment::Bytes(bytes) => {
                let inside = in_memory(inside.start)?..in_memory(inside.end)?;
                SegmentSlice::Bytes(part(bytes, inside)?)
            }
            Segment::Zeros(_) => SegmentSlice::Zeros(inside.end.saturating_sub(inside.start)),
            Segment::Unread(error, _) => {
                SegmentSlice::Unread(*error, inside.end.saturating_sub(inside.start))
            }
            Segment::Array(extent) => SegmentSlice::Array(extent, inside),
            Segment::Stored(extent) => SegmentSlice::Stored(extent, inside),
            Segment::Moved(moved) => moved
                .at(&inside)
                .ok_or_else(|| StoreError::internal(format!("no block has byte {offset}")))?,
            Segment::Content(content) => content
                .at(inside)
                .ok_or_else(|| StoreError::internal(format!("no content has byte {offset}")))?,
            Segment::Records(_, slices) => in_records(slices, &inside)
                .ok_or_else(|| StoreError::internal(format!("no record has byte {offset}")))?,
        }))
    }
}

/// Returns the slice at the beginning of a range of records.
fn in_records<'a>(slices: &'a [RecordSlice], range: &Range<u64>) -> Option<SegmentSlice<'a>> {
    let whole = record_bytes(slices)?;
    let record = range.start.checked_div(whole)?;
    let size = range.end.saturating_sub(range.start);
    let mut inside = range.start % whole;
    for slice in slices {
        if inside < slice.size_bytes {
            let length = size.min(slice.size_bytes - inside);
            let start = record.checked_mul(slice.size_bytes)?.checked_add(inside)?;
            return Some(SegmentSlice::Array(
                &slice.extent,
                start..start.checked_add(length)?,
            ));
        }
        inside -= slice.size_bytes;
        if inside < slice.padding_bytes {
            return Some(SegmentSlice::Zeros(size.min(slice.padding_bytes - inside)));
        }
        inside -= slice.padding_bytes;
    }
    None
}

/// A virtual file: its layout, the arrays of its elements, and notes.
#[derive(Debug, Clone)]
pub struct VirtualFile {
    /// The layout.
    pub layout: FileLayout,
    /// The arrays; [`ArrayExtent::source`] is an index into this list.
    pub sources: Vec<Arc<ArrayReader>>,
    /// What the file leaves out and why, one line each.
    pub notes: Vec<String>,
    /// The length in bytes of the blocks that fail as a whole, or 1: a read of any part of a block fails if
    /// another part cannot be read.
    pub block_bytes: u64,
    /// Which parts of the file cannot be read, or must be readable.
    pub readability: Readability,
}

/// Which parts of a file cannot be read, and which must be readable so that programs can open it.
#[derive(Debug, Clone, Default)]
pub struct Readability {
    /// Why elements that the file should contain could not be read when it was rendered ([`Segment::Unread`]).
    pub errors: Vec<StoreError>,
    /// Whether any other input could not be read, although a later attempt may succeed.
    pub has_failed_input: bool,
    /// The number of bytes at the beginning that programs read to open the file, if elements are among them.
    pub read_to_open_bytes: u64,
}

impl VirtualFile {
    /// Returns a text file.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        let segment = Segment::Bytes(text.into());
        let size = segment.size_bytes().unwrap_or(0);
        Self {
            layout: FileLayout {
                segments: vec![(size, segment)],
            },
            sources: Vec::new(),
            notes: Vec::new(),
            block_bytes: 1,
            readability: Readability::default(),
        }
    }

    /// Returns a file with the elements of one array.
    ///
    /// # Errors
    /// The file would exceed 2^63 - 1 bytes.
    pub fn of_array(
        reader: &Arc<ArrayReader>,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<Self, String> {
        let layout = FileLayout::new(segments)
            .ok_or_else(|| format!("{} bytes: no file can be so long", reader.size_bytes()))?;
        Ok(Self {
            layout,
            sources: vec![Arc::clone(reader)],
            notes: Vec::new(),
            block_bytes: 1,
            readability: Readability::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(size_bytes: u64) -> ArrayExtent {
        ArrayExtent {
            source: 0,
            order: ElementOrder::RowMajor,
            conversion: None,
            size_bytes,
        }
    }

    #[test]
    fn each_byte_is_that_of_its_segment() {
        let array = extent(100);
        let layout = FileLayout::new([
            Segment::Bytes(b"head".to_vec()),
            Segment::Zeros(3),
            Segment::Bytes(Vec::new()),
            Segment::Array(array.clone()),
        ])
        .unwrap();
        assert_eq!(layout.size_bytes(), 107);
        assert_eq!(
            layout.at(0, 100).unwrap(),
            Some(SegmentSlice::Bytes(b"head"))
        );
        assert_eq!(layout.at(1, 2).unwrap(), Some(SegmentSlice::Bytes(b"ea")));
        assert_eq!(layout.at(5, 100).unwrap(), Some(SegmentSlice::Zeros(2)));
        assert_eq!(
            layout.at(7, 1000).unwrap(),
            Some(SegmentSlice::Array(&array, 0..100))
        );
        assert_eq!(
            layout.at(50, 7).unwrap(),
            Some(SegmentSlice::Array(&array, 43..50))
        );
        assert_eq!(layout.at(107, 1).unwrap(), None);
    }

    #[test]
    fn a_moved_axis_is_the_fastest_of_the_leading_ones() {
        // Blocks of 4 bytes: outer 2, moved 3, inner 2.
        let moved = MovedAxis {
            extent: extent(48),
            outer: 2,
            moved: 3,
            inner: 2,
        };
        let layout = FileLayout::new([Segment::Zeros(8), Segment::Moved(moved)]).unwrap();
        assert_eq!(layout.size_bytes(), 56);
        let blocks = (0..12).map(|n| match layout.at(8 + 4 * n + 1, 100).unwrap() {
            Some(SegmentSlice::Array(_, range)) if range.end - range.start == 3 => range.start / 4,
            other => panic!("{other:?}"),
        });
        let blocks: Vec<u64> = blocks.collect();
        assert_eq!(blocks, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        assert_eq!(layout.at(56, 1).unwrap(), None);
    }

    #[test]
    fn records_interleave_arrays() {
        let slice = |source, size_bytes, padding_bytes| RecordSlice {
            extent: ArrayExtent {
                source,
                ..extent(3 * size_bytes)
            },
            size_bytes,
            padding_bytes,
        };
        let slices = vec![slice(0, 8, 0), slice(1, 3, 1)];
        let layout = FileLayout::new([
            Segment::Zeros(5),
            Segment::Records(3, slices.clone()),
            Segment::Bytes(b"end".to_vec()),
        ])
        .unwrap();
        assert_eq!(layout.size_bytes(), 5 + 36 + 3);
        let array = |place: usize, range| Some(SegmentSlice::Array(&slices[place].extent, range));
        assert_eq!(layout.at(5, 100).unwrap(), array(0, 0..8));
        assert_eq!(layout.at(7, 2).unwrap(), array(0, 2..4));
        assert_eq!(layout.at(5 + 8, 100).unwrap(), array(1, 0..3));
        assert_eq!(
            layout.at(5 + 11, 100).unwrap(),
            Some(SegmentSlice::Zeros(1))
        );
        assert_eq!(layout.at(5 + 24 + 9, 100).unwrap(), array(1, 7..9));
        assert_eq!(
            layout.at(5 + 36, 100).unwrap(),
            Some(SegmentSlice::Bytes(b"end"))
        );
    }

    #[test]
    fn only_large_files_have_a_gap() {
        let start = |header_end, size| elements_start(header_end, has_gap(size), 4096);
        assert_eq!(start(100, 16 << 10), Some(4096));
        assert_eq!(start(4097, 16 << 20), Some(8192));
        assert_eq!(start(100, (16 << 20) + 1), Some(5 << 20));
        assert_eq!(start(u64::MAX, 1), None);
        assert_eq!(start(u64::MAX, u64::MAX), None);
    }

    #[test]
    fn sizes_beyond_the_kernels_limit_are_rejected() {
        let most = i64::MAX.unsigned_abs();
        let array = |size| Segment::Array(extent(size));
        assert!(FileLayout::new([array(most)]).is_some());
        assert!(FileLayout::new([Segment::Zeros(1), array(most)]).is_none());
        assert!(FileLayout::new([array(u64::MAX), Segment::Zeros(1)]).is_none());
        let slice = RecordSlice {
            extent: extent(1),
            size_bytes: 1 << 40,
            padding_bytes: 0,
        };
        assert!(FileLayout::new([Segment::Records(1 << 40, vec![slice])]).is_none());
    }
}
