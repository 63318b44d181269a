//! A coordinate reference system by its numbers: figure of the Earth, prime meridian and projection.
//!
//! The numbers are read from WKT 1 (OGC 01-009), the WKT of ESRI, and WKT 2 (OGC 18-010r7). A system with any
//! unknown part has no definition.

use super::epsg::{self, CrsKind};
use super::methods::{Method, Quantity, Role};
use super::wkt::Wkt;

/// A geographic or projected system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) base: Base,
    pub(crate) projection: Option<Projection>,
}

/// A geographic system with axes in degrees.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Base {
    /// The EPSG code, if a GeoKey can express it and the numbers are those of that code.
    pub(crate) code: Option<u16>,
    pub(crate) name: String,
    pub(crate) datum: String,
    pub(crate) ellipsoid: String,
    pub(crate) meridian: String,
    pub(crate) figure: Ellipsoid,
}

/// The numbers of a geographic system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ellipsoid {
    /// The semi-major axis in metres.
    pub(crate) semi_major: f64,
    /// The inverse flattening; 0 for a sphere.
    pub(crate) inverse_flattening: f64,
    /// The longitude of the prime meridian in degrees.
    pub(crate) meridian: f64,
}

/// A projection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Projection {
    pub(crate) method: &'static Method,
    /// The values in the order of the parameters of the method, in degrees and metres.
    values: Vec<f64>,
    /// The length in metres of the unit of the axes.
    pub(crate) unit_metres: f64,
}

/// Codes of geographic systems, and normalized names of their datums.
static DATUMS: [(u16, &[&str]); 3] = [
    (
        4326,
        &[
            "wgs1984",
            "wgs84",
            "worldgeodeticsystem1984",
            "worldgeodeticsystem1984ensemble",
        ],
    ),
    (4269, &["northamericandatum1983", "northamerican1983"]),
    (
        4258,
        &[
            "europeanterrestrialreferencesystem1989",
            "etrs1989",
            "europeanterrestrialreferencesystem1989ensemble",
        ],
    ),
];

const DEGREE: f64 = std::f64::consts::PI / 180.0;
const ANGLES: &[&str] = &["UNIT", "ANGLEUNIT"];
const LENGTHS: &[&str] = &["UNIT", "LENGTHUNIT"];

impl Definition {
    /// Reads WKT of any version.
    pub(crate) fn of_wkt(text: &str) -> Option<Self> {
        let root = Wkt::parse(text)?;
        let name = root.value(0)?.to_owned();
        if root.children(&["EXTENSION"]).next().is_some() {
            return None;
        }
        Some(match root.kind().ok()?? {
            CrsKind::RotatedPole => return None,
            CrsKind::Geographic => {
                let is_in_degrees = is_near(axis_unit(root, ANGLES)?, DEGREE);
                let is_flat = root.children(&["AXIS"]).count() != 3;
                let base = Base::of(root).filter(|_| is_in_degrees && is_flat)?;
                Self {
                    name,
                    base,
                    projection: None,
                }
            }
            CrsKind::Projected => {
                let base = root
                    .children(&["GEOGCS", "BASEGEOGCRS", "BASEGEODCRS"])
                    .next()?;
                let unit = base.children(ANGLES).next().map_or(Some(DEGREE), factor)?;
                let base = Base::of(base)?;
                let projection = Projection::of(root, unit, base.figure)?;
                Self {
                    name,
                    base,
                    projection: Some(projection),
                }
            }
        })
    }

    /// Returns whether both definitions have the same numbers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_projection = match (&self.projection, &other.projection) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        };
        is_same_projection && self.base.figure.is_same(other.base.figure)
    }
}

impl Ellipsoid {
    fn is_same(self, other: Self) -> bool {
        is_near(self.semi_major, other.semi_major)
            && is_near(self.inverse_flattening, other.inverse_flattening)
            && is_near(self.meridian, other.meridian)
    }
}

