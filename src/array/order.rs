//! The orders in which the elements of an array are read.

use super::geometry::Geometry;
use crate::store::Readahead;

/// An order of the bytes of an array, and its readers.
#[derive(Debug)]
pub(super) struct ElementOrder {
    pub(super) geometry: Geometry,
    pub(super) readahead: Readahead,
}

impl ElementOrder {
    pub(super) fn over(geometry: Geometry) -> Self {
        Self {
            geometry,
            readahead: Readahead::default(),
        }
    }
}
