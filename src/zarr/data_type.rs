//! Data types of decoded elements.
//!
//! Zarr v2 uses numpy's names (`<f4`, lists of fields), v3 its own names with configurations. [`v2`] and
//! [`v3`] parse them.

use std::fmt;

use super::error::MetadataError;

mod numpy;
mod time;
pub mod v2;
pub mod v3;

pub use time::{TimeBase, TimeUnit};

/// The maximum size of an element in bytes; numpy's limit is 2 GiB.
pub const MAX_ELEMENT_BYTES: usize = 16 << 20;

/// The maximum number of runs of words ([`Fixed::words`]) of an element. It limits structures whose
/// sub-arrays repeat mixed fields.
pub const MAX_WORD_RUNS: usize = 1 << 16;

/// The fields of the structure for an `optional` element: whether the element has a value, and the value.
const PRESENT: &str = "present";
const VALUE: &str = "value";

/// The byte order of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// The type of a decoded element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// Elements of constant size.
    Fixed(Fixed),
    /// Elements of variable length.
    Variable(Variable),
}

/// An element of constant size.
///
/// Decoded bytes have the byte order of the scalars. In v2 this is the declared order. In v3 it is always
/// [`ByteOrder::Little`], because the stored order belongs to the `bytes` codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The meaning of the bytes.
    pub scalar: Scalar,
    /// Size of one element in bytes, 1 to [`MAX_ELEMENT_BYTES`].
    pub size_bytes: usize,
}

/// The meaning of an element's bytes. One-byte words are [`ByteOrder::Little`], so that equal types compare
/// equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// One byte, 0 or 1.
    Bool,
    /// A two's complement integer of 1, 2, 4 or 8 bytes.
    Int(ByteOrder),
    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(ByteOrder),
    /// An IEEE 754 float of 2, 4 or 8 bytes.
    Float(ByteOrder),
    /// A complex number of 8 or 16 bytes: two floats of half the size, real and imaginary part.
    Complex(ByteOrder),
    /// An `i64` that counts units since 1970; the minimum is NaT.
    DateTime {
        /// Byte order of the integer.
        order: ByteOrder,
        /// The unit.
        unit: TimeUnit,
    },
    /// An `i64` that counts units; the minimum is NaT.
    TimeDelta {
        /// Byte order of the integer.
        order: ByteOrder,
        /// The unit.
        unit: TimeUnit,
    },
    /// Bytes padded with NUL (`S`, `null_terminated_bytes`).
    Bytes,
    /// Code points of 4 bytes padded with NUL (`U`, `fixed_length_utf32`).
    Text(ByteOrder),
    /// Opaque bytes (`V`, `r*`, `raw_bytes`).
    Raw,
    /// Named fields, in the order of their offsets.
    Struct(Vec<Field>),
    /// Items in C order; only within a structure.
    SubArray {
        /// Number of items along each axis.
        shape: Vec<usize>,
        /// The type of an item.
        item: Box<Fixed>,
    },
    /// A stored word without a numpy type (`bfloat16`, `float8_e4m3`, `int4`, ...); names that start with
    /// `complex_` are two words.
    Other {
        /// The name in the metadata.
        name: String,
        /// Byte order of each word.
        order: ByteOrder,
    },
}

/// One field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name, which is unique in the structure and not empty.
    pub name: String,
    /// Offset in bytes from the start of the structure.
    pub offset: usize,
    /// The field's own type.
    pub data_type: Fixed,
}

/// An element of variable length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// A UTF-8 string.
    Text,
    /// A byte string.
    Bytes,
    /// A one-dimensional array of items (`vlen-array`).
    Array(Fixed),
    /// Any value of the object codecs (`json2`, `msgpack2`, `categorize`).
    Object,
}

/// A run of words of one width inside an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// Offset in bytes from the start of the element.
    pub offset: usize,
    /// Size of one word in bytes, at least 2.
    pub width_bytes: usize,
    /// Number of consecutive words.
    pub count: usize,
}