impl Base {
    fn of(wkt: Wkt<'_>) -> Option<Self> {
        let datum = wkt
            .children(&["DATUM", "ENSEMBLE", "GEODETICDATUM", "TRF"])
            .next()?;
        let ellipsoid = datum.children(&["SPHEROID", "ELLIPSOID"]).next()?;
        let metre = ellipsoid
            .children(LENGTHS)
            .next()
            .map_or(Some(1.0), factor)?;
        let is_shifted = |shift: Wkt<'_>| {
            shift
                .numbers()
                .is_none_or(|all| all.iter().any(|n| *n != 0.0))
        };
        let has_others = wkt.children(&["EXTENSION"]).next().is_some()
            || datum.children(&["TOWGS84"]).any(is_shifted);
        if has_others || metre != 1.0 {
            return None;
        }
        let (mut meridian, mut longitude) = ("Greenwich", 0.0);
        if let Some(prime) = wkt.children(&["PRIMEM", "PRIMEMERIDIAN"]).next() {
            let unit = prime
                .children(ANGLES)
                .next()
                .or_else(|| wkt.children(ANGLES).next());
            let unit = unit.map_or(Some(DEGREE), factor)?;
            meridian = prime.value(0)?;
            longitude = degrees(number(prime.value(1)?)?, unit);
        }
        let figure = Ellipsoid {
            semi_major: number(ellipsoid.value(1)?)?,
            inverse_flattening: number(ellipsoid.value(2)?)?,
            meridian: longitude,
        };
        let code = wkt.epsg().or_else(|| code_of(datum.value(0)?));
        Some(Self {
            code: code
                .filter(|code| is_figure_of(*code, figure))
                .and_then(|code| code.try_into().ok()),
            name: wkt.value(0)?.to_owned(),
            datum: datum.value(0)?.to_owned(),
            ellipsoid: ellipsoid.value(0)?.to_owned(),
            meridian: meridian.to_owned(),
            figure,
        })
    }
}

impl Projection {
    /// Reads a projected system; `base_unit` is the unit of angles of its base.
    fn of(root: Wkt<'_>, base_unit: f64, figure: Ellipsoid) -> Option<Self> {
        let conversion = root.children(&["CONVERSION"]).next().unwrap_or(root);
        let method = conversion.children(&["PROJECTION", "METHOD"]).next()?;
        let is_sphere = figure.inverse_flattening == 0.0;
        let method = Method::of_name(&normalized(method.value(0)?), is_sphere)?;
        let unit_metres = axis_unit(root, LENGTHS)?;
        let mut given = Vec::new();
        for parameter in conversion.children(&["PARAMETER"]) {
            let role = Role::of_name(&normalized(parameter.value(0)?))?;
            let value = number(parameter.value(1)?)?;
            let value = match role.quantity() {
                Quantity::Ratio => value,
                Quantity::Angle => {
                    let unit = parameter.children(ANGLES).next();
                    degrees(value, unit.map_or(Some(base_unit), factor)?)
                }
                Quantity::Length => {
                    let unit = parameter.children(LENGTHS).next();
                    value * unit.map_or(Some(unit_metres), factor)?
                }
            };
            given.push((role, value));
        }
        let is_turned = |axis: Wkt<'_>| match axis.value(1).unwrap_or_default() {
            direction if direction.eq_ignore_ascii_case("east") => false,
            direction if direction.eq_ignore_ascii_case("north") => false,
            direction => !direction.eq_ignore_ascii_case("south") || !method.may_be_polar(),
        };
        if root.children(&["AXIS"]).any(is_turned) {
            return None;
        }
        Some(Self {
            method,
            values: method.values(&given)?,
            unit_metres,
        })
    }

    /// Returns the keys of the parameters with their values in degrees and metres.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Role, u16, f64)> {
        let parameters = self.method.parameters.iter().zip(&self.values);
        parameters.map(|((role, key, _), value)| (*role, *key, *value))
    }

    fn is_same(&self, other: &Self) -> bool {
        let mut values = self.values.iter().zip(&other.values);
        self.method == other.method
            && is_near(self.unit_metres, other.unit_metres)
            && values.all(|(one, other)| is_near(*one, *other))
    }
}

