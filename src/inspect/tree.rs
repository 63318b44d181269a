//! `zarrfs tree`: groups and arrays as a tree or as JSON, written during the walk of the source.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::Duration;

use anstream::AutoStream;
use serde_json::{Map, Value, json};

use super::dataset::array_json;
use super::describe::type_and_dimensions;
use super::entry::{ConsolidatedNode, Entry};
use super::node::{self, NodeState};
use super::output::{
    ARRAY, GROUP, PROBLEM, TreeSymbols, schema, size, styled_stdout, truncated, tuple,
};
use super::stored::{CountBudget, StoredChunkCounts, is_free};
use super::table::{Row, Table};
use super::totals::Totals;
use super::{Failure, OpenedSource, default_memory_limit_bytes};
use crate::cli::TreeArgs;
use crate::conventions::cf::units;
use crate::conventions::members;
use crate::hierarchy::not_shown;
use crate::runtime::block_on;
use crate::store::{Key, Store};
use crate::zarr::{Array, Node};

/// The largest depth that is shown, because a loop of links has no last level.
const MAX_DEPTH: usize = 256;
/// The largest length of a cell in characters.
const MAX_CELL: usize = 100;
/// The largest number of keys that are counted for the stored sizes, and the time limit for that.
const MAX_COUNTED: u64 = 100_000;
const COUNT_LIMIT: Duration = Duration::from_secs(2);

/// A group whose children are being shown.
struct Frame {
    key: Key,
    names: std::vec::IntoIter<Vec<u8>>,
    consolidated: Option<ConsolidatedNode>,
    is_last: bool,
}

/// Shows the hierarchy of a source.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or nothing can be written.
/// An unreadable node is not an error.
pub fn tree(args: &TreeArgs) -> Result<(), Failure> {
    block_on(show(args))
}

async fn show(args: &TreeArgs) -> Result<(), Failure> {
    let source = args.source.at(&args.key);
    let opened = OpenedSource::with_hierarchy(&source, default_memory_limit_bytes()).await?;
    let store = &*opened.store;
    let label = store.label().to_owned();
    let mut writer = match args.json {
        true => TreeWriter::json(label)?,
        false => TreeWriter::text(label),
    };
    let mut sizes = Sizes::new(store);
    let max_depth = args.depth.unwrap_or(usize::MAX);
    let mut root = Entry::read(store, &opened.root, None, max_depth > 0).await;
    add_not_shown(&opened, &opened.root, &mut root).await;
    let stored = sizes.of(&opened.root, &root).await;
    writer.entry(&[], None, &opened.root, &root, stored.as_ref())?;
    let is_array = as_array(&root).is_some();
    let is_group = !is_array && matches!(root.state, NodeState::Node(_));
    // Whether there may be nodes that the walk does not reach.
    let mut is_truncated = root.has_unlisted;
    let mut frames = vec![Frame {
        key: opened.root.clone(),
        names: root.children.into_iter(),
        consolidated: root.consolidated,
        is_last: true,
    }];
    while let Some(frame) = frames.last_mut() {
        let Some(name) = frame.names.next() else {
            frames.pop();
            continue;
        };
        let is_last = frame.names.len() == 0;
        let consolidated = frame.consolidated.as_ref().map(|node| node.child(&name));
        let joined = frame.key.join(&name);
        let depth = frames.len();
        let (key, entry) = match joined {
            Ok(key) => {
                let has_children = depth < max_depth && depth < MAX_DEPTH;
                let mut entry = Entry::read(store, &key, consolidated, has_children).await;
                add_not_shown(&opened, &key, &mut entry).await;
                if depth == MAX_DEPTH && depth < max_depth {
                    entry.notes.push("deeper levels are not shown".into());
                    is_truncated = true;
                }
                (key, entry)
            }
            Err(error) => (Key::root(), Entry::broken("consolidated metadata", &error)),
        };
        let stored = sizes.of(&key, &entry).await;
        writer.entry(
            &frames,
            Some((&name, is_last)),
            &key,
            &entry,
            stored.as_ref(),
        )?;
        frames.push(Frame {
            key,
            names: entry.children.into_iter(),
            consolidated: entry.consolidated,
            is_last,
        });
    }
    // A root that is a group does not count as one of its groups.
    sizes.totals.groups -= u64::from(is_group);
    writer.finish(&sizes.totals, !is_array)?;
    match sizes.has_nodes || is_truncated || max_depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(opened.nothing_found(true).await.into()),
    }
}

