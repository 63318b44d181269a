//! The coordinates along an axis of a raster.

use serde_json::Map;

use super::context::{Context, Notes, short, some};
use super::raster::{Direction, direction_of};
use crate::conventions::cf;
use crate::conventions::cf::attributes::packing;
use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::{CrsKind, Unit};
use crate::conventions::missing::MissingValues;
use crate::node::{ContentError, Number, NumberKind, Value, ViewNode};
use crate::zarr::Scalar;

/// Coordinates along an axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Axis {
    /// The pixel centres.
    pub(crate) steps: Steps,
    /// Whether the coordinates increase (`true`) or decrease; `None` if they do neither or are unknown.
    is_ascending: Option<bool>,
    /// Whether the axis has coordinates.
    pub(crate) is_there: bool,
    name: String,
    pub(crate) units: Option<String>,
    standard_name: Option<String>,
    axis: Option<String>,
}

/// The spacing of coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Steps {
    /// No coordinates were read.
    #[default]
    Unknown,
    /// The coordinate of a single pixel.
    One(f64),
    /// The first coordinate and the step of evenly spaced coordinates.
    Regular(f64, f64),
    /// Unevenly spaced coordinates.
    Irregular,
}

/// The maximum number of coordinates of an axis.
const MAX_COORDINATES: u64 = 1 << 20;

