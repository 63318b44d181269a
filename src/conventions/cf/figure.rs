//! The figure of the Earth, the datum and the prime meridian of a CF grid mapping (CF 1.13, Appendix F,
//! "Grid mapping attributes").

use serde_json::{Map, Value as Json};

use crate::conventions::cf;
use crate::conventions::crs::proj_text::ellipsoid;
use crate::conventions::georef::context::{number, some};

/// The attributes of a grid mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GridMappingAttributes<'a> {
    pub(crate) members: &'a Map<String, Json>,
    /// Whether a grid mapping without a figure of the Earth has that of WGS 84.
    pub(crate) assumes_wgs84: bool,
}

/// The figure of the Earth, its datum and its prime meridian.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Earth {
    /// The semi-major axis in metres.
    pub(crate) semi_major: f64,
    /// The inverse flattening; 0 for a sphere.
    pub(crate) inverse_flattening: f64,
    /// The name and the longitude of the prime meridian.
    pub(crate) meridian: (String, f64),
    pub(crate) name: String,
    pub(crate) datum: String,
    pub(crate) ellipsoid: String,
    /// The seven parameters of the transformation to WGS 84 as in `TOWGS84` of WKT 1.
    pub(crate) shift: Option<Vec<f64>>,
}

/// The prime meridians of the EPSG Dataset: normalized name, longitude in degrees.
static MERIDIANS: [(&str, f64); 13] = [
    ("greenwich", 0.0),
    ("lisbon", -9.131_906_111_111_11),
    ("paris", 2.337_229_166_666_67),
    ("bogota", -74.080_916_666_666_7),
    ("madrid", -3.687_938_888_888_89),
    ("rome", 12.452_333_333_333_3),
    ("bern", 7.439_583_333_333_33),
    ("jakarta", 106.807_719_444_444),
    ("ferro", -17.666_666_666_666_7),
    ("brussels", 4.367_975),
    ("stockholm", 18.058_277_777_777_8),
    ("athens", 23.716_337_5),
    ("oslo", 10.722_916_666_666_7),
];

const UNKNOWN_FIGURE: &str = "the figure of the Earth is not known (--assume-wgs84 takes that of WGS 84, as \
                              GDAL and pyproj do)";

