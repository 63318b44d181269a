//! Counters of a mount, shown as the extended attribute `user.zarrfs.stats` of its root.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

/// Counts since the mount began.
#[derive(Debug, Default)]
pub struct Stats {
    errors: AtomicU64,
    panics: AtomicU64,
    offloaded: AtomicU64,
}

impl Stats {
    /// A request failed (anything but a proven absence).
    pub fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A handler panicked.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// A read went to a worker.
    pub(super) fn offloaded(&self) {
        self.offloaded.fetch_add(1, Ordering::Relaxed);
    }

    /// All counters, and the given gauges, as a JSON object.
    pub(super) fn json(&self, gauges: &[(&str, usize)]) -> String {
        let counters = [
            ("errors", &self.errors),
            ("panics", &self.panics),
            ("reads_offloaded", &self.offloaded),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed).into()));
        let gauges = gauges.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        Value::Object(Map::from_iter(counters.into_iter().chain(gauges))).to_string()
    }
}
