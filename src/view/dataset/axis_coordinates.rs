//! Coordinates of axes that attributes describe, as those of OME-Zarr and N5 do: numbers of a spacing, or the names of
//! channels.
//!
//! Coordinates apply to all variables with their dimension. So a dimension has some only if all of them declare the
//! same ones. Numbers are a coordinate variable. Text is not (CF 1.13, 6.1 "Labels"; CDO reads no file with such a
//! variable): names are a variable of their own, which other variables name in the attribute `coordinates`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::attributes::name_of;
use super::dimensions::Scopes;
use super::grids::{MAX_COORDINATES, coordinates, free_name};
use super::{Attribute, AttributeValue, Data, Dimension, Group, Variable, VariableType};
use crate::conventions::cf::names::{COORDINATES, UNITS};
use crate::conventions::description::{Axis, AxisKind, Channel, DeclaredAxes};
use crate::conventions::ome::{COLOR, ORIENTATION};
use crate::store::Key;

/// The name of the variable with the names of channels.
const LABELS: &str = "channel";

/// The coordinates along an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AxisCoordinates {
    /// Numbers with the same distance.
    Even {
        first: f64,
        spacing: f64,
        unit: Option<String>,
        orientation: Option<&'static str>,
    },
    /// Channels.
    Channels(Vec<Channel>),
}

/// What variables say of the coordinates along each dimension, by its index.
#[derive(Debug, Default)]
pub(super) struct CoordinatesByDimension(BTreeMap<usize, DimensionCoordinates>);

/// What variables say of the coordinates along one dimension.
#[derive(Debug)]
struct DimensionCoordinates {
    /// What the first variable says.
    coordinates: Option<AxisCoordinates>,
    /// Whether all variables say the same.
    is_same: bool,
    /// The first array that declares coordinates.
    array: Option<Key>,
}

/// Returns the coordinates along axes that dimensions are named after; `None` for other axes. Notes are about what no
/// coordinate variable can have.
pub(super) fn of_array(
    declared: &DeclaredAxes,
    shape: &[u64],
    note: &mut impl FnMut(String),
) -> Vec<Option<AxisCoordinates>> {
    let mut found = Vec::with_capacity(declared.axes.len());
    let axes = declared.axes.iter().zip(shape);
    for (place, (axis, length)) in axes.enumerate() {
        let has_name = axis.name.as_deref().and_then(name_of).is_some();
        let coordinates = match axis.kind {
            AxisKind::Channel => channels(&declared.channels, *length),
            _ => even(axis, declared.is_turned),
        };
        let coordinates = coordinates.and_then(|coordinates| match (&coordinates, has_name) {
            (Some(_), false) => Err("coordinates are left out: it has no name"),
            _ => Ok(coordinates),
        });
        if let Err(why) = &coordinates {
            note(format!("axis {place}: {why}"));
        }
        found.push(coordinates.unwrap_or_default());
    }
    found
}

/// Returns the coordinates of an axis in space or time.
///
/// # Errors
/// What is left out, and why.
fn even(axis: &Axis, is_turned: bool) -> Result<Option<AxisCoordinates>, &'static str> {
    let Some(spacing) = axis.spacing else {
        return match (&axis.unit, axis.orientation) {
            (None, None) => Ok(None),
            _ => Err("unit and orientation are left out: it has no spacing"),
        };
    };
    if is_turned {
        return Err("its coordinates are left out: they are turned against the axes");
    }
    Ok(Some(AxisCoordinates::Even {
        first: axis.origin.unwrap_or(0.0),
        spacing,
        unit: axis.unit.clone(),
        orientation: axis.orientation.map(|orientation| orientation.name()),
    }))
}

/// Returns the channels along an axis, if they have names or colours.
///
/// # Errors
/// What is left out, and why.
fn channels(channels: &[Channel], length: u64) -> Result<Option<AxisCoordinates>, &'static str> {
    if channels
        .iter()
        .all(|channel| *channel == Channel::default())
    {
        return Ok(None);
    }
    if channels.len() as u64 != length {
        return Err("names and colours of channels are left out: they are not as many as elements");
    }
    match channels.iter().any(|channel| channel.name.is_some()) {
        true => Ok(Some(AxisCoordinates::Channels(channels.to_vec()))),
        false => Err("the colours of channels are left out: they have no names"),
    }
}

