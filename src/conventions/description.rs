//! The description of an array that all conventions together give: what formats carry, or say that they do not.

mod array;

pub(crate) use array::{DeclaredAxes, Description};

use std::fmt;

use super::affine::Affine;
use super::units::{metres, seconds};

/// An axis of an array, or of the coordinates of a transform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// The name in the convention, else of the dimension.
    pub name: Option<String>,
    /// What the axis runs along.
    pub kind: AxisKind,
    /// The distance of adjacent elements; never zero, negative if coordinates decrease.
    pub spacing: Option<f64>,
    /// The coordinate of the centre of the first element.
    pub origin: Option<f64>,
    /// The unit of spacing and origin.
    pub unit: Option<String>,
    /// The anatomical direction in which coordinates increase.
    pub orientation: Option<Orientation>,
}

/// What an axis runs along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AxisKind {
    /// Unknown: a side of an image, if it is one of the last three axes.
    #[default]
    Unknown,
    /// A direction in space.
    Space,
    /// Time.
    Time,
    /// Channels of an image, or bands of a raster.
    Channel,
}

impl AxisKind {
    /// Returns the kind of a `type` of OME-Zarr; `None` for other types.
    pub fn of_ome(kind: &str) -> Option<Self> {
        match kind {
            "space" => Some(Self::Space),
            "time" => Some(Self::Time),
            "channel" => Some(Self::Channel),
            _ => None,
        }
    }

    /// Returns the name of the kind; `None` for an unknown kind.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Space => Some("space"),
            Self::Time => Some("time"),
            Self::Channel => Some("channel"),
        }
    }

    /// Returns the kind of an axis by its name.
    pub fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "t" | "time" => Self::Time,
            "c" | "channel" | "channels" | "band" | "bands" | "s" | "sample" | "samples"
            | "rgb" | "rgba" | "color" | "colour" => Self::Channel,
            _ => Self::Space,
        }
    }
}

impl Axis {
    /// Returns the length in metres of the unit, if it is one.
    pub fn metres(&self) -> Option<f64> {
        self.unit.as_deref().and_then(metres)
    }

    /// Returns the length in seconds of the unit, if it is one.
    pub fn seconds(&self) -> Option<f64> {
        self.unit.as_deref().and_then(seconds)
    }

    /// Returns whether the axis has this name, in any case.
    pub fn is_named(&self, name: &str) -> bool {
        self.name
            .as_deref()
            .is_some_and(|own| own.eq_ignore_ascii_case(name))
    }
}

/// A pair of anatomical directions (RFC-4 of OME-Zarr): an axis of a patient, and whether coordinates increase
/// to the right, to the front and to the top, as those of NIfTI do (RAS+).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orientation {
    /// 0 for left and right, 1 for back and front, 2 for bottom and top.
    pub direction: usize,
    /// Whether coordinates increase to the left, to the back or to the bottom.
    pub is_reversed: bool,
}

/// The values of RFC-4 for the directions of a patient, each followed by the reverse one.
const ORIENTATIONS: [&str; 6] = [
    "left-to-right",
    "right-to-left",
    "posterior-to-anterior",
    "anterior-to-posterior",
    "inferior-to-superior",
    "superior-to-inferior",
];

impl Orientation {
    /// Returns the orientation of a value of RFC-4; `None` for those whose direction in a patient depends on
    /// the organ or the species, such as `dorsal-to-ventral`.
    pub fn of_value(value: &str) -> Option<Self> {
        let place = ORIENTATIONS.iter().position(|known| *known == value)?;
        Some(Self {
            direction: place / 2,
            is_reversed: place % 2 == 1,
        })
    }

    /// Returns the value of RFC-4.
    pub fn name(self) -> &'static str {
        let place = 2 * self.direction + usize::from(self.is_reversed);
        // `of_value` constructs only directions of the table.
        ORIENTATIONS.get(place).unwrap_or(&"")
    }

    /// Returns the factor from a coordinate to one of RAS+.
    pub fn sign(self) -> f64 {
        if self.is_reversed { -1.0 } else { 1.0 }
    }
}

/// A transform that is not a step along each axis: coordinates are turned or sheared against the array.
#[derive(Debug, Clone, PartialEq)]
pub struct Transform {
    /// The coordinates of the centre of an element, from its indices.
    pub affine: Affine,
    /// The axes of the coordinates.
    pub coordinates: Vec<Axis>,
}

