//! The meaning of an array's values by CF attributes (CF 1.11, 2.5.1 and 4.4; NUG, "Attribute
//! Conventions"; xarray, "Zarr Encoding Specification").

pub(crate) mod attributes;
pub(crate) mod calendar;
pub(crate) mod coordinates;
pub(crate) mod figure;
pub(crate) mod grid_mapping;
pub(crate) mod mapping_system;
pub(crate) mod names;
pub(crate) mod time;
pub(crate) mod wkt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};

use crate::conventions::cf::time::TimeUnits;
use crate::node::{Number, NumberKind, Value};
use crate::zarr::data_type::TimeBase;
use crate::zarr::narrow_float::to_f16;
use crate::zarr::{Array, Scalar};

/// The maximum length of a value in a note, in characters.
const MAX_NOTE_CHARACTERS: usize = 60;

/// Returns the value of an attribute in the array's data type; `None` without the attribute.
///
/// # Errors
/// The attribute is not a value of the data type.
pub(crate) fn stated(
    members: &Map<String, Json>,
    name: &str,
    own: Number,
) -> Result<Option<Value>, String> {
    let json = match members.get(name) {
        None | Some(Json::Null) => return Ok(None),
        Some(json) => one_of_list(json),
    };
    match value(json, own, is_unsigned(members)) {
        Some(value) => Ok(Some(value)),
        None => {
            let mut shown = json.to_string();
            if let Some((end, _)) = shown.char_indices().nth(MAX_NOTE_CHARACTERS) {
                shown.truncate(end);
            }
            Err(format!(
                "{name} {shown} is no value of the data type: left out"
            ))
        }
    }
}

/// Returns the value of an attribute that has the data type of its array, such as `_FillValue`. `None` for an
/// array without numbers, and for any other value.
pub(crate) fn attribute_value(array: &Array, name: &str) -> Option<Value> {
    let fixed = array.data_type.as_ref().ok()?.fixed()?;
    let (own, _) = Number::of(fixed)?;
    stated(array.attributes.as_ref().ok()?, name, own).ok()?
}

/// Returns the units in which the elements of an array count time: from the attributes `units` and
/// `calendar`, else from the data type.
pub(crate) fn time_units(array: &Array) -> Option<TimeUnits> {
    let text = |name: &str| array.attribute(name).and_then(Json::as_str);
    if let Some(units) = text("units") {
        return TimeUnits::of(units, text("calendar"));
    }
    let fixed = array.data_type.as_ref().ok()?.fixed()?;
    let attributes = time_attributes(&fixed.scalar).ok()??;
    let attribute = |wanted: &str| {
        let mut attributes = attributes.iter();
        let found = attributes.find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    TimeUnits::of(attribute("units")?, attribute("calendar"))
}

/// Returns whether `_Unsigned` marks signed integers as unsigned.
pub(crate) fn is_unsigned(members: &Map<String, Json>) -> bool {
    members.get("_Unsigned").and_then(Json::as_str) == Some("true")
}

/// Returns the kind of the numbers of an array with respect to `_Unsigned` (NetCDF Users Guide, Appendix B).
pub(crate) fn kind_of_values(array: &Array, own: NumberKind) -> NumberKind {
    unsigned(own, array.attribute(names::UNSIGNED))
}

/// Returns whether an array has an attribute of CF that makes it a coordinate: a direction, or units of time.
pub(crate) fn is_declared_coordinate(array: &Array) -> bool {
    array.attribute(names::AXIS).is_some() || time_units(array).is_some()
}

/// Returns the units of the values of an array, if they are a text that is not empty.
pub(crate) fn units(array: &Array) -> Option<&str> {
    let units = array.attribute(names::UNITS)?.as_str()?;
    (!units.is_empty()).then_some(units)
}

/// Returns the kind of numbers with respect to `_Unsigned` (NetCDF Users Guide, Appendix B).
pub(crate) fn unsigned(kind: NumberKind, declared: Option<&Json>) -> NumberKind {
    match (kind, declared.and_then(Json::as_str)) {
        (NumberKind::Int, Some("true")) => NumberKind::UInt,
        (NumberKind::UInt, Some("false")) => NumberKind::Int,
        _ => kind,
    }
}

/// Returns the element of a list with one element; else the value itself.
pub(crate) fn one_of_list(value: &Json) -> &Json {
    match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    }
}

