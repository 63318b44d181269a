//! MRC2014 (ccpem.ac.uk/mrc_format/mrc2014.php): a header of 1024 bytes and the elements, for tomograms and
//! movies of electron microscopy. Lengths are in angstroms.

use super::Renderer;
use super::raw_data::element_type;
use super::row::{FormatRow, Listing, ViewName, proven};
use crate::conventions::description::Description;
use crate::conventions::description::Field;
use crate::conventions::description::{Axis, AxisKind};
use crate::conventions::georef::context::Notes;
use crate::node::{ArrayView, ContentError, Conversion, NodeResolver, Number, NumberKind};
use crate::view::file::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile};
use crate::zarr::{ByteOrder, Fixed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "mrc",
    ViewName::Suffix(".mrc"),
    "MRC",
    "python3 -c 'import mrcfile, sys; mrcfile.mmap(sys.argv[1]).print_header()'",
    Renderer::ArrayWithNodes(|view, _| proven(check(view)), render),
)
.expressing(&[
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Coordinates,
])
.listed(Listing::ByName)];

const HEADER_BYTES: usize = 1024;

/// Renders an array as an MRC file.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn render(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check(view)?;
    let (mode, conversion, order) = mode(&element_type(view))?;
    let mut notes = Notes::default();
    let metadata = Description::of(view, nodes, &mut notes)?;
    let header = header(view.shape(), &metadata.axes, mode, order)?;
    for axis in metadata.axes.iter().rev().take(3) {
        let is_side = matches!(axis.kind, AxisKind::Space | AxisKind::Unknown);
        if is_side && axis.metres().is_some() && axis.spacing.is_some_and(|step| step < 0.0) {
            notes.add(format!(
                "the coordinates along {} decrease, which MRC cannot say: read the size of its pixels as negative",
                axis.name.as_deref().unwrap_or("an axis without a name")
            ));
        }
        if is_side && axis.spacing.is_some() && axis.metres().is_none() {
            notes.add(format!(
                "the spacing along {} is left out: its unit is no known length",
                axis.name.as_deref().unwrap_or("an axis without a name")
            ));
        }
    }
    let extent = ArrayExtent::new(0, view.reader, ElementOrder::RowMajor, conversion);
    let extent = extent.ok_or_else(|| "the size overflows 64 bits".to_owned())?;
    if metadata.scale.is_some() || metadata.offset.is_some() {
        notes.add("MRC has no scale: the numbers are the stored ones");
    }
    // No gap precedes the elements: only an extended header could declare one, and few programs skip it.
    let parts = [Segment::Bytes(header), Segment::Array(extent)];
    let mut file = VirtualFile::of_array(view.reader, parts)?;
    file.notes = notes.0;
    Ok(file)
}

/// Checks that MRC supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check(view: &ArrayView<'_>) -> Result<(), String> {
    mode(&element_type(view))?;
    Counts::of(view.shape(), AxisKind::Unknown).map(drop)
}

/// Returns the mode, the conversion of the numbers, and their byte order.
fn mode(data_type: &Fixed) -> Result<(i32, Option<Conversion>, ByteOrder), String> {
    let none = || format!("MRC has no mode for {data_type}");
    let (number, count) = Number::of(data_type).ok_or_else(none)?;
    let order = number.order;
    let as_u16 = || Conversion::new(number, Number::new(NumberKind::UInt, 2, order));
    Ok(match (number.kind, number.size_bytes, count) {
        (NumberKind::Int, 1, 1) => (0, None, order),
        (NumberKind::Int, 2, 1) => (1, None, order),
        (NumberKind::Float, 4, 1) => (2, None, order),
        (NumberKind::Float, 4, 2) => (4, None, order),
        (NumberKind::UInt, 2, 1) => (6, None, order),
        (NumberKind::UInt, 1, 1) => (6, Some(as_u16()), order),
        (NumberKind::Float, 2, 1) => (12, None, order),
        _ => return Err(none()),
    })
}

/// Numbers of columns, rows and sections, number of sections of one volume, and the space group.
struct Counts {
    sizes: [i32; 3],
    volume: i32,
    space_group: i32,
}

impl Counts {
    /// Returns the counts. `leading` is the role of the first axis of three: sections, or images of a stack.
    fn of(shape: &[u64], leading: AxisKind) -> Result<Self, String> {
        let count = |length: u64| match i32::try_from(length) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(format!(
                "MRC has axes of 1 to {} elements, not {length}",
                i32::MAX
            )),
        };
        let is_stack = matches!(leading, AxisKind::Time | AxisKind::Channel);
        let (sizes, volume, space_group) = match shape {
            [y, x] => ([*x, *y, 1], 1, 0),
            [n, y, x] if is_stack => ([*x, *y, *n], 1, 0),
            [z, y, x] => ([*x, *y, *z], *z, 1),
            [n, z, y, x] => ([*x, *y, z.saturating_mul(*n)], *z, 401),
            _ => {
                let rank = shape.len();
                return Err(format!("MRC has arrays of 2 to 4 axes, this has {rank}"));
            }
        };
        let [x, y, z] = sizes;
        Ok(Self {
            sizes: [count(x)?, count(y)?, count(z)?],
            volume: count(volume)?,
            space_group,
        })
    }
}

