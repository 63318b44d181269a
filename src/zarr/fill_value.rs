//! Fill values (v2, "Fill value encoding"; v3 core, "Fill value"; the data types of zarr-extensions).
//!
//! A value that the data type cannot hold exactly is an error: integers are never rounded, truncated
//! or wrapped. The extensions that zarr-python reads are read too:
//! `0.0` for integers, 0 and 1 for booleans; in v2 the number 0 for every type, a string that is
//! exactly an integer for integers, and text that is not base64 for byte strings.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value};

use super::ZarrFormat;
use super::data_type::{ByteOrder, DataType, Field, Fixed, Scalar, Variable};
use super::error::{MetadataError, excerpt, printable};

mod number;

/// The value of elements in chunks that are not stored.
#[derive(Debug, Clone, PartialEq)]
pub enum FillValue {
    /// The bytes of one element, in the byte order of the data type.
    Fixed(Vec<u8>),
    /// A variable-length element in the canonical form of its type: text is a string, bytes are base64
    /// (standard alphabet, padded), an array is a list, an object is any value.
    Variable(Value),
    /// `null` (undefined in v2, invalid in v3): all bytes zero, or an empty element.
    Undefined,
}

impl FillValue {
    /// Reads a `fill_value` for elements of `data_type`. `null` is invalid in v3, but GDAL writes it for
    /// arrays of integers without a fill value.
    ///
    /// # Errors
    /// A value that the data type cannot hold: invalid. A value whose encoding is unknown (`float8_*`
    /// other than zero, not given as bits): unsupported.
    pub fn parse(
        format: ZarrFormat,
        data_type: &DataType,
        value: &Value,
    ) -> Result<Self, MetadataError> {
        if value.is_null() {
            return Ok(Self::Undefined);
        }
        match data_type {
            DataType::Fixed(fixed) => {
                let mut bytes = vec![0; fixed.size_bytes];
                write(format, fixed, value, &mut bytes)?;
                Ok(Self::Fixed(bytes))
            }
            DataType::Variable(variable) => Ok(Self::Variable(element(format, variable, value)?)),
        }
    }

    /// The decoded form of a variable-length byte string.
    pub fn variable_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Variable(Value::String(text)) => BASE64.decode(text).ok(),
            _ => None,
        }
    }
}

/// A variable-length element in its canonical form.
fn element(format: ZarrFormat, variable: &Variable, value: &Value) -> Result<Value, MetadataError> {
    // zarr-python 2 writes the number 0 as the default of all types.
    let nothing = format == ZarrFormat::V2 && is_zero(value);
    match (variable, value) {
        (Variable::Object, value) => Ok(value.clone()),
        (Variable::Text | Variable::Bytes, _) if nothing => Ok(Value::String(String::new())),
        (Variable::Text, Value::String(_)) => Ok(value.clone()),
        (Variable::Text, Value::Number(number)) => Ok(Value::String(number.to_string())),
        (Variable::Bytes, Value::String(text)) => {
            let bytes = BASE64.decode(text).map_err(|_| invalid(value, "base64"))?;
            Ok(Value::String(BASE64.encode(bytes)))
        }
        (Variable::Bytes, Value::Array(list)) => {
            let mut bytes = vec![0; list.len()];
            write_byte_list(list, value, &mut bytes)?;
            Ok(Value::String(BASE64.encode(bytes)))
        }
        (Variable::Array(_), _) if nothing => Ok(Value::Array(Vec::new())),
        (Variable::Array(_), Value::String(text)) if text.is_empty() => {
            Ok(Value::Array(Vec::new()))
        }
        (Variable::Array(_), Value::Array(_)) => Ok(value.clone()),
        (Variable::Text, _) => Err(invalid(value, "text")),
        (Variable::Bytes, _) => Err(invalid(value, "bytes")),
        (Variable::Array(_), _) => Err(invalid(value, "an array")),
    }
}

