//! PROJ strings (`+proj=lcc +lat_1=30 ...`) as grid mappings of CF (CF 1.11, Appendix F), or as EPSG codes.

use serde_json::{Map, Value as Json, json};

/// The maximum length of a text in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// The meaning of a PROJ string.
#[derive(Debug, PartialEq)]
pub(crate) enum ProjText {
    /// The name of a system: `EPSG:32633`.
    Code(String),
    /// The attributes of a grid mapping.
    Mapping(Map<String, Json>),
}

/// Returns whether a text is a PROJ string.
pub(crate) fn is_proj_text(text: &str) -> bool {
    text.starts_with('+') || text.starts_with("proj=") || text.starts_with("init=")
}

/// Ellipsoids of PROJ: name, semi-major axis, inverse flattening (`proj -le`).
static ELLIPSOIDS: [(&str, f64, f64); 12] = [
    ("WGS84", 6_378_137.0, 298.257_223_563),
    ("GRS80", 6_378_137.0, 298.257_222_101),
    ("WGS72", 6_378_135.0, 298.26),
    ("GRS67", 6_378_160.0, 298.247_167_427),
    ("intl", 6_378_388.0, 297.0),
    ("bessel", 6_377_397.155, 299.152_812_8),
    ("krass", 6_378_245.0, 298.3),
    ("clrk66", 6_378_206.4, 294.978_698_213_898),
    ("airy", 6_377_563.396, 299.324_964_6),
    ("IAU76", 6_378_140.0, 298.257),
    ("aust_SA", 6_378_160.0, 298.25),
    ("sphere", 6_370_997.0, 0.0),
];

/// Returns the semi-major axis and the inverse flattening of an ellipsoid of PROJ.
pub(crate) fn ellipsoid(name: &str) -> Option<(f64, f64)> {
    let mut all = ELLIPSOIDS.iter();
    let found = all.find(|(known, ..)| *known == name);
    found.map(|(_, major, inverse)| (*major, *inverse))
}

/// Parameters that do not matter for a raster.
const IGNORED: [&str; 4] = ["no_defs", "type", "wktext", "over"];

/// Parses a PROJ string.
///
/// # Errors
/// Returns why the string is not supported: an unknown projection or parameter.
pub(crate) fn parse(text: &str) -> Result<ProjText, String> {
    let mut words = ProjParameters::of(text)?;
    if let Some(code) = words.take("init") {
        words.finish()?;
        return Ok(ProjText::Code(code.to_owned()));
    }
    let name = words.take("proj").ok_or("no +proj")?;
    let is_wgs84 = words.is("datum", "WGS84") && words.get("ellps").is_none_or(|e| e == "WGS84");
    let name = match name {
        "utm" => return utm(words, is_wgs84),
        name if is_geographic(name) && is_wgs84 && words.is_greenwich() => {
            words.remove(&["datum", "ellps", "pm"]);
            words.finish()?;
            return Ok(ProjText::Code("EPSG:4326".into()));
        }
        name => name,
    };
    let mut members = words.figure()?;
    words.projection(name, &mut members)?;
    words.finish()?;
    Ok(ProjText::Mapping(members))
}

/// The parameters of a PROJ string.
struct ProjParameters<'a>(Vec<(&'a str, &'a str)>);

