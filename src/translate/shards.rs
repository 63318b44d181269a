//! Inner chunks of shards as byte ranges (zarr-specs, `sharding_indexed`, "Binary shard format").

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::array::{Engine, Reservation};
use crate::codec::{CodecError, IndexLocation, Pipeline, ShardIndex, Sharding};
use crate::store::{
    AccessHint, Data, Flights, Key, Kind, Object, Patience, Stat, StoreError, Version, in_memory,
    may_wait, read_into,
};
use crate::zarr::{Array, CodecSpec};

/// How the chunks of an array are opened up; shards in shards are too.
#[derive(Debug)]
pub(super) struct Shards {
    pipeline: Arc<Pipeline>,
    /// Elements of a chunk, of its inner chunks, of theirs, and so on.
    shapes: Vec<Vec<u64>>,
}

impl Shards {
    /// How shards of an array are opened up, and the codecs of what is found in them; none if it
    /// has no shards.
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
        let mut shapes = vec![shape];
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
            shapes.push(sharding.inner_chunk_shape().to_vec());
            level = sharding.inner();
        }
        let pipeline = Arc::new(pipeline);
        Ok(Some((Self { pipeline, shapes }, inner)))
    }

    /// Elements along each axis of the chunks that are shown.
    pub(super) fn chunk_shape(&self) -> &[u64] {
        self.shapes.last().map_or(&[], Vec::as_slice)
    }

    /// The chunk in the store that a chunk that is shown is in, and its number in there, and in
    /// that, and so on.
    pub(super) fn locate(&self, index: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut left: Vec<u64> = index
            .iter()
            .zip(self.chunk_shape())
            .map(|(at, edge)| at.saturating_mul(*edge))
            .collect();
        let mut places = self.shapes.iter().map(|shape| {
            let place: Vec<u64> = left.iter().zip(shape).map(|(at, edge)| at / edge).collect();
            for (at, edge) in left.iter_mut().zip(shape) {
                *at %= edge;
            }
            place
        });
        let shard = places.next().unwrap_or_default();
        let places: Vec<Vec<u64>> = places.collect();
        let numbers = places.iter().zip(self.levels()).map(|(place, sharding)| {
            let axes = place.iter().zip(sharding.inner_grid());
            axes.fold(0, |number, (at, count)| number * count + at)
        });
        (shard, numbers.collect())
    }

    /// What a shard is opened for: its index first.
    pub(super) fn reading(&self) -> AccessHint {
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

/// The codec whose chunks are shards.
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

/// The indexes of shards that were read, least recently used first out.
#[derive(Debug)]
pub(super) struct Indexes {
    engine: Arc<Engine>,
    kept: Mutex<Kept>,
    /// Indexes that are being read.
    reading: Flights<(Place, Of), Arc<Held>>,
}

/// A chunk, and the numbers of the inner chunks that lead to a shard in it.
type Place = (Key, Vec<u64>);

/// The versions of a chunk and of the metadata that say where its index is.
type Of = (Version, u64);

/// An index, and the memory that it takes.
#[derive(Debug)]
struct Held {
    index: ShardIndex,
    memory: Reservation,
}

#[derive(Debug)]
struct Kept {
    indexes: LruCache<Place, (Of, Arc<Held>)>,
    bytes: u64,
}

/// All that is kept takes about so much, and no more than this part of the memory that there may
/// be; the last index is kept in any case.
const MAX_KEPT_BYTES: u64 = 16 << 20;
const MAX_KEPT_PART: u64 = 64;
/// A longer index is not read: one of four million inner chunks has 64 MiB.
const MAX_INDEX_BYTES: u64 = 64 << 20;
const MAX_INDEX_PART: u64 = 8;
/// Longer ones do not come with the opening of the shard, before there is memory for them.
const MAX_TAIL_BYTES: u64 = 1 << 20;
/// What an index takes besides its entries.
const OVERHEAD_BYTES: u64 = 256;

impl Indexes {
    /// None; the memory of those to come is that of `engine`.
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            kept: Mutex::new(Kept {
                indexes: LruCache::unbounded(),
                bytes: 0,
            }),
            reading: Flights::default(),
        }
    }

    /// Opens an inner chunk of the chunk `object`. `mapping` is the version of the metadata.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the index says that it is not stored; [`StoreError::Corrupt`]
    /// if the index is wrong.
    pub(super) fn open(
        &self,
        shards: &Shards,
        mut object: Arc<dyn Object>,
        source: &Key,
        numbers: &[u64],
        mapping: u64,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let whole = object.version();
        for (depth, (sharding, number)) in shards.levels().zip(numbers).enumerate() {
            // As many levels as numbers, by `locate`.
            let path: Vec<u64> = numbers.iter().take(depth).copied().collect();
            let place = (source.clone(), path);
            let held = self.index(sharding, &*object, place, (whole, mapping))?;
            let range = held
                .index
                .entry(in_memory(*number)?)
                .map_err(|error| codec_error(source, &error))?;
            let Some(range) = range else {
                return Err(StoreError::NotFound {
                    key: source.clone(),
                });
            };
            object = Arc::new(Inner {
                version: Version(super::hash(&[whole.0, mapping, range.start, range.end])),
                shard: object,
                range,
            });
        }
        Ok(object)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_at(&self, place: &Place, of: Of) -> Option<Arc<Held>> {
        let mut kept = self.kept();
        let (version, held) = kept.indexes.get(place)?;
        (*version == of).then(|| Arc::clone(held))
    }

    /// The index of a shard: kept, or read by one of all who want it.
    fn index(
        &self,
        sharding: &Sharding,
        object: &dyn Object,
        place: Place,
        of: Of,
    ) -> Result<Arc<Held>, StoreError> {
        if let Some(held) = self.kept_at(&place, of) {
            return Ok(held);
        }
        may_wait(&place.0)?;
        self.reading.once((place.clone(), of), || {
            if let Some(held) = self.kept_at(&place, of) {
                return Ok(held);
            }
            let held = Arc::new(self.read(sharding, object, &place.0)?);
            self.keep(place, of, &held);
            Ok(held)
        })
    }

    fn read(
        &self,
        sharding: &Sharding,
        object: &dyn Object,
        key: &Key,
    ) -> Result<Held, StoreError> {
        let (size, index_bytes) = (object.size_bytes(), sharding.index_size_bytes());
        let Some(end) = size.checked_sub(index_bytes) else {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("a shard of {size} bytes, and its index takes {index_bytes}"),
            });
        };
        let limit_bytes = MAX_INDEX_BYTES.min(self.engine.memory_limit_bytes() / MAX_INDEX_PART);
        let too_large = || StoreError::TooLarge {
            key: key.clone(),
            need_bytes: index_bytes,
            limit_bytes,
        };
        let length = usize::try_from(index_bytes).map_err(|_| too_large())?;
        if index_bytes > limit_bytes {
            return Err(too_large());
        }
        let start = match sharding.index_location() {
            IndexLocation::Start => 0,
            IndexLocation::End => end,
        };
        // Encoded and decoded.
        let mut memory = self.engine.reserve(key, index_bytes.saturating_mul(2))?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| too_large())?;
        bytes.resize(length, 0);
        read_into(object, key, start, &mut bytes, Patience::Wait)?;
        let index = sharding.decode_index(&bytes, size);
        let index = index.map_err(|error| codec_error(key, &error))?;
        drop(bytes);
        memory.shrink(index_bytes);
        Ok(Held { index, memory })
    }

    fn keep(&self, place: Place, of: Of, held: &Arc<Held>) {
        let bytes_of = |held: &Held| held.memory.bytes().saturating_add(OVERHEAD_BYTES);
        let most = MAX_KEPT_BYTES.min(self.engine.memory_limit_bytes() / MAX_KEPT_PART);
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_add(bytes_of(held));
        if let Some((_, old)) = kept.indexes.put(place, (of, Arc::clone(held))) {
            kept.bytes = kept.bytes.saturating_sub(bytes_of(&old));
        }
        while kept.bytes > most && kept.indexes.len() > 1 {
            let Some((_, (_, old))) = kept.indexes.pop_lru() else {
                break;
            };
            kept.bytes = kept.bytes.saturating_sub(bytes_of(&old));
        }
    }
}

