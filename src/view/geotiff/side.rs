//! The coordinates along one side of an image.

use super::crs::Crs;
use super::epsg::Kind as CrsKind;
use super::scene::{Notes, Scene, number, short, some};
use crate::view::content::NoContent;
use crate::view::number::Value;

/// Coordinates of one side.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Side {
    /// The first coordinate and the distance to the next, where all are so far from each other.
    pub(super) steps: Option<(f64, f64)>,
    /// Whether there are coordinates, or may be: what is broken is not nothing.
    pub(super) is_there: bool,
    units: Option<String>,
    standard_name: Option<String>,
}

/// More coordinates of one side are not read.
const MAX_COORDINATES: u64 = 1 << 17;

impl Side {
    /// The coordinates of a side.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn of(
        scene: &Scene<'_>,
        name: Option<&str>,
        length: u64,
        needs_numbers: bool,
        notes: &mut Notes,
    ) -> Result<Self, NoContent> {
        let node = match name {
            Some(name) => scene.coordinate(name)?,
            None => None,
        };
        let Some((node, name)) = node.zip(name) else {
            return Ok(Self::default());
        };
        let name = short(name);
        if let Some(why) = node.broken() {
            notes.add(format!("coordinates {name}: {why}"));
            return Ok(Self {
                is_there: true,
                ..Self::default()
            });
        }
        let members = node.metadata().attributes().ok();
        let text = |name: &str| Some(some(members?, name)?.as_str()?.trim().to_owned());
        let mut side = Self {
            steps: None,
            is_there: true,
            units: text("units"),
            standard_name: text("standard_name"),
        };
        if !needs_numbers {
            return Ok(side);
        }
        let shape = node.metadata().as_array().map(|array| &array.shape[..]);
        if shape != Some(&[length]) {
            notes.add(format!("coordinates {name}: not one number for each pixel"));
            return Ok(side);
        }
        let numbers = match scene.around.numbers(&node, MAX_COORDINATES) {
            Ok(numbers) => numbers,
            Err(NoContent::Absent(why)) => {
                notes.add(format!("coordinates {name}: {why}"));
                return Ok(side);
            }
            Err(error) => return Err(error),
        };
        let packing = |name: &str, none: f64| match members.and_then(|members| some(members, name))
        {
            Some(value) => number(value),
            None => Some(none),
        };
        let Some((scale, offset)) = packing("scale_factor", 1.0).zip(packing("add_offset", 0.0))
        else {
            notes.add(format!(
                "coordinates {name}: scale_factor or add_offset is no number"
            ));
            return Ok(side);
        };
        let is_single = node.array_view().and_then(|view| view.number());
        let is_single = is_single.is_some_and(|(number, _)| number.size_bytes < 8);
        match steps(&numbers, is_single) {
            Some((first, step)) => side.steps = Some((first * scale + offset, step * scale)),
            None => notes.add(format!("coordinates {name}: not at regular distances")),
        }
        Ok(side)
    }

    /// Whether they are angles.
    pub(super) fn is_in_degrees(&self) -> bool {
        self.units
            .as_deref()
            .is_some_and(|units| units.starts_with("degree"))
    }

    /// Why the coordinates are not those of a system.
    pub(super) fn contradicts(&self, crs: Crs) -> Option<String> {
        if self
            .standard_name
            .as_deref()
            .is_some_and(|name| name.starts_with("grid_"))
        {
            return Some("the coordinates are of a rotated pole".into());
        }
        let units = self.units.as_deref()?;
        let is_right = match crs.kind {
            CrsKind::Geographic => self.is_in_degrees(),
            CrsKind::Projected => [
                "",
                "m",
                "meter",
                "meters",
                "metre",
                "metres",
                "ft",
                "foot",
                "feet",
                "US_survey_foot",
                "us-ft",
                "1",
            ]
            .contains(&units),
        };
        (!is_right).then(|| format!("the coordinates are in {}", short(units)))
    }
}

/// The first of numbers at regular distances, and the distance.
fn steps(numbers: &[Value], is_single: bool) -> Option<(f64, f64)> {
    let (first, last) = (numbers.first()?.float(), numbers.last()?.float());
    let intervals = u32::try_from(numbers.len()).ok()?.checked_sub(1)?;
    if intervals == 0 {
        return None;
    }
    let step = (last - first) / f64::from(intervals);
    // Single precision can be so far from a regular distance.
    let rounding = match is_single {
        true => first.abs().max(last.abs()) * f64::from(f32::EPSILON),
        false => 0.0,
    };
    let most = (step.abs() * 1e-3).max(rounding.min(step.abs() * 0.1));
    let is_regular = step.is_finite()
        && step != 0.0
        && numbers.iter().zip(0_u32..).all(|(value, place)| {
            // Not a number is not near.
            (value.float() - (first + step * f64::from(place))).abs() <= most
        });
    is_regular.then_some((first, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_coordinates_are_told_from_others() {
        let values =
            |numbers: &[f64]| -> Vec<Value> { numbers.iter().map(|n| Value::Float(*n)).collect() };
        assert_eq!(
            steps(&values(&[10.0, 20.0, 30.0]), false),
            Some((10.0, 10.0))
        );
        assert_eq!(
            steps(&values(&[90.0, 0.0, -90.0]), false),
            Some((90.0, -90.0))
        );
        for irregular in [
            &[1.0, 2.0, 4.0][..],
            &[1.0],
            &[],
            &[1.0, 1.0],
            &[1.0, f64::NAN, 3.0],
            &[f64::NEG_INFINITY, f64::INFINITY],
        ] {
            assert_eq!(steps(&values(irregular), true), None, "{irregular:?}");
        }
        let single: Vec<Value> = (0_u8..250)
            .map(|n| Value::Float((1000.0_f32 + f32::from(n) / 120.0).into()))
            .collect();
        assert!(steps(&single, true).is_some());
    }
}
