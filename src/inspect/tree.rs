//! `zarrfs tree`: groups and arrays, drawn or as JSON, written while the source is walked.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::hierarchy::{self, What};
use super::output::{ARRAY, GROUP, Lines, WRONG, shortened, size, tuple};
use super::rows::{Line, Rows};
use super::{Failure, Opened, default_memory_limit_bytes};
use crate::cli::TreeArgs;
use crate::store::{Key, Store, list_prefixes};
use crate::zarr::{Array, Consolidated, Node};

/// Deeper nodes are not looked for: no hierarchy is so deep, but a loop of links is.
const MAX_DEPTH: usize = 256;
/// Shapes and codecs are cut to so many characters in a line.
const MAX_CELL: usize = 100;

/// Copies of metadata, and where in them a node is.
#[derive(Debug, Clone)]
struct Copies {
    of: Arc<Consolidated>,
    path: String,
}

/// A group whose children are being shown.
struct Frame {
    key: Key,
    names: std::vec::IntoIter<Vec<u8>>,
    copies: Option<Copies>,
    is_last: bool,
}

/// A node as it is shown.
struct Entry {
    what: What,
    notes: Vec<String>,
    children: Vec<Vec<u8>>,
    /// There may be more of them: nobody lists them.
    has_unlisted: bool,
    copies: Option<Copies>,
}

/// Shows the hierarchy of a source.
///
/// # Errors
/// If the source can not be opened, `--path` leads to no directory in it, or nothing can be
/// written. Nodes that can not be understood are no errors.
pub fn tree(args: &TreeArgs) -> Result<(), Failure> {
    let opened = Opened::new(&args.source, false, default_memory_limit_bytes())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let store = &*opened.store;
    let mut drawing = Drawing {
        lines: (!args.json).then(Lines::of_stdout),
        rows: Rows::of_stdout(),
        label: store.label().to_owned(),
        entries: 0,
    };
    drawing.begin(&mut out)?;
    let most = args.depth.unwrap_or(usize::MAX);
    let root = Entry::of(store, &opened.root, None, most > 0);
    drawing.entry(&mut out, &[], None, &opened.root, &root)?;
    let mut frames = vec![Frame {
        key: opened.root.clone(),
        names: root.children.into_iter(),
        copies: root.copies,
        is_last: true,
    }];
    while let Some(frame) = frames.last_mut() {
        let Some(name) = frame.names.next() else {
            frames.pop();
            continue;
        };
        let is_last = frame.names.len() == 0;
        let copies = frame.copies.as_ref().map(|copies| copies.below(&name));
        let joined = frame.key.join(&name);
        let depth = frames.len();
        let (key, entry) = match joined {
            Ok(key) => {
                let goes_down = depth < most && depth < MAX_DEPTH;
                let mut entry = Entry::of(store, &key, copies, goes_down);
                if depth == MAX_DEPTH && depth < most {
                    entry.notes.push("deeper levels are not shown".into());
                }
                (key, entry)
            }
            Err(error) => (Key::root(), Entry::broken("consolidated metadata", &error)),
        };
        drawing.entry(&mut out, &frames, Some((&name, is_last)), &key, &entry)?;
        frames.push(Frame {
            key,
            names: entry.children.into_iter(),
            copies: entry.copies,
            is_last,
        });
    }
    drawing.end(&mut out)?;
    out.flush()?;
    opened.warn();
    Ok(())
}

impl Copies {
    fn below(&self, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let path = match self.path.is_empty() {
            true => name.into_owned(),
            false => format!("{}/{name}", self.path),
        };
        Self {
            of: Arc::clone(&self.of),
            path,
        }
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let names = self.of.children(&self.path).into_iter();
        names.map(|name| name.as_bytes().to_vec()).collect()
    }
}

impl Entry {
    fn broken(document: &str, why: &dyn std::fmt::Display) -> Self {
        Self {
            what: What::Broken {
                document: document.to_owned(),
                why: why.to_string(),
                is_unread: false,
            },
            notes: Vec::new(),
            children: Vec::new(),
            has_unlisted: false,
            copies: None,
        }
    }

    /// The node at a key: as copies of its metadata say, else as its own documents do.
    fn of(store: &dyn Store, key: &Key, copies: Option<Copies>, goes_down: bool) -> Self {
        if let Some(copies) = copies {
            return Self::of_copies(copies, goes_down);
        }
        let place = hierarchy::place(store, key);
        let mut entry = Self {
            what: place.what,
            notes: place.ignored,
            children: Vec::new(),
            has_unlisted: false,
            copies: None,
        };
        let is_group = match &entry.what {
            What::Node(node) => node.as_group().is_some(),
            What::Directory => true,
            What::Broken { .. } => false,
        };
        if !goes_down || !is_group {
            return entry;
        }
        if let What::Node(node) = &entry.what {
            match hierarchy::copies(store, key, node) {
                Ok(Some(found)) => {
                    let copies = Copies {
                        of: Arc::new(found),
                        path: String::new(),
                    };
                    entry.children = copies.names();
                    entry.copies = Some(copies);
                    return entry;
                }
                Ok(None) => {}
                Err(why) => entry.notes.push(format!("consolidated metadata: {why}")),
            }
        }
        match list_prefixes(store, key, usize::MAX) {
            Ok(names) => {
                entry.children = names;
                let unknown = store.incomplete_listing(key);
                entry.has_unlisted = unknown.is_some_and(|names| names.is_unlisted);
            }
            Err(error) => {
                let why = hierarchy::cause(key, &error);
                entry.notes.push(format!("can not be listed: {why}"));
            }
        }
        entry
    }

