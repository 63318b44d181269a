//! Overviews: the arrays of a pyramid that are the same image with fewer pixels.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::context::{Context, Groups, Notes, short};
use super::raster::Raster;
use super::samples::SampleMetadata;
use super::scale::{Vectors, ome_image};
use super::transform::{self, Georef, Transform, count};
use crate::conventions::{cf, geozarr, ome};
use crate::node::{ContentError, Conversion, ViewNode};

/// An overview with the conversion of its numbers.
pub(crate) type Overview = (Arc<ViewNode>, Raster, Option<Conversion>);

type CoarserLevel = (Raster, Option<Conversion>);

/// The full image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullImage<'a> {
    pub(crate) raster: &'a Raster,
    pub(crate) georef: &'a Georef,
    pub(crate) samples: &'a SampleMetadata,
}

/// Returns the coarser levels of the pyramid, the finest first.
///
/// # Errors
/// Errors of the store.
pub(crate) fn overviews(
    context: &Context<'_>,
    full: FullImage<'_>,
    notes: &mut Notes,
) -> Result<Vec<Overview>, ContentError> {
    let mut found: Vec<Overview> = Vec::new();
    for (node, entry) in context.other_levels(notes)? {
        match overview(context, full, &node, entry)? {
            Ok(Some((coarse, conversion))) => found.push((node, coarse, conversion)),
            Ok(None) => {}
            Err(why) => notes.add(format!("{} is no overview: {why}", node.key())),
        }
    }
    found.sort_by_key(|(_, coarse, _)| std::cmp::Reverse((coarse.width, coarse.height)));
    let (mut width, mut height) = (full.raster.width, full.raster.height);
    found.retain(|(node, coarse, _)| {
        let is_coarser = coarse.width < width && coarse.height < height;
        match is_coarser {
            true => (width, height) = (coarse.width, coarse.height),
            false => notes.add(format!(
                "{} is no overview: not coarser in both axes",
                node.key()
            )),
        }
        is_coarser
    });
    Ok(found)
}

/// Returns a level as an overview; `None` if it is finer. The inner error is why it is no overview.
fn overview(
    context: &Context<'_>,
    full: FullImage<'_>,
    node: &ViewNode,
    entry: &Map<String, Json>,
) -> Result<Result<Option<CoarserLevel>, String>, ContentError> {
    let Some(view) = node.array_view() else {
        return Ok(Err("its elements cannot be read".into()));
    };
    // Notes on the level itself do not belong to this file.
    let mut notes = Notes::default();
    let groups = Groups::above(&view, context.nodes, &mut notes)?;
    let level = Context::new(&view, context.nodes, &groups);
    let names = geozarr::spatial_axes(&level);
    let coarse = match Raster::of(&view, names.as_ref()) {
        Ok(coarse) => coarse,
        Err(why) => return Ok(Err(why)),
    };
    let raster = full.raster;
    if coarse.width >= raster.width && coarse.height >= raster.height {
        return Ok(Ok(None));
    }
    if let Err(why) = is_same_kind(context, raster, &coarse) {
        return Ok(Err(why));
    }
    let place = transform::find(&level, &coarse, &mut notes)?;
    let entries = context.level_entries();
    let own = context.level_entry().unwrap_or(entry);
    if let Err(why) = is_same_extent(
        (raster, full.georef),
        (&coarse, &place),
        (own, entry),
        &entries,
    ) {
        return Ok(Err(why.into()));
    }
    if place.crs != full.georef.crs {
        return Ok(Err("another coordinate reference system".into()));
    }
    let about = SampleMetadata::of(&level, &coarse, &mut notes)?;
    if let Some(name) = full.samples.difference(&about) {
        return Ok(Err(format!("another {name}")));
    }
    for name in cf::names::OF_VALUES {
        if context.own(name) != level.own(name) {
            return Ok(Err(format!("another {name}")));
        }
    }
    let from = coarse
        .conversion
        .map_or(coarse.number, |conversion| conversion.from);
    let conversion = Conversion::new(from, raster.number);
    let conversion = (!conversion.is_identity()).then_some(conversion);
    Ok(Ok(Some((coarse, conversion))))
}