fn codec_error(key: &Key, error: &CodecError) -> StoreError {
    let key = key.clone();
    match error {
        CodecError::Unsupported { name } => StoreError::Unsupported {
            key,
            what: format!("codec {name}"),
        },
        CodecError::TooLarge {
            needed_bytes,
            limit_bytes,
            ..
        } => StoreError::TooLarge {
            key,
            need_bytes: *needed_bytes,
            limit_bytes: *limit_bytes,
        },
        error => StoreError::Corrupt {
            key,
            what: error.to_string(),
        },
    }
}

/// A range of a shard.
#[derive(Debug)]
struct Inner {
    shard: Arc<dyn Object>,
    range: Range<u64>,
    version: Version,
}

impl Object for Inner {
    fn size_bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
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

    fn read(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let left = self.size_bytes().saturating_sub(offset);
        let size_bytes = size_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        if size_bytes == 0 {
            return Ok(Data::Filled(0..0));
        }
        let offset = self.range.start.saturating_add(offset);
        self.shard.read(offset, size_bytes, buffer, patience)
    }

    fn is_parallel(&self) -> bool {
        self.shard.is_parallel()
    }

    fn is_constant(&self) -> bool {
        self.shard.is_constant()
    }

    fn is_shared(&self) -> bool {
        self.shard.is_shared()
    }

    fn prepare(&self, ranges: &[Range<u64>]) {
        let shift = |at: u64| self.range.start.saturating_add(at).min(self.range.end);
        let ranges: Vec<Range<u64>> = ranges
            .iter()
            .map(|range| shift(range.start)..shift(range.end))
            .collect();
        self.shard.prepare(&ranges);
    }
}