/// Returns a JSON value in the type `own`, with floats rounded as the elements were; `None` if the type
/// cannot hold it.
///
/// Floats that JSON cannot express are given by name, or as eight bytes in base64, as xarray writes them in
/// v3 (`xarray/backends/zarr.py`, `FillValueCoder`).
pub(crate) fn value(json: &Json, own: Number, is_unsigned: bool) -> Option<Value> {
    let value = match json {
        Json::Bool(value) => Value::Int((*value).into()),
        Json::String(text) if own.kind == NumberKind::Float => match special(text) {
            Some(value) => value,
            None if text == "nan" => Value::Float(f64::NAN),
            None => {
                let bytes = <[u8; 8]>::try_from(BASE64.decode(text).ok()?).ok()?;
                Value::Float(f64::from_le_bytes(bytes))
            }
        },
        json => number(json)?,
    };
    nearest(own, value).or_else(|| {
        let unsigned = Number::new(NumberKind::UInt, own.size_bytes, own.order);
        let bytes = (own.kind == NumberKind::Int && is_unsigned).then(|| unsigned.write(value))?;
        own.read(&bytes?)
    })
}

/// Returns a JSON number, if it is finite.
pub(crate) fn number(json: &Json) -> Option<Value> {
    let Json::Number(number) = json else {
        return None;
    };
    let int = number.as_i64().map(i128::from);
    match int.or_else(|| number.as_u64().map(i128::from)) {
        Some(value) => Some(Value::Int(value)),
        None => (number.as_f64())
            .filter(|value| value.is_finite())
            .map(Value::Float),
    }
}

/// Returns a number of an attribute, or NaN or an infinity: Python writes them bare, the parser keeps names.
pub(crate) fn number_or_special(json: &Json) -> Option<Value> {
    match json {
        Json::String(text) => special(text),
        json => number(json),
    }
}

/// Returns the float that JSON cannot express, by its name.
pub(crate) fn special(text: &str) -> Option<Value> {
    match text {
        "NaN" => Some(Value::Float(f64::NAN)),
        "Infinity" => Some(Value::Float(f64::INFINITY)),
        "-Infinity" => Some(Value::Float(f64::NEG_INFINITY)),
        _ => None,
    }
}

fn nearest(own: Number, value: Value) -> Option<Value> {
    let wide = value.float();
    let value = match (own.kind, own.size_bytes) {
        (NumberKind::Float, 8) => Value::Float(wide),
        (NumberKind::Float, size) => {
            #[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
            let rounded = match size {
                4 => f64::from(wide as f32),
                _ => to_f16(wide).to_f64(),
            };
            // A finite value must remain finite.
            (rounded.is_finite() == wide.is_finite()).then_some(Value::Float(rounded))?
        }
        _ => Value::Int(value.whole()?),
    };
    own.write(value).map(|_| value)
}

