//! The ENVI header of a `.bin` file, `.hdr` ("ENVI Header Files"; `coordinate system string` is ESRI WKT).

use std::fmt::Write as _;

use super::Renderer;
use super::raw_data::{RasterSize, element_type, float, no_type, note_without_place, number};
use super::row::{FormatRow, ViewName, proven};
use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::{CrsKind, Unit};
use crate::conventions::description::Field;
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::Notes;
use crate::conventions::georef::transform::Transform;
use crate::fallible::{NoMemory, Text};
use crate::node::{ArrayView, ContentError, NodeResolver};
use crate::view::file::layout::VirtualFile;
use crate::zarr::{ByteOrder, Fixed};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
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
.also_called(&["envi"])];

/// Renders a header of the ENVI raster format.
///
/// # Errors
/// Returns why the format cannot express the array, or an error of the store.
fn envi(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<VirtualFile, ContentError> {
    let mut text = Text::default();
    text.push_str(&envi_header(&element_type(view), view.shape())?);
    let mut notes = Notes::default();
    let metadata = RasterMetadata::of_planes(view, nodes, &mut notes)?;
    note_without_place(metadata.as_ref(), &mut notes);
    if let Some(metadata) = metadata {
        text.push_str(&optional_lines(&metadata, &mut notes)?);
    }
    let mut file = VirtualFile::text(text.finish()?);
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

/// Returns the lines of the header that are not about the layout of the file.
///
/// # Errors
/// The system has no memory for them.
fn optional_lines(metadata: &RasterMetadata, notes: &mut Notes) -> Result<String, NoMemory> {
    let mut text = Text::default();
    let (georef, samples) = (&metadata.georef, &metadata.samples);
    let system = georef.crs.as_ref().and_then(|crs| Some((crs, wkt_1(crs)?)));
    if system.is_none() && georef.crs.is_some() {
        notes.add("the reference system is left out: it has no WKT of version 1");
    }
    // Without the WKT, programs would assume another system.
    let map = georef.corner_transform();
    let map = map.map(|transform| map_info(transform, system.map(|(crs, _)| crs)));
    match map {
        Some(Some(map_info)) => {
            let _ = writeln!(text, "map info = {{{map_info}}}");
            if let Some((_, wkt)) = system {
                let _ = writeln!(text, "coordinate system string = {{{wkt}}}");
            }
        }
        Some(None) => notes.add(
            "the place is left out: ENVI has only rasters whose first row is the northernmost",
        ),
        None => {}
    }
    if let Some(value) = &samples.no_data {
        let _ = writeln!(text, "data ignore value = {value}");
    }
    let bands = usize::try_from(metadata.raster.samples).unwrap_or(usize::MAX);
    let lists = [
        ("data gain values", &samples.scale),
        ("data offset values", &samples.offset),
    ];
    for (name, value) in lists {
        match value {
            Some(value) if bands <= MAX_LISTED => {
                let _ = write!(text, "{name} = {{");
                push_list(&mut text, std::iter::repeat_n(&value[..], bands));
                text.push_str("}\n");
            }
            Some(_) => notes.add(format!("{name} are left out: more than {MAX_LISTED} bands")),
            None => {}
        }
    }
    let names = samples.band_names(metadata.raster.samples, notes)?;
    match listed_names(&names) {
        Ok(true) => {
            text.push_str("band names = {");
            push_list(&mut text, names.iter().flatten().map(String::as_str));
            text.push_str("}\n");
        }
        Ok(false) => {}
        Err(why) => notes.add(format!("the names of bands are left out: {why}")),
    }
    text.finish()
}

/// Appends items with commas between them.
fn push_list<'a>(text: &mut Text, items: impl Iterator<Item = &'a str>) {
    for (number, item) in items.enumerate() {
        text.push_str(if number == 0 { "" } else { ", " });
        text.push_str(item);
    }
}

/// Returns a system as WKT 1, the only form that ENVI and GDAL read in this header.
fn wkt_1(crs: &Crs) -> Option<&str> {
    let wkt: &str = crs.wkt_esri.as_ref().unwrap_or(&crs.wkt);
    let is_wkt_1 = wkt.starts_with("PROJCS[") || wkt.starts_with("GEOGCS[");
    (is_wkt_1 && !wkt.contains(['{', '}'])).then_some(wkt)
}

/// Returns whether the header lists the names of bands; false if no band has one.
///
/// # Errors
/// Returns why the header cannot have them.
fn listed_names(names: &[Option<String>]) -> Result<bool, &'static str> {
    if names.iter().all(Option::is_none) {
        return Ok(false);
    }
    if names.iter().any(Option::is_none) {
        return Err("some bands have none");
    }
    if names
        .iter()
        .flatten()
        .any(|name| name.contains([',', '{', '}', '\n', '\r']))
    {
        return Err("one has a comma, a brace or a line break");
    }
    Ok(true)
}

