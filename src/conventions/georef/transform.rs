//! The georeference of an array from its metadata: an affine transform and a coordinate reference system.

use serde_json::{Map, Value as Json};

use super::axis::{Axis, Steps};
use super::context::{AttributeSource, Context, Notes, number, some};
use super::crs_metadata::{crs as agreed_crs, may_have_crs, says_crs};
use super::raster::{Direction, Raster, direction_of, spatial_names};
use super::scale::ome_image;
use crate::conventions::cf::grid_mapping::{
    DEFAULT_GRID_MAPPING, default_grid_mapping, grid_mapping,
};
use crate::conventions::crs::Crs;
use crate::conventions::ome;
use crate::node::ContentError;

/// `x = a * column + b * row + c`, `y = d * column + e * row + f`, relative to the corner of the first pixel,
/// or to its centre if pixels are points.
pub(crate) type Transform = [f64; 6];

/// The known parts of the georeference of an array.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Georef {
    pub(crate) transform: Option<Transform>,
    pub(crate) is_point: bool,
    pub(crate) crs: Option<Crs>,
    /// The variable of the group that has the system, though no attribute names it.
    pub(crate) default_mapping: Option<&'static str>,
}

impl Georef {
    /// Returns the transform relative to the corner of the first pixel.
    pub(crate) fn corner_transform(&self) -> Option<Transform> {
        let [a, b, c, d, e, f] = self.transform?;
        Some(match self.is_point {
            true => [a, b, c - (a + b) / 2.0, d, e, f - (d + e) / 2.0],
            false => [a, b, c, d, e, f],
        })
    }

    /// Keeps a system if it has a transform, and the coordinates do not contradict it. A declared transform is
    /// in the declared system, and does not depend on coordinates.
    fn keep_crs(&mut self, crs: Crs, (across, down): (&Axis, &Axis), notes: &mut Notes) {
        let contradiction = across
            .contradicts(&crs, Direction::Across)
            .or_else(|| down.contradicts(&crs, Direction::Down));
        if let Some(why) = contradiction {
            notes.add(format!("{} is left out: {why}", crs.name()));
        } else if self.transform.is_none() {
            notes.add(format!(
                "{} is left out: without a transform programs show the image near 0, 0",
                crs.name()
            ));
        } else {
            self.crs = Some(crs);
        }
    }
}

/// Returns the coordinates of the corners of an image.
fn corners(affine: &Transform, raster: &Raster) -> impl Iterator<Item = (f64, f64)> + use<> {
    let (width, height) = (count(raster.width), count(raster.height));
    let [a, b, c, d, e, f] = *affine;
    [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)]
        .into_iter()
        .map(move |(column, row)| (a * column + b * row + c, d * column + e * row + f))
}

