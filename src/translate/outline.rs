//! A whole hierarchy as one document: consolidated metadata (`.zmetadata` of v2; inline in the
//! `zarr.json` of v3) and the Zarr Object Model (ZEP 6).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};

use super::Target;
use super::documents::{self, Found};
use super::node::{Translation, translate};
use crate::store::{Key, Kind, Reading, Store, StoreError, read_whole};
use crate::zarr::document::{self, MAX_DOCUMENT_BYTES};
use crate::zarr::{Consolidated, Documents, MetadataError, Node};

/// The most nodes of one document.
pub const MAX_NODES: usize = 10_000;
/// What their parsed documents may take in memory, about.
const MAX_MEMORY_BYTES: usize = 128 << 20;
/// The deepest hierarchy that is followed.
const MAX_DEPTH: usize = 64;

/// The documents of a node and of the nodes below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outline {
    /// In the order of [`documents::NAMES`].
    documents: [Option<Value>; 4],
    /// Why its documents say nothing, if they do not.
    problem: Option<String>,
    members: BTreeMap<String, Outline>,
}

/// Why there is no outline.
#[derive(Debug, Clone)]
pub enum NoOutline {
    /// It would be too large, or take a request for each node.
    Absent(String),
    /// What it is made of could not be had.
    Failed(StoreError),
}

impl From<StoreError> for NoOutline {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// What may still be read.
struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), NoOutline> {
        let absent = |what: String| NoOutline::Absent(what);
        let nodes = self.nodes.checked_sub(1);
        self.nodes = nodes.ok_or_else(|| absent("too many nodes".into()))?;
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or_else(|| absent("too many bytes of metadata".into()))?;
        Ok(())
    }
}

