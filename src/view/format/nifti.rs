//! NIfTI-1 and NIfTI-2 (nifti.nimh.nih.gov): a header of 348 or 540 bytes and the elements, with x as the
//! fastest axis, then y, z, time, and others.
//!
//! NIfTI-2 is used only for axes longer than 32767: fewer programs read it.

mod axes;
mod geometry;
mod header;
mod stored;

use super::Renderer;
use super::raw_data::element_type;
use super::row::{FormatRow, Listing, ViewName, proven};
use crate::conventions::description::Description;
use crate::conventions::description::Field;
use crate::conventions::georef::context::Notes;
use crate::conventions::georef::nifti_header;
use crate::node::{ArrayView, ContentError, Conversion, NodeResolver, Number, NumberKind};
use crate::view::file::layout::{
    ArrayExtent, ElementOrder, Segment, VirtualFile, elements_start, has_gap,
};
use crate::zarr::ByteOrder;
use axes::Axes;
use geometry::Geometry;
use header::Header;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "nii",
    ViewName::Suffix(".nii"),
    "NIfTI",
    "python3 -c 'import nibabel, sys; print(nibabel.load(sys.argv[1]))'",
    Renderer::ArrayWithNodes(|view, _| proven(check(view)), render),
)
.expressing(&[
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Orientation,
    Field::Transform,
    Field::Coordinates,
    Field::Packing,
    Field::HeaderPacking,
    Field::ValueUnits,
])
.also_called(&["nifti"])
.listed(Listing::ByName)];

/// Renders an array as a NIfTI file.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn render(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    let (datatype, conversion) = number(view)?;
    check(view)?;
    let mut notes = Notes::default();
    let metadata = Description::of(view, nodes, &mut notes)?;
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
        geometry: Geometry::of(&axes, &metadata, &mut notes),
        description: metadata.units.clone().unwrap_or_default(),
    };
    if !header.is_long() {
        round_packing(&mut header, &mut notes);
    }
    header.offset = elements_start(header.size_bytes(), has_gap(size_bytes), 64)
        .ok_or_else(|| "the size overflows 64 bits".to_owned())?;
    let mut bytes = header.encode()?;
    if metadata.has_nifti_header
        && let Some(Ok(stored)) = nifti_header::find(view, nodes)?
    {
        let own = stored::Own {
            has_description: !header.description.is_empty(),
            has_geometry: !axes.are_of_header(&metadata.axes),
        };
        match stored::merge(&bytes, &stored, header.order, &own) {
            Ok(merged) => bytes = merged,
            Err(why) => notes.add(format!(
                "the header in the array nifti is {why}: the file has only its coordinates"
            )),
        }
    }
    let gap = header.offset.saturating_sub(bytes.len() as u64);
    let elements = axes.segment(extent);
    let parts = [Segment::Bytes(bytes), Segment::Zeros(gap), elements];
    let mut file = VirtualFile::of_array(view.reader, parts)?;
    file.notes = notes.0;
    Ok(file)
}

/// Adds a note if the single precision of a header changes scale and offset. Those beyond its range are left out: a
/// slope that became zero would say that the numbers are the values.
fn round_packing(header: &mut Header, notes: &mut Notes) {
    let values = [header.scale, header.shift];
    let mut values = values.into_iter().flatten().filter(|value| *value != 0.0);
    if values.clone().any(|value| !single(value).is_normal()) {
        notes.add("scale_factor and add_offset are left out: single precision has no such numbers");
        (header.scale, header.shift) = (None, None);
    } else if values.any(|value| f64::from(single(value)) != value) {
        notes.add("scale_factor and add_offset are rounded to single precision");
    }
}

/// Checks that NIfTI supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check(view: &ArrayView<'_>) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_beyond_single_precision_is_left_out_and_never_zero() {
        for (scale, shift, is_kept) in [
            (0.5, Some(2.0), true),
            (0.1, None, true),
            (1e-46, Some(2.0), false),
            (1e-42, None, false),
            (1e39, None, false),
            (1.0, Some(1e-50), false),
        ] {
            let mut header = Header {
                order: ByteOrder::Little,
                datatype: 4,
                bits: 16,
                lengths: vec![5, 4],
                offset: 352,
                scale: Some(scale),
                shift,
                geometry: Geometry::at_time(0.0),
                description: String::new(),
            };
            let mut notes = Notes::default();
            round_packing(&mut header, &mut notes);
            assert_eq!(header.scale.is_some(), is_kept, "{scale}");
            assert_eq!(notes.0.is_empty(), scale == 0.5, "{:?}", notes.0);
            let slope = header.encode().unwrap()[112..116].to_vec();
            assert_eq!(slope != 0_f32.to_le_bytes(), is_kept, "{scale}");
        }
    }
}
