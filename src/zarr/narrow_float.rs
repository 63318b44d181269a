//! Conversion of doubles to float16 with a single rounding: to nearest, ties to even.
//!
//! `half::f16::from_f64` rounds to `f32` first, which is wrong in the last bit for values close to the
//! midpoint of two neighbours.

use half::f16;

/// Returns the nearest float16, as numpy does: values that are too large become infinite, and a NaN keeps its
/// sign and the upper bits of its payload.
pub fn to_f16(value: f64) -> f16 {
    if !value.is_nan() {
        return f16::from_f32(round_to_odd(value));
    }
    // The upper 10 of the 52 bits of the payload; a payload of zero would be an infinity.
    let payload = u16::try_from(value.to_bits() << 12 >> 54)
        .unwrap_or(0)
        .max(1);
    let sign = u16::from(value.is_sign_negative()) << 15;
    f16::from_bits(sign | f16::INFINITY.to_bits() | payload)
}

/// Returns the `f32` that rounds to the same narrower float as `value` ("round to odd"). This is `value` if
/// it is exact, else the neighbour with an odd last bit, which is on the same side of each midpoint.
#[expect(clippy::cast_possible_truncation, reason = "corrected below")]
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    if back == value || value.is_nan() || bits & 1 == 1 {
        return nearest;
    }
    // The bits of floats of one sign are ordered by magnitude.
    match back.abs() > value.abs() {
        true => f32::from_bits(bits - 1),
        false => f32::from_bits(bits + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks, in doubles and with both signs, the midpoint above each non-negative word below `infinity`,
    /// and the two doubles next to the midpoint.
    fn check_ties(infinity: u16, read: impl Fn(u16) -> f64, write: impl Fn(f64) -> u16) {
        for word in 0..infinity {
            let low = read(word);
            // The step above the maximum finite value equals the step below it.
            let high = match word + 1 < infinity {
                true => read(word + 1),
                false => low + (low - read(word - 1)),
            };
            // The midpoint is exact: both values have far fewer bits than a double.
            let tie = f64::midpoint(low, high);
            let even = word + (word & 1);
            for (value, expected) in [
                (low, word),
                (tie.next_down(), word),
                (tie, even),
                (tie.next_up(), word + 1),
                (high, word + 1),
            ] {
                assert_eq!(write(value), expected, "{value:e}");
                assert_eq!(write(-value), expected | 0x8000, "-{value:e}");
            }
        }
    }

    #[test]
    fn float16_is_rounded_once_next_to_every_midpoint() {
        let read = |word| f16::from_bits(word).to_f64();
        check_ties(0x7c00, read, |value| to_f16(value).to_bits());
        for value in [65520.0, 1e10, f64::MAX, f64::INFINITY] {
            assert_eq!(to_f16(value).to_bits(), 0x7c00);
        }
        for value in [f64::from_bits(1), 1e-300, 1e-10] {
            assert_eq!(to_f16(-value).to_bits(), 0x8000);
        }
    }

    #[test]
    fn nan_keeps_the_bits_that_numpy_gives_it() {
        for (bits, expected) in [
            (f64::NAN.to_bits(), 0x7e00),
            (0xfff8_0000_0000_0000, 0xfe00),
            (0x7ff0_0000_0000_0001, 0x7c01),
            (0x7ff4_0000_0000_0000, 0x7d00),
            (0x7fff_ffff_ffff_ffff, 0x7fff),
        ] {
            assert_eq!(to_f16(f64::from_bits(bits)).to_bits(), expected, "{bits:x}");
        }
    }
}