impl Axis {
    /// Reads the coordinates along an axis.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of(
        context: &Context<'_>,
        name: Option<&str>,
        length: u64,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let mut parsed = Self {
            name: name.unwrap_or_default().to_owned(),
            ..Self::default()
        };
        let node = match name {
            Some(name) => context.coordinate(name, length)?,
            None => None,
        };
        let Some((node, name)) = node.zip(name) else {
            return Ok(parsed);
        };
        let name = short(name);
        if let Some(why) = node.broken() {
            notes.add(format!("coordinates {name}: {why}"));
            // Invalid coordinates are not treated as missing coordinates.
            parsed.is_there = true;
            parsed.steps = Steps::Irregular;
            return Ok(parsed);
        }
        let none = Map::new();
        let members = node.metadata().attributes().unwrap_or(&none);
        let text = |name: &str| Some(some(members, name)?.as_str()?.trim().to_owned());
        parsed.is_there = true;
        parsed.units = text("units").filter(|units| !units.is_empty());
        parsed.standard_name = text("standard_name");
        parsed.axis = text("axis");
        let shape = node.metadata().as_array().map(|array| &array.shape[..]);
        if shape != Some(&[length]) {
            notes.add(format!("coordinates {name}: not one number for each pixel"));
            parsed.steps = Steps::Irregular;
            return Ok(parsed);
        }
        match coordinates(context, &node, MAX_COORDINATES)? {
            Ok(Coordinates {
                numbers,
                is_exact,
                scale,
                offset,
            }) => {
                parsed.is_ascending = ascending(&numbers).map(|is| is == (scale > 0.0));
                parsed.steps = match steps(&numbers, is_exact) {
                    Steps::Regular(first, step) => {
                        Steps::Regular(first * scale + offset, step * scale)
                    }
                    Steps::One(place) => Steps::One(place * scale + offset),
                    other => other,
                };
                if parsed.steps == Steps::Irregular {
                    notes.add(format!("coordinates {name}: not at regular distances"));
                }
            }
            Err(why) => {
                notes.add(format!("coordinates {name}: {why}"));
                if length <= MAX_COORDINATES {
                    parsed.steps = Steps::Irregular;
                }
            }
        }
        Ok(parsed)
    }

    /// Returns whether the coordinates are degrees in this direction.
    pub(crate) fn is_in_degrees(&self, direction: Direction) -> bool {
        self.units.as_deref().is_some_and(|units| {
            is_degree(units) && of_units(units).is_none_or(|is| is == direction)
        })
    }

    /// Returns the direction by the attributes of the coordinates, else by their name; `None` if unknown.
    fn direction(&self) -> Option<Direction> {
        let declared = [
            self.units.as_deref().and_then(of_units),
            self.standard_name.as_deref().and_then(of_standard_name),
            self.axis.as_deref().and_then(|axis| match axis {
                "X" | "x" => Some(Direction::Across),
                "Y" | "y" => Some(Direction::Down),
                _ => None,
            }),
        ];
        let is_other_axis = self
            .axis
            .as_deref()
            .is_some_and(|axis| matches!(axis, "Z" | "T" | "z" | "t"));
        let mut declared = declared.into_iter().flatten();
        match declared.next() {
            Some(first) => declared.all(|other| other == first).then_some(first),
            None if is_other_axis => None,
            None => direction_of(&self.name),
        }
    }

    /// Returns whether the attributes of the coordinates declare the opposite direction.
    pub(crate) fn is_transposed(&self, direction: Direction) -> bool {
        self.is_there
            && self
                .direction()
                .is_some_and(|declared| declared != direction)
    }

    /// Returns whether coordinates in this direction increase along the axis; `None` if unknown, or if the
    /// coordinates are row, column or pixel numbers.
    pub(crate) fn increases(&self, direction: Direction) -> Option<bool> {
        let is_in_pixels = |units: &str| matches!(units, "pixel" | "pixels" | "px");
        let is_counted = ["row", "rows", "col", "cols", "column", "columns"]
            .iter()
            .any(|name| self.name.eq_ignore_ascii_case(name))
            || self.units.as_deref().is_some_and(is_in_pixels);
        let is_place = !is_counted && self.direction() == Some(direction);
        self.is_ascending.filter(|_| is_place)
    }

    /// Converts the coordinates of both axes of a geostationary system from scan angles to metres: the angles
    /// in radians times the height of the satellite (CF 1.13, Appendix F). Other coordinates stay as they are.
    pub(crate) fn scan_angles_to_metres(axes: (&mut Self, &mut Self), height: f64) {
        let (across, down) = axes;
        let Some((x, y)) = across.radians().zip(down.radians()) else {
            return;
        };
        for (axis, radians) in [(across, x), (down, y)] {
            let scale = radians * height;
            axis.steps = match axis.steps {
                Steps::One(place) => Steps::One(place * scale),
                Steps::Regular(first, step) => Steps::Regular(first * scale, step * scale),
                other => other,
            };
            axis.units = Some("m".to_owned());
            axis.standard_name = None;
        }
    }

    /// Returns the size in radians of the unit of scan angles; `None` if the coordinates are no scan angles.
    fn radians(&self) -> Option<f64> {
        match self.units.as_deref() {
            Some("rad" | "radian" | "radians") => Some(1.0),
            Some("mrad" | "milliradian" | "milliradians") => Some(1e-3),
            Some("urad" | "microradian" | "microradians" | "\u{b5}rad") => Some(1e-6),
            Some("degree" | "degrees" | "deg" | "arc_degree") => Some(1.0_f64.to_radians()),
            // A radian is the unit 1.
            Some("1") | None if self.is_angular() => Some(1.0),
            _ => None,
        }
    }

    fn is_angular(&self) -> bool {
        let name = self.standard_name.as_deref().unwrap_or_default();
        name.ends_with("_angular_coordinate")
    }

    /// Returns why the coordinates contradict a coordinate reference system.
    pub(crate) fn contradicts(&self, crs: &Crs, direction: Direction) -> Option<String> {
        if !self.is_there {
            return None;
        }
        let standard_name = self.standard_name.as_deref().unwrap_or_default();
        let is_rotated = standard_name.starts_with("grid_");
        if is_rotated && crs.kind != CrsKind::RotatedPole {
            return Some("the coordinates are of a rotated pole".into());
        }
        if self.direction() != Some(direction) {
            return Some(format!(
                "{} is not known to be an axis of it",
                short(&self.name)
            ));
        }
        let is_wrong_name = match crs.kind {
            CrsKind::Geographic => standard_name.starts_with("projection_"),
            CrsKind::Projected => {
                matches!(standard_name, "longitude" | "latitude") || self.is_angular()
            }
            CrsKind::RotatedPole => !standard_name.is_empty() && !is_rotated,
        };
        if is_wrong_name {
            return Some(format!("the coordinates are a {standard_name}"));
        }
        let units = self.units.as_deref()?;
        let names: &[&str] = match (crs.kind, crs.unit) {
            (CrsKind::Geographic | CrsKind::RotatedPole, _) => {
                return (!self.is_in_degrees(direction))
                    .then(|| format!("the coordinates are in {}", short(units)));
            }
            (_, Unit::Metre) => &["m", "meter", "meters", "metre", "metres"],
            (_, Unit::Foot) => &[
                "ft",
                "foot",
                "feet",
                "international_foot",
                "international_feet",
            ],
            (_, Unit::UsSurveyFoot) => &[
                "US_survey_foot",
                "US_survey_feet",
                "us-ft",
                "ftUS",
                "US survey foot",
            ],
            (_, Unit::Other) => &[],
        };
        (!names.contains(&units)).then(|| format!("the coordinates are in {}", short(units)))
    }
}

