//! What is known about names: attributes, absence, listings, and how long each of them is trusted.

pub(super) mod attr_cache;
pub(super) mod attributes;
pub(super) mod listing;
pub(super) mod revalidate;
pub(super) mod write_times;
