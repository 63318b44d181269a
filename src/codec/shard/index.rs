//! The index of a shard: offset and length of each inner chunk.

use std::ops::Range;

use super::NAME;
use crate::codec::error::{CodecError, DecodeError};

/// Size of an index entry in bytes: offset and length, 64 bits each, little-endian once decoded.
pub(super) const ENTRY_BYTES: usize = 16;

/// The decoded index of one shard. Each entry is validated on access.
#[derive(Debug, Clone)]
pub struct ShardIndex {
    entries: Vec<u8>,
    bounds: EntryBounds,
}

/// The limits of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryBounds {
    /// The range that may contain inner chunks: the shard without its index.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) inner_encoded_bytes: Option<u64>,
}

impl ShardIndex {
    pub(super) fn new(entries: Vec<u8>, bounds: EntryBounds) -> Self {
        Self { entries, bounds }
    }

    /// Returns the number of inner chunks, stored or not.
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Returns whether the shard has no inner chunks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the byte range in the shard of the inner chunk with the index `number` (C order over the inner
    /// grid); `None` if the chunk is not stored, so that its elements are the fill value.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the entry leaves the shard, overlaps the index, or has a length that the
    /// inner codecs cannot produce. Other inner chunks remain readable. [`CodecError::Internal`] if the shard
    /// has fewer inner chunks.
    pub fn entry(&self, number: usize) -> Result<Option<Range<u64>>, CodecError> {
        let (entries, _) = self.entries.as_chunks::<ENTRY_BYTES>();
        let entry = entries.get(number).ok_or_else(|| {
            CodecError::internal(NAME, format!("inner chunk {number} of {}", self.len()))
        })?;
        let named = |error: CodecError| error.within(&format!("inner chunk {number}"));
        self.bounds.range(entry).map_err(named)
    }
}

impl EntryBounds {
    pub(super) fn range(
        &self,
        entry: &[u8; ENTRY_BYTES],
    ) -> Result<Option<Range<u64>>, CodecError> {
        let (words, _) = entry.as_chunks::<8>();
        let [offset, length] = *words else {
            return Err(CodecError::internal(NAME, "an entry is not two words"));
        };
        let (offset, length) = (u64::from_le_bytes(offset), u64::from_le_bytes(length));
        if offset == u64::MAX && length == u64::MAX {
            return Ok(None);
        }
        let corrupt = |what: String| Err(DecodeError::corrupt(what).in_codec(NAME));
        let end = match offset.checked_add(length) {
            Some(end) if offset >= self.begin && end <= self.end => end,
            _ => {
                let Self { begin, end, .. } = self;
                return corrupt(format!(
                    "{length} bytes at {offset} are not within {begin} to {end}"
                ));
            }
        };
        match self.inner_encoded_bytes {
            Some(expected) if expected != length => {
                corrupt(format!("{length} bytes, expected {expected}"))
            }
            _ => Ok(Some(offset..end)),
        }
    }
}
