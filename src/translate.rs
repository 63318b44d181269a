//! Translates a hierarchy to another version of Zarr without decoding: metadata are rewritten,
//! chunk keys are renamed, inner chunks of shards become byte ranges, and values stay as they are.
//! Only N5 blocks are decoded (`n5`), because no Zarr codec decodes them.
//!
//! A node is translated only if every reader of the other version gets the same elements. Any other
//! node is left out, with the reason. A translation depends only on the node's own documents; in a
//! remote store, on consolidated metadata.
//!
//! **Architecture Invariant:** this module decodes no Zarr chunk. A translated chunk is the same object
//! of the inner store, or a range of it that a shard index names; only the header of a Zstandard frame
//! may differ (`zstd_frame`). A chunk of N5 has the size of its elements (`decoded`).
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is returned only if the inner store, the
//! metadata, or a shard index that was read proves absence. No other failure is turned into it.
//!
//! Lock order: no lock is taken while another is held.

mod codecs;
mod complete;
mod consolidated;
mod copied_document;
mod decoded;
mod fill;
mod fill_mask;
mod hierarchy;
mod listing;
mod n5;
mod node;
mod rendered_document;
mod resolve;
mod shards;
mod source_consolidated;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod unreadable_chunk;
mod zstd_frame;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

pub use self::hierarchy::{
    Hierarchy, HierarchyDocument, HierarchyError, RenderHierarchy, zmetadata_json, zom_json,
};

use self::consolidated::RenderedConsolidated;
use self::copied_document::DocumentVersion;
use self::node::{Translation, implicit_group, of_version_1, translate};
use self::rendered_document::document_stat;
use self::resolve::Resolved;
use self::shards::InnerChunkOpener;
use self::source_consolidated::CachedSourceConsolidated;
use crate::array::{ArrayReader, Engine};
use crate::cache::{SingleFlight, WeightedLru};
use crate::clock::Instant;
use crate::hierarchy::{Document, NodeDocuments};
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, Capabilities, DocumentRef, DocumentStore, InMemoryObject, IncompleteListing, Key,
    Kind, Listing, ListingSupport, Object, Prefetch, SourceInfo, Stat, Store, StoreError, Ttl,
};
use crate::sync::Mutex;
use crate::zarr::{Node, ZarrFormat, document};

/// The target version of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Zarr version 2, without shards, for tools that support only version 2.
    V2,
    /// Zarr version 3, for tools that support only version 3.
    V3,
    /// Zarr version 3 without shards.
    Unsharded,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::V2, Self::V3, Self::Unsharded];

    /// Returns the name of the translation's directory, which is also its name in `--formats`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "as-v2",
            Self::V3 => "as-v3",
            Self::Unsharded => "unsharded",
        }
    }

    /// Returns a short description of the translation.
    pub fn description(self) -> &'static str {
        match self {
            Self::V2 => "the hierarchy as Zarr v2",
            Self::V3 => "the hierarchy as Zarr v3",
            Self::Unsharded => "the hierarchy as Zarr v3 without shards",
        }
    }

    /// Returns the name of the root's consolidated metadata document.
    fn consolidated(self) -> &'static str {
        match self {
            Self::V2 => Document::Zmetadata.name(),
            Self::V3 | Self::Unsharded => Document::ZarrJson.name(),
        }
    }

    /// Returns whether a node with an invalid document stays as it is, because it has the target
    /// version.
    fn shows_broken(self, format: ZarrFormat) -> bool {
        matches!(
            (self, format),
            (Self::V2, ZarrFormat::V2) | (Self::V3, ZarrFormat::V3)
        )
    }
}

/// A store that presents the nodes of another store in another version.
#[derive(Debug)]
pub struct Translated(Arc<Shared>);

