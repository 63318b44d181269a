//! From JSON to the attributes of netCDF.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};
use unicode_normalization::UnicodeNormalization as _;

use super::{Attr, Attribute, Item};
use crate::view::number::{Kind, Number, Value};
use crate::zarr::ByteOrder;

/// The longest name of netCDF (`NC_MAX_NAME`).
const MAX_NAME_BYTES: usize = 256;
/// Attributes that say in numbers what elements mean: they are of the variable's own type (CF
/// 2.5.1, 3.5).
const OF_THE_TYPE: [&str; 7] = [
    "_FillValue",
    "missing_value",
    "valid_min",
    "valid_max",
    "valid_range",
    "flag_values",
    "flag_masks",
];
/// Attributes that libraries write for themselves: HDF5's dimension scales and nczarr's own.
const OF_LIBRARIES: [&str; 9] = [
    "_ARRAY_DIMENSIONS",
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    "DIMENSION_LABELS",
    "_NCProperties",
    "_nc3_strict",
    "_nczarr_attrs",
];
const OF_LIBRARIES_BEGIN: [&str; 3] = ["_Netcdf4", "_nczarr_", "_NCZARR_"];

const I4: Number = Number::new(Kind::Int, 4, ByteOrder::Little);
const I8: Number = Number::new(Kind::Int, 8, ByteOrder::Little);
const U8: Number = Number::new(Kind::UInt, 8, ByteOrder::Little);
const F8: Number = Number::new(Kind::Float, 8, ByteOrder::Little);

/// Whether netCDF can have a dimension, variable, group or attribute of this name (NUG, "Permitted
/// characters in NetCDF names").
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.contains('/')
        && !name.chars().any(char::is_control)
        && !name.ends_with(' ')
        // What netCDF-4 puts before the name of a variable that a dimension has as well.
        && !name.starts_with(NOT_A_COORDINATE)
        && name
            .chars()
            .next()
            .is_some_and(|first| first.is_alphanumeric() || first == '_' || !first.is_ascii())
}

/// The prefix of variables with the name of a dimension.
const NOT_A_COORDINATE: &str = "_nc4_non_coord_";

/// The name as netCDF looks it up: in NFC.
pub(super) fn canonical(name: &str) -> String {
    name.nfc().collect()
}

/// Whether an attribute says something of the values of elements.
pub(super) fn is_of_values(name: &str) -> bool {
    OF_THE_TYPE.contains(&name)
}

/// The attributes of a group.
pub(super) fn of_group(
    members: &Map<String, Json>,
    note: &mut impl FnMut(String),
) -> Vec<Attribute> {
    let mut found = Vec::new();
    for (name, json) in named(members, note) {
        match natural(json) {
            Ok(Some(value)) => found.push(Attribute { name, value }),
            Ok(None) => {}
            Err(why) => note(format!("attribute {name:?} is not in it: {why}")),
        }
    }
    found
}

/// The attributes of a variable, and its fill value.
pub(super) fn of_variable(
    members: &Map<String, Json>,
    item: Item,
    note: &mut impl FnMut(String),
) -> (Vec<Attribute>, Option<Value>) {
    let (mut found, mut fill) = (Vec::new(), None);
    for (name, json) in named(members, note) {
        if name == "_FillValue" {
            match fill_value(json, item).or_else(|| unsigned(json, item, members)) {
                Some(value) => fill = Some(value),
                None if !matches!(item, Item::Number(_)) || json.is_null() => {}
                None => note(format!(
                    "_FillValue {json} is no value of the data type: left out"
                )),
            }
            continue;
        }
        let typed = match item {
            Item::Number(number) if OF_THE_TYPE.contains(&&name[..]) => of_the_type(json, number),
            _ => None,
        };
        match typed.map_or_else(|| natural(json), |value| Ok(Some(value))) {
            Ok(Some(value)) => found.push(Attribute { name, value }),
            Ok(None) => {}
            Err(why) => note(format!("attribute {name:?} is not in it: {why}")),
        }
    }
    (found, fill)
}

/// The members that can be attributes at all.
fn named<'a>(
    members: &'a Map<String, Json>,
    note: &mut impl FnMut(String),
) -> Vec<(String, &'a Json)> {
    let mut found = Vec::new();
    for (name, json) in members {
        let is_of_a_library = OF_LIBRARIES.contains(&&name[..])
            || OF_LIBRARIES_BEGIN
                .iter()
                .any(|begin| name.starts_with(begin));
        if is_of_a_library {
            if !name.starts_with('_') {
                note(format!(
                    "attribute {name:?} is not in it: HDF5 has its own of this name"
                ));
            }
            continue;
        }
        match is_name(name) {
            true => found.push((canonical(name), json)),
            false => note(format!(
                "attribute {name:?} is not in it: no name of netCDF"
            )),
        }
    }
    found
}

