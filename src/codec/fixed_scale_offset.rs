//! `fixedscaleoffset`: `stored / scale + offset`, in numpy's type of the quotient.

use half::f16;

use super::astype::{for_each_block, resized};
use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::number::{BLOCK, Block, Number, NumberKind};
use super::stage::{Decode, Size};
use crate::zarr::narrow_float::to_f16;

/// Decodes `fixedscaleoffset`.
#[derive(Debug)]
pub(super) struct FixedScaleOffset {
    encoded: Number,
    decoded: Number,
    scale: f64,
    offset: f64,
}

impl FixedScaleOffset {
    /// Parses `offset`, `scale`, `dtype` (default: `default`) and `astype` (default: `dtype`).
    ///
    /// # Errors
    /// A type is not a real number, or `scale` or `offset` is missing.
    pub(super) fn new(config: Config<'_>, default: Option<Number>) -> Result<Self, CodecError> {
        let (offset, scale) = (config.f64("offset")?, config.f64("scale")?);
        let decoded = config.required("dtype", config.number("dtype")?.or(default))?;
        let encoded = config.number("astype")?.unwrap_or(decoded);
        for number in [encoded, decoded] {
            if matches!(number.kind, NumberKind::Complex | NumberKind::Bool) {
                let what = format!("{} of {:?}", config.codec, number.kind);
                return Err(CodecError::unsupported(what));
            }
        }
        Ok(Self {
            encoded,
            decoded,
            scale: config.required("scale", scale)?,
            offset: config.required("offset", offset)?,
        })
    }

    pub(super) fn types(&self) -> (Number, Number) {
        (self.encoded, self.decoded)
    }

    /// Divides integers as `f64`, and floats in their own type with the parameters rounded to it.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "numpy rounds too"
    )]
    fn apply(&self, block: &Block) -> [f64; BLOCK] {
        let double = |v: f64| v / self.scale + self.offset;
        match block {
            Block::Int(values) => values.map(|v| double(v as f64)),
            Block::UInt(values) => values.map(|v| double(v as f64)),
            Block::Float(values) => match self.encoded.width {
                2 => {
                    let (scale, offset) = (half(self.scale), half(self.offset));
                    values.map(|v| {
                        let quotient = f16::from_f32(v as f32 / scale).to_f32();
                        f64::from(f16::from_f32(quotient + offset).to_f32())
                    })
                }
                4 => {
                    let (scale, offset) = (self.scale as f32, self.offset as f32);
                    values.map(|v| f64::from(v as f32 / scale + offset))
                }
                _ => values.map(double),
            },
        }
    }
}

fn half(v: f64) -> f32 {
    to_f16(v).to_f32()
}

impl Decode for FixedScaleOffset {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.encoded, self.decoded)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let to = self.decoded;
        for_each_block((src, self.encoded), (dst, to), |block, dst| {
            to.write(&Block::Float(self.apply(block)), dst);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn codec(value: serde_json::Value) -> Result<FixedScaleOffset, CodecError> {
        let map = value.as_object().unwrap();
        FixedScaleOffset::new(
            Config {
                codec: "fixedscaleoffset",
                map,
            },
            None,
        )
    }

    #[test]
    fn integers_are_divided_as_f64_and_singles_as_f32() {
        let decode = |value, src: &[u8]| {
            let codec = codec(value).unwrap();
            let mut dst = vec![0; src.len() / codec.encoded.width * codec.decoded.width];
            codec.decode(src, &mut dst).unwrap();
            dst
        };
        let config = json!({"offset": 1000, "scale": 10, "dtype": "<f8", "astype": "|u1"});
        assert_eq!(decode(config, &[7]), (7f64 / 10.0 + 1000.0).to_le_bytes());
        let config = json!({"offset": 280, "scale": 10, "dtype": "<f4"});
        assert_eq!(
            decode(config, &3f32.to_le_bytes()),
            (3f32 / 10.0 + 280.0).to_le_bytes()
        );
        let config = json!({"offset": 10, "scale": 1, "dtype": "<i4", "astype": "<i2"});
        assert_eq!(
            decode(config, &(-12i16).to_le_bytes()),
            (-2i32).to_le_bytes()
        );
    }

    #[test]
    fn missing_and_non_numeric_parameters_are_named() {
        assert!(
            codec(json!({"offset": 1, "dtype": "<f4"}))
                .unwrap_err()
                .to_string()
                .contains("scale")
        );
        assert!(
            codec(json!({"offset": 1, "scale": 1}))
                .unwrap_err()
                .to_string()
                .contains("dtype")
        );
        let error = codec(json!({"offset": 1, "scale": 1, "dtype": "|S3"})).unwrap_err();
        assert!(matches!(error, CodecError::Unsupported { .. }));
        let error = codec(json!({"offset": 1, "scale": "x", "dtype": "<f4"})).unwrap_err();
        assert!(matches!(error, CodecError::Invalid { .. }));
    }
}
