//! Reads one array as the bytes of its elements, in batches: the chunks that a range needs, in groups of limited size.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::chunk_cache::{Chunk, ChunkId};
use super::chunks::ArrayChunks;
use super::engine::Engine;
use super::geometry::{Geometry, Run};
use super::order::ElementOrder;
use super::readahead::PrefetchedChunks;
use super::served::ServedVersions;
use crate::codec::Pipeline;
use crate::fallible;
use crate::store::{
    Data, Key, ReadBuffer, Store, StoreError, Ttl, Version, in_memory, part, part_mut,
};
use crate::zarr;

/// Reads the decoded bytes of an array: elements in C order, in the byte order of its data type.
///
/// Reads never return wrong bytes. A chunk that is proven to be absent has fill values. A present chunk is
/// decoded whole and checked, unless it is stored unencoded. Anything else is an error.
#[derive(Debug)]
pub struct ArrayReader {
    pub(super) chunks: ArrayChunks,
    pub(super) engine: Arc<Engine>,
    /// The elements in C order.
    pub(super) row_major: ElementOrder,
    /// The read chunks concatenated, each of them whole. If they have several shapes, elements in C order.
    chunk_major: ElementOrder,
    /// The read chunks of one chunk, if all chunks have the same shape.
    chunk_geometry: Geometry,
    /// A single read chunk.
    inner_geometry: Geometry,
    pub(super) window_bytes: u64,
    pub(super) ahead: PrefetchedChunks,
    /// The largest size in bytes of the chunks that a read holds while it waits for more.
    held_bytes: u64,
}

/// The elements of an array that a read covers, and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All elements in C order.
    RowMajor,
    /// The read chunks in C order over their grid, concatenated. Each is whole, including the elements
    /// beyond the array's edge.
    ChunkMajor,
    /// One whole chunk, also beyond the array's edge, by its number in C order over the grid.
    Chunk(u64),
    /// One inner chunk, by its number in C order over the grid of inner chunks of the whole array.
    Inner(u64),
}

/// A read that is not empty.
pub(super) struct ReadRun<'a> {
    pub(super) selection: Selection,
    order: &'a ElementOrder,
    pub(super) geometry: Cow<'a, Geometry>,
    pub(super) range: Range<u64>,
}

/// The chunks from byte `at` of a read on, as many as it may hold at a time.
struct ReadBatch {
    at: u64,
    batch: ChunkBatch,
    ids: Vec<ChunkId>,
}

/// The largest size in bytes of the chunks that one read holds at a time.
const MAX_HELD_BYTES: u64 = 64 << 20;
/// The length in bytes from which the runs of unencoded chunks are read directly from the store.
const DIRECT_RUN_BYTES: u64 = 32 << 10;
/// Remote chunks up to this size in bytes are fetched whole, encoded or not.
const MAX_FETCHED_BYTES: u64 = 16 << 20;
/// The largest number of chunks in a batch of a read or a readahead, however small they are.
const MAX_CHUNKS: usize = 4096;
/// The smallest readahead window of a sequential reader in bytes.
const MIN_WINDOW_BYTES: u64 = 4 << 20;

impl ArrayReader {
    /// Prepares an array at `key` of a store. `document` has the key and the version of `metadata`; reads
    /// fail once the version has changed.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] or [`StoreError::Corrupt`], with the reason why the elements cannot be
    /// read.
    pub fn open(
        store: Arc<dyn Store>,
        key: Key,
        metadata: &zarr::Array,
        pipeline: Arc<Pipeline>,
        engine: Arc<Engine>,
        ttl: impl Into<Ttl>,
        document: Option<(Key, Version)>,
    ) -> Result<Self, StoreError> {
        let number = engine.next_array();
        let ttl = ttl.into();
        let chunks = ArrayChunks::new(store, key, metadata, pipeline, ttl, number, document)?;
        let geometry = chunks.over_the_array()?;
        let chunk_major = match chunks.is_regular() {
            true => geometry.in_sequence(),
            false => Some(geometry.clone()),
        };
        let chunk_major = chunk_major.ok_or_else(|| StoreError::Unsupported {
            key: chunks.key().clone(),
            what: "more bytes than can be counted".into(),
        })?;
        let chunk_geometry = chunks.over_a_chunk()?;
        let item_rows = geometry.outer_bytes();
        let parallel = engine.parallel();
        let window_bytes = geometry
            .chunk_bytes()
            .saturating_mul(parallel.saturating_mul(2))
            .max(item_rows.min(engine.cache.budget_bytes() / 4))
            .max(MIN_WINDOW_BYTES)
            .min((engine.cache.budget_bytes() / 4).max(MIN_WINDOW_BYTES));
        let held_bytes = engine.held_bytes().min(MAX_HELD_BYTES);
        Ok(Self {
            held_bytes,
            chunks,
            engine,
            inner_geometry: Geometry::of_one_chunk(geometry.chunk_bytes()),
            row_major: ElementOrder::over(geometry),
            chunk_major: ElementOrder::over(chunk_major),
            chunk_geometry,
            window_bytes,
            ahead: PrefetchedChunks::default(),
        })
    }

