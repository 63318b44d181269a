//! NIfTI-Zarr (nifti-zarr 0.3 and 1.0.rc): an image of OME-Zarr, and the bytes of its NIfTI header in the array
//! `nifti` beside the levels (nifti1.h, nifti2.h).
//!
//! The header decides where the image is in a patient; the `multiscales` have only spacings. A smaller level is
//! placed by its transform relative to that of the finest level, as nifti-zarr does.

use super::affine::Affine;
use super::description::{Axis, Orientation};
use super::ome::Level;

/// The name of the array with the header.
pub const HEADER: &[u8] = b"nifti";
/// The axes of a header, in order; time and channels are not in space.
const AXES: [&str; 5] = ["x", "y", "z", "t", "c"];
const TIME: usize = 3;

/// The fields of a header that describe the image.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    lengths: Vec<u64>,
    /// The coordinates (RAS+) of an element, from its indices along x, y and z; `None` if the header has none.
    matrix: Option<[[f64; 4]; 3]>,
    unit: Option<&'static str>,
    /// The step in time, the time of the first volume, and their unit; `None` if the header lacks one of them.
    time: Option<(f64, f64, &'static str)>,
    /// `scl_slope` and `scl_inter`, if they change numbers.
    pub packing: Option<(f64, f64)>,
}

impl Header {
    /// Parses a header, in either byte order.
    ///
    /// # Errors
    /// Returns why the bytes are no header.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let fields = Fields::of(bytes).ok_or("no header of NIfTI-1 or NIfTI-2")?;
        fields.header().ok_or("too short or damaged")
    }

    /// Applies the header to a level of an image: spacings, origins and orientations, or a transform that turns or shears.
    /// `shape` are the lengths of the level, and `finest` are the axes of the finest level.
    ///
    /// # Errors
    /// Returns why the header is not that of the image.
    pub fn apply_to(
        &self,
        level: &mut Level,
        finest: &[Axis],
        shape: &[u64],
    ) -> Result<(), &'static str> {
        let places: Vec<Option<usize>> = level.axes.iter().map(header_axis).collect();
        if places.iter().any(Option::is_none) {
            return Err("beside an image whose axes are not x, y, z, t and c");
        }
        let own_length = |place: &Option<usize>| place.and_then(|axis| self.lengths.get(axis));
        let mut lengths = places.iter().zip(shape);
        if level.axes == finest
            && !lengths.all(|(place, own)| own_length(place).unwrap_or(&1) == own)
        {
            return Err("of an array of another shape");
        }
        if level.transform.is_some() {
            return Err("beside an image that its multiscales turn or shear");
        }
        let relative = relative(&level.axes, finest);
        for (axis, (factor, shift)) in level.axes.iter_mut().zip(&relative) {
            if let Some((step, start, unit)) = self.time
                && header_axis(axis) == Some(TIME)
            {
                (axis.spacing, axis.origin) = (Some(step * factor), Some(start + step * shift));
                axis.unit = Some(unit.to_owned());
            }
        }
        let Some(matrix) = &self.matrix else {
            return Ok(());
        };
        let affine = affine(matrix, &level.axes, &relative).ok_or("without finite numbers")?;
        let names: Vec<Option<String>> = level.axes.iter().map(|axis| axis.name.clone()).collect();
        for axis in &mut level.axes {
            axis.orientation = header_axis(axis).and_then(direction);
            if axis.orientation.is_some() {
                (axis.spacing, axis.origin) = (None, None);
                axis.unit = self.unit.map(str::to_owned).or(axis.unit.take());
            }
        }
        let rank = level.axes.len();
        level.apply(affine, rank);
        // An axis keeps its name, also if it runs along another axis of the patient.
        for (axis, name) in level.axes.iter_mut().zip(names) {
            axis.name = name;
        }
        level.axes.iter_mut().for_each(reverse_if_negative);
        Ok(())
    }
}

/// Returns whether an axis is number `place` of the axes of a header: x, y, z, t, c.
pub fn is_axis_of_header(place: usize, axis: &Axis) -> bool {
    header_axis(axis) == Some(place)
}