impl DataType {
    /// Returns the type of an element of constant size; `None` for other elements.
    pub fn fixed(&self) -> Option<&Fixed> {
        match self {
            Self::Fixed(fixed) => Some(fixed),
            Self::Variable(_) => None,
        }
    }

    /// Returns the size of one element in bytes, if it is constant.
    pub fn size_bytes(&self) -> Option<usize> {
        self.fixed().map(|fixed| fixed.size_bytes)
    }
}

impl fmt::Display for DataType {
    /// Writes numpy's description; `text`, `bytes`, `array of ...` and `object` for variable elements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(fixed) => fixed.fmt(f),
            Self::Variable(Variable::Text) => f.write_str("text"),
            Self::Variable(Variable::Bytes) => f.write_str("bytes"),
            Self::Variable(Variable::Array(item)) => write!(f, "array of {item}"),
            Self::Variable(Variable::Object) => f.write_str("object"),
        }
    }
}

impl fmt::Display for Fixed {
    /// Writes the name of a [`Scalar::Other`], else numpy's description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scalar {
            Scalar::Other { name, .. } => f.write_str(name),
            _ => f.write_str(&self.numpy_descr()),
        }
    }
}

impl Fixed {
    /// Returns the runs of words inside an element, in the order of their offsets, for byte swaps. Types
    /// without a byte order (bytes, raw data, one-byte words) are left out.
    pub fn words(&self) -> Vec<Words> {
        let mut runs = Vec::new();
        self.collect_words(0, &mut runs);
        runs
    }

    fn collect_words(&self, offset: usize, runs: &mut Vec<Words>) {
        match &self.scalar {
            Scalar::Struct(fields) => {
                for field in fields {
                    field.data_type.collect_words(offset + field.offset, runs);
                }
            }
            Scalar::SubArray { shape, item } => {
                let count = shape.iter().product();
                match item.word_width() {
                    Some(width) => {
                        push_words(runs, offset, width, item.size_bytes / width * count);
                    }
                    None if item.word_runs() == 0 => {}
                    None => (0..count)
                        .for_each(|i| item.collect_words(offset + i * item.size_bytes, runs)),
                }
            }
            _ => {
                if let Some(width) = self.word_width() {
                    push_words(runs, offset, width, self.size_bytes / width);
                }
            }
        }
    }

    /// Returns the size in bytes of a scalar's words; `None` if the scalar has no byte order.
    fn word_width(&self) -> Option<usize> {
        let width = match &self.scalar {
            Scalar::Bool
            | Scalar::Bytes
            | Scalar::Raw
            | Scalar::Struct(_)
            | Scalar::SubArray { .. } => return None,
            Scalar::Int(_)
            | Scalar::UInt(_)
            | Scalar::Float(_)
            | Scalar::DateTime { .. }
            | Scalar::TimeDelta { .. } => self.size_bytes,
            Scalar::Complex(_) => self.size_bytes / 2,
            Scalar::Text(_) => 4,
            Scalar::Other { name, .. } if name.starts_with("complex_") => self.size_bytes / 2,
            Scalar::Other { .. } => self.size_bytes,
        };
        (width > 1).then_some(width)
    }

    /// Returns the smallest NumPy type that holds all values of a type that NumPy lacks; `None` for types of
    /// NumPy. Complex numbers have parts of at least 4 bytes.
    pub fn widened(&self) -> Option<Self> {
        let Scalar::Other { name, .. } = &self.scalar else {
            return None;
        };
        let order = ByteOrder::Little;
        let (scalar, size_bytes) = match name.as_str() {
            "int2" | "int4" => (Scalar::Int(order), 1),
            "uint2" | "uint4" => (Scalar::UInt(order), 1),
            name if name.starts_with("complex_") => (Scalar::Complex(order), 8),
            "bfloat16" | "float8_e8m0fnu" => (Scalar::Float(order), 4),
            _ => (Scalar::Float(order), 2),
        };
        Some(Self { scalar, size_bytes })
    }

