//! TIFF files as ImageJ writes them: the first directory describes a hyperstack, whose planes are in the
//! order channel, slice, frame, the fastest first (ij.io.TiffDecoder, ij.io.FileOpener).
//!
//! ImageJ reads consecutive planes from the first directory on and ignores other directories, so the file may
//! exceed 4 GiB. If the planes of an array are in another order, one axis is moved.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Renderer;
use super::image_stack::axes::{AxisStep, StackAxes, StackAxis};
use super::image_stack::{ImageStack, pixels, with_stack};
use super::row::{FormatRow, Listing, ViewName};
use crate::conventions::description::Channel;
use crate::conventions::description::Description;
use crate::conventions::description::Field;
use crate::conventions::georef::context::Notes;
use crate::conventions::text::is_plain;
use crate::conventions::units::{metres, seconds};
use crate::node::{ContentError, NodeResolver, Number, NumberKind, ViewNode};
use crate::view::encode::tiff::{self, FieldValue, tag};
use crate::view::file::layout::{FileLayout, MovedAxis, Segment, VirtualFile};
use crate::zarr::ByteOrder;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "imagej",
    ViewName::Suffix(".imagej.tif"),
    "a hyperstack of ImageJ",
    "imagej",
    Renderer::Image(render),
)
.expressing(&[
    Field::AxisNames,
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Coordinates,
    Field::Packing,
    Field::HeaderPacking,
    Field::ValueUnits,
    Field::ChannelNames,
    Field::ChannelColors,
])
.also_called(&["imagej.tiff"])
.listed(Listing::ByName)];

/// Renders an array, or the finest level of an OME-NGFF image, as a TIFF file for ImageJ: one level, in strips.
///
/// # Errors
/// Returns why the file cannot be made, or an error of the store.
fn render(node: &ViewNode, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    with_stack(node, nodes, |stack, notes| {
        let layout = layout(stack, notes)?;
        Ok((layout, vec![Arc::clone(stack.context.view.reader)]))
    })
}