impl GridMappingAttributes<'_> {
    /// Returns the number of an attribute, which GDAL also reads from text; `None` if there is no such
    /// attribute.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<f64>, String> {
        match some(self.members, name).map(cf::one_of_list) {
            None => Ok(None),
            Some(value) => number_or_text(value)
                .map(Some)
                .ok_or_else(|| format!("{name} is no number")),
        }
    }

    pub(crate) fn or_zero(&self, name: &str) -> Result<f64, String> {
        Ok(self.optional(name)?.unwrap_or(0.0))
    }

    /// Returns the number that those of these attributes have that exist.
    pub(crate) fn required(&self, names: &[&str]) -> Result<f64, String> {
        let mut found: Option<(&str, f64)> = None;
        for name in names {
            match (self.optional(name)?, found) {
                (Some(value), Some((other, first))) if value != first => {
                    return Err(format!("{other} and {name} are two numbers"));
                }
                (Some(value), None) => found = Some((name, value)),
                _ => {}
            }
        }
        found
            .map(|(_, value)| value)
            .ok_or_else(|| format!("no {}", names.join(" or ")))
    }

    /// Returns a text that WKT can hold between quotes.
    pub(crate) fn name(&self, attribute: &str) -> Option<&str> {
        let is_plain = |name: &&str| {
            !name.is_empty()
                && name.len() <= 100
                && !name.chars().any(|c| c.is_control() || "\"[]|".contains(c))
        };
        some(self.members, attribute)?.as_str().filter(is_plain)
    }

    /// Returns everything that the attributes declare of the Earth.
    pub(crate) fn earth(&self) -> Result<Earth, String> {
        let named = |attribute: &str| self.name(attribute).unwrap_or("unknown").to_owned();
        let mut earth = Earth {
            semi_major: 0.0,
            inverse_flattening: 0.0,
            meridian: self.meridian()?,
            name: named("geographic_crs_name"),
            datum: named("horizontal_datum_name"),
            ellipsoid: named("reference_ellipsoid_name"),
            shift: self.shift()?,
        };
        if earth.datum == "unknown" && earth.name != "unknown" {
            earth.datum.clone_from(&earth.name);
        }
        let figure = match self.declared_figure()? {
            Some(figure) => figure,
            None => match self.named_figure() {
                Some(figure) => figure,
                None if self.assumes_wgs84 && !self.has_figure() => {
                    (earth.datum, earth.ellipsoid) = ("WGS_1984".into(), "WGS 84".into());
                    WGS84
                }
                None => return Err(UNKNOWN_FIGURE.into()),
            },
        };
        let is_figure = figure.0 > 0.0 && (figure.1 == 0.0 || figure.1 > 1.0);
        if !is_figure {
            return Err("the figure of the Earth is none".into());
        }
        (earth.semi_major, earth.inverse_flattening) = figure;
        Ok(earth)
    }

    /// Returns whether an attribute declares or names a figure.
    fn has_figure(&self) -> bool {
        let names = [
            "semi_major_axis",
            "semi_minor_axis",
            "inverse_flattening",
            "reference_ellipsoid_name",
            "horizontal_datum_name",
            "geographic_crs_name",
        ];
        let is_known = |value: &Json| {
            let text = value.as_str().map(str::to_ascii_lowercase);
            text.is_none_or(|text| !matches!(&*text, "" | "unknown" | "undefined"))
        };
        names
            .iter()
            .any(|name| some(self.members, name).is_some_and(is_known))
    }

    /// Returns the semi-major axis and the inverse flattening from numbers.
    fn declared_figure(&self) -> Result<Option<Figure>, String> {
        // The second name is of files from before CF 1.0.
        let radius = match self.optional("earth_radius")? {
            None => self.optional("spherical_earth_radius_meters")?,
            radius => radius,
        };
        let major = self.optional("semi_major_axis")?;
        let minor = self.optional("semi_minor_axis")?;
        let inverse = self.optional("inverse_flattening")?;
        if let Some(radius) = radius {
            let is_radius = |axis: Option<f64>| axis.is_none_or(|axis| axis == radius);
            let is_sphere = is_radius(major) && is_radius(minor) && inverse.unwrap_or(0.0) == 0.0;
            return match is_sphere {
                true => Ok(Some((radius, 0.0))),
                false => Err("both a radius and an ellipsoid".into()),
            };
        }
        let Some(major) = major else {
            return Ok(None);
        };
        let of_axes = |minor: f64| match minor == major {
            true => 0.0,
            false => major / (major - minor),
        };
        match (inverse, minor) {
            (Some(inverse), Some(minor)) => {
                let other = match inverse {
                    0.0 => major,
                    inverse => major - major / inverse,
                };
                let is_same = (other - minor).abs() <= 1e-6 * major.abs();
                is_same
                    .then_some(Some((major, inverse)))
                    .ok_or_else(|| "two figures of the Earth".into())
            }
            (Some(inverse), None) => Ok(Some((major, inverse))),
            (None, Some(minor)) => Ok(Some((major, of_axes(minor)))),
            (None, None) => Ok(None),
        }
    }

    /// Returns the figure of a known ellipsoid or datum, if the numbers do not contradict it.
    fn named_figure(&self) -> Option<Figure> {
        let names = [
            "reference_ellipsoid_name",
            "horizontal_datum_name",
            "geographic_crs_name",
        ];
        let (major, inverse) = names
            .iter()
            .find_map(|name| figure_of_name(some(self.members, name)?.as_str()?))?;
        let is_same = |name: &str, expected: f64| {
            let value = some(self.members, name).map(cf::one_of_list);
            value.is_none_or(|value| {
                number_or_text(value).is_some_and(|n| (n - expected).abs() <= 1e-6 * expected)
            })
        };
        let minor = if inverse == 0.0 {
            major
        } else {
            major - major / inverse
        };
        let is_all = is_same("semi_major_axis", major)
            && is_same("semi_minor_axis", minor)
            && is_same("inverse_flattening", inverse);
        is_all.then_some((major, inverse))
    }

    /// Returns the name and the longitude of the prime meridian.
    fn meridian(&self) -> Result<(String, f64), String> {
        let name = self.name("prime_meridian_name");
        let known = name.and_then(|name| {
            let name = normalized(name);
            let mut all = MERIDIANS.iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, longitude)| *longitude)
        });
        let is_unknown =
            name.is_none_or(|name| matches!(&*normalized(name), "unknown" | "undefined"));
        match (self.optional("longitude_of_prime_meridian")?, known) {
            (Some(longitude), Some(known)) if (longitude - known).abs() > 1e-6 => {
                Err("prime_meridian_name is that of another longitude".into())
            }
            (Some(0.0) | None, _) if is_unknown => Ok(("Greenwich".into(), 0.0)),
            (Some(longitude), _) => Ok((name.unwrap_or("unknown").to_owned(), longitude)),
            (None, Some(known)) => Ok((name.unwrap_or("unknown").to_owned(), known)),
            (None, None) => Err("a prime meridian without its longitude".into()),
        }
    }

    /// Returns the seven parameters of `towgs84`, which may have only three or six; `None` if all are 0.
    fn shift(&self) -> Result<Option<Vec<f64>>, String> {
        if some(self.members, "towgs84").is_none() {
            return Ok(None);
        }
        match self.numbers("towgs84") {
            Some(mut values) if matches!(values.len(), 3 | 6 | 7) => {
                values.resize(7, 0.0);
                Ok(values.iter().any(|value| *value != 0.0).then_some(values))
            }
            _ => Err("towgs84 is not three, six or seven numbers".into()),
        }
    }

    /// Returns the numbers of an attribute: a number, a list, or a text with commas or spaces, as GDAL reads
    /// it.
    pub(crate) fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        match some(self.members, name)? {
            Json::Array(values) => values.iter().map(number_or_text).collect(),
            Json::String(text) => {
                let text = text.trim_matches(|c: char| c.is_whitespace() || "{}[]()".contains(c));
                let words = text.split(|c: char| c == ',' || c.is_whitespace());
                let words = words.filter(|word| !word.is_empty());
                words.map(parsed).collect()
            }
            value => Some(vec![number(value)?]),
        }
    }
}