fn is_degree(units: &str) -> bool {
    matches!(units, "degree" | "degrees" | "deg" | "arc_degree") || of_units(units).is_some()
}

/// Returns the direction of units by CF 1.11, 4.1 and 4.2.
fn of_units(units: &str) -> Option<Direction> {
    match units {
        "degrees_east" | "degree_east" | "degree_E" | "degrees_E" | "degreeE" | "degreesE" => {
            Some(Direction::Across)
        }
        "degrees_north" | "degree_north" | "degree_N" | "degrees_N" | "degreeN" | "degreesN" => {
            Some(Direction::Down)
        }
        _ => None,
    }
}

fn of_standard_name(name: &str) -> Option<Direction> {
    match name {
        "longitude"
        | "projection_x_coordinate"
        | "grid_longitude"
        | "projection_x_angular_coordinate" => Some(Direction::Across),
        "latitude"
        | "projection_y_coordinate"
        | "grid_latitude"
        | "projection_y_angular_coordinate" => Some(Direction::Down),
        _ => None,
    }
}

/// The numbers of an array of coordinates.
#[derive(Debug)]
pub(crate) struct Coordinates {
    /// The stored numbers, as unsigned if `_Unsigned` is set; NaN for missing values.
    pub(crate) numbers: Vec<Value>,
    /// Whether the stored numbers are integers or doubles.
    pub(crate) is_exact: bool,
    pub(crate) scale: f64,
    pub(crate) offset: f64,
}

/// Reads coordinates. The inner error is the reason why they cannot be used.
///
/// # Errors
/// Errors of the store.
pub(crate) fn coordinates(
    context: &Context<'_>,
    node: &ViewNode,
    most: u64,
) -> Result<Result<Coordinates, String>, ContentError> {
    let Some(view) = node.array_view() else {
        return Ok(Err("no numbers".into()));
    };
    if matches!(
        view.data_type().scalar,
        Scalar::DateTime { .. } | Scalar::TimeDelta { .. }
    ) {
        return Ok(Err("times are no places".into()));
    }
    let none = Map::new();
    let members = node.metadata().attributes().unwrap_or(&none);
    let Ok((scale, offset)) = packing(members) else {
        return Ok(Err("scale_factor or add_offset is no number".into()));
    };
    let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
    let Some((own, _)) = view.number() else {
        return Ok(Err("no numbers".into()));
    };
    let numbers = match context.nodes.numbers(node, most) {
        Ok(numbers) => numbers,
        Err(ContentError::Absent(why)) => return Ok(Err(why)),
        Err(error) => return Err(error),
    };
    let meant = Number {
        kind: cf::unsigned(own.kind, some(members, "_Unsigned")),
        ..own
    };
    let missing = MissingValues::of(node, own, context.nodes, &mut |_| {})?;
    let missing: Vec<f64> = missing.all().map(Value::float).collect();
    let numbers = numbers.into_iter().map(|value| {
        if missing.contains(&value.float()) {
            return Value::Float(f64::NAN);
        }
        reinterpret(own, meant, value)
    });
    Ok(Ok(Coordinates {
        numbers: numbers.collect(),
        is_exact: own.kind != NumberKind::Float || own.size_bytes >= 8,
        scale,
        offset,
    }))
}

