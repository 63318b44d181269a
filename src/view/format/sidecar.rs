//! Detached headers of `<name>.bin` for raster and image tools: ENVI (`.hdr`), GDAL (`.vrt`) and NRRD
//! (`.nhdr`).

mod fields;

use std::fmt::Write as _;

use super::Renderer;
use super::row::{FormatRow, GDAL, ViewName, proven};
use crate::conventions::cf;
use crate::conventions::description::Field;
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::Notes;
use crate::conventions::text::escape;
use crate::node::{ArrayView, ContentError, NodeResolver, Number, NumberKind};
use crate::view::file::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile};
use crate::zarr::{ByteOrder, Fixed, Scalar};
use fields::VrtFields;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "bin",
        ViewName::Suffix(".bin"),
        "the elements in row-major order, without a header",
        "od -A d -t x1 -N 64",
        Renderer::Array(bin),
    )
    .expressing(&[]),
    FormatRow::new(
        "hdr",
        ViewName::Suffix(".hdr"),
        "the ENVI header of the .bin file",
        "gdalinfo",
        Renderer::ArrayWithNodes(|view, _| proven(check_envi(view)), envi),
    )
    .expressing(&[
        Field::Coordinates,
        Field::Missing,
        Field::Packing,
        Field::HeaderPacking,
        Field::ReferenceSystem,
    ])
    .read_through(".bin")
    .also_called(&["envi"]),
    FormatRow::new(
        "vrt",
        ViewName::Suffix(".vrt"),
        "a GDAL virtual raster of the .bin file",
        "gdalinfo",
        Renderer::ArrayWithNodes(|view, _| proven(check_vrt(view)), vrt),
    )
    .expressing(GDAL),
    FormatRow::new(
        "nhdr",
        ViewName::Suffix(".nhdr"),
        "the NRRD header of the .bin file",
        "python3 -c 'import nrrd, sys; print(nrrd.read_header(sys.argv[1]))'",
        Renderer::ArrayWithNodes(|view, _| proven(check_nrrd(view)), nrrd),
    )
    .expressing(&[
        Field::AxisNames,
        Field::Spacing,
        Field::Origin,
        Field::AxisUnits,
        Field::Orientation,
        Field::Transform,
        Field::Coordinates,
    ])
    .also_called(&["nrrd"]),
];

/// Returns the name of the data file that the headers refer to.
fn data_name(view: &ArrayView<'_>) -> String {
    format!("{}.bin", view.node.name())
}

/// Renders the elements without a header.
///
/// # Errors
/// The file would exceed 2^63 - 1 bytes.
fn bin(view: &ArrayView<'_>) -> Result<VirtualFile, String> {
    let elements = ArrayExtent::new(0, view.reader, ElementOrder::RowMajor, None);
    VirtualFile::of_array(view.reader, elements.map(Segment::Array))
}

/// Renders a header of the ENVI raster format.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn envi(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    let mut text = envi_header(&element_type(view), view.shape())?;
    let mut notes = Notes::default();
    let metadata = RasterMetadata::of_planes(view, nodes, &mut notes)?;
    note_without_place(metadata.as_ref(), &mut notes);
    if let Some(metadata) = metadata {
        text.push_str(&fields::envi(&metadata, &mut notes));
    }
    let mut file = VirtualFile::text(text);
    file.notes = notes.0;
    Ok(file)
}

/// Checks that ENVI supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check_envi(view: &ArrayView<'_>) -> Result<(), String> {
    envi_header(&element_type(view), view.shape()).map(drop)
}

/// Renders a virtual raster of GDAL (`VRTRawRasterBand`).
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn vrt(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check_vrt(view)?;
    let mut notes = Notes::default();
    let metadata = RasterMetadata::of_planes(view, nodes, &mut notes)?;
    note_without_place(metadata.as_ref(), &mut notes);
    let fields = metadata.map(|metadata| fields::vrt(&metadata));
    let fields = fields.unwrap_or_default();
    let text = vrt_document(&element_type(view), view.shape(), &data_name(view), &fields)?;
    let mut file = VirtualFile::text(text);
    file.notes = notes.0;
    Ok(file)
}

/// Adds a note if coordinates are in no file, since they do not place a raster.
fn note_without_place(metadata: Option<&RasterMetadata>, notes: &mut Notes) {
    let georef = metadata.map(|metadata| &metadata.georef);
    if georef.is_none_or(|georef| georef.transform.is_none()) {
        notes.add("no place is known: neither a transform nor coordinates of regular distances along two axes");
    }
}

/// Checks that GDAL supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check_vrt(view: &ArrayView<'_>) -> Result<(), String> {
    vrt_band(&element_type(view), view.shape()).map(drop)
}

/// Renders a detached header of NRRD (teem).
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn nrrd(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check_nrrd(view)?;
    let (head, data) = nrrd_header(&element_type(view), view.shape(), &data_name(view))?;
    let mut notes = Notes::default();
    let fields = fields::nrrd(view, nodes, &mut notes)?;
    // The data file comes last: programs ignore fields after `data file`.
    let mut file = VirtualFile::text(format!("{head}{fields}{data}"));
    file.notes = notes.0;
    Ok(file)
}

