//! Opens chunks, reads their stored bytes, and decodes them.
//!
//! A chunk of a remote store comes with its open, if it is not much longer than its elements; memory for it is reserved
//! before. Bytes of a local object are read into a buffer of the thread.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::chunk_cache::{Chunk, ChunkId};
use super::chunks::ArrayChunks;
use super::engine::Engine;
use super::memory_limit::Reservation;
use crate::codec::{self, IndexLocation, Pipeline, Sharding};
use crate::hierarchy::{CachedIndex, ShardId, codec_error, shard_index_range};
use crate::runtime::{leave_session_thread, may_block};
use crate::store::{
    AccessHint, BUFFER_HEADROOM_BYTES, DocumentReads, Fetched, Key, LocalObject, LocalReadError,
    Object, ReadMode, Stat, StoreError, Version, in_memory, nonblocking_first, now_ms, read_range,
    stand_in,
};

/// The location of the encoded bytes of a read chunk in a chunk.
pub(super) struct EncodedChunk {
    pub(super) range: Range<u64>,
    /// The number of the inner chunk, if the chunk is a shard.
    pub(super) inner: Option<u64>,
    /// The memory that is already reserved for it.
    pub(super) memory: Option<Reservation>,
    /// The memory that decoding takes besides the encoded and the decoded chunk, in bytes; 0 if the caller has
    /// reserved it.
    pub(super) scratch_bytes: u64,
    /// The time when the chunk was opened, in milliseconds of `now_ms`.
    pub(super) checked_ms: u64,
}

/// Added to twice the decoded size, this is the largest accepted size of an encoded chunk, in bytes.
const ENCODED_SLACK_BYTES: u64 = 8 << 20;

/// The largest size of a value that is searched for what stands in place of a chunk, in bytes.
const MAX_STAND_IN_BYTES: u64 = 4 << 10;

/// Returns the largest accepted size of an encoded chunk in bytes.
fn most_encoded_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_mul(2)
        .saturating_add(ENCODED_SLACK_BYTES)
}

/// Added to 9/8 of the decoded size, this is the size up to which a value is fetched whole, in bytes.
const FETCH_SLACK_BYTES: u64 = 64 << 10;

/// Returns the largest size that is fetched whole, in bytes, from the decoded size.
pub(super) fn fetched_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_add(decoded_bytes / 8)
        .saturating_add(FETCH_SLACK_BYTES)
}

/// The maximum total size of the scratch buffers of all threads, in bytes.
const SCRATCH_BYTES: u64 = 32 << 20;
/// The scratch buffers take at most this fraction (1/16) of the memory limit.
const SCRATCH_PART: u64 = 16;
/// The largest scratch buffer that a thread keeps, in bytes.
static SCRATCH_KEPT_BYTES: AtomicUsize = AtomicUsize::new(16 << 20);

impl ArrayChunks {
    /// Reads and decodes a read chunk. `before` is an earlier decoded version of the chunk.
    pub(super) async fn decode(
        &self,
        id: &ChunkId,
        before: Option<Arc<Chunk>>,
        engine: &Engine,
    ) -> Result<Fetched<Arc<Chunk>>, StoreError> {
        let started_ms = now_ms();
        let decode = self.store.fetch(|reads| async move {
            let key = &self.stored_key(id.chunk)?;
            let (hint, memory) = self.before_fetching(key, engine).await?;
            let checked_ms = now_ms();
            let Some(object) = present(reads.open(key, hint).await)? else {
                return Ok(Arc::new(Chunk::absent(None, checked_ms)));
            };
            let version = Some(object.version());
            if let Some(before) = before.filter(|before| before.version == version) {
                return Ok(before);
            }
            let whole;
            let (range, pipeline) = match (self.sharding(), id.inner) {
                (Some(sharding), Some(inner)) => {
                    let index = self.shard_index(&*object, key, sharding, engine).await?;
                    match inner_range(&index, key, inner)? {
                        Some(range) => (range, sharding.inner()),
                        None => return Ok(Arc::new(Chunk::absent(version, checked_ms))),
                    }
                }
                _ => {
                    whole = self.chunk_pipeline(id.chunk)?;
                    (0..object.size_bytes(), &*whole)
                }
            };
            let encoded = EncodedChunk {
                range,
                inner: self.sharding().and(id.inner),
                memory,
                scratch_bytes: pipeline.scratch_bytes(),
                checked_ms,
            };
            let decoded = self.decode_encoded(&*object, key, encoded, pipeline, engine);
            explained(&*object, decoded.await).await
        });
        let decoded = decode.await?;
        // An earlier chunk is current if its version is, but only under the same document.
        decoded.value().refresh(started_ms);
        Ok(decoded)
    }

    /// Returns the cached index of a shard of that version.
    pub(super) fn cached_index(
        &self,
        key: &Key,
        version: Version,
        engine: &Engine,
    ) -> Option<Arc<CachedIndex<()>>> {
        let version = (version, self.document_version());
        engine.indexes.get(&shard_id(key), version)
    }