impl<'a> ProjParameters<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("{} bytes of text", text.len()));
        }
        let words = text.split_whitespace().map(|word| {
            let word = word.strip_prefix('+').unwrap_or(word);
            word.split_once('=').unwrap_or((word, ""))
        });
        let words = words.filter(|(name, _)| !name.is_empty() && !IGNORED.contains(name));
        Ok(Self(words.collect()))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let mut words = self.0.iter();
        // The first occurrence of a parameter counts.
        words
            .find(|(found, _)| *found == name)
            .map(|(_, value)| *value)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    fn is_greenwich(&self) -> bool {
        self.get("pm")
            .is_none_or(|pm| pm == "greenwich" || pm == "0")
    }

    /// Removes a parameter and returns its value.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let value = self.get(name);
        self.0.retain(|(found, _)| *found != name);
        value
    }

    fn remove(&mut self, names: &[&str]) {
        self.0.retain(|(found, _)| !names.contains(found));
    }

    fn number(&mut self, name: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = value.parse().ok().filter(|number: &f64| number.is_finite());
        number
            .map(Some)
            .ok_or_else(|| format!("+{name} is no number"))
    }

    fn or_zero(&mut self, name: &str) -> Result<f64, String> {
        Ok(self.number(name)?.unwrap_or(0.0))
    }

    /// Fails if a parameter is left over.
    fn finish(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(20).collect();
                Err(format!("+{} of PROJ is not read", name.escape_debug()))
            }
        }
    }

    /// Returns the figure of the Earth and the prime meridian. Units other than metres are rejected.
    fn figure(&mut self) -> Result<Map<String, Json>, String> {
        if self.take("units").is_some_and(|units| units != "m")
            || self.number("to_meter")?.is_some_and(|factor| factor != 1.0)
        {
            return Err("a PROJ string with another unit than metres".into());
        }
        let mut members = Map::new();
        let mut set = |name: &str, value: Json| drop(members.insert(name.into(), value));
        match self.take("pm") {
            None | Some("greenwich") => {}
            Some(longitude) => match longitude.parse::<f64>() {
                Ok(longitude) if longitude.is_finite() => {
                    set("longitude_of_prime_meridian", json!(longitude));
                }
                _ => return Err("+pm is no number".into()),
            },
        }
        let datum = self.take("datum");
        let named = match datum {
            Some("WGS84") => Some(("WGS_1984", "WGS84")),
            Some("NAD83") => Some(("North_American_Datum_1983", "GRS80")),
            Some(_) => return Err("+datum of PROJ is not known".into()),
            None => None,
        };
        if let Some((name, _)) = named {
            set("horizontal_datum_name", json!(name));
        }
        let ellipsoid = self.take("ellps").or(named.map(|(_, ellipsoid)| ellipsoid));
        let known = match ellipsoid {
            None => None,
            Some(name) => Some(self::ellipsoid(name).ok_or("+ellps of PROJ is not known")?),
        };
        let radius = self.number("R")?;
        let (major, minor) = (self.number("a")?, self.number("b")?);
        let (inverse, flattening) = (self.number("rf")?, self.number("f")?);
        let inverse = inverse.or(flattening.map(|f| if f == 0.0 { 0.0 } else { 1.0 / f }));
        match (known, radius, major, minor, inverse) {
            (None, Some(radius), None, None, None) => set("earth_radius", json!(radius)),
            (Some((major, inverse)), None, None, None, None) => {
                set("semi_major_axis", json!(major));
                set("inverse_flattening", json!(inverse));
            }
            (None, None, Some(major), None, Some(inverse)) => {
                set("semi_major_axis", json!(major));
                set("inverse_flattening", json!(inverse));
            }
            (None, None, Some(major), Some(minor), None) => {
                set("semi_major_axis", json!(major));
                set("semi_minor_axis", json!(minor));
            }
            (None, None, Some(major), None, None) => set("earth_radius", json!(major)),
            _ => return Err("a PROJ string without one figure of the Earth".into()),
        }
        Ok(members)
    }

    /// Sets the attributes of the view of a satellite above the equator.
    fn geostationary(
        &mut self,
        longitude: f64,
        members: &mut Map<String, Json>,
    ) -> Result<(), String> {
        let height = self.number("h")?.ok_or("no +h")?;
        let sweep = self.take("sweep").unwrap_or("y");
        for (name, value) in [
            ("grid_mapping_name", json!("geostationary")),
            ("perspective_point_height", json!(height)),
            ("longitude_of_projection_origin", json!(longitude)),
            ("sweep_angle_axis", json!(sweep)),
            ("false_easting", json!(self.or_zero("x_0")?)),
            ("false_northing", json!(self.or_zero("y_0")?)),
        ] {
            members.insert(name.into(), value);
        }
        Ok(())
    }

    /// Sets the attributes of the projection.
    fn projection(&mut self, name: &str, members: &mut Map<String, Json>) -> Result<(), String> {
        let mut set = |name: &str, value: Json| drop(members.insert(name.into(), value));
        if is_geographic(name) {
            set("grid_mapping_name", json!("latitude_longitude"));
            return Ok(());
        }
        let longitude = self.or_zero("lon_0")?;
        if name == "ob_tran" {
            if !self.take("o_proj").is_some_and(is_geographic) {
                return Err("+proj=ob_tran of another projection".into());
            }
            let latitude = self.number("o_lat_p")?.ok_or("no +o_lat_p")?;
            set("grid_mapping_name", json!("rotated_latitude_longitude"));
            set("grid_north_pole_latitude", json!(latitude));
            set("grid_north_pole_longitude", json!(longitude - 180.0));
            set("north_pole_grid_longitude", json!(self.or_zero("o_lon_p")?));
            return Ok(());
        }
        if name == "geos" {
            return self.geostationary(longitude, members);
        }
        set("false_easting", json!(self.or_zero("x_0")?));
        set("false_northing", json!(self.or_zero("y_0")?));
        let latitude = self.or_zero("lat_0")?;
        set("latitude_of_projection_origin", json!(latitude));
        set("longitude_of_projection_origin", json!(longitude));
        let projection = Projection {
            latitude,
            longitude,
            scale: match self.number("k_0")? {
                Some(scale) => Some(scale),
                None => self.number("k")?,
            },
            true_scale: self.number("lat_ts")?,
            parallels: (self.number("lat_1")?, self.number("lat_2")?),
        };
        let (cf_name, attributes) = projection.grid_mapping(name)?;
        set("grid_mapping_name", json!(cf_name));
        for (name, value) in attributes {
            set(name, value);
        }
        Ok(())
    }
}

