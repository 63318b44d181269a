//! Types of real numbers: integers of 2 to 64 bits and binary floats of any format (v3 core, "Data
//! types"; zarr-extensions, `data-types`), read exactly and written with one rounding.

use super::data_type::{Fixed, Scalar};

/// A type of real numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Real {
    /// An integer; fewer than 8 bits are the lowest ones of a byte.
    Int {
        /// 2, 4, 8, 16, 32 or 64.
        bits: u32,
        /// Whether it is in two's complement.
        is_signed: bool,
    },
    /// A binary float.
    Float(FloatFormat),
}

/// A real number, exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exact {
    /// A value of an integer type.
    Int(i128),
    /// A value of a float type; every format here is a subset of the doubles.
    Float(f64),
}

/// How a value between two representable ones is rounded (zarr-extensions, `cast_value`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// To the nearest; a tie to the one whose last digit is even.
    #[default]
    NearestEven,
    /// To the nearest; a tie away from zero.
    NearestAway,
    /// Towards zero.
    TowardsZero,
    /// Towards positive infinity.
    TowardsPositive,
    /// Towards negative infinity.
    TowardsNegative,
}

/// Why a type cannot hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unrepresentable {
    /// The value, after rounding, is beyond the smallest or the largest finite value.
    OutOfRange,
    /// The type has no NaN or no infinity.
    NotFinite,
}

/// The words of a float format that are not finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaN, as in IEEE 754.
    Ieee,
    /// None.
    Finite,
    /// All bits but the sign are NaN.
    FiniteNan,
    /// Minus zero is NaN.
    UnsignedZeroNan,
    /// All bits are NaN; neither a sign, a zero nor subnormal numbers.
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

