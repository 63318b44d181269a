//! Verification of chunks, which are decoded and then discarded.

use std::sync::Arc;
use std::time::Duration;

use super::chunk_cache::ChunkId;
use super::chunks::{ArrayChunks, stored_key};
use super::decode::{present, with_bytes};
use super::engine::Engine;
use super::pipelines::Pipelines;
use super::variable::{decode_elements, fitting, size_of_element};
use crate::codec::{Pipeline, Sharding};
use crate::hierarchy::codec_error;
use crate::store::{AccessHint, DocumentRef, Key, Object, Store, StoreError, Version};
use crate::zarr::{self, ChunkGrid, ChunkKeys};

/// Decodes the chunks of one array, of any grid and any supported data type.
///
/// Chunks of a regular grid are read like in a mount, so that the verdict also holds for a mount.
#[derive(Debug)]
pub struct Verifier {
    store: Arc<dyn Store>,
    key: Key,
    grid: ChunkGrid,
    chunk_keys: ChunkKeys,
    document: Option<(Key, Version)>,
    method: VerifyMethod,
}

#[derive(Debug)]
enum VerifyMethod {
    /// Chunks read as in a mount: whole, or by the inner chunks of a shard, with their number per shard.
    ArrayChunks(Box<ArrayChunks>, Option<u64>),
    /// Whole chunks of several shapes, or with elements of variable size.
    Whole(Box<Pipelines>),
}

/// The result of [`Verifier::verify`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Whether the store has the chunk.
    pub is_present: bool,
    /// The number of decoded chunks, or of decoded inner chunks of a shard.
    pub chunks: u64,
    /// The size of the decoded elements in bytes.
    pub decoded_bytes: u64,
}

/// The largest memory of the elements of a chunk of variable size, in bytes.
const MAX_ELEMENTS_BYTES: u64 = 128 << 20;
/// The size of the reads of a value that is not decoded, in bytes.
const PART_BYTES: usize = 1 << 20;
/// The size up to which a value is opened to be read whole, in bytes.
const WHOLE_BYTES: u64 = 8 << 20;
/// Decoded chunks are not reused, so nothing is cached.
const NO_TTL: Duration = Duration::ZERO;

impl Verifier {
    /// Prepares the array at `key` of a store, described by the version `document` of a document.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if its chunks cannot be decoded, [`StoreError::Corrupt`] if its
    /// metadata are contradictory.
    pub fn open(
        store: Arc<dyn Store>,
        key: Key,
        metadata: &zarr::Array,
        engine: &Engine,
        document: Option<(Key, Version)>,
    ) -> Result<Self, StoreError> {
        let parts = metadata.decodable().map_err(|error| match error {
            zarr::MetadataError::Unsupported(what) => StoreError::Unsupported {
                key: key.clone(),
                what: what.what,
            },
            error => StoreError::Corrupt {
                key: key.clone(),
                what: error.to_string(),
            },
        })?;
        let pipeline = |shape: &[u64]| {
            Pipeline::widened(parts.codecs, parts.data_type, shape, parts.fill_value)
                .map(Arc::new)
                .map_err(|error| codec_error(&key, None, error))
        };
        let shape = parts.grid.regular_chunk_shape();
        let method = match (shape, parts.data_type.fixed()) {
            (Some(shape), Some(_)) => {
                let pipeline = pipeline(&shape)?;
                let inner = pipeline.sharding().map(Sharding::inner_count);
                let number = engine.next_array();
                let chunks = ArrayChunks::new(
                    Arc::clone(&store),
                    key.clone(),
                    metadata,
                    pipeline,
                    NO_TTL.into(),
                    number,
                    None,
                )?;
                VerifyMethod::ArrayChunks(Box::new(chunks), inner)
            }
            (shape, _) => {
                let first = vec![0; parts.grid.rank()];
                // An array without chunks has no chunk shape, and nothing to decode.
                let pipelines = Pipelines::new(metadata);
                if let Some(shape) = shape.or_else(|| parts.grid.chunk_shape(&first)) {
                    pipelines.get(&key, shape)?;
                }
                VerifyMethod::Whole(Box::new(pipelines))
            }
        };
        Ok(Self {
            grid: parts.grid.clone(),
            chunk_keys: parts.chunk_keys.clone(),
            store,
            key,
            document,
            method,
        })
    }

    /// Returns the store key of a chunk for messages. Chunks are numbered in C order over the grid.
    pub fn chunk_key(&self, chunk: u64) -> Key {
        stored_key(&self.key, &self.grid, &self.chunk_keys, chunk)
            .unwrap_or_else(|_| self.key.clone())
    }

    /// Reads and decodes a whole chunk, including elements beyond the edge of the array, and every
    /// inner chunk of a shard. Holds the memory of one chunk at a time, reserved from `engine`.
    ///
    /// Calls `bad` with each error; each inner chunk of a shard may have one.
    pub async fn verify(
        &self,
        chunk: u64,
        engine: &Engine,
        bad: &mut (dyn FnMut(StoreError) + Send),
    ) -> Verified {
        match &self.method {
            VerifyMethod::ArrayChunks(chunks, inner) => {
                self.chunks(chunks, *inner, chunk, engine, bad).await
            }
            VerifyMethod::Whole(pipelines) => match self.whole(pipelines, chunk, engine).await {
                Ok(verified) => verified,
                Err(error) => {
                    bad(self.or_changed(error).await);
                    Verified {
                        is_present: true,
                        ..Verified::default()
                    }
                }
            },
        }
    }

