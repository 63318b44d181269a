//! A quick look at an array as a PNG: one plane, or the colours of an RGB array. A picture has at most 1024 x
//! 1024 pixels, from the coarsest sufficient level of the array's pyramid.
//!
//! The file size follows from metadata. `format/png/pictures.rs` renders the whole content.

mod colour;
mod encode;
mod pictures;
mod plane;

use std::sync::Arc;

use super::Renderer;
use super::image_stack;
use super::row::{FormatRow, Listing, ViewName};
use crate::array::ArrayReader;
use crate::conventions::cf;
use crate::conventions::description::Description;
use crate::conventions::description::Field;
use crate::conventions::description::{AxisKind, are_rgb};
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::axis::reinterpret;
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::overview::{FullImage, overviews};
use crate::conventions::georef::raster::Raster;
use crate::conventions::georef::samples::{self, packing};
use crate::conventions::georef::transform::flipped_axes;
use crate::conventions::missing::MissingValues;
use crate::node::{ArrayView, ContentError, NodeResolver, Number, Value, ViewNode};
use crate::view::file::layout::{Segment, VirtualFile};
use crate::zarr::Scalar;
use encode::{Colours, ImageHeader};
use plane::{Block, ElementLayout, MAX_SIDE, Plane, SampledAxis};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "png",
    ViewName::Suffix(".png"),
    "a quick look as a picture of at most 1024 x 1024 pixels",
    "python3 -c 'import PIL.Image, sys; PIL.Image.open(sys.argv[1]).show()'",
    Renderer::Image(render),
)
.expressing(&[
    Field::Missing,
    Field::Packing,
    Field::HeaderPacking,
    Field::ValueUnits,
    Field::ChannelColors,
])
.listed(Listing::ByName)];

/// The metadata of a picture, from which its samples are read and rendered.
#[derive(Debug)]
struct Picture {
    plane: Plane,
    format: ImageHeader,
    flip: Flip,
    /// The type of the stored numbers, and their meaning with `_Unsigned`.
    own: Number,
    meant: Number,
    /// The stored values of missing data.
    missing: Vec<Value>,
    /// `None` if the elements are colours.
    legend: Option<Legend>,
}

/// The meaning of the numbers: a value is a number times `scale` plus `offset`.
#[derive(Debug)]
struct Legend {
    scale: f64,
    offset: f64,
    units: String,
}

/// Whether rows or columns are shown in reverse order, so that north is at the top and east on the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Flip {
    rows: bool,
    columns: bool,
}

/// The maximum length of a number of the range, and the text between both numbers.
const NUMBER_BYTES: usize = 24;
const BETWEEN: &str = " to ";
/// The maximum length of a title or unit, in characters.
const MAX_TEXT_CHARACTERS: usize = 200;
/// A level suffices if the longer side of its picture has this length, or that of the picture of the array.
const SUFFICIENT_SIDE: u64 = MAX_SIDE / 2;

/// Renders an array, or the finest level of an OME-NGFF image, as a PNG.
///
/// # Errors
/// Returns why the file cannot be made, or an error of the store.
fn render(node: &ViewNode, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    let finest = match node.is_array() {
        true => None,
        false => Some(image_stack::finest_level(node, nodes)?),
    };
    let finest = finest.as_deref().unwrap_or(node);
    let (coarse, flip) = sufficient_level(finest, nodes)?;
    let shown = coarse.as_deref().unwrap_or(finest);
    let view = view_of(shown)?;
    let mut notes = Notes::default();
    let groups = Groups::above(&view, nodes, &mut notes)?;
    let context = Context::new(&view, nodes, &groups);
    let raster = RasterMetadata::raster(&context).ok();
    let plane = plane_of(&context, raster.as_ref(), &mut notes)?.reduced();
    plane.check(stored(view.reader, &largest_chunk(view.reader)))?;
    let picture = Picture::of(&context, (plane, flip), &mut notes)?;
    let texts = [
        ("Title", text(node.name())),
        ("Description", picture.description(shown, view.shape())),
    ];
    let texts = [(texts[0].0, &texts[0].1[..]), (texts[1].0, &texts[1].1[..])];
    let header = picture.format.header(&texts);
    let parts = [Segment::Bytes(header), Segment::content(picture)];
    let mut file = VirtualFile::of_array(view.reader, parts)?;
    file.notes = notes.0;
    Ok(file)
}