/// Returns whether a projection of PROJ has coordinates in degrees.
fn is_geographic(name: &str) -> bool {
    matches!(name, "longlat" | "latlong" | "lonlat" | "latlon")
}

/// The parameters of a projection.
struct Projection {
    /// The origin.
    latitude: f64,
    longitude: f64,
    /// The scale at the origin.
    scale: Option<f64>,
    /// The latitude where the scale is 1.
    true_scale: Option<f64>,
    /// The standard parallels of a cone.
    parallels: (Option<f64>, Option<f64>),
}

/// The name of a grid mapping, and the attributes that other grid mappings do not have.
type GridMapping = (&'static str, Vec<(&'static str, Json)>);

impl Projection {
    /// Returns the grid mapping of the projection `name` of PROJ.
    ///
    /// # Errors
    /// The projection is not known, or CF has no attribute for one of its parameters.
    fn grid_mapping(&self, name: &str) -> Result<GridMapping, String> {
        let scale = self.scale.unwrap_or(1.0);
        let scale_at_origin = || ("scale_factor_at_projection_origin", json!(scale));
        let has_no_parallels = self.parallels == (None, None);
        let (is_read, cf_name, attributes) = match name {
            "tmerc" | "etmerc" => (
                self.true_scale.is_none() && has_no_parallels,
                "transverse_mercator",
                vec![("scale_factor_at_central_meridian", json!(scale))],
            ),
            "lcc" | "aea" => {
                let (first, second) = self.parallels;
                let first = first.ok_or_else(|| format!("no +lat_1 of +proj={name}"))?;
                let parallels = json!([first, second.unwrap_or(first)]);
                (
                    self.true_scale.is_none() && scale == 1.0,
                    match name {
                        "lcc" => "lambert_conformal_conic",
                        _ => "albers_conical_equal_area",
                    },
                    vec![("standard_parallel", parallels)],
                )
            }
            "merc" => (
                has_no_parallels && self.latitude == 0.0,
                "mercator",
                vec![match (self.true_scale, self.scale) {
                    (Some(_), Some(_)) => return Err("+proj=merc with +lat_ts and a scale".into()),
                    (Some(parallel), None) => ("standard_parallel", json!(parallel)),
                    (None, _) => scale_at_origin(),
                }],
            ),
            "cea" => (
                has_no_parallels && self.latitude == 0.0 && self.scale.is_none(),
                "lambert_cylindrical_equal_area",
                vec![("standard_parallel", json!(self.true_scale.unwrap_or(0.0)))],
            ),
            "stere" if self.latitude.abs() == 90.0 => {
                // CF has the latitude of a true scale, or a scale at the pole.
                let true_scale = self
                    .true_scale
                    .filter(|latitude| *latitude != self.latitude);
                let longitude = json!(self.longitude);
                let scale_or_parallel = match true_scale {
                    Some(parallel) => ("standard_parallel", json!(parallel)),
                    None => scale_at_origin(),
                };
                (
                    has_no_parallels && (true_scale.is_none() || scale == 1.0),
                    "polar_stereographic",
                    vec![
                        ("straight_vertical_longitude_from_pole", longitude),
                        scale_or_parallel,
                    ],
                )
            }
            "stere" => (
                has_no_parallels && self.true_scale.is_none(),
                "stereographic",
                vec![scale_at_origin()],
            ),
            name => {
                let cf_name = match name {
                    "laea" => "lambert_azimuthal_equal_area",
                    "aeqd" => "azimuthal_equidistant",
                    "ortho" => "orthographic",
                    "sinu" if self.latitude == 0.0 => "sinusoidal",
                    _ => return Err("a projection of PROJ that is not read".into()),
                };
                let is_unscaled = self.scale.is_none() && self.true_scale.is_none();
                (is_unscaled && has_no_parallels, cf_name, Vec::new())
            }
        };
        match is_read {
            true => Ok((cf_name, attributes)),
            false => Err(format!("parameters of +proj={name} are not read")),
        }
    }
}

