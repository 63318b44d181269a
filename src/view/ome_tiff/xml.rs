//! The `ImageDescription` of an OME-TIFF: OME-XML of the schema 2016-06.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::super::georef::context::Notes;
use super::super::georef::scale::ome_image;
use super::super::georef::text::{escape, is_plain};
use super::super::number::{Number, NumberKind};
use super::ImageStack;
use super::axes::{AxisStep, StackAxis};
use crate::zarr::ByteOrder;

const SCHEMA: &str = "http://www.openmicroscopy.org/Schemas/OME/2016-06";
/// The maximum number of channels with names; the size of the text is limited by the header.
const MAX_NAMED_CHANNELS: u64 = 4096;

/// A channel as described by the metadata of OMERO.
#[derive(Debug, Default, PartialEq)]
struct Channel {
    label: Option<String>,
    /// Red, green, blue and opacity, from the highest byte to the lowest.
    color: Option<i32>,
}

/// Returns the description of a stack.
///
/// # Errors
/// The data model does not have the data type.
pub(super) fn describe(stack: &ImageStack<'_>, notes: &mut Notes) -> Result<String, String> {
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
        if let Some(AxisStep { size, unit }) = step {
            // Writing to a String does not fail.
            let _ = write!(text, " {name}=\"{size}\" {name}Unit=\"{unit}\"");
        }
    }
    text.push_str(">\n");
    let count = axes.length(StackAxis::Channel);
    if count > MAX_NAMED_CHANNELS {
        notes.add(format!("names of {count} channels are left out"));
    }
    for index in 0..count {
        let channel = match count <= MAX_NAMED_CHANNELS {
            true => channel(stack, index),
            false => Channel::default(),
        };
        let _ = write!(
            text,
            "<Channel ID=\"Channel:0:{index}\" SamplesPerPixel=\"1\""
        );
        if let Some(label) = channel.label {
            let _ = write!(text, " Name=\"{}\"", escape(&label));
        }
        if let Some(color) = channel.color {
            let _ = write!(text, " Color=\"{color}\"");
        }
        text.push_str("/>\n");
    }
    text.push_str("<TiffData/>\n</Pixels>\n</Image>\n</OME>\n");
    Ok(text)
}

/// Returns the name that the metadata of the image have, else that of the node.
fn name(stack: &ImageStack<'_>) -> String {
    let image = ome_image(stack.context);
    let name = image.and_then(|image| image.get("name")?.as_str());
    let name = name.filter(|name| !name.is_empty() && is_plain(name));
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

/// Returns a channel in the `omero` member of the group (OME-NGFF 0.4, 3.5).
fn channel(stack: &ImageStack<'_>, index: u64) -> Channel {
    let found = || {
        let attributes = stack.context.pyramid()?;
        let omero = attributes.get("ome").and_then(|ome| ome.get("omero"));
        let channels = attributes.get("omero").or(omero)?.get("channels")?;
        channels.get(usize::try_from(index).ok()?)
    };
    found().map_or_else(Channel::default, parsed)
}

fn parsed(channel: &Json) -> Channel {
    let label = channel.get("label").and_then(Json::as_str);
    let label = label.filter(|label| !label.is_empty() && is_plain(label));
    let color = channel.get("color").and_then(Json::as_str);
    let color = color.map(|color| color.trim_start_matches('#'));
    let color = color.filter(|color| color.len() == 6);
    let color = color.and_then(|color| u32::from_str_radix(color, 16).ok());
    Channel {
        label: label.map(str::to_owned),
        color: color.map(|color| (color << 8 | 0xFF).cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn orders_of_dimensions_begin_with_the_fastest() {
        let order = [StackAxis::Time, StackAxis::Channel, StackAxis::Depth];
        assert_eq!(fastest_first(&order), "ZCT");
    }

    #[test]
    fn channels_have_labels_and_colors() {
        let channel = parsed(&json!({"label": "DAPI", "color": "0000FF"}));
        assert_eq!(channel.label.as_deref(), Some("DAPI"));
        assert_eq!(channel.color, Some(0x0000_FFFF));
        assert_eq!(parsed(&json!({"color": "FF0000"})).color, Some(-16_776_961));
        for hostile in [
            json!(1),
            json!({"label": 1, "color": "red"}),
            json!({"label": "a\u{0}b", "color": "€€"}),
        ] {
            assert_eq!(parsed(&hostile), Channel::default(), "{hostile}");
        }
    }
}
