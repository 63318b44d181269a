//! GeoTIFF (OGC 19-008r4): a TIFF image with georeferencing, metadata in the tags of GDAL, and the coarser
//! arrays of a pyramid as overviews. Ambiguous metadata are left out, with a note.

mod gdal_metadata;
mod keys;
mod packed;

use std::sync::Arc;

use super::Renderer;
use super::packed::swapped;
use super::row::{FormatRow, GDAL, Listing, ViewName};
use crate::array::ArrayReader;
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::overview::{FullImage, overviews};
use crate::conventions::georef::raster::Raster;
use crate::conventions::georef::samples::SampleMetadata;
use crate::conventions::georef::transform::{self, Georef};
use crate::conventions::georef::{RasterMetadata, crs_metadata};
use crate::conventions::text::escape;
use crate::node::{ArrayView, ContentError, Conversion, NodeResolver};
use crate::view::encode::tiff::{self, FieldValue, Image, PixelLayout, tag};
use crate::view::file::layout::{Readability, Segment, VirtualFile};
use crate::zarr::ByteOrder;
use keys::CrsEncoding;
pub(in crate::view) use packed::{check as check_packed, render as render_packed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "tif",
        ViewName::Suffix(".tif"),
        "GeoTIFF",
        "gdalinfo",
        Renderer::ArrayWithNodes(metadata_prove, render),
    )
    .expressing(GDAL)
    .also_called(&["geotiff", "gtiff", "tiff"])
    .listed(Listing::ViewsAndGroup),
    FormatRow::new(
        "aux",
        ViewName::Suffix(".tif.aux.xml"),
        "the coordinate reference system of the .tif file, for GDAL",
        "gdalinfo",
        Renderer::UncheckedArray(render_aux),
    )
    .read_through(".tif"),
];

/// Returns whether the metadata of an array and its groups prove that the array has a GeoTIFF.
///
/// # Errors
/// Returns why the array has no GeoTIFF, or an error of the store.
fn metadata_prove(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<bool, ContentError> {
    let groups = Groups::above(view, nodes, &mut Notes::default())?;
    let raster = RasterMetadata::raster(&Context::new(view, nodes, &groups))?;
    let (main, _) = tiff::image(&pixels(&raster), view.reader, 0)?;
    // Sizes of the tables, and of the metadata of each band, are limited.
    let is_short = (main.tables_bytes()).is_some_and(|bytes| bytes <= MAX_PROVEN_TABLES_BYTES);
    Ok(is_short && raster.samples <= MAX_PROVEN_BANDS)
}

/// Renders an array as a GeoTIFF.
///
/// # Errors
/// Returns why the array has no GeoTIFF, or an error of the store.
fn render(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    render_with(view, nodes, false, |level, source| {
        let (image, mut extent) = tiff::image(&pixels(level.raster), level.view.reader, source)?;
        extent.conversion = level.conversion.or(extent.conversion);
        Ok((image, extent))
    })
}

/// An array, or a coarser level of it, that becomes an image of the file.
struct LevelView<'a> {
    view: &'a ArrayView<'a>,
    raster: &'a Raster,
    samples: &'a SampleMetadata,
    /// The conversion to the numbers of the file, if all levels of the pyramid have it.
    conversion: Option<Conversion>,
    /// The byte order of the file.
    order: ByteOrder,
}

