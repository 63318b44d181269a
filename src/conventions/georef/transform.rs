//! The georeference of an array from its metadata: an affine transform and a coordinate reference system.

use serde_json::{Map, Value as Json};

use super::axis::{Axis, Steps};
use super::context::{Context, Notes};
use super::crs_metadata::{crs as agreed_crs, may_have_crs};
use super::raster::{Direction, Raster};
use super::scale::ome_image;
use crate::conventions::cf::grid_mapping::{
    DEFAULT_GRID_MAPPING, default_grid_mapping, grid_mapping,
};
use crate::conventions::crs::Crs;
use crate::conventions::geozarr::{self, SpatialConvention, says_crs};
use crate::conventions::{gdal, ome};
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
pub(crate) fn corners(
    affine: &Transform,
    raster: &Raster,
) -> impl Iterator<Item = (f64, f64)> + use<> {
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
    let convention = geozarr::transform(context, raster, notes);
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
    let transform = match geozarr::transform(context, raster, &mut notes) {
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

#[expect(clippy::cast_precision_loss, reason = "at most 2^31")]
pub(crate) fn count(length: u64) -> f64 {
    length as f64
}

/// Returns a transform that has an inverse.
pub(crate) fn invertible(affine: Transform) -> Option<Transform> {
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
    let geo_transform = grid_mapping.and_then(|members| gdal::geo_transform(members, notes));
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
pub(crate) fn is_same(one: &Transform, other: &Transform, raster: &Raster) -> bool {
    let [a, b, _, d, e, _] = one.map(f64::abs);
    corners(one, raster)
        .zip(corners(other, raster))
        .all(|(one, other)| {
            (one.0 - other.0).abs() <= 0.05 * (a + b) && (one.1 - other.1).abs() <= 0.05 * (d + e)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

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
}
