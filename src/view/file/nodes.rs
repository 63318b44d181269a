//! The nodes of a store, which are read on first use, and their cached views.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::beginning::FilesWithGap;
use super::content::{CachedFile, CachedText};
use super::source_name::source_name;
use crate::array::{ArrayReader, Engine};
use crate::cache::{SingleFlight, WeightedLru};
use crate::clock::Instant;
use crate::codec::Pipeline;
use crate::hierarchy::NodeDocuments;
use crate::node::{ContentError, Members, NodeElements, ViewNode};
use crate::runtime::leave_session_thread;
use crate::store::{DocumentStore, Key, Kind, Store, StoreError, Ttl, Version, list_prefixes};
use crate::sync::Mutex;
use crate::view::format::Format;
use crate::view::format::format_set::FormatSet;
use crate::zarr::node::Group;
use crate::zarr::{self, DataType, Node, ZarrFormat};
/// Options of [`Nodes`].
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// The root of the hierarchy in the store.
    pub root: Key,
    /// The formats that directories list.
    pub formats: FormatSet,
    /// How long data that were read from a mutable store are trusted.
    pub ttl: Ttl,
    /// Whether evenly spaced latitudes and longitudes of rasters without a reference system are WGS 84.
    pub assume_wgs84: bool,
}

/// The nodes of a store; each is read on first use.
#[derive(Debug)]
pub struct Nodes {
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    options: NodesOptions,
    read: Mutex<WeightedLru<Key, Read>>,
    parsing_large: Semaphore,
    pub(in crate::view) texts: Mutex<WeightedLru<(Key, u64), CachedText>>,
    pub(in crate::view) text_loads: SingleFlight<(Key, u64), CachedText, StoreError>,
    pub(in crate::view) files: Mutex<WeightedLru<FileId, Arc<CachedFile>>>,
    pub(in crate::view) file_loads: SingleFlight<FileId, Arc<CachedFile>, ContentError>,
    pub(in crate::view) whole_files: Mutex<WeightedLru<u64, Arc<Vec<u8>>>>,
    pub(in crate::view) whole_file_loads: SingleFlight<u64, Arc<Vec<u8>>, StoreError>,
    pub(in crate::view) whole_file_ids: AtomicU64,
    pub(in crate::view) files_with_gap: FilesWithGap,
    first_members: Mutex<WeightedLru<(Key, usize), ReadMembers>>,
}

/// The first members of a group, and when the oldest of them was read.
type ReadMembers = (Arc<Members>, Instant);

/// Identifies a file of a node: the node's key and version, and the number of the format.
pub(in crate::view) type FileId = (Key, u64, u8);

/// A node and when it was read.
type Read = (Arc<ViewNode>, Instant);

/// Returns the second name of the views of the root, which is the same for all sources.
pub fn alias(is_array: bool) -> &'static str {
    match is_array {
        true => "array",
        false => "root",
    }
}

/// Estimated bytes of a node besides its metadata: its reader and its name.
const NODE_BYTES: u64 = 4096;
/// The metadata of one node, and of all cached nodes, take at most this fraction (1/8) of the memory limit.
/// Each single node fits into the cache, so requests do not parse it again.
const METADATA_PART: u64 = 8;
/// A node with larger metadata is parsed once for all requests. Its metadata count against the memory limit
/// while it is in use. Smaller metadata are negligible beside the other memory of a request.
const MAX_UNCOUNTED_BYTES: u64 = 1 << 20;

