//! The body of a file after its objects: values of the header, chunk indexes, elements of arrays.

use std::sync::Arc;

use crate::array::ArrayReader;
use crate::view::hdf5::{self, ChunkIndex};
use crate::view::layout::{
    ARRAY_ALIGNMENT_BYTES, ArrayExtent, FileLayout, Segment, elements_start,
};

const VALUES_ALIGNMENT_BYTES: u64 = 64;
const INDEX_ALIGNMENT_BYTES: u64 = 8;

/// The elements of a dataset that are in the header.
pub(super) enum Values {
    /// The length of each text and its entry of the heap.
    Texts(Vec<(u32, usize)>),
    /// Encoded numbers.
    Bytes(Vec<u8>),
}

/// A dataset whose elements are those of an array.
pub(super) struct Stored {
    /// The dataset.
    pub(super) object: usize,
    pub(super) reader: Arc<ArrayReader>,
    pub(super) extent: ArrayExtent,
    /// The chunk index, if it has chunks.
    pub(super) index: Option<ChunkIndex>,
}

/// The layout of a file: objects, values, chunk indexes, and after a gap the elements of arrays. `None` if
/// the file would be too long.
pub(super) fn lay_out(
    mut file: hdf5::File,
    values: Vec<(usize, Values)>,
    arrays: Vec<Stored>,
) -> Option<(FileLayout, Vec<Arc<ArrayReader>>)> {
    let writer = file.writer();
    let mut body = Body {
        end: writer.end,
        parts: Vec::new(),
    };
    for (object, values) in values {
        let bytes = match values {
            Values::Texts(texts) => writer.texts(&texts),
            Values::Bytes(bytes) => bytes,
        };
        let start = body.end.checked_next_multiple_of(VALUES_ALIGNMENT_BYTES)?;
        body.put(start, bytes.len() as u64, Segment::Bytes(bytes))?;
        file.place(object, start);
    }
    let starts = starts(&arrays, body.end)?;
    let mut sources = Vec::with_capacity(arrays.len());
    let mut elements = Vec::with_capacity(arrays.len());
    for (array, start) in arrays.into_iter().zip(starts) {
        let mut address = start;
        if let Some(mut index) = array.index {
            address = body.end.checked_next_multiple_of(INDEX_ALIGNMENT_BYTES)?;
            index.place(address, start);
            body.put(address, index.size_bytes(), Segment::ChunkIndex(index))?;
        }
        file.place(array.object, address);
        let extent = ArrayExtent {
            source: sources.len(),
            ..array.extent
        };
        sources.push(array.reader);
        elements.push((start, extent));
    }
    for (start, extent) in elements {
        body.put(start, extent.size_bytes, Segment::Array(extent))?;
    }
    let header = Segment::Bytes(file.header(&writer, body.end));
    let layout = FileLayout::new(std::iter::once(header).chain(body.parts))?;
    Some((layout, sources))
}

/// The offset of each array's elements, after chunk indexes that begin at `at`.
fn starts(arrays: &[Stored], at: u64) -> Option<Vec<u64>> {
    let mut at = at;
    for index in arrays.iter().filter_map(|array| array.index.as_ref()) {
        at = at.checked_next_multiple_of(INDEX_ALIGNMENT_BYTES)?;
        at = at.checked_add(index.size_bytes())?;
    }
    at = elements_start(at)?;
    let mut starts = Vec::with_capacity(arrays.len());
    for array in arrays {
        let start = at.checked_next_multiple_of(ARRAY_ALIGNMENT_BYTES)?;
        starts.push(start);
        at = start.checked_add(array.extent.size_bytes)?;
    }
    Some(starts)
}

/// Consecutive segments.
struct Body {
    end: u64,
    parts: Vec<Segment>,
}

impl Body {
    /// Appends a segment at `start`, which is not before the end of the last one.
    fn put(&mut self, start: u64, size_bytes: u64, part: Segment) -> Option<()> {
        self.parts
            .push(Segment::Zeros(start.checked_sub(self.end)?));
        self.parts.push(part);
        self.end = start.checked_add(size_bytes)?;
        Some(())
    }
}
