//! A partition: one file of Parquet references. Each row has the columns `path`, `offset`, `size` and
//! `raw`, any of which can be missing.

use std::ops::Range;
use std::sync::Arc;

use super::super::super::Reference;
use super::super::super::embedded::TargetText;
use super::super::text::decode_value;
use super::footer::{ColumnChunk, Footer, Type};
use super::pages::{self, Defined, Hybrid, NULL, Sink, Values};
use super::thrift::Result;

/// Bytes that a row takes in memory, and bytes that a value takes besides its content.
const ROW_BYTES: u64 = 24;
const VALUE_BYTES: u64 = 64;

const TOO_LARGE: &str = "it needs more memory than is allowed";

/// The references of a partition.
#[derive(Debug, Default)]
pub(in crate::store::reference::kerchunk) struct Partition {
    rows: u64,
    paths: Vec<u32>,
    offsets: Vec<i64>,
    sizes: Vec<i64>,
    raws: Vec<u32>,
    targets: Vec<TargetText>,
    values: Vec<Arc<Vec<u8>>>,
    bytes: u64,
}

impl Partition {
    /// Reads a file; the partition takes at most `limit_bytes` of memory.
    ///
    /// # Errors
    /// The reason why the file is invalid or not supported.
    pub(super) fn read(file: &[u8], limit_bytes: u64) -> Result<Self> {
        let footer = Footer::read(file)?;
        if footer.rows.saturating_mul(ROW_BYTES) > limit_bytes {
            return Err(TOO_LARGE);
        }
        let mut paths = Texts::new(limit_bytes);
        let mut raws = Texts::new(limit_bytes);
        let (mut offsets, mut sizes) = (Numbers::default(), Numbers::default());
        for column in footer.row_groups.iter().flatten() {
            let known = match column.name {
                b"path" => paths.rows.len(),
                b"raw" => raws.rows.len(),
                b"offset" => offsets.rows.len(),
                b"size" => sizes.rows.len(),
                _ => continue,
            };
            // Checked before the values are read: a run of any length takes a few bytes in the file.
            if (known as u64).saturating_add(column.values) > footer.rows {
                return Err("its columns have different lengths");
            }
            match column.name {
                b"path" => paths.read(column)?,
                b"raw" => raws.read(column)?,
                b"offset" => offsets.read(column, limit_bytes)?,
                b"size" => sizes.read(column, limit_bytes)?,
                _ => {}
            }
        }
        let lengths = [
            paths.rows.len(),
            raws.rows.len(),
            offsets.rows.len(),
            sizes.rows.len(),
        ];
        let is_whole = |length: &usize| *length == 0 || *length as u64 == footer.rows;
        if !lengths.iter().all(is_whole) {
            return Err("its columns have different lengths");
        }
        let bytes = footer
            .rows
            .saturating_mul(ROW_BYTES)
            .saturating_add(paths.bytes)
            .saturating_add(raws.bytes);
        let target = |bytes: Vec<u8>| String::from_utf8(bytes).map(|text| TargetText::new(&text));
        let targets = paths
            .values
            .into_iter()
            .map(target)
            .collect::<std::result::Result<_, _>>();
        Ok(Self {
            rows: footer.rows,
            paths: paths.rows,
            offsets: offsets.rows,
            sizes: sizes.rows,
            raws: raws.rows,
            targets: targets.map_err(|_| "a path is not in UTF-8")?,
            values: raws.values.into_iter().map(Arc::new).collect(),
            bytes,
        })
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes that the partition takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the reference of a row; `None` if the row has none.
    ///
    /// # Errors
    /// The reason why the row is invalid.
    pub(super) fn reference(&self, row: u64) -> std::result::Result<Option<Reference>, String> {
        let Some(row) = usize::try_from(row)
            .ok()
            .filter(|row| (*row as u64) < self.rows)
        else {
            return Ok(None);
        };
        let value = self
            .raws
            .get(row)
            .and_then(|value| self.values.get(*value as usize));
        if let Some(value) = value {
            return match decode_value(value) {
                None => Ok(Some(Reference::Inline(Arc::clone(value)))),
                Some(decoded) => decoded.map(|bytes| Some(Reference::Inline(Arc::new(bytes)))),
            };
        }
        let target = self
            .paths
            .get(row)
            .and_then(|target| self.targets.get(*target as usize));
        let Some(target) = target.filter(|target| !target.is_empty()) else {
            return Ok(None);
        };
        let offset = self.offsets.get(row).copied().unwrap_or(0);
        let size = self.sizes.get(row).copied().unwrap_or(0);
        let range = range(offset, size)
            .ok_or_else(|| format!("{size} bytes at offset {offset} are no range of a file"))?;
        // A whole file has neither an offset nor a size.
        let range = (range != (0..0)).then_some(range);
        target.reference(range).map(Some)
    }
}

fn range(offset: i64, size: i64) -> Option<Range<u64>> {
    let end = offset.checked_add(size)?;
    let (offset, size) = (u64::try_from(offset).ok()?, u64::try_from(size).ok()?);
    (offset.checked_add(size)? == u64::try_from(end).ok()?).then_some(offset..offset + size)
}

/// A column of byte strings. A value that comes from a dictionary is held only once.
#[derive(Debug)]
struct Texts {
    values: Vec<Vec<u8>>,
    /// Indexes into `values`, or [`NULL`].
    rows: Vec<u32>,
    /// The range of the current dictionary in `values`.
    dictionary: Range<usize>,
    bytes: u64,
    limit_bytes: u64,
}

impl Texts {
    fn new(limit_bytes: u64) -> Self {
        Self {
            values: Vec::new(),
            rows: Vec::new(),
            dictionary: 0..0,
            bytes: 0,
            limit_bytes,
        }
    }

