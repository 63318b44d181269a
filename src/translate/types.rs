//! Translation of data types between the numpy names (v2, "Data type encoding") and the v3 names
//! (v3 core, "Data types"; zarr-extensions, `data-types`).

use serde_json::{Value, json};

use crate::zarr::{ByteOrder, DataType, Field, Fixed, Scalar, Variable};

/// Returns the v2 `dtype` of elements that are stored in `order`.
///
/// # Errors
/// The reason, if v2 has no name for the type.
pub(super) fn to_v2(data_type: &DataType, order: ByteOrder) -> Result<Value, String> {
    match data_type {
        DataType::Variable(Variable::Text | Variable::Bytes) => Ok("|O".into()),
        DataType::Variable(_) => Err(format!("data type {data_type} has no name in v2")),
        DataType::Fixed(fixed) => {
            if order == ByteOrder::Big && matches!(fixed.scalar, Scalar::Struct(_)) {
                return Err(BIG_STRUCTURES.into());
            }
            dtype(&fixed.with_order(order))
        }
    }
}

/// Readers of v3 treat words in structures as little-endian, whatever the codec `bytes` specifies.
const BIG_STRUCTURES: &str = "big-endian words in structures";

fn dtype(fixed: &Fixed) -> Result<Value, String> {
    match &fixed.scalar {
        Scalar::Other { name, .. } => Err(format!("data type {name} has no name in v2")),
        Scalar::Struct(fields) => {
            let field = |field: &Field| match &field.data_type.scalar {
                Scalar::SubArray { shape, item } => Ok(json!([field.name, dtype(item)?, shape])),
                _ => Ok(json!([field.name, dtype(&field.data_type)?])),
            };
            let fields: Result<Vec<Value>, String> = fields.iter().map(field).collect();
            Ok(fields?.into())
        }
        _ => Ok(fixed.numpy_descr().into()),
    }
}

/// Returns the v3 `data_type`, and the byte order of the stored words, if the type has any.
///
/// # Errors
/// The reason, if v3 has no name for the type or cannot store it.
pub(super) fn to_v3(data_type: &DataType) -> Result<(Value, Option<ByteOrder>), String> {
    match data_type {
        DataType::Variable(Variable::Text) => Ok(("string".into(), None)),
        DataType::Variable(Variable::Bytes) => Ok(("variable_length_bytes".into(), None)),
        DataType::Variable(_) => Err(format!("data type {data_type} has no name in v3")),
        DataType::Fixed(fixed) => Ok((name(fixed)?, byte_order(fixed)?)),
    }
}

/// Returns the byte order of all words of an element; `None` if it has no words.
///
/// # Errors
/// An error for words of both orders, or big-endian words in a structure.
pub(super) fn byte_order(fixed: &Fixed) -> Result<Option<ByteOrder>, String> {
    if fixed.words().is_empty() {
        return Ok(None);
    }
    if *fixed == fixed.with_order(ByteOrder::Little) {
        return Ok(Some(ByteOrder::Little));
    }
    match fixed.scalar {
        Scalar::Struct(_) => Err(BIG_STRUCTURES.into()),
        _ => Ok(Some(ByteOrder::Big)),
    }
}

fn name(fixed: &Fixed) -> Result<Value, String> {
    let bits = fixed.size_bytes.saturating_mul(8);
    let sized = |name: &str| {
        let configuration = json!({"length_bytes": fixed.size_bytes});
        json!({"name": name, "configuration": configuration})
    };
    Ok(match &fixed.scalar {
        Scalar::Bool => "bool".into(),
        Scalar::Int(_) => format!("int{bits}").into(),
        Scalar::UInt(_) => format!("uint{bits}").into(),
        Scalar::Float(_) => format!("float{bits}").into(),
        Scalar::Complex(_) => format!("complex{bits}").into(),
        Scalar::DateTime { unit, .. } | Scalar::TimeDelta { unit, .. } => {
            let name = match fixed.scalar {
                Scalar::DateTime { .. } => "numpy.datetime64",
                _ => "numpy.timedelta64",
            };
            let (unit, count) = (unit.base.symbol(), unit.count);
            json!({"name": name, "configuration": {"unit": unit, "scale_factor": count}})
        }
        Scalar::Bytes => sized("null_terminated_bytes"),
        Scalar::Text(_) => sized("fixed_length_utf32"),
        Scalar::Raw => sized("raw_bytes"),
        Scalar::Struct(fields) => {
            let field = |field: &Field| Ok(json!([field.name, name(&field.data_type)?]));
            let fields: Result<Vec<Value>, String> = fields.iter().map(field).collect();
            json!({"name": "structured", "configuration": {"fields": fields?}})
        }
        Scalar::SubArray { .. } => return Err("a field that is an array has no name in v3".into()),
        Scalar::Other { name, .. } => name.clone().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::data_type::{v2, v3};

    #[test]
    fn data_types_are_translated_in_both_directions() {
        for (dtype, data_type, order) in [
            (json!("|b1"), json!("bool"), None),
            (json!("|u1"), json!("uint8"), None),
            (json!("<i2"), json!("int16"), Some(ByteOrder::Little)),
            (json!(">f8"), json!("float64"), Some(ByteOrder::Big)),
            (json!("<c8"), json!("complex64"), Some(ByteOrder::Little)),
            (
                json!(">M8[25us]"),
                json!({"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 25}}),
                Some(ByteOrder::Big),
            ),
            (
                json!("<m8"),
                json!({"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}}),
                Some(ByteOrder::Little),
            ),
            (
                json!("|S3"),
                json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}),
                None,
            ),
            (
                json!(">U2"),
                json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
                Some(ByteOrder::Big),
            ),
            (
                json!([["a", "<i4"], ["b", [["c", "|V2"]]]]),
                json!({"name": "structured", "configuration": {"fields": [["a", "int32"],
                    ["b", {"name": "structured", "configuration": {"fields": [["c",
                        {"name": "raw_bytes", "configuration": {"length_bytes": 2}}]]}}]]}}),
                Some(ByteOrder::Little),
            ),
        ] {
            let parsed = v2::parse(&dtype, []).unwrap();
            assert_eq!(to_v3(&parsed), Ok((data_type.clone(), order)), "{dtype}");
            let back = v3::parse(&data_type).unwrap();
            let order = order.unwrap_or(ByteOrder::Little);
            assert_eq!(to_v2(&back, order), Ok(dtype));
        }
    }

    #[test]
    fn types_without_a_name_in_the_other_version_are_reported() {
        for (dtype, why) in [
            (json!([["a", ">i4"]]), BIG_STRUCTURES),
            (json!([["a", ">i4"], ["b", "<i4"]]), BIG_STRUCTURES),
            (
                json!([["a", "<i4", [2]]]),
                "a field that is an array has no name in v3",
            ),
        ] {
            let parsed = v2::parse(&dtype, []).unwrap();
            assert_eq!(to_v3(&parsed), Err(why.into()));
        }
        let odd = v3::parse(&json!("bfloat16")).unwrap();
        let why = to_v2(&odd, ByteOrder::Little).unwrap_err();
        assert_eq!(why, "data type bfloat16 has no name in v2");
    }
}
