//! Where the elements of a NIfTI file are: the matrix `sform`, spacings, times and units (nifti1.h, "3D IMAGE
//! (VOLUME) ORIENTATION AND LOCATION IN SPACE").

use super::axes::Axes;
use crate::conventions::description::Description;
use crate::conventions::description::{Axis, AxisKind};
use crate::conventions::georef::context::{Notes, short};

/// Units of the header, with their codes: metres, millimetres and micrometres; seconds and their fractions.
const LENGTHS: [(f64, u8); 3] = [(1.0, 1), (1e-3, 2), (1e-6, 3)];
const TIMES: [(f64, u8); 3] = [(1.0, 8), (1e-3, 16), (1e-6, 24)];

/// A row of the matrix: the factors of the first three axes of the file, and the offset.
type Row = [f64; 4];
/// The matrix of a file without coordinates.
const IDENTITY: [Row; 3] = [
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 1.0, 0.0],
];

/// The coordinates of the elements. Coordinates increase to the right, to the front and to the top (RAS+).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Geometry {
    /// Whether any coordinate is known; otherwise the file has no matrix.
    pub(super) is_known: bool,
    matrix: [Row; 3],
    /// The spacing along the fourth axis.
    pub(super) step: f64,
    /// `toffset`: the coordinate of the first element along the fourth axis.
    pub(super) start: f64,
    /// `xyzt_units`.
    pub(super) units: u8,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            is_known: false,
            matrix: IDENTITY,
            step: 1.0,
            start: 0.0,
            units: 0,
        }
    }
}

/// A coordinate in space as a function of the first three axes of the file.
struct Coordinate<'a> {
    axis: &'a Axis,
    row: Row,
}

impl Geometry {
    /// Returns the geometry of a file with these axes.
    pub(super) fn of(axes: &Axes, description: &Description, notes: &mut Notes) -> Self {
        let source = |place: usize| axes.sources.get(place).copied().flatten();
        let sides = [source(0), source(1), source(2)];
        let mut found = Self::default();
        let coordinates = turned(&sides, description, notes);
        let coordinates = coordinates.unwrap_or_else(|| along_sides(&sides, &description.axes));
        found.set_space(coordinates, notes);
        if let Some(time) = source(3).and_then(|axis| description.axes.get(axis)) {
            found.set_time(time, notes);
        }
        found
    }

    #[cfg(test)]
    pub(super) fn at_time(start: f64) -> Self {
        Self {
            start,
            units: 2,
            ..Self::default()
        }
    }

    /// Writes each coordinate into the row of its direction, in one unit.
    fn set_space(&mut self, coordinates: Vec<Coordinate<'_>>, notes: &mut Notes) {
        let axes: Vec<&Axis> = coordinates.iter().map(|one| one.axis).collect();
        let directions = directions(&axes, notes);
        let length = length_unit(&axes);
        let is_turned = directions
            .iter()
            .ne([0, 1, 2].iter().take(directions.len()));
        self.units = length.map_or(0, |(_, code)| code);
        let unit = axes.iter().find_map(|axis| axis.unit.as_deref());
        if let (None, Some(unit)) = (length, unit) {
            notes.add(format!(
                "the unit {} is left out: NIfTI has only lengths",
                short(unit)
            ));
        }
        // Names in another order and orientations say how the image is turned, also without spacings.
        self.is_known = is_turned
            || axes
                .iter()
                .any(|axis| axis.spacing.is_some() || axis.orientation.is_some());
        let mut free: Vec<usize> = (0..3).filter(|row| !directions.contains(row)).collect();
        self.matrix = [[0.0; 4]; 3];
        for (one, direction) in coordinates.iter().zip(directions) {
            let factor = match (length, one.axis.metres()) {
                (Some((unit, _)), Some(own)) if !is_equal(own, unit) => own / unit,
                _ => 1.0,
            };
            let sign = one.axis.orientation.map_or(1.0, |found| found.sign());
            if let Some(row) = self.matrix.get_mut(direction) {
                *row = one.row.map(|number| number * factor * sign);
            }
        }
        // An axis that the array lacks runs along a direction that is left.
        for side in 0..3 {
            let is_empty = self.column(side) == [0.0; 3];
            if is_empty && !free.is_empty() {
                let cell = self.matrix.get_mut(free.remove(0));
                if let Some(cell) = cell.and_then(|row| row.get_mut(side)) {
                    *cell = 1.0;
                }
            }
        }
    }

