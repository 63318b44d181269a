//! Decoding ahead of a sequential reader.
//!
//! What a remote array has asked for ahead of its readers is wanted as long as one of its files is open
//! ([`OpenReader`]); then its requests are cancelled, unless a read waits for the same chunks.

use std::ops::Range;
use std::sync::Arc;

use super::batch::Batch;
use super::cache::{Claim, Interest, Load};
use super::geometry::Geometry;
use super::order::ElementOrder;
use super::reader::ArrayReader;
use crate::runtime::{Priority, accepts_prefetch};
use crate::store::Window;
use crate::sync::Mutex;

/// Prefetch tasks that one reader starts at a time.
const MAX_TASKS: usize = 64;

/// Runs that are looked at to find what to decode ahead: a session thread does it.
const MAX_AHEAD_RUNS: u64 = 1 << 14;

/// The chunks that are decoded ahead of the readers of a remote array.
#[derive(Debug, Default)]
pub(super) struct DecodedAhead(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Open files that the array fills.
    open_files: usize,
    /// Chunks that are being fetched.
    wanted: Vec<Arc<Interest>>,
}

/// An open file that an array fills: chunks are only fetched ahead while there is one.
#[derive(Debug)]
pub struct OpenReader(Arc<ArrayReader>);

impl Drop for OpenReader {
    fn drop(&mut self) {
        let mut state = self.0.ahead.0.lock();
        state.open_files = state.open_files.saturating_sub(1);
        let unwanted = match state.open_files {
            0 => std::mem::take(&mut state.wanted),
            _ => Vec::new(),
        };
        // Their end wakes tasks.
        drop(state);
        drop(unwanted);
    }
}

impl ArrayReader {
    /// Notes that a file is open that the array fills. `None` if nothing is fetched for it: the chunks are local.
    pub fn opened(self: &Arc<Self>) -> Option<OpenReader> {
        if !self.chunks.is_remote() {
            return None;
        }
        self.ahead.0.lock().open_files += 1;
        Some(OpenReader(Arc::clone(self)))
    }

    /// Notes a read, and starts to decode what a sequential reader will read next.
    pub(super) fn read_ahead(self: &Arc<Self>, order: &ElementOrder, range: &Range<u64>) {
        let size_bytes = order.geometry.size_bytes();
        let bytes = self.window_bytes;
        let window = Window {
            bytes,
            // Looking for chunks at every read costs more than it brings.
            step_bytes: bytes / 2,
            // A round trip to the source takes longer than to decode what nobody may want.
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

    /// Starts to decode a range; returns how far.
    fn prefetch(self: &Arc<Self>, order: &ElementOrder, range: &Range<u64>) -> u64 {
        if !accepts_prefetch(MAX_TASKS) {
            return range.start;
        }
        let (chunks, reached) = self.chunks_of(&order.geometry, range);
        let mut leaders = Vec::new();
        for chunk in chunks {
            let id = self.chunks.id_of(chunk);
            if let Claim::Lead(leader) = self.claim(id) {
                leaders.push((id, leader));
            }
        }
        if self.chunks.is_remote() {
            let mut state = self.ahead.0.lock();
            state.wanted.retain(|interest| !interest.is_over());
            // Without an open file, it is decoded whoever wants it.
            if state.open_files > 0 {
                let loads = leaders
                    .iter_mut()
                    .filter_map(|(_, leader)| leader.take_load());
                state.wanted.extend(loads.map(Load::into_interest));
            }
        }
        self.submit(leaders, self.group_chunks(), Priority::Prefetch);
        reached
    }

    /// The chunks of a range, as many as may be started at a time, and how far they reach. In each
    /// row of chunks only so many runs are looked at as meet all of its chunks.
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
            let batch = Batch::of(geometry, at..end, room_bytes, runs_left);
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