/// The maximum number of bands for a list of scales.
const MAX_LISTED: usize = 65_535;

/// Returns `map info`: the corner of the first pixel and the pixel size; `None` if the raster is rotated.
fn map_info(transform: Transform, crs: Option<&Crs>) -> Option<String> {
    let [a, b, c, d, e, f] = transform;
    if b != 0.0 || d != 0.0 || a <= 0.0 || e >= 0.0 {
        return None;
    }
    let numbers = [c, f, a, -e].map(float).join(", ");
    let code = crs.and_then(|crs| crs.code);
    let kind = crs.map(|crs| crs.kind);
    let zone = code.and_then(|code| match code {
        32_601..=32_660 => Some((code - 32_600, "North")),
        32_701..=32_760 => Some((code - 32_700, "South")),
        _ => None,
    });
    Some(match (zone, kind) {
        (Some((zone, half)), _) => {
            format!("UTM, 1, 1, {numbers}, {zone}, {half}, WGS-84, units=Meters")
        }
        (None, Some(CrsKind::Geographic)) if code == Some(4326) => {
            format!("Geographic Lat/Lon, 1, 1, {numbers}, WGS-84, units=Degrees")
        }
        (None, Some(CrsKind::Geographic | CrsKind::RotatedPole)) => {
            format!("Geographic Lat/Lon, 1, 1, {numbers}, units=Degrees")
        }
        (None, Some(CrsKind::Projected)) => {
            let units = match crs.map(|crs| crs.unit) {
                Some(Unit::Metre) => ", units=Meters",
                Some(Unit::Foot | Unit::UsSurveyFoot) => ", units=Feet",
                _ => "",
            };
            format!("Projected, 1, 1, {numbers}{units}")
        }
        (None, None) => format!("Arbitrary, 1, 1, {numbers}"),
    })
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
        let text = envi_header(&float_type(ByteOrder::Big, 4), &[2, 3, 4, 5]).unwrap();
        for line in [
            "samples = 5",
            "lines = 4",
            "bands = 6",
            "data type = 4",
            "byte order = 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }

    #[test]
    fn unsupported_types_and_shapes_are_reported() {
        for (size_bytes, shape) in [(2, [4, 3]), (4, [0, 3])] {
            let refused = envi_header(&float_type(ByteOrder::Little, size_bytes), &shape);
            assert!(!refused.unwrap_err().is_empty());
        }
    }

    #[test]
    fn names_that_a_list_cannot_hold_are_reported() {
        let names = |names: &[Option<&str>]| {
            let names: Vec<_> = names.iter().map(|name| name.map(str::to_owned)).collect();
            listed_names(&names)
        };
        assert_eq!(names(&[None, None]), Ok(false));
        assert_eq!(names(&[Some("a"), Some("b c")]), Ok(true));
        let mut text = Text::default();
        push_list(&mut text, ["a", "b c"].into_iter());
        assert_eq!(&*text, "a, b c");
        for wrong in [
            [Some("a"), None],
            [Some("a,b"), Some("c")],
            [Some("a\n"), Some("c")],
        ] {
            assert!(names(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn map_info_is_written_for_north_up_rasters() {
        let north_up = [10.0, 0.0, 500_000.0, 0.0, -20.0, 5e6];
        let of = |transform, code: &str| map_info(transform, Crs::of_text(code).ok().as_ref());
        for (code, expected) in [
            (
                "EPSG:32733",
                "UTM, 1, 1, 500000, 5000000, 10, 20, 33, South, WGS-84, units=Meters",
            ),
            (
                "EPSG:2263",
                "Projected, 1, 1, 500000, 5000000, 10, 20, units=Feet",
            ),
            ("", "Arbitrary, 1, 1, 500000, 5000000, 10, 20"),
        ] {
            assert_eq!(of(north_up, code).as_deref(), Some(expected));
        }
        for other in [
            [10.0, 0.0, 0.0, 0.0, 20.0, 0.0],
            [10.0, 1.0, 0.0, 0.0, -20.0, 0.0],
        ] {
            assert_eq!(of(other, "EPSG:32733"), None);
        }
    }
}
