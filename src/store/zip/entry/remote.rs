//! Reads an entry of a remote archive with as few requests as possible.

use std::ops::Range;
use std::sync::Arc;

use flate2::Crc;

use super::ZipObject;
use crate::runtime::{Priority, compute};
use crate::store::snapshot::SnapshotReader;
use crate::store::zip::inflate::{SEGMENT_BYTES, SegmentError};
use crate::store::{Data, StoreError, in_memory, part, part_mut};

/// Up to this many bytes between header and wanted data, one request fetches all of it.
const NEAR_HEADER_BYTES: u64 = 64 << 10;
/// Bytes per request when an entry is verified before it is served.
const VERIFIED_PART_BYTES: u64 = 8 << 20;
/// Compressed bytes that are fetched for a segment: mostly enough, because deflate stores
/// incompressible data as it is.
pub(in crate::store::zip) const SEGMENT_INPUT_BYTES: u64 = SEGMENT_BYTES + (64 << 10);

type Reader = Arc<dyn SnapshotReader>;

/// Compressed bytes in memory; `start` is their offset in the entry's data.
#[derive(Clone)]
struct Window {
    start: u64,
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Window {
    /// Copies the bytes in memory from `offset` on; returns how many they are.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        let Some(skip) = offset.checked_sub(self.start) else {
            return Ok(0);
        };
        let bytes = part(&self.bytes, self.range.clone())?;
        let rest = usize::try_from(skip)
            .ok()
            .and_then(|skip| bytes.get(skip..));
        let rest = rest.unwrap_or(&[]);
        let length = rest.len().min(buffer.len());
        part_mut(buffer, 0..length)?.copy_from_slice(part(rest, 0..length)?);
        Ok(length)
    }
}

impl ZipObject {
    /// Fetches the whole entry before a read, if it is decoded whole and memory for it is free.
    pub(super) async fn prefetch_remote(&self, reader: &Reader) -> bool {
        let node = self.node();
        let (start, bytes) = (node.header_offset(), node.compressed_bytes());
        let is_whole = !self.is_fetched_in_parts() && !self.is_segmented();
        let cached = self
            .archive
            .decoded
            .lock()
            .get(&(self.position, 0))
            .is_some();
        if !is_whole || cached {
            return is_whole;
        }
        // The decoded bytes wait in the cache.
        let needed = bytes.max(node.size_bytes());
        if !reader.begin_prefetch(start, needed, self.archive.prefetch_max_bytes) {
            return false;
        }
        let is_fetched = self.decoded(reader).await.is_ok();
        reader.end_prefetch(start, needed, is_fetched);
        is_fetched
    }

    pub(super) async fn read_remote(
        &self,
        reader: &Reader,
        offset: u64,
        size: usize,
    ) -> Result<Data, StoreError> {
        let node = self.node();
        let (offset, size) = self.clamp(offset, size)?;
        if node.size_bytes() > 0 && size == 0 {
            return Ok(Data::Filled(0..0));
        }
        if self.is_fetched_in_parts() {
            return self.fetch_stored(reader, offset, size).await;
        }
        if !self.is_segmented() {
            let bytes = self.decoded(reader).await?;
            reader.record_read(node.header_offset(), node.compressed_bytes());
            let start = in_memory(offset)?;
            return Ok(Data::Shared(bytes, start..start.saturating_add(size)));
        }
        if self.archive.options.verify && node.crc_verdict().is_none() {
            let last = self.segment_of(node.size_bytes().saturating_sub(1))?;
            self.fetch_segment(reader, last).await?;
        }
        let mut joined = Vec::new();
        loop {
            let at = offset.saturating_add(joined.len() as u64);
            let bytes = self.fetch_segment(reader, self.segment_of(at)?).await?;
            let start = in_memory(at % SEGMENT_BYTES)?;
            let end = start.saturating_add(size - joined.len()).min(bytes.len());
            if joined.is_empty() && end - start == size {
                return Ok(Data::Shared(bytes, start..end));
            }
            if start >= end {
                return Err(self.corrupt(format!("ends at {at}")));
            }
            joined.extend_from_slice(part(&bytes, start..end)?);
            if joined.len() == size {
                return Ok(Data::Shared(Arc::new(joined), 0..size));
            }
        }
    }

    async fn fetch(
        &self,
        reader: &Reader,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        if length == 0 {
            let unchanged = reader.check();
            unchanged.map_err(|error| self.archive_error(error))?;
            return Ok(Arc::default());
        }
        let fetched = reader.read_exact_at(offset, length).await;
        fetched.map_err(|error| self.archive_error(error))
    }

