//! The `ImageDescription` of an OME-TIFF: OME-XML of the schema 2016-06.

use std::fmt::Write as _;

use crate::conventions::description::Channel;
use crate::conventions::georef::context::Notes;
use crate::conventions::text::{escape, is_plain};
use crate::node::{Number, NumberKind};
use crate::view::format::image_stack::ImageStack;
use crate::view::format::image_stack::axes::{AxisStep, StackAxis};
use crate::zarr::ByteOrder;

const SCHEMA: &str = "http://www.openmicroscopy.org/Schemas/OME/2016-06";
/// The maximum number of channels with names; the size of the text is limited by the header.
const MAX_NAMED_CHANNELS: u64 = 4096;
/// The maximum number of planes with positions.
const MAX_POSITIONS: u64 = 4096;

/// Returns the description of a stack.
///
/// # Errors
/// The data model does not have the data type.
pub(in crate::view::format) fn describe(
    stack: &ImageStack<'_>,
    notes: &mut Notes,
) -> Result<String, String> {
    let raster = &stack.metadata.raster;
    let pixel_type = pixel_type(raster.number, raster.numbers)?;
    let axes = &stack.axes;
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<OME xmlns=\"{SCHEMA}\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xsi:schemaLocation=\"{SCHEMA} {SCHEMA}/ome.xsd\" Creator=\"zarrfs {}\">\n\
         <Image ID=\"Image:0\" Name=\"{}\">\n<Pixels ID=\"Pixels:0\" DimensionOrder=\"XY{}\" \
         Type=\"{pixel_type}\" SizeX=\"{}\" SizeY=\"{}\" SizeZ=\"{}\" SizeC=\"{}\" SizeT=\"{}\" \
         BigEndian=\"{}\"",
        env!("CARGO_PKG_VERSION"),
        escape(&name(stack)),
        fastest_first(&axes.order()),
        raster.width,
        raster.height,
        axes.length(StackAxis::Depth),
        axes.length(StackAxis::Channel),
        axes.length(StackAxis::Time),
        raster.number.order == ByteOrder::Big,
    );
    for (name, step) in [
        ("PhysicalSizeX", &axes.across),
        ("PhysicalSizeY", &axes.down),
        ("PhysicalSizeZ", &axes.depth),
        ("TimeIncrement", &axes.time),
    ] {
        if let Some(AxisStep { size, unit, .. }) = step {
            // Writing to a String does not fail.
            let _ = write!(text, " {name}=\"{size}\" {name}Unit=\"{unit}\"");
        }
    }
    text.push_str(">\n");
    text.push_str(&channels(stack, notes));
    text.push_str("<TiffData/>\n");
    text.push_str(&planes(stack, notes));
    text.push_str("</Pixels>\n</Image>\n</OME>\n");
    Ok(text)
}

/// Returns the elements `Channel`.
fn channels(stack: &ImageStack<'_>, notes: &mut Notes) -> String {
    let count = stack.axes.length(StackAxis::Channel);
    if count > MAX_NAMED_CHANNELS {
        notes.add(format!("names of {count} channels are left out"));
    }
    let mut text = String::new();
    let none = Channel::default();
    for index in 0..count {
        let channel = usize::try_from(index)
            .ok()
            .filter(|_| count <= MAX_NAMED_CHANNELS)
            .and_then(|index| stack.description.channels.get(index))
            .unwrap_or(&none);
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "<Channel ID=\"Channel:0:{index}\" SamplesPerPixel=\"1\""
        );
        if let Some(name) = channel.name.as_deref().filter(|name| is_plain(name)) {
            let _ = write!(text, " Name=\"{}\"", escape(name));
        }
        if let Some(color) = channel.color {
            let _ = write!(text, " Color=\"{}\"", opaque(color));
        }
        text.push_str("/>\n");
    }
    text
}

/// Returns red, green, blue and opacity, from the highest byte to the lowest.
fn opaque([red, green, blue]: [u8; 3]) -> i32 {
    i32::from_be_bytes([red, green, blue, 255])
}

