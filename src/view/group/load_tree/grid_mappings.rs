//! Grid mappings of a file that are in a group above it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::{MAX_DEPTH, TreeBudget};
use crate::conventions::cf::grid_mapping::names_of;
use crate::node::ContentError;
use crate::store::Key;
use crate::view::file::nodes::Nodes;
use crate::view::group::tree::{GroupArray, GroupTree, TreeScope};

impl Nodes {
    /// Adds the grid mappings that arrays of a tree name and that the tree lacks, from the nearest group above it
    /// (CF 1.13, 2.7: search by proximity). In the file they are in the uppermost group, where the same search
    /// finds them.
    pub(super) async fn inherit_grid_mappings(
        self: &Arc<Self>,
        tree: &mut GroupTree,
        budget: &mut TreeBudget,
    ) -> Result<(), ContentError> {
        for name in missing(tree) {
            let mut group = top(tree);
            for _ in 0..MAX_DEPTH {
                let Ok(key) = group.join(name.as_bytes()) else {
                    break;
                };
                if let Some(node) = self.node_if_present(&key).await?
                    && node.is_array()
                    && node.broken().is_none()
                {
                    budget.take(node.memory_bytes)?;
                    let array = self.load_array(node, TreeScope::Group, false, budget);
                    tree.arrays.push(array.await?);
                    break;
                }
                if group.is_root() {
                    break;
                }
                group = group.parent();
            }
        }
        tree.arrays
            .sort_by(|one, other| one.node.name().cmp(other.node.name()));
        Ok(())
    }
}

/// Returns the group that is the root of the file of a tree.
fn top(tree: &GroupTree) -> Key {
    match tree.node.is_array() {
        true => tree.node.key().parent(),
        false => tree.node.key().clone(),
    }
}

/// Returns the names of grid mappings that a search from the arrays up to the root of the file does not find.
/// Names of its groups are left out.
fn missing(tree: &GroupTree) -> BTreeSet<String> {
    let top = top(tree);
    let arrays = tree.all_arrays();
    let keys: HashSet<&Key> = arrays.iter().map(|array| array.node.key()).collect();
    let is_found = |array: &GroupArray, name: &str| {
        let mut group = array.node.key().clone();
        while group != top && !group.is_root() {
            group = group.parent();
            let key = group.join(name.as_bytes());
            if key.is_ok_and(|key| keys.contains(&key)) {
                return true;
            }
        }
        false
    };
    let groups = tree.groups.iter().map(|group| group.node.name());
    let groups = groups.chain(tree.omitted_groups.iter().map(String::as_str));
    let groups: HashSet<&str> = groups.collect();
    let mut found = BTreeSet::new();
    for array in &arrays {
        let own = array.node.metadata().as_array();
        for name in own.map(names_of).unwrap_or_default() {
            if !groups.contains(name) && !is_found(array, name) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}
