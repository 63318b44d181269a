//! The `fill_value` of arrays in v2 that have all their chunks.
//!
//! xarray takes the `fill_value` of a v2 array for its mask and ignores the attribute `_FillValue`; in v3 it is the
//! other way round. An array without an absent chunk needs no `fill_value`, so the v2 document has the mask in its
//! place, or `null`. A chunk that is absent later is an error under such a document ([`UnreadableChunk`]): no reader
//! may take the mask for its elements.

use std::sync::Arc;

use super::node::{JsonDocuments, TranslatedChunks, Translation};
use super::unreadable_chunk::UnreadableChunk;
use super::{NodeView, Shared, Target};
use crate::store::{AccessHint, Key, Kind, Object, Stat, StoreError, Version, map_concurrent};

/// The maximum number of chunks that are looked up in a local store.
const MAX_LOCAL_CHUNKS: u64 = 4096;
/// The maximum number of chunks that are looked up in a remote store: coordinates have one.
const MAX_REMOTE_CHUNKS: u64 = 8;
/// The number of chunks that are looked up at a time.
const PART_CHUNKS: usize = 256;
/// The maximum number of arrays whose chunks must stay.
const MAX_ARRAYS: usize = 1 << 16;

impl Shared {
    /// Replaces the documents of an array by those for arrays with all chunks, if it has them and xarray would mask
    /// other elements. `version` is that of the documents.
    ///
    /// # Errors
    /// Temporary errors of the store.
    pub(super) async fn choose_fill_value(
        &self,
        key: &Key,
        translation: &mut Translation,
        version: u64,
    ) -> Result<(), StoreError> {
        let Translation::Array(documents, chunks) = translation else {
            return Ok(());
        };
        let Some(complete) = chunks.complete.take() else {
            return Ok(());
        };
        let is_known = self.complete.lock().get(key) == Some(&version);
        if is_known || self.has_all_chunks(key, chunks, version).await? {
            let mut known = self.complete.lock();
            if is_known || known.len() < MAX_ARRAYS {
                known.insert(key.clone(), version);
                *documents = complete;
                chunks.is_complete = true;
            }
        }
        Ok(())
    }

    /// Returns whether no chunk of an array is absent; `false` if it has too many to look them up.
    async fn has_all_chunks(
        &self,
        array: &Key,
        chunks: &TranslatedChunks,
        version: u64,
    ) -> Result<bool, StoreError> {
        let most = match self.is_remote() {
            true => MAX_REMOTE_CHUNKS,
            false => MAX_LOCAL_CHUNKS,
        };
        let mut counts = chunks.grid.shape().iter();
        let count = counts.try_fold(1_u64, |count, length| count.checked_mul(*length));
        let Some(count) = count.filter(|count| *count <= most) else {
            return Ok(false);
        };
        // In parts, so that their results take little memory, and none after an absent chunk.
        for start in (0..count).step_by(PART_CHUNKS) {
            let part = start..count.min(start + PART_CHUNKS as u64);
            let found = map_concurrent(part, |chunk| self.has_chunk(array, chunks, version, chunk));
            for is_there in found.await {
                if !is_there? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn has_chunk(
        &self,
        array: &Key,
        chunks: &TranslatedChunks,
        version: u64,
        chunk: u64,
    ) -> Result<bool, StoreError> {
        let Some((source, numbers)) = chunks.source_key(array, chunk) else {
            return Ok(false);
        };
        let found = match &chunks.shards {
            None => self.store.stat(&source).await.map(drop),
            Some(shards) => match self.store.open(&source, shards.access_hint()).await {
                Ok(shard) => {
                    let inner = &self.inner_chunks;
                    let opened = inner.open(shards, shard, &source, &numbers, version).await;
                    opened.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        match found {
            Ok(()) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            // A chunk that cannot be read is not absent.
            Err(error) if error.is_lasting() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the paths of arrays of a translation to v2 whose documents depend on their chunks, and these documents.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn complete_arrays(
        self: &Arc<Self>,
        paths: Vec<String>,
    ) -> Result<Vec<(String, JsonDocuments)>, StoreError> {
        if self.target != Target::V2 {
            return Ok(Vec::new());
        }
        let nodes = map_concurrent(paths, |path| async move {
            let Ok(key) = Key::new(path.as_bytes()) else {
                return Ok::<_, StoreError>(None);
            };
            let node = self.node(&self.root.join_key(&key)).await?;
            Ok(node.map(|node| (path, node)))
        });
        let mut found = Vec::new();
        for node in nodes.await {
            let node: Option<(String, Arc<NodeView>)> = node?;
            if let Some((path, node)) = node
                && let Translation::Array(documents, chunks) = &node.translation
                && chunks.is_complete
            {
                found.push((path, documents.clone()));
            }
        }
        Ok(found)
    }

    /// Returns a chunk whose reads fail in place of an absent one of an array that had all its chunks.
    ///
    /// # Errors
    /// `error`, if the chunk is absent from any other array.
    pub(super) fn absent_chunk(
        &self,
        node: &NodeView,
        array: &Key,
        error: StoreError,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let is_complete = node.chunks().is_some_and(|chunks| chunks.is_complete);
        if !is_complete || !matches!(error, StoreError::NotFound { .. }) {
            return Err(error);
        }
        let stat = Stat {
            kind: Kind::Object,
            size_bytes: 1,
            modified: node.modified,
            version: Version(super::hash(&[node.version, u64::MAX, 1])),
            links: 1,
        };
        let error = StoreError::Stale {
            key: array.clone(),
            what: "a chunk is gone that existed when its fill_value was written as the mask of xarray: mount the \
                   source again"
                .into(),
        };
        Ok(Arc::new(UnreadableChunk { stat, error }))
    }

    /// Opens a chunk for the attributes of it.
    pub(super) async fn opened_stat(
        &self,
        node: &NodeView,
        array: &Key,
        chunk: u64,
    ) -> Result<Stat, StoreError> {
        let hint = AccessHint::Ranges;
        self.open_chunk(node, array, chunk, hint).await?.stat()
    }
}
