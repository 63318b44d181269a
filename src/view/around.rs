//! The view of an array and of the nodes around it that a format receives.

use std::sync::Arc;

use super::content::NoContent;
use super::node::ViewNode;
use super::number::{Number, Value};
use crate::array::{ArrayReader, ChunkTable};
use crate::store::Key;
use crate::zarr::{self, Fixed};

/// An array of elements of constant size.
#[derive(Debug, Clone, Copy)]
pub struct ArrayView<'a> {
    /// The node.
    pub node: &'a ViewNode,
    /// The metadata of the node.
    pub array: &'a zarr::Array,
    /// The reader of the elements.
    pub reader: &'a Arc<ArrayReader>,
}

impl<'a> ArrayView<'a> {
    /// Returns the data type of an element.
    pub fn data_type(&self) -> &'a Fixed {
        self.reader.chunks().data_type()
    }

    /// Returns the type of the numbers in an element, and their count. `None` if the elements are no numbers.
    pub fn number(&self) -> Option<(Number, usize)> {
        Number::of(self.data_type())
    }

    /// Returns the number of elements along each axis.
    pub fn shape(&self) -> &'a [u64] {
        &self.array.shape
    }
}

/// The other nodes of a hierarchy, for formats of an array that need more than its metadata.
pub trait NodeResolver {
    /// Returns the node at a key; `None` if the store has no such prefix.
    ///
    /// # Errors
    /// Errors of the store.
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, NoContent>;

    /// Returns all numbers of a small array in C order.
    ///
    /// # Errors
    /// [`NoContent::Absent`] for more than `most` numbers or no numbers; else why the array cannot be read.
    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, NoContent>;

    /// Returns whether latitudes and longitudes without a reference system are those of WGS 84.
    fn assumes_wgs84(&self) -> bool;

    /// Returns the sizes and offsets of the stored chunks of an array.
    ///
    /// # Errors
    /// [`NoContent::Absent`] if the array has too many chunks or the node is no array; errors of the store.
    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, NoContent>;
}

impl ViewNode {
    /// Returns whether the node is an array along one dimension of this name and length that also has this name.
    pub fn is_coordinate_of(&self, dimension: &str, length: u64) -> bool {
        let is_along = |array: &zarr::Array| {
            let names = array.dimension_names.iter().flatten();
            array.shape == [length] && names.eq([dimension])
        };
        self.name() == dimension && self.metadata().as_array().is_some_and(is_along)
    }

    /// Returns the node as an array of elements of constant size; `None` for other nodes.
    pub fn array_view(&self) -> Option<ArrayView<'_>> {
        let zarr::Node::Array(array) = self.metadata() else {
            return None;
        };
        Some(ArrayView {
            node: self,
            array,
            reader: self.reader()?,
        })
    }
}
