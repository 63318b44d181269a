//! The tags of GeoTIFF: transform and coordinate reference system.
//!
//! A system with an EPSG code is written as that code. Other systems are written with the user-defined keys
//! that GDAL writes and reads (OGC 19-008r4, 7.5.3 and 7.5.4). If these cannot express a system, its WKT
//! follows `ESRI PE String = ` in `ProjectedCitationGeoKey`, as GDAL writes it.

use crate::conventions::crs::Crs;
use crate::conventions::crs::definition::{Base, Definition, Projection};
use crate::conventions::crs::epsg::CrsKind;
use crate::conventions::crs::methods::Quantity;
use crate::conventions::georef::transform::Georef;
use crate::view::encode::tiff::{FieldValue, tag};

/// Keys of OGC 19-008r4, 7.1.2 (the key directory) and Annex B.
mod key {
    pub(super) const MODEL_TYPE: u16 = 1024;
    pub(super) const RASTER_TYPE: u16 = 1025;
    pub(super) const CITATION: u16 = 1026;
    pub(super) const GEODETIC_CRS: u16 = 2048;
    pub(super) const GEODETIC_CITATION: u16 = 2049;
    pub(super) const GEODETIC_DATUM: u16 = 2050;
    pub(super) const ANGULAR_UNITS: u16 = 2054;
    pub(super) const ELLIPSOID: u16 = 2056;
    pub(super) const SEMI_MAJOR_AXIS: u16 = 2057;
    pub(super) const SEMI_MINOR_AXIS: u16 = 2058;
    pub(super) const INVERSE_FLATTENING: u16 = 2059;
    pub(super) const PRIME_MERIDIAN_LONGITUDE: u16 = 2061;
    pub(super) const PROJECTED_CRS: u16 = 3072;
    pub(super) const PROJECTED_CITATION: u16 = 3073;
    pub(super) const PROJECTION: u16 = 3074;
    pub(super) const PROJ_METHOD: u16 = 3075;
    pub(super) const LINEAR_UNITS: u16 = 3076;
    pub(super) const LINEAR_UNIT_SIZE: u16 = 3077;
}

const USER_DEFINED: u16 = 32_767;
/// Codes of units: degree, metre, international foot, US survey foot.
const DEGREE: u16 = 9102;
const LINEAR_UNITS: [(u16, f64); 3] = [(9001, 1.0), (9002, 0.3048), (9003, 1200.0 / 3937.0)];

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
enum KeyValue {
    Short(u16),
    Double(f64),
    Text(String),
}

use KeyValue::{Double, Short, Text};

type GeoKeys = Vec<(u16, KeyValue)>;

/// How the keys of a file express a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrsEncoding {
    /// The EPSG code, or keys that all readers of GeoTIFF know.
    Keys,
    /// WKT, which GDAL reads.
    Wkt,
    /// The keys cannot express the system.
    None,
}

/// Returns how the keys of a file express a system.
pub(super) fn crs_encoding(crs: &Crs) -> CrsEncoding {
    match (crs.code, Definition::of_wkt(&crs.wkt)) {
        (None, None) if wkt_citation(crs).is_none() => CrsEncoding::None,
        (None, None) => CrsEncoding::Wkt,
        _ => CrsEncoding::Keys,
    }
}

