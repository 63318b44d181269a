//! Reads the metadata documents of a node. No chunk is read.

use std::fmt;

use crate::codec::{CodecError, Pipeline};
use crate::hierarchy::{
    Document, MAX_DOCUMENT_BYTES, NodeDocuments, UnreadableDocument, read_document,
};
use crate::store::{ErrorKind, Key, Store, StoreError, Version};
use crate::zarr::{Array, Consolidated, MetadataError, Node, ZarrFormat};

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
        /// How the store failed to read the document; `None` if the document is invalid.
        failure: Option<ErrorKind>,
    },
}

impl NodeState {
    /// Returns the group or the array.
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Directory | Self::Broken { .. } => None,
        }
    }
}

/// A directory, with a message for each ignored document.
#[derive(Debug)]
pub(super) struct DirectoryNode {
    pub(super) state: NodeState,
    /// Documents that were not read, because another document describes the node.
    pub(super) ignored: Vec<String>,
    /// How the documents differ from their copies in consolidated metadata.
    pub(super) stale: Option<String>,
    /// The key and version of the document that describes an array, if the node is one.
    pub(super) document: Option<(Key, Version)>,
}

impl From<NodeState> for DirectoryNode {
    fn from(state: NodeState) -> Self {
        Self {
            state,
            ignored: Vec::new(),
            stale: None,
            document: None,
        }
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

/// Reads the documents of a directory. An unreadable document makes the node broken.
pub(super) async fn read(store: &dyn Store, key: &Key) -> DirectoryNode {
    read_compared(store, key, None).await
}

/// Reads the documents of a directory, and compares them with the copies that consolidated metadata have at a path.
pub(super) async fn read_compared(
    store: &dyn Store,
    key: &Key,
    copies: Option<(&Consolidated, &str)>,
) -> DirectoryNode {
    let documents = match NodeDocuments::read_naming(store, key).await {
        Ok(documents) => documents,
        Err(unreadable) => {
            let document = unreadable.document;
            return DocumentError::of(key, unreadable)
                .into_state(document)
                .into();
        }
    };
    if let Some(long) = documents.too_long {
        return DocumentError::too_long(long.size_bytes)
            .into_state(long.document)
            .into();
    }
    let stale = copies.and_then(|(consolidated, path)| {
        consolidated.difference(path, &documents.stored_documents())
    });
    let Some(detected) = documents.documents().node() else {
        return DirectoryNode {
            stale,
            ..NodeState::Directory.into()
        };
    };
    let read = detected.read;
    let state = match detected.node {
        Ok(node) => NodeState::Node(Box::new(node)),
        Err(error) => NodeState::Broken {
            document: read.to_owned(),
            reason: error.to_string(),
            failure: None,
        },
    };
    let ignored = detected.ignored.iter();
    let ignored = ignored.map(|name| format!("{name} is ignored: {read} defines the node"));
    DirectoryNode {
        state,
        ignored: ignored.collect(),
        stale,
        document: documents.array,
    }
}

/// Returns the consolidated metadata of a group. In v2, they are in a document of their own.
///
/// # Errors
/// The reason why that document cannot be used.
pub(super) async fn consolidated(
    store: &dyn Store,
    key: &Key,
    node: &Node,
) -> Result<Option<Consolidated>, DocumentError> {
    let Some(group) = node.as_group() else {
        return Ok(None);
    };
    if let Some(consolidated) = &group.consolidated {
        return Ok(Some(consolidated.clone()));
    }
    if group.format == ZarrFormat::N5 {
        return Ok(None);
    }
    let document = Document::Zmetadata;
    let of_store = |error| DocumentError::of(key, UnreadableDocument { document, error });
    let stored = read_document(store, key, document).await;
    let Some(stored) = stored.map_err(of_store)? else {
        return Ok(None);
    };
    if stored.size_bytes > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::too_long(stored.size_bytes));
    }
    let text = stored.text.map_err(of_store)?;
    Consolidated::from_zmetadata(&text)
        .map(Some)
        .map_err(|error| DocumentError {
            reason: error.to_string(),
            failure: None,
        })
}

/// A document that cannot be read.
pub(super) struct DocumentError {
    pub(super) reason: String,
    /// How the store failed; `None` if the document is invalid.
    failure: Option<ErrorKind>,
}

impl DocumentError {
    fn of(node: &Key, unreadable: UnreadableDocument) -> Self {
        let key = node.join(unreadable.document.name().as_bytes());
        Self {
            reason: cause(&key.unwrap_or_default(), &unreadable.error),
            failure: Some(unreadable.error.kind()),
        }
    }

    fn too_long(size_bytes: u64) -> Self {
        Self {
            reason: format!("{size_bytes} bytes of metadata, the limit is {MAX_DOCUMENT_BYTES}"),
            failure: None,
        }
    }

    pub(super) fn kind(&self) -> ErrorKind {
        self.failure.unwrap_or(ErrorKind::Corrupt)
    }

    fn into_state(self, document: Document) -> NodeState {
        NodeState::Broken {
            document: document.name().to_owned(),
            reason: self.reason,
            failure: self.failure,
        }
    }
}

/// Returns the message of an error without its key.
pub(super) fn cause(key: &Key, error: &StoreError) -> String {
    let text = error.to_string();
    let own = text.strip_prefix(&format!("{key}: "));
    own.unwrap_or(&text).to_owned()
}

/// Returns the codec pipeline of an array, or that of the first chunk if chunks differ in shape.
///
/// # Errors
/// The reason why the elements cannot be read. Invalid metadata take precedence over unsupported features.
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