/// Finds the georeference of a raster.
///
/// # Errors
/// Errors of the store.
pub(crate) fn find(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Georef, ContentError> {
    let mut place = Georef::default();
    let grid_mapping = grid_mapping(context, raster, notes)?;
    let convention = declared(context, raster, notes);
    let needs_numbers = matches!(convention, SpatialConvention::Nothing);
    if let SpatialConvention::At(affine, is_point) = convention {
        place.transform = Some(affine);
        place.is_point = is_point;
    }
    let (mut across, mut down) = (Axis::default(), Axis::default());
    if needs_numbers {
        across = Axis::of(context, raster.across.as_deref(), raster.width, notes)?;
        down = Axis::of(context, raster.down.as_deref(), raster.height, notes)?;
        if across.is_transposed(Direction::Across) || down.is_transposed(Direction::Down) {
            notes.add("no place is known: the coordinates go the other way, (x, y)");
            return Ok(place);
        }
    }
    let has_place = || computed(&across, &down, raster, None, &mut Notes::default()).is_some();
    let grid_mapping = match grid_mapping {
        None if needs_numbers && has_place() => {
            let node = default_grid_mapping(context, raster, notes)?;
            place.default_mapping = node.is_some().then_some(DEFAULT_GRID_MAPPING);
            node
        }
        grid_mapping => grid_mapping,
    };
    let crs = agreed_crs(
        context,
        raster,
        grid_mapping.as_deref(),
        (&across, &down),
        notes,
    );
    if needs_numbers {
        if let Some(height) = crs.as_ref().and_then(Crs::satellite_height) {
            Axis::scan_angles_to_metres((&mut across, &mut down), height);
        }
        let members = grid_mapping
            .as_ref()
            .and_then(|node| node.metadata().attributes().ok());
        place.transform = computed(&across, &down, raster, members, notes);
    }
    let spatial_axes = [(&across, raster.width), (&down, raster.height)];
    let is_degrees = crs.is_none() && is_in_wgs84(context, spatial_axes);
    let crs = match is_degrees && context.nodes.assumes_wgs84() {
        true => Crs::wgs84().ok(),
        false => crs,
    };
    match crs {
        Some(crs) => place.keep_crs(crs, (&across, &down), notes),
        None if is_degrees => notes.add(
            "no coordinate reference system is known: latitudes and longitudes without a grid mapping \
             (--assume-wgs84 takes them for those of EPSG:4326)",
        ),
        None if context.own("grid_mapping").is_none() && grid_mapping.is_none() => notes.add(
            "no coordinate reference system is known (gdal_translate -of VRT -a_srs EPSG:CODE adds one)",
        ),
        None => {}
    }
    if place.transform.is_none() {
        notes.add("no place is known: neither a transform nor coordinates of regular distances");
    }
    Ok(place)
}

/// Returns whether rows run from south to north, and columns from east to west, as far as metadata tell.
///
/// # Errors
/// Errors of the store.
pub(crate) fn flipped_axes(
    context: &Context<'_>,
    raster: &Raster,
) -> Result<(bool, bool), ContentError> {
    let mut notes = Notes::default();
    let transform = match declared(context, raster, &mut notes) {
        SpatialConvention::At(affine, _) => Some(affine),
        SpatialConvention::Refused => return Ok((false, false)),
        SpatialConvention::Nothing => None,
    };
    if let Some(affine) = transform {
        return Ok(flips(&affine));
    }
    // The axes of OME-NGFF have no north.
    if ome_image(context).is_some_and(ome::has_axes) {
        return Ok((false, false));
    }
    let across = Axis::of(context, raster.across.as_deref(), raster.width, &mut notes)?;
    let down = Axis::of(context, raster.down.as_deref(), raster.height, &mut notes)?;
    if across.is_transposed(Direction::Across) || down.is_transposed(Direction::Down) {
        return Ok((false, false));
    }
    let grid_mapping = grid_mapping(context, raster, &mut notes)?;
    let members = grid_mapping
        .as_ref()
        .and_then(|node| node.metadata().attributes().ok());
    let flipped =
        computed(&across, &down, raster, members, &mut notes).map(|affine| flips(&affine));
    let (is_up, is_left) = flipped.unwrap_or_default();
    // The transform applies to an axis without coordinates, or with more coordinates than are read.
    let is_unknown = |axis: &Axis| axis.steps == Steps::Unknown;
    let increases = |axis: &Axis, direction| axis.increases(direction);
    Ok((
        increases(&down, Direction::Down).unwrap_or(is_up && is_unknown(&down)),
        !increases(&across, Direction::Across).unwrap_or(!(is_left && is_unknown(&across))),
    ))
}

/// Returns whether rows run north, and columns west; neither if an axis is nearer to the other direction.
fn flips(&[a, b, _, d, e, _]: &Transform) -> (bool, bool) {
    let is_upright = e.abs() > b.abs() && a.abs() > d.abs();
    (is_upright && e > 0.0, is_upright && a < 0.0)
}

/// Returns whether evenly spaced coordinates may be those of WGS 84: longitudes and latitudes in degrees, and
/// no metadata around the array name a system.
fn is_in_wgs84(context: &Context<'_>, [across, down]: [(&Axis, u64); 2]) -> bool {
    // Half a pixel may lie beyond the pole.
    let is_within = |axis: &Axis, length: u64, most: f64| match axis.steps {
        Steps::Regular(first, step) => {
            let last = first + step * count(length.saturating_sub(1));
            first.abs().max(last.abs()) <= most + step.abs() / 2.0
        }
        _ => false,
    };
    let is_axis = |axis: &Axis, direction| axis.is_in_degrees(direction);
    !may_have_crs(context)
        && !context.above().any(|(_, members)| says_crs(members))
        && is_axis(across.0, Direction::Across)
        && is_axis(down.0, Direction::Down)
        && is_within(across.0, across.1, 540.0)
        && is_within(down.0, down.1, 90.0)
        && Crs::wgs84().is_ok_and(|wgs84| {
            let contradicts = |axis: &Axis, direction| axis.contradicts(&wgs84, direction);
            contradicts(across.0, Direction::Across).is_none()
                && contradicts(down.0, Direction::Down).is_none()
        })
}

/// Returns the system that the metadata declare, without a comparison with coordinates.
///
/// # Errors
/// Errors of the store.
pub(crate) fn declared_crs(
    context: &Context<'_>,
    raster: &Raster,
) -> Result<Option<Crs>, ContentError> {
    let mut notes = Notes::default();
    let grid_mapping = grid_mapping(context, raster, &mut notes)?;
    let axes = (&Axis::default(), &Axis::default());
    let grid_mapping = grid_mapping.as_deref();
    Ok(agreed_crs(context, raster, grid_mapping, axes, &mut notes))
}

/// The transform of the convention `spatial:`.
enum SpatialConvention {
    Nothing,
    /// The transform is invalid or ambiguous, and no other metadata replace it.
    Refused,
    /// The transform, and whether it is relative to the centre of the first pixel.
    At(Transform, bool),
}

/// Reads the convention `spatial:` (zarr-conventions/spatial, `spatial:transform`).
fn declared(context: &Context<'_>, raster: &Raster, notes: &mut Notes) -> SpatialConvention {
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

#[expect(clippy::cast_precision_loss, reason = "at most 2^31")]
pub(crate) fn count(length: u64) -> f64 {
    length as f64
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

fn invertible(affine: Transform) -> Option<Transform> {
    let [a, b, c, d, e, f] = affine;
    let is_finite = [a, b, c, d, e, f].iter().all(|value| value.is_finite());
    let determinant = a * e - b * d;
    (is_finite && determinant != 0.0 && determinant.is_finite()).then_some(affine)
}

/// Returns the transform of the coordinates, or `GeoTransform` (GDAL's netCDF driver) if coordinates are
/// missing or agree with it.
fn computed(
    across: &Axis,
    down: &Axis,
    raster: &Raster,
    grid_mapping: Option<&Map<String, Json>>,
    notes: &mut Notes,
) -> Option<Transform> {
    let value = grid_mapping.and_then(|members| some(members, "GeoTransform"));
    let geo_transform = value.and_then(geo_transform);
    if value.is_some() && geo_transform.is_none() {
        notes.add("GeoTransform is not six numbers of an invertible transform");
    }
    let coordinates = match (across.steps, down.steps) {
        (Steps::Regular(x, dx), Steps::Regular(y, dy)) => {
            invertible([dx, 0.0, x - dx / 2.0, 0.0, dy, y - dy / 2.0])
        }
        _ => None,
    };
    match (coordinates, geo_transform) {
        (Some(coordinates), Some(declared)) => {
            // `GeoTransform` is more precise than coordinates in single precision.
            if is_same(&coordinates, &declared, raster) {
                return Some(declared);
            }
            notes.add("GeoTransform is not what the coordinates say: they are taken");
            Some(coordinates)
        }
        (None, Some([a, b, c, d, e, f]))
            if !is_along(
                across.steps,
                a,
                a.mul_add(0.5, b.mul_add(0.5, c)),
                raster.width,
            ) || !is_along(
                down.steps,
                e,
                e.mul_add(0.5, d.mul_add(0.5, f)),
                raster.height,
            ) =>
        {
            notes.add("GeoTransform is left out: the coordinates do not say it");
            None
        }
        (coordinates, declared) => coordinates.or(declared),
    }
}

/// Returns whether coordinates agree with a first centre and a step.
fn is_along(steps: Steps, distance: f64, first: f64, length: u64) -> bool {
    let is_near = |one: f64, other: f64| (one - other).abs() <= 0.05 * distance.abs();
    match steps {
        Steps::Unknown => true,
        Steps::One(place) => is_near(place, first),
        Steps::Regular(place, step) => {
            let last = count(length) - 1.0;
            is_near(place, first) && is_near(place + last * step, first + last * distance)
        }
        Steps::Irregular => false,
    }
}

/// Returns whether all corners have the same coordinates, with a tolerance of a small part of a pixel.
fn is_same(one: &Transform, other: &Transform, raster: &Raster) -> bool {
    let [a, b, _, d, e, _] = one.map(f64::abs);
    corners(one, raster)
        .zip(corners(other, raster))
        .all(|(one, other)| {
            (one.0 - other.0).abs() <= 0.05 * (a + b) && (one.1 - other.1).abs() <= 0.05 * (d + e)
        })
}

/// Parses `c a b f d e`, as a text or a list.
fn geo_transform(value: &Json) -> Option<Transform> {
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
        assert_eq!(geo_transform(&json!("500000 10 0 5e6 0 -10")), Some(good));
        assert_eq!(geo_transform(&json!("500000 10 0 nan 0 -10")), None);
        assert_eq!(geo_transform(&json!("1 2")), None);
    }

    #[test]
    fn rows_in_south_to_north_order_are_flipped() {
        assert_eq!(flips(&[1.0, 0.0, 0.0, 0.0, -1.0, 0.0]), (false, false));
        assert_eq!(flips(&[1.0, 0.2, 0.0, 0.2, 1.0, 0.0]), (true, false));
        assert_eq!(flips(&[-1.0, 0.0, 0.0, 0.0, -1.0, 0.0]), (false, true));
        assert_eq!(flips(&[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]), (false, false));
    }

    #[test]
    fn a_geo_transform_applies_unless_coordinates_contradict_it() {
        let number = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
        let declared = json!({"GeoTransform": "500 10 0 900 0 -10"});
        let place = |across: Steps, down: Steps, width: u64| {
            let axis = |steps| {
                let mut axis = Axis::default();
                axis.steps = steps;
                axis
            };
            let raster = Raster::of_planes(&[], 20, width, number);
            let (across, down) = (axis(across), axis(down));
            let members = declared.as_object();
            computed(&across, &down, &raster, members, &mut Notes::default())
        };
        let expected = Some([10.0, 0.0, 500.0, 0.0, -10.0, 900.0]);
        let down = Steps::Regular(895.0, -10.0);
        // An axis with more coordinates than are read, and an axis with a single coordinate.
        assert_eq!(place(Steps::Unknown, down, 1 << 22), expected);
        assert_eq!(place(Steps::Unknown, Steps::Unknown, 1 << 22), expected);
        assert_eq!(place(Steps::One(505.0), down, 1), expected);
        for across in [Steps::Irregular, Steps::One(510.0)] {
            assert_eq!(place(across, down, 1), None, "{across:?}");
        }
        assert_eq!(
            place(Steps::Unknown, Steps::Regular(705.0, 10.0), 1 << 22),
            None
        );
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
