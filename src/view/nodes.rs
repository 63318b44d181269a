//! The nodes of a store, read when they are first needed, and what can be made of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::content::{CachedFile, Text};
use super::document::Found;
use super::format::{Format, FormatSet};
use super::kept::Kept;
use super::node::{Elements, ViewNode};
use crate::array::{ArrayReader, Engine, check_version};
use crate::codec::Pipeline;
use crate::store::{Flights, Key, Store, StoreError, Version, may_wait};
use crate::zarr::node::{Documents, Group};
use crate::zarr::{self, DataType, Node, ZarrFormat};
/// How nodes are shown.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// The root of what is shown.
    pub root: Key,
    /// What is listed.
    pub formats: FormatSet,
    /// How long what was read of a store that can change is trusted.
    pub ttl: Duration,
}

/// The nodes of a store; each is read when it is asked for.
#[derive(Debug)]
pub struct Nodes {
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    options: NodesOptions,
    kept: Mutex<Kept<Key, Read>>,
    pub(super) texts: Mutex<Kept<(Key, u64), Text>>,
    pub(super) texts_in_the_making: Flights<(Key, u64), Text>,
    pub(super) made: Mutex<Kept<(Key, u64, u8), Arc<CachedFile>>>,
    pub(super) in_the_making: Flights<(Key, u64, u8), Result<Arc<CachedFile>, String>>,
}

/// A node and when it was read.
type Read = (Arc<ViewNode>, Instant);

/// Nodes that are kept.
const MAX_NODES: usize = 4096;

impl Nodes {
    /// The nodes of `store`; arrays are decoded by `engine`.
    pub fn new(store: Arc<dyn Store>, engine: Arc<Engine>, options: NodesOptions) -> Self {
        Self {
            store,
            engine,
            options,
            kept: Mutex::default(),
            texts: Mutex::default(),
            texts_in_the_making: Flights::default(),
            made: Mutex::default(),
            in_the_making: Flights::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What decodes.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Whether a format is listed.
    pub fn lists(&self, format: Format) -> bool {
        self.options.formats.lists(format)
    }

    /// How nodes are shown.
    pub fn options(&self) -> &NodesOptions {
        &self.options
    }

    /// The node at a key, which is a prefix of the store. One without documents is a group.
    ///
    /// # Errors
    /// Those of the store. A document that is wrong is no error: the node is a group without
    /// attributes that is [broken](ViewNode::broken).
    pub fn node(&self, key: &Key) -> Result<Arc<ViewNode>, StoreError> {
        if let Some(node) = self.known(key) {
            return Ok(node);
        }
        // A store that is far away says itself which documents are at hand.
        if !self.store.capabilities().is_remote {
            may_wait(key)?;
        }
        let read = Instant::now();
        let documents = Found::read(&*self.store, key)?;
        let mut known = self.lock();
        let node = match known.get(key) {
            Some((node, _)) if node.version == documents.version => Arc::clone(node),
            _ => {
                drop(known);
                let node = Arc::new(self.open(key, documents)?);
                known = self.lock();
                node
            }
        };
        let most = self.engine.memory_limit_bytes() / 16;
        let entry = (Arc::clone(&node), read);
        known.put(key.clone(), entry, node.memory_bytes, most, MAX_NODES);
        Ok(node)
    }

    /// The node at a key, if it was read and is trusted still.
    pub(super) fn known(&self, key: &Key) -> Option<Arc<ViewNode>> {
        let is_pinned = self.store.capabilities().immutable;
        let mut known = self.lock();
        let (node, read) = known.get(key)?;
        (is_pinned || read.elapsed() < self.options.ttl).then(|| Arc::clone(node))
    }

    fn lock(&self) -> MutexGuard<'_, Kept<Key, Read>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, key: &Key, mut found: Found) -> Result<ViewNode, StoreError> {
        let texts = found.texts.iter().flatten();
        let memory_bytes: u64 = texts
            .map(|text| zarr::document::memory_bytes(text) as u64)
            .sum();
        let limit_bytes = self.engine.memory_limit_bytes();
        if memory_bytes > limit_bytes {
            found.texts = Default::default();
            found.array = None;
            found.problem = Some(format!(
                "its metadata need {memory_bytes} bytes of memory, the limit is {limit_bytes}"
            ));
        }
        let memory_bytes = match found.problem {
            Some(_) => 0,
            None => memory_bytes,
        };
        let _memory = match may_wait(key) {
            Ok(()) => self.engine.reserve(key, memory_bytes)?,
            Err(_) => self.engine.reserve_now(key, memory_bytes)?,
        };
        let [zarr_json, zarray, zgroup, zattrs] = &found.texts;
        let documents = Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
        };
        let mut problems = Vec::new();
        let mut broken = found.problem;
        let implicit = || Node::Group(Group::implicit(ZarrFormat::V2));
        let detected = documents.node();
        let is_implicit = detected
            .as_ref()
            .is_none_or(|detected| detected.node.is_err());
        let node = match detected {
            None => implicit(),
            Some(detected) => {
                for ignored in &detected.ignored {
                    log::warn!("{key}: {ignored} is not read, {} is", detected.read);
                    problems.push(format!("{ignored} is not read, {} is", detected.read));
                }
                detected.node.unwrap_or_else(|error| {
                    broken = Some(format!("{}: {error}", detected.read));
                    implicit()
                })
            }
        };
        problems.extend(broken.clone());
        let is_broken = broken.is_some();
        let elements = match &node {
            Node::Group(_) => Elements::None,
            Node::Array(array) => self.elements(key, array, found.array),
        };
        if let Node::Array(array) = &node {
            problems.extend(array.problems().map(|error| error.to_string()));
        }
        if let Err(error) = node.attributes() {
            problems.push(format!("attributes: {error}"));
        }
        let name = match key.as_bytes().rsplit(|b| *b == b'/').next() {
            Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ if matches!(node, Node::Array(_)) => "array".into(),
            _ => "root".into(),
        };
        // As they are written, where they have a document of their own.
        let attributes = match node.format() {
            ZarrFormat::V2 => found.texts.into_iter().nth(3).flatten(),
            ZarrFormat::V3 => None,
        };
        Ok(ViewNode {
            key: key.clone(),
            name,
            node,
            problems,
            is_implicit,
            broken,
            elements,
            version: found.version,
            modified: found.modified,
            // Nothing is kept of documents that cannot be read, but for attributes of their own.
            memory_bytes: match is_broken {
                true => attributes.as_ref().map_or(0, |text| text.len() as u64),
                false => memory_bytes,
            },
            attributes,
        })
    }

