//! What the metadata at one prefix say of the names there and below.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::documents::{Asked, Document, Documents};
use crate::store::{Kind, Stat, StoreError, Version, check_component};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};
use crate::zarr::{self, Consolidated, Node};

/// What was learnt at a prefix: from its own documents, and from the consolidated metadata in them.
#[derive(Debug)]
pub(super) struct Known {
    /// Nodes by their paths below the prefix, which itself is the empty path if it is a node.
    nodes: BTreeMap<Box<str>, Place>,
    /// Documents that were asked for at the prefix itself and are proven absent.
    absent: Documents,
    /// Documents that no node has without the consolidated metadata saying so.
    told: Documents,
    is_consolidated: bool,
    /// When the documents were changed last.
    pub(super) modified: SystemTime,
    /// Why a document is not known, the gravest reason first: a refusal comes last.
    pub(super) failure: Option<StoreError>,
}

/// One node.
#[derive(Debug, Default)]
struct Place {
    documents: Documents,
    what: What,
}

/// What is below a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum What {
    /// Other nodes; also where the document is broken.
    #[default]
    Group,
    /// Chunks; without names if the grid is not understood.
    Array(Option<Arc<ChunkNames>>),
}

/// What is known of a path below the prefix.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// Nothing.
    Nothing,
    /// It is a node, at this path.
    Node(String),
    /// It is a directory of chunks.
    Chunks(Arc<ChunkNames>, ChunkDir),
    /// It is below an array: a chunk or something else that only the store knows.
    Value,
    /// A document that a node is known not to have.
    NoDocument,
}

impl Known {
    /// Reads what was asked for.
    pub(super) fn of(asked: &[(Document, Asked)]) -> Self {
        let mut known = Self {
            nodes: BTreeMap::new(),
            absent: Documents::default(),
            told: Documents::default(),
            is_consolidated: false,
            modified: UNIX_EPOCH,
            failure: None,
        };
        let mut own = Documents::default();
        let mut texts = Vec::new();
        for (document, asked) in asked {
            match asked {
                Asked::Absent => known.absent.insert(*document),
                Asked::Failed(error) => known.fail(error.clone()),
                Asked::Present { text, modified } => {
                    own.insert(*document);
                    known.modified = known.modified.max(*modified);
                    texts.push((*document, text));
                }
            }
        }
        if own.is_empty() {
            return known;
        }
        let text = |wanted: Document| {
            let mut texts = texts.iter();
            let (_, text) = texts.find(|(document, _)| *document == wanted)?;
            Some(text.as_deref())
        };
        let (what, inline) = what_is(text(Document::ZarrJson), text(Document::Zarray));
        let v2 = text(Document::Zmetadata).flatten().and_then(|text| {
            Consolidated::from_zmetadata(text)
                .inspect_err(|error| log::warn!(".zmetadata is not used: {error}"))
                .ok()
        });
        known.nodes.insert(
            "".into(),
            Place {
                documents: own,
                what,
            },
        );
        known.learn(inline.as_ref(), v2.as_ref());
        known
    }

    /// Keeps a reason why something is not known.
    fn fail(&mut self, error: StoreError) {
        let is_graver = match &self.failure {
            None | Some(StoreError::Denied { .. }) => true,
            // Who does not wait asks again, whatever else there is.
            Some(_) => matches!(error, StoreError::WouldWait { .. }),
        };
        if is_graver {
            self.failure = Some(error);
        }
    }

