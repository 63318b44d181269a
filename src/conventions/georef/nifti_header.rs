//! The header of NIfTI in the array `nifti` beside an array.

use super::context::Context;
use super::scale::ome_image;
use crate::conventions::nifti_zarr::{HEADER, Header};
use crate::conventions::ome::{self, Level};
use crate::node::{ArrayView, ContentError, NodeResolver, NumberKind, Value};

/// A header, and the level as it places it; or why the header is not that of the image.
type LevelByHeader = Result<(Header, Level), &'static str>;

/// Returns the header beside a level of an image, and the level as the header places it; `None` without a header. The
/// inner error says why the header is not that of the image.
///
/// # Errors
/// Errors of the store.
pub(crate) fn level_by_header(
    context: &Context<'_>,
) -> Result<Option<LevelByHeader>, ContentError> {
    let view = context.view;
    let Some((image, entry)) = ome_image(context).zip(context.level_entry()) else {
        return Ok(None);
    };
    let bytes = match find(view, context.nodes)? {
        None => return Ok(None),
        Some(Err(why)) => return Ok(Some(Err(why))),
        Some(Ok(bytes)) => bytes,
    };
    let rank = view.shape().len();
    let finest = ome::finest_entry(image).unwrap_or(entry);
    let finest = ome::level(image, finest, rank).axes;
    let mut level = ome::level(image, entry, rank);
    if level.axes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Header::parse(&bytes).and_then(|header| {
        header.apply_to(&mut level, &finest, view.shape())?;
        Ok((header, level))
    })))
}

/// The maximum size of a header with its extensions.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the bytes of the header beside an array; `None` without such an array. The inner error says why the array
/// is no header: one that can never be read takes nothing else away.
///
/// # Errors
/// Temporary errors of the store.
pub(crate) fn find(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<Option<Result<Vec<u8>, &'static str>>, ContentError> {
    let Ok(key) = view.node.key().parent().join(HEADER) else {
        return Ok(None);
    };
    let node = match nodes.node(&key) {
        Ok(Some(node)) if key != *view.node.key() => node,
        Ok(_) => return Ok(None),
        Err(error) => return lasting(error).map(|why| Some(Err(why))),
    };
    if !node.is_array() {
        return Ok(None);
    }
    let number = node.array_view().and_then(|view| view.number());
    let is_bytes = matches!(number, Some((number, 1)) if number.kind == NumberKind::UInt && number.size_bytes == 1);
    if !is_bytes {
        return Ok(Some(Err("no array of bytes that can be decoded")));
    }
    Ok(Some(match nodes.numbers(&node, MAX_BYTES) {
        Ok(numbers) => {
            let bytes: Option<Vec<u8>> = numbers.into_iter().map(byte).collect();
            bytes.ok_or("no array of bytes that can be decoded")
        }
        Err(ContentError::Absent(_)) => Err("longer than 1 MiB"),
        Err(error) => Err(lasting(error)?),
    }))
}

/// Returns what a lasting error says of the header.
///
/// # Errors
/// Any other error.
fn lasting(error: ContentError) -> Result<&'static str, ContentError> {
    match error {
        ContentError::Failed(error) if error.is_lasting() => Ok("unreadable"),
        error => Err(error),
    }
}

fn byte(value: Value) -> Option<u8> {
    u8::try_from(value.whole()?).ok()
}
