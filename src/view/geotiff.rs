//! GeoTIFF: a header in front of the elements as they are (TIFF 6.0; BigTIFF where it is long;
//! GeoTIFF 1.1, OGC 19-008r4).
//!
//! Where the pieces of an array can be tiles they are, so that a tile takes one piece to decode;
//! everything else is strips of rows. Coarser arrays of a pyramid are overviews. What is not known
//! for sure is left out, and the notes say so.

mod about;
mod blocks;
mod crs;
mod epsg;
mod ifd;
mod keys;
mod place;
mod raster;
mod scene;
mod side;

use std::sync::Arc;

use super::around::{ArrayView, Surroundings};
use super::content::NoContent;
use super::layout::{Layout, Made, Placed, Placement};
use super::node::ViewNode;
use super::number::Conversion;
use crate::array::ArrayReader;
use blocks::Blocks;
use ifd::{Image, Values, tag};
use place::Place;
use raster::{Raster, spatial_names};
use scene::{Groups, Notes, Scene};

/// Whether an array can be an image, as far as its own metadata tell.
///
/// # Errors
/// Why not.
pub(super) fn check(view: &ArrayView<'_>) -> Result<(), String> {
    let names = view.array.attribute("spatial:dimensions");
    Raster::of(view, names.and_then(spatial_names).as_ref()).map(drop)
}

/// An array as a GeoTIFF.
///
/// # Errors
/// Why it is none; those of the store.
pub(super) fn make(view: &ArrayView<'_>, around: &dyn Surroundings) -> Result<Made, NoContent> {
    let mut notes = Notes::default();
    let groups = Groups::above(view, around, &mut notes)?;
    let scene = Scene::new(view, around, &groups);
    let names = scene.find("spatial:dimensions").and_then(spatial_names);
    let raster = Raster::of(view, names.as_ref())?;
    let order = raster.number.order;
    let place = place::find(&scene, &raster, &mut notes)?;

    let (mut main, placed) = image(&raster, view.reader, 0)?;
    main.fields.extend(keys::fields(&place));
    main.fields
        .extend(about::fields(&scene, &raster, &mut notes)?);
    let mut images = vec![main];
    let mut placements = vec![placed];
    let mut sources = vec![Arc::clone(view.reader)];
    for (node, coarse, conversion) in
        overviews(&scene, &raster, &place, names.as_ref(), &mut notes)?
    {
        let Some(reader) = node.reader() else {
            continue;
        };
        let (mut overview, mut placed) = image(&coarse, reader, sources.len())?;
        if let Some(conversion) = conversion {
            placed.conversion = Some(conversion);
        }
        overview
            .fields
            .push((tag::NEW_SUBFILE_TYPE, Values::Long(1)));
        images.push(overview);
        placements.push(placed);
        sources.push(Arc::clone(reader));
    }
    let header = match ifd::encode(&images, order) {
        Err(why) if images.len() > 1 => {
            notes.add(format!("overviews are left out: {why}"));
            images.truncate(1);
            placements.truncate(1);
            sources.truncate(1);
            ifd::encode(&images, order)?
        }
        header => header?,
    };
    let mut at = header.bytes.len() as u64;
    let mut parts = vec![Placement::Bytes(header.bytes)];
    for (placed, start) in placements.into_iter().zip(header.starts) {
        parts.push(Placement::Zeros(start.saturating_sub(at)));
        at = start.saturating_add(placed.size_bytes);
        parts.push(Placement::Array(placed));
    }
    let layout = Layout::new(parts).ok_or("no file can be so long".to_owned())?;
    Ok(Made {
        layout,
        sources,
        notes: notes.0,
    })
}

/// The image of a raster, without what is said only of the first one.
fn image(
    raster: &Raster,
    reader: &Arc<ArrayReader>,
    source: usize,
) -> Result<(Image, Placed), String> {
    let blocks = Blocks::of(raster, reader.piece_shape());
    let placed = Placed::new(source, reader, blocks.order(), raster.conversion)
        .ok_or("no file can be so long")?;
    let samples = u16::try_from(raster.samples).map_err(|_| "too many bands")?;
    let each = |value: u16| Values::Shorts(vec![value; samples.into()]);
    let one = |value: u16| Values::Shorts(vec![value]);
    let long = |value: u64| Values::Long(u32::try_from(value).unwrap_or(u32::MAX));
    let bits = 8 * raster.numbers * raster.number.size_bytes as u64;
    let mut fields = vec![
        (tag::IMAGE_WIDTH, long(raster.width)),
        (tag::IMAGE_LENGTH, long(raster.height)),
        (tag::BITS_PER_SAMPLE, each(u16::try_from(bits).unwrap_or(0))),
        (tag::COMPRESSION, one(1)),
        // Black is zero: what the samples mean to an eye is not known.
        (tag::PHOTOMETRIC, one(1)),
        (tag::SAMPLES_PER_PIXEL, one(samples)),
        (
            tag::PLANAR_CONFIGURATION,
            one(if raster.is_chunky || samples == 1 {
                1
            } else {
                2
            }),
        ),
        (tag::SAMPLE_FORMAT, each(raster.sample_format())),
        (
            tag::SOFTWARE,
            Values::Text(concat!("zarrfs ", env!("CARGO_PKG_VERSION")).into()),
        ),
    ];
    if samples > 1 {
        let extra = usize::from(samples).saturating_sub(1);
        fields.push((tag::EXTRA_SAMPLES, Values::Shorts(vec![0; extra])));
    }
    fields.extend(blocks.fields());
    let size_bytes = placed.size_bytes;
    let image = Image {
        fields,
        blocks,
        size_bytes,
    };
    Ok((image, placed))
}

