//! Readahead: decodes chunks ahead of a sequential reader.
//!
//! Prefetches of a remote array continue as long as one of its files is open ([`OpenReader`]). The last
//! close cancels their requests, unless a read waits for the same chunks. If the kernel sends no open and
//! close, each read opens and closes its file, so the cancellation waits for a following read.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::chunk_cache::{ChunkLookup, Interest, LoadWaiter};
use super::geometry::Geometry;
use super::order::ElementOrder;
use super::reader::{ArrayReader, ChunkBatch};
use crate::clock::Instant;
use crate::runtime::{self, Priority, accepts_prefetch};
use crate::store::Window;
use crate::sync::Mutex;

/// The largest number of prefetch tasks that one reader starts at a time.
const MAX_TASKS: usize = 64;

/// The largest number of runs in which chunks to prefetch are searched, because a session thread does this.
const MAX_AHEAD_RUNS: u64 = 1 << 14;

/// How long prefetches continue without a read of a file that each read opens.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The prefetched chunks of a remote array.
#[derive(Debug, Default)]
pub(super) struct PrefetchedChunks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of open files that contain elements of the array.
    open_files: usize,
    /// The interests in the chunks that are being prefetched.
    wanted: Vec<Arc<Interest>>,
    /// When the last file was closed.
    closed: Option<Instant>,
    /// Whether a task waits for a following read.
    is_waiting: bool,
}

/// An open file that contains elements of an array. Dropping the last one cancels the prefetches.
#[derive(Debug)]
pub struct OpenReader(Arc<ArrayReader>);

impl Drop for OpenReader {
    fn drop(&mut self) {
        let mut state = self.0.ahead.0.lock();
        state.open_files = state.open_files.saturating_sub(1);
        if state.open_files > 0 {
            return;
        }
        if self.0.chunks.opens_for_each_read() {
            state.closed = Some(Instant::now());
            state.wanted.retain(|interest| !interest.is_over());
            if !state.is_waiting && !state.wanted.is_empty() {
                state.is_waiting = true;
                runtime::spawn(cancel_unread(Arc::clone(&self.0))).detach();
            }
            return;
        }
        let unwanted = std::mem::take(&mut state.wanted);
        // The interests are dropped without the lock, because their drop wakes tasks.
        drop(state);
        drop(unwanted);
    }
}

/// Cancels the prefetches of an array once no read has followed the last one for a while.
async fn cancel_unread(reader: Arc<ArrayReader>) {
    loop {
        runtime::sleep(READ_GRACE).await;
        let mut state = reader.ahead.0.lock();
        state.wanted.retain(|interest| !interest.is_over());
        let is_idle = || {
            let closed = state.closed;
            state.open_files == 0 && closed.is_none_or(|closed| closed.elapsed() >= READ_GRACE)
        };
        if state.wanted.is_empty() || is_idle() {
            state.is_waiting = false;
            let unwanted = std::mem::take(&mut state.wanted);
            drop(state);
            drop(unwanted);
            return;
        }
    }
}

impl ArrayReader {
    /// Records an open file with elements of the array. `None` for a local array, which needs no record.
    pub fn opened(self: &Arc<Self>) -> Option<OpenReader> {
        if !self.chunks.is_remote() {
            return None;
        }
        self.ahead.0.lock().open_files += 1;
        Some(OpenReader(Arc::clone(self)))
    }

    /// Records a read, and starts to decode the bytes that a sequential reader will read next.
    pub(super) fn read_ahead(self: &Arc<Self>, order: &ElementOrder, range: &Range<u64>) {
        let size_bytes = order.geometry.size_bytes();
        let bytes = self.window_bytes;
        let window = Window {
            bytes,
            // A search for chunks at every read costs more than it gains.
            step_bytes: bytes / 2,
            // A round trip to a remote store takes longer than decoding chunks in vain.
            first_bytes: if self.chunks.is_remote() { bytes } else { 0 },
        };
        let Some(ahead) = order.readahead.observe(range, &window, size_bytes) else {
            return;
        };
        let reached = self.prefetch(order, &ahead);
        if reached < ahead.end {
            order.readahead.truncate(&ahead, reached);
        }
    }

    /// Starts to decode a range. Returns the end of the bytes whose chunks were started.
    fn prefetch(self: &Arc<Self>, order: &ElementOrder, range: &Range<u64>) -> u64 {
        if !accepts_prefetch(MAX_TASKS) {
            return range.start;
        }
        let (chunks, reached) = self.chunks_of(&order.geometry, range);
        let mut leaders = Vec::new();
        for chunk in chunks {
            let id = self.chunks.id_of(chunk);
            let cache = &self.engine.cache;
            let found = cache.get_or_lead(id, |chunk| self.chunks.is_fresh(chunk));
            if let Ok(ChunkLookup::Lead(leader)) = found {
                leaders.push((id, leader));
            }
        }
        if self.chunks.is_remote() {
            let mut state = self.ahead.0.lock();
            state.wanted.retain(|interest| !interest.is_over());
            // Without an open file, the leaders keep their loads, so that the decoding is not cancelled.
            if state.open_files > 0 {
                let loads = leaders
                    .iter_mut()
                    .filter_map(|(_, leader)| leader.take_load());
                state.wanted.extend(loads.map(LoadWaiter::into_interest));
            }
        }
        self.submit(leaders, self.group_chunks(), Priority::Prefetch);
        reached
    }

    /// Returns the chunks of a range that may be started at a time, and the end of their bytes. In each
    /// row of chunks, the search ends after the runs that meet all chunks of the row.
    fn chunks_of(&self, geometry: &Geometry, range: &Range<u64>) -> (Vec<u64>, u64) {
        let (plane, row) = (geometry.plane_bytes().max(1), geometry.outer_bytes().max(1));
        let chunk_bytes = geometry.chunk_bytes().max(1);
        let most = (self.engine.cache.budget_bytes() / 2 / chunk_bytes)
            .min(self.group_chunks().saturating_mul(MAX_TASKS) as u64);
        let mut chunks = Vec::new();
        let (mut at, mut runs_left) = (range.start, MAX_AHEAD_RUNS);
        while at < range.end {
            let room = most.saturating_sub(chunks.len() as u64);
            if room == 0 {
                break;
            }
            let row_end = (at / row + 1).saturating_mul(row).min(range.end);
            let end = at.saturating_add(plane).min(row_end);
            let room_bytes = room.saturating_mul(chunk_bytes);
            let batch = ChunkBatch::of(geometry, at..end, room_bytes, runs_left);
            runs_left = runs_left.saturating_sub(batch.runs);
            chunks.extend(batch.chunks);
            if batch.end < end {
                return (chunks, batch.end);
            }
            at = row_end;
        }
        (chunks, at)
    }
}
