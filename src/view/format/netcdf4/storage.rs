//! The storage of the elements of a variable.

use std::sync::Arc;

use super::FileBuilder;
use super::compound::NetCdfMembers;
use crate::array::ArrayReader;
use crate::node::{Conversion, Number};
use crate::store::StoreError;
use crate::view::dataset::{Data, Variable};
use crate::view::encode::hdf5::file_body::{ArrayContent, DatasetValues};
use crate::view::encode::hdf5::record_encoding::RecordEncoding;
use crate::view::encode::hdf5::{ChunkIndex, Chunks, Storage, UNDEFINED};
use crate::view::file::layout::{ArrayExtent, ElementOrder};
use crate::view::format::packed::StoredChunks;

/// The elements of a dataset.
pub(super) enum DatasetElements {
    Unallocated,
    Values(DatasetValues, Option<ChunkIndex>),
    Array(Arc<ArrayReader>, ArrayContent, Option<ChunkIndex>),
    /// A number of bytes that could not be read, for this reason.
    Unread(u64, StoreError, Option<ChunkIndex>),
}

/// The maximum length of an unlimited axis.
const UNLIMITED: u64 = u64::MAX;
/// The approximate size of chunks of rows in bytes: a program that reads one row reads little more.
const ROWS_BYTES: u64 = 1 << 20;

/// Returns the storage of a dataset without elements.
pub(super) fn unallocated(shape: &[u64], is_unlimited: bool) -> Storage {
    match is_unlimited {
        true => {
            // A chunk has less than 4 GiB, also if a later axis is empty.
            let extents = shape.iter().enumerate().map(|(axis, length)| match axis {
                0 => (*length).clamp(1, 1024),
                _ => 1,
            });
            let extents = extents.collect();
            Storage::Chunked(UNDEFINED, unlimited(shape, extents))
        }
        false => Storage::Unallocated,
    }
}

/// Returns the chunks of a dataset.
fn chunks(shape: &[u64], extents: Vec<u64>, is_unlimited: bool) -> Chunks {
    match is_unlimited {
        true => unlimited(shape, extents),
        false => Chunks {
            extents,
            ..Chunks::default()
        },
    }
}

/// Returns the chunks of a dataset whose first axis is unlimited.
fn unlimited(shape: &[u64], extents: Vec<u64>) -> Chunks {
    let rest = shape.iter().skip(1).copied();
    Chunks {
        extents,
        max_shape: Some(std::iter::once(UNLIMITED).chain(rest).collect()),
        ..Chunks::default()
    }
}

/// Returns the storage of row-major elements as chunks of whole rows. Also returns the index, and the padding in
/// bytes of the last chunk. `None` if HDF5 does not support such chunks.
fn rows(shape: &[u64], item_bytes: u64, is_unlimited: bool) -> Option<(Storage, ChunkIndex, u64)> {
    let (length, rest) = shape.split_first()?;
    let row_bytes = rest
        .iter()
        .try_fold(item_bytes, |n, length| n.checked_mul(*length))?;
    let most = ROWS_BYTES.checked_div(row_bytes)?.clamp(1, *length);
    // Rows are spread evenly over the chunks, so that the last chunk has little padding.
    let rows = length.div_ceil(length.div_ceil(most));
    let padding = length.checked_next_multiple_of(rows)? - length;
    let extents: Vec<u64> = std::iter::once(&rows).chain(rest).copied().collect();
    let index = ChunkIndex::new(shape, &extents, item_bytes)?;
    let storage = Storage::Chunked(0, chunks(shape, extents, is_unlimited));
    Some((storage, index, padding.checked_mul(row_bytes)?))
}

/// Returns the storage of values in the header: contiguous, or one chunk.
fn of_values(
    values: DatasetValues,
    shape: &[u64],
    item_bytes: u64,
    is_unlimited: bool,
) -> Result<(Storage, DatasetElements), String> {
    if !is_unlimited {
        return Ok((
            Storage::Contiguous(0),
            DatasetElements::Values(values, None),
        ));
    }
    let index = ChunkIndex::new(shape, shape, item_bytes).ok_or("values that are no chunk")?;
    let storage = Storage::Chunked(0, unlimited(shape, shape.to_vec()));
    Ok((storage, DatasetElements::Values(values, Some(index))))
}