    /// Returns the size of the whole array in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.row_major.geometry.size_bytes()
    }

    /// Returns the total size of all read chunks in bytes, including the elements beyond the edges of the
    /// array.
    pub fn chunk_major_bytes(&self) -> u64 {
        self.chunk_major.geometry.size_bytes()
    }

    /// Returns the number of elements of a read chunk along each axis. `None` if chunks have several
    /// shapes, so that they cannot be concatenated.
    pub fn read_chunk_shape(&self) -> Option<&[u64]> {
        let is_regular = self.chunks.is_regular();
        is_regular.then(|| self.chunks.read_chunk_shape())
    }

    /// Reads `size` bytes from `offset` of a selection, fewer only at the end. `served` has the versions of
    /// the chunks that the same file has served, if the store can change.
    ///
    /// The first poll of the future is on a session thread. It is ready if all needed chunks are decoded, or
    /// are local, stored unencoded, and in the page cache.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if a chunk has another version than in `served`; otherwise the reason why a
    /// chunk cannot be loaded.
    pub async fn read(
        self: &Arc<Self>,
        selection: Selection,
        offset: u64,
        size: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let geometry = match selection {
            Selection::RowMajor => Cow::Borrowed(&self.row_major.geometry),
            Selection::ChunkMajor => Cow::Borrowed(&self.chunk_major.geometry),
            Selection::Chunk(_) if self.chunks.is_regular() => Cow::Borrowed(&self.chunk_geometry),
            Selection::Chunk(chunk) => Cow::Owned(Geometry::of_one_chunk(self.chunk_bytes(chunk))),
            Selection::Inner(_) => Cow::Borrowed(&self.inner_geometry),
        };
        let end = offset
            .saturating_add(size as u64)
            .min(geometry.size_bytes());
        if offset >= end {
            return Ok(Data::empty());
        }
        let run = ReadRun {
            selection,
            order: match selection {
                Selection::ChunkMajor => &self.chunk_major,
                _ => &self.row_major,
            },
            geometry,
            range: offset..end,
        };
        if self.reads_directly(&run.geometry)
            && let Some(data) = self.read_direct(&run, served).await?
        {
            return Ok(data);
        }
        if matches!(selection, Selection::RowMajor | Selection::ChunkMajor) {
            self.read_ahead(run.order, &run.range);
        }
        self.read_decoded(&run, served).await
    }

    /// Reads `size_bytes` from `offset` of one chunk, fewer only at its end, if the chunk in the store has
    /// this version.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the chunk has another version or is absent; otherwise why loading failed.
    pub async fn read_chunk(
        self: &Arc<Self>,
        number: u64,
        version: Version,
        offset: u64,
        size_bytes: usize,
    ) -> Result<Data, StoreError> {
        let id = self.chunk_id(Selection::Chunk(number), 0);
        let _reader = self.engine.admit_reader(self.key()).await?;
        let mut chunk = self.load_one(id).await?;
        if chunk.version != Some(version) {
            // The cached chunk may be outdated.
            self.chunks.store.expire();
            chunk = self.load_one(id).await?;
        }
        match &chunk.bytes {
            Some(bytes) if chunk.version == Some(version) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let end = start.saturating_add(size_bytes).min(bytes.len());
                Ok(Data::Shared(Arc::clone(bytes), start..end))
            }
            _ => Err(StoreError::Stale {
                key: self.chunks.chunk_key(number),
                what: "it has changed since it was opened".into(),
            }),
        }
    }

    async fn load_one(self: &Arc<Self>, id: ChunkId) -> Result<Arc<Chunk>, StoreError> {
        let loaded = self.load(&[id]).await?;
        let chunk = loaded.into_iter().next();
        chunk.ok_or_else(|| self.internal("no chunk was loaded"))
    }

    /// Returns the size of a decoded chunk in bytes; 0 if the array has no such chunk.
    pub fn chunk_bytes(&self, chunk: u64) -> u64 {
        self.chunks.chunk_bytes(chunk).unwrap_or(0)
    }

    /// Returns the size of the largest decoded read chunk in bytes.
    pub fn read_chunk_bytes(&self) -> u64 {
        self.row_major.geometry.chunk_bytes()
    }

    /// Returns whether the array cannot change.
    pub fn is_constant(&self) -> bool {
        self.chunks.store.is_constant()
    }

    /// Returns the decoder of the array.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the key of the array in the store.
    pub fn key(&self) -> &Key {
        self.chunks.key()
    }

    /// Returns the version of the metadata with which the array was opened; 0 if they cannot change.
    pub fn document_version(&self) -> u64 {
        self.chunks.document_version()
    }

    /// Returns the keys, grid and pipelines of the chunks.
    pub fn chunks(&self) -> &ArrayChunks {
        &self.chunks
    }

    pub(super) fn internal(&self, what: impl Into<String>) -> StoreError {
        StoreError::internal(what).with_key(self.key().clone())
    }

    /// Returns whether runs are read directly from the store, without decoding.
    fn reads_directly(&self, geometry: &Geometry) -> bool {
        // Small remote chunks are fetched whole.
        let is_worth_it = !self.chunks.is_remote() || geometry.chunk_bytes() > MAX_FETCHED_BYTES;
        // The header of a remote chunk would take a request of its own.
        let is_raw = |header: &[u8]| header.is_empty() || !self.chunks.is_remote();
        self.chunks.raw_header().is_some_and(is_raw)
            && geometry.run_bytes() >= DIRECT_RUN_BYTES
            && is_worth_it
    }

    pub(super) fn chunk_id(&self, selection: Selection, number: u64) -> ChunkId {
        match selection {
            Selection::RowMajor | Selection::ChunkMajor => self.chunks.id_of(number),
            Selection::Chunk(chunk) => self.chunks.id_in_chunk(chunk, number),
            Selection::Inner(inner) => self.chunks.id_of(inner),
        }
    }

    /// Reads a run that is not empty from decoded chunks, in batches of chunks.
    async fn read_decoded(
        self: &Arc<Self>,
        run: &ReadRun<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let _reader = self.engine.admit_reader(self.key()).await?;
        let name = |chunk| self.chunks.chunk_key(chunk);
        let mut filled: Option<ReadBuffer> = None;
        let mut at = run.range.start;
        while at < run.range.end {
            let left = at..run.range.end;
            let no_memory = || self.no_memory(run.range.end - at);
            let batch = ChunkBatch::of(&run.geometry, left, self.held_bytes, u64::MAX);
            if batch.end == at {
                return Err(match batch.lacks_memory {
                    true => no_memory(),
                    false => self.internal(format!("no chunk has byte {at}")),
                });
            }
            let ids = batch.chunks.iter();
            let ids = ids.map(|chunk| self.chunk_id(run.selection, *chunk));
            let ids = fallible::collect(ids).map_err(|_| no_memory())?;
            let batch = ReadBatch { at, batch, ids };
            // Reserved before the chunks are loaded: a read that waits for memory must not hold chunks.
            if let Some(served) = served {
                served.reserve_pages(&batch.ids, name).await?;
            }
            let held = self.load(&batch.ids).await?;
            if let Some(served) = served {
                for (id, chunk) in batch.ids.iter().zip(&held) {
                    served.admit(id, name, chunk.version, chunk.checked_ms())?;
                }
            }
            if let Some(data) = self.share(run, &batch, &held)? {
                return Ok(data);
            }
            let target = match &mut filled {
                Some(target) => target,
                None => filled.insert(self.buffer(run.range.end - run.range.start)?),
            };
            let place = at - run.range.start..batch.batch.end - run.range.start;
            let target = part_mut(target, in_memory(place.start)?..in_memory(place.end)?)?;
            self.copy(run, &batch, &held, target)?;
            at = batch.batch.end;
        }
        Ok(filled.map_or_else(Data::empty, Data::all_of))
    }

    /// Returns a buffer for a reply, with arbitrary content.
    pub(super) fn buffer(&self, need_bytes: u64) -> Result<ReadBuffer, StoreError> {
        let buffer = ReadBuffer::new(in_memory(need_bytes)?);
        buffer.ok_or_else(|| self.no_memory(need_bytes))
    }

    pub(super) fn no_memory(&self, need_bytes: u64) -> StoreError {
        StoreError::TooLarge {
            key: self.key().clone(),
            need_bytes,
            limit_bytes: 0,
        }
    }

    /// Returns the bytes of a decoded chunk that contains the whole run; `None` for other runs.
    fn share(
        &self,
        run: &ReadRun<'_>,
        batch: &ReadBatch,
        held: &[Arc<Chunk>],
    ) -> Result<Option<Data>, StoreError> {
        let whole = run.range.end - run.range.start;
        let (Some(single), [chunk]) = (batch.batch.single, held) else {
            return Ok(None);
        };
        let Some(bytes) = (chunk.bytes.as_ref()).filter(|_| batch.batch.end - batch.at == whole)
        else {
            return Ok(None);
        };
        let start = in_memory(single.offset)?;
        self.evict_after_end(run.order, &batch.ids, &run.geometry, single);
        let end = start + in_memory(whole)?;
        Ok(Some(Data::Shared(Arc::clone(bytes), start..end)))
    }

    pub(super) fn admit(
        &self,
        served: Option<&ServedVersions>,
        id: &ChunkId,
        version: Option<Version>,
        checked_ms: u64,
    ) -> Result<(), StoreError> {
        let name = |chunk| self.chunks.chunk_key(chunk);
        served.map_or(Ok(()), |served| served.admit(id, name, version, checked_ms))
    }

    /// Copies the chunks of a batch to their place in `target`, which has the bytes of the batch.
    fn copy(
        &self,
        run: &ReadRun<'_>,
        batch: &ReadBatch,
        held: &[Arc<Chunk>],
        mut target: &mut [u8],
    ) -> Result<(), StoreError> {
        let evicts = self.evicts_after_read(run.order);
        let positions = batch.batch.positions();
        let mut positions = positions.ok_or_else(|| self.no_memory(target.len() as u64))?;
        let geometry = &run.geometry;
        let flow = geometry.runs(batch.at, batch.batch.end, |run| {
            let place = positions.get(run.chunk);
            let chunk = place.and_then(|place| Some((batch.ids.get(place)?, held.get(place)?)));
            let Some((id, chunk)) = chunk else {
                return ControlFlow::Break(self.internal("a run of a chunk that is not held"));
            };
            if let Err(error) = self.copy_run(run, chunk, &mut target) {
                return ControlFlow::Break(error);
            }
            if evicts && run.offset + run.length == geometry.chunk_bytes() {
                self.engine.cache.mark_for_eviction(*id);
            }
            ControlFlow::Continue(())
        });
        match flow {
            // The buffer is reused, so a byte that was not written would be one of another read.
            ControlFlow::Continue(()) if !target.is_empty() => {
                Err(self.internal("runs shorter than the range"))
            }
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Copies a run of a chunk to the beginning of `target`, and advances `target` to the bytes after it.
    fn copy_run(&self, run: Run, chunk: &Chunk, target: &mut &mut [u8]) -> Result<(), StoreError> {
        let (start, length) = (in_memory(run.offset)?, in_memory(run.length)?);
        let to = self.split(target, run)?;
        match &chunk.bytes {
            Some(bytes) => to.copy_from_slice(part(bytes, start..start + length)?),
            None => self.chunks.fill(run.offset, to),
        }
        Ok(())
    }

    /// Returns whether chunks are evicted early after a read to their end, because the kernel caches their
    /// pages. It drops the pages of a changed file, so remote chunks that can change stay if all fit.
    fn evicts_after_read(&self, order: &ElementOrder) -> bool {
        let fits = order.geometry.size_bytes() <= self.engine.cache.budget_bytes() / 2;
        let stays = self.chunks.is_remote() && !self.is_constant() && fits;
        order.readahead.is_streaming() && !stays
    }

    fn evict_after_end(
        &self,
        order: &ElementOrder,
        ids: &[ChunkId],
        geometry: &Geometry,
        run: Run,
    ) {
        if let [id] = ids
            && run.offset + run.length == geometry.chunk_bytes()
            && self.evicts_after_read(order)
        {
            self.engine.cache.mark_for_eviction(*id);
        }
    }

    pub(super) fn split<'a>(
        &self,
        target: &mut &'a mut [u8],
        run: Run,
    ) -> Result<&'a mut [u8], StoreError> {
        let (part, rest) = std::mem::take(target)
            .split_at_mut_checked(in_memory(run.length)?)
            .ok_or_else(|| self.internal("runs longer than the range that they are of"))?;
        *target = rest;
        Ok(part)
    }
}

