//! The other nodes of a hierarchy and the numbers of small arrays, as pure functions ask for them.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::{ContentError, Value, ViewNode};
use crate::array::ChunkTable;
use crate::store::Key;

/// The other nodes of a hierarchy, for conventions and formats that need more than the metadata of a node.
pub trait NodeResolver {
    /// Returns the node at a key; `None` if the store has no such prefix.
    ///
    /// # Errors
    /// Errors of the store.
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, ContentError>;

    /// Returns all numbers of a small array in C order.
    ///
    /// # Errors
    /// [`ContentError::Absent`] for more than `most` numbers or no numbers; else why the array cannot be read.
    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, ContentError>;

    /// Returns all texts of a small array in C order.
    ///
    /// # Errors
    /// [`ContentError::Absent`] for too much text or no text; else why the array cannot be read.
    fn texts(&self, node: &ViewNode) -> Result<Arc<Vec<String>>, ContentError>;

    /// Returns at most `most` arrays and groups of a group; none if the store does not list all of them.
    ///
    /// # Errors
    /// Errors of the store.
    fn members(&self, group: &Key, most: usize) -> Result<Arc<Members>, ContentError>;

    /// Returns whether latitudes and longitudes without a reference system are those of WGS 84.
    fn assumes_wgs84(&self) -> bool;

    /// Returns the sizes and offsets of the stored chunks of an array.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if the array has too many chunks or the node is no array; errors of the store.
    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, ContentError>;
}

/// Arrays and groups of a group, and what follows from all of them together.
#[derive(Debug, Default)]
pub struct Members {
    nodes: Vec<Arc<ViewNode>>,
    conclusion: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Members {
    /// Creates the members of a group.
    pub fn new(nodes: Vec<Arc<ViewNode>>) -> Self {
        Self {
            nodes,
            conclusion: OnceLock::new(),
        }
    }

    /// Returns the arrays and groups.
    pub fn nodes(&self) -> &[Arc<ViewNode>] {
        &self.nodes
    }

    /// Returns what follows from the members. The first kind of conclusion is kept, because each array of the group
    /// asks for it; another one is made each time.
    pub fn conclusion<T: Conclusion>(&self) -> T {
        let conclude = || T::of_members(&self.nodes);
        let kept = self.conclusion.get_or_init(|| Box::new(conclude()));
        kept.downcast_ref().copied().unwrap_or_else(conclude)
    }
}

/// What follows from the members of a group together.
pub trait Conclusion: Copy + Send + Sync + 'static {
    /// Concludes from arrays and groups, and from nothing else.
    fn of_members(members: &[Arc<ViewNode>]) -> Self;
}
