//! How chunks are fetched from a remote store: whole, or neighbours together.

use super::cache::ChunkId;
use super::chunks::ArrayChunks;
use super::decode::most_encoded_bytes;
use super::engine::Engine;
use super::memory::Reservation;
use crate::codec::IndexLocation;
use crate::store::{AccessHint, Key, StoreError};

/// What is fetched whole may be longer by this than what it decodes to, and by an eighth of it.
const FETCH_SLACK_BYTES: u64 = 64 << 10;

/// What is fetched at once of something that decodes to so many bytes.
fn fetched_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_add(decoded_bytes / 8)
        .saturating_add(FETCH_SLACK_BYTES)
}

impl ArrayChunks {
    /// What will be read of a chunk to have a read chunk of it.
    pub(super) fn hint(&self) -> AccessHint {
        match self.sharding() {
            None => AccessHint::Whole(most_encoded_bytes(self.read_chunk_bytes)),
            Some(sharding) => match sharding.index_location() {
                IndexLocation::End => AccessHint::Tail(sharding.index_size_bytes()),
                IndexLocation::Start => AccessHint::Ranges,
            },
        }
    }

    /// What is asked for to have a read chunk, and the memory that it takes: what is fetched whole is in
    /// memory before its size is known.
    pub(super) async fn before_fetching(
        &self,
        key: &Key,
        engine: &Engine,
    ) -> Result<(AccessHint, Option<Reservation>), StoreError> {
        if !self.is_remote() || self.sharding().is_some() {
            return Ok((self.hint(), None));
        }
        let encoded_bytes = fetched_bytes(self.read_chunk_bytes);
        let needed_bytes = self.read_chunk_bytes.saturating_add(encoded_bytes);
        match engine.reserve(key, needed_bytes).await {
            Ok(memory) => Ok((AccessHint::Whole(encoded_bytes), Some(memory))),
            // It cannot be decoded, but it may well be absent.
            Err(StoreError::TooLarge { .. }) => Ok((AccessHint::Ranges, None)),
            Err(error) => Err(error),
        }
    }

    /// Has the bytes of inner chunks, all of one chunk, fetched together from a remote store.
    /// What cannot be had is said when each of them is decoded.
    pub(super) async fn prefetch(&self, ids: &[ChunkId], engine: &Engine) {
        let (Some(sharding), Some(first)) = (self.sharding(), ids.first()) else {
            return;
        };
        let Ok(key) = self.stored_key(first.chunk) else {
            return;
        };
        let Ok(Some(object)) = self.open(&key, self.hint()).await else {
            return;
        };
        let Ok(index) = self.shard_index(&*object, &key, sharding, engine).await else {
            return;
        };
        let most = fetched_bytes(self.read_chunk_bytes);
        let inner = ids.iter().filter_map(|id| id.inner);
        let ranges = inner.filter_map(|inner| {
            let inner = usize::try_from(inner).ok()?;
            let range = index.index.entry(inner).ok().flatten()?;
            // What an index claims is no reason to fetch more than can be right.
            (range.end - range.start <= most).then_some(range)
        });
        let ranges: Vec<_> = ranges.collect();
        let lengths = ranges.iter().map(|range| range.end - range.start);
        let needed_bytes = lengths.fold(0, u64::saturating_add);
        if let Ok(_memory) = engine.reserve(&key, needed_bytes).await {
            object.prefetch(&ranges).await;
        }
    }
}
