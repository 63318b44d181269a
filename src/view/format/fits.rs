//! FITS 4.0 (fits.gsfc.nasa.gov): one image in the primary unit, its header in records of 2880 bytes.
//! Numbers are big-endian; unsigned integers and signed bytes are stored with an offset (`BZERO`).

use super::Renderer;
use super::raw_data::element_type;
use super::row::{FormatRow, Listing, ViewName, proven};
use crate::conventions::description::Description;
use crate::conventions::description::Field;
use crate::conventions::description::{Axis, Transform};
use crate::conventions::georef::context::Notes;
use crate::conventions::text::shown;
use crate::conventions::units::{metres, seconds};
use crate::node::{
    ArrayView, ContentError, Conversion, ConversionRule, NodeResolver, Number, NumberKind, Value,
};
use crate::view::file::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile};
use crate::zarr::{ByteOrder, Fixed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "fits",
    ViewName::Suffix(".fits"),
    "FITS",
    "python3 -c 'import astropy.io.fits, sys; astropy.io.fits.info(sys.argv[1])'",
    Renderer::ArrayWithNodes(|view, _| proven(check(view)), render),
)
.expressing(&[
    Field::AxisNames,
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Transform,
    Field::Coordinates,
    Field::Missing,
    Field::Packing,
    Field::HeaderPacking,
    Field::ValueUnits,
])
.also_called(&["fit"])
.listed(Listing::ByName)];

const RECORD_BYTES: u64 = 2880;
const CARD_CHARACTERS: usize = 80;
/// The maximum size of the image in bytes: headers have at most a mebibyte, and a file less than 2^63 bytes.
const MAX_IMAGE_BYTES: u64 = i64::MAX.unsigned_abs() - (1 << 20);
/// The maximum number of axes in the specification.
const MAX_AXES: usize = 999;

/// Renders an array as a FITS file.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn render(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check(view)?;
    let pixels = PixelType::of(&element_type(view))?;
    let mut notes = Notes::default();
    let metadata = Description::of(view, nodes, &mut notes)?;
    let cards = cards(&pixels, view.shape(), &metadata, &mut notes);
    let mut header = cards.concat().into_bytes();
    let padded = (header.len() as u64).next_multiple_of(RECORD_BYTES);
    header.resize(usize::try_from(padded).unwrap_or(usize::MAX), b' ');
    let extent = image(view, &pixels).ok_or("the size overflows 64 bits".to_owned())?;
    let size = extent.size_bytes;
    let padding = size.checked_next_multiple_of(RECORD_BYTES).unwrap_or(size) - size;
    let parts = [
        Segment::Bytes(header),
        Segment::Array(extent),
        Segment::Zeros(padding),
    ];
    let mut file = VirtualFile::of_array(view.reader, parts)?;
    file.notes = notes.0;
    Ok(file)
}

/// Checks that FITS supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check(view: &ArrayView<'_>) -> Result<(), String> {
    let pixels = PixelType::of(&element_type(view))?;
    let rank = view.shape().len();
    if rank == 0 || rank > MAX_AXES {
        return Err(format!(
            "FITS has images of 1 to {MAX_AXES} axes, this has {rank}"
        ));
    }
    if view.shape().contains(&0) {
        return Err("an array without elements is no image".into());
    }
    match image(view, &pixels) {
        Some(image) if image.size_bytes <= MAX_IMAGE_BYTES => Ok(()),
        _ => Err("no file can be so long".into()),
    }
}

/// Returns the elements as the file has them; `None` if their size overflows.
fn image(view: &ArrayView<'_>, pixels: &PixelType) -> Option<ArrayExtent> {
    let order = ElementOrder::RowMajor;
    ArrayExtent::new(0, view.reader, order, Some(pixels.conversion))
}

/// The type of the stored numbers.
struct PixelType {
    conversion: Conversion,
    /// `BITPIX`; negative for floats.
    bits: i64,
    /// The number that is added to a stored number.
    zero: u64,
    is_less: bool,
}

