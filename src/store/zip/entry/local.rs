//! Reads an entry of a local archive.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use flate2::Crc;

use super::{CHECK_PIECE_BYTES, MAX_HEADER_BYTES, ZipObject};
use crate::store::snapshot::{SnapshotError, SnapshotFile};
use crate::store::zip::ArchiveBytes;
use crate::store::zip::index::EntryMethod;
use crate::store::zip::inflate::{self, SEGMENT_BYTES};
use crate::store::{
    Data, LocalObject, LocalReadError, ReadMode, StoreError, in_memory, part, part_mut,
};

/// Entries up to this size, in bytes, are decoded on a session thread: handing them over takes longer.
const INLINE_MAX_BYTES: u64 = 32 << 10;

thread_local! {
    /// Buffer for the compressed bytes of an entry.
    static COMPRESSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file of an archive, and whether reads of it may block.
#[derive(Clone, Copy)]
struct Reading<'a> {
    file: &'a SnapshotFile,
    mode: ReadMode,
}

impl LocalObject for ZipObject {
    fn read_local(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        let ArchiveBytes::Local(file) = &self.archive.bytes else {
            return Err(StoreError::internal("a local read of a remote archive").into());
        };
        self.read_from(Reading { file, mode }, offset, size, buffer)
    }
}

impl ZipObject {
    fn read_from(
        &self,
        from: Reading<'_>,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
    ) -> Result<Data, LocalReadError> {
        let node = self.node();
        let (offset, size) = self.clamp(offset, size)?;
        // An empty entry is decoded too, which verifies its header and checksum.
        if node.size_bytes() > 0 && size == 0 {
            return Ok(Data::Filled(0..0));
        }
        if node.method() == EntryMethod::Stored {
            return self.read_stored(from, offset, size, buffer);
        }
        let data = self.read_decoded(from, offset, size, buffer)?;
        let bytes = data.bytes(buffer)?;
        if bytes.len() == size {
            return Ok(data);
        }
        // The range spans several segments, which are joined here.
        let mut joined = Vec::with_capacity(size);
        joined.extend_from_slice(bytes);
        while joined.len() < size {
            let at = offset.saturating_add(joined.len() as u64);
            let data = self.read_decoded(from, at, size - joined.len(), buffer)?;
            let bytes = data.bytes(buffer)?;
            if bytes.is_empty() {
                return Err(self.corrupt(format!("ends at {at}")).into());
            }
            joined.extend_from_slice(bytes);
        }
        Ok(Data::Shared(Arc::new(joined), 0..size))
    }

    fn pread(
        &self,
        Reading { file, mode }: Reading<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), LocalReadError> {
        let result = match buffer.is_empty() {
            true => file.check(),
            false => file.read_exact_at(buffer, offset, mode),
        };
        result.map_err(|error| match error {
            SnapshotError::WouldBlock => LocalReadError::WouldBlock,
            error => self.archive_error(error).into(),
        })
    }

    /// Reads the local header into `buffer`, with the `data_bytes` after it if they fit, and verifies
    /// the header. Returns its length and how many bytes were read.
    fn read_header(
        &self,
        from: Reading<'_>,
        buffer: &mut [u8],
        data_bytes: usize,
    ) -> Result<(usize, usize), LocalReadError> {
        let start = self.node().header_offset();
        let mut length = self.first_read_bytes(data_bytes).min(buffer.len());
        let first = part_mut(buffer, 0..length)?;
        self.pread(from, first, start)?;
        let header_bytes = self.header_bytes(first)?;
        if header_bytes > buffer.len() {
            return Err(self
                .corrupt(format!("local header of {header_bytes} bytes"))
                .into());
        }
        let wanted = match header_bytes.saturating_add(data_bytes) {
            all if all <= buffer.len() => all,
            _ => header_bytes,
        };
        if wanted > length {
            // The extra field is longer than usual.
            let rest = part_mut(buffer, length..wanted)?;
            self.pread(from, rest, start.saturating_add(length as u64))?;
            length = wanted;
        }
        self.verify_header(part(buffer, 0..header_bytes)?)?;
        Ok((header_bytes, length))
    }

    /// Returns where the data of the entry begins in the archive.
    fn data_start(&self, from: Reading<'_>) -> Result<u64, LocalReadError> {
        let node = self.node();
        let header_length = match node.header_length() {
            Some(length) => length,
            None => {
                let mut buffer = vec![0; MAX_HEADER_BYTES];
                self.read_header(from, &mut buffer, 0)?.0 as u64
            }
        };
        Ok(node.header_offset().saturating_add(header_length))
    }

    fn read_stored(
        &self,
        from: Reading<'_>,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
    ) -> Result<Data, LocalReadError> {
        if self.is_verified_first(size) {
            self.verify_stored(from)?;
        }
        let mut start = None;
        if self.node().header_length().is_none() {
            // Read header and data together, if the entry is small.
            let end = in_memory(offset)?.saturating_add(size);
            let data_bytes = if end <= buffer.len() / 2 { end } else { 0 };
            let (header, length) = self.read_header(from, buffer, data_bytes)?;
            let wanted = header.saturating_add(end);
            start = (wanted <= length).then(|| wanted.saturating_sub(size));
        }
        let start = match start {
            Some(start) => start,
            None => {
                let at = self.data_start(from)?.saturating_add(offset);
                self.pread(from, part_mut(buffer, 0..size)?, at)?;
                0
            }
        };
        let range = start..start.saturating_add(size);
        self.update_crc(offset, part(buffer, range.clone())?)?;
        Ok(Data::Filled(range))
    }

