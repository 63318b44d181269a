//! The metrics of mounts in the text format of Prometheus (Prometheus, "Exposition formats", version 0.0.4).

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// A mount, and its metrics if its daemon answers.
pub type MountMetrics = (String, String, Option<Map<String, Value>>);

/// The type of a metric, and the members of the document that have its value.
enum Kind {
    Gauge(&'static [&'static str]),
    Counter(&'static [&'static str]),
    /// A counter for each member of an object, with the name of the member as this label.
    Labelled(&'static str, &'static [&'static str]),
    Histogram(&'static [&'static str]),
    /// Whether the daemon answers.
    Up,
    /// The time of the mount.
    Start,
}

use Kind::{Counter, Gauge, Histogram, Labelled, Start, Up};

/// The metrics: their names after `zarrfs_`, their types, and their descriptions.
static METRICS: [(&str, Kind, &str); 29] = [
    ("up", Up, "Whether the daemon of the mount answers."),
    (
        "start_time_seconds",
        Start,
        "When the mount began, since the Unix epoch.",
    ),
    (
        "waiting_requests",
        Gauge(&["waiting_requests"]),
        "Requests that the kernel has sent or will send to the daemon, and that have no reply.",
    ),
    (
        "failed_operations_total",
        Labelled("errno", &["failed_by_errno"]),
        "Failed system calls of programs by errno.",
    ),
    (
        "panics_total",
        Counter(&["panics"]),
        "Requests that failed because of a bug in zarrfs.",
    ),
    (
        "read_duration_seconds",
        Histogram(&["read_latencies"]),
        "How long reads took, from the request of the kernel to the reply.",
    ),
    (
        "offloaded_reads_total",
        Counter(&["reads_offloaded"]),
        "Reads that did not end on a session thread.",
    ),
    (
        "inodes",
        Gauge(&["inodes"]),
        "Inodes that the kernel knows.",
    ),
    ("open_files", Gauge(&["handles"]), "Open files."),
    (
        "open_directories",
        Gauge(&["directory_handles"]),
        "Open directories.",
    ),
    (
        "decoded_memory_bytes",
        Gauge(&["decoded_bytes"]),
        "Memory of decoded data.",
    ),
    (
        "decoded_memory_limit_bytes",
        Gauge(&["decoded_limit_bytes"]),
        "The limit of the memory of decoded data.",
    ),
    (
        "decoded_chunks_total",
        Counter(&["chunks_decoded"]),
        "Decoded chunks.",
    ),
    (
        "reused_chunks_total",
        Counter(&["chunks_reused"]),
        "Reads of a decoded chunk that was in memory.",
    ),
    (
        "fetched_memory_bytes",
        Gauge(&["fetched_bytes"]),
        "Memory of fetched data.",
    ),
    (
        "requests_total",
        Counter(&["store", "requests"]),
        "Requests that were sent to the source.",
    ),
    (
        "request_duration_seconds",
        Histogram(&["store", "request_latencies"]),
        "How long requests to the source took, each attempt by itself.",
    ),
    (
        "received_bytes_total",
        Counter(&["store", "bytes"]),
        "Bytes of values that the source sent.",
    ),
    (
        "cache_hits_total",
        Counter(&["store", "cache_hits"]),
        "Reads that needed no request.",
    ),
    (
        "prefetched_bytes_total",
        Counter(&["store", "prefetched_bytes"]),
        "Bytes that were fetched before a read.",
    ),
    (
        "prefetched_read_bytes_total",
        Counter(&["store", "prefetch_read_bytes"]),
        "Prefetched bytes that were read later.",
    ),
    (
        "retries_total",
        Counter(&["store", "retries"]),
        "Requests to the source that were repeated.",
    ),
    (
        "failed_requests_total",
        Counter(&["store", "failed_requests"]),
        "Requests to the source that failed.",
    ),
    (
        "disk_cache_hits_total",
        Counter(&["disk_cache", "hits"]),
        "Reads found in the disk cache.",
    ),
    (
        "disk_cache_misses_total",
        Counter(&["disk_cache", "misses"]),
        "Reads not found in the disk cache.",
    ),
    (
        "disk_cache_dropped_blocks_total",
        Counter(&["disk_cache", "dropped"]),
        "Damaged blocks of the disk cache.",
    ),
    (
        "disk_cache_evicted_blocks_total",
        Counter(&["disk_cache", "evicted"]),
        "Blocks removed from the disk cache.",
    ),
    (
        "disk_cache_written_bytes_total",
        Counter(&["disk_cache", "written_bytes"]),
        "Bytes written to the disk cache.",
    ),
    (
        "disk_cache_bytes",
        Gauge(&["disk_cache", "total_bytes"]),
        "Bytes of the disk cache.",
    ),
];

