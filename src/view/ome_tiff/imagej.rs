//! TIFF files as ImageJ writes them: the first directory describes a hyperstack, whose planes are in the
//! order channel, slice, frame, the fastest first (ij.io.TiffDecoder, ij.io.FileOpener).
//!
//! ImageJ reads consecutive planes from the first directory on and ignores other directories, so the file may
//! exceed 4 GiB. If the planes of an array are in another order, one axis is moved.

use std::fmt::Write as _;

use super::super::layout::{FileLayout, MovedAxis, Segment};
use super::super::number::{Number, NumberKind};
use super::super::tiff::{self, FieldValue, tag};
use super::axes::{AxisStep, StackAxes, StackAxis};
use super::{ImageStack, pixels};

/// Returns the layout of a stack.
///
/// # Errors
/// Returns why ImageJ could not read the stack.
pub(super) fn layout(stack: &ImageStack<'_>) -> Result<FileLayout, String> {
    let raster = &stack.metadata.raster;
    if !is_known(raster.number, raster.numbers) {
        return Err("ImageJ has uint8, uint16, int16 and float32: see .ome.tif".into());
    }
    let first = fields(&stack.axes);
    let image = tiff::image_in_strips(&pixels(raster), stack.context.view.reader, 0)?;
    let order = raster.number.order;
    let (image, extent) = image;
    let planes = match moved(&stack.axes)? {
        None => Segment::Array(extent),
        Some([outer, moved, inner]) => Segment::Moved(MovedAxis {
            extent,
            outer,
            moved,
            inner,
        }),
    };
    tiff::encode_first_plane((image, planes), &first, order)
}

fn is_known(number: Number, numbers: u64) -> bool {
    let known = [
        (NumberKind::UInt, 1),
        (NumberKind::UInt, 2),
        (NumberKind::Int, 2),
        (NumberKind::Float, 4),
    ];
    numbers == 1 && known.contains(&(number.kind, number.size_bytes))
}

/// Returns the numbers of planes along the axes before the moved axis, along the moved axis, and along the
/// axes behind which it is moved. `None` if all are in the order of ImageJ.
///
/// # Errors
/// More than one axis would have to be moved.
fn moved(axes: &StackAxes) -> Result<Option<[u64; 3]>, String> {
    let rank = |axis: StackAxis| match axis {
        StackAxis::Time => 0,
        StackAxis::Depth => 1,
        StackAxis::Channel => 2,
    };
    let own: Vec<(u8, u64)> = (axes.above.iter())
        .filter(|(_, length)| *length != 1)
        .map(|(axis, length)| (rank(*axis), *length))
        .collect();
    if own.is_sorted() {
        return Ok(None);
    }
    let product = |axes: &[(u8, u64)]| axes.iter().fold(1, |n: u64, (_, m)| n.saturating_mul(*m));
    for first in 0..own.len() {
        for behind in first + 1..own.len() {
            for end in behind + 1..=own.len() {
                let (before, rest) = own.split_at(first);
                let (moved, rest) = rest.split_at(behind - first);
                let (inner, rest) = rest.split_at(end - behind);
                if [before, inner, moved, rest].concat().is_sorted() {
                    return Ok(Some([product(before), product(moved), product(inner)]));
                }
            }
        }
    }
    Err("axes in the order c, z, t: see .ome.tif".into())
}

