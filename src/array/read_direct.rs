//! Direct reads of chunks that are stored unencoded: a part is read without the rest.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::chunk_cache::ChunkId;
use super::chunks::ArrayChunks;
use super::decode::{inner_range, present, with_bytes};
use super::engine::Engine;
use super::geometry::Run;
use super::reader::{ArrayReader, ReadRun};
use super::served::ServedVersions;
use crate::hierarchy::CachedIndex;
use crate::store::{
    AccessHint, Data, DocumentReads, Fetched, Key, Object, StoreError, Version, now_ms, read_into,
    read_range,
};

impl ArrayReader {
    /// Returns the runs of a read, each with its chunk and its range of the target.
    fn direct_runs(&self, run: &ReadRun<'_>) -> Vec<(ChunkId, Run)> {
        let mut runs = Vec::new();
        let _ = run.geometry.runs(run.range.start, run.range.end, |own| {
            runs.push((self.chunk_id(run.selection, own.chunk), own));
            ControlFlow::<()>::Continue(())
        });
        runs
    }

    /// Reads runs from the store without decoding; `None` if a chunk has to be decoded.
    ///
    /// The memory of the reply is reserved after everything else that waits for memory, so that a
    /// waiting read holds none.
    pub(super) async fn read_direct(
        &self,
        run: &ReadRun<'_>,
        served: Option<&ServedVersions>,
    ) -> Result<Option<Data>, StoreError> {
        self.chunks.leave_session_thread_to_open().await;
        let runs = self.direct_runs(run);
        let read = |reads| self.read_runs(reads, run, &runs, served);
        self.chunks.store.fetch(read).await.map(Fetched::into_value)
    }

    async fn read_runs(
        &self,
        reads: DocumentReads<'_>,
        run: &ReadRun<'_>,
        runs: &[(ChunkId, Run)],
        served: Option<&ServedVersions>,
    ) -> Result<Option<Data>, StoreError> {
        let mut opened = Vec::new();
        for (id, _) in runs.chunk_by(is_same_chunk).filter_map(<[_]>::first) {
            if let Some(served) = served {
                let name = |chunk| self.chunks.chunk_key(chunk);
                served.reserve_pages(std::slice::from_ref(id), name).await?;
            }
            match self.chunks.open_stored(&reads, id, &self.engine).await? {
                Some(stored) => opened.push(stored),
                None => return Ok(None),
            }
        }
        let need_bytes = run.range.end - run.range.start;
        let _memory = self.engine.reserve(self.key(), need_bytes).await?;
        if let ([(id, own)], [stored]) = (runs, &opened[..])
            && let Some((object, start)) = &stored.object
        {
            // The bytes of the store are the reply.
            let at = start + own.offset;
            let data = read_range(&**object, &stored.key, at..at + own.length).await?;
            self.admit(served, id, stored.version, stored.checked_ms)?;
            return Ok(Some(data));
        }
        let mut bytes = self.buffer(need_bytes)?;
        let mut target = &mut bytes[..];
        for (runs, stored) in runs.chunk_by(is_same_chunk).zip(&opened) {
            for (id, own) in runs {
                let part = self.split(&mut target, *own)?;
                self.chunks.read_opened(stored, own.offset, part).await?;
                self.admit(served, id, stored.version, stored.checked_ms)?;
            }
        }
        // The buffer is reused, so a byte that was not written would be one of another read.
        if !target.is_empty() {
            return Err(self.internal("runs shorter than the range"));
        }
        Ok(Some(Data::all_of(bytes)))
    }
}

fn is_same_chunk((a, _): &(ChunkId, Run), (b, _): &(ChunkId, Run)) -> bool {
    a == b
}

/// A chunk that is opened for a direct read.
struct OpenedChunk {
    key: Key,
    /// The object, and the offset of the read chunk in it; `None` if the absence of the chunk is proven.
    object: Option<(Arc<dyn Object>, u64)>,
    /// The version of the chunk; `None` if the chunk is absent.
    version: Option<Version>,
    checked_ms: u64,
}

impl ArrayChunks {
    /// Opens a read chunk that is stored unencoded; `None` if it is encoded, by a codec or by the archive.
    async fn open_stored(
        &self,
        reads: &DocumentReads<'_>,
        id: &ChunkId,
        engine: &Engine,
    ) -> Result<Option<OpenedChunk>, StoreError> {
        let key = self.stored_key(id.chunk)?;
        let checked_ms = now_ms();
        let (mut object, mut version) = (None, None);
        if let Some(chunk) = present(reads.open(&key, self.raw_hint()).await)? {
            if chunk.is_decoded_whole() && self.sharding().is_none() {
                return Ok(None);
            }
            if let Some(header) = self.expected_header() {
                let range = 0..header.len() as u64;
                let is_header = |found: &[u8]| Ok(found == header);
                if !self.has_raw_size(&*chunk)
                    || !with_bytes(&*chunk, &key, range, is_header).await?
                {
                    return Ok(None);
                }
            }
            let index = match self.sharding() {
                Some(sharding) => Some(self.shard_index(&*chunk, &key, sharding, engine).await?),
                None => None,
            };
            version = Some(chunk.version());
            let start = self.raw_start(&*chunk, &key, id, index.as_deref())?;
            object = start.map(|start| (chunk, start));
        }
        Ok(Some(OpenedChunk {
            key,
            object,
            version,
            checked_ms,
        }))
    }

