//! Parquet (<https://github.com/apache/parquet-format>): the table of a group, uncompressed. Columns of an array
//! are in PLAIN encoding, so that their sizes follow by arithmetic. Categories have a dictionary. Categories,
//! nullable arrays and times with missing values are OPTIONAL columns with definition levels.
//!
//! A column has one data page in each row group. Statistics are omitted because they would need all values.

use serde_json::{Map, Value as Json, json};

use super::Renderer;
use super::row::{FormatRow, ViewName};
use crate::conventions::anndata;
use crate::conventions::description::Field;
use crate::conventions::text::shown;
use crate::node::ViewNode;
use crate::view::encode::parquet::{
    ColumnSource, ColumnType, FileColumn, MAGIC, RowGroup, RowGroups, dictionary, footer, nullable,
    page_header,
};
use crate::view::file::layout::{FileLayout, Readability, Segment, VirtualFile};
use crate::view::group::table;
use crate::view::group::table::{Column, ColumnData, Table};
use crate::view::group::tree::GroupTree;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "parquet",
    ViewName::Suffix(".parquet"),
    "the arrays that share their only dimension as a Parquet table",
    "python3 -c 'import pyarrow.parquet, sys; print(pyarrow.parquet.read_schema(sys.argv[1]))'",
    Renderer::Table(table::metadata_prove, render),
)
.expressing(&[
    Field::Coordinates,
    Field::UnevenCoordinates,
    Field::Missing,
    Field::Categories,
])
.also_called(&["pq"])];

/// Rows of a row group, unless a chunk is longer. A reader decodes one row group at a time.
const GROUP_ROWS: u64 = 1 << 20;
/// The size of a page in bytes, unless the file would have too many pages.
const PAGE_BYTES: u64 = 64 << 20;
/// The maximum size of a page in the format, in bytes.
const MAX_PAGE_BYTES: u64 = i32::MAX as u64;
/// The maximum number of pages of a file; each takes about 70 bytes in the footer.
const MAX_PAGES: u64 = 1 << 16;
/// The maximum size of the attributes in bytes.
const MAX_ATTRIBUTES_BYTES: usize = 16 << 20;
/// Files of at least this size have a gap before the footer, which readers read in blocks.
const LARGE_BYTES: u64 = 16 << 20;
const GAP_BYTES: u64 = 1 << 20;
/// Columns of at least this average size begin at a multiple of [`ALIGNMENT_BYTES`]. The kernel reads whole
/// pages, and an element that fails to decode must not share a page with another column.
const ALIGNED_COLUMN_BYTES: u64 = 1 << 20;
const ALIGNMENT_BYTES: u64 = 8192;

/// Renders a table of a group ([`Table::of`]) as a Parquet file.
///
/// # Errors
/// Returns why the group has no table, or why the format cannot express it.
fn render(tree: &GroupTree, along: Option<&ViewNode>) -> Result<VirtualFile, String> {
    let mut table = Table::of(tree, along, |data| column_type(data).map(drop))?;
    for column in &mut table.columns {
        table.notes.extend(leave_out_missing(column));
        table.notes.extend(note_categories(column));
    }
    let types = table.columns.iter().map(|column| column_type(&column.data));
    let types: Vec<ColumnType> = types.collect::<Result<_, _>>()?;
    let too_long = || format!("{} rows: no file can be so long", table.rows);
    let sources = sources(&table, &types).ok_or_else(too_long)?;
    let split = RowGroupLayout::of(&table, &types, &sources).ok_or_else(too_long)?;
    let mut notes = table.notes.clone();
    let columns = table.columns.iter().zip(types.iter().zip(&sources));
    let columns: Vec<_> = columns
        .map(|(column, (kind, source))| FileColumn {
            name: &column.name,
            kind,
            source,
        })
        .collect();
    let row_groups: Vec<_> = split.groups().collect();
    let key_values = key_values(&table, tree, &mut notes);
    let footer = footer(table.rows, &columns, &row_groups, &key_values)?;
    let groups = RowGroups::new(sources, split.full, split.count, split.last);
    let segments = [
        Segment::Bytes(MAGIC.to_vec()),
        Segment::Zeros(split.start - MAGIC.len() as u64),
        Segment::content(groups),
        Segment::Zeros(split.gap_bytes),
        Segment::Bytes(footer),
    ];
    Ok(VirtualFile {
        layout: FileLayout::new(segments).ok_or_else(too_long)?,
        sources: table.readers().cloned().collect(),
        notes,
        block_bytes: 1,
        readability: Readability::default(),
    })
}