    /// Returns the error of a chunk, or that its array was written again meanwhile, which may be the cause.
    async fn or_changed(&self, error: StoreError) -> StoreError {
        let source = DocumentRef::new(&*self.store, self.document.as_ref());
        let failed = |_| std::future::ready(Err::<(), _>(error.clone()));
        source.fetch(failed).await.err().unwrap_or(error)
    }

    async fn chunks(
        &self,
        chunks: &ArrayChunks,
        inner: Option<u64>,
        chunk: u64,
        engine: &Engine,
        bad: &mut (dyn FnMut(StoreError) + Send),
    ) -> Verified {
        let mut verified = Verified::default();
        for number in 0..inner.unwrap_or(1) {
            let id = chunks.id_in_chunk(chunk, number);
            match chunks.decode(&id, None, engine).await {
                Ok(decoded) => {
                    let decoded = decoded.into_value();
                    // A decoded chunk without a version is absent.
                    if decoded.version.is_none() {
                        return verified;
                    }
                    verified.is_present = true;
                    if let Some(bytes) = &decoded.bytes {
                        verified.chunks += 1;
                        verified.decoded_bytes += bytes.len() as u64;
                    }
                }
                Err(error) => {
                    verified.is_present = true;
                    bad(self.or_changed(error).await);
                    // Without an index, every inner chunk fails for the same reason.
                    if inner.is_some() && !self.has_index(chunks, &id, engine).await {
                        return verified;
                    }
                }
            }
        }
        // A checksum of the value is only checked when the value is read completely, including gaps.
        if inner.is_some()
            && self.store.capabilities().immutable
            && let Err(error) = read_through(&*self.store, &self.chunk_key(chunk)).await
        {
            bad(self.or_changed(error).await);
        }
        verified
    }

    /// Returns whether the index of the shard is valid.
    async fn has_index(&self, chunks: &ArrayChunks, id: &ChunkId, engine: &Engine) -> bool {
        let key = self.chunk_key(id.chunk);
        let shard = self.store.open(&key, AccessHint::Ranges).await;
        shard.is_ok_and(|shard| chunks.cached_index(&key, shard.version(), engine).is_some())
    }

    async fn whole(
        &self,
        pipelines: &Pipelines,
        chunk: u64,
        engine: &Engine,
    ) -> Result<Verified, StoreError> {
        let key = stored_key(&self.key, &self.grid, &self.chunk_keys, chunk)?;
        let most = MAX_ELEMENTS_BYTES.min(engine.memory_limit_bytes() / 16);
        let hint = AccessHint::Whole(most);
        let Some(object) = present(self.store.open(&key, hint).await)? else {
            return Ok(Verified::default());
        };
        let index = self.grid.index(chunk);
        let shape = index.and_then(|index| self.grid.chunk_shape(&index));
        let shape = shape.ok_or_else(|| StoreError::internal(format!("no shape of {key}")))?;
        let pipeline = pipelines.get(&key, shape)?;
        let encoded_bytes = object.size_bytes();
        let range = 0..encoded_bytes;
        let fail = |error| codec_error(&key, None, error);
        let decoded_bytes = match pipeline.decoded_size_bytes() {
            Some(bytes) => {
                let _memory = engine
                    .reserve(&key, bytes.saturating_add(encoded_bytes))
                    .await?;
                let too_large = || StoreError::TooLarge {
                    key: key.clone(),
                    need_bytes: bytes,
                    limit_bytes: engine.memory_limit_bytes(),
                };
                let length = usize::try_from(bytes).map_err(|_| too_large())?;
                let mut decoded = engine.buffers.take(length).ok_or_else(too_large)?;
                with_bytes(&*object, &key, range, |encoded| {
                    pipeline.decode(encoded, &mut decoded).map_err(fail)
                })
                .await?;
                engine.buffers.give(decoded);
                bytes
            }
            None => variable(&*object, &key, &pipeline, engine).await?,
        };
        Ok(Verified {
            is_present: true,
            chunks: 1,
            decoded_bytes,
        })
    }
}

/// Decodes a chunk of elements of variable size. Returns the size of the elements in bytes.
async fn variable(
    object: &dyn Object,
    key: &Key,
    pipeline: &Pipeline,
    engine: &Engine,
) -> Result<u64, StoreError> {
    let memory = engine.memory_limit_bytes();
    let free = memory.saturating_sub(object.size_bytes());
    let most = fitting(MAX_ELEMENTS_BYTES.min(memory / 4), free, |limit| {
        pipeline.variable_memory_bytes(limit)
    });
    let elements = decode_elements(object, key, pipeline, most, Some(engine)).await?;
    Ok(elements.iter().map(size_of_element).sum())
}

/// Reads all bytes of a value and discards them, so that the store checks its checksums. Returns
/// the size in bytes.
///
/// # Errors
/// The errors of the store, and [`StoreError::Corrupt`] if the value ends before its size.
pub async fn read_through(store: &dyn Store, key: &Key) -> Result<u64, StoreError> {
    let mut object: Arc<dyn Object> = store.open(key, AccessHint::Whole(WHOLE_BYTES)).await?;
    if object.size_bytes() > WHOLE_BYTES {
        // Opened again for sequential reads.
        object = store.open(key, AccessHint::Ranges).await?;
    }
    let size = object.size_bytes();
    let part = PART_BYTES.min(usize::try_from(size).unwrap_or(PART_BYTES));
    let mut at = 0;
    while at < size {
        let read = object.read(at, part).await?;
        let length = read.bytes(&[])?.len() as u64;
        if length == 0 {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("ends {} bytes too early", size - at),
            });
        }
        at += length;
    }
    Ok(size)
}
