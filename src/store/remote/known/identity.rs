//! What a source is called, and which of its keys are documents.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use crate::store::{Key, KeyClasses};

/// What does not change while a source is open.
#[derive(Debug)]
pub(in crate::store::remote) struct SourceIdentity {
    label: String,
    number: u64,
    classes: KeyClasses,
    is_immutable: bool,
    reads_whole: bool,
}

impl SourceIdentity {
    /// `text` identifies the source, as this user sees it. `is_immutable` and `reads_whole` are those of the
    /// methods.
    pub(in crate::store::remote) fn new(
        label: String,
        text: &str,
        classes: KeyClasses,
        is_immutable: bool,
        reads_whole: bool,
    ) -> Self {
        let mut hasher = SipHasher13::new();
        text.hash(&mut hasher);
        Self {
            label,
            number: hasher.finish(),
            classes,
            is_immutable,
            reads_whole,
        }
    }

    /// The URL for messages, without secrets.
    pub(in crate::store::remote) fn label(&self) -> &str {
        &self.label
    }

    /// Identifies the source in a range cache that several sources share.
    pub(in crate::store::remote) fn number(&self) -> u64 {
        self.number
    }

    /// Whether names and contents never change, so that the disk cache is always valid.
    pub(in crate::store::remote) fn is_immutable(&self) -> bool {
        self.is_immutable
    }

    /// Whether values are always fetched whole, because no request returns a part of a known version.
    pub(in crate::store::remote) fn reads_whole(&self) -> bool {
        self.reads_whole
    }

    /// Whether a key is one of a metadata document.
    pub(in crate::store::remote) fn is_document(&self, key: &Key) -> bool {
        self.classes.is_document(key)
    }

    /// The names of the documents of a node.
    pub(in crate::store::remote) fn node_documents(&self) -> &'static [&'static str] {
        self.classes.node_documents
    }
}
