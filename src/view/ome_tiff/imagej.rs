//! TIFF as ImageJ writes it: the first directory describes a hyperstack, whose planes are in the order
//! channel, slice, frame from the fastest (ij.io.TiffDecoder, ij.io.FileOpener).
//!
//! Planes that lie in this order need one directory, and then the file may exceed 4 GiB. Otherwise each
//! plane has a directory.

use std::fmt::Write as _;

use super::super::layout::FileLayout;
use super::super::number::{Number, NumberKind};
use super::super::tiff::{self, Directories, Values, tag};
use super::axes::{Above, StackAxes, Step};
use super::{Stack, pixels};

/// Pixels per unit have this denominator.
const RESOLUTION: u32 = 1_000_000;

/// The layout of a stack.
///
/// # Errors
/// Why ImageJ could not read it.
pub(super) fn layout(stack: &Stack<'_>) -> Result<FileLayout, String> {
    let raster = &stack.metadata.raster;
    if !is_known(raster.number, raster.numbers) {
        return Err("ImageJ has uint8, uint16, int16 and float32: see .ome.tif".into());
    }
    let first = fields(&stack.axes);
    let image = tiff::image_in_strips(&pixels(raster), stack.context.view.reader, 0)?;
    let order = raster.number.order;
    let planes = planes(&stack.axes);
    if planes.iter().copied().eq(0..planes.len() as u64) {
        return tiff::encode_first_plane(image, &first, order);
    }
    if u32::try_from(image.1.size_bytes).is_err() {
        return Err(
            "4 GiB and more with channels that are no planes side by side: see .ome.tif".into(),
        );
    }
    tiff::encode_directories(&[image], Directories::Planes(&planes), &first, order)
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

/// The places of the planes in the array, in the order of ImageJ.
fn planes(axes: &StackAxes) -> Vec<u64> {
    let mut strides = [(Above::Time, 0), (Above::Depth, 0), (Above::Channel, 0)];
    let mut stride = 1;
    for (axis, length) in axes.above.iter().rev() {
        if let Some((_, own)) = strides.iter_mut().find(|(other, _)| other == axis) {
            *own = stride;
        }
        stride *= length;
    }
    let mut planes = vec![0];
    for (axis, stride) in strides {
        let indices = 0..axes.length(axis);
        let more = planes.iter().flat_map(|plane| {
            let plane = *plane;
            indices.clone().map(move |index| plane + index * stride)
        });
        planes = more.collect();
    }
    planes
}

/// The tags of the first directory.
fn fields(axes: &StackAxes) -> Vec<(u16, Values)> {
    let [channels, slices, frames] =
        [Above::Channel, Above::Depth, Above::Time].map(|axis| axes.length(axis));
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
    let in_unit = |step: &Option<Step>| {
        let step = step.as_ref().filter(|step| Some(step.unit) == unit);
        step.map(|step| step.size)
    };
    let mut fields = Vec::new();
    if let Some(unit) = unit {
        // Its texts are in the encoding of the system.
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
        fields.push((tag::RESOLUTION_UNIT, Values::Shorts(vec![1])));
    }
    if let Some(step) = axes.time.as_ref().filter(|step| step.unit == "s") {
        let _ = writeln!(text, "finterval={}", step.size);
    }
    fields.push((tag::IMAGE_DESCRIPTION, Values::Text(text)));
    fields
}

/// Pixels per unit; none if a `RATIONAL` cannot hold it.
fn resolution(step: f64) -> Option<Values> {
    let scaled = (f64::from(RESOLUTION) / step).round();
    let is_held = (1.0..=f64::from(u32::MAX)).contains(&scaled);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the range of u32"
    )]
    is_held.then_some(Values::Rational(scaled as u32, RESOLUTION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_in_the_order_channel_slice_frame() {
        let all = [(Above::Time, 2), (Above::Channel, 2), (Above::Depth, 3)];
        assert_eq!(
            planes(&StackAxes::without_steps(&all)),
            [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
        );
        let plain = [(Above::Time, 2), (Above::Depth, 2), (Above::Channel, 2)];
        assert_eq!(
            planes(&StackAxes::without_steps(&plain)),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!(planes(&StackAxes::without_steps(&[])), [0]);
    }

    #[test]
    fn resolutions_are_pixels_per_unit() {
        assert_eq!(
            resolution(0.5),
            Some(Values::Rational(2_000_000, 1_000_000))
        );
        assert_eq!(resolution(1e-9), None);
        assert_eq!(resolution(1e9), None);
    }
}
