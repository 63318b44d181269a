//! GeoZarr and the conventions of zarr-conventions: the transform of `spatial:`, the system of `proj:`, and the
//! `layout` of multiscales.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::conventions::crs::Crs;
use crate::conventions::georef::context::{
    AttributeSource, Context, Entry, Levels, MAX_LEVELS, Notes, listed_levels, number, some,
};
use crate::conventions::georef::crs_metadata::{SystemMember, one_of};
use crate::conventions::georef::raster::{Direction, Raster, direction_of};
use crate::conventions::georef::scale::{Vectors, are_scales, vector};
use crate::conventions::georef::transform::{Transform, corners, count, invertible, is_same};
use crate::store::Key;

/// The members that declare a system in zarr-conventions/geo-proj, and in the STAC extension "projection",
/// whose version 1 has `proj:epsg` (as the EOPF products of Sentinel have).
const PROJ: [SystemMember; 4] = [
    SystemMember::text("proj:code"),
    SystemMember::code("proj:epsg"),
    SystemMember::text("proj:wkt2"),
    SystemMember::text("proj:projjson"),
];

/// Returns whether one of [`PROJ`] exists.
pub(crate) fn says_crs(members: &Map<String, Json>) -> bool {
    SystemMember::is_any_in(&PROJ, members)
}

/// Returns whether metadata that apply to an array declare a system.
pub(crate) fn is_system_declared(context: &Context<'_>) -> bool {
    context.sources().any(|(_, members)| says_crs(members))
}

/// Returns the nearest group above an array that declares a system, whether it applies to the array or not.
pub(crate) fn group_with_system<'a>(context: &Context<'a>) -> Option<&'a Key> {
    let found = context.above().find(|(_, members)| says_crs(members));
    found.map(|(key, _)| key)
}

/// Returns the systems that metadata declare for an array; `None` for one that cannot be read.
pub(crate) fn systems(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Vec<Option<Crs>> {
    let mut systems = Vec::new();
    for (source, members) in context.sources().filter(|(_, members)| says_crs(members)) {
        let is_own = source == AttributeSource::Own;
        let names_axes = some(members, "spatial:dimensions").is_some();
        if !is_own && names_axes && !has_axes(context, source, members, raster) {
            notes.add("the system of the group is that of other axes (spatial:dimensions)");
            continue;
        }
        systems.push(one_of(members, &PROJ, notes));
        // The array overrides its group (zarr-conventions/geo-proj, "Inheritance").
        if is_own {
            break;
        }
    }
    systems
}

/// Returns whether the entry of a level in the layout of a group declares a system.
pub(crate) fn levels_say_crs(members: &Map<String, Json>) -> bool {
    let layout = members.get("multiscales").and_then(|it| it.get("layout"));
    let mut levels = layout.and_then(Json::as_array).into_iter().flatten();
    levels.any(|level| level.as_object().is_some_and(says_crs))
}

/// Returns the pyramid of a group: the `layout` of the multiscales convention, or a `tile_matrix_set` of older GeoZarr,
/// whose groups have the names of the tile matrices.
pub(crate) fn pyramids(members: &Entry) -> Vec<Levels<'_>> {
    let multiscales = members.get("multiscales").and_then(Json::as_object);
    let levels = multiscales.map(|multiscales| match multiscales.get("layout") {
        Some(layout) => listed_levels(layout, "asset"),
        None => tile_matrices(multiscales),
    });
    levels.into_iter().collect()
}

/// Returns the tile matrices of a set (OGC 17-083r4, 6.2), or the names in its limits if it has only a name.
fn tile_matrices(multiscales: &Entry) -> Levels<'_> {
    let set = multiscales.get("tile_matrix_set");
    if let Some(matrices) = set.and_then(|set| set.get("tileMatrices")) {
        return listed_levels(matrices, "id");
    }
    let limits = multiscales
        .get("tile_matrix_limits")
        .filter(|_| set.is_some());
    let names = limits.and_then(Json::as_object).into_iter().flatten();
    names
        .take(MAX_LEVELS)
        .map(|(name, _)| (name.as_str(), Cow::Owned(Map::new())))
        .collect()
}

