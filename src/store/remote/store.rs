//! A remote tree of keys as a [`Store`].

use std::sync::Arc;

use async_trait::async_trait;

use super::bytes::{FetchedValue, KnownBytes, RemoteObject};
use super::known::{AsOf, Attrs, KnownNames, RemoteListing, SourceIdentity};
use super::request::transfer_stats::TransferStats;
use crate::clock::Instant;
use crate::store::{
    AccessHint, Capabilities, Freshness, Key, Listing, ListingSupport, Object, Prefetch,
    SourceInfo, Stat, Store, StoreError, Version,
};

/// A remote tree of keys. Clones share the state.
#[derive(Debug, Clone)]
pub(super) struct RemoteSource {
    pub(super) identity: Arc<SourceIdentity>,
    pub(super) names: Arc<KnownNames>,
    pub(super) bytes: Arc<KnownBytes>,
}

impl RemoteSource {
    fn stat_of(&self, key: &Key, attrs: Attrs) -> Result<Stat, StoreError> {
        match attrs {
            Attrs::Prefix => Ok(self.names.prefix_stat()),
            Attrs::Object(meta) => Ok(meta.stat()),
            Attrs::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }
}

#[async_trait]
impl Freshness for RemoteSource {
    async fn stat_after(
        &self,
        document: &Key,
        version: Version,
        values: &[Key],
    ) -> Result<Stat, StoreError> {
        let stat = |attrs| self.stat_of(document, attrs);
        if self.names.never_change() {
            return stat(self.bytes.attrs(document).await?);
        }
        if values.is_empty() {
            return stat(self.names.attrs_as_of(document, AsOf::Now).await?);
        }
        // One request is enough for all values.
        let answered = Instant::now();
        let mut found = None;
        for value in values {
            let as_of = AsOf::Answer(value, answered);
            let own = stat(self.names.attrs_as_of(document, as_of).await?)?;
            if own.version != version {
                return Ok(own);
            }
            found = Some(own);
        }
        found.ok_or_else(|| StoreError::internal("a document that was not checked"))
    }

    fn drop_older(&self, value: &Key, document: &Key) -> bool {
        self.names.invalidate_before(value, document)
    }

    async fn drop_value(&self, value: &Key) {
        self.names.invalidate(value);
    }
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

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.stat_of(key, self.bytes.attrs(key).await?)
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        Some(self.stat_of(key, self.names.cached(key)?))
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.bytes.record_open();
        let value = match hint {
            AccessHint::Tail(_) if self.identity.reads_whole() => {
                let limit = self.bytes.whole_limit();
                self.bytes.read_whole(key, limit).await?
            }
            AccessHint::Ranges => match self.bytes.attrs(key).await? {
                Attrs::Object(meta) => FetchedValue { meta, bytes: None },
                Attrs::Prefix => return Err(StoreError::NotAPrefix { key: key.clone() }),
                Attrs::Absent => return Err(StoreError::NotFound { key: key.clone() }),
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

    fn freshness(&self) -> Option<&dyn Freshness> {
        Some(self)
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match what {
            Prefetch::Value => self.bytes.prefetch_value(key).await,
            Prefetch::Attributes => self.bytes.prefetch_attrs(key).await,
        }
    }
}

impl SourceInfo for RemoteSource {
    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(self.bytes.transfer_stats())
    }
}
