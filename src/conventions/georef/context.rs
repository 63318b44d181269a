//! The nodes whose metadata georeference an array: its groups, and the pyramid that contains it as a level.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::conventions::{geozarr, ome};
use crate::node::{ArrayView, ContentError, NodeResolver, ViewNode};
use crate::store::Key;

/// Notes on metadata that are left out, with the reasons.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<String>);

const MAX_NOTES: usize = 100;

impl Notes {
    pub(crate) fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if self.0.len() < MAX_NOTES && !self.0.contains(&note) {
            self.0.push(note);
        }
    }
}

/// An array and the nodes whose metadata apply to it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) view: &'a ArrayView<'a>,
    pub(crate) nodes: &'a dyn NodeResolver,
    groups: &'a Groups,
}

/// The groups above an array.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The groups, nearest first.
    ancestors: Vec<Arc<ViewNode>>,
    level: Option<PyramidLevel>,
}

/// The pyramid that contains an array as a level.
#[derive(Debug)]
struct PyramidLevel {
    /// The group of the pyramid, as an index into the groups above.
    group: usize,
    /// The entry of this level in the layout.
    entry: Map<String, Json>,
    /// The same array in the other levels, with their entries.
    others: Vec<(Key, Map<String, Json>)>,
}

/// The source of attributes of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeSource {
    /// The array.
    Own,
    /// The entry of the array's level in the layout of the pyramid.
    Level,
    /// The group of the array.
    Group,
    /// The group of the pyramid.
    Pyramid,
}

/// The same array in another level, and the entry of that level.
pub(crate) type OtherLevel<'a> = (Arc<ViewNode>, &'a Map<String, Json>);

/// The maximum number of groups above an array.
const MAX_ANCESTORS: usize = 64;

impl Groups {
    /// Finds the groups above an array.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn above(
        view: &ArrayView<'_>,
        nodes: &dyn NodeResolver,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let mut groups = Self::default();
        let mut key = view.node.key().clone();
        for _ in 0..MAX_ANCESTORS {
            if key.is_root() {
                break;
            }
            key = key.parent();
            let Some(node) = nodes.node(&key)? else {
                continue;
            };
            if node.metadata().attributes().is_err() {
                notes.add(format!("the attributes of {key} are not known"));
            }
            for problem in node.problems() {
                notes.add(format!("the group {key}: {problem}"));
            }
            groups.ancestors.push(node);
        }
        if view.array.attributes.is_err() {
            notes.add("its attributes are not known");
        }
        groups.level = groups.find_level(view.node.key());
        if groups.level.is_none() {
            groups.level = groups.find_numbered_level(view.node.key(), nodes)?;
        }
        Ok(groups)
    }

    /// Finds the level of an xcube pyramid: the groups `0.zarr`, `1.zarr` and so on in a directory without
    /// metadata.
    fn find_numbered_level(
        &self,
        key: &Key,
        nodes: &dyn NodeResolver,
    ) -> Result<Option<PyramidLevel>, ContentError> {
        let is_number = |text: &str| text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        let found = self.ancestors.iter().enumerate().find(|(_, group)| {
            let number = group.name().strip_suffix(".zarr");
            number.is_some_and(is_number) && group.metadata().as_array().is_none()
        });
        let Some((place, own)) = found else {
            return Ok(None);
        };
        let pyramid = own.key().parent();
        let Some(below) = key.as_bytes().get(own.key().as_bytes().len() + 1..) else {
            return Ok(None);
        };
        let mut others = Vec::new();
        for number in 0..MAX_LEVELS {
            let level = format!("{number}.zarr");
            let level = Key::new(level.as_bytes()).map(|level| pyramid.join_key(&level));
            let (Ok(level), Ok(below)) = (level, Key::new(below)) else {
                return Ok(None);
            };
            let array = level.join_key(&below);
            if array == *key {
                continue;
            }
            match nodes.node(&array)? {
                Some(node) if node.is_array() || node.broken().is_some() => {
                    others.push((array, Map::new()));
                }
                _ => break,
            }
        }
        Ok((!others.is_empty()).then_some(PyramidLevel {
            group: place + 1,
            entry: Map::new(),
            others,
        }))
    }

    fn find_level(&self, key: &Key) -> Option<PyramidLevel> {
        self.ancestors
            .iter()
            .enumerate()
            .find_map(|(place, group)| {
                let below = key.as_bytes().get(group.key().as_bytes().len()..)?;
                let below = std::str::from_utf8(below).ok()?.trim_start_matches('/');
                let (entry, others) = level_in(members(group)?, below)?;
                let others = others.into_iter().filter_map(|(other, entry)| {
                    let other = Key::new(other.as_bytes()).ok()?;
                    Some((group.key().join_key(&other), entry))
                });
                Some(PyramidLevel {
                    group: place,
                    entry,
                    others: others.collect(),
                })
            })
    }
}