impl Outline {
    /// The outline of the node at a key: from consolidated metadata where the node has them, else
    /// from the documents of each node, unless the store is far away.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(store: &dyn Store, key: &Key) -> Result<Self, NoOutline> {
        Self::read_within(store, key, MAX_NODES)
    }

    /// As [`Outline::read`], of at most so many nodes where each has to be read; of copies there
    /// may be [`MAX_NODES`].
    ///
    /// # Errors
    /// As [`Outline::read`].
    pub(super) fn read_within(
        store: &dyn Store,
        key: &Key,
        most: usize,
    ) -> Result<Self, NoOutline> {
        let mut budget = Budget {
            nodes: MAX_NODES,
            bytes: MAX_MEMORY_BYTES,
        };
        let found = Found::read(store, key)?;
        let mut outline = Self::of(&found, &mut budget)?;
        match outline.node() {
            Some(Ok(Node::Array(_))) => return Ok(outline),
            Some(Ok(Node::Group(mut group))) => {
                let copies = match group.consolidated.take() {
                    Some(copies) => Some(copies),
                    None if outline.documents[0].is_none() => zmetadata_at(store, key)?,
                    None => None,
                };
                if let Some(copies) = copies {
                    outline.add_copies(&copies, &mut budget)?;
                    return Ok(outline);
                }
            }
            _ => {}
        }
        if store.promises().is_far {
            let what = "the store is far away, and the group has no consolidated metadata";
            return Err(NoOutline::Absent(what.into()));
        }
        budget.nodes = budget.nodes.min(most);
        outline.walk(store, key, 0, &mut budget)?;
        Ok(outline)
    }

    fn of(found: &Found, budget: &mut Budget) -> Result<Self, NoOutline> {
        let texts = found.texts.iter().flatten();
        let bytes = texts.map(|text| document::memory_bytes(text)).sum();
        budget.take(bytes)?;
        let mut outline = Self {
            problem: found.problem.clone(),
            ..Self::default()
        };
        for (slot, text) in outline.documents.iter_mut().zip(&found.texts) {
            match text.as_deref().map(document::parse).transpose() {
                Ok(document) => *slot = document,
                Err(error) => outline.problem = Some(error.to_string()),
            }
        }
        if outline.problem.is_some() {
            outline.documents = Default::default();
        }
        Ok(outline)
    }

    fn add_copies(&mut self, copies: &Consolidated, budget: &mut Budget) -> Result<(), NoOutline> {
        for path in copies.paths().filter(|path| !path.is_empty()) {
            budget.take(0)?;
            let mut node = &mut *self;
            for (depth, name) in path.split('/').enumerate() {
                if depth >= MAX_DEPTH {
                    return Err(NoOutline::Absent(format!("deeper than {MAX_DEPTH} groups")));
                }
                node = node.members.entry(name.to_owned()).or_default();
            }
            for (slot, name) in node.documents.iter_mut().zip(documents::NAMES) {
                *slot = copies.copy(path, name).cloned();
            }
        }
        Ok(())
    }

    fn walk(
        &mut self,
        store: &dyn Store,
        key: &Key,
        depth: usize,
        budget: &mut Budget,
    ) -> Result<(), NoOutline> {
        if depth >= MAX_DEPTH {
            return Err(NoOutline::Absent(format!("deeper than {MAX_DEPTH} groups")));
        }
        let mut names = Vec::new();
        let most = budget.nodes;
        store.list(key)?.visit(0, &mut |listed| {
            if listed.kind == Kind::Prefix && !matches!(listed.name, b"." | b"..") {
                names.push(listed.name.to_vec());
            }
            match names.len() > most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        for name in names {
            let Ok(below) = key.join(&name) else {
                continue;
            };
            // Metadata are text: no document can name it.
            let Ok(name) = String::from_utf8(name) else {
                continue;
            };
            let member = match Found::read(store, &below) {
                Ok(found) => Self::of(&found, budget)?,
                Err(error) if is_lasting(&error) => Self {
                    problem: Some(error.to_string()),
                    ..Self::default()
                },
                Err(error) => return Err(error.into()),
            };
            let member = self.members.entry(name).or_insert(member);
            if !member.is_array() && member.problem.is_none() {
                match member.walk(store, &below, depth + 1, budget) {
                    Err(NoOutline::Failed(error)) if is_lasting(&error) => {
                        member.problem = Some(error.to_string());
                    }
                    walked => walked?,
                }
            }
        }
        Ok(())
    }

    fn is_array(&self) -> bool {
        match &self.documents {
            [Some(document), ..] => document.get("node_type") == Some(&"array".into()),
            [None, zarray, ..] => zarray.is_some(),
        }
    }

    /// What the documents say, if there are any.
    fn node(&self) -> Option<Result<Node, MetadataError>> {
        let text = |document: &Option<Value>| {
            document
                .as_ref()
                .map(|document| document.to_string().into_bytes())
        };
        let [zarr_json, zarray, zgroup, zattrs] = self.documents.each_ref().map(text);
        let documents = Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
        };
        documents.node().map(|detected| detected.node)
    }

    /// The outline of what a translation shows. Nodes that are left out are not in it: `left_out`
    /// is called for each, with its key and the reason.
    pub(super) fn translated(
        self,
        target: Target,
        key: &Key,
        left_out: &mut dyn FnMut(&Key, &str),
    ) -> Option<Self> {
        if let Some(problem) = &self.problem {
            left_out(key, problem);
            return None;
        }
        let mut translated = Self::default();
        match self.node() {
            None => {}
            // Wrong, but of this version: it is shown, and has no copy.
            Some(Err(_)) if target.shows_broken(self.documents[0].is_some()) => return None,
            Some(Err(error)) => {
                left_out(key, &error.to_string());
                return None;
            }
            Some(Ok(node)) => match translate(target, &node, self.documents[0].as_ref()) {
                Translation::Same | Translation::Group(None) => {
                    translated.documents = self.documents;
                }
                Translation::Group(Some(texts)) | Translation::Array(texts, _) => {
                    for (name, text) in texts {
                        let place = documents::NAMES.iter().position(|at| *at == name);
                        let slot = place.and_then(|at| translated.documents.get_mut(at));
                        if let Some(slot) = slot {
                            *slot = Some(text);
                        }
                    }
                }
                Translation::Directory => {}
                Translation::LeftOut(why) => {
                    left_out(key, &why);
                    return None;
                }
            },
        }
        for (name, member) in self.members {
            if let Ok(below) = key.join(name.as_bytes())
                && let Some(member) = member.translated(target, &below, left_out)
            {
                translated.members.insert(name, member);
            }
        }
        Some(translated)
    }

    /// The documents of the nodes below, by their paths.
    fn below(&self) -> Vec<(String, &Self)> {
        let mut found = Vec::new();
        for (name, member) in &self.members {
            found.push((name.clone(), member));
            if !member.is_array() {
                let below = member.below().into_iter();
                found.extend(below.map(|(path, member)| (format!("{name}/{path}"), member)));
            }
        }
        found
    }

    /// `.zmetadata` of the nodes of version 2 (zarr-python's consolidated metadata).
    pub fn zmetadata(&self) -> Value {
        let mut metadata = Map::new();
        let root = [(String::new(), self)];
        for (path, node) in root.into_iter().chain(self.below()) {
            let documents = node.documents.iter().zip(documents::NAMES).skip(1);
            for (document, name) in documents {
                if let (Some(document), None) = (document, &node.documents[0]) {
                    let key = match path.as_str() {
                        "" => name.to_owned(),
                        path => format!("{path}/{name}"),
                    };
                    metadata.insert(key, document.clone());
                }
            }
        }
        json!({"metadata": metadata, "zarr_consolidated_format": 1})
    }

    /// `consolidated_metadata` of the nodes of version 3 below this one (zarr-python's inline
    /// consolidated metadata).
    pub fn consolidated_metadata(&self) -> Value {
        let members = self.below().into_iter();
        let copy = |(path, node): (String, &Self)| {
            let mut document = node.documents[0].clone()?;
            document
                .as_object_mut()?
                .shift_remove("consolidated_metadata");
            Some((path, document))
        };
        inline(members.filter_map(copy).collect())
    }

    /// The Zarr Object Model (ZEP 6) of the node: what its document says, `attributes`, and
    /// `members` of groups. None if it has no document.
    pub fn zom(&self) -> Option<Value> {
        let [zarr_json, zarray, zgroup, zattrs] = &self.documents;
        let document = zarr_json.as_ref().or(zarray.as_ref()).or(zgroup.as_ref())?;
        let mut model = document.as_object()?.clone();
        model.shift_remove("consolidated_metadata");
        if zarr_json.is_none() {
            let attributes = zattrs.clone().unwrap_or_else(|| json!({}));
            model.insert("attributes".into(), attributes);
        } else if model.get("attributes").is_none_or(Value::is_null) {
            model.insert("attributes".into(), json!({}));
        }
        if self.is_array() {
            return Some(model.into());
        }
        if let Some(other) = model.shift_remove("members") {
            let mut name = String::from("_members");
            while model.contains_key(&name) {
                name.insert(0, '_');
            }
            model.insert(name, other);
        }
        let members = self.members.iter();
        let members = members.filter_map(|(name, member)| Some((name.clone(), member.zom()?)));
        model.insert("members".into(), Value::Object(members.collect()));
        Some(model.into())
    }
}

