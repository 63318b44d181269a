//! netCDF attributes from JSON.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};
use unicode_normalization::UnicodeNormalization as _;

use super::{Attribute, AttributeValue, VariableType};
use crate::conventions::cf::attributes::{is_of_the_type, is_of_values, is_packed};
use crate::conventions::cf::wkt::wkt_for_gdal;
use crate::conventions::cf::{self, names, number_or_special, special};
use crate::conventions::nczarr::is_of_the_library;
use crate::node::{Number, NumberKind, Value};
use crate::zarr::{ARRAY_DIMENSIONS, ByteOrder};

/// The maximum length of a name in bytes. `NC_MAX_NAME` is 256, but netCDF-C cannot open a dimension with such a
/// name.
pub(in crate::view) const MAX_NAME_BYTES: usize = 255;
/// Attributes of HDF5's dimension scales.
const OF_HDF5: [&str; 5] = [
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    "DIMENSION_LABELS",
];

const I4: Number = Number::new(NumberKind::Int, 4, ByteOrder::Little);
const I8: Number = Number::new(NumberKind::Int, 8, ByteOrder::Little);
const U8: Number = Number::new(NumberKind::UInt, 8, ByteOrder::Little);
const F8: Number = Number::new(NumberKind::Float, 8, ByteOrder::Little);

/// Returns the name in NFC, which netCDF uses for look-ups; `None` if netCDF does not permit the name (NUG,
/// "Permitted characters in NetCDF names").
pub(super) fn name_of(name: &str) -> Option<String> {
    let name: String = name.nfc().collect();
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.contains('/')
        && !name.chars().any(char::is_control)
        && !name.ends_with(' ')
        && !name.starts_with(NOT_A_COORDINATE)
        && name
            .chars()
            .next()
            .is_some_and(|first| first.is_alphanumeric() || first == '_' || !first.is_ascii());
    is_name.then_some(name)
}

/// Returns whether netCDF permits a name.
pub(in crate::view) fn is_name(name: &str) -> bool {
    name_of(name).is_some()
}

/// netCDF-4's prefix for a variable that has the name of a dimension but is not its coordinate.
pub(in crate::view) const NOT_A_COORDINATE: &str = "_nc4_non_coord_";

/// Returns the attributes of a group.
pub(super) fn of_group(
    members: &Map<String, Json>,
    note: &mut impl FnMut(String),
) -> Vec<Attribute> {
    let mut found = Vec::new();
    for (name, json) in named(members, note) {
        match natural(json) {
            Ok(value) => found.push(Attribute { name, value }),
            Err(why) => note(format!("attribute {name:?} is not in it: {why}")),
        }
    }
    found
}

/// Returns the attributes of a variable, without its fill value.
pub(super) fn of_variable(
    members: &Map<String, Json>,
    item: VariableType,
    note: &mut impl FnMut(String),
) -> Vec<Attribute> {
    let is_unsigned = cf::is_unsigned(members);
    let is_packed = is_packed(members);
    let mut found = Vec::new();
    for (name, json) in named(members, note) {
        if name == names::FILL_VALUE {
            continue;
        }
        // Units of axes, as in N5: programs would take them for the unit of the values.
        if name == names::UNITS && json.is_array() {
            note("attribute \"units\" is not in it: it is a list".to_owned());
            continue;
        }
        let typed = match item {
            VariableType::Number(number) if is_of_values(&name) => {
                // Such a number is unpacked, and stays a double.
                let is_unpacked = is_packed && is_of_the_type(&name) && has_floats(json);
                match is_unpacked {
                    true => None,
                    false => of_the_type(json, number, is_unsigned),
                }
            }
            _ => None,
        };
        match typed.map_or_else(|| natural(json), Ok) {
            Ok(value) => found.push(Attribute { name, value }),
            Err(why) => note(format!("attribute {name:?} is not in it: {why}")),
        }
    }
    found.extend(wkt_for_gdal(members).map(|wkt| Attribute {
        name: names::CRS_WKT.to_owned(),
        value: AttributeValue::Text(wkt),
    }));
    found
}