impl AxisCoordinates {
    /// Returns the variable that has these coordinates along a dimension.
    fn variable(&self, name: String, dimension: usize, length: u64) -> Variable {
        match self {
            Self::Even {
                first,
                spacing,
                unit,
                orientation,
            } => {
                let text = |name: &str, text: &str| Attribute {
                    name: name.to_owned(),
                    value: AttributeValue::Text(text.to_owned()),
                };
                let unit = unit.as_ref().map(|unit| text(UNITS, unit));
                let orientation = orientation.map(|value| text(ORIENTATION, value));
                let attributes = unit.into_iter().chain(orientation).collect();
                coordinates(name, dimension, length, (*first, *spacing), attributes)
            }
            Self::Channels(channels) => {
                let names = channels.iter().enumerate().map(|(place, channel)| {
                    // Text in HDF5 ends at NUL.
                    let name = channel.name.clone().filter(|name| !name.contains('\0'));
                    name.unwrap_or_else(|| place.to_string())
                });
                Variable {
                    name,
                    dimensions: vec![dimension],
                    item: VariableType::Text,
                    data: Data::Texts(Arc::new(names.collect())),
                    attributes: colors(channels).into_iter().collect(),
                    fill: None,
                    stored: None,
                }
            }
        }
    }
}

/// Returns the attribute with the colours of all channels, as OME-Zarr writes them.
fn colors(channels: &[Channel]) -> Option<Attribute> {
    let colors = channels.iter().map(|channel| channel.color);
    let colors: Vec<String> = colors
        .map(|color| color.map(|[r, g, b]| format!("{r:02X}{g:02X}{b:02X}")))
        .collect::<Option<_>>()?;
    Some(Attribute {
        name: COLOR.to_owned(),
        value: AttributeValue::Text(colors.join(" ")),
    })
}

