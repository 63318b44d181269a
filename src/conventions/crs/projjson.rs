//! PROJJSON of coordinate reference systems (PROJ, "Specification for PROJJSON", 0.7) as WKT 2 (OGC 18-010r7).

use serde_json::Value as Json;

use crate::conventions::georef::context::number;

/// Returns the WKT of a geographic system, a projected system, or a geographic system derived from another.
///
/// # Errors
/// Returns why the object has no WKT.
pub(crate) fn wkt(value: &Json) -> Result<String, String> {
    let name = name(value)?;
    Ok(match text(value, "type")? {
        "GeographicCRS" | "GeodeticCRS" => {
            format!("GEOGCRS[{name},{}{}]", frame(value)?, axes(value)?)
        }
        "ProjectedCRS" => format!(
            "PROJCRS[{name},{}CONVERSION[{}]{}]",
            base(value)?,
            conversion(value)?,
            axes(value)?
        ),
        "DerivedGeographicCRS" => format!(
            "GEOGCRS[{name},{}DERIVINGCONVERSION[{}]{}]",
            base(value)?,
            conversion(value)?,
            axes(value)?
        ),
        other => return Err(format!("a {:?} of PROJJSON", excerpt(other))),
    })
}

/// Returns the base of a system, and a comma.
fn base(value: &Json) -> Result<String, String> {
    let base = member(value, "base_crs")?;
    let frame = frame(base)?;
    Ok(format!("BASEGEOGCRS[{},{frame}],", name(base)?))
}

/// Returns the datum and the prime meridian of a geographic system.
fn frame(value: &Json) -> Result<String, String> {
    let datum = value.get("datum").or_else(|| value.get("datum_ensemble"));
    let datum = datum.ok_or("PROJJSON without a datum")?;
    let ellipsoid = member(datum, "ellipsoid")?;
    let (major, inverse) = figure(ellipsoid)?;
    let unit = unit(Some(&Json::from("metre")))?;
    let datum_text = format!(
        "DATUM[{},ELLIPSOID[{},{major},{inverse},{unit}]]",
        name(datum)?,
        name(ellipsoid)?
    );
    Ok(match datum.get("prime_meridian") {
        None => datum_text,
        Some(meridian) => {
            let (longitude, unit) = quantity(member(meridian, "longitude")?, "degree")?;
            format!(
                "{datum_text},PRIMEM[{},{longitude},{unit}]",
                name(meridian)?
            )
        }
    })
}

/// Returns the semi-major axis in metres and the inverse flattening.
fn figure(ellipsoid: &Json) -> Result<(f64, f64), String> {
    let length = |name: &str| -> Result<Option<f64>, String> {
        let Some(value) = ellipsoid.get(name) else {
            return Ok(None);
        };
        let (value, unit) = quantity(value, "metre")?;
        let is_metre = unit.ends_with(",1]");
        is_metre
            .then_some(Some(value))
            .ok_or_else(|| format!("{name} of PROJJSON is not in metres"))
    };
    if let Some(radius) = length("radius")? {
        return Ok((radius, 0.0));
    }
    let major = length("semi_major_axis")?.ok_or("PROJJSON without a figure of the Earth")?;
    let inverse = ellipsoid.get("inverse_flattening").and_then(number);
    match (inverse, length("semi_minor_axis")?) {
        (Some(inverse), _) => Ok((major, inverse)),
        (None, Some(minor)) if minor == major => Ok((major, 0.0)),
        (None, Some(minor)) => Ok((major, major / (major - minor))),
        (None, None) => Err("PROJJSON without a figure of the Earth".into()),
    }
}

/// Returns the content of a conversion: its name, method and parameters.
fn conversion(value: &Json) -> Result<String, String> {
    let conversion = member(value, "conversion")?;
    let method = member(conversion, "method")?;
    let mut text = format!("{},METHOD[{}]", name(conversion)?, name(method)?);
    let parameters = conversion.get("parameters").and_then(Json::as_array);
    for parameter in parameters.into_iter().flatten() {
        let value = parameter.get("value").and_then(number);
        let value = value.ok_or("a parameter of PROJJSON is no number")?;
        let unit = unit(parameter.get("unit"))?;
        text.push_str(&format!(",PARAMETER[{},{value},{unit}]", name(parameter)?));
    }
    Ok(text)
}

/// Returns the coordinate system with its axes, behind a comma.
fn axes(value: &Json) -> Result<String, String> {
    let system = member(value, "coordinate_system")?;
    let subtype = match text(system, "subtype")? {
        "Cartesian" => "Cartesian",
        "ellipsoidal" => "ellipsoidal",
        other => return Err(format!("{:?} axes of PROJJSON", excerpt(other))),
    };
    let axes = system.get("axis").and_then(Json::as_array);
    let axes = axes.filter(|axes| matches!(axes.len(), 2 | 3));
    let axes = axes.ok_or("PROJJSON without two or three axes")?;
    let mut wkt = format!(",CS[{subtype},{}]", axes.len());
    for (place, axis) in axes.iter().enumerate() {
        let direction = text(axis, "direction")?;
        if !direction.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err("a direction of PROJJSON is none".into());
        }
        let unit = unit(axis.get("unit"))?;
        let name = quoted(&text(axis, "name")?.to_lowercase())?;
        wkt.push_str(&format!(
            ",AXIS[{name},{direction},ORDER[{}],{unit}]",
            place + 1
        ));
    }
    Ok(wkt)
}

