//! Types of real numbers: integers of 2 to 64 bits and binary floats of any format (v3 core, "Data types";
//! zarr-extensions, `data-types`). Values are read exactly and written with a single rounding.

mod float;
#[cfg(test)]
mod tests;

pub use float::FloatFormat;

use super::data_type::{Fixed, Scalar};

/// A type of real numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Real {
    /// An integer; integers of fewer than 8 bits are the lowest bits of a byte.
    Int {
        /// Number of bits: 2, 4, 8, 16, 32 or 64.
        bits: u32,
        /// Whether the integer is in two's complement.
        is_signed: bool,
    },
    /// A binary float.
    Float(FloatFormat),
}

/// The exact value of a real number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exact {
    /// A value of an integer type.
    Int(i128),
    /// A value of a float type; doubles hold all values of every format here.
    Float(f64),
}

/// The rounding of a value between two representable values (zarr-extensions, `cast_value`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// To the nearest value; ties to the value whose last digit is even.
    #[default]
    NearestEven,
    /// To the nearest value; ties away from zero.
    NearestAway,
    /// Towards zero.
    TowardsZero,
    /// Towards positive infinity.
    TowardsPositive,
    /// Towards negative infinity.
    TowardsNegative,
}

/// The reason why a type cannot hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unrepresentable {
    /// The value, after rounding, is less than the minimum or greater than the maximum finite value.
    OutOfRange,
    /// The type has no NaN, or no infinity.
    NotFinite,
}

impl Real {
    /// Returns the type of an element, if it is a single real number.
    pub fn of(fixed: &Fixed) -> Option<Self> {
        let bits = u32::try_from(fixed.size_bytes.checked_mul(8)?).ok()?;
        match &fixed.scalar {
            Scalar::Int(_) => Some(Self::Int {
                bits,
                is_signed: true,
            }),
            Scalar::UInt(_) => Some(Self::Int {
                bits,
                is_signed: false,
            }),
            Scalar::Float(_) => Self::named(&format!("float{bits}")),
            Scalar::Other { name, .. } => Self::named(name),
            _ => None,
        }
    }

    /// Returns the type of the parts of a complex element, or of any other element itself.
    pub fn part_of(fixed: &Fixed) -> Option<Self> {
        match &fixed.scalar {
            Scalar::Complex(_) => Self::named(match fixed.size_bytes {
                8 => "float32",
                _ => "float64",
            }),
            Scalar::Other { name, .. } => {
                Self::named(name.strip_prefix("complex_").unwrap_or(name))
            }
            _ => Self::of(fixed),
        }
    }

    /// Returns the integers of less than a byte and the floats, by their names in v3.
    pub fn named(name: &str) -> Option<Self> {
        let (bits, is_signed) = match name {
            "int2" => (2, true),
            "int4" => (4, true),
            "uint2" => (2, false),
            "uint4" => (4, false),
            _ => return FloatFormat::named(name).map(Self::Float),
        };
        Some(Self::Int { bits, is_signed })
    }

    /// Returns the number of bits of a word; higher bits are ignored on reading.
    pub fn bits(self) -> u32 {
        match self {
            Self::Int { bits, .. } => bits,
            Self::Float(format) => format.bits(),
        }
    }

    /// Returns the value of a word.
    pub fn read(self, word: u64) -> Exact {
        match self {
            Self::Int { bits, is_signed } => {
                let unused = 64 - bits.clamp(1, 64);
                Exact::Int(match is_signed {
                    true => i128::from((word << unused).cast_signed() >> unused),
                    false => i128::from(word << unused >> unused),
                })
            }
            Self::Float(format) => Exact::Float(format.to_f64(word)),
        }
    }

