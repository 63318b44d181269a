//! An array, or the finest level of an OME-NGFF image, as a stack of images: the input of the formats of microscopes,
//! [`ome_tiff`](super::ome_tiff) and [`imagej`](super::imagej).

pub(super) mod axes;

use std::sync::Arc;

use crate::array::ArrayReader;
use crate::conventions::description::Description;
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::raster::Raster;
use crate::conventions::ome;
use crate::node::{ContentError, NodeResolver, ViewNode};
use crate::store::Key;
use crate::view::encode::tiff::PixelLayout;
use crate::view::file::layout::{FileLayout, Readability, VirtualFile};
use axes::StackAxes;

/// An array as a stack of images.
pub(super) struct ImageStack<'a> {
    /// The name of the node whose file it is: of the image, or of the array.
    pub(super) name: &'a str,
    pub(super) context: &'a Context<'a>,
    pub(super) metadata: &'a RasterMetadata,
    pub(super) description: Description,
    pub(super) axes: StackAxes,
}

/// Returns whether a group has a stack, that is, whether it is an image of OME-NGFF.
pub(in crate::view) fn is_image(node: &ViewNode) -> bool {
    finest_path(node).is_some()
}

/// Returns whether metadata declare a node as a stack: an array with an axis t, c or z, or an OME-NGFF image.
pub(in crate::view) fn is_named(node: &ViewNode) -> bool {
    let Some(array) = node.metadata().as_array() else {
        return is_image(node);
    };
    let is_axis = |name: &Option<String>| {
        let name = name.as_deref().unwrap_or_default();
        ["t", "c", "z"]
            .iter()
            .any(|axis| name.eq_ignore_ascii_case(axis))
    };
    array.dimension_names.iter().any(is_axis)
}

/// A layout and its arrays.
type Rendered = (FileLayout, Vec<Arc<ArrayReader>>);

/// Renders the stack of a node.
///
/// # Errors
/// Returns why the node is no stack, an error of `render`, or an error of the store.
pub(super) fn with_stack(
    node: &ViewNode,
    nodes: &dyn NodeResolver,
    render: impl FnOnce(&ImageStack<'_>, &mut Notes) -> Result<Rendered, ContentError>,
) -> Result<VirtualFile, ContentError> {
    let level = match node.is_array() {
        true => None,
        false => Some(finest_level(node, nodes)?),
    };
    let name = node.name();
    let node = level.as_deref().unwrap_or(node);
    let unreadable = || format!("the elements of {} cannot be read", node.key());
    let view = node.array_view().ok_or_else(unreadable)?;
    let mut notes = Notes::default();
    let groups = Groups::above(&view, nodes, &mut notes)?;
    let context = Context::new(&view, nodes, &groups);
    // Georeferencing metadata are not part of these files.
    let metadata = RasterMetadata::of(&context, &mut Notes::default())?;
    let description = Description::of(&view, nodes, &mut notes)?;
    let axes = StackAxes::of(&description, &metadata.raster, &mut notes)?;
    let stack = ImageStack {
        name,
        context: &context,
        metadata: &metadata,
        description,
        axes,
    };
    let (layout, sources) = render(&stack, &mut notes)?;
    Ok(VirtualFile {
        layout,
        sources,
        notes: notes.0,
        block_bytes: 1,
        readability: Readability::default(),
    })
}

/// Returns the path of the finest level of the first image of a group.
fn finest_path(node: &ViewNode) -> Option<&str> {
    ome::finest_path(node.metadata().attributes().ok()?)
}

/// Returns the finest level of the first image of a group.
///
/// # Errors
/// Returns why the file cannot be made, or an error of the store.
pub(in crate::view) fn finest_level(
    node: &ViewNode,
    nodes: &dyn NodeResolver,
) -> Result<Arc<ViewNode>, ContentError> {
    let path = finest_path(node).ok_or_else(|| "no image of OME-NGFF".to_owned())?;
    let path = path.trim_start_matches("./").trim_end_matches('/');
    let below = Key::new(path.as_bytes()).map_err(|_| format!("{path:?} is no path of a level"))?;
    let key = node.key().join_key(&below);
    let level = nodes.node(&key)?.filter(|level| level.is_array());
    Ok(level.ok_or_else(|| format!("the level {key} is no array"))?)
}

/// Returns the pixels of a stack: an image for each plane.
pub(super) fn pixels(raster: &Raster) -> PixelLayout {
    PixelLayout {
        width: raster.width,
        height: raster.height,
        samples: 1,
        is_chunky: false,
        planes: raster.planes.clone(),
        number: raster.number,
        numbers: raster.numbers,
        conversion: raster.conversion,
    }
}
