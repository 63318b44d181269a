//! What is at the top of a source that has no Zarr metadata there, and where below it a hierarchy
//! is.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;

use serde_json::Value;

use super::output::printable;
use crate::store::{Key, Kind, Store, StoreError, list_prefixes, read_to_end};

/// Any one of these makes a directory a node, or the root of a hierarchy.
pub const METADATA: [&str; 4] = ["zarr.json", ".zgroup", ".zarray", ".zmetadata"];

/// Directories that are searched for a hierarchy.
const MAX_DIRECTORIES: usize = 1_000;
/// Directories of one directory that are searched.
const MAX_CHILDREN: usize = 1_000;
/// Levels below the top that are searched.
const MAX_DEPTH: usize = 8;
/// Places that are named.
const MAX_NAMED: usize = 5;
/// Names in a directory that are counted.
const MAX_COUNTED: usize = 10_000;
/// Longer documents of other formats are not read.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// A directory without Zarr metadata, as a message says it.
#[derive(Debug)]
pub struct NoZarr {
    label: String,
    /// The directory, below the root that the source names.
    path: String,
    top: Top,
    below: Below,
}

/// What a directory is that is no Zarr node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherFormat {
    N5,
    ZarrV1,
}

#[derive(Debug)]
enum Top {
    Other(OtherFormat),
    Names { first: Vec<String>, count: usize },
}

/// Places below the top, as `--path` takes them.
#[derive(Debug, Default)]
struct Below {
    hierarchies: Vec<String>,
    others: Vec<(String, OtherFormat)>,
    is_more: bool,
}

/// Says what is at `root` if it is proven to be no Zarr node. `base` is the key that the source
/// itself names, to which `--path` is relative.
pub fn no_zarr(store: &dyn Store, base: &Key, root: &Key) -> Option<NoZarr> {
    // What cannot be looked at may be a node.
    if has_metadata(store, root).unwrap_or(true) {
        return None;
    }
    let top = match other_format(store, root) {
        Some(other) => Top::Other(other),
        None => names(store, root).ok()?,
    };
    Some(NoZarr {
        label: store.label().to_owned(),
        path: relative(root, base),
        top,
        below: search(store, base, root),
    })
}

/// Whether a directory has Zarr metadata.
///
/// # Errors
/// The store's, if neither presence nor absence is proven.
fn has_metadata(store: &dyn Store, directory: &Key) -> Result<bool, StoreError> {
    for name in METADATA {
        let Ok(key) = directory.join(name.as_bytes()) else {
            continue;
        };
        match store.stat(&key) {
            Ok(stat) if stat.kind == Kind::Object => return Ok(true),
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn other_format(store: &dyn Store, key: &Key) -> Option<OtherFormat> {
    let document = |name: &[u8]| -> Option<Value> {
        let key = key.join(name).ok()?;
        let object = store.open(&key).ok()?;
        let text = read_to_end(&*object, &key, MAX_DOCUMENT_BYTES).ok()?;
        serde_json::from_slice(&text).ok()
    };
    let has = |value: &Value, names: &[&str]| names.iter().all(|name| value.get(name).is_some());
    if let Some(attributes) = document(b"attributes.json")
        && (has(&attributes, &["n5"]) || has(&attributes, &["dimensions", "blockSize", "dataType"]))
    {
        return Some(OtherFormat::N5);
    }
    let meta = document(b"meta")?;
    has(&meta, &["zarr_format", "shape", "chunks"]).then_some(OtherFormat::ZarrV1)
}

fn names(store: &dyn Store, key: &Key) -> Result<Top, StoreError> {
    let mut names = Vec::new();
    store.list(key)?.visit(0, &mut |listed| {
        if !matches!(listed.name, b"." | b"..") {
            let slash = if listed.kind == Kind::Prefix { "/" } else { "" };
            names.push(format!("{}{slash}", String::from_utf8_lossy(listed.name)));
        }
        match names.len() < MAX_COUNTED {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    names.sort();
    let count = names.len();
    names.truncate(3);
    Ok(Top::Names {
        first: names,
        count,
    })
}

/// Looks for hierarchies level by level, and not below those that it finds.
fn search(store: &dyn Store, base: &Key, root: &Key) -> Below {
    let mut below = Below::default();
    let mut pending = VecDeque::from([(root.clone(), 0)]);
    let mut searched = 0;
    while let Some((directory, depth)) = pending.pop_front() {
        let Ok(children) = list_prefixes(store, &directory, MAX_CHILDREN) else {
            continue;
        };
        for name in children {
            let Ok(key) = directory.join(&name) else {
                continue;
            };
            searched += 1;
            if searched > MAX_DIRECTORIES {
                return below;
            }
            let Ok(is_node) = has_metadata(store, &key) else {
                continue;
            };
            if is_node {
                if below.hierarchies.len() == MAX_NAMED {
                    below.is_more = true;
                    return below;
                }
                below.hierarchies.push(relative(&key, base));
            } else if let Some(other) = other_format(store, &key) {
                below.others.push((relative(&key, base), other));
            } else if depth < MAX_DEPTH {
                pending.push_back((key, depth + 1));
            }
        }
    }
    below
}

fn relative(key: &Key, base: &Key) -> String {
    let path = key.as_bytes().strip_prefix(base.as_bytes());
    let path = path.unwrap_or(key.as_bytes());
    String::from_utf8_lossy(path)
        .trim_start_matches('/')
        .to_owned()
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=@,:".contains(c);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

impl fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::N5 => "N5, which is not supported by this version",
            Self::ZarrV1 => "Zarr version 1, which is not supported by this version",
        })
    }
}

impl NoZarr {
    /// What is there, without the source's name.
    pub fn what(&self) -> String {
        let what = match &self.top {
            Top::Other(other) => format!("it is {other}"),
            Top::Names { count: 0, .. } => "it is empty".to_owned(),
            Top::Names { first, count } => {
                let more = match *count {
                    MAX_COUNTED => ", and many more".to_owned(),
                    count if count > first.len() => format!(", and {} more", count - first.len()),
                    _ => String::new(),
                };
                format!("it holds {}{more}", first.join(", "))
            }
        };
        let hierarchies = self.below.hierarchies.iter();
        let paths: Vec<String> = hierarchies
            .map(|path| format!("--path {}", quoted(path)))
            .collect();
        let more = if self.below.is_more { ", and more" } else { "" };
        let below = match (&paths[..], &self.below.others[..]) {
            ([], []) => String::new(),
            ([], _) if matches!(self.top, Top::Other(_)) => String::new(),
            ([], [(path, other), ..]) => format!("; {path} in it is {other}"),
            ([path], _) => format!("; a Zarr hierarchy is below it: {path}"),
            (paths, _) => format!(
                "; Zarr hierarchies are below it: {}{more}",
                paths.join(", ")
            ),
        };
        let text = format!("no Zarr metadata (zarr.json, .zgroup or .zarray) here: {what}{below}");
        printable(&text).into_owned()
    }
}

impl fmt::Display for NoZarr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, path, .. } = self;
        match path.is_empty() {
            true => write!(f, "{}: {}", printable(label), self.what()),
            false => write!(
                f,
                "{}: {}: {}",
                printable(label),
                printable(path),
                self.what()
            ),
        }
    }
}
