//! Values and ranges of values: cached, or fetched once for all readers.

pub(super) mod blocks;
pub(super) mod cached;
pub(super) mod fetch_guard;
pub(super) mod speculation;
pub(super) mod value;
pub(super) mod whole_objects;
