//! The body of a file after its objects: values of the header, chunk indexes, elements of arrays.

use std::sync::Arc;

use crate::array::ArrayReader;
use crate::view::hdf5::{self, ChunkIndex, Storage};
use crate::view::layout::{
    ARRAY_ALIGNMENT_BYTES, ArrayExtent, ElementOrder, FileLayout, Segment, elements_start,
};
use crate::view::number::Conversion;

const VALUES_ALIGNMENT_BYTES: u64 = 64;
const INDEX_ALIGNMENT_BYTES: u64 = 8;

/// The elements of a dataset that are in the header.
pub(in crate::view) enum Values {
    /// The length of each text and its entry of the heap.
    Texts(Vec<(u32, usize)>),
    /// Encoded elements.
    Bytes(Vec<u8>),
    /// Encoded elements with texts at these offsets.
    Records(Vec<u8>, Vec<(usize, (u32, usize))>),
}

/// A dataset whose elements are those of an array.
pub(in crate::view) struct Stored {
    /// The dataset.
    pub(in crate::view) object: usize,
    pub(in crate::view) reader: Arc<ArrayReader>,
    pub(in crate::view) extent: ArrayExtent,
    /// The chunk index, if it has chunks.
    pub(in crate::view) index: Option<ChunkIndex>,
}

/// The storage of the elements of an array of `shape` and `chunks` in the file: the chunks of the array, so
/// that each is decoded once; contiguous if there is one chunk, or if HDF5 cannot have such chunks. None of
/// the lengths is 0.
///
/// # Errors
/// More bytes than a file can have.
pub(in crate::view) fn array_storage(
    reader: &ArrayReader,
    shape: &[u64],
    chunks: &[u64],
    item_bytes: usize,
    conversion: Option<Conversion>,
) -> Result<(Storage, ArrayExtent, Option<ChunkIndex>), String> {
    let pairs = || chunks.iter().zip(shape);
    let is_one = pairs().all(|(chunk, length)| chunk >= length);
    // A chunk of HDF5 must not be larger than the array.
    let fits = pairs().all(|(chunk, length)| chunk <= length);
    let index = match fits && !is_one {
        true => ChunkIndex::new(shape, chunks, item_bytes as u64),
        false => None,
    };
    let (order, storage) = match index {
        Some(_) => (
            ElementOrder::ChunkMajor,
            Storage::Chunked(0, chunks.to_vec()),
        ),
        None => (ElementOrder::RowMajor, Storage::Contiguous(0)),
    };
    let extent = ArrayExtent::new(0, reader, order, conversion).ok_or("too many bytes")?;
    if let Some(index) = &index
        && index.chunks_bytes() != extent.size_bytes
    {
        return Err("bug: its chunks are not those of its file".into());
    }
    Ok((storage, extent, index))
}

/// The layout of a file: objects, values, chunk indexes, and the elements of arrays, in large files after a
/// gap. `None` if
/// the file would be too long.
pub(in crate::view) fn lay_out(
    mut file: hdf5::File<'_>,
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
            Values::Records(mut bytes, texts) => {
                for (offset, text) in texts {
                    let reference = writer.texts(&[text]);
                    let end = offset.checked_add(reference.len())?;
                    bytes.get_mut(offset..end)?.copy_from_slice(&reference);
                }
                bytes
            }
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
    let sizes = arrays.iter().map(|array| array.extent.size_bytes);
    let size_bytes = sizes.fold(0, u64::saturating_add);
    at = elements_start(at, size_bytes, ARRAY_ALIGNMENT_BYTES)?;
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
