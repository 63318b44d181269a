//! The table of `zarrfs stats`.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::output::printable;

/// The columns of the transfer metrics: their titles, and their names in the document.
const COLUMNS: [(&str, &str); 7] = [
    ("requests", "requests"),
    ("bytes", "bytes"),
    ("cache hits", "cache_hits"),
    ("prefetched", "prefetched_bytes"),
    ("of it read", "prefetch_read_bytes"),
    ("retries", "retries"),
    ("errors", "errors"),
];

/// Formats the metrics of a daemon: a line for each, then the transfer metrics of a remote store.
pub fn metrics_table(document: &Map<String, Value>) -> String {
    let mut totals = Vec::new();
    for (name, value) in document {
        match (name.as_str(), value) {
            ("store" | "arrays", _) => {}
            (_, Value::Object(below)) => {
                totals.extend(
                    below
                        .iter()
                        .map(|(part, value)| (format!("{name}.{part}"), value)),
                );
            }
            _ => totals.push((name.clone(), value)),
        }
    }
    let width = totals.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in totals {
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{:<width$}  {}",
            printable(&name),
            printable(&value.to_string())
        );
    }
    if let Some(Value::Object(store)) = document.get("store") {
        text.push_str(&transfer_table(store, document.get("arrays")));
    }
    text
}

/// Formats the transfer metrics: a row for the store, and one for each array.
fn transfer_table(store: &Map<String, Value>, arrays: Option<&Value>) -> String {
    let cells = |metrics: &Map<String, Value>| {
        COLUMNS.map(|(_, name)| match metrics.get(name) {
            Some(value) => printable(&value.to_string()).into_owned(),
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
    let source = store.get("source").and_then(Value::as_str);
    let mut text = format!("\nstore  {}\n", printable(source.unwrap_or_default()));
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

    #[test]
    fn the_table_has_a_line_for_each_metric_and_each_array() {
        let metrics = |requests: u64| json!({"requests": requests, "bytes": 12345678, "cache_hits": 0, "prefetched_bytes": 70, "prefetch_read_bytes": 60, "retries": 1, "errors": 0});
        let mut store = metrics(12);
        store["source"] = "http://host/a\u{1b}[2J".into();
        let document = json!({
            "errors": 0,
            "disk_cache": {"hits": 3, "is_off": false},
            "store": store,
            "arrays": {"/": metrics(2), "a/b\n": metrics(10)},
        });
        let lines = [
            "errors             0",
            "disk_cache.hits    3",
            "disk_cache.is_off  false",
            "",
            "store  http://host/a\\u{1b}[2J",
            "requests     bytes  cache hits  prefetched  of it read  retries  errors",
            "      12  12345678           0          70          60        1       0  (all)",
            "       2  12345678           0          70          60        1       0  /",
            "      10  12345678           0          70          60        1       0  a/b\\n",
            "",
        ];
        assert_eq!(
            metrics_table(document.as_object().unwrap()),
            lines.join("\n")
        );
    }
}