/// All formats by their names in v3. `float8_e4m3fn` is only in TensorStore.
const FORMATS: [(&str, FloatFormat); 15] = [
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

impl Real {
    /// The type of an element, if it is one real number.
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

    /// The type of the parts of a complex element; of any other element itself.
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

    /// The integers of less than a byte and the floats, by their names in v3.
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

    /// Bits of a word; those above are ignored when it is read.
    pub fn bits(self) -> u32 {
        match self {
            Self::Int { bits, .. } => bits,
            Self::Float(format) => format.bits(),
        }
    }

    /// The value of a word.
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

    /// The word of a value. Words of integers of less than a byte repeat the sign in the bits above.
    ///
    /// # Errors
    /// The rounded value is out of range, or the type has no such value that is not finite.
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

    /// The word of the nearest value in range, or of an infinity where the type has it.
    pub fn clamp(self, is_negative: bool) -> u64 {
        match self {
            Self::Int { .. } => match is_negative {
                true => self.wrap(*self.range().start()),
                false => self.wrap(*self.range().end()),
            },
            Self::Float(format) => format.largest(is_negative),
        }
    }

    /// The word that is congruent to an integer.
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

    /// The values of an integer type; of all integers for a float.
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

/// The integer of a float after rounding; beyond 127 bits the nearest `i128`.
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
    /// A mode by its name in the configuration of `cast_value`.
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

    /// A float without a fraction.
    pub fn integral(self, float: f64) -> f64 {
        match self {
            Self::NearestEven => float.round_ties_even(),
            Self::NearestAway => float.round(),
            Self::TowardsZero => float.trunc(),
            Self::TowardsPositive => float.ceil(),
            Self::TowardsNegative => float.floor(),
        }
    }

    /// Whether a magnitude is rounded up: it is between two words, of which the lower one is odd or
    /// not, and compares like that with their middle.
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

impl FloatFormat {
    /// `float32`.
    pub const SINGLE: Self = format(8, 23, 127, Special::Ieee);

    /// The format by its name in v3.
    pub fn named(name: &str) -> Option<Self> {
        let row = FORMATS.iter().find(|(own, _)| *own == name);
        row.map(|(_, format)| *format)
    }

    /// Bits of a word.
    pub fn bits(self) -> u32 {
        self.magnitude_bits() + u32::from(self.special != Special::Exponent)
    }

    fn magnitude_bits(self) -> u32 {
        self.exponent_bits + self.mantissa_bits
    }

    /// The sign bit; 0 if there is none.
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

    /// The magnitude of the largest finite number.
    fn largest_finite(self) -> u64 {
        let all = (1_u64 << self.magnitude_bits()) - 1;
        match self.special {
            Special::Ieee => self.infinity() - 1,
            Special::FiniteNan | Special::Exponent => all - 1,
            Special::Finite | Special::UnsignedZeroNan => all,
        }
    }

    /// The magnitude of infinity in the formats that have it.
    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// The word of infinity, or of the largest finite number; without a sign of the smallest number.
    fn largest(self, is_negative: bool) -> u64 {
        match self.special {
            Special::Ieee => self.signed(is_negative, self.infinity()),
            Special::Exponent if is_negative => 0,
            _ => self.signed(is_negative, self.largest_finite()),
        }
    }

    /// The word of NaN, as the data types of zarr-extensions define it; none if there is none.
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

    /// The value of a word, exactly. A NaN of 16 bits or less has the bits of a double's NaN.
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

    /// The word of a value.
    fn round(self, value: Exact, rounding: Rounding) -> Result<u64, Unrepresentable> {
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

    /// The word of a value that float32 or float64 holds exactly: the most frequent cases, without the
    /// general arithmetic.
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

    /// NaN with the sign and, in float32 and float64, the payload of another.
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

    /// The word of `digits * 2^exponent`, rounded once.
    fn round_digits(
        self,
        is_negative: bool,
        digits: u128,
        exponent: i32,
        rounding: Rounding,
    ) -> Result<u64, Unrepresentable> {
        let has_zero = self.special != Special::Exponent;
        if digits == 0 && has_zero {
            let is_negative = is_negative && self.special != Special::UnsignedZeroNan;
            return Ok(self.signed(is_negative, 0));
        }
        if digits == 0 || is_negative && !has_zero {
            return Err(Unrepresentable::OutOfRange);
        }
        // Digits are at most 2^64, exponents those of doubles: the sums are far from the limits.
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
        // Without a mantissa the last digit is the leading one, which is always odd.
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

/// The digits without their last `places` bits, and how those compare with half of the last digit
/// that is kept; none if they are all 0. Negative places append zeros.
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
        // More than all digits.
        _ => u128::MAX,
    };
    (low_bits(kept), (rest != 0).then(|| rest.cmp(&half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(name: &str) -> Real {
        Real::named(name).unwrap()
    }

    fn read(name: &str, word: u64) -> f64 {
        match float(name).read(word) {
            Exact::Float(value) => value,
            Exact::Int(_) => panic!("{name}"),
        }
    }

    /// Words and values of ml_dtypes 0.5.
    #[test]
    fn words_have_the_values_of_their_definitions() {
        for (name, word, value) in [
            ("bfloat16", 0x3f80, 1.0),
            ("bfloat16", 0x0001, 2_f64.powi(-133)),
            ("float16", 0x7bff, 65504.0),
            ("float4_e2m1fn", 0x7, 6.0),
            ("float4_e2m1fn", 0xf9, -0.5),
            ("float6_e2m3fn", 0x1f, 7.5),
            ("float6_e3m2fn", 0x1f, 28.0),
            ("float8_e3m4", 0x6f, 15.5),
            ("float8_e4m3", 0x77, 240.0),
            ("float8_e4m3fn", 0x7e, 448.0),
            ("float8_e4m3b11fnuz", 0x7f, 30.0),
            ("float8_e4m3fnuz", 0x7f, 240.0),
            ("float8_e5m2", 0x7b, 57344.0),
            ("float8_e5m2fnuz", 0x7f, 57344.0),
            ("float8_e8m0fnu", 0x7f, 1.0),
            ("float8_e8m0fnu", 0x00, 2_f64.powi(-127)),
        ] {
            assert_eq!(read(name, word), value, "{name} {word:x}");
            let back = float(name).round(Exact::Float(value), Rounding::NearestEven);
            let mask = (1 << float(name).bits()) - 1;
            assert_eq!(back, Ok(word & mask), "{name} {value}");
        }
        for (name, word) in [
            ("bfloat16", 0x7fc0),
            ("float8_e3m4", 0x78),
            ("float8_e4m3", 0x7c),
            ("float8_e4m3fn", 0x7f),
            ("float8_e4m3b11fnuz", 0x80),
            ("float8_e4m3fnuz", 0x80),
            ("float8_e5m2", 0x7e),
            ("float8_e5m2fnuz", 0x80),
            ("float8_e8m0fnu", 0xff),
        ] {
            let Real::Float(format) = float(name) else {
                panic!("{name}");
            };
            assert_eq!(format.nan(), Some(word), "{name}");
            assert!(read(name, word).is_nan(), "{name}");
        }
        assert_eq!(read("float8_e5m2", 0xfc), f64::NEG_INFINITY);
    }

    #[test]
    fn every_word_of_a_small_format_is_the_rounding_of_its_value() {
        for (name, format) in FORMATS.iter().filter(|(_, format)| format.bits() <= 16) {
            for word in 0..1_u64 << format.bits() {
                let value = format.to_f64(word);
                let found = format.round(Exact::Float(value), Rounding::TowardsZero);
                match value.is_nan() {
                    true => assert!(format.to_f64(found.unwrap()).is_nan(), "{name}"),
                    false => assert_eq!(found, Ok(word), "{name} {value}"),
                }
            }
        }
    }

    /// The table of `rounding` in the specification of `cast_value`.
    #[test]
    fn modes_round_ties_and_fractions_as_specified() {
        use Rounding::{NearestAway, NearestEven, TowardsNegative, TowardsPositive, TowardsZero};
        let values = [0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6];
        for (mode, expected) in [
            (NearestEven, [0, 2, 2, 0, -2, 2, -3]),
            (NearestAway, [1, 2, 3, -1, -2, 2, -3]),
            (TowardsZero, [0, 1, 2, 0, -1, 2, -2]),
            (TowardsPositive, [1, 2, 3, 0, -1, 3, -2]),
            (TowardsNegative, [0, 1, 2, -1, -2, 2, -3]),
        ] {
            let i8 = Real::Int {
                bits: 8,
                is_signed: true,
            };
            for (value, expected) in values.into_iter().zip(expected) {
                let word = i8.round(Exact::Float(value), mode).unwrap();
                assert_eq!(i8.read(word), Exact::Int(expected), "{mode:?} {value}");
            }
        }
        // Integers with more digits than a double, and the same in float32.
        let above = |mode| float("float64").round(Exact::Int((1 << 53) + 1), mode);
        assert_eq!(above(NearestEven), Ok(2_f64.powi(53).to_bits()));
        assert_eq!(above(NearestAway), Ok((2_f64.powi(53) + 2.0).to_bits()));
        let tenth = |mode| float("float32").round(Exact::Float(0.1), mode).unwrap();
        assert_eq!(tenth(NearestEven), u64::from(0.1_f32.to_bits()));
        assert_eq!(tenth(TowardsZero), u64::from(0.1_f32.to_bits()) - 1);
    }

    #[test]
    fn values_out_of_range_are_named_after_rounding() {
        let round = |name, value| float(name).round(Exact::Float(value), Rounding::NearestEven);
        assert_eq!(round("float16", 65519.99), Ok(0x7bff));
        assert_eq!(round("float16", 65520.0), Err(Unrepresentable::OutOfRange));
        assert_eq!(round("float32", 1e39), Err(Unrepresentable::OutOfRange));
        assert_eq!(
            round("float4_e2m1fn", f64::NAN),
            Err(Unrepresentable::NotFinite)
        );
        assert_eq!(
            round("float8_e4m3fnuz", f64::INFINITY),
            Err(Unrepresentable::NotFinite)
        );
        assert_eq!(
            round("float8_e8m0fnu", 0.0),
            Err(Unrepresentable::OutOfRange)
        );
        assert_eq!(round("float8_e4m3fnuz", -0.0), Ok(0));
        assert_eq!(round("float8_e4m3fnuz", -1e-9), Ok(0));
        assert_eq!(round("float16", -0.0), Ok(0x8000));
        assert_eq!(round("uint4", 15.4), Ok(15));
        assert_eq!(round("uint4", 15.5), Err(Unrepresentable::OutOfRange));
        assert_eq!(
            round("int2", f64::INFINITY),
            Err(Unrepresentable::NotFinite)
        );
    }

    #[test]
    fn integers_wrap_and_clamp_as_two_s_complement() {
        let real = |bits, is_signed| Real::Int { bits, is_signed };
        for (value, expected) in [(32768, -32768), (32769, -32767), (-32769, 32767)] {
            let i16 = real(16, true);
            assert_eq!(i16.read(i16.wrap(value)), Exact::Int(expected));
        }
        assert_eq!(real(8, true).clamp(false), 0x7f);
        assert_eq!(
            real(8, true).read(real(8, true).clamp(true)),
            Exact::Int(-128)
        );
        assert_eq!(real(64, false).clamp(false), u64::MAX);
        assert_eq!(real(64, false).wrap(-1), u64::MAX);
        assert_eq!(real(2, true).wrap(2), u64::MAX - 1);
        assert_eq!(real(4, false).read(0xf7), Exact::Int(7));
        assert_eq!(real(4, true).read(0x3f), Exact::Int(-1));
        assert_eq!(
            float("float32").clamp(true),
            u64::from(f32::NEG_INFINITY.to_bits())
        );
        assert_eq!(float("float8_e4m3fnuz").clamp(false), 0x7f);
    }
}