/// Returns the members with a valid attribute name.
fn named<'a>(
    members: &'a Map<String, Json>,
    note: &mut impl FnMut(String),
) -> Vec<(String, &'a Json)> {
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    for (name, json) in members {
        if OF_HDF5.contains(&&name[..]) {
            note(format!(
                "attribute {name:?} is not in it: HDF5 has its own of this name"
            ));
            continue;
        }
        if name == ARRAY_DIMENSIONS || is_of_the_library(name) {
            continue;
        }
        let why = match name_of(name) {
            Some(known) if names.insert(known.clone()) => {
                found.push((known, json));
                continue;
            }
            Some(_) => "another one has the same name in NFC",
            None => "no name of netCDF",
        };
        note(format!("attribute {name:?} is not in it: {why}"));
    }
    found
}

/// Returns whether a number, or one of a list, is a float in JSON: `1.0`, not `1`.
fn has_floats(json: &Json) -> bool {
    let is_float = |json: &Json| matches!(number_or_special(json), Some(Value::Float(_)));
    match json {
        Json::Array(list) => list.iter().any(is_float),
        json => is_float(json),
    }
}

fn of_the_type(json: &Json, target: Number, is_unsigned: bool) -> Option<AttributeValue> {
    let values = cf::attributes::values(json, target, is_unsigned)?;
    Some(AttributeValue::Numbers(target, values))
}

/// Returns the value in the type of JSON.
///
/// # Errors
/// Returns why netCDF cannot express the value.
fn natural(json: &Json) -> Result<AttributeValue, String> {
    let one = |json: &Json| match json {
        Json::Bool(value) => Some(Value::Int((*value).into())),
        json => number_or_special(json),
    };
    let list = match json {
        Json::Null => return Err("netCDF has no null".into()),
        Json::String(text) if special(text).is_none() => return text_of(text),
        // netCDF attributes have no structures: they remain JSON text, as in xarray's engines.
        Json::Object(_) => return Ok(AttributeValue::Text(json.to_string())),
        Json::Array(list) => &list[..],
        single => std::slice::from_ref(single),
    };
    if list.is_empty() {
        return Err("an empty list has no type".into());
    }
    let texts: Option<Vec<&str>> = list.iter().map(Json::as_str).collect();
    if let Some(texts) = texts.filter(|texts| texts.iter().any(|text| special(text).is_none())) {
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("text with NUL".into());
        }
        let texts = texts.into_iter().map(str::to_owned).collect();
        return Ok(AttributeValue::Texts(texts));
    }
    let Some(values) = list.iter().map(one).collect::<Option<Vec<Value>>>() else {
        // Lists of mixed types or of lists.
        return Ok(AttributeValue::Text(json.to_string()));
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
            Ok(AttributeValue::Numbers(F8, values.collect()))
        }
        Some(target) => Ok(AttributeValue::Numbers(target, values)),
        None => Err("integers that no type of netCDF holds together".into()),
    }
}

