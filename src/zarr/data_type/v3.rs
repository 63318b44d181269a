//! Data types of v3: a name, or an object with a name and a configuration (v3 core, "Data types";
//! zarr-extensions, `data-types`).

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::time::MAX_STEP;
use super::v2::checked_size;
use super::{
    ByteOrder, DataType, Field, Fixed, PRESENT, Scalar, TimeBase, TimeUnit, VALUE, Variable,
    check_words,
};
use crate::zarr::codec_chain::named_configuration;
use crate::zarr::error::{MetadataError, excerpt, printable};

/// Parses a `data_type`.
///
/// # Errors
/// An unknown name is unsupported. A configuration that does not fit the name is invalid.
pub fn parse(value: &Value) -> Result<DataType, MetadataError> {
    let (name, _) = named_configuration("data_type", value)?;
    let variable = match name {
        "string" | "variable_length_utf8" => Variable::Text,
        "bytes" | "variable_length_bytes" => Variable::Bytes,
        _ => {
            let fixed = fixed(value)?;
            check_words(&fixed)?;
            return Ok(DataType::Fixed(fixed));
        }
    };
    Ok(DataType::Variable(variable))
}

/// Parses an element of constant size.
fn fixed(value: &Value) -> Result<Fixed, MetadataError> {
    let (name, configuration) = named_configuration("data_type", value)?;
    if let Some(fixed) = core(name).or_else(|| opaque(name)) {
        return Ok(fixed);
    }
    let empty = Map::new();
    let configuration = configuration.unwrap_or(&empty);
    let order = ByteOrder::Little;
    let (scalar, size_bytes) = match name {
        "fixed_length_utf32" => match length(name, configuration)? {
            size if size % 4 == 0 => (Scalar::Text(order), size),
            size => {
                let what = format!("{name}: length_bytes {size} is not a multiple of 4");
                return Err(MetadataError::invalid("data_type", what));
            }
        },
        "null_terminated_bytes" => (Scalar::Bytes, length(name, configuration)?),
        "raw_bytes" => (Scalar::Raw, length(name, configuration)?),
        "numpy.datetime64" => {
            let unit = unit(name, configuration)?;
            (Scalar::DateTime { order, unit }, 8)
        }
        "numpy.timedelta64" => {
            let unit = unit(name, configuration)?;
            (Scalar::TimeDelta { order, unit }, 8)
        }
        "struct" | "structured" => return structure(name, configuration),
        "optional" | "zarrs.optional" => return optional(configuration),
        _ => match raw_bits(name) {
            Some(bits) if bits % 8 == 0 => (Scalar::Raw, checked_size(Some(bits / 8))?),
            _ => {
                let what = format!("data type {}", printable(name));
                return Err(MetadataError::unsupported(what));
            }
        },
    };
    Ok(Fixed { scalar, size_bytes })
}

/// Returns the type of a name in the core specification, or of an extension that is a synonym.
pub(super) fn core(name: &str) -> Option<Fixed> {
    let order = ByteOrder::Little;
    let (scalar, size_bytes) = match name {
        "bool" => (Scalar::Bool, 1),
        "int8" => (Scalar::Int(order), 1),
        "int16" => (Scalar::Int(order), 2),
        "int32" => (Scalar::Int(order), 4),
        "int64" => (Scalar::Int(order), 8),
        "uint8" => (Scalar::UInt(order), 1),
        "uint16" => (Scalar::UInt(order), 2),
        "uint32" => (Scalar::UInt(order), 4),
        "uint64" => (Scalar::UInt(order), 8),
        "float16" => (Scalar::Float(order), 2),
        "float32" => (Scalar::Float(order), 4),
        "float64" => (Scalar::Float(order), 8),
        "complex64" | "complex_float32" => (Scalar::Complex(order), 8),
        "complex128" | "complex_float64" => (Scalar::Complex(order), 16),
        _ => return None,
    };
    Some(Fixed { scalar, size_bytes })
}

