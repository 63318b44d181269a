//! Properties of keys that affect how a store fetches them.

use super::Key;

/// The classes of the keys of a format. Modules above the store, which know the format, define them.
#[derive(Debug, Clone, Copy)]
pub struct KeyClasses {
    /// Whether a key is a metadata document: it is short, fetched whole, and never waits behind
    /// other values.
    pub is_document: fn(&Key) -> bool,
    /// Names of documents, one of which makes a prefix a node, in lookup order.
    pub node_documents: &'static [&'static str],
    /// The node that a key belongs to, derived from the key alone; for metrics.
    pub node_of: fn(&Key) -> Key,
}

impl Default for KeyClasses {
    /// Keys without a format: no key is a document, and each key belongs to its parent.
    fn default() -> Self {
        Self {
            is_document: |_| false,
            node_documents: &[],
            node_of: Key::parent,
        }
    }
}

impl KeyClasses {
    pub(super) fn is_document(&self, key: &Key) -> bool {
        (self.is_document)(key)
    }

    pub(super) fn node_of(&self, key: &Key) -> Key {
        (self.node_of)(key)
    }
}
