//! The store of all assets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::document::Document;
use super::member::Member;
use super::object::{MemberObject, in_member};
use super::{joined, short};
use crate::clock::Instant;
use crate::store::document_store::Freshness;
use crate::store::memory::MemoryListing;
use crate::store::reference::{BaseLocation, TargetPolicy};
use crate::store::{
    AccessHint, Capabilities, IncompleteListing, Key, Kind, Listing, ListingSupport, Object,
    Omission, OpenOptions, Prefetch, SourceInfo, Stat, Store, StoreError, TransferStats, Version,
};

/// The memory of an open asset in bytes, without what it has read: clients and tables. 210 KiB were measured at a web
/// server.
const ASSET_BYTES: u64 = 256 << 10;
/// The divisor of the memory limit that gives the share of open assets.
const MEMORY_SHARE: u64 = 4;

/// The Zarr assets of a document.
#[derive(Debug)]
pub(in crate::store) struct StacStore {
    label: String,
    members: BTreeMap<Vec<u8>, Member>,
    omissions: Vec<Omission>,
    policy: Arc<TargetPolicy>,
    options: OpenOptions,
    modified: SystemTime,
}

/// Where a key is.
enum Place<'a> {
    Root,
    /// In a member, where it is the second key.
    Member(&'a Member, Key),
}

impl StacStore {
    /// `base` is the location of the document, and `modified` when it was written.
    pub(super) fn new(
        label: &str,
        document: Document,
        base: &BaseLocation,
        policy: TargetPolicy,
        options: &OpenOptions,
        modified: SystemTime,
    ) -> Self {
        let (mut members, mut omissions, mut others) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (name, asset) in &document.assets {
            if asset.kind().is_none() {
                others.push(asset.describe(name));
                continue;
            }
            match Key::root().join(name.as_bytes()) {
                Ok(key) => {
                    let member = Member::new(key, asset, base, &policy);
                    members.insert(name.as_bytes().to_vec(), member);
                }
                Err(error) => omissions.push(Omission::lost(format!(
                    "the asset \"{}\" is not shown: its name is no name of a file: {error}",
                    short(name)
                ))),
            }
        }
        if !others.is_empty() {
            omissions.push(Omission {
                what: format!(
                    "assets that are no Zarr are not shown: {}",
                    joined(others.into_iter(), ", ")
                ),
                is_lost: false,
            });
        }
        Self {
            label: label.to_owned(),
            omissions,
            policy: Arc::new(policy),
            options: shared(options, members.len() as u64),
            modified,
            members,
        }
    }

    /// Returns why no asset may be read; `None` if one may be.
    pub(super) fn denials(&self) -> Option<String> {
        let mut members = self.members.values();
        if members.any(|member| member.denial().is_none()) {
            return None;
        }
        let members = self.members.values().map(|member| {
            let name = String::from_utf8_lossy(member.key.as_bytes());
            format!("{}: {}", short(&name), member.denial().unwrap_or_default())
        });
        let omissions = self.omissions.iter().filter(|omission| omission.is_lost);
        let omissions = omissions.map(|omission| omission.what.clone());
        Some(joined(members.chain(omissions), "; "))
    }

    /// Checks what fuzzing expects of the members.
    #[cfg(feature = "fuzzing")]
    pub(super) fn check_members(&self) {
        for (name, member) in &self.members {
            assert_eq!(crate::store::check_component(name), Ok(()));
            assert_eq!(member.key.as_bytes(), &name[..]);
            assert!(member.is_at("example.org"));
        }
    }

    /// Finds the member of a key.
    fn place(&self, key: &Key) -> Result<Place<'_>, StoreError> {
        if key.is_root() {
            return Ok(Place::Root);
        }
        let bytes = key.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'/');
        let name = bytes.get(..end.unwrap_or(bytes.len()));
        let member = name.and_then(|name| self.members.get(name));
        let member = member.ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
        let below = key.below(&member.key).unwrap_or_default();
        let below = Key::new(below).map_err(|error| StoreError::internal(error.to_string()))?;
        Ok(Place::Member(member, below))
    }

    /// Returns the store of a member, which is opened now if it is not open.
    ///
    /// # Errors
    /// The error of the member, or that the open assets take as much memory as they may.
    async fn store(&self, member: &Member) -> Result<Arc<dyn Store>, StoreError> {
        if member.opened().is_none() {
            self.check_memory(&member.key)?;
        }
        member.store(&self.policy, &self.options).await.cloned()
    }

    /// Checks that one more asset may be open.
    fn check_memory(&self, key: &Key) -> Result<(), StoreError> {
        let open = self.members.values().filter_map(Member::opened).count();
        let need_bytes = (open as u64 + 1).saturating_mul(ASSET_BYTES);
        let limit_bytes = self.options.zip.memory_limit_bytes / MEMORY_SHARE;
        match need_bytes > limit_bytes {
            true => Err(StoreError::TooLarge {
                key: key.clone(),
                need_bytes,
                limit_bytes,
            }),
            false => Ok(()),
        }
    }

    /// Returns the open store of a key, and the key in it.
    fn opened(&self, key: &Key) -> Option<(&Member, &Arc<dyn Store>, Key)> {
        match self.place(key) {
            Ok(Place::Member(member, below)) => Some((member, member.opened()?, below)),
            _ => None,
        }
    }

    fn prefix_stat(&self) -> Stat {
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: self.modified,
            version: Version(0),
            links: 2,
        }
    }
}

