//! A hierarchy as one of another version, without decoding: metadata are written anew, keys of
//! chunks are renamed, inner chunks of shards are byte ranges, and values stay as they are.
//!
//! A node is shown only if every reader of the other version gets the same elements; any other is
//! left out, with the reason. What is said of a node follows from its own documents; the copies in
//! consolidated metadata speak for it only in a far store, and there for all that is said of it.
//!
//! **Architecture Invariant:** nothing here decodes a chunk, and a chunk that is shown is the same
//! object of the inner store, or a range of it that a shard's index was asked for; only the header
//! of a Zstandard frame may be another one (`zstd_frame`).
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is said where the inner store said it, or
//! the metadata, or a shard's index that was read. No other failure becomes it.
//!
//! Lock order: none is taken below another.

mod codecs;
mod copies;
pub(crate) mod documents;
mod fill;
mod listing;
mod masks;
mod node;
mod outline;
mod resolve;
mod shards;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod unreadable;
mod whole;
mod zstd_frame;

use std::collections::HashSet;
use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;
use siphasher::sip::SipHasher13;

pub use self::outline::{NoOutline, Whole, zmetadata_json, zom_json};

use self::documents::Found;
use self::node::{Translation, implicit_group, translate};
use self::outline::{Hierarchy, MAX_NODES};
use self::resolve::Place;
use self::shards::Indexes;
use self::text::Text;
use self::whole::Consolidated;
use crate::array::Engine;
use crate::store::{
    AccessHint, Capabilities, Extent, Flights, IncompleteListing, Key, Kind, Listing,
    ListingSupport, Object, Stat, Store, StoreError, TransferStats, Version, may_wait,
};
use crate::zarr::document;

/// What a hierarchy is shown as.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V2, Self::V3, Self::Unsharded];

    /// The name of its directory, and what `--formats` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::V2 => "as-v2",
            Self::V3 => "as-v3",
            Self::Unsharded => "unsharded",
        }
    }

    /// The document of the root that has copies of all others.
    fn consolidated(self) -> &'static str {
        match self {
            Self::V2 => ZMETADATA,
            Self::V3 | Self::Unsharded => "zarr.json",
        }
    }

    /// Whether a node whose document is wrong is shown as it is: one of this version is no worse
    /// than it was.
    fn shows_broken(self, is_v3: bool) -> bool {
        matches!((self, is_v3), (Self::V2, false) | (Self::V3, true))
    }
}

/// A store whose nodes are shown as those of another version.
#[derive(Debug)]
pub struct Translated(Arc<Shared>);

/// What the listings of a store need of it.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    root: Key,
    target: Target,
    /// How long what was read is trusted; for good if the store can not change.
    ttl: Option<Duration>,
    /// Whose memory is taken.
    engine: Arc<Engine>,
    known: Mutex<Known>,
    indexes: Indexes,
    consolidated: Mutex<Option<Consolidated>>,
    /// Copies that nodes are made of, and who reads them.
    copies: Mutex<Option<copies::Kept>>,
    copying: Flights<(), copies::Kept>,
    /// Who reads a whole hierarchy, by the version of its root: one is enough.
    consolidating: Flights<u64, Consolidated>,
    /// Nodes whose reasons were logged.
    told: Mutex<HashSet<Key>>,
}

/// A node that was read.
#[derive(Debug)]
struct Shown {
    translation: Translation,
    /// Its documents that were made.
    texts: Vec<MadeText>,
    /// Which content of its own documents it was made of.
    version: u64,
    modified: SystemTime,
    /// The document that makes an array of it, and its version.
    document: Option<(Key, Version)>,
    memory_bytes: u64,
}