/// Returns a note if categories are not in the file: a dictionary of this format has texts alone.
fn note_categories(column: &Column) -> Option<String> {
    let fields = anndata::column_fields(&column.node)?;
    let are_numbers = matches!(column.data, ColumnData::Nullable(_));
    (are_numbers && fields.contains(&Field::Categories)).then(|| {
        let key = column.node.key();
        format!(
            "{key}: the categories are left out, because they are no text: each row has its value"
        )
    })
}

/// Makes rows with a missing element rows without a value, unless a time is too large for the file. Returns a note if
/// such rows keep their number.
fn leave_out_missing(column: &mut Column) -> Option<String> {
    match std::mem::replace(&mut column.nulls, Ok(None)) {
        Ok(Some(rows)) => {
            if let Ok(kind) = ColumnType::of(&rows.data_type)
                && nullable::values(&kind, &rows).is_some()
            {
                column.data = ColumnData::Nullable(rows);
            }
            None
        }
        Err(why) if !column.missing.is_empty() => {
            let numbers: Vec<String> = column.missing.iter().map(|value| shown(*value)).collect();
            Some(format!(
                "{}: rows without a value have the number {}: {why}",
                column.node.key(),
                numbers.join(" or ")
            ))
        }
        Ok(None) | Err(_) => None,
    }
}

fn column_type(data: &ColumnData) -> Result<ColumnType, String> {
    match data {
        ColumnData::Texts(_) => Ok(ColumnType::text(false)),
        ColumnData::Categories(values) => Ok(ColumnType::text(dictionary::has_nulls(values))),
        ColumnData::Nullable(values) => {
            let kind = ColumnType::of(&values.data_type)?;
            Ok(kind.with_nulls(values.has_nulls()))
        }
        ColumnData::Elements(reader) => ColumnType::of(reader.chunks().data_type()),
    }
}

/// Returns the source of the values of each column; `None` if their size overflows.
fn sources(table: &Table, types: &[ColumnType]) -> Option<Vec<ColumnSource>> {
    let mut arrays = 0;
    let columns = table.columns.iter().zip(types);
    let sources = columns.map(|(column, kind)| match &column.data {
        ColumnData::Texts(texts) => {
            let texts = texts.iter().map(String::as_str);
            Some(ColumnSource::Values(dictionary::plain(texts)?))
        }
        ColumnData::Categories(values) => Some(ColumnSource::Indexes {
            dictionary: dictionary::page(values)?,
            indexes: dictionary::indexes(values)?,
        }),
        ColumnData::Nullable(values) => Some(ColumnSource::Values(nullable::values(kind, values)?)),
        ColumnData::Elements(reader) => {
            let source = kind.array(arrays, reader);
            arrays += 1;
            source
        }
    });
    sources.collect()
}

/// The row groups of a table, and their offsets in the file.
struct RowGroupLayout {
    /// The offset of the first row group.
    start: u64,
    group_rows: u64,
    full: RowGroup,
    count: u64,
    last: RowGroup,
    last_rows: u64,
    gap_bytes: u64,
}

impl RowGroupLayout {
    fn of(table: &Table, types: &[ColumnType], sources: &[ColumnSource]) -> Option<Self> {
        let group_rows = group_rows(table, types)?;
        let count = table.rows / group_rows;
        let last_rows = table.rows % group_rows;
        let sizes = |rows: u64| {
            let columns = types.iter().zip(sources);
            let sizes = columns.map(|(kind, source)| match source {
                ColumnSource::Values(values)
                | ColumnSource::Indexes {
                    indexes: values, ..
                } => Some(values.len() as u64),
                _ => kind.values_bytes(rows),
            });
            sizes.collect::<Option<Vec<u64>>>()
        };
        let (full_sizes, last_sizes) = (sizes(group_rows)?, sizes(last_rows)?);
        let all = full_sizes
            .iter()
            .try_fold(0, |sum: u64, size| sum.checked_add(*size));
        let all = all?.checked_mul(count.max(1))?;
        let pages = (types.len() as u64).checked_mul(count.max(1))?;
        let alignment = match all / pages.max(1) >= ALIGNED_COLUMN_BYTES {
            true => ALIGNMENT_BYTES,
            false => 1,
        };
        let mut split = Self {
            start: alignment.max(MAGIC.len() as u64),
            group_rows,
            full: RowGroup::default(),
            count,
            last: RowGroup::default(),
            last_rows,
            gap_bytes: if all >= LARGE_BYTES { GAP_BYTES } else { 0 },
        };
        let sizes = full_sizes.into_iter().zip(last_sizes);
        for (source, (full, last)) in sources.iter().zip(sizes) {
            if count > 0 {
                let header = page_header(source, group_rows, full)?;
                split.full.push(header, full, alignment)?;
            }
            if last_rows > 0 {
                let header = page_header(source, last_rows, last)?;
                split.last.push(header, last, alignment)?;
            }
        }
        Some(split)
    }

