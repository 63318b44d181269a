//! Data types of v2: numpy's array protocol (v2, "Data type encoding").

use std::collections::HashSet;

use serde_json::Value;

use super::{
    ByteOrder, DataType, Field, Fixed, MAX_ELEMENT_BYTES, Scalar, TimeUnit, Variable, check_words,
    v3,
};
use crate::zarr::codec_chain::CodecSpec;
use crate::zarr::error::{MetadataError, excerpt, json_type, printable};

/// Parses a `dtype`. The first object codec among `codecs` (filters, then the compressor) determines the
/// elements of `|O`.
///
/// # Errors
/// An unknown name, or an object type without an object codec, is unsupported. An invalid list of fields is
/// invalid.
pub fn parse<'a>(
    value: &Value,
    codecs: impl IntoIterator<Item = &'a CodecSpec>,
) -> Result<DataType, MetadataError> {
    match value {
        Value::String(name) if matches!(name.as_str(), "|O" | "<O" | ">O" | "O" | "object") => {
            object(codecs).map(DataType::Variable)
        }
        _ => {
            let fixed = fixed(value)?;
            check_words(&fixed)?;
            Ok(DataType::Fixed(fixed))
        }
    }
}

/// Parses a type of constant size; codec configurations use the same form.
///
/// # Errors
/// As [`parse`].
pub fn fixed(value: &Value) -> Result<Fixed, MetadataError> {
    match value {
        Value::String(name) => named(name),
        Value::Array(fields) => structure(fields),
        _ => {
            let what = format!("expected a string or a list, not {}", json_type(value));
            Err(MetadataError::invalid("dtype", what))
        }
    }
}

/// Returns the type of the elements of the object codec (v2, "Filters"; numcodecs).
fn object<'a>(codecs: impl IntoIterator<Item = &'a CodecSpec>) -> Result<Variable, MetadataError> {
    for codec in codecs {
        return Ok(match codec.name.as_str() {
            "vlen-utf8" => Variable::Text,
            "vlen-bytes" => Variable::Bytes,
            "vlen-array" => {
                let item = codec.configuration.get("dtype").unwrap_or(&Value::Null);
                let item = fixed(item)?;
                check_words(&item)?;
                Variable::Array(item)
            }
            "json" | "json2" | "msgpack" | "msgpack2" | "categorize" => Variable::Object,
            // Unpickling would run arbitrary code from the file.
            "pickle" => return Err(MetadataError::unsupported("object codec pickle")),
            _ => continue,
        });
    }
    Err(MetadataError::unsupported(
        "data type |O without an object codec",
    ))
}

/// Parses a name such as `<f4`, `|S12` or `>M8[ns]`. Without a byte order, and with `=` or `|`, words are
/// little-endian, the native order of numpy's platforms.
fn named(name: &str) -> Result<Fixed, MetadataError> {
    let unknown = || MetadataError::unsupported(format!("data type {}", printable(name)));
    let (order, code) = match name.split_at_checked(1) {
        Some(("<" | "|" | "=", code)) => (ByteOrder::Little, code),
        Some((">", code)) => (ByteOrder::Big, code),
        // numpy accepts `float32` and similar names. TensorStore uses the names of v3 for types that numpy
        // lacks.
        _ => match v3::core(name).or_else(|| v3::opaque(name)) {
            Some(fixed) => return Ok(fixed),
            None => (ByteOrder::Little, name),
        },
    };
    let (kind, rest) = code.split_at_checked(1).ok_or_else(unknown)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (size, unit) = rest.split_at(digits);
    let size: usize = size.parse().map_err(|_| unknown())?;
    let time = |unit: &str| TimeUnit::parse(unit).ok_or_else(unknown);
    let scalar = match (kind, size) {
        ("b", 1) => Scalar::Bool,
        ("i", 1 | 2 | 4 | 8) => Scalar::Int(order),
        ("u", 1 | 2 | 4 | 8) => Scalar::UInt(order),
        ("f", 2 | 4 | 8) => Scalar::Float(order),
        ("c", 8 | 16) => Scalar::Complex(order),
        ("M", 8) => Scalar::DateTime {
            order,
            unit: time(unit)?,
        },
        ("m", 8) => Scalar::TimeDelta {
            order,
            unit: time(unit)?,
        },
        ("S" | "a", 1..=MAX_ELEMENT_BYTES) => Scalar::Bytes,
        ("V", 1..=MAX_ELEMENT_BYTES) => Scalar::Raw,
        ("U", 1..) if size <= MAX_ELEMENT_BYTES / 4 => Scalar::Text(order),
        _ => return Err(unknown()),
    };
    if !unit.is_empty() && !matches!(kind, "M" | "m") {
        return Err(unknown());
    }
    let size_bytes = if kind == "U" { 4 * size } else { size };
    Ok(Fixed { scalar, size_bytes }.normalized())
}

