//! The text of `zarrfs info`.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::{Map, Value};

use super::dataset::{ArraySummary, Dataset};
use super::describe::{attribute_lines, plain, type_and_dimensions};
use super::info::TextDetails;
use super::node;
use super::output::{ARRAY, GROUP, HEADING, PROBLEM, printable, size, tuple, two_decimals};
use super::values::ReadValues;
use crate::conventions::cf::{names::UNITS, units};
use crate::zarr::{ARRAY_DIMENSIONS, Array, Node};

/// The largest length of an attribute value, of the node itself and of an array in it, in characters.
const MAX_OWN_VALUE: usize = 1000;
const MAX_VALUE: usize = 120;
/// The members that have no line of their own.
const ELSEWHERE: [&str; 26] = [
    "hierarchies",
    "hierarchies_known",
    "unread_directories",
    "source",
    "path",
    "node_type",
    "zarr_format",
    "format",
    "dimension_names",
    "data_type",
    "type_name",
    "item_bytes",
    "dimensions",
    "arrays",
    "groups",
    "totals",
    "children_left_out",
    "attributes",
    "attribute_count",
    "views",
    "problems",
    "values",
    "values_failed",
    "chunks_counted",
    "unreadable",
    "description",
];

/// Writes the hierarchies of a collection.
fn write_collection(out: &mut impl Write, members: &Map<String, Value>) -> io::Result<()> {
    let lists = [
        ("hierarchies", "collection of hierarchies:"),
        ("unread_directories", "directories that were not read:"),
    ];
    for (name, title) in lists {
        let Some(Value::Array(paths)) = members.get(name) else {
            continue;
        };
        writeln!(out, "  {title}")?;
        for path in paths {
            writeln!(out, "    {}", printable(&plain(path)))?;
        }
    }
    Ok(())
}

/// Writes a node: its structure and attributes first, views and problems at the end.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn write(
    out: &mut impl Write,
    members: &Map<String, Value>,
    shown: &TextDetails,
) -> io::Result<()> {
    let text = |name: &str| members.get(name).map(plain).unwrap_or_default();
    let mut title = text("source");
    if !text("path").is_empty() {
        title.push_str(&format!(": {}", text("path")));
    }
    let node = shown.node.as_ref().map(|node| node.metadata());
    let style = match node {
        Some(Node::Array(_)) => ARRAY,
        _ => GROUP,
    };
    let format = match members.contains_key("zarr_format") {
        true => format!(", Zarr v{}", text("zarr_format")),
        false if members.contains_key("format") => ", N5".to_owned(),
        false => String::new(),
    };
    let (title, kind) = (printable(&title), text("node_type"));
    writeln!(out, "{style}{title}{style:#}: {kind}{format}")?;
    write_collection(out, members)?;
    if let Some(dataset) = &shown.dataset {
        write_dataset(out, dataset)?;
    }
    let array = node.and_then(Node::as_array);
    if let Some(array) = array {
        writeln!(
            out,
            "    {}",
            printable(&array_line(array, shown.values.as_ref()))
        )?;
    }
    if let Some(Value::Object(attributes)) = members.get("attributes") {
        let lines = attribute_lines(array, attributes, &[ARRAY_DIMENSIONS], MAX_OWN_VALUE);
        write_block(out, "Attributes", Style::new(), &lines)?;
    }
    if let Some(Value::Object(description)) = members.get("description") {
        write_block(
            out,
            "Description",
            Style::new(),
            &description_lines(description),
        )?;
    }
    let lines = detail_lines(members, shown.is_unlisted);
    write_block(out, "Storage", Style::new(), &lines)?;
    if let Some(Value::Object(views)) = members.get("views") {
        let lines: Vec<String> = views
            .iter()
            .map(|(name, view)| view_line(name, view))
            .collect();
        write_block(out, "Views", Style::new(), &lines)?;
    }
    let mut problems: Vec<String> = match members.get("problems") {
        Some(Value::Array(problems)) => problems.iter().map(plain).collect(),
        _ => Vec::new(),
    };
    let others = ["unreadable", "values_failed"].map(|name| members.get(name).map(plain));
    for other in others.into_iter().flatten() {
        if !problems.contains(&other) {
            problems.push(other);
        }
    }
    write_block(out, "Problems", PROBLEM, &problems)
}

/// Writes a heading and the lines below it; writes nothing without lines.
fn write_block(
    out: &mut impl Write,
    heading: &str,
    style: Style,
    lines: &[String],
) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}{heading}:{HEADING:#}")?;
    for line in lines {
        writeln!(out, "    {style}{}{style:#}", printable(line))?;
    }
    Ok(())
}