impl Nodes {
    /// Returns the nodes of `store`; `engine` decodes the arrays.
    pub fn new(store: Arc<dyn Store>, engine: Arc<Engine>, options: NodesOptions) -> Self {
        let memory = engine.memory_limit_bytes();
        Self {
            store,
            engine,
            options,
            read: WeightedLru::new(memory / METADATA_PART, usize::MAX).into(),
            parsing_large: Semaphore::new(1),
            texts: WeightedLru::new(memory / 8, usize::MAX).into(),
            text_loads: SingleFlight::default(),
            files: WeightedLru::new(memory / 16, usize::MAX).into(),
            file_loads: SingleFlight::default(),
            whole_files: WeightedLru::new(memory / 16, usize::MAX).into(),
            whole_file_loads: SingleFlight::default(),
            whole_file_ids: AtomicU64::new(0),
            files_with_gap: FilesWithGap::default(),
            first_members: WeightedLru::new(memory / 256, usize::MAX).into(),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the engine that decodes chunks.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns whether the directory of an array, or of a group, lists a format.
    pub fn lists(&self, format: Format, is_of_array: bool) -> bool {
        self.options.formats.lists(format, is_of_array)
    }

    /// Returns the options.
    pub fn options(&self) -> &NodesOptions {
        &self.options
    }

    /// Returns the node at a key, which is a prefix of the store. A prefix without documents is a group.
    ///
    /// # Errors
    /// Errors of the store. A wrong document is no error: the node is then a group without attributes that is
    /// [broken](ViewNode::broken).
    pub async fn node(&self, key: &Key) -> Result<Arc<ViewNode>, StoreError> {
        if let Some(node) = self.cached_node(key) {
            return Ok(node);
        }
        leave_session_thread().await;
        let since = Instant::now();
        let documents = NodeDocuments::read(&*self.store, key).await?;
        let memory_bytes = documents.documents().own_memory_bytes() as u64;
        let is_large = memory_bytes > MAX_UNCOUNTED_BYTES;
        let turn = match self.read_before(key, &documents) {
            None if is_large => Some(self.parsing_large(key).await?),
            _ => None,
        };
        let node = match self.read_before(key, &documents) {
            Some(node) => node,
            None => Arc::new(self.open(key, documents, memory_bytes).await?),
        };
        let read = (Arc::clone(&node), since);
        let evicted = self.read.lock().insert(
            key.clone(),
            read,
            node.memory_bytes.saturating_add(NODE_BYTES),
        );
        drop((evicted, turn));
        Ok(node)
    }

    /// Returns the cached node at a key, if it was read from the same documents.
    fn read_before(&self, key: &Key, documents: &NodeDocuments) -> Option<Arc<ViewNode>> {
        let mut read = self.read.lock();
        let (node, _) = read.get(key)?;
        (node.version == documents.version).then(|| Arc::clone(node))
    }

    /// Waits until no other node with large metadata is being parsed.
    async fn parsing_large(&self, key: &Key) -> Result<SemaphorePermit<'_>, StoreError> {
        let closed = |_| StoreError::internal(format!("{key}: the queue of parsers is closed"));
        self.parsing_large.acquire().await.map_err(closed)
    }

    /// Returns the node at a key; `None` if the store proves that it has no such prefix.
    pub(in crate::view) async fn node_if_present(
        &self,
        key: &Key,
    ) -> Result<Option<Arc<ViewNode>>, ContentError> {
        if let Some(node) = self.cached_node(key) {
            return Ok(Some(node));
        }
        match self.store.stat(key).await {
            Ok(stat) if stat.kind == Kind::Prefix => Ok(Some(self.node(key).await?)),
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the cached node at a key, if it is still trusted, or if a store that answers without waiting has the
    /// documents from which it was read.
    pub fn cached_node(&self, key: &Key) -> Option<Arc<ViewNode>> {
        let (node, since) = {
            let mut read = self.read.lock();
            let (node, since) = read.get(key)?;
            (Arc::clone(node), *since)
        };
        let is_current = !node.is_outdated() && (self.is_young(since) || self.is_unchanged(&node));
        is_current.then_some(node)
    }

    /// Returns whether a store that answers without waiting has the documents from which a cached node was read, which
    /// is then trusted for `--ttl` again.
    fn is_unchanged(&self, node: &Arc<ViewNode>) -> bool {
        let now = Instant::now();
        let (Some(store), Some(versions)) = (self.store.as_sync(), node.own_versions) else {
            return false;
        };
        if !versions.are_current(store, &node.key) {
            return false;
        }
        let mut read = self.read.lock();
        if let Some((read, since)) = read.get_mut(&node.key)
            && Arc::ptr_eq(read, node)
        {
            *since = (*since).max(now);
        }
        true
    }

    /// Returns at most `most` members of a group, which are trusted as long as the oldest of them: the views of each
    /// array of the group ask for them.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn first_members(
        &self,
        group: &Key,
        most: usize,
    ) -> Result<Arc<Members>, StoreError> {
        let id = (group.clone(), most);
        if let Some((members, since)) = self.first_members.lock().get(&id)
            && self.is_young(*since)
            && !members.nodes().iter().any(|node| node.is_outdated())
        {
            return Ok(Arc::clone(members));
        }
        let mut since = Instant::now();
        let names = list_prefixes(&*self.store, group, most).await?;
        let names = names.iter().take(most);
        let (mut nodes, mut bytes) = (Vec::new(), 0_u64);
        for key in names.filter_map(|name| group.join(name).ok()) {
            let node = self.node(&key).await?;
            since = since.min(self.read_at(&key).unwrap_or(since));
            bytes = bytes.saturating_add(node.memory_bytes.saturating_add(NODE_BYTES));
            nodes.push(node);
        }
        let members = Arc::new(Members::new(nodes));
        let read = (Arc::clone(&members), since);
        let evicted = self.first_members.lock().insert(id, read, bytes);
        drop(evicted);
        Ok(members)
    }

    /// Returns when a cached node was read, or was last found unchanged.
    fn read_at(&self, key: &Key) -> Option<Instant> {
        let read = self.read.lock();
        read.peek(key).map(|((_, since), _)| *since)
    }

    /// Returns whether what was read at a time is trusted without asking the store again.
    fn is_young(&self, since: Instant) -> bool {
        self.store.capabilities().immutable || since.elapsed() < self.options.ttl.present
    }

    async fn open(
        &self,
        key: &Key,
        mut documents: NodeDocuments,
        memory_bytes: u64,
    ) -> Result<ViewNode, StoreError> {
        let too_large = self.drop_too_large(&mut documents, memory_bytes);
        let unused = documents.too_long.as_ref().map(ToString::to_string);
        let unused = too_large.or(unused);
        let memory_bytes = match unused {
            Some(_) => 0,
            None => memory_bytes,
        };
        let memory = self.engine.reserve(key, memory_bytes).await?;
        let mut parsed = ParsedNode::of(key, &documents, unused);
        let elements = match &parsed.node {
            Node::Group(_) => NodeElements::None,
            Node::Array(array) => self.elements(key, array, documents.array),
        };
        let problems = &mut parsed.problems;
        if let Node::Array(array) = &parsed.node {
            problems.extend(array.problems().map(|error| error.to_string()));
            problems.extend(array.ignored_dimension_names());
        }
        if let NodeElements::Fixed(reader) = &elements {
            problems.extend(widening(&parsed.node, reader));
        }
        if let Err(error) = parsed.node.attributes() {
            problems.push(format!("attributes: {error}"));
        }
        // Attributes as written, if they have their own document.
        let [_zarr_json, _zarray, _zgroup, zattrs, _attributes_json] = documents.texts;
        let attributes = match parsed.node.format() {
            ZarrFormat::V2 => zattrs,
            ZarrFormat::V3 | ZarrFormat::N5 => None,
        };
        Ok(ViewNode {
            key: key.clone(),
            name: self.node_name(key, &parsed.node),
            // Documents that cannot be read are not kept, except for a document of attributes.
            memory_bytes: match parsed.broken {
                Some(_) => attributes.as_ref().map_or(0, |text| text.len() as u64),
                None => memory_bytes,
            },
            node: parsed.node,
            problems: parsed.problems,
            is_implicit: parsed.is_implicit,
            broken: parsed.broken,
            elements,
            version: documents.version,
            own_versions: documents.own_versions,
            modified: documents.modified,
            attributes,
            unread_attributes: parsed.unread_attributes,
            _memory: (memory_bytes > MAX_UNCOUNTED_BYTES).then_some(memory),
        })
    }

    /// Drops the documents of a node whose metadata need more memory than one node may take. Returns the reason.
    fn drop_too_large(&self, documents: &mut NodeDocuments, memory_bytes: u64) -> Option<String> {
        let most_bytes = self.engine.memory_limit_bytes() / METADATA_PART;
        if memory_bytes.saturating_add(NODE_BYTES) <= most_bytes {
            return None;
        }
        documents.texts = Default::default();
        documents.array = None;
        Some(format!(
            "its metadata need {memory_bytes} bytes of memory, those of one node may take {most_bytes}, an eighth of \
             the memory limit: raise --memory-limit"
        ))
    }

    fn node_name(&self, key: &Key, node: &Node) -> String {
        match key.as_bytes().rsplit(|b| *b == b'/').next() {
            Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => source_name(self.store.label())
                .unwrap_or_else(|| alias(matches!(node, Node::Array(_))).into()),
        }
    }

    fn elements(
        &self,
        key: &Key,
        array: &zarr::Array,
        document: Option<(Key, Version)>,
    ) -> NodeElements {
        let parts = match array.decodable() {
            Ok(parts) => parts,
            Err(error) => return NodeElements::Unreadable(error.to_string()),
        };
        let first = vec![0; parts.grid.rank()];
        let chunk_shape = parts.grid.chunk_shape(&first);
        let chunk_shape = chunk_shape.unwrap_or_else(|| parts.grid.largest_chunk_shape());
        let pipeline = match Pipeline::widened(
            parts.codecs,
            parts.data_type,
            &chunk_shape,
            parts.fill_value,
        ) {
            Ok(pipeline) => Arc::new(pipeline),
            Err(error) => return NodeElements::Unreadable(error.to_string()),
        };
        if let DataType::Variable(_) = parts.data_type {
            let store = DocumentStore::new(Arc::clone(&self.store), document, self.options.ttl);
            return NodeElements::Variable(pipeline, Arc::new(store));
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
            Ok(reader) => NodeElements::Fixed(Arc::new(reader)),
            Err(StoreError::Unsupported { what, .. }) => NodeElements::Unreadable(what),
            Err(error) => NodeElements::Unreadable(error.to_string()),
        }
    }
}

/// A node as its documents describe it.
struct ParsedNode {
    node: Node,
    /// Whether no document that can be read says what the node is.
    is_implicit: bool,
    problems: Vec<String>,
    /// Why the documents cannot be read.
    broken: Option<String>,
    /// Why the attributes cannot be read.
    unread_attributes: Option<String>,
}

impl ParsedNode {
    /// `unused` is the reason why the texts of the documents are not used, if they are not.
    fn of(key: &Key, documents: &NodeDocuments, unused: Option<String>) -> Self {
        let implicit = || Node::Group(Group::implicit(ZarrFormat::V2));
        let mut parsed = Self {
            node: implicit(),
            is_implicit: true,
            problems: Vec::new(),
            broken: unused.clone(),
            unread_attributes: unused,
        };
        if let Some(detected) = documents.documents().own_node() {
            for ignored in &detected.ignored {
                let problem = format!("{ignored} is not read, {} is", detected.read);
                log::warn!("{key}: {problem}");
                parsed.problems.push(problem);
            }
            match detected.node {
                Ok(node) => {
                    parsed.node = node;
                    parsed.is_implicit = false;
                }
                Err(error) => {
                    let reason = format!("{}: {error}", detected.read);
                    // Attributes of v2 have a document of their own.
                    if !matches!(detected.read, ".zarray" | ".zgroup") {
                        parsed.unread_attributes = Some(reason.clone());
                    }
                    parsed.broken = Some(reason);
                }
            }
        }
        parsed.problems.extend(parsed.broken.clone());
        parsed
    }
}

/// Returns the note that elements are converted because NumPy lacks their type.
fn widening(node: &Node, reader: &ArrayReader) -> Option<String> {
    let stored = node.as_array()?.data_type.as_ref().ok()?.fixed()?;
    stored.widened()?;
    let wide = reader.chunks().data_type();
    Some(format!(
        "NumPy has no data type {stored}: the views have its values as {wide}"
    ))
}
