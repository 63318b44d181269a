//! Consolidated metadata of a translated hierarchy, rendered on first use.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::hierarchy::{self, Hierarchy, HierarchyError, MAX_NODES};
use super::node::Translation;
use super::{NodeView, Shared, Target};
use crate::array::Reservation;
use crate::clock::Instant;
use crate::hierarchy::Document;
use crate::store::{Kind, StoreError};

/// A document, and the time of the last modification of any document in it.
pub(super) type DatedDocument = (Arc<Vec<u8>>, SystemTime);

/// The result of rendering consolidated metadata.
#[derive(Debug, Clone)]
pub(super) struct RenderedConsolidated {
    document: Option<DatedDocument>,
    /// The version of the root's documents in it.
    version: u64,
    read: Instant,
    _memory: Arc<Reservation>,
}

/// The largest number of nodes of a mutable store, which are read again when their metadata expire.
const MAX_LIVE_NODES: usize = 1000;

impl Shared {
    /// Returns the consolidated metadata of this root, if they are valid. They expire like
    /// documents, because their readers read no documents.
    fn cached_consolidated(&self, root: &NodeView) -> Option<RenderedConsolidated> {
        let cached = self.consolidated.lock().clone()?;
        let is_fresh = self
            .ttl
            .is_none_or(|ttl| cached.read.elapsed() < ttl.present);
        (is_fresh && cached.version == root.version).then_some(cached)
    }

    /// Returns the document of the root with consolidated metadata: `.zmetadata` or `zarr.json`.
    /// `None` if the translation has none, or uses that of the store.
    pub(super) async fn consolidated(
        self: &Arc<Self>,
        root: &Arc<NodeView>,
    ) -> Result<Option<DatedDocument>, StoreError> {
        match &root.translation {
            Translation::Group(Some(_)) => {}
            Translation::Group(None) if self.has_zmetadata().await? => {}
            _ => return Ok(None),
        }
        if let Some(cached) = self.cached_consolidated(root) {
            return Ok(cached.document);
        }
        let (shared, own) = (Arc::clone(self), Arc::clone(root));
        let load = || async move {
            if let Some(cached) = shared.cached_consolidated(&own) {
                return Ok(cached);
            }
            let consolidated = shared.consolidate(&own).await?;
            *shared.consolidated.lock() = Some(consolidated.clone());
            Ok(consolidated)
        };
        let panicked = StoreError::internal("consolidating metadata panicked");
        let consolidated = self
            .consolidated_loads
            .run(root.version, load, panicked)
            .await?;
        Ok(consolidated.document)
    }

    /// Returns whether an unchanged v2 root has consolidated metadata. These are rendered again,
    /// since they may name nodes that the translation leaves out.
    async fn has_zmetadata(&self) -> Result<bool, StoreError> {
        let Ok(key) = self.root.join(Document::Zmetadata.name().as_bytes()) else {
            return Ok(false);
        };
        if self.target != Target::V2 {
            return Ok(false);
        }
        match self.store.stat(&key).await {
            Ok(stat) => Ok(stat.kind == Kind::Object),
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn consolidate(
        self: &Arc<Self>,
        root: &NodeView,
    ) -> Result<RenderedConsolidated, StoreError> {
        let read = Instant::now();
        let texts: &[(&str, Value)] = match &root.translation {
            Translation::Group(Some(texts)) => texts,
            _ => &[],
        };
        let most = match self.ttl {
            Some(_) => MAX_LIVE_NODES,
            None => MAX_NODES,
        };
        let hierarchy = Hierarchy::read_all(&*self.store, &self.root, &self.engine, most).await;
        let complete = match &hierarchy {
            Ok(hierarchy) => self.complete_arrays(hierarchy.tree.completable()).await?,
            Err(_) => Vec::new(),
        };
        let document = match hierarchy {
            Ok(hierarchy) => hierarchy
                .tree
                .translated(self.target)
                .map(|mut tree| -> Result<_, StoreError> {
                    for (path, documents) in complete {
                        tree.replace(&path, documents);
                    }
                    let document = match self.target {
                        Target::V2 => tree.zmetadata(),
                        Target::V3 | Target::Unsharded => {
                            let document = texts.first().map(|(_, document)| document.clone());
                            let mut document = document.unwrap_or_default();
                            if let Some(members) = document.as_object_mut() {
                                let consolidated = tree.consolidated_metadata();
                                members.insert("consolidated_metadata".into(), consolidated);
                            }
                            document
                        }
                    };
                    let text = hierarchy::text(&document, &self.root)?;
                    Ok((Arc::new(text), hierarchy.modified))
                })
                .transpose()?,
            Err(HierarchyError::Absent(why)) => {
                log::info!("{} has no consolidated metadata: {why}", self.target.name());
                None
            }
            Err(HierarchyError::Failed(error)) => return Err(error),
        };
        let bytes = document.as_ref().map_or(0, |(text, _)| text.len());
        let memory = self.engine.reserve_now(&self.root, bytes as u64)?;
        Ok(RenderedConsolidated {
            document,
            version: root.version,
            read,
            _memory: Arc::new(memory),
        })
    }
}
