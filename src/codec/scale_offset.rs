//! `scale_offset` (zarr-extensions): `stored / scale + offset` in the arithmetic of the data type.

use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::reals::{RealCodec, RealFilter, Words, resized, scalar};
use super::stage::{Decode, Size};
use crate::zarr::Fixed;
use crate::zarr::real::{Exact, FloatFormat, Real, Rounding};

/// Decodes `scale_offset`.
#[derive(Debug)]
struct ScaleOffset {
    real: Real,
    arithmetic: Arithmetic,
}

#[derive(Debug)]
enum Arithmetic {
    Int {
        scale: i128,
        offset: i128,
    },
    Single {
        scale: f32,
        offset: f32,
    },
    /// Arithmetic in doubles, with each result rounded to the format. The double rounding has no effect on
    /// formats with fewer than 26 significant bits.
    Float {
        format: FloatFormat,
        scale: f64,
        offset: f64,
    },
}

/// Parses the configuration for an array of elements of `data_type`.
///
/// # Errors
/// The type is not a real number, a value does not fit in the type, or the scale is 0.
pub(super) fn new(config: Config<'_>, data_type: &Fixed) -> Result<RealFilter, CodecError> {
    config.only(&["offset", "scale"])?;
    let real = config.real(data_type)?;
    let value = |name: &str| match config.get(name) {
        Some(value) => scalar(config, data_type, value).map(|word| Some(real.read(word))),
        None => Ok(None),
    };
    let (scale, offset) = (value("scale")?, value("offset")?);
    let filter = |codec: Option<Box<dyn RealCodec>>| RealFilter {
        codec,
        encoded: data_type.clone(),
    };
    if scale.is_none() && offset.is_none() {
        return Ok(filter(None));
    }
    let arithmetic = match real {
        Real::Int { .. } => Arithmetic::Int {
            scale: integer(scale, 1),
            offset: integer(offset, 0),
        },
        Real::Float(_) if real == Real::Float(FloatFormat::SINGLE) => Arithmetic::Single {
            scale: single(scale, 1.0),
            offset: single(offset, 0.0),
        },
        Real::Float(format) => Arithmetic::Float {
            format,
            scale: double(scale, 1.0),
            offset: double(offset, 0.0),
        },
    };
    let is_zero = match arithmetic {
        Arithmetic::Int { scale, .. } => scale == 0,
        Arithmetic::Single { scale, .. } => scale == 0.0,
        Arithmetic::Float { scale, .. } => scale == 0.0,
    };
    match is_zero {
        true => Err(config.invalid("scale is 0")),
        false => Ok(filter(Some(Box::new(ScaleOffset { real, arithmetic })))),
    }
}

fn integer(value: Option<Exact>, default: i128) -> i128 {
    match value {
        Some(Exact::Int(integer)) => integer,
        _ => default,
    }
}

