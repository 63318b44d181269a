//! An outline as a store has it: from the documents of each node, or from copies of them.

use std::time::{SystemTime, UNIX_EPOCH};

use super::super::copies::Copies;
use super::super::documents::{self, Found};
use super::{MAX_NODES, NoOutline, Outline, Problem};
use crate::array::{Engine, Reservation};
use crate::store::{
    AccessHint, Key, Store, StoreError, Version, list_prefixes, may_wait, read_to_end,
};
use crate::zarr::document::{self, MAX_DOCUMENT_BYTES};
use crate::zarr::{Consolidated, Node};

/// What their parsed documents, and what is made of them, may take in memory, about: this, and no
/// more than this part of all that there may be.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
const MAX_MEMORY_PART: u64 = 4;
/// Memory is reserved for many small documents at once.
const RESERVED_AT_ONCE: u64 = 256 << 10;
/// The most nodes of which documents are read one by one from a remote store.
const MAX_REMOTE_NODES: usize = 1000;
/// The deepest hierarchy that is followed.
const MAX_DEPTH: usize = 64;

/// An outline that was read.
#[derive(Debug)]
pub(in crate::translate) struct Hierarchy {
    pub(in crate::translate) outline: Outline,
    /// When the last of what was read was changed.
    pub(in crate::translate) modified: SystemTime,
    _memory: Vec<Reservation>,
}

/// Copies, and the document that they are in with its version.
type Copied = (Consolidated, (Key, Version));

/// What may still be read, and what was.
struct Budget<'a> {
    engine: &'a Engine,
    nodes: usize,
    bytes: u64,
    /// What one node may take.
    most_bytes: u64,
    modified: SystemTime,
    memory: Vec<Reservation>,
    /// What of the memory is not taken.
    spare_bytes: u64,
}