/// Returns the value with the same bits in a different integer type.
pub(crate) fn reinterpret(own: Number, meant: Number, value: Value) -> Value {
    if own.kind == meant.kind {
        return value;
    }
    let bytes = own.write(value);
    bytes.and_then(|bytes| meant.read(&bytes)).unwrap_or(value)
}

/// Returns whether numbers increase (`true`) or decrease; `None` if they do neither.
fn ascending(numbers: &[Value]) -> Option<bool> {
    let all = |is_next: fn(f64, f64) -> bool| {
        let pairs = numbers.iter().zip(numbers.get(1..)?);
        // A NaN neither increases nor decreases.
        let mut pairs = pairs.map(|(one, next)| is_next(one.float(), next.float()));
        (numbers.len() > 1 && pairs.all(|is| is)).then_some(())
    };
    let increase = all(|one, next| one < next).map(|()| true);
    increase.or_else(|| all(|one, next| one > next).map(|()| false))
}

/// Returns the spacing of numbers.
fn steps(numbers: &[Value], is_exact: bool) -> Steps {
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
        return Steps::Irregular;
    };
    let are_integers = matches!((first, last), (Value::Int(_), Value::Int(_)));
    let (first, last) = (first.float(), last.float());
    let intervals = match u32::try_from(numbers.len()) {
        Ok(1) if first.is_finite() => return Steps::One(first),
        Ok(length @ 2..) => length - 1,
        _ => return Steps::Irregular,
    };
    let step = (last - first) / f64::from(intervals);
    // The rounding error of single precision.
    let rounding = match is_exact {
        false => first.abs().max(last.abs()) * f64::from(f32::EPSILON),
        true => 0.0,
    };
    let most = match are_integers {
        true => step.abs() * 1e-9,
        false => (step.abs() * 1e-3).max(rounding.min(step.abs() * 0.1)),
    };
    let is_regular = step.is_finite()
        && step != 0.0
        && numbers.iter().zip(0_u32..).all(|(value, place)| {
            // Comparisons with NaN are false.
            (value.float() - (first + step * f64::from(place))).abs() <= most
        });
    match is_regular {
        true => Steps::Regular(first, step),
        false => Steps::Irregular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_coordinates_are_recognised() {
        let values =
            |numbers: &[f64]| -> Vec<Value> { numbers.iter().map(|n| Value::Float(*n)).collect() };
        assert_eq!(
            steps(&values(&[10.0, 20.0, 30.0]), true),
            Steps::Regular(10.0, 10.0)
        );
        assert_eq!(
            steps(&values(&[90.0, 0.0, -90.0]), true),
            Steps::Regular(90.0, -90.0)
        );
        for irregular in [
            &[1.0, 2.0, 4.0][..],
            &[],
            &[1.0, 1.0],
            &[1.0, f64::NAN, 3.0],
            &[f64::NEG_INFINITY, f64::INFINITY],
        ] {
            assert_eq!(
                steps(&values(irregular), false),
                Steps::Irregular,
                "{irregular:?}"
            );
        }
        let single: Vec<Value> = (0_u8..250)
            .map(|n| Value::Float((1000.0_f32 + f32::from(n) / 120.0).into()))
            .collect();
        assert!(matches!(steps(&single, false), Steps::Regular(..)));
        assert_eq!(steps(&values(&[7.0]), true), Steps::One(7.0));
        let whole =
            |numbers: &[i128]| -> Vec<Value> { numbers.iter().map(|n| Value::Int(*n)).collect() };
        assert_eq!(
            steps(&whole(&[0, 1000, 2000]), true),
            Steps::Regular(0.0, 1000.0)
        );
        assert_eq!(steps(&whole(&[0, 1001, 2000]), true), Steps::Irregular);
    }

    #[test]
    fn monotonic_coordinates_have_a_direction() {
        let numbers = |numbers: &[f64]| -> Option<bool> {
            ascending(&numbers.iter().map(|n| Value::Float(*n)).collect::<Vec<_>>())
        };
        assert_eq!(numbers(&[-88.5, -30.0, 87.0]), Some(true));
        assert_eq!(numbers(&[3.0, 2.0]), Some(false));
        for none in [
            &[][..],
            &[1.0],
            &[1.0, 1.0],
            &[1.0, 2.0, f64::NAN],
            &[1.0, 3.0, 2.0],
        ] {
            assert_eq!(numbers(none), None, "{none:?}");
        }
        for (axis, increases) in [
            (axis("lat", "", "", ""), Some(true)),
            (axis("a", "degrees_north", "", ""), Some(true)),
            (axis("y", "m", "", ""), Some(true)),
            (axis("y", "pixel", "", ""), None),
            (axis("row", "", "", ""), None),
            (axis("lev", "hPa", "", "Z"), None),
            (axis("x", "", "", ""), None),
        ] {
            let axis = Axis {
                is_ascending: Some(true),
                ..axis
            };
            assert_eq!(axis.increases(Direction::Down), increases, "{axis:?}");
        }
    }

    fn axis(name: &str, units: &str, standard_name: &str, axis: &str) -> Axis {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Axis {
            is_there: true,
            name: name.into(),
            units: text(units),
            standard_name: text(standard_name),
            axis: text(axis),
            ..Axis::default()
        }
    }

    #[test]
    fn coordinates_must_be_an_axis_of_the_system_in_its_unit() {
        let crs = |code: &str| Crs::of_text(code).unwrap();
        let (degrees, metres, feet) = (crs("EPSG:4326"), crs("EPSG:32633"), crs("EPSG:2263"));
        for (axis, crs) in [
            (axis("lon", "degrees_east", "", ""), degrees.clone()),
            (axis("lon", "", "", ""), degrees.clone()),
            (axis("a", "", "longitude", ""), degrees.clone()),
            (axis("x", "m", "", "X"), metres.clone()),
            (axis("x", "US_survey_foot", "", ""), feet.clone()),
        ] {
            assert_eq!(axis.contradicts(&crs, Direction::Across), None, "{axis:?}");
        }
        for (axis, crs) in [
            (axis("lev", "", "", ""), degrees.clone()),
            (axis("lev", "degree_Celsius", "", ""), degrees.clone()),
            (axis("x", "degree_Celsius", "", ""), degrees.clone()),
            (axis("x", "m", "", "Z"), metres.clone()),
            (axis("lon", "degrees_north", "", ""), degrees.clone()),
            (axis("x", "ft", "", ""), metres.clone()),
            (axis("x", "1", "", ""), metres.clone()),
            (axis("x", "m", "", ""), feet.clone()),
            (axis("x", "ft", "", ""), feet.clone()),
            (axis("lon", "", "longitude", ""), metres.clone()),
            (
                axis("rlon", "degrees", "grid_longitude", ""),
                degrees.clone(),
            ),
        ] {
            assert!(
                axis.contradicts(&crs, Direction::Across).is_some(),
                "{axis:?}"
            );
        }
        for (axis, is_transposed) in [
            (axis("a", "degrees_north", "", ""), true),
            (axis("a", "", "projection_y_coordinate", ""), true),
            (axis("a", "", "", "Y"), true),
            (axis("lat", "", "", ""), true),
            (axis("lev", "hPa", "", "Z"), false),
            (axis("a", "degrees_east", "", ""), false),
        ] {
            assert_eq!(
                axis.is_transposed(Direction::Across),
                is_transposed,
                "{axis:?}"
            );
        }
    }
}
