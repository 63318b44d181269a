//! Texts that are rendered from decoded elements.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::content::{CachedText, ContentId};
use super::nodes::Nodes;
use crate::array::read_elements;
use crate::clock::Instant;
use crate::node::{NodeElements, ViewNode};
use crate::runtime::leave_session_thread;
use crate::store::StoreError;
use crate::view::format::json::render;
use crate::zarr::Node;

/// The maximum memory of elements of variable length, and of their text, in bytes.
const MAX_ELEMENTS_BYTES: u64 = 64 << 20;

impl Nodes {
    /// Returns the text of the elements of an array of variable length, if it is cached.
    pub fn cached_text(&self, node: &ViewNode, expected: ContentId) -> Option<Arc<Vec<u8>>> {
        let id = (node.key.clone(), node.version);
        let mut texts = self.texts.lock();
        let text = texts.get(&id).filter(|text| text.content_id == expected)?;
        Some(Arc::clone(&text.bytes))
    }

    /// Returns the text of the elements of an array of variable length: from the cache, or rendered again.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the text differs from `expected` because elements have changed; else why a
    /// chunk cannot be decoded.
    pub async fn text(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        expected: ContentId,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(text) = self.cached_text(node, expected) {
            return Ok(text);
        }
        let text = self.rendered_text(node).await?;
        if text.content_id != expected {
            return Err(StoreError::Stale {
                key: node.key.clone(),
                what: "its elements have changed".into(),
            });
        }
        Ok(text.bytes)
    }

    /// Returns the current [`ContentId`] of the elements of an array of variable length.
    pub(in crate::view) async fn content_id(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<ContentId, StoreError> {
        let is_immutable = self.store().capabilities().immutable;
        let id = (node.key.clone(), node.version);
        if let Some(text) = self.texts.lock().get(&id)
            && (is_immutable || text.rendered.elapsed() < self.options().ttl.present)
        {
            return Ok(text.content_id);
        }
        Ok(self.rendered_text(node).await?.content_id)
    }

    /// Returns the text, rendered once for all callers.
    async fn rendered_text(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<CachedText, StoreError> {
        let (nodes, own) = (Arc::clone(self), Arc::clone(node));
        let load = move || async move {
            leave_session_thread().await;
            nodes.render_text(&own).await
        };
        let id = (node.key.clone(), node.version);
        let panicked = StoreError::internal("a panic while elements were made a text");
        self.text_loads.run(id, load, panicked).await
    }

    async fn render_text(&self, node: &ViewNode) -> Result<CachedText, StoreError> {
        let rendered = Instant::now();
        let (Node::Array(array), NodeElements::Variable(pipeline, store)) =
            (&node.node, &node.elements)
        else {
            return Err(StoreError::Unsupported {
                key: node.key.clone(),
                what: "no elements of variable length".into(),
            });
        };
        let limit = MAX_ELEMENTS_BYTES.min(self.engine().memory_limit_bytes() / 8);
        let data_type = array.data_type.as_ref().map_err(|e| StoreError::Corrupt {
            key: node.key.clone(),
            what: e.to_string(),
        })?;
        let engine = self.engine();
        let elements = read_elements(store.current(), &node.key, array, pipeline, limit, engine);
        let elements = elements.await?.into_value();
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
        let content_id = ContentId {
            hash: hasher.finish(),
            size_bytes: bytes.len() as u64,
        };
        let text = CachedText {
            bytes: Arc::new(bytes),
            content_id,
            rendered,
        };
        let id = (node.key.clone(), node.version);
        let evicted = self
            .texts
            .lock()
            .insert(id, text.clone(), content_id.size_bytes);
        drop(evicted);
        Ok(text)
    }
}
