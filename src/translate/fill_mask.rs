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

/// Writes the mask of a v2 array of numbers in the v3 form.
pub(super) fn to_v3(
    attributes: &mut Map<String, Value>,
    data_type: &DataType,
    fill_value: &FillValue,
) {
    let Some(fixed) = data_type.fixed() else {
        return;
    };
    if let Some(mask) = encoded(fixed, data_type, fill_value, attributes.get(ATTRIBUTE)) {
        attributes.insert(ATTRIBUTE.into(), mask);
    }
}

/// Returns the difference if xarray masks the v2 documents of a v3 array differently: xarray takes
/// the v2 `fill_value` as the mask and ignores the attribute. Missing chunks need the `fill_value`.
pub(super) fn lost(documents: &[(&str, Value)]) -> Option<String> {
    let of = |document: &str, member: &str| {
        let (_, found) = documents.iter().find(|(name, _)| *name == document)?;
        found.get(member).filter(|value| !value.is_null())
    };
    let (fill, mask) = (of(".zarray", "fill_value")?, of(".zattrs", ATTRIBUTE)?);
    let is_same = fill == mask || fill.as_f64().is_some_and(|n| mask.as_f64() == Some(n));
    (!is_same).then(|| format!("xarray masks its fill value {fill} and not its _FillValue {mask}"))
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
        (Scalar::Int(_) | Scalar::UInt(_), FillValue::Fixed(_)) => {
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
            ("|S1", json!("YQ=="), None, None),
        ] {
            let (data_type, fill_value) = parsed(dtype, fill_value);
            let mut attributes = Map::new();
            attributes.extend(own.map(|own| (ATTRIBUTE.to_owned(), own)));
            to_v3(&mut attributes, &data_type, &fill_value);
            assert_eq!(attributes.get(ATTRIBUTE), encoded.as_ref(), "{dtype}");
            if let (FillValue::Fixed(_), "<f4" | ">f8") = (&fill_value, dtype) {
                to_v2(&mut attributes, &data_type, &fill_value);
                assert!(attributes.is_empty(), "{attributes:?}");
            }
        }
    }

    #[test]
    fn a_fill_mask_that_v2_cannot_represent_is_reported() {
        for (fill, mask, is_told) in [
            (json!(0), json!(-999), true),
            (json!(-999), json!(-999.0), false),
            (json!("NaN"), json!("NaN"), false),
            (json!(0.0), json!("NaN"), true),
            (json!(0), json!(null), false),
            (json!(null), json!(1), false),
        ] {
            let zarray = json!({"fill_value": fill});
            let documents = [
                (".zarray", zarray),
                (".zattrs", json!({"_FillValue": mask})),
            ];
            assert_eq!(lost(&documents).is_some(), is_told, "{documents:?}");
            assert!(lost(&documents[..1]).is_none());
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
