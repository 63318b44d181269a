//! Coordinate reference systems from text and JSON.
//!
//! A system with an EPSG code that GeoKeys can express is written as that code; any other system as the WKT
//! of the metadata.

pub(crate) mod definition;
pub(crate) mod epsg;
pub(crate) mod methods;
pub(crate) mod proj_text;
pub(crate) mod projjson;
pub(crate) mod wkt;

use std::sync::Arc;

use serde_json::Value as Json;

use self::definition::Definition;
use self::epsg::{CrsKind, Unit};
use self::proj_text::ProjText;
use self::wkt::Wkt;
use crate::conventions::cf::wkt as cf_wkt;

/// A coordinate reference system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crs {
    /// The EPSG code, if a GeoKey can express it.
    pub(crate) code: Option<u16>,
    pub(crate) kind: CrsKind,
    /// The unit of a projected system.
    pub(crate) unit: Unit,
    /// WKT for GDAL.
    pub(crate) wkt: Arc<str>,
    /// WKT for ESRI and ENVI, if known.
    pub(crate) wkt_esri: Option<Arc<str>>,
}

/// The maximum length of a text in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

impl Crs {
    fn of_code(code: u64) -> Result<Self, String> {
        let entry = epsg::entry(code);
        let entry = entry
            .ok_or_else(|| format!("EPSG:{code} is not known to be geographic or projected"))?;
        let code = u16::try_from(code).map_err(|_| format!("EPSG:{code} is no GeoKey"))?;
        Ok(Self {
            code: Some(code),
            kind: entry.kind,
            unit: entry.unit,
            wkt: entry.wkt.into(),
            wkt_esri: entry.wkt_esri.map(Arc::from),
        })
    }

    /// Returns the geographic system WGS 84.
    ///
    /// # Errors
    /// The EPSG table does not contain it.
    pub(crate) fn wgs84() -> Result<Self, String> {
        Self::of_code(4326)
    }

    /// Returns a short name for messages.
    pub(crate) fn name(&self) -> String {
        match self.code {
            Some(code) => format!("EPSG:{code}"),
            None => name_of(&self.wkt),
        }
    }

