//! Turns: mounts that share a disk cache fetch the same bytes one after the other, so that all but the
//! first find them in the cache.

use std::time::{Duration, Instant};

use super::store::RemoteSource;
use crate::runtime;
use crate::store::disk::{Claim, Claimed};

/// Interval between checks of another process's claim: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(16);

/// The right to fetch a value; other mounts wait until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Turn {
    _claim: Option<Claim>,
    /// Whether the caller has waited. Another process has then most likely put the value into the disk cache.
    pub(super) has_waited: bool,
}

impl RemoteSource {
    /// Returns the turn to fetch `name`, of at most `bytes`, if no other process has it.
    pub(super) fn try_turn(&self, name: &[&[u8]], bytes: u64) -> Option<Turn> {
        let Some(disk) = &self.disk else {
            return Some(Turn::default());
        };
        let name = [&[b"turn", self.identity.as_bytes()], name]
            .concat()
            .join(&0);
        let claim = match disk.claim(&name, bytes) {
            Claimed::Held(claim) => Some(claim),
            Claimed::Unknown => None,
            Claimed::Busy => return None,
        };
        Some(Turn {
            _claim: claim,
            has_waited: false,
        })
    }

    /// Waits for the turn to fetch `name`, of at most `bytes`.
    ///
    /// The wait ends after half of the request's time limit: if a process hangs, others are delayed and
    /// then fetch for themselves.
    pub(super) async fn turn(&self, name: &[&[u8]], bytes: u64) -> Turn {
        let started = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut has_waited = false;
        loop {
            if let Some(turn) = self.try_turn(name, bytes) {
                return Turn { has_waited, ..turn };
            }
            has_waited = true;
            if started.elapsed() >= self.timeout / 2 {
                return Turn {
                    _claim: None,
                    has_waited,
                };
            }
            runtime::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}
