//! A virtual raster of a `.bin` file, `.vrt` (GDAL, "VRT -- GDAL Virtual Format", `VRTRawRasterBand`).

use std::fmt::Write as _;

use super::Renderer;
use super::raw_data::{
    RasterSize, data_name, element_type, float, no_type, note_without_place, number,
};
use super::row::{FormatRow, GDAL, ViewName, proven};
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::Notes;
use crate::conventions::text::escape;
use crate::fallible::{NoMemory, Text};
use crate::node::{ArrayView, ContentError, NodeResolver};
use crate::view::file::layout::VirtualFile;
use crate::zarr::{ByteOrder, Fixed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "vrt",
    ViewName::Suffix(".vrt"),
    "a GDAL virtual raster of the .bin file",
    "gdalinfo",
    Renderer::ArrayWithNodes(|view, _| proven(check_vrt(view)), vrt),
)
.expressing(GDAL)];

/// Renders a virtual raster.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn vrt(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    check_vrt(view)?;
    let mut notes = Notes::default();
    let metadata = RasterMetadata::of_planes(view, nodes, &mut notes)?;
    note_without_place(metadata.as_ref(), &mut notes);
    let fields = metadata.map(|metadata| VrtFields::of(&metadata, &mut notes));
    let fields = fields.transpose()?.unwrap_or_default();
    let text = vrt_document(&element_type(view), view.shape(), &data_name(view), &fields)?;
    let mut file = VirtualFile::text(text);
    file.notes = notes.0;
    Ok(file)
}

/// Checks that GDAL supports the data type and the shape.
///
/// # Errors
/// Returns why the format does not support them.
fn check_vrt(view: &ArrayView<'_>) -> Result<(), String> {
    vrt_band(&element_type(view), view.shape()).map(drop)
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
) -> Result<String, ContentError> {
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
    // Writing to a Text is infallible; its end returns the failure.
    let mut text = Text::default();
    let _ = write!(
        text,
        "<VRTDataset rasterXSize=\"{width}\" rasterYSize=\"{height}\">\n{}",
        fields.dataset
    );
    let mut names = fields.names.iter();
    for band in 0..bands {
        let offset = band_bytes.saturating_mul(band);
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
    Ok(text.finish()?)
}

/// The optional XML elements of a virtual raster.
#[derive(Debug, Default)]
struct VrtFields {
    /// The elements of the dataset.
    dataset: String,
    /// The elements of each band.
    band: String,
    /// Names of bands.
    names: Vec<Option<String>>,
}

impl VrtFields {
    /// Returns the elements that say what the numbers mean.
    ///
    /// # Errors
    /// The system has no memory for the names of bands.
    fn of(metadata: &RasterMetadata, notes: &mut Notes) -> Result<Self, NoMemory> {
        let mut fields = Self::default();
        let (georef, samples) = (&metadata.georef, &metadata.samples);
        // Writing to a String is infallible.
        if let Some(crs) = &georef.crs {
            let srs = match crs.code {
                Some(_) => crs.name(),
                None => escape(&crs.wkt),
            };
            let _ = writeln!(fields.dataset, "  <SRS>{srs}</SRS>");
        }
        if let Some([a, b, c, d, e, f]) = georef.corner_transform() {
            let values = [c, a, b, f, d, e].map(float).join(", ");
            let _ = writeln!(fields.dataset, "  <GeoTransform>{values}</GeoTransform>");
        }
        for (name, value) in [
            ("NoDataValue", &samples.no_data),
            ("UnitType", &samples.units),
            ("Offset", &samples.offset),
            ("Scale", &samples.scale),
        ] {
            if let Some(value) = value {
                let _ = writeln!(fields.band, "    <{name}>{}</{name}>", escape(value));
            }
        }
        fields.names = samples.band_names(metadata.raster.samples, notes)?;
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::Scalar;

    fn float_type(order: ByteOrder, size_bytes: usize) -> Fixed {
        Fixed {
            scalar: Scalar::Float(order),
            size_bytes,
        }
    }

    #[test]
    fn a_cube_is_bands_of_lines() {
        let text = vrt_document(
            &float_type(ByteOrder::Little, 4),
            &[2, 4, 5],
            "a&b.bin",
            &VrtFields::default(),
        )
        .unwrap();
        assert!(text.contains("rasterXSize=\"5\" rasterYSize=\"4\""));
        assert!(text.contains(">a&amp;b.bin<") && text.contains("<ImageOffset>80</ImageOffset>"));
        assert_eq!(text.matches("<ByteOrder>LSB<").count(), 2);
    }

    #[test]
    fn unsupported_types_and_shapes_are_reported() {
        for (size_bytes, shape) in [(2, [4, 1, 1]), (4, [1 << 20, 2, 2])] {
            let refused = vrt_band(&float_type(ByteOrder::Little, size_bytes), &shape);
            assert!(!refused.unwrap_err().is_empty());
        }
    }
}