impl PixelType {
    fn of(data_type: &Fixed) -> Result<Self, String> {
        let none = || format!("FITS has no data type for {data_type}");
        let (from, count) = Number::of(data_type).ok_or_else(none)?;
        if count != 1 {
            return Err(none());
        }
        let (kind, size) = match (from.kind, from.size_bytes) {
            (NumberKind::Float, 2 | 4) => (NumberKind::Float, 4),
            (NumberKind::Float, 8) => (NumberKind::Float, 8),
            (NumberKind::UInt | NumberKind::Int, 1) => (NumberKind::UInt, 1),
            (NumberKind::UInt | NumberKind::Int, size @ (2 | 4 | 8)) => (NumberKind::Int, size),
            _ => return Err(none()),
        };
        let bits = 8 * i64::try_from(size).unwrap_or(8);
        let is_offset = kind != from.kind;
        Ok(Self {
            conversion: Conversion {
                from,
                to: Number::new(kind, size, ByteOrder::Big),
                rule: match is_offset {
                    true => ConversionRule::Offset,
                    false => ConversionRule::Values,
                },
            },
            bits: if kind == NumberKind::Float {
                -bits
            } else {
                bits
            },
            zero: if is_offset { 1 << (bits - 1) } else { 0 },
            is_less: from.kind == NumberKind::Int,
        })
    }

    /// Returns the number that is added to a stored number to get the element.
    fn zero(&self) -> Value {
        let zero = i128::from(self.zero);
        Value::Int(if self.is_less { -zero } else { zero })
    }
}

/// Returns the cards of the header.
fn cards(
    pixels: &PixelType,
    shape: &[u64],
    metadata: &Description,
    notes: &mut Notes,
) -> Vec<String> {
    let mut cards = vec![
        logical("SIMPLE", true, "conforms to FITS"),
        integer("BITPIX", &pixels.bits, "bits of a number"),
        integer("NAXIS", &shape.len(), "number of axes"),
    ];
    for (axis, length) in shape.iter().rev().enumerate() {
        cards.push(integer(&format!("NAXIS{}", axis + 1), length, ""));
    }
    cards.extend(scale(pixels, metadata));
    if pixels.bits > 0
        && let Some(Value::Int(missing)) = metadata.missing
        && let Value::Int(zero) = pixels.zero()
    {
        cards.push(integer(
            "BLANK",
            &(missing - zero),
            "stored number of missing values",
        ));
    }
    if let Some(units) = &metadata.units {
        match text("BUNIT", units) {
            Some(card) => cards.push(card),
            None => notes.add("units are no short ASCII text: left out"),
        }
    }
    match &metadata.transform {
        Some(transform) => cards.extend(turned(transform)),
        None => {
            for (axis, spacing) in metadata.axes.iter().rev().enumerate() {
                cards.extend(coordinates(axis + 1, spacing));
            }
        }
    }
    // Missing values of floats are NaN.
    if pixels.bits < 0
        && metadata
            .missing
            .is_some_and(|value| !value.float().is_nan())
    {
        notes.add("the missing value is left out: FITS has BLANK for integers alone");
    }
    note_left_out(&metadata.axes, notes);
    cards.push(format!("{:CARD_CHARACTERS$}", "END"));
    cards
}

/// Adds a note for each name and unit that no card has.
fn note_left_out(axes: &[Axis], notes: &mut Notes) {
    for axis in axes {
        let name = axis.name.as_deref();
        if let Some(name) = name.filter(|_| axis.spacing.is_none()) {
            notes.add(format!(
                "the name of the axis {name} is left out: no coordinates are known along it"
            ));
        }
        if let Some(unit) = axis.unit.as_deref().filter(|_| axis.spacing.is_some())
            && unit_of(unit).1.is_none()
        {
            notes.add(format!(
                "the unit {unit} is left out: FITS has no such unit"
            ));
        }
    }
}

/// Returns `BSCALE` and `BZERO`: the offset of unsigned integers, or `scale_factor` with `add_offset`.
fn scale(pixels: &PixelType, metadata: &Description) -> Vec<String> {
    if metadata.scale.is_none() && metadata.offset.is_none() {
        return match pixels.zero {
            0 => Vec::new(),
            _ => vec![
                integer("BSCALE", &1, ""),
                integer(
                    "BZERO",
                    &shown(pixels.zero()),
                    "offset of the stored integers",
                ),
            ],
        };
    }
    let scale = metadata.scale.unwrap_or(1.0);
    let zero = pixels.zero().float() * scale + metadata.offset.unwrap_or(0.0);
    vec![real("BSCALE", scale), real("BZERO", zero)]
}