fn header(shape: &[u64], axes: &[Axis], mode: i32, order: ByteOrder) -> Result<Vec<u8>, String> {
    let leading = axes.first().map_or(AxisKind::Unknown, |axis| axis.kind);
    let counts = Counts::of(shape, leading)?;
    let [columns, rows, sections] = counts.sizes;
    let mut words = [0_u32; HEADER_BYTES / 4];
    let mut set = |word: usize, values: &[u32]| {
        for (to, from) in words.iter_mut().skip(word - 1).zip(values) {
            *to = *from;
        }
    };
    let integers =
        |values: &[i32]| -> Vec<u32> { values.iter().map(|value| value.cast_unsigned()).collect() };
    let floats = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
    // Word numbers are those of the specification, counted from 1.
    set(1, &integers(&[columns, rows, sections, mode, 0, 0, 0]));
    set(8, &integers(&[columns, rows, counts.volume]));
    let (cell, origin) = cell(axes, [columns, rows, counts.volume]);
    set(11, &floats(&cell));
    set(14, &floats(&[90.0; 3]));
    set(17, &integers(&[1, 2, 3]));
    // Unknown statistics: minimum > maximum > mean, and a negative deviation.
    set(20, &floats(&[0.0, -1.0, -2.0]));
    set(23, &integers(&[counts.space_group, 0]));
    set(28, &integers(&[20_140]));
    set(50, &floats(&origin));
    set(55, &floats(&[-1.0]));
    set(56, &integers(&[1]));
    let mut bytes: Vec<u8> = (words.iter())
        .flat_map(|word| match order {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        })
        .collect();
    let stamp = match order {
        ByteOrder::Little => [0x44, 0x44, 0, 0],
        ByteOrder::Big => [0x11, 0x11, 0, 0],
    };
    let label = format!("{:80}", "Rendered by zarrfs from a Zarr array");
    for (word, text) in [(53, &b"MAP "[..]), (54, &stamp), (57, label.as_bytes())] {
        for (to, from) in bytes.iter_mut().skip((word - 1) * 4).zip(text) {
            *to = *from;
        }
    }
    Ok(bytes)
}

/// Returns the size of the cell and its origin in angstroms; zero if the unit of the axis is not a length.
#[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
fn cell(axes: &[Axis], counts: [i32; 3]) -> ([f32; 3], [f32; 3]) {
    let (mut sizes, mut origin) = ([0.0; 3], [0.0; 3]);
    for (side, axis) in axes.iter().rev().take(3).enumerate() {
        let unit = axis.metres();
        let (Some(unit), Some(distance)) = (unit, axis.spacing) else {
            continue;
        };
        if axis.kind == AxisKind::Time || axis.kind == AxisKind::Channel {
            continue;
        }
        let angstroms = unit * 1e10;
        if let (Some(size), Some(start), Some(count)) =
            (sizes.get_mut(side), origin.get_mut(side), counts.get(side))
        {
            *size = (distance.abs() * angstroms * f64::from(*count)) as f32;
            *start = (axis.origin.unwrap_or(0.0) * angstroms) as f32;
        }
    }
    (sizes, origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_the_size_of_its_cell_in_angstroms() {
        let axis = Axis {
            spacing: Some(0.5),
            origin: Some(2.0),
            unit: Some("nanometer".into()),
            kind: AxisKind::Space,
            ..Axis::default()
        };
        let axes = [axis.clone(), axis.clone(), axis];
        let bytes = header(&[2, 3, 4], &axes, 2, ByteOrder::Little).unwrap();
        let word = |place: usize| <[u8; 4]>::try_from(&bytes[place * 4 - 4..place * 4]).unwrap();
        let words = |places: [usize; 4]| places.map(|place| i32::from_le_bytes(word(place)));
        assert_eq!(bytes.len(), 1024);
        assert_eq!(words([1, 2, 3, 4]), [4, 3, 2, 2]);
        assert_eq!(words([8, 9, 10, 23]), [4, 3, 2, 1]);
        assert_eq!(f32::from_le_bytes(word(11)), 20.0);
        assert_eq!(f32::from_le_bytes(word(50)), 20.0);
        assert_eq!((&word(53), word(54)), (b"MAP ", [0x44, 0x44, 0, 0]));
    }

    #[test]
    fn images_of_a_stack_have_no_cell_along_it() {
        let axes: Vec<Axis> = [AxisKind::Time, AxisKind::Space, AxisKind::Space]
            .map(|kind| Axis {
                kind,
                ..Axis::default()
            })
            .into();
        let bytes = header(&[7, 3, 4], &axes, 1, ByteOrder::Big).unwrap();
        let word =
            |place: usize| i32::from_be_bytes(bytes[place * 4 - 4..place * 4].try_into().unwrap());
        assert_eq!([3, 10, 23].map(word), [7, 1, 0]);
        assert!(Counts::of(&[1, 1, 1, 1, 1], AxisKind::Unknown).is_err());
        assert!(Counts::of(&[1 << 31, 1], AxisKind::Unknown).is_err());
        assert!(Counts::of(&[0, 1], AxisKind::Unknown).is_err());
    }
}
