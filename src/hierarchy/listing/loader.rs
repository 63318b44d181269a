//! Metadata of prefixes, fetched from the store and parsed.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::cache::MetadataCache;
use super::documents::{Documents, Fetched, fetch};
use super::metadata::PrefixMetadata;
use crate::hierarchy::document::Document;
use crate::runtime::leave_session_thread;
use crate::store::{Key, Store, StoreError};

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
        let first = match prefix.is_root() {
            true => [Document::ZarrJson, Document::Zmetadata].into(),
            false => v2.union([Document::ZarrJson].into()),
        };
        let mut fetched = fetch(&*self.inner, prefix, first).await;
        let metadata = self.parse(&fetched, PrefixMetadata::new).await;
        if !prefix.is_root() || metadata.is_settled() {
            return metadata;
        }
        fetched.extend(fetch(&*self.inner, prefix, v2).await);
        self.parse(&fetched, PrefixMetadata::new).await
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
