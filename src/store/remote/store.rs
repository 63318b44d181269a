//! A remote tree of keys as a [`Store`].

use std::sync::Arc;

use async_trait::async_trait;

use super::bytes::{FetchedValue, KnownBytes, RemoteObject};
use super::known::{Attrs, KnownNames, RemoteListing, SourceIdentity};
use super::request::transfer_stats::TransferStats;
use crate::store::{
    AccessHint, Capabilities, Freshness, Key, Listing, ListingSupport, Object, Prefetch,
    SourceInfo, Stat, Store, StoreError,
};

/// A remote tree of keys. Clones share the state.
#[derive(Debug, Clone)]
pub(super) struct RemoteSource {
    pub(super) identity: Arc<SourceIdentity>,
    pub(super) names: Arc<KnownNames>,
    pub(super) bytes: Arc<KnownBytes>,
}

#[async_trait]
impl Store for RemoteSource {
    fn label(&self) -> &str {
        self.identity.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: true,
            listing: match self.names.lists_completely() {
                true => ListingSupport::Complete,
                false => ListingSupport::BestEffort,
            },
            joins_prefetches: false,
            lists_without_requests: false,
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    fn freshness(&self) -> Option<&dyn Freshness> {
        Some(&self.names)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.names.stat_of(key, self.bytes.attrs(key).await?)
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        Some(self.names.stat_of(key, self.names.cached(key)?))
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.bytes.record_open();
        let value = match hint {
            AccessHint::Tail(_) if self.identity.reads_whole() => {
                let limit = self.bytes.whole_limit();
                self.bytes.read_whole(key, limit).await?
            }
            AccessHint::Ranges => FetchedValue {
                meta: self.bytes.attrs(key).await?.into_object(key)?,
                bytes: None,
            },
            AccessHint::Whole(at_most) => self.bytes.read_whole(key, at_most).await?,
            AccessHint::Tail(bytes) => FetchedValue {
                meta: self.bytes.tail(key, bytes).await?,
                bytes: None,
            },
        };
        let is_exact = hint != AccessHint::Ranges;
        Ok(Arc::new(RemoteObject::new(
            &self.bytes,
            key,
            value,
            is_exact,
        )))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        if !prefix.is_root() {
            let key = prefix.clone();
            match self.names.cached(prefix) {
                Some(Attrs::Object(_)) => return Err(StoreError::NotAPrefix { key }),
                // A web server can have no value at a key, and a page for the directory: `rclone serve http` answers
                // 404 without a slash at the end.
                Some(Attrs::Absent) if self.names.lists_completely() => {
                    return Err(StoreError::NotFound { key });
                }
                _ => {}
            }
        }
        let listing = RemoteListing::open(&self.names, prefix).await?;
        Ok(Box::new(listing))
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match what {
            Prefetch::Value => self.bytes.prefetch_value(key).await,
            Prefetch::Attributes => self.bytes.prefetch_attrs(key).await,
            Prefetch::AttributesOfVisited => {
                self.bytes.record_visited();
                self.bytes.prefetch_attrs(key).await
            }
        }
    }
}

impl SourceInfo for RemoteSource {
    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(self.bytes.transfer_stats())
    }
}