impl CoordinatesByDimension {
    /// Adds the coordinates of an array along its dimensions.
    pub(super) fn add(
        &mut self,
        array: &Key,
        dimensions: &[usize],
        coordinates: &[Option<AxisCoordinates>],
    ) {
        for (place, dimension) in dimensions.iter().enumerate() {
            let own = coordinates.get(place).and_then(Option::as_ref);
            let known = self.0.entry(*dimension);
            let known = known.or_insert_with(|| DimensionCoordinates {
                coordinates: own.cloned(),
                is_same: true,
                array: None,
            });
            known.is_same &= known.coordinates.as_ref() == own;
            if known.array.is_none() && own.is_some() {
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
        let (Some(declared), Some(dimension)) = (
            scopes.axis_coordinates.0.get(number),
            scopes.by_number(*number),
        ) else {
            continue;
        };
        let Some(array) = &declared.array else {
            continue;
        };
        let Dimension { name, length, .. } = dimension.clone();
        let left = MAX_COORDINATES.saturating_sub(scopes.coordinates);
        let coordinates = match &declared.coordinates {
            Some(AxisCoordinates::Even { .. }) | None if names.contains(&name) => {
                Err("something else has its name")
            }
            _ if length > left => Err("they would be too many for one file"),
            Some(coordinates) if declared.is_same => Ok(coordinates),
            _ => Err("other arrays with the dimension have others, or none"),
        };
        match coordinates {
            Ok(coordinates) => {
                scopes.coordinates += length;
                if length < 2 && matches!(coordinates, AxisCoordinates::Even { .. }) {
                    notes.push(format!(
                        "{array}: the spacing of the dimension {name} is left out: coordinates of {length} elements \
                         have none"
                    ));
                }
                let is_label = matches!(coordinates, AxisCoordinates::Channels(_));
                let name = match is_label {
                    true => free_name(LABELS, &mut names),
                    false => name,
                };
                let variable = coordinates.variable(name.clone(), *number, length);
                if is_label {
                    scopes.labels.push((*number, name));
                }
                group.variables.push(variable);
            }
            Err(why) => notes.push(format!(
                "{array}: the coordinates of the dimension {name} are left out: {why}"
            )),
        }
    }
    for group in &mut group.groups {
        add(group, scopes, notes);
    }
}

/// Names auxiliary coordinates in the attributes of all variables with a dimension.
pub(super) fn name_labels(group: &mut Group, dimension: usize, labels: &str) {
    let with_dimension = |variable: &&mut Variable| {
        variable.dimensions.contains(&dimension) && variable.name != labels
    };
    for variable in group.variables.iter_mut().filter(with_dimension) {
        let mut attributes = variable.attributes.iter_mut();
        match attributes.find(|attribute| attribute.name == COORDINATES) {
            None => variable.attributes.push(Attribute {
                name: COORDINATES.to_owned(),
                value: AttributeValue::Text(labels.to_owned()),
            }),
            Some(Attribute {
                value: AttributeValue::Text(others),
                ..
            }) => {
                others.push(' ');
                others.push_str(labels);
            }
            // No list of names.
            Some(_) => {}
        }
    }
    for group in &mut group.groups {
        name_labels(group, dimension, labels);
    }
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
            let found = of_array(&axes, &[2, 3], &mut |note| panic!("{note}"));
            scopes.axis_coordinates.add(&key(name), &[y, x], &found);
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
    fn channels_with_names_are_coordinates() {
        let channel = |name: &str, color| Channel {
            name: (!name.is_empty()).then(|| name.to_owned()),
            color,
        };
        let blue = Some([0, 0, 255]);
        let mut axes = DeclaredAxes {
            axes: vec![Axis {
                name: Some("c".to_owned()),
                kind: AxisKind::Channel,
                ..Axis::default()
            }],
            channels: vec![channel("DAPI", blue), channel("", Some([1, 2, 3]))],
            ..DeclaredAxes::default()
        };
        let found = of_array(&axes, &[2], &mut |note| panic!("{note}"));
        let [Some(coordinates)] = &found[..] else {
            panic!("{found:?}");
        };
        let variable = coordinates.variable("c".to_owned(), 7, 2);
        let Data::Texts(texts) = &variable.data else {
            panic!("{variable:?}");
        };
        assert_eq!(texts[..], ["DAPI", "1"]);
        let colors = AttributeValue::Text("0000FF 010203".to_owned());
        assert_eq!(variable.attributes[0].value, colors);
        // Every variable with the dimension names it.
        let mut scopes = Scopes::default();
        scopes.enter([]);
        let dimension = scopes.dimension("c", 2, &[]);
        let key = Key::new(b"a").unwrap();
        scopes.axis_coordinates.add(&key, &[dimension], &found);
        let mut image = coordinates.variable("channel".to_owned(), dimension, 2);
        let text = AttributeValue::Text("lat".to_owned());
        let name = COORDINATES.to_owned();
        image.attributes = vec![Attribute { name, value: text }];
        let mut group = Group {
            name: String::new(),
            dimensions: scopes.leave(),
            variables: vec![image],
            attributes: Vec::new(),
            groups: Vec::new(),
        };
        add(&mut group, &mut scopes, &mut Vec::new());
        assert_eq!(scopes.labels, [(dimension, "channel_".to_owned())]);
        name_labels(&mut group, dimension, "channel_");
        let [image, labels] = &group.variables[..] else {
            panic!("{group:?}");
        };
        assert_eq!(labels.name, "channel_");
        let names = AttributeValue::Text("lat channel_".to_owned());
        assert_eq!(image.attributes[0].value, names);
        // Not as many as elements, and none with a name.
        let mut notes = Vec::new();
        assert_eq!(of_array(&axes, &[3], &mut |note| notes.push(note)), [None]);
        axes.channels = vec![channel("", blue)];
        assert_eq!(of_array(&axes, &[1], &mut |note| notes.push(note)), [None]);
        axes.channels = vec![Channel::default(); 2];
        assert_eq!(of_array(&axes, &[2], &mut |note| notes.push(note)), [None]);
        assert_eq!(notes.len(), 2, "{notes:?}");
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
            assert_eq!(of_array(&axes, &[1], &mut |note| notes.push(note)), [None]);
            assert_eq!(notes.len(), 1);
        }
    }
}
