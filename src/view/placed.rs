//! Reading the parts of a layout.

use std::sync::Arc;

use super::layout::{Made, Order, Part, Placed};
use crate::array::ArrayReader;
use crate::store::{Data, Patience, StoreError};

impl Made {
    /// Reads `size` bytes of the file from `offset` into `buffer`, fewer only at the end.
    ///
    /// # Errors
    /// Those of [`ArrayReader::read`]; [`StoreError::Corrupt`] for an element that the format can
    /// not hold.
    pub fn read(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let end = offset
            .saturating_add(size as u64)
            .min(self.layout.size_bytes());
        // One part that is not converted: the reply is made from the decoded piece itself.
        if let Some(Part::Array(placed, range)) = self.layout.at(offset, size as u64)
            && placed.conversion.is_none()
            && range.end - range.start == end.saturating_sub(offset)
        {
            let reader = self.source(placed)?;
            let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            return read_elements(reader, placed.order, range.start, size, buffer, patience);
        }
        let mut filled = 0;
        while filled < size {
            let (at, left) = (offset.saturating_add(filled as u64), size - filled);
            let Some(part) = self.layout.at(at, left as u64) else {
                break;
            };
            let target = buffer.get_mut(filled..).unwrap_or_default();
            filled += match part {
                Part::Bytes(bytes) => {
                    put(target, bytes);
                    bytes.len()
                }
                Part::Zeros(count) => {
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    target.get_mut(..count).unwrap_or_default().fill(0);
                    count
                }
                Part::Array(placed, range) => {
                    let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                    let target = target.get_mut(..count).unwrap_or_default();
                    let reader = self.source(placed)?;
                    read_placed(reader, placed, range.start, target, patience)?;
                    count
                }
            };
        }
        Ok(Data::Filled(0..filled))
    }

    fn source(&self, placed: &Placed) -> Result<&Arc<ArrayReader>, StoreError> {
        let missing = || StoreError::Unsupported {
            key: Default::default(),
            what: "bug: a layout without its array".into(),
        };
        self.sources.get(placed.source).ok_or_else(missing)
    }
}

fn read_elements(
    reader: &Arc<ArrayReader>,
    order: Order,
    offset: u64,
    size: usize,
    buffer: &mut [u8],
    patience: Patience,
) -> Result<Data, StoreError> {
    match order {
        Order::Rows => reader.read(offset, size, buffer, patience),
        Order::Pieces => reader.read_sequence(offset, size, buffer, patience),
    }
}

/// Fills `target`, which lies whole in the placed array.
fn read_placed(
    reader: &Arc<ArrayReader>,
    placed: &Placed,
    offset: u64,
    target: &mut [u8],
    patience: Patience,
) -> Result<(), StoreError> {
    let short = || StoreError::Corrupt {
        key: reader.key().clone(),
        what: "bug: fewer elements than the file has".into(),
    };
    let Some(conversion) = &placed.conversion else {
        let data = read_elements(reader, placed.order, offset, target.len(), target, patience)?;
        return settle(data, target).ok_or_else(short);
    };
    // The numbers that have a byte in the target, whole.
    let (from, to) = (
        conversion.from.size_bytes as u64,
        conversion.to.size_bytes as u64,
    );
    let first = offset / to;
    let count = (offset + target.len() as u64).div_ceil(to) - first;
    let bytes = |numbers: u64, size: u64| usize::try_from(numbers * size).unwrap_or(usize::MAX);
    let mut numbers = vec![0; bytes(count, from)];
    let size = numbers.len();
    let data = read_elements(
        reader,
        placed.order,
        first * from,
        size,
        &mut numbers,
        patience,
    )?;
    settle(data, &mut numbers).ok_or_else(short)?;
    let fail = |value| StoreError::Corrupt {
        key: reader.key().clone(),
        what: format!("the file's numbers can not hold {value:?}"),
    };
    if offset.is_multiple_of(to) && target.len() == bytes(count, to) {
        return conversion.convert(&numbers, target).map_err(fail);
    }
    let mut converted = vec![0; bytes(count, to)];
    conversion.convert(&numbers, &mut converted).map_err(fail)?;
    let skip = usize::try_from(offset - first * to).unwrap_or(usize::MAX);
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

fn put(target: &mut [u8], bytes: &[u8]) {
    target
        .get_mut(..bytes.len())
        .unwrap_or_default()
        .copy_from_slice(bytes);
}