/// An overview with what has to be done to its numbers.
type Overview = (Arc<ViewNode>, Raster, Option<Conversion>);

/// The coarser arrays of the pyramid, the finest first.
fn overviews(
    scene: &Scene<'_>,
    raster: &Raster,
    place: &Place,
    names: Option<&(String, String)>,
    notes: &mut Notes,
) -> Result<Vec<Overview>, NoContent> {
    let mut found: Vec<Overview> = Vec::new();
    for (node, entry) in scene.other_levels(notes)? {
        let key = node.key().clone();
        match overview(scene, raster, &node, names) {
            Ok(Some((coarse, _))) if !place.covers(raster, &coarse, entry) => {
                notes.add(format!(
                    "{key} is no overview: its spatial:transform is elsewhere"
                ));
            }
            Ok(Some((coarse, conversion))) => found.push((node, coarse, conversion)),
            Ok(None) => {}
            Err(why) => notes.add(format!("{key} is no overview: {why}")),
        }
    }
    found.sort_by_key(|(_, coarse, _)| std::cmp::Reverse((coarse.width, coarse.height)));
    let (mut width, mut height) = (raster.width, raster.height);
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

/// A level as an overview of a raster; none if it is finer.
fn overview(
    scene: &Scene<'_>,
    raster: &Raster,
    node: &ViewNode,
    names: Option<&(String, String)>,
) -> Result<Option<(Raster, Option<Conversion>)>, String> {
    let view = node.array_view().ok_or("its elements can not be read")?;
    let coarse = Raster::of(&view, names)?;
    if coarse.width >= raster.width && coarse.height >= raster.height {
        return Ok(None);
    }
    let kind = |raster: &Raster| (raster.number.kind, raster.number.size_bytes, raster.numbers);
    if kind(&coarse) != kind(raster) {
        return Err("another data type".into());
    }
    if (coarse.is_chunky, coarse.samples, &coarse.planes)
        != (raster.is_chunky, raster.samples, &raster.planes)
    {
        return Err("other bands".into());
    }
    if !is_same_extent((raster.width, coarse.width), (raster.height, coarse.height)) {
        return Err("not the same part of the world".into());
    }
    for name in [
        "scale_factor",
        "add_offset",
        "_FillValue",
        "missing_value",
        "units",
    ] {
        let other = view.array.attribute(name).filter(|value| !value.is_null());
        if scene.own(name) != other {
            return Err(format!("another {name}"));
        }
    }
    let from = coarse
        .conversion
        .map_or(coarse.number, |conversion| conversion.from);
    let conversion = Conversion {
        from,
        to: raster.number,
    };
    Ok(Some((
        coarse,
        (!conversion.is_identity()).then_some(conversion),
    )))
}

/// Whether both sides can be coarser by the same factor: a level has as many pixels as fit, or one
/// more for the rest.
fn is_same_extent(across: (u64, u64), down: (u64, u64)) -> bool {
    let least = |(fine, coarse): (u64, u64)| (fine, coarse.saturating_add(1));
    let most = |(fine, coarse): (u64, u64)| (fine, coarse.saturating_sub(1));
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    // a / b <= c / d
    let at_most = |(a, b): (u64, u64), (c, d): (u64, u64)| product(a, d) <= product(c, b);
    at_most(least(across), most(down)) && at_most(least(down), most(across))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_a_pyramid_have_one_factor_for_both_sides() {
        for (across, down) in [
            ((10_980, 5490), (10_980, 5490)),
            ((10_980, 153), (10_980, 153)),
            ((1001, 500), (999, 500)),
            ((7, 3), (9, 5)),
            ((5, 1), (9, 2)),
        ] {
            assert!(is_same_extent(across, down), "{across:?} {down:?}");
        }
        for (across, down) in [((1000, 500), (1000, 250)), ((1000, 100), (1000, 90))] {
            assert!(!is_same_extent(across, down), "{across:?} {down:?}");
        }
        assert!(is_same_extent((u64::MAX, 1), (u64::MAX, 1)));
    }
}
