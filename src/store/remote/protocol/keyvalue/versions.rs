//! Versions of values whose server does not report versions.
//!
//! All values that were never fetched have the same tag. The first content that is fetched under a key
//! keeps that tag, so that a lookup and the following open agree. Any other content of the key has its digest
//! as its tag. So a key and a tag never identify two contents that were served.
//!
//! **Invariant:** once a value was fetched, every later request compares it with its digest. Its tag never
//! depends on its size alone.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

use crate::store::Key;
use crate::sync::Mutex;

/// Estimated bytes of a fetched key.
const ENTRY_BYTES: u64 = 32;
/// Fetched keys may take the memory limit divided by this.
const MEMORY_SHARE: u64 = 4;

/// The first content that was fetched under each key.
#[derive(Debug)]
pub(super) struct ContentVersions {
    fetched: Mutex<Fetched>,
    most: usize,
    hasher: RandomState,
    is_immutable: bool,
}

#[derive(Debug)]
struct Fetched {
    /// Digests of the first fetched contents, by a hash of the key.
    first: HashMap<u64, u64>,
    unread_tag: String,
}

impl ContentVersions {
    /// If `is_immutable`, contents do not change, and tags are the same in every process.
    pub(super) fn new(is_immutable: bool, memory_bytes: u64) -> Self {
        let most = memory_bytes / MEMORY_SHARE / ENTRY_BYTES;
        let versions = Self {
            fetched: Mutex::new(Fetched {
                first: HashMap::new(),
                unread_tag: String::new(),
            }),
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            hasher: RandomState::new(),
            is_immutable,
        };
        versions.fetched.lock().unread_tag = versions.new_unread_tag();
        versions
    }

    fn new_unread_tag(&self) -> String {
        match self.is_immutable {
            true => "unread".to_owned(),
            false => format!("{:016x}", RandomState::new().hash_one(0)),
        }
    }

    /// Returns the tag of values that were not fetched.
    pub(super) fn unread_tag(&self) -> String {
        self.fetched.lock().unread_tag.clone()
    }

    /// Whether the value of a key was fetched before, so that its tag depends on its content.
    pub(super) fn is_known(&self, key: &Key) -> bool {
        let fetched = self.fetched.lock();
        fetched.first.contains_key(&self.hasher.hash_one(key))
    }

    /// Returns the tag of a fetched content.
    pub(super) fn tag(&self, key: &Key, content: &[u8]) -> String {
        let mut hasher = SipHasher13::new();
        hasher.write(content);
        let digest = hasher.finish();
        let key = self.hasher.hash_one(key);
        let mut fetched = self.fetched.lock();
        if fetched.first.len() >= self.most && !fetched.first.contains_key(&key) {
            // A new tag for unread values, because contents of dropped keys were served under the old one.
            fetched.first = HashMap::new();
            fetched.unread_tag = self.new_unread_tag();
        }
        match *fetched.first.entry(key).or_insert(digest) {
            first if first == digest => fetched.unread_tag.clone(),
            _ => format!("={digest:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn the_first_content_has_the_tag_of_the_lookup_and_any_other_one_its_own() {
        let versions = ContentVersions::new(false, 1 << 20);
        let a = key("a");
        assert!(!versions.is_known(&a));
        assert_eq!(versions.tag(&a, b"one"), versions.unread_tag());
        assert!(versions.is_known(&a));
        let two = versions.tag(&a, b"two");
        assert_ne!(two, versions.unread_tag());
        assert_ne!(versions.tag(&a, b"six"), two);
        assert_eq!(versions.tag(&a, b"two"), two);
        assert_eq!(versions.tag(&a, b"one"), versions.unread_tag());
        assert_eq!(versions.tag(&key("b"), b"two"), versions.unread_tag());
    }

    #[test]
    fn evicted_digests_are_those_of_old_tags() {
        let versions = ContentVersions::new(false, 2 * MEMORY_SHARE * ENTRY_BYTES);
        let before = versions.tag(&key("a"), b"one");
        versions.tag(&key("b"), b"one");
        assert_eq!(versions.tag(&key("a"), b"one"), before);
        versions.tag(&key("c"), b"one");
        assert!(!versions.is_known(&key("a")));
        assert_ne!(versions.tag(&key("a"), b"two"), before);
    }
}
