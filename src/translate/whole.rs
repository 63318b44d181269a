//! Consolidated metadata of all that is shown, made when they are first asked for.

use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;

use super::node::Translation;
use super::outline::{self, MAX_NODES, NoOutline, Outline};
use super::{Shared, Shown, Target};
use crate::store::{StoreError, may_wait};

/// Consolidated metadata that were made; none if there are none.
#[derive(Debug, Clone)]
pub(super) struct Consolidated {
    text: Option<Arc<Vec<u8>>>,
    /// Which content of the root's own documents is in it.
    version: u64,
    made: Instant,
}

/// Nodes that are read anew whenever what is known of a store that can change has become old.
const MAX_LIVE_NODES: usize = 1000;

impl Shared {
    /// Consolidated metadata that were made of this root and are fresh. They are trusted for no
    /// longer than documents are: who reads them reads no others.
    fn kept(&self, root: &Shown) -> Option<Consolidated> {
        let kept = self.consolidated.lock();
        let kept = kept.unwrap_or_else(PoisonError::into_inner).clone()?;
        let is_fresh = self.ttl.is_none_or(|ttl| kept.made.elapsed() < ttl);
        (is_fresh && kept.version == root.version).then_some(kept)
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
        if let Some(kept) = self.kept(root) {
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
        if let Some(kept) = self.kept(root) {
            return Ok(kept.text);
        }
        let made = Instant::now();
        let most = match self.ttl {
            Some(_) => MAX_LIVE_NODES,
            None => MAX_NODES,
        };
        let text = match Outline::read_within(&*self.store, &self.root, most) {
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
        let kept = Consolidated {
            text: text.clone(),
            version: root.version,
            made,
        };
        let mut consolidated = self
            .consolidated
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *consolidated = Some(kept);
        Ok(text)
    }
}
