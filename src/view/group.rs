//! A group with the arrays and groups in it, as the formats of groups need it.

pub(super) mod column;
mod decoded;
mod load_tree;
mod null_rows;
pub(super) mod table;
pub(super) mod tree;