    pub(super) async fn shard_index(
        &self,
        object: &dyn Object,
        key: &Key,
        sharding: &Sharding,
        engine: &Engine,
    ) -> Result<Arc<CachedIndex<()>>, StoreError> {
        let version = object.version();
        if let Some(index) = self.cached_index(key, version, engine) {
            return Ok(index);
        }
        if !may_block() {
            // An index has up to some MiB, and a checksum.
            leave_session_thread().await;
        }
        let range = shard_index_range(object, key, sharding)?;
        let index_bytes = sharding.index_size_bytes();
        let _memory = engine.reserve(key, index_bytes.saturating_mul(2)).await?;
        let index = with_bytes(object, key, range, |bytes| {
            sharding
                .decode_index(bytes, object.size_bytes())
                .map_err(|error| codec_error(key, None, error))
        })
        .await?;
        let version = (version, self.document_version());
        let index = CachedIndex { index, memory: () };
        Ok(engine.indexes.insert(shard_id(key), version, index))
    }

    /// Reads and decodes the bytes of a read chunk.
    pub(super) async fn decode_encoded(
        &self,
        object: &dyn Object,
        key: &Key,
        encoded: EncodedChunk,
        pipeline: &Pipeline,
        engine: &Engine,
    ) -> Result<Arc<Chunk>, StoreError> {
        let EncodedChunk {
            range,
            inner,
            memory,
            scratch_bytes,
            checked_ms,
        } = encoded;
        let corrupt = |what: String| StoreError::Corrupt {
            key: key.clone(),
            what: match inner {
                Some(inner) => format!("inner chunk {inner}: {what}"),
                None => what,
            },
        };
        let decoded_bytes = pipeline.decoded_size_bytes().ok_or_else(|| {
            StoreError::internal("elements of variable length").with_key(key.clone())
        })?;
        let encoded_bytes = range.end - range.start;
        if let Some(expected) = pipeline.encoded_size_bytes()
            && encoded_bytes != expected
        {
            return Err(corrupt(format!(
                "{encoded_bytes} bytes, expected {expected}"
            )));
        }
        let most = most_encoded_bytes(decoded_bytes);
        if encoded_bytes > most {
            return Err(corrupt(format!(
                "{encoded_bytes} bytes to decode to {decoded_bytes}"
            )));
        }
        let needed_bytes = decoded_bytes
            .saturating_add(encoded_bytes)
            .saturating_add(scratch_bytes);
        let mut memory = match memory.filter(|memory| memory.bytes() >= needed_bytes) {
            Some(memory) => memory,
            None => engine.reserve(key, needed_bytes).await?,
        };
        let too_large = || StoreError::TooLarge {
            key: key.clone(),
            need_bytes: decoded_bytes,
            limit_bytes: engine.memory_limit_bytes(),
        };
        let length = usize::try_from(decoded_bytes).map_err(|_| too_large())?;
        let mut decoded = engine
            .buffers
            .take(length)
            .ok_or_else(|| StoreError::TooLarge {
                key: key.clone(),
                need_bytes: decoded_bytes,
                limit_bytes: 0,
            })?;
        with_bytes(object, key, range, |bytes| {
            pipeline
                .decode(bytes, &mut decoded)
                .map_err(|error| codec_error(key, inner, error))
        })
        .await?;
        engine.count_decoded();
        memory.shrink(decoded_bytes);
        let version = object.version();
        Ok(Arc::new(Chunk::decoded(
            decoded,
            version,
            checked_ms,
            memory,
            Arc::clone(&engine.buffers),
        )))
    }

    /// Returns the access hint for a read chunk.
    pub(super) fn hint(&self) -> AccessHint {
        match self.sharding() {
            None => AccessHint::Whole(most_encoded_bytes(self.read_chunk_bytes)),
            Some(sharding) => match sharding.index_location() {
                IndexLocation::End => AccessHint::Tail(sharding.index_size_bytes()),
                IndexLocation::Start => AccessHint::Ranges,
            },
        }
    }

    /// Returns the access hint for a read chunk, and the reserved memory: a value that is fetched
    /// whole is in memory before its size is known.
    async fn before_fetching(
        &self,
        key: &Key,
        engine: &Engine,
    ) -> Result<(AccessHint, Option<Reservation>), StoreError> {
        if !self.is_remote() || self.sharding().is_some() {
            return Ok((self.hint(), None));
        }
        let encoded_bytes = fetched_bytes(self.read_chunk_bytes);
        let needed_bytes = self
            .read_chunk_bytes
            .saturating_add(encoded_bytes)
            .saturating_add(self.whole_pipeline().scratch_bytes());
        match engine.reserve(key, needed_bytes).await {
            Ok(memory) => Ok((AccessHint::Whole(encoded_bytes), Some(memory))),
            // The chunk cannot be decoded, but may be absent.
            Err(StoreError::TooLarge { .. }) => Ok((AccessHint::Ranges, None)),
            Err(error) => Err(error),
        }
    }