fn view_of(node: &ViewNode) -> Result<ArrayView<'_>, String> {
    let view = node.array_view();
    view.ok_or_else(|| format!("the elements of {} cannot be read", node.key()))
}

/// Returns the coarsest level of the pyramid of an array whose picture is large enough (`None` if this is the
/// array itself), and which sides are reversed.
fn sufficient_level(
    node: &ViewNode,
    nodes: &dyn NodeResolver,
) -> Result<(Option<Arc<ViewNode>>, Flip), ContentError> {
    let view = view_of(node)?;
    let mut notes = Notes::default();
    let groups = Groups::above(&view, nodes, &mut notes)?;
    let context = Context::new(&view, nodes, &groups);
    let raster = RasterMetadata::raster(&context).ok();
    let plane = plane_of(&context, raster.as_ref(), &mut notes)?;
    let flip = match raster.filter(|raster| plane.rows.axis == raster.planes.len()) {
        Some(raster) => flipped_axes(&context, &raster)?,
        None => (false, false),
    };
    let (rows, columns) = flip;
    let flip = Flip { rows, columns };
    if plane.longest() <= MAX_SIDE || context.level_entry().is_none() {
        return Ok((None, flip));
    }
    let metadata = match RasterMetadata::of(&context, &mut notes) {
        Ok(metadata) => metadata,
        Err(ContentError::Absent(_)) => return Ok((None, flip)),
        Err(error) => return Err(error),
    };
    let full = FullImage {
        raster: &metadata.raster,
        georef: &metadata.georef,
        samples: &metadata.samples,
    };
    let sufficient = plane.reduced().longest().min(SUFFICIENT_SIDE);
    let levels = overviews(&context, full, &mut notes)?;
    let suffices = |(node, raster): &(Arc<ViewNode>, Raster)| {
        let view = node.array_view();
        let plane = view.and_then(|view| {
            let context = Context::new(&view, nodes, &groups);
            plane_of(&context, Some(raster), &mut Notes::default()).ok()
        });
        plane.is_some_and(|plane| plane.reduced().longest() >= sufficient)
    };
    let levels = levels.into_iter().map(|(node, raster, _)| (node, raster));
    let coarsest = levels.filter(suffices).last();
    Ok((coarsest.map(|(node, _)| node), flip))
}

/// Returns the plane of an array, with all its elements.
fn plane_of(
    context: &Context<'_>,
    raster: Option<&Raster>,
    notes: &mut Notes,
) -> Result<Plane, String> {
    let shape = context.view.shape();
    let rank = shape.len();
    if rank < 2 {
        return Err(format!(
            "a picture needs two axes, and the array has {rank}"
        ));
    }
    if shape.contains(&0) {
        return Err("an array without elements has no picture".into());
    }
    let side = |axis: usize| SampledAxis::whole(axis, shape.get(axis).copied().unwrap_or(1));
    let is_chunky = raster.is_some_and(|raster| raster.is_chunky);
    // The file that shows a level says what its axes lack.
    let (description, _) = Description::declared(context, &mut Notes::default());
    let channels = channels_of(context.view, &description, is_chunky, notes);
    let has_colors = (description.channels.iter()).any(|channel| channel.color.is_some());
    if channels.is_none() && has_colors {
        notes.add("the colours of channels are left out: the picture is of the first plane alone");
    }
    let last = match channels {
        Some(channels) if channels.axis + 1 == rank => rank - 2,
        None if is_chunky => rank - 2,
        _ => rank - 1,
    };
    let before = last.checked_sub(1).ok_or("one axis beside the channels")?;
    Ok(Plane {
        rows: side(before),
        columns: side(last),
        channels,
    })
}