fn header_axis(axis: &Axis) -> Option<usize> {
    AXES.iter().position(|name| axis.is_named(name))
}

/// Returns the direction in which coordinates along x, y and z increase; `None` for other axes.
fn direction(place: usize) -> Option<Orientation> {
    (place < TIME).then_some(Orientation {
        direction: place,
        is_reversed: false,
    })
}

/// Describes an axis whose coordinates decrease by the reverse direction.
fn reverse_if_negative(axis: &mut Axis) {
    let is_negative = axis.spacing.is_some_and(|spacing| spacing < 0.0);
    if let Some(orientation) = axis.orientation.as_mut().filter(|_| is_negative) {
        orientation.is_reversed = !orientation.is_reversed;
        axis.spacing = axis.spacing.map(|spacing| -spacing);
        axis.origin = axis
            .origin
            .map(|origin| if origin == 0.0 { 0.0 } else { -origin });
    }
}

/// Returns, for each axis of a level, `factor` and `shift`: an index in the finest level is `factor` times the index of
/// the level plus `shift`.
fn relative(axes: &[Axis], finest: &[Axis]) -> Vec<(f64, f64)> {
    let of_axis = |(own, finest): (&Axis, &Axis)| {
        let (step, first) = (own.spacing.unwrap_or(1.0), own.origin.unwrap_or(0.0));
        let (fine, start) = (finest.spacing.unwrap_or(1.0), finest.origin.unwrap_or(0.0));
        (step / fine, (first - start) / fine)
    };
    axes.iter().zip(finest).map(of_axis).collect()
}

/// Returns the coordinates of a level along its own axes, from its indices; `relative` is that of [`relative`].
/// `None` for a matrix that has no inverse, or numbers that are not finite.
fn affine(matrix: &[[f64; 4]; 3], axes: &[Axis], relative: &[(f64, f64)]) -> Option<Affine> {
    let [[a, b, c, _], [d, e, f, _], [g, h, i, _]] = matrix;
    let determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
    if determinant == 0.0 || !determinant.is_finite() {
        return None;
    }
    let row = |(place, axis): (usize, &Axis)| {
        let mut row = vec![0.0; axes.len() + 1];
        let coordinate = header_axis(axis)?;
        let Some(cells) = matrix.get(coordinate) else {
            *row.get_mut(place)? = axis.spacing.unwrap_or(1.0);
            *row.last_mut()? = axis.origin.unwrap_or(0.0);
            return Some(row);
        };
        let mut offset = *cells.last()?;
        for (input, (other, (factor, shift))) in axes.iter().zip(relative).enumerate() {
            if let Some(cell) = header_axis(other).filter(|other| *other < TIME) {
                let cell = cells.get(cell)?;
                *row.get_mut(input)? = cell * factor;
                offset += cell * shift;
            }
        }
        *row.last_mut()? = offset;
        Some(row)
    };
    let rows: Option<Vec<Vec<f64>>> = axes.iter().enumerate().map(row).collect();
    Affine::of_rows(rows?, axes.len())
}

