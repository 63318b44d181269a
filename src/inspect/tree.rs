//! `zarrfs tree`: groups and arrays as a tree or as JSON, written while the source is walked.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::Arc;

use anstream::AutoStream;
use serde_json::{Map, Value};

use super::node::{self, NodeState};
use super::output::{ARRAY, GROUP, PROBLEM, TreeSymbols, size, styled_stdout, truncated, tuple};
use super::table::{Row, Table};
use super::{Failure, Opened, default_memory_limit_bytes};
use crate::cli::TreeArgs;
use crate::runtime::block_on;
use crate::store::{Key, Store, list_prefixes};
use crate::zarr::{Array, Consolidated, Node};

/// The deepest level that is shown, because a loop of links has no last level.
const MAX_DEPTH: usize = 256;
/// The longest cell, in characters.
const MAX_CELL: usize = 100;

/// A node in consolidated metadata.
#[derive(Debug, Clone)]
struct ConsolidatedNode {
    metadata: Arc<Consolidated>,
    path: String,
}

/// A group whose children are being shown.
struct Frame {
    key: Key,
    names: std::vec::IntoIter<Vec<u8>>,
    consolidated: Option<ConsolidatedNode>,
    is_last: bool,
}

/// A node of the tree.
struct Entry {
    state: NodeState,
    notes: Vec<String>,
    children: Vec<Vec<u8>>,
    /// Whether there may be children that the store does not list.
    has_unlisted: bool,
    consolidated: Option<ConsolidatedNode>,
}

/// Shows the hierarchy of a source.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or nothing can be
/// written. Nodes that cannot be understood are no errors.
pub fn tree(args: &TreeArgs) -> Result<(), Failure> {
    block_on(show(args))
}

async fn show(args: &TreeArgs) -> Result<(), Failure> {
    let opened = Opened::new(
        &args.source.at(&args.key),
        false,
        default_memory_limit_bytes(),
    )
    .await?;
    let store = &*opened.store;
    let label = store.label().to_owned();
    let mut writer = match args.json {
        true => TreeWriter::json(label)?,
        false => TreeWriter::text(label),
    };
    let max_depth = args.depth.unwrap_or(usize::MAX);
    let root = Entry::read(store, &opened.root, None, max_depth > 0).await;
    writer.entry(&[], None, &opened.root, &root)?;
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
                if depth == MAX_DEPTH && depth < max_depth {
                    entry.notes.push("deeper levels are not shown".into());
                }
                (key, entry)
            }
            Err(error) => (Key::root(), Entry::broken("consolidated metadata", &error)),
        };
        writer.entry(&frames, Some((&name, is_last)), &key, &entry)?;
        frames.push(Frame {
            key,
            names: entry.children.into_iter(),
            consolidated: entry.consolidated,
            is_last,
        });
    }
    writer.finish()?;
    opened.warn();
    Ok(())
}

impl ConsolidatedNode {
    fn child(&self, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let path = match self.path.is_empty() {
            true => name.into_owned(),
            false => format!("{}/{name}", self.path),
        };
        Self {
            metadata: Arc::clone(&self.metadata),
            path,
        }
    }

    fn child_names(&self) -> Vec<Vec<u8>> {
        let names = self.metadata.children(&self.path).into_iter();
        names.map(|name| name.as_bytes().to_vec()).collect()
    }
}

impl Entry {
    fn new(state: NodeState) -> Self {
        Self {
            state,
            notes: Vec::new(),
            children: Vec::new(),
            has_unlisted: false,
            consolidated: None,
        }
    }

    fn broken(document: &str, reason: &dyn std::fmt::Display) -> Self {
        Self::new(NodeState::Broken {
            document: document.to_owned(),
            reason: reason.to_string(),
            is_store_error: false,
        })
    }

    /// Reads the node at a key, from consolidated metadata if there are any.
    async fn read(
        store: &dyn Store,
        key: &Key,
        consolidated: Option<ConsolidatedNode>,
        with_children: bool,
    ) -> Self {
        if let Some(node) = consolidated {
            return Self::from_consolidated(node, with_children);
        }
        let directory = node::read(store, key).await;
        let mut entry = Self {
            notes: directory.ignored,
            ..Self::new(directory.state)
        };
        let is_group = match &entry.state {
            NodeState::Node(node) => node.as_group().is_some(),
            NodeState::Directory => true,
            NodeState::Broken { .. } => false,
        };
        if !with_children || !is_group {
            return entry;
        }
        if let NodeState::Node(node) = &entry.state {
            match node::consolidated(store, key, node).await {
                Ok(Some(metadata)) => {
                    let node = ConsolidatedNode {
                        metadata: Arc::new(metadata),
                        path: String::new(),
                    };
                    entry.children = node.child_names();
                    entry.consolidated = Some(node);
                    return entry;
                }
                Ok(None) => {}
                Err(reason) => entry.notes.push(format!("consolidated metadata: {reason}")),
            }
        }
        match list_prefixes(store, key, usize::MAX).await {
            Ok(names) => {
                entry.children = names;
                let unknown = store.incomplete_listing(key).await;
                entry.has_unlisted = unknown.is_some_and(|names| names.is_unlisted);
            }
            Err(error) => {
                let reason = node::cause(key, &error);
                entry.notes.push(format!("cannot be listed: {reason}"));
            }
        }
        entry
    }