/// Returns the CF attributes of a time data type; `None` for other types.
///
/// # Errors
/// CF does not have the unit; the array's own attributes would be wrong.
pub(crate) fn time_attributes(
    scalar: &Scalar,
) -> Result<Option<Vec<(&'static str, String)>>, String> {
    let (unit, is_date) = match scalar {
        Scalar::DateTime { unit, .. } => (unit, true),
        Scalar::TimeDelta { unit, .. } => (unit, false),
        _ => return Ok(None),
    };
    let name = match unit.base {
        TimeBase::Generic => return Ok(None),
        TimeBase::Day => "days",
        TimeBase::Hour => "hours",
        TimeBase::Minute => "minutes",
        TimeBase::Second => "seconds",
        TimeBase::Millisecond => "milliseconds",
        TimeBase::Microsecond => "microseconds",
        TimeBase::Nanosecond => "nanoseconds",
        _ => "",
    };
    if name.is_empty() || unit.count != 1 {
        return Err(format!(
            "CF has no time in units of {unit}: numbers without a unit"
        ));
    }
    Ok(Some(match is_date {
        true => vec![
            ("units", format!("{name} since 1970-01-01 00:00:00")),
            ("calendar", "proleptic_gregorian".to_owned()),
        ],
        // xarray decodes times without a date only with the attribute `dtype`.
        false => vec![
            ("units", name.to_owned()),
            ("dtype", format!("timedelta64[{}]", unit.base.symbol())),
        ],
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::zarr::ByteOrder;

    const fn own(kind: NumberKind, size: usize) -> Number {
        Number::new(kind, size, ByteOrder::Big)
    }

    fn of(json: Json, own: Number) -> Result<Option<Value>, String> {
        let members = json!({ "_FillValue": json });
        stated(members.as_object().unwrap(), "_FillValue", own)
    }

    #[test]
    fn fill_values_are_values_of_the_array() {
        let (f2, f4, f8) = (
            own(NumberKind::Float, 2),
            own(NumberKind::Float, 4),
            own(NumberKind::Float, 8),
        );
        let (i2, u1, u8) = (
            own(NumberKind::Int, 2),
            own(NumberKind::UInt, 1),
            own(NumberKind::UInt, 8),
        );
        for (json, own, expected) in [
            (json!(-9999), i2, Value::Int(-9999)),
            (json!(-9999.0), i2, Value::Int(-9999)),
            (json!([-32768]), i2, Value::Int(-32768)),
            (json!(255), u1, Value::Int(255)),
            (json!(true), u1, Value::Int(1)),
            (json!(u64::MAX), u8, Value::Int(u64::MAX.into())),
            (json!("-Infinity"), f4, Value::Float(f64::NEG_INFINITY)),
            // -9.5 as eight bytes.
            (json!("AAAAAAAAI8A="), f4, Value::Float(-9.5)),
            (json!(0.1), f4, Value::Float(0.1_f32.into())),
            (json!(1e20), f4, Value::Float(1e20_f32.into())),
            (json!(1e300), f8, Value::Float(1e300)),
            (json!(0.1), f2, Value::Float(0.099_975_585_937_5)),
        ] {
            assert_eq!(of(json.clone(), own), Ok(Some(expected)), "{json}");
        }
        for nan in [json!("NaN"), json!("nan"), json!("AAAAAAAA+H8=")] {
            assert!(of(nan, f2).unwrap().unwrap().float().is_nan());
        }
        assert_eq!(of(json!(null), f4), Ok(None));
        for (wrong, own) in [
            (json!(40000), i2),
            (json!(0.5), i2),
            (json!("NaN"), i2),
            (json!("AAAAAAAA8D8="), i2),
            (json!({}), i2),
            (json!(256), u1),
            (json!("?"), f4),
            (json!([1, 2]), f4),
            // These values would become infinite.
            (json!(1e300), f4),
            (json!(1e5), f2),
        ] {
            let why = of(wrong.clone(), own).unwrap_err();
            assert!(why.starts_with("_FillValue "), "{wrong}: {why}");
            assert!(why.len() < 200);
        }
        let why = of(json!("ä".repeat(10_000)), f4).unwrap_err();
        assert!(why.len() < 200, "{why}");
    }

    #[test]
    fn unsigned_integers_keep_their_bits() {
        let i1 = own(NumberKind::Int, 1);
        let of = |unsigned: Json, fill: i32, own| {
            let members = json!({"_Unsigned": unsigned, "_FillValue": fill});
            stated(members.as_object().unwrap(), "_FillValue", own)
                .ok()
                .flatten()
        };
        assert_eq!(of(json!("true"), 255, i1), Some(Value::Int(-1)));
        assert_eq!(of(json!("true"), -1, i1), Some(Value::Int(-1)));
        assert_eq!(of(json!("true"), 256, i1), None);
        assert_eq!(of(json!("false"), 255, i1), None);
        assert_eq!(
            of(json!("true"), 255, own(NumberKind::UInt, 1)),
            Some(Value::Int(255))
        );
    }

    #[test]
    fn the_attribute_unsigned_selects_the_integer_type() {
        let declared = |text: &str| Json::from(text);
        assert_eq!(
            unsigned(NumberKind::Int, Some(&declared("true"))),
            NumberKind::UInt
        );
        assert_eq!(
            unsigned(NumberKind::UInt, Some(&declared("false"))),
            NumberKind::Int
        );
        assert_eq!(
            unsigned(NumberKind::Float, Some(&declared("true"))),
            NumberKind::Float
        );
        assert_eq!(unsigned(NumberKind::Int, None), NumberKind::Int);
    }
}
