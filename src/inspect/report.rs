//! What a check finds: said at once as lines, or in the end as one JSON document.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::hierarchy::cause;
use super::output::{count, printable, size};
use crate::store::{Key, StoreError};

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// Something can not be read that should be.
    Bad,
    /// Chunks were not decoded, because this program does not know how.
    NotChecked,
    /// Names can not be listed, so that nobody knows what was not read.
    Unlisted,
    /// Something is odd, and nothing is lost by it.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    key: Key,
    cause: String,
}

/// All findings of one kind, the first of them in full.
#[derive(Debug, Default)]
struct Findings {
    count: u64,
    kept: Vec<Finding>,
}

/// Findings of one kind that are kept for the JSON document.
const MAX_KEPT: usize = 100_000;

/// What was decoded of one array.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decoded {
    pub(super) chunks: u64,
    /// Inner chunks of shards are counted one by one.
    pub(super) pieces: u64,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
    pub(super) bad: u64,
}

impl Decoded {
    fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.pieces += other.pieces;
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.decoded_bytes = self.decoded_bytes.saturating_add(other.decoded_bytes);
        self.bad += other.bad;
    }
}

/// An array that was come across.
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
    /// Those of the warnings that are of names which can not be listed.
    unlisted: u64,
    arrays: Vec<Checked>,
    /// Keys that are no chunks, and their bytes.
    plain: Decoded,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            ..Self::default()
        }
    }

    /// Notes a finding, and says it unless all is said in the end.
    ///
    /// # Errors
    /// If it can not be said.
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
            if findings.kept.len() < MAX_KEPT {
                let key = key.clone();
                findings.kept.push(Finding { key, cause });
            }
            return Ok(());
        }
        let line = format!("{word}: {}: {cause}", key.display());
        let mut out = io::stdout().lock();
        writeln!(out, "{}", printable(&line))?;
        out.flush()
    }

    /// Notes that something could not be read.
    ///
    /// # Errors
    /// If it can not be said.
    pub(super) fn bad(&mut self, key: &Key, error: &StoreError) -> io::Result<()> {
        self.add(Severity::Bad, key, cause(key, error))
    }

    /// A new array; returns its number.
    pub(super) fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        self.arrays.push(Checked {
            key,
            decoded: Decoded::default(),
            not_checked,
        });
        self.arrays.len() - 1
    }

    /// A chunk of an array was decoded, or, without a number, a value read that is none.
    pub(super) fn decoded(&mut self, array: Option<usize>, decoded: &Decoded) {
        match array {
            Some(number) => {
                if let Some(array) = self.arrays.get_mut(number) {
                    array.decoded.add(decoded);
                }
            }
            None => self.plain.add(decoded),
        }
    }

    /// Whether something was found that must not be.
    pub(super) fn is_bad(&self, strict: bool) -> bool {
        let is_incomplete = self.not_checked.count + self.unlisted > 0 || self.arrays.is_empty();
        self.bad.count > 0 || (strict && is_incomplete)
    }

    /// Says what there is in all.
    ///
    /// # Errors
    /// If it can not be said.
    pub(super) fn end(mut self, label: &str, elapsed: Duration, strict: bool) -> io::Result<()> {
        let mut all = Decoded::default();
        for array in &self.arrays {
            all.add(&array.decoded);
        }
        let seconds = elapsed.as_secs_f64();
        let read_bytes = all.stored_bytes.saturating_add(self.plain.stored_bytes);
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = all.decoded_bytes as f64 / 1e6 / seconds.max(1e-3);
        let mut out = io::stdout().lock();
        if self.is_json {
            let is_good = !self.is_bad(strict);
            let summary = json!({
                "arrays": self.arrays.len(),
                "chunks": all.chunks,
                "decoded_pieces": all.pieces,
                "other_keys": self.plain.chunks,
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
                count(self.plain.chunks, "other key"),
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
        if let Some(why) = &self.not_checked {
            set("not_checked", why.as_str().into());
        }
        set("chunks", decoded.chunks.into());
        set("decoded_pieces", decoded.pieces.into());
        set("stored_bytes", decoded.stored_bytes.into());
        set("decoded_bytes", decoded.decoded_bytes.into());
        set("bad", decoded.bad.into());
        members.into()
    }
}

impl Findings {
    fn json(&mut self) -> Value {
        self.kept.sort();
        let kept = self.kept.iter();
        kept.map(|finding| json!({"key": text(&finding.key), "cause": finding.cause}))
            .collect()
    }
}
