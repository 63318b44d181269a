//! The chunks of an array: their numbers and keys, and how long cached facts about them are valid.

use std::borrow::Cow;
use std::sync::Arc;

use super::chunk_cache::{Chunk, ChunkId};
use super::geometry::Geometry;
use super::inner_grid::InnerGrid;
use super::pipelines::Pipelines;
use crate::codec::{self, Pipeline, Sharding};
use crate::hierarchy::codec_error;
use crate::runtime::{leave_session_thread, may_block};
use crate::store::{DocumentStore, Key, Presence, Store, StoreError, Ttl, Version};
use crate::zarr::{self, ChunkGrid, ChunkKeys, FillValue, Fixed};

/// The keys, grid and pipelines of the chunks of one array, and of the inner chunks of its shards.
#[derive(Debug)]
pub struct ArrayChunks {
    /// The values, under the document from which this was built.
    pub(super) store: DocumentStore,
    key: Key,
    array: u64,
    /// The pipeline of all chunks, or of one shape if chunks have several shapes.
    pipeline: Arc<Pipeline>,
    /// The pipelines by shape, if chunks have several shapes.
    pipelines: Option<Pipelines>,
    chunk_keys: ChunkKeys,
    grid: ChunkGrid,
    /// The largest chunk extent along each axis, in elements.
    chunk_shape: Vec<u64>,
    data_type: Fixed,
    /// The bytes of one fill value.
    fill: Vec<u8>,
    /// The grid of the inner chunks of the whole array, if the chunks are shards.
    inner: Option<InnerGrid>,
    /// The size of the largest decoded read chunk in bytes.
    pub(super) read_chunk_bytes: u64,
}

impl ArrayChunks {
    pub(super) fn new(
        store: Arc<dyn Store>,
        key: Key,
        metadata: &zarr::Array,
        pipeline: Arc<Pipeline>,
        ttl: Ttl,
        array: u64,
        document: Option<(Key, Version)>,
    ) -> Result<Self, StoreError> {
        let parts = metadata
            .decodable()
            .map_err(|error| unsupported(&key, error.to_string()))?;
        let Some(data_type) = parts.data_type.fixed() else {
            return Err(unsupported(&key, "elements of variable length".into()));
        };
        let chunk_shape = parts.grid.largest_chunk_shape();
        let is_regular = parts.grid.regular_chunk_shape().is_some();
        let stored_fill = match parts.fill_value {
            FillValue::Fixed(bytes) => bytes.clone(),
            FillValue::Undefined | FillValue::Variable(_) => vec![0; data_type.size_bytes],
        };
        let (data_type, fill) = match data_type.widened() {
            Some(wide) => {
                let fill = codec::widened(data_type, &stored_fill);
                (wide, fill.map_err(|error| codec_error(&key, None, error))?)
            }
            None => (data_type.clone(), stored_fill),
        };
        let inner = match pipeline.sharding().filter(|_| is_regular) {
            Some(sharding) => Some(
                InnerGrid::new(&metadata.shape, &chunk_shape, sharding)
                    .ok_or_else(|| unsupported(&key, "too many inner chunks".into()))?,
            ),
            None => None,
        };
        let read_chunk_shape = inner.as_ref().map_or(&chunk_shape, |inner| &inner.shape);
        let read_chunk_bytes = read_chunk_shape
            .iter()
            .try_fold(data_type.size_bytes as u64, |n, edge| n.checked_mul(*edge))
            .ok_or_else(|| unsupported(&key, "more bytes than can be counted".into()))?;
        Ok(Self {
            store: DocumentStore::new(store, document, ttl),
            key,
            array,
            pipeline,
            pipelines: (!is_regular).then(|| Pipelines::new(metadata)),
            chunk_keys: parts.chunk_keys.clone(),
            grid: parts.grid.clone(),
            chunk_shape,
            data_type,
            fill,
            inner,
            read_chunk_bytes,
        })
    }

