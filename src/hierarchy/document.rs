//! The names of metadata documents, and reading one.

use std::time::SystemTime;

use crate::store::{AccessHint, Key, Store, StoreError, Version, read_to_end};
use crate::zarr;

/// The largest size of a document that is read, in bytes.
pub const MAX_DOCUMENT_BYTES: u64 = zarr::document::MAX_DOCUMENT_BYTES as u64;

/// A metadata document of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// `zarr.json`, of a node of version 3.
    ZarrJson,
    /// `.zarray`, of an array of version 2.
    Zarray,
    /// `.zgroup`, of a group of version 2.
    Zgroup,
    /// `.zattrs`, the attributes of a node of version 2.
    Zattrs,
    /// `.zmetadata`, the consolidated metadata of a group of version 2.
    Zmetadata,
    /// `attributes.json`, of a node of an N5 hierarchy; elsewhere an ordinary value.
    AttributesJson,
    /// `meta`, of an array of version 1; elsewhere an ordinary value.
    Meta,
    /// `attrs`, the attributes of an array of version 1.
    Attrs,
}

/// The names of all Zarr metadata documents, in the order of [`Document::ALL`].
pub const DOCUMENT_NAMES: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// The names of the documents that describe one node, in the order of the fields of [`zarr::Documents`].
pub const NODE_DOCUMENT_NAMES: [&str; 5] = {
    let [zarr_json, zarray, zgroup, zattrs, _] = DOCUMENT_NAMES;
    [zarr_json, zarray, zgroup, zattrs, zarr::ATTRIBUTES_JSON]
};

impl Document {
    /// All Zarr metadata documents.
    pub const ALL: [Self; 5] = [
        Self::ZarrJson,
        Self::Zarray,
        Self::Zgroup,
        Self::Zattrs,
        Self::Zmetadata,
    ];

    /// Returns the last component of the document's key.
    pub fn name(self) -> &'static str {
        let [zarr_json, zarray, zgroup, zattrs, zmetadata] = DOCUMENT_NAMES;
        match self {
            Self::ZarrJson => zarr_json,
            Self::Zarray => zarray,
            Self::Zgroup => zgroup,
            Self::Zattrs => zattrs,
            Self::Zmetadata => zmetadata,
            Self::AttributesJson => zarr::ATTRIBUTES_JSON,
            Self::Meta => zarr::v1::META,
            Self::Attrs => zarr::v1::ATTRS,
        }
    }

    /// Returns the Zarr metadata document with a name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|document| document.name().as_bytes() == name)
    }

    /// Returns the Zarr metadata document with a key.
    pub fn from_key(key: &Key) -> Option<Self> {
        Self::from_name(key.as_bytes().rsplit(|byte| *byte == b'/').next()?)
    }
}

/// Returns whether a key is that of a Zarr metadata document.
pub fn is_document(key: &Key) -> bool {
    Document::from_key(key).is_some()
}

/// Returns whether a name is that of a Zarr metadata document.
pub fn is_document_name(name: &[u8]) -> bool {
    Document::from_name(name).is_some()
}

/// A document that exists.
#[derive(Debug)]
pub struct StoredDocument {
    /// The key of the document.
    pub key: Key,
    /// The version of the key's content that was read.
    pub version: Version,
    /// The time of the last modification.
    pub modified: SystemTime,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The content, or the reason why it cannot be read: [`StoreError::TooLarge`] if it is longer
    /// than [`MAX_DOCUMENT_BYTES`].
    pub text: Result<Vec<u8>, StoreError>,
}

/// Reads a document of a node. `None` if the store proves that the document does not exist.
///
/// # Errors
/// The errors of opening the document.
pub async fn read_document(
    store: &dyn Store,
    node: &Key,
    document: Document,
) -> Result<Option<StoredDocument>, StoreError> {
    match node.join(document.name().as_bytes()) {
        Ok(key) => read_stored(store, &key).await,
        Err(_) => Ok(None),
    }
}

/// Reads a document by its key. `None` if the store proves that it does not exist.
///
/// # Errors
/// The errors of opening the document.
pub(super) async fn read_stored(
    store: &dyn Store,
    key: &Key,
) -> Result<Option<StoredDocument>, StoreError> {
    let hint = AccessHint::Whole(MAX_DOCUMENT_BYTES);
    let object = match store.open(key, hint).await {
        Ok(object) => object,
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => return Ok(None),
        // The node has a document, so that it does not look like one without.
        Err(StoreError::NotAFile { key, what }) => {
            return Err(StoreError::Corrupt {
                key,
                what: format!("{what} is where the document should be"),
            });
        }
        Err(error) => return Err(error),
    };
    let modified = object.stat()?.modified;
    let text = match read_to_end(&*object, key, MAX_DOCUMENT_BYTES).await {
        // The document was removed after it was opened, which does not prove absence.
        Err(StoreError::NotFound { key }) => Err(StoreError::Stale {
            key,
            what: "it was removed while it was read".into(),
        }),
        text => text,
    };
    Ok(Some(StoredDocument {
        version: object.version(),
        modified,
        size_bytes: object.size_bytes(),
        text,
        key: key.clone(),
    }))
}

/// Reads the document of a version 1 array and converts it to `.zarray`. `None` if the node has
/// none, and without a request for any node of a remote store but the root.
///
/// # Errors
/// The errors of the store, unless `meta` can never be read.
pub(super) async fn read_v1(
    store: &dyn Store,
    node: &Key,
) -> Result<Option<StoredDocument>, StoreError> {
    if !node.is_root() && store.capabilities().is_remote {
        return Ok(None);
    }
    let read = match read_document(store, node, Document::Meta).await {
        Err(error) if error.is_lasting() => return Ok(None),
        read => read?,
    };
    let Some(meta) = read else {
        return Ok(None);
    };
    match meta.text {
        Ok(text) => Ok(zarr::v1::zarray(&text).map(|zarray| StoredDocument {
            text: Ok(zarray),
            ..meta
        })),
        Err(error) if error.is_lasting() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn every_document_has_its_name_and_its_key() {
        assert_eq!(Document::ALL.map(Document::name), DOCUMENT_NAMES);
        for name in DOCUMENT_NAMES {
            assert!(
                is_document(&key(name)) && is_document(&key("a/b").join(name.as_bytes()).unwrap())
            );
        }
        for other in ["a", "zarr.json/c", "a.zarray", "x/zarr.jso"] {
            assert!(!is_document(&key(other)), "{other}");
        }
        assert!(!is_document(&Key::root()));
    }
}
