//! A whole hierarchy as one document: consolidated metadata (`.zmetadata` of v2; inline in the
//! `zarr.json` of v3) and the Zarr Object Model (ZEP 6).

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::Target;
use super::documents::{self, Found};
use super::node::{Translation, translate};
use crate::array::{Engine, Reservation};
use crate::store::{Key, Reading, Store, StoreError, may_wait, prefixes_below, read_whole};
use crate::zarr::document::{self, MAX_DOCUMENT_BYTES};
use crate::zarr::{Consolidated, Documents, MetadataError, Node};

/// The most nodes of one document.
pub(super) const MAX_NODES: usize = 10_000;
/// What their parsed documents, and what is made of them, may take in memory, about: this, and no
/// more than this part of all that there may be.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
const MAX_MEMORY_PART: u64 = 4;
/// Memory is reserved for many small documents at once.
const RESERVED_AT_ONCE: u64 = 256 << 10;
/// The deepest hierarchy that is followed.
const MAX_DEPTH: usize = 64;

/// The documents of a node and of the nodes below it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outline {
    /// In the order of [`documents::NAMES`].
    documents: [Option<Value>; 4],
    problem: Option<Problem>,
    members: BTreeMap<String, Outline>,
}

/// Why the documents of a node say nothing.
#[derive(Debug, PartialEq)]
enum Problem {
    /// They, or the names below it, could not be read: there may be anything.
    Unread(String),
    /// They were read, and are no metadata.
    Wrong(String),
}

impl Problem {
    fn why(&self) -> &str {
        match self {
            Self::Unread(why) | Self::Wrong(why) => why,
        }
    }
}

/// An outline that was read.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) outline: Outline,
    /// When the last of what was read was changed.
    pub(super) modified: SystemTime,
    _memory: Vec<Reservation>,
}

/// Why there is no document of a whole hierarchy.
#[derive(Debug, Clone)]
pub enum NoOutline {
    /// It can not be made: it would be too large, or take a request for each node, or lack nodes
    /// that can not be read.
    Absent(String),
    /// What it is made of could not be had.
    Failed(StoreError),
}

impl From<StoreError> for NoOutline {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// What may still be read, and what was.
struct Budget<'a> {
    engine: &'a Engine,
    nodes: usize,
    bytes: u64,
    modified: SystemTime,
    memory: Vec<Reservation>,
    /// What of the memory is not taken.
    spare_bytes: u64,
}

impl<'a> Budget<'a> {
    fn new(engine: &'a Engine) -> Self {
        let most = engine.memory_limit_bytes() / MAX_MEMORY_PART;
        Self {
            engine,
            nodes: MAX_NODES,
            bytes: most.min(MAX_MEMORY_BYTES),
            modified: UNIX_EPOCH,
            memory: Vec::new(),
            spare_bytes: 0,
        }
    }

    fn take_node(&mut self) -> Result<(), NoOutline> {
        let nodes = self.nodes.checked_sub(1);
        self.nodes = nodes.ok_or_else(|| NoOutline::Absent("too many nodes".into()))?;
        Ok(())
    }

    fn take_bytes(&mut self, key: &Key, bytes: u64) -> Result<(), NoOutline> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or_else(|| NoOutline::Absent("too many bytes of metadata".into()))?;
        if self.spare_bytes < bytes {
            let missing = bytes.saturating_sub(self.spare_bytes);
            let more = missing.saturating_add(self.bytes.min(RESERVED_AT_ONCE));
            self.memory.push(self.engine.reserve_now(key, more)?);
            self.spare_bytes = self.spare_bytes.saturating_add(more);
        }
        self.spare_bytes = self.spare_bytes.saturating_sub(bytes);
        Ok(())
    }
}

