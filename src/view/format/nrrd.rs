//! The detached header of a `.bin` file for teem and ITK, `.nhdr` ("Definition of NRRD File Format").

use std::fmt::Write as _;

use super::Renderer;
use super::raw_data::{data_name, element_type, float, no_type, number};
use super::row::{FormatRow, ViewName, proven};
use crate::conventions::description::{Axis, AxisKind, Description, Field};
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::node::{ArrayView, ContentError, NodeResolver};
use crate::view::file::layout::VirtualFile;
use crate::zarr::{ByteOrder, Fixed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "nhdr",
    ViewName::Suffix(".nhdr"),
    "the NRRD header of the .bin file",
    "python3 -c 'import nrrd, sys; print(nrrd.read_header(sys.argv[1]))'",
    Renderer::ArrayWithNodes(|view, _| proven(check_nrrd(view)), nrrd),
)
.expressing(&[
    Field::AxisNames,
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Orientation,
    Field::Transform,
    Field::Coordinates,
])
.also_called(&["nrrd"])];

/// Renders a detached header.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn nrrd(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check_nrrd(view)?;
    let (head, data) = nrrd_header(&element_type(view), view.shape(), &data_name(view))?;
    let mut notes = Notes::default();
    let fields = axis_lines(view, nodes, &mut notes)?;
    // The data file comes last: programs ignore fields after `data file`.
    let mut file = VirtualFile::text(format!("{head}{fields}{data}"));
    file.notes = notes.0;
    Ok(file)
}

/// Checks that NRRD supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check_nrrd(view: &ArrayView<'_>) -> Result<(), String> {
    nrrd_header(&element_type(view), view.shape(), &data_name(view)).map(drop)
}

/// Returns the header without its last line, and the last line, `data file`.
fn nrrd_header(data_type: &Fixed, shape: &[u64], data: &str) -> Result<(String, String), String> {
    let (kind, size, order) = number(data_type);
    let name = match (kind, size) {
        ('i', 1) => "int8",
        ('u', 1) => "uint8",
        ('i', 2) => "int16",
        ('u', 2) => "uint16",
        ('i', 4) => "int32",
        ('u', 4) => "uint32",
        ('i', 8) => "int64",
        ('u', 8) => "uint64",
        ('f', 4) => "float",
        ('f', 8) => "double",
        _ => return Err(no_type("NRRD", data_type)),
    };
    if shape.contains(&0) {
        return Err("an array without elements is no raster".into());
    }
    if shape.len() > 16 {
        return Err(format!(
            "NRRD has at most 16 axes, this has {}",
            shape.len()
        ));
    }
    if data.contains('\n') {
        return Err("the name of the data file has more than one line".into());
    }
    let order = match order {
        ByteOrder::Little => "little",
        ByteOrder::Big => "big",
    };
    // Fastest axis first; a scalar has one axis.
    let mut sizes: Vec<String> = shape.iter().rev().map(u64::to_string).collect();
    if sizes.is_empty() {
        sizes.push("1".into());
    }
    let head = format!(
        "NRRD0004\ntype: {name}\ndimension: {}\nsizes: {}\nendian: {order}\nencoding: raw\n",
        sizes.len(),
        sizes.join(" ")
    );
    Ok((head, format!("data file: {data}\n")))
}

/// Returns the lines of the per-axis fields and of the "space": kinds, names,
/// and spacings with origins, or the directions of axes that are turned or have an orientation.
///
/// # Errors
/// Errors of the store.
fn axis_lines(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
    notes: &mut Notes,
) -> Result<String, ContentError> {
    let groups = Groups::above(view, nodes, notes)?;
    let context = Context::new(view, nodes, &groups);
    let description = Description::of_axes(&context, notes)?;
    note_left_out(&description, notes);
    Ok(lines(&description))
}

/// Adds a note for each axis beside those in a space, and for an orientation without a space.
fn note_left_out(description: &Description, notes: &mut Notes) {
    let is_oriented = |axis: &Axis| axis.orientation.is_some();
    let Some(space) = Space::of(description) else {
        let transform = description.transform.as_ref();
        if description.axes.iter().any(is_oriented) || transform.is_some() {
            notes.add("the orientation is left out: NRRD takes only that of all axes in space, with their spacings");
        }
        return;
    };
    let axes = description.axes.iter().rev().zip(&space.directions);
    for (axis, direction) in axes.filter(|(axis, _)| axis.kind != AxisKind::Space) {
        if direction.is_none() && (axis.spacing.is_some() || axis.unit.is_some()) {
            notes.add(format!(
                "spacing, origin and unit of the axis {} are left out: in a space, NRRD has those of its axes only",
                quoted(axis.name.as_deref())
            ));
        }
    }
}

