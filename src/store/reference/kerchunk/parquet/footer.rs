//! The metadata of a Parquet file. Only flat columns of numbers and of bytes are supported.
//!
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>

use super::thrift::{Result, Thrift, types};

const MAGIC: &[u8] = b"PAR1";

/// The physical type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Int32,
    Int64,
    ByteArray,
    Other,
}

impl Type {
    fn of(number: i64) -> Self {
        match number {
            1 => Self::Int32,
            2 => Self::Int64,
            6 => Self::ByteArray,
            _ => Self::Other,
        }
    }
}

/// The data of a column in a row group.
#[derive(Debug)]
pub(super) struct ColumnChunk<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: Type,
    pub(super) codec: i64,
    pub(super) values: u64,
    pub(super) bytes: &'a [u8],
    /// Whether values can be null.
    pub(super) is_optional: bool,
}

/// The metadata of a file.
#[derive(Debug)]
pub(super) struct Footer<'a> {
    pub(super) rows: u64,
    pub(super) row_groups: Vec<Vec<ColumnChunk<'a>>>,
}

#[derive(Debug, Default)]
struct SchemaElement<'a> {
    name: &'a [u8],
    repetition: i64,
    children: i64,
}

#[derive(Debug, Default)]
struct ColumnMetadata<'a> {
    kind: i64,
    path: Vec<&'a [u8]>,
    codec: i64,
    values: u64,
    compressed_bytes: u64,
    data_offset: u64,
    dictionary_offset: Option<u64>,
}

impl<'a> Footer<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Self> {
        let inner = file
            .strip_prefix(MAGIC)
            .and_then(|file| file.strip_suffix(MAGIC));
        let inner = inner.ok_or("it is no Parquet file, or a part of one")?;
        let (rest, length) = inner.split_last_chunk::<4>().ok_or("it is too short")?;
        let length = u32::from_le_bytes(*length) as usize;
        let start = rest.len().checked_sub(length);
        let metadata = start.and_then(|start| rest.get(start..));
        let mut thrift = Thrift(metadata.ok_or("its metadata are longer than the file")?);
        let (mut schema, mut rows, mut row_groups) = (Vec::new(), 0, Vec::new());
        thrift.structure(|thrift, field, kind| {
            match (field, kind) {
                (2, types::LIST) => schema = thrift.list(schema_element)?,
                (3, _) => rows = thrift.size()?,
                (4, types::LIST) => row_groups = thrift.list(row_group)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if schema.iter().skip(1).any(|element| element.children != 0) {
            return Err("its columns are nested");
        }
        let chunk = |column| chunk(file, &schema, column);
        let columns = |columns: Vec<_>| columns.into_iter().map(chunk).collect::<Result<Vec<_>>>();
        let row_groups = row_groups.into_iter().map(columns);
        Ok(Self {
            rows,
            row_groups: row_groups.collect::<Result<_>>()?,
        })
    }
}

fn chunk<'a>(
    file: &'a [u8],
    schema: &[SchemaElement<'a>],
    column: ColumnMetadata<'a>,
) -> Result<ColumnChunk<'a>> {
    let [name] = column.path[..] else {
        return Err("its columns are nested");
    };
    let element = schema.iter().skip(1).find(|element| element.name == name);
    let repetition = element.ok_or("a column is not in its schema")?.repetition;
    if repetition > 1 {
        return Err("a column has lists");
    }
    let start = column.dictionary_offset.filter(|offset| *offset > 0);
    let start = start.unwrap_or(column.data_offset).min(column.data_offset);
    let end = start.saturating_add(column.compressed_bytes);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let bytes = range.and_then(|(start, end)| file.get(start..end));
    Ok(ColumnChunk {
        name,
        kind: Type::of(column.kind),
        codec: column.codec,
        values: column.values,
        bytes: bytes.ok_or("a column reaches beyond the file")?,
        is_optional: repetition == 1,
    })
}

fn schema_element<'a>(thrift: &mut Thrift<'a>) -> Result<SchemaElement<'a>> {
    let mut element = SchemaElement::default();
    thrift.structure(|thrift, field, kind| {
        match (field, kind) {
            (3, _) => element.repetition = thrift.number()?,
            (4, _) => element.name = thrift.binary()?,
            (5, _) => element.children = thrift.number()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

fn row_group<'a>(thrift: &mut Thrift<'a>) -> Result<Vec<ColumnMetadata<'a>>> {
    let mut columns = Vec::new();
    thrift.structure(|thrift, field, kind| {
        match (field, kind) {
            (1, types::LIST) => columns = thrift.list(column_chunk)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(columns)
}

fn column_chunk<'a>(thrift: &mut Thrift<'a>) -> Result<ColumnMetadata<'a>> {
    let mut metadata = None;
    let mut is_elsewhere = false;
    thrift.structure(|thrift, field, _| {
        match field {
            1 => is_elsewhere = !thrift.binary()?.is_empty(),
            3 => metadata = Some(column_metadata(thrift)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match is_elsewhere {
        true => Err("a column is in another file"),
        false => metadata.ok_or("a column has no metadata"),
    }
}

fn column_metadata<'a>(thrift: &mut Thrift<'a>) -> Result<ColumnMetadata<'a>> {
    let mut column = ColumnMetadata::default();
    thrift.structure(|thrift, field, kind| {
        match (field, kind) {
            (1, _) => column.kind = thrift.number()?,
            (3, types::LIST) => column.path = thrift.list(Thrift::binary)?,
            (4, _) => column.codec = thrift.number()?,
            (5, _) => column.values = thrift.size()?,
            (7, _) => column.compressed_bytes = thrift.size()?,
            (9, _) => column.data_offset = thrift.size()?,
            (11, _) => column.dictionary_offset = Some(thrift.size()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(column)
}
