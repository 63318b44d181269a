//! What a mount does not show, and why: the one list that `README.txt`, `views.json`, `check`, `tree` and
//! `info` print.
//!
//! A source can have content that no file name leads to ([`Store::omissions`]), and metadata can name
//! members of a group that do not exist: levels of a pyramid, wells of a plate, columns of a table, nodes of
//! consolidated metadata.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::collection::is_hierarchy;
use super::document::{Document, read_document};
use crate::store::{Key, Kind, ListingSupport, Store, StoreError, list_prefixes};
use crate::zarr::{Consolidated, Node, ZarrFormat};

/// The largest number of named members of one group that are looked for.
const MAX_MEMBERS: usize = 20_000;
/// The same, if each takes a request.
const MAX_REMOTE_MEMBERS: usize = 64;
/// The largest number of absent members that are named.
const MAX_NAMED: usize = 100;
/// The documents that make a node.
const DOCUMENTS: [&str; 3] = ["zarr.json", ".zarray", ".zgroup"];

/// Something that a mount does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotShown {
    /// The key of the node that lacks it.
    pub key: Key,
    /// What is not shown, and why.
    pub what: String,
    /// Whether data are missing; else it is only to be known.
    pub is_lost: bool,
}

/// Returns what a mount with this root does not show of a node. `node` is `None` if the directory has no
/// metadata.
pub async fn not_shown(
    store: &dyn Store,
    root: &Key,
    key: &Key,
    node: Option<&Node>,
) -> Vec<NotShown> {
    let mut list = Vec::new();
    if key == root {
        let omissions = store.omissions().await.into_iter();
        list.extend(omissions.map(|omission| NotShown {
            key: key.clone(),
            what: omission.what,
            is_lost: omission.is_lost,
        }));
    }
    let Some(node) = node.filter(|node| node.as_group().is_some()) else {
        return list;
    };
    let mut absent = BTreeMap::new();
    if let Ok(attributes) = node.attributes() {
        absent_members(store, key, attributes, &mut absent).await;
    }
    if let Some(consolidated) = consolidated(store, root, key, node).await {
        absent_nodes(store, key, &consolidated, &mut absent).await;
    }
    let count = absent.len();
    let named = absent.into_iter().take(MAX_NAMED);
    list.extend(named.map(|(path, by)| NotShown {
        key: key.clone(),
        what: format!("{path} is named by {by}, but absent"),
        is_lost: true,
    }));
    if count > MAX_NAMED {
        list.push(NotShown {
            key: key.clone(),
            what: format!("{} more members are named, but absent", count - MAX_NAMED),
            is_lost: true,
        });
    }
    list
}

/// Returns whether a store answers about keys without requests.
fn is_local(store: &dyn Store) -> bool {
    !store.capabilities().is_remote || store.index().is_some()
}

/// Adds the members that attributes name and that are proven absent.
async fn absent_members(
    store: &dyn Store,
    key: &Key,
    attributes: &Map<String, Value>,
    absent: &mut BTreeMap<String, &'static str>,
) {
    let most = match is_local(store) {
        true => MAX_MEMBERS,
        false => MAX_REMOTE_MEMBERS,
    };
    let is_labels = key.as_bytes().rsplit(|byte| *byte == b'/').next() == Some(b"labels");
    for (path, by) in named_members(attributes, is_labels).into_iter().take(most) {
        let Ok(below) = Key::new(path.as_bytes()) else {
            continue;
        };
        let found = match is_local(store) {
            true => is_node(store, &key.join_key(&below)).await,
            false => is_directory(store, &key.join_key(&below)).await,
        };
        if let Ok(false) = found {
            absent.insert(path, by);
        }
    }
}

/// Adds the nodes of consolidated metadata that are proven absent. A source that does not list completely
/// has no such proof without a request for each node.
async fn absent_nodes(
    store: &dyn Store,
    key: &Key,
    consolidated: &Consolidated,
    absent: &mut BTreeMap<String, &'static str>,
) {
    const BY: &str = "the consolidated metadata";
    let is_named = |path: &str| {
        let mut documents = consolidated.documents(path);
        documents.any(|document| DOCUMENTS.contains(&document))
    };
    let paths = consolidated
        .paths()
        .filter(|path| !path.is_empty() && is_named(path));
    if is_local(store) {
        for path in paths.take(MAX_MEMBERS) {
            let below = Key::new(path.as_bytes()).map(|below| key.join_key(&below));
            if let Ok(below) = below
                && let Ok(false) = is_node(store, &below).await
            {
                absent.insert(path.to_owned(), BY);
            }
        }
    } else if store.capabilities().listing == ListingSupport::Complete {
        let Ok(names) = list_prefixes(store, key, usize::MAX).await else {
            return;
        };
        let names: BTreeSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let children = paths.filter(|path| !path.contains('/'));
        let missing = children.filter(|path| !names.contains(path.as_bytes()));
        absent.extend(missing.map(|path| (path.to_owned(), BY)));
    }
}

