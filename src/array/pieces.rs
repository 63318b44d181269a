//! The pieces of an array: their keys, how they are read from the store and decoded.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::cache::{Piece, PieceKey, now_ms};
use super::engine::Engine;
use super::geometry::Geometry;
use super::inner_grid::InnerGrid;
use super::memory::Reservation;
use super::raw::{check_version, compare_version, try_read_into, with_bytes};
use crate::codec::{IndexLocation, Pipeline, ShardIndex, Sharding};
use crate::hierarchy::codec_error;
use crate::store::{
    AccessHint, Key, Kind, Object, Store, StoreError, Version, in_memory, read_into,
};
use crate::units::FOREVER;
use crate::zarr::{self, ChunkGrid, ChunkKeys, FillValue, Fixed};

/// How the chunks of one array, and the inner chunks of its shards, are found and decoded.
#[derive(Debug)]
pub struct Pieces {
    store: Arc<dyn Store>,
    key: Key,
    array: u64,
    pub(super) pipeline: Arc<Pipeline>,
    chunk_keys: ChunkKeys,
    grid: ChunkGrid,
    chunk_shape: Vec<u64>,
    data_type: Fixed,
    /// One element of fill value.
    fill: Vec<u8>,
    /// Over the inner chunks of the whole array, where shards have them.
    inner: Option<InnerGrid>,
    /// Size of a decoded piece.
    pub(super) piece_bytes: u64,
    /// How long what was seen of a chunk is trusted; for good if the store cannot change.
    ttl: Option<Duration>,
    /// What was checked until then, as [`now_ms`] counts, is not trusted any more.
    distrusted_ms: AtomicU64,
    /// The metadata that all this was made of, where they can change.
    document: Option<(Key, Version)>,
}

/// Where the encoded bytes of a piece are in a chunk.
struct Encoded {
    range: Range<u64>,
    /// Which inner chunk it is.
    inner: Option<u64>,
    /// What has been reserved for it already.
    memory: Option<Reservation>,
    /// When the chunk was opened.
    checked_ms: u64,
}

/// An encoded chunk is refused if it is longer than twice what it decodes to and this.
const ENCODED_SLACK_BYTES: u64 = 8 << 20;

/// The most that a chunk may take in the store.
pub(super) fn most_encoded_bytes(decoded_bytes: u64) -> u64 {
    decoded_bytes
        .saturating_mul(2)
        .saturating_add(ENCODED_SLACK_BYTES)
}

impl Pieces {
    pub(super) fn new(
        store: Arc<dyn Store>,
        key: Key,
        metadata: &zarr::Array,
        pipeline: Arc<Pipeline>,
        ttl: Duration,
        array: u64,
        document: Option<(Key, Version)>,
    ) -> Result<Self, StoreError> {
        let parts = metadata
            .decodable()
            .map_err(|error| unsupported(&key, error.to_string()))?;
        let Some(data_type) = parts.data_type.fixed() else {
            return Err(unsupported(&key, "elements of variable length".into()));
        };
        let Some(chunk_shape) = parts.grid.regular_chunk_shape() else {
            return Err(unsupported(&key, "chunks of different shapes".into()));
        };
        let fill = match parts.fill_value {
            FillValue::Fixed(bytes) => bytes.clone(),
            FillValue::Undefined | FillValue::Variable(_) => vec![0; data_type.size_bytes],
        };
        let inner = match pipeline.sharding() {
            Some(sharding) => Some(
                InnerGrid::new(&metadata.shape, &chunk_shape, sharding)
                    .ok_or_else(|| unsupported(&key, "too many inner chunks".into()))?,
            ),
            None => None,
        };
        let decoder = pipeline.sharding().map_or(&*pipeline, Sharding::inner);
        let piece_bytes = decoder
            .decoded_size_bytes()
            .ok_or_else(|| unsupported(&key, "elements of variable length".into()))?;
        let ttl = (!store.capabilities().immutable).then_some(ttl);
        Ok(Self {
            store,
            key,
            array,
            pipeline,
            chunk_keys: parts.chunk_keys,
            grid: parts.grid.clone(),
            chunk_shape,
            data_type: data_type.clone(),
            fill,
            inner,
            piece_bytes,
            document: document.filter(|_| ttl.is_some()),
            ttl,
            distrusted_ms: AtomicU64::new(0),
        })
    }

