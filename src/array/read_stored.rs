//! Reads of stored chunks, concatenated as in a [`ChunkTable`].
//!
//! A chunk with another version than in the table is [`StoreError::Stale`], so that sizes and bytes
//! are of the same version.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::try_join_all;

use super::chunk_cache::{ChunkId, now_ms};
use super::chunk_table::{ChunkTable, StoredChunk};
use super::chunks::present;
use super::raw::{try_read_into, with_bytes};
use super::reader::{ArrayReader, Selection};
use super::served::ServedVersions;
use crate::runtime::leave_session_thread;
use crate::store::{AccessHint, Data, Key, Object, StoreError, in_memory, part_mut, read_into};

/// A part of a stored chunk.
struct ChunkPart<'a> {
    chunk: &'a StoredChunk,
    id: ChunkId,
    key: Key,
    /// The offset of the part in the value of the key, in bytes.
    start: u64,
    size: usize,
    /// The size of the whole chunk in bytes.
    chunk_bytes: u64,
}

/// The size up to which remote chunks are fetched whole, in bytes.
const MAX_FETCHED_BYTES: u64 = 16 << 20;
/// The number of parts of remote chunks that one read fetches concurrently. All parts of a read but
/// the first and the last are whole chunks.
const CONCURRENT: usize = 32;

