//! Fill values (v2, "Fill value encoding"; v3 core, "Fill value"; the data types of zarr-extensions).
//!
//! A value that the data type cannot hold exactly is an error: integers are never rounded, truncated or
//! wrapped. Extensions of zarr-python are accepted: `0.0` for integers, and 0 and 1 for booleans. In v2 these
//! are the number 0 for every type, a string that is exactly an integer for integers, and text that is not
//! base64 for byte strings.

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
    /// (standard alphabet, padded), an array is a list, and an object is any value.
    Variable(Value),
    /// `null` (undefined in v2, invalid in v3): zero bytes, or an empty element.
    Undefined,
}

impl FillValue {
    /// Parses a `fill_value` for elements of `data_type`. `null` is invalid in v3, but GDAL writes it for
    /// integer arrays without a fill value.
    ///
    /// # Errors
    /// A value that the data type cannot hold is invalid. A value with an unknown encoding is unsupported
    /// (nonzero `float8_*` that is not given as bits).
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

    /// Returns the value with the bytes of each word in the reverse order.
    pub(super) fn with_swapped_words(self, fixed: &Fixed) -> Self {
        let Self::Fixed(mut bytes) = self else {
            return self;
        };
        for run in fixed.words() {
            let end = run.offset + run.width_bytes * run.count;
            let words = bytes.get_mut(run.offset..end).unwrap_or_default();
            words
                .chunks_exact_mut(run.width_bytes)
                .for_each(<[u8]>::reverse);
        }
        Self::Fixed(bytes)
    }

    /// Returns the decoded form of a variable-length byte string.
    pub fn variable_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Variable(Value::String(text)) => BASE64.decode(text).ok(),
            _ => None,
        }
    }
}

/// Returns a variable-length element in its canonical form.
fn element(format: ZarrFormat, variable: &Variable, value: &Value) -> Result<Value, MetadataError> {
    // zarr-python 2 writes the number 0 as the default for all types.
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

/// Writes one element to its bytes, which must be zero.
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

/// Writes numbers, booleans and times; `None` if the type cannot hold the value.
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

/// Returns the number in a v2 string, if any; else the value itself. Versions of n5-zarr before May 2024
/// write all fill values as strings.
fn bare(value: &Value, v2: bool) -> Cow<'_, Value> {
    let text = value.as_str().filter(|_| v2);
    let number = text.and_then(|text| serde_json::from_str::<Number>(text).ok());
    match number {
        Some(number) => Cow::Owned(Value::Number(number)),
        None => Cow::Borrowed(value),
    }
}

/// Writes one or two words of a type without a numpy type.
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

/// Writes text and bytes of a constant size; `None` if the type cannot hold the value.
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
        // numpy converts the number to text.
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

/// Writes a structure: its bytes in base64, an object or a list of its fields; in v2 also the number 0.
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
        // `optional` without a value, or with one.
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

/// Writes a structure given as an object with exactly its fields.
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

/// Writes a sub-array given as nested lists of its shape.
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

/// Writes a word that is given with its lowest byte first.
fn put(order: ByteOrder, word: &[u8], out: &mut [u8]) {
    for (to, from) in out.iter_mut().zip(word) {
        *to = *from;
    }
    if order == ByteOrder::Big {
        out.reverse();
    }
}

/// Writes code points of 4 bytes; `None` if they do not fit.
fn write_text(order: ByteOrder, text: &str, out: &mut [u8]) -> Option<()> {
    let mut places = out.chunks_exact_mut(4);
    for c in text.chars() {
        put(order, &u32::from(c).to_le_bytes(), places.next()?);
    }
    Some(())
}

/// Writes bytes at the beginning of `out`; `None` if they do not fit.
fn write_padded(bytes: &[u8], out: &mut [u8]) -> Option<()> {
    out.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(())
}

/// Writes a list of numbers from 0 to 255, which must not be longer than `out`.
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

/// Returns the real and the imaginary part; a single number is real.
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

/// Decodes base64. Text that cannot be base64 is the value itself, as in old arrays. `None` if the text is
/// ambiguous: Python skips characters outside the alphabet.
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
mod tests;
