//! Images of OME-Zarr, and the scales of levels of pyramids.

use serde_json::{Map, Value as Json};

use super::context::Context;
pub(crate) use crate::conventions::ome::vector;

/// Scales and translations along all axes.
pub(crate) type Vectors = (Vec<f64>, Vec<f64>);

pub(crate) fn are_scales(scale: &[f64]) -> bool {
    scale.iter().all(|scale| *scale > 0.0)
}

/// Returns the image that contains an array as a level: a member of the `multiscales` of a group.
pub(crate) fn ome_image<'a>(context: &Context<'a>) -> Option<&'a Map<String, Json>> {
    crate::conventions::ome::image_with(context.pyramid()?, context.level_entry()?)
}
