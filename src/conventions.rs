//! What attributes say about data: one file for each convention, and one [`description`] that formats carry.
//!
//! A convention takes attributes (JSON) and returns parts of a description. It reads nothing, so each rule is
//! tested without a store. A member that a convention has and that is not understood becomes a note, never
//! silence: the notes are diagnostics of the views that they concern.

pub mod affine;
pub mod description;
pub mod n5;
pub mod ome;
pub mod units;
