//! Optional fields of the headers: georeference, nodata value, scale and offset, names of bands, spacing.

use std::fmt::Write as _;

use crate::view::array_view::ArrayView;
use crate::view::content::ContentError;
use crate::view::georef::RasterMetadata;
use crate::view::georef::context::Notes;
use crate::view::georef::crs::Crs;
use crate::view::georef::epsg::{CrsKind, Unit};
use crate::view::georef::spacing::{Spacing, spacings};
use crate::view::georef::text::{escape, shown};
use crate::view::georef::transform::Transform;
use crate::view::number::Value;
use crate::view::resolve::NodeResolver;

/// XML elements of a GDAL virtual raster.
#[derive(Debug, Default)]
pub(super) struct VrtFields {
    /// The elements of the dataset.
    pub(super) dataset: String,
    /// The elements of each band.
    pub(super) band: String,
    /// Names of bands.
    pub(super) names: Vec<Option<String>>,
}

fn float(value: f64) -> String {
    shown(Value::Float(value))
}

/// Returns the fields of a virtual raster (GDAL, "VRT -- GDAL Virtual Format").
pub(super) fn vrt(metadata: &RasterMetadata) -> VrtFields {
    let mut fields = VrtFields::default();
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
    fields.names = samples.band_names(metadata.raster.samples);
    fields
}

/// Returns the lines of an ENVI header ("ENVI Header Files"; `coordinate system string` is ESRI WKT).
pub(super) fn envi(metadata: &RasterMetadata) -> String {
    let mut text = String::new();
    let (georef, samples) = (&metadata.georef, &metadata.samples);
    let system = georef.crs.as_ref().and_then(|crs| Some((crs, wkt_1(crs)?)));
    // Without the WKT, programs would assume another system.
    if let Some(transform) = georef.corner_transform()
        && let Some(map_info) = map_info(transform, system.map(|(crs, _)| crs))
    {
        let _ = writeln!(text, "map info = {{{map_info}}}");
        if let Some((_, wkt)) = system {
            let _ = writeln!(text, "coordinate system string = {{{wkt}}}");
        }
    }
    if let Some(value) = &samples.no_data {
        let _ = writeln!(text, "data ignore value = {value}");
    }
    let bands = usize::try_from(metadata.raster.samples).unwrap_or(usize::MAX);
    for (name, value) in [
        ("data gain values", &samples.scale),
        ("data offset values", &samples.offset),
    ] {
        if let Some(value) = value
            && bands <= MAX_LISTED
        {
            let values = vec![&value[..]; bands].join(", ");
            let _ = writeln!(text, "{name} = {{{values}}}");
        }
    }
    let names: Option<Vec<String>> = samples
        .band_names(metadata.raster.samples)
        .into_iter()
        .collect();
    if let Some(names) = names
        && !names.is_empty()
        && !names.iter().any(|name| name.contains([',', '{', '}']))
    {
        let _ = writeln!(text, "band names = {{{}}}", names.join(", "));
    }
    text
}

/// Returns a system as WKT 1, the only form that ENVI and GDAL read in this header.
fn wkt_1(crs: &Crs) -> Option<&str> {
    let wkt: &str = crs.wkt_esri.as_ref().unwrap_or(&crs.wkt);
    let is_wkt_1 = wkt.starts_with("PROJCS[") || wkt.starts_with("GEOGCS[");
    (is_wkt_1 && !wkt.contains(['{', '}'])).then_some(wkt)
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

/// Returns the lines of an NRRD header ("Definition of NRRD File Format", per-axis fields): steps of OME
/// axes, of evenly spaced coordinates, or of the transform.
///
/// # Errors
/// Errors of the store.
pub(super) fn nrrd(view: &ArrayView<'_>, nodes: &dyn NodeResolver) -> Result<String, ContentError> {
    Ok(lines(&spacings(view, nodes, &mut Notes::default())?))
}

/// Returns the lines, fastest axis first; `nan` for unknown numbers.
fn lines(axes: &[Spacing]) -> String {
    if axes.iter().all(|axis| axis.distance.is_none()) {
        return String::new();
    }
    let number = |value: Option<f64>| value.map_or("nan".to_owned(), float);
    let of_each = |pick: &dyn Fn(&Spacing) -> String| {
        let words: Vec<String> = axes.iter().rev().map(pick).collect();
        words.join(" ")
    };
    let mut text = format!("spacings: {}\n", of_each(&|axis| number(axis.distance)));
    // The coordinate is that of the centre of an element.
    let _ = writeln!(text, "axis mins: {}", of_each(&|axis| number(axis.first)));
    let centers = of_each(&|axis| axis.first.map_or("???", |_| "node").to_owned());
    let _ = writeln!(text, "centers: {centers}");
    let unit = |axis: &Spacing| {
        let unit = axis.unit.as_deref().unwrap_or_default();
        let is_plain = unit.len() <= 60 && !unit.contains(['"', '\\']);
        let is_plain = is_plain && !unit.chars().any(char::is_control);
        format!("\"{}\"", if is_plain { unit } else { "" })
    };
    if axes.iter().any(|axis| axis.unit.is_some()) {
        let _ = writeln!(text, "units: {}", of_each(&unit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn spacings_are_those_of_the_fastest_axis_first() {
        let known = Spacing {
            distance: Some(0.5),
            first: Some(3.0),
            unit: Some("micrometer".into()),
            ..Spacing::default()
        };
        let text = lines(&[Spacing::default(), known]);
        assert_eq!(
            text,
            "spacings: 0.5 nan\naxis mins: 3 nan\ncenters: node ???\nunits: \"micrometer\" \"\"\n"
        );
        assert_eq!(lines(&[Spacing::default()]), "");
    }
}