fn is_same_kind(context: &Context<'_>, raster: &Raster, coarse: &Raster) -> Result<(), String> {
    let kind = |raster: &Raster| (raster.number.kind, raster.number.size_bytes, raster.numbers);
    if kind(coarse) != kind(raster) {
        return Err("another data type".into());
    }
    let axes = (raster.is_chunky, &raster.band_axes);
    if axes != (coarse.is_chunky, &coarse.band_axes) || raster.planes.len() != coarse.planes.len() {
        return Err("other axes".into());
    }
    let planes = raster.planes.iter().zip(&coarse.planes);
    let other = planes.enumerate().find(|(_, (fine, rough))| fine != rough);
    if let Some((place, (fine, rough))) = other {
        let name = raster.band_axes.get(place).cloned().flatten();
        let name = name.or_else(|| ome_axis(context, place));
        let name = name.map_or(String::new(), |name| format!("{} ", short(&name)));
        let than = if rough < fine { "fewer" } else { "more" };
        return Err(format!("{than} {name}planes: {rough} for {fine}"));
    }
    if raster.samples != coarse.samples {
        return Err(format!(
            "{} bands instead of {}",
            coarse.samples, raster.samples
        ));
    }
    Ok(())
}

/// Returns the name of an axis by the `axes` of OME-NGFF.
fn ome_axis(context: &Context<'_>, place: usize) -> Option<String> {
    ome::axis_name(ome_image(context)?, place).map(str::to_owned)
}

/// Checks that a level has the same extent: its origin is within half of its pixel, and its size differs by
/// less than one pixel (a partial pixel is dropped or counted).
fn is_same_extent(
    (raster, place): (&Raster, &Georef),
    (coarse, coarse_place): (&Raster, &Georef),
    (own, other): (&Map<String, Json>, &Map<String, Json>),
    entries: &[&Map<String, Json>],
) -> Result<(), &'static str> {
    let is_placed = match (place.corner_transform(), coarse_place.corner_transform()) {
        (Some(fine), Some(coarse_transform)) => {
            if !is_over(&fine, raster, &coarse_transform, coarse) {
                return Err("its place is another one");
            }
            true
        }
        (None, None) => false,
        _ => return Err("the place of only one of them is known"),
    };
    let spatial_axes = [(raster.height, coarse.height), (raster.width, coarse.width)];
    match declared(raster, own, entries)?.zip(declared(coarse, other, entries)?) {
        Some((fine, rough)) => {
            if fine.rest != rough.rest {
                return Err("its scale is another one in other axes");
            }
            let fits = spatial_axes
                .iter()
                .zip(fine.spatial_axes)
                .zip(rough.spatial_axes);
            let is_fitting = fits.into_iter().all(|((lengths, one), other)| {
                let (fine, rough) = lengths;
                let difference = one.scale * count(*fine) - other.scale * count(*rough);
                // The first pixels share their corner, or their centre (OME-NGFF).
                let begins = (other.start - other.scale / 2.0) - (one.start - one.scale / 2.0);
                let starts = other.start - one.start;
                let half = other.scale * 0.501;
                difference.abs() < other.scale * 0.999_999
                    && (begins.abs() <= half || starts.abs() <= half)
            });
            is_fitting
                .then_some(())
                .ok_or("its size is not what the scale says")
        }
        None if is_placed || has_one_factor(spatial_axes) => Ok(()),
        None => Err("not the same part of the world"),
    }
}

/// Returns whether a coarser image covers a finer one.
fn is_over(fine: &Transform, raster: &Raster, affine: &Transform, coarse: &Raster) -> bool {
    let [a, b, c, d, e, f] = *affine;
    let [fine_a, fine_b, fine_c, fine_d, fine_e, fine_f] = *fine;
    // The origin in pixels of the coarser image.
    let (x, y) = (fine_c - c, fine_f - f);
    let determinant = a * e - b * d;
    let column = (e * x - b * y) / determinant;
    let row = (a * y - d * x) / determinant;
    let is_as_long =
        |(x, y): (f64, f64), (fine_x, fine_y): (f64, f64), (fine, rough): (u64, u64)| {
            let (fine, rough) = (count(fine), count(rough));
            let (x_off, y_off) = (
                x.mul_add(rough, -(fine_x * fine)),
                y.mul_add(rough, -(fine_y * fine)),
            );
            // Squared lengths are compared because `hypot` has a new symbol version since glibc 2.35.
            let squared = |x: f64, y: f64| x.mul_add(x, y * y);
            squared(x_off, y_off) < squared(x, y) * 0.999_998
        };
    column.abs() <= 0.501
        && row.abs() <= 0.501
        && is_as_long((a, d), (fine_a, fine_d), (raster.width, coarse.width))
        && is_as_long((b, e), (fine_b, fine_e), (raster.height, coarse.height))
}

