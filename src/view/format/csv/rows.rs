//! Rows of equal length, which are rendered from decoded elements when they are read.
//!
//! Values have their shortest form. In one column, all are numbers: blanks before them pad each row to the
//! longest one. All common readers skip blanks before a number, but not around other values.

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

use super::cell::CellFormat;
use crate::array::{ArrayReader, Selection, ServedVersions};
use crate::fallible::NoMemory;
use crate::runtime::leave_session_thread;
use crate::store::{StoreError, in_memory};
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::{self, RenderedContent, SegmentContent};

/// The maximum number of columns whose elements are read concurrently.
const MAX_CONCURRENT: usize = 8;

/// The rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    columns: Vec<CsvColumn>,
    /// The index of the column with blanks.
    padded: usize,
    rows: u64,
    row_bytes: u64,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CsvColumn {
    /// The number of the row, from 0.
    Number,
    /// The elements of an array.
    Elements {
        /// The index of the array in `VirtualFile::sources`.
        source: usize,
        element_bytes: usize,
        cell: CellFormat,
        /// The elements of rows without a value.
        missing: Vec<Vec<u8>>,
    },
    Texts(QuotedTexts),
}

/// Texts in quotes, as in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct QuotedTexts {
    bytes: Vec<u8>,
    /// The end of each text.
    ends: Vec<usize>,
}

impl QuotedTexts {
    /// Adds a text.
    pub(super) fn push(&mut self, text: &str) {
        self.bytes.push(b'"');
        self.bytes.extend(text.replace('"', "\"\"").into_bytes());
        self.bytes.push(b'"');
        self.ends.push(self.bytes.len());
    }

    /// Adds the text of an element; `None` if its size is wrong.
    pub(super) fn push_element(&mut self, cell: CellFormat, element: &[u8]) -> Option<()> {
        cell.write(element, &mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Some(())
    }

    /// Adds a missing value, which differs from an empty text.
    pub(super) fn push_none(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before));
        self.bytes
            .get(start.copied().unwrap_or(0)..*self.ends.get(row)?)
    }

    fn width(&self) -> u64 {
        let starts = std::iter::once(&0).chain(&self.ends);
        let lengths = self.ends.iter().zip(starts).map(|(end, start)| end - start);
        lengths.max().unwrap_or(0) as u64
    }
}

/// Returns that elements contradict the widths of the columns.
fn internal() -> StoreError {
    StoreError::internal("rows that are not as long as they should be")
}

impl CsvColumn {
    fn width(&self, rows: u64) -> u64 {
        match self {
            Self::Number => u64::from(rows.saturating_sub(1).max(1).ilog10()) + 1,
            Self::Elements { cell, .. } => cell.width(),
            Self::Texts(texts) => texts.width(),
        }
    }

    /// Returns whether each value is a number, so that blanks may precede it.
    pub(super) fn is_always_number(&self) -> bool {
        match self {
            Self::Number => true,
            Self::Elements { cell, missing, .. } => missing.is_empty() && cell.is_always_number(),
            Self::Texts(_) => false,
        }
    }
}

impl Rows {
    /// Returns rows of these columns; the first column of numbers has the blanks.
    pub(super) fn new(columns: Vec<CsvColumn>, rows: u64) -> Self {
        let padded = columns.iter().position(CsvColumn::is_always_number);
        // A comma or a line feed follows each value.
        let row_bytes = columns.iter().map(|column| column.width(rows) + 1).sum();
        Self {
            padded: padded.unwrap_or(0),
            columns,
            rows,
            row_bytes,
        }
    }

    /// Returns the length of each row in bytes.
    pub(super) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn texts(&self) -> impl Iterator<Item = &QuotedTexts> {
        self.columns.iter().filter_map(|column| match column {
            CsvColumn::Texts(texts) => Some(texts),
            _ => None,
        })
    }

    /// Renders the text of rows.
    ///
    /// # Errors
    /// A value is longer than its type allows, or values are missing; [`StoreError::TooLarge`] if the system has no
    /// memory for the text.
    fn render(&self, rows: &Range<u64>, values: &[Vec<u8>]) -> Result<Vec<u8>, StoreError> {
        let size_bytes = (rows.end - rows.start).saturating_mul(self.row_bytes);
        let mut text = Vec::new();
        (text.try_reserve_exact(in_memory(size_bytes)?)).map_err(|_| NoMemory(size_bytes))?;
        self.append(rows, values, &mut text).ok_or_else(internal)?;
        Ok(text)
    }

    /// Appends the text of rows; `None` if a value is longer than its type allows, or if values are missing.
    fn append(&self, rows: &Range<u64>, values: &[Vec<u8>], text: &mut Vec<u8>) -> Option<()> {
        let row_bytes = usize::try_from(self.row_bytes).ok()?;
        let count = usize::try_from(rows.end - rows.start).ok()?;
        for index in 0..count {
            let (start, mut padded_at) = (text.len(), 0);
            let row = rows.start.checked_add(index as u64)?;
            for (number, (column, values)) in self.columns.iter().zip(values).enumerate() {
                if number > 0 {
                    text.push(b',');
                }
                if number == self.padded {
                    padded_at = text.len();
                }
                column.write(row, index, values, text)?;
            }
            text.push(b'\n');
            let end = text.len();
            let blanks = row_bytes.checked_sub(end - start)?;
            text.resize(end + blanks, b' ');
            text.copy_within(padded_at..end, padded_at + blanks);
            text.get_mut(padded_at..padded_at + blanks)?.fill(b' ');
        }
        Some(())
    }
}

