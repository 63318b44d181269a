//! OME-TIFF (OME Data Model, schema 2016-06): a directory for each plane; the levels of a pyramid are its `SubIFDs`.

mod xml;

use std::sync::Arc;

use super::Renderer;
use super::image_stack::{pixels, with_stack};
use super::row::{FormatRow, Listing, ViewName};
use crate::conventions::description::Field;
use crate::conventions::georef::overview::{FullImage, overviews};
use crate::fallible;
use crate::node::{ContentError, NodeResolver, ViewNode};
use crate::view::encode::tiff::{self, Directories, FieldValue, tag};
use crate::view::file::layout::VirtualFile;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "ome",
    ViewName::Suffix(".ome.tif"),
    "OME-TIFF with the levels of the pyramid",
    "tiffinfo",
    Renderer::Image(render),
)
.expressing(&[
    Field::ImageName,
    Field::AxisNames,
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Coordinates,
    Field::ChannelNames,
    Field::ChannelColors,
])
.also_called(&["ome.tiff", "ome-tiff", "ome-tif"])
.listed(Listing::ByName)];

/// Renders an array, or the finest level of an OME-NGFF image with the other levels, as an OME-TIFF.
///
/// # Errors
/// Returns why the file cannot be made, or an error of the store.
fn render(node: &ViewNode, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    with_stack(node, nodes, |stack, notes| {
        let raster = &stack.metadata.raster;
        let reader = stack.context.view.reader;
        let description = xml::describe(stack, notes)?;
        let mut images = vec![tiff::image(&pixels(raster), reader, 0)?];
        let mut sources = vec![Arc::clone(reader)];
        let full = FullImage {
            raster,
            georef: &stack.metadata.georef,
            samples: &stack.metadata.samples,
        };
        for (level, coarse, conversion) in overviews(stack.context, full, notes)? {
            let Some(reader) = level.reader() else {
                continue;
            };
            let (mut image, mut extent) = tiff::image(&pixels(&coarse), reader, sources.len())?;
            extent.conversion = conversion.or(extent.conversion);
            image
                .fields
                .push((tag::NEW_SUBFILE_TYPE, FieldValue::Long(1)));
            images.push((image, extent));
            sources.push(Arc::clone(reader));
        }
        let planes = fallible::collect(0..raster.samples)?;
        let first = [(tag::IMAGE_DESCRIPTION, FieldValue::Text(description))];
        let directories = Directories::Planes(&planes);
        let layout = tiff::encode_directories(&images, directories, &first, raster.number.order)?;
        Ok((layout, sources))
    })
}
