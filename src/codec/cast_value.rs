//! `cast_value` (zarr-extensions): conversion to a different number type, with explicit rules for rounding,
//! for values out of range and for single values.

use serde_json::Value;

use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::reals::{RealCodec, RealFilter, Words, resized, scalar, type_of};
use super::stage::{Decode, Size};
use crate::zarr::Fixed;
use crate::zarr::real::{Exact, Real, Rounding, Unrepresentable};

/// The handling of values that the type cannot hold; without it, such values are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfRange {
    Clamp,
    Wrap,
}

/// Casts words of one type to words of another.
#[derive(Debug)]
struct Cast {
    from: Real,
    to: Real,
    rounding: Rounding,
    out_of_range: Option<OutOfRange>,
    /// Values with an explicit result, as [`key`] and word, sorted by key.
    map: Vec<(u64, u64)>,
}

/// Decodes `cast_value`.
#[derive(Debug)]
pub(super) struct CastValue {
    decoding: Cast,
    encoding: Cast,
    /// The result for each word of a one-byte type; `None` for larger types.
    table: Option<Vec<Option<u64>>>,
}

/// The maximum number of entries of a `scalar_map`.
const MAX_MAPPED: usize = 1 << 16;

/// Parses the configuration for an array of elements of `decoded`.
///
/// # Errors
/// A type is not a real number, or a member is wrong or not in the specification.
pub(super) fn new(config: Config<'_>, decoded: &Fixed) -> Result<RealFilter, CodecError> {
    config.only(&["data_type", "rounding", "out_of_range", "scalar_map"])?;
    let name = config.required("data_type", config.get("data_type"))?;
    let encoded = type_of(config, name)?;
    let array = config.real(decoded)?;
    let stored = config.real(&encoded)?;
    let rounding = match config.str("rounding")? {
        None => Rounding::default(),
        Some(name) => {
            Rounding::named(name).ok_or_else(|| config.invalid(format!("rounding is {name}")))?
        }
    };
    let out_of_range = match (config.str("out_of_range")?, stored) {
        (None, _) => None,
        (Some("clamp"), _) => Some(OutOfRange::Clamp),
        (Some("wrap"), Real::Int { .. }) => Some(OutOfRange::Wrap),
        (Some("wrap"), Real::Float(_)) => {
            return Err(config.invalid(format!("out_of_range is wrap for {encoded}")));
        }
        (Some(other), _) => return Err(config.invalid(format!("out_of_range is {other}"))),
    };
    let cast = |from, to, map| Cast {
        from,
        to,
        rounding,
        out_of_range,
        map,
    };
    let encode = scalar_map(config, "encode", decoded, &encoded)?;
    let decode = scalar_map(config, "decode", &encoded, decoded)?;
    let decoding = cast(stored, array, decode);
    let table = (stored.bits() <= 8).then(|| {
        let words = 0..=u64::from(u8::MAX);
        words.map(|word| decoding.cast(word).ok()).collect()
    });
    let codec = CastValue {
        encoding: cast(array, stored, encode),
        decoding,
        table,
    };
    Ok(RealFilter {
        codec: Some(Box::new(codec)),
        encoded,
    })
}

/// Parses one direction of `scalar_map`: pairs of values, in the encoding of fill values.
fn scalar_map(
    config: Config<'_>,
    direction: &str,
    from: &Fixed,
    to: &Fixed,
) -> Result<Vec<(u64, u64)>, CodecError> {
    let Some(maps) = config.get("scalar_map") else {
        return Ok(Vec::new());
    };
    let invalid = |what: &str| config.invalid(format!("scalar_map: {what}"));
    let maps = maps.as_object().ok_or_else(|| invalid("not an object"))?;
    if maps
        .keys()
        .any(|key| !matches!(key.as_str(), "encode" | "decode"))
    {
        return Err(invalid("a member that is neither encode nor decode"));
    }
    let pairs = match maps.get(direction) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(pairs)) if pairs.len() <= MAX_MAPPED => pairs,
        Some(Value::Array(_)) => return Err(invalid(&format!("more than {MAX_MAPPED} values"))),
        Some(_) => return Err(invalid("not a list")),
    };
    let real = config.real(from)?;
    let mut map = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let Some([input, output]) = pair.as_array().map(Vec::as_slice) else {
            return Err(invalid("an entry that is not a pair"));
        };
        let key = key(real, scalar(config, from, input)?);
        map.push((key, scalar(config, to, output)?));
    }
    // The first of equal inputs counts: the sort is stable.
    map.sort_by_key(|(key, _)| *key);
    map.dedup_by_key(|(key, _)| *key);
    Ok(map)
}

/// Returns a key that equal values share: all NaNs are equal, and minus zero equals zero.
fn key(real: Real, word: u64) -> u64 {
    match real.read(word) {
        Exact::Int(_) => {
            let unused = 64 - real.bits().clamp(1, 64);
            word << unused >> unused
        }
        Exact::Float(value) if value.is_nan() => u64::MAX,
        Exact::Float(value) => (value + 0.0).to_bits(),
    }
}

