//! Parquet encoder (<https://github.com/apache/parquet-format>): types of columns, pages, row groups and the footer.

mod column;
pub(in crate::view) mod dictionary;
mod file_metadata;
pub(in crate::view) mod nullable;
mod row_groups;
mod thrift;

pub(in crate::view) use self::column::{ColumnSource, ColumnType};
pub(in crate::view) use self::file_metadata::{FileColumn, footer, page_header};
pub(in crate::view) use self::row_groups::{RowGroup, RowGroups};

/// The first and the last bytes of a file.
pub(in crate::view) const MAGIC: &[u8] = b"PAR1";

/// `Encoding` of parquet.thrift.
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const RLE_DICTIONARY: i32 = 8;
