//! Columns of repeated texts: a dictionary page, and a page of indexes (RLE_DICTIONARY), in which rows may
//! lack a value.
//!
//! <https://github.com/apache/parquet-format/blob/master/Encodings.md>

use super::PLAIN;
use super::nullable::{push_levels, push_run};
use super::thrift::Fields;
use crate::conventions::column::Categories;

/// Returns a dictionary page with its header; `None` if it is too long.
pub(in crate::view) fn page(values: &Categories) -> Option<Vec<u8>> {
    let texts = plain(values.texts().iter().map(String::as_str))?;
    let (count, size) = (
        i32::try_from(values.texts().len()).ok()?,
        i32::try_from(texts.len()).ok()?,
    );
    let mut page = Fields::structure(|header| {
        header.i32(1, 2);
        header.i32(2, size);
        header.i32(3, size);
        header.nested(7, |dictionary| {
            dictionary.i32(1, count);
            dictionary.i32(2, PLAIN);
        });
    });
    page.extend(texts);
    Some(page)
}

/// Returns texts in PLAIN encoding; `None` if a text is too long.
pub(in crate::view) fn plain<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Vec<u8>> {
    let mut values = Vec::new();
    for text in texts {
        values.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
        values.extend(text.as_bytes());
    }
    Some(values)
}

/// Returns whether any row lacks a value.
pub(in crate::view) fn has_nulls(values: &Categories) -> bool {
    values.codes().any(|code| code.is_none())
}

/// Returns the content of the page of indexes: which rows have a value (if some lack one), and their indexes.
/// `None` if the page is too long.
pub(in crate::view) fn indexes(values: &Categories) -> Option<Vec<u8>> {
    let mut page = Vec::new();
    if has_nulls(values) {
        push_levels(&mut page, values.codes().map(|code| code.is_some()))?;
    }
    let codes: Vec<u32> = values.codes().flatten().collect();
    let width = match values.texts().len() {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    };
    page.push(u8::try_from(8 * width).ok()?);
    let bytes = codes
        .iter()
        .flat_map(|code| code.to_le_bytes().into_iter().take(width));
    push_run(&mut page, codes.len(), bytes);
    // A run has a multiple of eight values.
    let missing = codes.len().next_multiple_of(8) - codes.len();
    page.extend(std::iter::repeat_n(0, missing * width));
    Some(page)
}