impl ArrayReader {
    /// Reads `size` bytes from `offset` of the chunks of a table into `buffer`, if that needs
    /// neither disk nor network; fewer bytes only at the end. `buffer` has the headroom of
    /// [`Object::try_read`], and `served` is as in [`ArrayReader::try_read`].
    ///
    /// # Errors
    /// As [`ArrayReader::read_stored`].
    pub fn try_read_stored(
        &self,
        table: &ChunkTable,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Option<Result<Data, StoreError>> {
        let read = self.try_parts(table, offset, size, buffer, served);
        if let (Some(store), Some((key, _))) = (self.chunks.store.as_sync(), &self.chunks.document)
            && let Err(error) = self.chunks.compare_document(store.stat(key))
        {
            return Some(Err(error));
        }
        read.transpose()
    }

    fn try_parts(
        &self,
        table: &ChunkTable,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<Option<Data>, StoreError> {
        let Some(store) = self.chunks.store.as_sync() else {
            return Ok(None);
        };
        let parts = self.parts(table, offset, size)?;
        let name = |chunk| self.chunks.chunk_key(chunk);
        let mut filled = 0;
        for part in &parts {
            let ids = std::slice::from_ref(&part.id);
            if served.is_some_and(|served| !matches!(served.try_reserve_pages(ids, name), Ok(true)))
            {
                return Ok(None);
            }
            let checked_ms = now_ms();
            let object = present(store.open(&part.key, AccessHint::Ranges))?;
            let object = part.current(object)?;
            if let [only] = &parts[..] {
                let Some(data) = object.try_read(only.start, only.size, buffer) else {
                    return Ok(None);
                };
                let data = only.whole(data?, buffer)?;
                self.admit(served, &only.id, Some(only.chunk.version), checked_ms)?;
                return Ok(Some(data));
            }
            let target = part_mut(buffer, filled..filled + part.size)?;
            match try_read_into(&*object, &part.key, part.start, target) {
                Some(read) => read?,
                None => return Ok(None),
            }
            self.admit(served, &part.id, Some(part.chunk.version), checked_ms)?;
            filled += part.size;
        }
        Ok(Some(Data::Filled(0..filled)))
    }

    /// Reads `size` bytes from `offset` of the chunks of a table, fewer only at the end.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if a chunk was removed or has another version than in the table, and
    /// the errors of the store.
    pub async fn read_stored(
        &self,
        table: &ChunkTable,
        offset: u64,
        size: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        if !self.chunks.is_remote() {
            leave_session_thread().await;
        }
        let parts = self.parts(table, offset, size)?;
        let read = self.read_parts(&parts, served).await;
        // Checked after a failure too, because changed metadata may be its cause.
        let chunks = parts.iter().map(|part| part.id.chunk).collect();
        self.chunks.check_document_after(chunks).await?;
        read
    }

    async fn read_parts(
        &self,
        parts: &[ChunkPart<'_>],
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let name = |chunk| self.chunks.chunk_key(chunk);
        if let Some(served) = served {
            for part in parts {
                let ids = std::slice::from_ref(&part.id);
                served.reserve_pages(ids, name).await?;
            }
        }
        let length: usize = parts.iter().map(|part| part.size).sum();
        // Reserved after everything else that waits for memory, so that a waiting read holds none.
        let _memory = self.engine.reserve(self.key(), length as u64).await?;
        if let [only] = parts {
            return self.fetch(only, served).await;
        }
        let mut bytes = self.zeroed(length as u64)?;
        let mut filled = 0;
        let concurrent = if self.chunks.is_remote() {
            CONCURRENT
        } else {
            1
        };
        for parts in parts.chunks(concurrent) {
            if let [part] = parts {
                let object = self.current(part, served).await?;
                let target = part_mut(&mut bytes, filled..filled + part.size)?;
                read_part(&*object, part, target).await?;
                filled += part.size;
                continue;
            }
            // The store combines requests for neighbouring ranges while they wait.
            let fetches: Vec<_> = (parts.iter())
                .map(|part| self.fetch(part, served).boxed())
                .collect();
            for (part, data) in parts.iter().zip(try_join_all(fetches).await?) {
                let target = part_mut(&mut bytes, filled..filled + part.size)?;
                target.copy_from_slice(part.whole(data, &[])?.bytes(&[])?);
                filled += part.size;
            }
        }
        Ok(Data::Shared(Arc::new(bytes), 0..filled))
    }

    /// Returns the value of the chunk of a part, if its version is that of the table.
    async fn current(
        &self,
        part: &ChunkPart<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let checked_ms = now_ms();
        let object = self.chunks.open(&part.key, self.stored_hint(part)).await?;
        let object = part.current(object)?;
        self.admit(served, &part.id, Some(part.chunk.version), checked_ms)?;
        Ok(object)
    }

    /// Reads a part completely.
    async fn fetch(
        &self,
        part: &ChunkPart<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let object = self.current(part, served).await?;
        let data = object.read(part.start, part.size).await?;
        if data.bytes(&[])?.len() == part.size {
            return Ok(data);
        }
        let mut bytes = self.zeroed(part.size as u64)?;
        read_part(&*object, part, &mut bytes).await?;
        Ok(Data::Shared(Arc::new(bytes), 0..part.size))
    }

    /// Returns the access hint of a part. Programs read chunks whole.
    fn stored_hint(&self, part: &ChunkPart<'_>) -> AccessHint {
        let is_whole = self.chunks.is_remote() && !self.chunks.has_inner();
        match is_whole && part.chunk_bytes <= MAX_FETCHED_BYTES {
            true => AccessHint::Whole(part.chunk_bytes),
            false => AccessHint::Ranges,
        }
    }

    /// Returns the parts of chunks in a range.
    fn parts<'a>(
        &self,
        table: &'a ChunkTable,
        offset: u64,
        size: usize,
    ) -> Result<Vec<ChunkPart<'a>>, StoreError> {
        let end = offset.saturating_add(size as u64).min(table.size_bytes());
        let (mut parts, mut at) = (Vec::new(), offset);
        let mut place = table.place_of(offset);
        while at < end {
            let chunk = table.get(place).zip(table.range(place));
            let (chunk, range) =
                chunk.ok_or_else(|| StoreError::internal(format!("no chunk has byte {at}")))?;
            let id = self.chunk_id(Selection::ChunkMajor, chunk.number);
            let until = range.end.min(end);
            parts.push(ChunkPart {
                chunk,
                id,
                key: self.chunks.stored_key(id.chunk)?,
                start: chunk.start + (at - range.start),
                size: in_memory(until - at)?,
                chunk_bytes: range.end - range.start,
            });
            at = until;
            place += 1;
        }
        Ok(parts)
    }
}

impl ChunkPart<'_> {
    /// Returns the value of the chunk, if its version is that of the table.
    fn current(&self, object: Option<Arc<dyn Object>>) -> Result<Arc<dyn Object>, StoreError> {
        let stale = |what: &str| StoreError::Stale {
            key: self.key.clone(),
            what: what.into(),
        };
        let object = object.ok_or_else(|| stale("the chunk is gone; open the file again"))?;
        let is_whole = self.id.inner.is_none();
        let is_same_size = !is_whole || object.size_bytes() == self.chunk_bytes;
        match object.version() == self.chunk.version && is_same_size {
            true => Ok(object),
            false => Err(stale("the chunk has changed; open the file again")),
        }
    }

    /// Checks that a read returned the whole part.
    fn whole(&self, data: Data, buffer: &[u8]) -> Result<Data, StoreError> {
        let length = data.bytes(buffer)?.len();
        match length == self.size {
            true => Ok(data),
            false => Err(StoreError::Corrupt {
                key: self.key.clone(),
                what: format!("ends {} bytes too early", self.size.saturating_sub(length)),
            }),
        }
    }
}

async fn read_part(
    object: &dyn Object,
    part: &ChunkPart<'_>,
    target: &mut [u8],
) -> Result<(), StoreError> {
    if object.as_local().is_none() {
        return read_into(object, &part.key, part.start, target).await;
    }
    let range = part.start..part.start + target.len() as u64;
    let copy = |bytes: &[u8]| {
        target.copy_from_slice(bytes);
        Ok(())
    };
    with_bytes(object, &part.key, range, copy).await
}
