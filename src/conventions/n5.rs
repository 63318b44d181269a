//! The attributes of N5 that say where the elements of an array are: those of n5-viewer and n5-ij
//! (`pixelResolution`, `downsamplingFactors`), of TensorStore and Paintera (`resolution`, `offset`, `units`,
//! `axes`), and of COSEM (`transform`).
//!
//! N5 lists the fastest axis first; the vectors of this module are in C order. n5-zarr writes the attributes of
//! n5-viewer into Zarr in the same order.

use serde_json::{Map, Value as Json};

use super::description::{Axis, AxisKind};
use super::ome::vector;

/// The axes of a volume, the fastest first.
const SIDES: [&str; 3] = ["x", "y", "z"];

/// Returns the axes of an array by its own attributes and those of its group; `None` if they do not say where
/// elements are.
///
/// `is_n5` tells arrays of N5 from those of Zarr, whose `resolution` and `units` are no convention.
pub fn axes(
    own: &Map<String, Json>,
    group: Option<&Map<String, Json>>,
    rank: usize,
    is_n5: bool,
) -> Option<Vec<Axis>> {
    cosem(own, rank)
        .or_else(|| of_viewer(own, group, rank))
        .or_else(|| is_n5.then(|| of_tensorstore(own, group, rank))?)
}

/// Reads `transform` of COSEM: `axes`, `scale`, `translate` and `units`, in C order unless `order` is `F`.
fn cosem(own: &Map<String, Json>, rank: usize) -> Option<Vec<Axis>> {
    let transform = own.get("transform")?.as_object()?;
    let scale = numbers(transform.get("scale"), rank)?;
    let origin = numbers(transform.get("translate"), rank);
    let mut axes = assemble(&scale, origin.as_deref(), transform, rank);
    let order = transform.get("order").or_else(|| transform.get("ordering"));
    if order.and_then(Json::as_str) == Some("F") {
        axes.reverse();
    }
    Some(axes)
}

/// Reads `pixelResolution`, times `downsamplingFactors`. The centre of the first element of a smaller level is
/// that of the elements from which it was computed.
fn of_viewer(
    own: &Map<String, Json>,
    group: Option<&Map<String, Json>>,
    rank: usize,
) -> Option<Vec<Axis>> {
    let found = |name: &str| own.get(name).or_else(|| group?.get(name));
    let resolution = found("pixelResolution")?;
    let dimensions = resolution.get("dimensions").unwrap_or(resolution);
    let size = numbers(Some(dimensions), rank)?;
    // The list of lists of a group has the factors of all levels.
    let factors = numbers(own.get("downsamplingFactors"), rank).unwrap_or_else(|| vec![1.0; rank]);
    let scale: Vec<f64> = size
        .iter()
        .zip(&factors)
        .map(|(size, factor)| size * factor)
        .collect();
    let shift = numbers(found("offset"), rank).unwrap_or_else(|| vec![0.0; rank]);
    let origins = size.iter().zip(&factors).zip(shift);
    let origin: Vec<f64> = origins
        .map(|((size, factor), shift)| shift + size * (factor - 1.0) / 2.0)
        .collect();
    let unit = resolution.get("unit").and_then(Json::as_str);
    let mut axes = assemble(&scale, Some(&origin), own, rank);
    for axis in &mut axes {
        axis.unit = axis.unit.take().or_else(|| unit.map(str::to_owned));
    }
    for (axis, name) in axes.iter_mut().zip(SIDES) {
        // Images of n5-viewer are volumes.
        if rank <= SIDES.len() && axis.name.is_none() {
            (axis.name, axis.kind) = (Some(name.to_owned()), AxisKind::Space);
        }
    }
    axes.reverse();
    Some(axes)
}

/// Reads `resolution` with `offset`, `units` and `axes`.
fn of_tensorstore(
    own: &Map<String, Json>,
    group: Option<&Map<String, Json>>,
    rank: usize,
) -> Option<Vec<Axis>> {
    let members = match own.contains_key("resolution") || own.contains_key("units") {
        true => own,
        false => group?,
    };
    let scale = numbers(members.get("resolution"), rank);
    if scale.is_none() && !members.contains_key("units") {
        return None;
    }
    let scale = scale.unwrap_or_else(|| vec![1.0; rank]);
    let factors = numbers(own.get("downsamplingFactors"), rank).unwrap_or_else(|| vec![1.0; rank]);
    let scale: Vec<f64> = scale
        .iter()
        .zip(factors)
        .map(|(size, factor)| size * factor)
        .collect();
    let offset = numbers(members.get("offset"), rank);
    let mut axes = assemble(&scale, offset.as_deref(), members, rank);
    axes.reverse();
    Some(axes)
}