    /// Returns the row groups, with the offset and the number of rows of each.
    fn groups(&self) -> impl Iterator<Item = (&RowGroup, u64, u64)> {
        let full = (0..self.count).map(|number| (&self.full, number, self.group_rows));
        let last = (self.last_rows > 0).then_some((&self.last, self.count, self.last_rows));
        full.chain(last).map(|(group, number, rows)| {
            // The size of the whole file fits in 63 bits.
            let place = self
                .start
                .saturating_add(number.saturating_mul(self.full.size_bytes()));
            (group, place, rows)
        })
    }
}

/// Returns the number of rows of a row group, a multiple of 8: whole chunks if these are not too long. A
/// table with text has one row group. `None` if a page or the footer would be too long.
fn group_rows(table: &Table, types: &[ColumnType]) -> Option<u64> {
    let mut widest = 1;
    for kind in types {
        // The size of eight values, because booleans are single bits.
        widest = widest.max(kind.values_bytes(8)?.div_ceil(8));
    }
    let most = (MAX_PAGE_BYTES / widest) & !7;
    let whole = table.rows.max(1).checked_next_multiple_of(8)?;
    let has_text = table
        .columns
        .iter()
        .any(|column| !matches!(column.data, ColumnData::Elements(_)));
    if has_text {
        return (whole <= most).then_some(whole);
    }
    let wanted = (PAGE_BYTES / widest).max(8);
    let chunks = table.readers().map(|reader| {
        let shape = reader.chunks().grid().largest_chunk_shape();
        shape.first().copied().unwrap_or(1)
    });
    let chunk = chunks.max().unwrap_or(1).clamp(1, whole);
    let rows = match chunk {
        _ if chunk > wanted => GROUP_ROWS.min(wanted),
        0..GROUP_ROWS => GROUP_ROWS.min(wanted) / chunk * chunk,
        _ => chunk,
    };
    let columns = types.len() as u64;
    let least = table.rows.div_ceil((MAX_PAGES / columns).max(1));
    let rows = rows.max(least).checked_next_multiple_of(8)?.min(whole);
    (rows <= most).then_some(rows)
}

/// Returns the document in which pandas looks for the index of a dataframe (pandas, "Storing pandas DataFrame objects in
/// Apache Parquet format"). An index of text; a column of numbers stays a column.
fn pandas_index(table: &Table, tree: &GroupTree) -> Option<String> {
    let (index, name) = anndata::dataframe_index(&tree.node)?;
    let column = table.columns.iter().find(|column| column.name == index)?;
    matches!(
        column.data,
        ColumnData::Texts(_) | ColumnData::Categories(_)
    )
    .then(|| {
        let described = json!({
            "name": name,
            "field_name": index,
            "pandas_type": "unicode",
            "numpy_type": "object",
            "metadata": null,
        });
        let document = json!({
            "index_columns": [index],
            "column_indexes": [],
            "columns": [described],
            "pandas_version": "2.0.0",
        });
        document.to_string()
    })
}

/// Returns JSON documents: the attributes of the group, the data types and attributes of the columns, and the index of a
/// dataframe.
fn key_values(table: &Table, tree: &GroupTree, notes: &mut Vec<String>) -> Vec<(String, String)> {
    let mut columns = Map::new();
    for column in &table.columns {
        let mut members = Map::new();
        let data_type = match &column.data {
            ColumnData::Elements(reader) => Some(reader.chunks().data_type()),
            ColumnData::Nullable(values) => Some(&values.data_type),
            ColumnData::Texts(_) | ColumnData::Categories(_) => None,
        };
        if let Some(data_type) = data_type {
            members.insert("data_type".into(), data_type.to_string().into());
        }
        match column.node.metadata().attributes() {
            Ok(attributes) => {
                members.insert("attributes".into(), json!(attributes));
            }
            Err(error) => notes.push(format!("{}: attributes: {error}", column.node.key())),
        }
        columns.insert(column.name.clone(), Json::Object(members));
    }
    let group = tree.node.metadata().attributes().ok();
    let pairs = [
        (
            "zarr.attributes",
            group.map(|attributes| json!(attributes).to_string()),
        ),
        ("zarr.columns", Some(Json::Object(columns).to_string())),
        ("pandas", pandas_index(table, tree)),
    ];
    let mut found = Vec::new();
    for (key, value) in pairs {
        match value {
            Some(value) if value.len() <= MAX_ATTRIBUTES_BYTES => {
                found.push((key.to_owned(), value))
            }
            Some(value) => notes.push(format!("{key} is not in it: {} bytes of JSON", value.len())),
            None => {}
        }
    }
    found
}
