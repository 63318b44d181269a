//! Loads the chunks that a read needs from the cache, or decodes them in parallel.

use std::sync::Arc;

use futures_util::future::select;
use futures_util::pin_mut;

use super::chunk_cache::{Chunk, ChunkId, ChunkLookup, Leader, LoadWaiter};
use super::reader::ArrayReader;
use crate::fallible::{List, NoMemory};
use crate::runtime::{self, Priority, leave_session_thread};
use crate::store::StoreError;

/// The size of a group of small local chunks in bytes, because handing each chunk to another thread takes
/// longer than decoding it. The read itself decodes a single group.
const GROUP_BYTES: u64 = 128 << 10;
/// The largest number of chunks in a group: opening so many keys takes longer than handing them over.
const MAX_GROUP: usize = 64;
/// The size in bytes of the inner chunks of one remote chunk that are fetched together.
const FETCHED_GROUP_BYTES: u64 = 4 << 20;
/// The largest number of tasks of one read: more than the network or the processors can use. Each task takes some
/// ten KiB.
const MAX_TASKS: usize = 256;
/// The number of retries for a chunk whose leader was dropped, or that is outdated.
const ATTEMPTS: usize = 2;

/// Returns the error of a leader that has already given its load away.
fn second_load(id: &ChunkId) -> StoreError {
    StoreError::internal(format!("a second load of chunk {}", id.chunk))
}

type Leaders = Vec<(ChunkId, Leader)>;

impl ArrayReader {
    /// Returns the chunks, and decodes missing ones in parallel.
    ///
    /// # Errors
    /// The error of a chunk; [`StoreError::TooLarge`] if the system has no memory for so many chunks.
    pub(super) async fn load(
        self: &Arc<Self>,
        ids: &[ChunkId],
    ) -> Result<Vec<Arc<Chunk>>, StoreError> {
        let no_memory = |NoMemory(bytes)| self.no_memory(bytes);
        let is_fresh = |chunk: &Chunk| self.chunks.is_fresh(chunk);
        enum State {
            Ready(Arc<Chunk>),
            Loading(LoadWaiter),
        }
        let mut states = List::default();
        let mut leaders = List::default();
        for id in ids {
            let found = self.engine.cache.get_or_lead(*id, is_fresh);
            states.push(match found.map_err(no_memory)? {
                ChunkLookup::Lead(mut leader) => {
                    let load = leader.take_load();
                    leaders.push((*id, leader));
                    State::Loading(load.ok_or_else(|| second_load(id))?)
                }
                ChunkLookup::Wait(load) => {
                    // The load may still be in the prefetch queue.
                    runtime::promote_prefetch();
                    State::Loading(load)
                }
                ChunkLookup::Ready(chunk) => {
                    self.engine.count_reused(1);
                    State::Ready(chunk)
                }
            });
        }
        let (states, leaders): (_, Leaders) = (
            states.finish().map_err(no_memory)?,
            leaders.finish().map_err(no_memory)?,
        );
        if !leaders.is_empty() {
            let group = self.group_chunks();
            if leaders.len() <= group && group > 1 && !self.chunks.is_remote() {
                leave_session_thread().await;
                self.decode(leaders).await;
            } else {
                self.submit(leaders, group, Priority::Demand);
            }
        }
        let mut chunks = List::default();
        for (id, state) in ids.iter().zip(states) {
            chunks.push(match state {
                State::Ready(chunk) => chunk,
                State::Loading(load) => self.wait(*id, load).await?,
            });
        }
        chunks.finish().map_err(no_memory)
    }

    /// Waits for a chunk. Decodes it again if the store is known to have changed since.
    async fn wait(
        self: &Arc<Self>,
        id: ChunkId,
        mut load: LoadWaiter,
    ) -> Result<Arc<Chunk>, StoreError> {
        let mut attempts = 0;
        loop {
            match load.wait().await {
                Some(result) => {
                    let chunk = result?;
                    let is_old = self.chunks.store.is_expired(chunk.checked_ms());
                    if !is_old || attempts == ATTEMPTS {
                        return Ok(chunk);
                    }
                }
                None if attempts == ATTEMPTS => {
                    return Err(StoreError::Internal {
                        key: self.chunks.chunk_key(id.chunk),
                        what: "the decoder panics on it".into(),
                    });
                }
                None => {}
            }
            attempts += 1;
            let cache = &self.engine.cache;
            let found = cache.get_or_lead(id, |chunk| self.chunks.is_fresh(chunk));
            load = match found.map_err(|NoMemory(bytes)| self.no_memory(bytes))? {
                ChunkLookup::Ready(chunk) => return Ok(chunk),
                ChunkLookup::Wait(load) => load,
                ChunkLookup::Lead(mut leader) => {
                    let load = leader.take_load();
                    self.submit(vec![(id, leader)], 1, Priority::Demand);
                    load.ok_or_else(|| second_load(&id))?
                }
            };
        }
    }

