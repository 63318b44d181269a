//! A listing for stores without listings, such as a plain web server or a bucket that denies them.
//! The names come from metadata: consolidated metadata name a whole hierarchy in one or two
//! requests, and the document of an array gives the names of its chunks. Otherwise the documents of
//! a prefix are fetched when the prefix is used.
//!
//! Metadata give only names. Values, their sizes and the existence of chunks always come from the
//! inner store.
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is returned only if the inner store proves
//! the absence of a key and of the documents below it, or if consolidated metadata name all
//! documents of a node. No other failure is turned into it.
//!
//! **Architecture Invariant:** whether a group counts as named by consolidated metadata does not depend on
//! which prefixes were loaded before. Before a listing is reported as incomplete, and before a prefix is
//! reported as absent, the consolidated metadata of all prefixes above it are loaded.
//!
//! Lock order: no lock is taken while another is held.

mod assemble;
mod cache;
mod documents;
mod incomplete;
mod loader;
mod metadata;
mod names;
mod own;
mod resolve;
#[cfg(test)]
mod tests;
mod unchecked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use self::cache::{CachedStat, MetadataCache};
use self::loader::{Depth, Loaded, Loader};
use self::metadata::{KeyMeaning, PrefixMetadata};
pub(crate) use self::names::AssembledListing;
use self::own::CopiedNode;
use self::resolve::{Resolved, ResolvedKey, not_named};
use self::unchecked::Unchecked;
use super::document::is_document;
use crate::cache::SingleFlight;
use crate::store::{
    AccessHint, Capabilities, IncompleteListing, Key, Kind, Listing, ListingSupport, Object,
    Prefetch, Stat, Store, StoreError,
};

/// A store whose listings come from its own metadata.
#[derive(Debug)]
pub struct MetadataListingStore {
    inner: Arc<dyn Store>,
    loader: Arc<Loader>,
    loads: SingleFlight<(Key, Depth), Loaded, StoreError>,
    /// Set once the inner store has answered that it does not support listings.
    lists_nothing: AtomicBool,
    unchecked: Arc<Unchecked>,
}

impl MetadataListingStore {
    /// Lists `inner` by its metadata. Metadata are cached for `ttl`, absence for at most
    /// `absent_ttl`; if the store is immutable, both are cached without a limit.
    pub fn new(inner: Arc<dyn Store>, ttl: Duration, absent_ttl: Duration) -> Self {
        let (ttl, absent_ttl) = match inner.capabilities().immutable {
            true => (Duration::MAX, Duration::MAX),
            false => (ttl, absent_ttl.min(ttl)),
        };
        let cache = MetadataCache::new(ttl, absent_ttl);
        Self {
            loader: Arc::new(Loader::new(Arc::clone(&inner), cache)),
            inner,
            loads: SingleFlight::default(),
            lists_nothing: AtomicBool::new(false),
            unchecked: Arc::default(),
        }
    }

    /// As [`MetadataListingStore::new`], for [`OpenOptions::list_by_metadata`](crate::store::OpenOptions).
    pub fn boxed(inner: Arc<dyn Store>, ttl: Duration, absent_ttl: Duration) -> Box<dyn Store> {
        Box::new(Self::new(inner, ttl, absent_ttl))
    }

    /// Loads the metadata of a prefix.
    ///
    /// # Errors
    /// The errors of [`Loader::load_node`] and [`Loader::load_listing`].
    async fn load(&self, prefix: &Key, depth: Depth) -> Result<Arc<PrefixMetadata>, StoreError> {
        if let Some(metadata) = self.loader.cached(prefix, depth) {
            return Ok(metadata);
        }
        // Without them, the names below the prefix would be incomplete after each expiry.
        let depth = match self.loader.cache.was_consolidated(prefix) {
            true => Depth::Listing,
            false => depth,
        };
        let (loader, key) = (Arc::clone(&self.loader), prefix.clone());
        let load_node = async move { loader.load_node(&key).await };
        let node = self.share(prefix, Depth::Node, load_node).await?;
        if depth == Depth::Node || node.0.missing().is_empty() {
            return Ok(node.0);
        }
        let (loader, key) = (Arc::clone(&self.loader), prefix.clone());
        let load_listing = async move { loader.load_listing(&key, node).await };
        let (metadata, _) = self.share(prefix, Depth::Listing, load_listing).await?;
        Ok(metadata)
    }

