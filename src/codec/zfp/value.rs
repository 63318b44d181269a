//! The numbers of zfp: integers of a block, and the values that are made from them.

/// An integer of a block. Arithmetic wraps, as that of the C library.
pub(super) trait Int: Copy + Default {
    /// Its bits.
    const WIDTH: u32;
    /// Bits of the precision in front of a block of the reversible mode.
    const PRECISION_BITS: u32;
    /// The integer of a negabinary number, of which the lowest [`Int::WIDTH`] bits count.
    fn from_negabinary(number: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Half of it, rounded down.
    fn half(self) -> Self;
}

/// A floating-point value, from integers with a common exponent.
pub(super) trait Float: Copy + Default {
    type Int: Int;
    /// Bits of the exponent.
    const EXPONENT_BITS: u32;
    /// Two to the power of `exponent`, zero below the range.
    fn power_of_two(exponent: i32) -> Self;
    fn times(self, int: Self::Int) -> Self;
    /// The value of which the bits are an integer of two's complement, instead of sign and magnitude.
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
