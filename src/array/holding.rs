//! Getting the pieces that a read needs: from the cache, or decoded in parallel.

use std::sync::Arc;

use super::cache::{Claim, Lead, Outcome, Piece, PieceKey};
use super::engine::timed_out;
use super::pool::Lane;
use super::reader::ArrayReader;
use crate::store::StoreError;

/// Pieces smaller than this are decoded in groups of about this size, by who reads them: handing
/// one to another thread would take longer.
const GROUP_BYTES: u64 = 128 << 10;
/// Opening so many keys takes longer than handing them over, however small they are.
const MAX_GROUP: usize = 64;
/// Pieces of one chunk of a store that is far away that are fetched together.
const FETCHED_GROUP_BYTES: u64 = 4 << 20;
/// How often a piece is tried whose decoder has gone without a word.
const ATTEMPTS: usize = 2;

impl ArrayReader {
    /// The pieces, if all of them are decoded and current.
    pub(super) fn held_now(&self, keys: &[PieceKey]) -> Result<Vec<Arc<Piece>>, StoreError> {
        let cache = &self.engine.cache;
        let held = |key: &PieceKey| {
            let piece = cache.get(key).filter(|piece| self.pieces.is_fresh(piece));
            piece.ok_or_else(|| StoreError::WouldWait {
                key: self.pieces.chunk_key(key.chunk),
            })
        };
        let pieces: Vec<_> = keys.iter().map(held).collect::<Result<_, _>>()?;
        self.engine.count_reused(pieces.len());
        Ok(pieces)
    }

    /// The pieces, decoded in parallel where they have to be.
    pub(super) fn hold(self: &Arc<Self>, keys: &[PieceKey]) -> Result<Vec<Arc<Piece>>, StoreError> {
        let mut claims = Vec::new();
        let mut leads = Vec::new();
        for key in keys {
            let claim = match self.claim(*key) {
                Claim::Lead(lead) => {
                    let flight = lead.flight();
                    leads.push((*key, lead));
                    Claim::Follow(flight)
                }
                Claim::Follow(flight) => {
                    // It may stand in the queue of what is only ahead.
                    self.engine.pool.promote();
                    Claim::Follow(flight)
                }
                Claim::Ready(piece) => {
                    self.engine.count_reused(1);
                    Claim::Ready(piece)
                }
            };
            claims.push(claim);
        }
        let group = self.group_pieces();
        if leads.len() <= group && group > 1 && !self.pieces.is_remote() {
            self.decode_all(leads);
        } else {
            self.submit(leads, group, Lane::Wanted);
        }
        let deadline = self.engine.deadline();
        let mut held = Vec::with_capacity(claims.len());
        for (key, mut claim) in keys.iter().zip(claims) {
            let mut attempts = 0;
            let piece = loop {
                match claim {
                    Claim::Ready(piece) => break piece,
                    Claim::Lead(lead) => {
                        let flight = lead.flight();
                        self.submit(vec![(*key, lead)], 1, Lane::Wanted);
                        claim = Claim::Follow(flight);
                    }
                    Claim::Follow(flight) => match flight.wait(deadline) {
                        Some(Outcome::Done(result)) => {
                            let piece = result?;
                            // It may have been opened before a change that is known by now.
                            let is_old = self.pieces.is_distrusted(piece.checked_ms());
                            if !is_old || attempts == ATTEMPTS {
                                break piece;
                            }
                            attempts += 1;
                            claim = self.claim(*key);
                        }
                        Some(Outcome::Abandoned) if attempts < ATTEMPTS => {
                            attempts += 1;
                            claim = self.claim(*key);
                        }
                        Some(Outcome::Abandoned) => {
                            return Err(StoreError::Internal {
                                key: self.pieces.chunk_key(key.chunk),
                                what: "the decoder panics on it".into(),
                            });
                        }
                        None => {
                            return Err(timed_out(&self.pieces.chunk_key(key.chunk), "chunk"));
                        }
                    },
                }
            };
            held.push(piece);
        }
        Ok(held)
    }

    pub(super) fn claim(&self, key: PieceKey) -> Claim {
        let is_fresh = |piece: &Piece| self.pieces.is_fresh(piece);
        self.engine.cache.claim(key, is_fresh)
    }

    /// How many pieces are decoded by one task.
    pub(super) fn group_pieces(&self) -> usize {
        let group_bytes = match (self.pieces.is_remote(), self.pieces.has_inner()) {
            (true, true) => FETCHED_GROUP_BYTES,
            // One request for each, all at the same time.
            (true, false) => 0,
            (false, _) => GROUP_BYTES,
        };
        let pieces = group_bytes / self.rows.geometry.piece_bytes().max(1);
        usize::try_from(pieces)
            .unwrap_or(usize::MAX)
            .clamp(1, MAX_GROUP)
    }

    pub(super) fn submit(
        self: &Arc<Self>,
        mut leads: Vec<(PieceKey, Lead)>,
        group: usize,
        lane: Lane,
    ) {
        if self.pieces.is_remote() {
            // Those of one chunk are fetched together.
            leads.sort_by_key(|(key, _)| key.chunk);
        }
        while let Some((first, _)) = leads.first() {
            let chunk = first.chunk;
            let of_chunk = leads.iter().take_while(|(key, _)| key.chunk == chunk);
            let most = match self.pieces.is_remote() {
                true => group.min(of_chunk.count()),
                false => group,
            };
            let rest = leads.split_off(most.min(leads.len()));
            let reader = Arc::clone(self);
            self.engine
                .pool
                .submit(lane, move || reader.decode_all(leads));
            leads = rest;
        }
    }

    fn decode_all(&self, leads: Vec<(PieceKey, Lead)>) {
        if self.pieces.is_remote() && leads.len() > 1 {
            let keys: Vec<PieceKey> = leads.iter().map(|(key, _)| *key).collect();
            self.pieces.prepare(&keys, &self.engine);
        }
        let mut is_too_late = None;
        for (key, lead) in leads {
            // Who has waited for the memory of one piece does not wait for that of the next.
            let result = match &is_too_late {
                Some(error) => Err(StoreError::clone(error)),
                None => {
                    let before = self.engine.cache.get(&key);
                    self.pieces.decode(&key, before, &self.engine)
                }
            };
            if let Err(error @ StoreError::TimedOut { .. }) = &result {
                is_too_late = Some(error.clone());
            }
            lead.finish(result);
        }
    }
}
