//! The resolution of a key: whether it is a node, a directory of chunks or a value, and by which metadata.

use std::sync::Arc;

use super::cache::CachedStat;
use super::loader::Depth;
use super::metadata::{KeyMeaning, NodeChildren, PrefixMetadata};
use super::own::Copied;
use super::{MetadataListingStore, ancestors, below};
use crate::hierarchy::document::is_document;
use crate::hierarchy::n5::from_root;
use crate::store::{Key, Kind, Stat, StoreError};

/// The result of resolving a key.
pub(super) struct Resolved {
    pub(super) found: ResolvedKey,
    /// The node at or above the key, if consolidated metadata name it, and the result depends on them.
    pub(super) copied: Option<Copied>,
}

impl From<ResolvedKey> for Resolved {
    /// Returns a result without consolidated metadata.
    fn from(found: ResolvedKey) -> Self {
        let copied = None;
        Self { found, copied }
    }
}

/// What gives the meaning of a key.
pub(super) enum ResolvedKey {
    /// The key is known from metadata.
    Metadata(Arc<PrefixMetadata>, KeyMeaning),
    /// The key is known from the inner store.
    Inner(Stat),
}

impl ResolvedKey {
    /// Returns whether the key may have nodes below it that the metadata do not name.
    pub(super) fn may_lack_nodes(&self) -> bool {
        match self {
            Self::Inner(stat) => stat.kind == Kind::Prefix,
            Self::Metadata(metadata, KeyMeaning::Node(path)) => {
                let contents = metadata.contents(path);
                !metadata.is_consolidated()
                    && matches!(contents, NodeChildren::Group | NodeChildren::Unknown)
            }
            Self::Metadata(..) => false,
        }
    }
}

impl MetadataListingStore {
    /// Returns the meaning of a key by the consolidated metadata of a prefix above it: the first from the root
    /// that name the key. They are loaded, so that the result does not depend on what is cached. The own documents
    /// of the node decide.
    ///
    /// # Errors
    /// A failure that leaves open whether a prefix above the key has consolidated metadata; or the documents of the
    /// node cannot be read for now.
    async fn consolidated_meaning(
        &self,
        key: &Key,
        depth: Depth,
    ) -> Result<Option<Resolved>, StoreError> {
        for above in from_root(key) {
            // The consolidated metadata of the root are always loaded.
            let own = match above.is_root() {
                true => Depth::Node,
                false => Depth::Listing,
            };
            let metadata = match self.load(&above, own).await {
                Err(StoreError::Denied { .. }) if !self.named_before(&above, key) => continue,
                loaded => loaded?,
            };
            match metadata.classify(below(key, &above), true) {
                KeyMeaning::Unknown => {}
                meaning if metadata.is_consolidated() => {
                    let copied = (metadata, meaning);
                    let decided = self.by_own_documents(key, &above, copied, depth);
                    return decided.await.map(Some);
                }
                // No node is below an array.
                _ => return Ok(None),
            }
            if let Some(error) = metadata.undecided() {
                return Err(error.clone());
            }
        }
        Ok(None)
    }

    /// Returns what consolidated metadata above a prefix that is listed say about it, if `nearest` leaves names of
    /// nodes open.
    pub(super) async fn with_consolidated(
        &self,
        prefix: &Key,
        nearest: Resolved,
    ) -> Result<Resolved, StoreError> {
        if !nearest.found.may_lack_nodes() {
            return Ok(nearest);
        }
        let consolidated = self.consolidated_meaning(prefix, Depth::Listing).await?;
        Ok(consolidated.unwrap_or(nearest))
    }

    /// Returns whether the last metadata of a prefix said something about a key, which is unknown while they cannot be
    /// read. Otherwise the key can be readable below a prefix that is not.
    fn named_before(&self, prefix: &Key, key: &Key) -> bool {
        let last = self.loader.cache.last(prefix);
        last.is_some_and(|last| {
            let meaning = last.classify(below(key, prefix), true);
            last.is_consolidated() || last.undecided().is_some() || meaning != KeyMeaning::Unknown
        })
    }

