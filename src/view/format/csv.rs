//! CSV (RFC 4180, with line feeds): the table of a group. All rows have the same length, so any byte range
//! follows from the elements of its rows.

mod cell;
mod rows;

use std::borrow::Cow;

use self::cell::CellFormat;
use self::rows::{CsvColumn, QuotedTexts, Rows};
use super::Renderer;
use super::row::{FormatRow, ViewName};
use crate::conventions::description::Field;
use crate::node::{Number, Value, ViewNode};
use crate::view::file::layout::{FileLayout, Readability, Segment, VirtualFile};
use crate::view::group::table;
use crate::view::group::table::{ColumnData, Table};
use crate::view::group::tree::GroupTree;
use crate::zarr::Fixed;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "csv",
    ViewName::Suffix(".csv"),
    "the same table as text",
    "head -n 5",
    Renderer::Table(table::metadata_prove, render),
)
.expressing(&[Field::Coordinates, Field::UnevenCoordinates, Field::Missing])];

/// The maximum length of a row in bytes; each row is rendered in memory.
const MAX_ROW_BYTES: u64 = 1 << 20;
/// The maximum size of the texts in a row, in bytes. The other values of a row fit in the rest.
const MAX_TEXTS_BYTES: usize = 1 << 19;
/// The maximum size of the texts of all rows of one column of categories, in bytes.
const MAX_EXPANDED_BYTES: usize = 16 << 20;
/// The maximum size of the texts of all rows of all columns that are rendered in memory, in bytes.
const MAX_ALL_EXPANDED_BYTES: u64 = 64 << 20;

/// Renders a table of a group ([`Table::of`]) as a CSV file. Without a column of integers, it begins with row numbers.
///
/// # Errors
/// Returns why the group has no table.
fn render(tree: &GroupTree, along: Option<&ViewNode>) -> Result<VirtualFile, String> {
    let mut table = Table::of(tree, along, check)?;
    leave_out_expanded(&mut table);
    leave_out_long_texts(&mut table);
    if table.columns.is_empty() {
        return Err(table.notes.into_iter().next().unwrap_or_default());
    }
    let mut columns = columns(&table)?;
    let mut names: Vec<Cow<'_, str>> = Vec::new();
    if !columns.iter().any(CsvColumn::is_always_number) {
        columns.insert(0, CsvColumn::Number);
        names.push(number_name(&table).into());
    }
    names.extend(table.columns.iter().map(|column| quoted(&column.name)));
    let mut header = names.join(",").into_bytes();
    header.push(b'\n');
    let rows = Rows::new(columns, table.rows);
    if rows.row_bytes() > MAX_ROW_BYTES {
        let bytes = rows.row_bytes();
        return Err(format!(
            "rows of {bytes} bytes; {MAX_ROW_BYTES} are the limit"
        ));
    }
    let segments = [Segment::Bytes(header), Segment::content(rows)];
    let layout = FileLayout::new(segments);
    Ok(VirtualFile {
        layout: layout.ok_or_else(|| format!("{} rows: no file can be so long", table.rows))?,
        sources: table.readers().cloned().collect(),
        notes: table.notes,
        block_bytes: 1,
        readability: Readability::default(),
    })
}

/// Leaves out columns whose texts take too much memory together with those before them.
fn leave_out_expanded(table: &mut Table) {
    let mut left = MAX_ALL_EXPANDED_BYTES;
    let notes = &mut table.notes;
    table.columns.retain(|column| {
        let bytes = match &column.data {
            ColumnData::Categories(values) => {
                values.rows().flatten().map(str::len).sum::<usize>() as u64
            }
            ColumnData::Nullable(values) => CellFormat::of(&values.data_type).map_or(0, |cell| {
                cell.width().saturating_mul(values.rows().len() as u64)
            }),
            ColumnData::Texts(_) | ColumnData::Elements(_) => 0,
        };
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(left);
        if rest.is_none() {
            notes.push(format!(
                "{} is not in it: more than {MAX_ALL_EXPANDED_BYTES} bytes of text in one file",
                column.node.key()
            ));
        }
        rest.is_some()
    });
}

