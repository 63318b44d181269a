//! Reads the segments of a layout.

use std::ops::Range;
use std::sync::Arc;

use super::format::parquet::{EncodedArray, ValueEncoding};
use super::layout::{ElementOrder, SegmentSlice, VirtualFile};
use crate::array::{ArrayReader, ChunkTable, Selection, ServedVersions};
use crate::node::{Conversion, Value};
use crate::store::{BUFFER_HEADROOM_BYTES, Data, StoreError, in_memory, part, part_mut};

/// A range of the elements of an array, as the file contains them.
struct ElementSlice<'a> {
    reader: &'a Arc<ArrayReader>,
    conversion: Option<&'a Conversion>,
    encoding: Option<ValueEncoding>,
    extent: Selection,
    /// The offset and the size in bytes of the stored elements that have a byte in the range.
    offset: u64,
    size: usize,
    /// Bytes of the first converted or encoded element that precede the range.
    skip: usize,
}

/// A range of the stored chunks of an array.
struct StoredSlice<'a> {
    reader: &'a Arc<ArrayReader>,
    table: &'a ChunkTable,
    offset: u64,
    size: usize,
}

/// Returns the part of the bytes of blocks from `start` on that was requested, shorter only at the end of the
/// file.
fn part_of_blocks(
    length: usize,
    start: u64,
    offset: u64,
    size: usize,
) -> Result<Range<usize>, StoreError> {
    let first = in_memory(offset - start)?.min(length);
    Ok(first..first.saturating_add(size).min(length))
}