/// The name and the text of a document that was made.
type MadeText = (&'static str, Arc<Vec<u8>>);

/// Nodes that were read, least recently used first out.
#[derive(Debug)]
struct Known {
    nodes: LruCache<Key, (Arc<Shown>, Instant)>,
    bytes: u64,
}

/// Nodes that are kept, and what they may take in memory, about: this, and no more than this part
/// of all that there may be.
const MAX_KNOWN: usize = 4096;
const MAX_KNOWN_BYTES: u64 = 32 << 20;
const MAX_KNOWN_PART: u64 = 64;
/// Metadata of one node that take more memory than this are not translated.
const MAX_NODE_BYTES: u64 = 64 << 20;
const MAX_NODE_PART: u64 = 16;
/// Nodes whose reasons are logged.
const MAX_TOLD: usize = 1024;
/// The name of consolidated metadata of version 2.
const ZMETADATA: &str = ".zmetadata";

impl Translated {
    /// Shows the hierarchy below `root` of `store`. What was read is trusted for `ttl`; the memory
    /// that this takes is that of `engine`.
    pub fn new(
        store: Arc<dyn Store>,
        root: Key,
        target: Target,
        ttl: Duration,
        engine: Arc<Engine>,
    ) -> Self {
        let ttl = (!store.capabilities().immutable).then_some(ttl);
        Self(Arc::new(Shared {
            store,
            root,
            target,
            ttl,
            known: Mutex::new(Known {
                nodes: LruCache::unbounded(),
                bytes: 0,
            }),
            indexes: Indexes::new(Arc::clone(&engine)),
            engine,
            consolidated: Mutex::default(),
            copies: Mutex::default(),
            copying: Flights::default(),
            consolidating: Flights::default(),
            told: Mutex::default(),
        }))
    }

    /// Whether the root, or else the first array in it, would be shown otherwise than it is.
    ///
    /// # Errors
    /// Those of the store.
    pub fn differs(&self) -> Result<bool, StoreError> {
        let Some(root) = self.0.node(&self.0.root)? else {
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
pub fn left_out(store: &dyn Store, root: &Key, engine: &Engine) -> Result<Vec<LeftOut>, NoOutline> {
    let mut left_out = Vec::new();
    let Hierarchy { outline, .. } = &Hierarchy::read(store, root, engine, MAX_NODES)?;
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
            let why = format!("no copies of the metadata below it, some can not be read: {why}");
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

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node at a prefix of the store; none if it is proven that there is no such prefix.
    fn node(&self, key: &Key) -> Result<Option<Arc<Shown>>, StoreError> {
        if let Some((node, read)) = self.known().nodes.get(key)
            && self.ttl.is_none_or(|ttl| read.elapsed() < ttl)
        {
            return Ok(Some(Arc::clone(node)));
        }
        if !self.store.capabilities().is_remote {
            may_wait(key)?;
        }
        let read = Instant::now();
        let found = self.documents_at(key)?;
        if found.texts.iter().all(Option::is_none) && found.problem.is_none() {
            match self.store.stat(key) {
                Ok(stat) if stat.kind == Kind::Prefix => {}
                Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let node = Arc::new(self.translate(key, found)?);
        let mut known = self.known();
        known.bytes = known.bytes.saturating_add(node.memory_bytes);
        let entry = (Arc::clone(&node), read);
        if let Some((old, _)) = known.nodes.put(key.clone(), entry) {
            known.bytes = known.bytes.saturating_sub(old.memory_bytes);
        }
        let most = self.at_most(MAX_KNOWN_BYTES, MAX_KNOWN_PART);
        let is_full = |known: &Known| known.bytes > most || known.nodes.len() > MAX_KNOWN;
        while is_full(&known) && known.nodes.len() > 1 {
            let Some((_, (old, _))) = known.nodes.pop_lru() else {
                break;
            };
            known.bytes = known.bytes.saturating_sub(old.memory_bytes);
        }
        Ok(Some(node))
    }

    /// `bytes`, but no more than a part of the memory that there may be.
    fn at_most(&self, bytes: u64, part: u64) -> u64 {
        bytes.min(self.engine.memory_limit_bytes() / part)
    }

    /// Makes of documents what is shown.
    fn translate(&self, key: &Key, found: Found) -> Result<Shown, StoreError> {
        let translation = self.translation(key, &found)?;
        if let Translation::LeftOut(why) = &translation {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() < MAX_TOLD && told.insert(key.clone()) {
                log::warn!("{key} is not in {}: {why}", self.target.word());
            }
        }
        let made = match &translation {
            Translation::Group(Some(texts)) | Translation::Array(texts, _) => &texts[..],
            _ => &[],
        };
        let texts: Vec<MadeText> = made
            .iter()
            .map(|(name, document)| (*name, Arc::new(outline::text(document))))
            .collect();
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        Ok(Shown {
            // Parsed documents are some times as large as their texts.
            memory_bytes: (bytes as u64).saturating_mul(8).saturating_add(1024),
            texts,
            translation,
            version: found.version,
            modified: found.modified,
            document: found.array,
        })
    }

    fn translation(&self, key: &Key, found: &Found) -> Result<Translation, StoreError> {
        if let Some(problem) = &found.problem {
            return Ok(Translation::LeftOut(problem.clone()));
        }
        let texts = found.texts.iter().flatten();
        let bytes: usize = texts.map(|text| document::memory_bytes(text)).sum();
        let bytes = bytes as u64;
        if bytes > self.at_most(MAX_NODE_BYTES, MAX_NODE_PART) {
            return Ok(Translation::LeftOut("its metadata are too large".into()));
        }
        let _memory = self.engine.reserve_now(key, bytes)?;
        let Some(detected) = found.documents().node() else {
            return Ok(match *key == self.root {
                true => Translation::Directory,
                false => implicit_group(self.target),
            });
        };
        let [zarr_json, zarray, ..] = &found.texts;
        Ok(match detected.node {
            Ok(node) => {
                let raw = zarr_json.as_deref().or(zarray.as_deref());
                let raw = raw.map(document::parse);
                translate(self.target, &node, raw.and_then(Result::ok).as_ref())
            }
            Err(_) if self.target.shows_broken(zarr_json.is_some()) => Translation::Same,
            Err(error) => Translation::LeftOut(error.to_string()),
        })
    }

    /// Fails if the metadata of an array are not any more those that its chunks are found by.
    fn check_document(&self, key: &Key, node: &Shown) -> Result<(), StoreError> {
        let Some((document, version)) = node.document.as_ref().filter(|_| self.ttl.is_some())
        else {
            return Ok(());
        };
        let what = match self.store.stat(document) {
            Ok(stat) if stat.version == *version => return Ok(()),
            Ok(_) => "the metadata of the array have changed",
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => "the array is gone",
            Err(error) => return Err(error),
        };
        self.forget_copies();
        let mut known = self.known();
        if let Some((old, _)) = known.nodes.pop(key) {
            known.bytes = known.bytes.saturating_sub(old.memory_bytes);
        }
        Err(StoreError::Stale {
            key: document.clone(),
            what: what.into(),
        })
    }
}

impl Store for Translated {
    fn label(&self) -> &str {
        self.0.store.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // An index of a shard is read when an inner chunk is opened.
            open_infallible: false,
            // Chunks may be listed that are not there.
            listing: ListingSupport::BestEffort,
            ..self.0.store.capabilities()
        }
    }

    fn extent(&self) -> Extent {
        self.0.store.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.0.resolve(key)? {
            Place::Same(key) => self.0.store.stat(&key),
            Place::Document(text, modified) => Text::new(text, modified).stat(),
            Place::Directory(node, key) => self.0.directory_stat(&node, &key),
            Place::Cell(node, array, cell) => self.0.cell_stat(&node, &array, cell),
            Place::Chunk(node, array, chunk) => self.0.chunk_stat(&node, &array, chunk),
        }
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        self.open_for(key, AccessHint::Ranges)
    }

    fn open_for(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        match self.0.resolve(key)? {
            Place::Same(key) => self.0.store.open_for(&key, hint),
            Place::Document(text, modified) => Ok(Arc::new(Text::new(text, modified))),
            Place::Chunk(node, array, chunk) => self.0.open_chunk(&node, &array, chunk, hint),
            place => {
                if let Place::Cell(node, array, cell) = place {
                    self.0.cell_stat(&node, &array, cell)?;
                }
                Err(StoreError::NotAPrefix { key: key.clone() })
            }
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        Shared::list(&self.0, prefix)
    }

    fn incomplete_listing(&self, prefix: &Key) -> Option<IncompleteListing> {
        self.0.incomplete_listing(prefix)
    }

    fn doubt(&self, key: &Key) {
        match self.0.resolve(key) {
            Ok(Place::Same(key)) => self.0.store.doubt(&key),
            Ok(Place::Chunk(node, array, chunk)) => {
                if let Some((source, _)) = Shared::source_key(&node, &array, chunk) {
                    self.0.store.doubt(&source);
                }
            }
            _ => {}
        }
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        self.0.store.transfer_stats()
    }
}