/// zarr-python's inline consolidated metadata.
pub(super) fn inline(metadata: Map<String, Value>) -> Value {
    json!({"kind": "inline", "must_understand": false, "metadata": metadata})
}

/// Whether asking again changes nothing.
fn is_lasting(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Denied { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Unsupported { .. }
            | StoreError::TooLarge { .. }
    )
}

/// The copies that a v2 group has.
fn zmetadata_at(store: &dyn Store, key: &Key) -> Result<Option<Consolidated>, StoreError> {
    const LIMIT_BYTES: u64 = MAX_DOCUMENT_BYTES as u64;
    let Ok(key) = key.join(b".zmetadata") else {
        return Ok(None);
    };
    let text = store
        .open_for(&key, Reading::Whole(LIMIT_BYTES))
        .and_then(|object| read_whole(&*object, &key, LIMIT_BYTES));
    match text {
        // One that says nothing is as good as none.
        Ok(text) if document::memory_bytes(&text) <= MAX_MEMORY_BYTES => {
            Ok(Consolidated::from_zmetadata(&text).ok())
        }
        Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error) if is_lasting(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `zom.json` of the node at a key: the Zarr Object Model (ZEP 6) of it and all below it.
///
/// # Errors
/// Why there is none.
pub fn zom_json(store: &dyn Store, key: &Key) -> Result<Vec<u8>, NoOutline> {
    let model = Outline::read(store, key)?.zom();
    let model = model.ok_or_else(|| NoOutline::Absent("no document of a node".into()))?;
    Ok(text(&model))
}

/// `.zmetadata` of the nodes of version 2 at and below a key.
///
/// # Errors
/// Why there is none; a node of version 3 has none.
pub fn zmetadata_json(store: &dyn Store, key: &Key) -> Result<Vec<u8>, NoOutline> {
    let outline = Outline::read(store, key)?;
    if outline.documents[0].is_some() {
        let what = "consolidated metadata of version 3 are in zarr.json";
        return Err(NoOutline::Absent(what.into()));
    }
    Ok(text(&outline.zmetadata()))
}

/// A document as people like to read it.
pub(super) fn text(document: &Value) -> Vec<u8> {
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests;
