//! The coordinate reference system that all metadata around an array agree on.

use serde_json::{Map, Value as Json};

use super::axis::Axis;
use super::context::{AttributeSource, Context, Notes, number, some};
use super::raster::{Direction, Raster};
use crate::conventions::cf::names::GRID_MAPPING;
use crate::conventions::cf::wkt as cf_wkt;
use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::CrsKind;
use crate::conventions::crs::proj_text::is_proj_text;
use crate::conventions::gdal;
use crate::conventions::geozarr::{self, PROJ, says_crs};
use crate::node::ViewNode;

/// Returns the coordinate reference system on which all metadata that declare one agree.
pub(crate) fn crs(
    context: &Context<'_>,
    raster: &Raster,
    grid_mapping: Option<&ViewNode>,
    spatial_axes: (&Axis, &Axis),
    notes: &mut Notes,
) -> Option<Crs> {
    let mut systems = Vec::new();
    for (source, members) in context.sources().filter(|(_, members)| says_crs(members)) {
        if source != AttributeSource::Own
            && geozarr::names_axes(members)
            && !geozarr::has_axes(context, source, members, raster)
        {
            notes.add("the system of the group is that of other axes (spatial:dimensions)");
            continue;
        }
        systems.push(one_of(members, &PROJ, notes));
        // The array overrides its group (zarr-conventions/geo-proj, "Inheritance").
        if source == AttributeSource::Own {
            break;
        }
    }
    if let Some(members) = gdal::system(context, notes) {
        systems.push(members.and_then(|members| one_of(members, &gdal::SYSTEM, notes)));
    }
    let kind = match grid_mapping.map(|node| node.metadata().attributes()) {
        None => None,
        Some(Err(_)) => {
            notes.add("the attributes of the grid mapping are not known");
            systems.push(None);
            None
        }
        Some(Ok(members)) => {
            let reader = GridMappingReader {
                spatial_axes,
                is_only: systems.is_empty(),
                assumes_wgs84: context.nodes.assumes_wgs84(),
            };
            match reader.read(members, notes) {
                GridMappingCrs::System(crs) => {
                    systems.push(crs);
                    None
                }
                GridMappingCrs::CrsKind(kind) => kind,
            }
        }
    };
    if systems.is_empty()
        && let Ok(members) = &context.view.array.attributes
        && let Some(names) = own_texts(members)
    {
        systems.push(one_of(members, names, notes));
    }
    if systems.is_empty() {
        let above = context.above().find(|(_, members)| says_crs(members));
        if let Some((key, _)) = above {
            notes.add(format!(
                "the system of the group {key} is not inherited: neither is this one of its arrays \
                 nor of its pyramid"
            ));
        }
        return None;
    }
    let crs = agreed(&systems, notes)?;
    if kind.is_some_and(|kind| kind != crs.kind) {
        notes.add(format!(
            "{} is left out: the grid mapping is of another kind",
            crs.name()
        ));
        return None;
    }
    Some(crs)
}

/// Returns the system that all declarations have; a declaration that cannot be read is `None`.
fn agreed(systems: &[Option<Crs>], notes: &mut Notes) -> Option<Crs> {
    let (first, others) = systems.split_first()?;
    let is_first = |other: &Option<Crs>| match (other, first) {
        (Some(other), Some(first)) => other.is_same(first),
        (None, None) => true,
        _ => false,
    };
    if !others.iter().all(is_first) {
        let name = |crs: &Option<Crs>| crs.as_ref().map_or("another one".into(), Crs::name);
        let mut names: Vec<String> = systems.iter().map(name).collect();
        names.dedup();
        notes.add(format!("{}: no system is written", names.join(" and ")));
        return None;
    }
    first.clone()
}

/// Attributes of a grid mapping that declare a system: WKT (CF 1.11, 5.6.1; GDAL) and codes.
const TEXTS: [&str; 3] = ["crs_wkt", "spatial_ref", "epsg_code"];
/// Attributes that count only without those of [`TEXTS`]: WKT of ESRI, PROJ strings.
const OLD_TEXTS: [&str; 5] = [
    "esri_pe_string",
    "proj4",
    "proj4_params",
    "proj4_string",
    "proj4text",
];

/// Returns the list of names of which an attribute exists; `None` if neither list has one.
fn texts(members: &Map<String, Json>) -> Option<&'static [&'static str]> {
    let is_there = |names: &&[&str]| names.iter().any(|name| some(members, name).is_some());
    [&TEXTS[..], &OLD_TEXTS].into_iter().find(is_there)
}

/// Returns whether attributes are those of a grid mapping with a system.
pub(crate) fn has_crs(members: &Map<String, Json>) -> bool {
    texts(members).is_some() || cf_wkt::mapping_name(members).is_some()
}