fn write_dataset(out: &mut impl Write, dataset: &Dataset) -> io::Result<()> {
    let below = match dataset.is_total {
        true => "",
        false => ", without those of the groups in it",
    };
    writeln!(out, "    {}{below}", dataset.totals.line())?;
    let dimensions = dataset.dimensions().into_iter();
    let dimensions: Vec<String> = dimensions
        .map(|(name, length)| format!("{name} = {length}"))
        .collect();
    write_block(out, "Dimensions", Style::new(), &dimensions)?;
    for (heading, is_coordinate) in [("Coordinates", true), ("Variables", false)] {
        let arrays = dataset.arrays.iter();
        let mut arrays = arrays
            .filter(|array| array.is_coordinate == is_coordinate)
            .peekable();
        if arrays.peek().is_some() {
            writeln!(out, "{HEADING}{heading}:{HEADING:#}")?;
        }
        for array in arrays {
            write_array(out, array)?;
        }
    }
    write_block(out, "Groups", GROUP, &dataset.groups)?;
    match dataset.left_out {
        0 => Ok(()),
        more => writeln!(out, "    ... and {more} more nodes (all: zarrfs tree)"),
    }
}

/// Writes an array of a group: a line with name, type, dimensions, units and values, a line with
/// its storage, and one for each attribute.
fn write_array(out: &mut impl Write, summary: &ArraySummary) -> io::Result<()> {
    let array = &summary.array;
    let (name, line) = (
        printable(&summary.name),
        array_line(array, summary.values.as_ref()),
    );
    writeln!(out, "    {ARRAY}{name}{ARRAY:#}  {}", printable(&line))?;
    writeln!(out, "        {}", printable(&storage_line(summary)))?;
    if let Ok(attributes) = &array.attributes {
        // The units are in the first line.
        let left_out = match units(array) {
            Some(_) => &[ARRAY_DIMENSIONS, UNITS][..],
            None => &[ARRAY_DIMENSIONS][..],
        };
        for line in attribute_lines(Some(array), attributes, left_out, MAX_VALUE) {
            writeln!(out, "        {}", printable(&line))?;
        }
    }
    let failed = match &summary.values {
        Some(Err(reason)) => Some(reason.clone()),
        _ => None,
    };
    let unreadable = node::pipeline(array).err().map(|reason| reason.to_string());
    let attributes = array.attributes.as_ref().err().map(ToString::to_string);
    for problem in [unreadable, attributes, failed].into_iter().flatten() {
        writeln!(out, "        {PROBLEM}! {}{PROBLEM:#}", printable(&problem))?;
    }
    Ok(())
}

/// Returns a line like `int32 (time 60)  days since 1970-01-01  2001-01-01 to 2005-12-01`.
fn array_line(array: &Array, values: Option<&ReadValues>) -> String {
    let mut line = type_and_dimensions(array);
    if let Some(units) = units(array) {
        line.push_str(&format!("  {units}"));
    }
    if let Some(Ok(values)) = values {
        line.push_str(&format!("  {}", values.text()));
    }
    line
}

/// Returns a line like `96.0 KiB, 23.2 KiB stored (ratio 4.12), chunks (3, 16, 32), bytes | zstd`.
fn storage_line(summary: &ArraySummary) -> String {
    let array = &summary.array;
    let mut parts: Vec<String> = array.size_bytes().map(size).into_iter().collect();
    if let Some(stored) = &summary.stored {
        let ratio = stored
            .ratio(array)
            .map(|ratio| format!(" (ratio {ratio:.2})"));
        let ratio = ratio.unwrap_or_default();
        parts.push(format!("{} stored{ratio}", size(stored.bytes)));
    }
    if let Some(shape) = array.info().get("chunk_shape") {
        parts.push(format!("chunks {}", tuple(shape)));
    }
    if let Ok(pipeline) = node::pipeline(array) {
        parts.push(pipeline.describe().to_owned());
    }
    parts.join(", ")
}