/// Returns the lines, fastest axis first; `nan` for unknown numbers.
fn lines(description: &Description) -> String {
    let axes = &description.axes;
    let of_each = |pick: &dyn Fn(&Axis) -> String| {
        let words: Vec<String> = axes.iter().rev().map(pick).collect();
        words.join(" ")
    };
    let mut text = String::new();
    // Writing to a String is infallible.
    if axes.iter().any(|axis| axis.name.is_some()) {
        let label = |axis: &Axis| quoted(axis.name.as_deref());
        let _ = writeln!(text, "labels: {}", of_each(&label));
    }
    if axes.iter().any(|axis| kind(axis) != UNKNOWN) {
        let _ = writeln!(text, "kinds: {}", of_each(&|axis| kind(axis).to_owned()));
    }
    if let Some(space) = Space::of(description) {
        return text + &space.lines();
    }
    if axes.iter().all(|axis| axis.spacing.is_none()) {
        return text;
    }
    let number = |value: Option<f64>| value.map_or("nan".to_owned(), float);
    let _ = writeln!(text, "spacings: {}", of_each(&|axis| number(axis.spacing)));
    // The coordinate is that of the centre of an element.
    let _ = writeln!(text, "axis mins: {}", of_each(&|axis| number(axis.origin)));
    let centers = of_each(&|axis| axis.origin.map_or(UNKNOWN, |_| "node").to_owned());
    let _ = writeln!(text, "centers: {centers}");
    if axes.iter().any(|axis| axis.unit.is_some()) {
        let unit = |axis: &Axis| quoted(axis.unit.as_deref());
        let _ = writeln!(text, "units: {}", of_each(&unit));
    }
    text
}

/// An unknown kind or centre of an axis.
const UNKNOWN: &str = "???";

fn kind(axis: &Axis) -> &'static str {
    match axis.kind {
        AxisKind::Time => "time",
        AxisKind::Channel => "list",
        AxisKind::Space | AxisKind::Unknown => UNKNOWN,
    }
}

/// Returns a quoted text; an empty one for texts that a line cannot hold.
fn quoted(text: Option<&str>) -> String {
    let text = text.unwrap_or_default();
    let is_plain = text.len() <= 60 && !text.contains(['"', '\\']);
    let is_plain = is_plain && !text.chars().any(char::is_control);
    format!("\"{}\"", if is_plain { text } else { "" })
}

/// The axes of an array in a space (NRRD, "Space and orientation information").
struct Space {
    /// `space: right-anterior-superior`, or the number of coordinates.
    name: String,
    /// The direction of each axis of the array in the order of the file; `None` for axes that are not in space.
    directions: Vec<Option<Vec<f64>>>,
    origin: Vec<f64>,
    units: Vec<String>,
}

impl Space {
    /// Returns the space of an array with a transform, or with an orientation for each of three axes in space;
    /// `None` for other arrays.
    fn of(description: &Description) -> Option<Self> {
        let rank = description.axes.len();
        let step = |place: usize, axis: &Axis| {
            let mut row = vec![0.0; rank + 1];
            *row.get_mut(place)? = axis.spacing?;
            *row.last_mut()? = axis.origin.unwrap_or(0.0);
            Some(row)
        };
        let (axes, rows): (&[Axis], Vec<Option<Vec<f64>>>) = match &description.transform {
            Some(transform) => {
                let rows = (0..transform.affine.outputs()).map(|row| transform.affine.row(row));
                (
                    &transform.coordinates,
                    rows.map(|row| row.map(<[f64]>::to_vec)).collect(),
                )
            }
            None => {
                let axes = description.axes.iter().enumerate();
                (
                    &description.axes,
                    axes.map(|(place, axis)| step(place, axis)).collect(),
                )
            }
        };
        let in_space = axes
            .iter()
            .zip(rows)
            .filter(|(axis, _)| axis.kind == AxisKind::Space);
        let mut coordinates: Vec<(&Axis, Vec<f64>)> = in_space
            .map(|(axis, row)| Some((axis, row?)))
            .collect::<Option<_>>()?;
        let oriented: Option<Vec<usize>> = coordinates
            .iter()
            .map(|(axis, _)| Some(axis.orientation?.direction))
            .collect();
        let is_patient = oriented.is_some_and(|mut all| {
            all.sort_unstable();
            all == [0, 1, 2]
        });
        if is_patient {
            let place = |axis: &Axis| axis.orientation.map_or(0, |found| found.direction);
            coordinates.sort_by_key(|(axis, _)| place(axis));
            for (axis, row) in &mut coordinates {
                let sign = axis.orientation.map_or(1.0, |found| found.sign());
                // The sum turns -0 into 0.
                row.iter_mut()
                    .for_each(|number| *number = *number * sign + 0.0);
            }
        } else if description.transform.is_none() {
            return None;
        } else {
            // As the axes of the file: the fastest first.
            coordinates.reverse();
        }
        let column = |place: usize| -> Option<Vec<f64>> {
            let column = coordinates.iter().map(|(_, row)| row.get(place).copied());
            let column: Vec<f64> = column.collect::<Option<_>>()?;
            column.iter().any(|number| *number != 0.0).then_some(column)
        };
        Some(Self {
            name: match is_patient {
                true => "space: right-anterior-superior".to_owned(),
                false => format!("space dimension: {}", coordinates.len()),
            },
            directions: (0..rank).rev().map(column).collect(),
            origin: coordinates
                .iter()
                .filter_map(|(_, row)| row.last().copied())
                .collect(),
            units: coordinates
                .iter()
                .map(|(axis, _)| quoted(axis.unit.as_deref()))
                .collect(),
        })
    }

