//! `zfpy` and `zfp`: arrays of one to four axes in the stream format of zfp 1.0 (codec version 5).
//!
//! An array is divided into blocks of four values along each axis. A block has a common exponent (for floats)
//! and the bit planes of its transformed coefficients. `zfpy` of numcodecs writes a header with type, shape
//! and parameters before the blocks; `zfp` of Zarr v3 has these in its configuration.
//!
//! The output equals that of the C library bit for bit, with one exception: a stream that ends before its
//! last block is an error, while the library reads beyond its buffer. Bytes after the end are ignored.

mod bits;
mod block;
mod field;
mod order;
mod params;
mod planes;
#[cfg(test)]
mod tests;
mod value;

use self::bits::BitReader;
use self::params::{Header, Params};
use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::number::{Number, NumberKind};
use super::stage::{Decode, Size};
use crate::zarr::ByteOrder;

/// The maximum size of a header, in bits.
const HEADER_BITS: u64 = 148;

/// Decodes `zfpy`.
#[derive(Debug)]
pub(super) struct Zfpy {
    /// The type of the numbers, if the metadata declare it.
    expected: Option<Number>,
    /// The maximum encoded size in bytes, if the shape is known.
    most_bytes: Option<u64>,
}

impl Zfpy {
    /// Creates the codec. `shape` is the shape of a chunk, if known.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for big-endian numbers.
    pub(super) fn new(
        config: Config<'_>,
        expected: Option<Number>,
        shape: Option<&[u64]>,
    ) -> Result<Self, CodecError> {
        if expected.is_some_and(|number| number.order == ByteOrder::Big) {
            let what = format!("{} of big-endian numbers", config.codec);
            return Err(CodecError::unsupported(what));
        }
        // The stream contains the parameters; the configuration only bounds its length.
        let rate = config.f64("rate")?.unwrap_or(0.0);
        let most_bytes = shape.map(|shape| {
            let params = Params::fixed_rate(rate, values(shape), None);
            let params = [params.unwrap_or(Params::REVERSIBLE), Params::REVERSIBLE];
            let bytes = params.map(|params| most_bytes(params, shape, u64::BITS));
            bytes.into_iter().max().unwrap_or(u64::MAX)
        });
        Ok(Self {
            expected,
            most_bytes,
        })
    }
}

impl Decode for Zfpy {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(self.most_bytes.map_or(decoded.compressed(), Size::AtMost))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let mut bits = BitReader::new(src);
        let Header {
            kind,
            width,
            shape,
            params,
        } = Header::read(&mut bits)?;
        if let Some(expected) = self.expected
            && (expected.kind, expected.width) != (kind, width)
        {
            let what = format!(
                "numbers of type {kind:?} and {width} bytes, expected {}",
                expected.to_fixed().numpy_descr()
            );
            return Err(DecodeError::corrupt(what));
        }
        let size = shape
            .iter()
            .try_fold(width as u64, |n, axis| n.checked_mul(*axis));
        let size = size.unwrap_or(u64::MAX);
        let length = usize::try_from(size).ok();
        let dst = match length.and_then(|length| dst.get_mut(..length)) {
            Some(dst) => dst,
            None => return Err(DecodeError::declared_size(size, dst.len())),
        };
        let decoder = decoder(kind, width);
        let decoder = decoder.ok_or_else(|| DecodeError::internal("a type without a decoder"))?;
        decoder(&mut bits, &params, &shape, dst)?;
        Ok(dst.len())
    }
}

/// Decodes `zfp`.
#[derive(Debug)]
pub(super) struct Zfp {
    decoder: Decoder,
    shape: Vec<u64>,
    params: Params,
    /// The parameters of `fixed_rate` as computed by the crate zarrs, if they differ.
    of_zarrs: Option<Params>,
    most_bytes: u64,
}

impl Zfp {
    /// Creates the codec for chunks of numbers of this shape.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for other numbers or more than four axes; or the configuration is invalid.
    pub(super) fn new(
        config: Config<'_>,
        number: Option<Number>,
        shape: &[u64],
    ) -> Result<Self, CodecError> {
        if shape.len() > 4 {
            let what = format!("{} of {} axes, at most 4", config.codec, shape.len());
            return Err(CodecError::unsupported(what));
        }
        let number = number.filter(|number| number.order == ByteOrder::Little);
        let found = number.and_then(|number| Some((number, decoder(number.kind, number.width)?)));
        let Some((number, decoder)) = found else {
            let what = format!("{} of this data type", config.codec);
            return Err(CodecError::unsupported(what));
        };
        let params = params(config, number, values(shape))?;
        // zarrs sets the rate for blocks of three axes, whatever the rank of the array is.
        let of_zarrs = match params.is_fixed_rate() && config.str("mode")? == Some("fixed_rate") {
            true => Some(self::params(config, number, 64)?).filter(|other| *other != params),
            false => None,
        };
        let width = if number.width == 8 { 64 } else { 32 };
        let most = |params| most_bytes(params, shape, width);
        Ok(Self {
            decoder,
            shape: shape.to_vec(),
            params,
            of_zarrs,
            most_bytes: most(params).max(of_zarrs.map_or(0, most)),
        })
    }

