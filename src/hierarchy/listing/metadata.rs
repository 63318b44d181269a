//! The names at and below a prefix, from the metadata at the prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::documents::{Documents, FetchedDocument};
use crate::hierarchy::document::{Document, is_document_name};
use crate::store::{Kind, Stat, StoreError, Version, check_component};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
use crate::zarr::{self, ATTRIBUTES_JSON, Consolidated, Node};

/// The documents of a prefix, without their texts, and the consolidated metadata in them.
#[derive(Debug)]
pub(super) struct PrefixMetadata {
    /// Nodes by their paths below the prefix. The prefix itself, if it is a node, has the empty path.
    nodes: BTreeMap<Box<str>, NodeEntry>,
    /// Documents whose absence at the prefix itself is proven.
    absent: Documents,
    /// Documents whose requests were denied.
    denied: Documents,
    /// Documents that the last metadata of the prefix had, and whose absence was not proven since.
    before: Documents,
    /// Whether the last metadata of the prefix that had them were consolidated.
    was_consolidated: bool,
    /// Documents that consolidated metadata contain for every node that has them.
    listed: Documents,
    is_consolidated: bool,
    /// The versions of the documents of the prefix itself; `None` for one that does not exist.
    versions: Vec<(Document, Option<Version>)>,
    /// The time of the last modification of any document.
    pub(super) modified: SystemTime,
    /// The reason why a document could not be fetched. Other errors take precedence over a denied request.
    pub(super) failure: Option<StoreError>,
}

/// A node in the metadata.
#[derive(Debug, Default)]
struct NodeEntry {
    documents: Documents,
    contents: NodeChildren,
}

/// The kind of children that a node has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum NodeChildren {
    /// Other nodes.
    #[default]
    Group,
    /// Chunks.
    Array(Arc<ChunkNames>),
    /// Chunks of a grid that is not supported, or of an array whose document is broken.
    UnknownChunks,
    /// Other nodes or chunks: the document is broken.
    Unknown,
}

impl NodeChildren {
    fn of_chunks(names: Option<ChunkNames>) -> Self {
        names.map_or(Self::UnknownChunks, |names| Self::Array(Arc::new(names)))
    }
}

/// The meaning of a path below the prefix.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum KeyMeaning {
    /// The metadata do not name the path.
    Unknown,
    /// The node with this path.
    Node(String),
    /// A directory of chunks.
    ChunkDirectory(Arc<ChunkNames>, ChunkDir),
    /// A document, or a key below an array. Only the store knows whether it exists.
    InnerKey,
    /// A key below the node with this path, whose document is broken. It may be a directory of chunks, which a web
    /// server without listings does not know.
    Undecided(String),
    /// A document whose absence is proven.
    AbsentDocument,
}

impl PrefixMetadata {
    /// Parses documents.
    pub(super) fn new(fetched: &[(Document, FetchedDocument)]) -> Self {
        let mut metadata = Self {
            nodes: BTreeMap::new(),
            absent: Documents::default(),
            denied: Documents::default(),
            before: Documents::default(),
            was_consolidated: false,
            listed: Documents::default(),
            is_consolidated: false,
            versions: Vec::new(),
            modified: UNIX_EPOCH,
            failure: None,
        };
        let mut own = Documents::default();
        let mut texts = Vec::new();
        for (document, fetched) in fetched {
            match fetched {
                FetchedDocument::Absent => {
                    metadata.absent.insert(*document);
                    metadata.versions.push((*document, None));
                }
                FetchedDocument::Failed(error) => {
                    if matches!(error, StoreError::Denied { .. }) {
                        metadata.denied.insert(*document);
                    }
                    metadata.fail(error.clone());
                }
                FetchedDocument::Present {
                    text,
                    modified,
                    version,
                } => {
                    own.insert(*document);
                    if version.is_some() {
                        metadata.versions.push((*document, *version));
                    }
                    metadata.modified = metadata.modified.max(*modified);
                    texts.push((*document, text));
                }
            }
        }
        if own.is_empty() {
            return metadata;
        }
        let text = |wanted: Document| {
            let mut texts = texts.iter();
            let (_, text) = texts.find(|(document, _)| *document == wanted)?;
            Some(text.as_deref())
        };
        let attributes_json = text(Document::AttributesJson);
        let (contents, inline) = parse_node(
            text(Document::ZarrJson),
            text(Document::Zarray),
            attributes_json.filter(|_| !own.contains(Document::Zgroup)),
        );
        let v2 = text(Document::Zmetadata).flatten().and_then(|text| {
            Consolidated::from_zmetadata(text)
                .inspect_err(|error| log::warn!(".zmetadata is not used: {error}"))
                .ok()
        });
        metadata.nodes.insert(
            "".into(),
            NodeEntry {
                documents: own,
                contents,
            },
        );
        metadata.add_consolidated(inline.as_ref(), v2.as_ref());
        metadata
    }