fn members(node: &ViewNode) -> Option<&Map<String, Json>> {
    node.metadata().attributes().ok()
}

/// The entry of a level in a layout.
pub(crate) type Entry = Map<String, Json>;

/// The levels of a pyramid: the paths of their groups or arrays, and their entries.
pub(crate) type Levels<'a> = Vec<(&'a str, Cow<'a, Entry>)>;

/// The maximum number of levels of a pyramid, and of pyramids of a group.
pub(crate) const MAX_LEVELS: usize = 64;

/// The pyramids that the conventions find in the attributes of a group: the first one that has an array is its pyramid.
const PYRAMIDS: [fn(&Entry) -> Vec<Levels<'_>>; 2] = [geozarr::pyramids, ome::pyramids];

/// Returns the entry of the array at the path `below` in a pyramid of a group, and the paths and entries of the other
/// levels.
fn level_in(attributes: &Entry, below: &str) -> Option<(Entry, Vec<(String, Entry)>)> {
    let mut pyramids = PYRAMIDS.iter().flat_map(|find| find(attributes));
    pyramids.find_map(|levels| level_of(&levels, below))
}

/// Returns the levels of a list of entries, whose `member` is the path.
pub(crate) fn listed_levels<'a>(entries: &'a Json, member: &str) -> Levels<'a> {
    let entries = entries.as_array().into_iter().flatten().take(MAX_LEVELS);
    let level = |entry: &'a Json| {
        let entry = entry.as_object()?;
        Some((entry.get(member)?.as_str()?, Cow::Borrowed(entry)))
    };
    entries.filter_map(level).collect()
}

