//! The classes of the keys of a hierarchy.

use super::document::{DOCUMENT_NAMES, is_document};
use crate::store::{Key, KeyClasses};
use crate::zarr::ATTRIBUTES_JSON;

/// The key classes of Zarr v2, Zarr v3 and N5. `attributes.json` is looked for last and is not a
/// document class: in a Zarr hierarchy it is an ordinary value or prefix.
pub const KEY_CLASSES: KeyClasses = KeyClasses {
    is_document: is_document_or_reserved,
    node_documents: &{
        let [zarr_json, zarray, zgroup, _, zmetadata] = DOCUMENT_NAMES;
        [zarr_json, zmetadata, zgroup, zarray, ATTRIBUTES_JSON]
    },
    node_of,
};

/// Returns whether a key is a metadata document, or a name that Zarr v2 reserves for one: `.z...`.
/// A listing then answers a lookup of `.zarrfs`, which no store has, without a request.
fn is_document_or_reserved(key: &Key) -> bool {
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
    is_document(key) || name.is_some_and(|name| name.starts_with(b".z"))
}

/// Returns the array or group that a key most likely belongs to: the key without a final document
/// name, or without the final components that look like a chunk key.
fn node_of(key: &Key) -> Key {
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
    let is_n5_document = || name == Some(ATTRIBUTES_JSON.as_bytes());
    if is_document(key) || is_n5_document() {
        return key.parent();
    }
    let mut node = key.clone();
    while is_part_of_chunk_key(node.as_bytes().rsplit(|byte| *byte == b'/').next()) {
        node = node.parent();
    }
    node
}

fn is_part_of_chunk_key(name: Option<&[u8]>) -> bool {
    let name = name.unwrap_or_default();
    let indices = name.strip_prefix(b"c.").unwrap_or(name);
    let is_index = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    name == b"c" || (!indices.is_empty() && indices.iter().all(is_index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_node() {
        let cases = [
            ("a/b/0.0.1", "a/b"),
            ("a/b/c/0/1", "a/b"),
            ("a/b/c.0.1", "a/b"),
            ("a/b/.zarray", "a/b"),
            ("a/b/zarr.json", "a/b"),
            ("a/b/attributes.json", "a/b"),
            ("zarr.json", ""),
            ("0.0", ""),
            ("a/0/0/0", "a"),
        ];
        for (key, node) in cases {
            let key = Key::new(key.as_bytes()).unwrap();
            assert_eq!(node_of(&key).as_bytes(), node.as_bytes(), "{key}");
        }
    }
}
