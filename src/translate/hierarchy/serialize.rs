//! Conversion of a tree of documents to one document: consolidated metadata (`.zmetadata` of v2, inline in
//! the `zarr.json` of v3) or the Zarr Object Model (ZEP 6).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::read::{Hierarchy, complete};
use super::{DocumentTree, HierarchyError};
use crate::fallible::List;
use crate::hierarchy::NODE_DOCUMENT_NAMES;
use crate::store::{Key, StoreError};
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
#[derive(Debug, Default)]
pub struct HierarchyDocument {
    json: Value,
    /// Messages for users about missing nodes and the reasons.
    pub notes: Vec<String>,
}

/// A function that returns the document of a hierarchy, whose root is the node at the key.
pub type RenderHierarchy = fn(&Hierarchy, &Key) -> Result<HierarchyDocument, HierarchyError>;

impl HierarchyDocument {
    /// Returns the document that `render` makes of the documents below a key.
    ///
    /// # Errors
    /// The reason why the node has no such document: one is that not all nodes could be read.
    pub fn of(
        read: &Result<Hierarchy, HierarchyError>,
        key: &Key,
        render: RenderHierarchy,
    ) -> Result<Self, HierarchyError> {
        render(complete(read.as_ref().map_err(Clone::clone))?, key)
    }

    /// Returns the text of the document, which is that of the node at `key`.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the system has no memory for it.
    pub fn text(&self, key: &Key) -> Result<Vec<u8>, StoreError> {
        text(&self.json, key)
    }
}

/// Returns `zom.json` of the node at a key: the Zarr Object Model (ZEP 6) of the node and all nodes
/// below it. For N5, it is that of the translation to version 3.
///
/// # Errors
/// The reason why the node has no such document.
pub fn zom_json(read: &Hierarchy, key: &Key) -> Result<HierarchyDocument, HierarchyError> {
    let mut notes = Vec::new();
    let model = match read.tree.is_n5() {
        false => read.tree.zom(key, &mut notes),
        true => {
            let mut leave_out = |key: &Key, why: &str| notes.push(format!("without {key}: {why}"));
            read.tree
                .diagnostics(Target::V3, key, &HashSet::new(), &mut leave_out);
            let translated = read.tree.translated(Target::V3).unwrap_or_default();
            translated.zom(key, &mut notes)
        }
    };
    let json = model.ok_or_else(|| HierarchyError::Absent("no document of a node".into()))?;
    Ok(HierarchyDocument { json, notes })
}

/// Returns `.zmetadata` of the version 2 nodes at and below a key.
///
/// # Errors
/// The reason why the node has none. It must be a version 2 node, and all version 2 documents below
/// it must be valid JSON, because readers of consolidated metadata read no documents.
pub fn zmetadata_json(read: &Hierarchy, _: &Key) -> Result<HierarchyDocument, HierarchyError> {
    let tree = &read.tree;
    let absent = |why: &str| Err(HierarchyError::Absent(why.to_owned()));
    if tree.documents[0].is_some() {
        return absent("consolidated metadata of version 3 are in zarr.json");
    }
    if tree.is_n5() {
        return absent("consolidated metadata of N5 are those of as-v2");
    }
    if let Some(why) = tree.invalid_v2() {
        return absent(&format!("a document is not consolidated: {why}"));
    }
    Ok(HierarchyDocument {
        json: tree.zmetadata(),
        notes: Vec::new(),
    })
}

/// Returns the indented text of a document, for the node at `key`.
///
/// # Errors
/// [`StoreError::TooLarge`] if the system has no memory for it.
pub(in crate::translate) fn text(document: &Value, key: &Key) -> Result<Vec<u8>, StoreError> {
    let mut text = List::default();
    let written = serde_json::to_writer_pretty(&mut text, document);
    if written.is_ok() {
        text.extend_from_slice(b"\n");
    }
    text.finish()
        .map_err(|failure| StoreError::from(failure).of(key))
}
