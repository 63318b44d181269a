//! Parser of well-known text of coordinate reference systems: keywords and nested objects (OGC 01-009;
//! OGC 18-010r7, section 6).

use super::epsg::{CrsKind, Unit};

/// The maximum length of a text in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// An object of WKT: `KEYWORD[...]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wkt<'a> {
    keyword: &'a str,
    /// The text between the brackets.
    content: &'a str,
}

/// Returns the text on one line, without spaces between its tokens.
///
/// # Errors
/// The text is not one object.
pub(crate) fn on_one_line(text: &str) -> Result<String, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("{} bytes of text", text.len()));
    }
    let mut line = String::with_capacity(text.len());
    let mut is_quoted = false;
    for character in text.chars() {
        is_quoted ^= character == '"';
        if is_quoted && character.is_control() {
            return Err("WKT with control characters".into());
        }
        if is_quoted || !character.is_whitespace() {
            line.push(character);
        }
    }
    let wkt = Wkt::parse(&line).ok_or("no WKT of one object")?;
    let is_whole = wkt.keyword.len() + wkt.content.len() + 2 == line.len();
    let is_plain = !line.chars().any(char::is_control);
    (is_whole && is_plain)
        .then_some(line)
        .ok_or_else(|| "no WKT of one object".to_owned())
}

impl<'a> Wkt<'a> {
    /// Parses the object at the beginning of a text.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let open = text.find(['[', '('])?;
        let keyword = text.get(..open)?.trim();
        let (mut depth, mut is_quoted) = (0_usize, false);
        for (at, byte) in text.bytes().enumerate().skip(open) {
            match byte {
                // A doubled quote is an escaped quote.
                b'"' => is_quoted = !is_quoted,
                b'[' | b'(' if !is_quoted => depth += 1,
                b']' | b')' if !is_quoted => {
                    depth -= 1;
                    if depth == 0 {
                        let content = text.get(open + 1..at)?;
                        return Some(Self { keyword, content });
                    }
                }
                _ => {}
            }
        }
        None
    }

    pub(crate) fn is(&self, keywords: &[&str]) -> bool {
        let mut keywords = keywords.iter();
        keywords.any(|keyword| self.keyword.eq_ignore_ascii_case(keyword))
    }

    pub(crate) fn keyword(&self) -> &'a str {
        self.keyword
    }

    /// Returns the texts between the commas of the content.
    fn items(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let content = self.content;
        let (mut depth, mut is_quoted) = (0_usize, false);
        let split = content.split(move |character| {
            match character {
                '"' => is_quoted = !is_quoted,
                '[' | '(' if !is_quoted => depth += 1,
                ']' | ')' if !is_quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0 && !is_quoted
        });
        split.map(str::trim)
    }

    /// Returns the nested objects with one of these keywords.
    pub(crate) fn children(&self, keywords: &'a [&'a str]) -> impl Iterator<Item = Self> + use<'a> {
        let items = self.items().filter(|item| !item.starts_with('"'));
        items
            .filter_map(Self::parse)
            .filter(move |child| child.is(keywords))
    }

    /// Returns an item (text or number) by its index, without quotes.
    pub(crate) fn value(&self, place: usize) -> Option<&'a str> {
        Some(self.items().nth(place)?.trim_matches('"'))
    }

    /// Returns all items as numbers; `None` if an item is not a number.
    pub(crate) fn numbers(&self) -> Option<Vec<f64>> {
        self.items().map(|item| item.parse().ok()).collect()
    }

    /// Returns the EPSG code of the object: `AUTHORITY["EPSG","4326"]` or `ID["EPSG",4326]`.
    pub(crate) fn epsg(&self) -> Option<u64> {
        let id = self.children(&["ID", "AUTHORITY"]).next()?;
        let is_epsg = id.value(0)?.eq_ignore_ascii_case("EPSG");
        id.value(1)?.parse().ok().filter(|_| is_epsg)
    }

    /// Returns the kind of a coordinate reference system; `None` if the keyword is ambiguous.
    ///
    /// # Errors
    /// The object is a system of another kind.
    pub(crate) fn kind(&self) -> Result<Option<CrsKind>, String> {
        let other = || {
            let keyword: String = self.keyword.chars().take(60).collect();
            Err(format!("WKT of a {keyword:?}"))
        };
        if self.is(&["PROJCS", "PROJCRS", "PROJECTEDCRS"]) {
            return Ok(Some(CrsKind::Projected));
        }
        let is_geographic = self.is(&["GEOGCS", "GEOGCRS", "GEOGRAPHICCRS"]);
        // Geocentric systems have the same keyword.
        let is_geodetic = self.is(&["GEODCRS", "GEODETICCRS"]);
        if !is_geographic && !is_geodetic {
            return other();
        }
        if let Some(conversion) = self.children(&["DERIVINGCONVERSION"]).next() {
            let method = conversion.children(&["METHOD"]).next();
            let is_rotation = method.and_then(|method| Some(is_pole_rotation(method.value(0)?)));
            return match is_rotation {
                Some(true) => Ok(Some(CrsKind::RotatedPole)),
                _ => Err("WKT of a derived system".into()),
            };
        }
        let mut systems = self.children(&["CS"]);
        let is_ellipsoidal = systems.any(|system| {
            (system.value(0)).is_some_and(|kind| kind.eq_ignore_ascii_case("ellipsoidal"))
        });
        Ok((is_geographic || is_ellipsoidal).then_some(CrsKind::Geographic))
    }

    /// Returns the unit of the axes of a projected system.
    pub(crate) fn unit(&self) -> Unit {
        let units = &["UNIT", "LENGTHUNIT"];
        let of_axes = || self.children(&["AXIS"]).next()?.children(units).next();
        let unit = self.children(units).next().or_else(of_axes);
        let metres = unit.and_then(|unit| unit.value(1)?.parse::<f64>().ok());
        let is_near = |expected: f64| {
            metres.is_some_and(|metres| (metres - expected).abs() <= 1e-12 * expected)
        };
        if is_near(1.0) {
            Unit::Metre
        } else if is_near(0.3048) {
            Unit::Foot
        } else if metres.is_some_and(|metres| (metres - 1200.0 / 3937.0).abs() <= 1e-10) {
            Unit::UsSurveyFoot
        } else {
            Unit::Other
        }
    }
}