/// Checks that NRRD supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check_nrrd(view: &ArrayView<'_>) -> Result<(), String> {
    nrrd_header(&element_type(view), view.shape(), &data_name(view)).map(drop)
}

/// Returns the data type of the elements; unsigned if `_Unsigned` is set.
pub(in crate::view) fn element_type(view: &ArrayView<'_>) -> Fixed {
    let mut data_type = view.data_type().clone();
    let kind = |own| cf::kind_of_values(view.array, own);
    data_type.scalar = match data_type.scalar {
        Scalar::Int(order) if kind(NumberKind::Int) == NumberKind::UInt => Scalar::UInt(order),
        Scalar::UInt(order) if kind(NumberKind::UInt) == NumberKind::Int => Scalar::Int(order),
        scalar => scalar,
    };
    data_type
}

/// An array of numbers as rasters: the last axis is x, the one before it is y, the others are bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RasterSize {
    width: u64,
    height: u64,
    bands: u64,
}

impl RasterSize {
    fn of(shape: &[u64]) -> Result<Self, String> {
        let raster = match shape {
            [] => Self {
                width: 1,
                height: 1,
                bands: 1,
            },
            [width] => Self {
                width: *width,
                height: 1,
                bands: 1,
            },
            [bands @ .., height, width] => Self {
                width: *width,
                height: *height,
                bands: bands.iter().product(),
            },
        };
        if shape.contains(&0) {
            return Err("an array without elements is no raster".into());
        }
        Ok(raster)
    }
}

/// Returns the type of the numbers: numpy's letter (`c` for complex), size in bytes and byte order.
fn number(data_type: &Fixed) -> (char, usize, ByteOrder) {
    match Number::of(data_type) {
        Some((number, 1)) => (number.letter(), number.size_bytes, number.order),
        Some((number, count)) => ('c', number.size_bytes * count, number.order),
        None => ('?', data_type.size_bytes, ByteOrder::Little),
    }
}

fn no_type(format: &str, data_type: &Fixed) -> String {
    format!("{format} has no data type for {data_type}")
}

fn envi_header(data_type: &Fixed, shape: &[u64]) -> Result<String, String> {
    let raster = RasterSize::of(shape)?;
    let (kind, size, order) = number(data_type);
    let code = match (kind, size) {
        ('u', 1) => 1,
        ('i', 2) => 2,
        ('i', 4) => 3,
        ('f', 4) => 4,
        ('f', 8) => 5,
        ('c', 8) => 6,
        ('c', 16) => 9,
        ('u', 2) => 12,
        ('u', 4) => 13,
        ('i', 8) => 14,
        ('u', 8) => 15,
        _ => return Err(no_type("ENVI", data_type)),
    };
    let RasterSize {
        width,
        height,
        bands,
    } = raster;
    let order = u8::from(order == ByteOrder::Big);
    Ok(format!(
        "ENVI\nsamples = {width}\nlines = {height}\nbands = {bands}\nheader offset = 0\n\
         file type = ENVI Standard\ndata type = {code}\ninterleave = bsq\nbyte order = {order}\n"
    ))
}

/// The maximum number of bands of a document.
const MAX_VRT_BANDS: u64 = 65_535;

/// Returns GDAL's name of the data type of a band, and the raster.
fn vrt_band(data_type: &Fixed, shape: &[u64]) -> Result<(&'static str, RasterSize), String> {
    let raster = RasterSize::of(shape)?;
    let (kind, size, _) = number(data_type);
    let name = match (kind, size) {
        ('u', 1) => "Byte",
        ('i', 1) => "Int8",
        ('u', 2) => "UInt16",
        ('i', 2) => "Int16",
        ('u', 4) => "UInt32",
        ('i', 4) => "Int32",
        ('u', 8) => "UInt64",
        ('i', 8) => "Int64",
        ('f', 4) => "Float32",
        ('f', 8) => "Float64",
        ('c', 8) => "CFloat32",
        ('c', 16) => "CFloat64",
        _ => return Err(no_type("GDAL", data_type)),
    };
    let RasterSize {
        width,
        height,
        bands,
    } = raster;
    let most = i32::MAX.unsigned_abs();
    if width > most.into() || height > most.into() || bands > MAX_VRT_BANDS {
        return Err(format!(
            "{width} x {height} x {bands} is too much for a virtual raster"
        ));
    }
    Ok((name, raster))
}

