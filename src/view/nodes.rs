//! The nodes of a store, read when they are first needed, and what can be made of them.

use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use siphasher::sip::SipHasher13;

use super::document::Found;
use super::elements::render;
use super::format::{Format, FormatSet};
use super::layout::{Layout, Placement};
use super::node::{Elements, ViewNode, pretty};
use super::{npy, sidecar};
use crate::array::{ArrayReader, Engine, check_version, read_elements};
use crate::codec::Pipeline;
use crate::store::{Key, Patience, Store, StoreError, Version};
use crate::zarr::chunk_names::ChunkNames;
use crate::zarr::node::{Documents, Group};
use crate::zarr::{self, DataType, Format as ZarrFormat, Node};

/// How nodes are shown.
#[derive(Debug, Clone)]
pub struct NodesOptions {
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
    known: Mutex<Known>,
    texts: Mutex<Texts>,
}

/// Nodes that were read, least recently used first out.
#[derive(Debug)]
struct Known {
    nodes: LruCache<Key, (Arc<ViewNode>, Instant)>,
    bytes: u64,
}

/// Texts that were made of decoded elements, least recently used first out.
#[derive(Debug)]
struct Texts {
    kept: LruCache<(Key, u64), Text>,
    bytes: u64,
}

/// A text that was made of decoded elements.
#[derive(Debug, Clone)]
struct Text {
    bytes: Arc<Vec<u8>>,
    rendering: Rendering,
    made: Instant,
}

/// Which text it is: its hash and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// A hash of all bytes.
    pub hash: u64,
    /// Their number.
    pub size_bytes: u64,
}

/// Nodes that are kept.
const MAX_NODES: usize = 4096;
/// Elements of variable length, and the text that is made of them, may take so much.
const MAX_ELEMENTS_BYTES: u64 = 64 << 20;

/// What a format of a node is.
#[derive(Debug, Clone)]
pub enum Content {
    /// A text that was made.
    Text(Vec<u8>),
    /// The text of decoded elements; [`Nodes::text`] has it.
    Elements(Rendering),
    /// A file of elements.
    Layout(Arc<ArrayReader>, Layout),
    /// A directory of chunks.
    Chunks(Arc<ArrayReader>, ChunkNames),
    /// A directory of inner chunks.
    Inner(Arc<ArrayReader>, ChunkNames),
}

/// Why there is no file of a format.
#[derive(Debug, Clone)]
pub enum NoContent {
    /// It can not be made of this node.
    Absent(String),
    /// What it is made of could not be had.
    Failed(StoreError),
}

impl From<String> for NoContent {
    fn from(why: String) -> Self {
        Self::Absent(why)
    }
}

