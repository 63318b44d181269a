//! Reads the metadata documents of a node. No chunk is read.

use std::fmt;

use crate::codec::{CodecError, Pipeline};
use crate::store::{AccessHint, Key, Store, StoreError, map_concurrent, read_to_end};
use crate::zarr::document::MAX_DOCUMENT_BYTES;
use crate::zarr::node::Documents;
use crate::zarr::{Array, Consolidated, MetadataError, Node};

/// The node that the documents of a directory describe.
#[derive(Debug)]
pub(super) enum NodeState {
    /// A group or an array.
    Node(Box<Node>),
    /// A directory without documents: in v2 an implicit group.
    Directory,
    /// A node with an invalid or unreadable document.
    Broken {
        /// The name of the document.
        document: String,
        reason: String,
        /// Whether the store failed to read the document.
        is_store_error: bool,
    },
}

/// A directory, with a message for each ignored document.
#[derive(Debug)]
pub(super) struct DirectoryNode {
    pub(super) state: NodeState,
    /// Documents that were not read, because another document defines the node.
    pub(super) ignored: Vec<String>,
}

impl From<NodeState> for DirectoryNode {
    fn from(state: NodeState) -> Self {
        let ignored = Vec::new();
        Self { state, ignored }
    }
}

/// A reason why the elements of an array cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArrayProblem {
    /// The metadata use a feature that is not implemented.
    Unsupported(String),
    /// The metadata are invalid.
    Invalid(String),
}

impl fmt::Display for ArrayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(reason) | Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl From<MetadataError> for ArrayProblem {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::Unsupported(_) => Self::Unsupported(error.to_string()),
            error => Self::Invalid(error.to_string()),
        }
    }
}

impl From<CodecError> for ArrayProblem {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            error => Self::Invalid(error.to_string()),
        }
    }
}

/// The documents that define a node.
const DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zattrs"];
/// The consolidated metadata of a v2 hierarchy.
const ZMETADATA: &str = ".zmetadata";

/// Returns whether a name is that of a metadata document.
pub(super) fn is_document(name: &[u8]) -> bool {
    name == ZMETADATA.as_bytes() || DOCUMENTS.iter().any(|known| name == known.as_bytes())
}

/// Reads the documents of a directory. A document that cannot be read makes the node broken.
pub(super) fn read(store: &dyn Store, key: &Key) -> DirectoryNode {
    let mut texts: [Option<Vec<u8>>; 4] = Default::default();
    let found = map_concurrent(store, key, &DOCUMENTS, |name| document(store, key, name));
    for ((name, text), found) in DOCUMENTS.iter().zip(&mut texts).zip(found) {
        match found {
            Ok(found) => *text = found,
            Err(error) => {
                return error.into_state(name).into();
            }
        }
    }
    let [zarr_json, zarray, zgroup, zattrs] = &texts;
    let documents = Documents {
        zarr_json: zarr_json.as_deref(),
        zarray: zarray.as_deref(),
        zgroup: zgroup.as_deref(),
        zattrs: zattrs.as_deref(),
    };
    let Some(detected) = documents.node() else {
        return NodeState::Directory.into();
    };
    let read = detected.read;
    let state = match detected.node {
        Ok(node) => NodeState::Node(Box::new(node)),
        Err(error) => NodeState::Broken {
            document: read.to_owned(),
            reason: error.to_string(),
            is_store_error: false,
        },
    };
    let ignored = detected.ignored.iter();
    let ignored = ignored.map(|name| format!("{name} is ignored: {read} defines the node"));
    DirectoryNode {
        state,
        ignored: ignored.collect(),
    }
}

/// Returns the consolidated metadata of a group. A v2 group has them in a document of its own.
///
/// # Errors
/// The reason why that document cannot be used.
pub(super) fn consolidated(
    store: &dyn Store,
    key: &Key,
    node: &Node,
) -> Result<Option<Consolidated>, String> {
    let Some(group) = node.as_group() else {
        return Ok(None);
    };
    if let Some(consolidated) = &group.consolidated {
        return Ok(Some(consolidated.clone()));
    }
    let text = document(store, key, ZMETADATA).map_err(|error| error.reason)?;
    let Some(text) = text else {
        return Ok(None);
    };
    Consolidated::from_zmetadata(&text)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// A document that cannot be read.
struct DocumentError {
    reason: String,
    is_store_error: bool,
}

impl DocumentError {
    fn invalid(reason: String) -> Self {
        Self {
            reason,
            is_store_error: false,
        }
    }

    fn store(key: &Key, error: &StoreError) -> Self {
        Self {
            reason: cause(key, error),
            is_store_error: true,
        }
    }

    fn into_state(self, document: &str) -> NodeState {
        NodeState::Broken {
            document: document.to_owned(),
            reason: self.reason,
            is_store_error: self.is_store_error,
        }
    }
}

/// Reads a document; returns None if its absence is proven.
fn document(store: &dyn Store, key: &Key, name: &str) -> Result<Option<Vec<u8>>, DocumentError> {
    let key = key
        .join(name.as_bytes())
        .map_err(|error| DocumentError::invalid(error.to_string()))?;
    let hint = AccessHint::Whole(MAX_DOCUMENT_BYTES as u64);
    let object = match store.open_for(&key, hint) {
        Ok(object) => object,
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => return Ok(None),
        Err(error) => return Err(DocumentError::store(&key, &error)),
    };
    let size = object.size_bytes();
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    if length > MAX_DOCUMENT_BYTES {
        let limit = MAX_DOCUMENT_BYTES;
        let reason = format!("{size} bytes of metadata, the limit is {limit}");
        return Err(DocumentError::invalid(reason));
    }
    read_to_end(&*object, &key, size)
        .map(Some)
        .map_err(|error| DocumentError::store(&key, &error))
}

/// Returns the message of an error without its key.
pub(super) fn cause(key: &Key, error: &StoreError) -> String {
    let text = error.to_string();
    let own = text.strip_prefix(&format!("{key}: "));
    own.unwrap_or(&text).to_owned()
}

/// Returns the codec pipeline of an array; that of the first chunk, if chunks differ in shape.
///
/// # Errors
/// The reason why the elements cannot be read; invalid metadata come before unsupported features.
pub(super) fn pipeline(array: &Array) -> Result<Pipeline, ArrayProblem> {
    let problems: Vec<ArrayProblem> = array.problems().map(ArrayProblem::from).collect();
    let is_invalid = |problem: &&ArrayProblem| matches!(problem, ArrayProblem::Invalid(_));
    if let Some(problem) = problems.iter().find(is_invalid).or(problems.first()) {
        return Err(problem.clone());
    }
    let parts = array.decodable()?;
    let first = vec![0; parts.grid.rank()];
    let shape = parts.grid.regular_chunk_shape();
    let shape = shape.or_else(|| parts.grid.chunk_shape(&first));
    let shape = shape.unwrap_or_else(|| vec![1; parts.grid.rank()]);
    Ok(Pipeline::new(
        parts.codecs,
        parts.data_type,
        &shape,
        parts.fill_value,
    )?)
}
