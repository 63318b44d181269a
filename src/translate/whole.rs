//! Consolidated metadata of all that is shown, made when they are first asked for.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use super::node::{Texts, Translation};
use super::outline::{self, Hierarchy, MAX_NODES, NoOutline};
use super::{Shared, Shown, Target};
use crate::array::Reservation;
use crate::store::{StoreError, may_wait};

/// A document, and when the last of what it was made of was changed.
pub(super) type Dated = (Arc<Vec<u8>>, SystemTime);

/// Consolidated metadata that were made; none if there are none.
#[derive(Debug, Clone)]
pub(super) struct Consolidated {
    whole: Option<Dated>,
    /// Which content of the root's own documents is in it.
    version: u64,
    made: Instant,
    _memory: Arc<Reservation>,
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
    pub(super) fn consolidated(&self, root: &Shown) -> Result<Option<Dated>, StoreError> {
        let Translation::Group(Some(texts)) = &root.translation else {
            return Ok(None);
        };
        if self.target == Target::Unsharded {
            return Ok(None);
        }
        if let Some(kept) = self.kept(root) {
            return Ok(kept.whole);
        }
        // Who makes them already may be waiting for a network.
        may_wait(&self.root)?;
        let made = self.consolidating.once(root.version, || {
            if let Some(kept) = self.kept(root) {
                return Ok(kept);
            }
            let made = self.consolidate(root, texts)?;
            let kept = self.consolidated.lock();
            *kept.unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
            Ok(made)
        })?;
        Ok(made.whole)
    }

    fn consolidate(&self, root: &Shown, texts: &Texts) -> Result<Consolidated, StoreError> {
        let made = Instant::now();
        let most = match self.ttl {
            Some(_) => MAX_LIVE_NODES,
            None => MAX_NODES,
        };
        let whole = match Hierarchy::read_all(&*self.store, &self.root, &self.engine, most) {
            Ok(read) => read.outline.translated(self.target).map(|outline| {
                let document = match self.target {
                    Target::V2 => outline.zmetadata(),
                    Target::V3 | Target::Unsharded => {
                        let document = texts.first().map(|(_, document)| document.clone());
                        let mut document = document.unwrap_or_default();
                        if let Some(members) = document.as_object_mut() {
                            let copies = outline.consolidated_metadata();
                            members.insert("consolidated_metadata".into(), copies);
                        }
                        document
                    }
                };
                (Arc::new(outline::text(&document)), read.modified)
            }),
            Err(NoOutline::Absent(why)) => {
                log::info!("{} has no consolidated metadata: {why}", self.target.word());
                None
            }
            Err(NoOutline::Failed(error)) => return Err(error),
        };
        let bytes = whole.as_ref().map_or(0, |(text, _)| text.len());
        let memory = self.engine.reserve_now(&self.root, bytes as u64)?;
        Ok(Consolidated {
            whole,
            version: root.version,
            made,
            _memory: Arc::new(memory),
        })
    }
}
