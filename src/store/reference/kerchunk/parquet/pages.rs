//! The pages of a column: levels, dictionaries and values.
//!
//! <https://github.com/apache/parquet-format/blob/master/Encodings.md>

use std::borrow::Cow;
use std::io::Read;

use super::footer::ColumnChunk;
use super::thrift::{Result, Thrift, types};

/// The index of a null value.
pub(super) const NULL: u32 = u32::MAX;

const TOO_SHORT: &str = "a page ends too early";

/// The consecutive values of a page.
#[derive(Debug)]
pub(super) enum Values<'a> {
    /// Plain encoding.
    Plain(&'a [u8]),
    /// Indexes into the dictionary.
    Indexes(Hybrid<'a>),
}

/// Receives the values of a column.
pub(super) trait Sink {
    /// Receives the dictionary and its number of values.
    fn dictionary(&mut self, bytes: &[u8], values: u64) -> Result<()>;

    /// Receives the values of a page: one for each row that `defined` marks; other rows are null.
    fn values(&mut self, defined: Defined<'_>, values: Values<'_>) -> Result<()>;
}

/// Tells which rows of a page have a value.
#[derive(Debug)]
pub(super) struct Defined<'a> {
    rows: u64,
    /// `None` if all rows have a value.
    levels: Option<Hybrid<'a>>,
}

impl Iterator for Defined<'_> {
    type Item = Result<bool>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows = self.rows.checked_sub(1)?;
        match &mut self.levels {
            None => Some(Ok(true)),
            Some(levels) => Some(levels.next().map(|level| level != 0)),
        }
    }
}

/// Decodes alternating runs of equal numbers and groups of packed numbers (RLE / bit-packing hybrid).
#[derive(Debug)]
pub(super) struct Hybrid<'a> {
    bytes: &'a [u8],
    width: u32,
    /// How many numbers of a run are left, and the number.
    run: (u64, u32),
    /// How many numbers of a group are left, the group's bytes, and the bit at which the next number begins.
    packed: (u64, &'a [u8], usize),
}

impl<'a> Hybrid<'a> {
    fn new(bytes: &'a [u8], width: u32) -> Result<Self> {
        if width > 32 {
            return Err("its numbers are too wide");
        }
        Ok(Self {
            bytes,
            width,
            run: (0, 0),
            packed: (0, &[], 0),
        })
    }

    pub(super) fn next(&mut self) -> Result<u32> {
        loop {
            if let Some(left) = self.run.0.checked_sub(1) {
                self.run.0 = left;
                return Ok(self.run.1);
            }
            if let Some(left) = self.packed.0.checked_sub(1) {
                self.packed.0 = left;
                return self.unpack();
            }
            self.begin()?;
        }
    }