/// Writes one element to its bytes, which are zero.
fn write(
    format: ZarrFormat,
    fixed: &Fixed,
    value: &Value,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    match &fixed.scalar {
        Scalar::Bytes | Scalar::Raw | Scalar::Text(_) => {
            write_string(format, fixed, value, out).unwrap_or_else(|| Err(mismatch(value, fixed)))
        }
        Scalar::Struct(fields) => write_structure(format, fixed, fields, value, out),
        Scalar::SubArray { shape, item } => write_items(format, shape, item, value, out),
        Scalar::Other { name, order } => write_other(fixed, name, *order, value, out),
        _ => write_number(format, fixed, value, out).ok_or_else(|| mismatch(value, fixed)),
    }
}

/// Numbers, booleans and times; none if the type cannot hold the value.
fn write_number(format: ZarrFormat, fixed: &Fixed, value: &Value, out: &mut [u8]) -> Option<()> {
    let v2 = format == ZarrFormat::V2;
    let size_bytes = fixed.size_bytes;
    let (order, word) = match &fixed.scalar {
        Scalar::Bool => {
            let bit = number::integer(value).and_then(|bit| u8::try_from(bit).ok());
            (ByteOrder::Little, vec![bit.filter(|bit| *bit <= 1)?])
        }
        Scalar::Int(_) | Scalar::UInt(_) if !v2 && value.is_boolean() => return None,
        Scalar::Int(order) => (
            *order,
            number::int_word(&bare(value, v2), true, size_bytes)?,
        ),
        Scalar::UInt(order) => (
            *order,
            number::int_word(&bare(value, v2), false, size_bytes)?,
        ),
        Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. } => match value.as_str() {
            Some("NaT") => (*order, i64::MIN.to_le_bytes().to_vec()),
            _ => (*order, number::int_word(value, true, size_bytes)?),
        },
        Scalar::Float(order) => (*order, number::float_word(value, size_bytes, v2)?),
        Scalar::Complex(order) => {
            let parts = pair(value)?;
            for (part, out) in parts.iter().zip(out.chunks_exact_mut(size_bytes / 2)) {
                put(*order, &number::float_word(part, size_bytes / 2, v2)?, out);
            }
            return Some(());
        }
        _ => return None,
    };
    put(order, &word, out);
    Some(())
}

/// The number in a string of v2, if any; else the value itself. n5-zarr before May 2024 writes all
/// fill values as strings.
fn bare(value: &Value, v2: bool) -> Cow<'_, Value> {
    let text = value.as_str().filter(|_| v2);
    let number = text.and_then(|text| serde_json::from_str::<Number>(text).ok());
    match number {
        Some(number) => Cow::Owned(Value::Number(number)),
        None => Cow::Borrowed(value),
    }
}

/// One or two words of a type without a numpy type.
fn write_other(
    fixed: &Fixed,
    name: &str,
    order: ByteOrder,
    value: &Value,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    let (name, parts) = match name.strip_prefix("complex_") {
        Some(name) => (
            name,
            pair(value).ok_or_else(|| mismatch(value, fixed))?.to_vec(),
        ),
        None => (name, vec![value.clone()]),
    };
    let width = fixed.size_bytes / parts.len();
    for (part, out) in parts.iter().zip(out.chunks_exact_mut(width)) {
        put(order, &number::other_word(name, part, width)?, out);
    }
    Ok(())
}

