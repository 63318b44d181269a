//! The coordinate reference system that all metadata around an array agree on.

use serde_json::{Map, Value as Json};

use super::axis::Axis;
use super::context::{Context, Notes, some};
use super::raster::Raster;
use crate::conventions::cf::mapping_system::{self, MappingReader, MappingSystem};
use crate::conventions::crs::Crs;
use crate::conventions::{gdal, geozarr};
use crate::node::ViewNode;

/// A member of attributes that declares a system, as a text or as PROJJSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemMember {
    pub(crate) name: &'static str,
    /// Whether the member may be a number: a code of EPSG.
    pub(crate) is_code: bool,
}

impl SystemMember {
    pub(crate) const fn text(name: &'static str) -> Self {
        let is_code = false;
        Self { name, is_code }
    }

    pub(crate) const fn code(name: &'static str) -> Self {
        let is_code = true;
        Self { name, is_code }
    }

    /// Returns whether attributes have one of these members.
    pub(crate) fn is_any_in(all: &[Self], members: &Map<String, Json>) -> bool {
        all.iter().any(|own| some(members, own.name).is_some())
    }
}

/// Whether the conventions declare a system for an array, by its attributes and those around it.
const OF_ARRAY: [fn(&Context<'_>) -> bool; 3] = [
    mapping_system::is_declared,
    gdal::is_system_declared,
    geozarr::is_system_declared,
];

/// Returns whether a node with these attributes declares a system.
type DeclaresSystem = fn(&ViewNode, &Map<String, Json>) -> bool;

/// Whether attributes of a node declare a system for it or its arrays in the conventions, except for the grid mappings
/// of CF.
const OF_NODE: [DeclaresSystem; 3] = [
    |_, members| geozarr::says_crs(members) || geozarr::levels_say_crs(members),
    |_, members| gdal::has_system(members),
    |node, members| node.is_array() && mapping_system::is_of_array(members),
];

/// Returns whether attributes may declare a system.
pub(crate) fn may_have_crs(context: &Context<'_>) -> bool {
    OF_ARRAY.iter().any(|is_declared| is_declared(context))
}

/// Returns whether a node may declare a system for itself or its arrays by other conventions than CF.
pub(crate) fn may_give_crs(node: &ViewNode) -> bool {
    let attributes = node.metadata().attributes();
    attributes.is_ok_and(|members| OF_NODE.iter().any(|may_give| may_give(node, members)))
}

/// Returns the coordinate reference system on which all metadata that declare one agree. Each convention reads its own;
/// a system that it cannot read is `None`.
pub(crate) fn crs(
    context: &Context<'_>,
    raster: &Raster,
    grid_mapping: Option<&ViewNode>,
    spatial_axes: (&Axis, &Axis),
    notes: &mut Notes,
) -> Option<Crs> {
    let mut systems = geozarr::systems(context, raster, notes);
    systems.extend(gdal::system(context, notes));
    let reader = MappingReader {
        spatial_axes,
        is_only: systems.is_empty(),
        assumes_wgs84: context.nodes.assumes_wgs84(),
    };
    let kind = match grid_mapping.map(|node| reader.read(node, notes)) {
        None => None,
        Some(MappingSystem::System(crs)) => {
            systems.push(crs);
            None
        }
        Some(MappingSystem::CrsKind(kind)) => kind,
    };
    if systems.is_empty() {
        systems.extend(mapping_system::of_array(context, notes));
    }
    if systems.is_empty() {
        if let Some(key) = geozarr::group_with_system(context) {
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

/// Returns the system on which these members agree: by code, else by WKT. PROJJSON without a code counts only
/// without the others.
pub(crate) fn one_of(
    members: &Map<String, Json>,
    declarations: &[SystemMember],
    notes: &mut Notes,
) -> Option<Crs> {
    let mut found: Option<Crs> = None;
    let mut reasons = Vec::new();
    for SystemMember { name, is_code } in declarations {
        let is_object = some(members, name).is_some_and(Json::is_object);
        let crs = match some(members, name) {
            None => continue,
            Some(Json::String(text)) => Crs::of_text(text),
            Some(value @ Json::Object(_)) => Crs::of_projjson(value),
            Some(Json::Number(code)) if *is_code => Crs::of_text(&format!("EPSG:{code}")),
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