    fn set_time(&mut self, time: &Axis, notes: &mut Notes) {
        let own = time.seconds();
        let exact = own.and_then(|own| TIMES.iter().find(|(size, _)| is_equal(*size, own)));
        let (factor, code) = match (exact, own) {
            (Some((_, code)), _) => (1.0, *code),
            (None, Some(own)) => (own, 8),
            (None, None) => (1.0, 0),
        };
        self.step = time.spacing.map_or(1.0, |step| step.abs() * factor);
        self.start = time.origin.map_or(0.0, |start| start * factor);
        self.units |= code;
        if time
            .unit
            .as_deref()
            .is_some_and(|unit| unit.contains(" since "))
        {
            notes.add("NIfTI has no date: toffset counts from that of the units of time");
        }
        if let (None, Some(unit)) = (own, time.unit.as_deref()) {
            notes.add(format!(
                "the unit {} is left out: NIfTI has only seconds",
                short(unit)
            ));
        }
    }

    fn column(&self, side: usize) -> [f64; 3] {
        self.matrix.map(|row| row.get(side).copied().unwrap_or(0.0))
    }

    /// Returns `pixdim`: a factor of the quaternion, and positive spacings.
    pub(super) fn pixels(&self) -> [f64; 8] {
        let norm = |side| {
            self.column(side)
                .iter()
                .fold(0.0, |sum: f64, cell| sum.hypot(*cell))
        };
        let [x, y, z] = [norm(0), norm(1), norm(2)];
        [1.0, x, y, z, self.step, 1.0, 1.0, 1.0]
    }

    /// Returns `qform_code` and `sform_code`: files have a quaternion only if the axes are x, y and z.
    pub(super) fn codes(&self) -> (i16, i16) {
        let is_diagonal = (0..3).all(|side| {
            let column = self.column(side);
            let others = column.iter().enumerate().filter(|(row, _)| *row != side);
            others.map(|(_, cell)| *cell).all(|cell| cell == 0.0)
                && column.get(side).is_some_and(|cell| *cell > 0.0)
        });
        let known = i16::from(self.is_known);
        (if is_diagonal { known } else { 0 }, known)
    }

    /// Returns `srow_x`, `srow_y` and `srow_z`.
    pub(super) fn rows(&self) -> [Row; 3] {
        match self.is_known {
            true => self.matrix,
            false => [[0.0; 4]; 3],
        }
    }

    /// Returns `qoffset_x`, `qoffset_y` and `qoffset_z`.
    pub(super) fn first(&self) -> [f64; 3] {
        self.rows().map(|[.., first]| first)
    }
}

#[expect(clippy::float_cmp, reason = "sizes of units are constants")]
fn is_equal(one: f64, other: f64) -> bool {
    one == other
}

/// Returns a coordinate for each side of the image: a step along it.
fn along_sides<'a>(sides: &[Option<usize>; 3], axes: &'a [Axis]) -> Vec<Coordinate<'a>> {
    let along = |(side, source): (usize, &Option<usize>)| {
        let axis = axes.get((*source)?)?;
        let mut row = [0.0; 4];
        *row.get_mut(side)? = axis.spacing.unwrap_or(1.0);
        row[3] = axis.origin.unwrap_or(0.0);
        Some(Coordinate { axis, row })
    };
    sides.iter().enumerate().filter_map(along).collect()
}

