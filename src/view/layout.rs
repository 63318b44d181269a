//! What a computed file is made of.

use std::ops::Range;
use std::sync::Arc;

use super::hdf5::ChunkIndex;
use super::number::Conversion;
use crate::array::ArrayReader;
use crate::store::{StoreError, in_memory, part};

/// In which order the elements of an array lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementOrder {
    /// In C order over the whole array.
    RowMajor,
    /// Piece by piece (chunk, or inner chunk of shards) in C order over the grid of pieces, each of
    /// them whole and in C order itself: also what lies beyond the edges of the array.
    ChunkMajor,
}

/// The elements of an array as they lie in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayExtent {
    /// Which of the file's arrays it is.
    pub source: usize,
    /// The order of the elements.
    pub order: ElementOrder,
    /// How each number is written, where it is not as in the array.
    pub conversion: Option<Conversion>,
    /// All bytes in the file.
    pub size_bytes: u64,
}

impl ArrayExtent {
    /// All elements of an array in C order, or piece by piece; `None` if they are too many once
    /// they are converted.
    pub fn new(
        source: usize,
        reader: &ArrayReader,
        order: ElementOrder,
        conversion: Option<Conversion>,
    ) -> Option<Self> {
        let size_bytes = match order {
            ElementOrder::RowMajor => reader.size_bytes(),
            ElementOrder::ChunkMajor => reader.sequence_bytes(),
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

/// A part of a record: so many bytes of an array, and zeros behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSlice {
    /// The array; record by record the next bytes of it.
    pub placed: ArrayExtent,
    /// Bytes of it in each record.
    pub size_bytes: u64,
    /// Zeros behind them.
    pub padding_bytes: u64,
}

/// One part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many zero bytes.
    Zeros(u64),
    /// The elements of an array.
    Array(ArrayExtent),
    /// The index of the chunks of an array.
    ChunkIndex(ChunkIndex),
    /// So many times a record, in which each array has a slab.
    Records(u64, Vec<RecordSlice>),
}

impl Segment {
    /// Its size; `None` if a `u64` does not hold it.
    fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Zeros(size) => Some(*size),
            Self::Array(placed) => Some(placed.size_bytes),
            Self::ChunkIndex(index) => Some(index.size_bytes()),
            Self::Records(count, slabs) => record_bytes(slabs)?.checked_mul(*count),
        }
    }
}

fn record_bytes(slabs: &[RecordSlice]) -> Option<u64> {
    slabs.iter().try_fold(0_u64, |sum, slab| {
        sum.checked_add(slab.size_bytes)?
            .checked_add(slab.padding_bytes)
    })
}

/// The elements of each array begin at a multiple of this: the kernel reads whole pages, netCDF-C
/// blocks of so many bytes, and an element that cannot be read must not be in one with those of
/// another array.
pub(super) const ARRAY_ALIGNMENT_BYTES: u64 = 8192;
/// The elements of the first array begin at a multiple of this.
const ELEMENTS_ALIGNMENT_BYTES: u64 = 1 << 20;
/// At least so much is between a header and the elements: some libraries read the first 4 MiB of a
/// file to open it, and the kernel reads ahead of what they read. An element that cannot be read
/// must not be there, and no chunk should be decoded for it.
const GAP_BYTES: u64 = 4 << 20;

/// Where elements begin in a file whose header ends at `header_end`; `None` if no file is so long.
pub(super) fn elements_start(header_end: u64) -> Option<u64> {
    let start = header_end.checked_add(GAP_BYTES)?;
    start.checked_next_multiple_of(ELEMENTS_ALIGNMENT_BYTES)
}

/// An ordered list of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Each part with its end in the file.
    parts: Vec<(u64, Segment)>,
}

/// What lies in a part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentSlice<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many zero bytes.
    Zeros(u64),
    /// This range of the bytes of a placed array.
    Array(&'a ArrayExtent, Range<u64>),
    /// This range of the bytes of an index of chunks.
    ChunkIndex(&'a ChunkIndex, Range<u64>),
}

impl SegmentSlice<'_> {
    /// How long it is in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(count) => *count,
            Self::Array(_, range) | Self::ChunkIndex(_, range) => {
                range.end.saturating_sub(range.start)
            }
        }
    }
}

impl FileLayout {
    /// Puts parts one behind the other; `None` if their end is beyond what the kernel can count
    /// (2^63 - 1 bytes).
    pub fn new(placements: impl IntoIterator<Item = Segment>) -> Option<Self> {
        let mut end: u64 = 0;
        let mut parts = Vec::new();
        for placement in placements {
            end = end.checked_add(placement.size_bytes()?)?;
            parts.push((end, placement));
        }
        i64::try_from(end).ok()?;
        Some(Self { parts })
    }

