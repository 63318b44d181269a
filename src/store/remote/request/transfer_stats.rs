//! Counts network transfers, in total and below each prefix.
//!
//! The clients report every request that they send ([`request_sent`]) while an attempt is in flight ([`Meter`]), which
//! counts its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::header::{DATE, HeaderMap};

use super::{Got, Meta, Page, RequestError};
use crate::clock::Instant;
use crate::latency::{Latencies, LatencyCounts};
use crate::store::{DiskCounters, Key, KeyClasses};
use crate::sync::Mutex;

/// Counters of requests; they never decrease.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TransferCounters {
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of values that were received.
    pub bytes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Requests that returned neither bytes nor a proof of absence.
    pub errors: u64,
    /// Reads that were answered from memory or from the disk cache.
    pub cache_hits: u64,
    /// Bytes of values that were fetched before a read.
    pub prefetched_bytes: u64,
    /// Prefetched bytes that were read later.
    pub prefetch_read_bytes: u64,
}

/// Transfer statistics of a remote source.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TransferStats {
    /// The totals.
    pub total: TransferCounters,
    /// Counters of each array or group, as far as known.
    pub arrays: Vec<(String, TransferCounters)>,
    /// Counters of the disk cache, if any; other sources may use the same cache.
    pub disk: Option<DiskCounters>,
    /// Bytes of values in memory now.
    pub memory_bytes: u64,
    /// How long requests took, each attempt by itself.
    pub latencies: LatencyCounts,
}

impl TransferStats {
    /// Adds the statistics of another source in the same process, which shares the memory of this one.
    pub(in crate::store) fn with(mut self, other: &Self) -> Self {
        let (own, more) = (&mut self.total, &other.total);
        own.requests += more.requests;
        own.bytes += more.bytes;
        own.retries += more.retries;
        own.errors += more.errors;
        own.cache_hits += more.cache_hits;
        own.prefetched_bytes += more.prefetched_bytes;
        own.prefetch_read_bytes += more.prefetch_read_bytes;
        self.arrays.extend(other.arrays.iter().cloned());
        self.disk = self.disk.or(other.disk);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.latencies.add(&other.latencies);
        self
    }
}

/// Number of prefixes that are counted separately.
const MAX_PREFIXES: usize = 4096;
/// The name under which all further prefixes are counted.
const OTHERS: &str = "(others)";

/// The counters of one source.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    errors: AtomicU64,
    cache_hits: AtomicU64,
    prefetched_bytes: AtomicU64,
    prefetch_read_bytes: AtomicU64,
    latencies: Latencies,
    prefixes: Mutex<BTreeMap<String, TransferCounters>>,
    classes: KeyClasses,
}

impl Counters {
    pub(in crate::store::remote) fn new(classes: KeyClasses) -> Self {
        Self {
            classes,
            ..Self::default()
        }
    }

    fn count(&self, key: &Key, what: impl Fn(&mut TransferCounters)) {
        let mut prefixes = self.prefixes.lock();
        let of = self.classes.node_of(key).display().into_owned();
        let of = match prefixes.len() >= MAX_PREFIXES && !prefixes.contains_key(&of) {
            true => OTHERS.to_owned(),
            false => of,
        };
        what(prefixes.entry(of).or_default());
    }

    fn completed<T>(&self, key: &Key, bytes: u64, response: &Result<T, RequestError>) {
        let failed = match response {
            Ok(_)
            | Err(
                RequestError::NotFound
                | RequestError::NotModified
                | RequestError::IsPrefix
                | RequestError::NoListing(_)
                | RequestError::TooLong(_),
            ) => 0,
            Err(_) => 1,
        };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.errors.fetch_add(failed, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.bytes = counters.bytes.saturating_add(bytes);
            counters.errors = counters.errors.saturating_add(failed);
        });
    }

    fn request_sent(&self, key: &Key) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.requests = counters.requests.saturating_add(1);
        });
    }

    /// Counts a request whose caller no longer waits for the response.
    fn cancelled(&self, key: &Key) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.errors = counters.errors.saturating_add(1);
        });
    }

    /// Counts a repeated request.
    pub(in crate::store::remote) fn retried(&self, key: &Key) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.retries = counters.retries.saturating_add(1);
        });
    }

    /// Counts a read that needed no request.
    pub(in crate::store::remote) fn hit(&self, key: &Key) {
        self.cache_hits.fetch_add(1, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.cache_hits = counters.cache_hits.saturating_add(1);
        });
    }

    /// Counts a value that was fetched before a read.
    pub(in crate::store::remote) fn prefetched(&self, key: &Key, bytes: u64) {
        self.prefetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.prefetched_bytes = counters.prefetched_bytes.saturating_add(bytes);
        });
    }

    /// Counts a read of a value that was fetched before.
    pub(in crate::store::remote) fn prefetch_read(&self, key: &Key, bytes: u64) {
        self.prefetch_read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count(key, |counters| {
            counters.prefetch_read_bytes = counters.prefetch_read_bytes.saturating_add(bytes);
        });
    }

    /// Returns the totals.
    pub(in crate::store::remote) fn total(&self) -> TransferCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TransferCounters {
            requests: read(&self.requests),
            bytes: read(&self.bytes),
            retries: read(&self.retries),
            errors: read(&self.errors),
            cache_hits: read(&self.cache_hits),
            prefetched_bytes: read(&self.prefetched_bytes),
            prefetch_read_bytes: read(&self.prefetch_read_bytes),
        }
    }

    /// Returns how long requests took.
    pub(in crate::store::remote) fn latencies(&self) -> LatencyCounts {
        self.latencies.counts()
    }

    /// Returns the counters below each prefix.
    pub(in crate::store::remote) fn by_prefix(&self) -> Vec<(String, TransferCounters)> {
        let prefixes = self.prefixes.lock();
        let each = prefixes
            .iter()
            .map(|(name, counters)| (name.clone(), *counters));
        each.collect()
    }
}