/// Returns the coordinates in space of a transform that turns or shears; `None` without one, or if the matrix of a
/// file cannot express it.
fn turned<'a>(
    sides: &[Option<usize>; 3],
    description: &'a Description,
    notes: &mut Notes,
) -> Option<Vec<Coordinate<'a>>> {
    let transform = description.transform.as_ref()?;
    let present = sides.iter().flatten().count();
    let is_side = |input: usize| sides.contains(&Some(input));
    let mut found = Vec::new();
    for (place, axis) in transform.coordinates.iter().enumerate() {
        let numbers = transform.affine.row(place)?;
        let (offset, factors) = numbers.split_last()?;
        let used = |(input, factor): (usize, &f64)| (*factor != 0.0).then_some(input);
        let inputs: Vec<usize> = factors.iter().enumerate().filter_map(used).collect();
        if axis.kind != AxisKind::Space || !inputs.iter().any(|input| is_side(*input)) {
            if inputs != [place] {
                return left_out(notes);
            }
            continue;
        }
        if !inputs.iter().all(|input| is_side(*input)) {
            return left_out(notes);
        }
        let of_side = |side: usize| {
            let input = sides.get(side).copied().flatten();
            input
                .and_then(|input| factors.get(input))
                .copied()
                .unwrap_or(0.0)
        };
        let row = [of_side(0), of_side(1), of_side(2), *offset];
        found.push(Coordinate { axis, row });
    }
    match found.len() == present {
        true => Some(found),
        false => left_out(notes),
    }
}

fn left_out(notes: &mut Notes) -> Option<Vec<Coordinate<'static>>> {
    notes.add(
        "the transform mixes axes that are no sides of the image: only spacings are in the file",
    );
    None
}

