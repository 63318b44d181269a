//! The numbers of zfp: integers of a block, and the values that result from them.

/// An integer of a block. Arithmetic wraps, as in the C library.
pub(super) trait Int: Copy + Default {
    /// The number of bits.
    const WIDTH: u32;
    /// The number of bits of the precision field before a block in the reversible mode.
    const PRECISION_BITS: u32;
    /// Returns the integer of a negabinary number, of which the lowest [`Int::WIDTH`] bits count.
    fn from_negabinary(number: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Returns half of the integer, rounded down.
    fn half(self) -> Self;
}

/// A floating-point value, computed from integers with a common exponent.
pub(super) trait Float: Copy + Default {
    type Int: Int;
    /// The number of bits of the exponent.
    const EXPONENT_BITS: u32;
    /// Returns two to the power of `exponent`, or zero below the range.
    fn power_of_two(exponent: i32) -> Self;
    fn times(self, int: Self::Int) -> Self;
    /// Returns the value whose bits are a two's complement integer, converted to sign and magnitude.
    fn from_ordered(int: Self::Int) -> Self;
}

macro_rules! int {
    ($int:ty, $unsigned:ty, $precision_bits:literal) => {
        impl Int for $int {
            const WIDTH: u32 = <$int>::BITS;
            const PRECISION_BITS: u32 = $precision_bits;

            #[allow(clippy::cast_possible_truncation, reason = "the lowest bits count")]
            fn from_negabinary(number: u64) -> Self {
                const ODD: $unsigned = <$unsigned>::MAX / 3 * 2;
                ((number as $unsigned) ^ ODD)
                    .wrapping_sub(ODD)
                    .cast_signed()
            }

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn half(self) -> Self {
                self >> 1
            }
        }
    };
}

int!(i32, u32, 5);
int!(i64, u64, 6);

macro_rules! float {
    ($float:ty, $int:ty, $unsigned:ty, $exponent_bits:literal) => {
        impl Float for $float {
            type Int = $int;
            const EXPONENT_BITS: u32 = $exponent_bits;

            fn power_of_two(exponent: i32) -> Self {
                const FRACTION_BITS: i32 = <$float>::MANTISSA_DIGITS.cast_signed() - 1;
                let smallest = <$float>::MIN_EXP - 1;
                let bits: $unsigned = match exponent {
                    e if e >= <$float>::MAX_EXP => return Self::INFINITY,
                    e if e >= smallest => {
                        <$unsigned>::from((e - smallest + 1).unsigned_abs()) << FRACTION_BITS
                    }
                    e if e >= smallest - FRACTION_BITS => 1 << (e - smallest + FRACTION_BITS),
                    _ => 0,
                };
                Self::from_bits(bits)
            }

            #[allow(clippy::cast_precision_loss, reason = "the library rounds as well")]
            fn times(self, int: $int) -> Self {
                self * int as $float
            }

            fn from_ordered(int: $int) -> Self {
                const MAGNITUDE: $unsigned = <$unsigned>::MAX >> 1;
                let bits = int.cast_unsigned();
                Self::from_bits(if int < 0 { bits ^ MAGNITUDE } else { bits })
            }
        }
    };
}

float!(f32, i32, u32, 8);
float!(f64, i64, u64, 11);
