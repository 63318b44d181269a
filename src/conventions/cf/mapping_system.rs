//! The coordinate reference system of a grid mapping of CF, and of an array with such attributes of its own.

use serde_json::{Map, Value as Json};

use super::names::GRID_MAPPING;
use super::wkt;
use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::CrsKind;
use crate::conventions::crs::proj_text::is_proj_text;
use crate::conventions::georef::axis::Axis;
use crate::conventions::georef::context::{Context, Notes, number, some};
use crate::conventions::georef::crs_metadata::{SystemMember, one_of};
use crate::conventions::georef::raster::Direction;
use crate::node::ViewNode;

/// Attributes of a grid mapping that declare a system: WKT (CF 1.11, 5.6.1; GDAL) and codes.
const TEXTS: [SystemMember; 3] = [
    SystemMember::text("crs_wkt"),
    SystemMember::text("spatial_ref"),
    SystemMember::code("epsg_code"),
];
/// Attributes that count only without those of [`TEXTS`]: WKT of ESRI, PROJ strings.
const OLD_TEXTS: [SystemMember; 5] = [
    SystemMember::text("esri_pe_string"),
    SystemMember::text("proj4"),
    SystemMember::text("proj4_params"),
    SystemMember::text("proj4_string"),
    SystemMember::text("proj4text"),
];

/// Returns the list of members of which one exists; `None` if neither list has one.
fn texts(members: &Map<String, Json>) -> Option<&'static [SystemMember]> {
    let lists = [&TEXTS[..], &OLD_TEXTS];
    lists
        .into_iter()
        .find(|list| SystemMember::is_any_in(list, members))
}

/// Returns whether attributes are those of a grid mapping with a system.
pub(crate) fn has_system(members: &Map<String, Json>) -> bool {
    texts(members).is_some() || wkt::mapping_name(members).is_some()
}

/// Returns the same for the attributes of an array without a grid mapping, if one is a system. A name alone is
/// no system.
fn own_texts(members: &Map<String, Json>) -> Option<&'static [SystemMember]> {
    let is_text = |own: &SystemMember| {
        let text = some(members, own.name).and_then(Json::as_str);
        text.is_some_and(|text| {
            let text = text.trim();
            text.contains(['[', '(']) || is_proj_text(text)
        })
    };
    let names = texts(members)?;
    let is_system = some(members, GRID_MAPPING).is_none() && names.iter().any(is_text);
    is_system.then_some(names)
}

/// Returns whether an array names a grid mapping, or has the attributes of one.
pub(crate) fn is_declared(context: &Context<'_>) -> bool {
    let own = context.view.array.attributes.as_ref();
    context.own(GRID_MAPPING).is_some() || own.is_ok_and(is_of_array)
}

/// Returns whether attributes of an array without a grid mapping declare a system.
pub(crate) fn is_of_array(members: &Map<String, Json>) -> bool {
    own_texts(members).is_some()
}

/// Returns the system of an array without a grid mapping; the inner `None` if it cannot be read.
pub(crate) fn of_array(context: &Context<'_>, notes: &mut Notes) -> Option<Option<Crs>> {
    let members = context.view.array.attributes.as_ref().ok()?;
    Some(one_of(members, own_texts(members)?, notes))
}

/// The system of a grid mapping.
pub(crate) enum MappingSystem {
    /// The system; `None` if it cannot be read.
    System(Option<Crs>),
    /// The kind of the system, if known. The system itself is not read.
    CrsKind(Option<CrsKind>),
}

/// What decides on the system of a grid mapping beside its attributes.
pub(crate) struct MappingReader<'a> {
    /// The x and y axes.
    pub(crate) spatial_axes: (&'a Axis, &'a Axis),
    /// Whether no other metadata declare a system.
    pub(crate) is_only: bool,
    /// Whether a missing figure of the Earth is that of WGS 84.
    pub(crate) assumes_wgs84: bool,
}

impl MappingReader<'_> {
    /// Reads the system of the node of a grid mapping.
    pub(crate) fn read(&self, mapping: &ViewNode, notes: &mut Notes) -> MappingSystem {
        match mapping.metadata().attributes() {
            Ok(members) => self.read_members(members, notes),
            Err(_) => {
                notes.add("the attributes of the grid mapping are not known");
                MappingSystem::System(None)
            }
        }
    }

    fn read_members(&self, members: &Map<String, Json>, notes: &mut Notes) -> MappingSystem {
        if let Some(names) = texts(members) {
            return MappingSystem::System(one_of(members, names, notes));
        }
        let name = wkt::mapping_name(members);
        if !self.is_only {
            return match name {
                None => MappingSystem::CrsKind(None),
                Some("latitude_longitude") => MappingSystem::CrsKind(Some(CrsKind::Geographic)),
                Some("rotated_latitude_longitude") => {
                    MappingSystem::CrsKind(Some(CrsKind::RotatedPole))
                }
                Some(_) => MappingSystem::CrsKind(Some(CrsKind::Projected)),
            };
        }
        let figure = ["semi_major_axis", "inverse_flattening"];
        let is_figure = figure.iter().all(|name| some(members, name).is_some());
        let is_in_degrees = self.spatial_axes.0.is_in_degrees(Direction::Across)
            && self.spatial_axes.1.is_in_degrees(Direction::Down);
        let is_plain = name == Some("latitude_longitude") && is_wgs84(members);
        if is_plain && (is_figure || is_in_degrees) {
            return MappingSystem::System(Crs::wgs84().ok());
        }
        let wkt = wkt::wkt(members, self.assumes_wgs84);
        let crs = wkt.and_then(|wkt| Crs::of_wkt(&wkt));
        if let Err(why) = &crs {
            notes.add(format!("no system is known of the grid mapping: {why}"));
        }
        MappingSystem::System(crs.ok())
    }
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
