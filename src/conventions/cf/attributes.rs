//! What the numbers of attributes are: stored values, values of the type of the variable, or other numbers.

use serde_json::{Map, Value as Json};

use super::names::{ADD_OFFSET, CALENDAR, FILL_VALUE, MISSING_VALUE, SCALE_FACTOR, UNITS};
use super::{one_of_list, value};
use crate::node::{Number, Value};
use crate::zarr::Array;

/// Attributes that hold a stored value, packed or not (CF 1.13, 2.5.1).
const OF_STORED_VALUES: [&str; 2] = [FILL_VALUE, MISSING_VALUE];
/// Attributes of the variable's type (CF 1.13, 2.5.1 and 3.5), unless the variable is packed and JSON has a float.
/// In the NetCDF Users Guide ("Attribute Conventions", `valid_range`), limits of the packed type are packed values,
/// and limits of the type of `scale_factor` are unpacked ones. `actual_range` has unpacked values (CF 2.5.1) and the
/// type of JSON.
pub(crate) const OF_THE_TYPE: [&str; 5] = [
    "valid_min",
    "valid_max",
    "valid_range",
    "flag_values",
    "flag_masks",
];

/// Returns whether an attribute describes the values of elements.
pub(crate) fn is_of_values(name: &str) -> bool {
    OF_STORED_VALUES.contains(&name) || is_of_the_type(name)
}

/// Returns whether an attribute holds values of the type of its variable, which may be packed or unpacked.
pub(crate) fn is_of_the_type(name: &str) -> bool {
    OF_THE_TYPE.contains(&name)
}

/// Returns whether an attribute describes how numbers count time.
pub(crate) fn is_of_time(name: &str) -> bool {
    [UNITS, CALENDAR].contains(&name)
}

/// Returns whether a variable with these attributes is packed (CF 1.13, 8.1).
pub(crate) fn is_packed(members: &Map<String, Json>) -> bool {
    let is_there = |name: &str| members.get(name).is_some_and(|value| !value.is_null());
    is_there(SCALE_FACTOR) || is_there(ADD_OFFSET)
}

/// Returns a single number of an attribute in the type of its array (NUG, "Attribute Conventions"). `None` for
/// attributes of other types, for an array without numbers, and for any other value.
pub(crate) fn single_value(array: &Array, name: &str) -> Option<Value> {
    if !OF_STORED_VALUES.contains(&name) && !["valid_min", "valid_max"].contains(&name) {
        return None;
    }
    super::attribute_value(array, name)
}

/// Returns the values of an attribute in the type `target`; `None` if the type cannot hold them.
pub(crate) fn values(json: &Json, target: Number, is_unsigned: bool) -> Option<Vec<Value>> {
    let one = |json: &Json| value(json, target, is_unsigned);
    match json {
        Json::Array(list) if !list.is_empty() => list.iter().map(one).collect(),
        Json::Array(_) => None,
        json => Some(vec![one(json)?]),
    }
}

/// Returns `scale_factor` and `add_offset`, as xarray reads them: `null` is no attribute, and a list of one number is
/// that number.
///
/// # Errors
/// The name of one that is no finite number: one without the other would be a wrong scale, so neither counts.
pub(crate) fn packing(
    members: &Map<String, Json>,
) -> Result<(Option<f64>, Option<f64>), &'static str> {
    let declared = |name: &'static str| match members.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => {
            let number = one_of_list(value).as_f64();
            number
                .filter(|number| number.is_finite())
                .map(Some)
                .ok_or(name)
        }
    };
    Ok((declared(SCALE_FACTOR)?, declared(ADD_OFFSET)?))
}

/// Returns the value of a stored number; `None` if the array is not packed, or its scale is no number.
pub(crate) fn unpacked(array: &Array, stored: Value) -> Option<Value> {
    let (scale, offset) = packing(array.attributes.as_ref().ok()?).ok()?;
    (scale.is_some() || offset.is_some())
        .then(|| Value::Float(stored.float() * scale.unwrap_or(1.0) + offset.unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scale_and_offset_count_together_or_not_at_all() {
        let of = |json: Json| packing(json.as_object().unwrap());
        assert_eq!(of(json!({})), Ok((None, None)));
        let both = json!({"scale_factor": [0.5], "add_offset": 3});
        assert_eq!(of(both), Ok((Some(0.5), Some(3.0))));
        let null = json!({"scale_factor": 2.0, "add_offset": null});
        assert_eq!(of(null), Ok((Some(2.0), None)));
        for (name, wrong) in [
            (SCALE_FACTOR, json!("x")),
            (ADD_OFFSET, json!([1, 2])),
            (ADD_OFFSET, json!({})),
        ] {
            let mut members = json!({"scale_factor": 2.0, "add_offset": 1.0});
            members[name] = wrong;
            assert_eq!(of(members), Err(name));
        }
    }
}