impl VirtualFile {
    /// Reads `size` bytes of the file from `offset` into `buffer`, fewer only at the end of the file, if no
    /// chunk has to be decoded. `served` is as in [`ArrayReader::try_read`].
    ///
    /// # Errors
    /// As [`VirtualFile::read`].
    pub fn try_read(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Option<Result<Data, StoreError>> {
        let (start, length) = self.whole_blocks(offset, size);
        if (start, length) == (offset, size) {
            return self.try_segments(offset, size, buffer, served).transpose();
        }
        let mut read = || {
            let mut blocks = vec![0; length + BUFFER_HEADROOM_BYTES];
            let Some(data) = self.try_segments(start, length, &mut blocks, served)? else {
                return Ok(None);
            };
            let bytes = data.bytes(&blocks)?;
            let own = part(bytes, part_of_blocks(bytes.len(), start, offset, size)?)?;
            part_mut(buffer, 0..own.len())?.copy_from_slice(own);
            Ok(Some(Data::Filled(0..own.len())))
        };
        read().transpose()
    }

    /// Returns the blocks that contain a range, which fail as a whole: their offset and length.
    fn whole_blocks(&self, offset: u64, size: usize) -> (u64, usize) {
        let start = offset - offset % self.block_bytes.max(1);
        let end = offset
            .saturating_add(size as u64)
            .checked_next_multiple_of(self.block_bytes)
            .unwrap_or(u64::MAX);
        let length = usize::try_from(end - start).unwrap_or(size);
        match self.block_bytes {
            0 | 1 => (offset, size),
            _ => (start, length),
        }
    }

    fn try_segments(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<Option<Data>, StoreError> {
        if let Some(only) = self.only(offset, size)? {
            return only.try_read(buffer, served).transpose();
        }
        if let Some(only) = self.only_stored(offset, size)? {
            return only.try_read(buffer, served).transpose();
        }
        let mut filled = 0;
        while let Some((part, count)) = self.segment(offset, size, filled)? {
            let target = part_mut(buffer, filled..filled + count)?;
            if let Some(elements) = self.elements(&part)? {
                if let Some(conversion) = elements.conversion_in_place(count) {
                    let Some(data) = elements.try_read(target, served) else {
                        return Ok(None);
                    };
                    match data? {
                        Data::Filled(range) if range == (0..count) => {
                            conversion.convert_in_place(target);
                        }
                        Data::Filled(_) => return Err(elements.too_short()),
                        shared => elements.render(shared.bytes(&[])?, target)?,
                    }
                    filled += count;
                    continue;
                }
                let mut stored = vec![0; elements.size];
                let Some(data) = elements.try_read(&mut stored, served) else {
                    return Ok(None);
                };
                elements.render(data?.bytes(&stored)?, target)?;
            } else if let SegmentSlice::Rows(..) = part {
                return Ok(None);
            } else if let Some(stored) = self.stored(&part)? {
                let mut own = vec![0; count + BUFFER_HEADROOM_BYTES];
                let Some(data) = stored.try_read(&mut own, served) else {
                    return Ok(None);
                };
                stored.copy(data?.bytes(&own)?, target)?;
            } else {
                fill(part, target)?;
            }
            filled += count;
        }
        Ok(Some(Data::Filled(0..filled)))
    }

    /// Reads `size` bytes of the file from `offset`, fewer only at the end of the file.
    ///
    /// # Errors
    /// As [`ArrayReader::read`]; [`StoreError::Corrupt`] for an element that the format cannot express.
    pub async fn read(
        &self,
        offset: u64,
        size: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let (start, length) = self.whole_blocks(offset, size);
        let data = self.read_segments(start, length, served).await?;
        if (start, length) == (offset, size) {
            return Ok(data);
        }
        match data {
            Data::Shared(bytes, range) => {
                let own = part_of_blocks(range.len(), start, offset, size)?;
                Ok(Data::Shared(
                    bytes,
                    range.start + own.start..range.start + own.end,
                ))
            }
            Data::Filled(_) => Err(StoreError::internal(
                "whole blocks were read without a buffer of their own",
            )),
        }
    }

    async fn read_segments(
        &self,
        offset: u64,
        size: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        if let Some(only) = self.only(offset, size)? {
            return only.read(served).await;
        }
        if let Some(only) = self.only_stored(offset, size)? {
            return only.read(served).await;
        }
        let left = self.layout.size_bytes().saturating_sub(offset);
        let size = in_memory(left.min(size as u64))?;
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while let Some((part, count)) = self.segment(offset, size, filled)? {
            let target = part_mut(&mut bytes, filled..filled + count)?;
            if let Some(elements) = self.elements(&part)? {
                let data = elements.read(served).await?;
                elements.render(data.bytes(&[])?, target)?;
            } else if let SegmentSlice::Rows(rows, range) = part {
                rows.read(&self.sources, range, target, served).await?;
            } else if let Some(stored) = self.stored(&part)? {
                let data = stored.read(served).await?;
                stored.copy(data.bytes(&[])?, target)?;
            } else {
                fill(part, target)?;
            }
            filled += count;
        }
        Ok(Data::Shared(Arc::new(bytes), 0..filled))
    }

    /// Returns the elements of a read that consists only of elements without a conversion. The decoded chunk
    /// itself then serves as the reply.
    fn only(&self, offset: u64, size: usize) -> Result<Option<ElementSlice<'_>>, StoreError> {
        let Some(part) = self.only_part(offset, size)? else {
            return Ok(None);
        };
        let elements = self.elements(&part)?;
        Ok(
            elements
                .filter(|elements| elements.conversion.is_none() && elements.encoding.is_none()),
        )
    }

    /// Returns the stored chunks of a read that consists only of them: the reply then comes from the store.
    fn only_stored(&self, offset: u64, size: usize) -> Result<Option<StoredSlice<'_>>, StoreError> {
        match self.only_part(offset, size)? {
            Some(part) => self.stored(&part),
            None => Ok(None),
        }
    }

