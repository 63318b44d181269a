//! The findings of a check, printed immediately as lines, or at the end as one JSON document.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::node::cause;
use super::output::{GOOD, PROBLEM, count, document, printable, size, styled_stdout, thousands};
use super::part::Part;
use super::presence::{NamedChunks, Unread};
use crate::store::{ErrorKind, Key, StoreError};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// A key or a node cannot be read.
    Bad(ErrorKind),
    /// Chunks that were not decoded because they use an unsupported feature.
    NotChecked,
    /// Names that cannot be listed, so that some keys may not be checked.
    Unlisted,
    /// An irregularity that makes no key unreadable.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    key: Key,
    cause: String,
    /// The kind of a finding that is bad.
    kind: Option<&'static str>,
}

/// The findings of one severity.
#[derive(Debug, Default)]
struct Findings {
    count: u64,
    /// The first findings, for the JSON document.
    first: Vec<Finding>,
}

/// The largest number of findings of one severity in the JSON document.
const MAX_FINDINGS: usize = 100_000;

/// The largest number of findings of one array that are printed as lines.
const MAX_LINES: u64 = 20;

/// The totals of one array.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArrayTotals {
    pub(super) chunks: u64,
    /// The number of decoded chunks that are not shards, and of inner chunks.
    pub(super) inner_chunks: u64,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
    pub(super) bad: u64,
}

impl ArrayTotals {
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
struct CheckedArray {
    key: Key,
    decoded: ArrayTotals,
    not_checked: Option<String>,
    unread: BTreeMap<Unread, NamedChunks>,
    /// The number of findings with severity [`Severity::Bad`].
    bad_findings: u64,
}

/// The findings of a check.
#[derive(Debug, Default)]
pub(super) struct Report {
    is_json: bool,
    /// The share of the check that this process does, if others do the rest.
    part: Option<Part>,
    bad: Findings,
    not_checked: Findings,
    warnings: Findings,
    /// The number of findings with severity [`Severity::Unlisted`].
    unlisted: u64,
    arrays: Vec<CheckedArray>,
    /// The totals of keys that are not chunks.
    others: ArrayTotals,
}

impl Report {
    pub(super) fn new(is_json: bool, part: Option<Part>) -> Self {
        Self {
            is_json,
            part,
            ..Self::default()
        }
    }

    /// Adds a finding. Prints it unless the report is a JSON document, or the array with this
    /// number has too many findings.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        array: Option<usize>,
        key: &Key,
        cause: String,
    ) -> io::Result<()> {
        let (word, findings) = match severity {
            Severity::Bad(_) => ("bad", &mut self.bad),
            Severity::NotChecked => ("not checked", &mut self.not_checked),
            Severity::Unlisted | Severity::Warning => ("warning", &mut self.warnings),
        };
        if severity == Severity::Unlisted {
            self.unlisted += 1;
        }
        findings.count += 1;
        if self.is_json {
            if findings.first.len() < MAX_FINDINGS {
                let kind = match severity {
                    Severity::Bad(kind) => Some(kind.name()),
                    _ => None,
                };
                let key = key.clone();
                findings.first.push(Finding { key, cause, kind });
            }
            return Ok(());
        }
        let array = array.and_then(|number| self.arrays.get_mut(number));
        if matches!(severity, Severity::Bad(_))
            && let Some(array) = array
        {
            array.bad_findings += 1;
            if array.bad_findings > MAX_LINES {
                return Ok(());
            }
        }
        let line = format!("{word}: {}: {cause}", key.display());
        let mut out = io::stdout().lock();
        writeln!(out, "{}", printable(&line))?;
        out.flush()
    }

    /// Adds findings that are known by their number only.
    pub(super) fn add_unnamed(&mut self, severity: Severity, count: u64) {
        match severity {
            Severity::Bad(_) => self.bad.count += count,
            Severity::NotChecked => self.not_checked.count += count,
            Severity::Unlisted | Severity::Warning => self.warnings.count += count,
        }
    }

    /// Adds to the number of findings with severity [`Severity::Unlisted`], which are among the warnings.
    pub(super) fn add_unlisted(&mut self, count: u64) {
        self.unlisted += count;
    }

