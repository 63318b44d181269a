//! Reads of stored chunks, concatenated as in a [`ChunkTable`].
//!
//! A chunk with another version than in the table is [`StoreError::Stale`], so that sizes and bytes
//! are of the same version.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::try_join_all;

use super::chunk_cache::ChunkId;
use super::chunk_table::{ChunkTable, StoredChunk};
use super::decode::present;
use super::reader::{ArrayReader, Selection};
use super::served::ServedVersions;
use crate::store::{
    AccessHint, Data, DocumentReads, Fetched, Key, Object, StoreError, in_memory, now_ms, part_mut,
    read_into, read_range,
};

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
        self.chunks.leave_session_thread_to_open().await;
        let parts = self.parts(table, offset, size)?;
        let read = |reads| self.read_parts(reads, &parts, served);
        self.chunks.store.fetch(read).await.map(Fetched::into_value)
    }

    async fn read_parts(
        &self,
        reads: DocumentReads<'_>,
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
            return self.fetch(&reads, only, served).await;
        }
        let mut bytes = self.buffer(length as u64)?;
        let mut filled = 0;
        let concurrent = if self.chunks.is_remote() {
            CONCURRENT
        } else {
            1
        };
        for parts in parts.chunks(concurrent) {
            if let [part] = parts {
                let object = self.current(&reads, part, served).await?;
                let target = part_mut(&mut bytes, filled..filled + part.size)?;
                read_into(&*object, &part.key, part.start, target).await?;
                filled += part.size;
                continue;
            }
            // The store combines requests for neighbouring ranges while they wait.
            let fetches: Vec<_> = (parts.iter())
                .map(|part| self.fetch(&reads, part, served).boxed())
                .collect();
            for (part, data) in parts.iter().zip(try_join_all(fetches).await?) {
                let target = part_mut(&mut bytes, filled..filled + part.size)?;
                target.copy_from_slice(data.bytes(&[])?);
                filled += part.size;
            }
        }
        Ok(Data::Owned(bytes, 0..filled))
    }

    /// Returns the value of the chunk of a part, if its version is that of the table.
    async fn current(
        &self,
        reads: &DocumentReads<'_>,
        part: &ChunkPart<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let checked_ms = now_ms();
        let object = present(reads.open(&part.key, self.stored_hint(part)).await)?;
        let object = part.current(object)?;
        self.admit(served, &part.id, Some(part.chunk.version), checked_ms)?;
        Ok(object)
    }

    /// Reads a part completely.
    async fn fetch(
        &self,
        reads: &DocumentReads<'_>,
        part: &ChunkPart<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let object = self.current(reads, part, served).await?;
        let end = part.start.saturating_add(part.size as u64);
        read_range(&*object, &part.key, part.start..end).await
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
}