    /// Returns the slice of a read that lies in one segment; `None` for other reads.
    fn only_part(&self, offset: u64, size: usize) -> Result<Option<SegmentSlice<'_>>, StoreError> {
        let end = offset
            .saturating_add(size as u64)
            .min(self.layout.size_bytes());
        let part = self.layout.at(offset, size as u64)?;
        Ok(part.filter(|part| part.size_bytes() == end.saturating_sub(offset)))
    }

    /// Returns the slice at the first byte that is not filled, and its size; `None` at the end.
    fn segment(
        &self,
        offset: u64,
        size: usize,
        filled: usize,
    ) -> Result<Option<(SegmentSlice<'_>, usize)>, StoreError> {
        if filled >= size {
            return Ok(None);
        }
        let at = offset.saturating_add(filled as u64);
        let Some(part) = self.layout.at(at, (size - filled) as u64)? else {
            return Ok(None);
        };
        if let SegmentSlice::Unread(number, _) = part {
            let error = self.readability.errors.get(number).cloned();
            return Err(error.unwrap_or_else(|| StoreError::internal("bytes without a reason")));
        }
        match in_memory(part.size_bytes())? {
            0 => Err(StoreError::internal(format!("an empty part at {at}"))),
            count => Ok(Some((part, count))),
        }
    }

    /// Returns the chunks of a slice of stored chunks; `None` for other slices.
    fn stored<'a>(
        &'a self,
        part: &SegmentSlice<'a>,
    ) -> Result<Option<StoredSlice<'a>>, StoreError> {
        let SegmentSlice::Stored(extent, range) = part else {
            return Ok(None);
        };
        let reader = self.sources.get(extent.source);
        Ok(Some(StoredSlice {
            reader: reader.ok_or_else(|| StoreError::internal("a layout without its array"))?,
            table: &extent.table,
            offset: range.start,
            size: in_memory(range.end - range.start)?,
        }))
    }

    /// Returns the elements of a slice of an array; `None` for other slices.
    fn elements<'a>(
        &'a self,
        part: &SegmentSlice<'a>,
    ) -> Result<Option<ElementSlice<'a>>, StoreError> {
        let (array, range) = match part {
            SegmentSlice::Array(array, range) => (array, range),
            SegmentSlice::Encoded(array, range) => return self.encoded(array, range).map(Some),
            _ => return Ok(None),
        };
        let reader = self.source(array.source)?;
        let extent = match array.order {
            ElementOrder::RowMajor => Selection::RowMajor,
            ElementOrder::ChunkMajor => Selection::ChunkMajor,
        };
        let whole = ElementSlice {
            reader,
            conversion: array.conversion.as_ref(),
            encoding: None,
            extent,
            offset: range.start,
            size: in_memory(range.end - range.start)?,
            skip: 0,
        };
        let Some(conversion) = whole.conversion else {
            return Ok(Some(whole));
        };
        // All numbers that have a byte in the range.
        let (stored, to) = (
            conversion.from.size_bytes as u64,
            conversion.to.size_bytes as u64,
        );
        let first = range.start / to;
        let count = range.end.div_ceil(to) - first;
        Ok(Some(ElementSlice {
            offset: first * stored,
            size: in_memory(count * stored)?,
            skip: in_memory(range.start - first * to)?,
            ..whole
        }))
    }

    fn source(&self, number: usize) -> Result<&Arc<ArrayReader>, StoreError> {
        let reader = self.sources.get(number);
        reader.ok_or_else(|| StoreError::internal("a layout without its array"))
    }

    /// Returns the elements of a range of encoded elements.
    fn encoded(
        &self,
        array: &EncodedArray,
        range: &Range<u64>,
    ) -> Result<ElementSlice<'_>, StoreError> {
        let (elements, skip) = array.elements(range);
        Ok(ElementSlice {
            reader: self.source(array.source)?,
            conversion: None,
            encoding: Some(array.encoding),
            extent: Selection::RowMajor,
            offset: elements.start,
            size: in_memory(elements.end.saturating_sub(elements.start))?,
            skip: in_memory(skip)?,
        })
    }
}

impl StoredSlice<'_> {
    fn try_read(
        &self,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Option<Result<Data, StoreError>> {
        self.reader
            .try_read_stored(self.table, self.offset, self.size, buffer, served)
    }

    async fn read(&self, served: Option<&ServedVersions>) -> Result<Data, StoreError> {
        self.reader
            .read_stored(self.table, self.offset, self.size, served)
            .await
    }

    /// Copies the bytes of a read, which must fill `target`.
    fn copy(&self, bytes: &[u8], target: &mut [u8]) -> Result<(), StoreError> {
        if bytes.len() != target.len() {
            return Err(StoreError::Internal {
                key: self.reader.key().clone(),
                what: "fewer bytes of stored chunks than the file has".into(),
            });
        }
        target.copy_from_slice(bytes);
        Ok(())
    }
}

