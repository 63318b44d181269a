//! The structures of parquet.thrift: the headers of pages and the footer.

use super::thrift::Fields;
use super::{ColumnSource, ColumnType, MAGIC, PLAIN, RLE, RLE_DICTIONARY, RowGroup};

/// A column of a file.
#[derive(Debug)]
pub(in crate::view) struct FileColumn<'a> {
    pub(in crate::view) name: &'a str,
    pub(in crate::view) kind: &'a ColumnType,
    pub(in crate::view) source: &'a ColumnSource,
}

/// Encodes `PageHeader` of parquet.thrift, for a page after any dictionary; `None` if the page is too long.
pub(in crate::view) fn page_header(
    source: &ColumnSource,
    rows: u64,
    values_bytes: u64,
) -> Option<Vec<u8>> {
    let (rows, size) = (i32::try_from(rows).ok()?, i32::try_from(values_bytes).ok()?);
    let (mut bytes, encoding) = match source {
        ColumnSource::Indexes { dictionary, .. } => (dictionary.clone(), RLE_DICTIONARY),
        _ => (Vec::new(), PLAIN),
    };
    bytes.extend(Fields::structure(|header| {
        header.i32(1, 0);
        header.i32(2, size);
        header.i32(3, size);
        header.nested(5, |data| {
            data.i32(1, rows);
            data.i32(2, encoding);
            // Encodings of levels, which columns without nulls do not have.
            data.i32(3, RLE);
            data.i32(4, RLE);
        });
    }));
    Some(bytes)
}

/// Encodes the footer: `FileMetaData` of parquet.thrift, its length and the magic number.
///
/// # Errors
/// The footer has more than 4 GiB.
pub(in crate::view) fn footer(
    rows: u64,
    columns: &[FileColumn<'_>],
    groups: &[(&RowGroup, u64, u64)],
    key_values: &[(String, String)],
) -> Result<Vec<u8>, String> {
    let mut footer = Fields::structure(|file| {
        file.i32(1, 2);
        let elements: Vec<_> = std::iter::once(None)
            .chain(columns.iter().map(Some))
            .collect();
        file.structures(2, elements.into_iter(), |element, column| match column {
            Some(column) => column.kind.write_schema(element, column.name),
            None => {
                element.binary(4, b"schema");
                element.i32(5, i32::try_from(columns.len()).unwrap_or(i32::MAX));
            }
        });
        file.i64(3, signed(rows));
        file.structures(4, groups.iter(), |group, (pages, place, rows)| {
            let chunks: Vec<_> = columns.iter().zip(pages.places()).collect();
            group.structures(1, chunks.into_iter(), |chunk, (column, (at, size))| {
                chunk.i64(2, 0);
                chunk.nested(3, |data| {
                    column_metadata(data, column, *rows, place.saturating_add(at), size);
                });
            });
            group.i64(2, signed(pages.size_bytes()));
            group.i64(3, signed(*rows));
        });
        file.structures(5, key_values.iter(), |pair, (key, value)| {
            pair.binary(1, key.as_bytes());
            pair.binary(2, value.as_bytes());
        });
        file.binary(
            6,
            concat!("zarrfs version ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
    });
    let length = u32::try_from(footer.len()).map_err(|_| "a footer of more than 4 GiB")?;
    footer.extend(length.to_le_bytes());
    footer.extend(MAGIC);
    Ok(footer)
}

fn column_metadata(
    data: &mut Fields,
    column: &FileColumn<'_>,
    rows: u64,
    place: u64,
    size_bytes: u64,
) {
    let dictionary_bytes = match column.source {
        ColumnSource::Indexes { dictionary, .. } => Some(dictionary.len() as u64),
        _ => None,
    };
    data.i32(1, column.kind.physical);
    match dictionary_bytes {
        Some(_) => data.numbers(2, &[PLAIN, RLE, RLE_DICTIONARY]),
        None if column.kind.is_optional() => data.numbers(2, &[PLAIN, RLE]),
        None => data.numbers(2, &[PLAIN]),
    }
    data.texts(3, &[column.name]);
    // Uncompressed.
    data.i32(4, 0);
    data.i64(5, signed(rows));
    data.i64(6, signed(size_bytes));
    data.i64(7, signed(size_bytes));
    data.i64(
        9,
        signed(place.saturating_add(dictionary_bytes.unwrap_or(0))),
    );
    if dictionary_bytes.is_some() {
        data.i64(11, signed(place));
    }
}

/// Converts a size to a signed integer: sizes in a file have 63 bits.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