    fn item_bytes(&self) -> u64 {
        self.data_type.size_bytes as u64
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn document_version(&self) -> u64 {
        self.store.document_version()
    }

    /// Returns whether all chunks have the same shape.
    pub fn is_regular(&self) -> bool {
        self.pipelines.is_none()
    }

    /// Returns the sharding codec, if inner chunks are read individually.
    pub(super) fn sharding(&self) -> Option<&Sharding> {
        self.pipeline.sharding().filter(|_| self.is_regular())
    }

    /// Returns the pipeline of a whole chunk, or of one shape if chunks have several shapes.
    pub(super) fn whole_pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the pipeline of a whole chunk.
    ///
    /// # Errors
    /// An error if the codecs do not fit its shape, [`StoreError::Internal`] if the chunk does not exist.
    pub(super) fn chunk_pipeline(&self, chunk: u64) -> Result<Arc<Pipeline>, StoreError> {
        match &self.pipelines {
            None => Ok(Arc::clone(&self.pipeline)),
            Some(pipelines) => pipelines.get(&self.stored_key(chunk)?, self.shape_of(chunk)?),
        }
    }

    fn shape_of(&self, chunk: u64) -> Result<Vec<u64>, StoreError> {
        let index = self.grid.index(chunk);
        index
            .and_then(|index| self.grid.chunk_shape(&index))
            .ok_or_else(|| no_chunk(&self.key, &self.grid, chunk))
    }

    /// Returns the size of a decoded chunk in bytes.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if the array does not have the chunk.
    pub(super) fn chunk_bytes(&self, chunk: u64) -> Result<u64, StoreError> {
        let shape = match self.is_regular() {
            true => Cow::Borrowed(&self.chunk_shape),
            false => Cow::Owned(self.shape_of(chunk)?),
        };
        // At most the size of the largest chunk, which fits into a u64.
        Ok(shape
            .iter()
            .fold(self.item_bytes(), |n, edge| n.saturating_mul(*edge)))
    }

    /// Returns the size of a decoded read chunk in bytes.
    ///
    /// # Errors
    /// As [`ArrayChunks::chunk_bytes`].
    pub(super) fn bytes_of(&self, id: &ChunkId) -> Result<u64, StoreError> {
        match self.is_regular() {
            true => Ok(self.read_chunk_bytes),
            false => self.chunk_bytes(id.chunk),
        }
    }

    /// Returns the extents of a read chunk in elements, or of the largest one if chunks have several shapes.
    pub(super) fn read_chunk_shape(&self) -> &[u64] {
        match &self.inner {
            Some(inner) => &inner.shape,
            None => &self.chunk_shape,
        }
    }

    /// Returns the bytes of one fill value.
    pub fn fill_value(&self) -> &[u8] {
        &self.fill
    }

    /// Returns the data type of the elements.
    pub fn data_type(&self) -> &Fixed {
        &self.data_type
    }

    /// Returns the chunk grid.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }

    /// Returns the chunk key encoding.
    pub fn chunk_keys(&self) -> ChunkKeys {
        self.chunk_keys.clone()
    }

    /// Returns the number of inner chunks of the whole array along each axis, if its chunks are shards.
    pub fn inner_counts(&self) -> Option<&[u64]> {
        self.inner.as_ref().map(|inner| &inner.counts[..])
    }

    /// Returns the geometry of the read chunks in the whole array.
    pub(super) fn over_the_array(&self) -> Result<Geometry, StoreError> {
        let shape = self.grid.array_shape();
        let geometry = match self.is_regular() {
            true => Geometry::new(shape, self.read_chunk_shape(), self.item_bytes()),
            false => Geometry::over(shape, self.grid.axes(), self.item_bytes()),
        };
        geometry.ok_or_else(|| unsupported(&self.key, "more bytes than can be counted".into()))
    }

    /// Returns the geometry of the read chunks in one chunk: the chunk itself, or its inner chunks.
    pub(super) fn over_a_chunk(&self) -> Result<Geometry, StoreError> {
        let shape = self.read_chunk_shape();
        Geometry::new(&self.chunk_shape, shape, self.item_bytes())
            .ok_or_else(|| unsupported(&self.key, "more bytes than can be counted".into()))
    }

    /// Returns the ID of a read chunk by its number in the whole array.
    pub(super) fn id_of(&self, number: u64) -> ChunkId {
        let (chunk, inner) = match &self.inner {
            Some(inner) => {
                let (chunk, inner) = inner.split(number, self.grid.shape());
                (chunk, Some(inner))
            }
            None => (number, None),
        };
        ChunkId {
            array: self.array,
            chunk,
            inner,
        }
    }

    /// Returns the ID of a read chunk by its number in one chunk.
    pub(super) fn id_in_chunk(&self, chunk: u64, inner: u64) -> ChunkId {
        ChunkId {
            array: self.array,
            chunk,
            inner: self.inner.as_ref().map(|_| inner),
        }
    }

    /// Returns the store key of a chunk.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if the array does not have the chunk, because another key has other bytes.
    pub fn stored_key(&self, chunk: u64) -> Result<Key, StoreError> {
        stored_key(&self.key, &self.grid, &self.chunk_keys, chunk)
    }

    /// Returns the store key of a chunk for messages.
    pub fn chunk_key(&self, chunk: u64) -> Key {
        self.stored_key(chunk).unwrap_or_else(|_| self.key.clone())
    }

    /// Returns the bytes that precede the elements of an unencoded read chunk; see
    /// [`Pipeline::raw_header`].
    pub(super) fn raw_header(&self) -> Option<&[u8]> {
        match self.sharding() {
            // The index has the size of an inner chunk without a header.
            Some(sharding) => sharding
                .inner()
                .raw_header()
                .filter(|header| header.is_empty()),
            // A header contains the shape.
            None => self
                .pipeline
                .raw_header()
                .filter(|header| header.is_empty() || self.is_regular()),
        }
    }

    /// Returns whether the store is remote, so that chunks are fetched whole and concurrently.
    pub(super) fn is_remote(&self) -> bool {
        self.store.capabilities().is_remote
    }

    /// Returns whether the kernel may read files without opening them, because the store cannot fail to open
    /// one.
    pub(super) fn opens_for_each_read(&self) -> bool {
        let capabilities = self.store.capabilities();
        capabilities.immutable && capabilities.open_infallible
    }

    /// Returns whether read chunks are inner chunks, which can be fetched together.
    pub(super) fn has_inner(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the number of the array, as in [`ChunkId::array`].
    pub(super) fn number(&self) -> u64 {
        self.array
    }

    /// Returns whether a cached read chunk is valid without a request to the store.
    pub(super) fn is_fresh(&self, chunk: &Chunk) -> bool {
        let presence = Presence::of(chunk.version);
        self.store.is_trusted(presence, chunk.checked_ms())
    }

    /// Fills `target` with fill values, starting at byte `offset` of a read chunk.
    pub(super) fn fill(&self, offset: u64, target: &mut [u8]) {
        match self.fill.first() {
            Some(first) if self.fill.iter().all(|byte| byte == first) => target.fill(*first),
            _ => {
                let phase = usize::try_from(offset % self.item_bytes().max(1)).unwrap_or(0);
                let pattern = self.fill.iter().cycle().skip(phase);
                for (byte, value) in target.iter_mut().zip(pattern) {
                    *byte = *value;
                }
            }
        }
    }

    /// Leaves the session thread, if opening a chunk blocks on a disk for more than a system call.
    pub(super) async fn leave_session_thread_to_open(&self) {
        if !self.is_remote() && !self.store.opens_without_waiting() && !may_block() {
            leave_session_thread().await;
        }
    }

    /// Returns whether the store is known to have other metadata by now. Sends no request.
    pub fn is_outdated(&self) -> bool {
        self.store.is_outdated()
    }
}

/// Returns the store key of a chunk of the array at `array`.
///
/// # Errors
/// [`StoreError::Internal`] if the grid does not have the chunk.
pub(super) fn stored_key(
    array: &Key,
    grid: &ChunkGrid,
    keys: &ChunkKeys,
    chunk: u64,
) -> Result<Key, StoreError> {
    let internal = || no_chunk(array, grid, chunk);
    let index = grid.index(chunk).ok_or_else(internal)?;
    let name = Key::new(keys.encode(&index).as_bytes()).map_err(|_| internal())?;
    Ok(array.join_key(&name))
}

fn no_chunk(array: &Key, grid: &ChunkGrid, chunk: u64) -> StoreError {
    StoreError::Internal {
        key: array.clone(),
        what: format!("no chunk {chunk} of {}", grid.chunk_count()),
    }
}

fn unsupported(key: &Key, what: String) -> StoreError {
    StoreError::Unsupported {
        key: key.clone(),
        what,
    }
}
