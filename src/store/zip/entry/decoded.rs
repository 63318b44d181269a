//! Entries that are compressed: decoded whole, or in segments if they are long.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::{CHECK_PIECE_BYTES, MAX_HEADER_BYTES, ZipObject, crc_of};
use crate::store::zip::index::Coding;
use crate::store::zip::inflate::{self, Inflater, SEGMENT_BYTES};
use crate::store::{Data, Patience, StoreError, in_memory, part, part_mut};

/// Entries up to this size are decoded at once rather than handed to another thread: that takes
/// longer than decoding them.
const INLINE_MAX_BYTES: u64 = 32 << 10;
/// Compressed bytes that are read at a time for a segment.
const INPUT_BYTES: usize = 256 << 10;
/// The same of an archive that is far away.
const FAR_INPUT_BYTES: usize = 1 << 20;
/// Declared sizes beyond this ratio are not believed before the bytes are there.
const ZSTD_USUAL_RATIO: u64 = 1024;

thread_local! {
    /// Compressed bytes on their way to the decoder.
    static COMPRESSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ZipObject {
    /// Reads from a compressed entry; the answer is short where a segment ends.
    pub(super) fn read_decoded(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let node = self.node();
        let entry_bytes = node.size_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        // What came from far away is kept, however short it is.
        if entry_bytes <= INLINE_MAX_BYTES && !self.archive.is_remote {
            let target = part_mut(buffer, 0..in_memory(entry_bytes)?)?;
            self.with_compressed(patience, |compressed| self.decode_into(compressed, target))?;
            return Ok(Data::Filled(start..start.saturating_add(size)));
        }
        if node.coding() == Coding::Deflated && entry_bytes > self.archive.whole_max_bytes {
            return self.read_segment(offset, size, patience);
        }
        let piece = (self.position, 0);
        if let Some(bytes) = self.cached(&self.archive.decoded, piece)? {
            return Ok(Data::Shared(bytes, start..start.saturating_add(size)));
        }
        let limit_bytes = self.archive.options.memory_limit_bytes;
        if entry_bytes > limit_bytes {
            return Err(StoreError::TooLarge {
                key: self.key(),
                need_bytes: entry_bytes,
                limit_bytes,
            });
        }
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: self.key() });
        }
        let bytes = self.archive.decoding.once(self.position, || {
            if let Some(bytes) = self.cached(&self.archive.decoded, piece)? {
                return Ok(bytes);
            }
            let bytes = self.with_compressed(patience, |compressed| self.decode(compressed))?;
            let bytes = Arc::new(bytes);
            self.archive.decoded.insert(piece, Arc::clone(&bytes));
            Ok(bytes)
        })?;
        Ok(Data::Shared(bytes, start..start.saturating_add(size)))
    }

    /// Reads from one segment of an entry that is too big to be decoded whole; the answer is short
    /// at a segment's end, and [`Object::read`] goes on from there.
    fn read_segment(
        &self,
        offset: u64,
        size: usize,
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let number = u32::try_from(offset / SEGMENT_BYTES).unwrap_or(u32::MAX);
        let start = usize::try_from(offset % SEGMENT_BYTES).unwrap_or(0);
        let piece = (self.position, number);
        if self.archive.options.verify && self.node().crc_verdict().is_none() {
            let last = self.node().size_bytes().saturating_sub(1) / SEGMENT_BYTES;
            self.segment(u32::try_from(last).unwrap_or(u32::MAX), patience)?;
        }
        let bytes = match self.cached(&self.archive.decoded, piece)? {
            Some(bytes) => bytes,
            None => self.segment(number, patience)?,
        };
        let end = start.saturating_add(size).min(bytes.len());
        Ok(Data::Shared(bytes, start..end))
    }

    /// Decodes one segment, and keeps those that are decoded on the way.
    fn segment(&self, number: u32, patience: Patience) -> Result<Arc<Vec<u8>>, StoreError> {
        if patience == Patience::Now {
            return Err(StoreError::WouldWait { key: self.key() });
        }
        let inflater = self.archive.inflaters.of(self.position);
        let mut inflater = inflater.lock().unwrap_or_else(PoisonError::into_inner);
        // Another reader may have come to it meanwhile, or to a bad end.
        if self.node().crc_verdict() == Some(false) {
            return Err(self.bad_crc(None));
        }
        if let Some(bytes) = self.cached(&self.archive.decoded, (self.position, number))? {
            return Ok(bytes);
        }
        let fetched = self.fetched(&mut inflater)?;
        let (data_start, input_bytes) = match &fetched {
            Some(_) => (0, INPUT_BYTES),
            None if self.archive.is_remote => (self.data_start(patience)?, FAR_INPUT_BYTES),
            None => (self.data_start(patience)?, INPUT_BYTES),
        };
        let read = |buffer: &mut [u8], at: u64| match &fetched {
            Some(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let there = bytes.get(at..at.saturating_add(buffer.len()));
                buffer.copy_from_slice(there.ok_or_else(|| self.corrupt("is cut off".into()))?);
                Ok(())
            }
            None => self.pread(buffer, data_start.saturating_add(at), Patience::Wait),
        };
        let keep = |number, bytes| self.archive.decoded.insert((self.position, number), bytes);
        inflater
            .segment(number, self.node(), input_bytes, &read, &keep)
            .map_err(|error| match error {
                inflate::SegmentError::Store(error) => error,
                inflate::SegmentError::Corrupt(what) => self.corrupt(what),
                inflate::SegmentError::Crc(actual) => self.bad_crc(Some(actual)),
            })
    }

    /// All compressed bytes of an entry that is far away and not too long, fetched at once. None
    /// if it has to be read piece by piece: also if others have taken their room since.
    fn fetched(&self, inflater: &mut Inflater) -> Result<Option<Arc<Vec<u8>>>, StoreError> {
        let (archive, piece) = (&self.archive, (self.position, 0));
        let length = self.node().compressed_bytes();
        if !archive.is_remote || length > archive.compressed_max_bytes {
            return Ok(None);
        }
        let held = self.cached(&archive.compressed, piece)?;
        if held.is_some() || inflater.was_fetched {
            return Ok(held);
        }
        let mut bytes = Vec::new();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let range = self.read_compressed(&mut bytes, length, Patience::Wait)?;
        bytes.truncate(range.end);
        bytes.drain(..range.start);
        let bytes = Arc::new(bytes);
        archive.compressed.insert(piece, Arc::clone(&bytes));
        inflater.was_fetched = true;
        Ok(Some(bytes))
    }

    /// Calls `decode` with all compressed bytes.
    fn with_compressed<T>(
        &self,
        patience: Patience,
        decode: impl FnOnce(&[u8]) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let node = self.node();
        let most = node.size_bytes().saturating_mul(2).saturating_add(1 << 20);
        let length = node.compressed_bytes();
        if length > most {
            return Err(self.corrupt(format!(
                "{length} compressed bytes for {}",
                node.size_bytes()
            )));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        COMPRESSED.with_borrow_mut(|compressed| {
            let range = self.read_compressed(compressed, length, patience)?;
            let result = part(compressed, range).and_then(decode);
            // One big entry does not pin its size in every thread.
            compressed.truncate(CHECK_PIECE_BYTES);
            compressed.shrink_to(4 * CHECK_PIECE_BYTES);
            result
        })
    }

    /// Reads all compressed bytes, and the local header if it is not known, into `buffer`, which
    /// grows to hold them; returns where in it they are.
    fn read_compressed(
        &self,
        buffer: &mut Vec<u8>,
        length: usize,
        patience: Patience,
    ) -> Result<Range<usize>, StoreError> {
        let node = self.node();
        let header_room = match node.header_length() {
            Some(_) => 0,
            None => MAX_HEADER_BYTES,
        };
        let room = length.saturating_add(header_room);
        if buffer.len() < room {
            inflate::resize(buffer, room)
                .map_err(|inflate::NoMemory| self.no_memory(room as u64))?;
        }
        let target = part_mut(buffer, 0..room)?;
        let start = match node.header_length() {
            Some(header) => {
                let at = node.header_offset().saturating_add(header);
                let target = part_mut(target, 0..length)?;
                self.pread(target, at, patience)?;
                0
            }
            None => self.read_header(target, length, patience)?.0,
        };
        Ok(start..start.saturating_add(length))
    }

    fn no_memory(&self, need_bytes: u64) -> StoreError {
        let limit_bytes = self.archive.options.memory_limit_bytes;
        StoreError::TooLarge {
            key: self.key(),
            need_bytes,
            limit_bytes,
        }
    }

    /// Decodes all of an entry and judges it.
    fn decode(&self, compressed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let node = self.node();
        let size = usize::try_from(node.size_bytes()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let is_plausible = node.size_bytes() / ZSTD_USUAL_RATIO <= compressed.len() as u64;
        if node.coding() == Coding::Zstd
            && (!is_plausible || inflate::zstd_content_bytes(compressed) != Some(node.size_bytes()))
        {
            // The size is only a claim: the buffer grows with what is really there.
            inflate::zstd_growing(compressed, size, &mut bytes)
                .map_err(|what| self.corrupt(what))?;
            self.judge_crc(crc_of(&bytes))?;
            return Ok(bytes);
        }
        inflate::resize(&mut bytes, size)
            .map_err(|inflate::NoMemory| self.no_memory(size as u64))?;
        self.decode_into(compressed, &mut bytes)?;
        Ok(bytes)
    }

    /// Decodes all of an entry into `target`, which has its declared size, and judges it.
    fn decode_into(&self, compressed: &[u8], target: &mut [u8]) -> Result<(), StoreError> {
        let decoded = match self.node().coding() {
            Coding::Zstd => inflate::zstd_exact(compressed, target),
            _ => inflate::deflate_exact(compressed, target),
        };
        decoded.map_err(|what| self.corrupt(what))?;
        self.judge_crc(crc_of(target))
    }
}