impl Transform {
    /// Returns whether a direction of the coordinates in a patient is known.
    pub fn is_oriented(&self) -> bool {
        self.coordinates
            .iter()
            .any(|axis| axis.orientation.is_some())
    }
}

/// A channel of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channel {
    /// The name.
    pub name: Option<String>,
    /// Red, green and blue.
    pub color: Option<[u8; 3]>,
}

/// The colours of the samples of an RGB image.
const RGB: [[u8; 3]; 3] = [[255, 0, 0], [0, 255, 0], [0, 0, 255]];

/// Returns whether channels are red, green and blue; `None` if their colours are not known.
pub fn are_rgb(channels: &[Channel]) -> Option<bool> {
    let colors: Option<Vec<[u8; 3]>> = channels.iter().map(|channel| channel.color).collect();
    let colors = colors.filter(|colors| !colors.is_empty())?;
    Some(colors.iter().eq(&RGB))
}

/// A part of a description. Each format declares the parts that its files express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// The name of an image.
    ImageName,
    /// The names of axes.
    AxisNames,
    /// Distances of elements that attributes declare.
    Spacing,
    /// Coordinates of the first element that attributes declare.
    Origin,
    /// Units of spacings.
    AxisUnits,
    /// Anatomical orientations.
    Orientation,
    /// A transform that turns or shears.
    Transform,
    /// Coordinate arrays whose numbers are evenly spaced.
    Coordinates,
    /// Other coordinate arrays.
    UnevenCoordinates,
    /// The number that marks missing values.
    Missing,
    /// Scale and offset of the stored numbers.
    Packing,
    /// Scale and offset that only the header of NIfTI-Zarr has.
    HeaderPacking,
    /// The unit of the values.
    ValueUnits,
    /// Names of channels.
    ChannelNames,
    /// Colours of channels.
    ChannelColors,
    /// The coordinate reference system.
    ReferenceSystem,
    /// The coordinate reference system of an array without a transform or coordinates.
    SystemWithoutTransform,
    /// The categories of a column of a table, in their order, also those that no row has.
    Categories,
}

impl Field {
    /// All fields.
    pub const ALL: &[Self] = &[
        Self::ImageName,
        Self::AxisNames,
        Self::Spacing,
        Self::Origin,
        Self::AxisUnits,
        Self::Orientation,
        Self::Transform,
        Self::Coordinates,
        Self::UnevenCoordinates,
        Self::Missing,
        Self::Packing,
        Self::HeaderPacking,
        Self::ValueUnits,
        Self::ChannelNames,
        Self::ChannelColors,
        Self::ReferenceSystem,
        Self::SystemWithoutTransform,
        Self::Categories,
    ];
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ImageName => "the name of the image",
            Self::AxisNames => "the names of axes",
            Self::Spacing => "the spacing",
            Self::Origin => "the origin",
            Self::AxisUnits => "the units of axes",
            Self::Orientation => "the orientation",
            Self::Transform => "the transform",
            Self::Coordinates => "the coordinates",
            Self::UnevenCoordinates => "the coordinates that are not evenly spaced",
            Self::Missing => "the missing value",
            Self::Packing => "scale and offset",
            Self::HeaderPacking => "scale and offset of the NIfTI header",
            Self::ValueUnits => "the unit of the values",
            Self::ChannelNames => "the names of channels",
            Self::ChannelColors => "the colours of channels",
            Self::ReferenceSystem => "the reference system",
            Self::SystemWithoutTransform => "the reference system (no transform is known)",
            Self::Categories => "the categories",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_that_depend_on_the_species_have_no_orientation() {
        let left = Orientation::of_value("right-to-left").unwrap();
        assert_eq!((left.direction, left.sign()), (0, -1.0));
        assert_eq!(left.name(), "right-to-left");
        for value in ["dorsal-to-ventral", "proximal-to-distal", "left", ""] {
            assert_eq!(Orientation::of_value(value), None, "{value}");
        }
    }

    #[test]
    fn channels_are_rgb_only_by_their_colours() {
        let channels = |colors: &[Option<[u8; 3]>]| {
            let channel = |color: &Option<[u8; 3]>| Channel {
                name: None,
                color: *color,
            };
            are_rgb(&colors.iter().map(channel).collect::<Vec<_>>())
        };
        assert_eq!(channels(&RGB.map(Some)), Some(true));
        assert_eq!(
            channels(&[Some(RGB[2]), Some(RGB[1]), Some(RGB[0])]),
            Some(false)
        );
        assert_eq!(channels(&[Some(RGB[0]), None, None]), None);
        assert_eq!(channels(&[]), None);
    }
}