/// Returns the storage of values that could not be read: one chunk if possible, as in [`of_array`].
fn of_unread(
    error: &StoreError,
    shape: &[u64],
    item_bytes: u64,
    is_unlimited: bool,
) -> Result<(Storage, DatasetElements), String> {
    let size_bytes = shape
        .iter()
        .try_fold(item_bytes, |size, length| size.checked_mul(*length));
    let size_bytes = size_bytes.ok_or("too many bytes")?;
    let (storage, index) = match ChunkIndex::new(shape, shape, item_bytes) {
        Some(index) if !shape.is_empty() => {
            let chunks = chunks(shape, shape.to_vec(), is_unlimited);
            (Storage::Chunked(0, chunks), Some(index))
        }
        _ if is_unlimited => return Err("values that are no chunk".into()),
        _ => (Storage::Contiguous(0), None),
    };
    Ok((
        storage,
        DatasetElements::Unread(size_bytes, error.clone(), index),
    ))
}

/// Returns the storage of the stored chunks of an array.
pub(super) fn packed(
    variable: &Variable,
    number: Option<Number>,
    shape: &[u64],
    stored: &StoredChunks,
    is_unlimited: bool,
) -> Result<(Storage, DatasetElements), String> {
    let Data::Array(reader, extents) = &variable.data else {
        return Err("bug: stored chunks of no array".into());
    };
    let item = number.map_or(1, |number| number.size_bytes) as u64;
    let table = &stored.table;
    let index = match table.is_empty() {
        true => None,
        false => Some(
            ChunkIndex::of_stored(shape, extents, item, Arc::clone(table))
                .ok_or("chunks that HDF5 cannot have")?,
        ),
    };
    // The maximum length of an axis must not be less than the length of a chunk.
    let longest = extents.iter().zip(shape);
    let mut longest: Vec<u64> = longest
        .map(|(extent, length)| *extent.max(length))
        .collect();
    if let (true, Some(first)) = (is_unlimited, longest.first_mut()) {
        *first = UNLIMITED;
    }
    let chunks = Chunks {
        extents: extents.clone(),
        filters: stored.form.filters.clone(),
        max_shape: (longest != shape).then_some(longest),
    };
    let content = ArrayContent::Chunks(Arc::clone(table));
    let elements = DatasetElements::Array(Arc::clone(reader), content, index);
    Ok((Storage::Chunked(UNDEFINED, chunks), elements))
}

impl<'a> FileBuilder<'a> {
    /// Returns the storage of the elements, which have `item_bytes` bytes each in the file.
    pub(super) fn storage(
        &mut self,
        variable: &'a Variable,
        number: Option<Number>,
        item_bytes: usize,
        shape: &[u64],
        is_unlimited: bool,
    ) -> Result<(Storage, DatasetElements), String> {
        if shape.contains(&0) {
            return Ok((
                unallocated(shape, is_unlimited),
                DatasetElements::Unallocated,
            ));
        }
        let (reader, chunks) = match &variable.data {
            Data::Texts(texts) => {
                let values = DatasetValues::Variable(self.file.push_texts(texts));
                return of_values(values, shape, item_bytes as u64, is_unlimited);
            }
            Data::Records(bytes, reader) => {
                let encoding = RecordEncoding::of::<NetCdfMembers>(reader.chunks().data_type())?;
                let encoded = encoding.encode(bytes, drop)?;
                let values = DatasetValues::Bytes(encoded.bytes);
                return of_values(values, shape, item_bytes as u64, is_unlimited);
            }
            Data::Numbers(values) => {
                let number = number.ok_or("no numbers")?;
                let bytes: Option<Vec<Vec<u8>>> =
                    values.iter().map(|value| number.write(*value)).collect();
                let bytes = bytes.ok_or("no numbers of their type")?.concat();
                return of_values(
                    DatasetValues::Bytes(bytes),
                    shape,
                    item_bytes as u64,
                    is_unlimited,
                );
            }
            Data::Unread(error, _) => {
                return of_unread(error, shape, item_bytes as u64, is_unlimited);
            }
            Data::Array(reader, chunks) => (reader, chunks),
        };
        let conversion = number.and_then(|number| variable.conversion(number));
        let (storage, content, index) =
            of_array(reader, shape, chunks, item_bytes, conversion, is_unlimited)?;
        Ok((
            storage,
            DatasetElements::Array(Arc::clone(reader), content, index),
        ))
    }
}

