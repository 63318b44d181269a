//! Metadata of prefixes, fetched from the store and parsed.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::cache::MetadataCache;
use super::documents::{Documents, Fetched, fetch};
use super::metadata::PrefixMetadata;
use crate::hierarchy::document::Document;
use crate::hierarchy::n5::from_root;
use crate::runtime::leave_session_thread;
use crate::store::{Key, Store, StoreError};
use crate::zarr;

/// Documents that together are longer are parsed one prefix at a time: their parsed form is many times
/// as large.
const LONG_BYTES: usize = 64 << 10;

/// How much of a prefix has to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Depth {
    /// What it is.
    Node,
    /// All documents that it has.
    Listing,
}

/// Loads metadata into a cache.
#[derive(Debug)]
pub(super) struct Loader {
    pub(super) inner: Arc<dyn Store>,
    pub(super) cache: MetadataCache,
    parsing: Mutex<()>,
}

impl Loader {
    pub(super) fn new(inner: Arc<dyn Store>, cache: MetadataCache) -> Self {
        Self {
            inner,
            cache,
            parsing: Mutex::default(),
        }
    }

    /// The cached metadata of a prefix, if they are deep enough.
    pub(super) fn cached(&self, prefix: &Key, depth: Depth) -> Option<Arc<PrefixMetadata>> {
        let (metadata, _) = self.cache.metadata(prefix)?;
        let is_enough = depth == Depth::Node || metadata.missing().is_empty();
        is_enough.then_some(metadata)
    }

    /// Fetches what the cache lacks of the metadata of a prefix. Metadata that are known in part hold the
    /// reason.
    ///
    /// # Errors
    /// Why nothing is known.
    pub(super) async fn load(
        &self,
        prefix: &Key,
        depth: Depth,
    ) -> Result<Arc<PrefixMetadata>, StoreError> {
        let (mut metadata, since) = match self.cache.metadata(prefix) {
            Some(cached) => cached,
            None => {
                let since = Instant::now();
                (Arc::new(self.fetch_node(prefix).await), since)
            }
        };
        let missing = metadata.missing();
        if depth == Depth::Listing && !missing.is_empty() {
            let fetched = fetch(&*self.inner, prefix, missing).await;
            let parse = |fetched: &[_]| metadata.extended(fetched);
            metadata = Arc::new(self.parse(&fetched, parse).await);
        }
        match &metadata.failure {
            None => {}
            // A refusal is not cached; what the store did answer is.
            Some(StoreError::Denied { .. }) if metadata.is_node() || prefix.is_root() => {}
            // Enough for this request.
            Some(_) if metadata.is_node() => return Ok(metadata),
            Some(error) => return Err(error.clone()),
        }
        self.cache.insert(prefix, &metadata, since);
        Ok(metadata)
    }

    /// Fetches the documents that describe a prefix; of the root, consolidated metadata first.
    async fn fetch_node(&self, prefix: &Key) -> PrefixMetadata {
        let v2: Documents = [Document::Zgroup, Document::Zarray].into();
        let n5: Documents = [Document::AttributesJson].into();
        let is_below_n5 = self.is_below_n5(prefix);
        let first = match prefix.is_root() {
            true => [Document::ZarrJson, Document::Zmetadata].into(),
            false if is_below_n5 == Some(true) => v2.union([Document::ZarrJson].into()).union(n5),
            false => v2.union([Document::ZarrJson].into()),
        };
        let mut fetched = fetch(&*self.inner, prefix, first).await;
        let mut metadata = self.parse(&fetched, PrefixMetadata::new).await;
        if prefix.is_root() && !metadata.is_settled() {
            fetched.extend(fetch(&*self.inner, prefix, v2).await);
            metadata = self.parse(&fetched, PrefixMetadata::new).await;
        }
        if is_below_n5.is_some() || metadata.is_node() || metadata.failure.is_some() {
            return metadata;
        }
        fetched.extend(fetch(&*self.inner, prefix, n5).await.into_iter().filter(
            |(_, document)| match document {
                Fetched::Present { text, .. } => text.as_deref().is_some_and(zarr::is_n5_root),
                Fetched::Absent => true,
                Fetched::Failed(error) => !error.is_lasting(),
            },
        ));
        self.parse(&fetched, PrefixMetadata::new).await
    }

    /// Whether the first directory on the way to a prefix that has metadata, as far as they are cached,
    /// is one of N5; `None` if none has any, so that a hierarchy of N5 can begin at the prefix.
    fn is_below_n5(&self, prefix: &Key) -> Option<bool> {
        from_root(prefix).iter().find_map(|above| {
            let (metadata, _) = self.cache.metadata(above)?;
            metadata.is_node().then(|| metadata.is_n5())
        })
    }

    async fn parse(
        &self,
        fetched: &[(Document, Fetched)],
        parse: impl FnOnce(&[(Document, Fetched)]) -> PrefixMetadata,
    ) -> PrefixMetadata {
        let lengths = fetched.iter().map(|(_, fetched)| match fetched {
            Fetched::Present {
                text: Some(text), ..
            } => text.len(),
            _ => 0,
        });
        if lengths.fold(0, usize::saturating_add) <= LONG_BYTES {
            return parse(fetched);
        }
        let _one_at_a_time = self.parsing.lock().await;
        leave_session_thread().await;
        parse(fetched)
    }
}
