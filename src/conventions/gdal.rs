//! GDAL: `_CRS` of its Zarr driver, and `GeoTransform` of its netCDF driver.

use serde_json::{Map, Value as Json};

use crate::conventions::crs::Crs;
use crate::conventions::georef::context::{Context, Notes, number, some};
use crate::conventions::georef::crs_metadata::{SystemMember, one_of};
use crate::conventions::georef::transform::{Transform, invertible};
use crate::zarr::Array;

/// The attribute of an array with its reference system (GDAL, Zarr driver, "SRS encoding").
const CRS: &str = "_CRS";
/// The members of the attribute that declare the system.
const SYSTEM: [SystemMember; 3] = [
    SystemMember::text("url"),
    SystemMember::text("wkt"),
    SystemMember::text("projjson"),
];

/// Returns whether attributes declare a system.
pub(crate) fn has_system(members: &Map<String, Json>) -> bool {
    some(members, CRS).is_some()
}

/// Returns whether the array of these metadata was written by GDAL, which marks arrays with a system.
pub(crate) fn is_writer(array: &Array) -> bool {
    array.attributes.as_ref().is_ok_and(has_system)
}

/// Returns whether an array declares a system.
pub(crate) fn is_system_declared(context: &Context<'_>) -> bool {
    context.own(CRS).is_some()
}

/// Returns the system of an array; the inner `None` if it cannot be read.
pub(crate) fn system(context: &Context<'_>, notes: &mut Notes) -> Option<Option<Crs>> {
    let Some(members) = context.own(CRS)?.as_object() else {
        notes.add("_CRS is no object");
        return Some(None);
    };
    Some(one_of(members, &SYSTEM, notes))
}

/// Returns the transform of a grid mapping, if it is one of six numbers.
pub(crate) fn geo_transform(members: &Map<String, Json>, notes: &mut Notes) -> Option<Transform> {
    let transform = parse(some(members, "GeoTransform")?);
    if transform.is_none() {
        notes.add("GeoTransform is not six numbers of an invertible transform");
    }
    transform
}

/// Parses `c a b f d e`, as a text or a list.
fn parse(value: &Json) -> Option<Transform> {
    let values: Option<Vec<f64>> = match value {
        Json::String(text) => text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect(),
        Json::Array(values) => values.iter().map(number).collect(),
        _ => None,
    };
    let [c, a, b, f, d, e] = <[f64; 6]>::try_from(values?).ok()?;
    invertible([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_geo_transform_is_six_numbers_that_can_be_inverted() {
        let good = [10.0, 0.0, 500_000.0, 0.0, -10.0, 5e6];
        assert_eq!(parse(&json!("500000 10 0 5e6 0 -10")), Some(good));
        assert_eq!(parse(&json!("500000 10 0 nan 0 -10")), None);
        assert_eq!(parse(&json!("1 2")), None);
    }
}
