//! A group with all that is below it: what the formats of groups are made of.

use std::sync::Arc;

use super::georef::grid::Grid;
use super::node::ViewNode;
use crate::store::Key;

/// How much of a hierarchy is in a file of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The arrays in the group itself.
    Own,
    /// Also the groups in it, and so on.
    All,
}

/// A group, its arrays and its groups, each in the order of their names.
#[derive(Debug, Clone)]
pub struct Branch {
    /// The group itself.
    pub node: Arc<ViewNode>,
    /// Its arrays.
    pub arrays: Vec<Leaf>,
    /// Its groups; those without an array below them are left out.
    pub groups: Vec<Branch>,
    /// Names of its groups that were not asked for.
    pub groups_left_out: Vec<String>,
    /// Nodes in it, and in groups without arrays below it, that nobody can tell what they are or
    /// how to call them, and why.
    pub left_out: Vec<(Key, String)>,
}

/// An array of a group.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The array.
    pub node: Arc<ViewNode>,
    /// Its elements, decoded, where they are text that no file can be filled from directly; or why
    /// they are not.
    pub texts: Option<DecodedTexts>,
    /// Where its elements are, if that is not said in the way of CF.
    pub(super) grid: Option<Arc<Grid>>,
}

/// Decoded text in C order, or why there is none.
pub type DecodedTexts = Result<Arc<Vec<String>>, String>;
