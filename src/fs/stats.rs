//! Counters of a mount, shown as the extended attribute `user.zarrfs.stats` of its root.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// Counts since the mount began.
#[derive(Debug, Default)]
pub struct Stats {
    errors: AtomicU64,
    panics: AtomicU64,
    offloaded: AtomicU64,
    log: Mutex<LogBudget>,
}

/// Lines that are still allowed in this second, and those left out since the last one.
#[derive(Debug, Default)]
struct LogBudget {
    second: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// Lines about failed requests in one second.
const LOG_LINES: u32 = 20;

impl Stats {
    /// A request failed (anything but a proven absence).
    pub fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A handler panicked.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a failure may be logged now, and how many were not since the last one that was.
    pub fn may_log(&self) -> Option<u64> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log
            .second
            .is_none_or(|second| second.elapsed() > Duration::from_secs(1))
        {
            log.second = Some(Instant::now());
            log.lines = 0;
        }
        if log.lines >= LOG_LINES {
            log.left_out = log.left_out.saturating_add(1);
            return None;
        }
        log.lines = log.lines.saturating_add(1);
        Some(std::mem::take(&mut log.left_out))
    }

    /// A read went to a worker.
    pub(super) fn offloaded(&self) {
        self.offloaded.fetch_add(1, Ordering::Relaxed);
    }

    /// All counters, and the given gauges, as a JSON object.
    pub(super) fn json(&self, gauges: &[(&str, u64)]) -> String {
        let counters = [
            ("errors", &self.errors),
            ("panics", &self.panics),
            ("reads_offloaded", &self.offloaded),
        ];
        let counters =
            counters.map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed).into()));
        let gauges = gauges
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        Value::Object(Map::from_iter(counters.into_iter().chain(gauges))).to_string()
    }
}
