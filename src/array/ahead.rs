//! Which bytes a reader that goes from beginning to end will want next.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Watches the reads of one file.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<State>);

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Where the next read of the same reader would begin.
    next: u64,
    /// Up to here all has been begun.
    begun: u64,
    /// Reads in a row that went on where the one before them ended.
    streak: u32,
}

/// The kernel asks for parts of a file in parallel: reads this near to each other are one reader's.
const NEAR_BYTES: u64 = 4 << 20;

impl Ahead {
    /// Notes a read of `read`; returns what to begin now so that `window` bytes behind it are
    /// begun, if this is a reader that goes on and on.
    pub(super) fn note(&self, read: &Range<u64>, window: u64, end: u64) -> Option<Range<u64>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = read.start.abs_diff(state.next) <= NEAR_BYTES;
        if goes_on {
            state.streak = state.streak.saturating_add(1);
            state.next = state.next.max(read.end);
        } else {
            *state = State {
                next: read.end,
                ..State::default()
            };
        }
        if state.streak < 2 {
            return None;
        }
        let from = state.begun.max(read.end);
        let to = read.end.saturating_add(window).min(end);
        // In steps of half a window: asking for every read costs more than it brings.
        let is_due = to.saturating_sub(from) >= window / 2 || (to == end && from < to);
        if !is_due {
            return None;
        }
        state.begun = to;
        Some(from..to)
    }

    /// Whether the reads go from beginning to end.
    pub(super) fn is_streaming(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).streak >= 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_reader_that_goes_on_gets_every_byte_begun_once() {
        let ahead = Ahead::default();
        let end = 100 * MIB;
        let mut begun = Vec::new();
        for start in (0..end).step_by(1 << 20) {
            begun.extend(ahead.note(&(start..start + MIB), 8 * MIB, end));
        }
        assert!(ahead.is_streaming());
        assert_eq!(begun.first().unwrap().start, 2 * MIB);
        assert_eq!(begun.last().unwrap().end, end);
        for pair in begun.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
    }

    #[test]
    fn reads_at_random_begin_nothing() {
        let ahead = Ahead::default();
        for start in [500, 20, 900, 40, 700, 1].map(|n| n * MIB) {
            assert_eq!(
                ahead.note(&(start..start + 4096), 8 * MIB, 1000 * MIB),
                None
            );
        }
        assert!(!ahead.is_streaming());
    }
}
