//! The loader of the metadata of prefixes, which fetches and parses documents.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::cache::MetadataCache;
use super::documents::{Documents, FetchedDocument, fetch};
use super::metadata::PrefixMetadata;
use super::own::ComparedDocuments;
use crate::clock::Instant;
use crate::hierarchy::document::Document;
use crate::hierarchy::n5::from_root;
use crate::runtime::leave_session_thread;
use crate::store::{Key, Kind, Store, StoreError, Version};
use crate::zarr;

/// Documents of a prefix with more bytes in total are parsed for one prefix at a time, because
/// their parsed form is many times larger.
const LONG_BYTES: usize = 64 << 10;

/// How completely the metadata of a prefix are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Depth {
    /// The kind of the node.
    Node,
    /// All documents of the node.
    Listing,
}

/// Metadata, and the time when their fetch began.
pub(super) type Loaded = (Arc<PrefixMetadata>, Instant);

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

    /// Returns the cached metadata of a prefix, if the inner store knows no other version of a document by now, and
    /// the time when their fetch began.
    pub(super) fn current(&self, prefix: &Key) -> Option<Loaded> {
        let cached = self.cache.metadata(prefix)?;
        self.are_current(prefix, cached.0.versions())
            .then_some(cached)
    }

    /// Returns the cached comparison of a node's own documents with consolidated metadata, if the inner store knows
    /// no other version of a document by now.
    pub(super) fn own(&self, node: &Key) -> Option<ComparedDocuments> {
        let compared = self.cache.own(node)?;
        self.are_current(node, &compared.versions)
            .then_some(compared)
    }

    /// Returns whether the inner store knows no other versions of documents.
    fn are_current(&self, prefix: &Key, versions: &[(Document, Option<Version>)]) -> bool {
        versions.iter().all(|(document, version)| {
            let key = prefix.join(document.name().as_bytes());
            let known = key.ok().and_then(|key| self.inner.try_stat(&key));
            match known {
                Some(Ok(stat)) if stat.kind == Kind::Object => *version == Some(stat.version),
                Some(Err(StoreError::NotFound { .. })) => version.is_none(),
                _ => true,
            }
        })
    }

    /// Returns the cached metadata of a prefix, if they are complete enough for `depth`.
    pub(super) fn cached(&self, prefix: &Key, depth: Depth) -> Option<Arc<PrefixMetadata>> {
        let (metadata, _) = self.current(prefix)?;
        let is_enough = depth == Depth::Node || metadata.missing().is_empty();
        is_enough.then_some(metadata)
    }

    /// Loads the kind of a node, unless it is cached.
    ///
    /// # Errors
    /// The errors of [`Loader::checked`].
    pub(super) async fn load_node(&self, prefix: &Key) -> Result<Loaded, StoreError> {
        if let Some(cached) = self.current(prefix) {
            return Ok(cached);
        }
        let since = Instant::now();
        let metadata = self.fetch_node(prefix).await;
        self.checked(prefix, metadata, since)
    }

    /// Adds all documents that `node`, or the cached metadata of the prefix, lack.
    ///
    /// # Errors
    /// The errors of [`Loader::checked`].
    pub(super) async fn load_listing(
        &self,
        prefix: &Key,
        node: Loaded,
    ) -> Result<Loaded, StoreError> {
        let (metadata, since) = self.current(prefix).unwrap_or(node);
        let missing = metadata.missing();
        if missing.is_empty() {
            return Ok((metadata, since));
        }
        let fetched = fetch(&*self.inner, prefix, missing).await;
        let parse = |fetched: &[_]| metadata.extended(fetched);
        let extended = self.parse(&fetched, parse).await;
        self.checked(prefix, extended, since)
    }

    /// Returns metadata that are sufficient for this request, and caches them if they are complete.
    /// Incomplete metadata have the reason in `failure`.
    ///
    /// # Errors
    /// The reason why the prefix is unknown.
    fn checked(
        &self,
        prefix: &Key,
        mut metadata: PrefixMetadata,
        since: Instant,
    ) -> Result<Loaded, StoreError> {
        if let Some(last) = self.cache.last(prefix) {
            metadata.record_last(&last);
        }
        let metadata = Arc::new(metadata);
        match &metadata.failure {
            None => {}
            Some(StoreError::Denied { .. }) if metadata.is_node() || prefix.is_root() => {}
            Some(_) if metadata.is_node() => return Ok((metadata, since)),
            Some(error) => return Err(error.clone()),
        }
        self.cache.insert(prefix, &metadata, since);
        Ok((metadata, since))
    }

    /// Fetches the documents that describe a prefix. For the root, consolidated metadata come first.
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
                FetchedDocument::Present { text, .. } => {
                    text.as_deref().is_some_and(zarr::is_n5_root)
                }
                FetchedDocument::Absent => true,
                FetchedDocument::Failed(error) => !error.is_lasting(),
            },
        ));
        self.parse(&fetched, PrefixMetadata::new).await
    }

    /// Returns whether the first cached directory with metadata, on the path from the root to a prefix, is
    /// an N5 node. `None` if no such directory is cached, so that an N5 hierarchy can begin at the prefix.
    fn is_below_n5(&self, prefix: &Key) -> Option<bool> {
        from_root(prefix).iter().find_map(|above| {
            let (metadata, _) = self.cache.metadata(above)?;
            metadata.is_node().then(|| metadata.is_n5())
        })
    }

    /// Parses documents; long ones of one prefix at a time.
    pub(super) async fn parse(
        &self,
        fetched: &[(Document, FetchedDocument)],
        parse: impl FnOnce(&[(Document, FetchedDocument)]) -> PrefixMetadata,
    ) -> PrefixMetadata {
        let lengths = fetched.iter().map(|(_, fetched)| match fetched {
            FetchedDocument::Present {
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
