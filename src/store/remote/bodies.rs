//! The memory that bodies of answers may take while they are received and copied: reserved before
//! a request is sent.
//!
//! Readers wait for each other. A caller reserves before it becomes the one that others wait for
//! (`flight`), so that whoever is waited for already has its memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::runtime::Network;

/// Reservations are counted in units of this size.
const UNIT_BYTES: u64 = 4096;

/// Memory for bodies of answers.
#[derive(Debug)]
pub(super) struct Bodies {
    free: Arc<Semaphore>,
    units: u32,
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    _units: OwnedSemaphorePermit,
}

impl Bodies {
    pub(super) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let units = units.min(most);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// More than all memory is never asked for: such a body has all of it to itself.
    fn units(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        units.min(self.units)
    }

    /// Reserves memory; waits for it for at most `limit`.
    pub(super) fn reserve(
        &self,
        bytes: u64,
        network: &Network,
        limit: Duration,
    ) -> Option<Reserved> {
        let units = self.units(bytes);
        let acquired = match Arc::clone(&self.free).try_acquire_many_owned(units) {
            Ok(acquired) => Some(acquired),
            Err(_) => {
                let free = Arc::clone(&self.free);
                let acquired =
                    network.wait(async { timeout(limit, free.acquire_many_owned(units)).await });
                acquired.ok()?.ok()
            }
        };
        acquired.map(|units| Reserved { _units: units })
    }

    /// Reserves memory for what no reader waits for: at once, and only if as much stays free for
    /// readers.
    pub(super) fn reserve_spare(&self, bytes: u64) -> Option<Reserved> {
        let units = self.units(bytes);
        if self.free.available_permits() / 2 < units as usize {
            return None;
        }
        let acquired = Arc::clone(&self.free).try_acquire_many_owned(units);
        acquired.ok().map(|units| Reserved { _units: units })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_waited_for_and_readers_come_first() {
        let network = Network::start().unwrap();
        let bodies = Bodies::new(10 * UNIT_BYTES);
        let soon = Duration::from_millis(20);
        let reserve = |units: u64| bodies.reserve(units * UNIT_BYTES, &network, soon);
        let first = reserve(6).unwrap();
        assert!(reserve(5).is_none());
        assert!(bodies.reserve_spare(3 * UNIT_BYTES).is_none());
        let spare = bodies.reserve_spare(2 * UNIT_BYTES).unwrap();
        drop((first, spare));
        // A body of any size can be received, by itself.
        let all = reserve(1 << 40).unwrap();
        assert!(reserve(1).is_none());
        drop(all);
        let first = reserve(10).unwrap();
        let (bodies, network) = (&bodies, &network);
        std::thread::scope(|scope| {
            let long = Duration::from_secs(20);
            let waits = scope.spawn(move || bodies.reserve(UNIT_BYTES, network, long).is_some());
            std::thread::sleep(soon);
            drop(first);
            assert!(waits.join().unwrap());
        });
    }
}