/// Text and bytes of a constant size; none if the type cannot hold the value.
fn write_string(
    format: ZarrFormat,
    fixed: &Fixed,
    value: &Value,
    out: &mut [u8],
) -> Option<Result<(), MetadataError>> {
    let v2 = format == ZarrFormat::V2;
    let zero = v2 && is_zero(value);
    match (&fixed.scalar, value) {
        (Scalar::Text(order), Value::String(text)) => write_text(*order, text, out)?,
        // As numpy: the number as text.
        (Scalar::Text(order), _) if zero => write_text(*order, "0", out)?,
        (Scalar::Bytes, _) if zero => write_padded(b"0", out)?,
        (Scalar::Bytes, Value::String(text)) if v2 => write_padded(&lenient_base64(text)?, out)?,
        (Scalar::Bytes | Scalar::Raw, Value::String(text)) => {
            write_padded(&BASE64.decode(text).ok()?, out)?;
        }
        (Scalar::Raw, _) if zero => {}
        (Scalar::Raw, Value::Array(list)) if list.len() != out.len() => return None,
        (Scalar::Bytes | Scalar::Raw, Value::Array(list)) => {
            return Some(write_byte_list(list, value, out));
        }
        _ => return None,
    }
    Some(Ok(()))
}

/// A structure: its bytes in base64, an object or a list of its fields; in v2 also the number 0.
fn write_structure(
    format: ZarrFormat,
    fixed: &Fixed,
    fields: &[Field],
    value: &Value,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    match value {
        Value::String(text) => {
            let bytes = BASE64.decode(text).ok();
            let written = bytes.and_then(|bytes| write_padded(&bytes, out));
            written.ok_or_else(|| mismatch(value, fixed))
        }
        // `optional`: no value, or one.
        Value::Null if fixed.optional_value().is_some() => Ok(()),
        Value::Array(list) if list.len() == 1 && fixed.optional_value().is_some() => {
            let present = Value::Bool(true);
            write_fields(
                format,
                fields.iter().zip([&present].into_iter().chain(list)),
                out,
            )
        }
        Value::Object(members) => write_members(format, fields, members, out),
        Value::Array(list) if list.len() == fields.len() => {
            write_fields(format, fields.iter().zip(list), out)
        }
        _ if format == ZarrFormat::V2 && is_zero(value) => Ok(()),
        _ => Err(mismatch(value, fixed)),
    }
}

/// A structure as an object with exactly its fields.
fn write_members(
    format: ZarrFormat,
    fields: &[Field],
    members: &Map<String, Value>,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    let mut pairs = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(value) = members.get(&field.name) else {
            let what = format!("no value for the field {}", printable(&field.name));
            return Err(MetadataError::invalid("fill_value", what));
        };
        pairs.push((field, value));
    }
    if members.len() != fields.len() {
        let what = format!("{} members for {} fields", members.len(), fields.len());
        return Err(MetadataError::invalid("fill_value", what));
    }
    write_fields(format, pairs.into_iter(), out)
}

fn write_fields<'a>(
    format: ZarrFormat,
    pairs: impl Iterator<Item = (&'a Field, &'a Value)>,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    for (field, value) in pairs {
        let range = field.offset..field.offset + field.data_type.size_bytes;
        let out = out.get_mut(range).ok_or_else(|| {
            let what = format!("field {} is outside of its type", field.name);
            MetadataError::invalid("fill_value", what)
        })?;
        write(format, &field.data_type, value, out)?;
    }
    Ok(())
}

/// A sub-array as nested lists of its shape.
fn write_items(
    format: ZarrFormat,
    shape: &[usize],
    item: &Fixed,
    value: &Value,
    out: &mut [u8],
) -> Result<(), MetadataError> {
    let Some((first, rest)) = shape.split_first() else {
        return write(format, item, value, out);
    };
    match value {
        Value::Array(list) if list.len() == *first => {
            let size_bytes = out.len() / first;
            for (value, out) in list.iter().zip(out.chunks_exact_mut(size_bytes)) {
                write_items(format, rest, item, value, out)?;
            }
            Ok(())
        }
        _ => Err(invalid(value, &format!("{first} items"))),
    }
}

/// Writes a word, whose lowest byte is first.
fn put(order: ByteOrder, word: &[u8], out: &mut [u8]) {
    for (to, from) in out.iter_mut().zip(word) {
        *to = *from;
    }
    if order == ByteOrder::Big {
        out.reverse();
    }
}

