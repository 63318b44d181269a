//! A database as a store.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;

use super::listing::DatabaseListing;
use super::versions::Digest;
use super::{DatabaseStore, Snapshot, Wait};
use crate::store::{
    AccessHint, Capabilities, Extent, Freshness, Key, Listing, ListingSupport, Object, Omission,
    SourceInfo, Stat, Store, StoreError, Version, list_prefixes,
};

/// The largest number of prefixes that are searched for keys that the tree leaves out.
const MAX_SEARCHED_PREFIXES: usize = 1_000;

impl DatabaseStore {
    /// Returns the attributes of a key as of now.
    async fn look_up(&self, key: &Key) -> Result<Stat, StoreError> {
        let shared = &self.shared;
        let work = |snapshot: &mut dyn Snapshot| shared.look_up(snapshot, key, Digest::Allowed);
        let found = shared.read(key, work).await?;
        let found = found.ok_or_else(|| StoreError::internal("a value that was not hashed"))?;
        Ok(shared.cache_lookup(key, found))
    }
}

#[async_trait]
impl Freshness for DatabaseStore {
    async fn stat_after(&self, document: &Key, _: Version, _: &[Key]) -> Result<Stat, StoreError> {
        self.look_up(document).await
    }
}

#[async_trait]
impl SourceInfo for DatabaseStore {
    fn extent(&self) -> Extent {
        self.shared.database.extent()
    }

    async fn omissions(&self) -> Vec<Omission> {
        // Only listings notice such keys. An error is one of the listing that a user makes.
        let mut pending = VecDeque::from([Key::root()]);
        for _ in 0..MAX_SEARCHED_PREFIXES {
            let Some(prefix) = pending.pop_front() else {
                break;
            };
            let names = list_prefixes(self, &prefix, MAX_SEARCHED_PREFIXES).await;
            let below = names.into_iter().flatten();
            pending.extend(below.filter_map(|name| prefix.join(&name).ok()));
        }
        self.shared.notes.omissions()
    }
}

#[async_trait]
impl Store for DatabaseStore {
    fn label(&self) -> &str {
        &self.shared.label
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: false,
            listing: ListingSupport::Complete,
            joins_prefetches: false,
            lists_without_requests: true,
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.shared.cached_stat(key) {
            Some(stat) => Ok(stat),
            None => self.look_up(key).await,
        }
    }

    fn freshness(&self) -> Option<&dyn Freshness> {
        Some(self)
    }

    async fn open(&self, key: &Key, _: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let shared = &self.shared;
        if let Some(object) = shared.value_cache.take(key) {
            return Ok(object);
        }
        let work = |snapshot: &mut dyn Snapshot| shared.open(snapshot, key, Digest::Allowed);
        let opened = shared.read(key, work).await?;
        let opened = opened.ok_or_else(|| StoreError::internal("a value that was not hashed"))?;
        Ok(shared.opened(opened))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let listing = DatabaseListing::open(&self.shared, prefix).await?;
        Ok(Box::new(listing))
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        let shared = &self.shared;
        if let Some(stat) = shared.cached_stat(key) {
            return Some(Ok(stat));
        }
        let work = |snapshot: &mut dyn Snapshot| shared.look_up(snapshot, key, Digest::Forbidden);
        let found = shared.try_once(key, Wait::NonBlocking, work).ok()?;
        let found = found.transpose()?;
        Some(found.map(|found| shared.cache_lookup(key, found)))
    }

    fn try_open(&self, key: &Key, _: AccessHint) -> Option<Result<Arc<dyn Object>, StoreError>> {
        let shared = &self.shared;
        if let Some(object) = shared.value_cache.take(key) {
            return Some(Ok(object));
        }
        let work = |snapshot: &mut dyn Snapshot| shared.open(snapshot, key, Digest::Forbidden);
        let opened = shared.try_once(key, Wait::NonBlocking, work).ok()?;
        let opened = opened.transpose()?;
        Some(opened.map(|opened| shared.opened(opened)))
    }
}
