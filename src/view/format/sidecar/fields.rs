//! Optional fields of the headers: georeference, nodata value, scale and offset, names of bands, spacing.

use std::fmt::Write as _;

use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::{CrsKind, Unit};
use crate::conventions::description::Description;
use crate::conventions::description::{Axis, AxisKind};
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::transform::Transform;
use crate::conventions::text::{escape, shown};
use crate::node::{ArrayView, ContentError, NodeResolver, Value};

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
pub(super) fn envi(metadata: &RasterMetadata, notes: &mut Notes) -> String {
    let mut text = String::new();
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

/// Returns the lines of an NRRD header ("Definition of NRRD File Format", per-axis fields and "space"): kinds, names,
/// and spacings with origins, or the directions of axes that are turned or have an orientation.
///
/// # Errors
/// Errors of the store.
pub(super) fn nrrd(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
    notes: &mut Notes,
) -> Result<String, ContentError> {
    let groups = Groups::above(view, nodes, notes)?;
    let context = Context::new(view, nodes, &groups);
    let description = Description::of_axes(&context, notes)?;
    note_left_out(&description, notes);
    Ok(lines(&description))
}

/// Adds a note for each axis beside those in a space, and for an orientation without a space.
fn note_left_out(description: &Description, notes: &mut Notes) {
    let is_oriented = |axis: &Axis| axis.orientation.is_some();
    let Some(space) = Space::of(description) else {
        let transform = description.transform.as_ref();
        if description.axes.iter().any(is_oriented) || transform.is_some() {
            notes.add("the orientation is left out: NRRD takes only that of all axes in space, with their spacings");
        }
        return;
    };
    let axes = description.axes.iter().rev().zip(&space.directions);
    for (axis, direction) in axes.filter(|(axis, _)| axis.kind != AxisKind::Space) {
        if direction.is_none() && (axis.spacing.is_some() || axis.unit.is_some()) {
            notes.add(format!(
                "spacing, origin and unit of the axis {} are left out: in a space, NRRD has those of its axes only",
                quoted(axis.name.as_deref())
            ));
        }
    }
}

/// Returns the lines, fastest axis first; `nan` for unknown numbers.
fn lines(description: &Description) -> String {
    let axes = &description.axes;
    let of_each = |pick: &dyn Fn(&Axis) -> String| {
        let words: Vec<String> = axes.iter().rev().map(pick).collect();
        words.join(" ")
    };
    let mut text = String::new();
    // Writing to a String is infallible.
    if axes.iter().any(|axis| axis.name.is_some()) {
        let label = |axis: &Axis| quoted(axis.name.as_deref());
        let _ = writeln!(text, "labels: {}", of_each(&label));
    }
    if axes.iter().any(|axis| kind(axis) != UNKNOWN) {
        let _ = writeln!(text, "kinds: {}", of_each(&|axis| kind(axis).to_owned()));
    }
    if let Some(space) = Space::of(description) {
        return text + &space.lines();
    }
    if axes.iter().all(|axis| axis.spacing.is_none()) {
        return text;
    }
    let number = |value: Option<f64>| value.map_or("nan".to_owned(), float);
    let _ = writeln!(text, "spacings: {}", of_each(&|axis| number(axis.spacing)));
    // The coordinate is that of the centre of an element.
    let _ = writeln!(text, "axis mins: {}", of_each(&|axis| number(axis.origin)));
    let centers = of_each(&|axis| axis.origin.map_or(UNKNOWN, |_| "node").to_owned());
    let _ = writeln!(text, "centers: {centers}");
    if axes.iter().any(|axis| axis.unit.is_some()) {
        let unit = |axis: &Axis| quoted(axis.unit.as_deref());
        let _ = writeln!(text, "units: {}", of_each(&unit));
    }
    text
}

/// An unknown kind or centre of an axis.
const UNKNOWN: &str = "???";

fn kind(axis: &Axis) -> &'static str {
    match axis.kind {
        AxisKind::Time => "time",
        AxisKind::Channel => "list",
        AxisKind::Space | AxisKind::Unknown => UNKNOWN,
    }
}

/// Returns a quoted text; an empty one for texts that a line cannot hold.
fn quoted(text: Option<&str>) -> String {
    let text = text.unwrap_or_default();
    let is_plain = text.len() <= 60 && !text.contains(['"', '\\']);
    let is_plain = is_plain && !text.chars().any(char::is_control);
    format!("\"{}\"", if is_plain { text } else { "" })
}

/// The axes of an array in a space (NRRD, "Space and orientation information").
struct Space {
    /// `space: right-anterior-superior`, or the number of coordinates.
    name: String,
    /// The direction of each axis of the array in the order of the file; `None` for axes that are not in space.
    directions: Vec<Option<Vec<f64>>>,
    origin: Vec<f64>,
    units: Vec<String>,
}

