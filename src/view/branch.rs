//! A group with all that is below it: what the formats of groups are made of.

use std::sync::Arc;

use super::categories::CategoricalColumn;
use super::georef::grid::Grid;
use super::node::ViewNode;
use super::packed::StoredChunks;
use crate::store::Key;

/// How much of a hierarchy is in a file of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The arrays in the group itself.
    Own,
    /// Also the groups in it that are columns of a table.
    Table,
    /// Also the groups in it, and so on.
    All,
    /// The same for a file that has the hierarchy as it is: with more text, with structures that have text in
    /// them, and without georeferencing.
    Raw,
}

impl Depth {
    /// Whether no group below is in the file.
    pub(super) fn is_one_group(self) -> bool {
        matches!(self, Self::Own | Self::Table)
    }
}

/// A group, its arrays and its groups, each in the order of their names.
#[derive(Debug, Clone)]
pub struct GroupTree {
    /// The group itself.
    pub node: Arc<ViewNode>,
    /// Its arrays.
    pub arrays: Vec<GroupArray>,
    /// Its groups; directories that no document names are left out unless an array or a group is in
    /// them.
    pub groups: Vec<GroupTree>,
    /// Its groups that are categorical columns ([`Depth::Table`]).
    pub(super) categorical: Vec<CategoricalColumn>,
    /// Names of its groups that were not asked for.
    pub groups_left_out: Vec<String>,
    /// Nodes in it, and in directories that are left out, of which it is not known what they are or
    /// how to call them, and why.
    pub left_out: Vec<(Key, String)>,
}

impl GroupTree {
    /// Why there is no file, where no array is a variable of it; `notes` say what was left out.
    pub(super) fn without_variables(&self, notes: Vec<String>) -> String {
        let names = &self.groups_left_out;
        if !self.all_arrays().is_empty() || !self.left_out.is_empty() {
            let why = notes.into_iter().next();
            return why.unwrap_or_else(|| "no array in it has a variable".into());
        }
        match names.is_empty() {
            true => "no array is in it".into(),
            false => format!(
                "no array is in the group itself: {} have files of their own",
                names.join(", ")
            ),
        }
    }

    /// All arrays, also those of its groups, to be changed.
    pub(super) fn all_arrays_mut(&mut self) -> Vec<&mut GroupArray> {
        let below = self.groups.iter_mut().flat_map(Self::all_arrays_mut);
        self.arrays.iter_mut().chain(below).collect()
    }

    /// All arrays, also those of its groups.
    pub(super) fn all_arrays(&self) -> Vec<&GroupArray> {
        let below = self.groups.iter().flat_map(Self::all_arrays);
        self.arrays.iter().chain(below).collect()
    }
}

/// An array of a group.
#[derive(Debug, Clone)]
pub struct GroupArray {
    /// The array.
    pub node: Arc<ViewNode>,
    /// Its elements, decoded, where they are text that no file can be filled from directly; or why
    /// they are not.
    pub texts: Option<DecodedTexts>,
    /// Its elements as bytes, where they are structures with text in them ([`Depth::Raw`]); or why they are
    /// not.
    pub records: Option<Result<Arc<Vec<u8>>, String>>,
    /// Where its elements are, if that is not said in the way of CF.
    pub(super) grid: Option<Arc<Grid>>,
    /// Its chunks as they are stored, for a file that has them, or why the file has decoded elements.
    pub(super) stored: Option<Result<StoredChunks, String>>,
}

/// Decoded text in C order, or why there is none.
pub type DecodedTexts = Result<Arc<Vec<String>>, String>;