/// Semi-major axis in metres and inverse flattening (0 for a sphere).
type Figure = (f64, f64);

const WGS84: Figure = (6_378_137.0, 298.257_223_563);

/// Normalized names of ellipsoids and datums in the EPSG Dataset and in ESRI's WKT, and the name of the
/// ellipsoid in PROJ.
static NAMES: [(&str, &str); 25] = [
    ("wgs84", "WGS84"),
    ("wgs1984", "WGS84"),
    ("dwgs1984", "WGS84"),
    ("worldgeodeticsystem1984", "WGS84"),
    ("worldgeodeticsystem1984ensemble", "WGS84"),
    ("grs80", "GRS80"),
    ("grs1980", "GRS80"),
    ("nad83", "GRS80"),
    ("northamericandatum1983", "GRS80"),
    ("etrs89", "GRS80"),
    ("europeanterrestrialreferencesystem1989", "GRS80"),
    ("europeanterrestrialreferencesystem1989ensemble", "GRS80"),
    ("wgs72", "WGS72"),
    ("grs67", "GRS67"),
    ("grs1967", "GRS67"),
    ("international1924", "intl"),
    ("bessel1841", "bessel"),
    ("krassowsky1940", "krass"),
    ("clarke1866", "clrk66"),
    ("nad27", "clrk66"),
    ("northamericandatum1927", "clrk66"),
    ("airy1830", "airy"),
    ("osgb36", "airy"),
    ("ordnancesurveyofgreatbritain1936", "airy"),
    ("australiannationalspheroid", "aust_SA"),
];

fn figure_of_name(name: &str) -> Option<Figure> {
    let name = normalized(name);
    let (_, proj) = NAMES.iter().find(|(known, _)| *known == name)?;
    ellipsoid(proj)
}

/// Returns the letters and digits of a name in lower case.
fn normalized(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().to_ascii_lowercase()
}

fn number_or_text(value: &Json) -> Option<f64> {
    match value {
        Json::String(text) => parsed(text.trim()),
        value => number(value),
    }
}

