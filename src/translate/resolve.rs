//! Resolution of the keys of a translation to nodes, documents and chunks.

use std::sync::Arc;
use std::time::SystemTime;

use super::node::{TranslatedChunks, Translation};
use super::unreadable_chunk::UnreadableChunk;
use super::{NodeView, Shared, Target, zstd_frame};
use crate::array::not_a_chunk;
use crate::hierarchy::is_document_name;
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, DocumentReads, Fetched, Key, Kind, Object, Stat, StoreError, Version,
};
use crate::zarr::chunk_key::{KeyEncoding, Separator};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry};

/// The meaning of a key of a translation.
#[derive(Debug)]
pub(super) enum Resolved {
    /// The same key of the store.
    Same(Key),
    /// A rendered document, and the time of the last modification of any document in it.
    Document(Arc<Vec<u8>>, SystemTime),
    /// The directory of a node.
    Directory(Arc<NodeView>, Key),
    /// A directory of chunks of the array at a key.
    ChunkDir(Arc<NodeView>, Key, ChunkDir),
    /// A chunk of the array at a key, by its number.
    Chunk(Arc<NodeView>, Key, u64),
}

impl Shared {
    /// Resolves a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the absence of the key is proven, and the errors of the store.
    pub(super) async fn resolve(self: &Arc<Self>, key: &Key) -> Result<Resolved, StoreError> {
        let absent = || StoreError::NotFound { key: key.clone() };
        let mut rest = key.below(&self.root).ok_or_else(absent)?;
        let mut at = self.root.clone();
        loop {
            let node = self.node(&at).await?.ok_or_else(absent)?;
            match &node.translation {
                Translation::Unsupported(_) => return Err(absent()),
                Translation::Same => return Ok(Resolved::Same(key.clone())),
                _ if rest.is_empty() => return Ok(Resolved::Directory(node, at)),
                Translation::Array(_, chunks) => {
                    if let Some(text) = node.text(rest) {
                        return Ok(Resolved::Document(text, node.modified));
                    }
                    return match chunks.names.find_path(rest).ok_or_else(absent)? {
                        ChunkEntry::Directory(dir) => Ok(Resolved::ChunkDir(node, at, dir)),
                        ChunkEntry::Chunk(chunk) => Ok(Resolved::Chunk(node, at, chunk)),
                    };
                }
                Translation::Group(_) | Translation::Directory => {}
            }
            let end = rest.iter().position(|b| *b == b'/');
            let (name, behind) = match end.and_then(|end| rest.split_at_checked(end)) {
                Some((name, [_, behind @ ..])) => (name, behind),
                _ => (rest, &b""[..]),
            };
            if is_document_name(name) {
                return match behind.is_empty() {
                    true => self.document(key, node, &at, name).await,
                    false => Err(absent()),
                };
            }
            at = at.join(name).map_err(|_| absent())?;
            rest = behind;
        }
    }