    /// Returns the attributes of a stored chunk; `None` if the chunk is absent.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn present_stat(
        &self,
        reads: &DocumentReads<'_>,
        chunk: u64,
    ) -> Result<Option<Stat>, StoreError> {
        let key = self.stored_key(chunk)?;
        match reads.stat(&key).await {
            Ok(stat) => Ok(Some(stat)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(not_a_chunk(error)),
        }
    }
}

/// Returns the place of an inner chunk in its shard; `None` if the shard lacks it.
pub(super) fn inner_range(
    index: &CachedIndex<()>,
    key: &Key,
    inner: u64,
) -> Result<Option<Range<u64>>, StoreError> {
    let entry = index.index.entry(in_memory(inner)?);
    entry.map_err(|error| codec_error(key, Some(inner), error))
}

/// Adds to the error of a chunk that cannot be decoded what the short value in its place is, if it is known.
pub(super) async fn explained<T>(
    object: &dyn Object,
    decoded: Result<T, StoreError>,
) -> Result<T, StoreError> {
    let (key, what) = match decoded {
        Err(StoreError::Corrupt { key, what }) => (key, what),
        decoded => return decoded,
    };
    let size_bytes = object.size_bytes();
    let found = match size_bytes <= MAX_STAND_IN_BYTES {
        true => with_bytes(object, &key, 0..size_bytes, |bytes| Ok(stand_in(bytes))).await,
        false => Ok(None),
    };
    let what = match found {
        Ok(Some(found)) => format!("{what}: it is {found}"),
        _ => what,
    };
    Err(StoreError::Corrupt { key, what })
}

fn shard_id(key: &Key) -> ShardId {
    ShardId {
        key: key.clone(),
        path: Vec::new(),
    }
}

/// Converts the result of opening a chunk; `None` if its absence is proven.
pub(super) fn present(
    opened: Result<Arc<dyn Object>, StoreError>,
) -> Result<Option<Arc<dyn Object>>, StoreError> {
    match opened {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(not_a_chunk(error)),
    }
}

/// Converts the error of a chunk: what else has its key does not prove that the chunk is absent.
pub fn not_a_chunk(error: StoreError) -> StoreError {
    match error {
        StoreError::NotAPrefix { key } => StoreError::Corrupt {
            key,
            what: "a directory, or a file in place of one, is where the chunk should be".into(),
        },
        StoreError::NotAFile { key, what } => StoreError::Corrupt {
            key,
            what: format!("{what} is where the chunk should be"),
        },
        error => error,
    }
}

/// Shares the scratch memory among the threads that decode: for encoded bytes, and as much between codecs.
pub(super) fn share_scratch(threads: usize, memory_limit_bytes: u64) {
    let all = SCRATCH_BYTES.min(memory_limit_bytes / SCRATCH_PART);
    let share = usize::try_from(all).unwrap_or(usize::MAX) / threads.max(1);
    SCRATCH_KEPT_BYTES.store(share.clamp(256 << 10, 16 << 20), Ordering::Relaxed);
    codec::keep_scratch(share);
}

thread_local! {
    /// The buffer for encoded bytes.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_bytes` with a range of a value. A read of a local object that would block leaves the session thread.
pub(super) async fn with_bytes<T: Send>(
    object: &dyn Object,
    key: &Key,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> Result<T, StoreError> + Send,
) -> Result<T, StoreError> {
    if let Some(local) = object.as_local() {
        let mut use_bytes = Some(use_bytes);
        let read = |mode| with_local_bytes(local, key, &range, mode, &mut use_bytes);
        return nonblocking_first(read).await;
    }
    let data = read_range(object, key, range).await?;
    use_bytes(data.bytes(&[])?)
}

/// Takes and calls `use_bytes`, unless the read fails or would block.
fn with_local_bytes<T>(
    object: &dyn LocalObject,
    key: &Key,
    range: &Range<u64>,
    mode: ReadMode,
    use_bytes: &mut Option<impl FnOnce(&[u8]) -> Result<T, StoreError>>,
) -> Result<T, LocalReadError> {
    let length = in_memory(range.end - range.start)?;
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = length + BUFFER_HEADROOM_BYTES;
        if scratch.len() < needed {
            scratch
                .try_reserve_exact(needed - scratch.len())
                .map_err(|_| StoreError::TooLarge {
                    key: key.clone(),
                    need_bytes: needed as u64,
                    limit_bytes: 0,
                })?;
            scratch.resize(needed, 0);
        }
        let data = object.read_local(range.start, length, scratch, mode)?;
        let bytes = data.bytes(scratch)?;
        let use_bytes = use_bytes.take().filter(|_| bytes.len() == length);
        let result = match use_bytes {
            Some(use_bytes) => use_bytes(bytes),
            None => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{} bytes, expected {length}", bytes.len()),
            }),
        };
        let kept = SCRATCH_KEPT_BYTES.load(Ordering::Relaxed);
        if scratch.len() > kept {
            scratch.truncate(kept);
            scratch.shrink_to_fit();
        }
        Ok(result?)
    })
}