/// The state of a translated store that its listings and loads share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    root: Key,
    target: Target,
    /// The time that metadata are cached; `None` if the store is immutable, so that they never expire.
    ttl: Option<Ttl>,
    /// The engine that memory is reserved from.
    engine: Arc<Engine>,
    nodes: Mutex<WeightedLru<Key, (Arc<NodeView>, Instant)>>,
    inner_chunks: InnerChunkOpener,
    consolidated: Mutex<Option<RenderedConsolidated>>,
    /// Loads of a whole hierarchy in flight, by the version of its root.
    consolidated_loads: SingleFlight<u64, RenderedConsolidated, StoreError>,
    /// The consolidated metadata of the root of a remote store.
    source_consolidated: Mutex<Option<CachedSourceConsolidated>>,
    source_consolidated_loads: SingleFlight<(), CachedSourceConsolidated, StoreError>,
    /// Arrays whose documents say that they have all chunks, with the versions of their own documents.
    complete: Mutex<HashMap<Key, u64>>,
    /// Left out nodes whose reason was logged.
    logged: Mutex<HashSet<Key>>,
}

/// A node in the target version.
#[derive(Debug)]
struct NodeView {
    translation: Translation,
    /// The rendered documents of the node.
    texts: Vec<DocumentText>,
    /// The version of the node's own documents.
    version: u64,
    modified: SystemTime,
    /// The chunks, under the document from which the node was made, if it is an array.
    source: DocumentStore,
    /// Whether the node is an array, and was made from a copy of its document in consolidated metadata.
    is_copy: bool,
    /// The chunks under the own document of the array, once it was compared with the copy; or why they are not those
    /// of the copy.
    compared: OnceLock<Result<DocumentStore, StoreError>>,
    /// The reader of the array, if the translated chunks are decoded.
    reader: Option<Arc<ArrayReader>>,
    memory_bytes: u64,
}

/// The name and the text of a rendered document.
type DocumentText = (&'static str, Arc<Vec<u8>>);

/// Limits of the node cache: a number of nodes, a size in bytes, and a divisor of the memory limit
/// that gives another largest size.
const MAX_CACHED_NODES: usize = 4096;
const MAX_CACHED_BYTES: u64 = 32 << 20;
const MAX_CACHED_PART: u64 = 64;
/// The largest metadata of a node in bytes, and the divisor of the memory limit that limits them too.
const MAX_NODE_BYTES: u64 = 64 << 20;
const MAX_NODE_PART: u64 = 16;
/// The largest number of left out nodes that are logged.
const MAX_LOGGED: usize = 1024;

impl Translated {
    /// Translates the hierarchy below `root` of `store`. Metadata are cached for `ttl`, and memory
    /// is reserved from `engine`.
    pub fn new(
        store: Arc<dyn Store>,
        root: Key,
        target: Target,
        ttl: impl Into<Ttl>,
        engine: Arc<Engine>,
    ) -> Self {
        let ttl = (!store.capabilities().immutable).then(|| ttl.into());
        let budget_bytes = at_most(&engine, MAX_CACHED_BYTES, MAX_CACHED_PART);
        Self(Arc::new(Shared {
            store,
            root,
            target,
            ttl,
            nodes: Mutex::new(WeightedLru::new(budget_bytes, MAX_CACHED_NODES)),
            inner_chunks: InnerChunkOpener::new(Arc::clone(&engine)),
            engine,
            consolidated: Mutex::default(),
            consolidated_loads: SingleFlight::default(),
            source_consolidated: Mutex::default(),
            source_consolidated_loads: SingleFlight::default(),
            complete: Mutex::default(),
            logged: Mutex::default(),
        }))
    }

    /// Returns whether the translation of the root differs from the root.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn differs(&self) -> Result<bool, StoreError> {
        let Some(root) = self.0.node(&self.0.root).await? else {
            return Ok(false);
        };
        Ok(match (&root.translation, self.0.target) {
            (Translation::Unsupported(_) | Translation::Same, _) => false,
            (Translation::Array(..) | Translation::Group(Some(_)), _) => true,
            // Only a walk of all arrays could tell whether any has shards.
            (Translation::Group(None), target) => target == Target::Unsharded,
            (Translation::Directory, _) => false,
        })
    }
}

