//! The orders in which an array is read.

use super::geometry::Geometry;
use crate::store::Ahead;

/// One order of the bytes of an array, and its readers.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) geometry: Geometry,
    pub(super) ahead: Ahead,
}

impl Course {
    pub(super) fn over(geometry: Geometry) -> Self {
        Self {
            geometry,
            ahead: Ahead::default(),
        }
    }
}