/// Returns whether one integer factor fits both axes.
fn has_one_factor(spatial_axes: [(u64, u64); 2]) -> bool {
    let wide = |(fine, rough): (u64, u64)| (u128::from(fine), u128::from(rough));
    // m is n / k rounded down or up: n / (m + 1) < k < n / (m - 1).
    let least = spatial_axes
        .map(wide)
        .map(|(fine, rough)| fine / (rough + 1) + 1);
    let [down, across] = least;
    let factor = down.max(across).max(2);
    spatial_axes
        .map(wide)
        .iter()
        .all(|(fine, rough)| factor * rough.saturating_sub(1) < *fine)
}

/// Origin and scale of an axis of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AxisScale {
    scale: f64,
    start: f64,
}

/// Origin and scale of all axes.
#[derive(Debug, Clone, PartialEq)]
struct LevelScales {
    /// The y and x axes.
    spatial_axes: [AxisScale; 2],
    /// The other axes.
    rest: Vec<AxisScale>,
}

/// The scales and translations of a level in its entry by each convention; the first that declares any decides.
type ReadScales =
    fn(&Map<String, Json>, &[&Map<String, Json>]) -> Result<Option<Vectors>, &'static str>;
const SCALES: [ReadScales; 2] = [|entry, _| ome::level_scales(entry), geozarr::scales];

