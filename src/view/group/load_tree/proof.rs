//! Whether metadata alone prove that a file of a group can be made.

use std::sync::Arc;

use super::has_text_name;
use crate::node::{ArrayView, ContentError, NodeElements, ViewNode};
use crate::store::StoreError;
use crate::view::dataset::MAX_DIMENSIONS;
use crate::view::file::nodes::Nodes;
use crate::view::group::tree::TreeScope;

/// The maximum number of remote nodes that are read to find out whether there is any array.
const MAX_LOOKED_AT: usize = 256;
/// The maximum size of the arrays of one file, in bytes, for which metadata alone prove that the file exists.
/// Gaps and wider numbers cannot bring such a file to the size limit.
const MAX_PROVEN_BYTES: u64 = 1 << 58;

impl Nodes {
    /// As [`Nodes::metadata_prove_group`], for the file of an array with its coordinates.
    pub(in crate::view) fn metadata_prove_array(
        node: &ViewNode,
        metadata_prove: fn(&ViewNode) -> bool,
    ) -> bool {
        let is_short = |view: ArrayView<'_>| view.reader.chunk_major_bytes() <= MAX_PROVEN_BYTES;
        node.array_view().is_some_and(is_short) && metadata_prove(node)
    }

    /// Returns whether metadata alone prove that a file of a group can be made. `metadata_prove` returns whether
    /// metadata prove that an array is a variable. No elements are read.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if the file has too many nodes; errors of the store.
    pub(in crate::view) async fn metadata_prove_group(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        scope: TreeScope,
        metadata_prove: fn(&ViewNode) -> bool,
    ) -> Result<bool, ContentError> {
        if self.store().capabilities().is_remote {
            // Each node may take a remote request.
            return match self.finds_proof(node, scope, metadata_prove).await? {
                true => self.check_names(node).await.map(|()| true),
                false => Ok(false),
            };
        }
        let tree = self.group_tree_with(node, scope, false).await?;
        let arrays = tree.all_arrays();
        let views = || arrays.iter().filter_map(|array| array.node.array_view());
        // Each axis may have its own dimension, and complex parts or characters add one more.
        let dimensions: usize = views().map(|view| view.shape().len() + 1).sum();
        let bytes = views().try_fold(0_u64, |sum, view| {
            sum.checked_add(view.reader.chunk_major_bytes())
        });
        let is_within_limits =
            dimensions <= MAX_DIMENSIONS && bytes.is_some_and(|bytes| bytes <= MAX_PROVEN_BYTES);
        Ok(is_within_limits && arrays.iter().any(|array| metadata_prove(&array.node)))
    }

    /// Returns whether `metadata_prove` is true for an array in a group, or below it. Also true if the group has
    /// more than [`MAX_LOOKED_AT`] nodes.
    async fn finds_proof(
        &self,
        node: &ViewNode,
        scope: TreeScope,
        metadata_prove: fn(&ViewNode) -> bool,
    ) -> Result<bool, StoreError> {
        let mut left = MAX_LOOKED_AT;
        let mut groups = vec![node.key().clone()];
        while let Some(key) = groups.pop() {
            let group = self.node(&key).await?;
            let children = self.child_keys(&group, left).await?;
            for key in children.into_iter().filter(has_text_name) {
                let Some(rest) = left.checked_sub(1) else {
                    return Ok(true);
                };
                left = rest;
                let child = self.node(&key).await?;
                match &child.elements {
                    _ if child.broken().is_some() => {}
                    NodeElements::None if !scope.is_one_group() => groups.push(key),
                    _ if metadata_prove(&child) => return Ok(true),
                    _ => {}
                }
            }
        }
        Ok(false)
    }
}