/// Returns the same for the levels of one pyramid.
fn level_of(levels: &Levels<'_>, below: &str) -> Option<(Entry, Vec<(String, Entry)>)> {
    let levels = levels.iter().filter_map(|(path, entry)| {
        let path = path.strip_prefix("./").unwrap_or(path);
        let path = path.trim_end_matches('/');
        (!path.is_empty()).then_some((path, entry))
    });
    let (own, rest) = levels.clone().find_map(|(path, entry)| {
        let rest = below.strip_prefix(path)?;
        let is_level = rest.is_empty() || rest.starts_with('/');
        is_level.then_some((entry, rest))
    })?;
    let others = levels
        .map(|(path, entry)| (format!("{path}{rest}"), entry.clone().into_owned()))
        .filter(|(path, _)| path != below);
    Some((own.clone().into_owned(), others.collect()))
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        view: &'a ArrayView<'a>,
        nodes: &'a dyn NodeResolver,
        groups: &'a Groups,
    ) -> Self {
        Self {
            view,
            nodes,
            groups,
        }
    }

    /// Returns an attribute of the array itself.
    pub(crate) fn own(&self, name: &str) -> Option<&'a Json> {
        let value = self.view.array.attribute(name);
        value.filter(|value| !value.is_null())
    }

    /// Returns the attributes that apply to the array by the conventions of GeoZarr, nearest first: of the
    /// array, of the entry of its level, of its group, and of the pyramid. Only the direct arrays of a group
    /// inherit its attributes.
    pub(crate) fn sources(
        &self,
    ) -> impl Iterator<Item = (AttributeSource, &'a Map<String, Json>)> + use<'a> {
        let own = self.view.array.attributes.as_ref().ok();
        let level = self.groups.level.as_ref();
        // Attributes of a pyramid do not apply to each of its levels.
        let parent = self.groups.ancestors.first();
        let parent = parent.filter(|_| level.is_none_or(|level| level.group != 0));
        let named = |source| move |members| (source, members);
        own.into_iter()
            .map(named(AttributeSource::Own))
            .chain(self.level_entry().map(named(AttributeSource::Level)))
            .chain(
                parent
                    .and_then(|parent| members(parent))
                    .map(named(AttributeSource::Group)),
            )
            .chain(self.pyramid().map(named(AttributeSource::Pyramid)))
    }

    /// Returns the layout's entry of the array's level.
    pub(crate) fn level_entry(&self) -> Option<&'a Map<String, Json>> {
        self.groups.level.as_ref().map(|level| &level.entry)
    }

    /// Returns the layout's entries of all levels.
    pub(crate) fn level_entries(&self) -> Vec<&'a Map<String, Json>> {
        let others = self.groups.level.iter().flat_map(|level| &level.others);
        let others = others.map(|(_, entry)| entry);
        self.level_entry().into_iter().chain(others).collect()
    }

    /// Returns the attributes of the group of the pyramid.
    pub(crate) fn pyramid(&self) -> Option<&'a Map<String, Json>> {
        let level = self.groups.level.as_ref()?;
        members(self.groups.ancestors.get(level.group)?)
    }

    /// Returns the attributes of all groups above.
    pub(crate) fn above(&self) -> impl Iterator<Item = (&'a Key, &'a Map<String, Json>)> + use<'a> {
        let groups = self.groups.ancestors.iter();
        groups.filter_map(|group| Some((group.key(), members(group)?)))
    }

    /// Returns the nearest attribute of this name that applies to the array.
    pub(crate) fn find(&self, name: &str) -> Option<&'a Json> {
        self.sources().find_map(|(_, members)| some(members, name))
    }

    /// Returns the array of this name in the same group, or in the nearest group above (CF 1.11, 2.7: search
    /// by proximity); or an invalid node of this name.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn by_proximity(&self, name: &str) -> Result<Option<Arc<ViewNode>>, ContentError> {
        if let Some(path) = name.strip_prefix('/') {
            return match Key::new(path.as_bytes()) {
                Ok(key) => self.array_at(&key),
                Err(_) => Ok(None),
            };
        }
        for group in &self.groups.ancestors {
            let Ok(below) = Key::new(name.as_bytes()) else {
                return Ok(None);
            };
            if below.is_root() {
                return Ok(None);
            }
            if let Some(node) = self.array_at(&group.key().join_key(&below))? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Returns the array of this name in the group of the array.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn in_group(&self, name: &str) -> Result<Option<Arc<ViewNode>>, ContentError> {
        let group = self.groups.ancestors.first();
        match group.and_then(|group| group.key().join(name.as_bytes()).ok()) {
            Some(key) if key != *self.view.node.key() => self.array_at(&key),
            _ => Ok(None),
        }
    }

    /// Returns the array at a key, or an invalid node, which may be an array.
    fn array_at(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, ContentError> {
        let node = self.nodes.node(key)?;
        Ok(node.filter(|node| node.is_array() || node.broken().is_some()))
    }

    /// Returns the coordinates of a dimension: the array with its name in the same group, or an invalid node
    /// of this name; else the coordinates of this name and length in the nearest group above, which the groups
    /// of an xarray DataTree inherit.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn coordinate(
        &self,
        dimension: &str,
        length: u64,
    ) -> Result<Option<Arc<ViewNode>>, ContentError> {
        for (distance, group) in self.groups.ancestors.iter().enumerate() {
            let Ok(key) = group.key().join(dimension.as_bytes()) else {
                return Ok(None);
            };
            if key == *self.view.node.key() {
                return Ok(None);
            }
            if let Some(node) = self.array_at(&key)?
                && (distance == 0 || node.is_coordinate_of(dimension, length))
            {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Returns the arrays of the other levels of the pyramid, with their entries.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn other_levels(
        &self,
        notes: &mut Notes,
    ) -> Result<Vec<OtherLevel<'a>>, ContentError> {
        let mut found = Vec::new();
        for (key, entry) in self.groups.level.iter().flat_map(|level| &level.others) {
            match self.array_at(key)? {
                Some(node) => match node.broken() {
                    Some(why) => notes.add(format!("{key} is no overview: {why}")),
                    None => found.push((node, entry)),
                },
                None => notes.add(format!("overviews: there is no array {key}")),
            }
        }
        Ok(found)
    }
}

/// Returns a member that is not null.
pub(crate) fn some<'a>(members: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    members.get(name).filter(|value| !value.is_null())
}

/// Returns a name for a message, truncated to 60 characters.
pub(crate) fn short(name: &str) -> String {
    name.escape_debug().take(60).collect()
}

/// Returns a finite number.
pub(crate) fn number(value: &Json) -> Option<f64> {
    value.as_f64().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn level(attributes: Json, below: &str) -> Option<(Entry, Vec<String>)> {
        let (entry, others) = level_in(attributes.as_object().unwrap(), below)?;
        Some((entry, others.into_iter().map(|(path, _)| path).collect()))
    }

    #[test]
    fn an_array_is_found_in_its_pyramid() {
        let layout = json!({"multiscales": {"layout": [
            {"asset": "r10m", "n": 1}, {"asset": "./r20m/", "n": 2}, {"asset": "r2", "n": 3},
        ]}});
        let (entry, others) = level(layout.clone(), "r20m/B02").unwrap();
        assert_eq!(entry["n"], 2);
        assert_eq!(others, ["r10m/B02", "r2/B02"]);
        let (entry, others) = level(layout.clone(), "r10m").unwrap();
        assert_eq!((entry["n"].as_u64(), others.len()), (Some(1), 2));
        assert!(level(layout.clone(), "r30m/B02").is_none());
        assert!(level(layout, "r10mm").is_none());
        let datasets = json!([{"datasets": [{"path": "0"}, {"path": "1"}]}]);
        for ngff in [
            json!({"multiscales": datasets}),
            json!({"ome": {"multiscales": datasets}}),
        ] {
            assert_eq!(level(ngff.clone(), "0").unwrap().1, ["1"]);
            // ndpyramid has groups in place of the arrays of OME-NGFF.
            assert_eq!(level(ngff, "0/x").unwrap().1, ["1/x"]);
        }
        let two = json!({"multiscales": [
            {"datasets": [{"path": "a"}]}, {"datasets": [{"path": "b/0"}, {"path": "b/1"}]},
        ]});
        assert_eq!(level(two, "b/0").unwrap().1, ["b/1"]);
        let matrices = json!([{"id": "0", "cellSize": 10.0}, {"id": "1"}, {"id": "2"}]);
        for set in [
            json!({"multiscales": {"tile_matrix_set": {"tileMatrices": matrices}}}),
            json!({"multiscales": {"tile_matrix_set": "WebMercatorQuad",
                                   "tile_matrix_limits": {"0": {}, "1": {}, "2": {}}}}),
        ] {
            assert_eq!(level(set, "1/b02").unwrap().1, ["0/b02", "2/b02"]);
        }
        for wrong in [
            json!({}),
            json!({"multiscales": 1}),
            json!({"multiscales": {"layout": 1}}),
            json!({"multiscales": {"layout": [1, {"asset": 2}, {"asset": ""}]}}),
            json!({"multiscales": []}),
        ] {
            assert!(level(wrong, "0").is_none());
        }
    }
}