fn parsed(text: &str) -> Option<f64> {
    // `parse` also reads the names of values that are not finite.
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn earth_of(members: Json, assumes_wgs84: bool) -> Result<Earth, String> {
        GridMappingAttributes {
            members: members.as_object().unwrap(),
            assumes_wgs84,
        }
        .earth()
    }

    fn figure(members: Json) -> Result<Figure, String> {
        earth_of(members, false).map(|earth| (earth.semi_major, earth.inverse_flattening))
    }

    #[test]
    fn a_figure_is_declared_by_numbers_or_by_a_known_name() {
        for (members, expected) in [
            (json!({"earth_radius": 6_371_229.0}), (6_371_229.0, 0.0)),
            (
                json!({"spherical_earth_radius_meters": 6_371_229.0}),
                (6_371_229.0, 0.0),
            ),
            (
                json!({"earth_radius": "6371229.0", "semi_major_axis": 6_371_229.0, "inverse_flattening": 0}),
                (6_371_229.0, 0.0),
            ),
            (
                json!({"semi_major_axis": 10.0, "semi_minor_axis": 9.0}),
                (10.0, 10.0),
            ),
            (
                json!({"semi_major_axis": 10.0, "semi_minor_axis": 10.0}),
                (10.0, 0.0),
            ),
            (
                json!({"semi_major_axis": [6_378_273.0], "inverse_flattening": 298.279_411_123_064,
                      "semi_minor_axis": 6_356_889.449}),
                (6_378_273.0, 298.279_411_123_064),
            ),
            (json!({"reference_ellipsoid_name": "WGS 84"}), WGS84),
            (
                json!({"horizontal_datum_name": "WGS_1984", "semi_major_axis": 6_378_137.0}),
                WGS84,
            ),
            (
                json!({"reference_ellipsoid_name": "GRS 1980"}),
                (6_378_137.0, 298.257_222_101),
            ),
        ] {
            assert_eq!(figure(members.clone()), Ok(expected), "{members}");
        }
    }

    #[test]
    fn a_figure_that_is_unknown_or_two_is_none() {
        for members in [
            json!({}),
            json!({"semi_major_axis": 6_378_137.0}),
            json!({"earth_radius": "nan"}),
            json!({"earth_radius": -1}),
            json!({"earth_radius": 6_371_000.0, "inverse_flattening": 298.0}),
            json!({"semi_major_axis": 6_378_137.0, "semi_minor_axis": 6_356_000.0, "inverse_flattening": 298.257}),
            json!({"semi_major_axis": 6_378_206.4, "reference_ellipsoid_name": "WGS 84"}),
            json!({"reference_ellipsoid_name": "Mars"}),
        ] {
            assert!(figure(members.clone()).is_err(), "{members}");
        }
        let assumed = |members| earth_of(members, true).map(|earth| earth.inverse_flattening);
        assert_eq!(assumed(json!({})), Ok(WGS84.1));
        assert!(assumed(json!({"semi_major_axis": 6_378_137.0})).is_err());
        assert!(assumed(json!({"reference_ellipsoid_name": "Mars"})).is_err());
    }

    #[test]
    fn a_prime_meridian_has_a_longitude_or_a_known_name() {
        let meridian = |members: Json| {
            let mut members = members.as_object().unwrap().clone();
            members.insert("earth_radius".into(), json!(6_371_000.0));
            earth_of(Json::Object(members), false).map(|earth| earth.meridian)
        };
        let named = |name: &str, longitude: f64| Ok((name.to_owned(), longitude));
        for (members, expected) in [
            (json!({}), named("Greenwich", 0.0)),
            (
                json!({"longitude_of_prime_meridian": 0.0}),
                named("Greenwich", 0.0),
            ),
            (
                json!({"longitude_of_prime_meridian": 2.5}),
                named("unknown", 2.5),
            ),
            (
                json!({"prime_meridian_name": "Paris"}),
                named("Paris", 2.337_229_166_666_67),
            ),
            (
                json!({"prime_meridian_name": "Paris", "longitude_of_prime_meridian": 2.337_229_17}),
                named("Paris", 2.337_229_17),
            ),
        ] {
            assert_eq!(meridian(members.clone()), expected, "{members}");
        }
        for wrong in [
            json!({"prime_meridian_name": "Atlantis"}),
            json!({"prime_meridian_name": "Paris", "longitude_of_prime_meridian": 0.0}),
        ] {
            assert!(meridian(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
