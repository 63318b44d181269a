//! Stores of references: the value of a key is stored beside the key, or it is a byte range of another
//! file, its *target*.
//!
//! - [`References`] is implemented by each format of references: an index from keys to [`Reference`]s.
//! - `target_policy` decides which targets may be read; `targets` opens them and pins their versions.
//! - `span`, `same_store` and `listing` are the open values and directories.
//! - `kerchunk` reads the JSON and the Parquet references of kerchunk and VirtualiZarr.
//!
//! **Architecture Invariant:** only the index proves absence. A target that is missing, refused, changed
//! or too short is an error of the key.

mod embedded;
mod index;
mod kerchunk;
mod listing;
mod open;
mod same_store;
mod span;
mod target_policy;
mod targets;

#[cfg(feature = "fuzzing")]
pub use self::kerchunk::{fuzz_json, fuzz_parquet};
pub(super) use self::open::{detect, is_json, looks_like_json, open_file, open_remote};
pub use self::target_policy::AllowedTarget;
pub(super) use self::target_policy::{TargetError, TargetLocation, TargetPolicy};
pub use self::targets::TargetOptions;
pub(super) use self::targets::{BaseLocation, Targets};

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

use self::embedded::SharedValue;
use self::listing::ReferenceListing;
use self::same_store::SameStoreRange;
use super::remote::FirstRead;
use super::{
    AccessHint, Capabilities, Extent, History, InMemoryObject, Key, Kind, Listing, ListingSupport,
    Object, Omission, Prefetch, SourceInfo, Stat, Store, StoreError, TransferStats, Version,
};
use crate::fallible::NoMemory;

/// Why references cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The references violate their format.
    #[error("the references are invalid: {0}")]
    Invalid(String),
    /// The references need an unsupported feature.
    #[error("the references are not supported: {0}")]
    Unsupported(String),
    /// The index of the references exceeds the memory limit.
    #[error(
        "the index of the references needs more than {limit_bytes} bytes of memory (see \
         --memory-limit)"
    )]
    TooLarge {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The system has no memory for the index.
    #[error("no memory for the index of the references: it {0}")]
    NoMemory(#[from] NoMemory),
    /// The references could not be read.
    #[error("reading the references: {0}")]
    Io(#[from] std::io::Error),
    /// The store that contains the references failed.
    #[error("reading the references: {0}")]
    Store(#[from] StoreError),
}

/// The location of the value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reference {
    /// The value is stored beside the key.
    Inline(Arc<Vec<u8>>),
    /// The value is a range of one that the references contain once, for several keys.
    Shared(SharedValue),
    /// The metadata document of a node, and a hash that identifies the chunks of an array. Both are the version of
    /// the document, so that a reader of the array notices a commit that changes only chunks.
    Document(Arc<Vec<u8>>, u64),
    /// The value is in a target.
    Target {
        /// The target as named by the references: a URL or a path.
        url: Arc<str>,
        /// The byte range; `None` for the whole target.
        range: Option<Range<u64>>,
        /// The condition on the version of the target, if the reference has one.
        precondition: Option<Precondition>,
    },
    /// The value is a range of an object in the store that contains the references.
    SameStore {
        /// The key of the object.
        key: Key,
        /// The byte range in the object.
        range: Range<u64>,
    },
    /// The value cannot be read; a lookup of its key returns the reason. Only listings contain this.
    Unreadable,
}

/// A condition on the version of a target, which a reference specifies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Precondition {
    /// The target has this entity tag.
    ETag(Arc<str>),
    /// The target was not modified after this time, in seconds since 1970.
    NotModifiedSince(u64),
}

impl Reference {
    /// Returns the number of bytes, if that needs no request.
    fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Inline(bytes) | Self::Document(bytes, _) => Some(bytes.len() as u64),
            Self::Shared(value) => Some(value.len() as u64),
            Self::Target { range, .. } => range.as_ref().map(length),
            Self::SameStore { range, .. } => Some(length(range)),
            Self::Unreadable => None,
        }
    }

    /// Identifies the content. Targets are pinned, so one reference has one content.
    fn version(&self) -> Version {
        let mut hasher = SipHasher13::new();
        self.hash(&mut hasher);
        Version(hasher.finish())
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// The result of a lookup of a key.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// A prefix of other keys.
    Prefix,
    /// A value.
    Value(Reference),
}

/// One name in a listing.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) name: Box<[u8]>,
    /// `None` for a prefix.
    pub(super) reference: Option<Reference>,
}

/// Consecutive names in a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) children: Vec<Child>,
    /// The position of the next page; `None` at the end. Its meaning depends on the format.
    pub(super) next: Option<u64>,
}

