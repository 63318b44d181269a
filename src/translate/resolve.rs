//! From a key that is shown to what is behind it.

use std::sync::Arc;
use std::time::SystemTime;

use super::node::{Chunks, Translation};
use super::shards::Shards;
use super::unreadable::Unreadable;
use super::{Shared, Shown, Target, zstd_frame};
use crate::store::{AccessHint, Key, Kind, Object, Stat, StoreError, Version, may_wait};
use crate::zarr::chunk_key::{KeyEncoding, Separator};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry};

/// What is behind a key.
#[derive(Debug)]
pub(super) enum Place {
    /// The same key of the store.
    Same(Key),
    /// A document that was made, and when the last of what it was made of was changed.
    Document(Arc<Vec<u8>>, SystemTime),
    /// The directory of a node.
    Directory(Arc<Shown>, Key),
    /// A directory of chunks of the array at a key.
    Cell(Arc<Shown>, Key, ChunkDir),
    /// A chunk of the array at a key, by its number.
    Chunk(Arc<Shown>, Key, u64),
}

/// The documents of both versions.
pub(super) const DOCUMENTS: [&[u8]; 5] = [
    b"zarr.json",
    b".zarray",
    b".zgroup",
    b".zattrs",
    b".zmetadata",
];

impl Shared {
    /// What is behind a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is proven that there is nothing; those of the store.
    pub(super) fn resolve(&self, key: &Key) -> Result<Place, StoreError> {
        let absent = || StoreError::NotFound { key: key.clone() };
        let mut rest = key.below(&self.root).ok_or_else(absent)?;
        let mut at = self.root.clone();
        loop {
            let node = self.node(&at)?.ok_or_else(absent)?;
            match &node.translation {
                Translation::LeftOut(_) => return Err(absent()),
                Translation::Same => return Ok(Place::Same(key.clone())),
                _ if rest.is_empty() => return Ok(Place::Directory(node, at)),
                Translation::Array(_, chunks) => {
                    if let Some(text) = node.text(rest) {
                        return Ok(Place::Document(text, node.modified));
                    }
                    return match chunks.names.find_path(rest).ok_or_else(absent)? {
                        ChunkEntry::Directory(cell) => Ok(Place::Cell(node, at, cell)),
                        ChunkEntry::Chunk(chunk) => Ok(Place::Chunk(node, at, chunk)),
                    };
                }
                Translation::Group(_) | Translation::Directory => {}
            }
            let end = rest.iter().position(|b| *b == b'/');
            let (name, behind) = match end.and_then(|end| rest.split_at_checked(end)) {
                Some((name, behind)) => (name, behind.get(1..).unwrap_or_default()),
                None => (rest, &b""[..]),
            };
            if DOCUMENTS.contains(&name) {
                return match behind.is_empty() {
                    true => self.document(key, node, &at, name),
                    false => Err(absent()),
                };
            }
            at = at.join(name).map_err(|_| absent())?;
            rest = behind;
        }
    }

