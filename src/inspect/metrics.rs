//! The text of `zarrfs stats`.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::describe::plain;
use super::output::{count, printable, size, thousands};

/// The columns of the transfer metrics: their titles, and their member names in the document.
const COLUMNS: [(&str, &str); 7] = [
    ("requests", "requests"),
    ("bytes", "bytes"),
    ("cache hits", "cache_hits"),
    ("prefetched", "prefetched_bytes"),
    ("of it read", "prefetch_read_bytes"),
    ("retries", "retries"),
    ("errors", "failed_requests"),
];

/// The members that have lines of their own.
const SHOWN: [&str; 22] = [
    "schema",
    "source",
    "mountpoint",
    "pid",
    "uptime_seconds",
    "errors",
    "failed_requests",
    "failed_by_errno",
    "read_latencies",
    "last_errors",
    "panics",
    "reads_offloaded",
    "inodes",
    "handles",
    "directory_handles",
    "decoded_bytes",
    "decoded_limit_bytes",
    "chunks_decoded",
    "chunks_reused",
    "fetched_bytes",
    "store",
    "arrays",
];

/// The number of failed requests that are shown.
const MAX_ERRORS: usize = 5;

/// Formats the metrics of a daemon: source and mountpoint, rates, memory, transfer metrics of a remote store,
/// and the last failed requests. Rates are those since `previous`, or since the mount.
pub fn metrics_text(
    document: &Map<String, Value>,
    previous: Option<&Map<String, Value>>,
) -> String {
    let rates = Rates::new(document, previous);
    let number = |name: &str| document.get(name).and_then(Value::as_u64);
    let text = |name: &str| document.get(name).map(plain).unwrap_or_default();
    let mut lines = vec![text("source")];
    let mut line = |label: &str, text: String| lines.push(format!("  {label:<12} {text}"));
    if document.contains_key("mountpoint") {
        let pid = number("pid").map(|pid| format!(" (pid {pid})"));
        let mounted = format!("{}{}", text("mountpoint"), pid.unwrap_or_default());
        line("mounted on", mounted);
    }
    if let Some(seconds) = document.get("uptime_seconds").and_then(Value::as_f64) {
        line("uptime", duration(seconds));
    }
    if let Some(decoded) = number("chunks_decoded") {
        let reused = thousands(number("chunks_reused").unwrap_or(0));
        let rate = rates.per_second(&["chunks_decoded"]);
        let decoded = thousands(decoded);
        line(
            "chunks",
            format!("{decoded} decoded{rate}, {reused} read again from memory"),
        );
    }
    if let Some(bytes) = number("decoded_bytes") {
        let limit = number("decoded_limit_bytes").map(|limit| format!(" of {}", size(limit)));
        let used = format!(
            "{}{} for decoded data",
            size(bytes),
            limit.unwrap_or_default()
        );
        let fetched = number("fetched_bytes").map(|bytes| format!(", {} fetched", size(bytes)));
        line("memory", used + &fetched.unwrap_or_default());
    }
    if let Some(files) = number("handles") {
        let directories = number("directory_handles").unwrap_or(0);
        let directories = match directories {
            1 => "1 directory".to_owned(),
            many => format!("{} directories", thousands(many)),
        };
        let inodes = count(number("inodes").unwrap_or(0), "inode");
        line(
            "open",
            format!("{}, {directories}; {inodes}", count(files, "file")),
        );
    }
    if let Some(store) = document.get("store").and_then(Value::as_object) {
        line("network", network(store, &rates));
    }
    let errors = error_count(document);
    if let Some(errors) = errors {
        let panics = match number("panics") {
            Some(panics @ 1..) => format!(", {} (bugs, see the log)", count(panics, "panic")),
            _ => String::new(),
        };
        line("errors", format!("{}{panics}", thousands(errors)));
    }
    for (name, text) in others(document) {
        line(&name, text);
    }
    let mut text = String::new();
    for line in lines {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}", printable(&line));
    }
    if let Some(Value::Object(store)) = document.get("store") {
        text.push_str(&transfer_table(store, document.get("arrays")));
    }
    text.push_str(&last_errors(document));
    text
}

/// Returns the number of failed requests.
fn error_count(document: &Map<String, Value>) -> Option<u64> {
    let counts = ["failed_requests", "errors"].into_iter();
    let mut counts = counts.filter_map(|name| document.get(name)?.as_u64());
    counts.next()
}