/// Renders the file of an array and its coarser levels. `image` returns the image of a level by its index in
/// the file. `is_swapped` means that the file has the opposite byte order of the array.
fn render_with<E: Clone + Into<Segment>>(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
    is_swapped: bool,
    image: impl Fn(LevelView<'_>, usize) -> Result<(Image, E), ContentError>,
) -> Result<VirtualFile, ContentError> {
    let mut notes = Notes::default();
    let groups = Groups::above(view, nodes, &mut notes)?;
    let context = Context::new(view, nodes, &groups);
    let RasterMetadata {
        raster,
        georef,
        samples,
    } = RasterMetadata::of(&context, &mut notes)?;
    let order = match is_swapped {
        true => swapped(raster.number).order,
        false => raster.number.order,
    };
    note_crs(&georef, &mut notes);
    let level = LevelView {
        view,
        raster: &raster,
        samples: &samples,
        conversion: None,
        order,
    };
    let (mut main, extent) = image(level, 0)?;
    main.fields.extend(keys::fields(&georef));
    main.fields.extend(samples.fields(&raster, &mut notes)?);
    let mut images = vec![(main, extent)];
    let mut sources = vec![Arc::clone(view.reader)];
    let full = FullImage {
        raster: &raster,
        georef: &georef,
        samples: &samples,
    };
    for (overview, reader) in overview_images(&context, full, order, image, &mut notes)? {
        images.push(overview);
        sources.push(reader);
    }
    let layout = match tiff::encode(&images, order) {
        Err(ContentError::Absent(reason)) if images.len() > 1 => {
            notes.add(format!("overviews are left out: {reason}"));
            images.truncate(1);
            sources.truncate(1);
            tiff::encode(&images, order)?
        }
        layout => layout?,
    };
    Ok(VirtualFile {
        layout,
        sources,
        notes: notes.0,
        block_bytes: 1,
        readability: Readability::default(),
    })
}

/// The image of a coarser level with its elements, and their reader.
type OverviewImage<E> = ((Image, E), Arc<ArrayReader>);

/// Returns the images of the coarser levels of an array. `image` is as in [`render_with`].
fn overview_images<E>(
    context: &Context<'_>,
    full: FullImage<'_>,
    order: ByteOrder,
    image: impl Fn(LevelView<'_>, usize) -> Result<(Image, E), ContentError>,
    notes: &mut Notes,
) -> Result<Vec<OverviewImage<E>>, ContentError> {
    let mut images = Vec::new();
    for (node, coarse, conversion) in overviews(context, full, notes)? {
        let Some(view) = node.array_view() else {
            continue;
        };
        let level = LevelView {
            view: &view,
            raster: &coarse,
            samples: full.samples,
            conversion,
            order,
        };
        match image(level, images.len() + 1) {
            Ok((mut overview, extent)) => {
                let reduced = (tag::NEW_SUBFILE_TYPE, FieldValue::Long(1));
                overview.fields.push(reduced);
                images.push(((overview, extent), Arc::clone(view.reader)));
            }
            Err(ContentError::Absent(reason)) => {
                notes.add(format!("{} is no overview: {reason}", node.key()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(images)
}

/// Notes if readers find the coordinate reference system only as WKT, or beside the file.
fn note_crs(georef: &Georef, notes: &mut Notes) {
    let Some(crs) = &georef.crs else {
        return;
    };
    let name = crs.name();
    match keys::crs_encoding(crs) {
        CrsEncoding::Keys => {}
        CrsEncoding::Wkt => notes.add(format!(
            "the system {name} has no keys of GeoTIFF: it is in the file as WKT, which GDAL reads"
        )),
        CrsEncoding::None => notes.add(format!(
            "the system {name} cannot be in the file: it is in the one beside it, .tif.aux.xml"
        )),
    }
}

/// Renders GDAL's auxiliary file of a `.tif` ("PAM"), for a reference system without an EPSG code.
///
/// # Errors
/// Returns why the file cannot be made, or an error of the store.
fn render_aux(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    let mut notes = Notes::default();
    let groups = Groups::above(view, nodes, &mut notes)?;
    let context = Context::new(view, nodes, &groups);
    let none = || ContentError::Absent("no system without a code of EPSG is known".into());
    if !crs_metadata::may_have_crs(&context) {
        return Err(none());
    }
    let raster = RasterMetadata::raster(&context)?;
    // Coordinates are read only if the result depends on them.
    let declared = transform::declared_crs(&context, &raster)?.ok_or_else(none)?;
    if declared.code.is_some() {
        return Err(none());
    }
    let georef = transform::find(&context, &raster, &mut notes)?;
    let crs = georef.crs.filter(|crs| crs.code.is_none());
    let srs = escape(&crs.ok_or_else(none)?.wkt);
    Ok(VirtualFile::text(format!(
        "<PAMDataset>\n  <SRS>{srs}</SRS>\n</PAMDataset>\n"
    )))
}

/// An image with at most so many bytes of tables and so many bands is within all limits of a header.
const MAX_PROVEN_TABLES_BYTES: u64 = 1 << 20;
const MAX_PROVEN_BANDS: u64 = 512;

fn pixels(raster: &Raster) -> PixelLayout {
    PixelLayout {
        width: raster.width,
        height: raster.height,
        samples: raster.samples,
        is_chunky: raster.is_chunky,
        planes: raster.planes.clone(),
        number: raster.number,
        numbers: raster.numbers,
        conversion: raster.conversion,
    }
}