    /// Records the reason of a failure.
    fn fail(&mut self, error: StoreError) {
        if matches!(self.failure, None | Some(StoreError::Denied { .. })) {
            self.failure = Some(error);
        }
    }

    /// Adds the nodes of consolidated metadata. If both versions name a node, v3 describes it.
    fn add_consolidated(&mut self, v3: Option<&Consolidated>, v2: Option<&Consolidated>) {
        let has_root = v2.is_none_or(|metadata| metadata.documents("").next().is_some());
        for consolidated in v3.into_iter().chain(v2) {
            for path in consolidated.paths() {
                if path
                    .split('/')
                    .any(|c| check_component(c.as_bytes()).is_err())
                    && !path.is_empty()
                {
                    continue;
                }
                let entry = self.nodes.entry(path.into()).or_default();
                let names = consolidated.documents(path);
                let is_v3 = entry.documents.contains(Document::ZarrJson);
                for document in names.filter_map(|name| Document::from_name(name.as_bytes())) {
                    entry.documents.insert(document);
                }
                if !is_v3 && consolidated.is_array(path) {
                    let names = consolidated.chunk_names(path);
                    entry.contents = NodeChildren::of_chunks(names);
                }
            }
        }
        self.is_consolidated = v3.is_some() || v2.is_some();
        if v3.is_some() || (v2.is_some() && self.absent.contains(Document::ZarrJson)) {
            self.listed.insert(Document::ZarrJson);
        }
        let is_v3_alone = v3.is_some() && self.absent.contains(Document::Zmetadata);
        if v2.is_some() || is_v3_alone {
            let v2 = [Document::Zarray, Document::Zgroup, Document::Zattrs];
            self.listed = self.listed.union(v2.into());
            if is_v3_alone {
                self.listed.insert(Document::Zmetadata);
            }
        }
        if self.is_consolidated && has_root {
            let own = self.documents("");
            self.absent = self.absent.union(self.listed).difference(own);
        }
    }

    /// Returns whether the prefix itself is a node.
    pub(super) fn is_node(&self) -> bool {
        self.nodes.contains_key("")
    }

    /// Returns whether the prefix itself is an N5 node.
    pub(super) fn is_n5(&self) -> bool {
        let own = self.documents("");
        let zarr = [Document::ZarrJson, Document::Zarray, Document::Zgroup];
        own.contains(Document::AttributesJson) && !zarr.into_iter().any(|of| own.contains(of))
    }

    /// Returns whether no failed document can turn the prefix into an array.
    pub(super) fn is_certain(&self) -> bool {
        self.failure.is_none() || self.documents("").contains(Document::ZarrJson)
    }

    /// Returns whether the kind of the prefix is known without further documents.
    pub(super) fn is_settled(&self) -> bool {
        let is_refused = matches!(self.failure, None | Some(StoreError::Denied { .. }));
        self.is_consolidated || self.documents("").contains(Document::ZarrJson) || !is_refused
    }

    /// Returns whether consolidated metadata name the nodes below the prefix.
    pub(super) fn is_consolidated(&self) -> bool {
        self.is_consolidated
    }

    /// Returns the failure that leaves open whether consolidated metadata name the nodes below the
    /// prefix. A denied request counts as the absence of such metadata, unless the last metadata had them.
    pub(super) fn undecided(&self) -> Option<&StoreError> {
        let failure = self.failure.as_ref().filter(|_| !self.is_consolidated);
        failure.filter(|error| !matches!(error, StoreError::Denied { .. }) || self.lacks_names())
    }

    /// Records the documents of `last`, earlier metadata of the same prefix.
    pub(super) fn record_last(&mut self, last: &Self) {
        let before = last.documents("").union(last.before);
        self.before = before.difference(self.absent);
        self.was_consolidated =
            !self.before.is_empty() && (last.is_consolidated || last.was_consolidated);
    }

    /// Returns the documents that existed before and are denied now. They stay in listings: reading them fails.
    pub(super) fn lost(&self) -> Documents {
        self.before.intersection(self.denied)
    }

    /// Returns whether names are unknown because a document that had them is denied now.
    fn lacks_names(&self) -> bool {
        let lost = self.lost();
        let has_lost_copies = self.was_consolidated
            && (lost.contains(Document::ZarrJson) || lost.contains(Document::Zmetadata));
        !self.is_consolidated && (has_lost_copies || !lost.is_empty() && !self.is_node())
    }

