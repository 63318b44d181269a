//! Binary float formats: conversion of their words to doubles, and rounding to them.

use super::{Exact, Rounding, Unrepresentable, low_bits};

/// The words of a float format that are not finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaN, as in IEEE 754.
    Ieee,
    /// No such words.
    Finite,
    /// The word with all bits set, except for the sign, is NaN.
    FiniteNan,
    /// Minus zero is NaN.
    UnsignedZeroNan,
    /// The word with all bits set is NaN; the format has no sign, no zero and no subnormal numbers.
    Exponent,
}

/// A binary float format of at most 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// All formats by their names in v3. Only TensorStore has `float8_e4m3fn`.
pub(super) const FORMATS: [(&str, FloatFormat); 15] = [
    ("bfloat16", format(8, 7, 127, Special::Ieee)),
    ("float16", format(5, 10, 15, Special::Ieee)),
    ("float32", FloatFormat::SINGLE),
    ("float64", format(11, 52, 1023, Special::Ieee)),
    ("float4_e2m1fn", format(2, 1, 1, Special::Finite)),
    ("float6_e2m3fn", format(2, 3, 1, Special::Finite)),
    ("float6_e3m2fn", format(3, 2, 3, Special::Finite)),
    ("float8_e3m4", format(3, 4, 3, Special::Ieee)),
    ("float8_e4m3", format(4, 3, 7, Special::Ieee)),
    ("float8_e4m3fn", format(4, 3, 7, Special::FiniteNan)),
    (
        "float8_e4m3b11fnuz",
        format(4, 3, 11, Special::UnsignedZeroNan),
    ),
    ("float8_e4m3fnuz", format(4, 3, 8, Special::UnsignedZeroNan)),
    ("float8_e5m2", format(5, 2, 15, Special::Ieee)),
    (
        "float8_e5m2fnuz",
        format(5, 2, 16, Special::UnsignedZeroNan),
    ),
    ("float8_e8m0fnu", format(8, 0, 127, Special::Exponent)),
];

const fn format(
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
) -> FloatFormat {
    FloatFormat {
        exponent_bits,
        mantissa_bits,
        bias,
        special,
    }
}

impl FloatFormat {
    /// The format `float32`.
    pub const SINGLE: Self = format(8, 23, 127, Special::Ieee);

    /// Returns the format by its name in v3.
    pub fn named(name: &str) -> Option<Self> {
        let row = FORMATS.iter().find(|(own, _)| *own == name);
        row.map(|(_, format)| *format)
    }

    /// Returns whether the format has a zero; without it, it has no negative numbers either.
    pub(super) fn has_zero(self) -> bool {
        self.special != Special::Exponent
    }

    /// Returns the number of bits of a word.
    pub fn bits(self) -> u32 {
        self.magnitude_bits() + u32::from(self.special != Special::Exponent)
    }

    fn magnitude_bits(self) -> u32 {
        self.exponent_bits + self.mantissa_bits
    }

    /// Returns the sign bit; 0 for a format without a sign.
    fn sign_bit(self) -> u64 {
        match self.special {
            Special::Exponent => 0,
            _ => 1 << self.magnitude_bits(),
        }
    }

    fn signed(self, is_negative: bool, magnitude: u64) -> u64 {
        match is_negative {
            true => self.sign_bit() | magnitude,
            false => magnitude,
        }
    }

    /// Returns the magnitude of the largest finite number.
    fn largest_finite(self) -> u64 {
        let all = (1_u64 << self.magnitude_bits()) - 1;
        match self.special {
            Special::Ieee => self.infinity() - 1,
            Special::FiniteNan | Special::Exponent => all - 1,
            Special::Finite | Special::UnsignedZeroNan => all,
        }
    }

    /// Returns the magnitude of infinity, for the formats that have it.
    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// Returns the word of infinity or the largest finite number; if negative without a sign, the smallest.
    pub(super) fn largest(self, is_negative: bool) -> u64 {
        match self.special {
            Special::Ieee => self.signed(is_negative, self.infinity()),
            Special::Exponent if is_negative => 0,
            _ => self.signed(is_negative, self.largest_finite()),
        }
    }