    /// Reads a whole stored entry and verifies its checksum.
    fn verify_stored(&self, from: Reading<'_>) -> Result<(), LocalReadError> {
        if from.mode == ReadMode::NonBlocking {
            return Err(LocalReadError::WouldBlock);
        }
        let start = self.data_start(from)?;
        let size = self.node().size_bytes();
        let most =
            usize::try_from(size).map_or(CHECK_PIECE_BYTES, |size| size.min(CHECK_PIECE_BYTES));
        let mut buffer = vec![0; most];
        let mut crc = Crc::new();
        let mut done = 0;
        while done < size {
            let left = size.saturating_sub(done).min(CHECK_PIECE_BYTES as u64);
            let target = part_mut(&mut buffer, 0..in_memory(left)?)?;
            self.pread(from, target, start.saturating_add(done))?;
            crc.update(target);
            done = done.saturating_add(left);
        }
        Ok(self.verify_crc(crc.sum())?)
    }

    /// Reads from a compressed entry; returns fewer bytes at the end of a segment.
    fn read_decoded(
        &self,
        from: Reading<'_>,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
    ) -> Result<Data, LocalReadError> {
        let entry_bytes = self.node().size_bytes();
        if entry_bytes <= INLINE_MAX_BYTES {
            let start = in_memory(offset)?;
            let target = part_mut(buffer, 0..in_memory(entry_bytes)?)?;
            self.with_compressed(from, |compressed| self.decode_into(compressed, target))?;
            return Ok(Data::Filled(start..start.saturating_add(size)));
        }
        if self.is_segmented() {
            return self.read_segment(from, offset, size);
        }
        let start = in_memory(offset)?;
        let range = start..start.saturating_add(size);
        if let Some(bytes) = self.cached(&self.archive.decoded, 0)? {
            return Ok(Data::Shared(bytes, range));
        }
        self.check_memory()?;
        if from.mode == ReadMode::NonBlocking {
            return Err(LocalReadError::WouldBlock);
        }
        // No other part is left to be read from the cache. Deflate alone has a ratio that bounds the declared size.
        if size as u64 == entry_bytes && self.node().method() == EntryMethod::Deflated {
            let target = part_mut(buffer, range.clone())?;
            self.with_compressed(from, |compressed| self.decode_into(compressed, target))?;
            return Ok(Data::Filled(range));
        }
        // One reader decodes; others wait for the lock and find the bytes in the cache.
        let inflater = self.archive.inflaters.of(self.position);
        let _turn = inflater.lock();
        if let Some(bytes) = self.cached(&self.archive.decoded, 0)? {
            return Ok(Data::Shared(bytes, range));
        }
        let bytes = Arc::new(self.with_compressed(from, |compressed| self.decode(compressed))?);
        self.cache(&self.archive.decoded, 0, &bytes);
        Ok(Data::Shared(bytes, range))
    }

    /// Reads from one segment of an entry that is too large to be decoded whole.
    fn read_segment(
        &self,
        from: Reading<'_>,
        offset: u64,
        size: usize,
    ) -> Result<Data, LocalReadError> {
        let number = self.segment_of(offset)?;
        if self.archive.options.verify && self.node().crc_verdict().is_none() {
            let last = self.segment_of(self.node().size_bytes().saturating_sub(1))?;
            self.segment(from, last)?;
        }
        let bytes = match self.cached(&self.archive.decoded, number)? {
            Some(bytes) => bytes,
            None => self.segment(from, number)?,
        };
        let start = in_memory(offset % SEGMENT_BYTES)?;
        let end = start.saturating_add(size).min(bytes.len());
        Ok(Data::Shared(bytes, start..end))
    }

    /// Decodes one segment, and caches all segments that are decoded on the way.
    fn segment(&self, from: Reading<'_>, number: u32) -> Result<Arc<Vec<u8>>, LocalReadError> {
        if from.mode == ReadMode::NonBlocking {
            return Err(LocalReadError::WouldBlock);
        }
        let data_start = self.data_start(from)?;
        let read = |buffer: &mut [u8], at: u64| {
            let read = self.pread(from, buffer, data_start.saturating_add(at));
            match read {
                Ok(()) => Ok(buffer.len()),
                Err(LocalReadError::Failed(error)) => Err(error),
                Err(LocalReadError::WouldBlock) => {
                    Err(StoreError::internal("a blocking read that would block"))
                }
            }
        };
        let decoded = self.decode_segment(number, None, &read);
        Ok(decoded.map_err(|error| self.segment_error(error))?)
    }

    /// Calls `decode` with all compressed bytes.
    fn with_compressed<T>(
        &self,
        from: Reading<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, StoreError>,
    ) -> Result<T, LocalReadError> {
        let length = self.compressed_bytes()?;
        COMPRESSED.with_borrow_mut(|compressed| {
            let range = self.read_compressed(from, compressed, length)?;
            let result = part(compressed, range).and_then(decode);
            // Shrink the buffer, so that a large entry does not occupy its size in every thread.
            compressed.truncate(CHECK_PIECE_BYTES);
            compressed.shrink_to(4 * CHECK_PIECE_BYTES);
            Ok(result?)
        })
    }

    /// Reads all compressed bytes, and the local header if it is not verified yet, into `buffer`,
    /// which grows to hold them; returns the range of the compressed bytes in it.
    fn read_compressed(
        &self,
        from: Reading<'_>,
        buffer: &mut Vec<u8>,
        length: usize,
    ) -> Result<Range<usize>, LocalReadError> {
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
        let start = match node.header_length() {
            Some(header) => {
                let at = node.header_offset().saturating_add(header);
                self.pread(from, part_mut(buffer, 0..length)?, at)?;
                0
            }
            None => {
                self.read_header(from, part_mut(buffer, 0..room)?, length)?
                    .0
            }
        };
        Ok(start..start.saturating_add(length))
    }
}
