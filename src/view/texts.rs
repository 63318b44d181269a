//! Texts that are made of decoded elements, kept for a while.

use std::hash::Hasher;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use lru::LruCache;
use siphasher::sip::SipHasher13;

use super::elements::render;
use super::node::{Elements, ViewNode};
use super::nodes::Nodes;
use crate::array::read_elements;
use crate::store::{Key, Patience, StoreError};
use crate::zarr::Node;

/// Texts that were made of decoded elements, least recently used first out.
#[derive(Debug)]
pub(super) struct Texts {
    kept: LruCache<(Key, u64), Text>,
    bytes: u64,
}

/// A text that was made of decoded elements.
#[derive(Debug, Clone)]
struct Text {
    bytes: Arc<Vec<u8>>,
    rendering: Rendering,
    made: Instant,
}

/// Which content a file has that is not told by the metadata of its node alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// A hash of all that makes it.
    pub hash: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// Elements of variable length, and the text that is made of them, may take so much.
const MAX_ELEMENTS_BYTES: u64 = 64 << 20;

impl Default for Texts {
    fn default() -> Self {
        Self {
            kept: LruCache::unbounded(),
            bytes: 0,
        }
    }
}

impl Nodes {
    /// The text of the elements of an array of variable length: kept, or made again.
    ///
    /// # Errors
    /// [`StoreError::WouldWait`] for [`Patience::Now`] only; [`StoreError::Stale`] if `expected` is
    /// another text than there is by now; why a chunk can not be decoded.
    pub fn text(
        &self,
        node: &ViewNode,
        expected: Rendering,
        patience: Patience,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        let place = (node.key.clone(), node.version);
        if let Some(text) = self.texts().kept.get(&place)
            && text.rendering == expected
        {
            return Ok(Arc::clone(&text.bytes));
        }
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: place.0 });
        }
        let text = self.make_text(node)?;
        if text.rendering != expected {
            return Err(StoreError::Stale {
                key: place.0,
                what: "its elements have changed".into(),
            });
        }
        Ok(text.bytes)
    }

    /// Which text the elements of an array of variable length are now.
    pub(super) fn rendering(&self, node: &ViewNode) -> Result<Rendering, StoreError> {
        let is_pinned = self.store().promises().pinned;
        let place = (node.key.clone(), node.version);
        if let Some(text) = self.texts().kept.get(&place)
            && (is_pinned || text.made.elapsed() < self.options().ttl)
        {
            return Ok(text.rendering);
        }
        Ok(self.make_text(node)?.rendering)
    }

    fn make_text(&self, node: &ViewNode) -> Result<Text, StoreError> {
        let made = Instant::now();
        let (Node::Array(array), Elements::Variable(pipeline, document)) =
            (&node.node, &node.elements)
        else {
            return Err(StoreError::Unsupported {
                key: node.key.clone(),
                what: "no elements of variable length".into(),
            });
        };
        let limit = MAX_ELEMENTS_BYTES.min(self.engine().memory_limit_bytes() / 4);
        let data_type = array.data_type.as_ref().map_err(|e| StoreError::Corrupt {
            key: node.key.clone(),
            what: e.to_string(),
        })?;
        let engine = self.engine();
        let elements = read_elements(&**self.store(), &node.key, array, pipeline, limit, engine)?;
        self.check_document(document.as_ref())?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let bytes = render(&elements, data_type, &array.shape, most).ok_or_else(|| {
            StoreError::TooLarge {
                key: node.key.clone(),
                need_bytes: limit.saturating_add(1),
                limit_bytes: limit,
            }
        })?;
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes);
        let rendering = Rendering {
            hash: hasher.finish(),
            size_bytes: bytes.len() as u64,
        };
        let text = Text {
            bytes: Arc::new(bytes),
            rendering,
            made,
        };
        let mut texts = self.texts();
        let most = self.engine().memory_limit_bytes() / 8;
        texts.bytes = texts.bytes.saturating_add(rendering.size_bytes);
        let place = (node.key.clone(), node.version);
        if let Some(old) = texts.kept.put(place, text.clone()) {
            texts.bytes = texts.bytes.saturating_sub(old.rendering.size_bytes);
        }
        // The newest stays: who asked for it has not read it yet.
        while texts.bytes > most && texts.kept.len() > 1 {
            let Some((_, old)) = texts.kept.pop_lru() else {
                break;
            };
            texts.bytes = texts.bytes.saturating_sub(old.rendering.size_bytes);
        }
        Ok(text)
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