/// An index from keys to references.
#[async_trait]
pub(super) trait References: Debug + Send + Sync {
    /// Returns the entry of a key; `None` if that needs a disk or a network.
    ///
    /// # Errors
    /// As [`References::find`].
    fn try_find(&self, key: &Key) -> Option<Result<Entry, StoreError>>;

    /// Returns the entry of a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] or [`StoreError::NotAPrefix`] if absence is proven; errors of the source.
    async fn find(&self, key: &Key) -> Result<Entry, StoreError>;

    /// Returns names directly below a prefix, in a stable order; `position` is 0 or the [`Page::next`] of
    /// the page before.
    ///
    /// # Errors
    /// As [`References::find`].
    async fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError>;

    /// When the references were written.
    fn modified(&self) -> SystemTime;

    /// Whether the references never change; `None` to use the capability of the store that contains them.
    fn is_immutable(&self) -> Option<bool> {
        None
    }

    /// The keys that are not shown.
    fn omissions(&self) -> Vec<Omission> {
        Vec::new()
    }

    /// The versions of the source; `None` if it is not versioned.
    async fn history(&self) -> Option<Result<History, StoreError>> {
        None
    }

    /// The number of keys and the size of the references in bytes, as far as known.
    fn extent(&self) -> Extent {
        Extent::default()
    }
}

/// A store of references.
#[derive(Debug)]
pub(super) struct ReferenceStore {
    shared: Arc<Shared>,
}

/// State that the store and its listings share.
#[derive(Debug)]
struct Shared {
    label: String,
    references: Box<dyn References>,
    /// The store that contains the references; `None` if they are one file.
    container: Option<Arc<dyn Store>>,
    targets: Targets,
}

impl ReferenceStore {
    pub(super) fn new(
        label: String,
        references: Box<dyn References>,
        container: Option<Arc<dyn Store>>,
        targets: Targets,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                label,
                references,
                container,
                targets,
            }),
        }
    }
}

impl Shared {
    fn prefix_stat(&self) -> Stat {
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: self.references.modified(),
            version: Version(0),
            links: 2,
        }
    }

    fn object_stat(&self, reference: &Reference, size_bytes: u64) -> Stat {
        Stat {
            kind: Kind::Object,
            size_bytes,
            modified: self.references.modified(),
            version: reference.version(),
            links: 1,
        }
    }

    /// Returns the attributes of an entry, if that needs no access to a target.
    fn known_stat(&self, entry: &Entry) -> Option<Stat> {
        match entry {
            Entry::Prefix => Some(self.prefix_stat()),
            Entry::Value(reference) => {
                let size_bytes = reference.size_bytes()?;
                Some(self.object_stat(reference, size_bytes))
            }
        }
    }

    /// Returns the attributes of an entry.
    async fn stat(&self, key: &Key, entry: &Entry) -> Result<Stat, StoreError> {
        if let Some(stat) = self.known_stat(entry) {
            return Ok(stat);
        }
        match entry {
            Entry::Value(
                reference @ Reference::Target {
                    url, precondition, ..
                },
            ) => {
                let target = self
                    .targets
                    .open(key, url, precondition.as_ref(), None)
                    .await?;
                Ok(self.object_stat(reference, target.size_bytes()))
            }
            _ => Err(StoreError::internal("a reference without a size")),
        }
    }

    /// Opens a reference.
    async fn open(
        &self,
        key: &Key,
        reference: Reference,
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        match &reference {
            Reference::Inline(bytes) | Reference::Document(bytes, _) => {
                Ok(self.inline(&reference, bytes))
            }
            Reference::Shared(value) => Ok(self.inline(&reference, &value.bytes())),
            Reference::Target {
                url,
                range,
                precondition,
            } => {
                let first = range.clone().map(|range| FirstRead {
                    range,
                    is_prefetch: false,
                });
                let target = self
                    .targets
                    .open(key, url, precondition.as_ref(), first)
                    .await?;
                let range = range.clone().unwrap_or(0..target.size_bytes());
                let stat = self.object_stat(&reference, length(&range));
                target.span(key, range, stat, hint)
            }
            Reference::SameStore { .. } => self.same_store_range(key, &reference)?.open(hint).await,
            Reference::Unreadable => Err(unreadable()),
        }
    }

    /// Returns a reference to a range of an object in the store that contains the references.
    fn same_store_range(
        &self,
        key: &Key,
        reference: &Reference,
    ) -> Result<SameStoreRange, StoreError> {
        let (
            Some(container),
            Reference::SameStore {
                key: object_key,
                range,
            },
        ) = (&self.container, reference)
        else {
            return Err(StoreError::internal("no store with the references"));
        };
        Ok(SameStoreRange {
            store: Arc::clone(container),
            object_key: object_key.clone(),
            range: range.clone(),
            key: key.clone(),
            stat: self.object_stat(reference, length(range)),
        })
    }

    fn inline(&self, reference: &Reference, bytes: &Arc<Vec<u8>>) -> Arc<dyn Object> {
        let stat = self.object_stat(reference, bytes.len() as u64);
        Arc::new(InMemoryObject::new(Arc::clone(bytes), stat))
    }

    /// Opens a reference; `None` if that sends a request or opens a file.
    fn try_open(
        &self,
        key: &Key,
        reference: &Reference,
        hint: AccessHint,
    ) -> Option<Result<Arc<dyn Object>, StoreError>> {
        match reference {
            Reference::Inline(bytes) | Reference::Document(bytes, _) => {
                Some(Ok(self.inline(reference, bytes)))
            }
            Reference::Shared(value) => Some(Ok(self.inline(reference, &value.bytes()))),
            Reference::Target {
                url,
                range,
                precondition,
            } => {
                let target = self.targets.get_open(key, url, precondition.as_ref())?;
                let range = range.clone().unwrap_or(0..target.size_bytes());
                let stat = self.object_stat(reference, length(&range));
                Some(target.span(key, range, stat, hint))
            }
            Reference::SameStore { .. } => match self.same_store_range(key, reference) {
                Ok(part) => part.try_open(hint),
                Err(error) => Some(Err(error)),
            },
            Reference::Unreadable => Some(Err(unreadable())),
        }
    }
}