impl ElementSlice<'_> {
    fn try_read(
        &self,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Option<Result<Data, StoreError>> {
        self.reader
            .try_read(self.extent, self.offset, self.size, buffer, served)
    }

    async fn read(&self, served: Option<&ServedVersions>) -> Result<Data, StoreError> {
        self.reader
            .read(self.extent, self.offset, self.size, served)
            .await
    }

    fn too_short(&self) -> StoreError {
        StoreError::Internal {
            key: self.reader.key().clone(),
            what: "fewer elements than the file has".into(),
        }
    }

    /// Returns the conversion, if `size` bytes of the file are whole elements that keep their size.
    fn conversion_in_place(&self, size: usize) -> Option<&Conversion> {
        let is_whole = self.skip == 0 && self.size == size;
        let conversion = self.conversion?;
        (is_whole && conversion.keeps_size() && size.is_multiple_of(conversion.to.size_bytes))
            .then_some(conversion)
    }

    /// Returns the error for an element that the numbers of the file cannot hold.
    fn not_converted(&self, conversion: &Conversion, value: Value) -> StoreError {
        let key = self.reader.key().clone();
        match (conversion.is_text(), value) {
            (true, value) => StoreError::Corrupt {
                key,
                what: format!("{value} is no code point of Unicode"),
            },
            (false, value) => StoreError::Unsupported {
                key,
                what: format!(
                    "{value} is no value of the numbers of {} bytes in this file: read it from the .nc, \
                     .cdf5.nc or .npy file",
                    conversion.to.size_bytes
                ),
            },
        }
    }

    /// Converts stored elements to the bytes of the file; they must cover all of `target`.
    fn render(&self, stored: &[u8], target: &mut [u8]) -> Result<(), StoreError> {
        let short = || self.too_short();
        if stored.len() != self.size {
            return Err(short());
        }
        if let Some(encoding) = self.encoding {
            let encoded = encoding
                .encode(stored)
                .map_err(|value| StoreError::Unsupported {
                    key: self.reader.key().clone(),
                    what: format!(
                        "{value:?} is no value of the numbers in this file: read it from the .csv or .npy file"
                    ),
                })?;
            let part = encoded.get(self.skip..);
            let part = part.and_then(|rest| rest.get(..target.len()));
            target.copy_from_slice(part.ok_or_else(short)?);
            return Ok(());
        }
        let Some(conversion) = self.conversion else {
            if target.len() != stored.len() {
                return Err(short());
            }
            target.copy_from_slice(stored);
            return Ok(());
        };
        let fail = |value| self.not_converted(conversion, value);
        let count = stored.len() / conversion.from.size_bytes.max(1);
        let converted_bytes = count * conversion.to.size_bytes;
        if self.skip == 0 && target.len() == converted_bytes {
            return conversion.convert(stored, target).map_err(fail);
        }
        let mut converted = vec![0; converted_bytes];
        conversion.convert(stored, &mut converted).map_err(fail)?;
        let part = converted
            .get(self.skip..)
            .and_then(|rest| rest.get(..target.len()));
        target.copy_from_slice(part.ok_or_else(short)?);
        Ok(())
    }
}

/// Fills `target` from a segment without elements.
fn fill(part: SegmentSlice<'_>, target: &mut [u8]) -> Result<(), StoreError> {
    match part {
        SegmentSlice::Bytes(bytes) => target.copy_from_slice(bytes),
        SegmentSlice::Zeros(_) => target.fill(0),
        SegmentSlice::ChunkIndex(index, range) => {
            let missing = || StoreError::internal("an index of chunks that is too short");
            index.read(range.start, target).ok_or_else(missing)?;
        }
        SegmentSlice::Array(..)
        | SegmentSlice::Stored(..)
        | SegmentSlice::Encoded(..)
        | SegmentSlice::Rows(..)
        | SegmentSlice::Unread(..) => {
            return Err(StoreError::internal("elements that are not read"));
        }
    }
    Ok(())
}
