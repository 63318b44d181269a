//! The memory that remote sources share: cached bytes, and response bodies in flight.

mod body_budget;
mod range_cache;

pub(super) use body_budget::{BodyBudget, ReservedBody};
pub(super) use range_cache::{RangeCache, RangeKey, ReaderRegistration};

use std::sync::{Arc, OnceLock};

/// Memory for cached bytes and for response bodies. Clones share the memory.
#[derive(Debug, Clone, Default)]
pub struct RemoteMemory(Arc<OnceLock<(Arc<RangeCache>, Arc<BodyBudget>)>>);

impl RemoteMemory {
    /// The first call sets the limit.
    pub(super) fn get(&self, bytes: u64) -> (Arc<RangeCache>, Arc<BodyBudget>) {
        let make = || {
            let ranges = RangeCache::new(bytes);
            let body_budget = BodyBudget::new(bytes.saturating_mul(2));
            (Arc::new(ranges), Arc::new(body_budget))
        };
        self.0.get_or_init(make).clone()
    }
}