fn vrt_document(
    data_type: &Fixed,
    shape: &[u64],
    data: &str,
    fields: &VrtFields,
) -> Result<String, String> {
    let (name, raster) = vrt_band(data_type, shape)?;
    let RasterSize {
        width,
        height,
        bands,
    } = raster;
    let (_, size, order) = number(data_type);
    let order = match order {
        ByteOrder::Little => "LSB",
        ByteOrder::Big => "MSB",
    };
    let line = width.saturating_mul(size as u64);
    let band_bytes = line.saturating_mul(height);
    // GDAL removes blanks around the name.
    let source = match data.starts_with(char::is_whitespace) {
        true => format!("./{}", escape(data)),
        false => escape(data),
    };
    let mut text = format!(
        "<VRTDataset rasterXSize=\"{width}\" rasterYSize=\"{height}\">\n{}",
        fields.dataset
    );
    let mut names = fields.names.iter();
    for band in 0..bands {
        let offset = band_bytes.saturating_mul(band);
        // Writing to a String is infallible.
        let _ = writeln!(
            text,
            "  <VRTRasterBand dataType=\"{name}\" band=\"{}\" subClass=\"VRTRawRasterBand\">",
            band + 1
        );
        if let Some(Some(name)) = names.next() {
            let _ = writeln!(text, "    <Description>{}</Description>", escape(name));
        }
        let _ = write!(
            text,
            "{}    <SourceFilename relativeToVRT=\"1\">{source}</SourceFilename>\n    \
             <ImageOffset>{offset}</ImageOffset>\n    <PixelOffset>{size}</PixelOffset>\n    \
             <LineOffset>{line}</LineOffset>\n    <ByteOrder>{order}</ByteOrder>\n  \
             </VRTRasterBand>\n",
            fields.band
        );
    }
    text.push_str("</VRTDataset>\n");
    Ok(text)
}

/// Returns the header without its last line, and the last line, `data file`.
fn nrrd_header(data_type: &Fixed, shape: &[u64], data: &str) -> Result<(String, String), String> {
    let (kind, size, order) = number(data_type);
    let name = match (kind, size) {
        ('i', 1) => "int8",
        ('u', 1) => "uint8",
        ('i', 2) => "int16",
        ('u', 2) => "uint16",
        ('i', 4) => "int32",
        ('u', 4) => "uint32",
        ('i', 8) => "int64",
        ('u', 8) => "uint64",
        ('f', 4) => "float",
        ('f', 8) => "double",
        _ => return Err(no_type("NRRD", data_type)),
    };
    if shape.contains(&0) {
        return Err("an array without elements is no raster".into());
    }
    if shape.len() > 16 {
        return Err(format!(
            "NRRD has at most 16 axes, this has {}",
            shape.len()
        ));
    }
    if data.contains('\n') {
        return Err("the name of the data file has more than one line".into());
    }
    let order = match order {
        ByteOrder::Little => "little",
        ByteOrder::Big => "big",
    };
    // Fastest axis first; a scalar has one axis.
    let mut sizes: Vec<String> = shape.iter().rev().map(u64::to_string).collect();
    if sizes.is_empty() {
        sizes.push("1".into());
    }
    let head = format!(
        "NRRD0004\ntype: {name}\ndimension: {}\nsizes: {}\nendian: {order}\nencoding: raw\n",
        sizes.len(),
        sizes.join(" ")
    );
    Ok((head, format!("data file: {data}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(order: ByteOrder) -> Fixed {
        Fixed {
            scalar: Scalar::Float(order),
            size_bytes: 4,
        }
    }

    #[test]
    fn a_cube_is_bands_of_lines() {
        let text = envi_header(&float(ByteOrder::Big), &[2, 3, 4, 5]).unwrap();
        for line in [
            "samples = 5",
            "lines = 4",
            "bands = 6",
            "data type = 4",
            "byte order = 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        let text = vrt_document(
            &float(ByteOrder::Little),
            &[2, 4, 5],
            "a&b.bin",
            &VrtFields::default(),
        )
        .unwrap();
        assert!(text.contains("rasterXSize=\"5\" rasterYSize=\"4\""));
        assert!(text.contains(">a&amp;b.bin<") && text.contains("<ImageOffset>80</ImageOffset>"));
        assert_eq!(text.matches("<ByteOrder>LSB<").count(), 2);
        let (text, _) = nrrd_header(&float(ByteOrder::Little), &[2, 3, 4], "x.bin").unwrap();
        assert!(text.contains("sizes: 4 3 2\nendian: little\n"), "{text}");
    }

    #[test]
    fn unsupported_types_and_shapes_are_reported() {
        let half = Fixed {
            scalar: Scalar::Float(ByteOrder::Little),
            size_bytes: 2,
        };
        for refused in [
            envi_header(&half, &[4]),
            vrt_band(&half, &[4]).map(|_| String::new()),
            nrrd_header(&half, &[4], "x").map(|(head, _)| head),
            vrt_band(&float(ByteOrder::Little), &[1 << 20, 2, 2]).map(|_| String::new()),
            envi_header(&float(ByteOrder::Little), &[0, 3]),
            nrrd_header(&float(ByteOrder::Little), &[1; 17], "x").map(|(head, _)| head),
        ] {
            assert!(!refused.unwrap_err().is_empty());
        }
    }
}
