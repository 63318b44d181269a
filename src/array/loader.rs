//! Loading the pieces that a read needs: from the cache, or decoded in parallel.

use std::sync::Arc;

use futures_util::future::select;
use futures_util::pin_mut;

use super::cache::{Claim, Leader, Load, Piece, PieceKey};
use super::reader::ArrayReader;
use crate::runtime::{self, Priority, leave_session_thread};
use crate::store::StoreError;

/// Pieces smaller than this are decoded in groups of about this size by the read that needs them:
/// handing each to another thread would take longer.
const GROUP_BYTES: u64 = 128 << 10;
/// Opening so many keys takes longer than handing them over, however small they are.
const MAX_GROUP: usize = 64;
/// Pieces of one chunk of a remote store that are fetched together.
const FETCHED_GROUP_BYTES: u64 = 4 << 20;
/// How often a piece is tried whose leader was dropped.
const ATTEMPTS: usize = 2;

/// A leader has one load to give away.
fn second_load(key: &PieceKey) -> StoreError {
    StoreError::internal(format!("a second load of chunk {}", key.chunk))
}

type Leaders = Vec<(PieceKey, Leader)>;

impl ArrayReader {
    /// The pieces, if all of them are decoded and current.
    pub(super) fn try_load(&self, keys: &[PieceKey]) -> Option<Vec<Arc<Piece>>> {
        let cache = &self.engine.cache;
        let fresh = |key| cache.get(key).filter(|piece| self.pieces.is_fresh(piece));
        let pieces: Vec<_> = keys.iter().map(fresh).collect::<Option<_>>()?;
        self.engine.count_reused(pieces.len());
        Some(pieces)
    }

    /// The pieces, decoded in parallel where they have to be.
    pub(super) async fn load(
        self: &Arc<Self>,
        keys: &[PieceKey],
    ) -> Result<Vec<Arc<Piece>>, StoreError> {
        enum State {
            Ready(Arc<Piece>),
            Loading(Load),
        }
        let mut states = Vec::with_capacity(keys.len());
        let mut leaders = Leaders::new();
        for key in keys {
            states.push(match self.claim(*key) {
                Claim::Lead(mut leader) => {
                    let load = leader.take_load();
                    leaders.push((*key, leader));
                    State::Loading(load.ok_or_else(|| second_load(key))?)
                }
                Claim::Wait(load) => {
                    // It may stand in the queue of prefetch.
                    runtime::promote_prefetch();
                    State::Loading(load)
                }
                Claim::Ready(piece) => {
                    self.engine.count_reused(1);
                    State::Ready(piece)
                }
            });
        }
        let group = self.group_pieces();
        if !leaders.is_empty() && leaders.len() <= group && group > 1 && !self.pieces.is_remote() {
            leave_session_thread().await;
            self.decode_all(leaders).await;
        } else {
            self.submit(leaders, group, Priority::Demand);
        }
        let mut pieces = Vec::with_capacity(keys.len());
        for (key, state) in keys.iter().zip(states) {
            pieces.push(match state {
                State::Ready(piece) => piece,
                State::Loading(load) => self.wait(*key, load).await?,
            });
        }
        Ok(pieces)
    }

    /// Waits for a piece; decodes it again if it is older than a change that is known by now.
    async fn wait(
        self: &Arc<Self>,
        key: PieceKey,
        mut load: Load,
    ) -> Result<Arc<Piece>, StoreError> {
        let mut attempts = 0;
        loop {
            match load.wait().await {
                Some(result) => {
                    let piece = result?;
                    let is_old = self.pieces.is_distrusted(piece.checked_ms());
                    if !is_old || attempts == ATTEMPTS {
                        return Ok(piece);
                    }
                }
                None if attempts == ATTEMPTS => {
                    return Err(StoreError::Internal {
                        key: self.pieces.chunk_key(key.chunk),
                        what: "the decoder panics on it".into(),
                    });
                }
                None => {}
            }
            attempts += 1;
            load = match self.claim(key) {
                Claim::Ready(piece) => return Ok(piece),
                Claim::Wait(load) => load,
                Claim::Lead(mut leader) => {
                    let load = leader.take_load();
                    self.submit(vec![(key, leader)], 1, Priority::Demand);
                    load.ok_or_else(|| second_load(&key))?
                }
            };
        }
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
        let pieces = group_bytes / self.row_major.geometry.piece_bytes().max(1);
        usize::try_from(pieces)
            .unwrap_or(usize::MAX)
            .clamp(1, MAX_GROUP)
    }

    /// Has pieces decoded by tasks of the CPU pool, so many in each.
    pub(super) fn submit(self: &Arc<Self>, mut leaders: Leaders, group: usize, priority: Priority) {
        if self.pieces.is_remote() {
            // Those of one chunk are fetched together.
            leaders.sort_by_key(|(key, _)| key.chunk);
        }
        while let Some((first, _)) = leaders.first() {
            let chunk = first.chunk;
            let of_chunk = leaders.iter().take_while(|(key, _)| key.chunk == chunk);
            let most = match self.pieces.is_remote() {
                true => group.min(of_chunk.count()),
                false => group,
            };
            let rest = leaders.split_off(most.min(leaders.len()));
            let reader = Arc::clone(self);
            let decode = async move { reader.decode_unless_abandoned(leaders, priority).await };
            runtime::run(priority, move || runtime::spawn_polled(decode).detach());
            leaders = rest;
        }
    }

    /// Decodes pieces; ends, with the requests that it has sent, once no request waits for any of them.
    async fn decode_unless_abandoned(&self, leaders: Leaders, priority: Priority) {
        if priority == Priority::Prefetch || !self.pieces.is_remote() {
            return self.decode_all(leaders).await;
        }
        let notified: Vec<_> = leaders
            .iter()
            .map(|(_, leader)| leader.abandoned())
            .collect();
        let abandoned = async {
            for leader in &notified {
                leader.notified().await;
            }
        };
        let decode = self.decode_all(leaders);
        pin_mut!(abandoned, decode);
        select(abandoned, decode).await;
    }

    async fn decode_all(&self, leaders: Leaders) {
        if self.pieces.is_remote() && leaders.len() > 1 {
            let keys: Vec<PieceKey> = leaders.iter().map(|(key, _)| *key).collect();
            self.pieces.prefetch(&keys, &self.engine).await;
        }
        let mut timed_out = None;
        for (key, leader) in leaders {
            // After a time-out for the memory of one piece, the next one does not wait again.
            let result = match &timed_out {
                Some(error) => Err(StoreError::clone(error)),
                None => {
                    let before = self.engine.cache.get(&key);
                    self.pieces.decode(&key, before, &self.engine).await
                }
            };
            if let Err(error @ StoreError::TimedOut { .. }) = &result {
                timed_out = Some(error.clone());
            }
            leader.complete(result);
        }
    }
}
