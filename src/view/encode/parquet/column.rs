//! The types of Parquet columns, and how their values are stored (PLAIN encoding).
//!
//! <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md>,
//! <https://github.com/apache/parquet-format/blob/master/Encodings.md>

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::thrift::Fields;
use crate::array::{ArrayReader, Selection, ServedVersions};
use crate::node::{Conversion, Number, NumberKind};
use crate::store::{StoreError, in_memory};
use crate::view::file::layout::{ArrayExtent, ElementOrder};
use crate::view::file::segment_content::{RenderedContent, source};
use crate::zarr::data_type::{TimeBase, TimeUnit};
use crate::zarr::{ByteOrder, Fixed, Scalar};

const INT32: i32 = 1;
const INT64: i32 = 2;
const FLOAT: i32 = 4;
const DOUBLE: i32 = 5;

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct ColumnType {
    /// `Type` of parquet.thrift.
    pub(super) physical: i32,
    /// Number of bytes of a value of constant size that is no number.
    length: Option<i32>,
    /// Whether rows may lack a value.
    is_optional: bool,
    logical: Option<LogicalType>,
    stored: StoredValues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogicalType {
    Text,
    Integer { bits: u8, is_signed: bool },
    Timestamp(TimestampUnit),
    Float16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimestampUnit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

/// The conversion of elements to stored values.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StoredValues {
    /// Each element separately, with this conversion if it is a number.
    Elements(Option<Conversion>),
    Encoded(ValueEncoding),
    Texts,
}

/// An encoding of elements that is more than a conversion of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueEncoding {
    /// Booleans of one bit each, the lowest bit of a byte first.
    Bits,
    /// 64-bit integers, multiplied by a factor. The minimum means "not a time" (NaT) and is unchanged.
    Scaled {
        /// The byte order of the elements.
        order: ByteOrder,
        /// The factor; at least 1.
        factor: i64,
    },
}

/// The elements of an array in an encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct EncodedArray {
    /// The index of the array in `VirtualFile::sources`.
    source: usize,
    /// The encoding.
    encoding: ValueEncoding,
    /// Size of all elements in the array, in bytes.
    elements_bytes: u64,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) enum ColumnSource {
    Array(ArrayExtent),
    Encoded(EncodedArray),
    /// The page of values, without its header.
    Values(Vec<u8>),
    /// The dictionary page with its header, and the content of the page of indexes.
    Indexes {
        dictionary: Vec<u8>,
        indexes: Vec<u8>,
    },
}

impl ColumnType {
    /// Returns the type of a column in which rows may lack a value if `is_optional` is set.
    pub(in crate::view) fn with_nulls(self, is_optional: bool) -> Self {
        Self {
            is_optional,
            ..self
        }
    }

    pub(super) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Returns elements as the file stores them; `None` if a value does not fit, and for text.
    pub(super) fn encode(&self, elements: &[u8]) -> Option<Vec<u8>> {
        match &self.stored {
            StoredValues::Elements(None) => Some(elements.to_vec()),
            StoredValues::Elements(Some(conversion)) => {
                let bytes = conversion.target_bytes(elements.len() as u64)?;
                let mut stored = vec![0; usize::try_from(bytes).ok()?];
                conversion.convert(elements, &mut stored).ok()?;
                Some(stored)
            }
            StoredValues::Encoded(encoding) => encoding.encode(elements).ok(),
            StoredValues::Texts => None,
        }
    }

    /// Returns the type of text.
    pub(in crate::view) fn text(is_optional: bool) -> Self {
        Self {
            physical: 6,
            length: None,
            is_optional,
            logical: Some(LogicalType::Text),
            stored: StoredValues::Texts,
        }
    }

    /// Returns the type of the elements of an array.
    ///
    /// # Errors
    /// Parquet has no such type.
    pub(in crate::view) fn of(data_type: &Fixed) -> Result<Self, String> {
        let none = || format!("Parquet has no data type for {data_type}");
        match (&data_type.scalar, Number::of(data_type)) {
            (Scalar::Bool, _) => Ok(Self {
                physical: 0,
                length: None,
                is_optional: false,
                logical: None,
                stored: StoredValues::Encoded(ValueEncoding::Bits),
            }),
            (Scalar::Bytes | Scalar::Raw, _) => Ok(Self {
                physical: 7,
                length: Some(i32::try_from(data_type.size_bytes).map_err(|_| none())?),
                is_optional: false,
                logical: None,
                stored: StoredValues::Elements(None),
            }),
            (Scalar::DateTime { order, unit }, Some((number, 1))) => {
                Ok(times(*order, *unit).unwrap_or_else(|| integer(number)))
            }
            (_, Some((number, 1))) if number.kind == NumberKind::Float => {
                float(number).ok_or_else(none)
            }
            (_, Some((number, 1))) => Ok(integer(number)),
            _ => Err(none()),
        }
    }

