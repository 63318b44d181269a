//! The marker of missing elements for xarray, whose conventions differ: in v2 it is the
//! `fill_value`, in v3 the attribute `_FillValue`. For floats, this attribute is base64 of a
//! little-endian `f64`; for complex numbers, of both parts (xarray, "Zarr Encoding Specification").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::fill;
use crate::zarr::{DataType, FillValue, Fixed, Scalar, ZarrFormat};

const ATTRIBUTE: &str = "_FillValue";

/// Writes the mask of a v3 float array in the v2 form, which has no mask if it equals the `fill_value`.
pub(super) fn to_v2(
    attributes: &mut Map<String, Value>,
    data_type: &DataType,
    fill_value: &FillValue,
) {
    let Some(Scalar::Float(_)) = data_type.fixed().map(|fixed| &fixed.scalar) else {
        return;
    };
    let encoded = attributes.get(ATTRIBUTE).and_then(Value::as_str);
    let bytes = encoded.and_then(|text| BASE64.decode(text).ok());
    let Some(bytes) = bytes.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()) else {
        return;
    };
    let mask = fill::name(f64::from_le_bytes(bytes));
    match fill::to_json(ZarrFormat::V2, data_type, fill_value) {
        Ok(fill) if fill == mask => _ = attributes.shift_remove(ATTRIBUTE),
        _ => _ = attributes.insert(ATTRIBUTE.into(), mask),
    }
}

/// Returns the `.zarray` and the attributes of a v3 array from which xarray gets the mask of the v3 array, for arrays
/// without absent chunks: `fill_value` is the mask, or `null`. `None` if xarray gets it from `document`, which has the
/// fill value of the array.
pub(super) fn without_fill(
    document: &Value,
    attributes: &Map<String, Value>,
    data_type: &DataType,
) -> Option<(Value, Map<String, Value>)> {
    let scalar = data_type.fixed().map(|fixed| &fixed.scalar);
    // xarray masks no times by the fill value of their data type. GDAL takes the fill value for missing in v3, too.
    let is_kept = matches!(
        scalar,
        Some(Scalar::DateTime { .. } | Scalar::TimeDelta { .. } | Scalar::Struct(_))
    );
    if is_kept || attributes.get("_CRS").is_some_and(|crs| !crs.is_null()) {
        return None;
    }
    let own = attributes.get(ATTRIBUTE).filter(|own| !own.is_null());
    let mask = match own {
        Some(own) => v2_mask(own, data_type)?,
        None => Value::Null,
    };
    let fill = document.get("fill_value")?;
    // NaN is missing in any case.
    if *fill == mask || mask.is_null() && fill == "NaN" {
        return None;
    }
    let (mut document, mut attributes) = (document.clone(), attributes.clone());
    document.as_object_mut()?.insert("fill_value".into(), mask);
    attributes.shift_remove(ATTRIBUTE);
    Some((document, attributes))
}

/// Returns a mask in the v3 form as a `fill_value` of v2; `None` if it is no value of the data type.
fn v2_mask(own: &Value, data_type: &DataType) -> Option<Value> {
    let float = |text: &Value| {
        let bytes = BASE64.decode(text.as_str()?).ok()?;
        Some(fill::name(f64::from_le_bytes(bytes.try_into().ok()?)))
    };
    let mask = match data_type.fixed().map(|fixed| &fixed.scalar) {
        Some(Scalar::Float(_)) => float(own)?,
        Some(Scalar::Complex(_)) => {
            let parts = own.as_array()?.iter().map(float);
            Value::Array(parts.collect::<Option<_>>()?)
        }
        _ => own.clone(),
    };
    let value = FillValue::parse(ZarrFormat::V2, data_type, &mask).ok()?;
    fill::to_json(ZarrFormat::V2, data_type, &value).ok()
}

