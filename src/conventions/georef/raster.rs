//! An array as a raster: its spatial axes and its samples.

use super::context::short;
use crate::conventions::cf;
use crate::node::{ArrayView, Conversion, Number, NumberKind};
use crate::zarr::{Fixed, Scalar};

/// An array as a raster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raster {
    pub(crate) width: u64,
    pub(crate) height: u64,
    /// Number of samples (bands) of a pixel.
    pub(crate) samples: u64,
    /// Whether the samples of a pixel are contiguous; otherwise each band is a plane.
    pub(crate) is_chunky: bool,
    /// Number of planes along each leading axis.
    pub(crate) planes: Vec<u64>,
    /// Names of the leading axes, or of the last one.
    pub(crate) band_axes: Vec<Option<String>>,
    /// The name of the y axis.
    pub(crate) down: Option<String>,
    /// The name of the x axis.
    pub(crate) across: Option<String>,
    /// The type of the numbers in a file.
    pub(crate) number: Number,
    /// Count of numbers in a sample: two if it is complex.
    pub(crate) numbers: u64,
    /// The conversion from the array's numbers to those of the file.
    pub(crate) conversion: Option<Conversion>,
}

/// GDAL counts pixels in a C `int`, and TIFF 6.0 counts samples in a `SHORT`.
const MAX_SIDE: u64 = 0x7FFF_FFFF;
const MAX_SAMPLES: u64 = 65_535;

impl Raster {
    /// Returns the raster of an array; `names` are the y and x axes, if the metadata declare them.
    ///
    /// # Errors
    /// Returns why the array is no raster.
    pub(crate) fn of(
        view: &ArrayView<'_>,
        names: Option<&(String, String)>,
    ) -> Result<Self, String> {
        let (mut number, numbers, conversion) = sample(view.data_type())?;
        // The bits are the same, so a change of the sign alone needs no conversion.
        number.kind = cf::kind_of_values(view.array, number.kind);
        let shape = view.shape();
        let rank = shape.len();
        if rank < 2 {
            return Err(format!("{rank} axes: a raster has two and more"));
        }
        if shape.contains(&0) {
            return Err("an array without elements is no raster".into());
        }
        let mut dimensions = view.array.dimension_names.clone();
        if dimensions.len() != rank {
            dimensions = vec![None; rank];
        }
        let is_chunky =
            spatial_axes_position(&dimensions, names)? == SpatialAxesPosition::BeforeBands;
        let down_at = rank - if is_chunky { 3 } else { 2 };
        let (height, width) = match shape.get(down_at..) {
            Some([height, width, ..]) => (*height, *width),
            _ => return Err("no axes".into()),
        };
        let name = |axis: usize| dimensions.get(axis).cloned().flatten();
        let (planes, samples, band_axes) = if is_chunky {
            let leading = shape.get(..down_at).unwrap_or_default();
            if leading.iter().any(|length| *length != 1) {
                return Err("bands both before and behind the sides of the image".into());
            }
            let samples = shape.last().copied().unwrap_or(1);
            (vec![1; down_at], samples, vec![name(rank - 1)])
        } else {
            let planes = shape.get(..down_at).unwrap_or_default().to_vec();
            let samples = planes.iter().try_fold(1_u64, |n, m| n.checked_mul(*m));
            let axes = (0..down_at).map(name).collect();
            (planes, samples.unwrap_or(u64::MAX), axes)
        };
        if width > MAX_SIDE || height > MAX_SIDE || samples > MAX_SAMPLES {
            return Err(format!(
                "{width} x {height} x {samples} is too much: {MAX_SIDE} pixels across or down and \
                 {MAX_SAMPLES} bands are the limits"
            ));
        }
        Ok(Self {
            width,
            height,
            samples,
            is_chunky,
            planes,
            band_axes,
            down: name(down_at),
            across: name(down_at + 1),
            number,
            numbers,
            conversion,
        })
    }

