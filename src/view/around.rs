//! What a format gets to see of an array and of the nodes around it.

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
    /// Its metadata.
    pub array: &'a zarr::Array,
    /// The way to its elements.
    pub reader: &'a Arc<ArrayReader>,
}

impl<'a> ArrayView<'a> {
    /// What one element is.
    pub fn data_type(&self) -> &'a Fixed {
        self.reader.chunks().data_type()
    }

    /// What the elements are made of, and how many numbers each is.
    pub fn number(&self) -> Option<(Number, usize)> {
        Number::of(self.data_type())
    }

    /// Elements along each axis.
    pub fn shape(&self) -> &'a [u64] {
        &self.array.shape
    }
}

/// The other nodes of a hierarchy, for formats of an array that need more than its metadata.
pub trait NodeResolver {
    /// The node at a key; none if there is nothing.
    ///
    /// # Errors
    /// Those of the store.
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, NoContent>;

    /// All numbers of a small array in C order.
    ///
    /// # Errors
    /// [`NoContent::Absent`] if they are more than `most` or no numbers; why they cannot be read.
    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, NoContent>;

    /// Whether latitudes and longitudes without a reference system are those of WGS 84.
    fn assumes_wgs84(&self) -> bool;

    /// The sizes and places of the chunks of an array as they are stored.
    ///
    /// # Errors
    /// [`NoContent::Absent`] if they are too many or the node is no array; those of the store.
    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, NoContent>;
}

impl ViewNode {
    /// The node as an array of elements of constant size.
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
