//! The body of a file after its objects: values in the header, chunk indexes, elements of arrays.

use std::sync::Arc;

use crate::array::{ArrayReader, ChunkTable};
use crate::view::hdf5::{self, ChunkIndex};
use crate::view::layout::{
    ARRAY_ALIGNMENT_BYTES, ArrayExtent, FileLayout, Segment, StoredExtent, elements_start,
};

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
    pub(in crate::view) reader: Arc<ArrayReader>,
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
}

impl ArrayContent {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Elements(extent, padding_bytes) => {
                extent.size_bytes.saturating_add(*padding_bytes)
            }
            Self::Chunks(table) => table.size_bytes(),
        }
    }

    fn padding_bytes(&self) -> u64 {
        match self {
            Self::Elements(_, padding_bytes) => *padding_bytes,
            Self::Chunks(_) => 0,
        }
    }

    /// Returns the segment of the array with this index.
    fn segment(self, source: usize) -> Segment {
        match self {
            Self::Elements(extent, _) => Segment::Array(ArrayExtent { source, ..extent }),
            Self::Chunks(table) => Segment::Stored(StoredExtent { source, table }),
        }
    }
}

/// Returns the layout of a file: objects, values, chunk indexes, and the elements of arrays, with a gap
/// before them in large files. `None` if the file would be too long.
pub(in crate::view) fn lay_out(
    mut file: hdf5::File<'_>,
    values: Vec<(usize, DatasetValues, Option<ChunkIndex>)>,
    arrays: Vec<StoredArray>,
) -> Option<(FileLayout, Vec<Arc<ArrayReader>>)> {
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
    let starts = starts(&arrays, body.end)?;
    let mut sources = Vec::with_capacity(arrays.len());
    let mut elements = Vec::with_capacity(arrays.len());
    for (array, start) in arrays.into_iter().zip(starts) {
        let size_bytes = array.content.size_bytes();
        match (array.index, &array.content) {
            (Some(index), _) => {
                let address = body.put_index(index, start)?;
                file.place(array.object, address);
            }
            (None, ArrayContent::Elements(..)) => file.place(array.object, start),
            // The array has no stored chunk.
            (None, ArrayContent::Chunks(_)) => {}
        }
        let padding_bytes = array.content.padding_bytes();
        let elements_bytes = size_bytes.checked_sub(padding_bytes)?;
        elements.push((start, elements_bytes, array.content.segment(sources.len())));
        if padding_bytes > 0 {
            let end = start.checked_add(elements_bytes)?;
            elements.push((end, padding_bytes, Segment::Zeros(padding_bytes)));
        }
        sources.push(array.reader);
    }
    for (start, size_bytes, segment) in elements {
        body.put(start, size_bytes, segment)?;
    }
    let header = Segment::Bytes(file.header(&writer, body.end));
    let layout = FileLayout::new(std::iter::once(header).chain(body.parts))?;
    Some((layout, sources))
}

/// Returns the offset of each array's elements, after chunk indexes that begin at `at`.
fn starts(arrays: &[StoredArray], at: u64) -> Option<Vec<u64>> {
    let mut at = at;
    for index in arrays.iter().filter_map(|array| array.index.as_ref()) {
        at = at.checked_next_multiple_of(INDEX_ALIGNMENT_BYTES)?;
        at = at.checked_add(index.size_bytes())?;
    }
    // Only decoded elements need a gap: reading stored chunks along with the header costs little.
    let decoded = arrays.iter().map(|array| match &array.content {
        ArrayContent::Elements(extent, _) => extent.size_bytes,
        ArrayContent::Chunks(_) => 0,
    });
    let decoded_bytes = decoded.fold(0, u64::saturating_add);
    at = elements_start(at, decoded_bytes, ARRAY_ALIGNMENT_BYTES)?;
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
        self.put(address, index.size_bytes(), Segment::ChunkIndex(index))?;
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