    /// Returns the size of `values` values in bytes; `None` if it overflows.
    pub(in crate::view) fn values_bytes(&self, values: u64) -> Option<u64> {
        let size = match (self.physical, self.length) {
            (0, _) => return Some(values.div_ceil(8)),
            (_, Some(length)) => u64::try_from(length).ok()?,
            (INT32 | FLOAT, _) => 4,
            _ => 8,
        };
        values.checked_mul(size)
    }

    /// Returns the values of an array; `None` if their size overflows.
    pub(in crate::view) fn array(
        &self,
        source: usize,
        reader: &ArrayReader,
    ) -> Option<ColumnSource> {
        match &self.stored {
            StoredValues::Elements(conversion) => {
                let order = ElementOrder::RowMajor;
                let extent = ArrayExtent::new(source, reader, order, *conversion)?;
                Some(ColumnSource::Array(extent))
            }
            StoredValues::Encoded(encoding) => Some(ColumnSource::Encoded(EncodedArray {
                source,
                encoding: *encoding,
                elements_bytes: reader.size_bytes(),
            })),
            StoredValues::Texts => None,
        }
    }

    /// Writes the fields of a `SchemaElement` with this name.
    pub(super) fn write_schema(&self, fields: &mut Fields, name: &str) {
        fields.i32(1, self.physical);
        if let Some(length) = self.length {
            fields.i32(2, length);
        }
        fields.i32(3, i32::from(self.is_optional));
        fields.binary(4, name.as_bytes());
        let Some(logical) = self.logical else {
            return;
        };
        if let Some(converted) = logical.converted() {
            fields.i32(6, converted);
        }
        fields.nested(10, |union| logical.write(union));
    }
}

impl LogicalType {
    /// Returns the `ConvertedType`, for older readers. It has no `Float16`, and its timestamps are in UTC.
    fn converted(self) -> Option<i32> {
        match self {
            Self::Text => Some(0),
            Self::Integer { bits, is_signed } => {
                let first = if is_signed { 15 } else { 11 };
                Some(first + i32::try_from(bits.trailing_zeros()).unwrap_or(3) - 3)
            }
            Self::Timestamp(_) | Self::Float16 => None,
        }
    }

    fn write(self, union: &mut Fields) {
        match self {
            Self::Text => union.nested(1, |_| {}),
            Self::Integer { bits, is_signed } => union.nested(10, |integer| {
                integer.byte(1, bits);
                integer.boolean(2, is_signed);
            }),
            Self::Timestamp(resolution) => union.nested(8, |timestamp| {
                timestamp.boolean(1, false);
                let unit = match resolution {
                    TimestampUnit::Milliseconds => 1,
                    TimestampUnit::Microseconds => 2,
                    TimestampUnit::Nanoseconds => 3,
                };
                timestamp.nested(2, |units| units.nested(unit, |_| {}));
            }),
            Self::Float16 => union.nested(15, |_| {}),
        }
    }
}

/// Returns integers of 32 or 64 bits; integers with fewer bits are widened.
fn integer(number: Number) -> ColumnType {
    let size = number.size_bytes.max(4);
    let bits = u8::try_from(8 * number.size_bytes).unwrap_or(64);
    let is_signed = number.kind == NumberKind::Int;
    let is_plain = is_signed && number.size_bytes == size;
    let to = Number::new(number.kind, size, ByteOrder::Little);
    ColumnType {
        physical: if size == 4 { INT32 } else { INT64 },
        length: None,
        is_optional: false,
        logical: (!is_plain).then_some(LogicalType::Integer { bits, is_signed }),
        stored: StoredValues::Elements(Some(Conversion::new(number, to))),
    }
}

fn float(number: Number) -> Option<ColumnType> {
    let (physical, length, logical) = match number.size_bytes {
        2 => (7, Some(2), Some(LogicalType::Float16)),
        4 => (FLOAT, None, None),
        8 => (DOUBLE, None, None),
        _ => return None,
    };
    let to = Number::new(number.kind, number.size_bytes, ByteOrder::Little);
    Some(ColumnType {
        physical,
        length,
        is_optional: false,
        logical,
        stored: StoredValues::Elements(Some(Conversion::new(number, to))),
    })
}

/// Returns timestamps; `None` for units that are no multiple of a resolution of Parquet.
fn times(order: ByteOrder, unit: TimeUnit) -> Option<ColumnType> {
    use TimestampUnit::{Microseconds, Milliseconds, Nanoseconds};
    let (factor, resolution) = match unit.base {
        TimeBase::Week => (7 * 86_400_000, Milliseconds),
        TimeBase::Day => (86_400_000, Milliseconds),
        TimeBase::Hour => (3_600_000, Milliseconds),
        TimeBase::Minute => (60_000, Milliseconds),
        TimeBase::Second => (1000, Milliseconds),
        TimeBase::Millisecond => (1, Milliseconds),
        TimeBase::Microsecond => (1, Microseconds),
        TimeBase::Nanosecond => (1, Nanoseconds),
        _ => return None,
    };
    let factor = i64::from(unit.count).checked_mul(factor)?;
    let stored = match factor {
        1 => {
            let number = |order| Number::new(NumberKind::Int, 8, order);
            StoredValues::Elements(Some(Conversion::new(
                number(order),
                number(ByteOrder::Little),
            )))
        }
        factor => StoredValues::Encoded(ValueEncoding::Scaled { order, factor }),
    };
    Some(ColumnType {
        physical: INT64,
        length: None,
        is_optional: false,
        logical: Some(LogicalType::Timestamp(resolution)),
        stored,
    })
}