impl SegmentContent for Rows {
    fn size_bytes(&self) -> Option<u64> {
        self.rows.checked_mul(self.row_bytes)
    }

    fn memory_bytes(&self) -> u64 {
        let texts = self
            .texts()
            .map(|texts| texts.bytes.len() + size_of_val(&texts.ends[..]));
        let columns = size_of_val(&self.columns[..]);
        (size_of::<Self>() + texts.sum::<usize>() + columns) as u64
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        for column in &self.columns {
            match column {
                CsvColumn::Texts(texts) => {
                    hasher.write(&texts.bytes);
                    texts.ends.iter().for_each(|end| hasher.write_usize(*end));
                }
                column => hasher.write(format!("{column:?}").as_bytes()),
            }
        }
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        Some(SegmentSlice::Rendered(self, range))
    }
}

#[async_trait]
impl RenderedContent for Rows {
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        leave_session_thread().await;
        let row_bytes = self.row_bytes.max(1);
        let rows = range.start / row_bytes..range.end.div_ceil(row_bytes);
        let columns = self.columns.iter();
        let loads: Vec<_> = columns
            .map(|column| column.read(sources, &rows, served).boxed())
            .collect();
        let values = stream::iter(loads).buffered(MAX_CONCURRENT);
        let values: Vec<Vec<u8>> = values.try_collect().await?;
        let text = self.render(&rows, &values)?;
        let skip = in_memory(range.start - rows.start * row_bytes)?;
        let part = text.get(skip..).and_then(|rest| rest.get(..target.len()));
        target.copy_from_slice(part.ok_or_else(internal)?);
        Ok(())
    }
}

impl CsvColumn {
    /// Reads the elements of rows.
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        rows: &Range<u64>,
        served: Option<&ServedVersions>,
    ) -> Result<Vec<u8>, StoreError> {
        let Self::Elements {
            source,
            element_bytes,
            ..
        } = self
        else {
            return Ok(Vec::new());
        };
        let reader = segment_content::source(sources, *source)?;
        let size = *element_bytes as u64;
        let elements = rows.start.saturating_mul(size);
        let length = in_memory((rows.end - rows.start).saturating_mul(size))?;
        let data = reader
            .read(Selection::RowMajor, elements, length, served)
            .await?;
        Ok(data.bytes(&[])?.to_vec())
    }

    /// Appends the value of `row`, whose element has the index `index` in `elements`.
    fn write(&self, row: u64, index: usize, elements: &[u8], text: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Number => {
                let mut digits = itoa::Buffer::new();
                text.extend_from_slice(digits.format(row).as_bytes());
                Some(())
            }
            Self::Elements {
                element_bytes,
                cell,
                missing,
                ..
            } => {
                let start = index.checked_mul(*element_bytes)?;
                let element = elements.get(start..start.checked_add(*element_bytes)?)?;
                match missing.iter().any(|missing| missing == element) {
                    true => Some(()),
                    false => cell.write(element, text),
                }
            }
            Self::Texts(texts) => {
                text.extend_from_slice(texts.get(usize::try_from(row).ok()?)?);
                Some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    #[test]
    fn all_rows_have_one_length() {
        let cell = |kind, size_bytes| CsvColumn::Elements {
            source: 0,
            element_bytes: size_bytes,
            cell: match kind {
                NumberKind::Float => {
                    CellFormat::Float(Number::new(kind, size_bytes, ByteOrder::Little))
                }
                _ => CellFormat::Integer(Number::new(kind, size_bytes, ByteOrder::Little)),
            },
            missing: Vec::new(),
        };
        let mut texts = QuotedTexts::default();
        for text in ["", "a\"b", "x\ny"] {
            texts.push(text);
        }
        let columns = vec![
            cell(NumberKind::Float, 4),
            CsvColumn::Texts(texts),
            cell(NumberKind::Int, 1),
        ];
        let rows = Rows::new(columns, 3);
        assert_eq!(rows.row_bytes, (16 + 1) + (6 + 1) + (4 + 1));
        assert_eq!(rows.size_bytes(), Some(3 * 29));
        let floats = [0.5_f32, f32::NAN, -1e-30].map(f32::to_le_bytes).concat();
        let values = [floats, Vec::new(), vec![1, 2, 0x80]];
        let text = String::from_utf8(rows.render(&(0..3), &values).unwrap()).unwrap();
        let expected = [
            format!("0.5,\"\",{:>21}\n", 1),
            format!("NaN,\"a\"\"b\",{:>17}\n", 2),
            format!("-1e-30,\"x\ny\",{:>15}\n", -128),
        ];
        assert_eq!(text, expected.concat());
        let last = rows.render(
            &(2..3),
            &values.map(|values| values.get(8..).unwrap_or_default().to_vec()),
        );
        assert!(last.is_err(), "too few elements are no row");
    }

    #[test]
    fn numbers_of_rows_are_as_wide_as_the_last_one() {
        for (rows, width) in [(0, 1), (1, 1), (10, 1), (11, 2), (1_000_001, 7)] {
            assert_eq!(CsvColumn::Number.width(rows), width);
        }
    }
}
