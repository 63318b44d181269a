//! NIfTI-Zarr: the bytes of a NIfTI header in the array `nifti` beside the levels of an image (nifti-zarr 0.3 and
//! 1.0.rc1, "NIfTI header").

use crate::node::{ArrayView, ContentError, NodeResolver, NumberKind, Value};

/// The name of the array with the header.
const HEADER: &str = "nifti";
/// The maximum size of a header with its extensions.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the bytes of the header beside an array; `None` without such an array.
///
/// # Errors
/// Errors of the store.
pub(crate) fn header(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<Option<Vec<u8>>, ContentError> {
    let group = view.node.key().parent();
    let Ok(key) = group.join(HEADER.as_bytes()) else {
        return Ok(None);
    };
    let Some(node) = nodes.node(&key)?.filter(|_| key != *view.node.key()) else {
        return Ok(None);
    };
    let number = node.array_view().and_then(|view| view.number());
    let is_bytes = matches!(number, Some((number, 1)) if number.kind == NumberKind::UInt && number.size_bytes == 1);
    if !is_bytes {
        return Ok(None);
    }
    match nodes.numbers(&node, MAX_BYTES) {
        Ok(numbers) => Ok(numbers.into_iter().map(byte).collect()),
        Err(ContentError::Absent(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn byte(value: Value) -> Option<u8> {
    u8::try_from(value.whole()?).ok()
}