/// Parses a list of fields: name and type, and for a sub-array its shape.
fn structure(list: &[Value]) -> Result<Fixed, MetadataError> {
    let mut names = HashSet::new();
    let mut fields = Vec::new();
    let mut offset: usize = 0;
    for (i, entry) in list.iter().enumerate() {
        let (name, dtype, shape) = match entry.as_array().map(Vec::as_slice) {
            Some([name, dtype]) => (name, dtype, None),
            Some([name, dtype, shape]) => (name, dtype, Some(shape)),
            _ => {
                let what = format!("field {i} is not a list of name, type and shape");
                return Err(MetadataError::invalid("dtype", what));
            }
        };
        let name = match name {
            // An unnamed field is padding in numpy's description; numpy gives it this name.
            Value::String(name) if name.is_empty() => format!("f{i}"),
            Value::String(name) => name.clone(),
            // A pair of title and name.
            Value::Array(pair) => match pair.as_slice() {
                [_, Value::String(name)] => name.clone(),
                _ => {
                    return Err(MetadataError::invalid(
                        "dtype",
                        format!("name of field {i}"),
                    ));
                }
            },
            _ => {
                return Err(MetadataError::invalid(
                    "dtype",
                    format!("name of field {i}"),
                ));
            }
        };
        if matches!(dtype.as_str(), Some("|O" | "O")) {
            return Err(MetadataError::unsupported(
                "data type |O within a structure",
            ));
        }
        let data_type = match shape {
            None => fixed(dtype)?,
            Some(shape) => sub_array(fixed(dtype)?, shape)?,
        };
        let next = checked_size(offset.checked_add(data_type.size_bytes))?;
        if !names.insert(name.clone()) {
            let what = format!("two fields are named {}", printable(&name));
            return Err(MetadataError::invalid("dtype", what));
        }
        fields.push(Field {
            name,
            offset,
            data_type,
        });
        offset = next;
    }
    if fields.is_empty() {
        return Err(MetadataError::invalid(
            "dtype",
            "a structure without fields",
        ));
    }
    Ok(Fixed {
        scalar: Scalar::Struct(fields),
        size_bytes: offset,
    })
}

/// Returns the type of a field that is itself an array; `shape` is a list of sizes, or one size.
fn sub_array(item: Fixed, shape: &Value) -> Result<Fixed, MetadataError> {
    let axes = match shape {
        Value::Array(axes) => axes.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut size_bytes = item.size_bytes;
    let mut sizes = Vec::new();
    for axis in axes {
        let size = axis
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size > 0)
            .ok_or_else(|| {
                let what = format!("the shape of a sub-array: {}", excerpt(shape));
                MetadataError::invalid("dtype", what)
            })?;
        size_bytes = checked_size(size_bytes.checked_mul(size))?;
        sizes.push(size);
    }
    if sizes.is_empty() {
        return Ok(item);
    }
    Ok(Fixed {
        scalar: Scalar::SubArray {
            shape: sizes,
            item: Box::new(item),
        },
        size_bytes,
    })
}

/// Returns the size of an element, if it is within the limits.
pub(super) fn checked_size(size: Option<usize>) -> Result<usize, MetadataError> {
    size.filter(|size| (1..=MAX_ELEMENT_BYTES).contains(size))
        .ok_or_else(|| {
            let what = format!("a data type of no bytes or more than {MAX_ELEMENT_BYTES}");
            MetadataError::unsupported(what)
        })
}