    fn from_consolidated(node: ConsolidatedNode, with_children: bool) -> Self {
        let state = match node.metadata.node(&node.path) {
            Some(Ok(node)) => NodeState::Node(Box::new(node)),
            Some(Err(error)) => return Self::broken("consolidated metadata", &error),
            None => NodeState::Directory,
        };
        let is_array = matches!(&state, NodeState::Node(node) if node.as_array().is_some());
        let mut entry = Self::new(state);
        if with_children && !is_array {
            entry.children = node.child_names();
        }
        entry.consolidated = Some(node);
        entry
    }

    fn row(&self) -> Row {
        let mut row = match &self.state {
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
                Node::Array(array) => array_row(array),
            },
        };
        if self.has_unlisted
            && let Some(cell) = row.cells.last_mut()
        {
            cell.push_str(" children not known");
        }
        row.notes.extend(self.notes.iter().cloned());
        row
    }

    fn json(&self, key: &Key) -> Value {
        let mut members = Map::new();
        let path = String::from_utf8_lossy(key.as_bytes()).into_owned();
        members.insert("path".into(), path.into());
        let mut problems: Vec<Value> = Vec::new();
        match &self.state {
            NodeState::Directory => _ = members.insert("node_type".into(), "directory".into()),
            NodeState::Broken {
                document, reason, ..
            } => {
                members.insert("node_type".into(), "broken".into());
                problems.push(format!("{document}: {reason}").into());
            }
            NodeState::Node(node) => {
                if let Value::Object(info) = node.info() {
                    members.extend(info);
                }
                if let Some(Value::Array(own)) = members.remove("problems") {
                    problems.extend(own);
                }
                if let Node::Array(array) = &**node {
                    match node::pipeline(array) {
                        Ok(pipeline) => {
                            let chain = pipeline.describe().to_owned();
                            members.insert("codec_chain".into(), chain.into());
                        }
                        Err(reason) => {
                            members.insert("unreadable".into(), reason.to_string().into());
                        }
                    }
                }
            }
        }
        if self.has_unlisted {
            members.insert("children_known".into(), false.into());
        }
        problems.extend(self.notes.iter().map(|note| note.as_str().into()));
        if !problems.is_empty() {
            members.insert("problems".into(), problems.into());
        }
        members.into()
    }
}

/// Returns a row like `float32  (20, 30)  chunks (9, 13)  zlib  2.3 KiB`, with the array's problems.
fn array_row(array: &Array) -> Row {
    let info = array.info();
    let cell = |name: &str| {
        let text = info.get(name).map_or_else(|| "?".to_owned(), tuple);
        truncated(&text, MAX_CELL).into_owned()
    };
    let data_type = match &array.data_type {
        Ok(data_type) => truncated(&data_type.to_string(), MAX_CELL).into_owned(),
        Err(_) => "?".to_owned(),
    };
    let pipeline = node::pipeline(array);
    let codecs = match (&pipeline, &array.codecs) {
        (Ok(pipeline), _) => pipeline.describe().to_owned(),
        (Err(_), Ok(chain)) => {
            let names: Vec<&str> = chain.specs().map(|spec| spec.name.as_str()).collect();
            names.join(" | ")
        }
        (Err(_), Err(_)) => "?".to_owned(),
    };
    let bytes = array.size_bytes().map(size).unwrap_or_default();
    let invalid = array.attributes.as_ref().err().map(ToString::to_string);
    let unreadable = pipeline.err().map(|reason| reason.to_string());
    Row {
        style: ARRAY,
        cells: vec![
            data_type,
            cell("shape"),
            format!("chunks {}", cell("chunk_shape")),
            truncated(&codecs, MAX_CELL).into_owned(),
            bytes,
        ],
        notes: invalid.into_iter().chain(unreadable).collect(),
        ..Row::default()
    }
}

/// Writes entries one by one.
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
        write!(out, "{{\"source\":{},\"nodes\":[", Value::from(label))?;
        let is_first = true;
        Ok(Self::Json { out, is_first })
    }

    /// Writes an entry. `name` is None for the root; else the name, and whether it is the last of its
    /// siblings.
    fn entry(
        &mut self,
        ancestors: &[Frame],
        name: Option<(&[u8], bool)>,
        key: &Key,
        entry: &Entry,
    ) -> io::Result<()> {
        let (out, symbols, table, label) = match self {
            Self::Json { out, is_first } => {
                let comma = if std::mem::take(is_first) { "" } else { "," };
                return write!(out, "{comma}\n{}", entry.json(key));
            }
            Self::Text {
                out,
                symbols,
                table,
                label,
            } => (out, symbols, table, label),
        };
        let mut row = entry.row();
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

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Text {
                mut out, mut table, ..
            } => table.flush(&mut out),
            Self::Json { mut out, .. } => {
                writeln!(out, "\n]}}")?;
                out.flush()
            }
        }
    }
}