    /// Returns whether a prefix above a key is known to have had consolidated metadata.
    pub(super) fn was_consolidated_above(&self, key: &Key) -> bool {
        let cache = &self.loader.cache;
        from_root(key)
            .iter()
            .any(|above| cache.was_consolidated(above))
    }

    /// Resolves a key by the cached metadata above it, or else by its own. If it is a node, its metadata are
    /// loaded to `depth`.
    pub(super) async fn resolve(&self, key: &Key, depth: Depth) -> Result<Resolved, StoreError> {
        let root = Key::root();
        let cache = &self.loader.cache;
        let root_depth = if key.is_root() { depth } else { Depth::Node };
        let metadata = self.load(&root, root_depth).await?;
        let since = self.loader.current(&root).map(|(_, since)| since);
        let is_absence_fresh = since.is_none_or(|since| cache.is_absence_fresh(since));
        let meaning = metadata.classify(key.as_bytes(), is_absence_fresh);
        if !matches!(meaning, KeyMeaning::Unknown | KeyMeaning::Undecided(_)) {
            let copied = (metadata, meaning);
            return self.by_own_documents(key, &root, copied, depth).await;
        }
        if let Some((at, metadata, meaning)) = self.copied_meaning(key) {
            // The metadata of the node itself may lack documents.
            let is_own = meaning == KeyMeaning::Node(String::new());
            let metadata = match is_own && depth == Depth::Listing {
                true => self.load(key, depth).await?,
                false => metadata,
            };
            let copied = (metadata, meaning);
            return self.by_own_documents(key, &at, copied, depth).await;
        }
        if is_document(key) {
            let stat = self.inner.stat(key).await?;
            return Ok(ResolvedKey::Inner(stat).into());
        }
        let stat = match cache.stat(key) {
            Some(CachedStat::Absent) => return Err(StoreError::NotFound { key: key.clone() }),
            Some(CachedStat::Prefix(stat)) => stat,
            None => match self.inner.stat(key).await {
                Ok(stat) if stat.kind == Kind::Object => {
                    return Ok(ResolvedKey::Inner(stat).into());
                }
                Ok(stat) => {
                    cache.insert_stat(key, CachedStat::Prefix(stat));
                    stat
                }
                Err(why @ (StoreError::NotFound { .. } | StoreError::Denied { .. })) => {
                    return self.resolve_unlisted(key, depth, why).await;
                }
                Err(error) => return Err(error),
            },
        };
        match depth {
            Depth::Node => Ok(ResolvedKey::Inner(stat).into()),
            Depth::Listing => self.resolve_listed(key, stat).await.map(Resolved::from),
        }
    }

    /// Resolves a prefix of the inner store, which may have documents.
    async fn resolve_listed(&self, key: &Key, stat: Stat) -> Result<ResolvedKey, StoreError> {
        let metadata = match self.load(key, Depth::Listing).await {
            Ok(metadata) if metadata.is_node() => metadata,
            // The key is a prefix even if its documents are denied.
            Ok(_) | Err(StoreError::Denied { .. }) => return Ok(ResolvedKey::Inner(stat)),
            Err(error) => return Err(error),
        };
        let meaning = metadata.classify(b"", true);
        Ok(ResolvedKey::Metadata(metadata, meaning))
    }

