//! What a source's keys are, as far as it decides how they are fetched.

use super::Key;

/// The classes of the keys of a format. Modules above that know the format define them.
#[derive(Debug, Clone, Copy)]
pub struct KeyClasses {
    /// Whether a key leads to a metadata document: it is short, fetched whole, and never waits behind
    /// other values.
    pub is_document: fn(&Key) -> bool,
    /// Names of documents of which one makes a node of a prefix, in the order in which they are looked
    /// for.
    pub node_documents: &'static [&'static str],
    /// The node that a key belongs to, as far as the key tells; for metrics.
    pub node_of: fn(&Key) -> Key,
}

impl Default for KeyClasses {
    /// Keys of no format: no key is a document, and each belongs to its parent.
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