/// Writes the mask of a v2 array in the v3 form. Returns a note if xarray has none for the data type: it does not open an
/// array of text or bytes with `_FillValue`, in v3.
pub(super) fn to_v3(
    attributes: &mut Map<String, Value>,
    data_type: &DataType,
    fill_value: &FillValue,
) -> Option<String> {
    let scalar = data_type.fixed().map(|fixed| &fixed.scalar);
    if matches!(scalar, None | Some(Scalar::Bytes | Scalar::Text(_))) {
        let own = attributes
            .shift_remove(ATTRIBUTE)
            .filter(|own| !own.is_null());
        let mask = match fill_value {
            FillValue::Undefined => own?,
            fill => fill::to_json(ZarrFormat::V2, data_type, fill).ok()?,
        };
        return Some(format!(
            "xarray masks {mask} in v2, and has no such mask of text in v3: these texts have their value"
        ));
    }
    let mask = encoded(
        data_type.fixed()?,
        data_type,
        fill_value,
        attributes.get(ATTRIBUTE),
    )?;
    attributes.insert(ATTRIBUTE.into(), mask);
    None
}

/// Returns how xarray masks the v2 documents of a v3 array that may lack chunks differently: with `complete`, it would
/// mask the elements that it masks in v3. Missing chunks need the `fill_value`.
pub(super) fn lost(
    documents: &[(&'static str, Value)],
    complete: &[(&'static str, Value)],
) -> String {
    let fill = |documents: &[(&str, Value)]| {
        let zarray = documents.iter().find(|(name, _)| *name == ".zarray");
        zarray.and_then(|(_, zarray)| zarray.get("fill_value").cloned())
    };
    let fill_value = fill(documents).unwrap_or_default();
    let mask = match fill(complete) {
        None | Some(Value::Null) => "it has no _FillValue".to_owned(),
        Some(mask) => format!("not its _FillValue {mask}"),
    };
    format!(
        "xarray masks its fill value {fill_value}, and {mask}: chunks may be absent, which are the fill value \
         (mask_and_scale=False reads all values)"
    )
}

fn encoded(
    fixed: &Fixed,
    data_type: &DataType,
    fill_value: &FillValue,
    own: Option<&Value>,
) -> Option<Value> {
    let encode = |number: f64| BASE64.encode(number.to_le_bytes()).into();
    match (&fixed.scalar, fill_value) {
        (Scalar::Float(_), FillValue::Fixed(bytes)) => fill::number(fixed, bytes).map(encode),
        // With a mask of another form, xarray would not read the array at all.
        (Scalar::Float(_), _) => match own? {
            Value::Number(number) => number.as_f64().map(encode),
            Value::String(name) => match name.as_str() {
                "NaN" => Some(encode(f64::NAN)),
                "Infinity" => Some(encode(f64::INFINITY)),
                "-Infinity" => Some(encode(f64::NEG_INFINITY)),
                _ => None,
            },
            _ => None,
        },
        (Scalar::Complex(order), FillValue::Fixed(bytes)) => {
            let part = Fixed {
                scalar: Scalar::Float(*order),
                size_bytes: fixed.size_bytes / 2,
            };
            let (re, im) = bytes.split_at_checked(part.size_bytes)?;
            let mask = |bytes| fill::number(&part, bytes).map(encode);
            Some(Value::Array(vec![mask(re)?, mask(im)?]))
        }
        (Scalar::Bool | Scalar::Int(_) | Scalar::UInt(_), FillValue::Fixed(_)) => {
            fill::to_json(ZarrFormat::V3, data_type, fill_value).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::data_type::v2;
    use serde_json::json;

    fn parsed(dtype: &str, fill_value: Value) -> (DataType, FillValue) {
        let data_type = v2::parse(&dtype.into(), []).unwrap();
        let fill_value = FillValue::parse(ZarrFormat::V2, &data_type, &fill_value).unwrap();
        (data_type, fill_value)
    }

    #[test]
    fn fill_masks_are_translated_in_both_directions() {
        for (dtype, fill_value, own, encoded) in [
            ("<f4", json!("NaN"), None, Some(json!("AAAAAAAA+H8="))),
            (">f8", json!(-9999), None, Some(json!("AAAAAICHw8A="))),
            (
                "<f4",
                json!(0.1),
                Some(json!(3)),
                Some(json!("AAAAoJmZuT8=")),
            ),
            (
                "<f4",
                json!(null),
                Some(json!(-9999.0)),
                Some(json!("AAAAAICHw8A=")),
            ),
            (
                "<f4",
                json!(null),
                Some(json!("NaN")),
                Some(json!("AAAAAAAA+H8=")),
            ),
            ("<f4", json!(null), Some(json!("odd")), Some(json!("odd"))),
            ("<f4", json!(null), None, None),
            (">i2", json!(-1), None, Some(json!(-1))),
            ("<u8", json!(u64::MAX), None, Some(json!(u64::MAX))),
            ("<i2", json!(null), None, None),
            (
                ">c8",
                json!(["NaN", -9999]),
                None,
                Some(json!(["AAAAAAAA+H8=", "AAAAAICHw8A="])),
            ),
            ("|b1", json!(false), None, Some(json!(false))),
            // xarray does not open text with a mask.
            ("|S1", json!("YQ=="), None, None),
            ("<U1", json!(null), Some(json!("a")), None),
        ] {
            let (data_type, fill_value) = parsed(dtype, fill_value);
            let mut attributes = Map::new();
            attributes.extend(own.map(|own| (ATTRIBUTE.to_owned(), own)));
            let note = to_v3(&mut attributes, &data_type, &fill_value);
            assert_eq!(note.is_some(), matches!(dtype, "|S1" | "<U1"));
            assert_eq!(attributes.get(ATTRIBUTE), encoded.as_ref(), "{dtype}");
            if let (FillValue::Fixed(_), "<f4" | ">f8") = (&fill_value, dtype) {
                to_v2(&mut attributes, &data_type, &fill_value);
                assert!(attributes.is_empty(), "{attributes:?}");
            }
        }
    }

    #[test]
    fn without_absent_chunks_the_mask_of_v3_is_the_fill_value_of_v2() {
        for (dtype, fill, own, expected) in [
            ("<i4", json!(0), json!(null), Some(json!(null))),
            ("<i4", json!(0), json!(-999), Some(json!(-999))),
            ("<i4", json!(-999), json!(-999), None),
            ("<f4", json!("NaN"), json!(null), None),
            ("<f4", json!(0.0), json!(null), Some(json!(null))),
            ("<f8", json!(0.0), json!("AAAAAAAA+H8="), Some(json!("NaN"))),
            (
                "<f8",
                json!("NaN"),
                json!("AAAAAICHw8A="),
                Some(json!(-9999.0)),
            ),
            (
                "<f8",
                json!(0.0),
                json!("AAAAAAAA8H8="),
                Some(json!("Infinity")),
            ),
            ("|b1", json!(false), json!(null), Some(json!(null))),
            ("|b1", json!(false), json!(true), Some(json!(true))),
            ("<U2", json!(""), json!(null), Some(json!(null))),
            ("|S2", json!(""), json!("YQ=="), Some(json!("YQ=="))),
            (
                "<c16",
                json!([0.0, 0.0]),
                json!(["AAAAAAAACEA=", "AAAAAAAAAAA="]),
                Some(json!([3.0, 0.0])),
            ),
            ("<M8[s]", json!(0), json!(null), None),
            // No value of the data type.
            ("|u1", json!(0), json!(-1), None),
            ("<f4", json!(0.0), json!("odd"), None),
        ] {
            let data_type = v2::parse(&dtype.into(), []).unwrap();
            let mut attributes = Map::from_iter([("units".to_owned(), json!("K"))]);
            attributes.insert(ATTRIBUTE.into(), own.clone());
            let document = json!({ "fill_value": fill });
            let found = without_fill(&document, &attributes, &data_type);
            let expected = expected.map(|fill| {
                let attributes = Map::from_iter([("units".to_owned(), json!("K"))]);
                (json!({ "fill_value": fill }), attributes)
            });
            assert_eq!(found, expected, "{dtype} {fill} {own}");
        }
    }

    #[test]
    fn a_mask_that_is_not_the_fill_value_is_a_number_in_v2() {
        let (data_type, fill_value) = parsed("<f4", json!(0));
        for (own, expected) in [
            (json!("AAAAAICHw8A="), json!(-9999.0)),
            (json!("AAAAAAAA+H8="), json!("NaN")),
            (json!("no base64"), json!("no base64")),
            (json!("AAAA"), json!("AAAA")),
            (json!(7), json!(7)),
        ] {
            let mut attributes = Map::from_iter([(ATTRIBUTE.to_owned(), own)]);
            to_v2(&mut attributes, &data_type, &fill_value);
            assert_eq!(attributes[ATTRIBUTE], expected);
        }
    }
}