    /// Returns the documents that were not fetched, but belong into a listing if they exist.
    pub(super) fn missing(&self) -> Documents {
        let own = self.documents("");
        let mut missing = Documents::default();
        if self.is_consolidated
            || !(own.contains(Document::Zarray) || own.contains(Document::Zgroup))
        {
            return missing;
        }
        missing.insert(Document::Zattrs);
        if own.contains(Document::Zgroup) {
            missing.insert(Document::Zmetadata);
        }
        let known = own.union(self.absent).union(self.denied);
        missing.difference(known)
    }

    /// Returns the metadata with more documents.
    pub(super) fn extended(&self, fetched: &[(Document, FetchedDocument)]) -> Self {
        let mut extended = Self::new(fetched);
        let (own, contents) = (self.documents(""), self.contents(""));
        let entry = extended.nodes.entry("".into()).or_default();
        entry.documents = entry.documents.union(own);
        entry.contents = contents;
        extended.absent = extended.absent.union(self.absent).difference(own);
        extended.denied = extended.denied.union(self.denied);
        extended.before = self.before.difference(extended.absent);
        extended.was_consolidated = self.was_consolidated;
        extended.modified = extended.modified.max(self.modified);
        extended.versions.extend(&self.versions);
        if extended.is_consolidated && self.absent.contains(Document::ZarrJson) {
            extended.listed.insert(Document::ZarrJson);
        }
        if let Some(error) = &self.failure {
            extended.fail(error.clone());
        }
        extended
    }

    /// Returns the versions of the documents of the prefix itself; `None` for one that does not exist.
    pub(super) fn versions(&self) -> &[(Document, Option<Version>)] {
        &self.versions
    }

    /// Returns the documents that consolidated metadata contain for every node that has them.
    pub(super) fn listed(&self) -> Documents {
        self.listed
    }

