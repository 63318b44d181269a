//! Creates the client of a source from its URL, with all layers on top.

use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use siphasher::sip::SipHasher13;
use tokio::sync::Semaphore;

use super::bytes::speculation::Speculation;
use super::known::attr_cache::AttrCache;
use super::known::listing::ListingCache;
use super::known::write_times::DocumentWriteTimes;
use super::memory::BodyBudget;
use super::memory::RangeCache;
use super::protocol::error::RemoteError;
use super::protocol::options::RemoteOptions;
use super::protocol::{NameListing, Protocol, hidden};
use super::request::limit::Limited;
use super::request::missing_status::MissingStatus;
use super::request::retry::Retry;
use super::request::transfer_stats::{Counted, Counters, ServerClock};
use super::store::RemoteSource;
use crate::cache::SingleFlight;
use crate::runtime;
use crate::store::KeyClasses;
use crate::store::remote::request::Remote;

/// The sender of requests to a source, and the names of the source.
#[derive(Debug, Clone)]
pub(super) struct Client {
    remote: Arc<dyn Remote>,
    pub(super) protocol: &'static Protocol,
    /// The name of the source in messages, without secrets.
    pub(super) label: String,
    /// Identifies the source in a disk cache.
    identity: String,
    /// The last component of the URL.
    pub(super) file_name: String,
    /// The message for a source without keys.
    pub(super) nothing_there: String,
    /// Whether the URL names contents that never change.
    is_immutable: bool,
}

impl Client {
    /// Returns the client of a URL.
    pub(super) fn new(
        url: &str,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Self, RemoteError> {
        let invalid = |label: String| move |what: String| RemoteError::Invalid { label, what };
        let protocol = Protocol::of_url(url)
            .ok_or_else(|| invalid(hidden(url))("no protocol has this scheme".into()))?;
        let variable = |name: &str| std::env::var(name).ok();
        let location = (protocol.parse)(url, &variable).map_err(invalid(hidden(url)))?;
        let label = location.label();
        Ok(Self {
            remote: location
                .open(options, classes)
                .map_err(invalid(label.clone()))?,
            protocol,
            identity: location.identity(options),
            file_name: location.file_name(),
            nothing_there: location.nothing_there(classes.node_documents),
            is_immutable: location.is_immutable(),
            label,
        })
    }

    /// Returns the client of a source that a test imitates.
    #[cfg(test)]
    pub(super) fn fake(remote: Arc<dyn Remote>, protocol: &'static Protocol) -> Self {
        Self {
            remote,
            protocol,
            label: "fake".into(),
            identity: "fake".into(),
            file_name: "fake".into(),
            nothing_there: "nothing".into(),
            is_immutable: false,
        }
    }

    /// Returns the source with all layers on top of the client.
    pub(super) fn source(
        self,
        options: &RemoteOptions,
        classes: KeyClasses,
        shared: &Shared,
    ) -> Result<Arc<RemoteSource>, RemoteError> {
        let Self {
            remote,
            protocol,
            label,
            identity,
            is_immutable,
            ..
        } = self;
        let (ttl, absent_ttl) = match is_immutable {
            true => (Duration::MAX, Duration::MAX),
            false => (options.ttl, options.absent_ttl),
        };
        runtime::network().map_err(|error| RemoteError::System {
            label: label.clone(),
            error,
        })?;
        let counters = Arc::clone(&shared.counters);
        let clock = Arc::new(ServerClock::default());
        let mut hasher = SipHasher13::new();
        identity.hash(&mut hasher);
        let is_immutable = ttl == Duration::MAX;
        let reads_whole = !protocol.traits.reads_ranges;
        let mut remote: Arc<dyn Remote> = Arc::new(Counted::new(
            remote,
            Arc::clone(&counters),
            Arc::clone(&clock),
        ));
        remote = Arc::new(Limited::new(remote, options.parallel, classes));
        let (retries, timeout) = (options.retries, options.timeout);
        remote = Arc::new(Retry::new(remote, retries, timeout, Arc::clone(&counters)));
        if !options.missing_statuses.is_empty() {
            let statuses = &options.missing_statuses;
            log::warn!("{label}: {statuses:?} is taken for a proof of absence (--missing-status)");
            remote = Arc::new(MissingStatus::new(remote, statuses.clone()));
        }
        Ok(Arc::new(RemoteSource {
            remote,
            number: hasher.finish(),
            label,
            identity,
            classes,
            can_list: AtomicBool::new(false),
            lists_directories: protocol.traits.listing == NameListing::Directories,
            reads_whole,
            timeout: options.timeout,
            clock,
            is_immutable,
            attrs: AttrCache::new(ttl, absent_ttl),
            write_times: DocumentWriteTimes::default(),
            listings: ListingCache::new(options.memory_bytes / 2, ttl, absent_ttl),
            ranges: Arc::clone(&shared.ranges),
            body_budget: Arc::clone(&shared.body_budget),
            // Versions of contents that may change are known only for the life of the process.
            disk: options
                .disk
                .clone()
                .filter(|_| is_immutable || !reads_whole),
            counters,
            speculation: Speculation::default(),
            prefetches: Arc::clone(&shared.prefetches),
            value_lookups: Arc::new(Semaphore::new((options.parallel / 2).max(1))),
            root_document: OnceLock::new(),
            modified: OnceLock::new(),
            attr_loads: SingleFlight::default(),
            revalidations: SingleFlight::default(),
            repeated_listings: SingleFlight::default(),
            value_loads: SingleFlight::default(),
            range_loads: SingleFlight::default(),
        }))
    }
}

/// State that several sources can share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ranges: Arc<RangeCache>,
    pub(super) body_budget: Arc<BodyBudget>,
    pub(super) counters: Arc<Counters>,
    pub(super) prefetches: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(options: &RemoteOptions, classes: KeyClasses) -> Self {
        let (ranges, body_budget) = options.memory.get(options.memory_bytes);
        Self {
            ranges,
            body_budget,
            counters: Arc::new(Counters::new(classes)),
            prefetches: Arc::new(Semaphore::new((options.parallel / 2).max(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_clones_of_options_have_one_memory() {
        let options = RemoteOptions::default();
        let shared = |options: &RemoteOptions| Shared::new(options, KeyClasses::default());
        let (one, other) = (shared(&options), shared(&options.clone()));
        assert!(Arc::ptr_eq(&one.ranges, &other.ranges));
        assert!(Arc::ptr_eq(&one.body_budget, &other.body_budget));
        let apart = shared(&RemoteOptions::default());
        assert!(!Arc::ptr_eq(&one.body_budget, &apart.body_budget));
    }
}