/// Returns the options of a member, which has its part of the memory for caches. Remote sources share theirs anyway.
fn shared(options: &OpenOptions, members: u64) -> OpenOptions {
    let mut options = options.clone();
    let members = members.max(1);
    options.zip.cache_bytes /= members;
    options.icechunk.memory_limit_bytes /= members;
    options
}

#[async_trait]
impl Store for StacStore {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        let is_remote = self.policy.may_be_remote();
        let mut members = self.members.values();
        let is_partial = members.any(|member| member.listing() == ListingSupport::BestEffort);
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote,
            listing: match is_partial {
                true => ListingSupport::BestEffort,
                false => ListingSupport::Complete,
            },
            joins_prefetches: false,
            lists_without_requests: !is_remote,
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        Some(self)
    }

    fn freshness(&self) -> Option<&dyn Freshness> {
        Some(self)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.place(key)? {
            Place::Root => Ok(self.prefix_stat()),
            Place::Member(_, below) if below.is_root() => Ok(self.prefix_stat()),
            Place::Member(member, below) => {
                let found = self.store(member).await?.stat(&below).await;
                found.map_err(|error| in_member(&member.key, error))
            }
        }
    }

    fn try_stat(&self, key: &Key) -> Option<Result<Stat, StoreError>> {
        match self.place(key) {
            Ok(Place::Root) => Some(Ok(self.prefix_stat())),
            Ok(Place::Member(_, below)) if below.is_root() => Some(Ok(self.prefix_stat())),
            Ok(Place::Member(member, below)) => {
                let found = member.opened()?.try_stat(&below)?;
                Some(found.map_err(|error| in_member(&member.key, error)))
            }
            Err(error) => Some(Err(error)),
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.place(key)? {
            Place::Member(member, below) if !below.is_root() => {
                let opened = self.store(member).await?.open(&below, hint).await;
                match opened {
                    Ok(object) => Ok(MemberObject::wrap(object, &member.key)),
                    Err(error) => Err(in_member(&member.key, error)),
                }
            }
            _ => Err(StoreError::NotAPrefix { key: key.clone() }),
        }
    }

    fn try_open(&self, key: &Key, hint: AccessHint) -> Option<Result<Arc<dyn Object>, StoreError>> {
        let (member, store, below) = self.opened(key)?;
        Some(match store.try_open(&below, hint)? {
            Ok(object) => Ok(MemberObject::wrap(object, &member.key)),
            Err(error) => Err(in_member(&member.key, error)),
        })
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        match self.place(prefix)? {
            Place::Root => {
                let names = self.members.keys().cloned();
                let names = names.map(|name| (name, Kind::Prefix));
                Ok(Box::new(MemoryListing::new(names)))
            }
            Place::Member(member, below) => {
                let listing = self.store(member).await?.list(&below).await;
                listing.map_err(|error| in_member(&member.key, error))
            }
        }
    }

    async fn incomplete_listing(
        &self,
        prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        match self.place(prefix)? {
            Place::Root => Ok(None),
            Place::Member(member, below) => {
                let found = self.store(member).await?.incomplete_listing(&below).await;
                found.map_err(|error| in_member(&member.key, error))
            }
        }
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        match self.opened(key) {
            Some((_, store, below)) => store.prefetch(&below, what).await,
            None => false,
        }
    }
}

#[async_trait]
impl Freshness for StacStore {
    async fn stat_after(
        &self,
        document: &Key,
        version: Version,
        values: &[Key],
    ) -> Result<Stat, StoreError> {
        let Place::Member(member, below) = self.place(document)? else {
            return self.stat(document).await;
        };
        let store = self.store(member).await?;
        let Some(freshness) = store.freshness() else {
            return self.stat(document).await;
        };
        // A document describes values of its own member.
        let values = values.iter().filter_map(|value| value.below(&member.key));
        let values: Vec<Key> = values.filter_map(|value| Key::new(value).ok()).collect();
        let found = freshness.stat_after(&below, version, &values).await;
        found.map_err(|error| in_member(&member.key, error))
    }

    fn drop_older(&self, value: &Key, document: &Key, since: Instant) -> bool {
        let (Some((_, store, value)), Some((_, _, document))) =
            (self.opened(value), self.opened(document))
        else {
            return false;
        };
        let freshness = store.freshness();
        freshness.is_some_and(|freshness| freshness.drop_older(&value, &document, since))
    }

    async fn drop_value(&self, value: &Key) {
        if let Some((_, store, value)) = self.opened(value)
            && let Some(freshness) = store.freshness()
        {
            freshness.drop_value(&value).await;
        }
    }
}

#[async_trait]
impl SourceInfo for StacStore {
    fn members(&self) -> Option<Vec<Key>> {
        Some(
            self.members
                .values()
                .map(|member| member.key.clone())
                .collect(),
        )
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        let opened = self.members.values().filter_map(Member::opened);
        let stats = opened.filter_map(|store| store.transfer_stats());
        let all = stats.reduce(|all, stats| all.with(&stats));
        all.or_else(|| self.policy.may_be_remote().then(TransferStats::default))
    }

    /// The assets that are not shown, and what the open assets do not show.
    async fn omissions(&self) -> Vec<Omission> {
        let mut omissions = self.omissions.clone();
        for (name, member) in &self.members {
            let Some(store) = member.opened() else {
                continue;
            };
            let name = String::from_utf8_lossy(name);
            let own = store.omissions().await.into_iter();
            omissions.extend(own.map(|omission| Omission {
                what: format!("{}: {}", short(&name), omission.what),
                ..omission
            }));
        }
        omissions
    }
}
