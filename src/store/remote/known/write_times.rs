//! When metadata documents were written. Attributes of chunks that were cached before do not apply to the new
//! metadata, because an array that was replaced can have the same keys.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;

use crate::cache::bounded_lru;
use crate::clock::Instant;
use crate::store::Key;
use crate::sync::Mutex;

/// Number of recorded documents; the least recently used ones are evicted first.
const MAX_DOCUMENTS: NonZeroUsize = NonZeroUsize::new(1 << 12).expect("not zero");

/// The keys of documents, and when they were written.
#[derive(Debug)]
pub(in crate::store::remote) struct DocumentWriteTimes {
    documents: Mutex<LruCache<Key, Instant>>,
    /// Whether nothing is recorded, as for all sources that do not change.
    is_empty: AtomicBool,
}

impl Default for DocumentWriteTimes {
    fn default() -> Self {
        Self {
            documents: Mutex::new(bounded_lru(MAX_DOCUMENTS)),
            is_empty: AtomicBool::new(true),
        }
    }
}

impl DocumentWriteTimes {
    /// Records that a document was written at a moment.
    pub(in crate::store::remote) fn insert(&self, document: &Key, moment: Instant) {
        self.documents.lock().put(document.clone(), moment);
        self.is_empty.store(false, Ordering::Release);
    }

    /// Returns when a document was written, if that was recorded.
    pub(in crate::store::remote) fn get(&self, document: &Key) -> Option<Instant> {
        match self.is_empty.load(Ordering::Acquire) {
            true => None,
            false => self.documents.lock().get(document).copied(),
        }
    }
}