    /// Returns the last two axes of an array as a raster, and the others as bands, whatever their names. Missing
    /// axes have a length of 1.
    ///
    /// # Errors
    /// Returns why the array is no raster.
    pub(crate) fn of_last_axes(view: &ArrayView<'_>) -> Result<Self, String> {
        let (mut number, numbers, conversion) = sample(view.data_type())?;
        number.kind = cf::kind_of_values(view.array, number.kind);
        let (planes, [height, width]) = match *view.shape() {
            [] => (&[][..], [1, 1]),
            [width] => (&[][..], [1, width]),
            [ref planes @ .., height, width] => (planes, [height, width]),
        };
        Ok(Self {
            numbers,
            conversion,
            ..Self::of_planes(planes, height, width, number)
        })
    }

    /// Returns a raster of numbers whose axes have no names.
    pub(crate) fn of_planes(planes: &[u64], height: u64, width: u64, number: Number) -> Self {
        Self {
            width,
            height,
            samples: planes.iter().fold(1, |n, m| n.saturating_mul(*m)),
            is_chunky: false,
            planes: planes.to_vec(),
            band_axes: vec![None; planes.len()],
            down: None,
            across: None,
            number,
            numbers: 1,
            conversion: None,
        }
    }
}

/// Returns the numbers of a sample: type, count, and conversion.
fn sample(data_type: &Fixed) -> Result<(Number, u64, Option<Conversion>), String> {
    let none = || format!("TIFF has no samples for {data_type}");
    match data_type.scalar {
        Scalar::Bool | Scalar::Int(_) | Scalar::UInt(_) | Scalar::Float(_) | Scalar::Complex(_) => {
        }
        _ => return Err(none()),
    }
    let (from, count) = Number::of(data_type).ok_or_else(none)?;
    let to = match (from.kind, from.size_bytes) {
        (NumberKind::Float, 2) => Number::new(NumberKind::Float, 4, from.order),
        (NumberKind::Float, 4 | 8) | (NumberKind::Int | NumberKind::UInt, 1 | 2 | 4 | 8) => from,
        _ => return Err(none()),
    };
    let conversion = (from != to).then(|| Conversion::new(from, to));
    Ok((to, count as u64, conversion))
}

/// The position of the spatial axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpatialAxesPosition {
    Last,
    BeforeBands,
}

/// The direction of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// y: north or south.
    Down,
    /// x: east or west.
    Across,
}

/// Names of y and x axes in the supported conventions.
const DOWN: [&str; 20] = [
    "y",
    "lat",
    "lats",
    "latitude",
    "latitudes",
    "northing",
    "row",
    "rows",
    "rlat",
    "yc",
    "nj",
    "nlat",
    "nlats",
    "nav_lat",
    "ydim",
    "south_north",
    "south_north_stag",
    "y_coordinate",
    "projection_y_coordinate",
    "grid_latitude",
];
const ACROSS: [&str; 22] = [
    "x",
    "lon",
    "lons",
    "longitude",
    "longitudes",
    "easting",
    "col",
    "cols",
    "column",
    "columns",
    "rlon",
    "xc",
    "ni",
    "nlon",
    "nlons",
    "nav_lon",
    "xdim",
    "west_east",
    "west_east_stag",
    "x_coordinate",
    "projection_x_coordinate",
    "grid_longitude",
];

/// Returns the direction of a name, which may have a numeric suffix (`x_1`, `y20`).
pub(crate) fn direction_of(name: &str) -> Option<Direction> {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.strip_suffix('_').unwrap_or(name);
    if DOWN.contains(&name) {
        Some(Direction::Down)
    } else if ACROSS.contains(&name) {
        Some(Direction::Across)
    } else {
        None
    }
}

