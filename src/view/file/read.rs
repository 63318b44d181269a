//! Reads the segments of a layout.
//!
//! # A read, from the request to the chunk
//!
//! An open has checked that the metadata of the inode are current, and has counted a handle in the record of the
//! versions that the inode has served ([`ServedVersions`]). A read finds the file by its handle and becomes one future,
//! which a session thread polls once. [`VirtualFile::read`] asks the layout which segments the range covers. Headers
//! and gaps are copied in place. Elements come from [`ArrayReader::read`]; if the range lies within one array, and its
//! elements need no conversion, the bytes of the array are the reply.
//!
//! The array tells readahead about the read, once. It then waits for its turn among all readers of views, for memory
//! for the versions of the chunks, and for the chunks, in batches. Memory comes before chunks, because a read that
//! waits for memory must hold none. Of each chunk, the chunk cache has the bytes, or another read loads it and this one
//! waits, or this one leads: its task on the CPU pool opens the key, reserves memory, reads, decodes, and completes all
//! waiters with one result. Remote chunks of a batch are fetched at the same time. At the end of each load, the store
//! checks that the document of the array is still the same ([`crate::store::DocumentStore::fetch`]). Long parts of
//! unencoded chunks are read into the reply without the cache, under the same checks (`array::read_direct`).
//!
//! What can fail, and how: another document, or another version than this inode has served, is
//! [`StoreError::Stale`]. A chunk that alone exceeds the memory limit is [`StoreError::TooLarge`] at once; memory that
//! others do not release in time is [`StoreError::TimedOut`]. Damaged bytes are [`StoreError::Corrupt`] for all waiters
//! of the chunk; the failure is not cached. Only a proven absence gives fill values. If a leader panics or is dropped,
//! a waiter leads, twice at most. If the read itself is cancelled, its future is dropped, and with it the requests for
//! remote chunks that no other read waits for.

use std::ops::Range;
use std::sync::Arc;

use super::layout::{ArrayExtent, ElementOrder, SegmentSlice, StoredExtent, VirtualFile};
use super::segment_content::source;
use crate::array::{ArrayReader, ChunkTable, Selection, ServedVersions};
use crate::fallible;
use crate::node::{Conversion, Value};
use crate::store::{Data, Key, ReadBuffer, StoreError, in_memory, part_mut};

/// A range of the elements of an array, as the file contains them.
struct ElementSlice<'a> {
    reader: &'a Arc<ArrayReader>,
    conversion: Option<&'a Conversion>,
    extent: Selection,
    /// The offset and the size in bytes of the stored elements that have a byte in the range.
    offset: u64,
    size: usize,
    /// Bytes of the first converted element that precede the range.
    skip: usize,
}

/// A range of the stored chunks of an array.
struct StoredSlice<'a> {
    reader: &'a Arc<ArrayReader>,
    table: &'a ChunkTable,
    offset: u64,
    size: usize,
}