/// The chunks of the beginning of a range, as many as one read may hold at a time.
#[derive(Debug)]
pub(super) struct ChunkBatch {
    /// The chunks, in the order in which they are first needed.
    pub(super) chunks: Vec<u64>,
    /// The end of the bytes that the chunks cover.
    pub(super) end: u64,
    /// The number of runs in the batch.
    pub(super) runs: u64,
    /// The run, if the batch has only one.
    pub(super) single: Option<Run>,
    /// Whether the system had no memory for more chunks.
    pub(super) lacks_memory: bool,
}

impl ChunkBatch {
    /// Returns the chunks of a range that fit into `held_bytes`, over at most `most_runs` runs.
    pub(super) fn of(
        geometry: &Geometry,
        range: Range<u64>,
        held_bytes: u64,
        most_runs: u64,
    ) -> Self {
        let most = (held_bytes / geometry.chunk_bytes().max(1)).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_CHUNKS);
        let mut chunks = Vec::new();
        let mut positions = ChunkPositions::default();
        let (mut end, mut runs, mut first) = (range.start, 0_u64, None);
        let mut lacks_memory = false;
        let _ = geometry.runs(range.start, range.end, |run| {
            if runs == most_runs {
                return ControlFlow::Break(());
            }
            if positions.get(run.chunk).is_none() {
                if chunks.len() == most {
                    return ControlFlow::Break(());
                }
                // Without memory for more chunks, the batch has those that it has.
                let has_space = chunks.try_reserve(1).is_ok();
                if !has_space || positions.add(run.chunk, chunks.len()).is_none() {
                    lacks_memory = true;
                    return ControlFlow::Break(());
                }
                chunks.push(run.chunk);
            }
            first.get_or_insert(run);
            runs += 1;
            end += run.length;
            ControlFlow::Continue(())
        });
        Self {
            chunks,
            end,
            runs,
            single: first.filter(|_| runs == 1),
            lacks_memory,
        }
    }

    /// Returns the indexes of the chunks; `None` if the system has no memory for them.
    pub(super) fn positions(&self) -> Option<ChunkPositions> {
        let mut positions = ChunkPositions::default();
        for (place, chunk) in self.chunks.iter().enumerate() {
            positions.add(*chunk, place)?;
        }
        Some(positions)
    }
}

/// The indexes of chunks in a batch. The last result is cached, because runs nearly follow the
/// chunk order.
#[derive(Debug, Default)]
pub(super) struct ChunkPositions {
    places: hashbrown::HashMap<u64, usize>,
    last: Option<(u64, usize)>,
}

impl ChunkPositions {
    /// Adds a chunk; `None` if the system has no memory for it.
    fn add(&mut self, chunk: u64, place: usize) -> Option<()> {
        self.places.try_reserve(1).ok()?;
        self.places.insert(chunk, place);
        self.last = Some((chunk, place));
        Some(())
    }

    pub(super) fn get(&mut self, chunk: u64) -> Option<usize> {
        match self.last {
            Some((last, place)) if last == chunk => Some(place),
            _ => {
                let place = *self.places.get(&chunk)?;
                self.last = Some((chunk, place));
                Some(place)
            }
        }
    }
}