/// Returns the same for the attributes of an array without a grid mapping, if one is a system. A name alone is
/// no system.
fn own_texts(members: &Map<String, Json>) -> Option<&'static [&'static str]> {
    let is_text = |name: &&str| {
        let text = some(members, name).and_then(Json::as_str);
        text.is_some_and(|text| {
            let text = text.trim();
            text.contains(['[', '(']) || is_proj_text(text)
        })
    };
    let names = texts(members)?;
    let is_system = some(members, GRID_MAPPING).is_none() && names.iter().any(is_text);
    is_system.then_some(names)
}

/// Returns whether attributes may declare a system.
pub(crate) fn may_have_crs(context: &Context<'_>) -> bool {
    let own = context.view.array.attributes.as_ref();
    context.own(GRID_MAPPING).is_some()
        || own.is_ok_and(gdal::has_system)
        || own.is_ok_and(|members| own_texts(members).is_some())
        || context.sources().any(|(_, members)| says_crs(members))
}

/// Returns whether a node may declare a system for itself or its arrays by other conventions than CF.
pub(crate) fn may_give_crs(node: &ViewNode) -> bool {
    node.metadata().attributes().is_ok_and(|members| {
        says_crs(members)
            || gdal::has_system(members)
            || (node.is_array() && own_texts(members).is_some())
            || geozarr::levels_say_crs(members)
    })
}

/// The system of a grid mapping.
enum GridMappingCrs {
    /// The system; `None` if it cannot be read.
    System(Option<Crs>),
    /// The kind of the system, if known. The system itself is not read.
    CrsKind(Option<CrsKind>),
}

/// What decides on the system of a grid mapping beside its attributes.
struct GridMappingReader<'a> {
    /// The x and y axes.
    spatial_axes: (&'a Axis, &'a Axis),
    /// Whether no other metadata declare a system.
    is_only: bool,
    assumes_wgs84: bool,
}

impl GridMappingReader<'_> {
    fn read(&self, members: &Map<String, Json>, notes: &mut Notes) -> GridMappingCrs {
        if let Some(names) = texts(members) {
            return GridMappingCrs::System(one_of(members, names, notes));
        }
        let name = cf_wkt::mapping_name(members);
        if !self.is_only {
            return match name {
                None => GridMappingCrs::CrsKind(None),
                Some("latitude_longitude") => GridMappingCrs::CrsKind(Some(CrsKind::Geographic)),
                Some("rotated_latitude_longitude") => {
                    GridMappingCrs::CrsKind(Some(CrsKind::RotatedPole))
                }
                Some(_) => GridMappingCrs::CrsKind(Some(CrsKind::Projected)),
            };
        }
        let figure = ["semi_major_axis", "inverse_flattening"];
        let is_figure = figure.iter().all(|name| some(members, name).is_some());
        let is_in_degrees = self.spatial_axes.0.is_in_degrees(Direction::Across)
            && self.spatial_axes.1.is_in_degrees(Direction::Down);
        let is_plain = name == Some("latitude_longitude") && is_wgs84(members);
        if is_plain && (is_figure || is_in_degrees) {
            return GridMappingCrs::System(Crs::wgs84().ok());
        }
        let wkt = cf_wkt::wkt(members, self.assumes_wgs84);
        let crs = wkt.and_then(|wkt| Crs::of_wkt(&wkt));
        if let Err(why) = &crs {
            notes.add(format!("no system is known of the grid mapping: {why}"));
        }
        GridMappingCrs::System(crs.ok())
    }
}

/// Returns the system on which these members agree: by code, else by WKT. PROJJSON without a code counts only
/// without the others.
fn one_of(members: &Map<String, Json>, names: &[&str], notes: &mut Notes) -> Option<Crs> {
    let mut found: Option<Crs> = None;
    let mut reasons = Vec::new();
    for name in names {
        let is_object = some(members, name).is_some_and(Json::is_object);
        let crs = match some(members, name) {
            None => continue,
            Some(Json::String(text)) => Crs::of_text(text),
            Some(value @ Json::Object(_)) => Crs::of_projjson(value),
            Some(Json::Number(code)) if matches!(*name, "epsg_code" | "proj:epsg") => {
                Crs::of_text(&format!("EPSG:{code}"))
            }
            Some(_) => Err("neither a text nor an object".to_owned()),
        };
        match (crs, &found) {
            (Ok(crs), Some(other)) if crs.is_same(other) => {}
            (Ok(crs), Some(_)) if crs.code.is_none() && is_object => {}
            (Ok(crs), Some(other))
                if crs.code.is_some() == other.code.is_some() || crs.kind != other.kind =>
            {
                notes.add(format!(
                    "{} and {}: no system is written",
                    other.name(),
                    crs.name()
                ));
                return None;
            }
            (Ok(_), Some(other)) if other.code.is_some() => {}
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

/// Returns whether the figure of the Earth in CF attributes (CF 1.11, Appendix F) is consistent with WGS 84.
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
    fn a_crs_without_contradicting_parameters_is_wgs_84() {
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