fn text_of(text: &str) -> Result<AttributeValue, String> {
    match text.contains('\0') {
        true => Err("text with NUL".into()),
        false => Ok(AttributeValue::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::cf::attributes::OF_THE_TYPE;
    use serde_json::json;

    fn item(kind: NumberKind, size: usize) -> VariableType {
        VariableType::Number(Number::new(kind, size, ByteOrder::Little))
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
                "endless": "-Infinity", "limits": [0, "Infinity"], "words": ["Infinity", "a"],
            })),
            &mut |note| notes.push(note),
        );
        let value = |name: &str| &found.iter().find(|a| a.name == name).unwrap().value;
        assert_eq!(value("text"), &AttributeValue::Text("a".into()));
        assert_eq!(
            value("texts"),
            &AttributeValue::Texts(vec!["a".into(), "b".into()])
        );
        assert_eq!(
            value("int"),
            &AttributeValue::Numbers(I4, vec![Value::Int(5)])
        );
        assert_eq!(
            value("big"),
            &AttributeValue::Numbers(I8, vec![Value::Int(1 << 40)])
        );
        assert_eq!(
            value("huge"),
            &AttributeValue::Numbers(U8, vec![Value::Int(u64::MAX.into())])
        );
        let mixed = vec![Value::Float(1.0), Value::Float(2.5)];
        assert_eq!(value("mixed"), &AttributeValue::Numbers(F8, mixed));
        assert_eq!(
            value("flag"),
            &AttributeValue::Numbers(I4, vec![Value::Int(1)])
        );
        assert_eq!(value("nested"), &AttributeValue::Text("{\"a\":[1]}".into()));
        let endless = Value::Float(f64::INFINITY);
        assert_eq!(
            value("endless"),
            &AttributeValue::Numbers(F8, vec![Value::Float(f64::NEG_INFINITY)])
        );
        let limits = vec![Value::Float(0.0), endless];
        assert_eq!(value("limits"), &AttributeValue::Numbers(F8, limits));
        let words = vec!["Infinity".into(), "a".into()];
        assert_eq!(value("words"), &AttributeValue::Texts(words));
        assert_eq!(found.len(), 12);
        assert_eq!(notes.len(), 4, "{notes:?}");
    }

    #[test]
    fn attributes_of_values_have_the_type_of_the_elements() {
        let i2 = item(NumberKind::Int, 2);
        let members = json!({
            "valid_range": [0, 100], "flag_values": [1, 70000], "_FillValue": 1,
            "missing_value": 65535, "_Unsigned": "true",
        });
        let found = of_variable(members.as_object().unwrap(), i2, &mut |_| {});
        let own = Number::new(NumberKind::Int, 2, ByteOrder::Little);
        let range = vec![Value::Int(0), Value::Int(100)];
        assert_eq!(found[0].value, AttributeValue::Numbers(own, range));
        let flags = vec![Value::Int(1), Value::Int(70000)];
        assert_eq!(found[1].value, AttributeValue::Numbers(I4, flags));
        let missing = vec![Value::Int(-1)];
        assert_eq!(found[2].value, AttributeValue::Numbers(own, missing));
    }

    #[test]
    fn floats_that_limit_packed_values_stay_doubles() {
        let own = Number::new(NumberKind::Int, 2, ByteOrder::Little);
        let f4 = Number::new(NumberKind::Float, 4, ByteOrder::Little);
        let of = |item: Number, packing: &Json, name: &str, json: &Json| {
            let mut members = members(packing);
            members.insert(name.into(), json.clone());
            let found = of_variable(&members, VariableType::Number(item), &mut |_| {});
            let found = found.into_iter().find(|found| found.name == name);
            found.unwrap().value
        };
        let doubles = |values: &[f64]| {
            let values = values.iter().copied().map(Value::Float);
            AttributeValue::Numbers(F8, values.collect())
        };
        let packed = json!({"scale_factor": 0.01});
        for packing in [&packed, &json!({"add_offset": 10.0})] {
            for name in OF_THE_TYPE {
                let found = of(own, packing, name, &json!(-90.0));
                assert_eq!(found, doubles(&[-90.0]), "{name}");
            }
        }
        let of_packed = |json: Json| of(own, &packed, "valid_range", &json);
        assert_eq!(of_packed(json!([-90.0, 60.0])), doubles(&[-90.0, 60.0]));
        assert_eq!(of_packed(json!([-90, 60.5])), doubles(&[-90.0, 60.5]));
        let endless = doubles(&[f64::NEG_INFINITY]);
        assert_eq!(of_packed(json!(["-Infinity"])), endless);
        assert_eq!(of(f4, &packed, "valid_min", &json!(0.1)), doubles(&[0.1]));
        // Limits of packed values, and stored values.
        let stored = |value: i16| AttributeValue::Numbers(own, vec![Value::Int(value.into())]);
        assert_eq!(of_packed(json!(-90)), stored(-90));
        let missing = of(own, &packed, "missing_value", &json!(-9999.0));
        assert_eq!(missing, stored(-9999));
        // The variable is not packed.
        for packing in [json!({}), json!({"scale_factor": null})] {
            assert_eq!(of(own, &packing, "valid_min", &json!(-90.0)), stored(-90));
        }
    }

    #[test]
    fn of_names_with_the_same_nfc_the_later_is_left_out() {
        let mut notes = Vec::new();
        let json = json!({"caf\u{e9}": 1, "cafe\u{301}": 2, "K": 3, "\u{212a}": 4});
        let found = of_group(json.as_object().unwrap(), &mut |note| notes.push(note));
        let names: Vec<&str> = found.iter().map(|found| &found.name[..]).collect();
        assert_eq!(names, ["caf\u{e9}", "K"]);
        assert_eq!(
            found[1].value,
            AttributeValue::Numbers(I4, vec![Value::Int(3)])
        );
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().all(|note| note.contains("same name in NFC")));
    }

    #[test]
    fn a_name_is_as_long_as_it_is_in_nfc() {
        let decomposed = "e\u{301}".repeat(127);
        assert_eq!(name_of(&decomposed), Some("\u{e9}".repeat(127)));
        // These characters have no composed form.
        assert_eq!(name_of(&"\u{958}".repeat(80)), None);
        assert_eq!(name_of("_nc4_non_coord_x"), None);
    }
}