impl Nodes {
    /// The nodes of `store`; arrays are decoded by `engine`.
    pub fn new(store: Arc<dyn Store>, engine: Arc<Engine>, options: NodesOptions) -> Self {
        Self {
            store,
            engine,
            options,
            known: Mutex::new(Known {
                nodes: LruCache::unbounded(),
                bytes: 0,
            }),
            texts: Mutex::new(Texts {
                kept: LruCache::unbounded(),
                bytes: 0,
            }),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What decodes.
    pub fn engine(&self) -> &Engine {
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
    /// Those of the store. A document that is wrong is no error: the node says so.
    pub fn node(&self, key: &Key) -> Result<Arc<ViewNode>, StoreError> {
        let is_pinned = self.store.promises().pinned;
        if let Some((node, read)) = self.lock().nodes.get(key)
            && (is_pinned || read.elapsed() < self.options.ttl)
        {
            return Ok(Arc::clone(node));
        }
        let read = Instant::now();
        let documents = Found::read(&*self.store, key)?;
        let mut known = self.lock();
        let node = match known.nodes.get(key) {
            Some((node, _)) if node.version == documents.version => Arc::clone(node),
            _ => {
                drop(known);
                let node = Arc::new(self.open(key, documents)?);
                known = self.lock();
                node
            }
        };
        known.bytes = known.bytes.saturating_add(node.memory_bytes);
        let entry = (Arc::clone(&node), read);
        if let Some((old, _)) = known.nodes.put(key.clone(), entry) {
            known.bytes = known.bytes.saturating_sub(old.memory_bytes);
        }
        let most = self.engine.memory_limit_bytes() / 16;
        while (known.bytes > most || known.nodes.len() > MAX_NODES) && known.nodes.len() > 1 {
            let Some((_, (old, _))) = known.nodes.pop_lru() else {
                break;
            };
            known.bytes = known.bytes.saturating_sub(old.memory_bytes);
        }
        Ok(node)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, key: &Key, found: Found) -> Result<ViewNode, StoreError> {
        let texts = found.texts.iter().flatten();
        let memory_bytes: u64 = texts
            .map(|text| zarr::document::memory_bytes(text) as u64)
            .sum();
        let _memory = self.engine.reserve_now(key, memory_bytes)?;
        let [zarr_json, zarray, zgroup, zattrs] = &found.texts;
        let documents = Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
        };
        let mut problems: Vec<String> = found.problem.into_iter().collect();
        let implicit = || Node::Group(Group::implicit(ZarrFormat::V2));
        let node = match documents.node() {
            None => implicit(),
            Some(detected) => {
                for ignored in &detected.ignored {
                    log::warn!("{key}: {ignored} is not read, {} is", detected.read);
                    problems.push(format!("{ignored} is not read, {} is", detected.read));
                }
                detected.node.unwrap_or_else(|error| {
                    problems.push(format!("{}: {error}", detected.read));
                    implicit()
                })
            }
        };
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
            _ => "array".into(),
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
            elements,
            version: found.version,
            modified: found.modified,
            attributes,
            memory_bytes,
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

    /// What a format of a node is.
    ///
    /// # Errors
    /// Why there is no such file, or that it could not be found out.
    pub fn content(&self, node: &ViewNode, format: Format) -> Result<Content, NoContent> {
        if let (Format::Json, Elements::Variable(..)) = (format, &node.elements) {
            let rendering = self.rendering(node).map_err(NoContent::Failed)?;
            return Ok(Content::Elements(rendering));
        }
        Ok(self.cheap_content(node, format)?)
    }

    /// Whether a format can be made of a node, as far as its metadata tell.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, node: &ViewNode, format: Format) -> Result<(), String> {
        match (format, &node.elements) {
            (Format::Json, Elements::Variable(..)) => Ok(()),
            // It is made of the answers of this function.
            (Format::Why, _) => Ok(()),
            _ => self.cheap_content(node, format).map(drop),
        }
    }

    fn cheap_content(&self, node: &ViewNode, format: Format) -> Result<Content, String> {
        match format {
            Format::Attributes => Ok(Content::Text(node.attributes_text()?)),
            Format::Info => Ok(Content::Text(pretty(&node.info()))),
            Format::Why => Ok(Content::Text(self.why(node).into_bytes())),
            _ => self.array_content(node, format),
        }
    }

    fn array_content(&self, node: &ViewNode, format: Format) -> Result<Content, String> {
        let Node::Array(array) = &node.node else {
            return Err("this is a group".into());
        };
        let reader = match (&node.elements, format) {
            (Elements::Variable(..), _) => {
                return Err("elements of variable length: they are in .json".into());
            }
            (Elements::Unreadable(why), _) => return Err(why.clone()),
            (Elements::None, _) => return Err("this is a group".into()),
            (Elements::Fixed(_), Format::Json) => {
                return Err("elements of constant size: they are in .npy".into());
            }
            (Elements::Fixed(reader), _) => reader,
        };
        let (data_type, shape) = (reader.pieces().data_type(), &array.shape[..]);
        let whole = Placement::Array(reader.size_bytes());
        let layout = |parts: Vec<Placement>| {
            Layout::new(parts)
                .map(|layout| Content::Layout(Arc::clone(reader), layout))
                .ok_or_else(|| format!("{} bytes: no file can be so long", reader.size_bytes()))
        };
        let data = Format::Bin.name_beside(&node.name);
        let text = |text: String| Content::Text(text.into_bytes());
        match format {
            Format::Npy => layout(vec![Placement::Bytes(npy::header(data_type, shape)), whole]),
            Format::Bin => layout(vec![whole]),
            Format::Hdr => sidecar::envi(data_type, shape).map(text),
            Format::Vrt => sidecar::vrt(data_type, shape, &data).map(text),
            Format::Nhdr => sidecar::nrrd(data_type, shape, &data).map(text),
            Format::Chunks => {
                let pieces = reader.pieces();
                let names = ChunkNames::of_keys(pieces.chunk_keys(), pieces.grid().shape());
                Ok(Content::Chunks(Arc::clone(reader), names))
            }
            Format::Inner => match reader.pieces().inner_counts() {
                Some(counts) => Ok(Content::Inner(
                    Arc::clone(reader),
                    ChunkNames::nested(counts),
                )),
                None => Err("its chunks are no shards with inner chunks".into()),
            },
            Format::Json | Format::Attributes | Format::Info | Format::Why => {
                Err("not a file of elements".into())
            }
        }
    }

    /// The text of the elements of an array of variable length: kept, or made again.
    ///
    /// # Errors
    /// [`StoreError::WouldWait`] for [`Patience::Now`] only; [`StoreError::Stale`] if `expected` is
    /// another text than there is by now; why a chunk can not be decoded.
    pub fn text(
        &self,
        node: &ViewNode,
        expected: Rendering,
        patience: Patience,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        let place = (node.key.clone(), node.version);
        if let Some(text) = self.texts().kept.get(&place)
            && text.rendering == expected
        {
            return Ok(Arc::clone(&text.bytes));
        }
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: place.0 });
        }
        let text = self.make_text(node)?;
        if text.rendering != expected {
            return Err(StoreError::Stale {
                key: place.0,
                what: "its elements have changed".into(),
            });
        }
        Ok(text.bytes)
    }

    /// Which text the elements of an array of variable length are now.
    fn rendering(&self, node: &ViewNode) -> Result<Rendering, StoreError> {
        let is_pinned = self.store.promises().pinned;
        let place = (node.key.clone(), node.version);
        if let Some(text) = self.texts().kept.get(&place)
            && (is_pinned || text.made.elapsed() < self.options.ttl)
        {
            return Ok(text.rendering);
        }
        Ok(self.make_text(node)?.rendering)
    }

    fn make_text(&self, node: &ViewNode) -> Result<Text, StoreError> {
        let made = Instant::now();
        let (Node::Array(array), Elements::Variable(pipeline, document)) =
            (&node.node, &node.elements)
        else {
            return Err(StoreError::Unsupported {
                key: node.key.clone(),
                what: "no elements of variable length".into(),
            });
        };
        let limit = MAX_ELEMENTS_BYTES.min(self.engine.memory_limit_bytes() / 4);
        let data_type = array.data_type.as_ref().map_err(|e| StoreError::Corrupt {
            key: node.key.clone(),
            what: e.to_string(),
        })?;
        let engine = &self.engine;
        let elements = read_elements(&*self.store, &node.key, array, pipeline, limit, engine)?;
        self.check_document(document.as_ref())?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let bytes = render(&elements, data_type, &array.shape, most).ok_or_else(|| {
            StoreError::TooLarge {
                key: node.key.clone(),
                need_bytes: limit.saturating_add(1),
                limit_bytes: limit,
            }
        })?;
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes);
        let rendering = Rendering {
            hash: hasher.finish(),
            size_bytes: bytes.len() as u64,
        };
        let text = Text {
            bytes: Arc::new(bytes),
            rendering,
            made,
        };
        let mut texts = self.texts();
        let most = self.engine.memory_limit_bytes() / 8;
        texts.bytes = texts.bytes.saturating_add(rendering.size_bytes);
        let place = (node.key.clone(), node.version);
        if let Some(old) = texts.kept.put(place, text.clone()) {
            texts.bytes = texts.bytes.saturating_sub(old.rendering.size_bytes);
        }
        // The newest stays: who asked for it has not read it yet.
        while texts.bytes > most && texts.kept.len() > 1 {
            let Some((_, old)) = texts.kept.pop_lru() else {
                break;
            };
            texts.bytes = texts.bytes.saturating_sub(old.rendering.size_bytes);
        }
        Ok(text)
    }

    /// Fails if the document of an array is not any more the one that was read.
    fn check_document(&self, document: Option<&(Key, Version)>) -> Result<(), StoreError> {
        match document {
            Some((key, version)) if !self.store.promises().pinned => {
                check_version(&*self.store, key, *version)
            }
            _ => Ok(()),
        }
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not there and why, for people.
    fn why(&self, node: &ViewNode) -> String {
        let mut text = String::new();
        for problem in &node.problems {
            text.push_str(problem);
            text.push('\n');
        }
        if let Node::Array(_) = node.node {
            for format in Format::ALL {
                if let Err(why) = self.check(node, format) {
                    text.push_str(&format!("{}: {why}\n", format.own_name(&node.name)));
                }
            }
        }
        if text.is_empty() {
            text.push_str("Everything can be made of this node.\n");
        }
        text
    }
}