impl Cast {
    fn cast(&self, word: u64) -> Result<u64, DecodeError> {
        if !self.map.is_empty() {
            let key = key(self.from, word);
            let found = self.map.binary_search_by_key(&key, |(key, _)| *key);
            if let Some((_, mapped)) = found.ok().and_then(|place| self.map.get(place)) {
                return Ok(*mapped);
            }
        }
        let value = self.from.read(word);
        self.to
            .round(value, self.rounding)
            .or_else(|reason| self.fit(value, reason))
    }

    /// Returns the word for a value that the type cannot hold.
    fn fit(&self, value: Exact, reason: Unrepresentable) -> Result<u64, DecodeError> {
        match (reason, self.out_of_range, self.to) {
            (Unrepresentable::OutOfRange, Some(OutOfRange::Clamp), to) => Ok(to.clamp(value)),
            (Unrepresentable::OutOfRange, Some(OutOfRange::Wrap), Real::Int { .. }) => {
                Ok(self.to.wrap(match value {
                    Exact::Int(integer) => integer,
                    Exact::Float(float) => modulo(self.rounding.integral(float)),
                }))
            }
            _ => Err(DecodeError::corrupt(format!(
                "the stored value {} is not a value of the data type",
                DisplayNumber(value)
            ))),
        }
    }
}

/// Returns an integer that is congruent, modulo 2^64, to a float without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "smaller than 2^127")]
fn modulo(float: f64) -> i128 {
    match float.abs() < 2_f64.powi(126) {
        true => float as i128,
        // Such a float is a multiple of 2^74.
        false => 0,
    }
}

/// Formats a number for a message.
struct DisplayNumber(Exact);

impl std::fmt::Display for DisplayNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Exact::Int(integer) => integer.fmt(f),
            Exact::Float(float) => write!(f, "{float:e}"),
        }
    }
}

impl RealCodec for CastValue {
    fn encode_word(&self, word: u64) -> Result<u64, DecodeError> {
        self.encoding.cast(word)
    }
}