/// Returns the layout of a stack.
///
/// # Errors
/// Returns why ImageJ could not read the stack.
pub(in crate::view::format) fn layout(
    stack: &ImageStack<'_>,
    notes: &mut Notes,
) -> Result<FileLayout, ContentError> {
    let raster = &stack.metadata.raster;
    if !is_known(raster.number, raster.numbers) {
        return Err("ImageJ has uint8, uint16, int16 and float32: see .ome.tif".into());
    }
    let mut first = fields(stack, notes);
    first.extend(properties(
        &stack.axes,
        &stack.description.channels,
        raster.number.order,
        notes,
    ));
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
fn fields(stack: &ImageStack<'_>, notes: &mut Notes) -> Vec<(u16, FieldValue)> {
    let axes = &stack.axes;
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
    let unit = axes.across.as_ref().map(|step| &step.unit[..]);
    // All lengths have the unit of x.
    let in_unit = |step: &Option<AxisStep>| {
        let step = step.as_ref()?;
        let (own, unit) = (metres(&step.unit)?, metres(unit?)?);
        let factor = if step.unit == axes.across.as_ref()?.unit {
            1.0
        } else {
            own / unit
        };
        Some((step.size * factor, step.start * factor))
    };
    let mut fields = Vec::new();
    if let Some(unit) = unit {
        // ImageJ reads the text in the encoding of the operating system.
        let unit = if unit == "\u{b5}m" { "micron" } else { unit };
        // Writing to a String does not fail.
        let _ = writeln!(text, "unit={unit}");
        if let Some((size, _)) = in_unit(&axes.depth) {
            let _ = writeln!(text, "spacing={size}");
        }
        for (name, step) in [
            ("xorigin", &axes.across),
            ("yorigin", &axes.down),
            ("zorigin", &axes.depth),
        ] {
            // The index of the element at zero (ij.measure.Calibration, "getX").
            if let Some((size, start)) = in_unit(step).filter(|(_, start)| *start != 0.0) {
                let _ = writeln!(text, "{name}={}", -start / size);
            }
        }
        for (tag, step) in [
            (tag::X_RESOLUTION, &axes.across),
            (tag::Y_RESOLUTION, &axes.down),
        ] {
            let per_unit = in_unit(step).and_then(|(size, _)| resolution(size));
            fields.extend(per_unit.map(|value| (tag, value)));
        }
        fields.push((tag::RESOLUTION_UNIT, FieldValue::Shorts(vec![1])));
    }
    if let Some(step) = &axes.time {
        let seconds = seconds(&step.unit).unwrap_or(1.0);
        let _ = writeln!(text, "finterval={}\ntunit=sec", step.size * seconds);
        if step.start != 0.0 {
            notes.add("ImageJ has no time of the first frame: left out");
        }
    }
    text.push_str(&calibration(&stack.description));
    fields.push((tag::IMAGE_DESCRIPTION, FieldValue::Text(text)));
    fields
}

/// Returns the straight line from numbers to values and the unit of values (ij.measure.Calibration,
/// `STRAIGHT_LINE`); empty without a scale, an offset and a unit.
fn calibration(description: &Description) -> String {
    let (scale, offset) = (description.scale, description.offset);
    let unit = description.units.as_deref();
    let unit = unit.filter(|unit| is_plain(unit) && !unit.trim().is_empty());
    if scale.is_none() && offset.is_none() && unit.is_none() {
        return String::new();
    }
    let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
    let unit = unit
        .map(|unit| format!("vunit={unit}\n"))
        .unwrap_or_default();
    format!("cf=0\nc0={offset}\nc1={scale}\n{unit}")
}

/// The maximum number of planes with names, and the maximum size of all names in bytes.
const MAX_LABELS: u64 = 4096;
const MAX_LABEL_BYTES: u64 = 1 << 20;
/// The maximum number of channels with colours: the limit of composite images (ij.CompositeImage).
const MAX_COLORS: usize = 7;

/// Returns the names of planes and the colours of channels: private tags of ImageJ with a header, which has a
/// type and a count for each kind of property, and the properties (ij.io.TiffEncoder, "writeMetaData").
fn properties(
    axes: &StackAxes,
    channels: &[Channel],
    order: ByteOrder,
    notes: &mut Notes,
) -> Vec<(u16, FieldValue)> {
    let labels = labels(axes, channels, notes);
    let colors: Option<Vec<[u8; 3]>> = channels.iter().map(|channel| channel.color).collect();
    let count = axes.length(StackAxis::Channel);
    let colors = colors.filter(|colors| !colors.is_empty() && colors.len() as u64 == count);
    let colors = colors.unwrap_or_default();
    if colors.len() > MAX_COLORS {
        notes.add(format!(
            "ImageJ shows {MAX_COLORS} channels in colours: colours are left out"
        ));
    }
    let colors = Some(colors)
        .filter(|colors| colors.len() <= MAX_COLORS)
        .unwrap_or_default();
    let word = |value: u32| match order {
        ByteOrder::Little => value.to_le_bytes(),
        ByteOrder::Big => value.to_be_bytes(),
    };
    let text = |text: &str| -> Vec<u8> {
        let units = text.encode_utf16().map(|unit| match order {
            ByteOrder::Little => unit.to_le_bytes(),
            ByteOrder::Big => unit.to_be_bytes(),
        });
        units.flatten().collect()
    };
    let labels: Vec<Vec<u8>> = labels.iter().map(|label| text(label)).collect();
    let tables: Vec<Vec<u8>> = colors.iter().map(|color| table(*color)).collect();
    let kinds = [(*b"labl", &labels), (*b"luts", &tables)];
    let kinds = kinds
        .iter()
        .filter(|(_, properties)| !properties.is_empty());
    let mut header = word(u32::from_be_bytes(*b"IJIJ")).to_vec();
    for (kind, properties) in kinds.clone() {
        header.extend(word(u32::from_be_bytes(*kind)));
        header.extend(word(u32::try_from(properties.len()).unwrap_or(0)));
    }
    if header.len() == size_of::<u32>() {
        return Vec::new();
    }
    let properties: Vec<&Vec<u8>> = kinds.flat_map(|(_, properties)| *properties).collect();
    let sizes = std::iter::once(&header).chain(properties.iter().copied());
    let sizes = sizes.map(|part| u32::try_from(part.len()).unwrap_or(0));
    vec![
        (tag::IMAGEJ_BYTE_COUNTS, FieldValue::Longs(sizes.collect())),
        (
            tag::IMAGEJ_PROPERTIES,
            FieldValue::Bytes(
                [
                    header.clone(),
                    properties.into_iter().flatten().copied().collect(),
                ]
                .concat(),
            ),
        ),
    ]
}

/// Returns the name of the channel of each plane, in the order of ImageJ; empty without names.
fn labels(axes: &StackAxes, channels: &[Channel], notes: &mut Notes) -> Vec<String> {
    let [count, slices, frames] =
        [StackAxis::Channel, StackAxis::Depth, StackAxis::Time].map(|axis| axes.length(axis));
    let is_named = channels.iter().any(|channel| channel.name.is_some());
    if !is_named || channels.len() as u64 != count {
        return Vec::new();
    }
    let repeats = slices.saturating_mul(frames);
    let sizes = channels.iter().filter_map(|channel| channel.name.as_ref());
    let size: u64 = sizes.map(|name| name.len() as u64).sum();
    // Each name is repeated for each plane of its channel.
    if repeats.saturating_mul(count) > MAX_LABELS || repeats.saturating_mul(size) > MAX_LABEL_BYTES
    {
        notes.add("names of channels of so many planes, or such long ones, are left out");
        return Vec::new();
    }
    let name = |channel: &Channel| channel.name.clone().unwrap_or_default();
    (0..repeats)
        .flat_map(|_| channels.iter().map(name))
        .collect()
}

/// Returns a colour table from black to a colour: 256 reds, greens and blues.
fn table(color: [u8; 3]) -> Vec<u8> {
    let ramp = |most: u8| {
        // The product of two bytes, divided by the largest byte, is a byte.
        let value = move |index: u16| u8::try_from(index * u16::from(most) / 255).unwrap_or(most);
        (0..=255).map(value)
    };
    color.into_iter().flat_map(ramp).collect()
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

    #[test]
    fn values_are_calibrated_by_a_straight_line() {
        let mut description = Description::default();
        assert_eq!(calibration(&description), "");
        description.units = Some("K".into());
        assert_eq!(calibration(&description), "cf=0\nc0=0\nc1=1\nvunit=K\n");
        description.scale = Some(0.5);
        description.units = Some("a\nb=1".into());
        assert_eq!(calibration(&description), "cf=0\nc0=0\nc1=0.5\n");
    }

    #[test]
    fn properties_have_a_header_with_their_kinds_and_counts() {
        let axes = StackAxes::without_steps(&[(StackAxis::Depth, 2), (StackAxis::Channel, 1)]);
        let channel = Channel {
            name: Some("D\u{e4}".into()),
            color: Some([255, 0, 128]),
        };
        let of = |channels: &[Channel]| {
            properties(&axes, channels, ByteOrder::Little, &mut Notes::default())
        };
        let found = of(std::slice::from_ref(&channel));
        let [(_, FieldValue::Longs(sizes)), (_, FieldValue::Bytes(bytes))] = &found[..] else {
            panic!("{found:?}");
        };
        // The name of the channel of each of two slices, and one table.
        assert_eq!(sizes[..], [20, 4, 4, 768]);
        assert_eq!(bytes[..20], *b"JIJIlbal\x02\0\0\0stul\x01\0\0\0");
        assert_eq!(bytes[20..28], *b"D\0\xe4\0D\0\xe4\0");
        let table = &bytes[28..];
        assert_eq!(
            (table[255], table[256 + 255], table[512 + 255]),
            (255, 0, 128)
        );
        assert_eq!(table[0], 0);
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[channel.clone(), channel]), []);
        let long = Channel {
            name: Some("x".repeat(1 << 20)),
            color: None,
        };
        assert_eq!(of(&[long]), []);
    }
}
