//! Creates the client of a source from its URL, with all layers on top.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::bytes::KnownBytes;
use super::known::{KnownNames, NameLimits, SourceDisk, SourceIdentity};
use super::memory::{BodyBudget, RangeCache};
use super::protocol::error::RemoteError;
use super::protocol::options::RemoteOptions;
use super::protocol::{NameListing, Protocol, hidden};
use super::request::limit::RequestLimit;
use super::request::missing_status::MissingStatus;
use super::request::retry::Retry;
use super::request::transfer_stats::{Counters, Meter, TransferStats};
use super::request::{Remote, Requests};
use super::store::RemoteSource;
use crate::runtime;
use crate::store::KeyClasses;
#[cfg(test)]
use crate::sync::Mutex;

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
        if options.credential_command.is_some() && !protocol.traits.has_credentials {
            let what = "its servers take no --credential-command: credentials go into the URL";
            return Err(invalid(hidden(url))(what.into()));
        }
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
    ) -> Result<RemoteSource, RemoteError> {
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
        let is_immutable = ttl == Duration::MAX;
        let reads_whole = !protocol.traits.reads_ranges;
        let lists_directories = protocol.traits.listing == NameListing::Directories;
        // Versions of contents that may change are known only for the life of the process.
        let is_kept = is_immutable || !reads_whole;
        let requests = Arc::new(shared.requests(remote, &label, options, classes));
        let own = SourceIdentity::new(label, &identity, classes, is_immutable, reads_whole);
        let own = Arc::new(own);
        let disk = SourceDisk::new(
            options.disk.clone().filter(|_| is_kept),
            identity,
            options.timeout,
        );
        let disk = Arc::new(disk);
        let limits = NameLimits {
            ttl,
            absent_ttl,
            listing_bytes: options.memory_bytes / 2,
        };
        let names = Arc::new(KnownNames::new(
            Arc::clone(&requests),
            Arc::clone(&own),
            Arc::clone(&disk),
            lists_directories,
            limits,
        ));
        let bytes = Arc::new(KnownBytes::new(
            requests,
            Arc::clone(&own),
            disk,
            Arc::clone(&names),
            Arc::clone(&shared.ranges),
            options.parallel,
        ));
        Ok(RemoteSource {
            identity: own,
            names,
            bytes,
        })
    }
}

/// State that several sources can share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    ranges: Arc<RangeCache>,
    body_budget: Arc<BodyBudget>,
    counters: Arc<Counters>,
    prefetches: Arc<Semaphore>,
    /// The bounds of requests in flight, which a simulation checks.
    #[cfg(test)]
    limits: Arc<Mutex<Vec<Arc<RequestLimit>>>>,
}

impl Shared {
    pub(super) fn new(options: &RemoteOptions, classes: KeyClasses) -> Self {
        let (ranges, body_budget) = options.memory.get(options.memory_bytes);
        Self {
            ranges,
            body_budget,
            counters: Arc::new(Counters::new(classes)),
            prefetches: Arc::new(Semaphore::new((options.parallel / 2).max(1))),
            #[cfg(test)]
            limits: Arc::default(),
        }
    }

    /// Returns the same state with counters of its own, which count no array separately.
    pub(super) fn with_own_counters(&self) -> Self {
        Self {
            counters: Arc::new(Counters::new(KeyClasses::default())),
            ..self.clone()
        }
    }

    /// Waits for the permit of a prefetch.
    pub(super) async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.prefetches.acquire().await.ok()
    }

    /// The counters of all sources together, without those of a disk cache.
    pub(super) fn transfer_stats(&self) -> TransferStats {
        TransferStats {
            total: self.counters.total(),
            memory_bytes: self.ranges.bytes(),
            ..TransferStats::default()
        }
    }

    /// Returns what is in use; nothing if no request is in flight.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> Vec<String> {
        let mut used = Vec::new();
        let limits = self.limits.lock();
        used.extend(limits.iter().filter_map(|limit| limit.in_use()));
        used.extend(self.body_budget.in_use());
        used
    }

    /// Returns the number of free permits for prefetches.
    #[cfg(test)]
    pub(super) fn free_prefetches(&self) -> usize {
        self.prefetches.available_permits()
    }

    /// Returns the sender of requests of a client.
    fn requests(
        &self,
        mut remote: Arc<dyn Remote>,
        label: &str,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Requests {
        let meter = Meter {
            counters: Arc::clone(&self.counters),
            clock: Arc::default(),
        };
        let limit = Arc::new(RequestLimit::new(options.parallel, classes));
        #[cfg(test)]
        self.limits.lock().push(Arc::clone(&limit));
        let (retries, timeout) = (options.retries, options.timeout);
        remote = Arc::new(Retry::new(remote, limit, meter.clone(), retries, timeout));
        if !options.missing_statuses.is_empty() {
            let statuses = &options.missing_statuses;
            log::warn!("{label}: {statuses:?} is taken for a proof of absence (--missing-status)");
            remote = Arc::new(MissingStatus::new(remote, statuses.clone()));
        }
        Requests::new(
            remote,
            meter,
            Arc::clone(&self.body_budget),
            Arc::clone(&self.prefetches),
            timeout,
        )
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