    fn of_copies(copies: Copies, goes_down: bool) -> Self {
        let what = match copies.of.node(&copies.path) {
            Some(Ok(node)) => What::Node(Box::new(node)),
            Some(Err(error)) => return Self::broken("consolidated metadata", &error),
            None => What::Directory,
        };
        let is_array = matches!(&what, What::Node(node) if node.as_array().is_some());
        let children = match goes_down && !is_array {
            true => copies.names(),
            false => Vec::new(),
        };
        Self {
            what,
            notes: Vec::new(),
            children,
            has_unlisted: false,
            copies: Some(copies),
        }
    }

    /// What is behind the name in a line.
    fn line(&self) -> Line {
        let mut line = match &self.what {
            What::Directory => Line::of(GROUP, "(directory)"),
            What::Broken { document, why, .. } => Line {
                style: WRONG,
                cells: Vec::new(),
                notes: vec![format!("{document}: {why}")],
            },
            What::Node(node) => match &**node {
                Node::Group(group) => {
                    let mut line = Line::of(GROUP, "(group)");
                    let wrong = group.attributes.as_ref().err().map(ToString::to_string);
                    let extensions = group.extensions.iter().map(ToString::to_string);
                    line.notes.extend(wrong.into_iter().chain(extensions));
                    line
                }
                Node::Array(array) => array_line(array),
            },
        };
        if self.has_unlisted
            && let Some(cell) = line.cells.last_mut()
        {
            cell.push_str(" children not known");
        }
        line.notes.extend(self.notes.iter().cloned());
        line
    }

    fn json(&self, key: &Key) -> Value {
        let mut members = Map::new();
        let path = String::from_utf8_lossy(key.as_bytes()).into_owned();
        members.insert("path".into(), path.into());
        let mut problems: Vec<Value> = Vec::new();
        match &self.what {
            What::Directory => _ = members.insert("node_type".into(), "directory".into()),
            What::Broken { document, why, .. } => {
                members.insert("node_type".into(), "broken".into());
                problems.push(format!("{document}: {why}").into());
            }
            What::Node(node) => {
                if let Value::Object(info) = node.info() {
                    members.extend(info);
                }
                if let Some(Value::Array(found)) = members.remove("problems") {
                    problems.extend(found);
                }
                if let Node::Array(array) = &**node {
                    match hierarchy::pipeline(array) {
                        Ok(pipeline) => {
                            let chain = pipeline.describe().to_owned();
                            members.insert("codec_chain".into(), chain.into());
                        }
                        Err(why) => {
                            members.insert("unreadable".into(), why.to_string().into());
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

/// `float32  (20, 30)  chunks (9, 13)  zlib  2.3 KiB`, and why it can not be read.
fn array_line(array: &Array) -> Line {
    let info = array.info();
    let cell = |name: &str| {
        let text = info.get(name).map_or_else(|| "?".to_owned(), tuple);
        shortened(&text, MAX_CELL).into_owned()
    };
    let data_type = match &array.data_type {
        Ok(data_type) => shortened(&data_type.to_string(), MAX_CELL).into_owned(),
        Err(_) => "?".to_owned(),
    };
    let pipeline = hierarchy::pipeline(array);
    let codecs = match (&pipeline, &array.codecs) {
        (Ok(pipeline), _) => pipeline.describe().to_owned(),
        (Err(_), Ok(chain)) => {
            let names: Vec<&str> = chain.specs().map(|spec| spec.name.as_str()).collect();
            names.join(" | ")
        }
        (Err(_), Err(_)) => "?".to_owned(),
    };
    let bytes = array.size_bytes().map(size).unwrap_or_default();
    let wrong = array.attributes.as_ref().err().map(ToString::to_string);
    let unreadable = pipeline.err().map(|why| why.to_string());
    Line {
        style: ARRAY,
        cells: vec![
            data_type,
            cell("shape"),
            format!("chunks {}", cell("chunk_shape")),
            shortened(&codecs, MAX_CELL).into_owned(),
            bytes,
        ],
        notes: wrong.into_iter().chain(unreadable).collect(),
    }
}

/// Writes entries as they come.
struct Drawing {
    /// None for JSON.
    lines: Option<Lines>,
    rows: Rows,
    label: String,
    entries: u64,
}

impl Drawing {
    fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        if self.lines.is_none() {
            let label = Value::from(self.label.as_str());
            write!(out, "{{\"source\":{label},\"nodes\":[")?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.rows.flush(out)?;
        if self.lines.is_none() {
            writeln!(out, "\n]}}")?;
        }
        Ok(())
    }

    /// `name` is none for the first node, else its name and whether no sibling follows.
    fn entry(
        &mut self,
        out: &mut impl Write,
        above: &[Frame],
        name: Option<(&[u8], bool)>,
        key: &Key,
        entry: &Entry,
    ) -> io::Result<()> {
        let Some(lines) = self.lines else {
            let comma = if self.entries > 0 { "," } else { "" };
            self.entries += 1;
            return write!(out, "{comma}\n{}", entry.json(key));
        };
        let line = entry.line();
        let Some((name, is_last)) = name else {
            let label = match key.is_root() {
                true => self.label.clone(),
                false => format!("{}: {}", self.label, key.display()),
            };
            return self.rows.push(out, "", &label, line);
        };
        let mut drawn = String::new();
        for frame in above.iter().skip(1) {
            drawn.push_str(match frame.is_last {
                true => lines.gap,
                false => lines.trunk,
            });
        }
        drawn.push_str(if is_last { lines.last } else { lines.branch });
        let name = String::from_utf8_lossy(name);
        self.rows.push(out, &drawn, &name, line)
    }
}
