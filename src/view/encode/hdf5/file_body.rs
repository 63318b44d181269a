//! The body of a file after its objects: values in the header, chunk indexes, elements of arrays.

use std::sync::Arc;

use crate::array::{ArrayReader, ChunkTable};
use crate::store::StoreError;
use crate::view::encode::hdf5::{self, ChunkIndex};
use crate::view::file::layout::{
    ARRAY_ALIGNMENT_BYTES, ArrayExtent, FileLayout, Segment, StoredExtent, VirtualFile,
    elements_start, has_gap,
};
use crate::view::group::tree::GroupTree;

const VALUES_ALIGNMENT_BYTES: u64 = 64;
const INDEX_ALIGNMENT_BYTES: u64 = 8;

/// The elements of a dataset that are part of the header.
pub(in crate::view) enum DatasetValues {
    /// The length and the heap entry of each text or sequence.
    Variable(Vec<(u32, usize)>),
    /// Encoded elements.
    Bytes(Vec<u8>),
    /// Encoded elements with texts at these offsets.
    Records(Vec<u8>, Vec<(usize, (u32, usize))>),
}

/// A dataset whose elements are those of an array.
pub(in crate::view) struct StoredArray {
    /// The index of the dataset's object.
    pub(in crate::view) object: usize,
    /// The array; `None` for [`ArrayContent::Unread`].
    pub(in crate::view) reader: Option<Arc<ArrayReader>>,
    pub(in crate::view) content: ArrayContent,
    /// The chunk index, if the dataset has chunks.
    pub(in crate::view) index: Option<ChunkIndex>,
}

/// The content of an array in the file.
pub(in crate::view) enum ArrayContent {
    /// The elements, and the number of padding bytes after them.
    Elements(ArrayExtent, u64),
    /// The stored chunks.
    Chunks(Arc<ChunkTable>),
    /// A number of bytes that could not be read, for this reason.
    Unread(u64, StoreError),
}

impl ArrayContent {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Elements(extent, padding_bytes) => {
                extent.size_bytes.saturating_add(*padding_bytes)
            }
            Self::Chunks(table) => table.size_bytes(),
            Self::Unread(size_bytes, _) => *size_bytes,
        }
    }

    fn padding_bytes(&self) -> u64 {
        match self {
            Self::Elements(_, padding_bytes) => *padding_bytes,
            Self::Chunks(_) | Self::Unread(..) => 0,
        }
    }

    /// Returns the segment of the array with this index. An error is added to `errors`.
    fn segment(self, source: usize, errors: &mut Vec<StoreError>) -> Segment {
        match self {
            Self::Elements(extent, _) => Segment::Array(ArrayExtent { source, ..extent }),
            Self::Chunks(table) => Segment::Stored(StoredExtent { source, table }),
            Self::Unread(size_bytes, error) => {
                errors.push(error);
                Segment::Unread(errors.len() - 1, size_bytes)
            }
        }
    }
}