/// Returns the cards of a linear coordinate along an axis, if its elements are evenly spaced.
fn coordinates(axis: usize, spacing: &Axis) -> Vec<String> {
    let (Some(distance), Some(first)) = (spacing.spacing, spacing.origin) else {
        return Vec::new();
    };
    let (mut cards, factor) = coordinate(axis, spacing, first);
    cards.push(real(&format!("CDELT{axis}"), distance * factor));
    cards
}

/// Returns the cards of a coordinate without its steps, and the factor to its unit in the file. `first` is the
/// coordinate of the first element.
fn coordinate(axis: usize, coordinate: &Axis, first: f64) -> (Vec<String>, f64) {
    let (factor, unit) = match coordinate.unit.as_deref() {
        Some(unit) => unit_of(unit),
        None => (1.0, None),
    };
    let mut cards = Vec::new();
    if let Some(name) = &coordinate.name {
        // A type with a hyphen as its fifth character would be a projection.
        let name: String = name
            .chars()
            .map(|c| if c == '-' { '_' } else { c })
            .collect();
        cards.extend(text(&format!("CTYPE{axis}"), &name.to_ascii_uppercase()));
    }
    cards.push(real(&format!("CRPIX{axis}"), 1.0));
    cards.push(real(&format!("CRVAL{axis}"), first * factor));
    if let Some(unit) = unit {
        cards.extend(text(&format!("CUNIT{axis}"), unit));
    }
    (cards, factor)
}

/// Returns the cards of coordinates that are turned or sheared against the axes: a matrix (FITS 4.0, "CDi_j").
fn turned(transform: &Transform) -> Vec<String> {
    let coordinates = &transform.coordinates;
    let mut cards = Vec::new();
    for (place, own) in coordinates.iter().enumerate() {
        let Some((first, factors)) = transform.affine.row(place).and_then(<[f64]>::split_last)
        else {
            continue;
        };
        let axis = coordinates.len() - place;
        let (own, factor) = coordinate(axis, own, *first);
        cards.extend(own);
        for (input, step) in factors.iter().enumerate().filter(|(_, step)| **step != 0.0) {
            let input = factors.len() - input;
            cards.push(real(&format!("CD{axis}_{input}"), step * factor));
        }
    }
    cards
}

/// Returns a unit of the specification and the factor to it; `None` for other units.
fn unit_of(unit: &str) -> (f64, Option<&'static str>) {
    // Dates count from an epoch, and FITS has no keyword for the epoch of an axis with this name.
    if let Some(time) = seconds(unit).filter(|_| !unit.contains(" since ")) {
        return (time, Some("s"));
    }
    if let Some(length) = metres(unit) {
        return (length, Some("m"));
    }
    match unit.starts_with("degree") {
        true => (1.0, Some("deg")),
        false => (1.0, None),
    }
}

fn card(keyword: &str, value: &str, comment: &str) -> String {
    let comment = match comment {
        "" => String::new(),
        comment => format!(" / {comment}"),
    };
    format!(
        "{:CARD_CHARACTERS$}",
        format!("{keyword:8}= {value:>20}{comment}")
    )
}

fn logical(keyword: &str, value: bool, comment: &str) -> String {
    card(keyword, if value { "T" } else { "F" }, comment)
}

fn integer(keyword: &str, value: &impl ToString, comment: &str) -> String {
    card(keyword, &value.to_string(), comment)
}

fn real(keyword: &str, value: f64) -> String {
    let mut text = shown(Value::Float(value)).to_ascii_uppercase();
    if !text.contains(['.', 'E']) {
        text.push_str(".0");
    }
    card(keyword, &text, "")
}

