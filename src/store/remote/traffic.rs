//! Counts what goes over the network, in all and below each prefix.
//!
//! The clients say of every request that they send that they do ([`sent`]); what came of it is
//! counted around them ([`Counted`]).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::{DiskCounters, Key, KeyClasses};
use crate::sync::Mutex;

/// Counters of requests; all only grow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TransferCounters {
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of values that came back.
    pub bytes: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Requests that brought neither bytes nor a proof of absence.
    pub errors: u64,
    /// Reads that were answered from memory or from the disk cache.
    pub cache_hits: u64,
    /// Bytes of values that were fetched before a read.
    pub prefetched_bytes: u64,
    /// Those of them that were read later.
    pub prefetch_read_bytes: u64,
}

/// What a remote source has cost so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TransferStats {
    /// All of it together.
    pub total: TransferCounters,
    /// What was for each array or group, where that is known.
    pub arrays: Vec<(String, TransferCounters)>,
    /// What the disk cache has done, which may have more users, if there is one.
    pub disk: Option<DiskCounters>,
    /// Bytes of values that are kept in memory now.
    pub memory_bytes: u64,
}

impl TransferStats {
    /// With what another source of the same process has done, which has its memory in common with this one.
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
        self
    }
}

/// More prefixes than this are counted together.
const MAX_PREFIXES: usize = 4096;
/// Where they are counted.
const OTHERS: &str = "(others)";

/// The counters of one source.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    errors: AtomicU64,
    cache_hits: AtomicU64,
    prefetched_bytes: AtomicU64,
    prefetch_read_bytes: AtomicU64,
    prefixes: Mutex<BTreeMap<String, TransferCounters>>,
    classes: KeyClasses,
}

impl Counters {
    pub(super) fn new(classes: KeyClasses) -> Self {
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

    fn answered<T>(&self, key: &Key, bytes: u64, answer: &Result<T, RequestError>) {
        let failed = match answer {
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
        self.count(key, |traffic| {
            traffic.bytes = traffic.bytes.saturating_add(bytes);
            traffic.errors = traffic.errors.saturating_add(failed);
        });
    }

    fn sent(&self, key: &Key) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.requests = traffic.requests.saturating_add(1);
        });
    }

    /// Nobody waited for the answer any more.
    fn given_up(&self, key: &Key) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.errors = traffic.errors.saturating_add(1);
        });
    }

    /// A request is sent again.
    pub(super) fn retried(&self, key: &Key) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.retries = traffic.retries.saturating_add(1);
        });
    }

    /// A read needed no request.
    pub(super) fn hit(&self, key: &Key) {
        self.cache_hits.fetch_add(1, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.cache_hits = traffic.cache_hits.saturating_add(1);
        });
    }

    /// A value was fetched before a read.
    pub(super) fn prefetched(&self, key: &Key, bytes: u64) {
        self.prefetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.prefetched_bytes = traffic.prefetched_bytes.saturating_add(bytes);
        });
    }

    /// A value that was fetched before a read is read.
    pub(super) fn prefetch_read(&self, key: &Key, bytes: u64) {
        self.prefetch_read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count(key, |traffic| {
            traffic.prefetch_read_bytes = traffic.prefetch_read_bytes.saturating_add(bytes);
        });
    }

    /// All together.
    pub(super) fn total(&self) -> TransferCounters {
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

    /// Below each prefix.
    pub(super) fn by_prefix(&self) -> Vec<(String, TransferCounters)> {
        let prefixes = self.prefixes.lock();
        let each = prefixes
            .iter()
            .map(|(name, traffic)| (name.clone(), *traffic));
        each.collect()
    }
}

tokio::task_local! {
    /// Whose requests are being sent, and for which key.
    static SENDER: (Arc<Counters>, Key);
}

/// A request goes out: the first one, or another to where a redirect leads.
pub(super) fn sent() {
    // Outside of `Counted` nobody counts.
    let _ = SENDER.try_with(|(counters, key)| counters.sent(key));
}

/// A question that was asked and is given up if this is dropped.
struct Asked<'a> {
    counters: &'a Counters,
    key: &'a Key,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.counters.given_up(self.key);
        }
    }
}

/// A source whose requests are counted.
#[derive(Debug)]
pub(super) struct Counted {
    inner: Arc<dyn Remote>,
    counters: Arc<Counters>,
}

impl Counted {
    pub(super) fn new(inner: Arc<dyn Remote>, counters: Arc<Counters>) -> Self {
        Self { inner, counters }
    }

    async fn ask<T>(
        &self,
        key: &Key,
        request: impl Future<Output = Result<T, RequestError>>,
        bytes: impl FnOnce(&Result<T, RequestError>) -> usize,
    ) -> Result<T, RequestError> {
        let mut asked = Asked {
            counters: &self.counters,
            key,
            is_answered: false,
        };
        let sender = (Arc::clone(&self.counters), key.clone());
        let answer = SENDER.scope(sender, request).await;
        asked.is_answered = true;
        self.counters.answered(key, bytes(&answer) as u64, &answer);
        answer
    }
}

impl Remote for Counted {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        let bytes = |answer: &Result<Got, RequestError>| match answer {
            Ok(got) => got.bytes.len(),
            Err(RequestError::Failed(failed)) => {
                failed.partial.as_ref().map_or(0, |got| got.bytes.len())
            }
            Err(_) => 0,
        };
        self.ask(&get.key, self.inner.get(get), bytes).boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.ask(key, self.inner.head(key), |_| 0).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.ask(&list.prefix, self.inner.list(list), |_| 0).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_prefixes_take_no_more_room() {
        let counters = Counters::default();
        for i in 0..3 * MAX_PREFIXES {
            counters.hit(&Key::new(format!("a{i}/.zarray").as_bytes()).unwrap());
        }
        let counted = counters.by_prefix();
        assert_eq!(counted.len(), MAX_PREFIXES + 1);
        let all: u64 = counted.iter().map(|(_, traffic)| traffic.cache_hits).sum();
        assert_eq!(all, 3 * MAX_PREFIXES as u64);
        assert_eq!(counters.total().cache_hits, all);
    }
}
