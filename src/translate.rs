//! A hierarchy in another version of Zarr, without decoding: metadata are rewritten, keys of chunks are
//! renamed, inner chunks of shards are byte ranges, and values stay as they are. Blocks of N5, which no
//! codec of Zarr undoes, are decoded (`n5`).
//!
//! A node is translated only if every reader of the other version gets the same elements; any other is
//! left out, with the reason. A translation follows from the node's own documents; in a remote store,
//! from their copies in consolidated metadata.
//!
//! **Architecture Invariant:** nothing here decodes a chunk of Zarr: one in a translation is the same
//! object of the inner store, or the range of it that a shard's index names; only the header of a
//! Zstandard frame may differ (`zstd_frame`). A chunk of N5 has the size of its elements (`decoded`).
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is returned where the inner store, the metadata,
//! or a shard's index that was read proves absence. No other failure becomes it.
//!
//! Lock order: no lock is taken while another is held.

mod codecs;
mod consolidated;
mod decoded;
mod fill;
mod fill_mask;
mod listing;
mod n5;
mod node;
mod outline;
mod resolve;
mod root_copies;
mod shards;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod unreadable;
mod zstd_frame;

use std::collections::HashSet;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

pub use self::outline::{NoOutline, Whole, zmetadata_json, zom_json};

use self::consolidated::Consolidated;
use self::node::{Translation, implicit_group, of_version_1, translate};
use self::outline::{Hierarchy, MAX_NODES};
use self::resolve::Resolved;
use self::root_copies::CachedCopies;
use self::shards::InnerChunks;
use self::text::Text;
use crate::array::{ArrayReader, Engine};
use crate::cache::{SingleFlight, WeightedLru};
use crate::hierarchy::{Document, NodeDocuments};
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, Capabilities, Extent, IncompleteListing, Key, Kind, Listing, ListingSupport,
    Object, Prefetch, Stat, Store, StoreError, TransferStats, Version,
};
use crate::sync::Mutex;
use crate::zarr::{Node, ZarrFormat, document};

/// The version that a hierarchy is translated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Zarr version 2, for tools that know no other; shards are opened up.
    V2,
    /// Zarr version 3, for tools that know no other.
    V3,
    /// Zarr version 3 without shards.
    Unsharded,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::V2, Self::V3, Self::Unsharded];

    /// The name of its directory, and what `--formats` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::V2 => "as-v2",
            Self::V3 => "as-v3",
            Self::Unsharded => "unsharded",
        }
    }

    /// Returns the translation in a few words.
    pub fn description(self) -> &'static str {
        match self {
            Self::V2 => "the hierarchy as Zarr v2",
            Self::V3 => "the hierarchy as Zarr v3",
            Self::Unsharded => "the hierarchy as Zarr v3 without shards",
        }
    }

    /// The document of the root that has copies of all others.
    fn consolidated(self) -> &'static str {
        match self {
            Self::V2 => Document::Zmetadata.name(),
            Self::V3 | Self::Unsharded => Document::ZarrJson.name(),
        }
    }

    /// Whether a node whose document is wrong stays as it is: one of this version is no worse than it was.
    fn shows_broken(self, format: ZarrFormat) -> bool {
        matches!(
            (self, format),
            (Self::V2, ZarrFormat::V2) | (Self::V3, ZarrFormat::V3)
        )
    }
}

/// A store with the nodes of another one in another version.
#[derive(Debug)]
pub struct Translated(Arc<Shared>);

/// The part of a translated store that listings and loads share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    root: Key,
    target: Target,
    /// How long metadata are trusted; `None` without a limit, if the store is immutable.
    ttl: Option<Duration>,
    /// Reserves memory.
    engine: Arc<Engine>,
    nodes: Mutex<WeightedLru<Key, (Arc<NodeView>, Instant)>>,
    inner_chunks: InnerChunks,
    consolidated: Mutex<Option<Consolidated>>,
    /// Loads of a whole hierarchy, by the version of its root.
    consolidating: SingleFlight<u64, Consolidated, StoreError>,
    /// Copies in the consolidated metadata of the root of a remote store.
    copies: Mutex<Option<CachedCopies>>,
    copying: SingleFlight<(), CachedCopies, StoreError>,
    /// Nodes of which it was logged why they are left out.
    logged: Mutex<HashSet<Key>>,
}

/// A node in the target's version.
#[derive(Debug)]
struct NodeView {
    translation: Translation,
    /// Its rendered documents.
    texts: Vec<RenderedText>,
    /// The version of the node's own documents.
    version: u64,
    modified: SystemTime,
    /// The document that describes an array, if the node is one, and its version.
    document: Option<(Key, Version)>,
    /// What decodes its chunks, if those of the translation are decoded.
    reader: Option<Arc<ArrayReader>>,
    memory_bytes: u64,
}