/// The clock of a source, from the `Date` of its last response.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct ServerClock(Mutex<Option<(SystemTime, Instant)>>);

impl ServerClock {
    /// Returns the time of the source at a moment, at most a second and the way of a response too early;
    /// `None` before the first response with a `Date`.
    pub(in crate::store::remote) fn at(&self, moment: Instant) -> Option<SystemTime> {
        let (date, received) = (*self.0.lock())?;
        match moment.checked_duration_since(received) {
            Some(after) => date.checked_add(after),
            None => date.checked_sub(received - moment),
        }
    }

    fn set(&self, date: SystemTime) {
        *self.0.lock() = Some((date, Instant::now()));
    }
}

/// Counts the requests of one source, and reads its clock. Clones share both.
#[derive(Debug, Clone)]
pub(in crate::store::remote) struct Meter {
    pub(in crate::store::remote) counters: Arc<Counters>,
    pub(in crate::store::remote) clock: Arc<ServerClock>,
}

tokio::task_local! {
    /// The meter and the key for which requests are being sent.
    pub(super) static SENDER: (Meter, Key);
}

/// Counts a request that is sent: the original one, or one that follows a redirect.
pub(in crate::store::remote) fn request_sent() {
    // Outside of an attempt requests are not counted.
    let _ = SENDER.try_with(|(meter, key)| meter.counters.request_sent(key));
}

/// Reads the clock of the source from the headers of a response.
pub(in crate::store::remote) fn headers_received(headers: &HeaderMap) {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    if let Some(date) = date.and_then(|date| httpdate::parse_http_date(date).ok()) {
        // Outside of an attempt the clock is not needed.
        let _ = SENDER.try_with(|(meter, _)| meter.clock.set(date));
    }
}

impl Meter {
    /// Begins to measure an attempt.
    pub(super) fn begin<'a>(&'a self, key: &'a Key) -> MeteredAttempt<'a> {
        MeteredAttempt {
            counters: &self.counters,
            key,
            begun: Instant::now(),
            is_complete: false,
        }
    }
}

/// An attempt in flight; if it is dropped before the response, it counts as an error.
pub(super) struct MeteredAttempt<'a> {
    counters: &'a Counters,
    key: &'a Key,
    begun: Instant,
    is_complete: bool,
}

impl MeteredAttempt<'_> {
    /// Counts the response.
    pub(super) fn end<T: Transferred>(mut self, response: &Result<T, RequestError>) {
        self.counters.latencies.record(self.begun.elapsed());
        self.is_complete = true;
        let bytes = match response {
            Ok(response) => response.transferred_bytes(),
            Err(RequestError::Failed(failed)) => {
                (failed.partial.as_ref()).map_or(0, |partial| partial.transferred_bytes())
            }
            Err(_) => 0,
        };
        self.counters.completed(self.key, bytes, response);
    }
}

impl Drop for MeteredAttempt<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.counters.cancelled(self.key);
        }
    }
}

/// A response, of whose bytes those of a value are counted.
pub(super) trait Transferred {
    /// Returns the number of bytes of a value.
    fn transferred_bytes(&self) -> u64 {
        0
    }
}

impl Transferred for Got {
    fn transferred_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Transferred for Meta {}

impl Transferred for Page {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_clock_of_a_server_is_never_ahead_of_its_last_response() {
        let clock = ServerClock::default();
        let before = Instant::now();
        assert_eq!(clock.at(before), None);
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        clock.set(date);
        assert!(clock.at(before) <= Some(date));
        let (_, received) = (*clock.0.lock()).unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!(clock.at(received + hour), Some(date + hour));
        assert_eq!(clock.at(received), Some(date));
    }

    #[test]
    fn the_memory_for_prefixes_is_bounded() {
        let counters = Counters::default();
        for i in 0..3 * MAX_PREFIXES {
            counters.hit(&Key::new(format!("a{i}/.zarray").as_bytes()).unwrap());
        }
        let counted = counters.by_prefix();
        assert_eq!(counted.len(), MAX_PREFIXES + 1);
        let all: u64 = counted
            .iter()
            .map(|(_, counters)| counters.cache_hits)
            .sum();
        assert_eq!(all, 3 * MAX_PREFIXES as u64);
        assert_eq!(counters.total().cache_hits, all);
    }
}
