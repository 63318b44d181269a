//! Metadata in readable form: data types by their Zarr v3 names, dimensions, numbers and attributes.

use serde_json::{Map, Value as Json};

use super::output::truncated;
use crate::conventions::cf::attributes::single_value;
use crate::node::Value;
use crate::zarr::{Array, DataType, Fixed, Scalar, Variable};

/// Returns the name of a data type in Zarr v3, numpy's name for times, and `string` for text of
/// variable length. The byte order is left out.
pub(super) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Fixed(fixed) => fixed_name(fixed),
        DataType::Variable(Variable::Text) => "string".into(),
        DataType::Variable(Variable::Bytes) => "variable_length_bytes".into(),
        DataType::Variable(Variable::Array(item)) => format!("array of {}", fixed_name(item)),
        DataType::Variable(Variable::Object) => "object".into(),
    }
}

fn fixed_name(fixed: &Fixed) -> String {
    let size = fixed.size_bytes;
    let bits = size.saturating_mul(8);
    match &fixed.scalar {
        Scalar::Bool => "bool".into(),
        Scalar::Int(_) => format!("int{bits}"),
        Scalar::UInt(_) => format!("uint{bits}"),
        Scalar::Float(_) => format!("float{bits}"),
        Scalar::Complex(_) => format!("complex{bits}"),
        Scalar::DateTime { unit, .. } => format!("datetime64{unit}"),
        Scalar::TimeDelta { unit, .. } => format!("timedelta64{unit}"),
        Scalar::Bytes => format!("null_terminated_bytes({size})"),
        Scalar::Text(_) => format!("fixed_length_utf32({})", size / 4),
        Scalar::Raw => format!("r{bits}"),
        Scalar::Struct(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|field| format!("{}: {}", field.name, fixed_name(&field.data_type)))
                .collect();
            format!("struct({})", fields.join(", "))
        }
        Scalar::SubArray { shape, item } => format!("{}{shape:?}", fixed_name(item)),
        Scalar::Other { name, .. } => name.clone(),
    }
}

/// Returns the dimensions of an array: `(time 60, lat 90)`, without names `(60, 90)`.
pub(super) fn dimensions(array: &Array) -> String {
    let axes = array.shape.iter().enumerate();
    let axes = axes.map(|(axis, length)| match array.dimension_names.get(axis) {
        Some(Some(name)) => format!("{name} {length}"),
        _ => length.to_string(),
    });
    let axes: Vec<String> = axes.collect();
    format!("({})", axes.join(", "))
}

/// Returns the type and the dimensions of an array, as `float32 (time 60, lat 90)`.
pub(super) fn type_and_dimensions(array: &Array) -> String {
    let data_type = match &array.data_type {
        Ok(data_type) => type_name(data_type),
        Err(_) => "?".into(),
    };
    format!("{data_type} {}", dimensions(array))
}

/// Formats a number of an array with elements of `size_bytes` as the shortest decimal that is read
/// back as the same number.
pub(super) fn number_text(value: Value, size_bytes: Option<usize>) -> String {
    let text = match value {
        Value::Int(value) => return value.to_string(),
        #[expect(clippy::cast_possible_truncation, reason = "it was a float32")]
        Value::Float(value) if size_bytes.is_some_and(|size| size <= 4) => {
            format!("{:?}", value as f32)
        }
        Value::Float(value) => format!("{value:?}"),
    };
    match text.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Returns a number as JSON, or its name if JSON cannot represent it.
pub(super) fn number_json(value: Value, size_bytes: Option<usize>) -> Json {
    let text = number_text(value, size_bytes);
    match value {
        Value::Float(float) if float.is_nan() => "NaN".into(),
        Value::Float(float) if float.is_infinite() => match float > 0.0 {
            true => "Infinity".into(),
            false => "-Infinity".into(),
        },
        _ => serde_json::from_str(&text).unwrap_or_else(|_| text.into()),
    }
}

/// Returns the value of an attribute in one line of at most `max_chars` characters. `array` is the array
/// that has the attribute.
pub(super) fn attribute_text(
    array: Option<&Array>,
    name: &str,
    value: &Json,
    max_chars: usize,
) -> String {
    if let Some(array) = array
        && let Some(number) = single_value(array, name)
    {
        let size = array.data_type.as_ref().ok().and_then(DataType::size_bytes);
        return number_text(number, size);
    }
    truncated(&plain(value), max_chars).into_owned()
}

/// Returns a JSON value as text: strings without quotes, lists of scalars without brackets.
pub(super) fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) if !items.is_empty() && items.iter().all(is_scalar) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            items.join(", ")
        }
        value => value.to_string(),
    }
}