/// Adds what a mount does not show of a node.
async fn add_not_shown(opened: &OpenedSource, key: &Key, entry: &mut Entry) {
    let absent = not_shown(
        &*opened.store,
        &opened.root,
        key,
        entry.state.node(),
        members::named,
    )
    .await;
    entry
        .notes
        .extend(absent.into_iter().map(|absent| absent.what));
}

/// The stored sizes of the arrays, if counting needs no requests, and the totals.
struct Sizes<'a> {
    store: &'a dyn Store,
    counter: Option<CountBudget>,
    totals: Totals,
    /// Whether any directory has metadata.
    has_nodes: bool,
}

impl<'a> Sizes<'a> {
    fn new(store: &'a dyn Store) -> Self {
        let counter = || CountBudget::new(MAX_COUNTED, Some(COUNT_LIMIT));
        Self {
            store,
            counter: is_free(store).then(counter),
            totals: Totals::default(),
            has_nodes: false,
        }
    }

    /// Adds a node to the totals and counts its chunks.
    async fn of(&mut self, key: &Key, entry: &Entry) -> Option<StoredChunkCounts> {
        self.has_nodes |= !matches!(entry.state, NodeState::Directory);
        let Some(array) = as_array(entry) else {
            let is_group = matches!(entry.state, NodeState::Node(_));
            self.totals.groups += u64::from(is_group);
            return None;
        };
        let stored = match &mut self.counter {
            Some(counter) => Some(counter.count(self.store, key, array).await),
            None => None,
        };
        let stored = stored.filter(|stored| stored.is_complete);
        self.totals.add(array, stored.as_ref());
        stored
    }
}

fn as_array(entry: &Entry) -> Option<&Array> {
    match &entry.state {
        NodeState::Node(node) => node.as_array(),
        _ => None,
    }
}

fn row_of(entry: &Entry, stored: Option<&StoredChunkCounts>) -> Row {
    let mut row = match &entry.state {
        NodeState::Directory => Row::of_cell(GROUP, "(directory)"),
        NodeState::Broken {
            document, reason, ..
        } => Row {
            style: PROBLEM,
            notes: vec![format!("{document}: {reason}")],
            ..Row::default()
        },
        NodeState::Node(node) => match &**node {
            Node::Group(group) => {
                let mut row = Row::of_cell(GROUP, "(group)");
                let problem = group.attributes.as_ref().err().map(ToString::to_string);
                let extensions = group.extensions.iter().map(ToString::to_string);
                row.notes.extend(problem.into_iter().chain(extensions));
                row
            }
            Node::Array(array) => array_row(array, stored),
        },
    };
    if entry.has_unlisted
        && let Some(cell) = row.cells.last_mut()
    {
        cell.push_str(" children not known");
    }
    row.notes.extend(entry.notes.iter().cloned());
    row
}

fn json_of(entry: &Entry, key: &Key, stored: Option<&StoredChunkCounts>) -> Value {
    let mut members = Map::new();
    let path = String::from_utf8_lossy(key.as_bytes()).into_owned();
    members.insert("path".into(), path.into());
    let mut problems: Vec<Value> = Vec::new();
    match &entry.state {
        NodeState::Directory => _ = members.insert("node_type".into(), "directory".into()),
        NodeState::Broken {
            document, reason, ..
        } => {
            members.insert("node_type".into(), "broken".into());
            problems.push(format!("{document}: {reason}").into());
        }
        NodeState::Node(node) => {
            match &**node {
                Node::Array(array) => {
                    members.extend(array_json(array));
                    if let Some(stored) = stored {
                        members.insert("stored_bytes".into(), stored.bytes.into());
                        let ratio = stored.ratio(array);
                        members.extend(ratio.map(|ratio| ("ratio".into(), json!(ratio))));
                    }
                }
                Node::Group(group) => {
                    if let Value::Object(info) = group.info() {
                        members.extend(info);
                    }
                }
            }
            if let Some(Value::Array(own)) = members.shift_remove("problems") {
                problems.extend(own);
            }
        }
    }
    if entry.has_unlisted {
        members.insert("children_known".into(), false.into());
    }
    problems.extend(entry.notes.iter().map(|note| note.as_str().into()));
    if !problems.is_empty() {
        members.insert("problems".into(), problems.into());
    }
    members.into()
}

