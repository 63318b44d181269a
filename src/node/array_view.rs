//! The array that a format renders.

use std::sync::Arc;

use super::number::Number;
use crate::array::ArrayReader;
use crate::node::ViewNode;
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
