//! Columns in which rows may lack a value: the definition levels, followed by the values that there are.
//!
//! <https://github.com/apache/parquet-format/blob/master/Encodings.md>

use super::column::ColumnType;
use crate::conventions::column::NullableElements;

/// Returns the content of the page of values; `None` if it is too long.
pub(in crate::view) fn values(kind: &ColumnType, values: &NullableElements) -> Option<Vec<u8>> {
    let mut page = Vec::new();
    if values.has_nulls() {
        push_levels(&mut page, values.rows().map(|element| element.is_some()))?;
    }
    page.extend(kind.encode(&values.rows().flatten().collect::<Vec<_>>().concat())?);
    Some(page)
}

/// Adds the definition levels, which tell the rows that have a value. `None` if there are too many.
pub(super) fn push_levels(
    page: &mut Vec<u8>,
    rows: impl ExactSizeIterator<Item = bool>,
) -> Option<()> {
    let rows: Vec<bool> = rows.collect();
    let bits = rows.chunks(8).map(|rows| {
        let bits = rows.iter().rev().map(|is_there| u8::from(*is_there));
        bits.fold(0, |byte, bit| byte << 1 | bit)
    });
    let mut levels = Vec::new();
    push_run(&mut levels, rows.len(), bits);
    page.extend(u32::try_from(levels.len()).ok()?.to_le_bytes());
    page.extend(levels);
    Some(())
}

/// Adds one run of values of constant width.
pub(super) fn push_run(page: &mut Vec<u8>, values: usize, bytes: impl Iterator<Item = u8>) {
    let mut header = (values.div_ceil(8) << 1) | 1;
    while header > 0x7f {
        page.push(header.to_le_bytes()[0] | 0x80);
        header >>= 7;
    }
    page.push(header.to_le_bytes()[0]);
    page.extend(bytes);
}
