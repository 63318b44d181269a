//! What a daemon has counted, as a table.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::output::printable;

/// The columns of what went over a network: what they are called, and their names in the document.
const COLUMNS: [(&str, &str); 5] = [
    ("requests", "requests"),
    ("bytes", "bytes"),
    ("cache hits", "cache_hits"),
    ("retries", "retries"),
    ("errors", "errors"),
];

/// A line for each counter; then one for the store and one for each array, where there is a network.
pub fn counters(document: &Map<String, Value>) -> String {
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
        // Writing to a text never fails.
        let _ = writeln!(
            text,
            "{:<width$}  {}",
            printable(&name),
            printable(&value.to_string())
        );
    }
    if let Some(Value::Object(store)) = document.get("store") {
        text.push_str(&traffic(store, document.get("arrays")));
    }
    text
}

fn traffic(store: &Map<String, Value>, arrays: Option<&Value>) -> String {
    let row = |counters: &Value| {
        COLUMNS.map(|(_, name)| match counters.get(name) {
            Some(value) => printable(&value.to_string()).into_owned(),
            None => "-".to_owned(),
        })
    };
    let source = store
        .get("source")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let all = Value::Object(store.clone());
    let mut rows = vec![
        (COLUMNS.map(|(title, _)| title.to_owned()), String::new()),
        (row(&all), "(all)".to_owned()),
    ];
    for (path, counters) in arrays.and_then(Value::as_object).into_iter().flatten() {
        rows.push((row(counters), printable(path).into_owned()));
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|i| {
            rows.iter()
                .filter_map(|(row, _)| row.get(i))
                .map(String::len)
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = format!("\nstore  {}\n", printable(source));
    for (row, name) in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}  "));
        let line: String = cells.collect();
        let _ = writeln!(text, "{}", format!("{line}{name}").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_counter_and_each_array() {
        let of = |requests: u64| json!({"requests": requests, "bytes": 12345678, "cache_hits": 0, "retries": 1, "errors": 0});
        let mut store = of(12);
        store["source"] = "http://host/a\u{1b}[2J".into();
        let document = json!({
            "errors": 0,
            "disk_cache": {"hits": 3, "is_off": false},
            "store": store,
            "arrays": {"/": of(2), "a/b\n": of(10)},
        });
        let lines = [
            "errors             0",
            "disk_cache.hits    3",
            "disk_cache.is_off  false",
            "",
            "store  http://host/a\\u{1b}[2J",
            "requests     bytes  cache hits  retries  errors",
            "      12  12345678           0        1       0  (all)",
            "       2  12345678           0        1       0  /",
            "      10  12345678           0        1       0  a/b\\n",
            "",
        ];
        assert_eq!(counters(document.as_object().unwrap()), lines.join("\n"));
    }
}
