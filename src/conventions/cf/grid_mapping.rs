//! The variable with the coordinate reference system of an array.

use std::sync::Arc;

use serde_json::Value as Json;

use super::mapping_system::has_system;
use super::names::GRID_MAPPING;
use crate::conventions::georef::context::{Context, Notes, short};
use crate::conventions::georef::crs_metadata::may_have_crs;
use crate::conventions::georef::raster::Raster;
use crate::conventions::geozarr::group_with_system;
use crate::node::{ContentError, ViewNode};
use crate::zarr::Array;

/// Returns the node of `grid_mapping` (CF 1.13, 5.6) for the axes of a raster.
pub(crate) fn grid_mapping(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Option<Arc<ViewNode>>, ContentError> {
    let Some(value) = context.own(GRID_MAPPING) else {
        return Ok(None);
    };
    let axes = raster.down.as_deref().zip(raster.across.as_deref());
    let name = match value.as_str().ok_or("grid_mapping is no text".to_owned()) {
        Ok(text) => name_for(text, axes),
        Err(why) => Err(why),
    };
    let name = match name {
        Ok(name) => name,
        Err(why) => {
            notes.add(why);
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

/// Returns the names of the grid mappings of an array.
pub(crate) fn names_of(array: &Array) -> Vec<&str> {
    let text = array.attribute(GRID_MAPPING).and_then(Json::as_str);
    let words = text.unwrap_or_default().split_whitespace();
    match words.clone().next() {
        Some(first) if !first.ends_with(':') => vec![first],
        Some(_) => words.filter_map(|word| word.strip_suffix(':')).collect(),
        None => Vec::new(),
    }
}

/// Returns the name of the grid mapping for the coordinates `axes` (y and x). The text is a name, or a list
/// of names with their coordinates: `utm: x y wgs: lat lon`.
///
/// # Errors
/// Returns why the text names no grid mapping or several.
fn name_for<'a>(text: &'a str, axes: Option<(&str, &str)>) -> Result<&'a str, String> {
    let mut words = text.split_whitespace().peekable();
    let first = words.peek().copied().ok_or("grid_mapping is empty")?;
    if !first.ends_with(':') {
        return Ok(first);
    }
    let mut entries: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        match (word.strip_suffix(':'), entries.last_mut()) {
            (Some(name), _) => entries.push((name, Vec::new())),
            (None, Some((_, coordinates))) => coordinates.push(word),
            (None, None) => {}
        }
    }
    let is_only = entries.len() == 1;
    let applies = |coordinates: &[&str]| match axes {
        Some((down, across)) => coordinates.contains(&down) && coordinates.contains(&across),
        None => is_only,
    };
    let is_for_axes =
        |coordinates: &[&str]| (is_only && coordinates.is_empty()) || applies(coordinates);
    let mut found = entries
        .iter()
        .filter(|(_, coordinates)| is_for_axes(coordinates));
    let axes = axes.unwrap_or(("y", "x"));
    let (down, across) = (short(axes.0), short(axes.1));
    match (found.next(), found.next()) {
        (Some((name, _)), None) => Ok(name),
        (None, _) => Err(format!(
            "grid_mapping has no system for {across} and {down}"
        )),
        (Some(_), Some(_)) => Err(format!(
            "grid_mapping has several systems for {across} and {down}"
        )),
    }
}

/// The name of a grid mapping in rioxarray, odc-geo and GDAL's netCDF driver.
pub(crate) const DEFAULT_GRID_MAPPING: &str = "spatial_ref";

/// Returns whether the attributes of an array name a grid mapping with a system, or several systems.
pub(crate) fn is_cf(context: &Context<'_>, raster: &Raster) -> Result<bool, ContentError> {
    let own = context
        .own(GRID_MAPPING)
        .and_then(serde_json::Value::as_str);
    if own.is_some_and(|text| text.contains(':')) {
        return Ok(true);
    }
    let node = grid_mapping(context, raster, &mut Notes::default())?;
    Ok(node.is_some_and(|node| node.metadata().attributes().map_or(true, has_system)))
}

/// Returns whether the group of an array has a variable of the default name.
pub(crate) fn has_default(context: &Context<'_>) -> Result<bool, ContentError> {
    Ok(context.in_group(DEFAULT_GRID_MAPPING)?.is_some())
}

/// Returns the grid mapping of this name in the group of an array with coordinates, if no metadata name a
/// system. xarray drops the attribute `grid_mapping` when `to_zarr` is called with an `encoding`.
pub(crate) fn default_grid_mapping(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Option<Arc<ViewNode>>, ContentError> {
    let is_declared = may_have_crs(context) || group_with_system(context).is_some();
    if is_declared || raster.across.is_none() || raster.down.is_none() {
        return Ok(None);
    }
    let node = context.in_group(DEFAULT_GRID_MAPPING)?.filter(|node| {
        let array = node.metadata().as_array();
        let is_single = array.is_some_and(|array| array.shape.iter().all(|length| *length == 1));
        is_single && node.metadata().attributes().is_ok_and(has_system)
    });
    if node.is_some() {
        notes.add(format!(
            "the system is that of {DEFAULT_GRID_MAPPING}, which no attribute grid_mapping names"
        ));
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_mapping_of_an_array_is_that_of_its_axes() {
        let axes = Some(("y", "x"));
        for (text, expected) in [
            ("crs", Some("crs")),
            (" crs other", Some("crs")),
            ("crs:", Some("crs")),
            ("crs: x y", Some("crs")),
            ("utm: x y wgs: lat lon", Some("utm")),
            ("wgs: lat lon  utm: y x time", Some("utm")),
            ("wgs: lat lon", None),
            ("utm: x wgs: y", None),
            ("utm: x y other: y x", None),
            ("utm: wgs:", None),
            ("", None),
        ] {
            assert_eq!(name_for(text, axes).ok(), expected, "{text:?}");
        }
        assert_eq!(name_for("crs: x y", None), Ok("crs"));
        assert!(name_for("a: x y b: lat lon", None).is_err());
    }
}
