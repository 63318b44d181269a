//! The attributes of rendered documents, which have no key in the store.

use std::hash::Hasher;
use std::time::SystemTime;

use siphasher::sip::SipHasher13;

use crate::store::{Kind, Stat, Version};

/// Returns the attributes of a document, whose version is a hash of its bytes.
pub(super) fn document_stat(text: &[u8], modified: SystemTime) -> Stat {
    let mut hasher = SipHasher13::new();
    hasher.write(text);
    Stat {
        kind: Kind::Object,
        size_bytes: text.len() as u64,
        modified,
        version: Version(hasher.finish()),
        links: 1,
    }
}
