//! Chunks that are stored as they are: a part of one is read without the rest.

use std::ops::ControlFlow;

use super::cache::{ChunkId, now_ms};
use super::chunks::{ArrayChunks, present};
use super::engine::Engine;
use super::geometry::Run;
use super::raw::{compare_version, try_read_into, with_bytes};
use super::reader::{ArrayReader, ReadRun};
use super::served::ServedVersions;
use crate::hierarchy::{CachedIndex, codec_error};
use crate::runtime::leave_session_thread;
use crate::store::{AccessHint, Data, Key, Object, StoreError, Version, in_memory, read_into};

impl ArrayReader {
    /// The runs that a read consists of, each with its chunk and its part of the target.
    fn direct_runs(&self, run: &ReadRun<'_>) -> Vec<(ChunkId, Run)> {
        let mut runs = Vec::new();
        let _ = run.geometry.runs(run.range.start, run.range.end, |own| {
            runs.push((self.chunk_id(run.extent, own.chunk), own));
            ControlFlow::<()>::Continue(())
        });
        runs
    }

    /// Copies runs from the store as they are, if that takes no disk and no network.
    pub(super) fn try_copy_direct(
        &self,
        run: &ReadRun<'_>,
        mut target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<Option<Data>, StoreError> {
        let length = target.len();
        let name = |chunk| self.chunks.chunk_key(chunk);
        for (id, own) in self.direct_runs(run) {
            let part = self.split(&mut target, own)?;
            let ids = std::slice::from_ref(&id);
            if served.is_some_and(|served| !matches!(served.try_make_room(ids, name), Ok(true))) {
                return Ok(None);
            }
            let checked_ms = now_ms();
            match self
                .chunks
                .try_read_raw(&id, own.offset, part, &self.engine)
            {
                Some(version) => self.admit(served, &id, version?, checked_ms)?,
                None => return Ok(None),
            }
        }
        Ok(Some(Data::Filled(0..length)))
    }

    pub(super) async fn copy_direct(
        &self,
        run: &ReadRun<'_>,
        mut target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        if !self.chunks.is_remote() {
            leave_session_thread().await;
        }
        for (id, own) in self.direct_runs(run) {
            let part = self.split(&mut target, own)?;
            if let Some(served) = served {
                let name = |chunk| self.chunks.chunk_key(chunk);
                served.make_room(std::slice::from_ref(&id), name).await?;
            }
            let checked_ms = now_ms();
            let read = self.chunks.read_raw(&id, own.offset, part, &self.engine);
            let version = read.await?;
            self.admit(served, &id, version, checked_ms)?;
        }
        Ok(())
    }
}

impl ArrayChunks {
    /// Reads bytes of a read chunk that is not encoded, from byte `offset` of it; fill values if it is
    /// proven to be absent. Returns the version of the chunk; `None` if there is no such chunk.
    async fn read_raw(
        &self,
        id: &ChunkId,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Result<Option<Version>, StoreError> {
        let read = self.read_raw_unchecked(id, offset, target, engine).await;
        self.check_document().await?;
        read
    }

    async fn read_raw_unchecked(
        &self,
        id: &ChunkId,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Result<Option<Version>, StoreError> {
        let key = self.stored_key(id.chunk)?;
        let Some(object) = self.open(&key, self.raw_hint()).await? else {
            self.fill(offset, target);
            return Ok(None);
        };
        let index = match self.pipeline.sharding() {
            Some(sharding) => Some(self.shard_index(&*object, &key, sharding, engine).await?),
            None => None,
        };
        if let Some(start) = self.raw_start(&*object, &key, id, index.as_deref())? {
            let at = start + offset;
            match object.as_local() {
                Some(_) => {
                    let range = at..at + target.len() as u64;
                    let copy = |bytes: &[u8]| {
                        target.copy_from_slice(bytes);
                        Ok(())
                    };
                    with_bytes(&*object, &key, range, copy).await?;
                }
                None => read_into(&*object, &key, at, target).await?,
            }
        } else {
            self.fill(offset, target);
        }
        Ok(Some(object.version()))
    }

    /// As [`ArrayChunks::read_raw`], if that takes no disk and no network.
    fn try_read_raw(
        &self,
        id: &ChunkId,
        offset: u64,
        target: &mut [u8],
        engine: &Engine,
    ) -> Option<Result<Option<Version>, StoreError>> {
        let store = self.store.as_sync()?;
        let mut read = || {
            let key = self.stored_key(id.chunk)?;
            let Some(object) = present(store.open(&key, self.raw_hint()))? else {
                self.fill(offset, target);
                return Ok(Some(None));
            };
            let version = object.version();
            let index = match self.pipeline.sharding() {
                Some(_) => match self.cached_index(&key, version, engine) {
                    Some(index) => Some(index),
                    None => return Ok(None),
                },
                None => None,
            };
            match self.raw_start(&*object, &key, id, index.as_deref())? {
                Some(start) => {
                    let at = start + offset;
                    match try_read_into(&*object, &key, at, target) {
                        Some(read) => read?,
                        None => return Ok(None),
                    }
                }
                None => self.fill(offset, target),
            }
            Ok(Some(Some(version)))
        };
        let read = read();
        if let Some((key, version)) = &self.document
            && let Err(error) = compare_version(key, *version, store.stat(key))
        {
            return Some(Err(error));
        }
        read.transpose()
    }

    /// What a chunk is opened for to read a part of it as it is stored.
    fn raw_hint(&self) -> AccessHint {
        match self.pipeline.sharding() {
            Some(_) => self.hint(),
            None => AccessHint::Ranges,
        }
    }

    /// Where a read chunk that is not encoded begins in its chunk; `None` if its shard does not have it.
    fn raw_start(
        &self,
        object: &dyn Object,
        key: &Key,
        id: &ChunkId,
        index: Option<&CachedIndex<()>>,
    ) -> Result<Option<u64>, StoreError> {
        let range = match (index, id.inner) {
            (Some(index), Some(inner)) => {
                let entry = index
                    .index
                    .entry(in_memory(inner)?)
                    .map_err(|error| codec_error(key, Some(inner), error))?;
                let Some(range) = entry else {
                    return Ok(None);
                };
                range
            }
            _ => 0..object.size_bytes(),
        };
        let (found, expected) = (range.end - range.start, self.read_chunk_bytes);
        match found == expected {
            true => Ok(Some(range.start)),
            false => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{found} bytes, expected {expected}"),
            }),
        }
    }
}
