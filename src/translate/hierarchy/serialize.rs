//! Conversion of a tree of documents to one document: consolidated metadata (`.zmetadata` of v2, inline in
//! the `zarr.json` of v3) or the Zarr Object Model (ZEP 6).

use std::collections::HashSet;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::read::Hierarchy;
use super::{DocumentTree, HierarchyError};
use crate::array::Engine;
use crate::hierarchy::NODE_DOCUMENT_NAMES;
use crate::store::{Key, Store};
use crate::translate::Target;

impl DocumentTree {
    /// Returns `.zmetadata` of the version 2 nodes (zarr-python's consolidated metadata).
    pub(in crate::translate) fn zmetadata(&self) -> Value {
        let mut metadata = Map::new();
        let root = [(String::new(), self)];
        for (path, node) in root.into_iter().chain(self.below()) {
            let [_, v2 @ .., _] = &node.documents;
            let documents = v2.iter().zip(NODE_DOCUMENT_NAMES.into_iter().skip(1));
            for (document, name) in documents {
                if let (Some(document), None) = (document, &node.documents[0]) {
                    let key = match path.as_str() {
                        "" => name.to_owned(),
                        path => format!("{path}/{name}"),
                    };
                    metadata.insert(key, document.clone());
                }
            }
        }
        json!({"metadata": metadata, "zarr_consolidated_format": 1})
    }

    /// Returns `consolidated_metadata` of the version 3 nodes below this one (zarr-python's inline
    /// consolidated metadata).
    pub(in crate::translate) fn consolidated_metadata(&self) -> Value {
        let members = self.below().into_iter();
        let member = |(path, node): (String, &Self)| {
            let mut document = node.documents[0].clone()?;
            document
                .as_object_mut()?
                .shift_remove("consolidated_metadata");
            Some((path, document))
        };
        inline(members.filter_map(member).collect())
    }

    /// Returns the Zarr Object Model (ZEP 6) of the node at a key: the members of its document, `attributes`,
    /// and `members` of groups. `None` if the node has no document; the reason goes to `notes`.
    fn zom(&self, key: &Key, notes: &mut Vec<String>) -> Option<Value> {
        let mut leave_out = |why: &str| notes.push(format!("without {key}: {why}"));
        if let Some(problem) = &self.problem {
            leave_out(problem.reason());
            return None;
        }
        let [zarr_json, zarray, zgroup, zattrs, _] = &self.documents;
        let Some(document) = zarr_json.as_ref().or(zarray.as_ref()).or(zgroup.as_ref()) else {
            if self.has_documents() {
                leave_out("no document says that it is a group");
            }
            return None;
        };
        let Some(mut model) = document.as_object().cloned() else {
            leave_out("its document is no object");
            return None;
        };
        model.shift_remove("consolidated_metadata");
        if zarr_json.is_none() {
            let attributes = zattrs.clone().unwrap_or_else(|| json!({}));
            model.insert("attributes".into(), attributes);
        } else if model.get("attributes").is_none_or(Value::is_null) {
            model.insert("attributes".into(), json!({}));
        }
        if self.is_array() {
            return Some(model.into());
        }
        if let Some(other) = model.shift_remove("members") {
            let mut name = String::from("_members");
            while model.contains_key(&name) {
                name.insert(0, '_');
            }
            model.insert(name, other);
        }
        let mut members = Map::new();
        for (name, member) in &self.members {
            if let Ok(below) = key.join(name.as_bytes())
                && let Some(member) = member.zom(&below, notes)
            {
                members.insert(name.clone(), member);
            }
        }
        model.insert("members".into(), members.into());
        Some(model.into())
    }
}

/// Wraps nodes as zarr-python's inline consolidated metadata.
fn inline(metadata: Map<String, Value>) -> Value {
    json!({"kind": "inline", "must_understand": false, "metadata": metadata})
}

/// The document of a whole hierarchy.
#[derive(Debug)]
pub struct HierarchyDocument {
    /// The document.
    pub text: Vec<u8>,
    /// Messages for users about missing nodes and the reasons.
    pub notes: Vec<String>,
}

/// Returns `zom.json` of the node at a key: the Zarr Object Model (ZEP 6) of the node and all nodes
/// below it. For N5, it is that of the translation to version 3.
///
/// # Errors
/// The reason why the node has no such document.
pub fn zom_json<'a>(
    store: &'a dyn Store,
    key: &'a Key,
    engine: &'a Engine,
) -> BoxFuture<'a, Result<HierarchyDocument, HierarchyError>> {
    async move {
        let read = Hierarchy::read_documents(store, key, engine).await?;
        let mut notes = Vec::new();
        let mut tree = read.tree;
        if tree.is_n5() {
            tree.diagnostics(Target::V3, key, &HashSet::new(), &mut |key, why| {
                notes.push(format!("without {key}: {why}"));
            });
            tree = tree.translated(Target::V3).unwrap_or_default();
        }
        let model = tree.zom(key, &mut notes);
        let model = model.ok_or_else(|| HierarchyError::Absent("no document of a node".into()))?;
        let text = text(&model);
        Ok(HierarchyDocument { text, notes })
    }
    .boxed()
}

/// Returns `.zmetadata` of the version 2 nodes at and below a key.
///
/// # Errors
/// The reason why the node has none. It must be a version 2 node, and all version 2 documents below
/// it must be valid JSON, because readers of consolidated metadata read no documents.
pub fn zmetadata_json<'a>(
    store: &'a dyn Store,
    key: &'a Key,
    engine: &'a Engine,
) -> BoxFuture<'a, Result<HierarchyDocument, HierarchyError>> {
    async move {
        let Hierarchy { tree, .. } = &Hierarchy::read_documents(store, key, engine).await?;
        if tree.documents[0].is_some() {
            let what = "consolidated metadata of version 3 are in zarr.json";
            return Err(HierarchyError::Absent(what.into()));
        }
        if tree.is_n5() {
            let what = "consolidated metadata of N5 are those of as-v2";
            return Err(HierarchyError::Absent(what.into()));
        }
        if let Some(why) = tree.invalid_v2() {
            return Err(HierarchyError::Absent(format!(
                "a document is not consolidated: {why}"
            )));
        }
        Ok(HierarchyDocument {
            text: text(&tree.zmetadata()),
            notes: Vec::new(),
        })
    }
    .boxed()
}

/// Returns the indented text of a document.
pub(in crate::translate) fn text(document: &Value) -> Vec<u8> {
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}