impl Hierarchy {
    /// The outline of the node at a key: from consolidated metadata where the node has them, else
    /// from the documents of each node, unless the store is far away; then of at most so many
    /// nodes. Nodes that can not be read say so.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn read(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, NoOutline> {
        // All documents of a hierarchy are not at hand wherever they are.
        may_wait(key)?;
        let mut budget = Budget::new(engine);
        let outline = Outline::read(store, key, most, &mut budget)?;
        Ok(Self {
            outline,
            modified: budget.modified,
            _memory: budget.memory,
        })
    }

    /// As [`Hierarchy::read`], of all nodes that there are: who is given this one as the whole
    /// looks for no others.
    ///
    /// # Errors
    /// Why there is none; [`NoOutline::Absent`] if a node can not be read.
    pub(super) fn read_all(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, NoOutline> {
        let read = Self::read(store, key, engine, most).map_err(|none| match none {
            NoOutline::Failed(error) if is_lasting(&error) => unread(&error.to_string()),
            none => none,
        })?;
        match read.outline.unread() {
            Some(why) => Err(unread(why)),
            None => Ok(read),
        }
    }
}

/// What parsed documents take in memory, about, and what is made of them as much again.
fn twice<'a>(texts: impl IntoIterator<Item = &'a Vec<u8>>) -> u64 {
    let bytes = texts.into_iter().map(|text| document::memory_bytes(text));
    (bytes.sum::<usize>() as u64).saturating_mul(2)
}

fn unread(why: &str) -> NoOutline {
    NoOutline::Absent(format!("not all of it can be read: {why}"))
}