    /// Takes the names out of copies; the inline ones of v3 come first.
    fn learn(&mut self, v3: Option<&Consolidated>, v2: Option<&Consolidated>) {
        let has_root = v2.is_none_or(|copies| copies.documents("").next().is_some());
        for copies in v3.into_iter().chain(v2) {
            for path in copies.paths() {
                if path
                    .split('/')
                    .any(|c| check_component(c.as_bytes()).is_err())
                    && !path.is_empty()
                {
                    continue;
                }
                let place = self.nodes.entry(path.into()).or_default();
                let names = copies.documents(path);
                let is_v3 = place.documents.has(Document::ZarrJson);
                for document in names.filter_map(|name| Document::named(name.as_bytes())) {
                    place.documents.insert(document);
                }
                if !is_v3 && copies.is_array(path) {
                    place.what = What::Array(copies.chunk_names(path).map(Arc::new));
                }
            }
        }
        self.is_consolidated = v3.is_some() || v2.is_some();
        if v3.is_some() || (v2.is_some() && self.absent.has(Document::ZarrJson)) {
            self.told.insert(Document::ZarrJson);
        }
        let is_v3_alone = v3.is_some() && self.absent.has(Document::Zmetadata);
        if v2.is_some() || is_v3_alone {
            let v2 = [Document::Zarray, Document::Zgroup, Document::Zattrs];
            self.told = self.told.with(v2.into());
            if is_v3_alone {
                self.told.insert(Document::Zmetadata);
            }
        }
        if self.is_consolidated && has_root {
            let own = self.documents("");
            self.absent = self.absent.with(self.told).without(own);
        }
    }

    /// Whether there is a node at the prefix itself.
    pub(super) fn is_node(&self) -> bool {
        self.nodes.contains_key("")
    }

    /// Whether what is not known of the prefix itself could not be an array all the same.
    pub(super) fn is_certain(&self) -> bool {
        self.failure.is_none() || self.documents("").has(Document::ZarrJson)
    }

    /// Whether nothing else has to be asked for to know what is at the prefix and below.
    pub(super) fn is_settled(&self) -> bool {
        let is_refused = matches!(self.failure, None | Some(StoreError::Denied { .. }));
        self.is_consolidated || self.documents("").has(Document::ZarrJson) || !is_refused
    }

    /// Whether consolidated metadata name what is below.
    pub(super) fn is_consolidated(&self) -> bool {
        self.is_consolidated
    }

    /// What may be there without having been asked for, but belongs into a listing.
    pub(super) fn unasked(&self) -> Documents {
        let own = self.documents("");
        let mut unasked = Documents::default();
        if self.is_consolidated || !(own.has(Document::Zarray) || own.has(Document::Zgroup)) {
            return unasked;
        }
        unasked.insert(Document::Zattrs);
        if own.has(Document::Zgroup) {
            unasked.insert(Document::Zmetadata);
        }
        unasked.without(own).without(self.absent)
    }

    /// The same with what was asked for since.
    pub(super) fn deepened(&self, asked: &[(Document, Asked)]) -> Self {
        let mut deeper = Self::of(asked);
        let (own, what) = (self.documents(""), self.what(""));
        let place = deeper.nodes.entry("".into()).or_default();
        place.documents = place.documents.with(own);
        place.what = what;
        deeper.absent = deeper.absent.with(self.absent).without(own);
        deeper.modified = deeper.modified.max(self.modified);
        if deeper.is_consolidated && self.absent.has(Document::ZarrJson) {
            deeper.told.insert(Document::ZarrJson);
        }
        if let Some(error) = &self.failure {
            deeper.fail(error.clone());
        }
        deeper
    }

    /// The documents of a node.
    pub(super) fn documents(&self, path: &str) -> Documents {
        let place = self.nodes.get(path);
        place.map_or_else(Documents::default, |place| place.documents)
    }

    /// What is below a node; a path that only leads to others is a group.
    pub(super) fn what(&self, path: &str) -> What {
        let place = self.nodes.get(path);
        place.map_or(What::Group, |place| place.what.clone())
    }