/// Returns the tags of a georeference.
pub(super) fn fields(place: &Georef) -> Vec<(u16, FieldValue)> {
    let mut fields = Vec::new();
    // Readers warn about keys without a system. Without a system, no key marks pixels as points, and the
    // transform is that of the corner.
    let keys = place.crs.as_ref().and_then(keys);
    let affine = match keys {
        Some(_) => place.transform,
        None => place.corner_transform(),
    };
    if let Some([a, b, c, d, e, f]) = affine {
        // OGC 19-008r4, 7.3.3: a scale needs a north-up image.
        if b == 0.0 && d == 0.0 && a > 0.0 && e < 0.0 {
            fields.push((
                tag::MODEL_PIXEL_SCALE,
                FieldValue::Doubles(vec![a, -e, 0.0]),
            ));
            let tiepoint = vec![0.0, 0.0, 0.0, c, f, 0.0];
            fields.push((tag::MODEL_TIEPOINT, FieldValue::Doubles(tiepoint)));
        } else {
            let mut matrix = vec![a, b, 0.0, c, d, e, 0.0, f];
            matrix.extend([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
            fields.push((tag::MODEL_TRANSFORMATION, FieldValue::Doubles(matrix)));
        }
    }
    if let Some(mut keys) = keys {
        let raster = if place.is_point { 2 } else { 1 };
        keys.push((key::RASTER_TYPE, Short(raster)));
        fields.extend(directory(keys));
    }
    fields
}

/// Returns the key directory and its parameters; nothing if 16 bits cannot count the keys.
fn directory(mut keys: GeoKeys) -> Vec<(u16, FieldValue)> {
    keys.sort_by_key(|(key, _)| *key);
    let (mut doubles, mut texts) = (Vec::new(), String::new());
    let mut entries = Vec::new();
    for (key, value) in keys {
        let entry = match value {
            Short(value) => Some([key, 0, 1, value]),
            Double(value) => {
                doubles.push(value);
                let at = u16::try_from(doubles.len() - 1);
                at.ok().map(|at| [key, tag::GEO_DOUBLE_PARAMS, 1, at])
            }
            Text(text) => {
                let start = u16::try_from(texts.len());
                let count = u16::try_from(text.len() + 1);
                texts.push_str(&text);
                texts.push('|');
                start
                    .ok()
                    .zip(count.ok())
                    .map(|(start, count)| [key, tag::GEO_ASCII_PARAMS, count, start])
            }
        };
        entries.push(entry);
    }
    let entries: Option<Vec<[u16; 4]>> = entries.into_iter().collect();
    let entries = entries.unwrap_or_default();
    let Some(count) = u16::try_from(entries.len()).ok().filter(|count| *count > 0) else {
        return Vec::new();
    };
    // Version 1, revision 1.1, number of keys; each key: id, tag, count, value or its index in the tag.
    let mut directory = vec![1, 1, 1, count];
    directory.extend(entries.into_iter().flatten());
    let mut fields = vec![(tag::GEO_KEY_DIRECTORY, FieldValue::Shorts(directory))];
    if !doubles.is_empty() {
        fields.push((tag::GEO_DOUBLE_PARAMS, FieldValue::Doubles(doubles)));
    }
    if !texts.is_empty() {
        fields.push((tag::GEO_ASCII_PARAMS, FieldValue::Text(texts)));
    }
    fields
}

/// Returns the keys of a system except for the raster type; `None` if keys cannot express it.
fn keys(crs: &Crs) -> Option<GeoKeys> {
    if let Some(code) = crs.code {
        let (model, name) = match crs.kind {
            CrsKind::Projected => (1, key::PROJECTED_CRS),
            CrsKind::Geographic | CrsKind::RotatedPole => (2, key::GEODETIC_CRS),
        };
        return Some(vec![(key::MODEL_TYPE, Short(model)), (name, Short(code))]);
    }
    match Definition::of_wkt(&crs.wkt) {
        Some(definition) => Some(user_defined(&definition)),
        None => Some(vec![
            (key::MODEL_TYPE, Short(USER_DEFINED)),
            (key::PROJECTED_CITATION, Text(wkt_citation(crs)?)),
        ]),
    }
}

/// The maximum length of the text of a key, in bytes.
const MAX_TEXT_BYTES: usize = 32 << 10;

/// Returns the citation with the whole WKT; `None` if a key cannot hold it.
fn wkt_citation(crs: &Crs) -> Option<String> {
    // A bar ends a text.
    let is_text = crs.wkt.len() <= MAX_TEXT_BYTES && !crs.wkt.contains(['|', '\0']);
    is_text.then(|| format!("ESRI PE String = {}", crs.wkt))
}

/// Returns the keys of a definition.
fn user_defined(definition: &Definition) -> GeoKeys {
    let model = if definition.projection.is_some() {
        1
    } else {
        2
    };
    let mut keys = vec![(key::MODEL_TYPE, Short(model))];
    keys.extend(base(&definition.base));
    if let Some(projection) = &definition.projection {
        keys.push((key::CITATION, Text(name(&definition.name))));
        keys.extend(projected(projection));
    }
    keys
}

/// Returns a name without the characters that a citation cannot have.
fn name(text: &str) -> String {
    let name = text.chars().filter(|c| !c.is_control() && *c != '|');
    name.take(200).collect()
}

fn base(base: &Base) -> GeoKeys {
    let figure = base.figure;
    let mut keys = vec![
        (key::ANGULAR_UNITS, Short(DEGREE)),
        (key::SEMI_MAJOR_AXIS, Double(figure.semi_major)),
        match figure.inverse_flattening {
            0.0 => (key::SEMI_MINOR_AXIS, Double(figure.semi_major)),
            inverse => (key::INVERSE_FLATTENING, Double(inverse)),
        },
    ];
    match base.code {
        Some(code) => keys.extend([
            (key::GEODETIC_CRS, Short(code)),
            (key::GEODETIC_CITATION, Text(name(&base.name))),
        ]),
        None => keys.extend([
            (key::GEODETIC_CRS, Short(USER_DEFINED)),
            (key::GEODETIC_CITATION, Text(citation(base))),
            (key::GEODETIC_DATUM, Short(USER_DEFINED)),
            (key::ELLIPSOID, Short(USER_DEFINED)),
            (key::PRIME_MERIDIAN_LONGITUDE, Double(figure.meridian)),
        ]),
    }
    keys
}

/// Returns the names of a geographic system, as GDAL writes and reads them.
fn citation(base: &Base) -> String {
    format!(
        "GCS Name = {}|Datum = {}|Ellipsoid = {}|Primem = {}|",
        name(&base.name),
        name(&base.datum),
        name(&base.ellipsoid),
        name(&base.meridian)
    )
}

fn projected(projection: &Projection) -> GeoKeys {
    let mut keys = vec![
        (key::PROJECTED_CRS, Short(USER_DEFINED)),
        (key::PROJECTION, Short(USER_DEFINED)),
        (key::PROJ_METHOD, Short(projection.method.code)),
    ];
    let metres = projection.unit_metres;
    let mut units = LINEAR_UNITS.iter();
    match units.find(|(_, size)| (size - metres).abs() <= 1e-10 * size) {
        Some((code, _)) => keys.push((key::LINEAR_UNITS, Short(*code))),
        None => keys.extend([
            (key::LINEAR_UNITS, Short(USER_DEFINED)),
            (key::LINEAR_UNIT_SIZE, Double(metres)),
        ]),
    }
    keys.extend(projection.keys().map(|(role, key, value)| {
        let value = match role.quantity() {
            Quantity::Length => value / metres,
            Quantity::Angle | Quantity::Ratio => value,
        };
        (key, Double(value))
    }));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::crs::Crs;

    fn tags(place: &Georef) -> Vec<u16> {
        fields(place).into_iter().map(|(tag, _)| tag).collect()
    }

    #[test]
    fn rasters_that_are_not_north_up_have_a_matrix() {
        let place = |transform| Georef {
            transform: Some(transform),
            ..Georef::default()
        };
        let north_up = place([2.0, 0.0, 5.0, 0.0, -3.0, 7.0]);
        assert_eq!(
            tags(&north_up),
            [tag::MODEL_PIXEL_SCALE, tag::MODEL_TIEPOINT]
        );
        for affine in [
            [2.0, 0.0, 5.0, 0.0, 3.0, 7.0],
            [-2.0, 0.0, 5.0, 0.0, -3.0, 7.0],
            [2.0, 0.1, 5.0, 0.0, -3.0, 7.0],
        ] {
            let place = place(affine);
            assert_eq!(tags(&place), [tag::MODEL_TRANSFORMATION]);
        }
        assert!(tags(&Georef::default()).is_empty());
    }

    #[test]
    fn points_without_a_system_use_the_corner() {
        let place = Georef {
            transform: Some([2.0, 0.0, 5.0, 0.0, -4.0, 7.0]),
            is_point: true,
            ..Georef::default()
        };
        let tiepoint = vec![0.0, 0.0, 0.0, 4.0, 9.0, 0.0];
        let scale = vec![2.0, 4.0, 0.0];
        assert_eq!(
            fields(&place),
            [
                (tag::MODEL_PIXEL_SCALE, FieldValue::Doubles(scale)),
                (tag::MODEL_TIEPOINT, FieldValue::Doubles(tiepoint)),
            ]
        );
    }

    #[test]
    fn keys_are_sorted_and_have_the_crs_code() {
        let place = Georef {
            transform: None,
            is_point: true,
            crs: Crs::of_text("EPSG:32633").ok(),
            ..Georef::default()
        };
        let expected = [1, 1, 1, 3, 1024, 0, 1, 1, 1025, 0, 1, 2, 3072, 0, 1, 32633];
        assert_eq!(
            fields(&place),
            [(
                tag::GEO_KEY_DIRECTORY,
                FieldValue::Shorts(expected.to_vec())
            )]
        );
    }

    fn keys_of(wkt: &str) -> Option<GeoKeys> {
        let mut keys = keys(&Crs::of_wkt(wkt).unwrap())?;
        keys.sort_by_key(|(key, _)| *key);
        Some(keys)
    }

    #[test]
    fn systems_without_a_code_have_user_defined_keys() {
        let wkt = "PROJCS[\"Sinus\",GEOGCS[\"base\",DATUM[\"d\",SPHEROID[\"s\",6371007,0]],\
             PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]],\
             PROJECTION[\"Sinusoidal\"],PARAMETER[\"longitude_of_center\",10],\
             PARAMETER[\"false_easting\",1000],UNIT[\"foot\",0.3048]]";
        let citation = "GCS Name = base|Datum = d|Ellipsoid = s|Primem = Greenwich|";
        let expected = vec![
            (1024, Short(1)),
            (1026, Text("Sinus".into())),
            (2048, Short(32767)),
            (2049, Text(citation.into())),
            (2050, Short(32767)),
            (2054, Short(9102)),
            (2056, Short(32767)),
            (2057, Double(6_371_007.0)),
            (2058, Double(6_371_007.0)),
            (2061, Double(0.0)),
            (3072, Short(32767)),
            (3074, Short(32767)),
            (3075, Short(24)),
            (3076, Short(9002)),
            (3082, Double(1000.0)),
            (3083, Double(0.0)),
            (3088, Double(10.0)),
        ];
        assert_eq!(keys_of(wkt), Some(expected));
        let fields = directory(vec![
            (3, Text("ab".into())),
            (1, Double(0.5)),
            (2, Short(7)),
        ]);
        let entries = [1, 1, 1, 3, 1, 34736, 1, 0, 2, 0, 1, 7, 3, 34737, 3, 0];
        assert_eq!(fields[0].1, FieldValue::Shorts(entries.to_vec()));
        assert_eq!(fields[2].1, FieldValue::Text("ab|".into()));
    }

    #[test]
    fn systems_that_no_key_expresses_are_text() {
        let wkt = "PROJCS[\"a\",GEOGCS[\"b\"],PROJECTION[\"Mollweide\"],UNIT[\"m\",1]]";
        let text = format!("ESRI PE String = {wkt}");
        assert_eq!(
            keys_of(wkt),
            Some(vec![(1024, Short(32767)), (3073, Text(text))])
        );
        let crs = Crs::of_wkt(wkt).unwrap();
        assert_eq!(crs_encoding(&crs), CrsEncoding::Wkt);
        let bar = Crs::of_wkt(&wkt.replace('a', "|")).unwrap();
        assert_eq!((keys(&bar), crs_encoding(&bar)), (None, CrsEncoding::None));
    }
}
