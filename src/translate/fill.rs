//! Translation of fill values (v2, "Fill value encoding"; v3 core, "Fill value").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use half::f16;
use serde_json::{Value, json};

use crate::zarr::real::{Exact, Real};
use crate::zarr::{ByteOrder, DataType, FillValue, Fixed, Scalar, Variable, ZarrFormat};

/// Returns the `fill_value` for a document of `target`.
///
/// # Errors
/// The reason, if `target` cannot express the value.
pub(super) fn to_json(
    target: ZarrFormat,
    data_type: &DataType,
    fill: &FillValue,
) -> Result<Value, String> {
    match (data_type, fill) {
        (DataType::Fixed(fixed), FillValue::Fixed(bytes)) => element(target, fixed, bytes),
        (DataType::Fixed(fixed), FillValue::Undefined) => match fixed.scalar {
            // What is not defined may be anything: as zarr-python reads it.
            Scalar::DateTime { .. } | Scalar::TimeDelta { .. } => Ok(i64::MIN.into()),
            _ => element(target, fixed, &vec![0; fixed.size_bytes]),
        },
        (DataType::Variable(Variable::Text | Variable::Bytes), FillValue::Undefined) => {
            Ok("".into())
        }
        // Readers of v2 disagree on the encoding of bytes.
        (DataType::Variable(Variable::Bytes), FillValue::Variable(value))
            if target == ZarrFormat::V2 && value.as_str() != Some("") =>
        {
            Err("a fill value of bytes has no one form in v2".into())
        }
        (DataType::Variable(Variable::Text | Variable::Bytes), FillValue::Variable(value)) => {
            Ok(value.clone())
        }
        _ => Err(format!("a fill value of {data_type}")),
    }
}

fn element(target: ZarrFormat, fixed: &Fixed, bytes: &[u8]) -> Result<Value, String> {
    let size = fixed.size_bytes;
    Ok(match &fixed.scalar {
        Scalar::Bool => (bytes != [0]).into(),
        Scalar::Int(order) | Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. } => {
            let word = word(bytes, *order);
            let unused_bytes = size_of::<i64>().checked_sub(size);
            let unused = 8 * unused_bytes.ok_or("a fill value of more than 8 bytes")?;
            (word.cast_signed() << unused >> unused).into()
        }
        Scalar::UInt(order) => word(bytes, *order).into(),
        Scalar::Float(order) => float(target, word(bytes, *order), size)?,
        Scalar::Complex(order) => {
            let parts = bytes.split_at_checked(size / 2);
            let (re, im) = parts.ok_or("a fill value of too few bytes")?;
            let part = |bytes| float(target, word(bytes, *order), size / 2);
            json!([part(re)?, part(im)?])
        }
        Scalar::Bytes => BASE64.encode(trimmed(bytes, 1)).into(),
        Scalar::Text(order) => {
            let (code_points, _) = trimmed(bytes, 4).as_chunks::<4>();
            let char = |code_point: &[u8; 4]| {
                let code_point = u32::try_from(word(code_point, *order)).ok()?;
                char::from_u32(code_point)
            };
            let text: Option<String> = code_points.iter().map(char).collect();
            text.ok_or("a fill value that is no text")?.into()
        }
        Scalar::Raw | Scalar::Struct(_) => BASE64.encode(bytes).into(),
        Scalar::Other { name, order } if target == ZarrFormat::V3 => {
            let part = |bytes| other(name, word(bytes, *order), bytes.len());
            match name.starts_with("complex_") {
                true => bytes.chunks(size / 2).map(part).collect(),
                false => part(bytes),
            }
        }
        Scalar::SubArray { .. } | Scalar::Other { .. } => {
            return Err(format!("a fill value of {fixed}"));
        }
    })
}

/// Returns a word of a type that NumPy lacks. Floats are their bits, which all readers understand: TensorStore takes
/// other numbers for `float8_e8m0fnu`, and zarrs takes no numbers for small floats.
fn other(name: &str, word: u64, size: usize) -> Value {
    match Real::named(name) {
        Some(real @ Real::Int { .. }) => match real.read(word) {
            Exact::Int(integer) => i64::try_from(integer).unwrap_or(0).into(),
            Exact::Float(_) => Value::Null,
        },
        _ => format!("{word:#0width$x}", width = 2 + 2 * size).into(),
    }
}

