//! Checks the CRC-32 of stored entries that are read in pieces, in any order.

use std::ops::Range;

use flate2::Crc;
use lru::LruCache;

use crate::store::Position;

/// Number of entries that are tracked; the least recently used one is dropped, and checked another time.
const MAX_ENTRIES: usize = 4096;
/// Number of separate pieces of one entry; beyond it the shortest piece is dropped.
const MAX_PIECES: usize = 4096;
/// Number of pieces of all entries together; beyond it the least recently read entries are dropped.
const MAX_ALL_PIECES: usize = 1 << 16;

/// The checked ranges of entries which were not read completely.
#[derive(Debug)]
pub(super) struct CrcProgress {
    entries: LruCache<Position, Vec<CheckedRange>>,
    /// Number of pieces of all entries.
    pieces: usize,
}

/// A run of bytes of an entry, and their checksum.
#[derive(Debug)]
struct CheckedRange {
    start: u64,
    end: u64,
    crc: Crc,
}

impl Default for CrcProgress {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded(),
            pieces: 0,
        }
    }
}

impl CrcProgress {
    /// Returns the parts from `start` to `end` that were not read before. Parts that could not be
    /// recorded are omitted, because computing their checksums would be wasted work.
    pub(super) fn unseen(&mut self, entry: Position, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut unseen = Vec::new();
        let mut at = start;
        let pieces = self.entries.get(&entry).map_or(&[][..], Vec::as_slice);
        let is_full = pieces.len() >= MAX_PIECES;
        let first = pieces.partition_point(|piece| piece.end < start);
        let pieces = pieces.get(first..).unwrap_or_default();
        let touches = pieces.first().is_some_and(|piece| piece.start <= end);
        if is_full && !touches && start > 0 {
            return unseen;
        }
        for piece in pieces {
            if piece.start >= end {
                break;
            }
            if piece.start > at {
                unseen.push(at..piece.start);
            }
            at = at.max(piece.end);
        }
        if at < end {
            unseen.push(at..end);
        }
        unseen
    }

    /// Records the checksum of the bytes from `start` to `end`, if none of them was recorded before;
    /// returns the checksum of the whole entry once all of it was recorded.
    pub(super) fn add(
        &mut self,
        entry: Position,
        start: u64,
        end: u64,
        crc: Crc,
        entry_bytes: u64,
    ) -> Option<u32> {
        let pieces = self.entries.get_or_insert_mut(entry, Vec::new);
        let count = pieces.len();
        let place = pieces.partition_point(|piece| piece.start < start);
        let before = place.checked_sub(1).and_then(|i| pieces.get(i));
        let overlaps = before.is_some_and(|piece| piece.end > start)
            || pieces.get(place).is_some_and(|piece| piece.start < end);
        if !overlaps && start < end {
            pieces.insert(place, CheckedRange { start, end, crc });
            join_touching(pieces);
            if pieces.len() > MAX_PIECES {
                drop_shortest(pieces);
            }
        }
        let whole = match pieces.as_slice() {
            [piece] if piece.start == 0 && piece.end == entry_bytes => Some(piece.crc.sum()),
            _ => None,
        };
        self.pieces = self
            .pieces
            .saturating_add(pieces.len())
            .saturating_sub(count);
        if whole.is_some() {
            self.entries.pop(&entry);
            self.pieces = self.pieces.saturating_sub(1);
        }
        while self.entries.len() > MAX_ENTRIES || self.pieces > MAX_ALL_PIECES {
            let Some((_, forgotten)) = self.entries.pop_lru() else {
                break;
            };
            self.pieces = self.pieces.saturating_sub(forgotten.len());
        }
        whole
    }
}

/// Drops the shortest piece. A sequential reader makes one long piece, which stays.
fn drop_shortest(pieces: &mut Vec<CheckedRange>) {
    let lengths = pieces
        .iter()
        .map(|piece| piece.end.saturating_sub(piece.start));
    if let Some((shortest, _)) = lengths.enumerate().min_by_key(|(_, length)| *length) {
        pieces.remove(shortest);
    }
}

/// Joins adjacent pieces.
fn join_touching(pieces: &mut Vec<CheckedRange>) {
    pieces.dedup_by(|next, piece| {
        let touch = piece.end == next.start;
        if touch {
            piece.crc.combine(&next.crc);
            piece.end = next.end;
        }
        touch
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> Crc {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc
    }

    #[test]
    fn parts_in_any_order_have_the_checksum_of_the_whole_entry() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let orders: [&[usize]; 4] = [
            &[0, 1, 2, 3],
            &[3, 2, 1, 0],
            &[1, 3, 0, 2],
            &[0, 0, 2, 2, 1, 3],
        ];
        for order in orders {
            let mut progress = CrcProgress::default();
            let mut whole = None;
            for &i in order {
                let part = &bytes[i * 250..(i + 1) * 250];
                assert_eq!(whole, None);
                let start = i as u64 * 250;
                whole = progress.add(Position(1), start, start + 250, crc(part), 1000);
            }
            assert_eq!(whole, Some(crc(&bytes).sum()), "{order:?}");
        }
    }

    #[test]
    fn a_complete_read_is_verified_regardless_of_earlier_reads() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 31 % 253) as u8).collect();
        let mut progress = CrcProgress::default();
        let mut read = |start: u64, end: u64| {
            let mut whole = None;
            for part in progress.unseen(Position(1), start, end) {
                let [from, to] = [part.start, part.end].map(|at| usize::try_from(at).unwrap());
                let seen = crc(&bytes[from..to]);
                whole = progress
                    .add(Position(1), part.start, part.end, seen, 100_000)
                    .or(whole);
            }
            whole
        };
        for i in 0..200 {
            assert_eq!(read(i * 37 * 13 % 99_000, i * 37 * 13 % 99_000 + 100), None);
        }
        let whole: Vec<_> = (0..10)
            .filter_map(|i| read(i * 10_000, (i + 1) * 10_000))
            .collect();
        assert_eq!(whole, [crc(&bytes).sum()]);
    }

    #[test]
    fn an_incomplete_read_is_not_verified() {
        let mut progress = CrcProgress::default();
        for i in 0..200 {
            assert_eq!(
                progress.add(Position(1), i * 20, i * 20 + 10, crc(&[0; 10]), 1 << 20),
                None
            );
        }
        for entry in 2..10_000 {
            assert_eq!(
                progress.add(Position(entry), 0, 10, crc(&[0; 10]), 20),
                None
            );
        }
        assert!(progress.entries.len() <= MAX_ENTRIES);
    }
}
