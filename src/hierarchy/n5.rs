//! The directories of an N5 hierarchy, whose document is `attributes.json`.
//!
//! The first directory with metadata, on the path from the root, decides for all directories below
//! it. With Zarr metadata the hierarchy is Zarr, even if the directory has `attributes.json`; with
//! only an N5 document it is N5. In a Zarr hierarchy `attributes.json` is an ordinary value and is
//! not read. In an N5 hierarchy a directory with Zarr metadata of its own is a Zarr node.
//!
//! Invariant: if the metadata of a Zarr root are cached, this module makes no request.

use super::document::{Document, StoredDocument, read_document};
use crate::store::{Key, Kind, Store, StoreError};
use crate::zarr;

/// Any one of these documents makes a hierarchy Zarr.
const ZARR_DOCUMENTS: [Document; 4] = [
    Document::ZarrJson,
    Document::Zgroup,
    Document::Zarray,
    Document::Zmetadata,
];

/// The format that a directory determines for the directories below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Zarr,
    N5,
    /// The directory has no metadata.
    Undecided,
}

/// Reads `attributes.json` of a directory without Zarr metadata. `None` if the directory is not in
/// an N5 hierarchy, or has no such document.
///
/// # Errors
/// The errors of the store, unless a document can never be read.
pub(super) async fn read_attributes_json(
    store: &dyn Store,
    key: &Key,
) -> Result<Option<StoredDocument>, StoreError> {
    for above in from_root(key) {
        match dialect(store, &above).await? {
            Dialect::Zarr => return Ok(None),
            Dialect::N5 => return read_document(store, key, Document::AttributesJson).await,
            Dialect::Undecided => {}
        }
    }
    root_document(store, key).await
}

/// Returns whether a directory without Zarr metadata belongs to an N5 hierarchy.
///
/// # Errors
/// The errors of the store, unless a document can never be read.
pub async fn is_in_n5(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    for above in from_root(key) {
        match dialect(store, &above).await? {
            Dialect::Undecided => {}
            decided => return Ok(decided == Dialect::N5),
        }
    }
    Ok(root_document(store, key).await?.is_some())
}

/// Returns whether a directory without Zarr metadata is the root of an N5 hierarchy, if no directory above
/// it is in one.
///
/// # Errors
/// The errors of the store, unless a document can never be read.
pub(super) async fn is_n5_root(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    Ok(root_document(store, key).await?.is_some())
}

/// Returns the prefixes above a key, the root first.
pub(super) fn from_root(key: &Key) -> Vec<Key> {
    let parent = |key: &Key| (!key.is_root()).then(|| key.parent());
    let mut above: Vec<Key> = std::iter::successors(parent(key), parent).collect();
    above.reverse();
    above
}

async fn dialect(store: &dyn Store, prefix: &Key) -> Result<Dialect, StoreError> {
    let cached = |document: Document| {
        let key = prefix.join(document.name().as_bytes()).ok()?;
        Some(
            store
                .try_stat(&key)?
                .is_ok_and(|stat| stat.kind == Kind::Object),
        )
    };
    let known = ZARR_DOCUMENTS.map(cached);
    if known.contains(&Some(true)) {
        return Ok(Dialect::Zarr);
    }
    // A cached `attributes.json` means that the absence of the Zarr documents was proved before.
    let is_read = cached(Document::AttributesJson) == Some(true);
    if known.contains(&None) && !is_read && has_zarr_document(store, prefix).await? {
        return Ok(Dialect::Zarr);
    }
    Ok(match root_document(store, prefix).await? {
        Some(_) => Dialect::N5,
        None => Dialect::Undecided,
    })
}

async fn has_zarr_document(store: &dyn Store, prefix: &Key) -> Result<bool, StoreError> {
    // One at a time, because most hierarchies have one of the first two.
    for document in ZARR_DOCUMENTS {
        let Ok(key) = prefix.join(document.name().as_bytes()) else {
            continue;
        };
        match store.stat(&key).await {
            Ok(stat) if stat.kind == Kind::Object => return Ok(true),
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
            Err(error) if error.is_lasting() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Reads `attributes.json` if it is the root of an N5 hierarchy. A document that cannot be read is
/// no root.
async fn root_document(
    store: &dyn Store,
    prefix: &Key,
) -> Result<Option<StoredDocument>, StoreError> {
    let document = match read_document(store, prefix, Document::AttributesJson).await {
        Err(error) if error.is_lasting() => None,
        document => document?,
    };
    let is_root = |document: &StoredDocument| match &document.text {
        Ok(text) => zarr::is_n5_root(text),
        Err(_) => false,
    };
    Ok(document.filter(is_root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::NodeDocuments;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    const ROOT: &str = r#"{"n5":"4.0.0"}"#;
    const DATASET: &str =
        r#"{"dimensions":[2],"blockSize":[2],"dataType":"int8","compression":{"type":"raw"}}"#;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    /// Returns whether a directory of a store with these documents has one of N5.
    fn is_n5(documents: &[(&str, &str)], directory: &str) -> bool {
        let values = documents.iter();
        let values = values.map(|(name, text)| (key(name), text.as_bytes().to_vec()));
        let store = MemoryStore::new(values);
        let found = block_on(NodeDocuments::read(&store, &key(directory))).unwrap();
        found.documents().attributes_json.is_some()
    }

    #[test]
    fn the_first_directory_with_metadata_decides() {
        let group = "a/b/attributes.json";
        let n5 = [("attributes.json", ROOT), (group, "{}")];
        assert!(is_n5(&n5, "") && is_n5(&n5, "a/b") && !is_n5(&n5, "a"));
        let subtree = [("x/attributes.json", ROOT), ("x/a/attributes.json", "{}")];
        assert!(is_n5(&subtree, "x/a"));
        assert!(is_n5(&[(group, DATASET)], "a/b"));
        assert!(!is_n5(&[("attributes.json", "{}"), (group, "{}")], "a/b"));
        for name in ["zarr.json", ".zgroup", ".zarray", ".zmetadata"] {
            let zarr = [(name, "{}"), ("attributes.json", ROOT), (group, DATASET)];
            assert!(!is_n5(&zarr, "a/b"), "{name}");
        }
        let zarr_below = [
            ("attributes.json", ROOT),
            ("a/b/.zgroup", "{}"),
            (group, "{}"),
        ];
        assert!(!is_n5(&zarr_below, "a/b"));
    }

    #[test]
    fn prefixes_are_visited_from_the_root() {
        let names: Vec<Key> = from_root(&key("a/b/c"));
        assert_eq!(names, [Key::root(), key("a"), key("a/b")]);
        assert!(from_root(&Key::root()).is_empty());
    }
}
