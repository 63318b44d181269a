//! Opens chunks, and fetches them from a remote store: whole, or with their neighbours.

use std::sync::Arc;

use super::chunk_cache::ChunkId;
use super::chunks::ArrayChunks;
use super::decode::most_encoded_bytes;
use super::engine::Engine;
use super::memory_limit::Reservation;
use crate::codec::IndexLocation;
use crate::store::{AccessHint, DocumentReads, Key, Object, Stat, StoreError};

/// Added to 9/8 of the decoded size, this is the size up to which a value is fetched whole, in bytes.
const FETCH_SLACK_BYTES: u64 = 64 << 10;

/// Returns the largest size that is fetched whole, in bytes, from the decoded size.
fn fetched_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_add(decoded_bytes / 8)
        .saturating_add(FETCH_SLACK_BYTES)
}

impl ArrayChunks {
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
    pub(super) async fn before_fetching(
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

    /// Fetches inner chunks of one chunk together from a remote store. Errors are reported when the
    /// inner chunks are decoded.
    pub(super) async fn prefetch(&self, ids: &[ChunkId], engine: &Engine) {
        let prefetch = |reads| self.prefetch_under(reads, ids, engine);
        self.store.prefetch(prefetch).await;
    }

    async fn prefetch_under(&self, reads: DocumentReads<'_>, ids: &[ChunkId], engine: &Engine) {
        let (Some(sharding), Some(first)) = (self.sharding(), ids.first()) else {
            return;
        };
        let Ok(key) = self.stored_key(first.chunk) else {
            return;
        };
        let Ok(Some(object)) = open_chunk(&reads, &key, self.hint()).await else {
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
            // An index entry larger than any valid inner chunk is not fetched.
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

/// Opens a chunk; `None` if its absence is proven.
pub(super) async fn open_chunk(
    reads: &DocumentReads<'_>,
    key: &Key,
    hint: AccessHint,
) -> Result<Option<Arc<dyn Object>>, StoreError> {
    present(reads.open(key, hint).await)
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