    /// Resolves a document of a group.
    async fn document(
        self: &Arc<Self>,
        key: &Key,
        node: Arc<NodeView>,
        at: &Key,
        name: &[u8],
    ) -> Result<Resolved, StoreError> {
        if matches!(node.translation, Translation::Group(None)) && self.is_own_document(name) {
            return Ok(Resolved::Same(key.clone()));
        }
        if name == self.target.consolidated().as_bytes()
            && *at == self.root
            && let Some((text, modified)) = self.consolidated(&node).await?
        {
            return Ok(Resolved::Document(text, modified));
        }
        match node.text(name) {
            Some(text) => Ok(Resolved::Document(text, node.modified)),
            None => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    /// Returns whether a document of that name describes the group itself in the target version.
    pub(super) fn is_own_document(&self, name: &[u8]) -> bool {
        match self.target {
            Target::V2 => matches!(name, b".zgroup" | b".zattrs"),
            Target::V3 | Target::Unsharded => name == b"zarr.json",
        }
    }

    /// Returns the store key of a translated chunk, and the numbers of the nested inner chunks that
    /// lead to the chunk.
    pub(super) fn source_key(node: &NodeView, array: &Key, chunk: u64) -> Option<(Key, Vec<u64>)> {
        node.chunks()?.source_key(array, chunk)
    }

    pub(super) async fn open_chunk(
        &self,
        node: &NodeView,
        array: &Key,
        chunk: u64,
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        if let Some(reader) = &node.reader {
            return self.open_decoded(node, array, reader, chunk).await;
        }
        if let Some(decoder) = node.chunks().and_then(|chunks| chunks.text.as_ref()) {
            return self.open_text(node, array, decoder, chunk).await;
        }
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, numbers) = Self::source_key(node, array, chunk).ok_or_else(absent)?;
        let shards = node.chunks().and_then(|chunks| chunks.shards.as_ref());
        let hint = shards.map_or(hint, |shards| shards.access_hint());
        let has_frames = node
            .chunks()
            .is_some_and(|chunks| chunks.frame_content_bytes.is_some());
        if shards.is_none() && !has_frames {
            let chunks = self.source_of(array, node).await?;
            return match chunks.open_stored(&source, hint).await {
                Err(error @ (StoreError::NotAPrefix { .. } | StoreError::NotAFile { .. })) => {
                    self.unreadable_chunk(node, &source, not_a_chunk(error))
                        .await
                }
                Err(error) => self.absent_chunk(node, array, error),
                opened => opened,
            };
        }
        let translate = |reads| self.translated_chunk(reads, node, &source, &numbers, hint);
        let opened = self.source_of(array, node).await?.fetch(translate).await;
        match opened.map(Fetched::into_value) {
            Err(error) if error.is_lasting() => self.unreadable_chunk(node, &source, error).await,
            Err(error) => self.absent_chunk(node, array, error),
            opened => opened,
        }
    }

    /// Opens a chunk that is not as it is stored: an inner chunk of a shard, or one in a frame without its size.
    async fn translated_chunk(
        &self,
        reads: DocumentReads<'_>,
        node: &NodeView,
        source: &Key,
        numbers: &[u64],
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let mut object = reads.open(source, hint).await.map_err(not_a_chunk)?;
        if let Some(shards) = node.chunks().and_then(|chunks| chunks.shards.as_ref()) {
            let chunks = &self.inner_chunks;
            object = chunks
                .open(shards, object, source, numbers, node.version)
                .await?;
        }
        if let Some(bytes) = node.chunks().and_then(|chunks| chunks.frame_content_bytes) {
            leave_session_thread().await;
            object = zstd_frame::with_content_size(object, source, bytes).await?;
        }
        Ok(object)
    }

    /// Returns the object of a chunk that exists, but can never be read.
    async fn unreadable_chunk(
        &self,
        node: &NodeView,
        source: &Key,
        error: StoreError,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let stat = self.unreadable(node, source, &error).await?;
        Ok(Arc::new(UnreadableChunk { stat, error }))
    }

    /// Returns the attributes of a chunk that exists, but can never be read. Programs treat a chunk
    /// that fails before the read as absent.
    ///
    /// # Errors
    /// `error`, if the store cannot distinguish this version of the chunk from others.
    pub(super) async fn unreadable(
        &self,
        node: &NodeView,
        source: &Key,
        error: &StoreError,
    ) -> Result<Stat, StoreError> {
        let (modified, version) = match (self.store.stat(source).await, error) {
            (Ok(stat), _) => (stat.modified, stat.version.0),
            (
                Err(StoreError::NotAPrefix { .. } | StoreError::NotAFile { .. }),
                StoreError::Corrupt { .. },
            ) => (node.modified, 0),
            _ => return Err(error.clone()),
        };
        Ok(Stat {
            kind: Kind::Object,
            // Not 0, because programs do not read empty files.
            size_bytes: 1,
            modified,
            version: Version(super::hash(&[version, node.version, u64::MAX])),
            links: 1,
        })
    }

    pub(super) async fn chunk_stat(
        &self,
        node: &NodeView,
        array: &Key,
        chunk: u64,
    ) -> Result<Stat, StoreError> {
        let is_opened = |chunks: &TranslatedChunks| {
            chunks.shards.is_some() || chunks.frame_content_bytes.is_some() || chunks.text.is_some()
        };
        if node.reader.is_some() || node.chunks().is_some_and(is_opened) {
            return self.opened_stat(node, array, chunk).await;
        }
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, _) = Self::source_key(node, array, chunk).ok_or_else(absent)?;
        let chunks = self.source_of(array, node).await?;
        match chunks.stat_stored(&source).await.map_err(not_a_chunk) {
            Ok(stat) if stat.kind == Kind::Object => Ok(stat),
            Ok(_) => {
                let error = not_a_chunk(StoreError::NotAPrefix {
                    key: source.clone(),
                });
                self.unreadable(node, &source, &error).await
            }
            Err(error @ StoreError::Corrupt { .. }) => self.unreadable(node, &source, &error).await,
            Err(error @ StoreError::NotFound { .. }) => {
                self.absent_chunk(node, array, error)?.stat()
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn directory_stat(
        &self,
        node: &NodeView,
        key: &Key,
    ) -> Result<Stat, StoreError> {
        match &node.translation {
            Translation::Array(_, chunks) => {
                Ok(prefix(node, chunks.names.directories(ChunkDir::default())))
            }
            _ => self.store.stat(key).await,
        }
    }

    /// Returns the attributes of a directory of chunks. It exists if the store has the
    /// corresponding directory, or stores chunks without directories.
    pub(super) async fn chunk_dir_stat(
        &self,
        node: &NodeView,
        array: &Key,
        dir: ChunkDir,
    ) -> Result<Stat, StoreError> {
        let absent = || StoreError::NotFound { key: array.clone() };
        let chunks = node.chunks().ok_or_else(absent)?;
        if let Some(source) = source_prefix(chunks, array, dir)
            && self.store.stat(&source).await?.kind != Kind::Prefix
        {
            return Err(StoreError::NotFound { key: source });
        }
        Ok(prefix(node, chunks.names.directories(dir)))
    }
}

impl NodeView {
    pub(super) fn chunks(&self) -> Option<&TranslatedChunks> {
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

/// Returns the store directory of a translated chunk directory; `None` if it is the array's own
/// directory.
fn source_prefix(chunks: &TranslatedChunks, array: &Key, dir: ChunkDir) -> Option<Key> {
    // In N5, with its reversed axes, the chunks of one directory are spread over many, and so they may be in a template.
    let is_in_order = matches!(
        chunks.source_keys.encoding,
        KeyEncoding::Default | KeyEncoding::V2
    );
    if chunks.source_keys.separator == Separator::Dot || !is_in_order {
        return None;
    }
    let mut axes = usize::from(dir.depth);
    if chunks.keys.encoding == KeyEncoding::Default && chunks.keys.separator == Separator::Slash {
        axes = axes.saturating_sub(1);
    }
    let counts = chunks.grid.shape().get(..axes)?;
    let mut left = dir.index;
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
        // Positions along the remaining axes have no effect.
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

fn prefix(node: &NodeView, directories: u64) -> Stat {
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
