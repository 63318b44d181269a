//! `zarrfs info`: the metadata of one node, its values, its views and its stored chunks.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::dataset::{Dataset, array_json, values_json};
use super::info_text;
use super::is_listed_here;
use super::keys::ChunkKeyParser;
use super::node::{self, NodeState};
use super::output::{date, document, styled_stdout};
use super::preview;
use super::stored::CountBudget;
use super::values::{is_coordinate, read_ends};
use super::{Failure, OpenedSource, default_memory_limit_bytes, engine};
use crate::array::Engine;
use crate::cli::InfoArgs;
use crate::conventions::members;
use crate::hierarchy::{Collection, not_shown};
use crate::node::{ContentError, ViewNode};
use crate::runtime::block_on;
use crate::store::{ErrorKind, History, IncompleteListing, Key, NamedVersion, Store};
use crate::units::FOREVER;
use crate::view::{Content, Format, FormatSet, Nodes, NodesOptions, Renderer};
use crate::zarr::{Array, Node};

/// The number of keys after which counting stops.
const MAX_COUNTED: u64 = 1_000_000;

/// Data for the text output that the JSON document lacks.
#[derive(Debug, Default)]
pub(super) struct TextDetails {
    pub(super) nodes: Option<Arc<Nodes>>,
    pub(super) node: Option<Arc<ViewNode>>,
    pub(super) dataset: Option<Dataset>,
    pub(super) values: Option<super::values::ReadValues>,
    pub(super) is_unlisted: bool,
}

/// Prints one node of a source.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or the output cannot be
/// written. A broken node is not an error.
pub fn info(args: &InfoArgs) -> Result<(), Failure> {
    block_on(show(args))
}

async fn show(args: &InfoArgs) -> Result<(), Failure> {
    if let Some(protocol) = args.preview {
        preview::check(protocol)?;
    }
    let limit = default_memory_limit_bytes();
    let opened = OpenedSource::new(&args.source.at(&args.key), false, limit).await?;
    let history = opened.store.history().await;
    // A repository has branches, also before anything is written.
    let is_repository = history.is_some();
    if !is_repository {
        opened.check_hierarchy()?;
    }
    let mut members = Map::new();
    members.insert("source".into(), opened.store.label().into());
    let path = String::from_utf8_lossy(opened.root.as_bytes()).into_owned();
    members.insert("path".into(), path.into());
    if let Some(history) = history {
        members.extend(versions(&history?));
    }
    let mut shown = TextDetails::default();
    let state = node::read(&*opened.store, &opened.root).await.state;
    let absent = not_shown(
        &*opened.store,
        &opened.root,
        &opened.root,
        state.node(),
        members::named,
    )
    .await;
    // Once the node is read, because some sources are only opened then.
    let incomplete = opened.store.incomplete_listing(&opened.root).await;
    let incomplete = incomplete.unwrap_or_else(|error| Some(IncompleteListing::failed(&error)));
    match state {
        NodeState::Directory => {
            members.insert("node_type".into(), "directory".into());
            let found = opened.collection().await;
            if found.is_empty() && !found.is_partial && !is_repository {
                return Err(opened.nothing_found(true).await.into());
            }
            members.extend(collection_json(&found));
        }
        NodeState::Broken {
            document, reason, ..
        } => {
            members.insert("node_type".into(), "broken".into());
            members.insert("problems".into(), json!([format!("{document}: {reason}")]));
        }
        NodeState::Node(_) => {
            let engine = Arc::new(engine(limit)?);
            let is_listed = incomplete.is_none();
            describe(&opened, &engine, is_listed, &mut members, &mut shown).await?;
        }
    }
    if !absent.is_empty() {
        let absent = absent.into_iter().map(|absent| absent.what.into());
        let problems = members.entry("problems").or_insert_with(|| json!([]));
        if let Value::Array(problems) = problems {
            problems.extend(absent);
        }
    }
    if let Some(incomplete) = incomplete {
        shown.is_unlisted = incomplete.is_unlisted;
        members.insert("incomplete_listing".into(), incomplete.what.into());
    }
    if args.json {
        let mut out = BufWriter::new(io::stdout().lock());
        writeln!(out, "{:#}", document("info", members))?;
        out.flush()?;
    } else {
        let mut out = BufWriter::new(styled_stdout());
        info_text::write(&mut out, &members, &shown)?;
        out.flush()?;
    }
    match (args.preview, &shown.nodes, &shown.node) {
        (Some(protocol), Some(nodes), Some(node)) => {
            let dataset = shown.dataset.iter();
            let arrays = dataset.flat_map(|dataset| &dataset.arrays);
            let arrays = arrays.filter_map(|array| node.key().join(array.name.as_bytes()).ok());
            let arrays: Vec<Key> = arrays.collect();
            preview::write(protocol, nodes, node, &arrays).await
        }
        (Some(_), ..) => {
            let message = format!("{}: no preview: neither a group nor an array", opened.root);
            Err(ErrorKind::NoView.failure(message))
        }
        (None, ..) => Ok(()),
    }
}

/// Returns the hierarchies of a collection.
fn collection_json(found: &Collection) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("hierarchies".into(), json!(found.hierarchies));
    if !found.unread.is_empty() {
        members.insert("unread_directories".into(), json!(found.unread));
    }
    members.insert("hierarchies_known".into(), json!(!found.is_partial));
    members
}

/// Returns the names of versions and the versions of a source with a history.
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

