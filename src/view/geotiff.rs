//! GeoTIFF: a header in front of the elements as they are (TIFF 6.0; BigTIFF where it is long;
//! GeoTIFF 1.1, OGC 19-008r4).
//!
//! Where the pieces of an array can be tiles they are, so that a tile takes one piece to decode;
//! everything else is strips of rows. Coarser arrays of a pyramid are overviews. What is not known
//! for sure is left out, and the notes say so.

mod blocks;
mod gdal_metadata;
mod ifd;
mod keys;
mod overview;

use std::sync::Arc;

use super::around::{ArrayView, NodeResolver};
use super::content::NoContent;
use super::georef::context::{Context, Groups, Notes};
use super::georef::raster::Raster;
use super::georef::text::escape;
use super::georef::{RasterMetadata, crs_metadata, transform};
use super::layout::{ArrayExtent, FileLayout, Segment, VirtualFile};
use crate::array::ArrayReader;
use blocks::Blocks;
use ifd::{Image, Values, tag};
use overview::{Full, overviews};

/// Whether the metadata of an array and of the groups above it prove that there is an image of it.
///
/// # Errors
/// Why there is none; those of the store.
pub(super) fn is_certain(
    view: &ArrayView<'_>,
    around: &dyn NodeResolver,
) -> Result<bool, NoContent> {
    let groups = Groups::above(view, around, &mut Notes::default())?;
    let raster = RasterMetadata::raster(&Context::new(view, around, &groups))?;
    let (main, _) = image(&raster, view.reader, 0)?;
    // Tables are limited, and what is written of each band.
    let is_short = (main.tables_bytes()).is_some_and(|bytes| bytes <= MAX_CERTAIN_TABLES_BYTES);
    Ok(is_short && raster.samples <= MAX_CERTAIN_BANDS)
}

/// An array as a GeoTIFF.
///
/// # Errors
/// Why it is none; those of the store.
pub(super) fn make(
    view: &ArrayView<'_>,
    around: &dyn NodeResolver,
) -> Result<VirtualFile, NoContent> {
    let mut notes = Notes::default();
    let groups = Groups::above(view, around, &mut notes)?;
    let context = Context::new(view, around, &groups);
    let RasterMetadata {
        raster,
        georef,
        samples,
    } = RasterMetadata::of(&context, &mut notes)?;
    let order = raster.number.order;
    if let Some(crs) = georef.crs.as_ref().filter(|crs| crs.code.is_none()) {
        notes.add(format!(
            "the system {} has no code of EPSG: it is in the file beside it, .tif.aux.xml",
            crs.name()
        ));
    }

    let (mut main, placed) = image(&raster, view.reader, 0)?;
    main.fields.extend(keys::fields(&georef));
    main.fields.extend(samples.fields(&raster, &mut notes)?);
    let mut images = vec![main];
    let mut placements = vec![placed];
    let mut sources = vec![Arc::clone(view.reader)];
    let full = Full {
        raster: &raster,
        georef: &georef,
        samples: &samples,
    };
    for (node, coarse, conversion) in overviews(&context, full, &mut notes)? {
        let Some(reader) = node.reader() else {
            continue;
        };
        let (mut overview, mut placed) = match image(&coarse, reader, sources.len()) {
            Ok(made) => made,
            Err(why) => {
                notes.add(format!("{} is no overview: {why}", node.key()));
                continue;
            }
        };
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
    let mut parts = vec![Segment::Bytes(header.bytes)];
    for (placed, start) in placements.into_iter().zip(header.starts) {
        parts.push(Segment::Zeros(start.saturating_sub(at)));
        at = start.saturating_add(placed.size_bytes);
        parts.push(Segment::Array(placed));
    }
    let layout = FileLayout::new(parts).ok_or("no file can be so long".to_owned())?;
    Ok(VirtualFile {
        layout,
        sources,
        notes: notes.0,
    })
}

/// What GDAL reads beside a `.tif` (its "PAM"): the system, where no code of EPSG says it.
///
/// # Errors
/// Why there is none; those of the store.
pub(super) fn make_aux(
    view: &ArrayView<'_>,
    around: &dyn NodeResolver,
) -> Result<VirtualFile, NoContent> {
    let mut notes = Notes::default();
    let groups = Groups::above(view, around, &mut notes)?;
    let context = Context::new(view, around, &groups);
    let none = || NoContent::Absent("no system without a code of EPSG is known".into());
    if !crs_metadata::may_have_crs(&context) {
        return Err(none());
    }
    let raster = RasterMetadata::raster(&context)?;
    // Coordinates are read only where they matter.
    let said = transform::said_crs(&context, &raster)?.ok_or_else(none)?;
    if said.code.is_some() {
        return Err(none());
    }
    let georef = transform::find(&context, &raster, &mut notes)?;
    let crs = georef.crs.filter(|crs| crs.code.is_none());
    let srs = escape(&crs.ok_or_else(none)?.wkt);
    Ok(VirtualFile::text(format!(
        "<PAMDataset>\n  <SRS>{srs}</SRS>\n</PAMDataset>\n"
    )))
}

/// Images whose tables and bands are no more than this are within all limits of a header.
const MAX_CERTAIN_TABLES_BYTES: u64 = 1 << 20;
const MAX_CERTAIN_BANDS: u64 = 512;
/// GDAL and libtiff count the bytes of a strip or tile in a C `int`.
const MAX_BLOCK_BYTES: u64 = 0x7FFF_FFFF;

/// The image of a raster, without what is said only of the first one.
fn image(
    raster: &Raster,
    reader: &Arc<ArrayReader>,
    source: usize,
) -> Result<(Image, ArrayExtent), String> {
    let blocks = Blocks::of(raster, reader.piece_shape());
    let largest = blocks.largest_bytes();
    if largest > MAX_BLOCK_BYTES {
        return Err(format!(
            "a row of {largest} bytes is one strip: programs read strips below 2 GiB"
        ));
    }
    let placed = ArrayExtent::new(source, reader, blocks.order(), raster.conversion)
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
