//! Predicts the bytes that a sequential reader will read next.

use std::collections::VecDeque;
use std::ops::Range;

use crate::sync::Mutex;

/// Observes the reads of one array or object.
#[derive(Debug, Default)]
pub struct Readahead(Mutex<VecDeque<Stream>>);

/// How far to read ahead.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Bytes to prefetch after a read of a sequential reader.
    pub bytes: u64,
    /// A prefetch ends at a multiple of this number of bytes, or at the end of the object.
    pub step_bytes: u64,
    /// Bytes to prefetch after a first, long read at offset 0, which may stay the only read.
    pub first_bytes: u64,
}

/// Reads that seem to come from one reader.
#[derive(Debug, Clone)]
struct Stream {
    /// The last read. A read that has to wait is observed twice.
    last: Range<u64>,
    /// Where the next sequential read would begin.
    next: u64,
    /// The end of the bytes whose prefetch has started.
    begun: u64,
    /// Where the stream began, and how many bytes have been read since.
    start: u64,
    bytes: u64,
    /// Number of consecutive reads, each beginning where the one before ended.
    streak: u32,
    /// Whether the first read was at offset 0.
    is_from_start: bool,
}

/// Number of readers that are distinguished.
const MAX_STREAMS: usize = 8;
/// The kernel reads parts of a file in parallel. Reads within this distance belong to one reader.
const NEAR_BYTES: u64 = 4 << 20;
/// A first read of this many bytes at offset 0 comes from a program that will continue: the kernel requests
/// fewer bytes for a program that reads only the beginning.
const LONG_READ_BYTES: u64 = 96 << 10;
/// Number of consecutive reads after which a reader counts as sequential.
const SEQUENTIAL_READS: u32 = 2;
/// The same for a reader that began at offset 0, which will most likely read the whole object.
const SEQUENTIAL_READS_FROM_START: u32 = 1;

impl Stream {
    fn of(read: &Range<u64>) -> Self {
        Self {
            last: read.clone(),
            next: read.end,
            begun: 0,
            start: read.start,
            bytes: read.end.saturating_sub(read.start),
            streak: 0,
            is_from_start: read.start == 0,
        }
    }

    /// Adds a read. Nearby reads that leave out most of the bytes between them are random, and begin
    /// a new stream.
    fn goes_on(self, read: &Range<u64>) -> Self {
        if self.last == *read {
            return self;
        }
        let (start, next) = (self.start.min(read.start), self.next.max(read.end));
        let own = read.end.saturating_sub(read.start);
        let bytes = self.bytes.saturating_add(own);
        if bytes.saturating_mul(2) < next.saturating_sub(start) {
            return Self::of(read);
        }
        Self {
            last: read.clone(),
            next,
            start,
            bytes,
            streak: self.streak.saturating_add(1),
            ..self
        }
    }
}

impl Readahead {
    /// Records a read of `read`, where the object ends at `end`; returns the range to prefetch now, if the
    /// reader is sequential.
    pub fn observe(&self, read: &Range<u64>, window: &Window, end: u64) -> Option<Range<u64>> {
        let mut streams = self.0.lock();
        let place = streams
            .iter()
            .position(|stream| read.start.abs_diff(stream.next) <= NEAR_BYTES);
        let mut stream = match place.and_then(|place| streams.remove(place)) {
            Some(stream) => stream.goes_on(read),
            None => Stream::of(read),
        };
        let mut begin = None;
        let needed = match stream.is_from_start {
            true => SEQUENTIAL_READS_FROM_START,
            false => SEQUENTIAL_READS,
        };
        let window_bytes = match stream.streak {
            0 if stream.is_from_start && stream.bytes >= LONG_READ_BYTES => window.first_bytes,
            streak if streak >= needed => window.bytes,
            _ => 0,
        };
        if window_bytes > 0 {
            let from = stream.begun.max(read.end);
            let to = read.end.saturating_add(window_bytes).min(end);
            let to = if to < end {
                to - to % window.step_bytes.max(1)
            } else {
                to
            };
            if from < to {
                stream.begun = to;
                begin = Some(from..to);
            }
        }
        // The latest stream comes first.
        streams.push_front(stream);
        streams.truncate(MAX_STREAMS);
        begin
    }

    /// Reports that of a range that [`Readahead::observe`] returned, only the part before `reached` could be
    /// started; the rest will be returned again.
    pub fn truncate(&self, range: &Range<u64>, reached: u64) {
        let mut streams = self.0.lock();
        let stream = streams.iter_mut().find(|stream| stream.begun == range.end);
        if let Some(stream) = stream {
            stream.begun = reached.max(range.start);
        }
    }