/// Returns the storage of the elements of an array of `shape` and `chunks` in the file. The file has the
/// chunks of the array, so that each is decoded once; chunks of whole rows, if the array has one chunk, or if HDF5
/// does not support the chunks. Elements are contiguous only if no chunks are possible: the library (HDF5 2.2)
/// returns zeros from its buffer for contiguous elements if they are read again after an error. It keeps no chunk
/// that it could not read. All lengths must be greater than 0.
///
/// # Errors
/// The file would be too long, or rows are not possible as chunks of an unlimited axis.
pub(in crate::view) fn of_array(
    reader: &ArrayReader,
    shape: &[u64],
    chunks: &[u64],
    item_bytes: usize,
    conversion: Option<Conversion>,
    is_unlimited: bool,
) -> Result<(Storage, ArrayContent, Option<ChunkIndex>), String> {
    let item = item_bytes as u64;
    let pairs = || chunks.iter().zip(shape);
    let is_one = pairs().all(|(chunk, length)| chunk >= length);
    // A chunk of HDF5 must not be larger than the array.
    let fits = pairs().all(|(chunk, length)| chunk <= length);
    let index = match fits && !is_one {
        true => ChunkIndex::new(shape, chunks, item),
        false => None,
    };
    let (order, storage, index, padding_bytes) = match (index, is_unlimited) {
        (Some(index), _) => {
            let storage = Storage::Chunked(0, self::chunks(shape, chunks.to_vec(), is_unlimited));
            (ElementOrder::ChunkMajor, storage, Some(index), 0)
        }
        (None, _) => match rows(shape, item, is_unlimited) {
            Some((storage, index, padding_bytes)) => {
                (ElementOrder::RowMajor, storage, Some(index), padding_bytes)
            }
            None if is_unlimited => return Err("rows that are no chunks of HDF5".into()),
            None => (ElementOrder::RowMajor, Storage::Contiguous(0), None, 0),
        },
    };
    let extent = ArrayExtent::new(0, reader, order, conversion).ok_or("too many bytes")?;
    if let Some(index) = &index
        && index.chunks_bytes().checked_sub(padding_bytes) != Some(extent.size_bytes)
    {
        return Err("bug: its chunks are not those of its file".into());
    }
    Ok((
        storage,
        ArrayContent::Elements(extent, padding_bytes),
        index,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chunks_of_about_one_size_with_little_beyond_the_elements() {
        for (shape, extents, padding_bytes) in [
            (&[10, 5][..], vec![10, 5], 0),
            (&[100_001], vec![100_001], 0),
            (&[300_001], vec![100_001], 8 * 2),
            (&[5, 1 << 20], vec![1, 1 << 20], 0),
            (&[7, 3, 1 << 14], vec![2, 3, 1 << 14], 24 << 14),
        ] {
            let (storage, index, padding) = rows(shape, 8, true).unwrap();
            let Storage::Chunked(_, chunks) = storage else {
                panic!("{storage:?}");
            };
            assert_eq!((chunks.extents, padding), (extents, padding_bytes));
            let all: u64 = shape.iter().product();
            assert_eq!(index.chunks_bytes(), 8 * all + padding);
            assert_eq!(chunks.max_shape.unwrap()[0], UNLIMITED);
        }
        assert!(rows(&[2, 1 << 30], 8, true).is_none());
        let (storage, ..) = rows(&[10, 5], 8, false).unwrap();
        assert!(matches!(storage, Storage::Chunked(_, chunks) if chunks.max_shape.is_none()));
    }
}