    /// Returns the required header of a chunk, if not all chunks are unencoded.
    fn expected_header(&self) -> Option<&[u8]> {
        self.raw_header().filter(|header| !header.is_empty())
    }

    /// Returns whether the size of a chunk is that of a header and a decoded chunk.
    fn has_raw_size(&self, object: &dyn Object) -> bool {
        let header = self.raw_header().map_or(0, <[u8]>::len) as u64;
        header.checked_add(self.read_chunk_bytes) == Some(object.size_bytes())
    }

    /// Reads bytes from byte `offset` of a read chunk, or fill values if the chunk is absent.
    async fn read_opened(
        &self,
        stored: &OpenedChunk,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), StoreError> {
        match &stored.object {
            Some((object, start)) => {
                read_into(&**object, &stored.key, start + offset, target).await
            }
            None => {
                self.fill(offset, target);
                Ok(())
            }
        }
    }

    /// Returns the access hint of direct reads.
    fn raw_hint(&self) -> AccessHint {
        match self.sharding() {
            Some(_) => self.hint(),
            None => AccessHint::Ranges,
        }
    }

    /// Returns the offset of an unencoded read chunk in its chunk; `None` if its shard lacks it.
    fn raw_start(
        &self,
        object: &dyn Object,
        key: &Key,
        id: &ChunkId,
        index: Option<&CachedIndex<()>>,
    ) -> Result<Option<u64>, StoreError> {
        let range = match (index, id.inner) {
            (Some(index), Some(inner)) => {
                let Some(range) = inner_range(index, key, inner)? else {
                    return Ok(None);
                };
                range
            }
            _ => self.raw_header().map_or(0, <[u8]>::len) as u64..object.size_bytes(),
        };
        let (found, expected) = (range.end - range.start, self.bytes_of(id)?);
        match found == expected {
            true => Ok(Some(range.start)),
            false => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{found} bytes, expected {expected}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::engine::EngineOptions;
    use super::super::reader::Selection;
    use super::*;
    use crate::codec::Pipeline;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;
    use crate::zarr::{Array, FillValue};

    const CHUNK_BYTES: usize = 1 << 20;

    /// Returns a reader of eight unencoded chunks, of which the last is absent.
    fn reader(memory_limit_bytes: u64) -> Arc<ArrayReader> {
        let metadata = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [{}], "data_type": "uint8",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{CHUNK_BYTES}]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 9,
            "codecs": [{{"name": "bytes"}}]}}"#,
            8 * CHUNK_BYTES
        );
        let array = Array::from_v3(metadata.as_bytes()).unwrap();
        let parts = array.decodable().unwrap();
        let shape = [CHUNK_BYTES as u64];
        let fill = FillValue::Fixed(vec![9]);
        let pipeline = Pipeline::new(parts.codecs, parts.data_type, &shape, &fill).unwrap();
        let chunk = |n: u8| {
            let key = Key::new(format!("a/c/{n}").as_bytes()).unwrap();
            (key, vec![n; CHUNK_BYTES])
        };
        let options = EngineOptions {
            cache_bytes: 0,
            memory_limit_bytes,
            parallel: 1,
            timeout: Duration::from_secs(2),
        };
        let reader = ArrayReader::open(
            Arc::new(MemoryStore::new((0..7).map(chunk))),
            Key::new(b"a").unwrap(),
            &array,
            Arc::new(pipeline),
            Arc::new(Engine::new(options).unwrap()),
            Duration::ZERO,
            None,
        );
        Arc::new(reader.unwrap())
    }

    fn read(reader: &Arc<ArrayReader>, offset: usize, size: usize) -> Result<Vec<u8>, StoreError> {
        let data = block_on(reader.read(Selection::RowMajor, offset as u64, size, None))?;
        Ok(data.bytes(&[])?.to_vec())
    }

    #[test]
    fn the_reply_of_a_direct_read_counts_against_the_limit_before_it_is_allocated() {
        let reader = reader(4 << 20);
        let used = || reader.engine.gauges()[0].1;
        let others = reader.engine.reserve_now(reader.key(), 7 << 19).unwrap();
        let error = read(&reader, 0, CHUNK_BYTES).unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        assert_eq!(used(), 7 << 19, "a read that waits holds nothing");
        drop(others);
        let error = read(&reader, 0, 5 << 20).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
        let half = CHUNK_BYTES / 2;
        let expected = [vec![6; half], vec![9; half]].concat();
        assert!(read(&reader, 6 * CHUNK_BYTES + half, CHUNK_BYTES).unwrap() == expected);
        assert_eq!(used(), 0);
    }

    #[test]
    fn reads_that_exceed_the_memory_limit_together_wait_and_complete() {
        let reader = reader(3 << 20);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for n in 0..6_u8 {
                        let start = usize::from(n) * CHUNK_BYTES;
                        let bytes = read(&reader, start + 1, CHUNK_BYTES).unwrap();
                        assert_eq!((bytes[0], bytes[CHUNK_BYTES - 1]), (n, n + 1));
                    }
                });
            }
        });
    }
}
