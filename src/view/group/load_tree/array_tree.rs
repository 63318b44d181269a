//! The tree of a file of one array: the array with its coordinates, their boundaries and its grid mapping.

use std::collections::HashMap;
use std::sync::Arc;

use super::MAX_DEPTH;
use crate::conventions::cf::coordinates;
use crate::node::{ContentError, ViewNode};
use crate::store::Key;
use crate::view::file::nodes::Nodes;
use crate::view::group::tree::{GroupTree, TreeScope};
use crate::zarr::Array;

/// The maximum number of arrays in addition to the array itself.
const MAX_MEMBERS: usize = 64;

impl Nodes {
    /// Returns an array with the arrays that a file needs to be complete: the coordinates of its dimensions and those
    /// that attributes name, their boundaries, and grid mappings. Each is that of the nearest group (CF 1.13, 2.7).
    /// The tree is that of the array's group, with its attributes; of an array without a group, that of the array.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if the metadata are too long, or the coordinates too many, for one file; errors of the
    /// store.
    pub(in crate::view) async fn array_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<GroupTree, ContentError> {
        let group = match node.key().is_root() {
            true => Arc::clone(node),
            false => self.node(&node.key().parent()).await?,
        };
        let mut members = vec![Arc::clone(node)];
        if let Some(array) = node.metadata().as_array() {
            self.add_coordinates(array, &group, &mut members).await?;
        }
        members.sort_by(|one, other| one.name().cmp(other.name()));
        let has_crs = self.is_below_crs(node).await?;
        let mut budget = self.budget(true);
        let mut arrays = Vec::with_capacity(members.len());
        for member in members {
            budget.take(member.memory_bytes)?;
            let array = self.load_array(member, TreeScope::Subtree, has_crs, &mut budget);
            arrays.push(array.await?);
        }
        let mut tree = GroupTree::of_arrays(&group, arrays);
        self.inherit_grid_mappings(&mut tree, &mut budget).await?;
        Ok(tree)
    }

    /// Adds the coordinates of an array in a group to `members`, and then their boundaries.
    async fn add_coordinates(
        self: &Arc<Self>,
        array: &Array,
        group: &ViewNode,
        members: &mut Vec<Arc<ViewNode>>,
    ) -> Result<(), ContentError> {
        let lengths: HashMap<&str, u64> = (array.dimension_names.iter())
            .zip(&array.shape)
            .filter_map(|(name, length)| Some((name.as_deref()?, *length)))
            .collect();
        for name in coordinates::names_of(array) {
            // An array with the name of a dimension may have other axes, and is then no coordinate of it.
            let is_coordinate = |of: &Array| match lengths.get(name) {
                Some(length) => of.shape == [*length],
                None => true,
            };
            self.add_nearest(group.key(), name, is_coordinate, members)
                .await?;
        }
        let attributes = group.metadata().attributes();
        let named = attributes.map(coordinates::names_of_group);
        let is_along = |name: &Option<String>| {
            let name = name.as_deref();
            name.is_some_and(|name| lengths.contains_key(name))
        };
        let applies = |of: &Array| of.dimension_names.iter().all(is_along);
        for name in named.unwrap_or_default() {
            self.add_nearest(group.key(), name, applies, members)
                .await?;
        }
        let found = members.clone();
        let found = found
            .iter()
            .filter_map(|node| node.metadata().as_array().zip(Some(node.key())));
        for (coordinate, key) in found {
            for name in coordinates::boundaries_of(coordinate) {
                self.add_nearest(&key.parent(), name, |_| true, members)
                    .await?;
            }
        }
        Ok(())
    }

    /// Adds the array of a name that the nearest group has, if it is accepted and `members` have no other of its name.
    async fn add_nearest(
        self: &Arc<Self>,
        group: &Key,
        name: &str,
        accepts: impl Fn(&Array) -> bool,
        members: &mut Vec<Arc<ViewNode>>,
    ) -> Result<(), ContentError> {
        if members.iter().any(|member| member.name() == name) {
            return Ok(());
        }
        if members.len() > MAX_MEMBERS {
            let why = "its attributes name too many coordinates for one file";
            return Err(ContentError::Absent(why.into()));
        }
        let mut group = group.clone();
        for _ in 0..MAX_DEPTH {
            let Ok(key) = group.join(name.as_bytes()) else {
                break;
            };
            if let Some(node) = self.node_if_present(&key).await?
                && node.broken().is_none()
                && node.metadata().as_array().is_some_and(&accepts)
            {
                members.push(node);
                break;
            }
            if group.is_root() {
                break;
            }
            group = group.parent();
        }
        Ok(())
    }
}