/// Returns whether a method is the rotation of a pole, in the conventions of CF, GRIB or PROJ.
fn is_pole_rotation(method: &str) -> bool {
    method.contains("Pole rotation") || method == "PROJ ob_tran o_proj=longlat"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_an_object() {
        let text = "PROJCS[\"a, [\"\"b\", GEOGCS[\"c\", AUTHORITY[\"EPSG\",\"4326\"]],\n UNIT[\"foot\", 0.3048], AUTHORITY(\"EPSG\", \"2222\")]";
        let line = on_one_line(text).unwrap();
        assert!(!line.contains(" UNIT") && line.contains("\"a, [\"\"b\""));
        let wkt = Wkt::parse(&line).unwrap();
        assert_eq!((wkt.epsg(), wkt.unit()), (Some(2222), Unit::Foot));
        assert_eq!(wkt.kind(), Ok(Some(CrsKind::Projected)));
        for wrong in ["", "A", "A[", "A]", "A[]B[]", "A[\"]", "A[\"\n\"]"] {
            assert!(on_one_line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn kinds_follow_from_keywords_and_axes() {
        let kind = |text: &str| Wkt::parse(text).unwrap().kind();
        let geographic = Ok(Some(CrsKind::Geographic));
        assert_eq!(kind("GEODCRS[\"a\",CS[ellipsoidal,2]]"), geographic);
        assert_eq!(kind("GEODCRS[\"a\",CS[Cartesian,3]]"), Ok(None));
        let rotated =
            "GEOGCRS[\"a\",DERIVINGCONVERSION[\"b\",METHOD[\"Pole rotation (GRIB convention)\"]]]";
        assert_eq!(kind(rotated), Ok(Some(CrsKind::RotatedPole)));
        assert!(kind("GEOGCRS[\"a\",DERIVINGCONVERSION[\"b\",METHOD[\"c\"]]]").is_err());
        assert!(kind("COMPD_CS[\"a\"]").is_err());
    }
}