/// Returns the size of the unit of the axes, in metres or radians.
fn axis_unit(root: Wkt<'_>, units: &'static [&'static str]) -> Option<f64> {
    let of_axes = || root.children(&["AXIS"]).next()?.children(units).next();
    factor(root.children(units).next().or_else(of_axes)?)
}

fn factor(unit: Wkt<'_>) -> Option<f64> {
    number(unit.value(1)?).filter(|factor| *factor > 0.0)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Converts an angle to degrees; it stays as written if its unit is a degree within rounding.
fn degrees(angle: f64, unit: f64) -> f64 {
    match is_near(unit, DEGREE) {
        true => angle,
        false => angle * unit / DEGREE,
    }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// Returns a name in lower case with single spaces between its words.
fn normalized(name: &str) -> String {
    let words = name.split(['_', '-', ' ']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

/// Returns the EPSG code of the geographic system of a well-known datum.
fn code_of(datum: &str) -> Option<u64> {
    let name = datum.strip_prefix("D_").unwrap_or(datum);
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.collect::<String>().to_ascii_lowercase();
    let mut datums = DATUMS
        .iter()
        .filter(|(_, names)| names.contains(&&name[..]));
    datums.next().map(|(code, _)| u64::from(*code))
}

/// Returns whether the geographic system of a code has these numbers.
fn is_figure_of(code: u64, figure: Ellipsoid) -> bool {
    let entry = epsg::entry(code).filter(|entry| entry.kind == CrsKind::Geographic);
    let base = entry.and_then(|entry| {
        let root = Wkt::parse(&entry.wkt)?;
        // The base of the system needs no code.
        let datum = root.children(&["DATUM", "ENSEMBLE"]).next()?;
        let ellipsoid = datum.children(&["SPHEROID", "ELLIPSOID"]).next()?;
        let meridian = root.children(&["PRIMEM"]).next();
        let meridian = meridian.map_or(Some(0.0), |meridian| number(meridian.value(1)?))?;
        Some(Ellipsoid {
            semi_major: number(ellipsoid.value(1)?)?,
            inverse_flattening: number(ellipsoid.value(2)?)?,
            meridian,
        })
    });
    base.is_some_and(|base| base.is_same(figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPHERE: &str = "GEOGCS[\"unknown\",DATUM[\"unknown\",SPHEROID[\"unknown\",6371229,0]],\
                          PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]]";

    fn projected(text: &str) -> Option<Vec<(u16, f64)>> {
        let definition = Definition::of_wkt(text)?;
        let projection = definition.projection?;
        let mut keys: Vec<(u16, f64)> = projection.keys().map(|(_, key, n)| (key, n)).collect();
        keys.sort_by_key(|(key, _)| *key);
        Some(keys)
    }

    #[test]
    fn all_kinds_of_wkt_of_a_projection_are_one_definition() {
        let gdal = format!(
            "PROJCS[\"a\",{SPHERE},PROJECTION[\"Lambert_Conformal_Conic_2SP\"],\
             PARAMETER[\"latitude_of_origin\",40],PARAMETER[\"central_meridian\",-97],\
             PARAMETER[\"standard_parallel_1\",30],PARAMETER[\"standard_parallel_2\",60],\
             PARAMETER[\"false_easting\",5],PARAMETER[\"false_northing\",0],UNIT[\"metre\",1]]"
        );
        let esri = "PROJCS[\"b\",GEOGCS[\"GCS\",DATUM[\"D_x\",SPHEROID[\"x\",6371229.0,0.0]],\
             PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]],\
             PROJECTION[\"Lambert_Conformal_Conic\"],PARAMETER[\"False_Easting\",5.0],\
             PARAMETER[\"Central_Meridian\",-97.0],PARAMETER[\"Standard_Parallel_1\",30.0],\
             PARAMETER[\"Standard_Parallel_2\",60.0],PARAMETER[\"Latitude_Of_Origin\",40.0],\
             UNIT[\"Meter\",1.0]]";
        let wkt2 = "PROJCRS[\"c\",BASEGEOGCRS[\"x\",DATUM[\"x\",ELLIPSOID[\"x\",6371229,0,\
             LENGTHUNIT[\"metre\",1]]],PRIMEM[\"Greenwich\",0,ANGLEUNIT[\"degree\",0.0174532925199433]]],\
             CONVERSION[\"c\",METHOD[\"Lambert Conic Conformal (2SP)\",ID[\"EPSG\",9802]],\
             PARAMETER[\"Latitude of false origin\",40,ANGLEUNIT[\"degree\",0.0174532925199433]],\
             PARAMETER[\"Longitude of false origin\",-97,ANGLEUNIT[\"degree\",0.0174532925199433]],\
             PARAMETER[\"Latitude of 1st standard parallel\",30,ANGLEUNIT[\"degree\",0.0174532925199433]],\
             PARAMETER[\"Latitude of 2nd standard parallel\",60,ANGLEUNIT[\"degree\",0.0174532925199433]],\
             PARAMETER[\"Easting at false origin\",5,LENGTHUNIT[\"metre\",1]]],\
             CS[Cartesian,2],AXIS[\"(E)\",east,ORDER[1],LENGTHUNIT[\"metre\",1]],\
             AXIS[\"(N)\",north,ORDER[2],LENGTHUNIT[\"metre\",1]]]";
        let expected = [
            (3078, 30.0),
            (3079, 60.0),
            (3084, -97.0),
            (3085, 40.0),
            (3086, 5.0),
            (3087, 0.0),
        ];
        let first = Definition::of_wkt(&gdal).unwrap();
        for text in [&gdal[..], esri, wkt2] {
            assert_eq!(projected(text).as_deref(), Some(&expected[..]), "{text}");
            assert!(Definition::of_wkt(text).unwrap().is_same(&first), "{text}");
        }
        let other = gdal.replace("-97", "-98");
        assert!(!Definition::of_wkt(&other).unwrap().is_same(&first));
    }

    #[test]
    fn lengths_and_angles_are_in_metres_and_degrees() {
        let text = format!(
            "PROJCS[\"a\",{},PROJECTION[\"Transverse_Mercator\"],\
             PARAMETER[\"latitude_of_origin\",50],PARAMETER[\"central_meridian\",10],\
             PARAMETER[\"scale_factor\",0.5],PARAMETER[\"false_easting\",1000],\
             UNIT[\"foot\",0.3048]]",
            SPHERE.replace("degree\",0.0174532925199433", "grad\",0.015707963267949")
        );
        let keys = projected(&text).unwrap();
        let near = |key, value: f64| {
            let found = keys.iter().find(|(found, _)| *found == key).unwrap().1;
            assert!((found - value).abs() < 1e-9, "{key}: {found}");
        };
        for (key, value) in [
            (3080, 9.0),
            (3081, 45.0),
            (3082, 304.8),
            (3083, 0.0),
            (3092, 0.5),
        ] {
            near(key, value);
        }
    }

    #[test]
    fn a_base_has_the_code_whose_numbers_it_has() {
        let code = |text: &str| Definition::of_wkt(text).unwrap().base.code;
        assert_eq!(code(SPHERE), None);
        let wgs84 = "GEOGCS[\"GCS\",DATUM[\"D_WGS_1984\",SPHEROID[\"WGS_1984\",6378137.0,\
             298.257223563]],PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]]";
        assert_eq!(code(wgs84), Some(4326));
        assert_eq!(code(&wgs84.replace("298.257223563", "298.25")), None);
        let wrong = SPHERE.replace("433]]", "433],AUTHORITY[\"EPSG\",\"4258\"]]");
        assert_eq!(code(&wrong), None);
    }

    #[test]
    fn systems_with_unknown_parts_have_no_definition() {
        let system = |method: &str, parameters: &str, rest: &str| {
            format!(
                "PROJCS[\"a\",{SPHERE},PROJECTION[\"{method}\"],{parameters},UNIT[\"m\",1]{rest}]"
            )
        };
        let centre = "PARAMETER[\"central_meridian\",10]";
        assert!(projected(&system("Sinusoidal", centre, "")).is_some());
        let polar = "PARAMETER[\"central_meridian\",10],PARAMETER[\"latitude_of_origin\",70],\
                     PARAMETER[\"scale_factor\",0.9]";
        for text in [
            system("Mollweide", centre, ""),
            system("Sinusoidal", "PARAMETER[\"false_easting\",1]", ""),
            system(
                "Sinusoidal",
                &format!("{centre},PARAMETER[\"latitude_of_origin\",3]"),
                "",
            ),
            system(
                "Sinusoidal",
                &format!("{centre},PARAMETER[\"azimuth\",0]"),
                "",
            ),
            system("Sinusoidal", centre, ",EXTENSION[\"PROJ4\",\"+proj=moll\"]"),
            system("Sinusoidal", centre, ",AXIS[\"x\",WEST],AXIS[\"y\",NORTH]"),
            system("Polar_Stereographic", polar, ""),
            SPHERE.replace("6371229,0]", "6371229,0],TOWGS84[1,0,0]"),
            SPHERE.replace("6371229", "nan"),
            SPHERE.replace("degree\",0.0174532925199433", "grad\",0.015707963267949"),
            "PROJCS[\"a\"]".into(),
            String::new(),
        ] {
            assert!(Definition::of_wkt(&text).is_none(), "{text}");
        }
    }
}
