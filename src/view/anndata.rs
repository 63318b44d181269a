//! AnnData: its layouts in Zarr and in HDF5 are the same tree of groups, arrays and attributes (anndata,
//! "On-disk format").

use super::branch::GroupTree;
use super::h5;
use super::layout::VirtualFile;
use super::node::ViewNode;

/// Returns whether a group is an AnnData object.
pub(super) fn is_anndata(node: &ViewNode) -> bool {
    let attributes = node.metadata().attributes();
    let kind = attributes
        .ok()
        .and_then(|members| members.get("encoding-type"));
    !node.is_array() && kind.is_some_and(|kind| kind == "anndata")
}

/// The `.h5ad` file of an AnnData object. It contains all arrays: readers fail without an index.
///
/// # Errors
/// Returns which array cannot be in the file, and why.
pub(super) fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    h5::render_whole(tree)
}
