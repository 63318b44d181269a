//! Reads chunks from the store and decodes them.

use std::ops::Range;
use std::sync::Arc;

use super::chunk_cache::{Chunk, ChunkId};
use super::chunks::ArrayChunks;
use super::engine::Engine;
use super::fetch::open_chunk;
use super::memory_limit::Reservation;
use super::raw::with_bytes;
use crate::codec::{Pipeline, Sharding};
use crate::hierarchy::{CachedIndex, ShardId, codec_error, shard_index_range};
use crate::runtime::{leave_session_thread, may_block};
use crate::store::{
    DocumentReads, Fetched, Key, Object, StoreError, Version, in_memory, now_ms, stand_in,
};

/// The location of the encoded bytes of a read chunk in a chunk.
struct EncodedChunk {
    range: Range<u64>,
    /// The number of the inner chunk, if the chunk is a shard.
    inner: Option<u64>,
    /// The memory that is already reserved for it.
    memory: Option<Reservation>,
    /// The time when the chunk was opened, in milliseconds of `now_ms`.
    checked_ms: u64,
}

/// Added to twice the decoded size, this is the largest accepted size of an encoded chunk, in bytes.
const ENCODED_SLACK_BYTES: u64 = 8 << 20;

/// The largest size of a value that is searched for what stands in place of a chunk, in bytes.
const MAX_STAND_IN_BYTES: u64 = 4 << 10;

/// Returns the largest accepted size of an encoded chunk in bytes.
pub(super) fn most_encoded_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_mul(2)
        .saturating_add(ENCODED_SLACK_BYTES)
}

impl ArrayChunks {
    /// Reads and decodes a read chunk. `before` is an earlier decoded version of the chunk.
    pub(super) async fn decode(
        &self,
        id: &ChunkId,
        before: Option<Arc<Chunk>>,
        engine: &Engine,
    ) -> Result<Fetched<Arc<Chunk>>, StoreError> {
        let checked_ms = now_ms();
        let decode = |reads| self.decode_under(reads, id, before, engine);
        let decoded = self.store.fetch(decode).await?;
        // An earlier chunk is current if its version is, but only under the same document.
        decoded.value().refresh(checked_ms);
        Ok(decoded)
    }

    async fn decode_under(
        &self,
        reads: DocumentReads<'_>,
        id: &ChunkId,
        before: Option<Arc<Chunk>>,
        engine: &Engine,
    ) -> Result<Arc<Chunk>, StoreError> {
        let key = &self.stored_key(id.chunk)?;
        let (hint, memory) = self.before_fetching(key, engine).await?;
        let checked_ms = now_ms();
        let Some(object) = open_chunk(&reads, key, hint).await? else {
            return Ok(Arc::new(Chunk::absent(None, checked_ms)));
        };
        if let Some(before) = before
            && before.version == Some(object.version())
        {
            return Ok(before);
        }
        let whole;
        let (range, inner, pipeline) = match (self.sharding(), id.inner) {
            (Some(sharding), Some(inner)) => {
                let index = self.shard_index(&*object, key, sharding, engine).await?;
                let entry = index
                    .index
                    .entry(in_memory(inner)?)
                    .map_err(|error| codec_error(key, Some(inner), error))?;
                let Some(range) = entry else {
                    return Ok(Arc::new(Chunk::absent(Some(object.version()), checked_ms)));
                };
                (range, Some(inner), sharding.inner())
            }
            _ => {
                whole = self.chunk_pipeline(id.chunk)?;
                (0..object.size_bytes(), None, &*whole)
            }
        };
        let encoded = EncodedChunk {
            range,
            inner,
            memory,
            checked_ms,
        };
        let decoded = self.decode_range(&*object, key, encoded, pipeline, engine);
        match decoded.await {
            Err(error) => Err(explained(&*object, error).await),
            decoded => decoded,
        }
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

    async fn decode_range(
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
            .saturating_add(pipeline.scratch_bytes());
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
}

/// Adds to the error of a chunk that cannot be decoded what the short value in its place is, if it is known.
async fn explained(object: &dyn Object, error: StoreError) -> StoreError {
    let StoreError::Corrupt { key, what } = error else {
        return error;
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
    StoreError::Corrupt { key, what }
}

fn shard_id(key: &Key) -> ShardId {
    ShardId {
        key: key.clone(),
        path: Vec::new(),
    }
}
