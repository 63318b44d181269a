//! Inner chunks of shards as byte ranges (zarr-specs, `sharding_indexed`, "Binary shard format").

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::array::{Engine, Reservation};
use crate::codec::{IndexLocation, Pipeline, Sharding};
use crate::hierarchy::{
    CachedIndex, ShardId, ShardIndexCache, codec_error, read_shard_index, shard_index_range,
};
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, Data, Key, Kind, LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError,
    Version, in_memory,
};
use crate::zarr::{Array, CodecSpec};

/// The shards of an array, which may be nested.
#[derive(Debug)]
pub(super) struct Shards {
    pipeline: Arc<Pipeline>,
    /// The shape of a chunk in the store, in elements.
    shard_shape: Vec<u64>,
    /// The shapes of its inner chunks, of the inner chunks in these, and so on, in elements.
    inner_shapes: Vec<Vec<u64>>,
}

impl Shards {
    /// Returns the shards of an array, and the codecs of the innermost chunks; `None` if the array
    /// is not sharded.
    ///
    /// # Errors
    /// Shards that can only be decoded whole, or not at all.
    pub(super) fn open(
        array: &Array,
        specs: &[CodecSpec],
    ) -> Result<Option<(Self, Vec<CodecSpec>)>, String> {
        if !specs.iter().any(is_sharding) {
            return Ok(None);
        }
        let parts = array.decodable().map_err(|error| error.to_string())?;
        let shape = parts.grid.regular_chunk_shape();
        let shape = shape.ok_or("shards of different shapes (rectilinear grid)")?;
        let pipeline = Pipeline::new(parts.codecs, parts.data_type, &shape, parts.fill_value)
            .map_err(|error| error.to_string())?;
        let mut inner_shapes = Vec::new();
        let mut inner = specs.to_vec();
        let mut level = &pipeline;
        while inner.iter().any(is_sharding) {
            let (Some(sharding), [spec]) = (level.sharding(), &inner[..]) else {
                return Err("shards that other codecs go around".into());
            };
            let index_bytes = sharding.index_size_bytes();
            if index_bytes > MAX_INDEX_BYTES {
                return Err(format!(
                    "shards with an index of {index_bytes} bytes, {MAX_INDEX_BYTES} are read at most"
                ));
            }
            inner = codecs(spec)?;
            inner_shapes.push(sharding.inner_chunk_shape().to_vec());
            level = sharding.inner();
        }
        let shards = Self {
            pipeline: Arc::new(pipeline),
            shard_shape: shape,
            inner_shapes,
        };
        Ok(Some((shards, inner)))
    }

    /// Returns the shape of the translated chunks, in elements.
    pub(super) fn chunk_shape(&self) -> &[u64] {
        self.inner_shapes.last().unwrap_or(&self.shard_shape)
    }

    /// Returns the index of the stored chunk that contains a translated chunk, and the numbers of
    /// the nested inner chunks.
    pub(super) fn locate(&self, index: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut left: Vec<u64> = index
            .iter()
            .zip(self.chunk_shape())
            .map(|(at, edge)| at * edge)
            .collect();
        let mut split = |shape: &Vec<u64>| -> Vec<u64> {
            let place: Vec<u64> = left.iter().zip(shape).map(|(at, edge)| at / edge).collect();
            for (at, edge) in left.iter_mut().zip(shape) {
                *at %= edge;
            }
            place
        };
        let shard = split(&self.shard_shape);
        let places: Vec<_> = self.inner_shapes.iter().map(split).collect();
        let numbers = places.iter().zip(self.levels()).map(|(place, sharding)| {
            let axes = place.iter().zip(sharding.inner_grid());
            axes.fold(0, |number, (at, count)| number * count + at)
        });
        (shard, numbers.collect())
    }

    /// Returns the access hint of a shard, whose index is read first.
    pub(super) fn access_hint(&self) -> AccessHint {
        match self.pipeline.sharding() {
            Some(sharding) if sharding.index_location() == IndexLocation::End => {
                AccessHint::Tail(sharding.index_size_bytes().min(MAX_TAIL_BYTES))
            }
            _ => AccessHint::Ranges,
        }
    }

    fn levels(&self) -> impl Iterator<Item = &Sharding> {
        std::iter::successors(self.pipeline.sharding(), |sharding| {
            sharding.inner().sharding()
        })
    }
}

/// The name of the sharding codec.
pub(super) const SHARDING: &str = "sharding_indexed";

fn is_sharding(spec: &CodecSpec) -> bool {
    spec.name == SHARDING
}