/// Returns the tags of the first directory.
fn fields(axes: &StackAxes) -> Vec<(u16, FieldValue)> {
    let [channels, slices, frames] =
        [StackAxis::Channel, StackAxis::Depth, StackAxis::Time].map(|axis| axes.length(axis));
    let mut text = format!(
        "ImageJ=1.54f\nimages={}\nchannels={channels}\nslices={slices}\nframes={frames}\n\
         hyperstack=true\nmode={}\nloop=false\n",
        channels * slices * frames,
        if channels > 1 {
            "composite"
        } else {
            "grayscale"
        },
    );
    let unit = axes.across.as_ref().map(|step| step.unit);
    let in_unit = |step: &Option<AxisStep>| {
        let step = step.as_ref().filter(|step| Some(step.unit) == unit);
        step.map(|step| step.size)
    };
    let mut fields = Vec::new();
    if let Some(unit) = unit {
        // ImageJ reads the text in the encoding of the operating system.
        let unit = if unit == "µm" { "micron" } else { unit };
        // Writing to a String does not fail.
        let _ = writeln!(text, "unit={unit}");
        if let Some(size) = in_unit(&axes.depth) {
            let _ = writeln!(text, "spacing={size}");
        }
        for (tag, step) in [
            (tag::X_RESOLUTION, &axes.across),
            (tag::Y_RESOLUTION, &axes.down),
        ] {
            let per_unit = in_unit(step).and_then(resolution);
            fields.extend(per_unit.map(|value| (tag, value)));
        }
        fields.push((tag::RESOLUTION_UNIT, FieldValue::Shorts(vec![1])));
    }
    if let Some(step) = axes.time.as_ref().filter(|step| step.unit == "s") {
        let _ = writeln!(text, "finterval={}", step.size);
    }
    fields.push((tag::IMAGE_DESCRIPTION, FieldValue::Text(text)));
    fields
}

/// Returns pixels per unit with as many digits as a `RATIONAL` can hold; `None` if it cannot hold the number.
fn resolution(step: f64) -> Option<FieldValue> {
    // The smaller part is a power of ten, so that the other one has the digits of the step.
    let (larger, is_fine) = match step < 1.0 {
        true => (1.0 / step, true),
        false => (step, false),
    };
    let mut smaller = 1_u32;
    while f64::from(smaller) * larger * 10.0 <= f64::from(u32::MAX) && smaller < 1_000_000_000 {
        smaller *= 10;
    }
    let scaled = (f64::from(smaller) * larger).round();
    let is_held = (1.0..=f64::from(u32::MAX)).contains(&scaled);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the range of u32"
    )]
    let scaled = is_held.then_some(scaled as u32)?;
    Some(match is_fine {
        true => FieldValue::Rational(scaled, smaller),
        false => FieldValue::Rational(smaller, scaled),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_in_the_order_channel_slice_frame() {
        let (t, c, z) = (
            (StackAxis::Time, 2),
            (StackAxis::Channel, 3),
            (StackAxis::Depth, 5),
        );
        for (axes, expected) in [
            (&[][..], None),
            (&[t, z, c], None),
            (&[z, c], None),
            (&[t, c, z], Some([2, 3, 5])),
            (&[c, z], Some([1, 3, 5])),
            (&[c, t, z], Some([1, 3, 10])),
            (&[z, t, c], Some([1, 5, 2])),
            (&[z, c, t], Some([1, 15, 2])),
            (&[c, (StackAxis::Depth, 1), t], Some([1, 3, 2])),
        ] {
            let found = moved(&StackAxes::without_steps(axes));
            assert_eq!(found, Ok(expected), "{axes:?}");
        }
        assert!(moved(&StackAxes::without_steps(&[c, z, t])).is_err());
    }

    #[test]
    fn resolutions_are_pixels_per_unit() {
        let rational = |numerator, denominator| Some(FieldValue::Rational(numerator, denominator));
        assert_eq!(resolution(0.5), rational(2_000_000_000, 1_000_000_000));
        assert_eq!(resolution(0.325), rational(3_076_923_077, 1_000_000_000));
        // Nanometres of a microscope, and of a satellite.
        assert_eq!(resolution(3200.0), rational(1_000_000, 3_200_000_000));
        assert_eq!(resolution(3e5), rational(10_000, 3_000_000_000));
        assert_eq!(resolution(1e-9), rational(1_000_000_000, 1));
        assert_eq!(resolution(1e9), rational(1, 1_000_000_000));
        for step in [1e-10, 1e10, f64::NAN, 0.0] {
            assert_eq!(resolution(step), None, "{step}");
        }
    }
}
