//! Checks the CRC-32 of stored entries as they are read piece by piece, in any order.

use flate2::Crc;
use lru::LruCache;

use crate::store::Position;

/// Entries that are being read at the same time; the oldest is forgotten, and checked another time.
const MAX_ENTRIES: usize = 4096;
/// Separate pieces of one entry; random reads beyond that are not followed.
const MAX_PIECES: usize = 64;

/// What has been seen so far of entries that have not been read whole yet.
#[derive(Debug)]
pub(super) struct CheckProgress {
    entries: LruCache<Position, Vec<Piece>>,
}

/// A run of bytes of an entry, and their checksum.
#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    crc: Crc,
}

impl Default for CheckProgress {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded(),
        }
    }
}

impl CheckProgress {
    /// Notes the checksum of the bytes from `start`; returns that of the whole entry as soon as
    /// all of it has been seen.
    pub(super) fn add(
        &mut self,
        entry: Position,
        start: u64,
        length: u64,
        crc: Crc,
        entry_bytes: u64,
    ) -> Option<u32> {
        let end = start.saturating_add(length);
        let pieces = self.entries.get_or_insert_mut(entry, Vec::new);
        let place = pieces.partition_point(|piece| piece.start < start);
        let overlaps = place
            .checked_sub(1)
            .and_then(|i| pieces.get(i))
            .is_some_and(|p| p.end > start)
            || pieces.get(place).is_some_and(|p| p.start < end);
        if overlaps || length == 0 {
            return None;
        }
        if pieces.len() < MAX_PIECES {
            pieces.insert(place, Piece { start, end, crc });
            join_touching(pieces);
        }
        let whole = match pieces.as_slice() {
            [piece] if piece.start == 0 && piece.end == entry_bytes => Some(piece.crc.sum()),
            _ => None,
        };
        if whole.is_some() {
            self.entries.pop(&entry);
        }
        if self.entries.len() > MAX_ENTRIES {
            self.entries.pop_lru();
        }
        whole
    }
}

/// Joins pieces where one begins at the other's end.
fn join_touching(pieces: &mut Vec<Piece>) {
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
    fn pieces_in_any_order_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let orders: [&[usize]; 4] = [
            &[0, 1, 2, 3],
            &[3, 2, 1, 0],
            &[1, 3, 0, 2],
            &[0, 0, 2, 2, 1, 3],
        ];
        for order in orders {
            let mut progress = CheckProgress::default();
            let mut whole = None;
            for &i in order {
                let part = &bytes[i * 250..(i + 1) * 250];
                assert_eq!(whole, None);
                whole = progress.add(Position(1), i as u64 * 250, 250, crc(part), 1000);
            }
            assert_eq!(whole, Some(crc(&bytes).sum()), "{order:?}");
        }
    }

    #[test]
    fn what_is_not_whole_is_not_judged() {
        let mut progress = CheckProgress::default();
        for i in 0..200 {
            assert_eq!(
                progress.add(Position(1), i * 20, 10, crc(&[0; 10]), 1 << 20),
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
