//! What one element of an array is, once decoded.
//!
//! Zarr v2 names types as numpy does (`<f4`, lists of fields), v3 by its own names with
//! configurations; both end here. [`v2`] and [`v3`] read the two spellings.

use std::fmt::{self, Write as _};

pub mod v2;
pub mod v3;

/// The largest element, numpy's own limit.
pub const MAX_ELEMENT_BYTES: usize = 0x7fff_ffff;

/// The most runs of words ([`Fixed::words`]) an element may have; a limit for structures whose
/// sub-arrays repeat mixed fields many times.
pub const MAX_WORD_RUNS: usize = 1 << 16;

/// Which byte of a word comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The lowest byte.
    Little,
    /// The highest byte.
    Big,
}

/// What one element is once decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// Every element has the same number of bytes.
    Fixed(Fixed),
    /// Every element is a value of its own length.
    Variable(Variable),
}

/// An element of constant size.
///
/// Decoded bytes keep the order that the scalars say: in v2 as declared, in v3 always
/// [`ByteOrder::Little`], because there the order of the stored bytes belongs to the `bytes` codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// What the bytes mean.
    pub scalar: Scalar,
    /// Bytes of one element, 1 to [`MAX_ELEMENT_BYTES`].
    pub size_bytes: usize,
}

/// The meaning of an element's bytes. Words of one byte are [`ByteOrder::Little`], so that equal
/// types compare equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// One byte, 0 or 1.
    Bool,
    /// A two's complement integer of 1, 2, 4 or 8 bytes.
    Int(ByteOrder),
    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(ByteOrder),
    /// IEEE 754 of 2, 4 or 8 bytes.
    Float(ByteOrder),
    /// Two floats of half the size: real, imaginary; 8 or 16 bytes.
    Complex(ByteOrder),
    /// An `i64` of units since 1970; the smallest value is NaT.
    DateTime {
        /// Byte order of the integer.
        order: ByteOrder,
        /// What is counted.
        unit: TimeUnit,
    },
    /// An `i64` of units; the smallest value is NaT.
    TimeDelta {
        /// Byte order of the integer.
        order: ByteOrder,
        /// What is counted.
        unit: TimeUnit,
    },
    /// Bytes padded with NUL (`S`, `null_terminated_bytes`).
    Bytes,
    /// Code points of 4 bytes padded with NUL (`U`, `fixed_length_utf32`).
    Text(ByteOrder),
    /// Bytes without a meaning (`V`, `r*`, `raw_bytes`).
    Raw,
    /// Named fields, in the order of their offsets.
    Struct(Vec<Field>),
    /// Items in C order; only within a structure.
    SubArray {
        /// Items along each axis.
        shape: Vec<usize>,
        /// One item.
        item: Box<Fixed>,
    },
    /// A word that numpy has no name for (`bfloat16`, `float8_e4m3`, `int4`, ...), kept as it is
    /// stored; names that start with `complex_` are two words.
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
    /// Unique in its structure, not empty.
    pub name: String,
    /// Bytes from the beginning of the structure.
    pub offset: usize,
    /// The field's own type.
    pub data_type: Fixed,
}

/// An element of no constant size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// A UTF-8 string.
    Text,
    /// A byte string.
    Bytes,
    /// A one-dimensional array of items (`vlen-array`).
    Array(Fixed),
    /// What the object codec yields (`json2`, `msgpack2`, `categorize`).
    Object,
}

/// What a `datetime64` or `timedelta64` counts: multiples of a unit, as in `M8[25us]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUnit {
    /// How many units one step has, at least 1.
    pub count: u32,
    /// The unit.
    pub base: TimeBase,
}

/// numpy's units of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TimeBase {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Picosecond,
    Femtosecond,
    Attosecond,
    /// No unit was given.
    Generic,
}

/// A run of words of one width inside an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// Bytes from the beginning of the element.
    pub offset: usize,
    /// Bytes of one word, at least 2.
    pub width_bytes: usize,
    /// Words in a row.
    pub count: usize,
}

impl DataType {
    /// The type of an element of constant size.
    pub fn fixed(&self) -> Option<&Fixed> {
        match self {
            Self::Fixed(fixed) => Some(fixed),
            Self::Variable(_) => None,
        }
    }

    /// Bytes of one element, if all have the same.
    pub fn size_bytes(&self) -> Option<usize> {
        self.fixed().map(|fixed| fixed.size_bytes)
    }
}

impl fmt::Display for DataType {
    /// numpy's description; `text`, `bytes`, `array of ...` and `object` for variable elements.
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
    /// The name of an [`Scalar::Other`], else numpy's description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scalar {
            Scalar::Other { name, .. } => f.write_str(name),
            _ => f.write_str(&self.numpy_descr()),
        }
    }
}

impl Fixed {
    /// Runs of words inside one element, in the order of their offsets, for swapping bytes. What
    /// has no byte order (bytes, raw data, words of one byte) is left out.
    pub fn words(&self) -> Vec<Words> {
        let mut runs = Vec::new();
        self.collect_words(0, &mut runs);
        runs
    }

    fn collect_words(&self, offset: usize, runs: &mut Vec<Words>) {
        match &self.scalar {
            Scalar::Struct(fields) => {
                for field in fields {
                    field
                        .data_type
                        .collect_words(offset + field.offset, runs);
                }
            }
            Scalar::SubArray { shape, item } => {
                if item.word_runs() == 0 {
                    return;
                }
                for i in 0..shape.iter().product::<usize>() {
                    item.collect_words(offset + i * item.size_bytes, runs);
                }
            }
            _ => {
                let Some(width_bytes) = self.word_width() else {
                    return;
                };
                let count = self.size_bytes / width_bytes;
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
        }
    }

    /// Bytes of the words a scalar is made of; none if it has no byte order.
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

    /// An upper bound of the runs [`Fixed::words`] yields, without making them.
    pub(crate) fn word_runs(&self) -> usize {
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

    /// The same type with every word in `order`.
    #[must_use]
    pub fn with_order(&self, order: ByteOrder) -> Self {
        let order = if self.word_width().is_some() {
            order
        } else {
            ByteOrder::Little
        };
        let scalar = match &self.scalar {
            Scalar::Int(_) => Scalar::Int(order),
            Scalar::UInt(_) => Scalar::UInt(order),
            Scalar::Float(_) => Scalar::Float(order),
            Scalar::Complex(_) => Scalar::Complex(order),
            Scalar::DateTime { unit, .. } => Scalar::DateTime { order, unit: *unit },
            Scalar::TimeDelta { unit, .. } => Scalar::TimeDelta { order, unit: *unit },
            Scalar::Text(_) => Scalar::Text(order),
            Scalar::Other { name, .. } => Scalar::Other {
                name: name.clone(),
                order,
            },
            Scalar::Bool => Scalar::Bool,
            Scalar::Bytes => Scalar::Bytes,
            Scalar::Raw => Scalar::Raw,
            Scalar::Struct(_) | Scalar::SubArray { .. } => return self.map_order(order),
        };
        Self {
            scalar,
            size_bytes: self.size_bytes,
        }
    }
}