/// Returns the bytes without padding.
fn trimmed(bytes: &[u8], unit: usize) -> &[u8] {
    let last = bytes.chunks(unit).rposition(|u| u.iter().any(|b| *b != 0));
    let length = last.map_or(0, |last| (last + 1) * unit);
    // The last unit may be incomplete.
    bytes.get(..length).unwrap_or(bytes)
}

/// Returns the word in at most 8 bytes.
fn word(bytes: &[u8], order: ByteOrder) -> u64 {
    let push = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
    match order {
        ByteOrder::Big => bytes.iter().fold(0, push),
        ByteOrder::Little => bytes.iter().rev().fold(0, push),
    }
}

/// Returns a number as JSON, `NaN`, `Infinity` and `-Infinity` by name, and in v3 any other NaN by its bits.
fn float(target: ZarrFormat, bits: u64, size: usize) -> Result<Value, String> {
    let number = value(bits, size).ok_or_else(|| format!("a float of {size} bytes"))?;
    let nan = match size {
        2 => 0x7e00,
        4 => 0x7fc0_0000,
        _ => 0x7ff8_0000_0000_0000,
    };
    if number.is_nan() && bits != nan && target == ZarrFormat::V3 {
        return Ok(format!("{bits:#0width$x}", width = 2 + 2 * size).into());
    }
    Ok(name(number))
}

/// Returns the value of a float of 2, 4 or 8 bytes, which an `f64` represents exactly.
fn value(bits: u64, size: usize) -> Option<f64> {
    Some(match size {
        2 => f16::from_bits(u16::try_from(bits).ok()?).into(),
        4 => f32::from_bits(u32::try_from(bits).ok()?).into(),
        8 => f64::from_bits(bits),
        _ => return None,
    })
}

/// Returns the value of the bytes of a float.
pub(super) fn number(fixed: &Fixed, bytes: &[u8]) -> Option<f64> {
    match fixed.scalar {
        Scalar::Float(order) => value(word(bytes, order), fixed.size_bytes),
        _ => None,
    }
}

