//! All versions of the keys of a source.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A version of a value.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// The entity tag, with quotes.
    pub(crate) etag: String,
    /// When it was written.
    pub(super) since: Duration,
}

/// A version of a key: its value, or its absence.
#[derive(Debug)]
struct Version {
    since: Duration,
    value: Option<Value>,
}

/// All versions of all keys, in virtual time.
#[derive(Debug, Default)]
pub(crate) struct History {
    keys: BTreeMap<String, Vec<Version>>,
    writes: u64,
    /// When the server had no keys.
    blackouts: Vec<Range<Duration>>,
}

impl History {
    /// Returns the history of keys that never change.
    pub(crate) fn of_values(values: impl IntoIterator<Item = (String, Arc<Vec<u8>>)>) -> Self {
        let mut history = Self::default();
        for (key, bytes) in values {
            history.push(&key, Some(bytes), Duration::ZERO);
        }
        history
    }

    pub(super) fn write(&mut self, key: &str, bytes: Option<Vec<u8>>, now: Duration) {
        self.push(key, bytes.map(Arc::new), now);
    }

    fn push(&mut self, key: &str, bytes: Option<Arc<Vec<u8>>>, now: Duration) {
        self.writes += 1;
        let etag = format!("\"v{}\"", self.writes);
        let value = bytes.map(|bytes| Value {
            bytes,
            etag,
            since: now,
        });
        let versions = self.keys.entry(key.to_owned()).or_default();
        versions.push(Version { since: now, value });
    }

    pub(super) fn add_blackout(&mut self, time: Range<Duration>) {
        self.blackouts.push(time);
    }

    pub(super) fn end_blackouts(&mut self, now: Duration) {
        for time in &mut self.blackouts {
            time.end = time.end.min(now);
        }
        self.blackouts.retain(|time| time.start < time.end);
    }

    /// Returns the present value of a key.
    pub(crate) fn present(&self, key: &str) -> Option<&Value> {
        self.keys.get(key)?.last()?.value.as_ref()
    }

    /// Returns all values that a key has had.
    pub(crate) fn values(&self, key: &str) -> impl DoubleEndedIterator<Item = &Value> {
        let versions = self.keys.get(key).into_iter().flatten();
        versions.filter_map(|version| version.value.as_ref())
    }

    /// Returns all present values.
    pub(crate) fn all_present(&self) -> impl Iterator<Item = (&str, &Value)> {
        let keys = self.keys.iter();
        keys.filter_map(|(key, versions)| Some((&**key, versions.last()?.value.as_ref()?)))
    }

    /// Returns all keys that ever existed.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Returns the states that a key had at some moment from `from` on and before or at `to`.
    pub(crate) fn states(&self, key: &str, from: Duration, to: Duration) -> Vec<Option<&Value>> {
        let mut states = Vec::new();
        let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        // Before its first version, a key is absent.
        if versions.first().is_none_or(|first| first.since > from) {
            states.push(None);
        }
        for (index, version) in versions.iter().enumerate() {
            let end = versions
                .get(index + 1)
                .map_or(Duration::MAX, |next| next.since);
            if version.since <= to && end >= from {
                states.push(version.value.as_ref());
            }
        }
        if self.was_empty(from, to) {
            states.push(None);
        }
        states
    }

    /// Returns whether a key was absent at some moment.
    pub(crate) fn was_absent(&self, key: &str, from: Duration, to: Duration) -> bool {
        self.states(key, from, to).iter().any(Option::is_none)
    }

    /// Returns whether the server had no keys at some moment.
    pub(crate) fn was_empty(&self, from: Duration, to: Duration) -> bool {
        let mut blackouts = self.blackouts.iter();
        blackouts.any(|time| time.start <= to && time.end > from)
    }
}
