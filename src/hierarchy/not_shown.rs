//! What a mount does not show, and why: the one list that `README.txt`, `views.json`, `check`, `tree` and
//! `info` print.
//!
//! A source can have content that no file name leads to
//! ([`SourceInfo::omissions`](crate::store::SourceInfo::omissions)), and metadata can name members of a group that do not exist: levels of a pyramid, wells of a plate, columns of a table, nodes of
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

/// Returns the paths of the members that the attributes of the group at a key name, relative to the group, and what
/// names them.
pub type NamedMembers = fn(&Key, &Map<String, Value>) -> BTreeMap<String, &'static str>;

/// Returns what a mount with this root does not show of a node, which lacks some of its `named_members`. `node` is `None` if the directory has no
/// metadata.
pub async fn not_shown(
    store: &dyn Store,
    root: &Key,
    key: &Key,
    node: Option<&Node>,
    named_members: NamedMembers,
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
        let named = named_members(key, attributes);
        absent_members(store, key, named, &mut absent).await;
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
    named: BTreeMap<String, &'static str>,
    absent: &mut BTreeMap<String, &'static str>,
) {
    let most = match is_local(store) {
        true => MAX_MEMBERS,
        false => MAX_REMOTE_MEMBERS,
    };
    for (path, by) in named.into_iter().take(most) {
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
            let Ok(below) = Key::new(path.as_bytes()) else {
                continue;
            };
            let node = key.join_key(&below);
            if !has_named_document(store, &node, consolidated.documents(path)).await
                && let Ok(false) = is_node(store, &node).await
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

/// Returns whether a node is known to have one of the documents that consolidated metadata name: mostly it has the
/// first one, and takes one call of the store.
async fn has_named_document(
    store: &dyn Store,
    node: &Key,
    named: impl Iterator<Item = &'static str>,
) -> bool {
    for document in named.filter(|document| DOCUMENTS.contains(document)) {
        if let Ok(key) = node.join(document.as_bytes())
            && let Ok(stat) = store.stat(&key).await
            && stat.kind == Kind::Object
        {
            return true;
        }
    }
    false
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