    fn item_bytes(&self) -> u64 {
        self.data_type.size_bytes as u64
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn document_version(&self) -> u64 {
        self.document.as_ref().map_or(0, |(_, version)| version.0)
    }

    /// Elements of a piece along each axis.
    pub(super) fn piece_shape(&self) -> &[u64] {
        match &self.inner {
            Some(inner) => &inner.shape,
            None => &self.chunk_shape,
        }
    }

    /// One element of fill value.
    pub fn fill_value(&self) -> &[u8] {
        &self.fill
    }

    /// What one element is.
    pub fn data_type(&self) -> &Fixed {
        &self.data_type
    }

    /// How the array is cut into chunks.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }

    /// How the keys of chunks are made.
    pub fn chunk_keys(&self) -> ChunkKeys {
        self.chunk_keys
    }

    /// Inner chunks of the whole array along each axis, if its chunks are shards.
    pub fn inner_counts(&self) -> Option<&[u64]> {
        self.inner.as_ref().map(|inner| &inner.counts[..])
    }

    /// The pieces that the whole array is read in.
    pub(super) fn over_the_array(&self) -> Result<Geometry, StoreError> {
        let piece = self.piece_shape();
        Geometry::new(self.grid.array_shape(), piece, self.item_bytes())
            .ok_or_else(|| unsupported(&self.key, "more bytes than can be counted".into()))
    }

    /// The pieces that one chunk is read in: itself, or its inner chunks.
    pub(super) fn over_a_chunk(&self) -> Result<Geometry, StoreError> {
        let piece = self.piece_shape();
        Geometry::new(&self.chunk_shape, piece, self.item_bytes())
            .ok_or_else(|| unsupported(&self.key, "more bytes than can be counted".into()))
    }

    /// A piece of the whole array.
    pub(super) fn key_of(&self, piece: u64) -> PieceKey {
        let (chunk, inner) = match &self.inner {
            Some(inner) => {
                let (chunk, inner) = inner.split(piece, self.grid.shape());
                (chunk, Some(inner))
            }
            None => (piece, None),
        };
        PieceKey {
            array: self.array,
            chunk,
            inner,
        }
    }

    /// A piece of one chunk.
    pub(super) fn key_in_chunk(&self, chunk: u64, piece: u64) -> PieceKey {
        PieceKey {
            array: self.array,
            chunk,
            inner: self.inner.as_ref().map(|_| piece),
        }
    }

    /// The store's key of a chunk.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if the array has no such chunk: another key has other bytes.
    pub fn stored_key(&self, chunk: u64) -> Result<Key, StoreError> {
        stored_key(&self.key, &self.grid, self.chunk_keys, chunk)
    }

    /// The same for messages.
    pub fn chunk_key(&self, chunk: u64) -> Key {
        self.stored_key(chunk).unwrap_or_else(|_| self.key.clone())
    }

    /// Whether the bytes in the store are the elements as they are.
    pub(super) fn is_identity(&self) -> bool {
        match self.pipeline.sharding() {
            Some(sharding) => sharding.inner().is_identity(),
            None => self.pipeline.is_identity(),
        }
    }

    /// Whether the store is far away, so that chunks are fetched whole and many at a time.
    pub(super) fn is_remote(&self) -> bool {
        self.store.capabilities().is_remote
    }

    /// Whether pieces are parts of a chunk, which can be fetched together.
    pub(super) fn has_inner(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether the store cannot change.
    pub(super) fn is_constant(&self) -> bool {
        self.ttl.is_none()
    }

    /// The array's number, which [`PieceKey::array`] has.
    pub(super) fn number(&self) -> u64 {
        self.array
    }

    /// Whether what was seen of the store is trusted however old it is.
    pub(super) fn is_trusted_for_good(&self) -> bool {
        self.ttl.is_none_or(|ttl| ttl >= FOREVER)
    }

    /// Whether what was seen of the store at that time, as [`now_ms`] counts, may be used without
    /// asking again.
    pub(super) fn is_trusted(&self, checked_ms: u64) -> bool {
        let age_ms = u128::from(now_ms().saturating_sub(checked_ms));
        let is_fresh = |ttl: Duration| age_ms < ttl.as_millis() && !self.is_distrusted(checked_ms);
        self.ttl.is_none_or(is_fresh)
    }

    /// Whether it is known that the store has changed since.
    pub(super) fn is_distrusted(&self, checked_ms: u64) -> bool {
        self.ttl.is_some() && checked_ms <= self.distrusted_ms.load(Ordering::Relaxed)
    }

    /// The store has changed: nothing that was seen before is used without asking again.
    pub(super) fn distrust(&self) {
        self.distrusted_ms.fetch_max(now_ms(), Ordering::Relaxed);
    }

    /// Whether what is known of a piece may be used without asking the store.
    pub(super) fn is_fresh(&self, piece: &Piece) -> bool {
        self.is_trusted(piece.checked_ms())
    }

    /// Which content a chunk has in the store; `None` if it is absent.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn present_version(&self, chunk: u64) -> Result<Option<Version>, StoreError> {
        let key = self.stored_key(chunk)?;
        match self.store.stat(&key).await {
            Ok(stat) if stat.kind == Kind::Object => Ok(Some(stat.version)),
            Ok(_) => Err(StoreError::NotAPrefix { key }),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes fill values as they lie from byte `offset` of a piece.
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

    /// Opens a chunk; `None` if it is proven that there is none.
    pub(super) async fn open(
        &self,
        key: &Key,
        hint: AccessHint,
    ) -> Result<Option<Arc<dyn Object>>, StoreError> {
        present(self.store.open(key, hint).await)
    }

    /// Fails if the metadata are not any more those that the array was opened with: chunks that
    /// were written under others must not be decoded, nor be taken for absent.
    ///
    /// Called after the read of a chunk it proves what was read, because metadata are written before
    /// chunks.
    pub(super) async fn check_document(&self) -> Result<(), StoreError> {
        match &self.document {
            Some((key, version)) => check_version(&*self.store, key, *version).await,
            None => Ok(()),
        }
    }

    /// Reads and decodes a piece. `before` is what was decoded of it earlier.
    pub(super) async fn decode(
        &self,
        piece: &PieceKey,
        before: Option<Arc<Piece>>,
        engine: &Engine,
    ) -> Result<Arc<Piece>, StoreError> {
        let decoded = self.decode_unchecked(piece, before, engine).await;
        if let Err(StoreError::Corrupt { .. }) = &decoded {
            self.store.invalidate(&self.chunk_key(piece.chunk)).await;
        }
        // Also a failure may only be one of other metadata.
        self.check_document().await?;
        decoded
    }

    async fn decode_unchecked(
        &self,
        piece: &PieceKey,
        before: Option<Arc<Piece>>,
        engine: &Engine,
    ) -> Result<Arc<Piece>, StoreError> {
        let key = self.stored_key(piece.chunk)?;
        let (hint, memory) = self.before_fetching(&key, engine).await?;
        let checked_ms = now_ms();
        let Some(object) = self.open(&key, hint).await? else {
            return Ok(Arc::new(Piece::absent(None, checked_ms)));
        };
        if let Some(before) = before
            && before.version == Some(object.version())
        {
            before.refresh(checked_ms);
            return Ok(before);
        }
        let (range, inner, pipeline) = match (self.pipeline.sharding(), piece.inner) {
            (Some(sharding), Some(inner)) => {
                let index = self
                    .shard_index(&*object, &key, piece, sharding, engine)
                    .await?;
                let entry = index
                    .entry(in_memory(inner)?)
                    .map_err(|error| codec_error(&key, Some(inner), error))?;
                let Some(range) = entry else {
                    return Ok(Arc::new(Piece::absent(Some(object.version()), checked_ms)));
                };
                (range, Some(inner), sharding.inner())
            }
            _ => (0..object.size_bytes(), None, &*self.pipeline),
        };
        let encoded = Encoded {
            range,
            inner,
            memory,
            checked_ms,
        };
        self.decode_range(&*object, &key, encoded, pipeline, engine)
            .await
    }

    pub(super) async fn shard_index(
        &self,
        object: &dyn Object,
        key: &Key,
        piece: &PieceKey,
        sharding: &Sharding,
        engine: &Engine,
    ) -> Result<Arc<ShardIndex>, StoreError> {
        let version = object.version();
        if let Some(index) = engine.index(piece, version) {
            return Ok(index);
        }
        let (size, index_bytes) = (object.size_bytes(), sharding.index_size_bytes());
        let Some(start) = size.checked_sub(index_bytes) else {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("a shard of {size} bytes, and its index takes {index_bytes}"),
            });
        };
        let range = match sharding.index_location() {
            IndexLocation::Start => 0..index_bytes,
            IndexLocation::End => start..size,
        };
        let _memory = engine.reserve(key, index_bytes.saturating_mul(2)).await?;
        let index = with_bytes(object, key, range, |bytes| {
            sharding
                .decode_index(bytes, size)
                .map_err(|error| codec_error(key, None, error))
        })
        .await?;
        let index = Arc::new(index);
        engine.keep_index(piece, version, Arc::clone(&index));
        Ok(index)
    }

    async fn decode_range(
        &self,
        object: &dyn Object,
        key: &Key,
        encoded: Encoded,
        pipeline: &Pipeline,
        engine: &Engine,
    ) -> Result<Arc<Piece>, StoreError> {
        let Encoded {
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
        let decoded_bytes = self.piece_bytes;
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
        let needed_bytes = decoded_bytes.saturating_add(encoded_bytes);
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
        let mut decoded = engine.buffers.take(length).ok_or_else(too_large)?;
        with_bytes(object, key, range, |bytes| {
            pipeline
                .decode(bytes, &mut decoded)
                .map_err(|error| codec_error(key, inner, error))
        })
        .await?;
        engine.count_decoded();
        memory.shrink(decoded_bytes);
        let version = object.version();
        Ok(Arc::new(Piece::decoded(
            decoded,
            version,
            checked_ms,
            memory,
            Arc::clone(&engine.buffers),
        )))
    }

    /// Reads bytes of a piece that is not encoded, from byte `offset` of it; fill values if it is
    /// proven to be absent. Returns the version of the chunk; `None` if there is no such chunk.
    pub(super) async fn read_raw(
        &self,
        piece: &PieceKey,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Result<Option<Version>, StoreError> {
        let read = self.read_raw_unchecked(piece, offset, target, engine).await;
        self.check_document().await?;
        read
    }

    async fn read_raw_unchecked(
        &self,
        piece: &PieceKey,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Result<Option<Version>, StoreError> {
        let key = self.stored_key(piece.chunk)?;
        let Some(object) = self.open(&key, self.raw_hint()).await? else {
            self.fill(offset, target);
            return Ok(None);
        };
        let index = match self.pipeline.sharding() {
            Some(sharding) => Some(
                self.shard_index(&*object, &key, piece, sharding, engine)
                    .await?,
            ),
            None => None,
        };
        if let Some(start) = self.raw_start(&*object, &key, piece, index.as_deref())? {
            let at = start + offset;
            match object.as_local() {
                Some(_) => {
                    let range = at..at + target.len() as u64;
                    let copy = |bytes: &[u8]| {
                        target.copy_from_slice(bytes);
                        Ok(())
                    };
                    with_bytes(&*object, &key, range, copy).await?;
                }
                None => read_into(&*object, &key, at, target).await?,
            }
        } else {
            self.fill(offset, target);
        }
        Ok(Some(object.version()))
    }

    /// As [`Pieces::read_raw`], if that takes no disk and no network.
    pub(super) fn try_read_raw(
        &self,
        piece: &PieceKey,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Option<Result<Option<Version>, StoreError>> {
        let store = self.store.as_sync()?;
        let mut read = || {
            let key = self.stored_key(piece.chunk)?;
            let Some(object) = present(store.open(&key, self.raw_hint()))? else {
                self.fill(offset, target);
                return Ok(Some(None));
            };
            let version = object.version();
            let index = match self.pipeline.sharding() {
                Some(_) => match engine.index(piece, version) {
                    Some(index) => Some(index),
                    None => return Ok(None),
                },
                None => None,
            };
            match self.raw_start(&*object, &key, piece, index.as_deref())? {
                Some(start) => {
                    let at = start + offset;
                    match try_read_into(&*object, &key, at, target) {
                        Some(read) => read?,
                        None => return Ok(None),
                    }
                }
                None => self.fill(offset, target),
            }
            Ok(Some(Some(version)))
        };
        let read = read();
        if let Some((key, version)) = &self.document
            && let Err(error) = compare_version(key, *version, store.stat(key))
        {
            return Some(Err(error));
        }
        read.transpose()
    }

    /// What a chunk is opened for to read a part of it as it is stored.
    fn raw_hint(&self) -> AccessHint {
        match self.pipeline.sharding() {
            Some(_) => self.hint(),
            None => AccessHint::Ranges,
        }
    }

    /// Where a piece that is not encoded begins in its chunk; `None` if its shard does not have it.
    fn raw_start(
        &self,
        object: &dyn Object,
        key: &Key,
        piece: &PieceKey,
        index: Option<&ShardIndex>,
    ) -> Result<Option<u64>, StoreError> {
        let range = match (index, piece.inner) {
            (Some(index), Some(inner)) => {
                let entry = index
                    .entry(in_memory(inner)?)
                    .map_err(|error| codec_error(key, Some(inner), error))?;
                let Some(range) = entry else {
                    return Ok(None);
                };
                range
            }
            _ => 0..object.size_bytes(),
        };
        let (found, expected) = (range.end - range.start, self.piece_bytes);
        match found == expected {
            true => Ok(Some(range.start)),
            false => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{found} bytes, expected {expected}"),
            }),
        }
    }
}

/// An opened chunk; `None` if it is proven that there is none.
fn present(
    opened: Result<Arc<dyn Object>, StoreError>,
) -> Result<Option<Arc<dyn Object>>, StoreError> {
    match opened {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(StoreError::NotAPrefix { key }) => Err(StoreError::Corrupt {
            key,
            what: "a directory, or a file in place of one, is where the chunk should be".into(),
        }),
        Err(error) => Err(error),
    }
}

/// The store's key of a chunk of the array at `array`.
///
/// # Errors
/// [`StoreError::Internal`] if there is no such chunk.
pub(super) fn stored_key(
    array: &Key,
    grid: &ChunkGrid,
    keys: ChunkKeys,
    chunk: u64,
) -> Result<Key, StoreError> {
    let internal = || StoreError::Internal {
        key: array.clone(),
        what: format!("no chunk {chunk} of {}", grid.chunk_count()),
    };
    let index = grid.index(chunk).ok_or_else(internal)?;
    let name = Key::new(keys.encode(&index).as_bytes()).map_err(|_| internal())?;
    Ok(array.join_key(&name))
}

fn unsupported(key: &Key, what: String) -> StoreError {
    StoreError::Unsupported {
        key: key.clone(),
        what,
    }
}