impl<'a> Budget<'a> {
    fn new(engine: &'a Engine) -> Self {
        let most = engine.memory_limit_bytes() / MAX_MEMORY_PART;
        let most_bytes = most.min(MAX_MEMORY_BYTES);
        Self {
            engine,
            nodes: MAX_NODES,
            bytes: most_bytes,
            most_bytes,
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
    /// The outline of the node at a key: from the documents of each node, of at most so many, or
    /// from the consolidated metadata that it has if the store is far away. Nodes that can not be read say so.
    ///
    /// # Errors
    /// Why there is none.
    pub(in crate::translate) fn read(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, NoOutline> {
        Self::read_up_to(store, key, engine, [most, 0])
    }

    /// As [`Hierarchy::read_all`], also from the documents of a remote store whose names are known.
    ///
    /// # Errors
    /// Why there is none.
    pub(in crate::translate) fn read_documents(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
    ) -> Result<Self, NoOutline> {
        let most = [MAX_NODES, MAX_REMOTE_NODES];
        whole(Self::read_up_to(store, key, engine, most))
    }

    /// `most` are the nodes that are read one by one: of a local store, of a remote one.
    fn read_up_to(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: [usize; 2],
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
    pub(in crate::translate) fn read_all(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, NoOutline> {
        whole(Self::read(store, key, engine, most))
    }
}

/// A hierarchy of which every node was read.
fn whole(read: Result<Hierarchy, NoOutline>) -> Result<Hierarchy, NoOutline> {
    let read = read.map_err(|none| match none {
        NoOutline::Failed(error) if error.is_lasting() => unread(&error.to_string()),
        none => none,
    })?;
    match read.outline.unread() {
        Some(why) => Err(unread(why)),
        None => Ok(read),
    }
}

/// What parsed documents take in memory, about, and what is made of them as much again.
fn twice<'a>(texts: impl IntoIterator<Item = &'a Vec<u8>>) -> u64 {
    let bytes = texts.into_iter().map(|text| document::memory_bytes(text));
    (bytes.sum::<usize>() as u64).saturating_mul(2)
}

/// The part of a path below another one; none if it is not below it.
fn path_below<'a>(path: &'a str, above: &[u8]) -> Option<&'a str> {
    if above.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(std::str::from_utf8(above).ok()?)?;
    rest.strip_prefix('/')
}

fn unread(why: &str) -> NoOutline {
    NoOutline::Absent(format!("not all of it can be read: {why}"))
}

impl Outline {
    fn read(
        store: &dyn Store,
        key: &Key,
        [most, most_remote]: [usize; 2],
        budget: &mut Budget<'_>,
    ) -> Result<Self, NoOutline> {
        let found = Found::read(store, key)?;
        let mut outline = Self::of(key, &found, budget)?;
        if matches!(outline.node(), Some(Ok(Node::Array(_)))) {
            return Ok(outline);
        }
        if store.capabilities().is_remote {
            if let Some((copies, _)) = outline.copies(store, key, &found, budget)? {
                outline.add_copies(&copies, b"", budget)?;
                return Ok(outline);
            }
            if outline.add_copies_above(store, key, budget)? {
                return Ok(outline);
            }
            // The names in a zip are known; their documents take a request each.
            if store.index().is_none() || most_remote == 0 {
                let what = "the store is remote, and neither the group nor one above it has \
                            consolidated metadata";
                return Err(NoOutline::Absent(what.into()));
            }
            budget.nodes = budget.nodes.min(most_remote);
        }
        budget.nodes = budget.nodes.min(most);
        outline.walk(store, key, 0, budget)?;
        Ok(outline)
    }

    /// The copies that it has if it is a group, and the document that they are in.
    fn copies(
        &self,
        store: &dyn Store,
        key: &Key,
        found: &Found,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Copied>, NoOutline> {
        let Some(Ok(Node::Group(group))) = self.node() else {
            return Ok(None);
        };
        match (group.consolidated, &found.array) {
            (Some(copies), Some(document)) => {
                budget.take_bytes(key, twice(found.texts.iter().flatten()))?;
                Ok(Some((copies, document.clone())))
            }
            (None, _) if self.documents[0].is_none() => zmetadata_at(store, key, budget),
            _ => Ok(None),
        }
    }

    fn of(key: &Key, found: &Found, budget: &mut Budget<'_>) -> Result<Self, NoOutline> {
        budget.take_node()?;
        let bytes = twice(found.texts.iter().flatten());
        budget.modified = budget.modified.max(found.modified);
        let problem = found.problem.clone().or_else(|| {
            let is_too_large = bytes > budget.most_bytes;
            is_too_large.then(|| {
                let name = documents::NAMES.iter().zip(&found.texts);
                let name = name
                    .rev()
                    .find_map(|(name, text)| text.as_ref().map(|_| *name));
                format!("{}: its metadata are too large", name.unwrap_or_default())
            })
        });
        if problem.is_some() {
            return Ok(Self {
                problem: problem.map(Problem::Wrong),
                ..Self::default()
            });
        }
        budget.take_bytes(key, bytes)?;
        let mut outline = Self::default();
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

    /// Adds the nodes below a key that the nearest group above it has copies of; says whether there
    /// is one that has a copy of the node itself.
    fn add_copies_above(
        &mut self,
        store: &dyn Store,
        key: &Key,
        budget: &mut Budget<'_>,
    ) -> Result<bool, NoOutline> {
        let mut above = key.clone();
        while !above.is_root() {
            above = above.parent();
            let found = match Found::read(store, &above) {
                Err(error) if error.is_lasting() => return Ok(false),
                found => found?,
            };
            let group = Self::of(&above, &found, budget)?;
            let Some((copies, _)) = group.copies(store, &above, &found, budget)? else {
                continue;
            };
            let path = key.below(&above).unwrap_or_default();
            let has_node = |path| copies.documents(path).next().is_some();
            if !std::str::from_utf8(path).is_ok_and(has_node) {
                return Ok(false);
            }
            self.add_copies(&copies, path, budget)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds the copies of the nodes below a path.
    fn add_copies(
        &mut self,
        copies: &Consolidated,
        below: &[u8],
        budget: &mut Budget<'_>,
    ) -> Result<(), NoOutline> {
        for full_path in copies.paths() {
            let Some(path) = path_below(full_path, below).filter(|path| !path.is_empty()) else {
                continue;
            };
            budget.take_node()?;
            let mut node = &mut *self;
            for (depth, name) in path.split('/').enumerate() {
                if depth >= MAX_DEPTH {
                    return Err(NoOutline::Absent(format!("deeper than {MAX_DEPTH} groups")));
                }
                node = node.members.entry(name.to_owned()).or_default();
            }
            for (slot, name) in node.documents.iter_mut().zip(documents::NAMES) {
                *slot = copies.copy(full_path, name).cloned();
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
        for name in list_prefixes(store, key, budget.nodes)? {
            let Ok(below) = key.join(&name) else {
                continue;
            };
            // Metadata are text: no document can name it.
            let Ok(name) = String::from_utf8(name) else {
                continue;
            };
            let mut member = match Found::read(store, &below) {
                Ok(found) => Self::of(&below, &found, budget)?,
                Err(error) if error.is_lasting() => Self {
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
                    Err(NoOutline::Failed(error)) if error.is_lasting() => {
                        member.problem = Some(Problem::Unread(error.to_string()));
                    }
                    walked => walked?,
                }
            }
            self.members.insert(name, member);
        }
        Ok(())
    }
}

/// The copies that the group at a key has, if it is one, and has any that can be made use of.
///
/// # Errors
/// Those of the store, unless asking again changes nothing.
pub(in crate::translate) fn copies_at(
    store: &dyn Store,
    key: &Key,
    engine: &Engine,
) -> Result<Option<Copies>, StoreError> {
    let mut budget = Budget::new(engine);
    let found = Found::read(store, key)?;
    let read = Outline::of(key, &found, &mut budget)
        .and_then(|outline| outline.copies(store, key, &found, &mut budget));
    match read {
        Ok(Some((nodes, document))) if nodes.paths().count() <= MAX_NODES => Ok(Some(Copies {
            nodes,
            modified: budget.modified,
            document,
            _memory: budget.memory,
        })),
        Ok(_) | Err(NoOutline::Absent(_)) => Ok(None),
        Err(NoOutline::Failed(error)) => Err(error),
    }
}

/// The copies that a v2 group has, and the document that they are in.
fn zmetadata_at(
    store: &dyn Store,
    key: &Key,
    budget: &mut Budget<'_>,
) -> Result<Option<Copied>, NoOutline> {
    const LIMIT_BYTES: u64 = MAX_DOCUMENT_BYTES as u64;
    let Ok(key) = key.join(b".zmetadata") else {
        return Ok(None);
    };
    let read = || {
        let object = store.open_for(&key, AccessHint::Whole(LIMIT_BYTES))?;
        let text = read_to_end(&*object, &key, LIMIT_BYTES)?;
        Ok((text, object.version(), object.stat()?.modified))
    };
    match read() {
        Ok((text, version, modified)) => {
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
            Ok(Some((copies, (key, version))))
        }
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error) if error.is_lasting() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