    /// Returns the number of chunks that one task decodes.
    pub(super) fn group_chunks(&self) -> usize {
        let group_bytes = match (self.chunks.is_remote(), self.chunks.has_inner()) {
            (true, true) => FETCHED_GROUP_BYTES,
            // Each chunk takes a request, and all requests are sent at the same time.
            (true, false) => 0,
            (false, _) => GROUP_BYTES,
        };
        let chunks = group_bytes / self.row_major.geometry.chunk_bytes().max(1);
        usize::try_from(chunks)
            .unwrap_or(usize::MAX)
            .clamp(1, MAX_GROUP)
    }

    /// Spawns tasks on the CPU pool that decode at most `group` chunks each, or more if there would be too many
    /// tasks.
    pub(super) fn submit(self: &Arc<Self>, mut leaders: Leaders, group: usize, priority: Priority) {
        let has_inner = self.chunks.has_inner();
        if self.chunks.is_remote() {
            // Inner chunks of one chunk are fetched together.
            leaders.sort_unstable_by_key(|(id, _)| (id.chunk, id.inner));
        }
        let group = group.max(leaders.len().div_ceil(MAX_TASKS));
        let mut leaders = leaders.into_iter();
        while let Some((first, _)) = leaders.as_slice().first() {
            let chunk = first.chunk;
            let of_chunk = leaders
                .as_slice()
                .iter()
                .take_while(|(id, _)| id.chunk == chunk);
            let most = match self.chunks.is_remote() && has_inner {
                true => group.min(of_chunk.count()),
                false => group,
            };
            let of_task: Leaders = leaders.by_ref().take(most).collect();
            let reader = Arc::clone(self);
            runtime::spawn_detached(priority, async move { reader.decode(of_task).await });
        }
    }

    /// Decodes chunks. If they are remote, cancels its network requests once no read waits for the chunks.
    async fn decode(&self, mut leaders: Leaders) {
        let is_remote = self.chunks.is_remote();
        let watched = leaders.iter().filter(|_| is_remote);
        let notified: Vec<_> = watched.map(|(_, leader)| leader.abandoned()).collect();
        let decode = async {
            // A task for several remote chunks is one for inner chunks of one shard.
            if is_remote && self.chunks.has_inner() && leaders.len() > 1 {
                match self.decode_shard(leaders).await {
                    Some(left) => leaders = left,
                    None => return,
                }
            }
            let mut timed_out = None;
            for (id, leader) in leaders {
                // After a time-out for the memory of one chunk, the next one does not wait again.
                let result = match &timed_out {
                    Some(error) => Err(StoreError::clone(error)),
                    None => {
                        let before = self.engine.cache.get(&id);
                        self.chunks.decode(&id, before, &self.engine).await
                    }
                };
                if let Err(error @ StoreError::TimedOut { .. }) = &result {
                    timed_out = Some(error.clone());
                }
                leader.complete(result);
            }
        };
        pin_mut!(decode);
        if !is_remote {
            return decode.await;
        }
        let abandoned = async {
            for leader in &notified {
                leader.notified().await;
            }
        };
        pin_mut!(abandoned);
        select(abandoned, decode).await;
    }

    /// Decodes inner chunks of one shard; returns the leaders if they have to be decoded one by one.
    async fn decode_shard(&self, leaders: Leaders) -> Option<Leaders> {
        let before = |id: &ChunkId| self.engine.cache.get(id);
        let wanted = leaders.iter().map(|(id, _)| (*id, before(id))).collect();
        match self.chunks.decode_inner(wanted, &self.engine).await {
            Ok(decoded) if decoded.len() == leaders.len() => {
                for ((_, leader), result) in leaders.into_iter().zip(decoded) {
                    leader.complete(result);
                }
            }
            Ok(_) => return Some(leaders),
            Err(error) => {
                for (_, leader) in leaders {
                    leader.complete(Err(error.clone()));
                }
            }
        }
        None
    }
}
