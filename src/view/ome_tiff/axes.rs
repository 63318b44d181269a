//! The axes of a stack: time, channel and depth outside of the two axes of an image.

use serde_json::Value as Json;

use super::super::georef::context::{Context, Notes, short};
use super::super::georef::raster::Raster;
use super::super::georef::scale::{OmeAxis, ome_axes, ome_image};

/// An axis outside of those of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StackAxis {
    Time,
    Channel,
    Depth,
}

/// The distance between adjacent elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AxisStep {
    pub(super) size: f64,
    /// The symbol of the unit in the OME Data Model (`UnitsLength`, `UnitsTime`).
    pub(super) unit: &'static str,
}

/// The axes of a stack.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StackAxes {
    /// The axes outside of those of an image with their lengths, in the order of the array.
    pub(super) above: Vec<(StackAxis, u64)>,
    /// The steps along z, y and x, and in time, if known.
    pub(super) depth: Option<AxisStep>,
    pub(super) down: Option<AxisStep>,
    pub(super) across: Option<AxisStep>,
    pub(super) time: Option<AxisStep>,
}

/// Names of units in OME-NGFF (UDUNITS-2), and their symbols in the OME Data Model.
const LENGTHS: [(&[&str], &str); 11] = [
    (&["angstrom", "Å"], "Å"),
    (&["picometer", "picometre", "pm"], "pm"),
    (&["nanometer", "nanometre", "nm"], "nm"),
    (
        &["micrometer", "micrometre", "micron", "um", "µm", "μm"],
        "µm",
    ),
    (&["millimeter", "millimetre", "mm"], "mm"),
    (&["centimeter", "centimetre", "cm"], "cm"),
    (&["decimeter", "decimetre", "dm"], "dm"),
    (&["meter", "metre", "m"], "m"),
    (&["kilometer", "kilometre", "km"], "km"),
    (&["inch"], "in"),
    (&["foot"], "ft"),
];
const TIMES: [(&[&str], &str); 7] = [
    (&["nanosecond", "ns"], "ns"),
    (&["microsecond", "us", "µs"], "µs"),
    (&["millisecond", "ms"], "ms"),
    (&["second", "s"], "s"),
    (&["minute", "min"], "min"),
    (&["hour", "h"], "h"),
    (&["day", "d"], "d"),
];

