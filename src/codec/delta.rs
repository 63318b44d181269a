//! `delta`: differences between neighbours; decoding is the same as `numpy.cumsum`.
//!
//! Sums have the type to which numpy promotes both types; integers wrap.

use super::astype::{for_each_block, resized};
use super::error::DecodeError;
use super::number::{BLOCK, Block, Number, NumberKind};
use super::stage::{Decode, Size};
use crate::zarr::narrow_float::to_f16;

/// Decodes `delta`.
#[derive(Debug)]
pub(super) struct Delta {
    encoded: Number,
    decoded: Number,
    sum: Sum,
}

/// The type of the running sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    /// The sum wraps, and is truncated to the decoded type's width at the end.
    Integer,
    Half,
    Single,
    Double,
}

impl Delta {
    /// Creates the codec; `None` for booleans, complex numbers, and floats with integer sums.
    pub(super) fn new(encoded: Number, decoded: Number) -> Option<Self> {
        use NumberKind::{Float, Int, UInt};
        let sum = match (encoded.kind, decoded.kind) {
            (Int | UInt, Int | UInt) => {
                // numpy has no common integer type for these and sums them as floats.
                let wide = |n: Number| n.kind == UInt && n.width == 8;
                if encoded.kind != decoded.kind && (wide(encoded) || wide(decoded)) {
                    Sum::Double
                } else {
                    Sum::Integer
                }
            }
            (Int | UInt | Float, Float) => {
                let needed = match (encoded.kind, encoded.width) {
                    (Float, width) => width,
                    (_, 1) => 2,
                    (_, 2) => 4,
                    _ => 8,
                };
                match needed.max(decoded.width) {
                    2 => Sum::Half,
                    4 => Sum::Single,
                    _ => Sum::Double,
                }
            }
            _ => return None,
        };
        Some(Self {
            encoded,
            decoded,
            sum,
        })
    }

    /// Adds floats; `f64` holds every value of the narrower sums exactly.
    fn add_floats(&self, total: &mut f64, block: &mut [f64]) {
        match self.sum {
            Sum::Half => accumulate(total, block, |sum| to_f16(sum).to_f64()),
            Sum::Single => accumulate(total, block, single),
            Sum::Integer | Sum::Double => accumulate(total, block, |sum| sum),
        }
    }
}

/// Rounds the `f64` sum of two `f32` to `f32`. The double rounding is exact, because 53 significant bits are
/// at least 2 x 24 + 2.
#[allow(clippy::cast_possible_truncation, reason = "it is the rounding")]
fn single(sum: f64) -> f64 {
    f64::from(sum as f32)
}

fn accumulate(total: &mut f64, block: &mut [f64], round: impl Fn(f64) -> f64) {
    for value in block {
        *total = round(*total + round(*value));
        *value = *total;
    }
}

#[allow(clippy::cast_precision_loss, reason = "numpy rounds too")]
fn as_floats(block: &Block) -> [f64; BLOCK] {
    match block {
        Block::Int(values) => values.map(|v| v as f64),
        Block::UInt(values) => values.map(|v| v as f64),
        Block::Float(values) => *values,
    }
}

impl Decode for Delta {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.encoded, self.decoded)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let to = self.decoded;
        // numpy starts with the first element, not with zero, so -0.0 stays -0.0.
        let (mut integer, mut float) = (0i64, -0.0f64);
        for_each_block((src, self.encoded), (dst, to), |block, dst| {
            match (&mut *block, self.sum) {
                (Block::Int(values), Sum::Integer) => {
                    for value in values {
                        integer = integer.wrapping_add(*value);
                        *value = integer;
                    }
                }
                (Block::UInt(values), Sum::Integer) => {
                    for value in values {
                        integer = integer.wrapping_add(value.cast_signed());
                        *value = integer.cast_unsigned();
                    }
                }
                (numbers, _) => {
                    let mut values = as_floats(numbers);
                    self.add_floats(&mut float, &mut values);
                    return to.write(&Block::Float(values), dst);
                }
            }
            to.write(block, dst);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(encoded: &str, decoded: &str) -> Option<Delta> {
        Delta::new(
            Number::parse(encoded).unwrap(),
            Number::parse(decoded).unwrap(),
        )
    }

    fn decode(encoded: &str, decoded: &str, src: &[u8]) -> Vec<u8> {
        let codec = delta(encoded, decoded).unwrap();
        let n = src.len() / codec.encoded.width * codec.decoded.width;
        let mut dst = vec![0; n];
        assert_eq!(codec.decode(src, &mut dst).unwrap(), n);
        dst
    }

    #[test]
    fn integers_wrap_in_their_own_width() {
        assert_eq!(
            decode("|u1", "|u1", &[1, 2, 100, 100, 100]),
            [1, 3, 103, 203, 47]
        );
        assert_eq!(decode("|i1", "|u1", &[250, 1]), [250, 251]);
        let src: Vec<u8> = [30000i16, 30000]
            .iter()
            .flat_map(|v| v.to_be_bytes())
            .collect();
        assert_eq!(
            decode(">i2", "<i4", &src),
            [30000i32.to_le_bytes(), 60000i32.to_le_bytes()].concat()
        );
        let src = [i64::MAX.to_le_bytes(), 1i64.to_le_bytes()].concat();
        assert_eq!(decode("<i8", "<i8", &src)[8..], i64::MIN.to_le_bytes());
    }

    #[test]
    fn floats_round_after_every_sum() {
        let values: Vec<f32> = (0..2000u16).map(|i| f32::from(i).sqrt() * 1000.0).collect();
        let src: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut sum = -0.0f32;
        let expected: Vec<u8> = values
            .iter()
            .flat_map(|v| {
                sum += v;
                sum.to_le_bytes()
            })
            .collect();
        assert_eq!(decode("<f4", "<f4", &src), expected);
        assert_eq!(
            decode("<f8", "<f8", &(-0.0f64).to_le_bytes()),
            (-0.0f64).to_le_bytes()
        );
    }

    #[test]
    fn types_without_a_common_sum_are_refused() {
        for (encoded, decoded) in [("|b1", "|u1"), ("<f4", "<i4"), ("<c8", "<c8")] {
            assert!(delta(encoded, decoded).is_none(), "{encoded} {decoded}");
        }
    }
}