/// Returns the axis of colour channels, whose elements are bytes: the last axis, or the third from last, with three
/// or four elements. It is an axis of channels whose colours are red, green and blue or unknown; or it has neither a
/// name nor a kind, and is said to be one in `notes`.
fn channels_of(
    view: &ArrayView<'_>,
    description: &Description,
    is_chunky: bool,
    notes: &mut Notes,
) -> Option<SampledAxis> {
    let is_byte =
        matches!(view.data_type().scalar, Scalar::UInt(_)) && view.data_type().size_bytes == 1;
    let shape = view.shape();
    let rank = shape.len();
    if !is_byte || rank < 3 || are_rgb(&description.channels) == Some(false) {
        return None;
    }
    let length = |axis: usize| shape.get(axis).copied().unwrap_or(0);
    let kind = |axis: usize| description.axes.get(axis).map(|axis| axis.kind);
    let is_channel = |axis: usize| {
        let is_of_kind = matches!(kind(axis), Some(AxisKind::Channel | AxisKind::Unknown));
        matches!(length(axis), 3 | 4) && is_of_kind
    };
    let is_known = |axis: usize| kind(axis) == Some(AxisKind::Channel);
    // An axis without a name counts as colours only if the sides of the image are longer.
    let is_last = is_channel(rank - 1)
        && (is_chunky || is_known(rank - 1) || length(rank - 2).min(length(rank - 3)) > 4);
    let axis = match is_last {
        true => rank - 1,
        false if is_chunky || !is_channel(rank - 3) => return None,
        false => rank - 3,
    };
    if !is_known(axis) {
        let count = length(axis);
        notes.add(format!(
            "axis {axis} has no name: its {count} elements are shown as red, green and blue"
        ));
    }
    // The fourth of several bands is not an alpha channel.
    let name = description
        .axes
        .get(axis)
        .and_then(|axis| axis.name.as_deref());
    let has_alpha = is_last || name.is_none_or(|name| name.eq_ignore_ascii_case("rgba"));
    let count = if has_alpha { length(axis) } else { 3 };
    Some(SampledAxis::whole(axis, count))
}

fn largest_chunk(reader: &ArrayReader) -> Vec<u64> {
    let chunk = reader.read_chunk_shape().map(<[u64]>::to_vec);
    chunk.unwrap_or_else(|| reader.chunks().grid().largest_chunk_shape())
}

fn stored<'a>(reader: &'a ArrayReader, largest_chunk: &'a [u64]) -> ElementLayout<'a> {
    ElementLayout {
        shape: reader.chunks().grid().array_shape(),
        chunk: reader.read_chunk_shape(),
        largest_chunk,
        element_bytes: reader.chunks().data_type().size_bytes as u64,
    }
}

/// Returns a text on one line, of limited length.
fn text(text: &str) -> String {
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(MAX_TEXT_CHARACTERS).collect()
}

impl Picture {
    fn of(
        context: &Context<'_>,
        (plane, flip): (Plane, Flip),
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let view = context.view;
        let own = match view.number() {
            Some((own, 1)) => own,
            Some(_) => return Err("complex numbers have no picture".to_owned().into()),
            None => return Err(format!("{} is no number", view.data_type()).into()),
        };
        let kind = cf::kind_of_values(view.array, own.kind);
        let mut note = |why| notes.add(why);
        let missing = MissingValues::of(view.node, own, context.nodes, &mut note)?;
        let (offset, scale) = packing(context, notes)?;
        let units = samples::units(context, notes).unwrap_or_default();
        let side = |side: SampledAxis| {
            u32::try_from(side.samples()).map_err(|_| "too many pixels".to_owned())
        };
        let colours = match plane.channels {
            None => Colours::Indexed,
            Some(channels) if channels.length == 4 => Colours::Rgba,
            Some(_) => Colours::Rgb,
        };
        Ok(Self {
            format: ImageHeader {
                width: side(plane.columns)?,
                height: side(plane.rows)?,
                colours,
            },
            own,
            meant: Number { kind, ..own },
            missing: missing.all().collect(),
            legend: (colours == Colours::Indexed).then(|| Legend {
                scale: scale.unwrap_or(1.0),
                offset: offset.unwrap_or(0.0),
                units: text(&units),
            }),
            plane,
            flip,
        })
    }

