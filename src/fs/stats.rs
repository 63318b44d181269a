//! Counters of a mount. The root's extended attribute `user.zarrfs.stats` has the totals; the
//! metrics socket serves all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Fs;
use crate::clock::Instant;
use crate::latency::{Latencies, LatencyCounts};
use crate::recent_errors::RecentError;
use crate::store::{DiskCounters, TransferCounters};
use crate::sync::Mutex;
use crate::units::date;

/// Counters since the mount began.
#[derive(Debug, Default)]
pub struct Stats {
    errors: AtomicU64,
    /// The number of failed requests by errno.
    by_errno: Mutex<BTreeMap<&'static str, u64>>,
    reads: Latencies,
    panics: AtomicU64,
    offloaded: AtomicU64,
    log: Mutex<LogBudget>,
}

/// The number of lines logged in this second, and of lines left out since the last logged line.
#[derive(Debug, Default)]
struct LogBudget {
    second: Option<Instant>,
    lines: u32,
    omitted: u64,
}

/// The largest number of log lines about failed requests per second.
const LOG_LINES: u32 = 20;

impl Stats {
    /// Counts a failed request by its errno. A proven absence is not a failure.
    pub fn failed(&self, errno: &'static str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *self.by_errno.lock().entry(errno).or_default() += 1;
    }

    /// Counts a read that took this time.
    pub fn read(&self, duration: Duration) {
        self.reads.record(duration);
    }

    /// Counts a panic of a handler.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of failures left out of the log since the last logged one, or `None` if
    /// this one must be left out too.
    pub fn may_log(&self) -> Option<u64> {
        let mut log = self.log.lock();
        if log
            .second
            .is_none_or(|second| second.elapsed() > Duration::from_secs(1))
        {
            log.second = Some(Instant::now());
            log.lines = 0;
        }
        if log.lines >= LOG_LINES {
            log.omitted = log.omitted.saturating_add(1);
            return None;
        }
        log.lines = log.lines.saturating_add(1);
        Some(std::mem::take(&mut log.omitted))
    }

    /// Counts a read that a worker does.
    pub(super) fn offloaded(&self) {
        self.offloaded.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counters and the given gauges as a JSON object.
    fn json(&self, gauges: &[(&str, u64)]) -> Map<String, Value> {
        let counters = [
            ("failed_requests", &self.errors),
            ("panics", &self.panics),
            ("reads_offloaded", &self.offloaded),
        ];
        let counters =
            counters.map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed).into()));
        let gauges = gauges
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        counters.into_iter().chain(gauges).collect()
    }
}

impl Fs {
    /// Returns the totals of the mount.
    pub(super) fn totals(&self) -> Map<String, Value> {
        let mut gauges = vec![
            ("inodes", self.tree.known_inodes() as u64),
            ("handles", self.files.len() as u64),
            ("directory_handles", self.directories.len() as u64),
        ];
        gauges.extend(self.tree.gauges());
        self.stats.json(&gauges)
    }

    /// Returns all counters, with the network transfers of each array. Does not block.
    pub fn document(&self) -> Value {
        let store = self.tree.store();
        let mut document = Map::new();
        document.insert("source".into(), store.label().into());
        let uptime = self.started.elapsed().as_secs_f64();
        document.insert("uptime_seconds".into(), json!(uptime));
        document.extend(self.totals());
        let by_errno = self.stats.by_errno.lock().clone();
        document.insert("failed_by_errno".into(), json!(by_errno));
        document.insert(
            "read_latencies".into(),
            latencies(&self.stats.reads.counts()),
        );
        let errors = self.recent_errors.list();
        let errors = errors.iter().map(error_json).collect();
        document.insert("errors".into(), Value::Array(errors));
        let Some(usage) = store.transfer_stats() else {
            return Value::Object(document);
        };
        document.insert("fetched_bytes".into(), usage.memory_bytes.into());
        let mut total = Map::from_iter([("source".to_owned(), store.label().into())]);
        total.extend(counters(&usage.total));
        total.insert("request_latencies".into(), latencies(&usage.latencies));
        document.insert("store".into(), Value::Object(total));
        let arrays = usage.arrays.into_iter();
        let arrays = arrays.map(|(path, of)| (path, Value::Object(counters(&of))));
        document.insert("arrays".into(), Value::Object(arrays.collect()));
        if let Some(disk) = &usage.disk {
            document.insert("disk_cache".into(), disk_counters(disk));
        }
        Value::Object(document)
    }
}

fn error_json(error: &RecentError) -> Value {
    json!({
        "time": date(error.time),
        "operation": error.operation,
        "key": error.key,
        "errno": error.errno,
        "cause": error.cause,
    })
}

/// Returns a histogram: the number and the sum of all durations, and the number of those within each limit.
fn latencies(counts: &LatencyCounts) -> Value {
    let within: Vec<(f64, u64)> = counts.cumulative().collect();
    json!({"count": counts.count(), "sum": counts.seconds(), "within": within})
}

fn counters(traffic: &TransferCounters) -> Map<String, Value> {
    let counters = [
        ("requests", traffic.requests),
        ("bytes", traffic.bytes),
        ("cache_hits", traffic.cache_hits),
        ("prefetched_bytes", traffic.prefetched_bytes),
        ("prefetch_read_bytes", traffic.prefetch_read_bytes),
        ("retries", traffic.retries),
        ("failed_requests", traffic.errors),
    ];
    let counters = counters.map(|(name, count)| (name.to_owned(), count.into()));
    Map::from_iter(counters)
}

fn disk_counters(disk: &DiskCounters) -> Value {
    json!({
        "hits": disk.hits,
        "misses": disk.misses,
        "dropped": disk.dropped,
        "written_bytes": disk.written_bytes,
        "skipped": disk.skipped,
        "evicted": disk.evicted,
        "total_bytes": disk.total_bytes,
        "is_off": disk.is_off,
    })
}
