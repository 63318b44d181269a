//! Which coordinate reference system a text or an object of metadata means, as a code of EPSG.
//!
//! A system without such a code is not written: GeoKeys say parts of one, and half a system is a
//! wrong one.

use serde_json::Value as Json;

use super::epsg::{Kind, kind_of};

/// A system with a code of EPSG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crs {
    pub(super) code: u16,
    pub(super) kind: Kind,
}

/// Longer texts are not looked at.
const MAX_TEXT_BYTES: usize = 1 << 20;

impl Crs {
    fn of_code(code: u64) -> Result<Self, String> {
        let kind = kind_of(code);
        let kind =
            kind.ok_or_else(|| format!("EPSG:{code} is not known to be geographic or projected"))?;
        let code = u16::try_from(code).map_err(|_| format!("EPSG:{code} is no GeoKey"))?;
        Ok(Self { code, kind })
    }

    /// Geographic WGS 84.
    pub(super) fn wgs84() -> Self {
        Self {
            code: 4326,
            kind: Kind::Geographic,
        }
    }

    /// A name with an authority (`EPSG:32633`), a URL or URN of OGC, or WKT of any version.
    ///
    /// # Errors
    /// Why it is no code of EPSG.
    pub(super) fn of_text(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("{} bytes of text", text.len()));
        }
        let text = text.trim();
        if text.contains('[') || text.contains('(') {
            return of_wkt(text);
        }
        let unknown = || format!("{:?} is no code of EPSG", excerpt(text));
        let upper = text.to_ascii_uppercase();
        if upper.ends_with("CRS84") && upper.contains("OGC") {
            // The same as EPSG:4326 but for the order of axes, which a GeoTIFF does not have.
            return Ok(Self::wgs84());
        }
        let mut words = upper.rsplit([':', '/']);
        let code = words.next().and_then(|code| code.parse().ok());
        let code = code.ok_or_else(unknown)?;
        match words.any(|word| word == "EPSG") {
            true => Self::of_code(code),
            false => Err(unknown()),
        }
    }

    /// A PROJJSON object (PROJ, "Specification for PROJJSON").
    ///
    /// # Errors
    /// Why it is no code of EPSG.
    pub(super) fn of_projjson(value: &Json) -> Result<Self, String> {
        let kind = value.get("type").and_then(Json::as_str);
        let kind = match kind.ok_or("an object that is no PROJJSON")? {
            "ProjectedCRS" => Some(Kind::Projected),
            "GeographicCRS" => Some(Kind::Geographic),
            "GeodeticCRS" => None,
            other => return Err(format!("a {:?} of PROJJSON", excerpt(other))),
        };
        let id = value.get("id").or_else(|| value.get("ids")?.get(0));
        let id = id.ok_or("PROJJSON without an id")?;
        let authority = id
            .get("authority")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let code = id.get("code").and_then(|code| match code {
            Json::String(code) => code.parse().ok(),
            code => code.as_u64(),
        });
        match (authority, code) {
            ("EPSG", Some(code)) => Self::of_code(code)?.checked(kind),
            ("OGC", _) if id.get("code").and_then(Json::as_str) == Some("CRS84") => {
                Ok(Self::wgs84())
            }
            _ => Err(format!("PROJJSON with an id of {:?}", excerpt(authority))),
        }
    }

    fn checked(self, kind: Option<Kind>) -> Result<Self, String> {
        match kind {
            Some(kind) if kind != self.kind => Err(format!(
                "EPSG:{} is {:?} and the text is {kind:?}",
                self.code, self.kind
            )),
            _ => Ok(self),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The code of the root object of WKT: `AUTHORITY["EPSG","4326"]` (OGC 01-009) or
/// `ID["EPSG",4326]` (OGC 18-010r7, 7.3.4).
fn of_wkt(text: &str) -> Result<Crs, String> {
    let root = text.split(['[', '(']).next().unwrap_or_default().trim();
    let kind = match root.to_ascii_uppercase().as_str() {
        "PROJCS" | "PROJCRS" | "PROJECTEDCRS" => Some(Kind::Projected),
        "GEOGCS" | "GEOGCRS" | "GEOGRAPHICCRS" => Some(Kind::Geographic),
        // Also of geocentric systems; the code tells.
        "GEODCRS" | "GEODETICCRS" => None,
        other => return Err(format!("WKT of a {:?}", excerpt(other))),
    };
    let none = || format!("WKT of {} without a code of EPSG", name_of(text));
    let id = root_id(text).ok_or_else(none)?;
    let mut words = id.split(',').map(|word| word.trim().trim_matches('"'));
    match (
        words.next(),
        words.next().and_then(|code| code.parse().ok()),
    ) {
        (Some("EPSG" | "epsg"), Some(code)) => Crs::of_code(code)?.checked(kind),
        _ => Err(none()),
    }
}

/// The first quoted text, for people.
fn name_of(text: &str) -> String {
    format!("{:?}", excerpt(text.split('"').nth(1).unwrap_or_default()))
}

/// What stands in the `ID` or `AUTHORITY` of the outermost object.
fn root_id(text: &str) -> Option<&str> {
    let (mut depth, mut is_quoted) = (0_usize, false);
    let (mut word, mut found) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        if byte == b'"' {
            // Two of them are one in a text: out and in again.
            is_quoted = !is_quoted;
            continue;
        }
        if is_quoted {
            continue;
        }
        match byte {
            b'[' | b'(' => {
                let name = text.get(word..at).unwrap_or_default().trim();
                let is_id = ["ID", "AUTHORITY"]
                    .iter()
                    .any(|id| name.eq_ignore_ascii_case(id));
                depth += 1;
                word = at + 1;
                if depth == 2 && is_id {
                    found = Some(at + 1);
                }
            }
            b']' | b')' => {
                if let (2, Some(from)) = (depth, found) {
                    return text.get(from..at);
                }
                depth = depth.checked_sub(1)?;
                word = at + 1;
            }
            b',' => word = at + 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_are_found_in_every_writing() {
        let utm = Crs {
            code: 32633,
            kind: Kind::Projected,
        };
        for text in [
            "EPSG:32633",
            " epsg:32633 ",
            "http://www.opengis.net/def/crs/EPSG/0/32633",
            "urn:ogc:def:crs:EPSG::32633",
            "PROJCS[\"a, \"\"ID[\"\"b\",GEOGCS[\"WGS 84\",AUTHORITY[\"EPSG\",\"4326\"]],AXIS[\"E\",EAST],AUTHORITY[\"EPSG\",\"32633\"]]",
            "PROJCRS[\"a\",BASEGEOGCRS[\"b\",ID[\"EPSG\",4326]],CONVERSION[\"c\",ID[\"EPSG\",16033]], ID[\"EPSG\", 32633]]",
        ] {
            assert_eq!(Crs::of_text(text), Ok(utm), "{text}");
        }
        assert_eq!(Crs::of_text("OGC:CRS84"), Ok(Crs::wgs84()));
        let object = json!({"type": "ProjectedCRS", "id": {"authority": "EPSG", "code": 32633}});
        assert_eq!(Crs::of_projjson(&object), Ok(utm));
    }

    #[test]
    fn what_is_no_code_is_not_guessed() {
        for text in [
            "",
            "ESRI:54009",
            "EPSG:",
            "EPSG:4978",
            "EPSG:99999999999999999999",
            "32633",
            "IAU_2015:49900",
            // The code is that of the base.
            "PROJCS[\"a\",GEOGCS[\"WGS 84\",AUTHORITY[\"EPSG\",\"4326\"]],UNIT[\"m\",1]]",
            "PROJCS[\"a\",AUTHORITY[\"ESRI\",\"102100\"]]",
            // Another kind than the code.
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