    /// Returns whether both are the same system: by code, by text, or by the numbers of their definitions.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let has_same_numbers = || {
            let definitions = Definition::of_wkt(&self.wkt).zip(Definition::of_wkt(&other.wkt));
            definitions.is_some_and(|(one, other)| one.is_same(&other))
        };
        self == other || (self.code.is_none() && other.code.is_none() && has_same_numbers())
    }

    /// Returns the height in metres of the satellite of a geostationary system.
    pub(crate) fn satellite_height(&self) -> Option<f64> {
        let root = Wkt::parse(&self.wkt)?;
        let conversion = root.children(&["CONVERSION"]).next().unwrap_or(root);
        let method = conversion.children(&["PROJECTION", "METHOD"]).next()?;
        let is_named = |text: &str, name: &str| {
            let text = text.replace('_', " ").to_ascii_lowercase();
            text.starts_with(name)
        };
        if !is_named(method.value(0)?, "geostationary satellite") {
            return None;
        }
        let mut parameters = conversion.children(&["PARAMETER"]);
        let height = parameters.find(|parameter| {
            parameter
                .value(0)
                .is_some_and(|name| is_named(name, "satellite height"))
        })?;
        let unit = height.children(&["LENGTHUNIT", "UNIT"]).next();
        let metres = unit.map_or(Some(1.0), |unit| unit.value(1)?.parse().ok())?;
        let height: f64 = height.value(1)?.parse().ok()?;
        Some(height * metres).filter(|height| *height > 0.0 && height.is_finite())
    }

    /// Parses a name with an authority (`EPSG:32633`), an OGC URL or URN, any WKT, or a PROJ string.
    ///
    /// # Errors
    /// Returns why the text is no system.
    pub(crate) fn of_text(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("{} bytes of text", text.len()));
        }
        let text = text.trim();
        if proj_text::is_proj_text(text) {
            return match proj_text::parse(text)? {
                ProjText::Code(code) => Self::of_text(&code),
                ProjText::Mapping(members) => Self::of_wkt(&cf_wkt::wkt(&members, false)?),
            };
        }
        if text.contains('[') || text.contains('(') {
            return Self::of_wkt(text);
        }
        let unknown = || format!("{:?} is no code of EPSG", excerpt(text));
        let upper = text.to_ascii_uppercase();
        if upper.ends_with("CRS84") && upper.contains("OGC") {
            // EPSG:4326 with another axis order, which does not matter for rasters.
            return Self::wgs84();
        }
        let mut words = upper.rsplit([':', '/']);
        let code = words.next().and_then(|code| code.parse().ok());
        let code = code.ok_or_else(unknown)?;
        match words.any(|word| word == "EPSG") {
            true => Self::of_code(code),
            false => Err(unknown()),
        }
    }

    /// Parses WKT of any version.
    ///
    /// # Errors
    /// Returns why the text is no system.
    pub(crate) fn of_wkt(text: &str) -> Result<Self, String> {
        let line = wkt::on_one_line(text)?;
        let wkt = Wkt::parse(&line).ok_or("no WKT of one object")?;
        let kind = wkt.kind()?;
        if let Some(Ok(crs)) = wkt.epsg().map(Self::of_code) {
            return crs.checked(kind);
        }
        let kind = kind.ok_or_else(|| format!("WKT of a {:?}", excerpt(wkt.keyword())))?;
        let unit = wkt.unit();
        Ok(Self {
            code: None,
            kind,
            unit,
            wkt: line.into(),
            wkt_esri: None,
        })
    }

    /// Parses a PROJJSON object: by its EPSG code, else by its content.
    ///
    /// # Errors
    /// Returns why the object is no system.
    pub(crate) fn of_projjson(value: &Json) -> Result<Self, String> {
        let kind = value.get("type").and_then(Json::as_str);
        let kind = match kind.ok_or("an object that is no PROJJSON")? {
            "ProjectedCRS" => Some(CrsKind::Projected),
            "GeographicCRS" => Some(CrsKind::Geographic),
            "DerivedGeographicCRS" | "GeodeticCRS" => None,
            other => return Err(format!("a {:?} of PROJJSON", excerpt(other))),
        };
        let id = value.get("id").or_else(|| value.get("ids")?.get(0));
        let member = |name: &str| id.and_then(|id| id.get(name));
        let code = member("code").and_then(|code| match code {
            Json::String(code) => code.parse().ok(),
            code => code.as_u64(),
        });
        match (member("authority").and_then(Json::as_str), code) {
            (Some("EPSG"), Some(code)) => {
                if let Ok(crs) = Self::of_code(code) {
                    return crs.checked(kind);
                }
            }
            (Some("OGC"), _) if member("code").and_then(Json::as_str) == Some("CRS84") => {
                return Self::wgs84();
            }
            _ => {}
        }
        Self::of_wkt(&projjson::wkt(value)?)
    }

    fn checked(self, kind: Option<CrsKind>) -> Result<Self, String> {
        match kind {
            Some(kind) if kind != self.kind => Err(format!(
                "{} is {:?} and the text is {kind:?}",
                self.name(),
                self.kind
            )),
            _ => Ok(self),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Returns the first quoted text, for messages.
fn name_of(text: &str) -> String {
    format!("{:?}", excerpt(text.split('"').nth(1).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_are_found_in_every_notation() {
        let utm = Crs::of_code(32633).unwrap();
        assert_eq!((utm.kind, utm.unit), (CrsKind::Projected, Unit::Metre));
        for text in [
            "EPSG:32633",
            " epsg:32633 ",
            "http://www.opengis.net/def/crs/EPSG/0/32633",
            "urn:ogc:def:crs:EPSG::32633",
            "PROJCS[\"a, \"\"ID[\"\"b\",GEOGCS[\"WGS 84\",AUTHORITY[\"EPSG\",\"4326\"]],AXIS[\"E\",EAST],AUTHORITY[\"EPSG\",\"32633\"]]",
            "PROJCRS[\"a\",BASEGEOGCRS[\"b\",ID[\"EPSG\",4326]],CONVERSION[\"c\",ID[\"EPSG\",16033]], ID[\"EPSG\", 32633]]",
        ] {
            assert_eq!(Crs::of_text(text).as_ref(), Ok(&utm), "{text}");
        }
        assert_eq!(Crs::of_text("OGC:CRS84"), Crs::wgs84());
        let object = json!({"type": "ProjectedCRS", "id": {"authority": "EPSG", "code": 32633}});
        assert_eq!(Crs::of_projjson(&object), Ok(utm));
    }

    #[test]
    fn systems_without_a_code_keep_their_text() {
        for text in [
            // The code is the code of the base system.
            "PROJCS[\"a\",GEOGCS[\"WGS 84\",AUTHORITY[\"EPSG\",\"4326\"]],UNIT[\"m\",1]]",
            "PROJCS[\"a\",UNIT[\"m\",1],AUTHORITY[\"ESRI\",\"102100\"]]",
            // The code is one that readers of GeoKeys mistake for another system.
            "PROJCS[\"a\",UNIT[\"m\",1],AUTHORITY[\"EPSG\",\"26820\"]]",
        ] {
            let crs = Crs::of_text(&text.replace(',', " ,\n ")).unwrap();
            assert_eq!((crs.code, &*crs.wkt), (None, text));
            assert_eq!(crs.unit, Unit::Metre);
        }
    }

    #[test]
    fn proj_strings_are_systems() {
        let utm = Crs::of_text("+proj=utm +zone=33 +datum=WGS84 +units=m +no_defs").unwrap();
        assert_eq!(utm.code, Some(32633));
        let text = "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=40 +lon_0=-97 +R=6370000 +units=m";
        let lambert = Crs::of_text(text).unwrap();
        assert_eq!((lambert.code, lambert.kind), (None, CrsKind::Projected));
        // The same numbers in another order and with other names.
        let other = lambert.wkt.replace("unknown", "Lambert");
        let other = Crs::of_wkt(&other).unwrap();
        assert!(other != lambert && other.is_same(&lambert));
        assert!(!utm.is_same(&lambert));
        assert!(Crs::of_text("+init=epsg:1").is_err());
    }

    #[test]
    fn invalid_codes_are_not_guessed() {
        for text in [
            "",
            "ESRI:54009",
            "EPSG:",
            "EPSG:4978",
            "EPSG:99999999999999999999",
            "32633",
            "IAU_2015:49900",
            // The kind differs from the kind of the code.
            "GEOGCS[\"a\",AUTHORITY[\"EPSG\",\"32633\"]]",
            "COMPD_CS[\"a\",AUTHORITY[\"EPSG\",\"7405\"]]",
            "BOUNDCRS[SOURCECRS[GEOGCRS[\"x\",ID[\"EPSG\",4326]]]]",
            "PROJCS[\"never closed,AUTHORITY[",
            "]]]]",
            "[",
            "+proj=longlat (",
        ] {
            assert!(Crs::of_text(text).is_err(), "{text}");
        }
        for object in [
            json!(1),
            json!({"type": "BoundCRS"}),
            json!({"type": "GeographicCRS", "id": {"authority": "EPSG", "code": 32633}}),
            json!({"type": "ProjectedCRS", "id": {"authority": "ESRI", "code": 54009}}),
            json!({"type": "ProjectedCRS"}),
        ] {
            assert!(Crs::of_projjson(&object).is_err(), "{object}");
        }
    }
}
