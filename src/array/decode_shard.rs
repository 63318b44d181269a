//! Decodes inner chunks of one remote shard together: the shard is opened once, neighbours are fetched with one request,
//! and the document is checked once. One by one, each inner chunk would request the index of a shard again whose
//! attributes are not trusted any more.

use std::sync::Arc;

use super::chunk_cache::{Chunk, ChunkId};
use super::chunks::ArrayChunks;
use super::decode::{EncodedChunk, explained, fetched_bytes, inner_range, present};
use super::engine::Engine;
use crate::codec::Sharding;
use crate::hierarchy::CachedIndex;
use crate::store::{DocumentReads, Fetched, Key, Object, StoreError, now_ms};

/// An inner chunk to decode, and an earlier decoded version of it.
pub(super) type Wanted = (ChunkId, Option<Arc<Chunk>>);

/// What is known of an inner chunk once the index of its shard is.
enum Inner {
    /// Its elements need no request.
    Known(Arc<Chunk>),
    /// Its place, and the size of the encoded and the decoded chunk in bytes.
    Encoded(EncodedChunk, u64),
    Failed(StoreError),
}

/// The result of each inner chunk.
type Decoded<T> = Vec<Result<T, StoreError>>;

impl ArrayChunks {
    /// Reads and decodes inner chunks of one shard. Returns nothing if they have to be decoded one by one, because the
    /// memory limit has no room for all of them, or because the index declares larger ones than are fetched together.
    ///
    /// # Errors
    /// Why none of them can be read.
    pub(super) async fn decode_inner(
        &self,
        wanted: Vec<Wanted>,
        engine: &Engine,
    ) -> Result<Decoded<Fetched<Arc<Chunk>>>, StoreError> {
        let checked_ms = now_ms();
        let decode = |reads| self.decode_inner_under(reads, wanted, engine);
        let decoded = self.store.fetch_each(decode).await?;
        // An earlier chunk is current if its version is, but only under the same document.
        for chunk in decoded.iter().flatten() {
            chunk.value().refresh(checked_ms);
        }
        Ok(decoded)
    }

    async fn decode_inner_under(
        &self,
        reads: DocumentReads<'_>,
        wanted: Vec<Wanted>,
        engine: &Engine,
    ) -> Result<Decoded<Arc<Chunk>>, StoreError> {
        let (Some(sharding), Some((first, _))) = (self.sharding(), wanted.first()) else {
            return Ok(Vec::new());
        };
        let key = &self.stored_key(first.chunk)?;
        let checked_ms = now_ms();
        let Some(shard) = present(reads.open(key, self.hint()).await)? else {
            let absent = |_| Ok(Arc::new(Chunk::absent(None, checked_ms)));
            return Ok(wanted.into_iter().map(absent).collect());
        };
        let index = self.shard_index(&*shard, key, sharding, engine).await?;
        let most = fetched_bytes(self.read_chunk_bytes);
        let mut inner = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let found = self.inner_of(&*shard, key, &index, wanted, checked_ms);
            if matches!(&found, Inner::Encoded(encoded, _) if encoded.range.end - encoded.range.start > most)
            {
                return Ok(Vec::new());
            }
            inner.push(found);
        }
        self.decode_found(&*shard, key, sharding, inner, engine)
            .await
    }

    /// Looks up an inner chunk in the index of its shard.
    fn inner_of(
        &self,
        shard: &dyn Object,
        key: &Key,
        index: &CachedIndex<()>,
        (id, before): Wanted,
        checked_ms: u64,
    ) -> Inner {
        let version = Some(shard.version());
        if let Some(before) = before.filter(|before| before.version == version) {
            return Inner::Known(before);
        }
        let number = id.inner.unwrap_or(0);
        let range = match inner_range(index, key, number) {
            Ok(Some(range)) => range,
            Ok(None) => return Inner::Known(Arc::new(Chunk::absent(version, checked_ms))),
            Err(error) => return Inner::Failed(error),
        };
        let bytes = self
            .read_chunk_bytes
            .saturating_add(range.end - range.start);
        let encoded = EncodedChunk {
            range,
            inner: Some(number),
            memory: None,
            scratch_bytes: 0,
            checked_ms,
        };
        Inner::Encoded(encoded, bytes)
    }

    /// Fetches and decodes inner chunks, whose memory is reserved together: a task that holds some of them never waits
    /// for the memory of another.
    async fn decode_found(
        &self,
        shard: &dyn Object,
        key: &Key,
        sharding: &Sharding,
        inner: Vec<Inner>,
        engine: &Engine,
    ) -> Result<Decoded<Arc<Chunk>>, StoreError> {
        let encoded = inner.iter().filter_map(|inner| match inner {
            Inner::Encoded(encoded, bytes) => Some((encoded.range.clone(), *bytes)),
            Inner::Known(_) | Inner::Failed(_) => None,
        });
        let (ranges, bytes): (Vec<_>, Vec<u64>) = encoded.unzip();
        // The scratch memory is that of one chunk at a time.
        let scratch_bytes = sharding.inner().scratch_bytes();
        let needed_bytes = bytes.into_iter().fold(scratch_bytes, u64::saturating_add);
        let mut memory = match engine.reserve(key, needed_bytes).await {
            Err(StoreError::TooLarge { .. }) => return Ok(Vec::new()),
            reserved => reserved?,
        };
        // A failure is reported when the inner chunk is read.
        shard.prefetch(&ranges).await;
        let mut decoded = Vec::with_capacity(inner.len());
        for inner in inner {
            decoded.push(match inner {
                Inner::Known(chunk) => Ok(chunk),
                Inner::Failed(error) => Err(error),
                Inner::Encoded(mut encoded, bytes) => {
                    encoded.memory = Some(memory.split(bytes));
                    let decoded =
                        self.decode_encoded(shard, key, encoded, sharding.inner(), engine);
                    explained(shard, decoded.await).await
                }
            });
        }
        Ok(decoded)
    }
}