/// A number as JSON has it. xarray and others write what JSON has no number for as text.
fn number(json: &Json) -> Option<Value> {
    match json {
        Json::Number(number) => {
            if let Some(value) = number.as_i64() {
                return Some(Value::Int(value.into()));
            }
            if let Some(value) = number.as_u64() {
                return Some(Value::Int(value.into()));
            }
            number
                .as_f64()
                .filter(|value| value.is_finite())
                .map(Value::Float)
        }
        _ => None,
    }
}

fn special(text: &str) -> Option<Value> {
    match text {
        "NaN" => Some(Value::Float(f64::NAN)),
        "Infinity" => Some(Value::Float(f64::INFINITY)),
        "-Infinity" => Some(Value::Float(f64::NEG_INFINITY)),
        _ => None,
    }
}

/// `_FillValue`: a number, or text: the name of a float that JSON has no number for, or eight bytes
/// of a float in base64, as xarray writes them in v3 (`xarray/backends/zarr.py`,
/// `FillValueCoder`).
fn fill_value(json: &Json, item: Item) -> Option<Value> {
    let Item::Number(target) = item else {
        return None;
    };
    let json = match json {
        Json::Array(list) if list.len() == 1 => list.first()?,
        json => json,
    };
    let value = match json {
        Json::Bool(value) => Value::Int((*value).into()),
        Json::String(text) => match special(text) {
            Some(value) => value,
            None => {
                let bytes = <[u8; 8]>::try_from(BASE64.decode(text).ok()?).ok()?;
                Value::Float(f64::from_le_bytes(bytes))
            }
        },
        json => number(json)?,
    };
    nearest(target, value)
}

/// A value of what is unsigned by the attribute `_Unsigned` (NUG, "Attribute Conventions"), with
/// the same bits.
fn unsigned(json: &Json, item: Item, members: &Map<String, Json>) -> Option<Value> {
    let Item::Number(target) = item else {
        return None;
    };
    let is_unsigned = members.get("_Unsigned").and_then(Json::as_str) == Some("true");
    if target.kind != Kind::Int || !is_unsigned {
        return None;
    }
    let own = Number::new(Kind::UInt, target.size_bytes, target.order);
    target.read(&own.write(number(json)?)?)
}

/// The value as `target` holds it: floats are rounded, as they were when the elements were written.
fn nearest(target: Number, value: Value) -> Option<Value> {
    let value = match (target.kind, target.size_bytes) {
        (Kind::Float, 4) => {
            #[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
            let rounded = value.float() as f32;
            // What was finite stays finite.
            (rounded.is_finite() == value.float().is_finite())
                .then_some(Value::Float(rounded.into()))?
        }
        (Kind::Float, 2) => {
            let rounded = half::f16::from_f64(value.float());
            (rounded.is_finite() == value.float().is_finite())
                .then_some(Value::Float(rounded.into()))?
        }
        (Kind::Float, _) => Value::Float(value.float()),
        _ => Value::Int(value.whole()?),
    };
    target.write(value).map(|_| value)
}

fn of_the_type(json: &Json, target: Number) -> Option<Attr> {
    let one = |json: &Json| {
        let value = match json {
            Json::String(text) => special(text)?,
            json => number(json)?,
        };
        nearest(target, value)
    };
    let values = match json {
        Json::Array(list) if !list.is_empty() => list.iter().map(one).collect::<Option<_>>()?,
        Json::Array(_) => return None,
        json => vec![one(json)?],
    };
    Some(Attr::Numbers(target, values))
}

/// The value as it is written; nothing for `null` and for lists of nothing.
fn natural(json: &Json) -> Result<Option<Attr>, String> {
    let one = |json: &Json| match json {
        Json::Bool(value) => Some(Value::Int((*value).into())),
        json => number(json),
    };
    let list = match json {
        Json::Null => return Ok(None),
        Json::String(text) => return text_of(text).map(Some),
        // netCDF has no structures: as xarray's engines do, they stay what they are in JSON.
        Json::Object(_) => return Ok(Some(Attr::Text(json.to_string()))),
        Json::Array(list) => &list[..],
        single => std::slice::from_ref(single),
    };
    if list.is_empty() {
        return Ok(None);
    }
    let texts: Option<Vec<&str>> = list.iter().map(Json::as_str).collect();
    if let Some(texts) = texts {
        let numbers: Option<Vec<Value>> = texts.iter().map(|text| special(text)).collect();
        if let Some(numbers) = numbers {
            return Ok(Some(Attr::Numbers(F8, numbers)));
        }
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("text with NUL".into());
        }
        let texts = texts.into_iter().map(str::to_owned).collect();
        return Ok(Some(Attr::Texts(texts)));
    }
    let Some(values) = list.iter().map(one).collect::<Option<Vec<Value>>>() else {
        // Lists of several kinds or of lists.
        return Ok(Some(Attr::Text(json.to_string())));
    };
    let fits = |target: Number| values.iter().all(|value| target.write(*value).is_some());
    let is_whole = values.iter().all(|value| matches!(value, Value::Int(_)));
    let target = match is_whole {
        true => [I4, I8, U8].into_iter().find(|target| fits(*target)),
        false => Some(F8),
    };
    match target {
        Some(target) if target == F8 => {
            let values = values.iter().map(|value| Value::Float(value.float()));
            Ok(Some(Attr::Numbers(F8, values.collect())))
        }
        Some(target) => Ok(Some(Attr::Numbers(target, values))),
        None => Err("integers that no type of netCDF holds together".into()),
    }
}