fn codecs(spec: &CodecSpec) -> Result<Vec<CodecSpec>, String> {
    let list = spec
        .configuration
        .get("codecs")
        .and_then(|codecs| codecs.as_array());
    let list = list.ok_or("sharding_indexed without codecs")?;
    let specs = list.iter().map(CodecSpec::from_v3);
    specs
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Opens inner chunks and caches shard indexes.
#[derive(Debug)]
pub(super) struct InnerChunkOpener {
    engine: Arc<Engine>,
    indexes: ShardIndexCache<Reservation>,
}

/// The largest size of all cached indexes in bytes, which the memory limit can lower further.
const MAX_CACHED_BYTES: u64 = 16 << 20;
const MAX_CACHED_PART: u64 = 64;
/// The largest index that is read, in bytes. The index of four million inner chunks has 64 MiB.
const MAX_INDEX_BYTES: u64 = 64 << 20;
const MAX_INDEX_PART: u64 = 8;
/// The largest index that is fetched with the open of a shard, before its memory is reserved, in bytes.
const MAX_TAIL_BYTES: u64 = 1 << 20;

impl InnerChunkOpener {
    /// Creates an empty cache. Memory of indexes is reserved from `engine`.
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let budget_bytes = MAX_CACHED_BYTES.min(engine.memory_limit_bytes() / MAX_CACHED_PART);
        Self {
            engine,
            indexes: ShardIndexCache::new(budget_bytes),
        }
    }

    /// Opens an inner chunk of the chunk `object`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the inner chunk is not in the index, [`StoreError::Corrupt`] if
    /// the index is invalid.
    pub(super) async fn open(
        &self,
        shards: &Arc<Shards>,
        mut object: Arc<dyn Object>,
        source: &Key,
        numbers: &[u64],
        metadata_version: u64,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let chunk = object.version();
        for (depth, number) in numbers.iter().enumerate() {
            let shard = ShardId {
                key: source.clone(),
                path: numbers.iter().take(depth).copied().collect(),
            };
            let load = || {
                let (engine, shards) = (Arc::clone(&self.engine), Arc::clone(shards));
                let (object, source) = (Arc::clone(&object), source.clone());
                async move {
                    leave_session_thread().await;
                    // [`Shards::locate`] returns one number for each level.
                    let level = shards.levels().nth(depth);
                    let level = level.ok_or_else(|| StoreError::internal("a shard in no shard"))?;
                    read_index(&engine, level, &*object, &source).await
                }
            };
            let version = (chunk, metadata_version);
            let cached = self.indexes.get_or_load(shard, version, load).await?;
            let range = cached
                .index
                .entry(in_memory(*number)?)
                .map_err(|error| codec_error(source, None, error))?;
            let Some(range) = range else {
                return Err(StoreError::NotFound {
                    key: source.clone(),
                });
            };
            let words = [chunk.0, metadata_version, range.start, range.end];
            object = Arc::new(InnerChunk {
                version: Version(super::hash(&words)),
                shard: object,
                range,
            });
        }
        Ok(object)
    }
}

async fn read_index(
    engine: &Engine,
    sharding: &Sharding,
    shard: &dyn Object,
    key: &Key,
) -> Result<CachedIndex<Reservation>, StoreError> {
    let range = shard_index_range(shard, key, sharding)?;
    let index_bytes = range.end - range.start;
    let limit_bytes = MAX_INDEX_BYTES.min(engine.memory_limit_bytes() / MAX_INDEX_PART);
    if index_bytes > limit_bytes {
        return Err(StoreError::TooLarge {
            key: key.clone(),
            need_bytes: index_bytes,
            limit_bytes,
        });
    }
    // Memory for the encoded and the decoded index.
    let mut memory = engine.reserve(key, index_bytes.saturating_mul(2)).await?;
    let index = read_shard_index(shard, key, sharding).await?;
    memory.shrink(index_bytes);
    Ok(CachedIndex { index, memory })
}

/// A range of a shard.
#[derive(Debug)]
struct InnerChunk {
    shard: Arc<dyn Object>,
    range: Range<u64>,
    version: Version,
}

impl InnerChunk {
    /// Returns the part of a read in the inner chunk, as an offset in the shard and a size; `None`
    /// if it is empty.
    fn shift(&self, offset: u64, size_bytes: usize) -> Option<(u64, usize)> {
        let left = self.size_bytes().checked_sub(offset)?;
        let size_bytes = size_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        (size_bytes > 0).then_some((self.range.start + offset, size_bytes))
    }
}

#[async_trait]
impl Object for InnerChunk {
    fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let size_bytes = self.size_bytes();
        Ok(Stat {
            kind: Kind::Object,
            size_bytes,
            version: self.version,
            links: 1,
            ..self.shard.stat()?
        })
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        match self.shift(offset, size_bytes) {
            Some((offset, size_bytes)) => self.shard.read(offset, size_bytes).await,
            None => Ok(Data::empty()),
        }
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        self.shard.as_local().map(|_| self as &dyn LocalObject)
    }

    fn is_parallel(&self) -> bool {
        self.shard.is_parallel()
    }

    fn is_constant(&self) -> bool {
        self.shard.is_constant()
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        let shift = |at: u64| self.range.start.saturating_add(at).min(self.range.end);
        let ranges: Vec<Range<u64>> = ranges
            .iter()
            .map(|range| shift(range.start)..shift(range.end))
            .collect();
        self.shard.prefetch(&ranges).await;
    }
}

impl LocalObject for InnerChunk {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        let shard = self.shard.as_local();
        let shard =
            shard.ok_or_else(|| StoreError::internal("a remote shard is read as a local one"))?;
        match self.shift(offset, size_bytes) {
            Some((offset, size_bytes)) => shard.read_local(offset, size_bytes, buffer, mode),
            None => Ok(Data::empty()),
        }
    }
}