    /// Whether the last read came from a sequential reader.
    pub fn is_streaming(&self) -> bool {
        let streams = self.0.lock();
        streams
            .front()
            .is_some_and(|stream| stream.streak >= SEQUENTIAL_READS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A window of `mib` MiB, without a first window.
    fn window(mib: u64) -> Window {
        Window {
            bytes: mib * MIB,
            step_bytes: mib * MIB / 2,
            first_bytes: 0,
        }
    }

    #[test]
    fn a_long_first_read_from_the_beginning_starts_the_first_window() {
        let window = Window {
            first_bytes: 2 * MIB,
            step_bytes: MIB,
            ..window(8)
        };
        let first = |read: Range<u64>| Readahead::default().observe(&read, &window, 100 * MIB);
        let long = 128 << 10;
        assert_eq!(first(0..long), Some(long..2 * MIB));
        assert_eq!(first(0..16384), None);
        assert_eq!(first(MIB..2 * MIB), None);
        let ahead = Readahead::default();
        let note = |read: Range<u64>| ahead.observe(&read, &window, 100 * MIB);
        assert_eq!(note(0..long), Some(long..2 * MIB));
        assert_eq!(note(0..long), None);
        assert_eq!(note(long..2 * long), Some(2 * MIB..8 * MIB));
    }

    #[test]
    fn a_sequential_reader_has_each_byte_prefetched_once() {
        let ahead = Readahead::default();
        let end = 100 * MIB;
        let mut begun = Vec::new();
        for start in (0..end).step_by(1 << 20) {
            begun.extend(ahead.observe(&(start..start + MIB), &window(8), end));
        }
        assert!(ahead.is_streaming());
        assert_eq!(begun.first().unwrap().start, 2 * MIB);
        assert_eq!(begun.last().unwrap().end, end);
        for pair in begun.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
    }

    #[test]
    fn a_reader_from_the_middle_needs_more_sequential_reads() {
        let ahead = Readahead::default();
        let note =
            |start: u64| ahead.observe(&(start * MIB..(start + 1) * MIB), &window(8), 100 * MIB);
        assert_eq!(note(50), None);
        assert_eq!(note(51), None);
        assert_eq!(note(52), Some(53 * MIB..60 * MIB));
    }

    #[test]
    fn a_truncated_prefetch_is_repeated() {
        let ahead = Readahead::default();
        let note =
            |start: u64| ahead.observe(&(start * MIB..(start + 1) * MIB), &window(20), 100 * MIB);
        assert_eq!(note(0), None);
        let range = note(1).unwrap();
        assert_eq!(range, 2 * MIB..20 * MIB);
        ahead.truncate(&range, 5 * MIB);
        assert_eq!(note(2), Some(5 * MIB..20 * MIB));
        assert_eq!(note(3), None);
    }

    #[test]
    fn readers_of_different_parts_do_not_disturb_each_other() {
        let ahead = Readahead::default();
        let mut begun = 0;
        for step in 0..8 {
            for start in [0, 200 * MIB, 500 * MIB] {
                let at = start + step * MIB;
                begun += usize::from(
                    ahead
                        .observe(&(at..at + MIB), &window(4), 1000 * MIB)
                        .is_some(),
                );
            }
        }
        assert!(begun >= 6, "{begun}");
    }

    #[test]
    fn repeated_reads_count_once() {
        let ahead = Readahead::default();
        for _ in 0..5 {
            assert_eq!(ahead.observe(&(0..4096), &window(8), 1000 * MIB), None);
        }
        assert!(
            ahead
                .observe(&(4096..8192), &window(8), 1000 * MIB)
                .is_some()
        );
    }

    #[test]
    fn random_reads_start_no_prefetch_even_if_they_are_close() {
        let ahead = Readahead::default();
        for i in 0..1000 {
            let start = i * 7_919 * 4096 % (16 * MIB);
            let read = start..start + 4096;
            assert_eq!(ahead.observe(&read, &window(8), 1000 * MIB), None, "{i}");
        }
        let ahead = Readahead::default();
        for start in [500, 20, 900, 40, 700, 1].map(|n| n * MIB) {
            assert_eq!(
                ahead.observe(&(start..start + 4096), &window(8), 1000 * MIB),
                None
            );
        }
        assert!(!ahead.is_streaming());
    }
}