    /// A document of a group.
    fn document(
        &self,
        key: &Key,
        node: Arc<Shown>,
        at: &Key,
        name: &[u8],
    ) -> Result<Place, StoreError> {
        if matches!(node.translation, Translation::Group(None)) && self.is_own_document(name) {
            return Ok(Place::Same(key.clone()));
        }
        if name == self.target.consolidated().as_bytes()
            && *at == self.root
            && let Some((text, modified)) = self.consolidated(&node)?
        {
            return Ok(Place::Document(text, modified));
        }
        match node.text(name) {
            Some(text) => Ok(Place::Document(text, node.modified)),
            None => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    /// Whether groups of the target have a document of that name that says nothing of others.
    pub(super) fn is_own_document(&self, name: &[u8]) -> bool {
        match self.target {
            Target::V2 => matches!(name, b".zgroup" | b".zattrs"),
            Target::V3 | Target::Unsharded => name == b"zarr.json",
        }
    }

    /// The key in the store of a chunk that is shown, and the numbers of the inner chunks in it
    /// that lead there.
    pub(super) fn source_key(node: &Shown, array: &Key, chunk: u64) -> Option<(Key, Vec<u64>)> {
        let chunks = node.chunks()?;
        let index = chunks.grid.index(chunk)?;
        let (index, numbers) = match &chunks.shards {
            Some(shards) => shards.locate(&index),
            None => (index, Vec::new()),
        };
        let below = Key::new(chunks.source_keys.encode(&index).as_bytes()).ok()?;
        Some((array.join_key(&below), numbers))
    }

    pub(super) fn open_chunk(
        &self,
        node: &Shown,
        array: &Key,
        chunk: u64,
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, numbers) = Self::source_key(node, array, chunk).ok_or_else(absent)?;
        let shards = node.chunks().and_then(|chunks| chunks.shards.as_ref());
        let hint = shards.map_or(hint, Shards::reading);
        let opened = self.store.open_for(&source, hint);
        let is_misplaced = matches!(opened, Err(StoreError::NotAPrefix { .. }));
        let opened = opened.map_err(in_place);
        let opened = opened.and_then(|object| match shards {
            Some(shards) => self
                .indexes
                .open(shards, object, &source, &numbers, node.version),
            None => Ok(object),
        });
        let frame_content_bytes = node.chunks().and_then(|chunks| chunks.frame_content_bytes);
        let opened = opened.and_then(|object| match frame_content_bytes {
            Some(bytes) => {
                may_wait(&source)?;
                zstd_frame::with_content_size(object, &source, bytes)
            }
            None => Ok(object),
        });
        if let Err(StoreError::Corrupt { .. }) = &opened {
            self.store.doubt(&source);
        }
        // Behind the reading: metadata are written before chunks. What is absent is so only by the
        // metadata that say where it would be.
        let is_changed = shards.is_some() || frame_content_bytes.is_some();
        if is_changed || matches!(opened, Err(StoreError::NotFound { .. })) {
            self.check_document(array, node)?;
        }
        match opened {
            Err(error) if is_misplaced || is_changed && error.is_lasting() => {
                let stat = self.unreadable(node, &source, &error)?;
                Ok(Arc::new(Unreadable { stat, error }))
            }
            opened => opened,
        }
    }

    /// What is said of a chunk that is there and can not be had, however often it is asked for:
    /// readers that are told of an error before they read take the chunk for one that is absent.
    ///
    /// # Errors
    /// `error`, if the store can not tell this version of the chunk from others.
    fn unreadable(
        &self,
        node: &Shown,
        source: &Key,
        error: &StoreError,
    ) -> Result<Stat, StoreError> {
        let (modified, version) = match (self.store.stat(source), error) {
            (Ok(stat), _) => (stat.modified, stat.version.0),
            (Err(StoreError::NotAPrefix { .. }), StoreError::Corrupt { .. }) => (node.modified, 0),
            _ => return Err(error.clone()),
        };
        Ok(Stat {
            kind: Kind::Object,
            // Nobody asks for the bytes of a value that has none.
            size_bytes: 1,
            modified,
            version: Version(super::hash(&[version, node.version, u64::MAX])),
            links: 1,
        })
    }

    pub(super) fn chunk_stat(
        &self,
        node: &Shown,
        array: &Key,
        chunk: u64,
    ) -> Result<Stat, StoreError> {
        let is_opened =
            |chunks: &Chunks| chunks.shards.is_some() || chunks.frame_content_bytes.is_some();
        if node.chunks().is_some_and(is_opened) {
            return self
                .open_chunk(node, array, chunk, AccessHint::Ranges)?
                .stat();
        }
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, _) = Self::source_key(node, array, chunk).ok_or_else(absent)?;
        match self.store.stat(&source).map_err(in_place) {
            Ok(stat) if stat.kind == Kind::Object => Ok(stat),
            Ok(_) => {
                let error = in_place(StoreError::NotAPrefix {
                    key: source.clone(),
                });
                self.unreadable(node, &source, &error)
            }
            Err(error @ StoreError::Corrupt { .. }) => self.unreadable(node, &source, &error),
            Err(error @ StoreError::NotFound { .. }) => {
                self.check_document(array, node)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn directory_stat(&self, node: &Shown, key: &Key) -> Result<Stat, StoreError> {
        match &node.translation {
            Translation::Array(_, chunks) => {
                Ok(prefix(node, chunks.names.directories(ChunkDir::default())))
            }
            _ => self.store.stat(key),
        }
    }

    /// A directory of chunks is there where the store has the directory that they are in, or keeps
    /// its chunks in none.
    pub(super) fn cell_stat(
        &self,
        node: &Shown,
        array: &Key,
        cell: ChunkDir,
    ) -> Result<Stat, StoreError> {
        let absent = || StoreError::NotFound { key: array.clone() };
        let chunks = node.chunks().ok_or_else(absent)?;
        if let Some(source) = source_prefix(chunks, array, cell)
            && self.store.stat(&source)?.kind != Kind::Prefix
        {
            return Err(StoreError::NotFound { key: source });
        }
        Ok(prefix(node, chunks.names.directories(cell)))
    }
}

impl Shown {
    pub(super) fn chunks(&self) -> Option<&Chunks> {
        match &self.translation {
            Translation::Array(_, chunks) => Some(chunks),
            _ => None,
        }
    }

    fn text(&self, name: &[u8]) -> Option<Arc<Vec<u8>>> {
        let mut texts = self.texts.iter();
        let found = texts.find(|(text, _)| text.as_bytes() == name);
        found.map(|(_, text)| Arc::clone(text))
    }
}

/// The directory in the store that holds the chunks of a directory that is shown; none if the store
/// keeps them in the array's own.
fn source_prefix(chunks: &Chunks, array: &Key, cell: ChunkDir) -> Option<Key> {
    if chunks.source_keys.separator == Separator::Dot {
        return None;
    }
    let mut axes = usize::from(cell.depth);
    if chunks.keys.encoding == KeyEncoding::Default && chunks.keys.separator == Separator::Slash {
        axes = axes.saturating_sub(1);
    }
    let counts = chunks.grid.shape().get(..axes)?;
    let mut left = cell.index;
    let mut index: Vec<u64> = counts
        .iter()
        .rev()
        .map(|count| {
            let at = left % count.max(&1);
            left /= count.max(&1);
            at
        })
        .collect();
    index.reverse();
    if let Some(shards) = &chunks.shards {
        // The axes that are not chosen yet do not matter.
        index.resize(chunks.grid.shape().len(), 0);
        (index, _) = shards.locate(&index);
        index.truncate(axes);
    }
    let mut key = array.clone();
    if chunks.source_keys.encoding == KeyEncoding::Default {
        key = key.join(b"c").ok()?;
    }
    for at in index {
        key = key.join(at.to_string().as_bytes()).ok()?;
    }
    Some(key)
}

fn prefix(node: &Shown, directories: u64) -> Stat {
    Stat {
        kind: Kind::Prefix,
        size_bytes: 0,
        modified: node.modified,
        version: Version(0),
        links: u32::try_from(directories)
            .unwrap_or(u32::MAX)
            .saturating_add(2),
    }
}

/// A directory where a chunk should be does not prove that there is no chunk.
fn in_place(error: StoreError) -> StoreError {
    match error {
        StoreError::NotAPrefix { key } => StoreError::Corrupt {
            key,
            what: "a directory, or a file in place of one, is where the chunk should be".into(),
        },
        error => error,
    }
}