    fn elements(
        &self,
        key: &Key,
        array: &zarr::Array,
        document: Option<(Key, Version)>,
    ) -> Elements {
        let parts = match array.decodable() {
            Ok(parts) => parts,
            Err(error) => return Elements::Unreadable(error.to_string()),
        };
        let Some(chunk_shape) = parts.grid.regular_chunk_shape() else {
            return Elements::Unreadable("chunks of different shapes (rectilinear grid)".into());
        };
        let pipeline = match Pipeline::new(
            parts.codecs,
            parts.data_type,
            &chunk_shape,
            parts.fill_value,
        ) {
            Ok(pipeline) => Arc::new(pipeline),
            Err(error) => return Elements::Unreadable(error.to_string()),
        };
        if let DataType::Variable(_) = parts.data_type {
            return Elements::Variable(pipeline, document);
        }
        let (store, engine) = (Arc::clone(&self.store), Arc::clone(&self.engine));
        match ArrayReader::open(
            store,
            key.clone(),
            array,
            pipeline,
            engine,
            self.options.ttl,
            document,
        ) {
            Ok(reader) => Elements::Fixed(Arc::new(reader)),
            Err(StoreError::Unsupported { what, .. }) => Elements::Unreadable(what),
            Err(error) => Elements::Unreadable(error.to_string()),
        }
    }

    /// Fails if the document of an array is not any more the one that was read.
    pub(super) fn check_document(
        &self,
        document: Option<&(Key, Version)>,
    ) -> Result<(), StoreError> {
        match document {
            Some((key, version)) if !self.store.capabilities().immutable => {
                check_version(&*self.store, key, *version)
            }
            _ => Ok(()),
        }
    }
}
