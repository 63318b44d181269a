//! Batches: the chunks that a range of an array needs, in groups of limited size.

use std::ops::{ControlFlow, Range};

use super::geometry::{Geometry, Run};

/// The largest number of chunks in a batch of a read or a readahead, however small they are.
const MAX_CHUNKS: usize = 4096;

/// The chunks of the beginning of a range, as many as one read may hold at a time.
#[derive(Debug)]
pub(super) struct ChunkBatch {
    /// The chunks, in the order in which they are first needed.
    pub(super) chunks: Vec<u64>,
    /// The end of the bytes that the chunks cover.
    pub(super) end: u64,
    /// The number of runs in the batch.
    pub(super) runs: u64,
    /// The run, if the batch has only one.
    pub(super) single: Option<Run>,
    /// Whether the system had no memory for more chunks.
    pub(super) lacks_memory: bool,
}

impl ChunkBatch {
    /// Returns the chunks of a range that fit into `held_bytes`, over at most `most_runs` runs.
    pub(super) fn of(
        geometry: &Geometry,
        range: Range<u64>,
        held_bytes: u64,
        most_runs: u64,
    ) -> Self {
        let most = (held_bytes / geometry.chunk_bytes().max(1)).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_CHUNKS);
        let mut chunks = Vec::new();
        let mut positions = ChunkPositions::default();
        let (mut end, mut runs, mut first) = (range.start, 0_u64, None);
        let mut lacks_memory = false;
        let _ = geometry.runs(range.start, range.end, |run| {
            if runs == most_runs {
                return ControlFlow::Break(());
            }
            if positions.get(run.chunk).is_none() {
                if chunks.len() == most {
                    return ControlFlow::Break(());
                }
                // Without memory for more chunks, the batch has those that it has.
                let has_space = chunks.try_reserve(1).is_ok();
                if !has_space || positions.add(run.chunk, chunks.len()).is_none() {
                    lacks_memory = true;
                    return ControlFlow::Break(());
                }
                chunks.push(run.chunk);
            }
            first.get_or_insert(run);
            runs += 1;
            end += run.length;
            ControlFlow::Continue(())
        });
        Self {
            chunks,
            end,
            runs,
            single: first.filter(|_| runs == 1),
            lacks_memory,
        }
    }

    /// Returns the indexes of the chunks; `None` if the system has no memory for them.
    pub(super) fn positions(&self) -> Option<ChunkPositions> {
        let mut positions = ChunkPositions::default();
        for (place, chunk) in self.chunks.iter().enumerate() {
            positions.add(*chunk, place)?;
        }
        Some(positions)
    }
}

/// The indexes of chunks in a batch. The last result is cached, because runs nearly follow the
/// chunk order.
#[derive(Debug, Default)]
pub(super) struct ChunkPositions {
    places: hashbrown::HashMap<u64, usize>,
    last: Option<(u64, usize)>,
}

impl ChunkPositions {
    /// Adds a chunk; `None` if the system has no memory for it.
    fn add(&mut self, chunk: u64, place: usize) -> Option<()> {
        self.places.try_reserve(1).ok()?;
        self.places.insert(chunk, place);
        self.last = Some((chunk, place));
        Some(())
    }

    pub(super) fn get(&mut self, chunk: u64) -> Option<usize> {
        match self.last {
            Some((last, place)) if last == chunk => Some(place),
            _ => {
                let place = *self.places.get(&chunk)?;
                self.last = Some((chunk, place));
                Some(place)
            }
        }
    }
}