/// Returns the metrics without a line of their own, with their labels.
fn others(document: &Map<String, Value>) -> Vec<(String, String)> {
    let mut others = Vec::new();
    for (name, value) in document {
        if SHOWN.contains(&name.as_str()) {
            continue;
        }
        let label = name.replace('_', " ");
        let text = match value {
            Value::Object(members) => {
                let members = members.iter();
                let members: Vec<String> = members
                    .map(|(name, value)| {
                        format!("{} {}", name.replace('_', " "), human(name, value))
                    })
                    .collect();
                members.join(", ")
            }
            value => human(name, value),
        };
        others.push((label, text));
    }
    others
}

/// Formats a metric: sizes with a unit, counts with thousands separators.
fn human(name: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(bytes) if name.ends_with("bytes") => size(bytes),
        Some(number) => thousands(number),
        None => plain(value),
    }
}

fn network(store: &Map<String, Value>, rates: &Rates<'_>) -> String {
    let number = |name: &str| store.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!(
        "{} requests{}, {}{}",
        thousands(number("requests")),
        rates.per_second(&["store", "requests"]),
        size(number("bytes")),
        rates.megabytes(&["store", "bytes"]),
    );
    for (name, noun) in [("retries", "retried"), ("failed_requests", "failed")] {
        if number(name) > 0 {
            text.push_str(&format!(", {} {noun}", thousands(number(name))));
        }
    }
    text
}

/// The increase of counters over a time.
struct Rates<'a> {
    document: &'a Map<String, Value>,
    previous: Option<&'a Map<String, Value>>,
    seconds: f64,
}

impl<'a> Rates<'a> {
    fn new(document: &'a Map<String, Value>, previous: Option<&'a Map<String, Value>>) -> Self {
        let uptime = |of: &Map<String, Value>| of.get("uptime_seconds").and_then(Value::as_f64);
        let before = previous.and_then(uptime).unwrap_or(0.0);
        Self {
            document,
            previous,
            seconds: uptime(document).unwrap_or(0.0) - before,
        }
    }

    /// Returns the increase of a counter per second; `None` in the first tenth of a second.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    fn rate(&self, path: &[&str]) -> Option<f64> {
        let counter = |of: &Map<String, Value>| {
            let (first, rest) = path.split_first()?;
            let mut value = of.get(*first)?;
            for name in rest {
                value = value.get(*name)?;
            }
            value.as_u64()
        };
        let before = self.previous.and_then(counter).unwrap_or(0);
        let more = counter(self.document)?.saturating_sub(before) as f64;
        (self.seconds >= 0.1).then(|| more / self.seconds)
    }

    fn per_second(&self, path: &[&str]) -> String {
        let rate = self.rate(path);
        rate.map_or_else(String::new, |rate| format!(" ({rate:.1}/s)"))
    }

    fn megabytes(&self, path: &[&str]) -> String {
        let rate = self.rate(path);
        rate.map_or_else(String::new, |rate| format!(" ({:.1} MB/s)", rate / 1e6))
    }
}

/// Formats a time by its two largest units: `45 s`, `2 h 5 min`, `3 d 4 h`.
fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    #[expect(clippy::cast_sign_loss, reason = "saturates")]
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// Formats the last failed requests, each with its cause; empty if there are none.
fn last_errors(document: &Map<String, Value>) -> String {
    let lists = ["last_errors", "errors"].into_iter();
    let mut lists = lists.filter_map(|name| document.get(name)?.as_array());
    let Some(errors) = lists.next().filter(|errors| !errors.is_empty()) else {
        return String::new();
    };
    // Only the last of equal failures is shown, because the kernel's readahead repeats a failed
    // request.
    let mut groups: Vec<(String, String, usize)> = Vec::new();
    for error in errors {
        let fields = ["operation", "key", "errno", "cause"].into_iter();
        let fields: Vec<String> = fields
            .filter_map(|name| error.get(name).map(plain))
            .collect();
        let (time, fields) = (error.get("time").map(plain), fields.join("  "));
        let time = time.unwrap_or_default();
        match groups.last_mut().filter(|(_, last, _)| *last == fields) {
            Some(group) => *group = (time, fields, group.2 + 1),
            None => groups.push((time, fields, 1)),
        }
    }
    let mut text = String::from("\nlast errors\n");
    for (time, fields, times) in groups.iter().rev().take(MAX_ERRORS).rev() {
        let times = match times {
            1 => String::new(),
            times => format!("  ({times} times)"),
        };
        text.push_str(&format!(
            "  {}\n",
            printable(&format!("{time}  {fields}{times}"))
        ));
    }
    text
}

