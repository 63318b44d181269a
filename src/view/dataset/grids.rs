//! Grid mappings and coordinates of arrays whose system is not that of a grid mapping that they name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::attributes::name_of;
use super::dimensions::Scopes;
use super::{Attribute, AttributeValue, Data, Group, Variable, VariableType};
use crate::conventions::cf::grid_mapping::DEFAULT_GRID_MAPPING;
use crate::conventions::cf::names::GRID_MAPPING;
use crate::conventions::georef::grid::{Grid, GridAttribute};
use crate::conventions::georef::raster::Direction;
use crate::node::{Number, NumberKind, Value};
use crate::view::group::tree::GroupArray;
use crate::zarr::ByteOrder;

/// The maximum number of computed coordinates of a file; they take memory in its header.
pub(super) const MAX_COORDINATES: u64 = 1 << 18;

const I4: Number = Number::new(NumberKind::Int, 4, ByteOrder::Little);
const F8: Number = Number::new(NumberKind::Float, 8, ByteOrder::Little);

/// Adds grid mappings and coordinates to the variables of a group. `names` are the names in use,
/// `groups` the subgroups.
pub(super) fn add(
    arrays: &[GroupArray],
    groups: &[Group],
    variables: &mut Vec<Variable>,
    names: &mut HashSet<String>,
    scopes: &mut Scopes,
) {
    let grids: HashMap<String, &Grid> = (arrays.iter())
        .filter_map(|member| Some((name_of(member.node.name())?, member.grid.as_deref()?)))
        .collect();
    let mut mappings: Vec<(&Grid, String)> = Vec::new();
    for variable in variables.iter_mut() {
        let Some(grid) = grids.get(&variable.name) else {
            continue;
        };
        if let Some(mapping) = grid.mapping.filter(|mapping| names.contains(*mapping)) {
            set_grid_mapping(variable, mapping.to_owned());
            continue;
        }
        let is_same = |there: &Grid| there.crs == grid.crs && there.transform == grid.transform;
        let known = mappings.iter().find(|(there, _)| is_same(there));
        let mapping = match known {
            Some((_, mapping)) => mapping.clone(),
            None => {
                let mapping = free_name(DEFAULT_GRID_MAPPING, names);
                mappings.push((grid, mapping.clone()));
                mapping
            }
        };
        set_grid_mapping(variable, mapping);
    }
    let mut added = Vec::new();
    for (direction, place) in [(Direction::Down, 0), (Direction::Across, 1)] {
        for (grid, _) in &mappings {
            let side = grid.spatial_axes.get(place).and_then(|(name, length)| {
                let name = name_of(name.as_deref()?)?;
                Some((scopes.declared_here(&name, *length)?, name, *length))
            });
            let (Some((dimension, name, length)), Some(first)) =
                (side, grid.coordinates(direction))
            else {
                continue;
            };
            // Coordinates apply to all variables with the dimension.
            let has_other = variables.iter().any(|variable| {
                let other = grids
                    .get(&variable.name)
                    .map(|grid| grid.coordinates(direction));
                has(variable, dimension) && other != Some(Some(first))
            });
            let left = MAX_COORDINATES.saturating_sub(scopes.coordinates);
            if has_other
                || length > left
                || groups.iter().any(|group| is_in(group, dimension))
                || !names.insert(name.clone())
            {
                continue;
            }
            scopes.coordinates += length;
            let attributes = attributes(grid.axis(direction));
            added.push(coordinates(name, dimension, length, first, attributes));
        }
    }
    variables.extend(mappings.iter().map(|(grid, name)| scalar(name, grid)));
    variables.extend(added);
}

/// Sets the grid mapping of a variable, in place of one without a system.
fn set_grid_mapping(variable: &mut Variable, mapping: String) {
    let name = GRID_MAPPING.to_owned();
    variable.attributes.retain(|other| other.name != name);
    let value = AttributeValue::Text(mapping);
    variable.attributes.push(Attribute { name, value });
}

fn has(variable: &Variable, dimension: usize) -> bool {
    variable.dimensions.len() > 1 && variable.dimensions.contains(&dimension)
}

fn is_in(group: &Group, dimension: usize) -> bool {
    let has_it = |variable: &Variable| variable.dimensions.contains(&dimension);
    group.variables.iter().any(has_it) || group.groups.iter().any(|group| is_in(group, dimension))
}

pub(super) fn free_name(stem: &str, names: &mut HashSet<String>) -> String {
    let mut name = stem.to_owned();
    while !names.insert(name.clone()) {
        name.push('_');
    }
    name
}

fn attributes(members: Vec<(&str, GridAttribute)>) -> Vec<Attribute> {
    let attribute = |(name, value): (&str, GridAttribute)| Attribute {
        name: name.to_owned(),
        value: match value {
            GridAttribute::Text(text) => AttributeValue::Text(text),
            GridAttribute::Numbers(values) => {
                AttributeValue::Numbers(F8, values.into_iter().map(Value::Float).collect())
            }
        },
    };
    members.into_iter().map(attribute).collect()
}

fn scalar(name: &str, grid: &Grid) -> Variable {
    Variable {
        name: name.to_owned(),
        dimensions: Vec::new(),
        item: VariableType::Number(I4),
        data: Data::Numbers(Arc::new(vec![Value::Int(0)])),
        attributes: attributes(grid.mapping()),
        fill: None,
        stored: None,
    }
}

/// Returns a coordinate variable with this first coordinate and step.
pub(super) fn coordinates(
    name: String,
    dimension: usize,
    length: u64,
    (first, step): (f64, f64),
    attributes: Vec<Attribute>,
) -> Variable {
    #[expect(clippy::cast_precision_loss, reason = "at most 2^18")]
    let values = (0..length).map(|place| Value::Float(step.mul_add(place as f64, first)));
    Variable {
        name,
        dimensions: vec![dimension],
        item: VariableType::Number(F8),
        data: Data::Numbers(Arc::new(values.collect())),
        attributes,
        fill: None,
        stored: None,
    }
}
