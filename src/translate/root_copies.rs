//! The documents in the consolidated metadata of a remote store.
//!
//! Where each document takes a request, both nodes and translated consolidated metadata are built
//! from the root's consolidated metadata, so that they always agree. Those of a local store are not
//! read.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::Shared;
use super::outline;
use crate::array::Reservation;
use crate::hierarchy::{NODE_DOCUMENT_NAMES, NodeDocuments};
use crate::store::{Key, StoreError, Version};
use crate::zarr::Consolidated;

/// The consolidated metadata of a root.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) nodes: Consolidated,
    pub(super) modified: SystemTime,
    /// The key and version of the document that contains them.
    pub(super) document: (Key, Version),
    pub(super) _memory: Vec<Reservation>,
}

/// The consolidated metadata of a root; `None` if it has none.
#[derive(Debug, Clone)]
pub(super) struct CachedCopies {
    copies: Option<Arc<Copies>>,
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
            && let Some(copies) = self.copies().await?
            && let Some(documents) = copies.documents(path)
        {
            return Ok(documents);
        }
        NodeDocuments::read(&*self.store, key).await
    }

    async fn copies(self: &Arc<Self>) -> Result<Option<Arc<Copies>>, StoreError> {
        if let Some(cached) = self.cached_copies() {
            return Ok(cached.copies);
        }
        let shared = Arc::clone(self);
        let load = || async move {
            if let Some(cached) = shared.cached_copies() {
                return Ok(cached);
            }
            let read = Instant::now();
            let copies = outline::copies_at(&*shared.store, &shared.root, &shared.engine).await?;
            let cached = CachedCopies {
                copies: copies.map(Arc::new),
                read,
            };
            *shared.copies.lock() = Some(cached.clone());
            Ok(cached)
        };
        let panicked = StoreError::internal("reading consolidated metadata panicked");
        Ok(self.copying.run((), load, panicked).await?.copies)
    }

    fn cached_copies(&self) -> Option<CachedCopies> {
        let cached = self.copies.lock();
        let is_fresh = |cached: &&CachedCopies| {
            self.ttl
                .is_none_or(|ttl| cached.read.elapsed() < ttl.present)
        };
        cached.as_ref().filter(is_fresh).cloned()
    }

    pub(super) fn remove_copies(&self) {
        *self.copies.lock() = None;
    }
}

impl Copies {
    /// Returns the documents of the node at a path below the root.
    fn documents(&self, path: &[u8]) -> Option<NodeDocuments> {
        let path = std::str::from_utf8(path)
            .ok()
            .filter(|path| !path.is_empty())?;
        self.nodes.documents(path).next()?;
        let (document, version) = &self.document;
        let text = |name: &str| {
            let copy = self.nodes.copy(path, name)?;
            Some(copy.to_string().into_bytes())
        };
        Some(NodeDocuments {
            texts: NODE_DOCUMENT_NAMES.map(text),
            version: version.0,
            modified: self.modified,
            problem: None,
            array: Some((document.clone(), *version)),
        })
    }
}
