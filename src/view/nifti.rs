//! NIfTI-1 and NIfTI-2 (nifti.nimh.nih.gov): a header of 348 or 540 bytes and the elements, with x as the
//! fastest axis, then y, z, time, and others.
//!
//! NIfTI-2 is used only for axes longer than 32767: fewer programs read it.

mod axes;
mod header;
mod stored;

use super::array_view::ArrayView;
use super::content::ContentError;
use super::georef::context::Notes;
use super::georef::spacing::{ImageMetadata, metres, seconds};
use super::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile, elements_start};
use super::number::{Conversion, Number, NumberKind};
use super::resolve::NodeResolver;
use super::sidecar::element_type;
use crate::zarr::ByteOrder;
use axes::Axes;
use header::{Geometry, Header, X_Y_Z};

/// Renders an array as a NIfTI file.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
pub(super) fn render(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<VirtualFile, ContentError> {
    let (datatype, conversion) = number(view)?;
    check(view)?;
    let mut notes = Notes::default();
    let metadata = ImageMetadata::of(view, nodes, &mut notes)?;
    let axes = Axes::of(view.shape(), &metadata.axes);
    let extent = ArrayExtent::new(0, view.reader, ElementOrder::RowMajor, conversion);
    let extent = extent.ok_or_else(|| "the size overflows 64 bits".to_owned())?;
    let size_bytes = extent.size_bytes;
    let mut header = Header {
        order: order(view),
        datatype,
        bits: bits(datatype),
        lengths: axes.lengths.clone(),
        offset: 0,
        scale: metadata.scale,
        shift: metadata.offset,
        units: 0,
        geometry: Geometry::default(),
        description: metadata.units.clone().unwrap_or_default(),
    };
    (header.geometry, header.units) = geometry(&axes, &metadata);
    let is_rounded = |value: Option<f64>| value.is_some_and(|v| f64::from(single(v)) != v);
    if !header.is_long() && (is_rounded(metadata.scale) || is_rounded(metadata.offset)) {
        notes.add("scale_factor and add_offset are rounded to single precision");
    }
    header.offset = elements_start(header.size_bytes(), size_bytes, 64)
        .ok_or_else(|| "the size overflows 64 bits".to_owned())?;
    let mut bytes = header.encode()?;
    if let Some(stored) = stored::find(view, nodes)? {
        match stored::merge(&bytes, &stored, header.order) {
            Ok(merged) => bytes = merged,
            Err(why) => notes.add(format!("the header in the array nifti is {why}: left out")),
        }
    }
    let gap = header.offset.saturating_sub(bytes.len() as u64);
    let elements = axes.segment(extent);
    let parts = [Segment::Bytes(bytes), Segment::Zeros(gap), elements];
    let mut file = VirtualFile::of_array(view.reader, parts)?;
    file.notes = notes.0;
    Ok(file)
}

/// Checks that NIfTI supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
pub(super) fn check(view: &ArrayView<'_>) -> Result<(), String> {
    number(view)?;
    let rank = view.shape().len();
    if !(2..=7).contains(&rank) {
        return Err(format!("NIfTI has arrays of 2 to 7 axes, this has {rank}"));
    }
    if view.shape().contains(&0) {
        return Err("an array without elements is no image".into());
    }
    Ok(())
}

/// Returns the data type of the header, and the conversion of the numbers.
fn number(view: &ArrayView<'_>) -> Result<(i16, Option<Conversion>), String> {
    let data_type = element_type(view);
    let none = || format!("NIfTI has no data type for {data_type}");
    let (number, count) = Number::of(&data_type).ok_or_else(none)?;
    let code = match (number.kind, number.size_bytes, count) {
        (NumberKind::UInt, 1, 1) => 2,
        (NumberKind::Int, 2, 1) => 4,
        (NumberKind::Int, 4, 1) => 8,
        (NumberKind::Float, 2 | 4, 1) => 16,
        (NumberKind::Float, 4, 2) => 32,
        (NumberKind::Float, 8, 1) => 64,
        (NumberKind::Int, 1, 1) => 256,
        (NumberKind::UInt, 2, 1) => 512,
        (NumberKind::UInt, 4, 1) => 768,
        (NumberKind::Int, 8, 1) => 1024,
        (NumberKind::UInt, 8, 1) => 1280,
        (NumberKind::Float, 8, 2) => 1792,
        _ => return Err(none()),
    };
    let single = Number::new(NumberKind::Float, 4, number.order);
    let is_half = number.kind == NumberKind::Float && number.size_bytes == 2;
    Ok((code, is_half.then(|| Conversion::new(number, single))))
}

fn order(view: &ArrayView<'_>) -> ByteOrder {
    Number::of(view.data_type()).map_or(ByteOrder::Little, |(number, _)| number.order)
}

fn bits(datatype: i16) -> i16 {
    match datatype {
        2 | 256 => 8,
        4 | 512 => 16,
        8 | 16 | 768 => 32,
        1792 => 128,
        _ => 64,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
fn single(value: f64) -> f32 {
    value as f32
}

/// Units of the header, with their codes: metres, millimetres and micrometres; seconds and their fractions.
const LENGTHS: [(f64, u8); 3] = [(1.0, 1), (1e-3, 2), (1e-6, 3)];
const TIMES: [(f64, u8); 3] = [(1.0, 8), (1e-3, 16), (1e-6, 24)];

/// Returns the direction of each of the first three axes of the file, if their names are x, y and z (or x and
/// y) in any order; else they are x, y and z in this order.
fn directions(names: &[Option<&str>]) -> [usize; 3] {
    let direction = |name: &str| match name.to_ascii_lowercase().as_str() {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let mut found = X_Y_Z;
    let named = names.iter().flatten().count();
    for (to, name) in found.iter_mut().zip(names).take(named) {
        match name.and_then(direction) {
            Some(direction) if direction < named => *to = direction,
            _ => return X_Y_Z,
        }
    }
    let mut sorted = found;
    sorted.sort_unstable();
    if sorted == X_Y_Z { found } else { X_Y_Z }
}

/// Returns the spacing and the affine transform of the file's axes, and the units.
fn geometry(axes: &Axes, metadata: &ImageMetadata) -> (Geometry, u8) {
    let of_axis = |place: usize| {
        let axis = axes.sources.get(place).copied().flatten();
        axis.and_then(|axis| metadata.axes.get(axis))
    };
    // All lengths have one unit: that of the array, else millimetres or, for small lengths, micrometres.
    let spatial_axes: Vec<_> = (0..3).map(of_axis).collect();
    let lengths = spatial_axes.iter().flatten();
    let known: Option<Vec<f64>> = lengths
        .map(|axis| axis.unit.as_deref().and_then(metres))
        .collect();
    let known = known.filter(|known| !known.is_empty());
    let length = known.as_ref().map(|known| {
        let largest = known.iter().copied().fold(0.0, f64::max);
        let own = LENGTHS
            .iter()
            .find(|(size, _)| known.iter().all(|one| one == size));
        own.copied().unwrap_or(match largest < 1e-4 {
            true => (1e-6, 3),
            false => (1e-3, 2),
        })
    });
    let mut geometry = Geometry::default();
    let mut is_known = false;
    for (place, axis) in spatial_axes.iter().enumerate() {
        let Some(axis) = axis else { continue };
        let factor = match (length, axis.unit.as_deref().and_then(metres)) {
            (Some((unit, _)), Some(own)) if own != unit => own / unit,
            _ => 1.0,
        };
        is_known |= axis.distance.is_some();
        geometry.set(
            place,
            axis.distance.unwrap_or(1.0) * factor,
            axis.first.unwrap_or(0.0) * factor,
        );
    }
    let names = spatial_axes
        .iter()
        .map(|axis| axis.and_then(|axis| axis.name.as_deref()));
    geometry.directions = directions(&names.collect::<Vec<_>>());
    // Names in another order say how the image is turned, also without spacings.
    geometry.is_known = is_known || geometry.directions != X_Y_Z;
    let mut units = length.map_or(0, |(_, code)| code);
    if let Some(time) = of_axis(3) {
        let own = time.unit.as_deref().and_then(seconds);
        let exact = own.and_then(|own| TIMES.iter().find(|(size, _)| *size == own));
        let (factor, code) = match (exact, own) {
            (Some((_, code)), _) => (1.0, *code),
            (None, Some(own)) => (own, 8),
            (None, None) => (1.0, 0),
        };
        geometry.step = time.distance.map_or(1.0, |step| step.abs() * factor);
        units |= code;
    }
    (geometry, units)
}
