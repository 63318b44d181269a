//! Caching that no module owns: budgets by weight, and one load for many waiters.

mod single_flight;
mod weighted_lru;

pub use single_flight::SingleFlight;
pub use weighted_lru::WeightedLru;