/// Returns the names of the y and x axes that an array or a group above it declares.
pub(crate) fn spatial_axes(context: &Context<'_>) -> Option<(String, String)> {
    context.find("spatial:dimensions").and_then(spatial_names)
}

/// Returns the names of the y and x axes in `spatial:dimensions`.
fn spatial_names(value: &Json) -> Option<(String, String)> {
    match value.as_array()?.as_slice() {
        [.., y, x] => Some((y.as_str()?.to_owned(), x.as_str()?.to_owned())),
        _ => None,
    }
}

/// Returns whether metadata that apply to an array declare a transform.
pub(crate) fn has_transform(context: &Context<'_>) -> bool {
    context.find("spatial:transform").is_some()
}

/// The transform of the convention `spatial:`.
pub(crate) enum SpatialConvention {
    /// No transform is declared.
    Nothing,
    /// The transform is invalid or ambiguous, and no other metadata replace it.
    Refused,
    /// The transform, and whether it is relative to the centre of the first pixel.
    At(Transform, bool),
}

/// Reads the convention `spatial:` (zarr-conventions/spatial, `spatial:transform`).
pub(crate) fn transform(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> SpatialConvention {
    let mut found: Option<(AttributeSource, Transform, bool)> = None;
    for (source, members) in context.sources() {
        let is_wider = matches!(source, AttributeSource::Group | AttributeSource::Pyramid);
        let transform = some(members, "spatial:transform");
        let says_more = ["spatial:transform_type", "spatial:shape"]
            .iter()
            .any(|name| some(members, name).is_some());
        if source == AttributeSource::Pyramid || (transform.is_none() && (is_wider || !says_more)) {
            continue;
        }
        // The attributes of the array must agree with those of its level and group.
        if matches!(found, Some((AttributeSource::Own, ..))) {
            break;
        }
        if source != AttributeSource::Own && !has_axes(context, source, members, raster) {
            notes.add("spatial:transform is of other axes (spatial:dimensions)");
            continue;
        }
        if is_wider && some(members, "spatial:shape").is_some_and(|shape| !is_shape(shape, raster))
        {
            notes.add("spatial:transform is of another spatial:shape");
            continue;
        }
        match source_transform(context, (source, members), raster) {
            Ok(None) => {}
            Ok(Some((affine, is_point))) => match found {
                Some((_, other, was_point))
                    if was_point != is_point || !is_same(&other, &affine, raster) =>
                {
                    notes.add("the layout and the group of the level say different transforms");
                    return SpatialConvention::Refused;
                }
                Some(_) => {}
                None => found = Some((source, affine, is_point)),
            },
            Err(why) => {
                notes.add(why);
                return SpatialConvention::Refused;
            }
        }
    }
    let own_box = context.own("spatial:bbox");
    match (found, own_box) {
        (Some((_, affine, is_point)), Some(own_box))
            if !is_box(own_box, &affine, is_point, raster) =>
        {
            notes.add("spatial:bbox is not where spatial:transform is: no place");
            SpatialConvention::Refused
        }
        (Some((_, affine, is_point)), _) => SpatialConvention::At(affine, is_point),
        (None, Some(_)) => {
            notes.add("spatial:bbox alone does not say which row is the first");
            SpatialConvention::Nothing
        }
        (None, None) => SpatialConvention::Nothing,
    }
}

/// Returns the transform of one source of attributes.
///
/// # Errors
/// Returns why the attribute is no transform.
fn source_transform(
    context: &Context<'_>,
    (source, members): (AttributeSource, &Map<String, Json>),
    raster: &Raster,
) -> Result<Option<(Transform, bool)>, &'static str> {
    if some(members, "spatial:transform_type").is_some_and(|kind| kind.as_str() != Some("affine")) {
        return Err("spatial:transform is not affine");
    }
    if some(members, "spatial:shape").is_some_and(|shape| !is_shape(shape, raster)) {
        return Err("spatial:transform is of another spatial:shape");
    }
    let Some(value) = some(members, "spatial:transform") else {
        return Ok(None);
    };
    let affine =
        affine(value).ok_or("spatial:transform is not six numbers of an invertible transform")?;
    let registration = some(members, "spatial:registration");
    // The layout is part of the attributes of the pyramid.
    let registration = match source {
        AttributeSource::Level => {
            registration.or_else(|| some(context.pyramid()?, "spatial:registration"))
        }
        _ => registration,
    };
    let is_point = match registration.map(Json::as_str) {
        None | Some(Some("pixel")) => false,
        Some(Some("node")) => true,
        _ => return Err("spatial:registration is neither pixel nor node: no place"),
    };
    match some(members, "spatial:bbox") {
        Some(value) if !is_box(value, &affine, is_point, raster) => {
            Err("spatial:bbox is not where spatial:transform is: no place")
        }
        _ => Ok(Some((affine, is_point))),
    }
}