fn double(value: Option<Exact>, default: f64) -> f64 {
    match value {
        Some(Exact::Float(float)) => float,
        _ => default,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the value of a float32")]
fn single(value: Option<Exact>, default: f64) -> f32 {
    double(value, default) as f32
}

impl ScaleOffset {
    fn decode_word(&self, word: u64) -> Result<u64, DecodeError> {
        match (&self.arithmetic, self.real.read(word)) {
            (Arithmetic::Int { scale, offset }, Exact::Int(value)) => {
                self.decode_integer(value, *scale, *offset)
            }
            (Arithmetic::Single { scale, offset }, _) => {
                let value = f32::from_bits(single_bits(word));
                Ok(u64::from((value / scale + offset).to_bits()))
            }
            (
                Arithmetic::Float {
                    format,
                    scale,
                    offset,
                },
                Exact::Float(value),
            ) => {
                let quotient = rounded(*format, value / scale)?;
                word_of(*format, quotient + offset)
            }
            _ => Err(DecodeError::internal("a number of another type")),
        }
    }

    fn decode_integer(&self, value: i128, scale: i128, offset: i128) -> Result<u64, DecodeError> {
        // 128-bit divisions are slow.
        let (quotient, rest) = match (i64::try_from(value), i64::try_from(scale)) {
            _ if scale == 1 => (value, 0),
            (Ok(value), Ok(scale)) if scale != -1 => {
                (i128::from(value / scale), i128::from(value % scale))
            }
            _ => (value / scale, value % scale),
        };
        if rest != 0 {
            let what = format!("the stored value {value} is not a multiple of {scale}");
            return Err(DecodeError::corrupt(what));
        }
        self.fit(quotient + offset)
    }

    fn fit(&self, value: i128) -> Result<u64, DecodeError> {
        let word = self.real.round(Exact::Int(value), Rounding::default());
        word.map_err(|_| not_a_value(&value))
    }
}

fn not_a_value(value: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::corrupt(format!(
        "the result {value} is not a value of the data type"
    ))
}

#[expect(clippy::cast_possible_truncation, reason = "a word of 4 bytes")]
fn single_bits(word: u64) -> u32 {
    word as u32
}

/// Returns the word of a result. As in IEEE 754, overflow gives an infinity, if the format has one.
fn word_of(format: FloatFormat, value: f64) -> Result<u64, DecodeError> {
    let real = Real::Float(format);
    let word = real.round(Exact::Float(value), Rounding::default());
    word.or_else(|_| {
        let largest = real.clamp(Exact::Float(value));
        match real.read(largest) {
            Exact::Float(found) if found.is_infinite() => Ok(largest),
            _ => Err(not_a_value(&value)),
        }
    })
}

/// Returns a result, rounded to the format.
fn rounded(format: FloatFormat, value: f64) -> Result<f64, DecodeError> {
    word_of(format, value).map(|word| format.to_f64(word))
}

impl RealCodec for ScaleOffset {
    fn encode_word(&self, word: u64) -> Result<u64, DecodeError> {
        match (&self.arithmetic, self.real.read(word)) {
            (Arithmetic::Int { scale, offset }, Exact::Int(value)) => {
                let product = (value - offset).checked_mul(*scale);
                self.fit(product.ok_or_else(|| not_a_value(&value))?)
            }
            (Arithmetic::Single { scale, offset }, _) => {
                let value = f32::from_bits(single_bits(word));
                Ok(u64::from(((value - offset) * scale).to_bits()))
            }
            (
                Arithmetic::Float {
                    format,
                    scale,
                    offset,
                },
                Exact::Float(value),
            ) => {
                let difference = rounded(*format, value - offset)?;
                word_of(*format, difference * scale)
            }
            _ => Err(DecodeError::internal("a number of another type")),
        }
    }
}

impl Decode for ScaleOffset {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.real, self.real)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        Words::new(src, self.real, dst, self.real)?.convert(|word| self.decode_word(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{DataType, data_type::v3};
    use serde_json::{Value, json};

    fn filter(data_type: &str, configuration: &Value) -> Result<RealFilter, CodecError> {
        let config = Config {
            codec: "scale_offset",
            map: configuration.as_object().unwrap(),
        };
        match v3::parse(&data_type.into()) {
            Ok(DataType::Fixed(fixed)) => new(config, &fixed),
            other => panic!("{other:?}"),
        }
    }

    fn codec(data_type: &str, configuration: Value) -> Box<dyn RealCodec> {
        filter(data_type, &configuration).unwrap().codec.unwrap()
    }

    #[test]
    fn floats_are_divided_and_added_in_their_own_type() {
        // The first example of the specification.
        let single = codec("float32", json!({"offset": 5, "scale": 0.1}));
        let mut dst = [0; 4];
        single.decode(&7_f32.to_le_bytes(), &mut dst).unwrap();
        assert_eq!(f32::from_le_bytes(dst), 7_f32 / 0.1 + 5.0);
        let half = codec("float16", json!({"offset": 0.1, "scale": 3}));
        let mut dst = [0; 2];
        half.decode(&half::f16::from_f32(7.0).to_le_bytes(), &mut dst)
            .unwrap();
        let quotient = half::f16::from_f32(7.0 / 3.0).to_f32();
        let offset = half::f16::from_f32(0.1).to_f32();
        assert_eq!(dst, half::f16::from_f32(quotient + offset).to_le_bytes());
        // Results that are too large become infinite if the type has infinities.
        half.decode(&[0xff, 0x7b], &mut dst).unwrap();
        let tiny = codec("float16", json!({"scale": 0.001}));
        tiny.decode(&[0xff, 0x7b], &mut dst).unwrap();
        assert_eq!(dst, [0x00, 0x7c]);
        let small = codec("float8_e4m3fnuz", json!({"scale": 0.125}));
        assert!(small.decode(&[0x7f], &mut dst[..1]).is_err());
    }

    #[test]
    fn integers_are_divided_exactly_and_stay_in_range() {
        // The second example of the specification.
        let shifted = codec("uint16", json!({"offset": 1000}));
        let mut dst = [0; 4];
        shifted.decode(&[0, 0, 255, 0], &mut dst).unwrap();
        assert_eq!(dst, [0xe8, 0x03, 0xe7, 0x04]);
        assert!(shifted.decode(&65000_u16.to_le_bytes(), &mut dst).is_err());
        assert_eq!(shifted.encode_word(1255).unwrap(), 255);
        assert!(shifted.encode_word(999).is_err());
        let scaled = codec("int8", json!({"scale": -3}));
        let mut dst = [0; 2];
        scaled.decode(&[9, 0xfa], &mut dst).unwrap();
        assert_eq!(dst, [0xfd, 2]);
        let error = scaled.decode(&[10, 0], &mut dst).unwrap_err();
        let error = error.in_codec("scale_offset").to_string();
        assert!(error.contains("10 is not a multiple of -3"), "{error}");
        let large = codec("uint64", json!({"offset": 1, "scale": 2}));
        let mut dst = [0; 8];
        large
            .decode(&(u64::MAX - 1).to_le_bytes(), &mut dst)
            .unwrap();
        assert_eq!(u64::from_le_bytes(dst), (u64::MAX - 1) / 2 + 1);
        let lowest = codec("int64", json!({"scale": -1}));
        assert!(lowest.decode(&i64::MIN.to_le_bytes(), &mut dst).is_err());
    }

    #[test]
    fn configurations_that_are_wrong_are_named_and_none_changes_nothing() {
        assert!(filter("float32", &json!({})).unwrap().codec.is_none());
        for (data_type, configuration, expected) in [
            ("float32", json!({"scale": 0}), "scale is 0"),
            ("float32", json!({"scale": "0x00000000"}), "scale is 0"),
            ("int8", json!({"offset": 0.5}), "0.5"),
            ("int8", json!({"offset": 128}), "128"),
            ("int8", json!({"factor": 1}), "member factor"),
            ("bool", json!({"offset": 1}), "b1"),
            ("complex64", json!({"offset": 1}), "c8"),
        ] {
            let error = filter(data_type, &configuration).unwrap_err().to_string();
            assert!(error.contains(expected), "{configuration}: {error}");
        }
    }
}