fn text_of(text: &str) -> Result<Attr, String> {
    match text.contains('\0') {
        true => Err("text with NUL".into()),
        false => Ok(Attr::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(kind: Kind, size: usize) -> Item {
        Item::Number(Number::new(kind, size, ByteOrder::Little))
    }

    fn members(json: &Json) -> Map<String, Json> {
        json.as_object().unwrap().clone()
    }

    #[test]
    fn values_keep_their_kind() {
        let mut notes = Vec::new();
        let found = of_group(
            &members(&json!({
                "text": "a", "texts": ["a", "b"], "int": 5, "big": 1_u64 << 40, "float": 0.5,
                "mixed": [1, 2.5], "flag": true, "nothing": null, "none": [], "nested": {"a": [1]},
                "nul": "a\u{0}b", "a/b": 1, "_ARRAY_DIMENSIONS": ["x"], "huge": u64::MAX,
            })),
            &mut |note| notes.push(note),
        );
        let value = |name: &str| &found.iter().find(|a| a.name == name).unwrap().value;
        assert_eq!(value("text"), &Attr::Text("a".into()));
        assert_eq!(value("texts"), &Attr::Texts(vec!["a".into(), "b".into()]));
        assert_eq!(value("int"), &Attr::Numbers(I4, vec![Value::Int(5)]));
        assert_eq!(value("big"), &Attr::Numbers(I8, vec![Value::Int(1 << 40)]));
        assert_eq!(
            value("huge"),
            &Attr::Numbers(U8, vec![Value::Int(u64::MAX.into())])
        );
        let mixed = vec![Value::Float(1.0), Value::Float(2.5)];
        assert_eq!(value("mixed"), &Attr::Numbers(F8, mixed));
        assert_eq!(value("flag"), &Attr::Numbers(I4, vec![Value::Int(1)]));
        assert_eq!(value("nested"), &Attr::Text("{\"a\":[1]}".into()));
        assert_eq!(found.len(), 9);
        assert_eq!(notes.len(), 2, "{notes:?}");
    }

    #[test]
    fn fill_values_are_of_the_type_or_left_out() {
        let f4 = item(Kind::Float, 4);
        let of = |json, item| {
            let mut notes = 0;
            let (_, fill) = of_variable(&members(&json), item, &mut |_| notes += 1);
            (fill, notes)
        };
        // -9.5 as eight bytes.
        let (fill, _) = of(json!({"_FillValue": "AAAAAAAAI8A="}), f4);
        assert_eq!(fill, Some(Value::Float(-9.5)));
        let (fill, _) = of(json!({"_FillValue": 1e20}), f4);
        assert_eq!(fill, Some(Value::Float(f64::from(1e20_f32))));
        let (fill, _) = of(json!({"_FillValue": "NaN"}), f4);
        assert!(fill.unwrap().float().is_nan());
        let i2 = item(Kind::Int, 2);
        assert_eq!(
            of(json!({"_FillValue": -32768}), i2),
            (Some(Value::Int(-32768)), 0)
        );
        for wrong in [
            json!(40000),
            json!(0.5),
            json!("NaN"),
            json!("?"),
            json!({}),
        ] {
            assert_eq!(of(json!({"_FillValue": wrong}), i2), (None, 1));
        }
        let (found, _) = of_variable(
            &members(&json!({"valid_range": [0, 100], "flag_values": [1, 70000]})),
            i2,
            &mut |_| {},
        );
        let own = Number::new(Kind::Int, 2, ByteOrder::Little);
        let range = vec![Value::Int(0), Value::Int(100)];
        assert_eq!(found[0].value, Attr::Numbers(own, range));
        let flags = vec![Value::Int(1), Value::Int(70000)];
        assert_eq!(found[1].value, Attr::Numbers(I4, flags));
    }
}