impl StackAxes {
    /// Returns the axes of an array.
    ///
    /// # Errors
    /// Returns why the array is no stack.
    pub(super) fn of(
        context: &Context<'_>,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Self, String> {
        let rank = context.view.shape().len();
        let names = names(context, rank)?;
        let wrong = || {
            let names: Vec<String> = names.iter().map(|name| short(name)).collect();
            format!(
                "axes ({}): a stack has y and x, and before them any of t, c and z",
                names.join(", ")
            )
        };
        let (above, sides) = names.split_last_chunk::<2>().ok_or_else(wrong)?;
        let is_image = sides[0].eq_ignore_ascii_case("y") && sides[1].eq_ignore_ascii_case("x");
        if !is_image || raster.is_chunky || above.len() != raster.planes.len() {
            return Err(wrong());
        }
        let mut found: Vec<(StackAxis, u64)> = Vec::new();
        for (name, length) in above.iter().zip(&raster.planes) {
            let axis = match name.to_ascii_lowercase().as_str() {
                "t" => StackAxis::Time,
                "c" => StackAxis::Channel,
                "z" => StackAxis::Depth,
                _ => return Err(wrong()),
            };
            if found.iter().any(|(other, _)| *other == axis) {
                return Err(wrong());
            }
            found.push((axis, *length));
        }
        let steps = ome_axes(context, rank).unwrap_or_default();
        let place = |axis| found.iter().position(|(other, _)| *other == axis);
        let mut step = |name: &str, place: Option<usize>, units: &[(&[&str], &'static str)]| {
            let step = steps.get(place?)?;
            let known = step_of(step, units);
            if known.is_none() {
                notes.add(format!(
                    "the step along {name} is left out: its unit is not known"
                ));
            }
            known
        };
        Ok(Self {
            depth: step("z", place(StackAxis::Depth), &LENGTHS),
            down: step("y", Some(found.len()), &LENGTHS),
            across: step("x", Some(found.len() + 1), &LENGTHS),
            time: step("t", place(StackAxis::Time), &TIMES),
            above: found,
        })
    }

    #[cfg(test)]
    pub(super) fn without_steps(above: &[(StackAxis, u64)]) -> Self {
        Self {
            above: above.to_vec(),
            depth: None,
            down: None,
            across: None,
            time: None,
        }
    }

    /// Returns the length along an axis; 1 if the array lacks it.
    pub(super) fn length(&self, axis: StackAxis) -> u64 {
        let found = self.above.iter().find(|(other, _)| *other == axis);
        found.map_or(1, |(_, length)| *length)
    }

    /// Returns the axes from the slowest to the fastest: first those that the array lacks, then those of the
    /// array.
    pub(super) fn order(&self) -> Vec<StackAxis> {
        let own = self.above.iter().map(|(axis, _)| *axis);
        let all = [StackAxis::Time, StackAxis::Channel, StackAxis::Depth];
        let missing = all
            .into_iter()
            .filter(|axis| self.above.iter().all(|(other, _)| other != axis));
        missing.chain(own).collect()
    }
}

fn step_of(axis: &OmeAxis, units: &[(&[&str], &'static str)]) -> Option<AxisStep> {
    let name = axis.unit.as_deref()?;
    let (_, unit) = units.iter().find(|(names, _)| names.contains(&name))?;
    let size = axis.scale;
    (size.is_finite() && size > 0.0).then_some(AxisStep { size, unit })
}

/// Returns the names of the axes: those of the OME-NGFF image, else those of the array.
fn names(context: &Context<'_>, rank: usize) -> Result<Vec<String>, String> {
    let unknown = || "its axes have no names: t, c, z, y and x are needed".to_owned();
    let Some(image) = ome_image(context) else {
        let names = context.view.array.dimension_names.iter().cloned();
        let names: Option<Vec<String>> = names.collect();
        return names
            .filter(|names| names.len() == rank)
            .ok_or_else(unknown);
    };
    let Some(axes) = image.get("axes") else {
        // Version 0.2 and before: always these five axes.
        let all = ["t", "c", "z", "y", "x"].map(str::to_owned);
        return (rank == all.len()).then(|| all.into()).ok_or_else(unknown);
    };
    let name = |axis: &Json| {
        // Version 0.3 has only names.
        let name = axis.get("name").unwrap_or(axis);
        name.as_str().map(str::to_owned)
    };
    let names = axes
        .as_array()
        .and_then(|axes| axes.iter().map(name).collect());
    names
        .filter(|names: &Vec<String>| names.len() == rank)
        .ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_an_array_lacks_are_the_slowest() {
        let stack = StackAxes::without_steps(&[(StackAxis::Depth, 7), (StackAxis::Channel, 3)]);
        assert_eq!(
            stack.order(),
            [StackAxis::Time, StackAxis::Depth, StackAxis::Channel]
        );
        assert_eq!(stack.length(StackAxis::Depth), 7);
        assert_eq!(stack.length(StackAxis::Time), 1);
    }

    #[test]
    fn steps_have_units_of_the_data_model() {
        let step = |unit: &str, scale: f64| {
            let axis = OmeAxis {
                scale,
                start: 0.0,
                unit: Some(unit.into()),
                name: None,
                kind: None,
            };
            step_of(&axis, &LENGTHS)
        };
        assert_eq!(
            step("micrometer", 0.5),
            Some(AxisStep {
                size: 0.5,
                unit: "µm"
            })
        );
        assert_eq!(step("parsec", 1.0), None);
        assert_eq!(step("meter", 0.0), None);
    }
}