/// Code points of 4 bytes; none if they do not fit.
fn write_text(order: ByteOrder, text: &str, out: &mut [u8]) -> Option<()> {
    let mut places = out.chunks_exact_mut(4);
    for c in text.chars() {
        put(order, &u32::from(c).to_le_bytes(), places.next()?);
    }
    Some(())
}

/// Bytes at the beginning; none if they do not fit.
fn write_padded(bytes: &[u8], out: &mut [u8]) -> Option<()> {
    out.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(())
}

/// A list of numbers from 0 to 255, not longer than `out`.
fn write_byte_list(list: &[Value], value: &Value, out: &mut [u8]) -> Result<(), MetadataError> {
    if list.len() > out.len() {
        return Err(invalid(value, &format!("{} bytes", out.len())));
    }
    for (to, from) in out.iter_mut().zip(list) {
        *to = from
            .as_u64()
            .and_then(|byte| u8::try_from(byte).ok())
            .ok_or_else(|| invalid(value, "bytes"))?;
    }
    Ok(())
}

/// Real and imaginary part; a number alone is real.
fn pair(value: &Value) -> Option<[Value; 2]> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [re, im] => Some([re.clone(), im.clone()]),
            _ => None,
        },
        Value::Number(_) => Some([value.clone(), 0.into()]),
        _ => None,
    }
}

fn is_zero(value: &Value) -> bool {
    number::integer(value) == Some(0)
}

/// Base64; text that cannot be base64 is the value itself, as in old arrays. None if it is ambiguous:
/// Python skips characters outside the alphabet.
fn lenient_base64(text: &str) -> Option<Vec<u8>> {
    match BASE64.decode(text) {
        Ok(bytes) => Some(bytes),
        Err(_) => {
            let of_alphabet = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
            let kept = text.bytes().filter(|b| of_alphabet(b)).count();
            let ambiguous = kept % 4 == 0 || text.contains('=') || !text.is_ascii();
            (!ambiguous).then(|| text.as_bytes().to_vec())
        }
    }
}

fn mismatch(value: &Value, fixed: &Fixed) -> MetadataError {
    invalid(value, &fixed.to_string())
}

