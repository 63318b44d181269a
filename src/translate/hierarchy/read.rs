//! Reads a tree of documents from a store: from the documents of each node, or from consolidated metadata.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::super::source_consolidated::SourceConsolidated;
use super::super::{Target, text};
use super::{DocumentProblem, DocumentTree, HierarchyError, MAX_NODES};
use crate::array::{Engine, Reservation};
use crate::hierarchy::{Document, NODE_DOCUMENT_NAMES, NodeDocuments, read_document};
use crate::runtime::leave_session_thread;
use crate::store::{DocumentRef, Key, Store, StoreError, Version, list_prefixes};
use crate::zarr::{Consolidated, Node, ZarrFormat, document};

/// The largest memory of parsed documents and of what is made of them, in bytes, and the
/// divisor of the memory limit that limits it too.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
const MAX_MEMORY_PART: u64 = 4;
/// The number of bytes that are reserved at once for many small documents.
const RESERVED_AT_ONCE: u64 = 256 << 10;
/// The largest number of nodes whose documents are read one by one from a remote store.
const MAX_REMOTE_NODES: usize = 1000;
/// The largest depth of a hierarchy.
const MAX_DEPTH: usize = 64;

/// The documents of a node and of all nodes below it, with their memory.
#[derive(Debug)]
pub struct Hierarchy {
    pub(in crate::translate) tree: DocumentTree,
    /// The time of the last modification of any document.
    pub(in crate::translate) modified: SystemTime,
    _memory: Vec<Reservation>,
}

/// Consolidated metadata, and the key and version of the document that contains them.
type ConsolidatedDocument = (Consolidated, (Key, Version));

/// The remaining limits of a read, and the memory reserved so far.
struct Budget<'a> {
    engine: &'a Engine,
    nodes: usize,
    bytes: u64,
    /// The largest metadata of one node, in bytes.
    most_bytes: u64,
    modified: SystemTime,
    memory: Vec<Reservation>,
    /// Reserved but unused memory, in bytes.
    spare_bytes: u64,
    /// The documents of the arrays of objects, by the keys of the arrays.
    objects: HashMap<Key, (Key, Version)>,
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
            objects: HashMap::new(),
        }
    }

    fn take_node(&mut self) -> Result<(), HierarchyError> {
        let nodes = self.nodes.checked_sub(1);
        self.nodes = nodes.ok_or_else(too_many_nodes)?;
        Ok(())
    }

    fn take_bytes(&mut self, key: &Key, bytes: u64) -> Result<(), HierarchyError> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes =
            left.ok_or_else(|| HierarchyError::Absent("too many bytes of metadata".into()))?;
        if self.spare_bytes < bytes {
            let more = bytes - self.spare_bytes + self.bytes.min(RESERVED_AT_ONCE);
            self.memory.push(self.engine.reserve_now(key, more)?);
            self.spare_bytes += more;
        }
        self.spare_bytes -= bytes;
        Ok(())
    }
}

