//! Which coordinate reference system the metadata around an image say, with one voice.

use serde_json::{Map, Value as Json};

use super::crs::Crs;
use super::epsg::Kind;
use super::place::has_axes;
use super::raster::{Direction, Raster};
use super::scene::{Notes, Scene, Source, number, some};
use super::side::Side;
use crate::view::node::ViewNode;

/// The coordinate reference system: what all say that say one.
pub(super) fn system(
    scene: &Scene<'_>,
    raster: &Raster,
    grid_mapping: Option<&ViewNode>,
    sides: (&Side, &Side),
    notes: &mut Notes,
) -> Option<Crs> {
    // zarr-conventions/geo-proj.
    let names = ["proj:code", "proj:wkt2", "proj:projjson"];
    let is_said =
        |members: &Map<String, Json>| names.iter().any(|name| some(members, name).is_some());
    let mut systems = Vec::new();
    for (source, members) in scene.sources().filter(|(_, members)| is_said(members)) {
        let names_axes = some(members, "spatial:dimensions").is_some();
        if source != Source::Own && names_axes && !has_axes(scene, source, members, raster) {
            notes.add("the system of the group is that of other axes (spatial:dimensions)");
            continue;
        }
        systems.push(one_of(members, &names, notes));
    }
    // GDAL: the Zarr driver, "SRS encoding".
    if let Some(value) = scene.own("_CRS") {
        systems.push(match value {
            Json::Object(members) => one_of(members, &["url", "wkt", "projjson"], notes),
            _ => {
                notes.add("_CRS is no object");
                None
            }
        });
    }
    let kind = match grid_mapping.map(|node| node.metadata().attributes()) {
        None => None,
        Some(Err(_)) => {
            notes.add("the attributes of the grid mapping are not known");
            systems.push(None);
            None
        }
        Some(Ok(members)) => match of_grid_mapping(members, sides, systems.is_empty(), notes) {
            Mapped::System(crs) => {
                systems.push(crs);
                None
            }
            Mapped::Kind(kind) => kind,
        },
    };
    let Some((first, others)) = systems.split_first() else {
        let above = scene.above().find(|(_, members)| is_said(members));
        if let Some((key, _)) = above {
            notes.add(format!(
                "the system of the group {key} is not inherited: neither is this one of its arrays \
                 nor of its pyramid"
            ));
        }
        return None;
    };
    if others.iter().any(|other| other != first) {
        let shown = |crs: &Option<Crs>| {
            crs.map_or("another one".into(), |crs| format!("EPSG:{}", crs.code))
        };
        let mut all: Vec<String> = systems.iter().map(shown).collect();
        all.dedup();
        notes.add(format!("{}: no system is written", all.join(" and ")));
        return None;
    }
    let found = (*first)?;
    if kind.is_some_and(|kind| kind != found.kind) {
        notes.add(format!(
            "EPSG:{} is left out: the grid mapping is of another kind",
            found.code
        ));
        return None;
    }
    Some(found)
}

/// What a grid mapping says.
enum Mapped {
    /// A system; none if it has no code.
    System(Option<Crs>),
    /// Of which kind the system is that others say, if that much.
    Kind(Option<Kind>),
}

/// What the attributes of a grid mapping say; `is_only` where nobody else says a system.
fn of_grid_mapping(
    members: &Map<String, Json>,
    sides: (&Side, &Side),
    is_only: bool,
    notes: &mut Notes,
) -> Mapped {
    let names = ["crs_wkt", "spatial_ref", "epsg_code"];
    if names.iter().any(|name| some(members, name).is_some()) {
        return Mapped::System(one_of(members, &names, notes));
    }
    let name = some(members, "grid_mapping_name").and_then(Json::as_str);
    if !is_only {
        return match name {
            None => Mapped::Kind(None),
            Some("latitude_longitude") => Mapped::Kind(Some(Kind::Geographic)),
            Some("rotated_latitude_longitude") => {
                notes.add("the grid mapping has no code of EPSG");
                Mapped::System(None)
            }
            Some(_) => Mapped::Kind(Some(Kind::Projected)),
        };
    }
    if name != Some("latitude_longitude") {
        notes.add("the grid mapping has no code of EPSG");
        return Mapped::System(None);
    }
    let figure = ["semi_major_axis", "inverse_flattening"];
    let is_figure = figure.iter().all(|name| some(members, name).is_some());
    let is_in_degrees =
        sides.0.is_in_degrees(Direction::Across) && sides.1.is_in_degrees(Direction::Down);
    if is_wgs84(members) && (is_figure || is_in_degrees) {
        return Mapped::System(Some(Crs::wgs84()));
    }
    notes.add("latitudes and longitudes that are not known to be of WGS 84");
    Mapped::System(None)
}

