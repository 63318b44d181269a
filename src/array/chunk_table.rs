//! The stored sizes and offsets of the chunks of an array, determined without reading a chunk.

use std::collections::HashMap;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;

use super::chunks::ArrayChunks;
use super::decode::present;
use super::memory_limit::Reservation;
use super::reader::{ArrayReader, Selection};
use crate::codec::{Pipeline, Sharding, StoredForm};
use crate::hierarchy::{CachedIndex, codec_error};
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, DocumentReads, Fetched, Key, ListingSupport, Stat, StoreError, Version, in_memory,
};

/// The stored read chunks of an array, concatenated in C order over their grid, with the versions
/// that they had when the table was built.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChunkTable {
    entries: Vec<StoredChunk>,
}

/// A stored read chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredChunk {
    /// The number of the chunk in C order over the grid.
    pub(super) number: u64,
    /// The offset of the chunk in the value of its key, in bytes.
    pub(super) start: u64,
    /// The end of the chunk in the concatenation, in bytes.
    pub(super) end: u64,
    /// The version of the value.
    pub(super) version: Version,
}

/// The memory of a read chunk while the table is built: its entry, and its entry in the index of its shard.
const GATHERED_BYTES: u64 = size_of::<StoredChunk>() as u64 + 16;
/// The divisor of the memory limit that gives the largest size of a file's tables.
const TABLE_PART: u64 = 16;
/// The largest number of chunks of a remote store whose sizes are requested one by one.
const MAX_REQUESTS: u64 = 4096;
/// The largest number of keys of a directory whose sizes are read: each takes a system call.
const MAX_SYSTEM_CALLS: u64 = 1 << 19;
/// Up to this number of keys, the system calls do not count as a cost.
const FREE_SYSTEM_CALLS: u64 = 1 << 16;
/// The number of concurrent requests.
const CONCURRENT: u64 = 32;
/// The number of chunks between two points at which the request can be cancelled.
const PAUSE_CHUNKS: u64 = 1024;

impl ChunkTable {
    /// Returns the number of stored chunks.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns whether no chunk is stored.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the total size of the chunks in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.entries.last().map_or(0, |last| last.end)
    }

    /// Returns the size of the largest chunk in bytes.
    pub fn largest_bytes(&self) -> u64 {
        let ranges = (0..self.len()).filter_map(|entry| self.range(entry));
        ranges
            .map(|range| range.end - range.start)
            .max()
            .unwrap_or(0)
    }

    /// Returns the memory of the table in bytes.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&self.entries[..]) as u64
    }

    /// Returns the number of a chunk by its index in the table.
    pub fn number(&self, entry: u64) -> Option<u64> {
        Some(self.get(entry)?.number)
    }

    /// Returns the byte range of a chunk in the concatenation, by its index in the table.
    pub fn range(&self, entry: u64) -> Option<Range<u64>> {
        let end = self.get(entry)?.end;
        let start = match entry.checked_sub(1) {
            Some(before) => self.get(before)?.end,
            None => 0,
        };
        Some(start..end)
    }

    /// Returns the byte range of a chunk in the concatenation, by its number; `None` if it is not stored.
    pub fn find(&self, number: u64) -> Option<Range<u64>> {
        let place = self
            .entries
            .binary_search_by_key(&number, |chunk| chunk.number);
        self.range(place.ok()? as u64)
    }

    /// Hashes the numbers, sizes and versions of the chunks.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        for chunk in &self.entries {
            for word in [chunk.number, chunk.start, chunk.end, chunk.version.0] {
                hasher.write_u64(word);
            }
        }
    }

    pub(super) fn get(&self, entry: u64) -> Option<&StoredChunk> {
        self.entries.get(usize::try_from(entry).ok()?)
    }

    /// Returns the table index of the chunk that contains a byte of the concatenation.
    pub(super) fn place_of(&self, offset: u64) -> u64 {
        self.entries.partition_point(|chunk| chunk.end <= offset) as u64
    }

    /// Appends a chunk.
    fn push(&mut self, number: u64, bytes: Range<u64>, version: Version) -> Result<(), StoreError> {
        let too_many = || StoreError::internal("chunks of more bytes than can be counted");
        let size = bytes.end.checked_sub(bytes.start).ok_or_else(too_many)?;
        let end = self.size_bytes().checked_add(size).ok_or_else(too_many)?;
        self.entries.push(StoredChunk {
            number,
            start: bytes.start,
            end,
            version,
        });
        Ok(())
    }
}