/// Returns a number with its unit: a number in `unit`, or an object.
fn quantity(value: &Json, unit: &str) -> Result<(f64, String), String> {
    let wrong = || "a quantity of PROJJSON is no number".to_owned();
    match value {
        Json::Object(members) => {
            let number = members.get("value").and_then(number).ok_or_else(wrong)?;
            Ok((number, self::unit(members.get("unit"))?))
        }
        value => Ok((
            number(value).ok_or_else(wrong)?,
            self::unit(Some(&Json::from(unit)))?,
        )),
    }
}

fn unit(value: Option<&Json>) -> Result<String, String> {
    let value = value.ok_or("a quantity of PROJJSON without a unit")?;
    let known = match value.as_str() {
        Some("metre") => Some("LENGTHUNIT[\"metre\",1]"),
        Some("degree") => Some("ANGLEUNIT[\"degree\",0.0174532925199433]"),
        Some("unity") => Some("SCALEUNIT[\"unity\",1]"),
        Some(_) => return Err("a unit of PROJJSON is not known".into()),
        None => None,
    };
    if let Some(known) = known {
        return Ok(known.to_owned());
    }
    let keyword = match text(value, "type")? {
        "LinearUnit" => "LENGTHUNIT",
        "AngularUnit" => "ANGLEUNIT",
        "ScaleUnit" => "SCALEUNIT",
        _ => return Err("a unit of PROJJSON is not known".into()),
    };
    let factor = value.get("conversion_factor").and_then(number);
    let factor = factor
        .filter(|factor| *factor > 0.0)
        .ok_or("a unit of PROJJSON without a conversion_factor")?;
    Ok(format!("{keyword}[{},{factor}]", name(value)?))
}

fn member<'a>(value: &'a Json, name: &str) -> Result<&'a Json, String> {
    value
        .get(name)
        .ok_or_else(|| format!("PROJJSON without {name}"))
}

fn text<'a>(value: &'a Json, name: &str) -> Result<&'a str, String> {
    let text = member(value, name)?.as_str();
    text.ok_or_else(|| format!("{name} of PROJJSON is no text"))
}

/// Returns the name of an object between quotes.
fn name(value: &Json) -> Result<String, String> {
    quoted(text(value, "name")?)
}

fn quoted(text: &str) -> Result<String, String> {
    let is_plain = text.len() <= 1000 && !text.chars().any(char::is_control);
    let quoted = format!("\"{}\"", text.replace('"', "\"\""));
    is_plain
        .then_some(quoted)
        .ok_or_else(|| "a name of PROJJSON is no line of text".to_owned())
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conventions::crs::Crs;
    use crate::conventions::crs::epsg::{CrsKind, Unit};

    fn geographic(ellipsoid: Json) -> Json {
        let axis = |name: &str, direction: &str| json!({"name": name, "abbreviation": "", "direction": direction, "unit": "degree"});
        json!({
            "type": "GeographicCRS", "name": "a \"b\"",
            "datum": {"type": "GeodeticReferenceFrame", "name": "d", "ellipsoid": ellipsoid},
            "coordinate_system": {"subtype": "ellipsoidal",
                "axis": [axis("Longitude", "east"), axis("Latitude", "north")]},
        })
    }

    #[test]
    fn projjson_without_a_code_is_the_same_system_as_its_wkt() {
        let feet = json!({"type": "LinearUnit", "name": "foot", "conversion_factor": 0.3048});
        let axis =
            |direction: &str| json!({"name": direction, "direction": direction, "unit": feet});
        let sphere = json!({"name": "s", "radius": 6_371_000});
        let system = json!({
            "type": "ProjectedCRS", "name": "c", "base_crs": geographic(sphere),
            "conversion": {"name": "n", "method": {"name": "Sinusoidal"}, "parameters": [
                {"name": "Longitude of natural origin", "value": 10, "unit": "degree"},
                {"name": "False easting", "value": 100, "unit": feet}]},
            "coordinate_system": {"subtype": "Cartesian", "axis": [axis("east"), axis("north")]},
        });
        let crs = Crs::of_projjson(&system).unwrap();
        assert_eq!((crs.kind, crs.unit), (CrsKind::Projected, Unit::Foot));
        let other = "PROJCS[\"x\",GEOGCS[\"x\",DATUM[\"x\",SPHEROID[\"x\",6371000,0]],PRIMEM[\"Greenwich\",0],\
             UNIT[\"degree\",0.0174532925199433]],PROJECTION[\"Sinusoidal\"],\
             PARAMETER[\"longitude_of_center\",10],PARAMETER[\"false_easting\",100],UNIT[\"foot\",0.3048]]";
        assert!(crs.is_same(&Crs::of_wkt(other).unwrap()), "{}", crs.wkt);
    }

    #[test]
    fn projjson_with_missing_or_unknown_parts_is_no_system() {
        let whole =
            json!({"name": "s", "semi_major_axis": 6_378_137, "semi_minor_axis": 6_356_752});
        assert!(Crs::of_projjson(&geographic(whole)).is_ok());
        for ellipsoid in [
            json!({"name": "s"}),
            json!({"name": "s", "semi_major_axis": 6_378_137}),
            json!({"name": "s", "radius": "6371000"}),
            json!({"name": "s", "radius": {"value": 6371, "unit": {"type": "LinearUnit", "name": "km", "conversion_factor": 1000}}}),
            json!({"name": "a\nb", "radius": 6_371_000}),
        ] {
            assert!(
                Crs::of_projjson(&geographic(ellipsoid.clone())).is_err(),
                "{ellipsoid}"
            );
        }
        let mut turned = geographic(json!({"name": "s", "radius": 6_371_000}));
        turned["coordinate_system"]["axis"][0]["direction"] = json!("east],[");
        assert!(Crs::of_projjson(&turned).is_err());
    }
}
