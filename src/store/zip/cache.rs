//! Entries in memory, or 4 MiB segments of big ones: least recently used first out, by bytes.

use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use crate::store::Position;

/// Which bytes: an entry and the number of the segment in it.
pub(super) type Piece = (Position, u32);

#[derive(Debug)]
pub(super) struct PieceCache {
    budget_bytes: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    pieces: LruCache<Piece, Arc<Vec<u8>>>,
    bytes: usize,
}

impl PieceCache {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes: usize::try_from(budget_bytes).unwrap_or(usize::MAX),
            inner: Mutex::new(Inner {
                pieces: LruCache::unbounded(),
                bytes: 0,
            }),
        }
    }

    pub(super) fn get(&self, piece: Piece) -> Option<Arc<Vec<u8>>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.pieces.get(&piece).map(Arc::clone)
    }

    /// Keeps a piece. The newest piece always stays, even if it alone is over the budget: the
    /// reader that waited for it has not got it yet.
    pub(super) fn insert(&self, piece: Piece, bytes: Arc<Vec<u8>>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.bytes = inner.bytes.saturating_add(bytes.len());
        if let Some(old) = inner.pieces.put(piece, bytes) {
            inner.bytes = inner.bytes.saturating_sub(old.len());
        }
        while inner.bytes > self.budget_bytes && inner.pieces.len() > 1 {
            let Some((_, old)) = inner.pieces.pop_lru() else {
                break;
            };
            inner.bytes = inner.bytes.saturating_sub(old.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(n: u32) -> Piece {
        (Position(n), 0)
    }

    #[test]
    fn the_budget_counts_bytes_and_the_newest_piece_stays() {
        let cache = PieceCache::new(100);
        for n in 0..4 {
            cache.insert(piece(n), Arc::new(vec![0; 40]));
        }
        let kept: Vec<u32> = (0..4).filter(|n| cache.get(piece(*n)).is_some()).collect();
        assert_eq!(kept, [2, 3]);
        cache.insert(piece(9), Arc::new(vec![0; 1000]));
        assert!(cache.get(piece(9)).is_some() && cache.get(piece(3)).is_none());
        cache.insert(piece(1), Arc::new(vec![0; 10]));
        cache.insert(piece(1), Arc::new(vec![0; 10]));
        cache.insert(piece(2), Arc::new(vec![0; 80]));
        assert!(
            cache.get(piece(1)).is_some(),
            "a piece that is put twice is counted once"
        );
    }
}