/// Returns a labelled line for each member that is not shown elsewhere.
fn detail_lines(members: &Map<String, Value>, is_unlisted: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let is_counted = members.get("chunks_counted") != Some(&Value::Bool(false));
    for (name, value) in members {
        if ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let texts = match (name.as_str(), value) {
            ("chunks_present", Value::Null) => {
                let reason = match is_unlisted {
                    true => "the server does not list them",
                    false => "the server's listing may lack some",
                };
                vec![format!("unknown: {reason}")]
            }
            ("chunks_present", value) if !is_counted => vec![format!("{value} or more")],
            ("shape" | "chunk_shape" | "chunk_grid", value) => vec![tuple(value)],
            ("ratio", value) => vec![two_decimals(value)],
            (name, Value::Number(number)) if name.ends_with("_bytes") => {
                let bytes = number.as_u64().unwrap_or(0);
                vec![format!("{number} ({})", size(bytes))]
            }
            ("snapshots", Value::Object(snapshots)) => {
                snapshots.iter().map(|(id, of)| snapshot(id, of)).collect()
            }
            (_, Value::Object(items)) => items
                .iter()
                .map(|(name, value)| format!("{name}: {}", plain(value)))
                .collect(),
            ("codecs", Value::Array(items)) => items.iter().map(codec).collect(),
            (_, value) => vec![plain(value)],
        };
        let mut label = name.replace('_', " ");
        for text in texts {
            lines.push(format!("{label:<18} {text}"));
            label.clear();
        }
    }
    lines
}

fn snapshot(id: &str, of: &Value) -> String {
    let field = |name| of.get(name).map(plain).unwrap_or_default();
    format!("{id} {} {}", field("date"), field("message"))
}

/// Returns a codec with its settings, as `zstd: level 19, checksum true`.
fn codec(codec: &Value) -> String {
    let name = codec.get("name").map(plain).unwrap_or_default();
    let Some(Value::Object(configuration)) = codec.get("configuration") else {
        return name;
    };
    let settings = configuration.iter();
    let settings: Vec<String> = settings
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{name}: {}", settings.join(", "))
}

/// Returns a line for each axis, channel and other part of what attributes and coordinates say.
fn description_lines(description: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in description {
        let items: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            other => vec![other],
        };
        let singular = match name.as_str() {
            "axes" => "axis",
            "channels" => "channel",
            other => other,
        };
        let label = singular.replace('_', " ");
        for item in items {
            let text = match item {
                Value::Object(members) => members
                    .iter()
                    .map(|(name, value)| match name.as_str() {
                        "name" | "kind" | "orientation" | "color" => plain(value),
                        _ => format!("{name} {}", plain(value)),
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                other => plain(other),
            };
            lines.push(format!("{label:<18} {text}"));
        }
    }
    lines
}

fn view_line(name: &str, view: &Value) -> String {
    match (view.get("reason"), view.get("size_bytes")) {
        (Some(reason), _) => format!("no {name}: {}", plain(reason)),
        (None, Some(bytes)) => format!("{name} ({})", size(bytes.as_u64().unwrap_or(0))),
        (None, None) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_have_a_label_each() {
        let members = json!({"source": "x", "shape": [4, 5], "stored_bytes": 2048, "ratio": 2.5,
            "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 3}}],
            "chunks_present": 7, "chunks_counted": false, "tags": {"v1": "ABC"}});
        let lines = detail_lines(members.as_object().unwrap(), false);
        assert_eq!(
            lines,
            [
                "shape              (4, 5)",
                "stored bytes       2048 (2.0 KiB)",
                "ratio              2.50",
                "codecs             bytes",
                "                   zstd: level 3",
                "chunks present     7 or more",
                "tags               v1: ABC",
            ]
        );
        let unknown = json!({"chunks_present": null});
        let lines = detail_lines(unknown.as_object().unwrap(), true);
        assert_eq!(
            lines,
            ["chunks present     unknown: the server does not list them"]
        );
    }

    #[test]
    fn a_description_has_a_line_for_each_axis() {
        let description = json!({
            "axes": [{"name": "z", "kind": "space", "spacing": 2.0, "unit": "mm"}, {"name": "x"}],
            "values": {"missing": -1, "unit": "K"},
            "not_understood": ["the unit furlong"],
        });
        let mut lines = description_lines(description.as_object().unwrap());
        lines.sort();
        assert_eq!(
            lines,
            [
                "axis               x",
                "axis               z, space, spacing 2.0, unit mm",
                "not understood     the unit furlong",
                "values             missing -1, unit K",
            ]
        );
    }

    #[test]
    fn views_have_their_size_or_the_reason() {
        let available = json!({"available": true, "size_bytes": 1024});
        assert_eq!(view_line("a.nc", &available), "a.nc (1.0 KiB)");
        let absent = json!({"available": false, "reason": "no array is in it"});
        assert_eq!(view_line("a.nc", &absent), "no a.nc: no array is in it");
        assert_eq!(view_line("chunks", &json!({"available": true})), "chunks");
    }
}