/// Returns the nodes at and below `root` that translations leave out, with the reasons, from the documents of the
/// nodes.
///
/// # Errors
/// Errors of the store.
pub async fn diagnostics(
    Hierarchy { tree, .. }: &Hierarchy,
    store: &Arc<dyn Store>,
    root: &Key,
    engine: &Arc<Engine>,
) -> Result<Vec<TranslationDiagnostic>, HierarchyError> {
    let mut diagnostics = Vec::new();
    let (v2, ttl) = (Target::V2, Duration::MAX);
    let v2 = Translated::new(Arc::clone(store), root.clone(), v2, ttl, Arc::clone(engine));
    let complete = v2.0.complete_arrays(tree.completable()).await?;
    let complete = complete
        .iter()
        .filter_map(|(path, _)| Some(root.join_key(&Key::new(path.as_bytes()).ok()?)));
    let complete: HashSet<Key> = complete.collect();
    let unread = tree.unreadable();
    for target in Target::ALL {
        let mut leave_out = |key: &Key, reason: &str| {
            diagnostics.push(TranslationDiagnostic {
                target,
                key: key.clone(),
                path: key.below(root).unwrap_or_default().to_vec(),
                reason: reason.to_owned(),
            });
        };
        tree.diagnostics(target, root, &complete, &mut leave_out);
        if let Some(why) = unread.filter(|_| tree.is_consolidated(target)) {
            let document = root.join(target.consolidated().as_bytes());
            let why =
                format!("no consolidated metadata, some metadata below it cannot be read: {why}");
            leave_out(&document.unwrap_or_default(), &why);
        }
    }
    Ok(diagnostics)
}

/// A difference of a translation: a node that is left out with all nodes below it, missing
/// consolidated metadata, or elements that xarray masks differently.
#[derive(Debug, Clone, PartialEq)]
pub struct TranslationDiagnostic {
    /// The translation.
    pub target: Target,
    /// The node.
    pub key: Key,
    /// The path of the node in the translation.
    pub path: Vec<u8>,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for TranslationDiagnostic {
    /// Writes a line for the diagnostics.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}: {}",
            self.target.name(),
            String::from_utf8_lossy(&self.path).escape_debug(),
            self.reason
        )
    }
}

