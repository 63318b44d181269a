//! The documents in the consolidated metadata of a remote store.
//!
//! Where each document takes a request, both nodes and translated consolidated metadata are built
//! from the root's consolidated metadata, so that they always agree. Those of a local store are not
//! read.

use std::sync::Arc;
use std::time::SystemTime;

use super::Shared;
use super::hierarchy;
use crate::array::Reservation;
use crate::clock::Instant;
use crate::hierarchy::{NODE_DOCUMENT_NAMES, NodeDocuments};
use crate::store::{Key, StoreError, Version};
use crate::zarr::Consolidated;

/// The consolidated metadata of a root.
#[derive(Debug)]
pub(super) struct SourceConsolidated {
    pub(super) nodes: Consolidated,
    pub(super) modified: SystemTime,
    /// The key and version of the document that contains them.
    pub(super) document: (Key, Version),
    pub(super) _memory: Vec<Reservation>,
}

/// The consolidated metadata of a root; `None` if it has none.
#[derive(Debug, Clone)]
pub(super) struct CachedSourceConsolidated {
    source_consolidated: Option<Arc<SourceConsolidated>>,
    read: Instant,
}

impl Shared {
    /// Returns the documents of the node at a key.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn documents_at(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<NodeDocuments, StoreError> {
        if self.is_remote()
            && let Some(path) = key.below(&self.root)
            && let Some(consolidated) = self.source_consolidated().await?
            && let Some(documents) = consolidated.documents(path)
        {
            return Ok(documents);
        }
        NodeDocuments::read(&*self.store, key).await
    }

    async fn source_consolidated(
        self: &Arc<Self>,
    ) -> Result<Option<Arc<SourceConsolidated>>, StoreError> {
        if let Some(cached) = self.cached_source_consolidated() {
            return Ok(cached.source_consolidated);
        }
        let shared = Arc::clone(self);
        let load = || async move {
            if let Some(cached) = shared.cached_source_consolidated() {
                return Ok(cached);
            }
            let read = Instant::now();
            let consolidated =
                hierarchy::consolidated_at(&*shared.store, &shared.root, &shared.engine).await?;
            let cached = CachedSourceConsolidated {
                source_consolidated: consolidated.map(Arc::new),
                read,
            };
            *shared.source_consolidated.lock() = Some(cached.clone());
            Ok(cached)
        };
        let panicked = StoreError::internal("reading consolidated metadata panicked");
        Ok(self
            .source_consolidated_loads
            .run((), load, panicked)
            .await?
            .source_consolidated)
    }

    /// Returns the documents of the node at a key from the cached consolidated metadata, also if these have expired.
    pub(super) fn cached_documents_at(&self, key: &Key) -> Option<NodeDocuments> {
        let path = key.below(&self.root)?;
        let cached = self.source_consolidated.lock().clone();
        cached?.source_consolidated?.documents(path)
    }

    fn cached_source_consolidated(&self) -> Option<CachedSourceConsolidated> {
        let cached = self.source_consolidated.lock();
        let is_fresh = |cached: &&CachedSourceConsolidated| {
            self.ttl
                .is_none_or(|ttl| cached.read.elapsed() < ttl.present)
        };
        cached.as_ref().filter(is_fresh).cloned()
    }

    pub(super) fn invalidate_source_consolidated(&self) {
        *self.source_consolidated.lock() = None;
    }
}

impl SourceConsolidated {
    /// Returns the documents of the node at a path below the root.
    fn documents(&self, path: &[u8]) -> Option<NodeDocuments> {
        let path = std::str::from_utf8(path)
            .ok()
            .filter(|path| !path.is_empty())?;
        self.nodes.documents(path).next()?;
        let (document, version) = &self.document;
        let text = |name: &str| {
            let document = self.nodes.document(path, name)?;
            Some(document.to_string().into_bytes())
        };
        let texts = NODE_DOCUMENT_NAMES.map(text);
        let mut documents = NodeDocuments::of_texts(texts, version.0, self.modified);
        documents.array = Some((document.clone(), *version));
        Some(documents)
    }
}
