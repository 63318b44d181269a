//! Texts that are made of decoded elements.

use std::hash::Hasher;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use siphasher::sip::SipHasher13;

use super::content::{Rendering, Text};
use super::elements::render;
use super::kept::Kept;
use super::node::{Elements, ViewNode};
use super::nodes::Nodes;
use crate::array::read_elements;
use crate::store::{Key, Patience, StoreError, may_wait};
use crate::zarr::Node;

/// Elements of variable length, and the text that is made of them, may take so much.
const MAX_ELEMENTS_BYTES: u64 = 64 << 20;

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
        if let Some(text) = self.texts().get(&place)
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
        let is_pinned = self.store().capabilities().immutable;
        let place = (node.key.clone(), node.version);
        if let Some(text) = self.texts().get(&place)
            && (is_pinned || text.made.elapsed() < self.options().ttl)
        {
            return Ok(text.rendering);
        }
        Ok(self.make_text(node)?.rendering)
    }

    /// The text, made once however many ask for it at the same time.
    fn make_text(&self, node: &ViewNode) -> Result<Text, StoreError> {
        may_wait(&node.key)?;
        let place = (node.key.clone(), node.version);
        let deadline = self.engine().deadline();
        let made = self
            .texts_in_the_making
            .answer(place, deadline, || self.make_text_now(node));
        made.unwrap_or_else(|| {
            Err(StoreError::TimedOut {
                key: node.key.clone(),
                what: "its elements, which are being decoded".into(),
            })
        })
    }

    fn make_text_now(&self, node: &ViewNode) -> Result<Text, StoreError> {
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
        let most = self.engine().memory_limit_bytes() / 8;
        let place = (node.key.clone(), node.version);
        self.texts()
            .put(place, text.clone(), rendering.size_bytes, most, usize::MAX);
        Ok(text)
    }

    fn texts(&self) -> MutexGuard<'_, Kept<(Key, u64), Text>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
