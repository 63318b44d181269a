//! What the documents in a directory say, without anything being decoded.

use std::fmt;

use crate::codec::{CodecError, Pipeline};
use crate::store::{AccessHint, Key, Store, StoreError, map_concurrent, read_to_end};
use crate::zarr::document::MAX_DOCUMENT_BYTES;
use crate::zarr::node::Documents;
use crate::zarr::{Array, Consolidated, MetadataError, Node};

/// What a directory is.
#[derive(Debug)]
pub(super) enum What {
    /// A group or an array.
    Node(Box<Node>),
    /// A directory without documents: in v2 an implicit group.
    Directory,
    /// A node whose document can not be understood.
    Broken {
        /// The name of the document.
        document: String,
        /// What is wrong with it.
        why: String,
        /// Whether the store failed, and not what stands in it.
        is_unread: bool,
    },
}

/// A directory, and what is odd about it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) what: What,
    /// Documents that were not read because another one says what the node is.
    pub(super) ignored: Vec<String>,
}

/// Why the elements of an array can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// They may be right; this program does not know them.
    Unsupported(String),
    /// The metadata are wrong.
    Invalid(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(why) | Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl From<MetadataError> for Trouble {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::Unsupported(_) => Self::Unsupported(error.to_string()),
            error => Self::Invalid(error.to_string()),
        }
    }
}

impl From<CodecError> for Trouble {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            error => Self::Invalid(error.to_string()),
        }
    }
}

/// The documents that say what a directory is.
const DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zattrs"];
/// The copies of all documents of a v2 hierarchy.
const ZMETADATA: &str = ".zmetadata";

/// Whether a name below a node is one of metadata.
pub(super) fn is_document(name: &[u8]) -> bool {
    name == ZMETADATA.as_bytes() || DOCUMENTS.iter().any(|known| name == known.as_bytes())
}

/// Reads what a directory is. Nothing is an error: what can not be read is broken.
pub(super) fn place(store: &dyn Store, key: &Key) -> Place {
    let mut texts: [Option<Vec<u8>>; 4] = Default::default();
    let found = map_concurrent(store, key, &DOCUMENTS, |name| document(store, key, name));
    for ((name, text), found) in DOCUMENTS.iter().zip(&mut texts).zip(found) {
        match found {
            Ok(found) => *text = found,
            Err(Unread { why, is_failed }) => {
                let what = What::Broken {
                    document: (*name).to_owned(),
                    why,
                    is_unread: is_failed,
                };
                return Place {
                    what,
                    ignored: Vec::new(),
                };
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
        return Place {
            what: What::Directory,
            ignored: Vec::new(),
        };
    };
    let read = detected.read;
    let what = match detected.node {
        Ok(node) => What::Node(Box::new(node)),
        Err(error) => What::Broken {
            document: read.to_owned(),
            why: error.to_string(),
            is_unread: false,
        },
    };
    let ignored = detected.ignored.iter();
    Place {
        what,
        ignored: ignored
            .map(|name| format!("{name} is not read, {read} is"))
            .collect(),
    }
}

/// The copies that a group has of the metadata below it; a v2 group has them in a document of its
/// own.
///
/// # Errors
/// Why that document can not be used.
pub(super) fn copies(
    store: &dyn Store,
    key: &Key,
    node: &Node,
) -> Result<Option<Consolidated>, String> {
    let Some(group) = node.as_group() else {
        return Ok(None);
    };
    if let Some(copies) = &group.consolidated {
        return Ok(Some(copies.clone()));
    }
    let text = document(store, key, ZMETADATA).map_err(|unread| unread.why)?;
    let Some(text) = text else {
        return Ok(None);
    };
    Consolidated::from_zmetadata(&text)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// Why the bytes of a document are not known.
struct Unread {
    why: String,
    is_failed: bool,
}

/// The bytes of a document; none if it is proven that there is none.
fn document(store: &dyn Store, key: &Key, name: &str) -> Result<Option<Vec<u8>>, Unread> {
    let unread = |why, is_failed| Unread { why, is_failed };
    let key = key
        .join(name.as_bytes())
        .map_err(|e| unread(e.to_string(), false))?;
    let hint = AccessHint::Whole(MAX_DOCUMENT_BYTES as u64);
    let object = match store.open_for(&key, hint) {
        Ok(object) => object,
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => return Ok(None),
        Err(error) => return Err(unread(cause(&key, &error), true)),
    };
    let size = object.size_bytes();
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    if length > MAX_DOCUMENT_BYTES {
        let limit = MAX_DOCUMENT_BYTES;
        let why = format!("{size} bytes of metadata, the limit is {limit}");
        return Err(unread(why, false));
    }
    read_to_end(&*object, &key, size)
        .map(Some)
        .map_err(|error| unread(cause(&key, &error), true))
}

/// An error without the key in front of it.
pub(super) fn cause(key: &Key, error: &StoreError) -> String {
    let text = error.to_string();
    let own = text.strip_prefix(&format!("{key}: "));
    own.unwrap_or(&text).to_owned()
}

/// The codecs of an array, ready to decode; for a grid of several shapes those of the first chunk.
///
/// # Errors
/// Why its elements can not be read: what is wrong comes before what is not known.
pub(super) fn pipeline(array: &Array) -> Result<Pipeline, Trouble> {
    let troubles: Vec<Trouble> = array.problems().map(Trouble::from).collect();
    let is_wrong = |trouble: &&Trouble| matches!(trouble, Trouble::Invalid(_));
    if let Some(trouble) = troubles.iter().find(is_wrong).or(troubles.first()) {
        return Err(trouble.clone());
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
