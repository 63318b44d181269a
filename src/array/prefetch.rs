//! Beginning what a reader will want next.

use std::ops::Range;
use std::sync::Arc;

use super::batch::Batch;
use super::cache::Claim;
use super::course::Course;
use super::geometry::Geometry;
use super::pool::{Lane, ROOM};
use super::reader::ArrayReader;

/// Runs that are looked at to find what to begin ahead: it is done by a thread that must not wait.
const MAX_AHEAD_RUNS: u64 = 1 << 14;

impl ArrayReader {
    /// Notes a read, and begins what its reader will want next.
    pub(super) fn look_ahead(self: &Arc<Self>, course: &Course, range: &Range<u64>) {
        let size_bytes = course.geometry.size_bytes();
        let Some(ahead) = course.ahead.note(range, self.window_bytes, size_bytes) else {
            return;
        };
        let reached = self.begin(course, &ahead);
        if reached < ahead.end {
            course.ahead.cut(&ahead, reached);
        }
    }

    /// Begins to decode what a reader will come to; returns how far.
    fn begin(self: &Arc<Self>, course: &Course, range: &Range<u64>) -> u64 {
        if !self.engine.pool.has_room() {
            return range.start;
        }
        let (pieces, reached) = self.pieces_of(&course.geometry, range);
        let mut leads = Vec::new();
        for piece in pieces {
            let key = self.pieces.key_of(piece);
            if let Claim::Lead(lead) = self.claim(key) {
                leads.push((key, lead));
            }
        }
        self.submit(leads, self.group_pieces(), Lane::Ahead);
        reached
    }

    /// The pieces of a range, as many as may be begun at a time, and how far they reach. In each
    /// row of pieces only so many runs are looked at as meet all of its pieces.
    fn pieces_of(&self, geometry: &Geometry, range: &Range<u64>) -> (Vec<u64>, u64) {
        let (plane, row) = (geometry.plane_bytes().max(1), geometry.outer_bytes().max(1));
        let piece_bytes = geometry.piece_bytes().max(1);
        let most = (self.engine.cache.budget_bytes() / 2 / piece_bytes)
            .min(self.group_pieces().saturating_mul(ROOM) as u64);
        let mut pieces = Vec::new();
        let (mut at, mut runs_left) = (range.start, MAX_AHEAD_RUNS);
        while at < range.end {
            let room = most.saturating_sub(pieces.len() as u64);
            if room == 0 {
                break;
            }
            let row_end = (at / row + 1).saturating_mul(row).min(range.end);
            let end = at.saturating_add(plane).min(row_end);
            let room_bytes = room.saturating_mul(piece_bytes);
            let batch = Batch::of(geometry, at..end, room_bytes, runs_left);
            runs_left = runs_left.saturating_sub(batch.runs);
            pieces.extend(batch.pieces);
            if batch.end < end {
                return (pieces, batch.end);
            }
            at = row_end;
        }
        (pieces, at)
    }
}
