//! An array of numbers as the raw elements of a `.bin` file, and as rasters of them: what the headers beside that file
//! have in common.

use crate::conventions::cf;
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::Notes;
use crate::conventions::text::shown;
use crate::node::{ArrayView, Number, NumberKind, Value};
use crate::zarr::{ByteOrder, Fixed, Scalar};

/// Returns the name of the data file that the headers refer to.
pub(super) fn data_name(view: &ArrayView<'_>) -> String {
    format!("{}.bin", view.node.name())
}

/// Returns the data type of the elements; unsigned if `_Unsigned` is set.
pub(super) fn element_type(view: &ArrayView<'_>) -> Fixed {
    let mut data_type = view.data_type().clone();
    let kind = |own| cf::kind_of_values(view.array, own);
    data_type.scalar = match data_type.scalar {
        Scalar::Int(order) if kind(NumberKind::Int) == NumberKind::UInt => Scalar::UInt(order),
        Scalar::UInt(order) if kind(NumberKind::UInt) == NumberKind::Int => Scalar::Int(order),
        scalar => scalar,
    };
    data_type
}

/// Returns the type of the numbers: numpy's letter (`c` for complex), size in bytes and byte order.
pub(super) fn number(data_type: &Fixed) -> (char, usize, ByteOrder) {
    match Number::of(data_type) {
        Some((number, 1)) => (number.letter(), number.size_bytes, number.order),
        Some((number, count)) => ('c', number.size_bytes * count, number.order),
        None => ('?', data_type.size_bytes, ByteOrder::Little),
    }
}

/// An array of numbers as rasters: the last axis is x, the one before it is y, the others are bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RasterSize {
    /// Elements of the last axis.
    pub(super) width: u64,
    /// Elements of the axis before it.
    pub(super) height: u64,
    /// Elements of all other axes.
    pub(super) bands: u64,
}

impl RasterSize {
    /// Returns the rasters of an array.
    ///
    /// # Errors
    /// The array has no elements.
    pub(super) fn of(shape: &[u64]) -> Result<Self, String> {
        let raster = match shape {
            [] => Self {
                width: 1,
                height: 1,
                bands: 1,
            },
            [width] => Self {
                width: *width,
                height: 1,
                bands: 1,
            },
            [bands @ .., height, width] => Self {
                width: *width,
                height: *height,
                bands: bands.iter().product(),
            },
        };
        if shape.contains(&0) {
            return Err("an array without elements is no raster".into());
        }
        Ok(raster)
    }
}

/// Returns why a format does not support a data type.
pub(super) fn no_type(format: &str, data_type: &Fixed) -> String {
    format!("{format} has no data type for {data_type}")
}

/// Returns the shortest text of a number.
pub(super) fn float(value: f64) -> String {
    shown(Value::Float(value))
}

/// Adds a note if coordinates are in no file, since they do not place a raster.
pub(super) fn note_without_place(metadata: Option<&RasterMetadata>, notes: &mut Notes) {
    let georef = metadata.map(|metadata| &metadata.georef);
    if georef.is_none_or(|georef| georef.transform.is_none()) {
        notes.add("no place is known: neither a transform nor coordinates of regular distances along two axes");
    }
}