impl Decode for CastValue {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.decoding.from, self.decoding.to)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let Cast { from, to, .. } = self.decoding;
        let words = Words::new(src, from, dst, to)?;
        match &self.table {
            Some(table) => words.convert(|word| {
                let found = usize::try_from(word)
                    .ok()
                    .and_then(|place| table.get(place));
                // The error of the word without a value.
                found
                    .copied()
                    .flatten()
                    .map_or_else(|| self.decoding.cast(word), Ok)
            }),
            None => words.convert(|word| self.decoding.cast(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::DataType;
    use serde_json::{Map, json};

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn codec(decoded: &str, configuration: Value) -> Result<Box<dyn RealCodec>, CodecError> {
        let map = map(configuration);
        let config = Config {
            codec: "cast_value",
            map: &map,
        };
        let Ok(DataType::Fixed(decoded)) = crate::zarr::data_type::v3::parse(&decoded.into())
        else {
            panic!("{decoded}");
        };
        new(config, &decoded).map(|filter| filter.codec.unwrap())
    }

    fn decoded(codec: &dyn RealCodec, src: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; size];
        let written = codec.decode(src, &mut dst)?;
        assert_eq!(written, size);
        Ok(dst)
    }

    #[test]
    fn packed_numbers_decode_to_floats_and_mapped_values() {
        // The example "Float64 to uint8 with NaN preservation" of `scale_offset`.
        let codec = codec(
            "float64",
            json!({"data_type": "uint8", "rounding": "nearest-even",
                "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}}),
        )
        .unwrap();
        let bytes = decoded(&*codec, &[0, 1, 255], 24).unwrap();
        let expected = [f64::NAN, 1.0, 255.0].map(f64::to_le_bytes).concat();
        assert_eq!(bytes, expected);
        assert_eq!(codec.encode_word(f64::NAN.to_bits()).unwrap(), 0);
        assert_eq!(codec.encode_word(2.5_f64.to_bits()).unwrap(), 2);
        assert!(codec.encode_word(256_f64.to_bits()).is_err());
        assert_eq!(codec.encoded_size(Size::Exact(24)), Some(Size::Exact(3)));
        assert_eq!(codec.encoded_size(Size::Exact(25)), None);
    }

    #[test]
    fn the_example_of_the_specification_encodes_as_numpy_does() {
        let codec = codec(
            "float64",
            json!({"data_type": "uint8", "rounding": "towards-zero", "out_of_range": "wrap",
                "scalar_map": {"encode": [["NaN", 0], ["+Infinity", 0], ["-Infinity", 0]]}}),
        )
        .unwrap();
        for (value, expected) in [
            (300.7, 44),
            (-1.0, 255),
            (1e300, 0),
            (f64::NAN, 0),
            (f64::INFINITY, 0),
        ] {
            let word = codec.encode_word(value.to_bits()).unwrap() & 0xff;
            assert_eq!(word, expected, "{value}");
        }
    }

    #[test]
    fn values_out_of_range_are_errors_clamped_or_wrapped() {
        let with = |rule: Value| json!({"data_type": "int16", "out_of_range": rule});
        let src: Vec<u8> = [128_i16, -129, 300]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let error = codec("int8", with(Value::Null)).unwrap();
        let error = decoded(&*error, &src, 3)
            .unwrap_err()
            .in_codec("cast_value");
        let expected = "the stored value 128 is not a value of the data type";
        assert!(error.to_string().contains(expected), "{error}");
        let clamp = codec("int8", with("clamp".into())).unwrap();
        assert_eq!(decoded(&*clamp, &src, 3).unwrap(), [0x7f, 0x80, 0x7f]);
        let wrap = codec("int8", with("wrap".into())).unwrap();
        assert_eq!(decoded(&*wrap, &src, 3).unwrap(), [0x80, 0x7f, 44]);
        // Infinity does not count as out of range.
        let clamp = codec(
            "int8",
            json!({"data_type": "float32", "out_of_range": "clamp"}),
        );
        let infinity = f32::INFINITY.to_le_bytes();
        assert!(decoded(&*clamp.unwrap(), &infinity, 1).is_err());
        let clamp = codec(
            "float16",
            json!({"data_type": "float64", "out_of_range": "clamp"}),
        );
        let bytes = decoded(&*clamp.unwrap(), &(-1e9_f64).to_le_bytes(), 2).unwrap();
        assert_eq!(bytes, [0x00, 0xfc]);
    }

    #[test]
    fn values_below_the_minimum_of_a_type_without_zero_are_clamped_to_it() {
        let codec = codec(
            "float8_e8m0fnu",
            json!({"data_type": "float64", "out_of_range": "clamp"}),
        )
        .unwrap();
        let stored = [0.0, -0.0, -3.0, 1e-300, 2_f64.powi(-127), 1.0, 1e300];
        let src = stored.map(f64::to_le_bytes).concat();
        let expected = [0, 0, 0, 0, 0, 127, 254];
        assert_eq!(decoded(&*codec, &src, 7).unwrap(), expected);
        let of_integers = json!({"data_type": "int8", "out_of_range": "clamp"});
        let codec = self::codec("float8_e8m0fnu", of_integers).unwrap();
        assert_eq!(decoded(&*codec, &[0, 0xff, 1], 3).unwrap(), [0, 0, 127]);
    }

    #[test]
    fn the_first_of_equal_inputs_counts_and_minus_zero_is_zero() {
        let codec = codec(
            "int8",
            json!({"data_type": "float32", "scalar_map": {"decode": [[0, 5], ["NaN", 6], [-0.0, 7]]}}),
        )
        .unwrap();
        let src = [-0.0_f32, 0.0, -f32::NAN, 1.0]
            .map(f32::to_le_bytes)
            .concat();
        assert_eq!(decoded(&*codec, &src, 4).unwrap(), [5, 5, 6, 1]);
    }

    #[test]
    fn types_of_less_than_a_byte_ignore_the_upper_bits() {
        let codec = codec("float32", json!({"data_type": "int4"})).unwrap();
        let bytes = decoded(&*codec, &[0x0f, 0x37, 0xf8], 12).unwrap();
        assert_eq!(bytes, [-1.0_f32, 7.0, -8.0].map(f32::to_le_bytes).concat());
    }

    #[test]
    fn configurations_that_are_wrong_are_named() {
        for (decoded, configuration, expected) in [
            ("float32", json!({}), "data_type is missing"),
            ("bool", json!({"data_type": "int8"}), "b1"),
            ("float32", json!({"data_type": "complex64"}), "c8"),
            ("float32", json!({"data_type": "string"}), "text"),
            (
                "float32",
                json!({"data_type": "int8", "rounding": "up"}),
                "rounding is up",
            ),
            (
                "int8",
                json!({"data_type": "float32", "out_of_range": "wrap"}),
                "wrap",
            ),
            (
                "int8",
                json!({"data_type": "int8", "out_of_range": "x"}),
                "out_of_range is x",
            ),
            ("int8", json!({"data_type": "int8", "x": 1}), "member x"),
            (
                "int8",
                json!({"data_type": "int8", "scalar_map": {"decode": [[1]]}}),
                "pair",
            ),
            (
                "int8",
                json!({"data_type": "int8", "scalar_map": {"decode": [[1, 200]]}}),
                "200",
            ),
            (
                "int8",
                json!({"data_type": "int8", "scalar_map": {"x": []}}),
                "scalar_map",
            ),
            (
                "int8",
                json!({"data_type": "int8", "scalar_map": []}),
                "scalar_map",
            ),
        ] {
            let error = codec(decoded, configuration.clone())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{configuration}: {error}");
        }
    }

    #[test]
    fn damaged_lengths_are_errors() {
        let codec = codec("float32", json!({"data_type": "int16"})).unwrap();
        assert!(codec.decode(&[1, 2, 3], &mut [0; 8]).is_err());
        assert!(codec.decode(&[1, 2, 3, 4], &mut [0; 7]).is_err());
    }
}