fn unreadable() -> StoreError {
    StoreError::internal("a reference that only listings have")
}

#[async_trait]
impl Store for ReferenceStore {
    fn label(&self) -> &str {
        &self.shared.label
    }

    fn capabilities(&self) -> Capabilities {
        let container = self
            .shared
            .container
            .as_ref()
            .map(|container| container.capabilities());
        Capabilities {
            immutable: match self.shared.references.is_immutable() {
                Some(is_immutable) => is_immutable,
                None => container.is_none_or(|container| container.immutable),
            },
            open_infallible: false,
            is_remote: container.is_some_and(|container| container.is_remote)
                || self.shared.targets.may_be_remote(),
            listing: ListingSupport::Complete,
            joins_prefetches: self.shared.targets.may_be_remote(),
            lists_without_requests: container
                .is_none_or(|container| container.lists_without_requests),
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        let entry = self.shared.references.find(key).await?;
        self.shared.stat(key, &entry).await
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        match self.shared.references.try_find(key)? {
            Ok(entry) => self.shared.known_stat(&entry).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.shared.references.find(key).await? {
            Entry::Value(reference) => self.shared.open(key, reference, hint).await,
            Entry::Prefix => Err(StoreError::NotAPrefix { key: key.clone() }),
        }
    }

    fn try_open(&self, key: &Key, hint: AccessHint) -> Option<Result<Arc<dyn Object>, StoreError>> {
        match self.shared.references.try_find(key)? {
            Ok(Entry::Value(reference)) => self.shared.try_open(key, &reference, hint),
            Ok(Entry::Prefix) => Some(Err(StoreError::NotAPrefix { key: key.clone() })),
            Err(error) => Some(Err(error)),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let listing = ReferenceListing::open(&self.shared, prefix).await?;
        Ok(Box::new(listing))
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        let shared = &self.shared;
        let (Prefetch::Value, Ok(Entry::Value(found))) = (what, shared.references.find(key).await)
        else {
            return false;
        };
        match (found, &shared.container) {
            (Reference::SameStore { key, .. }, Some(container)) => {
                container.prefetch(&key, what).await
            }
            (
                Reference::Target {
                    url,
                    range,
                    precondition,
                },
                _,
            ) => {
                shared
                    .targets
                    .prefetch(key, &url, precondition.as_ref(), range)
                    .await
            }
            (Reference::Inline(_) | Reference::Shared(_) | Reference::Document(..), _) => true,
            _ => false,
        }
    }
}

#[async_trait]
impl SourceInfo for ReferenceStore {
    fn extent(&self) -> Extent {
        self.shared.references.extent()
    }

    async fn history(&self) -> Option<Result<History, StoreError>> {
        self.shared.references.history().await
    }

    async fn omissions(&self) -> Vec<Omission> {
        self.shared.references.omissions()
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        let container = self
            .shared
            .container
            .as_ref()
            .and_then(|container| container.transfer_stats());
        self.shared.targets.transfer_stats(container)
    }
}