    /// Size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.parts.last().map_or(0, |(end, _)| *end)
    }

    /// Bytes that the layout itself takes in memory: its headers.
    pub fn header_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|(_, placement)| match placement {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Records(_, slabs) => size_of_val(&slabs[..]) as u64,
            Segment::ChunkIndex(index) => index.memory_bytes(),
            Segment::Zeros(_) | Segment::Array(_) => 0,
        });
        parts.sum::<u64>() + size_of_val(&self.parts[..]) as u64
    }

    /// The bytes that are in the layout itself, in order.
    pub fn headers(&self) -> impl Iterator<Item = &[u8]> {
        self.parts
            .iter()
            .filter_map(|(_, placement)| match placement {
                Segment::Bytes(bytes) => Some(&bytes[..]),
                _ => None,
            })
    }

    /// What lies at `offset`, up to `size` bytes of it; nothing at the end.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if the parts do not agree with their sizes.
    pub fn at(&self, offset: u64, size: u64) -> Result<Option<SegmentSlice<'_>>, StoreError> {
        let place = self.parts.partition_point(|(end, _)| *end <= offset);
        let Some((end, placement)) = self.parts.get(place) else {
            return Ok(None);
        };
        let start = match place
            .checked_sub(1)
            .and_then(|before| self.parts.get(before))
        {
            Some((end, _)) => *end,
            None => 0,
        };
        let inside = offset.saturating_sub(start)..offset.saturating_add(size).min(*end) - start;
        Ok(Some(match placement {
            Segment::Bytes(bytes) => {
                let inside = in_memory(inside.start)?..in_memory(inside.end)?;
                SegmentSlice::Bytes(part(bytes, inside)?)
            }
            Segment::Zeros(_) => SegmentSlice::Zeros(inside.end.saturating_sub(inside.start)),
            Segment::Array(placed) => SegmentSlice::Array(placed, inside),
            Segment::ChunkIndex(index) => SegmentSlice::ChunkIndex(index, inside),
            Segment::Records(_, slabs) => in_records(slabs, &inside)
                .ok_or_else(|| StoreError::internal(format!("no record has byte {offset}")))?,
        }))
    }
}

/// What lies at the beginning of a range of the bytes of records.
fn in_records<'a>(slabs: &'a [RecordSlice], range: &Range<u64>) -> Option<SegmentSlice<'a>> {
    let whole = record_bytes(slabs)?;
    let record = range.start.checked_div(whole)?;
    let size = range.end.saturating_sub(range.start);
    let mut inside = range.start % whole;
    for slab in slabs {
        if inside < slab.size_bytes {
            let length = size.min(slab.size_bytes - inside);
            let start = record.checked_mul(slab.size_bytes)?.checked_add(inside)?;
            return Some(SegmentSlice::Array(
                &slab.placed,
                start..start.checked_add(length)?,
            ));
        }
        inside -= slab.size_bytes;
        if inside < slab.padding_bytes {
            return Some(SegmentSlice::Zeros(size.min(slab.padding_bytes - inside)));
        }
        inside -= slab.padding_bytes;
    }
    None
}

/// A computed file: its parts, the arrays that they are filled from, and what had to be left out.
#[derive(Debug, Clone)]
pub struct VirtualFile {
    /// The parts.
    pub layout: FileLayout,
    /// The arrays, by the numbers in [`ArrayExtent::source`].
    pub sources: Vec<Arc<ArrayReader>>,
    /// What of the nodes is not in the file and why, for people; one line each.
    pub notes: Vec<String>,
}

impl VirtualFile {
    /// A file that is only text.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        let part = Segment::Bytes(text.into());
        let size = part.size_bytes().unwrap_or(0);
        Self {
            layout: FileLayout {
                parts: vec![(size, part)],
            },
            sources: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A file of parts that are filled from one array.
    ///
    /// # Errors
    /// If it were longer than any file can be.
    pub fn of_array(
        reader: &Arc<ArrayReader>,
        parts: impl IntoIterator<Item = Segment>,
    ) -> Result<Self, String> {
        let layout = FileLayout::new(parts)
            .ok_or_else(|| format!("{} bytes: no file can be so long", reader.size_bytes()))?;
        Ok(Self {
            layout,
            sources: vec![Arc::clone(reader)],
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(size_bytes: u64) -> ArrayExtent {
        ArrayExtent {
            source: 0,
            order: ElementOrder::RowMajor,
            conversion: None,
            size_bytes,
        }
    }

    #[test]
    fn every_byte_is_where_its_part_is() {
        let array = placed(100);
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
    fn records_take_turns() {
        let slab = |source, size_bytes, padding_bytes| RecordSlice {
            placed: ArrayExtent {
                source,
                ..placed(3 * size_bytes)
            },
            size_bytes,
            padding_bytes,
        };
        let slabs = vec![slab(0, 8, 0), slab(1, 3, 1)];
        let layout = FileLayout::new([
            Segment::Zeros(5),
            Segment::Records(3, slabs.clone()),
            Segment::Bytes(b"end".to_vec()),
        ])
        .unwrap();
        assert_eq!(layout.size_bytes(), 5 + 36 + 3);
        let array = |place: usize, range| Some(SegmentSlice::Array(&slabs[place].placed, range));
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
    fn a_size_that_the_kernel_can_not_hold_is_refused() {
        let most = i64::MAX.unsigned_abs();
        let array = |size| Segment::Array(placed(size));
        assert!(FileLayout::new([array(most)]).is_some());
        assert!(FileLayout::new([Segment::Zeros(1), array(most)]).is_none());
        assert!(FileLayout::new([array(u64::MAX), Segment::Zeros(1)]).is_none());
        let slab = RecordSlice {
            placed: placed(1),
            size_bytes: 1 << 40,
            padding_bytes: 0,
        };
        assert!(FileLayout::new([Segment::Records(1 << 40, vec![slab])]).is_none());
    }
}