/// Formats the transfer metrics: a row for the store, and one for each array.
fn transfer_table(store: &Map<String, Value>, arrays: Option<&Value>) -> String {
    let cells = |metrics: &Map<String, Value>| {
        COLUMNS.map(|(_, name)| match metrics.get(name) {
            Some(value) => printable(&human(name, value)).into_owned(),
            None => "-".to_owned(),
        })
    };
    let mut rows = vec![
        (COLUMNS.map(|(title, _)| title.to_owned()), "".into()),
        (cells(store), "(all)".into()),
    ];
    for (path, metrics) in arrays.and_then(Value::as_object).into_iter().flatten() {
        if let Value::Object(metrics) = metrics {
            rows.push((cells(metrics), printable(path)));
        }
    }
    let mut widths = [0; COLUMNS.len()];
    for (cells, _) in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::from("\n");
    for (cells, name) in rows {
        let cells = cells.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:>width$}  "))
            .collect();
        text.push_str(format!("{line}{name}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let metrics = |requests: u64| json!({"requests": requests, "bytes": 12_345_678, "cache_hits": 0, "prefetched_bytes": 70, "prefetch_read_bytes": 60, "retries": 1, "failed_requests": 0});
        json!({
            "source": "http://host/a\u{1b}[2J", "mountpoint": "/mnt/a", "pid": 12,
            "uptime_seconds": 7500.5, "failed_requests": 2, "panics": 0, "inodes": 3, "handles": 1,
            "directory_handles": 0, "decoded_bytes": 2048, "decoded_limit_bytes": 1 << 30,
            "chunks_decoded": 15_001, "chunks_reused": 7,
            "disk_cache": {"hits": 3, "total_bytes": 4096, "is_off": false},
            "store": metrics(12),
            "arrays": {"/": metrics(2), "a/b\n": metrics(10)},
            "errors": [
                {"time": "2026-01-01T00:00:00Z", "operation": "read", "key": "a/c/0",
                 "errno": "EIO", "cause": "corrupt chunk"},
                {"time": "2026-01-01T00:00:01Z", "operation": "read", "key": "a/c/0",
                 "errno": "EIO", "cause": "corrupt chunk"},
            ],
        })
    }

    #[test]
    fn the_text_has_the_mount_its_rates_and_its_errors() {
        let lines = [
            "http://host/a\\u{1b}[2J",
            "  mounted on   /mnt/a (pid 12)",
            "  uptime       2 h 5 min",
            "  chunks       15,001 decoded (2.0/s), 7 read again from memory",
            "  memory       2.0 KiB of 1.0 GiB for decoded data",
            "  open         1 file, 0 directories; 3 inodes",
            "  network      12 requests (0.0/s), 11.7 MiB (0.0 MB/s), 1 retried",
            "  errors       2",
            "  disk cache   hits 3, total bytes 4.0 KiB, is off false",
            "",
            "requests     bytes  cache hits  prefetched  of it read  retries  errors",
            "      12  11.7 MiB           0        70 B        60 B        1       0  (all)",
            "       2  11.7 MiB           0        70 B        60 B        1       0  /",
            "      10  11.7 MiB           0        70 B        60 B        1       0  a/b\\n",
            "",
            "last errors",
            "  2026-01-01T00:00:01Z  read  a/c/0  EIO  corrupt chunk  (2 times)",
            "",
        ];
        let document = document();
        let text = metrics_text(document.as_object().unwrap(), None);
        assert_eq!(text, lines.join("\n"));
    }

    #[test]
    fn rates_are_those_since_the_document_before() {
        let before = document();
        let mut after = document();
        after["uptime_seconds"] = json!(7502.5);
        after["store"]["bytes"] = json!(12_345_678 + 9_000_000);
        after["chunks_decoded"] = json!(15_011);
        let text = metrics_text(after.as_object().unwrap(), before.as_object());
        assert!(
            text.contains("(4.5 MB/s)") && text.contains("(5.0/s)"),
            "{text}"
        );
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, expected) in [
            (0.4, "0 s"),
            (61.0, "1 min 1 s"),
            (7260.0, "2 h 1 min"),
            (180_000.0, "2 d 2 h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
