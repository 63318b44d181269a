//! A group in the style of `ncdump -h`: its dimensions, arrays and groups. Only its own children are read.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::describe::type_name;
use super::entry::Entry;
use super::node::{self, NodeState};
use super::stored::{CountBudget, StoredChunkCounts, is_free};
use super::totals::Totals;
use super::values::{ReadValues, is_coordinate, read_ends};
use crate::array::Engine;
use crate::store::{Key, Store, map_concurrent};
use crate::zarr::{Array, Node};

/// The largest number of children that are shown.
const MAX_CHILDREN: usize = 1000;
/// The largest number of keys that are counted for the stored sizes, and the time limit for that.
const MAX_COUNTED: u64 = 1_000_000;
const COUNT_LIMIT: Duration = Duration::from_secs(5);

/// An array, with its values and stored chunks.
#[derive(Debug)]
pub(super) struct ArraySummary {
    pub(super) name: String,
    pub(super) array: Box<Array>,
    /// The first and the last value, if the array is a coordinate.
    pub(super) values: Option<ReadValues>,
    /// The stored chunks, if counting them needs no requests.
    pub(super) stored: Option<StoredChunkCounts>,
    pub(super) is_coordinate: bool,
}

/// A group with its children.
#[derive(Debug, Default)]
pub(super) struct Dataset {
    pub(super) arrays: Vec<ArraySummary>,
    /// The names of the groups, and of directories without metadata.
    pub(super) groups: Vec<String>,
    /// Children that cannot be read, with the reasons.
    pub(super) problems: Vec<String>,
    /// The number of children that are not shown.
    pub(super) left_out: usize,
    pub(super) totals: Totals,
    /// Whether the totals cover all nodes below the group.
    pub(super) is_total: bool,
}

impl Dataset {
    /// Reads the children of a group. A child that cannot be read is added to the problems.
    pub(super) async fn read(store: &Arc<dyn Store>, engine: &Arc<Engine>, root: &Key) -> Self {
        let entry = Entry::read(&**store, root, None, true).await;
        let mut dataset = Self {
            problems: entry.notes,
            left_out: entry.children.len().saturating_sub(MAX_CHILDREN),
            ..Self::default()
        };
        let consolidated = entry.consolidated;
        let children = entry.children.into_iter().take(MAX_CHILDREN);
        let children = map_concurrent(children, |name| {
            let child = consolidated.as_ref().map(|node| node.child(&name));
            async move {
                let key = root.join(&name).ok()?;
                let entry = Entry::read(&**store, &key, child, false).await;
                Some((String::from_utf8_lossy(&name).into_owned(), key, entry))
            }
        });
        let mut keys = Vec::new();
        for (name, key, entry) in children.await.into_iter().flatten() {
            if let Some(summary) = dataset.add(name, entry) {
                dataset.arrays.push(summary);
                keys.push(key);
            }
        }
        dataset.is_total = dataset.groups.is_empty();
        dataset.count(&**store, &keys).await;
        let coordinates = dataset.arrays.iter_mut().zip(keys);
        let coordinates: Vec<_> = coordinates
            .filter(|(array, _)| array.is_coordinate)
            .collect();
        let arrays = coordinates.iter();
        let arrays = arrays.map(|(summary, key)| (key.clone(), &*summary.array));
        let values = read_ends(store, engine, arrays.collect()).await;
        for ((summary, _), values) in coordinates.into_iter().zip(values) {
            summary.values = values;
        }
        dataset
    }

    /// Adds a child. Returns its summary if it is an array.
    fn add(&mut self, name: String, entry: Entry) -> Option<ArraySummary> {
        let notes = entry.notes.iter().map(|note| format!("{name}: {note}"));
        self.problems.extend(notes);
        match entry.state {
            NodeState::Broken {
                document, reason, ..
            } => self.problems.push(format!("{name}: {document}: {reason}")),
            NodeState::Directory => self.groups.push(name),
            NodeState::Node(node) => match *node {
                Node::Group(_) => self.groups.push(name),
                Node::Array(array) => {
                    return Some(ArraySummary {
                        is_coordinate: is_coordinate(&name, &array),
                        name,
                        array,
                        values: None,
                        stored: None,
                    });
                }
            },
        }
        None
    }

    /// Counts the stored chunks, if that needs no requests, and computes the totals.
    async fn count(&mut self, store: &dyn Store, keys: &[Key]) {
        let mut counter = CountBudget::new(MAX_COUNTED, Some(COUNT_LIMIT));
        for (summary, key) in self.arrays.iter_mut().zip(keys) {
            if is_free(store) {
                let stored = counter.count(store, key, &summary.array).await;
                summary.stored = stored.is_complete.then_some(stored);
            }
            self.totals.add(&summary.array, summary.stored.as_ref());
        }
        self.totals.groups = self.groups.len() as u64;
    }