    /// Adds a key that cannot be read.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn bad(
        &mut self,
        array: Option<usize>,
        key: &Key,
        error: &StoreError,
    ) -> io::Result<()> {
        self.add(Severity::Bad(error.kind()), array, key, cause(key, error))
    }

    /// Adds an array and returns its number.
    pub(super) fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        self.arrays.push(CheckedArray {
            key,
            decoded: ArrayTotals::default(),
            not_checked,
            unread: BTreeMap::new(),
            bad_findings: 0,
        });
        self.arrays.len() - 1
    }

    /// Adds chunks of an array that have no value.
    pub(super) fn unread(&mut self, number: usize, why: Unread, chunks: NamedChunks) {
        let Some(array) = self.arrays.get_mut(number) else {
            return;
        };
        match array.unread.entry(why) {
            Entry::Occupied(mut known) => known.get_mut().add(chunks),
            Entry::Vacant(new) => _ = new.insert(chunks),
        }
    }

    /// Adds to the totals of an array or, without a number, of the other keys.
    pub(super) fn decoded(&mut self, array: Option<usize>, decoded: &ArrayTotals) {
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
        let is_incomplete = self.not_checked.count > 0 || !self.is_listed();
        let is_incomplete = is_incomplete || self.arrays.is_empty();
        self.bad.count > 0 || (strict && is_incomplete)
    }

    /// Returns whether all keys are listed or were requested, as far as known.
    fn is_listed(&self) -> bool {
        let mut not_listed = self
            .arrays
            .iter()
            .filter_map(|array| array.unread.get(&Unread::NotListed));
        self.unlisted == 0 && not_listed.all(|chunks| chunks.count == 0)
    }

    /// Prints the totals, or the whole JSON document.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn finish(mut self, label: &str, elapsed: Duration, strict: bool) -> io::Result<()> {
        let mut all = ArrayTotals::default();
        for array in &self.arrays {
            all.add(&array.decoded);
        }
        let seconds = elapsed.as_secs_f64();
        let read_bytes = all.stored_bytes.saturating_add(self.others.stored_bytes);
        #[expect(clippy::cast_precision_loss, reason = "printed with few digits")]
        let rate = all.decoded_bytes as f64 / 1e6 / seconds.max(1e-3);
        let mut out = styled_stdout();
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
            let mut members = Map::new();
            let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
            set("source", label.into());
            set("ok", is_good.into());
            if let Some(part) = self.part {
                set("part", part.to_string().into());
            }
            set("summary", summary);
            set(
                "arrays",
                self.arrays.iter().map(CheckedArray::json).collect(),
            );
            set("bad", self.bad.json());
            set("not_checked", self.not_checked.json());
            set("warnings", self.warnings.json());
            writeln!(out, "{:#}", document("check", members))?;
            return out.flush();
        }
        for array in &self.arrays {
            if let Some(more @ 1..) = array.bad_findings.checked_sub(MAX_LINES) {
                let key = array.key.display().to_string();
                let more = thousands(more);
                writeln!(
                    out,
                    "bad: {}: ... and {more} more (all: --json)",
                    printable(&key)
                )?;
            }
        }
        for array in &self.arrays {
            for (why, chunks) in array.unread.iter().filter(|(_, chunks)| chunks.count > 0) {
                let line = format!("{}: {}", array.key.display(), chunks.text(*why));
                writeln!(out, "{}", printable(&line))?;
            }
        }
        let counts = self.counts();
        writeln!(
            out,
            "{}, {}, {}, {} read, {} decoded in {seconds:.1} s ({rate:.0} MB/s): {counts}",
            count(self.arrays.len() as u64, "array"),
            count(all.chunks, "chunk"),
            count(self.others.chunks, "other key"),
            size(read_bytes),
            size(all.decoded_bytes),
        )?;
        let (style, verdict) = match self.is_bad(strict) {
            true => (PROBLEM, self.failure()),
            false => (GOOD, self.success()),
        };
        writeln!(out, "{style}{verdict}{style:#}")?;
        out.flush()
    }

    /// Returns the numbers of findings, as `0 bad, 1 not checked`.
    fn counts(&self) -> String {
        let mut text = format!("{} bad", self.bad.count);
        if self.not_checked.count > 0 {
            text.push_str(&format!(", {} not checked", self.not_checked.count));
        }
        if self.warnings.count > 0 {
            text.push_str(&format!(", {}", count(self.warnings.count, "warning")));
        }
        text
    }

    fn success(&self) -> String {
        match (self.not_checked.count, self.is_listed()) {
            (0, true) => match self.part {
                Some(part) => format!("OK: everything of part {part} was read and decoded"),
                None => "OK: everything was read and decoded".to_owned(),
            },
            (0, false) => {
                "OK, as far as keys are listed (--strict makes what is not listed a failure)".into()
            }
            (not_checked, _) => {
                format!("OK, except for {not_checked} not checked (--strict makes that a failure)")
            }
        }
    }

    fn failure(&self) -> String {
        match (self.bad.count, self.arrays.is_empty()) {
            (0, true) => "FAILED: there is no array (--strict)".to_owned(),
            (0, false) => "FAILED: not everything was checked (--strict)".to_owned(),
            (bad, _) => format!("FAILED: {bad} bad"),
        }
    }
}

fn text(key: &Key) -> Value {
    String::from_utf8_lossy(key.as_bytes()).into_owned().into()
}

impl CheckedArray {
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
        for (why, chunks) in &self.unread {
            set(why.name(), chunks.count.into());
            if chunks.count > 0 {
                set(why.keys_name(), json!(chunks.keys));
            }
            set("total_chunks", chunks.total.into());
        }
        members.into()
    }
}

impl Finding {
    fn json(&self) -> Value {
        let mut finding = json!({"key": text(&self.key), "cause": self.cause});
        if let Some(kind) = self.kind {
            finding["kind"] = kind.into();
        }
        finding
    }
}

impl Findings {
    fn json(&mut self) -> Value {
        self.first.sort();
        self.first.iter().map(Finding::json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_verdict_names_unchecked_chunks() {
        let mut report = Report::new(true, None);
        report.array(key("a"), None);
        assert!(!report.is_bad(true));
        assert_eq!(report.success(), "OK: everything was read and decoded");
        let mut add = |severity| {
            let added = report.add(severity, Some(0), &key("a"), "odd".into());
            added.unwrap();
            (report.is_bad(false), report.is_bad(true))
        };
        assert_eq!(add(Severity::Warning), (false, false));
        assert_eq!(add(Severity::Unlisted), (false, true));
        assert_eq!(add(Severity::NotChecked), (false, true));
        let words = report.success();
        assert!(words.starts_with("OK, except for 1 not checked"), "{words}");
        assert_eq!(
            report.failure(),
            "FAILED: not everything was checked (--strict)"
        );
        let severity = Severity::Bad(ErrorKind::Corrupt);
        let bad = report.add(severity, Some(0), &key("a/c/0"), "torn".into());
        bad.unwrap();
        assert!(report.is_bad(false));
        assert_eq!(report.failure(), "FAILED: 1 bad");
        assert_eq!(report.counts(), "1 bad, 1 not checked, 2 warnings");
    }
}