    /// Returns the path of the node at a path, or of the array above it, if consolidated metadata name it below the
    /// prefix.
    pub(super) fn copied_node<'a>(&self, path: &'a [u8]) -> Option<&'a str> {
        let path = str::from_utf8(path).ok().filter(|_| self.is_consolidated)?;
        if self.nodes.contains_key(path) {
            return Some(path).filter(|path| !path.is_empty());
        }
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            above = parent;
            if let Some(entry) = self.nodes.get(above) {
                return (entry.contents != NodeChildren::Group).then_some(above);
            }
        }
        None
    }

    /// Returns the metadata of an array from its own main document, with the documents that consolidated metadata
    /// name for it.
    pub(super) fn of_copied_array(mut self, named: Documents, listed: Documents) -> Self {
        let entry = self.nodes.entry("".into()).or_default();
        entry.documents = entry.documents.union(named);
        self.absent = self.absent.union(listed).difference(entry.documents);
        // No node is below an array, and its chunks are known.
        self.is_consolidated = true;
        self
    }

    /// Returns the documents of a node.
    pub(super) fn documents(&self, path: &str) -> Documents {
        let entry = self.nodes.get(path);
        entry.map_or_else(Documents::default, |entry| entry.documents)
    }

    /// Returns the kind of children of a node. A path that is only a prefix of nodes is a group.
    pub(super) fn contents(&self, path: &str) -> NodeChildren {
        let entry = self.nodes.get(path);
        entry.map_or(NodeChildren::Group, |entry| entry.contents.clone())
    }

    /// Returns the meaning of a path. The absence of a document at the prefix itself is valid for less
    /// time than other metadata: only if `is_absence_fresh`, or if the metadata are consolidated.
    pub(super) fn classify(&self, path: &[u8], is_absence_fresh: bool) -> KeyMeaning {
        let Ok(path) = str::from_utf8(path) else {
            return KeyMeaning::Unknown;
        };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(document) = self.document(parent, name)
            && let Some(entry) = self.nodes.get(parent)
        {
            let is_absent = match parent {
                "" => self.absent.contains(document) && (is_absence_fresh || self.is_consolidated),
                _ => self.listed.contains(document),
            };
            return match entry.documents.contains(document) {
                false if is_absent => KeyMeaning::AbsentDocument,
                _ => KeyMeaning::InnerKey,
            };
        }
        if self.nodes.contains_key(path) || (!path.is_empty() && self.has_nodes_below(path)) {
            return KeyMeaning::Node(path.to_owned());
        }
        let mut above = path;
        while !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(parent, _)| parent);
            let Some(entry) = self.nodes.get(above) else {
                continue;
            };
            let names = match &entry.contents {
                NodeChildren::Array(names) => names,
                NodeChildren::Group => return KeyMeaning::Unknown,
                NodeChildren::UnknownChunks | NodeChildren::Unknown => {
                    return KeyMeaning::Undecided(above.to_owned());
                }
            };
            let below = path.get(above.len()..).unwrap_or_default();
            let below = below.strip_prefix('/').unwrap_or(below);
            return match names.find_path(below.as_bytes()) {
                Some(ChunkEntry::Directory(cell)) => {
                    KeyMeaning::ChunkDirectory(Arc::clone(names), cell)
                }
                _ => KeyMeaning::InnerKey,
            };
        }
        KeyMeaning::Unknown
    }

    /// Returns the document with a name below a node. `attributes.json` counts only if it was fetched.
    fn document(&self, parent: &str, name: &str) -> Option<Document> {
        let n5 = Document::AttributesJson;
        let is_read = || {
            self.documents(parent).contains(n5) || (parent.is_empty() && self.absent.contains(n5))
        };
        match name == ATTRIBUTES_JSON && is_read() {
            true => Some(n5),
            false => Document::from_name(name.as_bytes()),
        }
    }

    /// Returns whether any node is below a path.
    fn has_nodes_below(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.next_path(&prefix)
            .is_some_and(|p| p.starts_with(&prefix))
    }

    /// Returns the first path of a node that is not less than `from`.
    fn next_path(&self, from: &str) -> Option<&str> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let (path, _) = self.nodes.range::<str, _>(bounds).next()?;
        Some(path)
    }

    /// Returns the names of the nodes directly below a node, in time proportional to their number.
    /// A node whose name is that of a document is left out.
    pub(super) fn children(&self, path: &str) -> BTreeSet<&str> {
        let prefix = match path {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let mut names = BTreeSet::new();
        let mut from = prefix.clone();
        while let Some(path) = self.next_path(&from) {
            let Some(rest) = path.strip_prefix(&prefix) else {
                break;
            };
            let name = rest.split('/').next().unwrap_or_default();
            if !name.is_empty() && !is_document_name(name.as_bytes()) {
                names.insert(name);
            }
            // Continues after all paths below the child, or after the child itself.
            from = match rest.len() > name.len() {
                true => format!("{prefix}{name}0"),
                false => format!("{path}\0"),
            };
        }
        names
    }

    /// Returns the attributes of a path.
    pub(super) fn stat(&self, meaning: &KeyMeaning) -> Stat {
        let below = match meaning {
            KeyMeaning::ChunkDirectory(names, cell) => names.directories(*cell),
            KeyMeaning::Node(path) => {
                let chunks = match self.contents(path) {
                    NodeChildren::Array(names) => names.directories(ChunkDir::default()),
                    _ => 0,
                };
                chunks.saturating_add(self.children(path).len() as u64)
            }
            _ => 0,
        };
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: self.modified,
            version: Version(0),
            links: u32::try_from(below).unwrap_or(u32::MAX).saturating_add(2),
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let entries = self.nodes.iter().map(|(path, entry)| {
            let names = match &entry.contents {
                NodeChildren::Array(_) => 256,
                _ => 0,
            };
            path.len().saturating_add(names + 96)
        });
        entries.fold(512, usize::saturating_add) as u64
    }
}

/// Returns the kind of children of a node and its inline consolidated metadata. An unreadable
/// document has no text.
fn parse_node(
    zarr_json: Option<Option<&[u8]>>,
    zarray: Option<Option<&[u8]>>,
    attributes_json: Option<Option<&[u8]>>,
) -> (NodeChildren, Option<Consolidated>) {
    let node = match (zarr_json, zarray) {
        (Some(text), _) => zarr::Documents {
            zarr_json: text,
            ..zarr::Documents::default()
        },
        (None, Some(text)) => zarr::Documents {
            zarray: text,
            ..zarr::Documents::default()
        },
        (None, None) => zarr::Documents {
            attributes_json: attributes_json.flatten(),
            ..zarr::Documents::default()
        },
    };
    match node.node().map(|detected| (detected.read, detected.node)) {
        Some((_, Ok(Node::Group(group)))) => (NodeChildren::Group, group.consolidated),
        Some((_, Ok(Node::Array(array)))) => {
            (NodeChildren::of_chunks(ChunkNames::of_array(&array)), None)
        }
        Some((read, Err(error))) => {
            log::warn!("{read} is not understood: {error}");
            match read {
                ".zarray" => (NodeChildren::UnknownChunks, None),
                "zarr.json" => (NodeChildren::Unknown, None),
                _ => (NodeChildren::Group, None),
            }
        }
        None if zarr_json.is_some() => (NodeChildren::Unknown, None),
        None if zarray.is_some() => (NodeChildren::UnknownChunks, None),
        None => (NodeChildren::Group, None),
    }
}