/// The name and the text of a rendered document.
type RenderedText = (&'static str, Arc<Vec<u8>>);

/// The cache has at most so many nodes, which take at most this much memory, and at most this part of
/// the memory limit.
const MAX_CACHED_NODES: usize = 4096;
const MAX_CACHED_BYTES: u64 = 32 << 20;
const MAX_CACHED_PART: u64 = 64;
/// A node is left out if its metadata take more memory than this, or than this part of the limit.
const MAX_NODE_BYTES: u64 = 64 << 20;
const MAX_NODE_PART: u64 = 16;
/// Nodes that are logged.
const MAX_LOGGED: usize = 1024;

impl Translated {
    /// Translates the hierarchy below `root` of `store`. Metadata are trusted for `ttl`; memory is reserved
    /// from `engine`.
    pub fn new(
        store: Arc<dyn Store>,
        root: Key,
        target: Target,
        ttl: Duration,
        engine: Arc<Engine>,
    ) -> Self {
        let ttl = (!store.capabilities().immutable).then_some(ttl);
        let budget_bytes = at_most(&engine, MAX_CACHED_BYTES, MAX_CACHED_PART);
        Self(Arc::new(Shared {
            store,
            root,
            target,
            ttl,
            nodes: Mutex::new(WeightedLru::new(budget_bytes, MAX_CACHED_NODES)),
            inner_chunks: InnerChunks::new(Arc::clone(&engine)),
            engine,
            consolidated: Mutex::default(),
            consolidating: SingleFlight::default(),
            copies: Mutex::default(),
            copying: SingleFlight::default(),
            logged: Mutex::default(),
        }))
    }

    /// Whether the translation of the root differs from the root.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn differs(&self) -> Result<bool, StoreError> {
        let Some(root) = self.0.node(&self.0.root).await? else {
            return Ok(false);
        };
        Ok(match (&root.translation, self.0.target) {
            (Translation::LeftOut(_) | Translation::Same, _) => false,
            (Translation::Array(..) | Translation::Group(Some(_)), _) => true,
            // Whether any array has shards is known only by reading them all.
            (Translation::Group(None), target) => target == Target::Unsharded,
            (Translation::Directory, _) => false,
        })
    }
}

/// The nodes at and below `root` that translations leave out, and why: all that the hierarchy has,
/// up to 10,000 of them.
///
/// # Errors
/// Why they are not known.
pub async fn left_out(
    store: &dyn Store,
    root: &Key,
    engine: &Engine,
) -> Result<Vec<LeftOut>, NoOutline> {
    let mut left_out = Vec::new();
    let Hierarchy { outline, .. } = &Hierarchy::read(store, root, engine, MAX_NODES).await?;
    let unread = outline.unread();
    for target in Target::ALL {
        let mut leave_out = |key: &Key, why: &str| {
            left_out.push(LeftOut {
                target,
                key: key.clone(),
                path: key.below(root).unwrap_or_default().to_vec(),
                why: why.to_owned(),
            });
        };
        outline.left_out(target, root, &mut leave_out);
        if let Some(why) = unread.filter(|_| outline.is_consolidated(target)) {
            let document = root.join(target.consolidated().as_bytes());
            let why = format!("no copies of the metadata below it, some cannot be read: {why}");
            leave_out(&document.unwrap_or_default(), &why);
        }
    }
    Ok(left_out)
}

/// A node that a translation leaves out, with all below it; or the copies that a document lacks; or
/// what is masked otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// Which translation.
    pub target: Target,
    /// The node.
    pub key: Key,
    /// Where it would be in the translation.
    pub path: Vec<u8>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for LeftOut {
    /// Writes a line for the diagnostics.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}: {}",
            self.target.word(),
            String::from_utf8_lossy(&self.path).escape_debug(),
            self.why
        )
    }
}

