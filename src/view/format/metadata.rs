//! Texts about a node: its attributes, its metadata and the list of its views.

pub(in crate::view) mod readme;
mod stale_copies;
mod view_list;