impl ArrayReader {
    /// Returns the stored form of the elements of a read chunk.
    ///
    /// # Errors
    /// The reason why other file formats cannot contain chunks of this form.
    pub fn stored_form(&self) -> Result<StoredForm, String> {
        let pipeline = self
            .chunks
            .read_pipeline()
            .ok_or("its chunks have several shapes")?;
        pipeline.stored_form()
    }

    /// Checks whether a table of the read chunks is within the limits.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn check_chunk_table(&self) -> Result<(), String> {
        let most = self.engine.memory_limit_bytes() / TABLE_PART / GATHERED_BYTES;
        let chunks = self.chunks.read_chunk_count();
        if chunks.is_none_or(|chunks| chunks > most) {
            return Err(format!(
                "more than {most} chunks: the table of their sizes takes {GATHERED_BYTES} bytes for each, \
                 up to a {TABLE_PART}th of --memory-limit"
            ));
        }
        let keys = self.chunks.grid().chunk_count();
        // An index also has the inner chunks of a shard that are beyond the edge of the array.
        let index_bytes = self.chunks.sharding().map_or(0, Sharding::index_size_bytes);
        let most_bytes = self.engine.memory_limit_bytes() / TABLE_PART;
        if index_bytes.saturating_mul(keys) > most_bytes {
            return Err(format!(
                "the indexes of {keys} shards take {index_bytes} bytes each, together up to a {TABLE_PART}th of \
                 --memory-limit"
            ));
        }
        if self.takes_system_calls() && keys > MAX_SYSTEM_CALLS {
            return Err(format!(
                "the sizes of {keys} chunks take a system call each, and no more than {MAX_SYSTEM_CALLS} are made"
            ));
        }
        if self.takes_requests() && keys > MAX_REQUESTS {
            return Err(format!(
                "the sizes of {keys} chunks take a request each, and no more than {MAX_REQUESTS} are sent"
            ));
        }
        Ok(())
    }

    /// Returns whether the sizes of the chunks are known without requests to a remote store, a read
    /// of each chunk, or many system calls.
    pub fn has_free_sizes(&self) -> bool {
        let store = &self.chunks.store;
        match self.chunks.is_remote() {
            true => store.has_index() && self.chunks.sharding().is_none(),
            false => {
                let keys = self.chunks.grid().chunk_count();
                !self.takes_system_calls() || keys <= FREE_SYSTEM_CALLS
            }
        }
    }

    /// Returns whether each size of a local store takes a system call.
    fn takes_system_calls(&self) -> bool {
        let has_sizes = self.chunks.store.has_index() && self.chunks.sharding().is_none();
        !self.chunks.is_remote() && !has_sizes
    }

    /// Returns whether each size takes a request.
    fn takes_requests(&self) -> bool {
        let store = &self.chunks.store;
        let is_listed = store.capabilities().listing == ListingSupport::Complete;
        self.chunks.is_remote() && (!is_listed || self.chunks.sharding().is_some())
    }

    /// Builds the table of all read chunks.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for an impossible chunk size, [`StoreError::Stale`] if the metadata
    /// have changed, and the errors of the store.
    pub async fn chunk_table(&self) -> Result<ChunkTable, StoreError> {
        leave_session_thread().await;
        let table = |reads| self.table_under(reads);
        let table = self.chunks.store.fetch(table).await;
        table.map(Fetched::into_value)
    }

    async fn table_under(&self, reads: DocumentReads<'_>) -> Result<ChunkTable, StoreError> {
        match self.chunks.sharding() {
            Some(sharding) => self.table_of_shards(&reads, sharding).await,
            None => self.table_of_chunks(&reads).await,
        }
    }

    async fn reserve_table(&self) -> Result<Reservation, StoreError> {
        let chunks = self.chunks.read_chunk_count().unwrap_or(u64::MAX);
        let bytes = chunks.saturating_mul(GATHERED_BYTES);
        self.engine.reserve(self.key(), bytes).await
    }

    async fn table_of_chunks(&self, reads: &DocumentReads<'_>) -> Result<ChunkTable, StoreError> {
        let _memory = self.reserve_table().await?;
        let count = self.chunks.grid().chunk_count();
        let expected = self
            .chunks
            .read_pipeline()
            .and_then(Pipeline::encoded_size_bytes);
        let mut table = ChunkTable::default();
        let mut listed = None;
        let mut first = 0;
        while first < count {
            let step = self.step();
            let numbers = first..count.min(first.saturating_add(step));
            if self.chunks.is_remote() {
                self.list_once(reads, numbers.clone(), &mut listed).await?;
            } else {
                leave_session_thread().await;
            }
            first = numbers.end;
            let stats = numbers
                .clone()
                .map(|number| self.stored_stat(reads, number));
            for (number, stat) in numbers.zip(join_all(stats).await) {
                let Some(stat) = stat? else {
                    continue;
                };
                let (size, version) = (stat.size_bytes, stat.version);
                if size == 0 || expected.is_some_and(|expected| expected != size) {
                    return Err(wrong_size(self.chunks.chunk_key(number), size, expected));
                }
                table.push(number, 0..size, version)?;
            }
        }
        table.entries.shrink_to_fit();
        Ok(table)
    }

    /// Returns the attributes of a stored chunk; `None` if the chunk is absent.
    async fn stored_stat(
        &self,
        reads: &DocumentReads<'_>,
        number: u64,
    ) -> Result<Option<Stat>, StoreError> {
        if !self.takes_requests() {
            return self.chunks.present_stat(reads, number).await;
        }
        // An open tells the store that a read will follow: a short value then comes with its attributes.
        let key = self.chunks.stored_key(number)?;
        let opened = present(reads.open(&key, AccessHint::Ranges).await)?;
        opened.map(|object| object.stat()).transpose()
    }

    fn step(&self) -> u64 {
        match self.chunks.is_remote() {
            true => CONCURRENT,
            false => PAUSE_CHUNKS,
        }
    }

    /// Lists each prefix of these chunks once, so that the store caches the attributes of the chunks.
    async fn list_once(
        &self,
        reads: &DocumentReads<'_>,
        numbers: Range<u64>,
        last: &mut Option<Key>,
    ) -> Result<(), StoreError> {
        let store = &self.chunks.store;
        if store.capabilities().listing != ListingSupport::Complete || store.has_index() {
            return Ok(());
        }
        for number in numbers {
            let key = self.chunks.stored_key(number)?;
            let prefix = key.parent();
            if last.as_ref() == Some(&prefix) {
                continue;
            }
            // Each chunk is looked up later, also if the prefix does not exist.
            reads.list_prefix_of(&key).await?;
            *last = Some(prefix);
        }
        Ok(())
    }

    async fn table_of_shards(
        &self,
        reads: &DocumentReads<'_>,
        sharding: &Sharding,
    ) -> Result<ChunkTable, StoreError> {
        let shards = self.shard_indexes(reads, sharding).await?;
        // Reserved after the indexes are read: reading them reserves memory too, and a request
        // reserves once at a time.
        let _memory = self.reserve_table().await?;
        let count = self.chunks.read_chunk_count().unwrap_or(0);
        let mut table = ChunkTable::default();
        for number in 0..count {
            if number.is_multiple_of(PAUSE_CHUNKS) {
                leave_session_thread().await;
            }
            let id = self.chunk_id(Selection::ChunkMajor, number);
            let (Some(inner), Some((version, index))) = (id.inner, shards.get(&id.chunk)) else {
                continue;
            };
            let key = || self.chunks.chunk_key(id.chunk);
            let entry = index.index.entry(in_memory(inner)?);
            let entry = entry.map_err(|error| codec_error(&key(), Some(inner), error))?;
            let Some(bytes) = entry else {
                continue;
            };
            if bytes.is_empty() {
                return Err(wrong_size(key(), 0, None));
            }
            table.push(number, bytes, *version)?;
        }
        table.entries.shrink_to_fit();
        Ok(table)
    }

    /// Returns the indexes of all stored shards, with their versions.
    async fn shard_indexes(
        &self,
        reads: &DocumentReads<'_>,
        sharding: &Sharding,
    ) -> Result<ShardIndexes, StoreError> {
        let count = self.chunks.grid().chunk_count();
        let mut shards = HashMap::new();
        let mut first = 0;
        while first < count {
            let numbers = first..count.min(first.saturating_add(CONCURRENT));
            if !self.chunks.is_remote() {
                leave_session_thread().await;
            }
            first = numbers.end;
            let indexes = numbers
                .clone()
                .map(|number| self.shard_index(reads, number, sharding));
            for (number, index) in numbers.zip(join_all(indexes).await) {
                if let Some(index) = index? {
                    shards.insert(number, index);
                }
            }
        }
        Ok(shards)
    }

    async fn shard_index(
        &self,
        reads: &DocumentReads<'_>,
        number: u64,
        sharding: &Sharding,
    ) -> Result<Option<(Version, Arc<CachedIndex<()>>)>, StoreError> {
        let key = self.chunks.stored_key(number)?;
        let Some(object) = present(reads.open(&key, self.chunks.hint()).await)? else {
            return Ok(None);
        };
        let index = self
            .chunks
            .shard_index(&*object, &key, sharding, &self.engine);
        Ok(Some((object.version(), index.await?)))
    }
}