    /// What is known of a path. That a document of the prefix itself was not there is known for less
    /// long than all else, and counts only if `is_absence_fresh`.
    pub(super) fn say(&self, path: &[u8], is_absence_fresh: bool) -> Said {
        let Ok(path) = str::from_utf8(path) else {
            return Said::Nothing;
        };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(document) = Document::named(name.as_bytes())
            && let Some(place) = self.nodes.get(parent)
        {
            let is_absent = match parent {
                "" => self.absent.has(document) && (is_absence_fresh || self.is_consolidated),
                _ => self.told.has(document),
            };
            return match place.documents.has(document) {
                false if is_absent => Said::NoDocument,
                _ => Said::Value,
            };
        }
        if self.nodes.contains_key(path) || (!path.is_empty() && self.leads_on(path)) {
            return Said::Node(path.to_owned());
        }
        let mut above = path;
        while !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(parent, _)| parent);
            let Some(place) = self.nodes.get(above) else {
                continue;
            };
            let What::Array(names) = &place.what else {
                return Said::Nothing;
            };
            let below = path.get(above.len()..).unwrap_or_default();
            let below = below.strip_prefix('/').unwrap_or(below);
            return match names.as_ref().map(|n| (n, n.find_path(below.as_bytes()))) {
                Some((names, Some(ChunkEntry::Directory(cell)))) => {
                    Said::Chunks(Arc::clone(names), cell)
                }
                _ => Said::Value,
            };
        }
        Said::Nothing
    }

    /// Whether there are nodes below a path.
    fn leads_on(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.next(&prefix).is_some_and(|p| p.starts_with(&prefix))
    }

    /// The first path that is not before this one.
    fn next(&self, from: &str) -> Option<&str> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let (path, _) = self.nodes.range::<str, _>(bounds).next()?;
        Some(path)
    }

    /// The names of the nodes directly below a node, each once, in the time that it takes to find so
    /// many.
    pub(super) fn children(&self, path: &str) -> BTreeSet<&str> {
        let prefix = match path {
            "" => String::new(),
            path => format!("{path}/"),
        };
        // No node is found under the name of a document.
        let is_document = |name: &str| Document::named(name.as_bytes()).is_some();
        let mut names = BTreeSet::new();
        let mut from = prefix.clone();
        while let Some(path) = self.next(&from) {
            let Some(rest) = path.strip_prefix(&prefix) else {
                break;
            };
            let name = rest.split('/').next().unwrap_or_default();
            if !name.is_empty() && !is_document(name) {
                names.insert(name);
            }
            // Behind everything below the child, or behind the child itself.
            from = match rest.len() > name.len() {
                true => format!("{prefix}{name}0"),
                false => format!("{path}\0"),
            };
        }
        names
    }

    /// A prefix of which this is known.
    pub(super) fn stat(&self, said: &Said) -> Stat {
        let below = match said {
            Said::Chunks(names, cell) => names.directories(*cell),
            Said::Node(path) => {
                let chunks = match self.what(path) {
                    What::Array(Some(names)) => names.directories(ChunkDir::default()),
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

    /// About as many bytes of memory are needed to keep it.
    pub(super) fn memory_bytes(&self) -> usize {
        let places = self.nodes.iter().map(|(path, place)| {
            let names = match &place.what {
                What::Array(Some(_)) => 256,
                _ => 0,
            };
            path.len().saturating_add(names + 96)
        });
        places.fold(512, usize::saturating_add)
    }
}

/// What is below a node, and its inline consolidated metadata; a document that can not be read has
/// no text.
fn what_is(
    zarr_json: Option<Option<&[u8]>>,
    zarray: Option<Option<&[u8]>>,
) -> (What, Option<Consolidated>) {
    let node = match (zarr_json, zarray) {
        (Some(text), _) => zarr::Documents {
            zarr_json: text,
            ..zarr::Documents::default()
        },
        (None, text) => zarr::Documents {
            zarray: text.flatten(),
            ..zarr::Documents::default()
        },
    };
    match node.node().map(|detected| (detected.read, detected.node)) {
        Some((_, Ok(Node::Group(group)))) => (What::Group, group.consolidated),
        Some((_, Ok(Node::Array(array)))) => {
            let names = ChunkNames::of_array(&array).map(Arc::new);
            (What::Array(names), None)
        }
        Some((read, Err(error))) => {
            log::warn!("{read} is not understood: {error}");
            match read {
                ".zarray" => (What::Array(None), None),
                _ => (What::Group, None),
            }
        }
        None if zarr_json.is_none() && zarray.is_some() => (What::Array(None), None),
        None => (What::Group, None),
    }
}