impl VirtualFile {
    /// Reads `size` bytes of the file from `offset`, fewer only at the end of the file. `served` is as in
    /// [`ArrayReader::read`].
    ///
    /// # Errors
    /// As [`ArrayReader::read`]; [`StoreError::Corrupt`] for an element that the format cannot express.
    pub async fn read(
        &self,
        offset: u64,
        size: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        // The blocks that contain the range, which fail as a whole.
        let block_bytes = self.block_bytes.max(1);
        let start = offset - offset % block_bytes;
        let end = offset
            .saturating_add(size as u64)
            .checked_next_multiple_of(block_bytes)
            .unwrap_or(u64::MAX)
            .min(self.layout.size_bytes());
        let length = in_memory(end.saturating_sub(start))?;
        if length == 0 {
            return Ok(Data::empty());
        }
        let first = self.layout.at(start, length as u64)?;
        let data = match first.filter(|first| first.size_bytes() == length as u64) {
            // The bytes of a single array are the reply.
            Some(SegmentSlice::Array(array, range)) => {
                let elements = self.elements(array, &range)?;
                elements.read(length, served).await?
            }
            Some(SegmentSlice::Stored(extent, range)) => {
                self.stored(extent, &range)?.read(served).await?
            }
            _ => {
                let mut bytes = buffer(length)?;
                let filled = self.read_into(start, &mut bytes, served).await?;
                Data::Owned(bytes, 0..filled)
            }
        };
        Ok(data.cut(in_memory(offset - start)?, size))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(in crate::view) async fn read_whole(
        &self,
        served: Option<&ServedVersions>,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = fallible::zeros(in_memory(self.layout.size_bytes())?)?;
        match self.read_into(0, &mut bytes, served).await? == bytes.len() {
            true => Ok(bytes),
            false => Err(StoreError::internal("a file shorter than its layout")),
        }
    }

    /// Fills `target` with the bytes from `offset`, and returns their number: fewer only at the end of the file.
    async fn read_into(
        &self,
        offset: u64,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<usize, StoreError> {
        let (size, mut filled) = (target.len(), 0);
        while filled < size {
            let at = offset.saturating_add(filled as u64);
            let Some(part) = self.layout.at(at, (size - filled) as u64)? else {
                break;
            };
            let count = in_memory(part.size_bytes())?;
            if count == 0 {
                return Err(StoreError::internal(format!("an empty part at {at}")));
            }
            let target = part_mut(target, filled..filled + count)?;
            match part {
                SegmentSlice::Array(array, range) => {
                    let elements = self.elements(array, &range)?;
                    let (reader, size) = (elements.reader, elements.size);
                    let data = reader.read(elements.extent, elements.offset, size, served);
                    let data = data.await?;
                    elements.render(data.bytes(&[])?, target)?;
                }
                SegmentSlice::Rendered(content, range) => {
                    let sources = &self.sources;
                    content.read(sources, range, target, served).await?;
                }
                SegmentSlice::Stored(extent, range) => {
                    let stored = self.stored(extent, &range)?;
                    let data = stored.read(served).await?;
                    stored.copy(data.bytes(&[])?, target)?;
                }
                SegmentSlice::Bytes(bytes) => target.copy_from_slice(bytes),
                SegmentSlice::Zeros(_) => target.fill(0),
                SegmentSlice::Unread(number, _) => {
                    let error = self.readability.errors.get(number).cloned();
                    let unknown = || StoreError::internal("bytes without a reason");
                    return Err(error.unwrap_or_else(unknown));
                }
            }
            filled += count;
        }
        Ok(filled)
    }

    /// Returns the chunks of a range of stored chunks.
    fn stored<'a>(
        &'a self,
        extent: &'a StoredExtent,
        range: &Range<u64>,
    ) -> Result<StoredSlice<'a>, StoreError> {
        Ok(StoredSlice {
            reader: source(&self.sources, extent.source)?,
            table: &extent.table,
            offset: range.start,
            size: in_memory(range.end - range.start)?,
        })
    }

    /// Returns the elements of a range of an array.
    fn elements<'a>(
        &'a self,
        array: &'a ArrayExtent,
        range: &Range<u64>,
    ) -> Result<ElementSlice<'a>, StoreError> {
        let reader = source(&self.sources, array.source)?;
        let extent = match array.order {
            ElementOrder::RowMajor => Selection::RowMajor,
            ElementOrder::ChunkMajor => Selection::ChunkMajor,
        };
        let whole = ElementSlice {
            reader,
            conversion: array.conversion.as_ref(),
            extent,
            offset: range.start,
            size: in_memory(range.end - range.start)?,
            skip: 0,
        };
        let Some(conversion) = whole.conversion else {
            return Ok(whole);
        };
        // All numbers that have a byte in the range.
        let (stored, to) = (
            conversion.from.size_bytes as u64,
            conversion.to.size_bytes as u64,
        );
        let first = range.start / to;
        let count = range.end.div_ceil(to) - first;
        Ok(ElementSlice {
            offset: first * stored,
            size: in_memory(count * stored)?,
            skip: in_memory(range.start - first * to)?,
            ..whole
        })
    }
}