impl Outline {
    fn read(
        store: &dyn Store,
        key: &Key,
        most: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Self, NoOutline> {
        let found = Found::read(store, key)?;
        let mut outline = Self::of(key, &found, budget)?;
        match outline.node() {
            Some(Ok(Node::Array(_))) => return Ok(outline),
            Some(Ok(Node::Group(mut group))) => {
                let copies = match group.consolidated.take() {
                    Some(copies) => {
                        budget.take_bytes(key, twice(found.texts.iter().flatten()))?;
                        Some(copies)
                    }
                    None if outline.documents[0].is_none() => zmetadata_at(store, key, budget)?,
                    None => None,
                };
                if let Some(copies) = copies {
                    outline.add_copies(&copies, budget)?;
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
        outline.walk(store, key, 0, budget)?;
        Ok(outline)
    }

    fn of(key: &Key, found: &Found, budget: &mut Budget<'_>) -> Result<Self, NoOutline> {
        budget.take_node()?;
        budget.take_bytes(key, twice(found.texts.iter().flatten()))?;
        budget.modified = budget.modified.max(found.modified);
        let within = |why: &str| match key.is_root() {
            true => why.to_owned(),
            false => format!("{key}/{why}"),
        };
        let mut outline = Self {
            problem: found.problem.as_deref().map(within).map(Problem::Unread),
            ..Self::default()
        };
        for ((slot, name), text) in outline
            .documents
            .iter_mut()
            .zip(documents::NAMES)
            .zip(&found.texts)
        {
            match text.as_deref().map(document::parse).transpose() {
                Ok(document) => *slot = document,
                Err(error) => {
                    outline.problem = Some(Problem::Wrong(format!("{name}: {error}")));
                }
            }
        }
        if outline.problem.is_some() {
            outline.documents = Default::default();
        }
        Ok(outline)
    }

    fn add_copies(
        &mut self,
        copies: &Consolidated,
        budget: &mut Budget<'_>,
    ) -> Result<(), NoOutline> {
        for path in copies.paths().filter(|path| !path.is_empty()) {
            budget.take_node()?;
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
        budget: &mut Budget<'_>,
    ) -> Result<(), NoOutline> {
        if depth >= MAX_DEPTH {
            return Err(NoOutline::Absent(format!("deeper than {MAX_DEPTH} groups")));
        }
        for name in prefixes_below(store, key, budget.nodes)? {
            let Ok(below) = key.join(&name) else {
                continue;
            };
            // Metadata are text: no document can name it.
            let Ok(name) = String::from_utf8(name) else {
                continue;
            };
            let mut member = match Found::read(store, &below) {
                Ok(found) => Self::of(&below, &found, budget)?,
                Err(error) if is_lasting(&error) => Self {
                    problem: Some(Problem::Unread(error.to_string())),
                    ..Self::default()
                },
                Err(error) => return Err(error.into()),
            };
            if !member.is_array() && member.problem.is_none() {
                match member.walk(store, &below, depth + 1, budget) {
                    // It was there a moment ago.
                    Err(NoOutline::Failed(
                        StoreError::NotFound { .. } | StoreError::NotAPrefix { .. },
                    )) => continue,
                    Err(NoOutline::Failed(error)) if is_lasting(&error) => {
                        member.problem = Some(Problem::Unread(error.to_string()));
                    }
                    walked => walked?,
                }
            }
            self.members.insert(name, member);
        }
        Ok(())
    }

    /// Why a node of it could not be read, if there is one.
    pub(super) fn unread(&self) -> Option<&str> {
        match &self.problem {
            Some(Problem::Unread(why)) => Some(why),
            _ => self.members.values().find_map(Self::unread),
        }
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

    /// What a translation makes of the node; none if it is wrong, and shown as it is.
    fn translation(&self, target: Target) -> Option<Translation> {
        if let Some(problem) = &self.problem {
            return Some(Translation::LeftOut(problem.why().to_owned()));
        }
        match self.node() {
            None => Some(Translation::Directory),
            Some(Err(_)) if target.shows_broken(self.documents[0].is_some()) => None,
            Some(Err(error)) => Some(Translation::LeftOut(error.to_string())),
            Some(Ok(node)) => Some(translate(target, &node, self.documents[0].as_ref())),
        }
    }

    /// The outline of what a translation shows. Nodes that are left out are not in it.
    pub(super) fn translated(self, target: Target) -> Option<Self> {
        let mut translated = Self::default();
        match self.translation(target)? {
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
            Translation::LeftOut(_) => return None,
        }
        for (name, member) in self.members {
            if let Some(member) = member.translated(target) {
                translated.members.insert(name, member);
            }
        }
        Some(translated)
    }

    /// Calls `tell` for each node that a translation leaves out, with its key and the reason.
    pub(super) fn left_out(&self, target: Target, key: &Key, tell: &mut dyn FnMut(&Key, &str)) {
        match self.translation(target) {
            None => {}
            Some(Translation::LeftOut(why)) => tell(key, &why),
            Some(_) => {
                for (name, member) in &self.members {
                    if let Ok(below) = key.join(name.as_bytes()) {
                        member.left_out(target, &below, tell);
                    }
                }
            }
        }
    }

    /// Whether a translation makes consolidated metadata for this node from those below it.
    pub(super) fn is_consolidated(&self, target: Target) -> bool {
        let translation = self.translation(target);
        target != Target::Unsharded && matches!(translation, Some(Translation::Group(Some(_))))
    }

    /// Why a node of it is no metadata, if there is one.
    fn wrong(&self) -> Option<String> {
        if let Some(Problem::Wrong(why)) = &self.problem {
            return Some(why.clone());
        }
        let mut members = self.members.iter();
        members.find_map(|(name, member)| Some(format!("{name}/{}", member.wrong()?)))
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
    pub(super) fn zmetadata(&self) -> Value {
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
    pub(super) fn consolidated_metadata(&self) -> Value {
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

    /// The Zarr Object Model (ZEP 6) of the node at a key: what its document says, `attributes`,
    /// and `members` of groups. None if it has no document; `notes` gets why.
    fn zom(&self, key: &Key, notes: &mut Vec<String>) -> Option<Value> {
        let mut leave_out = |why: &str| notes.push(format!("without {key}: {why}"));
        if let Some(problem) = &self.problem {
            leave_out(problem.why());
            return None;
        }
        let [zarr_json, zarray, zgroup, zattrs] = &self.documents;
        let Some(document) = zarr_json.as_ref().or(zarray.as_ref()).or(zgroup.as_ref()) else {
            if self.has_documents() {
                leave_out("no document says that it is a group");
            }
            return None;
        };
        let Some(mut model) = document.as_object().cloned() else {
            leave_out("its document is no object");
            return None;
        };
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
        let mut members = Map::new();
        for (name, member) in &self.members {
            if let Ok(below) = key.join(name.as_bytes())
                && let Some(member) = member.zom(&below, notes)
            {
                members.insert(name.clone(), member);
            }
        }
        model.insert("members".into(), members.into());
        Some(model.into())
    }

    /// Whether there is a document in it, or below.
    fn has_documents(&self) -> bool {
        self.documents.iter().any(Option::is_some)
            || self.problem.is_some()
            || self.members.values().any(Self::has_documents)
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
fn zmetadata_at(
    store: &dyn Store,
    key: &Key,
    budget: &mut Budget<'_>,
) -> Result<Option<Consolidated>, NoOutline> {
    const LIMIT_BYTES: u64 = MAX_DOCUMENT_BYTES as u64;
    let Ok(key) = key.join(b".zmetadata") else {
        return Ok(None);
    };
    let read = || {
        let object = store.open_for(&key, Reading::Whole(LIMIT_BYTES))?;
        let text = read_whole(&*object, &key, LIMIT_BYTES)?;
        Ok((text, object.stat()?.modified))
    };
    match read() {
        Ok((text, modified)) => {
            let bytes = twice([&text]);
            if bytes > budget.bytes {
                return Ok(None);
            }
            budget.take_bytes(&key, bytes)?;
            // One that says nothing is as good as none.
            let Ok(copies) = Consolidated::from_zmetadata(&text) else {
                return Ok(None);
            };
            budget.modified = budget.modified.max(modified);
            Ok(Some(copies))
        }
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error) if is_lasting(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A document of a whole hierarchy.
#[derive(Debug)]
pub struct Whole {
    /// The document.
    pub text: Vec<u8>,
    /// What is not in it and why, for people.
    pub notes: Vec<String>,
}

/// `zom.json` of the node at a key: the Zarr Object Model (ZEP 6) of it and all below it.
///
/// # Errors
/// Why there is none.
pub fn zom_json(store: &dyn Store, key: &Key, engine: &Engine) -> Result<Whole, NoOutline> {
    let read = Hierarchy::read_all(store, key, engine, MAX_NODES)?;
    let mut notes = Vec::new();
    let model = read.outline.zom(key, &mut notes);
    let model = model.ok_or_else(|| NoOutline::Absent("no document of a node".into()))?;
    let text = text(&model);
    Ok(Whole { text, notes })
}

/// `.zmetadata` of the nodes of version 2 at and below a key.
///
/// # Errors
/// Why there is none; a node of version 3 has none, and neither have nodes of which one has a
/// document that is no JSON: who reads copies looks for no others.
pub fn zmetadata_json(store: &dyn Store, key: &Key, engine: &Engine) -> Result<Whole, NoOutline> {
    let Hierarchy { outline, .. } = &Hierarchy::read_all(store, key, engine, MAX_NODES)?;
    if outline.documents[0].is_some() {
        let what = "consolidated metadata of version 3 are in zarr.json";
        return Err(NoOutline::Absent(what.into()));
    }
    if let Some(why) = outline.wrong() {
        return Err(NoOutline::Absent(format!("a document has no copy: {why}")));
    }
    Ok(Whole {
        text: text(&outline.zmetadata()),
        notes: Vec::new(),
    })
}

/// A document as people like to read it.
pub(super) fn text(document: &Value) -> Vec<u8> {
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests;