/// Returns whether the attributes of a group or pyramid apply to the axes of this array.
pub(crate) fn has_axes(
    context: &Context<'_>,
    source: AttributeSource,
    members: &Map<String, Json>,
    raster: &Raster,
) -> bool {
    let declared = some(members, "spatial:dimensions");
    let declared = match source {
        AttributeSource::Level => {
            declared.or_else(|| some(context.pyramid()?, "spatial:dimensions"))
        }
        _ => declared,
    };
    match declared {
        Some(declared) => spatial_names(declared).is_some_and(|(down, across)| {
            raster.down == Some(down) && raster.across == Some(across)
        }),
        None if some(members, "spatial:shape").is_some() => true,
        None => {
            let is_in = |name: &Option<String>, direction| {
                let name = name.as_deref();
                name.is_none_or(|name| direction_of(name) == Some(direction))
            };
            is_in(&raster.down, Direction::Down) && is_in(&raster.across, Direction::Across)
        }
    }
}

/// Returns whether `spatial:bbox` is the extent of a raster, with a tolerance of half a pixel, or of one
/// pixel if the box may be that of pixel centres.
fn is_box(value: &Json, affine: &Transform, is_point: bool, raster: &Raster) -> bool {
    let values = value
        .as_array()
        .map(|values| values.iter().map(number).collect());
    let Some(values): Option<Option<Vec<f64>>> = values else {
        return false;
    };
    let (west, south, east, north) = match values.as_deref() {
        Some([west, south, east, north] | [west, south, _, east, north, _]) => {
            (*west, *south, *east, *north)
        }
        _ => return false,
    };
    let [a, b, _, d, e, _] = affine.map(f64::abs);
    let part = if is_point { 1.001 } else { 0.501 };
    let fold = |start: f64, pick: fn((f64, f64)) -> f64, choose: fn(f64, f64) -> f64| {
        corners(affine, raster).map(pick).fold(start, choose)
    };
    let is_near = |one: f64, other: f64, pixel: f64| (one - other).abs() <= part * pixel;
    is_near(fold(f64::INFINITY, |at| at.0, f64::min), west, a + b)
        && is_near(fold(f64::NEG_INFINITY, |at| at.0, f64::max), east, a + b)
        && is_near(fold(f64::INFINITY, |at| at.1, f64::min), south, d + e)
        && is_near(fold(f64::NEG_INFINITY, |at| at.1, f64::max), north, d + e)
}

fn is_shape(shape: &Json, raster: &Raster) -> bool {
    let lengths = shape.as_array().map(Vec::as_slice);
    matches!(lengths, Some([.., height, width])
        if number(height) == Some(count(raster.height)) && number(width) == Some(count(raster.width)))
}

