//! The header of NIfTI in the array `nifti` beside an array.

use super::context::Context;
use super::scale::ome_image;
use crate::conventions::nifti_zarr::{HEADER, Header};
use crate::conventions::ome::{self, Level};
use crate::node::{ArrayView, ContentError, NodeResolver, NumberKind, Value};

/// A header, and the level as it places it; or why the header is not that of the image.
type PlacedLevel = Result<(Header, Level), &'static str>;

/// Returns the header beside a level of an image, and the level as the header places it; `None` without a header. The
/// inner error says why the header is not that of the image.
///
/// # Errors
/// Errors of the store.
pub(crate) fn placed(context: &Context<'_>) -> Result<Option<PlacedLevel>, ContentError> {
    let view = context.view;
    let Some((image, entry)) = ome_image(context).zip(context.level_entry()) else {
        return Ok(None);
    };
    let Some(bytes) = find(view, context.nodes)? else {
        return Ok(None);
    };
    let rank = view.shape().len();
    let finest = ome::finest_entry(image).unwrap_or(entry);
    let finest = ome::level(image, finest, rank).axes;
    let mut level = ome::level(image, entry, rank);
    if level.axes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Header::parse(&bytes).and_then(|header| {
        header.place(&mut level, &finest, view.shape())?;
        Ok((header, level))
    })))
}

/// The maximum size of a header with its extensions.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the bytes of the header beside an array; `None` without such an array.
///
/// # Errors
/// Errors of the store.
pub(crate) fn find(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<Option<Vec<u8>>, ContentError> {
    let Ok(key) = view.node.key().parent().join(HEADER) else {
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