/// Returns a hash that is the same in every process.
fn hash(words: &[u64]) -> u64 {
    let mut hasher = SipHasher13::new();
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

/// Returns the smaller of `bytes` and the memory limit divided by `part`.
fn at_most(engine: &Engine, bytes: u64, part: u64) -> u64 {
    bytes.min(engine.memory_limit_bytes() / part)
}

impl Shared {
    fn is_remote(&self) -> bool {
        self.store.capabilities().is_remote
    }

    /// Returns the node at a prefix of the store; `None` if its absence is proven.
    async fn node(self: &Arc<Self>, key: &Key) -> Result<Option<Arc<NodeView>>, StoreError> {
        if let Some((node, read)) = self.nodes.lock().get(key)
            && self.ttl.is_none_or(|ttl| read.elapsed() < ttl.present)
        {
            return Ok(Some(Arc::clone(node)));
        }
        if !self.is_remote() {
            leave_session_thread().await;
        }
        let read = Instant::now();
        let documents = self.documents_at(key).await?;
        if documents.texts.iter().all(Option::is_none) && documents.too_long.is_none() {
            match self.store.stat(key).await {
                Ok(stat) if stat.kind == Kind::Prefix => {}
                Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let is_text = match self.is_text(key, &documents).await {
            Err(error) if error.is_lasting() => Err(format!("its objects cannot be read: {error}")),
            is_text => Ok(is_text?),
        };
        let mut translation = match is_text {
            Ok(is_text) => self.translation(key, &documents, is_text)?,
            Err(why) => Translation::Unsupported(why),
        };
        self.choose_fill_value(key, &mut translation, documents.version)
            .await?;
        let node = Arc::new(self.rendered(key, translation, documents)?);
        let entry = (Arc::clone(&node), read);
        let _evicted = self
            .nodes
            .lock()
            .insert(key.clone(), entry, node.memory_bytes);
        Ok(Some(node))
    }

    /// Renders the documents of a translated node.
    fn rendered(
        &self,
        key: &Key,
        translation: Translation,
        documents: NodeDocuments,
    ) -> Result<NodeView, StoreError> {
        if let Translation::Unsupported(why) = &translation {
            let mut logged = self.logged.lock();
            if logged.len() < MAX_LOGGED && logged.insert(key.clone()) {
                log::warn!("{key} is not in {}: {why}", self.target.name());
            }
        }
        let rendered = match &translation {
            Translation::Group(Some(texts)) | Translation::Array(texts, _) => &texts[..],
            _ => &[],
        };
        let texts = rendered
            .iter()
            .map(|(name, document)| Ok((*name, Arc::new(hierarchy::text(document, key)?))))
            .collect::<Result<Vec<DocumentText>, StoreError>>()?;
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        Ok(NodeView {
            // A parsed document takes several times the memory of its text.
            memory_bytes: (bytes as u64).saturating_mul(8).saturating_add(1024),
            texts,
            reader: self.reader(key, &translation, &documents)?,
            translation,
            version: documents.version,
            modified: documents.modified,
            source: self.source(documents.array.clone()),
            is_copy: documents.is_copy(key),
            compared: OnceLock::new(),
        })
    }

    /// Returns the source of the chunks that a document describes.
    fn source(&self, document: Option<DocumentVersion>) -> DocumentStore {
        let ttl = self.ttl.unwrap_or(Duration::MAX.into());
        DocumentStore::new(Arc::clone(&self.store), document, ttl)
    }

    /// Returns the reader of chunks that have to be decoded. If the cached node has the same
    /// documents, its reader is kept, because it has cached chunks.
    fn reader(
        &self,
        key: &Key,
        translation: &Translation,
        documents: &NodeDocuments,
    ) -> Result<Option<Arc<ArrayReader>>, StoreError> {
        let Translation::Array(_, chunks) = translation else {
            return Ok(None);
        };
        let Some(decoder) = &chunks.decoder else {
            return Ok(None);
        };
        if let Some((last, _)) = self.nodes.lock().get(key)
            && last.version == documents.version
        {
            return Ok(last.reader.clone());
        }
        let reader = ArrayReader::open(
            Arc::clone(&self.store),
            key.clone(),
            &decoder.array,
            Arc::clone(&decoder.pipeline),
            Arc::clone(&self.engine),
            self.ttl.unwrap_or(Duration::MAX.into()),
            documents.array.clone(),
        )?;
        Ok(Some(Arc::new(reader)))
    }

    /// Returns whether the node is an array of objects that become strings. If the cached node has the same
    /// documents, the elements are not read again.
    async fn is_text(&self, key: &Key, documents: &NodeDocuments) -> Result<bool, StoreError> {
        let cached = self.nodes.lock().get(key).and_then(|(node, _)| {
            let is_same = node.version == documents.version;
            is_same.then(|| node.chunks().is_some_and(|chunks| chunks.text.is_some()))
        });
        if let Some(is_text) = cached {
            return Ok(is_text);
        }
        let has_objects = |text: &Vec<u8>| memchr::memmem::find(text, b"|O").is_some();
        let [_, zarray, ..] = &documents.texts;
        if !zarray.as_ref().is_some_and(has_objects) {
            return Ok(false);
        }
        match documents.documents().node().map(|detected| detected.node) {
            Some(Ok(node)) => {
                text::is_text(
                    DocumentRef::new(&*self.store, documents.array.as_ref()),
                    key,
                    self.target,
                    &node,
                    &self.engine,
                )
                .await
            }
            _ => Ok(false),
        }
    }

    fn translation(
        &self,
        key: &Key,
        documents: &NodeDocuments,
        is_text: bool,
    ) -> Result<Translation, StoreError> {
        if let Some(problem) = &documents.too_long {
            return Ok(Translation::Unsupported(problem.to_string()));
        }
        let texts = documents.texts.iter().flatten();
        let bytes: usize = texts.map(|text| document::memory_bytes(text)).sum();
        let bytes = bytes as u64;
        if bytes > at_most(&self.engine, MAX_NODE_BYTES, MAX_NODE_PART) {
            return Ok(Translation::Unsupported(
                "its metadata are too large".into(),
            ));
        }
        let _memory = self.engine.reserve_now(key, bytes)?;
        let Some(detected) = documents.documents().node() else {
            return Ok(match *key == self.root {
                true => Translation::Directory,
                false => implicit_group(self.target),
            });
        };
        let [zarr_json, zarray, ..] = &documents.texts;
        Ok(match detected.node {
            Ok(node) => {
                let raw = zarr_json.as_deref().or(zarray.as_deref());
                let raw = raw.map(document::parse).and_then(Result::ok);
                match &node {
                    Node::Array(array) if self.target == Target::V2 && documents.is_v1() => {
                        of_version_1(array, raw.as_ref()).unwrap_or_else(Translation::Unsupported)
                    }
                    _ => translate(self.target, &node, raw.as_ref(), is_text),
                }
            }
            Err(_) if self.target.shows_broken(detected.format) => Translation::Same,
            Err(error) => Translation::Unsupported(error.to_string()),
        })
    }

    /// Reads the documents of an array again, if a chunk could not be read because they have changed.
    fn forget_outdated(&self, array: &Key, node: &NodeView) {
        let compared = node
            .compared
            .get()
            .and_then(|compared| compared.as_ref().ok());
        let source = compared.unwrap_or(&node.source);
        if source.is_outdated() {
            self.invalidate_source_consolidated();
            self.nodes.lock().remove(array);
        }
    }
}

#[async_trait]
impl Store for Translated {
    fn label(&self) -> &str {
        self.0.store.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Opening an inner chunk reads the index of its shard.
            open_infallible: false,
            // A listing may have names of chunks that do not exist.
            listing: ListingSupport::BestEffort,
            ..self.0.store.capabilities()
        }
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.0.resolve(key).await? {
            Resolved::Same(key) => self.0.store.stat(&key).await,
            Resolved::Document(text, modified) => Ok(document_stat(&text, modified)),
            Resolved::Directory(node, key) => self.0.directory_stat(&node, &key).await,
            Resolved::ChunkDir(node, array, dir) => self.0.chunk_dir_stat(&node, &array, dir).await,
            Resolved::Chunk(node, array, chunk) => {
                let stat = self.0.chunk_stat(&node, &array, chunk).await;
                if let Err(StoreError::Stale { .. }) = &stat {
                    self.0.forget_outdated(&array, &node);
                }
                stat
            }
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.0.resolve(key).await? {
            Resolved::Same(key) => self.0.store.open(&key, hint).await,
            Resolved::Document(text, modified) => {
                let stat = document_stat(&text, modified);
                Ok(Arc::new(InMemoryObject::new(text, stat)))
            }
            Resolved::Chunk(node, array, chunk) => {
                let opened = self.0.open_chunk(&node, &array, chunk, hint).await;
                if let Err(StoreError::Stale { .. }) = &opened {
                    self.0.forget_outdated(&array, &node);
                }
                opened
            }
            resolved => {
                if let Resolved::ChunkDir(node, array, dir) = resolved {
                    self.0.chunk_dir_stat(&node, &array, dir).await?;
                }
                Err(StoreError::NotAPrefix { key: key.clone() })
            }
        }
    }

    fn info(&self) -> Option<&dyn SourceInfo> {
        self.0.store.info()
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.0.list(prefix).await
    }

    async fn incomplete_listing(
        &self,
        prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        self.0.incomplete_listing(prefix).await
    }

    /// Prefetches the source of a key, unless it is a shard, of which most bytes may not be needed.
    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        let source = match self.0.resolve(key).await {
            Ok(Resolved::Same(key)) => Some(key),
            Ok(Resolved::Chunk(node, array, chunk)) => Shared::source_key(&node, &array, chunk)
                .filter(|(_, inner)| inner.is_empty())
                .map(|(source, _)| source),
            Ok(_) => None,
            Err(_) => return false,
        };
        match source {
            Some(source) => self.0.store.prefetch(&source, what).await,
            None => true,
        }
    }
}