    /// Returns the type of the values of `optional` elements, which are structures of the fields `present`
    /// and `value`; `None` for other types.
    pub fn optional_value(&self) -> Option<&Self> {
        let Scalar::Struct(fields) = &self.scalar else {
            return None;
        };
        match &fields[..] {
            [present, value] if present.name == PRESENT && value.name == VALUE => {
                let is_mark = present.data_type.scalar == Scalar::Bool && present.offset == 0;
                (is_mark && value.offset == 1).then_some(&value.data_type)
            }
            _ => None,
        }
    }

    /// Returns the same type with one-byte words marked as [`ByteOrder::Little`].
    fn normalized(self) -> Self {
        match self.word_width() {
            Some(_) => self,
            None => self.with_order(ByteOrder::Little),
        }
    }

    /// Returns an upper bound of the number of runs of [`Fixed::words`].
    fn word_runs(&self) -> usize {
        match &self.scalar {
            Scalar::Struct(fields) => fields.iter().fold(0, |sum: usize, field| {
                sum.saturating_add(field.data_type.word_runs())
            }),
            Scalar::SubArray { shape, item } => match (&item.scalar, item.word_runs()) {
                (Scalar::Struct(_), runs) => shape
                    .iter()
                    .fold(runs, |product, n| product.saturating_mul(*n)),
                (_, runs) => runs,
            },
            _ => usize::from(self.word_width().is_some()),
        }
    }

    /// Returns the same type with every word in `order`.
    #[must_use]
    pub fn with_order(&self, order: ByteOrder) -> Self {
        let word_order = match self.word_width() {
            Some(_) => order,
            None => ByteOrder::Little,
        };
        let scalar = match &self.scalar {
            Scalar::Bool => Scalar::Bool,
            Scalar::Bytes => Scalar::Bytes,
            Scalar::Raw => Scalar::Raw,
            Scalar::Int(_) => Scalar::Int(word_order),
            Scalar::UInt(_) => Scalar::UInt(word_order),
            Scalar::Float(_) => Scalar::Float(word_order),
            Scalar::Complex(_) => Scalar::Complex(word_order),
            Scalar::Text(_) => Scalar::Text(word_order),
            Scalar::DateTime { unit, .. } => Scalar::DateTime {
                order: word_order,
                unit: *unit,
            },
            Scalar::TimeDelta { unit, .. } => Scalar::TimeDelta {
                order: word_order,
                unit: *unit,
            },
            Scalar::Other { name, .. } => Scalar::Other {
                name: name.clone(),
                order: word_order,
            },
            Scalar::Struct(fields) => {
                let field = |field: &Field| Field {
                    name: field.name.clone(),
                    offset: field.offset,
                    data_type: field.data_type.with_order(order),
                };
                Scalar::Struct(fields.iter().map(field).collect())
            }
            Scalar::SubArray { shape, item } => Scalar::SubArray {
                shape: shape.clone(),
                item: Box::new(item.with_order(order)),
            },
        };
        Self {
            scalar,
            size_bytes: self.size_bytes,
        }
    }
}

/// Rejects a type with too many runs of words.
fn check_words(fixed: &Fixed) -> Result<(), MetadataError> {
    match fixed.word_runs() {
        0..=MAX_WORD_RUNS => Ok(()),
        _ => {
            let what = format!("a data type of more than {MAX_WORD_RUNS} runs of words");
            Err(MetadataError::unsupported(what))
        }
    }
}

/// Adds a run of words; a run that continues the last one is merged with it.
fn push_words(runs: &mut Vec<Words>, offset: usize, width_bytes: usize, count: usize) {
    match runs.last_mut() {
        Some(last)
            if last.width_bytes == width_bytes
                && last.offset + last.count * width_bytes == offset =>
        {
            last.count += count;
        }
        _ => runs.push(Words {
            offset,
            width_bytes,
            count,
        }),
    }
}

#[cfg(test)]
mod tests;