/// Returns the direction of each coordinate: 0 for right, 1 for front, 2 for top. Orientations decide; else the
/// names, if they are x, y and z (or x and y) in any order; else coordinates are x, y and z in this order.
fn directions(axes: &[&Axis], notes: &mut Notes) -> Vec<usize> {
    let of_name = |name: &str| match name.to_ascii_lowercase().as_str() {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let declared = axes.iter().map(|axis| Some(axis.orientation?.direction));
    let declared: Vec<Option<usize>> = declared.collect();
    if declared.iter().any(Option::is_some) {
        if let Some(directions) = completed(&declared) {
            return directions;
        }
        notes.add("two axes have orientations along the same direction: they count as x, y and z");
    }
    let named = axes.iter().map(|axis| of_name(axis.name.as_deref()?));
    let named: Option<Vec<usize>> = named.collect();
    let is_order = |named: &Vec<usize>| (0..named.len()).all(|place| named.contains(&place));
    named
        .filter(is_order)
        .unwrap_or_else(|| (0..axes.len()).collect())
}

/// Gives coordinates without a direction those that are left; `None` if a direction occurs twice.
fn completed(declared: &[Option<usize>]) -> Option<Vec<usize>> {
    let mut free = (0..3).filter(|direction| !declared.contains(&Some(*direction)));
    let all: Option<Vec<usize>> = declared
        .iter()
        .map(|own| own.or_else(|| free.next()))
        .collect();
    let all = all?;
    let is_once = |direction: &usize| all.iter().filter(|other| *other == direction).count() == 1;
    all.iter().all(is_once).then_some(all)
}

/// Returns the unit of all lengths, with its code: that of the array, else millimetres or, for small lengths,
/// micrometres; `None` if the unit of an axis is no length.
fn length_unit(axes: &[&Axis]) -> Option<(f64, u8)> {
    let known: Option<Vec<f64>> = axes.iter().map(|axis| axis.metres()).collect();
    let known = known.filter(|known| !known.is_empty())?;
    let is_unit = |(size, _): &&(f64, u8)| known.iter().all(|one| is_equal(*one, *size));
    let largest = known.iter().copied().fold(0.0, f64::max);
    let own = LENGTHS.iter().find(is_unit).copied();
    Some(own.unwrap_or(match largest < 1e-4 {
        true => (1e-6, 3),
        false => (1e-3, 2),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::affine::Affine;
    use crate::conventions::description::{Orientation, Transform};

    /// Axes z, y and x with spacings and origins, in millimetres.
    fn image(orientations: [Option<&str>; 3]) -> Description {
        let names = ["z", "y", "x"].into_iter().zip([2.0, -3.0, 4.0]);
        let axes = names
            .zip(orientations)
            .map(|((name, step), orientation)| Axis {
                name: Some(name.into()),
                kind: AxisKind::Space,
                spacing: Some(step),
                origin: Some(step * 10.0),
                unit: Some("millimeter".into()),
                orientation: orientation.and_then(Orientation::of_value),
            });
        Description {
            axes: axes.collect(),
            ..Description::default()
        }
    }

    fn geometry(description: &Description) -> (Geometry, Vec<String>) {
        let mut notes = Notes::default();
        let shape = vec![5; description.axes.len()];
        let axes = Axes::of(&shape, &description.axes);
        let found = Geometry::of(&axes, description, &mut notes);
        (found, notes.0)
    }

    #[test]
    fn orientations_turn_and_reflect_the_axes() {
        let lps = [
            Some("inferior-to-superior"),
            Some("anterior-to-posterior"),
            Some("right-to-left"),
        ];
        let (found, _) = geometry(&image(lps));
        let rows = [
            [-4.0, 0.0, 0.0, -40.0],
            [0.0, 3.0, 0.0, 30.0],
            [0.0, 0.0, 2.0, 20.0],
        ];
        assert_eq!((found.rows(), found.codes()), (rows, (0, 1)));
        assert_eq!(found.pixels()[..4], [1.0, 4.0, 3.0, 2.0]);
        // One orientation: the other axes take the directions that are left, in their order.
        let (found, _) = geometry(&image([Some("posterior-to-anterior"), None, None]));
        let rows = [
            [4.0, 0.0, 0.0, 40.0],
            [0.0, 0.0, 2.0, 20.0],
            [0.0, -3.0, 0.0, -30.0],
        ];
        assert_eq!(found.rows(), rows);
        let (found, notes) = geometry(&image([Some("left-to-right"), Some("right-to-left"), None]));
        assert!(found.is_known && notes.len() == 1, "{notes:?}");
    }

    #[test]
    fn axes_in_another_order_have_a_matrix_that_turns_them() {
        let mut description = image([None; 3]);
        description.axes.swap(0, 2);
        let (found, _) = geometry(&description);
        let rows = [
            [0.0, 0.0, 4.0, 40.0],
            [0.0, -3.0, 0.0, -30.0],
            [2.0, 0.0, 0.0, 20.0],
        ];
        assert_eq!((found.rows(), found.codes()), (rows, (0, 1)));
        let plain = Description {
            axes: vec![Axis::default(); 3],
            ..Description::default()
        };
        let (found, _) = geometry(&plain);
        assert_eq!((found.rows(), found.codes()), ([[0.0; 4]; 3], (0, 0)));
        assert_eq!(found.pixels()[..4], [1.0; 4]);
    }

    #[test]
    fn a_transform_that_turns_is_the_matrix() {
        let mut description = image([None; 3]);
        // z, y and x of the image: turned about z.
        let rows = vec![
            vec![2.0, 0.0, 0.0, 7.0],
            vec![0.0, 0.8, -0.6, 8.0],
            vec![0.0, 0.6, 0.8, 9.0],
        ];
        description.transform = Some(Transform {
            affine: Affine::of_rows(rows, 3).unwrap(),
            coordinates: description.axes.clone(),
        });
        let (found, notes) = geometry(&description);
        let rows = [
            [0.8, 0.6, 0.0, 9.0],
            [-0.6, 0.8, 0.0, 8.0],
            [0.0, 0.0, 2.0, 7.0],
        ];
        assert_eq!((found.rows(), notes), (rows, vec![]));
        assert_eq!(found.pixels()[..4], [1.0, 1.0, 1.0, 2.0]);
    }

    #[test]
    fn times_have_a_step_and_an_offset() {
        let mut description = image([None; 3]);
        let time = |unit: &str| Axis {
            kind: AxisKind::Time,
            spacing: Some(0.5),
            origin: Some(3.0),
            unit: Some(unit.into()),
            ..Axis::default()
        };
        description.axes.insert(0, time("minute"));
        let (found, notes) = geometry(&description);
        assert_eq!((found.step, found.start, found.units), (30.0, 180.0, 10));
        assert_eq!(notes, [""; 0]);
        description.axes[0] = time("days since 2000-01-01");
        let (found, notes) = geometry(&description);
        assert_eq!((found.start, notes.len()), (259_200.0, 1));
    }
}
