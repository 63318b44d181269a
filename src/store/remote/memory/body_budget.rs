//! Limits the memory of response bodies while they are received and copied; it is reserved before a
//! request is sent.

use std::sync::Arc;
use std::time::Duration;

use crate::runtime;
use crate::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit of reservations in bytes.
const UNIT_BYTES: u64 = 4096;

/// The memory limit of response bodies.
#[derive(Debug)]
pub(in crate::store::remote) struct BodyBudget {
    free: Arc<Semaphore>,
    units: u32,
}

/// Reserved memory, released on drop.
#[derive(Debug)]
pub(in crate::store::remote) struct ReservedBody {
    _units: OwnedSemaphorePermit,
}

impl BodyBudget {
    pub(in crate::store::remote) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let units = units.min(most);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Returns the reserved memory; `None` if there is none.
    #[cfg(test)]
    pub(in crate::store::remote) fn in_use(&self) -> Option<String> {
        let used = self.units as usize - self.free.available_permits();
        (used > 0).then(|| format!("{used} units of memory for bodies"))
    }

    /// Returns the number of units; a body that is larger than the limit reserves all of the memory.
    fn units(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        units.min(self.units)
    }

    /// Reserves memory, waiting for at most `limit`.
    pub(in crate::store::remote) async fn reserve(
        &self,
        bytes: u64,
        limit: Duration,
    ) -> Option<ReservedBody> {
        let acquire = Arc::clone(&self.free).acquire_many_owned(self.units(bytes));
        let units = runtime::timeout(limit, acquire).await?.ok()?;
        Some(ReservedBody { _units: units })
    }

    /// Reserves memory for a prefetch: without waiting, and only if as much stays free for requests.
    pub(in crate::store::remote) fn try_reserve_spare(&self, bytes: u64) -> Option<ReservedBody> {
        let units = self.units(bytes);
        if self.free.available_permits() / 2 < units as usize {
            return None;
        }
        let acquired = Arc::clone(&self.free).try_acquire_many_owned(units);
        acquired.ok().map(|units| ReservedBody { _units: units })
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;

    #[test]
    fn a_request_waits_for_the_budget_and_has_priority_over_prefetch() {
        let body_budget = BodyBudget::new(10 * UNIT_BYTES);
        let soon = Duration::from_millis(20);
        let reserve = |units: u64| block_on(body_budget.reserve(units * UNIT_BYTES, soon));
        let first = reserve(6).unwrap();
        assert!(reserve(5).is_none());
        assert!(body_budget.try_reserve_spare(3 * UNIT_BYTES).is_none());
        let spare = body_budget.try_reserve_spare(2 * UNIT_BYTES).unwrap();
        drop((first, spare));
        // A body of any size can be received, if it is the only one.
        let all = reserve(1 << 40).unwrap();
        assert!(reserve(1).is_none());
        drop(all);
        let (body_budget, first) = (&body_budget, reserve(10).unwrap());
        std::thread::scope(|scope| {
            let long = Duration::from_secs(20);
            let waits =
                scope.spawn(move || block_on(body_budget.reserve(UNIT_BYTES, long)).is_some());
            std::thread::sleep(soon);
            drop(first);
            assert!(waits.join().unwrap());
        });
    }
}
