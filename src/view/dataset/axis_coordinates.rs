//! Coordinate variables of axes whose spacing attributes declare, as those of OME-Zarr and N5 do.
//!
//! A coordinate variable applies to all variables with its dimension. So a dimension has one only if all of them
//! declare the same spacing, origin and unit.

use std::collections::{BTreeMap, HashSet};

use super::attributes::name_of;
use super::dimensions::Scopes;
use super::grids::{MAX_COORDINATES, coordinates};
use super::{Attribute, AttributeValue, Dimension, Group};
use crate::conventions::cf::names::UNITS;
use crate::conventions::description::{Axis, AxisKind, DeclaredAxes};
use crate::store::Key;

/// The coordinates along an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    first: f64,
    spacing: f64,
    unit: Option<String>,
}

/// What variables say of the coordinates along each dimension, by its index.
#[derive(Debug, Default)]
pub(super) struct Spacings(BTreeMap<usize, Steps>);

/// What variables say of the coordinates along one dimension.
#[derive(Debug)]
struct Steps {
    /// What the first variable says.
    step: Option<Step>,
    /// Whether all variables say the same.
    is_same: bool,
    /// The first array that declares a spacing.
    array: Option<Key>,
}

/// Returns the steps along axes that dimensions are named after; `None` for other axes. Notes are about spacings and
/// units that no coordinates can have.
pub(super) fn named_steps(
    declared: &DeclaredAxes,
    note: &mut impl FnMut(String),
) -> Vec<Option<Step>> {
    let mut steps = Vec::with_capacity(declared.axes.len());
    for (place, axis) in declared.axes.iter().enumerate() {
        let has_name = axis.name.as_deref().and_then(name_of).is_some();
        let why = match (axis.spacing, &axis.unit) {
            // Channels are no places.
            _ if axis.kind == AxisKind::Channel => None,
            (None, None) => None,
            (None, Some(_)) => Some("the unit is left out: it has no spacing"),
            (Some(_), _) if declared.is_turned => Some(
                "spacing, origin and unit are left out: coordinates are turned against the axes",
            ),
            (Some(_), _) if !has_name => {
                Some("spacing, origin and unit are left out: it has no name")
            }
            (Some(_), _) => None,
        };
        if let Some(why) = why {
            note(format!("axis {place}: {why}"));
        }
        let is_place = axis.kind != AxisKind::Channel;
        steps.push(step(axis).filter(|_| why.is_none() && is_place));
    }
    steps
}

fn step(axis: &Axis) -> Option<Step> {
    Some(Step {
        first: axis.origin.unwrap_or(0.0),
        spacing: axis.spacing?,
        unit: axis.unit.clone(),
    })
}

impl Spacings {
    /// Adds the steps of an array along its dimensions.
    pub(super) fn add(&mut self, array: &Key, dimensions: &[usize], steps: &[Option<Step>]) {
        for (place, dimension) in dimensions.iter().enumerate() {
            let step = steps.get(place).and_then(Option::as_ref);
            let known = self.0.entry(*dimension).or_insert_with(|| Steps {
                step: step.cloned(),
                is_same: true,
                array: None,
            });
            known.is_same &= known.step.as_ref() == step;
            if known.array.is_none() && step.is_some() {
                known.array = Some(array.clone());
            }
        }
    }
}

/// Adds coordinate variables to a group and the groups below it, and notes on dimensions that cannot have them.
pub(super) fn add(group: &mut Group, scopes: &mut Scopes, notes: &mut Vec<String>) {
    let mut names: HashSet<String> = HashSet::new();
    names.extend(group.variables.iter().map(|it| it.name.clone()));
    names.extend(group.groups.iter().map(|it| it.name.clone()));
    for number in &group.dimensions {
        let (Some(steps), Some(dimension)) =
            (scopes.spacings.0.get(number), scopes.by_number(*number))
        else {
            continue;
        };
        let Some(array) = &steps.array else {
            continue;
        };
        let Dimension { name, length, .. } = dimension.clone();
        let left = MAX_COORDINATES.saturating_sub(scopes.coordinates);
        let step = match &steps.step {
            _ if names.contains(&name) => Err("something else has its name"),
            _ if length > left => Err("the coordinates would be too many for one file"),
            Some(step) if steps.is_same => Ok(step),
            _ => Err("other arrays with the dimension have other spacings, or none"),
        };
        match step {
            Ok(step) => {
                let attributes = units(step).into_iter().collect();
                let ends = (step.first, step.spacing);
                scopes.coordinates += length;
                if length < 2 {
                    notes.push(format!(
                        "{array}: the spacing of the dimension {name} is left out: coordinates of {length} elements \
                         have none"
                    ));
                }
                let variable = coordinates(name, *number, length, ends, attributes);
                group.variables.push(variable);
            }
            Err(why) => notes.push(format!(
                "{array}: spacing, origin and unit of the dimension {name} are left out: {why}"
            )),
        }
    }
    for group in &mut group.groups {
        add(group, scopes, notes);
    }
}

fn units(step: &Step) -> Option<Attribute> {
    Some(Attribute {
        name: UNITS.to_owned(),
        value: AttributeValue::Text(step.unit.clone()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, spacing: f64) -> Axis {
        Axis {
            name: (!name.is_empty()).then(|| name.to_owned()),
            spacing: Some(spacing),
            origin: Some(3.0),
            unit: Some("nm".to_owned()),
            ..Axis::default()
        }
    }

    #[test]
    fn coordinates_are_those_on_which_all_arrays_of_a_dimension_agree() {
        let mut scopes = Scopes::default();
        scopes.enter([]);
        let (y, x) = (scopes.dimension("y", 2, &[]), scopes.dimension("x", 3, &[]));
        let key = |name: &str| Key::new(name.as_bytes()).unwrap();
        for (name, spacing) in [("a", 2.0), ("b", 4.0)] {
            let axes = DeclaredAxes {
                axes: vec![axis("y", 0.5), axis("x", spacing)],
                ..DeclaredAxes::default()
            };
            let steps = named_steps(&axes, &mut |note| panic!("{note}"));
            scopes.spacings.add(&key(name), &[y, x], &steps);
        }
        let mut group = Group {
            name: String::new(),
            dimensions: scopes.leave(),
            variables: Vec::new(),
            attributes: Vec::new(),
            groups: Vec::new(),
        };
        let mut notes = Vec::new();
        add(&mut group, &mut scopes, &mut notes);
        let [only] = &group.variables[..] else {
            panic!("{group:?}");
        };
        assert_eq!((only.name.as_str(), &only.dimensions[..]), ("y", &[y][..]));
        let units = AttributeValue::Text("nm".to_owned());
        assert_eq!(only.attributes[0].value, units);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].contains("of the dimension x are left out"),
            "{notes:?}"
        );
    }

    #[test]
    fn axes_that_are_turned_or_have_no_name_have_no_steps() {
        for (name, is_turned) in [("x", true), ("", false)] {
            let axes = DeclaredAxes {
                axes: vec![axis(name, 1.0)],
                is_turned,
                ..DeclaredAxes::default()
            };
            let mut notes = Vec::new();
            assert_eq!(named_steps(&axes, &mut |note| notes.push(note)), [None]);
            assert_eq!(notes.len(), 1);
        }
    }
}
