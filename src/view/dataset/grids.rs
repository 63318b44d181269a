//! Grid mappings and coordinates of arrays whose grid is said in another way than that of CF.

use std::collections::HashSet;
use std::sync::Arc;

use super::attributes::name_of;
use super::dimensions::Scopes;
use super::{Attr, Attribute, Data, Item, Variable};
use crate::view::branch::Leaf;
use crate::view::georef::grid::{Grid, Member};
use crate::view::georef::raster::Direction;
use crate::view::number::{Kind, Number, Value};
use crate::zarr::ByteOrder;

/// Coordinates of one file that are computed: they take memory in its header.
const MAX_COORDINATES: u64 = 1 << 18;

const I4: Number = Number::new(Kind::Int, 4, ByteOrder::Little);
const F8: Number = Number::new(Kind::Float, 8, ByteOrder::Little);

/// Adds to the variables of a group what says where they are. `names` are those that the group has.
pub(super) fn add(
    leaves: &[Leaf],
    variables: &mut Vec<Variable>,
    names: &mut HashSet<String>,
    scopes: &mut Scopes,
) {
    let mut mappings: Vec<(&Grid, String)> = Vec::new();
    let mut added = Vec::new();
    for leaf in leaves {
        let (Some(grid), Some(name)) = (leaf.grid.as_deref(), name_of(leaf.node.name())) else {
            continue;
        };
        let Some(variable) = variables.iter_mut().find(|variable| variable.name == name) else {
            continue;
        };
        let is_same = |there: &Grid| there.crs == grid.crs && there.transform == grid.transform;
        let known = mappings.iter().find(|(there, _)| is_same(there));
        let mapping = match known {
            Some((_, mapping)) => mapping.clone(),
            None => {
                let mapping = free_name("spatial_ref", names);
                added.push(scalar(&mapping, grid));
                mappings.push((grid, mapping.clone()));
                mapping
            }
        };
        variable
            .attributes
            .retain(|there| there.name != "grid_mapping");
        variable.attributes.push(Attribute {
            name: "grid_mapping".into(),
            value: Attr::Text(mapping),
        });
    }
    for (direction, place) in [(Direction::Down, 0), (Direction::Across, 1)] {
        added.extend(coordinates(&mappings, direction, place, names, scopes));
    }
    variables.extend(added);
}

fn free_name(stem: &str, names: &mut HashSet<String>) -> String {
    let mut name = stem.to_owned();
    while !names.insert(name.clone()) {
        name.push('_');
    }
    name
}

fn attributes(members: Vec<(&str, Member)>) -> Vec<Attribute> {
    let attribute = |(name, value): (&str, Member)| Attribute {
        name: name.to_owned(),
        value: match value {
            Member::Text(text) => Attr::Text(text),
            Member::Numbers(values) => {
                Attr::Numbers(F8, values.into_iter().map(Value::Float).collect())
            }
        },
    };
    members.into_iter().map(attribute).collect()
}

fn scalar(name: &str, grid: &Grid) -> Variable {
    Variable {
        name: name.to_owned(),
        dimensions: Vec::new(),
        item: Item::Number(I4),
        data: Data::Numbers(Arc::new(vec![Value::Int(0)])),
        attributes: attributes(grid.mapping()),
        fill: None,
    }
}

/// Coordinates along the dimensions of one direction that the group declares and has none of. Grids
/// that put a dimension at different places have none.
fn coordinates(
    mappings: &[(&Grid, String)],
    direction: Direction,
    place: usize,
    names: &mut HashSet<String>,
    scopes: &mut Scopes,
) -> Vec<Variable> {
    let side = |grid: &Grid| {
        let (name, length) = grid.sides.get(place)?;
        Some((name_of(name.as_deref()?)?, *length))
    };
    let mut found = Vec::new();
    for (grid, _) in mappings {
        let (Some((name, length)), Some((first, step))) = (side(grid), grid.coordinates(direction))
        else {
            continue;
        };
        let is_told_apart = mappings.iter().any(|(other, _)| {
            side(other).is_some_and(|(other, _)| other == name)
                && other.coordinates(direction) != Some((first, step))
        });
        let Some(dimension) = scopes.declared_here(&name, length) else {
            continue;
        };
        let left = MAX_COORDINATES.saturating_sub(scopes.coordinates);
        if is_told_apart || length > left || !names.insert(name.clone()) {
            continue;
        }
        scopes.coordinates += length;
        #[expect(clippy::cast_precision_loss, reason = "at most 2^18")]
        let values = (0..length).map(|place| Value::Float(step.mul_add(place as f64, first)));
        found.push(Variable {
            name,
            dimensions: vec![dimension],
            item: Item::Number(F8),
            data: Data::Numbers(Arc::new(values.collect())),
            attributes: attributes(grid.axis(direction)),
            fill: None,
        });
    }
    found
}