impl Space {
    /// Returns the space of an array with a transform, or with an orientation for each of three axes in space;
    /// `None` for other arrays.
    fn of(description: &Description) -> Option<Self> {
        let rank = description.axes.len();
        let step = |place: usize, axis: &Axis| {
            let mut row = vec![0.0; rank + 1];
            *row.get_mut(place)? = axis.spacing?;
            *row.last_mut()? = axis.origin.unwrap_or(0.0);
            Some(row)
        };
        let (axes, rows): (&[Axis], Vec<Option<Vec<f64>>>) = match &description.transform {
            Some(transform) => {
                let rows = (0..transform.affine.outputs()).map(|row| transform.affine.row(row));
                (
                    &transform.coordinates,
                    rows.map(|row| row.map(<[f64]>::to_vec)).collect(),
                )
            }
            None => {
                let axes = description.axes.iter().enumerate();
                (
                    &description.axes,
                    axes.map(|(place, axis)| step(place, axis)).collect(),
                )
            }
        };
        let in_space = axes
            .iter()
            .zip(rows)
            .filter(|(axis, _)| axis.kind == AxisKind::Space);
        let mut coordinates: Vec<(&Axis, Vec<f64>)> = in_space
            .map(|(axis, row)| Some((axis, row?)))
            .collect::<Option<_>>()?;
        let oriented: Option<Vec<usize>> = coordinates
            .iter()
            .map(|(axis, _)| Some(axis.orientation?.direction))
            .collect();
        let is_patient = oriented.is_some_and(|mut all| {
            all.sort_unstable();
            all == [0, 1, 2]
        });
        if is_patient {
            let place = |axis: &Axis| axis.orientation.map_or(0, |found| found.direction);
            coordinates.sort_by_key(|(axis, _)| place(axis));
            for (axis, row) in &mut coordinates {
                let sign = axis.orientation.map_or(1.0, |found| found.sign());
                // The sum turns -0 into 0.
                row.iter_mut()
                    .for_each(|number| *number = *number * sign + 0.0);
            }
        } else if description.transform.is_none() {
            return None;
        } else {
            // As the axes of the file: the fastest first.
            coordinates.reverse();
        }
        let column = |place: usize| -> Option<Vec<f64>> {
            let column = coordinates.iter().map(|(_, row)| row.get(place).copied());
            let column: Vec<f64> = column.collect::<Option<_>>()?;
            column.iter().any(|number| *number != 0.0).then_some(column)
        };
        Some(Self {
            name: match is_patient {
                true => "space: right-anterior-superior".to_owned(),
                false => format!("space dimension: {}", coordinates.len()),
            },
            directions: (0..rank).rev().map(column).collect(),
            origin: coordinates
                .iter()
                .filter_map(|(_, row)| row.last().copied())
                .collect(),
            units: coordinates
                .iter()
                .map(|(axis, _)| quoted(axis.unit.as_deref()))
                .collect(),
        })
    }

    fn lines(&self) -> String {
        let vector = |numbers: &[f64]| {
            let words: Vec<String> = numbers.iter().map(|number| float(*number)).collect();
            format!("({})", words.join(","))
        };
        let directions: Vec<String> = (self.directions.iter())
            .map(|one| one.as_deref().map_or("none".to_owned(), vector))
            .collect();
        let units = self.units.join(" ");
        format!(
            "{}\nspace directions: {}\nspace origin: {}\nspace units: {units}\n",
            self.name,
            directions.join(" "),
            vector(&self.origin)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::description::Orientation;

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
        let known = Axis {
            spacing: Some(0.5),
            origin: Some(3.0),
            unit: Some("micrometer".into()),
            ..Axis::default()
        };
        let of = |axes: &[Axis]| {
            lines(&Description {
                axes: axes.to_vec(),
                ..Description::default()
            })
        };
        assert_eq!(
            of(&[Axis::default(), known]),
            "spacings: 0.5 nan\naxis mins: 3 nan\ncenters: node ???\nunits: \"micrometer\" \"\"\n"
        );
        assert_eq!(of(&[Axis::default()]), "");
    }

    #[test]
    fn axes_with_orientations_are_in_the_space_of_a_patient() {
        let axis = |name: &str, spacing: f64, orientation: &str| Axis {
            name: Some(name.into()),
            kind: AxisKind::of_name(name),
            spacing: Some(spacing),
            origin: Some(10.0),
            unit: Some("mm".into()),
            orientation: Orientation::of_value(orientation),
        };
        let axes = vec![
            axis("t", 1.0, ""),
            axis("z", 2.0, "inferior-to-superior"),
            axis("y", 3.0, "anterior-to-posterior"),
            axis("x", 4.0, "right-to-left"),
        ];
        let text = lines(&Description {
            axes,
            ..Description::default()
        });
        assert_eq!(
            text,
            "labels: \"x\" \"y\" \"z\" \"t\"\nkinds: ??? ??? ??? time\n\
             space: right-anterior-superior\n\
             space directions: (-4,0,0) (0,-3,0) (0,0,2) none\nspace origin: (-10,-10,10)\n\
             space units: \"mm\" \"mm\" \"mm\"\n"
        );
    }
}