impl Hierarchy {
    /// Reads the tree of the node at a key, from the documents of at most `most` nodes, or from
    /// consolidated metadata if the store is remote. Unreadable nodes contain the reason.
    ///
    /// # Errors
    /// The reason why the hierarchy cannot be read.
    pub(in crate::translate) async fn read(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, HierarchyError> {
        Self::read_up_to(store, key, engine, [most, 0]).await
    }

    /// Reads the node at a key and up to 10,000 nodes below it: from their documents, or, in a remote store, from
    /// consolidated metadata, or from up to 1,000 documents whose names are known.
    ///
    /// # Errors
    /// The reason why the hierarchy cannot be read.
    pub async fn read_documents(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
    ) -> Result<Self, HierarchyError> {
        let most = [MAX_NODES, MAX_REMOTE_NODES];
        Self::read_up_to(store, key, engine, most).await
    }

    /// As [`Hierarchy::read_documents`], but reads the documents of a remote store only from consolidated metadata.
    ///
    /// # Errors
    /// The reason why the hierarchy cannot be read.
    pub async fn read_for_diagnostics(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
    ) -> Result<Self, HierarchyError> {
        Self::read(store, key, engine, MAX_NODES).await
    }

    /// `most` are the largest numbers of nodes that are read one by one from a local and from a remote store.
    async fn read_up_to(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: [usize; 2],
    ) -> Result<Self, HierarchyError> {
        leave_session_thread().await;
        let mut budget = Budget::new(engine);
        let mut tree = DocumentTree::read(store, key, most, &mut budget).await?;
        tree.find_texts(store, key, engine, &budget.objects).await?;
        Ok(Self {
            tree,
            modified: budget.modified,
            _memory: budget.memory,
        })
    }

    /// As [`Hierarchy::read`], but fails if any node is unreadable: readers of the result read no documents.
    ///
    /// # Errors
    /// The reason why the hierarchy cannot be read; [`HierarchyError::Absent`] if a node cannot be read.
    pub(in crate::translate) async fn read_all(
        store: &dyn Store,
        key: &Key,
        engine: &Engine,
        most: usize,
    ) -> Result<Self, HierarchyError> {
        let read = Self::read(store, key, engine, most).await;
        complete(read.as_ref().map_err(Clone::clone))?;
        read
    }
}

/// Fails if any node of a hierarchy could not be read.
pub(super) fn complete(
    read: Result<&Hierarchy, HierarchyError>,
) -> Result<&Hierarchy, HierarchyError> {
    let read = read.map_err(|none| match none {
        HierarchyError::Failed(error) if error.is_lasting() => unreadable_error(&error.to_string()),
        none => none,
    })?;
    match read.tree.unreadable() {
        Some(why) => Err(unreadable_error(why)),
        None => Ok(read),
    }
}

/// Returns the approximate size of parsed documents, of the nodes that they describe, and of the documents rendered from
/// them: three times that of the parsed documents.
fn memory_bytes<'a>(texts: impl IntoIterator<Item = &'a Vec<u8>>) -> u64 {
    let bytes = texts.into_iter().map(|text| document::memory_bytes(text));
    (bytes.sum::<usize>() as u64).saturating_mul(3)
}

/// Returns the part of a path below another path; `None` if it is not below it.
fn path_below<'a>(path: &'a str, above: &[u8]) -> Option<&'a str> {
    if above.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(std::str::from_utf8(above).ok()?)?;
    rest.strip_prefix('/')
}

fn too_many_nodes() -> HierarchyError {
    HierarchyError::Absent("too many nodes".into())
}

fn unreadable_error(why: &str) -> HierarchyError {
    HierarchyError::Absent(format!("not all of it can be read: {why}"))
}

impl DocumentTree {
    async fn read(
        store: &dyn Store,
        key: &Key,
        [most, most_remote]: [usize; 2],
        budget: &mut Budget<'_>,
    ) -> Result<Self, HierarchyError> {
        let documents = NodeDocuments::read(store, key).await?;
        let mut tree = Self::new(key, &documents, budget)?;
        if matches!(tree.node(), Some(Ok(Node::Array(_)))) {
            return Ok(tree);
        }
        if store.capabilities().is_remote {
            if let Some((consolidated, _)) =
                tree.consolidated(store, key, &documents, budget).await?
            {
                tree.add_consolidated(&consolidated, b"", budget)?;
                return Ok(tree);
            }
            if tree.add_consolidated_above(store, key, budget).await? {
                return Ok(tree);
            }
            // The names in a zip are known, but each document takes a request.
            if store.index().is_none() || most_remote == 0 {
                let what = "the store is remote, and neither the group nor one above it has \
                            consolidated metadata";
                return Err(HierarchyError::Absent(what.into()));
            }
            budget.nodes = budget.nodes.min(most_remote);
        }
        budget.nodes = budget.nodes.min(most);
        tree.walk(store, key, 0, budget).await?;
        Ok(tree)
    }