    /// Awaits the load of a prefix in flight, or else `load`.
    async fn share(
        &self,
        prefix: &Key,
        depth: Depth,
        load: impl Future<Output = Result<Loaded, StoreError>> + Send + 'static,
    ) -> Result<Loaded, StoreError> {
        let panicked = StoreError::internal(format!("loading the metadata of {prefix} panicked"));
        let load = || load;
        self.loads
            .run((prefix.clone(), depth), load, panicked)
            .await
    }

    /// Returns the meaning of a key by cached metadata, and the prefix with them: the root, or else the first prefix
    /// from the root with consolidated metadata that name the key, or else the nearest prefix.
    fn copied_meaning(&self, key: &Key) -> Option<(Key, Arc<PrefixMetadata>, KeyMeaning)> {
        let cache = &self.loader.cache;
        Self::meaning_by(key, |above| {
            let (metadata, since) = cache.metadata(above)?;
            Some((metadata, cache.is_absence_fresh(since)))
        })
    }

    /// As [`MetadataListingStore::copied_meaning`], by the last metadata, which may have expired since they were used.
    fn last_meaning(&self, key: &Key) -> Option<(Key, Arc<PrefixMetadata>, KeyMeaning)> {
        Self::meaning_by(key, |above| Some((self.loader.cache.last(above)?, true)))
    }

    /// `metadata` returns the metadata of a prefix, and whether their absences still hold.
    fn meaning_by(
        key: &Key,
        metadata: impl Fn(&Key) -> Option<(Arc<PrefixMetadata>, bool)>,
    ) -> Option<(Key, Arc<PrefixMetadata>, KeyMeaning)> {
        let meaning = |above: Key| {
            let (metadata, is_absence_fresh) = metadata(&above)?;
            let meaning = metadata.classify(below(key, &above), is_absence_fresh);
            let is_known = !matches!(meaning, KeyMeaning::Unknown | KeyMeaning::Undecided(_));
            is_known.then_some((above, metadata, meaning))
        };
        let mut found = meaning(Key::root());
        if found.is_some() {
            return found;
        }
        for known in ancestors(key).filter_map(meaning) {
            if found.is_none() || known.1.is_consolidated() {
                found = Some(known);
            }
        }
        found
    }