    fn begin(&mut self) -> Result<()> {
        let mut thrift = Thrift(self.bytes);
        let header = thrift.varint().map_err(|_| TOO_SHORT)?;
        self.bytes = thrift.0;
        if header & 1 == 0 {
            let length = self.width.div_ceil(8) as usize;
            let (value, rest) = self.bytes.split_at_checked(length).ok_or(TOO_SHORT)?;
            let mut bytes = [0; 4];
            bytes
                .get_mut(..length)
                .ok_or(TOO_SHORT)?
                .copy_from_slice(value);
            self.bytes = rest;
            self.run = (header >> 1, u32::from_le_bytes(bytes));
            return Ok(());
        }
        // A group of eight numbers takes as many bytes as a number has bits; the last group may be truncated.
        let groups = header >> 1;
        let length = groups.saturating_mul(self.width.into());
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let (own, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        self.packed = (groups.saturating_mul(8), own, 0);
        Ok(())
    }

    fn unpack(&mut self) -> Result<u32> {
        let (_, bytes, bit) = &mut self.packed;
        let width = self.width as usize;
        let first = *bit / 8;
        let needed = bytes
            .get(first..(*bit + width).div_ceil(8))
            .ok_or(TOO_SHORT)?;
        let mut word = [0; 8];
        word.get_mut(..needed.len())
            .ok_or(TOO_SHORT)?
            .copy_from_slice(needed);
        let value = u64::from_le_bytes(word) >> (*bit % 8);
        *bit += width;
        let mask = (1_u64 << width) - 1;
        u32::try_from(value & mask).map_err(|_| TOO_SHORT)
    }
}

#[derive(Debug, Default)]
struct PageHeader {
    kind: i64,
    decoded_bytes: u64,
    encoded_bytes: u64,
    values: u64,
    encoding: i64,
    level_encoding: i64,
    definition_bytes: u64,
    repetition_bytes: u64,
    is_compressed: bool,
}

const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;

fn page_header(thrift: &mut Thrift<'_>) -> Result<PageHeader> {
    let mut page = PageHeader {
        level_encoding: RLE,
        is_compressed: true,
        ..PageHeader::default()
    };
    thrift.structure(|thrift, field, kind| {
        match (field, kind) {
            (1, _) => page.kind = thrift.number()?,
            (2, _) => page.decoded_bytes = thrift.size()?,
            (3, _) => page.encoded_bytes = thrift.size()?,
            (5 | 7 | 8, _) => kind_header(thrift, field, &mut page)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(page)
}

/// The header of a data page (5), a dictionary (7) or a data page of version 2 (8).
fn kind_header(thrift: &mut Thrift<'_>, of: i64, page: &mut PageHeader) -> Result<()> {
    thrift.structure(|thrift, field, kind| {
        match (of, field, kind) {
            (_, 1, _) => page.values = thrift.size()?,
            (5 | 7, 2, _) | (8, 4, _) => page.encoding = thrift.number()?,
            (5, 3, _) => page.level_encoding = thrift.number()?,
            (8, 5, _) => page.definition_bytes = thrift.size()?,
            (8, 6, _) => page.repetition_bytes = thrift.size()?,
            (8, 7, types::TRUE | types::FALSE) => page.is_compressed = kind == types::TRUE,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// Reads all values of a column into `sink`. No page may decode to more than `limit_bytes`.
///
/// # Errors
/// The reason why the column is invalid or not supported.
pub(super) fn read(column: &ColumnChunk<'_>, sink: &mut dyn Sink, limit_bytes: u64) -> Result<()> {
    let mut rest = Thrift(column.bytes);
    let mut left = column.values;
    while left > 0 {
        let page = page_header(&mut rest)?;
        let length = usize::try_from(page.encoded_bytes).map_err(|_| TOO_SHORT)?;
        let (body, behind) = rest.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        rest = Thrift(behind);
        if page.decoded_bytes > limit_bytes {
            return Err("a page needs more memory than is allowed");
        }
        match page.kind {
            DICTIONARY_PAGE => {
                let bytes = decode(column.codec, body, page.decoded_bytes)?;
                match page.encoding {
                    PLAIN | PLAIN_DICTIONARY => sink.dictionary(&bytes, page.values)?,
                    _ => return Err("its dictionary has an encoding that is not supported"),
                }
                continue;
            }
            DATA_PAGE | DATA_PAGE_V2 => {}
            // An index page.
            _ => continue,
        }
        left = left
            .checked_sub(page.values)
            .ok_or("its pages have too many values")?;
        if page.kind == DATA_PAGE {
            let bytes = decode(column.codec, body, page.decoded_bytes)?;
            let (levels, values) = levels(&bytes, column.is_optional, &page)?;
            read_values(&page, levels, values, sink)?;
        } else {
            read_v2(column, &page, body, sink)?;
        }
    }
    Ok(())
}

/// Reads a page of version 2, whose levels are not compressed.
fn read_v2(
    column: &ColumnChunk<'_>,
    page: &PageHeader,
    body: &[u8],
    sink: &mut dyn Sink,
) -> Result<()> {
    let length = |bytes: u64| usize::try_from(bytes).map_err(|_| TOO_SHORT);
    let repetition = length(page.repetition_bytes)?;
    let (_, body) = body.split_at_checked(repetition).ok_or(TOO_SHORT)?;
    let definition = length(page.definition_bytes)?;
    let (levels, body) = body.split_at_checked(definition).ok_or(TOO_SHORT)?;
    let levels_bytes = page.repetition_bytes.saturating_add(page.definition_bytes);
    let decoded_bytes = page.decoded_bytes.saturating_sub(levels_bytes);
    let bytes = match page.is_compressed {
        true => decode(column.codec, body, decoded_bytes)?,
        false => Cow::Borrowed(body),
    };
    let levels = match column.is_optional {
        true => Some(Hybrid::new(levels, 1)?),
        false => None,
    };
    read_values(page, levels, &bytes, sink)
}

type Split<'a> = (Option<Hybrid<'a>>, &'a [u8]);

/// Splits a page of version 1 into levels and values.
fn levels<'a>(bytes: &'a [u8], is_optional: bool, page: &PageHeader) -> Result<Split<'a>> {
    if !is_optional {
        return Ok((None, bytes));
    }
    if page.level_encoding != RLE {
        return Err("its levels have an encoding that is not supported");
    }
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(TOO_SHORT)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (levels, values) = rest.split_at_checked(length).ok_or(TOO_SHORT)?;
    Ok((Some(Hybrid::new(levels, 1)?), values))
}

fn read_values(
    page: &PageHeader,
    levels: Option<Hybrid<'_>>,
    values: &[u8],
    sink: &mut dyn Sink,
) -> Result<()> {
    let defined = Defined {
        rows: page.values,
        levels,
    };
    match page.encoding {
        PLAIN => sink.values(defined, Values::Plain(values)),
        PLAIN_DICTIONARY | RLE_DICTIONARY => {
            // A page that has only nulls may have no values at all.
            let (width, rest) = values.split_first().unwrap_or((&0, &[]));
            let indexes = Hybrid::new(rest, (*width).into())?;
            sink.values(defined, Values::Indexes(indexes))
        }
        _ => Err("its values have an encoding that is not supported"),
    }
}

/// Decompresses a page to `decoded_bytes` bytes.
fn decode(codec: i64, bytes: &[u8], decoded_bytes: u64) -> Result<Cow<'_, [u8]>> {
    const DAMAGED: &str = "a page cannot be decompressed";
    if codec == 0 {
        return Ok(Cow::Borrowed(bytes));
    }
    let length = usize::try_from(decoded_bytes).map_err(|_| DAMAGED)?;
    let mut decoded =
        bytemuck::try_zeroed_vec::<u8>(length).map_err(|()| "no memory for a page")?;
    let filled = match codec {
        1 => {
            let fits = snap::raw::decompress_len(bytes).is_ok_and(|needed| needed <= length);
            let mut decoder = snap::raw::Decoder::new();
            match fits {
                true => decoder
                    .decompress(bytes, &mut decoded)
                    .map_err(|_| DAMAGED)?,
                false => return Err(DAMAGED),
            }
        }
        2 => {
            let mut decoder = flate2::read::MultiGzDecoder::new(bytes);
            decoder.read_exact(&mut decoded).map_err(|_| DAMAGED)?;
            length
        }
        6 => {
            let filled = zstd::bulk::decompress_to_buffer(bytes, &mut decoded);
            filled.map_err(|_| DAMAGED)?
        }
        7 => lz4_flex::block::decompress_into(bytes, &mut decoded).map_err(|_| DAMAGED)?,
        _ => return Err("it is compressed in a way that is not supported"),
    };
    match filled == length {
        true => Ok(Cow::Owned(decoded)),
        false => Err(DAMAGED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_numbers_follow_each_other() {
        // 5 times 6, then the numbers 0 to 7 with 3 bits each.
        let bytes = [10, 6, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut numbers = Hybrid::new(&bytes, 3).unwrap();
        let read: Vec<u32> = (0..13).map(|_| numbers.next().unwrap()).collect();
        assert_eq!(read, [6, 6, 6, 6, 6, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(numbers.next().is_err());
        assert!(Hybrid::new(&[], 33).is_err());
        let mut none = Hybrid::new(&[2], 0).unwrap();
        assert_eq!(none.next(), Ok(0));
    }
}
