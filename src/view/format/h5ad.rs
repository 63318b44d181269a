//! AnnData: its layouts in Zarr and in HDF5 are the same tree of groups, arrays and attributes (anndata,
//! "On-disk format").

use super::plain_hdf5;
use crate::conventions::anndata::is_none;
use crate::view::group_tree::GroupTree;
use crate::view::layout::VirtualFile;

/// The `.h5ad` file of an AnnData object. It contains all arrays: readers fail without an index.
///
/// An object without `raw` has an array for "none" of this name in Zarr and no dataset in HDF5: with a dataset,
/// anndata takes the object for one with `raw`.
///
/// # Errors
/// Returns which array cannot be in the file, and why.
pub(in crate::view) fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    let mut tree = tree.clone();
    tree.arrays
        .retain(|array| array.node.name() != "raw" || !is_none(&array.node));
    plain_hdf5::render_whole(&tree)
}