/// Returns the elements `Plane` with the coordinates of the first element of each plane; none if all are zero.
fn planes(stack: &ImageStack<'_>, notes: &mut Notes) -> String {
    let axes = &stack.axes;
    let known = [&axes.across, &axes.down, &axes.depth, &axes.time];
    if known
        .iter()
        .all(|step| step.as_ref().is_none_or(|step| step.start == 0.0))
    {
        return String::new();
    }
    let lengths =
        [StackAxis::Depth, StackAxis::Channel, StackAxis::Time].map(|axis| axes.length(axis));
    let count = lengths.iter().fold(1, |n: u64, m| n.saturating_mul(*m));
    let [depth, channels, times] = match count <= MAX_POSITIONS {
        true => lengths,
        false => {
            notes.add(format!("of {count} planes, only the first has a position"));
            [1; 3]
        }
    };
    let mut text = String::new();
    for t in 0..times {
        for c in 0..channels {
            for z in 0..depth {
                let _ = write!(text, "<Plane TheZ=\"{z}\" TheT=\"{t}\" TheC=\"{c}\"");
                for (name, step, index) in [
                    ("DeltaT", &axes.time, t),
                    ("PositionX", &axes.across, 0),
                    ("PositionY", &axes.down, 0),
                    ("PositionZ", &axes.depth, z),
                ] {
                    if let Some(AxisStep { size, start, unit }) = step {
                        let value = start + size * small(index);
                        let _ = write!(text, " {name}=\"{value}\" {name}Unit=\"{unit}\"");
                    }
                }
                text.push_str("/>\n");
            }
        }
    }
    text
}

/// Returns the index of a plane, at most [`MAX_POSITIONS`].
fn small(index: u64) -> f64 {
    f64::from(u32::try_from(index).unwrap_or(u32::MAX))
}

/// Returns the name that the metadata of the image have, else that of the node.
fn name(stack: &ImageStack<'_>) -> String {
    let name = stack.description.name.as_deref();
    let name = name.filter(|name| is_plain(name));
    match name {
        Some(name) => name.to_owned(),
        None if is_plain(stack.name) => stack.name.to_owned(),
        None => "image".into(),
    }
}

/// Returns the `PixelType` of the data model.
fn pixel_type(number: Number, numbers: u64) -> Result<&'static str, String> {
    Ok(match (number.kind, number.size_bytes, numbers) {
        (NumberKind::UInt, 1, 1) => "uint8",
        (NumberKind::UInt, 2, 1) => "uint16",
        (NumberKind::UInt, 4, 1) => "uint32",
        (NumberKind::Int, 1, 1) => "int8",
        (NumberKind::Int, 2, 1) => "int16",
        (NumberKind::Int, 4, 1) => "int32",
        (NumberKind::Float, 4, 1) => "float",
        (NumberKind::Float, 8, 1) => "double",
        (NumberKind::Float, 4, 2) => "complex",
        (NumberKind::Float, 8, 2) => "double-complex",
        _ => return Err("OME-TIFF has no integers of 64 bits".into()),
    })
}

/// Returns the letters of the axes outside of an image for `DimensionOrder`.
fn fastest_first(slowest_first: &[StackAxis]) -> String {
    let letter = |axis: &StackAxis| match axis {
        StackAxis::Time => 'T',
        StackAxis::Channel => 'C',
        StackAxis::Depth => 'Z',
    };
    slowest_first.iter().rev().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_dimensions_begin_with_the_fastest() {
        let order = [StackAxis::Time, StackAxis::Channel, StackAxis::Depth];
        assert_eq!(fastest_first(&order), "ZCT");
    }

    #[test]
    fn colors_are_signed_numbers_with_an_opacity() {
        assert_eq!(opaque([0, 0, 255]), 0x0000_FFFF);
        assert_eq!(opaque([255, 0, 0]), -16_776_961);
    }
}