/// Reads the zone of a UTM string: an EPSG code for WGS 84, else a transverse Mercator.
fn utm(mut words: ProjParameters<'_>, is_wgs84: bool) -> Result<ProjText, String> {
    let zone = words.take("zone").and_then(|zone| zone.parse::<u16>().ok());
    let zone = zone
        .filter(|zone| (1..=60).contains(zone))
        .ok_or("+zone is none of UTM")?;
    let is_south = words.take("south").is_some();
    if is_wgs84 && words.is_greenwich() && words.get("units").is_none_or(|units| units == "m") {
        words.remove(&["datum", "ellps", "pm", "units"]);
        words.finish()?;
        let base = if is_south { 32700 } else { 32600 };
        return Ok(ProjText::Code(format!("EPSG:{}", base + zone)));
    }
    let mut members = words.figure()?;
    words.finish()?;
    for (name, value) in [
        ("grid_mapping_name", json!("transverse_mercator")),
        ("latitude_of_projection_origin", json!(0.0)),
        (
            "longitude_of_central_meridian",
            json!(f64::from(zone) * 6.0 - 183.0),
        ),
        ("scale_factor_at_central_meridian", json!(0.9996)),
        ("false_easting", json!(500_000.0)),
        (
            "false_northing",
            json!(if is_south { 10_000_000.0 } else { 0.0 }),
        ),
    ] {
        members.insert(name.into(), value);
    }
    Ok(ProjText::Mapping(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_a_code_or_a_grid_mapping() {
        for (text, code) in [
            ("+proj=longlat +datum=WGS84 +no_defs", "EPSG:4326"),
            (
                "+proj=utm +zone=33 +datum=WGS84 +units=m +no_defs +type=crs",
                "EPSG:32633",
            ),
            ("+proj=utm +zone=7 +south +datum=WGS84", "EPSG:32707"),
            ("+init=epsg:3035", "epsg:3035"),
        ] {
            assert_eq!(parse(text), Ok(ProjText::Code(code.into())), "{text}");
        }
        let text = "+proj=ob_tran +o_proj=longlat +o_lat_p=39.25 +o_lon_p=0 +lon_0=18 +R=6371229";
        let Ok(ProjText::Mapping(members)) = parse(text) else {
            panic!("{:?}", parse(text));
        };
        assert_eq!(members["grid_north_pole_longitude"], -162.0);
        assert_eq!(members["earth_radius"], 6_371_229.0);
        let text = "+proj=utm +zone=33 +ellps=intl +units=m";
        let Ok(ProjText::Mapping(members)) = parse(text) else {
            panic!("{:?}", parse(text));
        };
        assert_eq!(members["longitude_of_central_meridian"], 15.0);
        assert_eq!(members["inverse_flattening"], 297.0);
    }

    #[test]
    fn parameters_that_are_not_read_are_errors() {
        for text in [
            "",
            "+proj=",
            "+proj=lcc +R=6371000",
            "+proj=lcc +lat_1=30",
            "+proj=lcc +lat_1=30 +k_0=0.9 +R=6371000",
            "+proj=laea +lat_0=x +R=6371000",
            "+proj=laea +lat_0=inf +R=6371000",
            "+proj=laea +R=6371000 +towgs84=1,2,3",
            "+proj=laea +R=6371000 +units=km",
            "+proj=laea +R=6371000 +ellps=WGS84",
            "+proj=laea +ellps=nothing",
            "+proj=laea +datum=potsdam",
            "+proj=moll +R=6371000",
            "+proj=utm +zone=61 +datum=WGS84",
            "+proj=longlat +datum=WGS84 +nadgrids=x",
            "+proj=longlat (",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