    /// Fetches the local header with the `data_bytes` after it, and verifies the header; returns the bytes
    /// and the length of the header.
    async fn fetch_header(
        &self,
        reader: &Reader,
        data_bytes: usize,
    ) -> Result<(Arc<Vec<u8>>, usize), StoreError> {
        let start = self.node().header_offset();
        let length = self.first_read_bytes(data_bytes);
        let mut bytes = self.fetch(reader, start, length).await?;
        let header_bytes = self.header_bytes(&bytes)?;
        let wanted = header_bytes.saturating_add(data_bytes);
        if wanted > bytes.len() {
            // The extra field is longer than usual.
            let at = start.saturating_add(bytes.len() as u64);
            let rest = self.fetch(reader, at, wanted - bytes.len()).await?;
            bytes = Arc::new([&bytes[..], &rest[..]].concat());
        }
        self.verify_header(part(&bytes, 0..header_bytes)?)?;
        Ok((bytes, header_bytes))
    }

    /// Keeps the readahead of the entry while the object exists.
    fn keep_span(&self, reader: &dyn SnapshotReader, span: &Range<u64>) {
        self.span.get_or_init(|| reader.keep_span(span.clone()));
    }

    /// Returns where the data of the entry begins in the archive.
    async fn fetch_data_start(&self, reader: &Reader) -> Result<u64, StoreError> {
        let node = self.node();
        let header_length = match node.header_length() {
            Some(length) => length,
            None => self.fetch_header(reader, 0).await?.1 as u64,
        };
        Ok(node.header_offset().saturating_add(header_length))
    }

    async fn fetch_stored(
        &self,
        reader: &Reader,
        offset: u64,
        size: usize,
    ) -> Result<Data, StoreError> {
        if self.is_verified_first(size) {
            self.fetch_and_verify(reader).await?;
        }
        let data = match self.is_exact || size == 0 {
            true => self.fetch_range(reader, offset, size).await?,
            false => self.read_in_blocks(reader, offset, size).await?,
        };
        self.update_crc(offset, data.bytes(&[])?)?;
        Ok(data)
    }

    /// Fetches a range of a stored entry, with the local header if it is not verified yet and near.
    async fn fetch_range(
        &self,
        reader: &Reader,
        offset: u64,
        size: usize,
    ) -> Result<Data, StoreError> {
        match self.node().header_length() {
            // One request for header and data costs less than the bytes between them.
            None if offset <= NEAR_HEADER_BYTES => {
                let end = in_memory(offset)?.saturating_add(size);
                let (bytes, header) = self.fetch_header(reader, end).await?;
                let end = header.saturating_add(end);
                Ok(Data::Shared(bytes, end.saturating_sub(size)..end))
            }
            _ => {
                let data = self.fetch_data_start(reader).await?;
                let at = data.saturating_add(offset);
                let bytes = self.fetch(reader, at, size).await?;
                Ok(Data::Shared(bytes, 0..size))
            }
        }
    }

    /// Reads a range of a stored entry like one of a file, in blocks. These begin at the local header and not at the data,
    /// so that they are the same ones for each reader and each process that shares a disk cache, whatever it reads first.
    async fn read_in_blocks(
        &self,
        reader: &Reader,
        offset: u64,
        size: usize,
    ) -> Result<Data, StoreError> {
        let start = self.node().header_offset();
        if self.node().header_length().is_none() && offset <= NEAR_HEADER_BYTES {
            let end = in_memory(offset)?.saturating_add(size);
            let length = self.first_read_bytes(end);
            let data = self.read_span(reader, start, length).await?;
            let bytes = data.bytes(&[])?;
            let header_bytes = self.header_bytes(bytes)?;
            if header_bytes.saturating_add(end) <= bytes.len() {
                self.verify_header(part(bytes, 0..header_bytes)?)?;
                return Ok(data.cut(header_bytes.saturating_add(end - size), size));
            }
            // The extra field is longer than usual.
        }
        let data_start = self.fetch_data_start(reader).await?;
        let at = data_start.saturating_add(offset);
        self.read_span(reader, at, size).await
    }

    /// Reads bytes of the archive that belong to this entry in blocks, with readahead up to the end of the entry.
    async fn read_span(&self, reader: &Reader, at: u64, length: usize) -> Result<Data, StoreError> {
        let node = self.node();
        let start = node.header_offset();
        let usual_bytes = self.first_read_bytes(in_memory(node.size_bytes())?) as u64;
        let header_bytes = node.header_length().unwrap_or(0);
        let span_bytes = usual_bytes.max(header_bytes.saturating_add(node.size_bytes()));
        let span = start..start.saturating_add(span_bytes);
        self.keep_span(&**reader, &span);
        let read = reader.read_within(at, length, span).await;
        read.map_err(|error| self.archive_error(error))
    }

    /// Fetches a whole stored entry and verifies its checksum. The bytes that other reads want from a disk cache are
    /// those of the same blocks.
    async fn fetch_and_verify(&self, reader: &Reader) -> Result<(), StoreError> {
        let start = self.fetch_data_start(reader).await?;
        let size = self.node().size_bytes();
        let mut crc = Crc::new();
        let mut done = 0;
        while done < size {
            let length = in_memory((size - done).min(VERIFIED_PART_BYTES))?;
            let at = start.saturating_add(done);
            if self.is_exact || !reader.is_on_disk() {
                crc.update(&self.fetch(reader, at, length).await?);
            } else {
                crc.update(self.read_span(reader, at, length).await?.bytes(&[])?);
            }
            done = done.saturating_add(length as u64);
        }
        self.verify_crc(crc.sum())
    }