    /// Reads the elements of arrays of objects, to find out whether all are text. The elements of an array whose
    /// document is not in `documents` are those under a copy of its document, which is compared when they are served.
    fn find_texts<'a>(
        &'a mut self,
        store: &'a dyn Store,
        key: &'a Key,
        engine: &'a Engine,
        documents: &'a HashMap<Key, (Key, Version)>,
    ) -> BoxFuture<'a, Result<(), HierarchyError>> {
        async move {
            if self.has_objects()
                && let Some(Ok(node)) = self.node()
            {
                let found = text::is_text(
                    DocumentRef::new(store, documents.get(key)),
                    key,
                    Target::V3,
                    node,
                    engine,
                )
                .await;
                match found {
                    Ok(is_text) => self.is_text = is_text,
                    Err(error) if error.is_lasting() => {
                        let why = format!("its objects cannot be read: {error}");
                        self.problem = Some(DocumentProblem::Invalid(why));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            for (name, member) in &mut self.members {
                if let Ok(below) = key.join(name.as_bytes()) {
                    member.find_texts(store, &below, engine, documents).await?;
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn has_objects(&self) -> bool {
        let [_, zarray, ..] = &self.documents;
        let dtype = zarray.as_ref().and_then(|document| document.get("dtype"));
        dtype.is_some_and(|dtype| dtype == "|O")
    }

    /// Returns the consolidated metadata of a group, and the document that contains them.
    async fn consolidated(
        &self,
        store: &dyn Store,
        key: &Key,
        documents: &NodeDocuments,
        budget: &mut Budget<'_>,
    ) -> Result<Option<ConsolidatedDocument>, HierarchyError> {
        let Some(Ok(Node::Group(group))) = self.node() else {
            return Ok(None);
        };
        match (&group.consolidated, &documents.array) {
            (Some(consolidated), Some(document)) => {
                budget.take_bytes(key, memory_bytes(documents.texts.iter().flatten()))?;
                Ok(Some((consolidated.clone(), document.clone())))
            }
            (None, _) if group.format == ZarrFormat::V2 => zmetadata_at(store, key, budget).await,
            _ => Ok(None),
        }
    }

    fn new(
        key: &Key,
        node: &NodeDocuments,
        budget: &mut Budget<'_>,
    ) -> Result<Self, HierarchyError> {
        budget.take_node()?;
        let bytes = memory_bytes(node.texts.iter().flatten());
        budget.modified = budget.modified.max(node.modified);
        let problem = node.too_long.as_ref().map(ToString::to_string).or_else(|| {
            let is_too_large = bytes > budget.most_bytes;
            is_too_large.then(|| {
                let name = NODE_DOCUMENT_NAMES.iter().zip(&node.texts);
                let name = name
                    .rev()
                    .find_map(|(name, text)| text.as_ref().map(|_| *name));
                format!("{}: its metadata are too large", name.unwrap_or_default())
            })
        });
        if problem.is_some() {
            return Ok(Self {
                problem: problem.map(DocumentProblem::Invalid),
                ..Self::default()
            });
        }
        budget.take_bytes(key, bytes)?;
        let mut tree = Self::default();
        for ((slot, name), text) in tree
            .documents
            .iter_mut()
            .zip(NODE_DOCUMENT_NAMES)
            .zip(&node.texts)
        {
            match text.as_deref().map(document::parse).transpose() {
                Ok(document) => *slot = document,
                Err(error) => {
                    tree.problem = Some(DocumentProblem::Invalid(format!("{name}: {error}")));
                }
            }
        }
        if tree.problem.is_some() {
            *tree.documents_mut() = Default::default();
        }
        if tree.has_objects()
            && let Some(document) = &node.array
        {
            budget.objects.insert(key.clone(), document.clone());
        }
        Ok(tree)
    }

    /// Adds the nodes below a key from the consolidated metadata of the nearest group above it.
    /// Returns whether these contain the node itself.
    async fn add_consolidated_above(
        &mut self,
        store: &dyn Store,
        key: &Key,
        budget: &mut Budget<'_>,
    ) -> Result<bool, HierarchyError> {
        let mut above = key.clone();
        while !above.is_root() {
            above = above.parent();
            let documents = match NodeDocuments::read(store, &above).await {
                Err(error) if error.is_lasting() => return Ok(false),
                documents => documents?,
            };
            let group = Self::new(&above, &documents, budget)?;
            let consolidated = group
                .consolidated(store, &above, &documents, budget)
                .await?;
            let Some((consolidated, _)) = consolidated else {
                continue;
            };
            let path = key.below(&above).ok_or_else(|| {
                StoreError::internal(format!("{key} is not below its parent {above}"))
            })?;
            let has_node = |path| consolidated.documents(path).next().is_some();
            if !std::str::from_utf8(path).is_ok_and(has_node) {
                return Ok(false);
            }
            self.add_consolidated(&consolidated, path, budget)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds the nodes of consolidated metadata below a path.
    fn add_consolidated(
        &mut self,
        consolidated: &Consolidated,
        below: &[u8],
        budget: &mut Budget<'_>,
    ) -> Result<(), HierarchyError> {
        for full_path in consolidated.paths() {
            let Some(path) = path_below(full_path, below).filter(|path| !path.is_empty()) else {
                continue;
            };
            budget.take_node()?;
            let mut node = &mut *self;
            for (depth, name) in path.split('/').enumerate() {
                if depth >= MAX_DEPTH {
                    return Err(HierarchyError::Absent(format!(
                        "deeper than {MAX_DEPTH} groups"
                    )));
                }
                node = node.members.entry(name.to_owned()).or_default();
            }
            for (slot, name) in node.documents_mut().iter_mut().zip(NODE_DOCUMENT_NAMES) {
                *slot = consolidated.document(full_path, name).cloned();
            }
        }
        Ok(())
    }

    /// Adds the nodes below a key from their documents.
    fn walk<'a>(
        &'a mut self,
        store: &'a dyn Store,
        key: &'a Key,
        depth: usize,
        budget: &'a mut Budget<'_>,
    ) -> BoxFuture<'a, Result<(), HierarchyError>> {
        async move {
            if depth >= MAX_DEPTH {
                return Err(HierarchyError::Absent(format!(
                    "deeper than {MAX_DEPTH} groups"
                )));
            }
            let names = list_prefixes(store, key, budget.nodes).await?;
            if names.len() > budget.nodes {
                return Err(too_many_nodes());
            }
            for name in names {
                let Ok(below) = key.join(&name) else {
                    continue;
                };
                // Metadata documents are text, so they cannot contain a name that is not UTF-8.
                let Ok(name) = String::from_utf8(name) else {
                    continue;
                };
                if let Some(member) = Self::member(store, &below, depth, budget).await? {
                    self.members.insert(name, member);
                }
            }
            Ok(())
        }
        .boxed()
    }

    /// Returns the tree of the node at a key; `None` if the node was removed meanwhile.
    async fn member(
        store: &dyn Store,
        key: &Key,
        depth: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Self>, HierarchyError> {
        let mut member = match NodeDocuments::read(store, key).await {
            Ok(documents) => Self::new(key, &documents, budget)?,
            Err(error) if error.is_lasting() => Self {
                problem: Some(DocumentProblem::Unreadable(error.to_string())),
                ..Self::default()
            },
            Err(error) => return Err(error.into()),
        };
        if member.is_array() || member.problem.is_some() {
            return Ok(Some(member));
        }
        match member.walk(store, key, depth + 1, budget).await {
            Err(HierarchyError::Failed(
                StoreError::NotFound { .. } | StoreError::NotAPrefix { .. },
            )) => {
                return Ok(None);
            }
            Err(HierarchyError::Failed(error)) if error.is_lasting() => {
                member.problem = Some(DocumentProblem::Unreadable(error.to_string()));
            }
            walked => walked?,
        }
        Ok(Some(member))
    }
}

/// Returns the usable consolidated metadata of the group at a key, if it has any.
///
/// # Errors
/// Temporary errors of the store.
pub(in crate::translate) async fn consolidated_at(
    store: &dyn Store,
    key: &Key,
    engine: &Engine,
) -> Result<Option<SourceConsolidated>, StoreError> {
    let mut budget = Budget::new(engine);
    let documents = NodeDocuments::read(store, key).await?;
    let read = match DocumentTree::new(key, &documents, &mut budget) {
        Ok(tree) => tree.consolidated(store, key, &documents, &mut budget).await,
        Err(none) => Err(none),
    };
    match read {
        Ok(Some((nodes, document))) if nodes.paths().count() <= MAX_NODES => {
            Ok(Some(SourceConsolidated {
                nodes,
                modified: budget.modified,
                document,
                _memory: budget.memory,
            }))
        }
        Ok(_) | Err(HierarchyError::Absent(_)) => Ok(None),
        Err(HierarchyError::Failed(error)) => Err(error),
    }
}

/// Returns the consolidated metadata of a v2 group, and the document that contains them.
async fn zmetadata_at(
    store: &dyn Store,
    key: &Key,
    budget: &mut Budget<'_>,
) -> Result<Option<ConsolidatedDocument>, HierarchyError> {
    let read = match read_document(store, key, Document::Zmetadata).await {
        Ok(None) => return Ok(None),
        Ok(Some(document)) => match document.text {
            Ok(text) => Ok((text, document.modified, (document.key, document.version))),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let (text, modified, document) = match read {
        Ok(read) => read,
        Err(error) if error.is_lasting() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = memory_bytes([&text]);
    if bytes > budget.bytes {
        return Ok(None);
    }
    budget.take_bytes(&document.0, bytes)?;
    // An invalid document is ignored.
    let Ok(consolidated) = Consolidated::from_zmetadata(&text) else {
        return Ok(None);
    };
    budget.modified = budget.modified.max(modified);
    Ok(Some((consolidated, document)))
}