fn affine(value: &Json) -> Option<Transform> {
    let values = value.as_array()?;
    // Some writers write the whole 3 x 3 matrix.
    let values = match values.get(6..)? {
        [] => values.get(..6)?,
        [g, h, i] => {
            let last = (number(g), number(h), number(i));
            values
                .get(..6)
                .filter(|_| last == (Some(0.0), Some(0.0), Some(1.0)))?
        }
        _ => return None,
    };
    let values: Option<Vec<f64>> = values.iter().map(number).collect();
    invertible(Transform::try_from(values?).ok()?)
}

/// Returns the scale and translation of a level, by its `transform` relative to the level that it is `derived_from`.
///
/// # Errors
/// Returns why they are not known.
pub(crate) fn scales(
    entry: &Map<String, Json>,
    entries: &[&Map<String, Json>],
) -> Result<Option<Vectors>, &'static str> {
    let unknown = "its transform is not known";
    let (mut scale, mut start): Vectors = (Vec::new(), Vec::new());
    let mut entry = entry;
    // A chain that is longer than the list has a cycle.
    for _ in 0..=entries.len() {
        let parent = some(entry, "derived_from").and_then(Json::as_str);
        let transform = some(entry, "transform");
        if let Some(transform) = transform {
            let own = transform.get("scale").and_then(vector).ok_or(unknown)?;
            let shift = match transform.get("translation") {
                Some(shift) => vector(shift).ok_or(unknown)?,
                None => vec![0.0; own.len()],
            };
            if scale.is_empty() {
                (scale, start) = (vec![1.0; own.len()], vec![0.0; own.len()]);
            }
            if own.len() != scale.len() || shift.len() != scale.len() || !are_scales(&own) {
                return Err(unknown);
            }
            for (((scale, start), own), shift) in
                scale.iter_mut().zip(&mut start).zip(own).zip(shift)
            {
                *start = *start * own + shift;
                *scale *= own;
            }
        }
        let Some(parent) = parent else {
            let is_first = entries.iter().all(|other| {
                some(other, "derived_from").is_some()
                    || some(other, "asset") == some(entry, "asset")
            });
            if scale.is_empty()
                && is_first
                && entries
                    .iter()
                    .any(|other| some(other, "transform").is_some())
            {
                return Ok(Some((vec![1.0; 2], vec![0.0; 2])));
            }
            return Ok((!scale.is_empty()).then_some((scale, start)));
        };
        if transform.is_none() {
            return Ok(None);
        }
        let mut named = entries
            .iter()
            .filter(|other| some(other, "asset").and_then(Json::as_str) == Some(parent));
        entry = named.next().ok_or(unknown)?;
    }
    Err(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    #[test]
    fn transforms_are_six_numbers_that_can_be_inverted() {
        let good = [10.0, 0.0, 500_000.0, 0.0, -10.0, 5e6];
        assert_eq!(affine(&json!([10, 0, 500_000, 0, -10, 5e6])), Some(good));
        assert_eq!(
            affine(&json!([10, 0, 500_000, 0, -10, 5e6, 0, 0, 1])),
            Some(good)
        );
        for wrong in [
            json!([10, 0, 0, 0, -10]),
            json!([10, 0, 0, 0, 0, 0]),
            json!([10, 0, "0", 0, -10, 0]),
            json!([10, 0, 0, 0, -10, 0, 0, 1, 1]),
            json!("10"),
        ] {
            assert_eq!(affine(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_bbox_matches_the_extent_within_half_a_pixel() {
        let number = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
        let raster = Raster::of_planes(&[], 20, 30, number);
        let affine = [10.0, 0.0, 500.0, 0.0, -10.0, 900.0];
        let check = |value: Json| is_box(&value, &affine, false, &raster);
        assert!(check(json!([500, 700, 800, 900])));
        assert!(check(json!([505, 705, 795, 895])));
        assert!(check(json!([500, 700, 0, 800, 900, 0])));
        for other in [
            json!([0, 0, 300, 200]),
            json!([500, 700, 800]),
            json!([500, 700, 800, "900"]),
            json!("box"),
        ] {
            assert!(!check(other.clone()), "{other}");
        }
    }
}