    /// Returns the word of NaN as defined by the data types of zarr-extensions; `None` without NaN.
    pub fn nan(self) -> Option<u64> {
        match self.special {
            Special::Ieee => Some(self.infinity() | 1 << (self.mantissa_bits - 1)),
            Special::FiniteNan | Special::Exponent => Some((1 << self.magnitude_bits()) - 1),
            Special::UnsignedZeroNan => Some(self.sign_bit()),
            Special::Finite => None,
        }
    }

    fn is_nan(self, is_negative: bool, magnitude: u64) -> bool {
        match self.special {
            Special::Ieee => magnitude > self.infinity(),
            Special::FiniteNan | Special::Exponent => magnitude > self.largest_finite(),
            Special::UnsignedZeroNan => is_negative && magnitude == 0,
            Special::Finite => false,
        }
    }

    /// Returns the exact value of a word. A NaN of 16 bits or less becomes the default NaN of doubles.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "words of 32 bits, mantissas of at most 53 bits"
    )]
    pub fn to_f64(self, word: u64) -> f64 {
        match (self.exponent_bits, self.mantissa_bits) {
            (11, 52) => return f64::from_bits(word),
            (8, 23) => return f64::from(f32::from_bits(word as u32)),
            _ => {}
        }
        let magnitude = word & ((1 << self.magnitude_bits()) - 1);
        let is_negative = word & self.sign_bit() != 0;
        let sign = if is_negative { -1.0 } else { 1.0 };
        if self.is_nan(is_negative, magnitude) {
            return f64::NAN.copysign(sign);
        }
        if self.special == Special::Ieee && magnitude == self.infinity() {
            return f64::INFINITY.copysign(sign);
        }
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let digits = self.mantissa_bits as i32;
        let (digits_value, exponent) = match exponent {
            0 if self.special != Special::Exponent => (mantissa, 1),
            _ => (mantissa | 1 << self.mantissa_bits, exponent),
        };
        sign * digits_value as f64 * 2_f64.powi(exponent - self.bias - digits)
    }

    /// Returns the word of a value.
    pub(super) fn round(self, value: Exact, rounding: Rounding) -> Result<u64, Unrepresentable> {
        if let Some(word) = self.exact(value) {
            return Ok(word);
        }
        let float = match value {
            Exact::Int(integer) => {
                return self.round_digits(integer < 0, integer.unsigned_abs(), 0, rounding);
            }
            Exact::Float(float) => float,
        };
        let is_negative = float.is_sign_negative();
        if float.is_nan() {
            return self.nan_of(float);
        }
        if float.is_infinite() {
            return match self.special {
                Special::Ieee => Ok(self.largest(is_negative)),
                _ => Err(Unrepresentable::NotFinite),
            };
        }
        let bits = float.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        // The exponent has 11 bits.
        let (digits, exponent) = match i32::try_from(bits << 1 >> 53).unwrap_or(0) {
            0 => (fraction, 1),
            exponent => (fraction | 1 << 52, exponent),
        };
        self.round_digits(is_negative, u128::from(digits), exponent - 1075, rounding)
    }

    /// Returns the word of a value that float32 or float64 holds exactly. This fast path for the most
    /// frequent cases avoids the general arithmetic.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "values that would be changed are not returned"
    )]
    fn exact(self, value: Exact) -> Option<u64> {
        match (self.mantissa_bits, value) {
            (52, Exact::Float(float)) => Some(float.to_bits()),
            (23, Exact::Float(float)) => {
                let narrow = float as f32;
                (f64::from(narrow) == float).then(|| u64::from(narrow.to_bits()))
            }
            (52, Exact::Int(integer)) if integer.unsigned_abs() <= 1 << 53 => {
                Some((integer as i64 as f64).to_bits())
            }
            (23, Exact::Int(integer)) if integer.unsigned_abs() <= 1 << 24 => {
                Some(u64::from((integer as i32 as f32).to_bits()))
            }
            _ => None,
        }
    }

    /// Returns NaN with the sign and, in float32 and float64, the payload of `nan`.
    fn nan_of(self, nan: f64) -> Result<u64, Unrepresentable> {
        #[expect(clippy::cast_possible_truncation, reason = "NaN to NaN")]
        match (self.exponent_bits, self.mantissa_bits) {
            (11, 52) => return Ok(nan.to_bits()),
            (8, 23) => return Ok(u64::from((nan as f32).to_bits())),
            _ => {}
        }
        let word = self.nan().ok_or(Unrepresentable::NotFinite)?;
        Ok(match self.special {
            Special::Ieee | Special::FiniteNan => self.signed(nan.is_sign_negative(), word),
            _ => word,
        })
    }

    /// Returns the word of `digits * 2^exponent`, rounded once.
    fn round_digits(
        self,
        is_negative: bool,
        digits: u128,
        exponent: i32,
        rounding: Rounding,
    ) -> Result<u64, Unrepresentable> {
        let has_zero = self.has_zero();
        if digits == 0 && has_zero {
            let is_negative = is_negative && self.special != Special::UnsignedZeroNan;
            return Ok(self.signed(is_negative, 0));
        }
        if digits == 0 || is_negative && !has_zero {
            return Err(Unrepresentable::OutOfRange);
        }
        // Digits are at most 2^64, and exponents are those of doubles: the sums cannot overflow.
        let top = exponent + 127 - i32::try_from(digits.leading_zeros()).unwrap_or(0);
        let lowest = if has_zero { 1 - self.bias } else { -self.bias };
        if top < lowest && !has_zero {
            return Err(Unrepresentable::OutOfRange);
        }
        if top + self.bias >= 1 << self.exponent_bits {
            return Err(Unrepresentable::OutOfRange);
        }
        let normal = top.max(lowest);
        let last = normal - i32::try_from(self.mantissa_bits).unwrap_or(0);
        let (kept, to_middle) = shifted(digits, last - exponent);
        let hidden = 1_u64 << self.mantissa_bits;
        let magnitude = match kept.checked_sub(hidden) {
            Some(mantissa) => {
                let biased = u64::try_from(normal + self.bias).unwrap_or(0);
                (biased << self.mantissa_bits) + mantissa
            }
            None => kept,
        };
        // Without a mantissa, the last digit is the leading digit, which is always odd.
        let is_odd = magnitude & 1 == 1 || !has_zero;
        let is_up = to_middle.is_some_and(|order| rounding.is_up(is_negative, is_odd, order));
        let magnitude = magnitude + u64::from(is_up);
        if magnitude > self.largest_finite() {
            return Err(Unrepresentable::OutOfRange);
        }
        let is_negative =
            is_negative && !(magnitude == 0 && self.special == Special::UnsignedZeroNan);
        Ok(self.signed(is_negative, magnitude))
    }
}

/// Returns the digits without their last `places` bits, and how these bits compare with half of the last kept
/// digit; `None` if they are all 0. Negative places append zeros.
fn shifted(digits: u128, places: i32) -> (u64, Option<std::cmp::Ordering>) {
    let Ok(places) = u32::try_from(places) else {
        // The result has no more digits than the format.
        return (low_bits(digits << places.unsigned_abs().min(127)), None);
    };
    let kept = digits.checked_shr(places).unwrap_or(0);
    let rest = match 1_u128.checked_shl(places) {
        Some(unit) => digits & (unit - 1),
        None => digits,
    };
    let half = match places {
        0 => return (low_bits(kept), None),
        1..=127 => 1_u128 << (places - 1),
        // `places` exceeds the number of digits.
        _ => u128::MAX,
    };
    (low_bits(kept), (rest != 0).then(|| rest.cmp(&half)))
}