    /// Returns the parameters of a fixed-rate chunk. Only the size of the chunk distinguishes the two rates.
    fn params_of(&self, bytes: u64) -> Result<Params, DecodeError> {
        let Some(of_zarrs) = self.of_zarrs else {
            return Ok(self.params);
        };
        // The stream is padded to words of 8 to 64 bits.
        let fits = |params: Params| {
            let bits = blocks(&self.shape).saturating_mul(u64::from(params.min_bits));
            (bits.div_ceil(8)..=bits.div_ceil(64).saturating_mul(8)).contains(&bytes)
        };
        match (fits(self.params), fits(of_zarrs)) {
            (true, false) => Ok(self.params),
            (false, true) => Ok(of_zarrs),
            (true, true) => Err(DecodeError::corrupt(
                "the size fits blocks of two rates, of the specification and of zarrs",
            )),
            (false, false) => Err(DecodeError::corrupt(format!(
                "{bytes} bytes, expected blocks of {} or {} bits",
                self.params.min_bits, of_zarrs.min_bits
            ))),
        }
    }
}

impl Decode for Zfp {
    fn encoded_size(&self, _: Size) -> Option<Size> {
        Some(Size::AtMost(self.most_bytes))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let params = self.params_of(src.len() as u64)?;
        (self.decoder)(&mut BitReader::new(src), &params, &self.shape, dst)?;
        Ok(dst.len())
    }
}

/// Returns the parameters of a configuration of `zfp`, for blocks of `values` values.
fn params(config: Config<'_>, number: Number, values: u32) -> Result<Params, CodecError> {
    let mode = config.required("mode", config.str("mode")?)?;
    let small = |key| {
        let found = config.required(key, config.u64(key)?)?;
        u32::try_from(found).map_err(|_| config.invalid(format!("{key} is {found}")))
    };
    let double = |key| config.required(key, config.f64(key)?);
    let exponent_bits = match (number.kind, number.width) {
        (NumberKind::Float, 4) => Some(8),
        (NumberKind::Float, _) => Some(11),
        _ => None,
    };
    let params = match mode {
        "reversible" => Some(Params::REVERSIBLE),
        "fixed_rate" => Params::fixed_rate(double("rate")?, values, exponent_bits),
        "fixed_precision" => Some(Params::fixed_precision(small("precision")?)),
        "fixed_accuracy" => Some(Params::fixed_accuracy(double("tolerance")?)),
        "expert" => {
            let exponent = config.required("minexp", config.i64("minexp")?)?;
            Params {
                min_bits: small("minbits")?,
                max_bits: small("maxbits")?,
                max_precision: small("maxprec")?,
                min_exponent: i32::try_from(exponent)
                    .map_err(|_| config.invalid(format!("minexp is {exponent}")))?,
            }
            .valid()
        }
        _ => {
            return Err(CodecError::unsupported(format!(
                "{} with mode {mode}",
                config.codec
            )));
        }
    };
    params.ok_or_else(|| config.invalid(format!("parameters out of range in mode {mode}")))
}

/// Returns the number of values of a block.
fn values(shape: &[u64]) -> u32 {
    1 << (2 * shape.len().clamp(1, 4))
}

fn blocks(shape: &[u64]) -> u64 {
    let axes = shape.iter().map(|axis| axis.div_ceil(4));
    axes.fold(1, u64::saturating_mul)
}

/// Returns the maximum encoded size of numbers of `width` bits, in bytes.
fn most_bytes(params: Params, shape: &[u64], width: u32) -> u64 {
    let block = params.block_bits(u64::from(values(shape)), width);
    let bits = blocks(shape).saturating_mul(block);
    bits.saturating_add(HEADER_BITS)
        .div_ceil(64)
        .saturating_mul(8)
}

type Decoder = fn(&mut BitReader<'_>, &Params, &[u64], &mut [u8]) -> Result<(), DecodeError>;

/// Returns the function that decodes all blocks to numbers of a type. Smaller types are the highest bits of
/// 32, without sign (`zfp_demote_*`); zarrs stores unsigned numbers of 32 and 64 bits as signed numbers.
fn decoder(kind: NumberKind, width: usize) -> Option<Decoder> {
    use NumberKind::{Float, Int, UInt};
    Some(match (kind, width) {
        (Int, 1) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i32| {
                narrow::<1>(v >> 23, -0x80)
            })
        },
        (UInt, 1) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i32| {
                narrow::<1>((v >> 23) + 0x80, 0)
            })
        },
        (Int, 2) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i32| {
                narrow::<2>(v >> 15, -0x8000)
            })
        },
        (UInt, 2) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i32| {
                narrow::<2>((v >> 15) + 0x8000, 0)
            })
        },
        (Int, 4) => {
            |bits, params, shape, dst| field::decode(bits, params, shape, dst, i32::to_le_bytes)
        }
        (UInt, 4) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i32| v.max(0).to_le_bytes())
        },
        (Int, 8) => {
            |bits, params, shape, dst| field::decode(bits, params, shape, dst, i64::to_le_bytes)
        }
        (UInt, 8) => |bits, params, shape, dst| {
            field::decode(bits, params, shape, dst, |v: i64| v.max(0).to_le_bytes())
        },
        (Float, 4) => {
            |bits, params, shape, dst| field::decode(bits, params, shape, dst, f32::to_le_bytes)
        }
        (Float, 8) => {
            |bits, params, shape, dst| field::decode(bits, params, shape, dst, f64::to_le_bytes)
        }
        _ => return None,
    })
}

/// Returns the lowest `S` bytes of a number, clamped to the range of `S` bytes that begins with `least`.
fn narrow<const S: usize>(value: i32, least: i32) -> [u8; S] {
    let most = least + (1 << (8 * S)) - 1;
    let bytes = value.clamp(least, most).to_le_bytes();
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}
