//! Decodes an entry, whole or in segments, from its compressed bytes.

use std::sync::Arc;

use super::{ZipObject, crc_of};
use crate::store::zip::index::EntryMethod;
use crate::store::zip::inflate::{self, Checkpoint, ReadInput, SEGMENT_BYTES, SegmentError};
use crate::store::zip::streams;
use crate::store::{StoreError, in_memory};

/// A declared size beyond this ratio is not trusted: memory then grows with the actual output.
const USUAL_RATIO: u64 = 1024;

impl ZipObject {
    /// Whether the entry is too large to be decoded whole.
    pub(super) fn is_segmented(&self) -> bool {
        let node = self.node();
        node.method() == EntryMethod::Deflated && node.size_bytes() > self.archive.whole_max_bytes
    }

    /// Whether parts of the entry of a remote archive are fetched by themselves: stored entries that are
    /// long, or of which a view wants exact ranges.
    pub(super) fn is_fetched_in_parts(&self) -> bool {
        let node = self.node();
        let is_short = (1..=self.archive.stored_max_bytes).contains(&node.size_bytes());
        node.method() == EntryMethod::Stored && (self.is_exact || !is_short)
    }

    /// Returns the segment that contains the byte at `offset`.
    pub(super) fn segment_of(&self, offset: u64) -> Result<u32, StoreError> {
        u32::try_from(offset / SEGMENT_BYTES)
            .map_err(|_| self.corrupt("more segments than can be counted".into()))
    }

    /// Fails if the decoded entry is larger than the memory limit.
    pub(super) fn check_memory(&self) -> Result<(), StoreError> {
        let entry_bytes = self.node().size_bytes();
        match entry_bytes > self.archive.options.memory_limit_bytes {
            true => Err(self.exceeds_limit(entry_bytes)),
            false => Ok(()),
        }
    }

    /// Returns the size of all compressed bytes; fails if it is much larger than the declared decoded size.
    pub(super) fn compressed_bytes(&self) -> Result<usize, StoreError> {
        let node = self.node();
        let most = node.size_bytes().saturating_mul(2).saturating_add(1 << 20);
        let length = node.compressed_bytes();
        if length > most {
            return Err(self.corrupt(format!(
                "{length} compressed bytes for {}",
                node.size_bytes()
            )));
        }
        in_memory(length)
    }

    /// Decodes one segment with the entry's inflater, and caches all segments that are decoded on the way.
    pub(super) fn decode_segment(
        &self,
        number: u32,
        from: Option<Box<Checkpoint>>,
        read: &ReadInput<'_>,
    ) -> Result<Arc<Vec<u8>>, SegmentError> {
        let inflater = self.archive.inflaters.of(self.position);
        let mut inflater = inflater.lock();
        // Another reader may have decoded this segment meanwhile, or found a wrong checksum at the end.
        if self.node().crc_verdict() == Some(false) {
            return Err(SegmentError::Store(self.bad_crc(None)));
        }
        let cached = self.cached(&self.archive.decoded, number);
        if let Some(bytes) = cached.map_err(SegmentError::Store)? {
            return Ok(bytes);
        }
        let keep = |number, bytes| self.cache(&self.archive.decoded, number, &bytes);
        inflater.segment(number, from, self.node(), read, &keep)
    }

    pub(super) fn segment_error(&self, error: SegmentError) -> StoreError {
        match error {
            SegmentError::Store(error) => error,
            SegmentError::Corrupt(what) => self.corrupt(what),
            SegmentError::Crc(actual) => self.bad_crc(Some(actual)),
            SegmentError::NeedsInput(offset, _) => self.corrupt(format!("is cut off at {offset}")),
        }
    }

    /// Decodes a whole entry and verifies it.
    pub(super) fn decode(&self, compressed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let node = self.node();
        let size = in_memory(node.size_bytes())?;
        let mut bytes = Vec::new();
        let is_plausible = node.size_bytes() / USUAL_RATIO <= compressed.len() as u64;
        let is_trusted = match node.method() {
            // The largest ratio of deflate is small.
            EntryMethod::Deflated => true,
            EntryMethod::Zstd => {
                is_plausible && inflate::zstd_content_bytes(compressed) == Some(node.size_bytes())
            }
            _ => is_plausible,
        };
        if !is_trusted {
            // The declared size is untrusted, so the buffer grows with the actual output.
            let decoded = match node.method() {
                EntryMethod::Zstd => inflate::zstd_growing(compressed, size, &mut bytes),
                method => streams::growing(method, compressed, size, &mut bytes),
            };
            decoded.map_err(|what| self.corrupt(what))?;
            self.verify_crc(crc_of(&bytes))?;
            return Ok(bytes);
        }
        inflate::resize(&mut bytes, size)
            .map_err(|inflate::NoMemory| self.no_memory(size as u64))?;
        self.decode_into(compressed, &mut bytes)?;
        Ok(bytes)
    }

    /// Decodes a whole entry into `target`, which has its declared size, and verifies it.
    pub(super) fn decode_into(
        &self,
        compressed: &[u8],
        target: &mut [u8],
    ) -> Result<(), StoreError> {
        let decoded = match self.node().method() {
            EntryMethod::Stored => copy_exact(compressed, target),
            EntryMethod::Zstd => inflate::zstd_exact(compressed, target),
            EntryMethod::Deflated => inflate::deflate_exact(compressed, target),
            method => streams::exact(method, compressed, target),
        };
        decoded.map_err(|what| self.corrupt(what))?;
        self.verify_crc(crc_of(target))
    }
}

fn copy_exact(stored: &[u8], target: &mut [u8]) -> Result<(), String> {
    if stored.len() != target.len() {
        return Err(format!(
            "{} bytes are stored, {} declared",
            stored.len(),
            target.len()
        ));
    }
    target.copy_from_slice(stored);
    Ok(())
}