/// Returns the scales that a layout declares for a level; `None` if it declares none.
///
/// # Errors
/// The declaration is not supported.
fn declared(
    raster: &Raster,
    entry: &Map<String, Json>,
    entries: &[&Map<String, Json>],
) -> Result<Option<LevelScales>, &'static str> {
    let mut found = None;
    for scales in SCALES {
        found = match found {
            None => scales(entry, entries)?,
            found => found,
        };
    }
    let Some((scale, start)) = found else {
        return Ok(None);
    };
    let axes = scale.into_iter().zip(start);
    let mut axes: Vec<AxisScale> = axes
        .map(|(scale, start)| AxisScale { scale, start })
        .collect();
    let rank = raster.planes.len() + if raster.is_chunky { 3 } else { 2 };
    if axes.len() != rank && axes.len() != 2 {
        return Err("its scale is of other axes");
    }
    let at = match raster.is_chunky && axes.len() == rank {
        true => axes.len() - 3,
        false => axes.len() - 2,
    };
    let mut spatial_axes = axes.splice(at..at + 2, []);
    let (Some(down), Some(across)) = (spatial_axes.next(), spatial_axes.next()) else {
        return Err("its scale is of other axes");
    };
    drop(spatial_axes);
    let spatial_axes = [down, across];
    Ok(Some(LevelScales {
        spatial_axes,
        rest: axes,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    fn raster(height: u64, width: u64) -> Raster {
        let number = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
        Raster::of_planes(&[], height, width, number)
    }

    fn check(fine: (u64, Json), coarse: (u64, Json)) -> bool {
        let members = [fine.1.as_object().unwrap(), coarse.1.as_object().unwrap()];
        let place = Georef::default();
        is_same_extent(
            (&raster(fine.0, fine.0), &place),
            (&raster(coarse.0, coarse.0), &place),
            (members[0], members[1]),
            &members,
        )
        .is_ok()
    }

    #[test]
    fn levels_without_a_scale_have_one_factor_for_both_sides() {
        for spatial_axes in [
            [(10_980, 5490), (10_980, 5490)],
            [(10_980, 153), (10_980, 153)],
            [(1001, 500), (999, 500)],
            [(7, 3), (9, 5)],
            [(5, 1), (9, 2)],
            [(u64::MAX, 1), (u64::MAX, 1)],
        ] {
            assert!(has_one_factor(spatial_axes), "{spatial_axes:?}");
        }
        for spatial_axes in [
            [(1000, 500), (1000, 250)],
            [(1000, 100), (1000, 90)],
            [(100, 64), (100, 64)],
            [(100, 99), (100, 99)],
        ] {
            assert!(!has_one_factor(spatial_axes), "{spatial_axes:?}");
        }
    }

    #[test]
    fn levels_of_ome_have_the_size_of_their_scale() {
        let level = |scale: f64, start: f64| {
            json!({"coordinateTransformations": [
                {"type": "scale", "scale": [scale, scale]},
                {"type": "translation", "translation": [start, start]},
            ]})
        };
        let plain = |scale: f64| json!({"coordinateTransformations": [{"type": "scale", "scale": [scale, scale]}]});
        for (fine, coarse) in [
            ((100, plain(1.0)), (50, plain(2.0))),
            ((101, plain(0.5)), (50, plain(1.0))),
            ((101, plain(0.5)), (51, plain(1.0))),
            ((100, level(0.5, 0.0)), (50, level(1.0, 0.25))),
            ((100, plain(1.0)), (25, level(4.0, 1.5))),
            ((50, level(2.0, 0.5)), (25, level(4.0, 1.5))),
            ((100, json!({})), (50, json!({}))),
        ] {
            assert!(check(fine.clone(), coarse.clone()), "{fine:?} {coarse:?}");
        }
        for (fine, coarse) in [
            ((100, plain(1.0)), (64, plain(2.0))),
            ((100, plain(1.0)), (50, level(2.0, 500.0))),
            ((100, plain(1.0)), (50, plain(3.0))),
            ((100, plain(1.0)), (50, plain(-2.0))),
            (
                (100, plain(1.0)),
                (
                    50,
                    json!({"coordinateTransformations": [{"type": "affine"}]}),
                ),
            ),
        ] {
            assert!(!check(fine.clone(), coarse.clone()), "{fine:?} {coarse:?}");
        }
    }

    #[test]
    fn levels_of_a_layout_are_derived_from_each_other() {
        let full = json!({"asset": "0"});
        let derived = |scale: f64, start: f64| {
            json!({"asset": "1", "derived_from": "0",
                   "transform": {"scale": [scale, scale], "translation": [start, start]}})
        };
        assert!(check((100, full.clone()), (50, derived(2.0, 0.0))));
        assert!(check((100, full.clone()), (50, derived(2.0, 0.5))));
        assert!(!check((100, full.clone()), (64, derived(2.0, 0.0))));
        assert!(!check((100, full.clone()), (50, derived(2.0, 30.0))));
        let ring = json!({"asset": "1", "derived_from": "1", "transform": {"scale": [2, 2]}});
        assert!(!check((100, full), (50, ring)));
    }

    #[test]
    fn extents_are_equal_within_a_fraction_of_a_pixel() {
        let fine = [10.0, 0.0, 500.0, 0.0, -10.0, 900.0];
        let check = |affine: Transform, size: u64| {
            is_over(&fine, &raster(100, 100), &affine, &raster(size, size))
        };
        assert!(check([20.0, 0.0, 500.0, 0.0, -20.0, 900.0], 50));
        assert!(check([30.0, 0.0, 500.0, 0.0, -30.0, 900.0], 34));
        assert!(check([20.0, 0.0, 509.0, 0.0, -20.0, 900.0], 50));
        for (affine, size) in [
            ([20.0, 0.0, 520.0, 0.0, -20.0, 900.0], 50),
            ([20.0, 0.0, 500.0, 0.0, 20.0, 900.0], 50),
            ([20.0, 0.0, 500.0, 0.0, 20.0, -100.0], 50),
            ([20.0, 0.0, 500.0, 0.0, -20.0, 900.0], 64),
            ([0.0, 20.0, 500.0, -20.0, 0.0, 900.0], 50),
        ] {
            assert!(!check(affine, size), "{affine:?} {size}");
        }
    }
}
