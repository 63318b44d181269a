//! One array, ready to be read as the bytes of its elements.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::cache::{Piece, PieceKey, now_ms};
use super::course::Course;
use super::engine::Engine;
use super::geometry::{Geometry, Run};
use super::pieces::Pieces;
use super::served::ServedVersions;
use crate::codec::Pipeline;
use crate::store::{Data, Key, Patience, Store, StoreError, Version, in_memory, part, part_mut};
use crate::zarr;

/// Reads the decoded bytes of an array: elements in C order, in the byte order of its data type.
///
/// Nothing wrong is ever read: a chunk that is proven to be absent is fill values, one that is
/// there is decoded whole and checked, and anything else is an error.
#[derive(Debug)]
pub struct ArrayReader {
    pub(super) pieces: Pieces,
    pub(super) engine: Arc<Engine>,
    /// The elements in C order.
    pub(super) rows: Course,
    /// The pieces one behind the other, each of them whole.
    sequence: Course,
    /// Pieces over one chunk.
    chunk_geometry: Geometry,
    pub(super) window_bytes: u64,
    /// How much one read may hold while it waits for more: never so much that the readers of all
    /// workers together could wait for each other.
    held_bytes: u64,
}

/// Pieces that one read holds at a time.
const MAX_HELD_BYTES: u64 = 64 << 20;
/// Runs at least as long as this are read from the store as they are, where nothing is encoded.
const DIRECT_RUN_BYTES: u64 = 32 << 10;
/// Pieces of a store that is far away are fetched whole up to this size, encoded or not.
const MAX_FETCHED_BYTES: u64 = 16 << 20;
/// At least so much is begun ahead of a reader that goes on and on.
const MIN_WINDOW_BYTES: u64 = 4 << 20;

impl ArrayReader {
    /// Prepares an array at `key` of a store. `document` is the key and the version of `metadata`:
    /// reads fail once it is another one.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] or [`StoreError::Corrupt`], which say why its elements can not
    /// be read.
    pub fn open(
        store: Arc<dyn Store>,
        key: Key,
        metadata: &zarr::Array,
        pipeline: Arc<Pipeline>,
        engine: Arc<Engine>,
        ttl: Duration,
        document: Option<(Key, Version)>,
    ) -> Result<Self, StoreError> {
        let number = engine.next_array();
        let pieces = Pieces::new(store, key, metadata, pipeline, ttl, number, document)?;
        let geometry = pieces.over_the_array()?;
        let sequence = geometry
            .in_sequence()
            .ok_or_else(|| StoreError::Unsupported {
                key: pieces.key().clone(),
                what: "more bytes than can be counted".into(),
            })?;
        let chunk_geometry = pieces.over_a_chunk()?;
        let item_rows = geometry.outer_bytes();
        let threads = engine.threads();
        let window_bytes = geometry
            .piece_bytes()
            .saturating_mul(threads.saturating_mul(2))
            .max(item_rows.min(engine.cache.budget_bytes() / 4))
            .max(MIN_WINDOW_BYTES)
            .min((engine.cache.budget_bytes() / 4).max(MIN_WINDOW_BYTES));
        let shares = threads.saturating_mul(4).max(64);
        let held_bytes = (engine.memory_limit_bytes() / shares).min(MAX_HELD_BYTES);
        Ok(Self {
            held_bytes,
            pieces,
            engine,
            rows: Course::over(geometry),
            sequence: Course::over(sequence),
            chunk_geometry,
            window_bytes,
        })
    }