    /// Resolves a key that the inner store does not have: it may be a node or a directory of chunks.
    async fn resolve_unlisted(
        &self,
        key: &Key,
        depth: Depth,
        why: StoreError,
    ) -> Result<Resolved, StoreError> {
        let mut above: Vec<Key> = ancestors(key).collect();
        above.push(Key::root());
        let mut undecided = None;
        for above in above.into_iter().rev() {
            let own = if above == *key { depth } else { Depth::Node };
            let metadata = self.load(&above, own).await?;
            match metadata.classify(below(key, &above), true) {
                KeyMeaning::Unknown => {}
                // The key may have documents of its own.
                KeyMeaning::Undecided(path) => {
                    let node = Key::new(path.as_bytes());
                    undecided = Some(node.map_or(above.clone(), |node| above.join_key(&node)));
                }
                KeyMeaning::AbsentDocument => return Err(why),
                // The document of the array may name a directory of chunks there.
                KeyMeaning::InnerKey => {
                    let copied = (metadata, KeyMeaning::InnerKey);
                    let resolved = self.by_own_documents(key, &above, copied, depth).await?;
                    if !matches!(
                        resolved.found,
                        ResolvedKey::Metadata(_, KeyMeaning::InnerKey)
                    ) {
                        return Ok(resolved);
                    }
                    let directory = self.directory_by_document(key, resolved.copied).await?;
                    return directory.ok_or(why);
                }
                meaning => {
                    let copied = (metadata, meaning);
                    return self.by_own_documents(key, &above, copied, depth).await;
                }
            }
            if let Some(error) = metadata.failure.as_ref().filter(|_| !metadata.is_certain()) {
                // The document that could name the key could not be fetched.
                return Err(error.clone());
            }
        }
        // Only consolidated metadata name a prefix without documents.
        if let Some(resolved) = self.consolidated_meaning(key, depth).await?
            && matches!(
                resolved.found,
                ResolvedKey::Metadata(_, KeyMeaning::Node(_) | KeyMeaning::ChunkDirectory(..))
            )
        {
            return Ok(resolved);
        }
        match (&why, undecided) {
            (StoreError::NotFound { .. }, Some(node)) => Err(not_named(key, &node)),
            (StoreError::NotFound { .. }, None) => {
                self.loader.cache.insert_stat(key, CachedStat::Absent);
                Err(why)
            }
            _ => Err(why),
        }
    }

    /// Checks the nodes at and above a prefix of the inner store that nothing names the contents of: the prefix is not
    /// empty because a document that was read before cannot be read now.
    ///
    /// # Errors
    /// Such a document is denied, was removed, or cannot be read for now.
    pub(super) async fn check_nodes_above(&self, prefix: &Key) -> Result<(), StoreError> {
        for above in ancestors(prefix) {
            let last = self.loader.cache.last(&above);
            let was_node = last.is_some_and(|last| last.is_node());
            if !was_node && !self.unchecked.is_document_read(&above) {
                continue;
            }
            if !self.load(&above, Depth::Node).await?.is_node() {
                return Err(StoreError::Unavailable {
                    key: prefix.clone(),
                    what: format!(
                        "the documents of {above} were removed, and the server does not list what is left"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Returns the directory of chunks that a key is by the document of an array above it. The document is loaded, so
    /// that the names of the directory do not depend on what is cached.
    ///
    /// # Errors
    /// The document cannot be read for now.
    pub(super) async fn chunk_directory(&self, key: &Key) -> Result<Option<Resolved>, StoreError> {
        for above in from_root(key) {
            let metadata = match self.load(&above, Depth::Node).await {
                Err(StoreError::Denied { .. }) if !self.named_before(&above, key) => continue,
                loaded => loaded?,
            };
            let meaning = metadata.classify(below(key, &above), true);
            if matches!(meaning, KeyMeaning::Unknown | KeyMeaning::Undecided(_)) {
                continue;
            }
            let copied = (metadata, meaning);
            let resolved = self
                .by_own_documents(key, &above, copied, Depth::Listing)
                .await?;
            if let ResolvedKey::Metadata(_, KeyMeaning::ChunkDirectory(..)) = resolved.found {
                return Ok(Some(resolved));
            }
        }
        Ok(None)
    }
}

/// Returns the error for a key that may be a directory of chunks of an array whose chunk names are unknown.
pub(super) fn not_named(key: &Key, node: &Key) -> StoreError {
    StoreError::Corrupt {
        key: key.clone(),
        what: format!(
            "the server does not list directories, and the metadata of {node}, which would name them, are broken or \
             not supported"
        ),
    }
}
