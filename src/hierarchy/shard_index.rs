//! The byte ranges of inner chunks in shards (zarr-specs, `sharding_indexed`, "Binary shard format").

use std::ops::Range;
use std::sync::Arc;

use crate::cache::{SingleFlight, WeightedLru};
use crate::codec::{CodecError, IndexLocation, ShardIndex, Sharding};
use crate::store::{Key, Object, StoreError, Version, read_range};
use crate::sync::Mutex;

/// The memory of an index besides its entries, in bytes.
const OVERHEAD_BYTES: u64 = 256;
/// The size of an entry in bytes.
const ENTRY_BYTES: u64 = 16;

/// A chunk that is a shard, or a shard nested in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardId {
    /// The key of the chunk.
    pub key: Key,
    /// The numbers of the inner chunks that lead to the shard; empty for the chunk itself.
    pub path: Vec<u64>,
}

/// The version of a chunk, and that of the metadata that describe its index.
pub type ShardVersion = (Version, u64);

/// A decoded index and the reservation of its memory.
#[derive(Debug)]
pub struct CachedIndex<M> {
    /// The index.
    pub index: ShardIndex,
    /// The reservation, released together with the index.
    pub memory: M,
}

type Shared<M> = Arc<CachedIndex<M>>;
type Cached<M> = Mutex<WeightedLru<ShardId, (ShardVersion, Shared<M>)>>;

/// Decoded indexes. Concurrent requests for one index share a single load.
#[derive(Debug)]
pub struct ShardIndexCache<M> {
    cached: Arc<Cached<M>>,
    loads: SingleFlight<(ShardId, ShardVersion), Shared<M>, StoreError>,
}

impl<M: Send + Sync + 'static> ShardIndexCache<M> {
    /// Creates an empty cache for indexes of at most `budget_bytes` in total. The newest index
    /// always stays.
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            cached: Arc::new(Mutex::new(WeightedLru::new(budget_bytes, usize::MAX))),
            loads: SingleFlight::default(),
        }
    }

    /// Returns the cached index of a shard.
    pub fn get(&self, shard: &ShardId, version: ShardVersion) -> Option<Arc<CachedIndex<M>>> {
        get(&self.cached, shard, version)
    }

    /// Caches a decoded index and returns it.
    pub fn insert(
        &self,
        shard: ShardId,
        version: ShardVersion,
        index: CachedIndex<M>,
    ) -> Arc<CachedIndex<M>> {
        insert(&self.cached, shard, version, index)
    }

    /// Returns the index of a shard, from the cache or from one load that all waiting requests share.
    ///
    /// # Errors
    /// The errors of `load`.
    pub async fn get_or_load<F>(
        &self,
        shard: ShardId,
        version: ShardVersion,
        load: impl FnOnce() -> F,
    ) -> Result<Arc<CachedIndex<M>>, StoreError>
    where
        F: Future<Output = Result<CachedIndex<M>, StoreError>> + Send + 'static,
    {
        if let Some(index) = self.get(&shard, version) {
            return Ok(index);
        }
        let (cached, id) = (Arc::clone(&self.cached), shard.clone());
        let panicked = StoreError::internal(format!("reading the index of {} panicked", shard.key));
        let load = || {
            let load = load();
            async move {
                // Another load may have completed meanwhile.
                if let Some(index) = get(&cached, &id, version) {
                    return Ok(index);
                }
                Ok(insert(&cached, id, version, load.await?))
            }
        };
        self.loads.run((shard, version), load, panicked).await
    }
}

fn insert<M>(
    cached: &Cached<M>,
    shard: ShardId,
    version: ShardVersion,
    index: CachedIndex<M>,
) -> Shared<M> {
    let index = Arc::new(index);
    let weight = index.index.len() as u64 * ENTRY_BYTES + OVERHEAD_BYTES;
    let entry = (version, Arc::clone(&index));
    let evicted = cached.lock().insert(shard, entry, weight);
    drop(evicted);
    index
}

fn get<M>(cached: &Cached<M>, shard: &ShardId, version: ShardVersion) -> Option<Shared<M>> {
    let mut cached = cached.lock();
    let (of, index) = cached.get(shard)?;
    (*of == version).then(|| Arc::clone(index))
}

/// Returns the byte range of the encoded index in a shard.
///
/// # Errors
/// [`StoreError::Corrupt`] if the shard is too short for an index.
pub fn shard_index_range(
    shard: &dyn Object,
    key: &Key,
    sharding: &Sharding,
) -> Result<Range<u64>, StoreError> {
    let (size, index_bytes) = (shard.size_bytes(), sharding.index_size_bytes());
    let Some(start) = size.checked_sub(index_bytes) else {
        return Err(StoreError::Corrupt {
            key: key.clone(),
            what: format!("a shard of {size} bytes, and its index takes {index_bytes}"),
        });
    };
    Ok(match sharding.index_location() {
        IndexLocation::Start => 0..index_bytes,
        IndexLocation::End => start..size,
    })
}

/// Reads and decodes the index of a shard, which temporarily takes twice its size in memory.
///
/// # Errors
/// [`StoreError::Corrupt`] if the index is invalid, and the errors of the store.
pub async fn read_shard_index(
    shard: &dyn Object,
    key: &Key,
    sharding: &Sharding,
) -> Result<ShardIndex, StoreError> {
    let range = shard_index_range(shard, key, sharding)?;
    let encoded = read_range(shard, key, range).await?;
    let decoded = sharding.decode_index(encoded.bytes(&[])?, shard.size_bytes());
    decoded.map_err(|error| codec_error(key, None, error))
}

/// Converts the error of a decoder into that of a chunk, or of an inner chunk.
pub fn codec_error(key: &Key, inner: Option<u64>, error: CodecError) -> StoreError {
    let key = key.clone();
    let within = |text: String| match inner {
        Some(inner) => format!("inner chunk {inner}: {text}"),
        None => text,
    };
    match error {
        CodecError::Unsupported { name } => StoreError::Unsupported {
            key,
            what: within(format!("codec {name}")),
        },
        CodecError::TooLarge {
            needed_bytes,
            limit_bytes,
            ..
        } => StoreError::TooLarge {
            key,
            need_bytes: needed_bytes,
            limit_bytes,
        },
        CodecError::Internal { codec, what } => StoreError::Internal {
            key,
            what: within(format!("codec {codec}: {what}")),
        },
        error => StoreError::Corrupt {
            key,
            what: within(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_error_of_a_codec_is_not_a_corrupt_chunk() {
        let key = Key::new(b"c/0").unwrap();
        let internal = CodecError::Internal {
            codec: "zstd".into(),
            what: "0..5 of 4 bytes".into(),
        };
        let error = codec_error(&key, Some(3), internal);
        assert!(matches!(error, StoreError::Internal { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("inner chunk 3: codec zstd: 0..5 of 4"),
            "{text}"
        );
    }
}
