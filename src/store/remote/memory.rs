//! The memory that remote sources share: cached bytes, and response bodies in flight.

pub(super) mod body_budget;
pub(super) mod range_cache;