impl EncodedArray {
    /// Returns the byte range of the elements that overlap a range of stored bytes, and the number of stored
    /// bytes of the first element before the range.
    fn elements(&self, range: &Range<u64>) -> (Range<u64>, u64) {
        match self.encoding {
            ValueEncoding::Bits => {
                let limit = |byte: u64| byte.saturating_mul(8).min(self.elements_bytes);
                (limit(range.start)..limit(range.end), 0)
            }
            ValueEncoding::Scaled { .. } => {
                let start = range.start & !7;
                (start..range.end.next_multiple_of(8), range.start - start)
            }
        }
    }
}

#[async_trait]
impl RenderedContent for EncodedArray {
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        let reader = source(sources, self.source)?;
        let short = || StoreError::Internal {
            key: reader.key().clone(),
            what: "fewer elements than the file has".into(),
        };
        let (elements, skip) = self.elements(&range);
        let size = in_memory(elements.end.saturating_sub(elements.start))?;
        let data = (reader.read(Selection::RowMajor, elements.start, size, served)).await?;
        let elements = data.bytes(&[])?;
        if elements.len() != size {
            return Err(short());
        }
        let encoded = self.encoding.encode(elements);
        let encoded = encoded.map_err(|value| StoreError::Unsupported {
            key: reader.key().clone(),
            what: format!(
                "{value:?} is no value of the numbers in this file: read it from the .csv or .npy file"
            ),
        })?;
        let part = encoded.get(in_memory(skip)?..);
        let part = part.and_then(|rest| rest.get(..target.len()));
        target.copy_from_slice(part.ok_or_else(short)?);
        Ok(())
    }
}

impl ValueEncoding {
    /// Encodes elements.
    ///
    /// # Errors
    /// Returns the first element that cannot be stored.
    fn encode(self, elements: &[u8]) -> Result<Vec<u8>, i64> {
        match self {
            Self::Bits => {
                let bits = |byte: &[u8]| {
                    let bits = byte.iter().rev().map(|element| u8::from(*element != 0));
                    bits.fold(0, |byte, bit| byte << 1 | bit)
                };
                Ok(elements.chunks(8).map(bits).collect())
            }
            Self::Scaled { order, factor } => {
                let mut stored = Vec::with_capacity(elements.len());
                for word in elements.as_chunks::<8>().0 {
                    let value = match order {
                        ByteOrder::Little => i64::from_le_bytes(*word),
                        ByteOrder::Big => i64::from_be_bytes(*word),
                    };
                    let scaled = match value {
                        i64::MIN => value,
                        value => value.checked_mul(factor).ok_or(value)?,
                    };
                    stored.extend(scaled.to_le_bytes());
                }
                Ok(stored)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_bits() {
        let bits = ValueEncoding::Bits;
        let encoded = bits.encode(&[1, 0, 0, 2, 0, 0, 0, 1, 0, 1]);
        assert_eq!(encoded, Ok(vec![0b1000_1001, 0b10]));
        let array = EncodedArray {
            source: 0,
            encoding: bits,
            elements_bytes: 10,
        };
        assert_eq!(array.elements(&(0..1)), (0..8, 0));
        assert_eq!(array.elements(&(1..2)), (8..10, 0));
    }

    #[test]
    fn times_are_scaled_or_fail() {
        let scaled = ValueEncoding::Scaled {
            order: ByteOrder::Big,
            factor: 1000,
        };
        let elements = |value: i64| value.to_be_bytes();
        assert_eq!(
            scaled.encode(&elements(-2)),
            Ok((-2000_i64).to_le_bytes().to_vec())
        );
        assert_eq!(
            scaled.encode(&elements(i64::MIN)),
            Ok(i64::MIN.to_le_bytes().to_vec())
        );
        assert_eq!(scaled.encode(&elements(i64::MAX)), Err(i64::MAX));
        let array = EncodedArray {
            source: 0,
            encoding: scaled,
            elements_bytes: 80,
        };
        assert_eq!(array.elements(&(11..13)), (8..16, 3));
        assert_eq!(array.elements(&(16..17)), (16..24, 0));
    }

    #[test]
    fn integers_have_the_converted_type_of_their_size() {
        for (bits, is_signed, converted) in [
            (8, false, 11),
            (64, false, 14),
            (8, true, 15),
            (16, true, 16),
        ] {
            let logical = LogicalType::Integer { bits, is_signed };
            assert_eq!(logical.converted(), Some(converted));
        }
    }
}