    /// Fetches all compressed bytes with the local header, although that may be verified already: processes that share a
    /// disk cache find only the ranges that each of them fetches.
    async fn fetch_compressed(&self, reader: &Reader) -> Result<Window, StoreError> {
        let node = self.node();
        let length = self.compressed_bytes()?;
        let usual_bytes = self.first_read_bytes(length) as u64;
        let is_longer = |header: &u64| header.saturating_add(length as u64) > usual_bytes;
        let (bytes, start) = match node.header_length().filter(is_longer) {
            // Header and data would take two requests.
            Some(header) if !reader.is_on_disk() => {
                let at = node.header_offset().saturating_add(header);
                (self.fetch(reader, at, length).await?, 0)
            }
            _ => self.fetch_header(reader, length).await?,
        };
        Ok(Window {
            start: 0,
            bytes,
            range: start..start.saturating_add(length),
        })
    }

    /// Returns the decoded entry: cached, or fetched and decoded once for all readers.
    async fn decoded(&self, reader: &Reader) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.cached(&self.archive.decoded, 0)? {
            return Ok(bytes);
        }
        self.check_memory()?;
        let (entry, reader) = (self.clone(), Arc::clone(reader));
        let load = move || async move {
            let window = entry.fetch_compressed(&reader).await?;
            let decoded = compute(Priority::Demand, move || {
                let compressed = part(&window.bytes, window.range)?;
                let bytes = Arc::new(entry.decode(compressed)?);
                entry.cache(&entry.archive.decoded, 0, &bytes);
                Ok(bytes)
            });
            decoded.await.unwrap_or_else(|_| Err(panicked()))
        };
        let decoding = &self.archive.decoding;
        decoding.run(self.position, load, panicked()).await
    }

    /// Returns one segment: cached, or decoded from as many compressed bytes as needed.
    async fn fetch_segment(
        &self,
        reader: &Reader,
        number: u32,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.cached(&self.archive.decoded, number)? {
            return Ok(bytes);
        }
        let all_bytes = self.node().compressed_bytes();
        let window = self.all_compressed(reader).await?;
        let mut window = window.unwrap_or_else(|| Window {
            start: 0,
            bytes: Arc::default(),
            range: 0..0,
        });
        let mut place = None;
        let mut input_bytes = SEGMENT_INPUT_BYTES;
        loop {
            let (entry, input) = (self.clone(), window.clone());
            let decoded = compute(Priority::Demand, move || {
                entry.decode_segment(number, place, &|buffer, at| input.read(buffer, at))
            });
            let (offset, stopped_at) = match decoded
                .await
                .unwrap_or_else(|_| Err(SegmentError::Store(panicked())))
            {
                Ok(bytes) => return Ok(bytes),
                Err(SegmentError::NeedsInput(offset, place)) => (offset, place),
                Err(error) => return Err(self.segment_error(error)),
            };
            let start = stopped_at.compressed_offset();
            if start == window.start && !window.range.is_empty() {
                // Decoding this segment needs more bytes than were fetched for it.
                input_bytes = input_bytes.saturating_mul(2);
            }
            if input_bytes > self.archive.options.memory_limit_bytes || offset >= all_bytes {
                return Err(self.corrupt(format!("is cut off at {offset}")));
            }
            let data = self.fetch_data_start(reader).await?;
            let length = in_memory(input_bytes.min(all_bytes - start))?;
            window = Window {
                start,
                bytes: self
                    .fetch(reader, data.saturating_add(start), length)
                    .await?,
                range: 0..length,
            };
            place = Some(stopped_at);
        }
    }

    /// Returns all compressed bytes of an entry that is decoded in segments, cached for the next segment.
    /// `None` if they are too long, or were evicted since they were fetched.
    async fn all_compressed(&self, reader: &Reader) -> Result<Option<Window>, StoreError> {
        let of = |bytes: Arc<Vec<u8>>| Window {
            start: 0,
            range: 0..bytes.len(),
            bytes,
        };
        if let Some(bytes) = self.cached(&self.archive.compressed, 0)? {
            return Ok(Some(of(bytes)));
        }
        let inflater = self.archive.inflaters.of(self.position);
        let is_too_long = self.node().compressed_bytes() > self.archive.compressed_max_bytes;
        if is_too_long || inflater.lock().was_fetched {
            return Ok(None);
        }
        let (entry, reader) = (self.clone(), Arc::clone(reader));
        let load = move || async move {
            let window = entry.fetch_compressed(&reader).await?;
            let bytes = Arc::new(part(&window.bytes, window.range)?.to_vec());
            entry.cache(&entry.archive.compressed, 0, &bytes);
            inflater.lock().was_fetched = true;
            Ok(bytes)
        };
        let loading = &self.archive.decoding;
        let bytes = loading.run(self.position, load, panicked()).await?;
        Ok(Some(of(bytes)))
    }
}

fn panicked() -> StoreError {
    StoreError::internal("a panic while an entry was decoded")
}