/// The system that the members say with one voice.
fn one_of(members: &Map<String, Json>, names: &[&str], notes: &mut Notes) -> Option<Crs> {
    let mut found: Option<Crs> = None;
    let mut reasons = Vec::new();
    for name in names {
        let crs = match some(members, name) {
            None => continue,
            Some(Json::String(text)) => Crs::of_text(text),
            Some(value @ Json::Object(_)) => Crs::of_projjson(value),
            Some(Json::Number(code)) if *name == "epsg_code" => {
                Crs::of_text(&format!("EPSG:{code}"))
            }
            Some(_) => Err("neither a text nor an object".to_owned()),
        };
        match (crs, found) {
            (Ok(crs), Some(other)) if crs != other => {
                notes.add(format!(
                    "EPSG:{} and EPSG:{}: no system is written",
                    other.code, crs.code
                ));
                return None;
            }
            (Ok(crs), _) => found = Some(crs),
            (Err(why), _) => reasons.push(format!("{name}: {why}")),
        }
    }
    if found.is_none() {
        notes.add(format!(
            "no coordinate reference system: {}",
            reasons.join("; ")
        ));
    }
    found
}

/// Whether nothing that CF says of a figure of the Earth (CF 1.11, Appendix F) is another one than
/// that of WGS 84.
fn is_wgs84(members: &Map<String, Json>) -> bool {
    let is_near = |name: &str, expected: f64, most: f64| {
        let value = some(members, name);
        value
            .is_none_or(|value| number(value).is_some_and(|value| (value - expected).abs() <= most))
    };
    let is_named = |name: &str| {
        let text = some(members, name).map(|value| value.as_str().unwrap_or("?"));
        text.is_none_or(|text| {
            let text: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
            let text = text.to_ascii_uppercase();
            [
                "WGS84",
                "WGS1984",
                "WORLDGEODETICSYSTEM1984",
                "GREENWICH",
                "UNKNOWN",
                "",
            ]
            .contains(&&text[..])
        })
    };
    is_near("semi_major_axis", 6_378_137.0, 1e-3)
        && is_near("semi_minor_axis", 6_356_752.314_245, 1e-3)
        && is_near("inverse_flattening", 298.257_223_563, 1e-7)
        && is_near("longitude_of_prime_meridian", 0.0, 0.0)
        && some(members, "earth_radius").is_none()
        && some(members, "towgs84").is_none()
        && [
            "horizontal_datum_name",
            "geographic_crs_name",
            "reference_ellipsoid_name",
            "prime_meridian_name",
        ]
        .iter()
        .all(|name| is_named(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_not_contradicted_is_wgs_84() {
        let check = |members: Json| is_wgs84(members.as_object().unwrap());
        assert!(check(json!({})));
        assert!(check(
            json!({"semi_major_axis": 6_378_137.0, "inverse_flattening": 298.257_223_563})
        ));
        assert!(check(json!({"horizontal_datum_name": "WGS_1984"})));
        for other in [
            json!({"earth_radius": 6_371_229.0}),
            json!({"inverse_flattening": 298.257_222_101}),
            json!({"semi_major_axis": "6378137"}),
            json!({"longitude_of_prime_meridian": 2.3}),
            json!({"prime_meridian_name": "Paris"}),
        ] {
            assert!(!check(other.clone()), "{other}");
        }
    }
}
