//! Reads the metadata documents of a node. No chunk is read.

use std::borrow::Cow;
use std::fmt;

use crate::codec::{CodecError, Pipeline};
use crate::hierarchy::{
    Document, MAX_DOCUMENT_BYTES, StoredDocument, read_attributes_json, read_document, read_v1,
    with_separator,
};
use crate::store::{ErrorKind, Key, Store, StoreError, Version, map_concurrent};
use crate::zarr::{Array, Consolidated, Documents, MetadataError, Node, ZarrFormat};

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

/// The text of a document.
struct Text {
    bytes: Vec<u8>,
    document: (Key, Version),
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
    let mut texts: [Option<Text>; 4] = [const { None }; 4];
    let [documents @ .., _] = Document::ALL;
    let found = map_concurrent(documents, |document| read_text(store, key, document)).await;
    for ((document, text), found) in documents.iter().zip(&mut texts).zip(found) {
        match found {
            Ok(found) => *text = found,
            Err(error) => return error.into_state(*document).into(),
        }
    }
    let stale = copies.and_then(|(consolidated, path)| {
        let [zarr_json, zarray, zgroup, zattrs] = &texts;
        let own = Documents {
            zarr_json: bytes(zarr_json),
            zarray: bytes(zarray),
            zgroup: bytes(zgroup),
            zattrs: bytes(zattrs),
            attributes_json: None,
        };
        consolidated.difference(path, &own)
    });
    if let [None, Some(zarray), ..] = &mut texts {
        match with_separator(store, key, &zarray.bytes).await {
            Ok(Cow::Owned(complete)) => zarray.bytes = complete,
            Ok(Cow::Borrowed(_)) => {}
            Err(error) => {
                let reason = cause(key, &error);
                let error = DocumentError {
                    reason,
                    failure: Some(error.kind()),
                };
                return error.into_state(Document::Zarray).into();
            }
        }
    }
    let [zarr_json, zarray, zgroup, zattrs] = &texts;
    let is_zarr = [zarr_json, zarray, zgroup].into_iter().any(Option::is_some);
    let n5 = Document::AttributesJson;
    let attributes_json = match is_zarr {
        true => None,
        false => match text_of(read_attributes_json(store, key).await, key, n5) {
            Ok(text) => text,
            Err(error) => return error.into_state(n5).into(),
        },
    };
    let [v1_zarray, v1_attributes] = match is_zarr || attributes_json.is_some() {
        true => [None, None],
        false => match read_v1_texts(store, key).await {
            Ok(texts) => texts,
            Err(error) => return error.into_state(Document::Meta).into(),
        },
    };
    let documents = Documents {
        zarr_json: bytes(zarr_json),
        zarray: bytes(zarray).or(bytes(&v1_zarray)),
        zgroup: bytes(zgroup),
        zattrs: bytes(zattrs).or(bytes(&v1_attributes)),
        attributes_json: bytes(&attributes_json),
    };
    let Some(detected) = documents.node() else {
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
    let describing = [zarr_json, zarray, &attributes_json, &v1_zarray];
    let describing = describing.into_iter().find_map(Option::as_ref);
    DirectoryNode {
        state,
        ignored: ignored.collect(),
        stale,
        document: describing.map(|text| text.document.clone()),
    }
}

fn bytes(text: &Option<Text>) -> Option<&[u8]> {
    text.as_ref().map(|text| &text.bytes[..])
}

/// Reads the documents of a version 1 array as `.zarray` and `.zattrs`.
async fn read_v1_texts(store: &dyn Store, key: &Key) -> Result<[Option<Text>; 2], DocumentError> {
    let zarray = text_of(read_v1(store, key).await, key, Document::Meta)?;
    let attributes = match zarray {
        Some(_) => read_text(store, key, Document::Attrs).await?,
        None => None,
    };
    Ok([zarray, attributes])
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
    let text = read_text(store, key, Document::Zmetadata).await;
    let Some(text) = text? else {
        return Ok(None);
    };
    Consolidated::from_zmetadata(&text.bytes)
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

/// Reads the text of a document; `None` if its absence is proven.
async fn read_text(
    store: &dyn Store,
    node: &Key,
    document: Document,
) -> Result<Option<Text>, DocumentError> {
    text_of(read_document(store, node, document).await, node, document)
}

/// Returns the text of a stored document.
fn text_of(
    found: Result<Option<StoredDocument>, StoreError>,
    node: &Key,
    document: Document,
) -> Result<Option<Text>, DocumentError> {
    let stored = match found {
        Ok(Some(stored)) if stored.size_bytes > MAX_DOCUMENT_BYTES => {
            let size = stored.size_bytes;
            return Err(DocumentError {
                reason: format!("{size} bytes of metadata, the limit is {MAX_DOCUMENT_BYTES}"),
                failure: None,
            });
        }
        found => found,
    };
    let text = stored.and_then(|stored| {
        let Some(stored) = stored else {
            return Ok(None);
        };
        Ok(Some(Text {
            bytes: stored.text?,
            document: (stored.key, stored.version),
        }))
    });
    text.map_err(|error| {
        let key = node.join(document.name().as_bytes());
        DocumentError {
            reason: cause(&key.unwrap_or_default(), &error),
            failure: Some(error.kind()),
        }
    })
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
