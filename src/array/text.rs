//! Text in arrays of variable length, whose data type is text or any object.

use super::engine::Engine;
use super::variable::{decode_elements, read_elements};
use crate::codec::{Element, Pipeline};
use crate::fallible::{List, NoMemory};
use crate::store::{DocumentRef, Key, Object, StoreError};
use crate::zarr::{self, DataType, FillValue, Variable};

/// Returns whether the data type of an array is any object. kerchunk writes text with `json2`, so that only the
/// elements tell whether all are text.
pub fn may_be_text(array: &zarr::Array) -> bool {
    array.data_type == Ok(DataType::Variable(Variable::Object))
}

/// Returns the texts of an array of text or of objects; `None` if an element is no text, or if no object is one.
/// An object that is missing (null, and 0 if the array is filled with it) is the empty text, as `vlen-utf8` of
/// numcodecs writes it.
///
/// # Errors
/// The system has no memory for them.
pub fn texts<'a>(
    array: &zarr::Array,
    elements: impl Iterator<Item = &'a Element>,
) -> Result<Option<Vec<String>>, NoMemory> {
    let mut texts = List::default();
    let mut has_text = !may_be_text(array);
    for element in elements {
        has_text |= matches!(element, Element::Text(_));
        let Some(text) = text(array, element) else {
            return Ok(None);
        };
        texts.push(text);
    }
    let texts = texts.finish()?;
    Ok((has_text || texts.is_empty()).then_some(texts))
}

fn text(array: &zarr::Array, element: &Element) -> Option<String> {
    match element {
        Element::Text(text) => Some(text.clone()),
        Element::Json(value) if may_be_text(array) => {
            let is_zero = |value: &serde_json::Value| value.as_u64() == Some(0);
            let is_filled =
                matches!(&array.fill_value, Ok(FillValue::Variable(fill)) if is_zero(fill));
            (value.is_null() || is_filled && is_zero(value)).then(String::new)
        }
        _ => None,
    }
}

/// Returns whether all elements of an array of objects, with values of at most `most_bytes`, are text.
///
/// # Errors
/// The error of a chunk that cannot be read.
pub async fn holds_text(
    source: DocumentRef<'_>,
    key: &Key,
    array: &zarr::Array,
    pipeline: &Pipeline,
    most_bytes: u64,
    engine: &Engine,
) -> Result<bool, StoreError> {
    match read_elements(source, key, array, pipeline, most_bytes, engine).await {
        Ok(elements) => Ok(texts(array, elements.value().iter())?.is_some()),
        Err(error @ StoreError::TooLarge { .. }) if error.is_lasting() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Decodes the texts of a chunk, with values of at most `most_bytes`.
///
/// # Errors
/// The error of decoding the chunk; [`StoreError::Corrupt`] if an element is no text.
pub async fn read_texts(
    object: &dyn Object,
    key: &Key,
    array: &zarr::Array,
    pipeline: &Pipeline,
    most_bytes: u64,
    engine: &Engine,
) -> Result<Vec<String>, StoreError> {
    let elements = decode_elements(object, key, pipeline, most_bytes, Some(engine)).await?;
    let mut texts = List::default();
    for element in &elements {
        texts.push(text(array, element).ok_or_else(|| StoreError::Corrupt {
            key: key.clone(),
            what: "an element is no text, although the other elements of the array are".into(),
        })?);
    }
    texts
        .finish()
        .map_err(|failure| StoreError::from(failure).of(key))
}
