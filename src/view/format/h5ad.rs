//! AnnData: its layouts in Zarr and in HDF5 are the same tree of groups, arrays and attributes (anndata,
//! "On-disk format").

use super::Renderer;
use super::plain_hdf5;
use super::row::{FormatRow, ViewName};
use crate::conventions::anndata::{is_anndata, is_none};
use crate::conventions::description::Field;
use crate::view::file::layout::VirtualFile;
use crate::view::group::tree::GroupTree;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "h5ad",
    ViewName::Suffix(".h5ad"),
    "AnnData",
    "python3 -c 'import anndata, sys; print(anndata.read_h5ad(sys.argv[1]))'",
    Renderer::GroupOfKind(is_anndata, render),
)
.expressing(Field::ALL)
.also_called(&["anndata"])];

/// The `.h5ad` file of an AnnData object. It contains all arrays: readers fail without an index.
///
/// An object without `raw` has an array for "none" of this name in Zarr and no dataset in HDF5: with a dataset,
/// anndata takes the object for one with `raw`.
///
/// # Errors
/// Returns which array cannot be in the file, and why.
fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    let mut tree = tree.clone();
    tree.arrays
        .retain(|array| array.node.name() != "raw" || !is_none(&array.node));
    plain_hdf5::render_whole(&tree)
}
