//! One node of a hierarchy, with its metadata and the way to its elements.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use crate::array::{ArrayReader, Engine, Reservation};
use crate::codec::Pipeline;
use crate::hierarchy::NodeDocuments;
use crate::store::{Key, Store, StoreError, Version};
use crate::zarr::Node;

/// A node and what can be made of it.
#[derive(Debug)]
pub struct ViewNode {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) node: Node,
    pub(super) problems: Vec<String>,
    /// Whether it has no document that says what it is: a group because something is in it.
    pub(super) is_implicit: bool,
    /// Why its documents do not tell whether it is a group or an array, where they do not.
    pub(super) broken: Option<String>,
    pub(super) elements: Elements,
    pub(super) version: u64,
    pub(super) modified: SystemTime,
    pub(super) attributes: Option<Vec<u8>>,
    /// What its metadata take at most.
    pub(super) memory_bytes: u64,
    /// That memory, if it counts against the limit for as long as the node is used.
    pub(super) _memory: Option<Reservation>,
}

/// How the elements of an array are had.
#[derive(Debug)]
pub(super) enum Elements {
    /// It is a group.
    None,
    /// Of constant size.
    Fixed(Arc<ArrayReader>),
    /// Of variable length; with the document that says so, and its version.
    Variable(Arc<Pipeline>, Option<(Key, Version)>),
    /// Not at all, and why.
    Unreadable(String),
}

impl ViewNode {
    /// Where it is in the store.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The last component of its key; that of the source for the root of a store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which content of its documents this is.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When its documents were changed last.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Whether it is an array.
    pub fn is_array(&self) -> bool {
        matches!(self.node, Node::Array(_))
    }

    /// What its metadata say.
    pub fn metadata(&self) -> &Node {
        &self.node
    }

    /// What is wrong with its metadata.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Why nobody knows what it is, though it has a document that should say so.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The array, if its elements can be read and are of constant size.
    pub fn reader(&self) -> Option<&Arc<ArrayReader>> {
        match &self.elements {
            Elements::Fixed(reader) => Some(reader),
            _ => None,
        }
    }

    pub(super) fn attributes_text(&self) -> Result<Vec<u8>, String> {
        match (&self.attributes, self.node.attributes()) {
            (Some(text), Ok(_)) => Ok(text.clone()),
            // Its attributes are in a document that was not read.
            (None, _) if self.broken.is_some() => Err(self.broken.clone().unwrap_or_default()),
            (None, Ok(attributes)) => Ok(pretty(&Value::Object(attributes.clone()))),
            (_, Err(error)) => Err(error.to_string()),
        }
    }

    /// What was understood of it.
    pub fn info(&self) -> Value {
        let mut info = self.node.info();
        if let (Value::Object(info), Elements::Unreadable(why)) = (&mut info, &self.elements) {
            info.insert("unreadable".into(), why.clone().into());
        }
        info
    }

    /// Its extended attributes, without `user.zarr.` before their names.
    pub fn extended_attributes(&self) -> Vec<(String, Vec<u8>)> {
        extended_attributes(&self.node)
    }
}

/// The extended attributes of the node at a key of any store; none if its documents say nothing.
///
/// # Errors
/// Those of the store; those of reserving memory for what the documents take.
pub async fn attributes_at(
    store: &dyn Store,
    key: &Key,
    engine: &Engine,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let found = NodeDocuments::read(store, key).await?;
    let documents = found.documents();
    let memory_bytes = documents.own_memory_bytes() as u64;
    let _memory = engine.reserve(key, memory_bytes).await?;
    let node = documents.own_node().map(|detected| detected.node);
    Ok(match node {
        Some(Ok(node)) => extended_attributes(&node),
        _ => Vec::new(),
    })
}

/// The extended attributes of a node, without `user.zarr.` before their names.
fn extended_attributes(node: &Node) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    if let Value::Object(info) = node.info() {
        for (name, member) in [
            ("shape", "shape"),
            ("dtype", "data_type"),
            ("chunks", "chunk_shape"),
            ("codecs", "codecs"),
            ("fill_value", "fill_value"),
            ("dimension_names", "dimension_names"),
            ("zarr_format", "zarr_format"),
            ("format", "format"),
            ("node_type", "node_type"),
        ] {
            if let Some(value) = info.get(member) {
                found.push((name.to_owned(), plain(value)));
            }
        }
    }
    if let Ok(attributes) = node.attributes() {
        for (name, value) in attributes {
            found.push((format!("attrs.{name}"), plain(value)));
        }
    }
    found
}

/// Text as it is, anything else as JSON.
fn plain(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}

/// A document as people like to read it.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    let mut text = format!("{value:#}").into_bytes();
    text.push(b'\n');
    text
}