    fn lines(&self) -> String {
        let vector = |numbers: &[f64]| {
            let words: Vec<String> = numbers.iter().map(|number| float(*number)).collect();
            format!("({})", words.join(","))
        };
        let directions: Vec<String> = (self.directions.iter())
            .map(|one| one.as_deref().map_or("none".to_owned(), vector))
            .collect();
        let units = self.units.join(" ");
        format!(
            "{}\nspace directions: {}\nspace origin: {}\nspace units: {units}\n",
            self.name,
            directions.join(" "),
            vector(&self.origin)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::description::Orientation;
    use crate::zarr::Scalar;

    fn float_type(order: ByteOrder, size_bytes: usize) -> Fixed {
        Fixed {
            scalar: Scalar::Float(order),
            size_bytes,
        }
    }

    #[test]
    fn sizes_are_those_of_the_fastest_axis_first() {
        let (text, _) =
            nrrd_header(&float_type(ByteOrder::Little, 4), &[2, 3, 4], "x.bin").unwrap();
        assert!(text.contains("sizes: 4 3 2\nendian: little\n"), "{text}");
    }

    #[test]
    fn unsupported_types_and_shapes_are_reported() {
        for (size_bytes, shape) in [(2, &[4][..]), (4, &[1; 17])] {
            let refused = nrrd_header(&float_type(ByteOrder::Little, size_bytes), shape, "x");
            assert!(!refused.unwrap_err().is_empty());
        }
    }

    #[test]
    fn spacings_are_those_of_the_fastest_axis_first() {
        let known = Axis {
            spacing: Some(0.5),
            origin: Some(3.0),
            unit: Some("micrometer".into()),
            ..Axis::default()
        };
        let of = |axes: &[Axis]| {
            lines(&Description {
                axes: axes.to_vec(),
                ..Description::default()
            })
        };
        assert_eq!(
            of(&[Axis::default(), known]),
            "spacings: 0.5 nan\naxis mins: 3 nan\ncenters: node ???\nunits: \"micrometer\" \"\"\n"
        );
        assert_eq!(of(&[Axis::default()]), "");
    }

    #[test]
    fn axes_with_orientations_are_in_the_space_of_a_patient() {
        let axis = |name: &str, spacing: f64, orientation: &str| Axis {
            name: Some(name.into()),
            kind: AxisKind::of_name(name),
            spacing: Some(spacing),
            origin: Some(10.0),
            unit: Some("mm".into()),
            orientation: Orientation::of_value(orientation),
        };
        let axes = vec![
            axis("t", 1.0, ""),
            axis("z", 2.0, "inferior-to-superior"),
            axis("y", 3.0, "anterior-to-posterior"),
            axis("x", 4.0, "right-to-left"),
        ];
        let text = lines(&Description {
            axes,
            ..Description::default()
        });
        assert_eq!(
            text,
            "labels: \"x\" \"y\" \"z\" \"t\"\nkinds: ??? ??? ??? time\n\
             space: right-anterior-superior\n\
             space directions: (-4,0,0) (0,-3,0) (0,0,2) none\nspace origin: (-10,-10,10)\n\
             space units: \"mm\" \"mm\" \"mm\"\n"
        );
    }
}
