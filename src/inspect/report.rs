//! The findings of a check, printed at once as lines, or at the end as one JSON document.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::node::cause;
use super::output::{count, printable, size};
use crate::store::{Key, StoreError};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// A key or a node cannot be read.
    Bad,
    /// Chunks were not decoded because they use an unsupported feature.
    NotChecked,
    /// Names cannot be listed, so that some keys may not be checked.
    Unlisted,
    /// An oddity that makes nothing unreadable.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    key: Key,
    cause: String,
}

/// The findings of one severity.
#[derive(Debug, Default)]
struct Findings {
    count: u64,
    /// The first of them, for the JSON document.
    first: Vec<Finding>,
}

/// The number of findings of one severity in the JSON document.
const MAX_FINDINGS: usize = 100_000;

/// The totals of one array.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decoded {
    pub(super) chunks: u64,
    /// Chunks that are no shards, and inner chunks.
    pub(super) inner_chunks: u64,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
    pub(super) bad: u64,
}

impl Decoded {
    fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.inner_chunks += other.inner_chunks;
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.decoded_bytes = self.decoded_bytes.saturating_add(other.decoded_bytes);
        self.bad += other.bad;
    }
}

/// An array of the source.
#[derive(Debug)]
struct Checked {
    key: Key,
    decoded: Decoded,
    not_checked: Option<String>,
}

/// The findings of a check so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    is_json: bool,
    bad: Findings,
    not_checked: Findings,
    warnings: Findings,
    /// The number of warnings with severity [`Severity::Unlisted`].
    unlisted: u64,
    arrays: Vec<Checked>,
    /// The totals of keys that are not chunks.
    others: Decoded,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            ..Self::default()
        }
    }

    /// Adds a finding, and prints it unless the report is a JSON document.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn add(&mut self, severity: Severity, key: &Key, cause: String) -> io::Result<()> {
        let (word, findings) = match severity {
            Severity::Bad => ("bad", &mut self.bad),
            Severity::NotChecked => ("not checked", &mut self.not_checked),
            Severity::Unlisted | Severity::Warning => ("warning", &mut self.warnings),
        };
        if severity == Severity::Unlisted {
            self.unlisted += 1;
        }
        findings.count += 1;
        if self.is_json {
            if findings.first.len() < MAX_FINDINGS {
                let key = key.clone();
                findings.first.push(Finding { key, cause });
            }
            return Ok(());
        }
        let line = format!("{word}: {}: {cause}", key.display());
        let mut out = io::stdout().lock();
        writeln!(out, "{}", printable(&line))?;
        out.flush()
    }

    /// Adds a key that cannot be read.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn bad(&mut self, key: &Key, error: &StoreError) -> io::Result<()> {
        self.add(Severity::Bad, key, cause(key, error))
    }

    /// Adds an array and returns its number.
    pub(super) fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        self.arrays.push(Checked {
            key,
            decoded: Decoded::default(),
            not_checked,
        });
        self.arrays.len() - 1
    }

    /// Adds to the totals of an array or, without a number, of the other keys.
    pub(super) fn decoded(&mut self, array: Option<usize>, decoded: &Decoded) {
        match array {
            Some(number) => {
                if let Some(array) = self.arrays.get_mut(number) {
                    array.decoded.add(decoded);
                }
            }
            None => self.others.add(decoded),
        }
    }

    /// Returns whether the check has failed.
    pub(super) fn is_bad(&self, strict: bool) -> bool {
        let is_incomplete = self.not_checked.count + self.unlisted > 0 || self.arrays.is_empty();
        self.bad.count > 0 || (strict && is_incomplete)
    }

    /// Prints the totals, or the whole JSON document.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn finish(mut self, label: &str, elapsed: Duration, strict: bool) -> io::Result<()> {
        let mut all = Decoded::default();
        for array in &self.arrays {
            all.add(&array.decoded);
        }
        let seconds = elapsed.as_secs_f64();
        let read_bytes = all.stored_bytes.saturating_add(self.others.stored_bytes);
        #[expect(clippy::cast_precision_loss, reason = "printed with few digits")]
        let rate = all.decoded_bytes as f64 / 1e6 / seconds.max(1e-3);
        let mut out = io::stdout().lock();
        if self.is_json {
            let is_good = !self.is_bad(strict);
            let summary = json!({
                "arrays": self.arrays.len(),
                "chunks": all.chunks,
                "decoded_inner_chunks": all.inner_chunks,
                "other_keys": self.others.chunks,
                "read_bytes": read_bytes,
                "decoded_bytes": all.decoded_bytes,
                "bad": self.bad.count,
                "not_checked": self.not_checked.count,
                "warnings": self.warnings.count,
                "unlisted": self.unlisted,
                "seconds": seconds,
                "decoded_mb_per_second": rate,
            });
            self.arrays.sort_by(|a, b| a.key.cmp(&b.key));
            let document = json!({
                "source": label,
                "ok": is_good,
                "summary": summary,
                "arrays": self.arrays.iter().map(Checked::json).collect::<Vec<_>>(),
                "bad": self.bad.json(),
                "not_checked": self.not_checked.json(),
                "warnings": self.warnings.json(),
            });
            writeln!(out, "{document:#}")?;
        } else {
            let mut line = format!(
                "{}, {}, {}, {} read, {} decoded in {seconds:.1} s ({rate:.0} MB/s)",
                count(self.arrays.len() as u64, "array"),
                count(all.chunks, "chunk"),
                count(self.others.chunks, "other key"),
                size(read_bytes),
                size(all.decoded_bytes),
            );
            let (bad, not_checked) = (self.bad.count, self.not_checked.count);
            line.push_str(&format!(": {bad} bad"));
            if not_checked > 0 {
                line.push_str(&format!(", {not_checked} not checked"));
            }
            if self.warnings.count > 0 {
                line.push_str(&format!(", {}", count(self.warnings.count, "warning")));
            }
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

fn text(key: &Key) -> Value {
    String::from_utf8_lossy(key.as_bytes()).into_owned().into()
}

impl Checked {
    fn json(&self) -> Value {
        let decoded = &self.decoded;
        let mut members = Map::new();
        let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
        set("path", text(&self.key));
        if let Some(cause) = &self.not_checked {
            set("not_checked", cause.as_str().into());
        }
        set("chunks", decoded.chunks.into());
        set("decoded_inner_chunks", decoded.inner_chunks.into());
        set("stored_bytes", decoded.stored_bytes.into());
        set("decoded_bytes", decoded.decoded_bytes.into());
        set("bad", decoded.bad.into());
        members.into()
    }
}

impl Findings {
    fn json(&mut self) -> Value {
        self.first.sort();
        let first = self.first.iter();
        first
            .map(|finding| json!({"key": text(&finding.key), "cause": finding.cause}))
            .collect()
    }
}