/// Returns a row like `float32 (time 20, lat 30)  K  chunks (9, 13)  zlib  2.3 KiB  1.1 KiB stored (2.09)`,
/// with the array's problems.
fn array_row(array: &Array, stored: Option<&StoredChunkCounts>) -> Row {
    let chunks = array.info().get("chunk_shape").map(tuple);
    let chunks = chunks.unwrap_or_else(|| "?".into());
    let pipeline = node::pipeline(array);
    let codecs = match (&pipeline, &array.codecs) {
        (Ok(pipeline), _) => pipeline.describe().to_owned(),
        (Err(_), Ok(chain)) => {
            let names: Vec<&str> = chain.specs().map(|spec| spec.name.as_str()).collect();
            names.join(" | ")
        }
        (Err(_), Err(_)) => "?".to_owned(),
    };
    let stored = stored.map(|stored| match stored.ratio(array) {
        Some(ratio) => format!("{} stored ({ratio:.2})", size(stored.bytes)),
        None => format!("{} stored", size(stored.bytes)),
    });
    let invalid = array.attributes.as_ref().err().map(ToString::to_string);
    let unreadable = pipeline.err().map(|reason| reason.to_string());
    let cells = [
        type_and_dimensions(array),
        units(array).unwrap_or_default().to_owned(),
        format!("chunks {chunks}"),
        codecs,
        array.size_bytes().map(size).unwrap_or_default(),
        stored.unwrap_or_default(),
    ];
    Row {
        style: ARRAY,
        cells: cells
            .map(|cell| truncated(&cell, MAX_CELL).into_owned())
            .to_vec(),
        notes: invalid.into_iter().chain(unreadable).collect(),
        ..Row::default()
    }
}

/// The output format, which is written entry by entry.
enum TreeWriter {
    Text {
        out: BufWriter<AutoStream<StdoutLock<'static>>>,
        symbols: TreeSymbols,
        table: Table,
        label: String,
    },
    Json {
        out: BufWriter<StdoutLock<'static>>,
        is_first: bool,
    },
}

impl TreeWriter {
    fn text(label: String) -> Self {
        Self::Text {
            out: BufWriter::new(styled_stdout()),
            symbols: TreeSymbols::of_stdout(),
            table: Table::of_stdout(),
            label,
        }
    }

    fn json(label: String) -> io::Result<Self> {
        let mut out = BufWriter::new(io::stdout().lock());
        let (schema, label) = (Value::from(schema("tree")), Value::from(label));
        write!(out, "{{\"schema\":{schema},\"source\":{label},\"nodes\":[")?;
        let is_first = true;
        Ok(Self::Json { out, is_first })
    }

    /// Writes an entry. `name` is `None` for the root, otherwise the name and whether it is the
    /// last of its siblings.
    fn entry(
        &mut self,
        ancestors: &[Frame],
        name: Option<(&[u8], bool)>,
        key: &Key,
        entry: &Entry,
        stored: Option<&StoredChunkCounts>,
    ) -> io::Result<()> {
        let (out, symbols, table, label) = match self {
            Self::Json { out, is_first } => {
                let comma = if std::mem::take(is_first) { "" } else { "," };
                return write!(out, "{comma}\n{}", json_of(entry, key, stored));
            }
            Self::Text {
                out,
                symbols,
                table,
                label,
            } => (out, symbols, table, label),
        };
        let mut row = row_of(entry, stored);
        if let Some((name, is_last)) = name {
            for frame in ancestors.iter().skip(1) {
                row.symbols.push_str(match frame.is_last {
                    true => symbols.gap,
                    false => symbols.trunk,
                });
            }
            row.symbols.push_str(match is_last {
                true => symbols.last,
                false => symbols.branch,
            });
            row.name = String::from_utf8_lossy(name).into_owned();
        } else {
            row.name = match key.is_root() {
                true => label.clone(),
                false => format!("{label}: {}", key.display()),
            };
        }
        table.push(out, row)
    }

    /// Ends the output with the totals; text output has them only if `has_totals`.
    fn finish(self, totals: &Totals, has_totals: bool) -> io::Result<()> {
        match self {
            Self::Text {
                mut out, mut table, ..
            } => {
                table.flush(&mut out)?;
                if has_totals && totals.groups + totals.arrays > 0 {
                    writeln!(out, "{}", totals.line())?;
                }
                out.flush()
            }
            Self::Json { mut out, .. } => {
                writeln!(out, "\n],\"totals\":{}}}", totals.json())?;
                out.flush()
            }
        }
    }
}