fn is_scalar(value: &Json) -> bool {
    !matches!(value, Json::Array(_) | Json::Object(_))
}

/// Returns the lines `name: value` of attributes, without those in `left_out`.
pub(super) fn attribute_lines(
    array: Option<&Array>,
    attributes: &Map<String, Json>,
    left_out: &[&str],
    max_chars: usize,
) -> Vec<String> {
    let shown = attributes
        .iter()
        .filter(|(name, _)| !left_out.contains(&name.as_str()));
    let lines = shown.map(|(name, value)| {
        let value = attribute_text(array, name, value, max_chars);
        format!("{}: {value}", truncated(name, max_chars))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conventions::cf;

    fn array(dtype: &str, attributes: Json) -> Array {
        let zarray = json!({"zarr_format": 2, "shape": [60, 90], "chunks": [6, 9],
            "dtype": serde_json::from_str::<Json>(dtype).unwrap_or_else(|_| dtype.into()),
            "fill_value": null, "filters": null, "compressor": null});
        let (zarray, zattrs) = (zarray.to_string(), attributes.to_string());
        Array::from_v2(zarray.as_bytes(), Some(zattrs.as_bytes())).unwrap()
    }

    #[test]
    fn data_types_have_the_names_of_version_3() {
        for (dtype, expected) in [
            ("<f4", "float32"),
            (">i2", "int16"),
            ("|u1", "uint8"),
            ("|b1", "bool"),
            ("<c16", "complex128"),
            ("<M8[ns]", "datetime64[ns]"),
            ("<m8[25us]", "timedelta64[25us]"),
            ("|S3", "null_terminated_bytes(3)"),
            ("<U5", "fixed_length_utf32(5)"),
            ("|V2", "r16"),
            (
                r#"[["a", "<i4"], ["b", "<f8", [2, 3]]]"#,
                "struct(a: int32, b: float64[2, 3])",
            ),
        ] {
            let array = array(dtype, json!({}));
            assert_eq!(type_name(array.data_type.as_ref().unwrap()), expected);
        }
    }

    #[test]
    fn dimensions_have_their_names_and_lengths() {
        let named = array(
            "<f4",
            json!({"_ARRAY_DIMENSIONS": ["time", "lat"], "units": "K"}),
        );
        assert_eq!(type_and_dimensions(&named), "float32 (time 60, lat 90)");
        assert_eq!(cf::units(&named), Some("K"));
        let unnamed = array("<f4", json!({"units": 1}));
        assert_eq!(type_and_dimensions(&unnamed), "float32 (60, 90)");
        assert_eq!(cf::units(&unnamed), None);
    }

    #[test]
    fn numbers_are_printed_as_the_shortest_text_that_parses_to_the_same_value() {
        for (value, size, expected) in [
            (Value::Int(-5), 2, "-5"),
            (Value::Float(0.1_f32.into()), 4, "0.1"),
            (Value::Float(0.1), 8, "0.1"),
            (Value::Float(-87.0), 8, "-87"),
            (
                Value::Float(9.969_209_968_386_869e36),
                8,
                "9.969209968386869e36",
            ),
            (Value::Float(f64::NAN), 4, "NaN"),
        ] {
            assert_eq!(number_text(value, Some(size)), expected);
        }
        assert_eq!(
            number_json(Value::Float(0.1_f32.into()), Some(4)),
            json!(0.1)
        );
        assert_eq!(number_json(Value::Float(f64::NAN), None), json!("NaN"));
        assert_eq!(number_json(Value::Float(1e300), None).as_f64(), Some(1e300));
    }

    #[test]
    fn attributes_are_printed_in_the_usual_notation() {
        let attributes = json!({"_FillValue": "AAAAAAAA+H8=", "flags": [1, 2], "names": ["a", "b"],
            "long": "x".repeat(50), "nested": {"a": [1]}, "empty": [], "none": null});
        let array = array("<f4", attributes.clone());
        let lines = attribute_lines(
            Some(&array),
            attributes.as_object().unwrap(),
            &["flags"],
            20,
        );
        assert_eq!(
            lines,
            [
                "_FillValue: NaN",
                "names: a, b",
                "long: xxxxxxxxxxxxxxxxxxxx...",
                "nested: {\"a\":[1]}",
                "empty: []",
                "none: null",
            ]
        );
        let packed = json!({"_FillValue": -32768});
        let text = attribute_text(None, "_FillValue", &packed["_FillValue"], 20);
        assert_eq!(text, "-32768");
    }
}
