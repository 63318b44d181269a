//! `.bin`: the elements without a header.

use super::Renderer;
use super::row::{FormatRow, ViewName};
use crate::node::ArrayView;
use crate::view::file::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "bin",
    ViewName::Suffix(".bin"),
    "the elements in row-major order, without a header",
    "od -A d -t x1 -N 64",
    Renderer::Array(bin),
)
.expressing(&[])];

/// Renders the elements without a header.
///
/// # Errors
/// The file would exceed 2^63 - 1 bytes.
fn bin(view: &ArrayView<'_>) -> Result<VirtualFile, String> {
    let elements = ArrayExtent::new(0, view.reader, ElementOrder::RowMajor, None);
    VirtualFile::of_array(view.reader, elements.map(Segment::Array))
}
