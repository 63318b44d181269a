//! Row groups: each has one page of every column, with its header. All row groups but the last have the same
//! size, so that offsets follow by arithmetic.

use std::hash::Hasher;
use std::ops::Range;

use super::column::ColumnSource;
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::SegmentContent;

/// The row groups of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct RowGroups {
    columns: Vec<ColumnSource>,
    /// A row group other than the last; all of these have the same number of rows.
    full: RowGroup,
    /// The number of full row groups.
    count: u64,
    last: RowGroup,
}

/// The pages of one row group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::view) struct RowGroup {
    pages: Vec<Page>,
    size_bytes: u64,
}

/// One page with its header, followed by zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Page {
    header: Vec<u8>,
    values_bytes: u64,
    /// The end of the page in the row group, including the zeros.
    end: u64,
}

impl RowGroup {
    /// Adds a page whose end is a multiple of `alignment`; `None` on overflow.
    pub(in crate::view) fn push(
        &mut self,
        header: Vec<u8>,
        values_bytes: u64,
        alignment: u64,
    ) -> Option<()> {
        let size = values_bytes.checked_add(header.len() as u64)?;
        let end = self
            .size_bytes
            .checked_add(size)?
            .checked_next_multiple_of(alignment)?;
        self.size_bytes = end;
        self.pages.push(Page {
            header,
            values_bytes,
            end,
        });
        Some(())
    }

    /// Returns the offset of each page in the row group, and its size with its header.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.pages.iter().map(|page| page.end);
        let starts = std::iter::once(0).chain(ends);
        starts
            .zip(&self.pages)
            .map(|(start, page)| (start, page.header.len() as u64 + page.values_bytes))
    }

    pub(in crate::view) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the index of the page at an offset, the page, and its offset in the row group.
    fn page(&self, offset: u64) -> Option<(usize, &Page, u64)> {
        let index = self.pages.partition_point(|page| page.end <= offset);
        let before = index
            .checked_sub(1)
            .and_then(|before| self.pages.get(before));
        let start = before.map_or(0, |page| page.end);
        Some((index, self.pages.get(index)?, start))
    }
}

impl RowGroups {
    pub(in crate::view) fn new(
        columns: Vec<ColumnSource>,
        full: RowGroup,
        count: u64,
        last: RowGroup,
    ) -> Self {
        Self {
            columns,
            full,
            count,
            last,
        }
    }
}

impl RowGroups {
    /// Returns the headers of pages, and the values that are in memory.
    fn headers(&self) -> Vec<&[u8]> {
        let pages = self.full.pages.iter().chain(&self.last.pages);
        let texts = self.columns.iter().filter_map(|column| match column {
            ColumnSource::Values(values)
            | ColumnSource::Indexes {
                indexes: values, ..
            } => Some(&values[..]),
            _ => None,
        });
        pages.map(|page| &page.header[..]).chain(texts).collect()
    }
}

impl SegmentContent for RowGroups {
    fn size_bytes(&self) -> Option<u64> {
        let full = self.full.size_bytes.checked_mul(self.count)?;
        full.checked_add(self.last.size_bytes)
    }

    fn memory_bytes(&self) -> u64 {
        let texts: usize = self.headers().into_iter().map(<[u8]>::len).sum();
        let pages = size_of::<Page>() * (self.full.pages.len() + self.last.pages.len());
        (size_of::<Self>() + texts + pages + size_of_val(&self.columns[..])) as u64
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        self.headers()
            .into_iter()
            .for_each(|bytes| hasher.write(bytes));
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        let whole = self.full.size_bytes.checked_mul(self.count)?;
        let (group, number, offset) = match range.start < whole {
            true => {
                let size = self.full.size_bytes;
                (&self.full, range.start / size, range.start % size)
            }
            false => (&self.last, self.count, range.start - whole),
        };
        let (index, page, start) = group.page(offset)?;
        let zeros_end = page.end - start;
        let offset = offset - start;
        let length = range.end.saturating_sub(range.start);
        let header = page.header.len() as u64;
        if offset < header {
            let end = offset.checked_add(length)?.min(header);
            let part = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
            return Some(SegmentSlice::Bytes(page.header.get(part)?));
        }
        let values_end = header + page.values_bytes;
        if offset >= values_end {
            return Some(SegmentSlice::Zeros(length.min(zeros_end - offset)));
        }
        let length = length.min(values_end - offset);
        // The values of the previous row groups.
        let before = match number {
            0 => 0,
            number => number.checked_mul(self.full.pages.get(index)?.values_bytes)?,
        };
        let start = before.checked_add(offset - header)?;
        let range = start..start.checked_add(length)?;
        Some(match self.columns.get(index)? {
            ColumnSource::Array(extent) => SegmentSlice::Array(extent, range),
            ColumnSource::Encoded(array) => SegmentSlice::Rendered(array, range),
            ColumnSource::Values(values)
            | ColumnSource::Indexes {
                indexes: values, ..
            } => {
                let part = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
                SegmentSlice::Bytes(values.get(part)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::file::layout::{ArrayExtent, ElementOrder};

    fn group(values_bytes: [u64; 2]) -> RowGroup {
        let mut group = RowGroup::default();
        for (header, bytes) in [b"ab".to_vec(), b"c".to_vec()]
            .into_iter()
            .zip(values_bytes)
        {
            group.push(header, bytes, 8).unwrap();
        }
        group
    }

    #[test]
    fn each_byte_is_that_of_its_page() {
        let column = |source, size_bytes| {
            ColumnSource::Array(ArrayExtent {
                source,
                order: ElementOrder::RowMajor,
                conversion: None,
                size_bytes,
            })
        };
        // Pages at the offsets 0 and 16 of row groups of 24 bytes; 2.5 row groups.
        let columns = vec![column(0, 25), column(1, 5)];
        let groups = RowGroups::new(columns, group([10, 2]), 2, group([5, 1]));
        assert_eq!(groups.size_bytes(), Some(2 * 24 + 16));
        assert_eq!(
            group([10, 2]).places().collect::<Vec<_>>(),
            [(0, 12), (16, 3)]
        );
        let at = |start: u64| match groups.at(start..1000).unwrap() {
            SegmentSlice::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            SegmentSlice::Zeros(count) => format!("zeros {count}"),
            SegmentSlice::Array(extent, range) => format!("{} {range:?}", extent.source),
            other => panic!("{other:?}"),
        };
        for (start, expected) in [
            (0, "ab"),
            (1, "b"),
            (2, "0 0..10"),
            (11, "0 9..10"),
            (12, "zeros 4"),
            (16, "c"),
            (17, "1 0..2"),
            (23, "zeros 1"),
            (24 + 3, "0 11..20"),
            (24 + 18, "1 3..4"),
            (48 + 2, "0 20..25"),
            (48 + 7, "zeros 1"),
            (48 + 9, "1 4..5"),
        ] {
            assert_eq!(at(start), expected, "{start}");
        }
        assert_eq!(groups.at(64..65), None);
    }
}