/// Returns the position of the spatial axes by their names; without such names, of the last two axes.
fn spatial_axes_position(
    axes: &[Option<String>],
    names: Option<&(String, String)>,
) -> Result<SpatialAxesPosition, String> {
    let place = |known: &dyn Fn(&str) -> bool| {
        let mut found = axes.iter().enumerate().filter(|(_, name)| match name {
            Some(name) => known(name),
            None => false,
        });
        // The last of several matches: the others are bands.
        found.next_back().map(|(axis, _)| axis)
    };
    let is_in = |direction| move |name: &str| direction_of(name) == Some(direction);
    let (mut down, mut across) = (
        place(&is_in(Direction::Down)),
        place(&is_in(Direction::Across)),
    );
    if let Some((y, x)) = names {
        let declared = (place(&|name| name == y), place(&|name| name == x));
        if let (Some(y), Some(x)) = declared {
            (down, across) = (Some(y), Some(x));
        }
    }
    let (last, before) = (axes.len() - 1, axes.len() - 2);
    match (down, across) {
        (None, None) => Ok(SpatialAxesPosition::Last),
        (Some(y), Some(x)) if (y, x) == (before, last) => Ok(SpatialAxesPosition::Last),
        (Some(y), None) if y == before => Ok(SpatialAxesPosition::Last),
        (None, Some(x)) if x == last => Ok(SpatialAxesPosition::Last),
        (Some(y), Some(x)) if last >= 2 && (y, x) == (last - 2, last - 1) => {
            Ok(SpatialAxesPosition::BeforeBands)
        }
        _ => {
            let axes: Vec<String> = axes
                .iter()
                .map(|name| short(name.as_deref().unwrap_or("?")))
                .collect();
            Err(format!(
                "axes ({}): only (..., y, x) and (y, x, band) are not shown transposed",
                axes.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::ByteOrder;

    fn axes(names: &str) -> Vec<Option<String>> {
        let one = |name: &str| (name != "-").then(|| name.to_owned());
        names.split(' ').map(one).collect()
    }

    #[test]
    fn spatial_axes_are_found_by_name_or_are_the_last() {
        for names in [
            "y x",
            "- -",
            "time lat lon",
            "band Y X",
            "time a b",
            "lat bnds",
            "x y x",
            "y20 x20",
            "south_north west_east",
        ] {
            assert_eq!(
                spatial_axes_position(&axes(names), None),
                Ok(SpatialAxesPosition::Last),
                "{names}"
            );
        }
        for names in ["y x band", "time lat lon -"] {
            assert_eq!(
                spatial_axes_position(&axes(names), None),
                Ok(SpatialAxesPosition::BeforeBands),
                "{names}"
            );
        }
        for names in [
            "x y",
            "lon lat",
            "time lat",
            "y band x",
            "y x a b",
            "x band",
            "lat time lev",
            "lons lats",
            "nlon nlat",
            "XDim YDim",
            "west_east south_north",
            "x_1 y_1",
            "nav_lon nav_lat",
        ] {
            let why = spatial_axes_position(&axes(names), None).unwrap_err();
            assert!(why.contains("transposed"), "{names}: {why}");
        }
        let declared = Some(("u".to_owned(), "v".to_owned()));
        assert_eq!(
            spatial_axes_position(&axes("u v c"), declared.as_ref()),
            Ok(SpatialAxesPosition::BeforeBands)
        );
        assert!(spatial_axes_position(&axes("v u"), declared.as_ref()).is_err());
    }

    #[test]
    fn samples_have_types_that_readers_support() {
        let order = ByteOrder::Big;
        let fixed = |scalar, size_bytes| Fixed { scalar, size_bytes };
        let (half, one, conversion) = sample(&fixed(Scalar::Float(order), 2)).unwrap();
        assert_eq!((half.size_bytes, half.order, one), (4, order, 1));
        assert_eq!(conversion.unwrap().from.size_bytes, 2);
        let (float, two, conversion) = sample(&fixed(Scalar::Complex(order), 16)).unwrap();
        assert_eq!((float.size_bytes, two, conversion), (8, 2, None));
        assert!(sample(&fixed(Scalar::Raw, 4)).is_err());
        assert!(sample(&fixed(Scalar::Text(order), 4)).is_err());
    }
}