/// A hash that is the same in every run.
fn hash(words: &[u64]) -> u64 {
    let mut hasher = SipHasher13::new();
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

/// `bytes`, but no more than a part of the memory limit.
fn at_most(engine: &Engine, bytes: u64, part: u64) -> u64 {
    bytes.min(engine.memory_limit_bytes() / part)
}

impl Shared {
    fn is_remote(&self) -> bool {
        self.store.capabilities().is_remote
    }

    /// The node at a prefix of the store; `None` if it is proved that there is no such prefix.
    async fn node(self: &Arc<Self>, key: &Key) -> Result<Option<Arc<NodeView>>, StoreError> {
        if let Some((node, read)) = self.nodes.lock().get(key)
            && self.ttl.is_none_or(|ttl| read.elapsed() < ttl)
        {
            return Ok(Some(Arc::clone(node)));
        }
        if !self.is_remote() {
            leave_session_thread().await;
        }
        let read = Instant::now();
        let documents = self.documents_at(key).await?;
        if documents.texts.iter().all(Option::is_none) && documents.problem.is_none() {
            match self.store.stat(key).await {
                Ok(stat) if stat.kind == Kind::Prefix => {}
                Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let node = Arc::new(self.translate(key, documents)?);
        let entry = (Arc::clone(&node), read);
        let _evicted = self
            .nodes
            .lock()
            .insert(key.clone(), entry, node.memory_bytes);
        Ok(Some(node))
    }

    /// Translates the documents of a node.
    fn translate(&self, key: &Key, documents: NodeDocuments) -> Result<NodeView, StoreError> {
        let translation = self.translation(key, &documents)?;
        if let Translation::LeftOut(why) = &translation {
            let mut logged = self.logged.lock();
            if logged.len() < MAX_LOGGED && logged.insert(key.clone()) {
                log::warn!("{key} is not in {}: {why}", self.target.word());
            }
        }
        let rendered = match &translation {
            Translation::Group(Some(texts)) | Translation::Array(texts, _) => &texts[..],
            _ => &[],
        };
        let texts: Vec<RenderedText> = rendered
            .iter()
            .map(|(name, document)| (*name, Arc::new(outline::text(document))))
            .collect();
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        Ok(NodeView {
            // Parsed documents are some times as large as their texts.
            memory_bytes: (bytes as u64).saturating_mul(8).saturating_add(1024),
            texts,
            reader: self.reader(key, &translation, &documents)?,
            translation,
            version: documents.version,
            modified: documents.modified,
            document: documents.array,
        })
    }

    /// What decodes the chunks of a translation, if they are decoded: that of the same documents, if
    /// there is one, since it has cached chunks.
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
            self.ttl.unwrap_or(Duration::MAX),
            documents.array.clone(),
        )?;
        Ok(Some(Arc::new(reader)))
    }

    fn translation(&self, key: &Key, documents: &NodeDocuments) -> Result<Translation, StoreError> {
        if let Some(problem) = &documents.problem {
            return Ok(Translation::LeftOut(problem.clone()));
        }
        let texts = documents.texts.iter().flatten();
        let bytes: usize = texts.map(|text| document::memory_bytes(text)).sum();
        let bytes = bytes as u64;
        if bytes > at_most(&self.engine, MAX_NODE_BYTES, MAX_NODE_PART) {
            return Ok(Translation::LeftOut("its metadata are too large".into()));
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
                        of_version_1(array, raw.as_ref()).unwrap_or_else(Translation::LeftOut)
                    }
                    _ => translate(self.target, &node, raw.as_ref()),
                }
            }
            Err(_) if self.target.shows_broken(detected.format) => Translation::Same,
            Err(error) => Translation::LeftOut(error.to_string()),
        })
    }

    /// Checks that the metadata of an array have not changed, from which the keys of its chunks follow.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if they have; those of the store.
    async fn check_document(&self, key: &Key, node: &NodeView) -> Result<(), StoreError> {
        let Some((document, version)) = node.document.as_ref().filter(|_| self.ttl.is_some())
        else {
            return Ok(());
        };
        let what = match self.store.stat(document).await {
            Ok(stat) if stat.version == *version => return Ok(()),
            Ok(_) => "the metadata of the array have changed",
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => "the array is gone",
            Err(error) => return Err(error),
        };
        self.remove_copies();
        self.nodes.lock().remove(key);
        Err(StoreError::Stale {
            key: document.clone(),
            what: what.into(),
        })
    }
}

#[async_trait]
impl Store for Translated {
    fn label(&self) -> &str {
        self.0.store.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // An index of a shard is read when an inner chunk is opened.
            open_infallible: false,
            // A listing may have names of chunks that do not exist.
            listing: ListingSupport::BestEffort,
            ..self.0.store.capabilities()
        }
    }

    fn extent(&self) -> Extent {
        self.0.store.extent()
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.0.resolve(key).await? {
            Resolved::Same(key) => self.0.store.stat(&key).await,
            Resolved::Document(text, modified) => Text::new(text, modified).stat(),
            Resolved::Directory(node, key) => self.0.directory_stat(&node, &key).await,
            Resolved::Cell(node, array, cell) => self.0.cell_stat(&node, &array, cell).await,
            Resolved::Chunk(node, array, chunk) => self.0.chunk_stat(&node, &array, chunk).await,
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.0.resolve(key).await? {
            Resolved::Same(key) => self.0.store.open(&key, hint).await,
            Resolved::Document(text, modified) => Ok(Arc::new(Text::new(text, modified))),
            Resolved::Chunk(node, array, chunk) => {
                self.0.open_chunk(&node, &array, chunk, hint).await
            }
            resolved => {
                if let Resolved::Cell(node, array, cell) = resolved {
                    self.0.cell_stat(&node, &array, cell).await?;
                }
                Err(StoreError::NotAPrefix { key: key.clone() })
            }
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.0.list(prefix).await
    }

    async fn incomplete_listing(&self, prefix: &Key) -> Option<IncompleteListing> {
        self.0.incomplete_listing(prefix).await
    }

    async fn invalidate(&self, key: &Key) {
        match self.0.resolve(key).await {
            Ok(Resolved::Same(key)) => self.0.store.invalidate(&key).await,
            Ok(Resolved::Chunk(node, array, chunk)) => {
                if let Some((source, _)) = Shared::source_key(&node, &array, chunk) {
                    self.0.store.invalidate(&source).await;
                }
            }
            _ => {}
        }
    }

    /// Prefetches the key that a key's bytes are made of; not a shard, of which most may not be read.
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

    fn joins_prefetches(&self) -> bool {
        self.0.store.joins_prefetches()
    }

    fn lists_without_requests(&self) -> bool {
        self.0.store.lists_without_requests()
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        self.0.store.transfer_stats()
    }
}