/// Returns a card with a text; `None` if the text is not printable ASCII or does not fit in a card.
fn text(keyword: &str, text: &str) -> Option<String> {
    let is_plain = text.chars().all(|c| matches!(c, ' '..='~'));
    let quoted = format!("'{:8}'", text.replace('\'', "''"));
    (is_plain && !text.is_empty() && quoted.len() <= CARD_CHARACTERS - 10)
        .then(|| format!("{:CARD_CHARACTERS$}", format!("{keyword:8}= {quoted:20}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::affine::Affine;
    use crate::zarr::Scalar;

    fn metadata(axes: Vec<Axis>) -> Description {
        Description {
            axes,
            units: Some("K".into()),
            missing: Some(Value::Int(7)),
            ..Description::default()
        }
    }

    fn header(scalar: Scalar, size_bytes: usize, metadata: &Description) -> Vec<String> {
        let pixels = PixelType::of(&Fixed { scalar, size_bytes }).unwrap();
        let cards = cards(&pixels, &[3, 5], metadata, &mut Notes::default());
        assert!(cards.iter().all(|card| card.len() == 80), "{cards:?}");
        cards
            .iter()
            .map(|card| card.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn unsigned_integers_are_stored_with_an_offset() {
        let little = ByteOrder::Little;
        let mut metadata = metadata(Vec::new());
        assert_eq!(
            header(Scalar::UInt(little), 2, &metadata),
            [
                "SIMPLE  =                    T / conforms to FITS",
                "BITPIX  =                   16 / bits of a number",
                "NAXIS   =                    2 / number of axes",
                "NAXIS1  =                    5",
                "NAXIS2  =                    3",
                "BSCALE  =                    1",
                "BZERO   =                32768 / offset of the stored integers",
                "BLANK   =               -32761 / stored number of missing values",
                "BUNIT   = 'K       '",
                "END",
            ]
        );
        let cards = header(Scalar::Int(little), 1, &metadata);
        assert!(
            cards
                .iter()
                .any(|card| card.starts_with("BZERO   =                 -128"))
        );
        metadata.scale = Some(0.5);
        let cards = header(Scalar::UInt(little), 8, &metadata);
        assert!(
            cards
                .iter()
                .any(|card| card.contains("BZERO   = 4611686018427388000.0")
                    || card.contains("4.611686018427388E18")),
            "{cards:?}"
        );
        let cards = header(Scalar::Float(little), 4, &metadata);
        assert!(!cards.iter().any(|card| card.starts_with("BLANK")));
    }

    #[test]
    fn regular_coordinates_are_linear_axes() {
        let axis = Axis {
            name: Some("lat-x".into()),
            spacing: Some(-0.25),
            origin: Some(60.0),
            unit: Some("degrees_north".into()),
            ..Axis::default()
        };
        let cards = header(
            Scalar::Float(ByteOrder::Big),
            4,
            &metadata(vec![Axis::default(), axis]),
        );
        for card in [
            "CTYPE1  = 'LAT_X   '",
            "CRPIX1  =                  1.0",
            "CRVAL1  =                 60.0",
            "CDELT1  =                -0.25",
            "CUNIT1  = 'deg     '",
        ] {
            assert!(cards.iter().any(|found| found == card), "{card}: {cards:?}");
        }
        assert!(!cards.iter().any(|card| card.starts_with("CTYPE2")));
    }

    #[test]
    fn turned_axes_have_a_matrix() {
        let axis = |name: &str| Axis {
            name: Some(name.into()),
            unit: Some("millimeter".into()),
            ..Axis::default()
        };
        let rows = vec![vec![0.5, 0.25, 7.0], vec![0.0, 2.0, 8.0]];
        let mut metadata = metadata(vec![axis("y"), axis("x")]);
        metadata.transform = Some(Transform {
            affine: Affine::of_rows(rows, 2).unwrap(),
            coordinates: metadata.axes.clone(),
        });
        let cards = header(Scalar::Float(ByteOrder::Big), 4, &metadata);
        for card in [
            "CRVAL2  =                0.007",
            "CD2_2   =               0.0005",
            "CD2_1   =              0.00025",
            "CRVAL1  =                0.008",
            "CD1_1   =                0.002",
        ] {
            assert!(cards.iter().any(|found| found == card), "{card}: {cards:?}");
        }
        assert!(!cards.iter().any(|card| card.starts_with("CD1_2")));
    }
}
