//! Caches that belong to no single module: weighted LRU maps and single flights.

mod single_flight;
mod weighted_lru;

pub use single_flight::{SingleFlight, Waiter};
pub use weighted_lru::WeightedLru;
