//! Consolidated metadata of all that is shown, made when they are first asked for.

use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;

use super::node::Translation;
use super::outline::{self, NoOutline, Outline};
use super::{Shared, Shown, Target};
use crate::store::{StoreError, may_wait};

/// Consolidated metadata that were made; none if there are none.
#[derive(Debug, Clone)]
pub(super) struct Consolidated {
    text: Option<Arc<Vec<u8>>>,
    until: Option<Instant>,
}

impl Shared {
    /// Consolidated metadata that were made and are fresh.
    fn kept(&self) -> Option<Consolidated> {
        let kept = self
            .consolidated
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |until: &Instant| Instant::now() < *until;
        kept.clone()
            .filter(|kept| kept.until.as_ref().is_none_or(is_fresh))
    }

    /// Whether `.zmetadata` is listed at the root. A walk takes too long for that: they are taken
    /// to be there until it is known.
    pub(super) fn lists_zmetadata(&self, root: &Shown) -> Result<bool, StoreError> {
        if !matches!(root.translation, Translation::Group(Some(_))) {
            return Ok(false);
        }
        match self.kept() {
            Some(kept) => Ok(kept.text.is_some()),
            None if self.store.promises().is_far => Ok(self.consolidated(root)?.is_some()),
            None => Ok(true),
        }
    }

    /// The root's document with the copies of all others: `.zmetadata`, or its `zarr.json`. None
    /// if there are none to be had, or they are shown as they are.
    pub(super) fn consolidated(&self, root: &Shown) -> Result<Option<Arc<Vec<u8>>>, StoreError> {
        let Translation::Group(Some(texts)) = &root.translation else {
            return Ok(None);
        };
        if self.target == Target::Unsharded {
            return Ok(None);
        }
        if let Some(kept) = self.kept() {
            return Ok(kept.text);
        }
        let _one_at_a_time = match (may_wait(&self.root), self.reading.try_lock()) {
            (_, Ok(lock)) => lock,
            (_, Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            (Ok(()), Err(TryLockError::WouldBlock)) => {
                self.reading.lock().unwrap_or_else(PoisonError::into_inner)
            }
            // Who reads may be waiting for a network.
            (Err(error), Err(TryLockError::WouldBlock)) => return Err(error),
        };
        if let Some(kept) = self.kept() {
            return Ok(kept.text);
        }
        let began = Instant::now();
        let text = match Outline::read(&*self.store, &self.root) {
            Ok(outline) => {
                let outline = outline.translated(self.target, &self.root, &mut |_, _| ());
                outline.map(|outline| match self.target {
                    Target::V2 => outline.zmetadata(),
                    Target::V3 | Target::Unsharded => {
                        let mut document =
                            texts.first().map(|(_, d)| d.clone()).unwrap_or_default();
                        if let Some(members) = document.as_object_mut() {
                            let copies = outline.consolidated_metadata();
                            members.insert("consolidated_metadata".into(), copies);
                        }
                        document
                    }
                })
            }
            Err(NoOutline::Absent(why)) => {
                log::info!("{} has no consolidated metadata: {why}", self.target.word());
                None
            }
            Err(NoOutline::Failed(error)) => return Err(error),
        };
        let text = text.map(|document| Arc::new(outline::text(&document)));
        // What takes long to make is kept for longer: copies may be old everywhere.
        let ttl = self
            .ttl
            .map(|ttl| ttl.max(began.elapsed().saturating_mul(20)));
        *self
            .consolidated
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Consolidated {
            text: text.clone(),
            until: ttl.and_then(|ttl| Instant::now().checked_add(ttl)),
        });
        Ok(text)
    }
}
