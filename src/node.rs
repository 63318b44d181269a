//! One node of a hierarchy, with its metadata and the reader of its elements; arrays and the numbers in them.

mod array_view;
mod error;
mod number;
mod resolver;

pub use array_view::ArrayView;
pub use error::ContentError;
pub(crate) use number::code_points;
pub use number::{Conversion, ConversionRule, Number, NumberKind, Value};
pub use resolver::{Conclusion, Members, NodeResolver};

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value as Json;

use crate::array::{ArrayReader, Engine, Reservation};
use crate::codec::Pipeline;
use crate::hierarchy::{NodeDocuments, OwnVersions};
use crate::store::{DocumentStore, Key, Store, StoreError};
use crate::zarr::Node;

/// A node and the input of its views.
#[derive(Debug)]
pub struct ViewNode {
    pub(crate) key: Key,
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) problems: Vec<String>,
    /// Whether the node has no metadata document: a group, because the store has keys below it.
    pub(crate) is_implicit: bool,
    /// Why the documents do not tell whether the node is a group or an array; `None` if they do.
    pub(crate) broken: Option<String>,
    pub(crate) elements: NodeElements,
    pub(crate) version: u64,
    /// The versions of the documents, if `version` depends on nothing else.
    pub(crate) own_versions: Option<OwnVersions>,
    pub(crate) modified: SystemTime,
    pub(crate) attributes: Option<Vec<u8>>,
    /// Why the document of the attributes could not be read; `None` if it was read, or does not exist.
    pub(crate) unread_attributes: Option<String>,
    /// The maximum memory of the metadata, in bytes.
    pub(crate) memory_bytes: u64,
    /// The reservation of that memory, if it counts against the limit while the node is in use.
    pub(crate) _memory: Option<Reservation>,
}

/// How the elements of a node can be read.
#[derive(Debug)]
pub(crate) enum NodeElements {
    /// The node is a group.
    None,
    /// Elements of constant size.
    Fixed(Arc<ArrayReader>),
    /// Elements of variable length; with their chunks, under the document that declares them.
    Variable(Arc<Pipeline>, Arc<DocumentStore>),
    /// The elements cannot be read, for this reason.
    Unreadable(String),
}

impl ViewNode {
    /// Returns whether the store is known to have other metadata of the array by now.
    pub(crate) fn is_outdated(&self) -> bool {
        match &self.elements {
            NodeElements::Fixed(reader) => reader.chunks().is_outdated(),
            NodeElements::Variable(_, store) => store.is_outdated(),
            NodeElements::None | NodeElements::Unreadable(_) => false,
        }
    }

    /// Returns the key of the node in the store.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the last component of the key; for the root of a store, the name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a number that identifies the content of the documents.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the time of the last change of the documents.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Returns whether the node is an array.
    pub fn is_array(&self) -> bool {
        matches!(self.node, Node::Array(_))
    }

    /// Returns the parsed metadata.
    pub fn metadata(&self) -> &Node {
        &self.node
    }

    /// Returns what is wrong with the metadata.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns why the type of the node is unknown although it has a document that should declare it.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Returns the reader of the array, if its elements can be read and are of constant size.
    pub fn reader(&self) -> Option<&Arc<ArrayReader>> {
        match &self.elements {
            NodeElements::Fixed(reader) => Some(reader),
            _ => None,
        }
    }

    pub(crate) fn attributes_text(&self) -> Result<Vec<u8>, String> {
        if let Some(why) = &self.unread_attributes {
            return Err(why.clone());
        }
        match (&self.attributes, self.node.attributes()) {
            (Some(text), Ok(_)) => Ok(text.clone()),
            (None, Ok(attributes)) => Ok(pretty(&Json::Object(attributes.clone()))),
            (_, Err(error)) => Err(error.to_string()),
        }
    }

    /// Returns a JSON summary of the parsed metadata.
    pub fn info(&self) -> Json {
        let mut info = self.node.info();
        if let (Json::Object(info), NodeElements::Unreadable(why)) = (&mut info, &self.elements) {
            info.insert("unreadable".into(), why.clone().into());
        }
        info
    }

    /// Returns the extended attributes, without the prefix `user.zarr.` of their names.
    pub fn extended_attributes(&self) -> Vec<(String, Vec<u8>)> {
        extended_attributes(&self.node)
    }
}

/// Returns the extended attributes of the node at a key of any store; empty if its documents declare none.
///
/// # Errors
/// Errors of the store, and of reserving memory for the documents.
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

/// Returns the extended attributes of a node, without the prefix `user.zarr.` of their names.
fn extended_attributes(node: &Node) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    if let Json::Object(info) = node.info() {
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

/// Returns text unchanged, any other value as JSON.
fn plain(value: &Json) -> Vec<u8> {
    match value {
        Json::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}

/// Formats a document for human readers.
pub(crate) fn pretty(value: &Json) -> Vec<u8> {
    let mut text = format!("{value:#}").into_bytes();
    text.push(b'\n');
    text
}