    fn read(&mut self, column: &ColumnChunk<'_>) -> Result<()> {
        if column.kind != Type::ByteArray {
            return Err("a column of texts has another type");
        }
        self.dictionary = 0..0;
        let limit_bytes = self.limit_bytes;
        pages::read(column, self, limit_bytes)
    }

    fn push(&mut self, value: &[u8]) -> Result<u32> {
        let number = u32::try_from(self.values.len())
            .ok()
            .filter(|number| *number != NULL);
        let bytes = (value.len() as u64).saturating_add(VALUE_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit_bytes {
            return Err(TOO_LARGE);
        }
        self.values.push(value.to_vec());
        number.ok_or(TOO_LARGE)
    }
}

/// Reads a byte string, which follows its length.
fn text<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8]> {
    const TOO_SHORT: &str = "a text ends too early";
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(TOO_SHORT)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (text, rest) = rest.split_at_checked(length).ok_or(TOO_SHORT)?;
    *bytes = rest;
    Ok(text)
}

impl Sink for Texts {
    fn dictionary(&mut self, mut bytes: &[u8], values: u64) -> Result<()> {
        let start = self.values.len();
        for _ in 0..values {
            self.push(text(&mut bytes)?)?;
        }
        self.dictionary = start..self.values.len();
        Ok(())
    }

    fn values(&mut self, defined: Defined<'_>, values: Values<'_>) -> Result<()> {
        match values {
            Values::Plain(mut bytes) => {
                for is_defined in defined {
                    let place = match is_defined? {
                        false => NULL,
                        true => self.push(text(&mut bytes)?)?,
                    };
                    self.rows.push(place);
                }
            }
            Values::Indexes(mut indexes) => {
                for is_defined in defined {
                    let place = match is_defined? {
                        false => NULL,
                        true => index(&mut indexes, &self.dictionary)?,
                    };
                    self.rows.push(place);
                }
            }
        }
        Ok(())
    }
}

/// Returns the index in `values` of the next dictionary index.
fn index(indexes: &mut Hybrid<'_>, dictionary: &Range<usize>) -> Result<u32> {
    let place = dictionary.start.saturating_add(indexes.next()? as usize);
    let place = Some(place).filter(|place| *place < dictionary.end);
    let place = place.and_then(|place| u32::try_from(place).ok());
    place.ok_or("a value is not in its dictionary")
}

/// A column of numbers; a null is 0.
#[derive(Debug, Default)]
struct Numbers {
    rows: Vec<i64>,
    dictionary: Vec<i64>,
    is_short: bool,
}

impl Numbers {
    fn read(&mut self, column: &ColumnChunk<'_>, limit_bytes: u64) -> Result<()> {
        self.is_short = match column.kind {
            Type::Int32 => true,
            Type::Int64 => false,
            _ => return Err("a column of numbers has another type"),
        };
        self.dictionary.clear();
        pages::read(column, self, limit_bytes)
    }

    fn number(&self, bytes: &mut &[u8]) -> Result<i64> {
        const TOO_SHORT: &str = "a page of numbers ends too early";
        if self.is_short {
            let (number, rest) = bytes.split_first_chunk::<4>().ok_or(TOO_SHORT)?;
            *bytes = rest;
            return Ok(i32::from_le_bytes(*number).into());
        }
        let (number, rest) = bytes.split_first_chunk::<8>().ok_or(TOO_SHORT)?;
        *bytes = rest;
        Ok(i64::from_le_bytes(*number))
    }
}

impl Sink for Numbers {
    fn dictionary(&mut self, mut bytes: &[u8], values: u64) -> Result<()> {
        self.dictionary.clear();
        for _ in 0..values {
            let number = self.number(&mut bytes)?;
            self.dictionary.push(number);
        }
        Ok(())
    }

    fn values(&mut self, defined: Defined<'_>, values: Values<'_>) -> Result<()> {
        match values {
            Values::Plain(mut bytes) => {
                for is_defined in defined {
                    let number = match is_defined? {
                        false => 0,
                        true => self.number(&mut bytes)?,
                    };
                    self.rows.push(number);
                }
            }
            Values::Indexes(mut indexes) => {
                let all = 0..self.dictionary.len();
                for is_defined in defined {
                    let number = match is_defined? {
                        false => 0,
                        true => {
                            let place = index(&mut indexes, &all)? as usize;
                            self.dictionary.get(place).copied().unwrap_or(0)
                        }
                    };
                    self.rows.push(number);
                }
            }
        }
        Ok(())
    }
}
