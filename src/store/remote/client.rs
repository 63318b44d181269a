//! Creates the client of a source from its URL, with all layers on top.

use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use reqwest::Url;
use siphasher::sip::SipHasher13;
use tokio::sync::Semaphore;

use super::Remote;
use super::attr_cache::AttrCache;
use super::body_budget::BodyBudget;
use super::bucket::{self, Bucket, BucketOptions};
use super::error::RemoteError;
use super::hdfs::{self, HdfsUrl};
use super::keyvalue::{self, KeyValueOptions, KeyValueUrl};
use super::limit::Limited;
use super::listing::ListingCache;
use super::missing_status::MissingStatus;
use super::options::RemoteOptions;
use super::range_cache::RangeCache;
use super::retry::Retry;
use super::speculation::Speculation;
use super::store::RemoteSource;
use super::transfer_stats::{Counted, Counters, ServerClock};
use super::web::{self, Address};
use super::write_times::DocumentWriteTimes;
use crate::cache::SingleFlight;
use crate::runtime;
use crate::store::KeyClasses;

/// The protocol of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Web,
    Bucket,
    Hdfs,
    KeyValue,
}

/// The sender of requests to a source, and the names of the source.
#[derive(Debug, Clone)]
pub(super) struct Client {
    remote: Arc<dyn Remote>,
    pub(super) protocol: Protocol,
    /// The name of the source in messages, without secrets.
    pub(super) label: String,
    /// Identifies the source in a disk cache.
    identity: String,
    /// The last component of the URL.
    pub(super) file_name: String,
}

/// The URL for messages, without secrets.
pub(in crate::store) fn label(url: &str) -> String {
    if let Some(Ok(hdfs)) = HdfsUrl::parse(url, |_| None) {
        return hdfs.label();
    }
    if let Some(keys) = KeyValueUrl::parse(url, |_| None) {
        return keys.map_or_else(|_| hidden(url), |keys| keys.label());
    }
    match (Bucket::parse(url), Url::parse(url)) {
        (Some(Ok(bucket)), _) => bucket.label(),
        (None, Ok(parsed)) if parsed.has_host() => Address::new(&parsed).label(),
        _ => hidden(url),
    }
}

/// The part of a URL that can be shown if secrets may be anywhere in it.
fn hidden(url: &str) -> String {
    let scheme = url.split("://").next().unwrap_or_default();
    format!("{scheme}://...")
}

impl Client {
    /// Returns the client of a URL.
    pub(super) fn new(
        url: &str,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Self, RemoteError> {
        let invalid = |label: String| move |what: String| RemoteError::Invalid { label, what };
        let headers = options.headers().map_err(invalid(hidden(url)))?;
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(bucket) = Bucket::parse(url) {
            let bucket = bucket.map_err(invalid(hidden(url)))?;
            let own = BucketOptions {
                anonymous: options.anonymous,
                endpoint_url: options.endpoint_url.clone(),
                region: options.region.clone(),
                profile: options.profile.clone(),
                headers,
                timeout: options.timeout,
                tls: options.tls.clone(),
            };
            let label = bucket.label();
            let endpoint = options.endpoint_url.as_deref().unwrap_or_default();
            return Ok(Self {
                remote: bucket::open(&bucket, &own).map_err(invalid(label.clone()))?,
                protocol: Protocol::Bucket,
                identity: format!("{label} {endpoint}"),
                file_name: label.clone(),
                label,
            });
        }
        let headers: HeaderMap = headers.into_iter().collect();
        if let Some(hdfs) = HdfsUrl::parse(url, variable) {
            let hdfs = hdfs.map_err(invalid(hidden(url)))?;
            let (label, identity, file_name) = (hdfs.label(), hdfs.identity(), hdfs.file_name());
            // Name nodes redirect reads to data nodes.
            let options = RemoteOptions {
                redirects: None,
                ..options.clone()
            };
            let web = web::open(Address::new(&hdfs.http), headers, &options, classes);
            let web = web.map_err(invalid(label.clone()))?;
            return Ok(Self {
                remote: hdfs::open(web, hdfs),
                protocol: Protocol::Hdfs,
                label,
                identity,
                file_name,
            });
        }
        if let Some(keys) = KeyValueUrl::parse(url, variable) {
            let keys = keys.map_err(invalid(hidden(url)))?;
            let label = keys.label();
            let own = KeyValueOptions {
                classes,
                timeout: options.timeout,
                ttl: options.ttl,
                memory_bytes: options.memory_bytes,
            };
            return Ok(Self {
                remote: keyvalue::open(&keys, own, &options.tls).map_err(invalid(label.clone()))?,
                protocol: Protocol::KeyValue,
                identity: label.clone(),
                file_name: label.clone(),
                label,
            });
        }
        let parsed = Url::parse(url).map_err(|error| invalid(hidden(url))(error.to_string()))?;
        if parsed.host().is_none() {
            return Err(invalid(hidden(url))("no host in the URL".into()));
        }
        let address = Address::new(&parsed);
        let (label, identity) = (address.label(), address.identity());
        let file_name = address.file_name();
        let web = web::open(address, headers, options, classes);
        Ok(Self {
            remote: Arc::new(web.map_err(invalid(label.clone()))?),
            protocol: Protocol::Web,
            label,
            identity,
            file_name,
        })
    }

    /// Returns the client of a source that a test imitates.
    #[cfg(test)]
    pub(super) fn fake(remote: Arc<dyn Remote>, protocol: Protocol) -> Self {
        Self {
            remote,
            protocol,
            label: "fake".into(),
            identity: "fake".into(),
            file_name: "fake".into(),
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
            ..
        } = self;
        runtime::network().map_err(|error| RemoteError::System {
            label: label.clone(),
            error,
        })?;
        let counters = Arc::clone(&shared.counters);
        let clock = Arc::new(ServerClock::default());
        let mut hasher = SipHasher13::new();
        identity.hash(&mut hasher);
        let is_immutable = options.ttl == Duration::MAX;
        let reads_whole = protocol == Protocol::KeyValue;
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
            lists_directories: protocol == Protocol::Hdfs,
            reads_whole,
            timeout: options.timeout,
            clock,
            is_immutable,
            attrs: AttrCache::new(options.ttl, options.absent_ttl),
            write_times: DocumentWriteTimes::default(),
            listings: ListingCache::new(options.memory_bytes / 2, options.ttl, options.absent_ttl),
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

/// Memory for cached bytes and for response bodies. Clones share the memory.
#[derive(Debug, Clone, Default)]
pub struct RemoteMemory(Arc<OnceLock<(Arc<RangeCache>, Arc<BodyBudget>)>>);

impl RemoteMemory {
    /// The first call sets the limit.
    fn get(&self, bytes: u64) -> (Arc<RangeCache>, Arc<BodyBudget>) {
        let make = || {
            let ranges = RangeCache::new(bytes);
            let body_budget = BodyBudget::new(bytes.saturating_mul(2));
            (Arc::new(ranges), Arc::new(body_budget))
        };
        self.0.get_or_init(make).clone()
    }
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