/// Returns types without a numpy type: one or two words, as stored. Types of less than a byte take one byte
/// per element, as in the `bytes` codec.
pub(super) fn opaque(name: &str) -> Option<Fixed> {
    let size_bytes = match name {
        "int2" | "int4" | "uint2" | "uint4" => 1,
        "float4_e2m1fn" | "float6_e2m3fn" | "float6_e3m2fn" => 1,
        "float8_e3m4" | "float8_e4m3" | "float8_e4m3fn" | "float8_e4m3b11fnuz"
        | "float8_e4m3fnuz" | "float8_e5m2" | "float8_e5m2fnuz" | "float8_e8m0fnu" => 1,
        "bfloat16" => 2,
        "complex_bfloat16" | "complex_float16" => 4,
        _ => match name.strip_prefix("complex_") {
            Some(part)
                if ["float4_", "float6_", "float8_"]
                    .iter()
                    .any(|kind| part.starts_with(kind)) =>
            {
                2 * opaque(part)?.size_bytes
            }
            _ => return None,
        },
    };
    Some(Fixed {
        scalar: Scalar::Other {
            name: name.to_owned(),
            order: ByteOrder::Little,
        },
        size_bytes,
    })
}

/// Returns the number of bits of `r16`, `r24`, ...
fn raw_bits(name: &str) -> Option<usize> {
    let digits = name.strip_prefix('r')?;
    let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| canonical)
}

fn length(name: &str, configuration: &Map<String, Value>) -> Result<usize, MetadataError> {
    let value = configuration.get("length_bytes").unwrap_or(&Value::Null);
    let size = value.as_u64().ok_or_else(|| {
        let what = format!("{name}: length_bytes is {}", excerpt(value));
        MetadataError::invalid("data_type", what)
    })?;
    checked_size(usize::try_from(size).ok())
}

fn unit(name: &str, configuration: &Map<String, Value>) -> Result<TimeUnit, MetadataError> {
    let member = |member: &str| configuration.get(member).unwrap_or(&Value::Null);
    let invalid = |member: &str, value: &Value| {
        let what = format!("{name}: {member} is {}", excerpt(value));
        MetadataError::invalid("data_type", what)
    };
    let symbol = member("unit");
    let base = symbol
        .as_str()
        .and_then(TimeBase::from_symbol)
        .ok_or_else(|| invalid("unit", symbol))?;
    let count = match member("scale_factor") {
        Value::Null => 1,
        value => value
            .as_u64()
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| (1..=MAX_STEP).contains(count))
            .ok_or_else(|| invalid("scale_factor", value))?,
    };
    Ok(TimeUnit { count, base })
}

/// Returns an element that may have no value (data_type.zarrs.dev/optional), as a structure: whether it has a
/// value, and the value. The configuration is the data type of the value.
fn optional(configuration: &Map<String, Value>) -> Result<Fixed, MetadataError> {
    let value = fixed(&Value::Object(configuration.clone()))?;
    let value_bytes = value.size_bytes;
    let field = |name: &str, offset, data_type| Field {
        name: name.to_owned(),
        offset,
        data_type,
    };
    let mark = Fixed {
        scalar: Scalar::Bool,
        size_bytes: 1,
    };
    let fields = vec![field(PRESENT, 0, mark), field(VALUE, 1, value)];
    Ok(Fixed {
        scalar: Scalar::Struct(fields),
        size_bytes: checked_size(value_bytes.checked_add(1))?,
    })
}

/// Parses fields as objects (`struct`) or as pairs (`structured`), packed without gaps. Both forms are
/// accepted for both names.
fn structure(name: &str, configuration: &Map<String, Value>) -> Result<Fixed, MetadataError> {
    let Some(Value::Array(list)) = configuration.get("fields") else {
        let what = format!("{name}: no list of fields");
        return Err(MetadataError::invalid("data_type", what));
    };
    let mut names = HashSet::new();
    let mut fields = Vec::new();
    let mut offset: usize = 0;
    for (i, entry) in list.iter().enumerate() {
        let pair = match entry {
            Value::Array(pair) => match pair.as_slice() {
                [field, data_type] => Some((field, data_type)),
                _ => None,
            },
            Value::Object(object) => object.get("name").zip(object.get("data_type")),
            _ => None,
        };
        let Some((Value::String(field), data_type)) = pair else {
            let what = format!("{name}: field {i} has no name and data type");
            return Err(MetadataError::invalid("data_type", what));
        };
        if field.is_empty() || !names.insert(field.as_str()) {
            let what = format!("{name}: the name of field {i} is empty or taken");
            return Err(MetadataError::invalid("data_type", what));
        }
        let data_type = fixed(data_type)?;
        let next = checked_size(offset.checked_add(data_type.size_bytes))?;
        fields.push(Field {
            name: field.clone(),
            offset,
            data_type,
        });
        offset = next;
    }
    if fields.is_empty() {
        return Err(MetadataError::invalid(
            "data_type",
            format!("{name}: no fields"),
        ));
    }
    Ok(Fixed {
        scalar: Scalar::Struct(fields),
        size_bytes: offset,
    })
}