/// The fields of a header of either version and byte order.
struct Fields<'a> {
    bytes: &'a [u8],
    is_second: bool,
    is_big: bool,
}

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let size: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let found = [(348_i32, false), (540, true)];
        let (is_second, is_big) = found.iter().find_map(|(known, is_second)| {
            let is_big = known.to_be_bytes() == size;
            (is_big || known.to_le_bytes() == size).then_some((*is_second, is_big))
        })?;
        Some(Self {
            bytes,
            is_second,
            is_big,
        })
    }

    /// Returns the `N` bytes at an offset, the lowest first.
    fn lowest<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut field: [u8; N] = self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
        if self.is_big {
            field.reverse();
        }
        Some(field)
    }

    /// Returns number `index` of the floats at an offset of NIfTI-1, and of NIfTI-2.
    fn float(&self, at: (usize, usize), index: usize) -> Option<f64> {
        match self.is_second {
            true => self.lowest(at.1 + 8 * index).map(f64::from_le_bytes),
            false => {
                (self.lowest(at.0 + 4 * index)).map(|field| f64::from(f32::from_le_bytes(field)))
            }
        }
    }

    /// Returns an array of floats.
    fn floats<const N: usize>(&self, at: (usize, usize), from: usize) -> Option<[f64; N]> {
        let mut found = [0.0; N];
        for (place, to) in found.iter_mut().enumerate() {
            *to = self.float(at, from + place)?;
        }
        Some(found)
    }

    /// Returns a code, of two or four bytes.
    fn code(&self, at: (usize, usize)) -> Option<i32> {
        match self.is_second {
            true => self.lowest(at.1).map(i32::from_le_bytes),
            false => (self.lowest(at.0)).map(|field| i16::from_le_bytes(field).into()),
        }
    }

    fn length(&self, axis: usize) -> Option<u64> {
        let length = match self.is_second {
            true => i64::from_le_bytes(self.lowest(16 + 8 * axis)?),
            false => i16::from_le_bytes(self.lowest(40 + 2 * axis)?).into(),
        };
        u64::try_from(length).ok()
    }

    fn header(&self) -> Option<Header> {
        let rank = usize::try_from(self.length(0)?).ok()?.min(7);
        let lengths: Option<Vec<u64>> = (1..=rank).map(|axis| self.length(axis)).collect();
        let units = match self.is_second {
            true => self.code((0, 500))?,
            false => i32::from(*self.bytes.get(123)?),
        };
        let [slope, intercept] = self.floats((112, 176), 0)?;
        let is_packed = slope != 0.0 && slope.is_finite() && intercept.is_finite();
        let (step, start) = (self.float((76, 104), 4)?, self.float((136, 216), 0)?);
        let time_unit = match units & 0x38 {
            8 => Some("second"),
            16 => Some("millisecond"),
            24 => Some("microsecond"),
            _ => None,
        };
        let has_time = step > 0.0 && step.is_finite() && start.is_finite();
        let time_unit = time_unit.filter(|_| has_time);
        Some(Header {
            lengths: lengths?,
            matrix: self.matrix()?,
            unit: match units & 7 {
                1 => Some("meter"),
                2 => Some("millimeter"),
                3 => Some("micrometer"),
                _ => None,
            },
            time: time_unit.map(|unit| (step, start, unit)),
            packing: (is_packed && (slope, intercept) != (1.0, 0.0)).then_some((slope, intercept)),
        })
    }

    /// Returns the matrix `sform`, else `qform`; `Some(None)` if the header has neither.
    fn matrix(&self) -> Option<Option<[[f64; 4]; 3]>> {
        if self.code((254, 348))? > 0 {
            let rows = [0, 4, 8].map(|from| self.floats::<4>((280, 400), from));
            let [x, y, z] = rows;
            return Some(Some([x?, y?, z?]));
        }
        if self.code((252, 344))? <= 0 {
            return Some(None);
        }
        let [b, c, d] = self.floats::<3>((256, 352), 0)?;
        let offset: [f64; 3] = self.floats((268, 376), 0)?;
        let [handedness, pixels @ ..]: [f64; 4] = self.floats((76, 104), 0)?;
        let a = (1.0 - (b * b + c * c + d * d)).max(0.0).sqrt();
        let turn = [
            [
                a * a + b * b - c * c - d * d,
                2.0 * (b * c - a * d),
                2.0 * (b * d + a * c),
            ],
            [
                2.0 * (b * c + a * d),
                a * a + c * c - b * b - d * d,
                2.0 * (c * d - a * b),
            ],
            [
                2.0 * (b * d - a * c),
                2.0 * (c * d + a * b),
                a * a + d * d - b * b - c * c,
            ],
        ];
        let third = if handedness < 0.0 { -1.0 } else { 1.0 };
        let [dx, dy, dz] = pixels;
        let row = |([x, y, z], first): ([f64; 3], f64)| [x * dx, y * dy, z * dz * third, first];
        let [x, y, z] = turn;
        let [first_x, first_y, first_z] = offset;
        Some(Some([(x, first_x), (y, first_y), (z, first_z)].map(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::description::AxisKind;

    fn axes(names: &str, spacing: f64, origin: f64) -> Vec<Axis> {
        let axis = |name: char| Axis {
            name: Some(name.into()),
            kind: AxisKind::of_name(&name.to_string()),
            spacing: Some(spacing),
            origin: Some(origin),
            ..Axis::default()
        };
        names.chars().map(axis).collect()
    }

    fn header(is_big: bool) -> Vec<u8> {
        let mut bytes = vec![0; 348];
        let mut put = |at: usize, field: &[u8]| {
            let field = match is_big {
                true => field.iter().rev().copied().collect(),
                false => field.to_vec(),
            };
            bytes[at..at + field.len()].copy_from_slice(&field);
        };
        put(0, &348_i32.to_le_bytes());
        for (axis, length) in [4_i16, 6, 5, 4, 3].iter().enumerate() {
            put(40 + 2 * axis, &length.to_le_bytes());
        }
        put(92, &2_f32.to_le_bytes());
        put(112, &0.5_f32.to_le_bytes());
        put(116, &3_f32.to_le_bytes());
        put(136, &7_f32.to_le_bytes());
        put(254, &1_i16.to_le_bytes());
        let rows = [
            [-0.25, 0.0, 0.0, 30.0],
            [0.0, 0.5, 0.0, 20.0],
            [0.0, 0.0, 2.0, 10.0_f32],
        ];
        for (place, cell) in rows.as_flattened().iter().enumerate() {
            put(280 + 4 * place, &cell.to_le_bytes());
        }
        bytes[123] = 2 + 8;
        bytes
    }

    #[test]
    fn a_header_places_each_level() {
        for is_big in [false, true] {
            let found = Header::parse(&header(is_big)).unwrap();
            assert_eq!(found.packing, Some((0.5, 3.0)));
            let finest = axes("tzyx", 1.0, 0.0);
            let mut level = Level {
                axes: finest.clone(),
                ..Level::default()
            };
            found.apply_to(&mut level, &finest, &[3, 4, 5, 6]).unwrap();
            let parts: Vec<_> = (level.axes.iter())
                .map(|axis| (axis.spacing.unwrap(), axis.origin.unwrap()))
                .collect();
            assert_eq!(parts, [(2.0, 7.0), (2.0, 10.0), (0.5, 20.0), (0.25, -30.0)]);
            let x = level.axes[3].clone();
            assert_eq!(x.orientation.unwrap().name(), "right-to-left");
            assert_eq!(x.unit.as_deref(), Some("millimeter"));
            assert_eq!(level.axes[0].unit.as_deref(), Some("second"));
            // Half the size: the first element is between two of the finest level.
            let mut level = Level {
                axes: axes("tzyx", 2.0, 0.5),
                ..Level::default()
            };
            found.apply_to(&mut level, &finest, &[3, 2, 3, 3]).unwrap();
            let x = &level.axes[3];
            assert_eq!((x.spacing, x.origin), (Some(0.5), Some(-29.875)));
        }
    }

    /// Returns the finest level of names `zyx` and spacing 3 as the header places it, or why it does not.
    fn finest(bytes: &[u8]) -> Result<Level, &'static str> {
        let finest = axes("tzyx", 3.0, 0.0);
        let mut level = Level {
            axes: finest.clone(),
            ..Level::default()
        };
        Header::parse(bytes)?.apply_to(&mut level, &finest, &[3, 4, 5, 6])?;
        Ok(level)
    }

    fn with(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = header(false);
        for (at, field) in changes {
            bytes[*at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    #[test]
    fn axes_keep_their_names_if_the_patient_lies_along_others() {
        // x of the array runs to anterior, y to superior and z to the right.
        let rows = [
            [0.0, 0.0, 2.0, 1.0],
            [0.25, 0.0, 0.0, 2.0],
            [0.0, 0.5, 0.0, 3.0_f32],
        ];
        let rows: Vec<u8> = (rows.as_flattened().iter())
            .flat_map(|cell| cell.to_le_bytes())
            .collect();
        let level = finest(&with(&[(280, &rows)])).unwrap();
        let found = |place: usize| {
            let axis = &level.axes[place];
            let direction = axis.orientation.unwrap().name();
            (
                axis.name.as_deref().unwrap(),
                direction,
                axis.spacing.unwrap(),
                axis.origin.unwrap(),
            )
        };
        assert_eq!(found(1), ("z", "left-to-right", 2.0, 1.0));
        assert_eq!(found(2), ("y", "inferior-to-superior", 0.5, 3.0));
        assert_eq!(found(3), ("x", "posterior-to-anterior", 0.25, 2.0));
        // A tilted patient has a transform, whose coordinates have the directions.
        let tilted = level_of_tilted(&rows);
        assert!(tilted.axes.iter().all(|axis| axis.orientation.is_none()));
        assert!(tilted.transform.unwrap().is_oriented());
    }

    fn level_of_tilted(rows: &[u8]) -> Level {
        finest(&with(&[(280, rows), (280, &0.01_f32.to_le_bytes())])).unwrap()
    }

    #[test]
    fn what_a_header_lacks_is_that_of_the_image() {
        let steps = |level: &Level| {
            level
                .axes
                .iter()
                .map(|axis| axis.spacing)
                .collect::<Vec<_>>()
        };
        // Neither sform nor qform: spacings and units in space stay.
        let level = finest(&with(&[(254, &[0]), (252, &[0])])).unwrap();
        assert_eq!(steps(&level), [Some(2.0), Some(3.0), Some(3.0), Some(3.0)]);
        assert_eq!(level.axes[3].unit, None);
        // No step, no number, or no unit of time: the step stays.
        let infinite = f32::INFINITY.to_le_bytes();
        for change in [(92, &[0; 4][..]), (92, &infinite), (123, &[2])] {
            let level = finest(&with(&[change])).unwrap();
            assert_eq!(level.axes[0].spacing, Some(3.0), "{change:?}");
        }
        // A matrix without an inverse is no place.
        assert!(finest(&with(&[(280, &[0; 48])])).is_err());
        // A level of half the times has twice the step.
        let mut level = Level {
            axes: axes("tzyx", 6.0, 3.0),
            ..Level::default()
        };
        let found = Header::parse(&header(false)).unwrap();
        found
            .apply_to(&mut level, &axes("tzyx", 3.0, 0.0), &[2, 2, 3, 3])
            .unwrap();
        assert_eq!(
            (level.axes[0].spacing, level.axes[0].origin),
            (Some(4.0), Some(9.0))
        );
    }

    #[test]
    fn a_header_of_another_image_is_refused() {
        let found = Header::parse(&header(false)).unwrap();
        for (names, shape) in [("tzyx", &[3, 4, 5, 7][..]), ("qzyx", &[3, 4, 5, 6])] {
            let finest = axes(names, 1.0, 0.0);
            let mut level = Level {
                axes: finest.clone(),
                ..Level::default()
            };
            assert!(
                found.apply_to(&mut level, &finest, shape).is_err(),
                "{names}"
            );
            assert_eq!(level.axes, finest);
        }
        assert!(Header::parse(&[]).is_err());
        assert!(Header::parse(&header(false)[..200]).is_err());
        assert!(Header::parse(&[0; 348]).is_err());
    }

    #[test]
    fn a_quaternion_places_an_image_without_sform() {
        let mut bytes = header(false);
        bytes[254] = 0;
        bytes[252] = 1;
        // Half a turn about z.
        bytes[264..268].copy_from_slice(&1_f32.to_le_bytes());
        for (place, value) in [-1.0_f32, 0.25, 0.5, 2.0].iter().enumerate() {
            bytes[76 + 4 * place..80 + 4 * place].copy_from_slice(&value.to_le_bytes());
        }
        let matrix = Header::parse(&bytes).unwrap().matrix.unwrap();
        let diagonal = [matrix[0][0], matrix[1][1], matrix[2][2]];
        assert_eq!(diagonal, [-0.25, -0.5, -2.0]);
        bytes[252] = 0;
        assert_eq!(Header::parse(&bytes).unwrap().matrix, None);
    }
}