    /// Describes the part of the array that the picture shows.
    fn description(&self, shown: &ViewNode, shape: &[u64]) -> String {
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        let plane = match shape.len() - usize::from(self.plane.channels.is_some()) {
            0..=2 => "all",
            _ => "the first plane",
        };
        let (down, across) = (self.plane.rows.step, self.plane.columns.step);
        let flip = match (self.flip.rows, self.flip.columns) {
            (false, false) => "",
            (true, false) => "; the last row is at the top (north)",
            (false, true) => "; the last column is on the left (west)",
            (true, true) => {
                "; the last row is at the top (north), the last column on the left (west)"
            }
        };
        let colours = match self.legend {
            Some(_) => {
                "; viridis from the 2nd (dark) to the 98th percentile, missing values are transparent"
            }
            None => "",
        };
        format!(
            "{plane} of {} ({}), steps of {down} x {across} elements{flip}{colours}",
            text(shown.name()),
            shape.join(" x ")
        )
    }

    /// Returns the size of the text of the range in bytes.
    fn range_bytes(&self) -> usize {
        self.legend.as_ref().map_or(0, |legend| {
            2 * NUMBER_BYTES + BETWEEN.len() + 1 + legend.units.len()
        })
    }

    /// Returns the size of the file after the header, in bytes.
    fn body_bytes(&self) -> u64 {
        self.format.body_bytes(self.range_bytes())
    }

    /// Returns the number of samples of the picture.
    fn sample_count(&self) -> u64 {
        let pixels = u64::from(self.format.width) * u64::from(self.format.height);
        pixels * self.format.colours.pixel_bytes() as u64
    }

    fn element_bytes(&self) -> usize {
        self.own.size_bytes
    }

    /// Returns the ranges of the array that contain its samples; `None` if an offset overflows.
    fn blocks(&self, reader: &ArrayReader) -> Option<Vec<Block>> {
        self.plane.blocks(stored(reader, &largest_chunk(reader)))
    }

    /// Returns the index of a sample in the picture, by row, column and channel.
    fn place(&self, [row, column, channel]: [u64; 3]) -> u64 {
        let (height, width) = (u64::from(self.format.height), u64::from(self.format.width));
        let flipped_index = |is_flipped, place: u64, length: u64| match is_flipped {
            true => length.saturating_sub(1).saturating_sub(place),
            false => place,
        };
        let row = flipped_index(self.flip.rows, row, height);
        let column = flipped_index(self.flip.columns, column, width);
        let pixel = row * width + column;
        pixel * self.format.colours.pixel_bytes() as u64 + channel
    }

    /// Returns the value of an element; NaN for missing data.
    fn sample(&self, element: &[u8]) -> Option<f64> {
        let value = self.own.read(element)?;
        Some(match self.missing.contains(&value) {
            true => f64::NAN,
            false => reinterpret(self.own, self.meant, value).float(),
        })
    }

    /// Returns the file after its header, with these samples; `None` if their number is wrong.
    fn body(&self, samples: &[f64]) -> Option<Vec<u8>> {
        let Some(legend) = &self.legend else {
            let pixels: Vec<u8> = samples.iter().map(|sample| byte(*sample)).collect();
            return self.format.body("", 0, &pixels);
        };
        let range = colour::range(samples);
        let pixels = colour::indexes(samples, range);
        let text = range.map_or_else(|| "no values".into(), |range| legend.text(range));
        self.format.body(&text, self.range_bytes(), &pixels)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "colours are bytes"
)]
fn byte(sample: f64) -> u8 {
    sample as u8
}

impl Legend {
    /// Returns the range of values with their unit.
    fn text(&self, (dark, bright): (f64, f64)) -> String {
        let [dark, bright] = [dark, bright].map(|number| shown(number * self.scale + self.offset));
        format!("{dark}{BETWEEN}{bright} {}", self.units)
            .trim_end()
            .to_owned()
    }
}

/// Formats a number in at most [`NUMBER_BYTES`]: the shortest form with an exponent always fits.
fn shown(number: f64) -> String {
    let plain = number.to_string();
    match plain.len() <= NUMBER_BYTES {
        true => plain,
        false => format!("{number:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_range_has_a_known_size() {
        let legend = Legend {
            scale: 0.1,
            offset: 0.0,
            units: "\u{b0}C".into(),
        };
        assert_eq!(legend.text((10.0, 25.0)), "1 to 2.5 \u{b0}C");
        for number in [
            f64::MIN,
            -f64::MIN_POSITIVE,
            f64::EPSILON / 3.0,
            0.1 + 0.2,
            1e22,
        ] {
            assert!(shown(number).len() <= NUMBER_BYTES, "{number}");
        }
    }
}
