//! The parameters of a stream, and its header (zfp 1.0, "Header format").

use super::bits::BitReader;
use crate::codec::error::DecodeError;
use crate::codec::number::NumberKind;

/// `ZFP_MAX_BITS`: more bits than any block has.
const MAX_BITS: u32 = 16_658;
const MAX_PRECISION: u32 = 64;
/// `ZFP_MIN_EXP`: the exponent of the smallest double.
const MIN_EXPONENT: i32 = -1074;

/// The version of the stream since zfp 0.5.
const VERSION: u64 = 5;

/// The four parameters of the expert mode, to which the library maps every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Params {
    /// The minimum number of bits of a block.
    pub(super) min_bits: u32,
    /// The maximum number of bits of a block.
    pub(super) max_bits: u32,
    /// The maximum number of bit planes of a block, 1 to 64.
    pub(super) max_precision: u32,
    /// The lowest bit plane of floats. Below the lowest one of doubles, the mode is reversible.
    pub(super) min_exponent: i32,
}

impl Params {
    const ALL: Self = Self {
        min_bits: 1,
        max_bits: MAX_BITS,
        max_precision: MAX_PRECISION,
        min_exponent: MIN_EXPONENT,
    };

    pub(super) const REVERSIBLE: Self = Self {
        min_exponent: MIN_EXPONENT - 1,
        ..Self::ALL
    };

    /// Returns parameters for blocks of exactly `bits` bits.
    pub(super) fn fixed_bits(bits: u32) -> Self {
        Self {
            min_bits: bits,
            max_bits: bits,
            ..Self::ALL
        }
    }

    /// `zfp_stream_set_rate`: `rate` bits per value in blocks of `values` values, at least one bit more than
    /// the `exponent_bits` of a float. `None` if the rate gives no valid number of bits.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    pub(super) fn fixed_rate(rate: f64, values: u32, exponent_bits: Option<u32>) -> Option<Self> {
        let bits = (f64::from(values) * rate + 0.5).floor();
        let is_count = (0.0..=f64::from(u16::MAX)).contains(&bits);
        let bits = is_count.then_some(bits as u32)?;
        let least = exponent_bits.map_or(0, |exponent| 1 + exponent);
        Some(Self::fixed_bits(bits.max(least)))
    }

    /// `zfp_stream_set_precision`: zero means all bit planes.
    pub(super) fn fixed_precision(precision: u32) -> Self {
        Self {
            max_precision: match precision {
                0 => MAX_PRECISION,
                planes => planes.min(MAX_PRECISION),
            },
            ..Self::ALL
        }
    }

    /// `zfp_stream_set_accuracy`: the largest power of two up to the tolerance, which is not NaN.
    pub(super) fn fixed_accuracy(tolerance: f64) -> Self {
        Self {
            min_exponent: match tolerance > 0.0 {
                true => exponent(tolerance),
                false => MIN_EXPONENT,
            },
            ..Self::ALL
        }
    }

    /// Returns the parameters; `None` if the library rejects them.
    pub(super) fn valid(self) -> Option<Self> {
        let valid = self.min_bits <= self.max_bits && (1..=64).contains(&self.max_precision);
        valid.then_some(self)
    }

    /// Returns the maximum number of bits of a block of `values` numbers of `width` bits.
    pub(super) fn block_bits(self, values: u64, width: u32) -> u64 {
        // Flags, exponent and precision of a reversible double.
        const OVERHEAD: u64 = 1 + 1 + 11 + 6;
        let planes = u64::from(self.max_precision.min(width));
        let most = OVERHEAD + values - 1 + values * planes;
        let least = u64::from(self.min_bits);
        // The library treats a limit that is less than its own fields as no limit.
        match u64::from(self.max_bits) {
            limit if limit < OVERHEAD => most.max(least),
            limit => most.min(limit).max(least),
        }
    }

    /// Returns whether all blocks have the same number of bits.
    pub(super) fn is_fixed_rate(self) -> bool {
        self.min_bits == self.max_bits
    }

    pub(super) fn is_reversible(self) -> bool {
        self.min_exponent < MIN_EXPONENT
    }

    /// Reads a mode as `zfp_stream_set_mode` does: standard modes have 12 bits, other parameters 64.
    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let short = bits.read_u32(12);
        match short {
            0..2048 => Some(Self::fixed_bits(short + 1)),
            2048..2176 => Self {
                max_precision: short - 2047,
                ..Self::ALL
            }
            .valid(),
            2176 => Some(Self::REVERSIBLE),
            2177..4095 => Some(Self {
                min_exponent: short.cast_signed() - 2177 + MIN_EXPONENT,
                ..Self::ALL
            }),
            _ => {
                let mut field = |width| bits.read_u32(width);
                Self {
                    min_bits: field(15) + 1,
                    max_bits: field(15) + 1,
                    max_precision: field(7) + 1,
                    min_exponent: field(15).cast_signed() - 16_495,
                }
                .valid()
            }
        }
    }
}

/// Returns the exponent of the largest power of two up to a positive number.
fn exponent(number: f64) -> i32 {
    let bits = number.to_bits();
    match (bits >> 52) as i32 {
        0 => MIN_EXPONENT + 63 - bits.leading_zeros().cast_signed(),
        biased => biased - 1023,
    }
}

/// A full header (`ZFP_HEADER_FULL`).
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: NumberKind,
    /// Size of a number in bytes.
    pub(super) width: usize,
    /// The shape, the slowest axis first, with 1 to 4 axes.
    pub(super) shape: Vec<u64>,
    pub(super) params: Params,
}

impl Header {
    /// Reads the header before the blocks.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] without a valid header of the supported version.
    pub(super) fn read(bits: &mut BitReader<'_>) -> Result<Self, DecodeError> {
        if bits.read(24) != u64::from(u32::from_le_bytes(*b"zfp\0")) {
            return Err(DecodeError::corrupt("no zfp header"));
        }
        let version = bits.read(8);
        if version != VERSION {
            let what = format!("version {version} of zfp streams, only {VERSION} is known");
            return Err(DecodeError::corrupt(what));
        }
        let (kind, width) = match bits.read(2) {
            0 => (NumberKind::Int, 4),
            1 => (NumberKind::Int, 8),
            2 => (NumberKind::Float, 4),
            _ => (NumberKind::Float, 8),
        };
        let rank = bits.read_u32(2) + 1;
        let mut shape: Vec<u64> = (0..rank).map(|_| bits.read(48 / rank) + 1).collect();
        shape.reverse();
        let params = Params::read(bits);
        let params =
            params.ok_or_else(|| DecodeError::corrupt("invalid parameters in the header"))?;
        match bits.overrun_bits() {
            0 => Ok(Self {
                kind,
                width,
                shape,
                params,
            }),
            _ => Err(DecodeError::corrupt("the header is truncated")),
        }
    }
}