/// The indexes of shards by the numbers of their chunks.
type ShardIndexes = HashMap<u64, (Version, Arc<CachedIndex<()>>)>;

impl ArrayChunks {
    /// Returns the pipeline of a read chunk; `None` if chunks have several shapes.
    fn read_pipeline(&self) -> Option<&Pipeline> {
        match self.sharding() {
            Some(sharding) => Some(sharding.inner()),
            None => self.is_regular().then(|| self.whole_pipeline()),
        }
    }

    /// Returns the number of read chunks; `None` if it overflows.
    pub(super) fn read_chunk_count(&self) -> Option<u64> {
        match self.inner_counts() {
            Some(counts) => counts
                .iter()
                .try_fold(1_u64, |n, count| n.checked_mul(*count)),
            None => Some(self.grid().chunk_count()),
        }
    }
}

fn wrong_size(key: Key, size: u64, expected: Option<u64>) -> StoreError {
    let what = match expected {
        Some(expected) => format!("{size} bytes, expected {expected}"),
        None => format!("{size} bytes are no encoded chunk"),
    };
    StoreError::Corrupt { key, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_by_number_and_by_offset() {
        let mut table = ChunkTable::default();
        for (number, bytes) in [(1, 10..15), (4, 0..1), (9, 7..27)] {
            table.push(number, bytes, Version(number)).unwrap();
        }
        assert_eq!(
            (table.len(), table.size_bytes(), table.largest_bytes()),
            (3, 26, 20)
        );
        assert_eq!(table.find(4), Some(5..6));
        assert_eq!(table.find(5), None);
        assert_eq!(table.range(2), Some(6..26));
        assert_eq!(table.number(0), Some(1));
        let places = [0, 4, 5, 6, 25, 26].map(|offset| table.place_of(offset));
        assert_eq!(places, [0, 0, 1, 2, 2, 3]);
        let overflow = table.push(10, 0..u64::MAX, Version(0));
        assert!(matches!(overflow, Err(StoreError::Internal { .. })));
    }
}
