//! The copies of documents in a far store's consolidated metadata.
//!
//! Where each document takes a request, nodes that have a copy are made of it, and so is what is
//! consolidated of them: the two never disagree. Where documents are near, copies are not looked at.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use super::Shared;
use super::documents::{self, Found};
use super::outline;
use crate::array::Reservation;
use crate::store::{Key, StoreError, Version, may_wait};
use crate::zarr::Consolidated;

/// The copies that a root has.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) nodes: Consolidated,
    pub(super) modified: SystemTime,
    /// The document that they are in, and its version.
    pub(super) document: (Key, Version),
    pub(super) _memory: Vec<Reservation>,
}

/// Copies that were read; none if there are none.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    copies: Option<Arc<Copies>>,
    read: Instant,
}

impl Shared {
    /// The documents of the node at a key.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn documents_at(&self, key: &Key) -> Result<Found, StoreError> {
        if self.store.capabilities().is_remote
            && let Some(path) = key.below(&self.root)
            && let Some(copies) = self.copies()?
            && let Some(found) = copies.found(path)
        {
            return Ok(found);
        }
        Found::read(&*self.store, key)
    }

    fn copies(&self) -> Result<Option<Arc<Copies>>, StoreError> {
        if let Some(kept) = self.kept_copies() {
            return Ok(kept.copies);
        }
        // They may be many.
        may_wait(&self.root)?;
        let read = self.copying.once((), || {
            if let Some(kept) = self.kept_copies() {
                return Ok(kept);
            }
            let read = Instant::now();
            let copies = outline::copies_at(&*self.store, &self.root, &self.engine)?;
            let kept = Kept {
                copies: copies.map(Arc::new),
                read,
            };
            let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            *copies = Some(kept.clone());
            Ok(kept)
        })?;
        Ok(read.copies)
    }

    fn kept_copies(&self) -> Option<Kept> {
        let kept = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |kept: &&Kept| self.ttl.is_none_or(|ttl| kept.read.elapsed() < ttl);
        kept.as_ref().filter(is_fresh).cloned()
    }

    /// Has the copies read anew.
    pub(super) fn forget_copies(&self) {
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Copies {
    /// What there is of the node at a path below the root.
    fn found(&self, path: &[u8]) -> Option<Found> {
        let path = std::str::from_utf8(path)
            .ok()
            .filter(|path| !path.is_empty())?;
        self.nodes.documents(path).next()?;
        let (document, version) = &self.document;
        let text = |name: &str| {
            let copy = self.nodes.copy(path, name)?;
            Some(copy.to_string().into_bytes())
        };
        Some(Found {
            texts: documents::NAMES.map(text),
            version: version.0,
            modified: self.modified,
            problem: None,
            array: Some((document.clone(), *version)),
        })
    }
}