    /// Returns the word of a value. Words of integers of less than a byte repeat the sign in the higher bits.
    ///
    /// # Errors
    /// The rounded value is out of range, or the type has no NaN or no infinity.
    pub fn round(self, value: Exact, rounding: Rounding) -> Result<u64, Unrepresentable> {
        match self {
            Self::Int { .. } => {
                let integer = match value {
                    Exact::Int(integer) => integer,
                    Exact::Float(float) => to_integer(float, rounding)?,
                };
                match self.range().contains(&integer) {
                    true => Ok(self.wrap(integer)),
                    false => Err(Unrepresentable::OutOfRange),
                }
            }
            Self::Float(format) => format.round(value, rounding),
        }
    }

    /// Returns the word of the minimum for a value below the range, else of the maximum; of an infinity if the
    /// type has one.
    pub fn clamp(self, value: Exact) -> u64 {
        // Zero and smaller fractions are out of the range of a format without zero, below its minimum.
        let minimum = match self {
            Self::Float(format) if !format.has_zero() => 1,
            _ => 0,
        };
        let is_below = match value {
            Exact::Int(integer) => integer < minimum,
            #[expect(clippy::cast_precision_loss, reason = "0 or 1")]
            Exact::Float(float) => float < minimum as f64,
        };
        match self {
            Self::Int { .. } => match is_below {
                true => self.wrap(*self.range().start()),
                false => self.wrap(*self.range().end()),
            },
            Self::Float(format) => format.largest(is_below),
        }
    }

    /// Returns the word that is congruent to an integer.
    pub fn wrap(self, integer: i128) -> u64 {
        let (bits, is_signed) = match self {
            Self::Int { bits, is_signed } => (bits.clamp(1, 64), is_signed),
            Self::Float(_) => (64, false),
        };
        let unused = 128 - bits;
        let value = match is_signed {
            true => (integer << unused >> unused).cast_unsigned(),
            false => integer.cast_unsigned() << unused >> unused,
        };
        low_bits(value)
    }

    /// Returns the range of an integer type; for a float, the range of `i128`.
    pub fn range(self) -> std::ops::RangeInclusive<i128> {
        match self {
            Self::Int {
                bits,
                is_signed: true,
            } => -(1_i128 << (bits.clamp(1, 64) - 1))..=(1_i128 << (bits.clamp(1, 64) - 1)) - 1,
            Self::Int { bits, .. } => 0..=(1_i128 << bits.clamp(1, 64)) - 1,
            Self::Float(_) => i128::MIN..=i128::MAX,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lowest 64 bits are meant"
)]
fn low_bits(value: u128) -> u64 {
    value as u64
}

/// Returns the integer of a float after rounding; beyond 127 bits the nearest `i128`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast from a float saturates"
)]
fn to_integer(float: f64, rounding: Rounding) -> Result<i128, Unrepresentable> {
    if !float.is_finite() {
        return Err(Unrepresentable::NotFinite);
    }
    Ok(rounding.integral(float) as i128)
}

impl Rounding {
    /// Returns a mode by its name in the configuration of `cast_value`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "nearest-even" => Self::NearestEven,
            "nearest-away" => Self::NearestAway,
            "towards-zero" => Self::TowardsZero,
            "towards-positive" => Self::TowardsPositive,
            "towards-negative" => Self::TowardsNegative,
            _ => return None,
        })
    }

    /// Rounds a float to a float without a fraction.
    pub fn integral(self, float: f64) -> f64 {
        match self {
            Self::NearestEven => float.round_ties_even(),
            Self::NearestAway => float.round(),
            Self::TowardsZero => float.trunc(),
            Self::TowardsPositive => float.ceil(),
            Self::TowardsNegative => float.floor(),
        }
    }

    /// Returns whether a magnitude between two adjacent words is rounded up. `is_odd` is the parity of the
    /// lower word, `to_middle` the comparison of the magnitude with the midpoint.
    fn is_up(self, is_negative: bool, is_odd: bool, to_middle: std::cmp::Ordering) -> bool {
        match self {
            Self::NearestEven => to_middle.is_gt() || to_middle.is_eq() && is_odd,
            Self::NearestAway => to_middle.is_ge(),
            Self::TowardsZero => false,
            Self::TowardsPositive => !is_negative,
            Self::TowardsNegative => is_negative,
        }
    }
}
