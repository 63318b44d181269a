//! Reading the segments of a layout.

use std::sync::Arc;

use super::layout::{ArrayExtent, ElementOrder, SegmentSlice, VirtualFile};
use crate::array::{ArrayReader, ServedVersions};
use crate::store::{Data, Patience, StoreError, in_memory, part_mut};

impl VirtualFile {
    /// Reads `size` bytes of the file from `offset` into `buffer`, fewer only at the end. `served` is
    /// as in [`ArrayReader::read`].
    ///
    /// # Errors
    /// Those of [`ArrayReader::read`]; [`StoreError::Corrupt`] for an element that the format
    /// cannot hold.
    pub fn read(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let end = offset
            .saturating_add(size as u64)
            .min(self.layout.size_bytes());
        // One part that is not converted: the reply is made from the decoded piece itself.
        if let Some(SegmentSlice::Array(placed, range)) = self.layout.at(offset, size as u64)?
            && placed.conversion.is_none()
            && range.end - range.start == end.saturating_sub(offset)
        {
            let reader = self.source(placed)?;
            let size = in_memory(range.end - range.start)?;
            let from = (reader, placed.order, served);
            return read_elements(from, range.start, size, buffer, patience);
        }
        let mut filled = 0;
        while filled < size {
            let (at, left) = (offset.saturating_add(filled as u64), size - filled);
            let Some(part) = self.layout.at(at, left as u64)? else {
                break;
            };
            let count = in_memory(part.size_bytes())?;
            let target = part_mut(buffer, filled..filled + count)?;
            match part {
                SegmentSlice::Bytes(bytes) => target.copy_from_slice(bytes),
                SegmentSlice::Zeros(_) => target.fill(0),
                SegmentSlice::ChunkIndex(index, range) => {
                    let missing = || StoreError::internal("an index of chunks that is too short");
                    index.read(range.start, target).ok_or_else(missing)?;
                }
                SegmentSlice::Array(placed, range) => {
                    let reader = self.source(placed)?;
                    read_placed(reader, placed, range.start, target, patience, served)?;
                }
            }
            if count == 0 {
                let what = format!("an empty part at {at}");
                return Err(StoreError::internal(what));
            }
            filled += count;
        }
        Ok(Data::Filled(0..filled))
    }

    fn source(&self, placed: &ArrayExtent) -> Result<&Arc<ArrayReader>, StoreError> {
        let missing = || StoreError::internal("a layout without its array");
        self.sources.get(placed.source).ok_or_else(missing)
    }
}

fn read_elements(
    (reader, order, served): (&Arc<ArrayReader>, ElementOrder, Option<&ServedVersions>),
    offset: u64,
    size: usize,
    buffer: &mut [u8],
    patience: Patience,
) -> Result<Data, StoreError> {
    match order {
        ElementOrder::RowMajor => reader.read(offset, size, buffer, patience, served),
        ElementOrder::ChunkMajor => reader.read_sequence(offset, size, buffer, patience, served),
    }
}

/// Fills `target`, which lies whole in the placed array.
fn read_placed(
    reader: &Arc<ArrayReader>,
    placed: &ArrayExtent,
    offset: u64,
    target: &mut [u8],
    patience: Patience,
    served: Option<&ServedVersions>,
) -> Result<(), StoreError> {
    let from = (reader, placed.order, served);
    let short = || StoreError::Internal {
        key: reader.key().clone(),
        what: "fewer elements than the file has".into(),
    };
    let Some(conversion) = &placed.conversion else {
        let data = read_elements(from, offset, target.len(), target, patience)?;
        return settle(data, target).ok_or_else(short);
    };
    // The numbers that have a byte in the target, whole.
    let (stored, to) = (
        conversion.from.size_bytes as u64,
        conversion.to.size_bytes as u64,
    );
    let first = offset / to;
    let count = (offset + target.len() as u64).div_ceil(to) - first;
    let converted_bytes = in_memory(count * to)?;
    let mut numbers = vec![0; in_memory(count * stored)?];
    let size = numbers.len();
    let data = read_elements(from, first * stored, size, &mut numbers, patience)?;
    settle(data, &mut numbers).ok_or_else(short)?;
    let fail = |value| StoreError::Corrupt {
        key: reader.key().clone(),
        what: format!("the file's numbers cannot hold {value:?}"),
    };
    if offset.is_multiple_of(to) && target.len() == converted_bytes {
        return conversion.convert(&numbers, target).map_err(fail);
    }
    let mut converted = vec![0; converted_bytes];
    conversion.convert(&numbers, &mut converted).map_err(fail)?;
    let skip = in_memory(offset - first * to)?;
    let part = converted
        .get(skip..)
        .and_then(|rest| rest.get(..target.len()));
    target.copy_from_slice(part.ok_or_else(short)?);
    Ok(())
}

/// Puts what was read into the target, if it is all of it.
fn settle(data: Data, target: &mut [u8]) -> Option<()> {
    match data {
        Data::Filled(range) => (range == (0..target.len())).then_some(()),
        Data::Shared(bytes, range) => {
            let bytes = bytes.get(range)?;
            (bytes.len() == target.len()).then(|| target.copy_from_slice(bytes))
        }
    }
}
