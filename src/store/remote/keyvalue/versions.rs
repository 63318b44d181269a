//! Versions of values whose server tells none.
//!
//! All values that were never fetched have one tag, and the first content that is fetched under a key
//! keeps it: a lookup and the open behind it agree. Any other content of that key has a tag of its own
//! digest. So a key and a tag never stand for two contents that were served.
//!
//! **Invariant:** a value that was fetched once is compared with its digest whenever it is asked for. Its
//! size alone does not tell its tag.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

use crate::store::Key;
use crate::sync::Mutex;

/// What a key that was fetched takes in memory.
const ENTRY_BYTES: u64 = 32;
/// The part of the memory that keys that were fetched may take.
const MEMORY_SHARE: u64 = 4;

/// The contents that were fetched first.
#[derive(Debug)]
pub(super) struct ContentVersions {
    fetched: Mutex<Fetched>,
    most: usize,
    hasher: RandomState,
    is_immutable: bool,
}

#[derive(Debug)]
struct Fetched {
    /// Digests of the contents that were fetched first, by a hash of the key.
    first: HashMap<u64, u64>,
    unread_tag: String,
}

impl ContentVersions {
    /// `is_immutable` says that contents do not change: then tags are the same in any process.
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

    /// The tag of values that were not fetched.
    pub(super) fn unread_tag(&self) -> String {
        self.fetched.lock().unread_tag.clone()
    }

    /// Whether the value of a key was fetched before, so that only its content tells its tag.
    pub(super) fn is_known(&self, key: &Key) -> bool {
        let fetched = self.fetched.lock();
        fetched.first.contains_key(&self.hasher.hash_one(key))
    }

    /// The tag of a content that was fetched.
    pub(super) fn tag(&self, key: &Key, content: &[u8]) -> String {
        let mut hasher = SipHasher13::new();
        hasher.write(content);
        let digest = hasher.finish();
        let key = self.hasher.hash_one(key);
        let mut fetched = self.fetched.lock();
        if fetched.first.len() >= self.most && !fetched.first.contains_key(&key) {
            // What was served under the old tag is not served again.
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
    fn digests_that_were_forgotten_are_those_of_old_tags() {
        let versions = ContentVersions::new(false, 2 * MEMORY_SHARE * ENTRY_BYTES);
        let before = versions.tag(&key("a"), b"one");
        versions.tag(&key("b"), b"one");
        assert_eq!(versions.tag(&key("a"), b"one"), before);
        versions.tag(&key("c"), b"one");
        assert!(!versions.is_known(&key("a")));
        assert_ne!(versions.tag(&key("a"), b"two"), before);
    }
}