/// Reads the node at the root with its children or values, its chunks and its views. `is_listed` is whether a listing
/// has all keys of the node.
async fn describe(
    opened: &OpenedSource,
    engine: &Arc<Engine>,
    is_listed: bool,
    members: &mut Map<String, Value>,
    shown: &mut TextDetails,
) -> Result<(), Failure> {
    let (store, root) = (&opened.store, &opened.root);
    let options = NodesOptions {
        root: root.clone(),
        formats: FormatSet::default(),
        ttl: FOREVER.into(),
        assume_wgs84: false,
    };
    let nodes = Nodes::new(Arc::clone(store), Arc::clone(engine), options);
    let nodes = Arc::new(nodes);
    let node = nodes.node(root).await?;
    let mut problems = node.problems().to_vec();
    match node.metadata() {
        Node::Array(array) => {
            members.extend(array_json(array));
            members.extend(stored_chunks(&**store, root, array, is_listed).await);
            if is_coordinate(node.name(), array) {
                let ends = read_ends(store, engine, vec![(root.clone(), array)]).await;
                shown.values = ends.into_iter().next().flatten();
                members.extend(values_json(shown.values.as_ref()));
            }
        }
        Node::Group(_) => {
            if let Value::Object(info) = node.info() {
                members.extend(info);
            }
            let dataset = Dataset::read(store, engine, root).await;
            members.extend(dataset.json());
            problems.extend(dataset.problems.iter().cloned());
            shown.dataset = Some(dataset);
        }
    }
    match nodes.description_json(&node).await {
        Ok(description) if description.is_empty() => {}
        Ok(description) => drop(members.insert("description".into(), description.into())),
        Err(error) => problems.push(error.into_error(node.key()).to_string()),
    }
    if !problems.is_empty() {
        members.insert("problems".into(), json!(problems));
    }
    let views = views(&nodes, &node).await;
    if !views.is_empty() {
        members.insert("views".into(), Value::Object(views));
    }
    if let Ok(attributes) = node.metadata().attributes() {
        members.insert("attributes".into(), attributes.clone().into());
    }
    (shown.nodes, shown.node) = (Some(nodes), Some(node));
    Ok(())
}

/// Returns the views of a node that its `README.txt` names. Some have no size: those with stored
/// chunks, and in a remote source those that need the metadata of other nodes. A remote source also
/// lacks views of whole hierarchies.
async fn views(nodes: &Arc<Nodes>, node: &Arc<ViewNode>) -> Map<String, Value> {
    let is_local = is_listed_here(&**nodes.store());
    let mut views = Map::new();
    for format in Format::all().filter(|format| format.suits(node.is_array())) {
        let needs_all = matches!(format.renderer(), Renderer::Hierarchy(_));
        if format.is_of_node() || (needs_all && !is_local) {
            continue;
        }
        // The size of a view with stored chunks depends on the size of each chunk.
        let has_size = (is_local || !format.is_of_many()) && !format.is_packed();
        let view = match view(nodes, node, format, has_size).await {
            Err(ContentError::Absent(_)) if !format.is_expected_of(node) => continue,
            Err(error) => unavailable(node, error),
            Ok(None) => json!({"available": true}),
            Ok(Some(size)) => json!({"available": true, "size_bytes": size}),
        };
        views.insert(format.unique_name(node.name(), node.is_array()), view);
    }
    views
}

/// Checks whether a view is available; returns its size if `has_size` is set and the size is available.
async fn view(
    nodes: &Arc<Nodes>,
    node: &Arc<ViewNode>,
    format: Format,
    has_size: bool,
) -> Result<Option<u64>, ContentError> {
    nodes.check(node, format).await?;
    // The size of elements of variable length is known only after decoding.
    if !has_size || matches!(format.renderer(), Renderer::Elements) {
        return Ok(None);
    }
    Ok(match nodes.content(node, format).await? {
        Content::Text(text) => Some(text.len() as u64),
        Content::File(file) => Some(file.size_bytes()),
        _ => None,
    })
}

fn unavailable(node: &ViewNode, error: ContentError) -> Value {
    let reason = match error {
        ContentError::Absent(reason) => reason,
        failed => failed.into_error(node.key()).to_string(),
    };
    json!({"available": false, "reason": reason})
}

/// Counts the stored chunks of an array by listing, up to a limit. `is_listed` is whether a listing has all of them.
async fn stored_chunks(
    store: &dyn Store,
    key: &Key,
    array: &Array,
    is_listed: bool,
) -> Map<String, Value> {
    let names = ChunkKeyParser::of(array);
    if !is_listed {
        let total = names.map(|names| names.chunk_count());
        let members = total.map(|total| {
            let total = ("chunks_total".to_owned(), total.into());
            [("chunks_present".to_owned(), Value::Null), total]
        });
        return members.into_iter().flatten().collect();
    }
    let mut counter = CountBudget::new(MAX_COUNTED, None);
    let counted = counter.count(store, key, array).await;
    let mut members = Map::new();
    let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
    let Some(names) = names else {
        return members;
    };
    set("chunks_present", counted.chunks.into());
    set("chunks_total", names.chunk_count().into());
    set("chunks_counted", counted.is_complete.into());
    if let Some(absent) = &counted.absent {
        set("chunks_absent", absent.count.into());
        set("absent_keys", json!(absent.keys));
    }
    set("stored_bytes", counted.bytes.into());
    if let Some(ratio) = counted.ratio(array) {
        set("ratio", json!(ratio));
    }
    if let Some(error) = counted.failure {
        set("listing_failed", error.into());
    }
    if counted.others > 0 {
        set("other_keys", counted.others.into());
    }
    members
}