/// Formats the metrics of mounts. A mount whose daemon does not answer has `zarrfs_up 0`, and no other metric.
pub fn prometheus(mounts: &[MountMetrics]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |now| now.as_secs_f64());
    let mut text = String::new();
    for (name, kind, help) in &METRICS {
        let mut samples = String::new();
        for (mountpoint, source, document) in mounts {
            let labels = format!(
                "mountpoint=\"{}\",source=\"{}\"",
                escaped(mountpoint),
                escaped(source)
            );
            add(&mut samples, name, kind, &labels, document.as_ref(), now);
        }
        if !samples.is_empty() {
            let kind = match kind {
                Gauge(_) | Up | Start => "gauge",
                Counter(_) | Labelled(..) => "counter",
                Histogram(_) => "histogram",
            };
            // Writing to a String does not fail.
            let _ = write!(
                text,
                "# HELP zarrfs_{name} {help}\n# TYPE zarrfs_{name} {kind}\n{samples}"
            );
        }
    }
    text
}

/// Adds the samples of a metric of one mount, if it has the metric.
fn add(
    samples: &mut String,
    name: &str,
    kind: &Kind,
    labels: &str,
    document: Option<&Map<String, Value>>,
    now: f64,
) {
    let mut sample = |suffix: &str, more: &str, value: &dyn std::fmt::Display| {
        // Writing to a String does not fail.
        let _ = writeln!(samples, "zarrfs_{name}{suffix}{{{labels}{more}}} {value}");
    };
    let found = |path: &[&str]| {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(document?.get(*first)?, |value, name| value.get(*name))
    };
    match kind {
        Up => sample("", "", &u8::from(document.is_some())),
        Start => {
            if let Some(uptime) = found(&["uptime_seconds"]).and_then(Value::as_f64) {
                sample("", "", &(now - uptime));
            }
        }
        Gauge(path) | Counter(path) => {
            if let Some(value) = found(path).filter(|value| value.is_number()) {
                sample("", "", value);
            }
        }
        Labelled(label, path) => {
            for (value, count) in found(path).and_then(Value::as_object).into_iter().flatten() {
                sample("", &format!(",{label}=\"{}\"", escaped(value)), count);
            }
        }
        Histogram(path) => {
            let Some(histogram) = found(path) else { return };
            let (Some(sum), Some(count)) = (histogram.get("sum"), histogram.get("count")) else {
                return;
            };
            let within = histogram.get("within").and_then(Value::as_array);
            for bucket in within.into_iter().flatten() {
                if let (Some(limit), Some(count)) = (bucket.get(0), bucket.get(1)) {
                    sample("_bucket", &format!(",le=\"{limit}\""), count);
                }
            }
            sample("_bucket", ",le=\"+Inf\"", count);
            sample("_sum", "", sum);
            sample("_count", "", count);
        }
    }
}

/// Returns the value of a label without quotes, backslashes and line ends.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_dashboard_names_only_metrics_that_exist() {
        let dashboard = include_str!("../../scripts/grafana.json");
        let mut names = dashboard.split("zarrfs_").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        });
        let is_metric = |name: &str| {
            METRICS.iter().any(|(known, kind, _)| match kind {
                Histogram(_) => name.strip_suffix("_bucket") == Some(known),
                _ => name == *known,
            })
        };
        assert_eq!(names.find(|name| !is_metric(name)), None);
        assert!(dashboard.contains("zarrfs_up"));
    }

    #[test]
    fn each_metric_has_its_samples_below_its_type() {
        let document = json!({
            "uptime_seconds": 1.5, "panics": 0, "handles": 2, "failed_by_errno": {"EIO": 3},
            "read_latencies": {"count": 3, "sum": 0.25, "within": [[0.001, 1], [0.1, 2]]},
            "store": {"requests": 7, "bytes": 8},
        });
        let document = document.as_object().cloned();
        let mounts = [
            ("/mnt/a \"b\"".to_owned(), "s3://c\\d".to_owned(), document),
            ("/mnt/gone".to_owned(), "x".to_owned(), None),
        ];
        let text = prometheus(&mounts);
        let one = r#"{mountpoint="/mnt/a \"b\"",source="s3://c\\d""#;
        for line in [
            "# TYPE zarrfs_up gauge".to_owned(),
            format!("zarrfs_up{one}}} 1"),
            r#"zarrfs_up{mountpoint="/mnt/gone",source="x"} 0"#.to_owned(),
            format!("zarrfs_open_files{one}}} 2"),
            format!(r#"zarrfs_failed_operations_total{one},errno="EIO"}} 3"#),
            "# TYPE zarrfs_read_duration_seconds histogram".to_owned(),
            format!(r#"zarrfs_read_duration_seconds_bucket{one},le="0.1"}} 2"#),
            format!(r#"zarrfs_read_duration_seconds_bucket{one},le="+Inf"}} 3"#),
            format!("zarrfs_read_duration_seconds_sum{one}}} 0.25"),
            format!("zarrfs_read_duration_seconds_count{one}}} 3"),
            "# TYPE zarrfs_requests_total counter".to_owned(),
            format!("zarrfs_requests_total{one}}} 7"),
        ] {
            assert_eq!(
                text.lines().filter(|found| *found == line).count(),
                1,
                "{line}\n{text}"
            );
        }
        assert!(!text.contains("disk_cache"), "{text}");
        assert!(text.ends_with('\n'));
    }
}