/// Leaves out the columns with the longest texts until rows are short enough.
fn leave_out_long_texts(table: &mut Table) {
    let longest = |data: &ColumnData| match data {
        // The quotes around a text, and two characters for each quote in it.
        ColumnData::Texts(texts) => texts.iter().map(|text| 2 * text.len() + 2).max(),
        ColumnData::Categories(values) => {
            let texts = values.texts().iter();
            texts.map(|text| 2 * text.len() + 2).max()
        }
        ColumnData::Elements(_) | ColumnData::Nullable(_) => None,
    };
    let lengths = table.columns.iter().map(|column| longest(&column.data));
    let mut lengths: Vec<usize> = lengths.map(Option::unwrap_or_default).collect();
    while lengths.iter().sum::<usize>() > MAX_TEXTS_BYTES {
        let Some((place, _)) = (lengths.iter().enumerate()).max_by_key(|(_, length)| **length)
        else {
            return;
        };
        lengths.remove(place);
        let column = table.columns.remove(place);
        let key = column.node.key();
        table.notes.push(format!(
            "{key} is not in it: rows of all its texts are too long"
        ));
    }
}

fn check(data: &ColumnData) -> Result<(), String> {
    match data {
        ColumnData::Texts(_) => Ok(()),
        ColumnData::Categories(values) => {
            let bytes: usize = values.rows().flatten().map(str::len).sum();
            match bytes <= MAX_EXPANDED_BYTES {
                true => Ok(()),
                false => Err(format!("more than {MAX_EXPANDED_BYTES} bytes of text")),
            }
        }
        ColumnData::Elements(reader) => CellFormat::of(reader.chunks().data_type()).map(drop),
        ColumnData::Nullable(values) => CellFormat::of(&values.data_type).map(drop),
    }
}

fn columns(table: &Table) -> Result<Vec<CsvColumn>, String> {
    let mut arrays = 0;
    let columns = table.columns.iter().map(|column| match &column.data {
        ColumnData::Texts(texts) => {
            let mut quoted = QuotedTexts::default();
            texts.iter().for_each(|text| quoted.push(text));
            Ok(CsvColumn::Texts(quoted))
        }
        ColumnData::Categories(values) => {
            let mut quoted = QuotedTexts::default();
            values.rows().for_each(|text| match text {
                Some(text) => quoted.push(text),
                None => quoted.push_none(),
            });
            Ok(CsvColumn::Texts(quoted))
        }
        ColumnData::Nullable(values) => {
            let cell = CellFormat::of(&values.data_type)?;
            let mut texts = QuotedTexts::default();
            for element in values.rows() {
                match element {
                    Some(element) => texts
                        .push_element(cell, element)
                        .ok_or("an element of another size")?,
                    None => texts.push_none(),
                }
            }
            Ok(CsvColumn::Texts(texts))
        }
        ColumnData::Elements(reader) => {
            let data_type = reader.chunks().data_type();
            let source = arrays;
            arrays += 1;
            Ok(CsvColumn::Elements {
                source,
                element_bytes: data_type.size_bytes,
                cell: CellFormat::of(data_type)?,
                missing: missing_elements(data_type, &column.missing),
            })
        }
    });
    columns.collect()
}

/// Returns the bytes of the elements that are these numbers.
fn missing_elements(data_type: &Fixed, missing: &[Value]) -> Vec<Vec<u8>> {
    let Some((number, 1)) = Number::of(data_type) else {
        return Vec::new();
    };
    let has_zero = missing.contains(&Value::Float(0.0));
    let negative = has_zero.then_some(Value::Float(-0.0));
    let values = missing.iter().copied().chain(negative);
    values.filter_map(|value| number.write(value)).collect()
}

/// Returns the name of the column of row numbers: `row`, with underscores if a column has that name.
fn number_name(table: &Table) -> String {
    let mut name = "row".to_owned();
    while table
        .columns
        .iter()
        .any(|column| column.name.eq_ignore_ascii_case(&name))
    {
        name.push('_');
    }
    name
}

/// Returns a name, in quotes if necessary.
fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = !name.contains(['"', ',', '\r', '\n']) && name.trim() == name;
    match is_plain {
        true => name.into(),
        false => format!("\"{}\"", name.replace('"', "\"\"")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_quotes_if_they_must_be() {
        for (name, expected) in [
            ("a b", "a b"),
            ("a,b", "\"a,b\""),
            ("\"", "\"\"\"\""),
            (" a", "\" a\""),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }
}
