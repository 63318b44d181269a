//! GeoTIFF files whose tiles and strips are the stored chunks of an array.

use super::{LevelView, pixels, render_with};
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::raster::Raster;
use crate::conventions::georef::samples::SampleMetadata;
use crate::conventions::text::shown;
use crate::node::{ArrayView, ContentError, NodeResolver, Number};
use crate::view::encode::tiff::{self, Image};
use crate::view::file::layout::{StoredExtent, VirtualFile};
use crate::view::format::packed::{swapped, tiff_encoding};

/// Checks that the metadata of an array prove that the file exists, whichever chunks are missing.
///
/// # Errors
/// Returns why they do not prove it, or an error of the store.
pub(in crate::view) fn check(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<(), ContentError> {
    let form = tiff_encoding(view)?;
    let groups = Groups::above(view, nodes, &mut Notes::default())?;
    let context = Context::new(view, nodes, &groups);
    let raster = RasterMetadata::raster(&context)?;
    tiff::check_stored(&pixels(&raster), view.reader, &form.compression)?;
    // Chunks may be missing, so the fill value is checked.
    let samples = SampleMetadata::of(&context, &raster, &mut Notes::default())?;
    Ok(check_fill_value(view, &raster, &samples)?)
}

/// Renders an array as a GeoTIFF with its stored chunks.
///
/// # Errors
/// Returns why the array has no such file, or an error of the store.
pub(in crate::view) fn render(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<VirtualFile, ContentError> {
    let form = tiff_encoding(view)?;
    render_with(view, nodes, form.is_swapped, |level, source| {
        image(&level, nodes, source)
    })
}

fn image(
    level: &LevelView<'_>,
    nodes: &dyn NodeResolver,
    source: usize,
) -> Result<(Image, StoredExtent), ContentError> {
    let LevelView { view, raster, .. } = level;
    let form = tiff_encoding(view)?;
    let order = match form.is_swapped {
        true => swapped(raster.number).order,
        false => raster.number.order,
    };
    if order != level.order {
        return Err("its numbers have another byte order".to_owned().into());
    }
    let pixels = pixels(raster);
    // This check comes before the look-up of the sizes of all chunks.
    tiff::check_stored(&pixels, view.reader, &form.compression)?;
    let table = nodes.chunk_table(view.node)?;
    let (image, extent) =
        tiff::stored_image(&pixels, view.reader, source, &form.compression, table)?;
    if image.is_sparse() {
        form.compression.check_sparse(&pixels)?;
        check_fill_value(view, raster, level.samples)?;
    }
    Ok((image, extent))
}

/// Checks that readers use the fill value for a block that is not in the file: the nodata value, else 0.
///
/// # Errors
/// Returns why they do not.
fn check_fill_value(
    view: &ArrayView<'_>,
    raster: &Raster,
    samples: &SampleMetadata,
) -> Result<(), String> {
    let fill = view.reader.chunks().fill_value();
    let is_read = match (&samples.no_data, view.number()) {
        (Some(no_data), Some((own, 1))) => {
            let meant = Number {
                kind: raster.number.kind,
                ..own
            };
            Number::read(meant, fill).is_some_and(|value| shown(value) == *no_data)
        }
        (Some(_), _) => false,
        (None, _) => fill.iter().all(|byte| *byte == 0),
    };
    match is_read {
        true => Ok(()),
        false => Err(
            "chunks are missing, and programs do not read their fill value there: it is neither the value \
             without data nor 0"
                .into(),
        ),
    }
}
