//! What is known about the names of one source: attributes, absence, listings, and how long each of them is trusted.
//!
//! [`KnownNames`] answers from the caches, and asks the source again where an answer has to be more recent (`attributes`,
//! `listing`). It fetches no values: a lookup of a key that nothing is known about may fetch its value at the same time,
//! and is in `bytes`.

mod attr_cache;
mod attributes;
mod disk;
mod fetch_guard;
mod identity;
mod listing;
mod write_times;

pub(super) use attr_cache::{Attrs, CachedAttrs};
#[cfg(test)]
pub(super) use attributes::MODIFIED_TIME_WINDOW;
pub(super) use disk::SourceDisk;
pub(super) use identity::SourceIdentity;
pub(super) use listing::RemoteListing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use super::request::{Meta, Requests};
use crate::cache::SingleFlight;
use crate::store::{Key, Kind, Stat, StoreError, Version};
use attr_cache::AttrCache;
use listing::ListingCache;
use write_times::DocumentWriteTimes;

/// How long names and attributes are trusted, and how much memory listings may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameLimits {
    pub(super) ttl: Duration,
    pub(super) absent_ttl: Duration,
    pub(super) listing_bytes: u64,
}

/// The names of one source, as far as they are known.
#[derive(Debug)]
pub(super) struct KnownNames {
    requests: Arc<Requests>,
    identity: Arc<SourceIdentity>,
    disk: Arc<SourceDisk>,
    /// Whether all keys below a prefix can be listed; determined when the source is opened.
    can_list: AtomicBool,
    /// Whether directories can be listed completely, one at a time.
    lists_directories: bool,
    root: OnceLock<RootDocument>,
    attrs: AttrCache,
    write_times: DocumentWriteTimes,
    listings: ListingCache,
    /// Requests in flight for attributes that are cached but have to be more recent.
    revalidations: SingleFlight<Key, CachedAttrs, StoreError>,
    /// Listings in flight that are requested again.
    repeated_listings: SingleFlight<Key, (), StoreError>,
}

/// A metadata document at the root that existed when the source was opened. If it is gone, the source is gone, and the
/// absence of other keys is not proven.
#[derive(Debug)]
struct RootDocument {
    key: Key,
    /// When it was written, as far as the source reports that.
    modified: Option<SystemTime>,
}

impl KnownNames {
    pub(super) fn new(
        requests: Arc<Requests>,
        identity: Arc<SourceIdentity>,
        disk: Arc<SourceDisk>,
        lists_directories: bool,
        limits: NameLimits,
    ) -> Self {
        let NameLimits {
            ttl,
            absent_ttl,
            listing_bytes,
        } = limits;
        Self {
            requests,
            identity,
            disk,
            can_list: AtomicBool::new(false),
            lists_directories,
            root: OnceLock::new(),
            attrs: AttrCache::new(ttl, absent_ttl),
            write_times: DocumentWriteTimes::default(),
            listings: ListingCache::new(listing_bytes, ttl, absent_ttl),
            revalidations: SingleFlight::default(),
            repeated_listings: SingleFlight::default(),
        }
    }

    /// Returns what is in use; nothing if no request is in flight.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> Vec<String> {
        let revalidations = self.revalidations.in_use("attributes again");
        let listings = self.repeated_listings.in_use("listings again");
        revalidations.into_iter().chain(listings).collect()
    }

    /// Whether all keys below a prefix can be listed.
    pub(super) fn can_list(&self) -> bool {
        self.can_list.load(Ordering::Relaxed)
    }

    pub(super) fn set_can_list(&self, can_list: bool) {
        self.can_list.store(can_list, Ordering::Relaxed);
    }

    /// Whether listings have all existing names.
    pub(super) fn lists_completely(&self) -> bool {
        self.can_list() || self.lists_directories
    }

    /// Records a document at the root that exists for as long as the source does.
    pub(super) fn set_root_document(&self, key: Key, attrs: Option<&Meta>) {
        let modified = attrs.and_then(|meta| meta.modified);
        // The first document is as good as another one.
        let _ = self.root.set(RootDocument { key, modified });
    }

    /// Whether a document at the root was found when the source was opened.
    pub(super) fn has_root_document(&self) -> bool {
        self.root.get().is_some()
    }

    /// Returns the attributes of a key for users, which are the same for all prefixes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an absent key.
    pub(super) fn stat_of(&self, key: &Key, attrs: Attrs) -> Result<Stat, StoreError> {
        match attrs {
            Attrs::Prefix => Ok(self.prefix_stat()),
            Attrs::Object(meta) => Ok(meta.stat()),
            Attrs::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    /// Returns the attributes of a prefix, which are the same for all prefixes.
    pub(super) fn prefix_stat(&self) -> Stat {
        let modified = self.root.get().and_then(|root| root.modified);
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            version: Version(0),
            links: 2,
        }
    }
}