fn invalid(value: &Value, expected: &str) -> MetadataError {
    let what = format!("{} is not a value of {expected}", excerpt(value));
    MetadataError::invalid("fill_value", what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::data_type::{v2, v3};
    use crate::zarr::document::parse;

    fn fill(format: ZarrFormat, data_type: &str, value: &str) -> Result<FillValue, String> {
        let data_type = parse(data_type.as_bytes()).unwrap();
        let data_type = match format {
            ZarrFormat::V2 => v2::parse(&data_type, []).unwrap(),
            ZarrFormat::V3 | ZarrFormat::N5 => v3::parse(&data_type).unwrap(),
        };
        let value = parse(value.as_bytes()).unwrap();
        FillValue::parse(format, &data_type, &value).map_err(|error| error.to_string())
    }

    /// Bytes in hexadecimal, or nothing for an error.
    fn hex(result: Result<FillValue, String>) -> Option<String> {
        match result.ok()? {
            FillValue::Fixed(bytes) => Some(bytes.iter().map(|b| format!("{b:02x}")).collect()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn v2_fill_values_are_the_bytes_that_zarr_python_reads() {
        let structure = r#"[["a","<i4"],["b",">f8"]]"#;
        let cases = [
            (r#""<i4""#, "-5", "fbffffff"),
            (r#"">i4""#, "258", "00000102"),
            (r#""<u8""#, "18446744073709551615", "ffffffffffffffff"),
            (r#""<i8""#, "-9223372036854775808", "0000000000000080"),
            (r#""<i4""#, "0.0", "00000000"),
            (r#""<i4""#, "true", "01000000"),
            (r#""|i1""#, "-1", "ff"),
            (r#""<i2""#, r#""0""#, "0000"),
            (r#"">i2""#, r#""-2""#, "fffe"),
            (r#""<u8""#, r#""18446744073709551615""#, "ffffffffffffffff"),
            (r#""<f4""#, "1.5", "0000c03f"),
            (r#""<f4""#, "3", "00004040"),
            (r#""<f4""#, r#""NaN""#, "0000c07f"),
            (r#""<f4""#, "NaN", "0000c07f"),
            (r#""<f4""#, r#""nan""#, "0000c07f"),
            (r#""<f4""#, r#""1.5""#, "0000c03f"),
            (r#""<f8""#, "0.3333333333333333", "555555555555d53f"),
            (r#"">f8""#, "-2.5", "c004000000000000"),
            (r#""<f2""#, r#""-Infinity""#, "00fc"),
            (r#""<f2""#, "0.1", "662e"),
            (r#""|b1""#, "true", "01"),
            (r#""|b1""#, "1", "01"),
            (r#""|b1""#, "0.0", "00"),
            (r#""<c8""#, "[1.0, -2.0]", "0000803f000000c0"),
            (r#"">c8""#, "[1.0, -2.0]", "3f800000c0000000"),
            (
                r#""<c16""#,
                r#"["NaN","Infinity"]"#,
                "000000000000f87f000000000000f07f",
            ),
            (r#""<c8""#, "0", "0000000000000000"),
            (r#""|S5""#, r#""YWI=""#, "6162000000"),
            (r#""|S5""#, r#""""#, "0000000000"),
            (r#""|S5""#, r#""x""#, "7800000000"),
            (r#""|S6""#, r#""a b-c""#, "6120622d6300"),
            (r#""|S5""#, "0", "3000000000"),
            (
                r#""<U4""#,
                "\"h\u{e9}\"",
                "68000000e90000000000000000000000",
            ),
            (
                r#"">U4""#,
                "\"h\u{e9}\"",
                "00000068000000e90000000000000000",
            ),
            (r#""<U1""#, "\"\u{1f9ca}\"", "caf90100"),
            (r#""<U2""#, "0", "3000000000000000"),
            (r#""|V4""#, r#""AQIDBA==""#, "01020304"),
            (r#""|V4""#, r#""AQI=""#, "01020000"),
            (r#""|V2""#, "0", "0000"),
            (r#""<M8[s]""#, "86400", "8051010000000000"),
            (r#"">M8[s]""#, "1", "0000000000000001"),
            (r#""<M8[ns]""#, "-9223372036854775808", "0000000000000080"),
            (r#""<m8[ms]""#, r#""NaT""#, "0000000000000080"),
            (
                structure,
                r#""BwAAAAAAAAAAAARA""#,
                "070000000000000000000440",
            ),
            (structure, "[7, -2.5]", "07000000c004000000000000"),
            (structure, "0", "000000000000000000000000"),
            (
                r#"[["m","<i2",[2,2]],["n","|u1"]]"#,
                "[[[1,2],[3,4]],5]",
                "010002000300040005",
            ),
        ];
        for (data_type, value, expected) in cases {
            let found = fill(ZarrFormat::V2, data_type, value);
            assert_eq!(
                hex(found.clone()).as_deref(),
                Some(expected),
                "{data_type} {value} {found:?}"
            );
        }
    }

    #[test]
    fn v3_fill_values_are_numbers_bits_or_base64() {
        let with = |name: &str, member: &str, value: &str| {
            format!(r#"{{"name":"{name}","configuration":{{"{member}":{value}}}}}"#)
        };
        let fields = r#"[["a","int32"],["b",{"name":"struct","configuration":{"fields":[{"name":"c","data_type":"bool"}]}}]]"#;
        let structure = with("struct", "fields", fields);
        let raw = with("raw_bytes", "length_bytes", "4");
        let cases = [
            ("\"int32\"", "-5", "fbffffff"),
            ("\"uint64\"", "18446744073709551615", "ffffffffffffffff"),
            ("\"bool\"", "true", "01"),
            ("\"bool\"", "1", "01"),
            ("\"float32\"", "\"0x7fc00001\"", "0100c07f"),
            ("\"float16\"", "\"0x7e00\"", "007e"),
            ("\"float32\"", "1", "0000803f"),
            (
                "\"complex64\"",
                "[\"0x7fc00001\",\"-Infinity\"]",
                "0100c07f000080ff",
            ),
            ("\"r16\"", "[1,2]", "0102"),
            ("\"bfloat16\"", "1", "803f"),
            ("\"float8_e4m3\"", "\"0x7f\"", "7f"),
            ("\"complex_float16\"", "[1,\"0x7e01\"]", "003c017e"),
            ("\"int4\"", "-1", "ff"),
            (&raw, "\"AQI=\"", "01020000"),
            (
                &with("null_terminated_bytes", "length_bytes", "4"),
                "\"YWI=\"",
                "61620000",
            ),
            (
                &with("fixed_length_utf32", "length_bytes", "8"),
                "\"a\"",
                "6100000000000000",
            ),
            (
                &with("numpy.datetime64", "unit", "\"s\""),
                "\"NaT\"",
                "0000000000000080",
            ),
            (&structure, r#"{"a": 5, "b": {"c": true}}"#, "0500000001"),
            (&structure, r#"[5, [true]]"#, "0500000001"),
            (&structure, "\"BQAAAAE=\"", "0500000001"),
        ];
        for (data_type, value, expected) in cases {
            let found = fill(ZarrFormat::V3, data_type, value);
            assert_eq!(
                hex(found.clone()).as_deref(),
                Some(expected),
                "{data_type} {value} {found:?}"
            );
        }
    }

    #[test]
    fn values_that_the_type_cannot_hold_are_refused() {
        let cases = [
            (ZarrFormat::V2, r#""|u1""#, "256"),
            (ZarrFormat::V2, r#""|u1""#, "-1"),
            (ZarrFormat::V2, r#""<i4""#, "1.5"),
            (ZarrFormat::V2, r#""<i4""#, "NaN"),
            (ZarrFormat::V2, r#""<i4""#, "[1]"),
            (ZarrFormat::V2, r#""<u8""#, "18446744073709551616"),
            (ZarrFormat::V2, r#""<f4""#, "1e39"),
            (ZarrFormat::V2, r#""<f8""#, "1e400"),
            (ZarrFormat::V2, r#""<f8""#, r#""x""#),
            (ZarrFormat::V2, r#""|b1""#, "2"),
            (ZarrFormat::V2, r#""|b1""#, r#""true""#),
            (ZarrFormat::V2, r#""<c8""#, "[1]"),
            (ZarrFormat::V2, r#""<c8""#, r#""NaN""#),
            (ZarrFormat::V2, r#""|S5""#, r#""YWJjZGVmZw==""#),
            (ZarrFormat::V2, r#""|S5""#, r#""ab!cd""#),
            (ZarrFormat::V2, r#""|V4""#, r#""x""#),
            (ZarrFormat::V2, r#""|V4""#, r#""AQIDBAU=""#),
            (ZarrFormat::V2, r#""<U2""#, r#""abc""#),
            (ZarrFormat::V2, r#""<U2""#, "1"),
            (ZarrFormat::V2, r#""<M8[s]""#, r#""1970-01-01""#),
            (ZarrFormat::V2, r#""<M8[s]""#, "1.5"),
            (ZarrFormat::V2, r#"[["m","<i2",[2,2]]]"#, "[[[1,2],[3]]]"),
            (ZarrFormat::V2, r#"[["m","<i2",[2]]]"#, "[1]"),
            (ZarrFormat::V3, "\"int32\"", "true"),
            (ZarrFormat::V3, "\"int32\"", "\"0x01\""),
            (ZarrFormat::V3, "\"float32\"", "\"nan\""),
            (ZarrFormat::V3, "\"float32\"", "\"0x7fc0\""),
            (ZarrFormat::V3, "\"r16\"", "[1]"),
            (ZarrFormat::V3, "\"r16\"", "[1,256]"),
            (ZarrFormat::V3, "\"r16\"", "0"),
            (ZarrFormat::V3, "\"int4\"", "8"),
        ];
        for (format, data_type, value) in cases {
            let found = fill(format, data_type, value);
            assert!(found.is_err(), "{data_type} {value} {found:?}");
        }
        let structure =
            r#"{"name":"struct","configuration":{"fields":[["a","int32"],["b","bool"]]}}"#;
        for (value, part) in [
            (r#"{"a": 5}"#, "no value for the field b"),
            (r#"{"a": 5, "b": true, "c": 1}"#, "3 members for 2 fields"),
            (r#"{"a": 5, "b": 7}"#, "7 is not a value of |b1"),
            ("[5]", "is not a value of"),
            ("0", "is not a value of"),
        ] {
            let error = fill(ZarrFormat::V3, structure, value).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    #[test]
    fn null_is_undefined() {
        for data_type in [r#""<i4""#, r#""|S5""#, r#"[["a","<i4"]]"#] {
            let found = fill(ZarrFormat::V2, data_type, "null");
            assert_eq!(found, Ok(FillValue::Undefined));
        }
        let found = fill(ZarrFormat::V3, "\"int32\"", "null");
        assert_eq!(found, Ok(FillValue::Undefined));
    }

    #[test]
    fn variable_elements_have_one_form_for_each_type() {
        let item = v2::fixed(&"<i4".into()).unwrap();
        let one = |format, variable: Variable, value: &str| {
            let value = parse(value.as_bytes()).unwrap();
            let found = FillValue::parse(format, &DataType::Variable(variable), &value).ok()?;
            match found {
                FillValue::Variable(value) => Some(value.to_string()),
                other => panic!("{other:?}"),
            }
        };
        let (v2, v3) = (ZarrFormat::V2, ZarrFormat::V3);
        assert_eq!(
            one(v3, Variable::Text, "\"gap\"").as_deref(),
            Some("\"gap\"")
        );
        assert_eq!(one(v2, Variable::Text, "0").as_deref(), Some("\"\""));
        assert_eq!(one(v3, Variable::Text, "0").as_deref(), Some("\"0\""));
        assert_eq!(one(v3, Variable::Text, "[1]"), None);
        assert_eq!(
            one(v3, Variable::Bytes, "\"YWI=\"").as_deref(),
            Some("\"YWI=\"")
        );
        assert_eq!(
            one(v3, Variable::Bytes, "[97, 98]").as_deref(),
            Some("\"YWI=\"")
        );
        assert_eq!(one(v2, Variable::Bytes, "0").as_deref(), Some("\"\""));
        assert_eq!(one(v3, Variable::Bytes, "\"a\""), None);
        assert_eq!(one(v3, Variable::Bytes, "[256]"), None);
        assert_eq!(one(v3, Variable::Bytes, "0"), None);
        assert_eq!(
            one(v2, Variable::Array(item.clone()), "0").as_deref(),
            Some("[]")
        );
        assert_eq!(
            one(v2, Variable::Array(item.clone()), "[1,2]").as_deref(),
            Some("[1,2]")
        );
        assert_eq!(one(v2, Variable::Array(item), "\"x\""), None);
        assert_eq!(
            one(v2, Variable::Object, "{\"a\":1}").as_deref(),
            Some("{\"a\":1}")
        );
        let bytes = FillValue::Variable("YWI=".into());
        assert_eq!(bytes.variable_bytes(), Some(b"ab".to_vec()));
    }
}