    /// Size of the whole array in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.rows.geometry.size_bytes()
    }

    /// Size in bytes of all pieces, one behind the other: what lies beyond the edges of the array
    /// counts.
    pub fn sequence_bytes(&self) -> u64 {
        self.sequence.geometry.size_bytes()
    }

    /// Elements of a piece along each axis: of an inner chunk where there are shards.
    pub fn piece_shape(&self) -> &[u64] {
        self.pieces.piece_shape()
    }

    /// Reads `size` bytes from `offset` of the whole array into `buffer`, fewer only at the end.
    /// `served` has the versions of the chunks that the same file was served from, if the store can
    /// change.
    ///
    /// # Errors
    /// [`StoreError::WouldWait`] for [`Patience::Now`] only; [`StoreError::Stale`] if a chunk has
    /// another version than `served` says; otherwise why a piece cannot be had.
    pub fn read(
        self: &Arc<Self>,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        self.read_along(&self.rows, offset, size, buffer, patience, served)
    }

    /// Reads from the pieces in C order over their grid, one behind the other; each is as it is
    /// stored, also beyond the array's edge.
    ///
    /// # Errors
    /// As [`ArrayReader::read`].
    pub fn read_sequence(
        self: &Arc<Self>,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        self.read_along(&self.sequence, offset, size, buffer, patience, served)
    }

    fn read_along(
        self: &Arc<Self>,
        course: &Course,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let geometry = &course.geometry;
        let end = offset
            .saturating_add(size as u64)
            .min(geometry.size_bytes());
        if offset >= end {
            return Ok(Data::Filled(0..0));
        }
        let range = offset..end;
        if !self.reads_directly(geometry) {
            self.look_ahead(course, &range);
        }
        let key = |piece| self.pieces.key_of(piece);
        self.fill(course, geometry, &key, range, buffer, patience, served)
    }

    /// Reads from one chunk as it is stored, decoded: all of its shape, also beyond the array's
    /// edge. `chunk` is its number in C order over the grid.
    ///
    /// # Errors
    /// As [`ArrayReader::read`].
    pub fn read_chunk(
        self: &Arc<Self>,
        chunk: u64,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let geometry = &self.chunk_geometry;
        let end = offset
            .saturating_add(size as u64)
            .min(geometry.size_bytes());
        if offset >= end {
            return Ok(Data::Filled(0..0));
        }
        let key = |piece| self.pieces.key_in_chunk(chunk, piece);
        self.fill(
            &self.rows,
            geometry,
            &key,
            offset..end,
            buffer,
            patience,
            served,
        )
    }

    /// Reads from one inner chunk of a shard; `piece` is its number in C order over the grid of
    /// inner chunks of the whole array.
    ///
    /// # Errors
    /// As [`ArrayReader::read`].
    pub fn read_inner(
        self: &Arc<Self>,
        piece: u64,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let piece_bytes = self.rows.geometry.piece_bytes();
        let geometry = Geometry::of_one_piece(piece_bytes);
        let end = offset.saturating_add(size as u64).min(piece_bytes);
        if offset >= end {
            return Ok(Data::Filled(0..0));
        }
        let key = |_| self.pieces.key_of(piece);
        self.fill(
            &self.rows,
            &geometry,
            &key,
            offset..end,
            buffer,
            patience,
            served,
        )
    }

    /// Size of a decoded chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_geometry.size_bytes()
    }

    /// Size of a decoded piece in bytes: of an inner chunk where there are shards.
    pub fn piece_bytes(&self) -> u64 {
        self.rows.geometry.piece_bytes()
    }

    /// Whether the array can not change.
    pub fn is_constant(&self) -> bool {
        self.pieces.is_constant()
    }

    /// What decodes it.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Where the array is in the store.
    pub fn key(&self) -> &Key {
        self.pieces.key()
    }

    /// The version of the metadata that it was opened with; 0 where they can not change.
    pub fn document_version(&self) -> u64 {
        self.pieces.document_version()
    }

    /// What the pieces are made of.
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Whether pieces are read from the store as they are, run by run.
    fn reads_directly(&self, geometry: &Geometry) -> bool {
        // What is far away is worth a request of its own, or is fetched as a whole.
        let is_worth_it = !self.pieces.is_remote() || geometry.piece_bytes() > MAX_FETCHED_BYTES;
        self.pieces.is_identity() && geometry.run_bytes() >= DIRECT_RUN_BYTES && is_worth_it
    }

    /// Fills the buffer with a range that is not empty, some pieces at a time.
    #[expect(
        clippy::too_many_arguments,
        reason = "what the kinds of reads differ in"
    )]
    fn fill(
        self: &Arc<Self>,
        course: &Course,
        geometry: &Geometry,
        key: &dyn Fn(u64) -> PieceKey,
        range: Range<u64>,
        buffer: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let length = in_memory(range.end - range.start)?;
        let target = part_mut(buffer, 0..length)?;
        if self.reads_directly(geometry) {
            return self.copy_direct(geometry, key, range, target, patience, served);
        }
        let mut at = range.start;
        while at < range.end {
            let batch = Batch::of(geometry, at..range.end, self.held_bytes, u64::MAX);
            let keys: Vec<PieceKey> = batch.pieces.iter().map(|piece| key(*piece)).collect();
            // Before pieces are held: who waits for memory must not hold any.
            self.make_room(served, &keys, patience)?;
            let held = match patience {
                Patience::Now => self.held_now(&keys)?,
                Patience::Wait => self.hold(&keys)?,
            };
            for (key, piece) in keys.iter().zip(&held) {
                self.admit(served, key, piece.version, piece.checked_ms())?;
            }
            if let (Some(run), [piece]) = (batch.single, &held[..])
                && let Some(bytes) = &piece.bytes
                && batch.end - at == range.end - range.start
            {
                // One run in one piece: the reply is made from the piece itself.
                let start = in_memory(run.offset)?;
                self.note_end(course, &keys, geometry, run);
                return Ok(Data::Shared(Arc::clone(bytes), start..start + length));
            }
            let (from, to) = (at - range.start, batch.end - range.start);
            let part = part_mut(target, in_memory(from)?..in_memory(to)?)?;
            self.copy(course, geometry, at..batch.end, &batch, &held, &keys, part)?;
            if batch.end == at {
                return Err(StoreError::Internal {
                    key: self.key().clone(),
                    what: format!("no piece has byte {at}"),
                });
            }
            at = batch.end;
        }
        Ok(Data::Filled(0..length))
    }

    fn make_room(
        &self,
        served: Option<&ServedVersions>,
        keys: &[PieceKey],
        patience: Patience,
    ) -> Result<(), StoreError> {
        match served {
            Some(served) => served.make_room(keys, |chunk| self.pieces.chunk_key(chunk), patience),
            None => Ok(()),
        }
    }

    fn admit(
        &self,
        served: Option<&ServedVersions>,
        key: &PieceKey,
        version: Option<Version>,
        checked_ms: u64,
    ) -> Result<(), StoreError> {
        let name = |chunk| self.pieces.chunk_key(chunk);
        served.map_or(Ok(()), |served| {
            served.admit(key, name, version, checked_ms)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `fill`")]
    fn copy(
        &self,
        course: &Course,
        geometry: &Geometry,
        range: Range<u64>,
        batch: &Batch,
        held: &[Arc<Piece>],
        keys: &[PieceKey],
        mut target: &mut [u8],
    ) -> Result<(), StoreError> {
        let gives_up = self.gives_up_what_was_read(course);
        let mut finder = batch.finder();
        let flow = geometry.runs(range.start, range.end, |run| {
            let place = finder.find(run.piece);
            match self.copy_run(run, held.get(place), &mut target) {
                Ok(()) => {}
                Err(error) => return ControlFlow::Break(error),
            }
            if gives_up
                && run.offset + run.length == geometry.piece_bytes()
                && let Some(key) = keys.get(place)
            {
                self.engine.cache.use_up(*key);
            }
            ControlFlow::Continue(())
        });
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Copies a run of a piece to the beginning of `target`, which is what lies behind it then.
    fn copy_run(
        &self,
        run: Run,
        piece: Option<&Arc<Piece>>,
        target: &mut &mut [u8],
    ) -> Result<(), StoreError> {
        let internal = |what: &str| StoreError::Internal {
            key: self.key().clone(),
            what: what.into(),
        };
        let piece = piece.ok_or_else(|| internal("a run of a piece that is not held"))?;
        let (start, length) = (in_memory(run.offset)?, in_memory(run.length)?);
        let (to, rest) = std::mem::take(target)
            .split_at_mut_checked(length)
            .ok_or_else(|| internal("runs longer than the range that they are of"))?;
        *target = rest;
        match &piece.bytes {
            Some(bytes) => to.copy_from_slice(part(bytes, start..start + length)?),
            None => self.pieces.fill(run.offset, to),
        }
        Ok(())
    }

    /// Whether pieces go when they were read to their end. The kernel has them then; but it may have
    /// to drop the pages of what can change, so pieces stay if all of them fit.
    fn gives_up_what_was_read(&self, course: &Course) -> bool {
        let fits = course.geometry.size_bytes() <= self.engine.cache.budget_bytes() / 2;
        course.ahead.is_streaming() && (self.is_constant() || !fits)
    }

    fn note_end(&self, course: &Course, keys: &[PieceKey], geometry: &Geometry, run: Run) {
        if let [key] = keys
            && run.offset + run.length == geometry.piece_bytes()
            && self.gives_up_what_was_read(course)
        {
            self.engine.cache.use_up(*key);
        }
    }

    /// Copies runs from the store as they are.
    fn copy_direct(
        &self,
        geometry: &Geometry,
        key: &dyn Fn(u64) -> PieceKey,
        range: Range<u64>,
        mut target: &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let length = target.len();
        let flow = geometry.runs(range.start, range.end, |run| {
            let key = key(run.piece);
            match self.copy_run_directly(&key, run, &mut target, patience, served) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        });
        match flow {
            ControlFlow::Continue(()) => Ok(Data::Filled(0..length)),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn copy_run_directly(
        &self,
        key: &PieceKey,
        run: Run,
        target: &mut &mut [u8],
        patience: Patience,
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        let (part, rest) = std::mem::take(target)
            .split_at_mut_checked(in_memory(run.length)?)
            .ok_or_else(|| StoreError::Internal {
                key: self.key().clone(),
                what: "runs longer than the range that they are of".into(),
            })?;
        *target = rest;
        self.make_room(served, std::slice::from_ref(key), patience)?;
        let checked_ms = now_ms();
        let (pieces, engine) = (&self.pieces, &self.engine);
        let version = pieces.read_raw(key, run.offset, part, patience, engine)?;
        self.admit(served, key, version, checked_ms)
    }
}