    /// Returns the inner store's listing of a prefix, if it has one.
    ///
    /// # Errors
    /// The inner store supports listings, but this listing failed.
    async fn list_inner(&self, prefix: &Key) -> Result<Option<Box<dyn Listing>>, StoreError> {
        if self.lists_nothing.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.inner.list(prefix).await {
            Ok(listing) => Ok(Some(listing)),
            Err(error) if self.is_unlisted(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the attributes of a key in the inner store, if they need no request.
    fn try_stat_inner(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        let found = self.inner.try_stat(key)?;
        if let Ok(stat) = &found {
            self.unchecked.stat_found(key, stat);
        }
        Some(found)
    }

    /// Returns whether an error means that the inner store has no listing of a prefix, which can still exist.
    fn is_unlisted(&self, error: &StoreError) -> bool {
        if matches!(error, StoreError::Unsupported { .. }) {
            self.lists_nothing.store(true, Ordering::Relaxed);
            return true;
        }
        matches!(
            error,
            StoreError::Denied { .. } | StoreError::NotFound { .. }
        )
    }
}

#[async_trait]
impl Store for MetadataListingStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            listing: ListingSupport::BestEffort,
            ..self.inner.capabilities()
        }
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        self.loader.cache.metadata(&Key::root())?;
        let absent = || Some(Err(StoreError::NotFound { key: key.clone() }));
        match self.compared_meaning(key)? {
            Some((_, KeyMeaning::AbsentDocument)) => absent(),
            Some((
                _,
                meaning @ (KeyMeaning::InnerKey | KeyMeaning::Unknown | KeyMeaning::Undecided(_)),
            )) => {
                let may_be_directory =
                    || matches!(meaning, KeyMeaning::Undecided(_)) || self.is_unchecked(key);
                match self.try_stat_inner(key)? {
                    // The document of the array may name a directory of chunks there.
                    Err(StoreError::NotFound { .. }) if may_be_directory() => None,
                    found => Some(found),
                }
            }
            Some((metadata, meaning)) => Some(Ok(metadata.stat(&meaning))),
            None if is_document(key) => self.try_stat_inner(key),
            None => match self.loader.cache.stat(key)? {
                CachedStat::Absent => absent(),
                CachedStat::Prefix(stat) => Some(Ok(stat)),
            },
        }
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let Resolved { found, copied } = self.resolve(key, Depth::Node).await?;
        let stat = match found {
            ResolvedKey::Inner(stat) => stat,
            ResolvedKey::Metadata(_, KeyMeaning::AbsentDocument) => {
                return Err(StoreError::NotFound { key: key.clone() });
            }
            ResolvedKey::Metadata(_, KeyMeaning::Undecided(_)) => {
                match (self.inner.stat(key).await, copied) {
                    (Err(StoreError::NotFound { .. }), Some(copied)) => {
                        return Err(not_named(key, &copied.node.key));
                    }
                    (found, _) => found?,
                }
            }
            ResolvedKey::Metadata(_, KeyMeaning::InnerKey | KeyMeaning::Unknown) => {
                match self.inner.stat(key).await {
                    Err(why @ (StoreError::NotFound { .. } | StoreError::Denied { .. })) => {
                        match self
                            .directory_by_document(key, copied)
                            .await?
                            .map(|it| it.found)
                        {
                            Some(ResolvedKey::Metadata(own, meaning)) => own.stat(&meaning),
                            _ => return Err(why),
                        }
                    }
                    found => found?,
                }
            }
            ResolvedKey::Metadata(metadata, meaning) => metadata.stat(&meaning),
        };
        self.unchecked.stat_found(key, &stat);
        Ok(stat)
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        if is_document(key) {
            // Programs often open documents that do not exist.
            self.load(&Key::root(), Depth::Node).await?;
        }
        // Cached metadata may prove that the key is not a value.
        if let Some((at, metadata, mut meaning)) = self.copied_meaning(key) {
            // The own documents of a node decide, if they were compared.
            if let Some(node) = CopiedNode::of(key, &at, &metadata)
                && let Some(own) = self.known(&node)
                && let Some(own) = own.instead()
            {
                meaning = own.classify(below(key, &node.key), true);
            }
            match meaning {
                KeyMeaning::AbsentDocument => {
                    return Err(StoreError::NotFound { key: key.clone() });
                }
                KeyMeaning::Node(_) | KeyMeaning::ChunkDirectory(..) => {
                    return Err(StoreError::NotAPrefix { key: key.clone() });
                }
                _ => {}
            }
        }
        // The native tree opens documents in this way.
        if hint != AccessHint::Ranges {
            return self.inner.open(key, hint).await;
        }
        self.check_listed(key).await?;
        let object = self.inner.open(key, hint).await?;
        self.unchecked.value_opened(key);
        Ok(object)
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let mut resolved = self.resolve(prefix, Depth::Listing).await?;
        if self.was_consolidated_above(prefix) {
            resolved = self.with_consolidated(prefix, resolved).await?;
        }
        let (mut names, is_listed) = self.assemble(prefix, &resolved).await?;
        if !is_listed
            && matches!(resolved.found, ResolvedKey::Inner(_))
            && let Some(chunks) = self.chunk_directory(prefix).await?
        {
            (names, _) = self.assemble(prefix, &chunks).await?;
            resolved = chunks;
        } else if !is_listed && resolved.found.may_lack_nodes() {
            resolved = self.with_consolidated(prefix, resolved).await?;
            if !resolved.found.may_lack_nodes() {
                (names, _) = self.assemble(prefix, &resolved).await?;
            } else if let Some(last) = self.loader.cache.last(prefix)
                && let Some(error) = last.undecided()
            {
                return Err(error.clone());
            }
        }
        if !is_listed && matches!(resolved.found, ResolvedKey::Inner(_)) {
            self.check_nodes_above(prefix).await?;
        }
        names.set_shown(self.shown(prefix, &resolved));
        Ok(Box::new(names))
    }

    async fn incomplete_listing(
        &self,
        prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        self.find_incomplete(prefix).await
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match self.try_stat(key) {
            // The metadata prove that the key is not a value.
            Some(Err(_)) => true,
            Some(Ok(stat)) if stat.kind == Kind::Prefix => true,
            _ => self.inner.prefetch(key, what).await,
        }
    }
}

/// Returns a key and the prefixes above it without the root, the nearest first.
fn ancestors(key: &Key) -> impl Iterator<Item = Key> {
    let first = (!key.is_root()).then(|| key.clone());
    std::iter::successors(first, |key| {
        let parent = key.parent();
        (!parent.is_root()).then_some(parent)
    })
}

/// Returns the part of a key below one of its prefixes.
fn below<'a>(key: &'a Key, prefix: &Key) -> &'a [u8] {
    let rest = key.as_bytes().get(prefix.as_bytes().len()..);
    let rest = rest.unwrap_or_default();
    rest.strip_prefix(b"/").unwrap_or(rest)
}
