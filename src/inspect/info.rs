//! `zarrfs info`: the metadata of one node, its views and its stored chunks.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::keys::{ChunkNames, KeyClass, Keys};
use super::node::{self, NodeState};
use super::output::{date, printable, size, tuple};
use super::{Failure, Opened, default_memory_limit_bytes, engine};
use crate::cli::InfoArgs;
use crate::runtime::block_on;
use crate::store::{History, Key, ListingSupport, NamedVersion, Store};
use crate::units::FOREVER;
use crate::view::{Content, Format, FormatSet, NoContent, Nodes, NodesOptions, Renderer, ViewNode};
use crate::zarr::{Array, Node};

/// The number of keys after which counting stops.
const MAX_COUNTED: u64 = 1_000_000;

/// Prints one node of a source.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or the output cannot be
/// written. A broken node is not an error.
pub fn info(args: &InfoArgs) -> Result<(), Failure> {
    block_on(show(args))
}

async fn show(args: &InfoArgs) -> Result<(), Failure> {
    let limit = default_memory_limit_bytes();
    let opened = Opened::new(&args.source.at(&args.key), false, limit).await?;
    let mut members = Map::new();
    members.insert("source".into(), opened.store.label().into());
    let path = String::from_utf8_lossy(opened.root.as_bytes()).into_owned();
    members.insert("path".into(), path.into());
    if let Some(history) = opened.store.history().await {
        members.extend(versions(&history?));
    }
    match node::read(&*opened.store, &opened.root).await.state {
        NodeState::Directory => _ = members.insert("node_type".into(), "directory".into()),
        NodeState::Broken {
            document, reason, ..
        } => {
            members.insert("node_type".into(), "broken".into());
            members.insert("problems".into(), json!([format!("{document}: {reason}")]));
        }
        NodeState::Node(_) => {
            let options = NodesOptions {
                root: opened.root.clone(),
                formats: FormatSet::default(),
                ttl: FOREVER,
            };
            let store = Arc::clone(&opened.store);
            let nodes = Arc::new(Nodes::new(store, Arc::new(engine(limit)?), options));
            let node = nodes.node(&opened.root).await?;
            describe(&nodes, &node, &opened, &mut members).await;
        }
    }
    let incomplete = opened.store.incomplete_listing(&opened.root).await;
    let is_unlisted = incomplete.as_ref().is_some_and(|names| names.is_unlisted);
    if let Some(incomplete) = incomplete {
        let attributes = members.shift_remove("attributes");
        members.insert("incomplete_listing".into(), incomplete.what.into());
        members.extend(attributes.map(|attributes| ("attributes".into(), attributes)));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let value = Value::Object(members);
    if args.json {
        writeln!(out, "{value:#}")?;
    } else {
        write_lines(&mut out, &value, is_unlisted)?;
    }
    out.flush()?;
    opened.warn();
    Ok(())
}

/// Returns the names of versions and the versions of a source that keeps them.
fn versions(history: &History) -> Map<String, Value> {
    let mut members = Map::new();
    let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
    let names = |named: &[NamedVersion]| {
        let named = named.iter();
        let named = named.map(|named| (named.name.clone(), json!(named.version)));
        Value::Object(named.collect())
    };
    set("ref", history.name.clone().into());
    set("snapshot", history.shown.clone().into());
    set("branches", names(&history.branches));
    set("tags", names(&history.tags));
    let snapshots = history.versions.iter().map(|version| {
        let described = json!({"date": date(version.written), "message": version.message});
        (version.version.clone(), described)
    });
    set("snapshots", Value::Object(snapshots.collect()));
    if let Some(incomplete) = &history.incomplete {
        set("snapshots_incomplete", incomplete.clone().into());
    }
    members
}

async fn describe(
    nodes: &Arc<Nodes>,
    node: &Arc<ViewNode>,
    opened: &Opened,
    members: &mut Map<String, Value>,
) {
    if let Value::Object(info) = node.info() {
        members.extend(info);
    }
    if !node.problems().is_empty() {
        members.insert("problems".into(), json!(node.problems()));
    }
    if let Node::Array(array) = node.metadata() {
        if let Ok(pipeline) = node::pipeline(array) {
            members.insert("codec_chain".into(), pipeline.describe().into());
        }
        members.extend(stored_chunks(&*opened.store, &opened.root, array).await);
    }
    let formats =
        Format::all().filter(|format| !format.is_of_node() && format.suits(node.is_array()));
    let mut views = Map::new();
    for format in formats {
        let view = view(nodes, node, format).await;
        views.insert(format.own_name(node.name()), view);
    }
    if !views.is_empty() {
        members.insert("views".into(), Value::Object(views));
    }
    // `info.json` has only their number; here they are complete, and the last member.
    if let Ok(attributes) = node.metadata().attributes() {
        members.shift_remove("attributes");
        members.insert("attributes".into(), attributes.clone().into());
    }
}

/// Returns whether a view is available, with its size if that is known, or the reason.
async fn view(nodes: &Arc<Nodes>, node: &Arc<ViewNode>, format: Format) -> Value {
    match nodes.check(node, format).await {
        // The size of elements of variable length is known after they are decoded.
        Ok(()) if matches!(format.renderer(), Renderer::Elements) => {
            return json!({"available": true});
        }
        Ok(()) => {}
        Err(error) => return unavailable(node, error),
    }
    match nodes.content(node, format).await {
        Ok(Content::Text(text)) => json!({"available": true, "size_bytes": text.len()}),
        Ok(Content::File(file)) => {
            json!({"available": true, "size_bytes": file.size_bytes()})
        }
        Ok(_) => json!({"available": true}),
        Err(error) => unavailable(node, error),
    }
}

fn unavailable(node: &ViewNode, error: NoContent) -> Value {
    let reason = match error {
        NoContent::Absent(reason) => reason,
        failed => failed.into_error(node.key()).to_string(),
    };
    json!({"available": false, "reason": reason})
}

/// Counts the chunks that the store has of an array by listing, up to a limit.
async fn stored_chunks(store: &dyn Store, key: &Key, array: &Array) -> Map<String, Value> {
    let names = ChunkNames::of(array);
    if store.capabilities().listing == ListingSupport::BestEffort {
        let total = names.map(|names| names.chunk_count());
        let members = total.map(|total| {
            let total = ("chunks_total".to_owned(), total.into());
            [("chunks_present".to_owned(), Value::Null), total]
        });
        return members.into_iter().flatten().collect();
    }
    let (mut visited, mut chunks, mut others, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut failed = None;
    let mut keys = Keys::new(store, key, names.as_ref());
    let mut is_complete = true;
    while let Some(entry) = keys.next().await {
        if visited == MAX_COUNTED {
            is_complete = false;
            break;
        }
        visited += 1;
        match entry.class {
            KeyClass::Chunk(_) => {
                chunks += 1;
                let size = match entry.size_bytes {
                    Some(size) => Ok(size),
                    None => store.stat(&entry.key).await.map(|stat| stat.size_bytes),
                };
                match size {
                    Ok(size) => bytes = bytes.saturating_add(size),
                    Err(error) => failed = Some(format!("{}: {error}", entry.key)),
                }
            }
            KeyClass::Stray | KeyClass::Misplaced(_) => others += 1,
            KeyClass::Other => {}
            KeyClass::Unlistable(error) => failed = Some(error.to_string()),
        }
    }
    is_complete &= failed.is_none();
    let mut members = Map::new();
    let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
    let Some(names) = names else {
        return members;
    };
    set("chunks_present", chunks.into());
    set("chunks_total", names.chunk_count().into());
    set("chunks_counted", is_complete.into());
    set("stored_bytes", bytes.into());
    if let Some(error) = failed {
        set("listing_failed", error.into());
    }
    if others > 0 {
        set("other_keys", others.into());
    }
    let is_regular = array
        .grid
        .as_ref()
        .is_ok_and(|grid| grid.regular_chunk_shape().is_some());
    if let (Some(chunk_bytes), true, true) = (array.largest_chunk_bytes(), is_regular, bytes > 0) {
        let decoded = u128::from(chunk_bytes) * u128::from(chunks);
        let hundredths = decoded * 100 / u128::from(bytes);
        let ratio = u64::try_from(hundredths).unwrap_or(u64::MAX);
        set(
            "ratio",
            json!(format!("{}.{:02}", ratio / 100, ratio % 100)),
        );
    }
    members
}

/// Writes a line for each member, and for each codec, view, problem and attribute.
fn write_lines(out: &mut impl Write, value: &Value, is_unlisted: bool) -> io::Result<()> {
    let Value::Object(members) = value else {
        return Ok(());
    };
    for (name, value) in members {
        let lines = match (name.as_str(), value) {
            ("chunks_counted", Value::Bool(false)) => vec!["not all".into()],
            ("chunks_counted", _) => continue,
            ("chunks_present", Value::Null) => {
                let reason = match is_unlisted {
                    true => "the server does not list them",
                    false => "the server's listing may lack some",
                };
                vec![format!("unknown: {reason}")]
            }
            ("shape" | "chunk_shape" | "chunk_grid", value) => vec![tuple(value)],
            (name, Value::Number(number)) if name.ends_with("_bytes") => {
                let bytes = number.as_u64().unwrap_or(0);
                vec![format!("{number} ({})", size(bytes))]
            }
            ("views", Value::Object(views)) => views
                .iter()
                .map(|(name, view)| view_line(name, view))
                .collect(),
            ("snapshots", Value::Object(snapshots)) => snapshots
                .iter()
                .map(|(id, snapshot)| {
                    let field = |name| snapshot.get(name).map(plain).unwrap_or_default();
                    format!("{id} {} {}", field("date"), field("message"))
                })
                .collect(),
            (_, Value::Object(items)) => items
                .iter()
                .map(|(name, value)| format!("{name}: {}", plain(value)))
                .collect(),
            ("codecs" | "problems", Value::Array(items)) => items.iter().map(plain).collect(),
            (_, value) => vec![plain(value)],
        };
        let mut label = name.replace('_', " ");
        for line in &lines {
            writeln!(out, "{label:<18} {}", printable(line))?;
            label.clear();
        }
    }
    Ok(())
}

fn view_line(name: &str, view: &Value) -> String {
    match (view.get("reason"), view.get("size_bytes")) {
        (Some(reason), _) => format!("no {name}: {}", plain(reason)),
        (None, Some(bytes)) => format!("{name} ({})", size(bytes.as_u64().unwrap_or(0))),
        (None, None) => name.to_owned(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