    /// Returns the names and lengths of the dimensions, in the order of the arrays. If arrays
    /// differ, a name has several lengths.
    pub(super) fn dimensions(&self) -> Vec<(&str, u64)> {
        let mut found: Vec<(&str, u64)> = Vec::new();
        for summary in &self.arrays {
            let array = &summary.array;
            for (name, length) in array.dimension_names.iter().zip(&array.shape) {
                let dimension = name.as_deref().map(|name| (name, *length));
                found.extend(dimension.filter(|dimension| !found.contains(dimension)));
            }
        }
        found
    }

    /// Returns the members `dimensions`, `arrays`, `groups` and `totals`.
    pub(super) fn json(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let dimensions = self.dimensions().into_iter();
        let dimensions = dimensions.map(|(name, length)| json!({"name": name, "length": length}));
        members.insert("dimensions".into(), dimensions.collect());
        let arrays = self.arrays.iter().map(ArraySummary::json);
        members.insert("arrays".into(), arrays.collect());
        members.insert("groups".into(), json!(self.groups));
        if self.left_out > 0 {
            members.insert("children_left_out".into(), self.left_out.into());
        }
        members.insert("totals".into(), self.totals.json());
        members
    }
}

impl ArraySummary {
    /// Returns the metadata of the array, its attributes, values and stored chunks.
    fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("name".into(), self.name.as_str().into());
        members.extend(array_json(&self.array));
        members.insert("is_coordinate".into(), self.is_coordinate.into());
        if let Some(stored) = &self.stored {
            members.insert("stored_bytes".into(), stored.bytes.into());
            let ratio = stored.ratio(&self.array);
            members.extend(ratio.map(|ratio| ("ratio".into(), json!(ratio))));
        }
        members.extend(values_json(self.values.as_ref()));
        if let Ok(attributes) = &self.array.attributes {
            members.insert("attributes".into(), attributes.clone().into());
        }
        members.into()
    }
}

/// Returns the metadata of an array, with the name of its data type and its codec chain.
pub(super) fn array_json(array: &Array) -> Map<String, Value> {
    let mut members = match array.info() {
        Value::Object(info) => info,
        _ => Map::new(),
    };
    if let Ok(data_type) = &array.data_type {
        members.insert("type_name".into(), type_name(data_type).into());
    }
    match node::pipeline(array) {
        Ok(pipeline) => _ = members.insert("codec_chain".into(), pipeline.describe().into()),
        Err(reason) => _ = members.insert("unreadable".into(), reason.to_string().into()),
    }
    members
}

/// Returns the member `values`, or `values_failed` with the reason.
pub(super) fn values_json(values: Option<&ReadValues>) -> Option<(String, Value)> {
    Some(match values? {
        Ok(values) => ("values".into(), values.json()),
        Err(reason) => ("values_failed".into(), reason.as_str().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::engine;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn array(shape: &[u64], names: &[&str]) -> Vec<u8> {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape,
            "data_type": "uint8", "fill_value": 0, "codecs": ["bytes"], "dimension_names": names,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": "default", "attributes": {"units": "m"}});
        document.to_string().into_bytes()
    }

    #[test]
    fn a_group_has_its_dimensions_arrays_and_groups() {
        let group = br#"{"zarr_format":3,"node_type":"group"}"#.to_vec();
        let documents = [
            ("zarr.json", group.clone()),
            ("x/zarr.json", array(&[3], &["x"])),
            ("x/c/0", vec![1, 2, 3]),
            ("t/zarr.json", array(&[2, 3], &["y", "x"])),
            ("u/zarr.json", array(&[5], &["y"])),
            ("g/zarr.json", group),
            ("torn/zarr.json", b"{".to_vec()),
            ("plain/file", Vec::new()),
        ];
        let store = MemoryStore::new(
            documents.map(|(name, text)| (Key::new(name.as_bytes()).unwrap(), text)),
        );
        let store: Arc<dyn Store> = Arc::new(store);
        let engine = Arc::new(engine(64 << 20).unwrap());
        let dataset = block_on(Dataset::read(&store, &engine, &Key::root()));
        assert_eq!(dataset.groups, ["g", "plain"]);
        assert_eq!(dataset.dimensions(), [("y", 2), ("x", 3), ("y", 5)]);
        assert_eq!(dataset.problems.len(), 1);
        assert!(dataset.problems[0].starts_with("torn: zarr.json: "));
        let json = Value::from(dataset.json());
        assert_eq!(json["arrays"][2]["name"], "x");
        assert_eq!(json["arrays"][2]["values"], json!({"first": 1, "last": 3}));
        assert_eq!(json["arrays"][2]["attributes"], json!({"units": "m"}));
        assert_eq!(json["arrays"][0]["is_coordinate"], false);
        assert_eq!(json["totals"]["stored_bytes"], 3);
        assert_eq!(json["totals"]["size_bytes"], 14);
    }
}
