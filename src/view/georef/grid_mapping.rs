//! The variable with the coordinate reference system of an array.

use std::sync::Arc;

use super::context::{Context, Notes, short};
use super::crs_metadata::{has_crs, may_have_crs, says_crs};
use super::raster::Raster;
use crate::view::content::ContentError;
use crate::view::node::ViewNode;

/// Returns the node of `grid_mapping` (CF 1.11, 5.6).
pub(super) fn grid_mapping(
    context: &Context<'_>,
    notes: &mut Notes,
) -> Result<Option<Arc<ViewNode>>, ContentError> {
    let Some(value) = context.own("grid_mapping") else {
        return Ok(None);
    };
    let words = value.as_str().map(|text| text.split_whitespace());
    let Some(words) = words else {
        notes.add("grid_mapping is no text");
        return Ok(None);
    };
    let names: Vec<&str> = words.clone().filter(|word| word.ends_with(':')).collect();
    let name = match (&names[..], words.clone().next()) {
        ([], Some(name)) => name,
        ([name], _) => name.trim_end_matches(':'),
        _ => {
            notes.add("grid_mapping names several systems or none");
            return Ok(None);
        }
    };
    let Some(node) = context.by_proximity(name)? else {
        notes.add(format!("there is no grid mapping {}", short(name)));
        return Ok(None);
    };
    if let Some(reason) = node.broken() {
        notes.add(format!("grid mapping {}: {reason}", short(name)));
        return Ok(None);
    }
    Ok(Some(node))
}

/// The name of a grid mapping in rioxarray, odc-geo and GDAL's netCDF driver.
const DEFAULT_GRID_MAPPING: &str = "spatial_ref";

/// Returns the grid mapping of this name in the group of an array with coordinates, if no metadata name a
/// system. xarray drops the attribute `grid_mapping` when `to_zarr` is called with an `encoding`.
pub(super) fn default_grid_mapping(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Option<Arc<ViewNode>>, ContentError> {
    let has_system = may_have_crs(context) || context.above().any(|(_, members)| says_crs(members));
    if has_system || raster.across.is_none() || raster.down.is_none() {
        return Ok(None);
    }
    let node = context.in_group(DEFAULT_GRID_MAPPING)?.filter(|node| {
        let array = node.metadata().as_array();
        let is_single = array.is_some_and(|array| array.shape.iter().all(|length| *length == 1));
        is_single && node.metadata().attributes().is_ok_and(has_crs)
    });
    if node.is_some() {
        notes.add(format!(
            "the system is that of {DEFAULT_GRID_MAPPING}, which no attribute grid_mapping names"
        ));
    }
    Ok(node)
}
