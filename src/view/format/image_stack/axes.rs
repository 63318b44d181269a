//! The axes of a stack: time, channel and depth outside of the two axes of an image.

use crate::conventions::description::Description;
use crate::conventions::description::{Axis, AxisKind};
use crate::conventions::georef::context::{Notes, short};
use crate::conventions::georef::raster::Raster;
use crate::conventions::units::{ome_length, ome_time};

/// An axis outside of those of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view::format) enum StackAxis {
    Time,
    Channel,
    Depth,
}

/// The distance between adjacent elements, and the coordinate of the first one.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::view::format) struct AxisStep {
    pub(in crate::view::format) size: f64,
    pub(in crate::view::format) start: f64,
    /// The symbol of the unit in the OME Data Model (`UnitsLength`, `UnitsTime`).
    pub(in crate::view::format) unit: String,
}

/// The axes of a stack.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::view::format) struct StackAxes {
    /// The axes outside of those of an image with their lengths, in the order of the array.
    pub(in crate::view::format) above: Vec<(StackAxis, u64)>,
    /// The steps along z, y and x, and in time, if known.
    pub(in crate::view::format) depth: Option<AxisStep>,
    pub(in crate::view::format) down: Option<AxisStep>,
    pub(in crate::view::format) across: Option<AxisStep>,
    pub(in crate::view::format) time: Option<AxisStep>,
}

impl StackAxes {
    /// Returns the axes of an array.
    ///
    /// # Errors
    /// Returns why the array is no stack.
    pub(in crate::view::format) fn of(
        description: &Description,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Self, String> {
        let axes = &description.axes;
        let names: Option<Vec<&str>> = axes.iter().map(|axis| axis.name.as_deref()).collect();
        let names = names.ok_or("its axes have no names: t, c, z, y and x are needed")?;
        let wrong = || {
            let names: Vec<String> = names.iter().map(|name| short(name)).collect();
            format!(
                "axes ({}): a stack has y and x, and before them any of t, c and z",
                names.join(", ")
            )
        };
        let (above, sides) = axes.split_last_chunk::<2>().ok_or_else(wrong)?;
        let is_image = sides[0].is_named("y") && sides[1].is_named("x");
        if !is_image || raster.is_chunky || above.len() != raster.planes.len() {
            return Err(wrong());
        }
        let mut found = Self {
            above: Vec::new(),
            depth: None,
            down: length_step("y", &sides[0], notes),
            across: length_step("x", &sides[1], notes),
            time: None,
        };
        for (axis, length) in above.iter().zip(&raster.planes) {
            let own = stack_axis(axis).ok_or_else(wrong)?;
            if found.above.iter().any(|(other, _)| *other == own) {
                return Err(wrong());
            }
            match own {
                StackAxis::Depth => found.depth = length_step("z", axis, notes),
                StackAxis::Time => found.time = step("t", axis, ome_time, notes),
                StackAxis::Channel => {}
            }
            found.above.push((own, *length));
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(in crate::view::format) fn without_steps(above: &[(StackAxis, u64)]) -> Self {
        Self {
            above: above.to_vec(),
            depth: None,
            down: None,
            across: None,
            time: None,
        }
    }

    /// Returns the length along an axis; 1 if the array lacks it.
    pub(in crate::view::format) fn length(&self, axis: StackAxis) -> u64 {
        let found = self.above.iter().find(|(other, _)| *other == axis);
        found.map_or(1, |(_, length)| *length)
    }

    /// Returns the axes from the slowest to the fastest: first those that the array lacks, then those of the
    /// array.
    pub(in crate::view::format) fn order(&self) -> Vec<StackAxis> {
        let own = self.above.iter().map(|(axis, _)| *axis);
        let all = [StackAxis::Time, StackAxis::Channel, StackAxis::Depth];
        let missing = all
            .into_iter()
            .filter(|axis| self.above.iter().all(|(other, _)| other != axis));
        missing.chain(own).collect()
    }
}

/// Returns the axis of a stack, by its name, or by its kind if this is time or channel.
fn stack_axis(axis: &Axis) -> Option<StackAxis> {
    match axis.kind {
        AxisKind::Time => Some(StackAxis::Time),
        AxisKind::Channel => Some(StackAxis::Channel),
        AxisKind::Space | AxisKind::Unknown => axis.is_named("z").then_some(StackAxis::Depth),
    }
}

fn length_step(name: &str, axis: &Axis, notes: &mut Notes) -> Option<AxisStep> {
    step(name, axis, ome_length, notes)
}

fn step(
    name: &str,
    axis: &Axis,
    symbol: impl Fn(&str) -> Option<String>,
    notes: &mut Notes,
) -> Option<AxisStep> {
    let size = axis.spacing?;
    let Some(unit) = axis.unit.as_deref().and_then(symbol) else {
        notes.add(format!(
            "the step along {name} is left out: its unit is not known"
        ));
        return None;
    };
    if size < 0.0 {
        notes.add(format!("the step along {name} is left out: it is negative"));
        return None;
    }
    Some(AxisStep {
        size,
        start: axis.origin.unwrap_or(0.0),
        unit,
    })
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
        let of = |unit: &str, size: f64| {
            let axis = Axis {
                spacing: Some(size),
                origin: Some(3.0),
                unit: Some(unit.into()),
                ..Axis::default()
            };
            length_step("x", &axis, &mut Notes::default())
        };
        let micrometres = AxisStep {
            size: 0.5,
            start: 3.0,
            unit: "\u{b5}m".into(),
        };
        assert_eq!(of("micrometer", 0.5), Some(micrometres));
        assert_eq!(of("furlong", 1.0), None);
        assert_eq!(of("meter", -1.0), None);
    }
}