/// Returns a number as JSON, or its name if it is not finite.
pub(super) fn name(number: f64) -> Value {
    match number {
        number if number.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        number => number.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::data_type::{v2, v3};

    /// Returns a value in both versions, after checking that each is read back as the same bytes.
    fn translated(dtype: &str, value: Value) -> [Value; 2] {
        let data_type = v2::parse(&dtype.into(), []).unwrap();
        let fill = FillValue::parse(ZarrFormat::V2, &data_type, &value).unwrap();
        [ZarrFormat::V2, ZarrFormat::V3].map(|target| {
            let json = to_json(target, &data_type, &fill).unwrap();
            // Parsed like a document, so that numbers keep their digits.
            let read = serde_json::from_str(&json.to_string()).unwrap();
            let expected = match &fill {
                FillValue::Undefined => FillValue::Fixed(vec![0; data_type.size_bytes().unwrap()]),
                fill => fill.clone(),
            };
            let back = FillValue::parse(target, &data_type, &read).unwrap();
            assert_eq!(back, expected, "{dtype} {value} {json}");
            json
        })
    }

    #[test]
    fn every_value_is_read_back_as_the_same_bytes() {
        for (dtype, value, expected) in [
            ("|b1", json!(true), "true"),
            ("|i1", json!(-1), "-1"),
            (">i2", json!(-2), "-2"),
            ("<i8", json!(i64::MIN), "-9223372036854775808"),
            (">u8", json!(u64::MAX), "18446744073709551615"),
            ("<f2", json!(0.1), "0.0999755859375"),
            ("<f2", json!(5.960464477539063e-8), "5.960464477539063e-8"),
            (">f4", json!(0.1), "0.10000000149011612"),
            ("<f8", json!(-0.0), "-0.0"),
            ("<f4", json!("NaN"), "\"NaN\""),
            ("<f8", json!("-Infinity"), "\"-Infinity\""),
            ("<f2", json!("Infinity"), "\"Infinity\""),
            ("<c8", json!([1.5, "NaN"]), "[1.5,\"NaN\"]"),
            ("<M8[s]", json!("NaT"), "-9223372036854775808"),
            (">m8[s]", json!(86400), "86400"),
            ("|S3", json!("YWI="), "\"YWI=\""),
            (">U3", json!("a\u{1f600}"), "\"a\u{1f600}\""),
            ("|V2", json!("AQA="), "\"AQA=\""),
            ("<i4", json!(null), "0"),
        ] {
            for json in translated(dtype, value) {
                assert_eq!(json.to_string(), expected, "{dtype}");
            }
        }
    }

    #[test]
    fn elements_of_variable_length_are_written_as_all_readers_read_them() {
        let [text, bytes] = [Variable::Text, Variable::Bytes].map(DataType::Variable);
        let fill = |value: &str| FillValue::Variable(value.into());
        for target in [ZarrFormat::V2, ZarrFormat::V3] {
            assert_eq!(to_json(target, &text, &fill("a")), Ok(json!("a")));
            assert_eq!(
                to_json(target, &bytes, &FillValue::Undefined),
                Ok(json!(""))
            );
            assert_eq!(to_json(target, &bytes, &fill("")), Ok(json!("")));
        }
        assert_eq!(
            to_json(ZarrFormat::V3, &bytes, &fill("YQ==")),
            Ok(json!("YQ=="))
        );
        assert!(to_json(ZarrFormat::V2, &bytes, &fill("YQ==")).is_err());
        let objects = DataType::Variable(Variable::Object);
        assert!(to_json(ZarrFormat::V3, &objects, &FillValue::Undefined).is_err());
    }

    #[test]
    fn types_that_numpy_lacks_have_fill_values_in_v3_alone() {
        for (name, value, expected) in [
            ("int4", json!(-3), "-3"),
            ("uint2", json!(3), "3"),
            ("bfloat16", json!(1.5), "\"0x3fc0\""),
            ("bfloat16", json!("NaN"), "\"0x7fc0\""),
            ("bfloat16", json!(null), "\"0x0000\""),
            ("float8_e8m0fnu", json!(0.0), "\"0x00\""),
            ("float4_e2m1fn", json!(-6), "\"0x0f\""),
            ("complex_float16", json!([1, 0]), "[\"0x3c00\",\"0x0000\"]"),
        ] {
            let data_type = v3::parse(&name.into()).unwrap();
            let fill = FillValue::parse(ZarrFormat::V3, &data_type, &value).unwrap();
            let json = to_json(ZarrFormat::V3, &data_type, &fill).unwrap();
            assert_eq!(json.to_string(), expected, "{name}");
            let bytes = vec![0; data_type.size_bytes().unwrap()];
            let fill = match fill {
                FillValue::Undefined => FillValue::Fixed(bytes),
                fill => fill,
            };
            let back = FillValue::parse(ZarrFormat::V3, &data_type, &json);
            assert_eq!(back, Ok(fill.clone()), "{name}");
            assert!(to_json(ZarrFormat::V2, &data_type, &fill).is_err());
        }
    }

    #[test]
    fn a_nan_with_a_payload_keeps_its_bits_in_v3() {
        let fixed = DataType::Fixed(v2::fixed(&"<f4".into()).unwrap());
        let fill = FillValue::Fixed(0xffc0_0001_u32.to_le_bytes().to_vec());
        let json = to_json(ZarrFormat::V3, &fixed, &fill).unwrap();
        assert_eq!(json, json!("0xffc00001"));
        assert_eq!(
            FillValue::parse(ZarrFormat::V3, &fixed, &json).unwrap(),
            fill
        );
        assert_eq!(to_json(ZarrFormat::V2, &fixed, &fill), Ok(json!("NaN")));
    }
}