/// Returns whether a key is a directory with metadata.
async fn is_node(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    if !is_directory(store, key).await? {
        return Ok(false);
    }
    // Directories in an N5 hierarchy and implicit groups of v2 need no document of their own.
    Ok(is_hierarchy(store, key).await? || has_directories(store, key).await?)
}

async fn is_directory(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    match store.stat(key).await {
        Ok(stat) => Ok(stat.kind == Kind::Prefix),
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn has_directories(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    Ok(!list_prefixes(store, key, 1).await?.is_empty())
}

async fn consolidated(
    store: &dyn Store,
    root: &Key,
    key: &Key,
    node: &Node,
) -> Option<Consolidated> {
    let group = node.as_group()?;
    if let Some(consolidated) = &group.consolidated {
        return Some(consolidated.clone());
    }
    // Of a remote source, one request for each group would be too many.
    let is_read = is_local(store)
        || (key == root && store.capabilities().listing == ListingSupport::Complete);
    if group.format == ZarrFormat::N5 || !is_read {
        return None;
    }
    // An error is a finding of its own.
    let document = read_document(store, key, Document::Zmetadata)
        .await
        .ok()??;
    Consolidated::from_zmetadata(&document.text.ok()?).ok()
}

/// Returns the paths of the members that attributes name, relative to their group, and what names them.
fn named_members(
    attributes: &Map<String, Value>,
    is_labels: bool,
) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    let ome = attributes.get("ome").and_then(Value::as_object);
    let mut add = |path: Option<&Value>, by| {
        let path = path
            .and_then(Value::as_str)
            .map(|path| path.trim_matches('/'));
        if let Some(path) = path.filter(|path| !path.is_empty() && *path != ".") {
            found.insert(path.to_owned(), by);
        }
    };
    for attributes in [Some(attributes), ome].into_iter().flatten() {
        for image in list(attributes, &["multiscales"]) {
            for level in image
                .get("datasets")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                add(level.get("path"), "`multiscales`");
            }
        }
        for level in list(attributes, &["multiscales", "layout"]) {
            add(level.get("asset"), "`multiscales`");
        }
        for well in list(attributes, &["plate", "wells"]) {
            add(well.get("path"), "`plate`");
        }
        for image in list(attributes, &["well", "images"]) {
            add(image.get("path"), "`well`");
        }
    }
    let labels = ome.filter(|ome| ome.contains_key("labels"));
    let labels = labels.or(is_labels.then_some(attributes));
    for label in labels
        .into_iter()
        .flat_map(|labels| list(labels, &["labels"]))
    {
        add(Some(label), "`labels`");
    }
    if attributes.get("encoding-type").and_then(Value::as_str) == Some("dataframe") {
        for column in list(attributes, &["column-order"]) {
            add(Some(column), "`column-order`");
        }
        add(attributes.get("_index"), "`_index`");
    }
    found
}

/// Returns the entries of the list at a path of member names.
fn list<'a>(attributes: &'a Map<String, Value>, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    let (first, rest) = path.split_first().unwrap_or((&"", &[]));
    let value = attributes.get(*first);
    let value = value.and_then(|value| rest.iter().try_fold(value, |value, name| value.get(name)));
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_the_attributes_of_several_conventions() {
        let named = |attributes: Value| {
            let Value::Object(attributes) = attributes else {
                unreachable!()
            };
            let names = named_members(&attributes, false).into_keys();
            names.collect::<Vec<_>>()
        };
        let levels =
            serde_json::json!([{"datasets": [{"path": "0"}, {"path": "s1/"}, {"path": "."}]}]);
        assert_eq!(
            named(serde_json::json!({"multiscales": levels})),
            ["0", "s1"]
        );
        let ome = serde_json::json!({"ome": {"multiscales": levels, "labels": ["nuclei"]}});
        assert_eq!(named(ome), ["0", "nuclei", "s1"]);
        let plate = serde_json::json!({"plate": {"wells": [{"path": "A/1"}]}});
        assert_eq!(named(plate), ["A/1"]);
        let layout = serde_json::json!({"multiscales": {"layout": [{"asset": "r10m"}]}});
        assert_eq!(named(layout), ["r10m"]);
        let table = serde_json::json!(
            {"encoding-type": "dataframe", "column-order": ["age"], "_index": "cell"}
        );
        assert_eq!(named(table), ["age", "cell"]);
        assert!(named(serde_json::json!({"labels": ["no", "members"]})).is_empty());
    }
}