/// Returns a file of a tree, without notes: objects, values, chunk indexes, and the elements of arrays, with a gap
/// before them in large files and where the tree needs one. `None` if the file would be too long.
pub(in crate::view) fn lay_out(
    tree: &GroupTree,
    mut file: hdf5::File<'_>,
    values: Vec<(usize, DatasetValues, Option<ChunkIndex>)>,
    arrays: Vec<StoredArray>,
) -> Option<VirtualFile> {
    let writer = file.writer();
    let mut body = FileBody {
        end: writer.end,
        parts: Vec::new(),
    };
    for (object, values, index) in values {
        let bytes = match values {
            DatasetValues::Variable(elements) => writer.heap_references(&elements),
            DatasetValues::Bytes(bytes) => bytes,
            DatasetValues::Records(mut bytes, texts) => {
                for (offset, text) in texts {
                    let reference = writer.heap_references(&[text]);
                    let end = offset.checked_add(reference.len())?;
                    bytes.get_mut(offset..end)?.copy_from_slice(&reference);
                }
                bytes
            }
        };
        let start = body.end.checked_next_multiple_of(VALUES_ALIGNMENT_BYTES)?;
        body.put(start, bytes.len() as u64, Segment::Bytes(bytes))?;
        let address = match index {
            Some(index) => body.put_index(index, start)?,
            None => start,
        };
        file.place(object, address);
    }
    let has_gap = tree.needs_gap() || has_gap(decoded_bytes(&arrays));
    let starts = starts(&arrays, body.end, has_gap)?;
    let mut errors = Vec::new();
    let mut sources = Vec::with_capacity(arrays.len());
    let mut elements = Vec::with_capacity(arrays.len());
    for (array, start) in arrays.into_iter().zip(starts) {
        let size_bytes = array.content.size_bytes();
        match (array.index, &array.content) {
            (Some(index), _) => {
                let address = body.put_index(index, start)?;
                file.place(array.object, address);
            }
            (None, ArrayContent::Elements(..) | ArrayContent::Unread(..)) => {
                file.place(array.object, start);
            }
            // The array has no stored chunk.
            (None, ArrayContent::Chunks(_)) => {}
        }
        let padding_bytes = array.content.padding_bytes();
        let elements_bytes = size_bytes.checked_sub(padding_bytes)?;
        let segment = array.content.segment(sources.len(), &mut errors);
        elements.push((start, elements_bytes, segment));
        if padding_bytes > 0 {
            let end = start.checked_add(elements_bytes)?;
            elements.push((end, padding_bytes, Segment::Zeros(padding_bytes)));
        }
        sources.extend(array.reader);
    }
    for (start, size_bytes, segment) in elements {
        body.put(start, size_bytes, segment)?;
    }
    let header = Segment::Bytes(file.header(&writer, body.end));
    Some(VirtualFile {
        layout: FileLayout::new(std::iter::once(header).chain(body.parts))?,
        sources,
        notes: Vec::new(),
        block_bytes: 1,
        readability: tree.readability(errors, has_gap),
    })
}

/// Returns the number of bytes of decoded elements. Only these need a gap in a large file: reading stored chunks
/// along with the header costs little.
fn decoded_bytes(arrays: &[StoredArray]) -> u64 {
    let decoded = arrays.iter().map(|array| match &array.content {
        ArrayContent::Elements(extent, _) => extent.size_bytes,
        ArrayContent::Chunks(_) | ArrayContent::Unread(..) => 0,
    });
    decoded.fold(0, u64::saturating_add)
}

/// Returns the offset of each array's elements, after chunk indexes that begin at `at`.
fn starts(arrays: &[StoredArray], at: u64, has_gap: bool) -> Option<Vec<u64>> {
    let mut at = at;
    for index in arrays.iter().filter_map(|array| array.index.as_ref()) {
        at = at.checked_next_multiple_of(INDEX_ALIGNMENT_BYTES)?;
        at = at.checked_add(index.nodes_bytes())?;
    }
    at = elements_start(at, has_gap, ARRAY_ALIGNMENT_BYTES)?;
    let mut starts = Vec::with_capacity(arrays.len());
    for array in arrays {
        let start = at.checked_next_multiple_of(ARRAY_ALIGNMENT_BYTES)?;
        starts.push(start);
        at = start.checked_add(array.content.size_bytes())?;
    }
    Some(starts)
}

/// Consecutive segments.
struct FileBody {
    end: u64,
    parts: Vec<Segment>,
}

impl FileBody {
    /// Appends the index of chunks that begin at `chunks_start`, and returns its address.
    fn put_index(&mut self, mut index: ChunkIndex, chunks_start: u64) -> Option<u64> {
        let address = self.end.checked_next_multiple_of(INDEX_ALIGNMENT_BYTES)?;
        index.place(address, chunks_start);
        self.put(address, index.nodes_bytes(), Segment::content(index))?;
        Some(address)
    }

    /// Appends a segment at `start`, which must not be before the end of the last segment.
    fn put(&mut self, start: u64, size_bytes: u64, part: Segment) -> Option<()> {
        self.parts
            .push(Segment::Zeros(start.checked_sub(self.end)?));
        self.parts.push(part);
        self.end = start.checked_add(size_bytes)?;
        Some(())
    }
}