impl StoredSlice<'_> {
    async fn read(&self, served: Option<&ServedVersions>) -> Result<Data, StoreError> {
        self.reader
            .read_stored(self.table, self.offset, self.size, served)
            .await
    }

    /// Copies the bytes of a read, which must fill `target`.
    fn copy(&self, bytes: &[u8], target: &mut [u8]) -> Result<(), StoreError> {
        if bytes.len() != target.len() {
            return Err(StoreError::Internal {
                key: self.reader.key().clone(),
                what: "fewer bytes of stored chunks than the file has".into(),
            });
        }
        target.copy_from_slice(bytes);
        Ok(())
    }
}

impl ElementSlice<'_> {
    /// Reads the elements as `size` bytes of the file. Bytes that need no conversion are those of a decoded
    /// chunk, if one has them all.
    async fn read(&self, size: usize, served: Option<&ServedVersions>) -> Result<Data, StoreError> {
        let data = self
            .reader
            .read(self.extent, self.offset, self.size, served);
        let mut data = data.await?;
        if self.conversion.is_none() {
            return Ok(data);
        }
        if let Some(conversion) = self.conversion_in_place(size)
            && let Data::Owned(own, range) = &mut data
            && range.len() == size
        {
            conversion.convert_in_place(part_mut(own, range.clone())?);
            return Ok(data);
        }
        let mut bytes = buffer(size)?;
        self.render(data.bytes(&[])?, &mut bytes)?;
        Ok(Data::all_of(bytes))
    }

    fn too_short(&self) -> StoreError {
        StoreError::Internal {
            key: self.reader.key().clone(),
            what: "fewer elements than the file has".into(),
        }
    }

    /// Returns the conversion, if `size` bytes of the file are whole elements that keep their size.
    fn conversion_in_place(&self, size: usize) -> Option<&Conversion> {
        let is_whole = self.skip == 0 && self.size == size;
        let conversion = self.conversion?;
        (is_whole && conversion.keeps_size() && size.is_multiple_of(conversion.to.size_bytes))
            .then_some(conversion)
    }

    /// Returns the error for an element that the numbers of the file cannot hold.
    fn not_converted(&self, conversion: &Conversion, value: Value) -> StoreError {
        let key = self.reader.key().clone();
        match (conversion.is_text(), value) {
            (true, value) => StoreError::Corrupt {
                key,
                what: format!("{value} is no code point of Unicode"),
            },
            (false, value) => StoreError::Unsupported {
                key,
                what: format!(
                    "{value} is no value of the numbers of {} bytes in this file: read it from the .nc, \
                     .cdf5.nc or .npy file",
                    conversion.to.size_bytes
                ),
            },
        }
    }

    /// Converts stored elements to the bytes of the file; they must cover all of `target`.
    fn render(&self, stored: &[u8], target: &mut [u8]) -> Result<(), StoreError> {
        let short = || self.too_short();
        if stored.len() != self.size {
            return Err(short());
        }
        let Some(conversion) = self.conversion else {
            if target.len() != stored.len() {
                return Err(short());
            }
            target.copy_from_slice(stored);
            return Ok(());
        };
        let fail = |value| self.not_converted(conversion, value);
        let count = stored.len() / conversion.from.size_bytes.max(1);
        let converted_bytes = count * conversion.to.size_bytes;
        if self.skip == 0 && target.len() == converted_bytes {
            return conversion.convert(stored, target).map_err(fail);
        }
        let mut converted = fallible::zeros(converted_bytes)?;
        conversion.convert(stored, &mut converted).map_err(fail)?;
        let part = converted
            .get(self.skip..)
            .and_then(|rest| rest.get(..target.len()));
        target.copy_from_slice(part.ok_or_else(short)?);
        Ok(())
    }
}

/// Returns a buffer for a reply, with arbitrary content.
fn buffer(size: usize) -> Result<ReadBuffer, StoreError> {
    ReadBuffer::new(size).ok_or_else(|| StoreError::TooLarge {
        key: Key::root(),
        need_bytes: size as u64,
        limit_bytes: 0,
    })
}