fn assemble(
    scale: &[f64],
    origin: Option<&[f64]>,
    members: &Map<String, Json>,
    rank: usize,
) -> Vec<Axis> {
    let texts = |name: &str| {
        let texts = members
            .get(name)
            .and_then(Json::as_array)
            .filter(|texts| texts.len() == rank);
        move |place: usize| {
            Some(texts?.get(place)?.as_str()?.to_owned()).filter(|text| !text.is_empty())
        }
    };
    let (names, units) = (texts("axes"), texts("units"));
    let axis = |(place, step): (usize, &f64)| Axis {
        name: names(place),
        kind: names(place).map_or(AxisKind::Unknown, |name| AxisKind::of_name(&name)),
        spacing: Some(*step).filter(|step| *step != 0.0),
        origin: Some(
            origin
                .and_then(|origin| origin.get(place))
                .copied()
                .unwrap_or(0.0),
        ),
        unit: units(place),
        orientation: None,
    };
    scale.iter().enumerate().map(axis).collect()
}

/// Returns a list of `rank` finite numbers.
fn numbers(value: Option<&Json>, rank: usize) -> Option<Vec<f64>> {
    vector(value?).filter(|numbers| numbers.len() == rank)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(own: Json, group: Json, is_n5: bool) -> Option<Vec<(f64, f64, Option<String>)>> {
        let axes = axes(own.as_object().unwrap(), group.as_object(), 3, is_n5)?;
        let part = |axis: Axis| Some((axis.spacing?, axis.origin?, axis.unit));
        axes.into_iter().map(part).collect()
    }

    fn nm(step: f64, first: f64) -> (f64, f64, Option<String>) {
        (step, first, Some("nm".into()))
    }

    #[test]
    fn vectors_of_n5_are_in_reverse_order() {
        let resolution = json!({"dimensions": [4.0, 4.0, 40.0], "unit": "nm"});
        let plain = Some(vec![nm(40.0, 0.0), nm(4.0, 0.0), nm(4.0, 0.0)]);
        for (own, group) in [
            (json!({"pixelResolution": resolution}), json!({})),
            (json!({}), json!({"pixelResolution": resolution})),
            (
                json!({"resolution": [4, 4, 40], "units": ["nm", "nm", "nm"]}),
                json!({}),
            ),
            (
                json!({}),
                json!({"resolution": [4, 4, 40], "units": ["nm", "nm", "nm"]}),
            ),
        ] {
            assert_eq!(found(own, group, true), plain);
        }
        let smaller = json!({"downsamplingFactors": [2, 2, 1]});
        assert_eq!(
            found(smaller, json!({"pixelResolution": resolution}), true),
            Some(vec![nm(40.0, 0.0), nm(8.0, 2.0), nm(8.0, 2.0)])
        );
        let cosem = json!({"transform": {"axes": ["z", "y", "x"], "scale": [40, 4, 4],
            "translate": [1, 2, 3], "units": ["nm", "nm", "nm"]}});
        assert_eq!(
            found(cosem, json!({}), false),
            Some(vec![nm(40.0, 1.0), nm(4.0, 2.0), nm(4.0, 3.0)])
        );
    }

    #[test]
    fn other_attributes_of_the_same_names_are_no_convention() {
        for own in [
            json!({"resolution": "10m", "transform": [1, 2]}),
            json!({"pixelResolution": [1, 2]}),
            json!({"pixelResolution": {"dimensions": [1, "a", 2]}}),
            json!({"transform": {"scale": [1]}}),
        ] {
            assert_eq!(found(own.clone(), json!({}), true), None, "{own}");
        }
        assert_eq!(
            found(json!({"resolution": [1, 2, 3]}), json!({}), false),
            None
        );
    }
}
