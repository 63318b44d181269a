//! The index of bgenix: a database of SQLite with the place of each record ("The bgenix index file format").

use rusqlite::{Connection, Error, ErrorCode, MAIN_DB, params};

use super::super::genotypes::Variant;
use crate::fallible::{List, NoMemory};
use crate::node::ContentError;

/// The number of bytes at the beginning of a file by which bgenix recognizes it.
pub(super) const BEGINNING_BYTES: usize = 1000;
/// The size of a page of the database in bytes.
const PAGE_BYTES: u64 = 4096;

/// The tables, as bgenix makes them.
const TABLES: &str = "
    CREATE TABLE Metadata (
      filename TEXT NOT NULL,
      file_size INT NOT NULL,
      last_write_time INT NOT NULL,
      first_1000_bytes BLOB NOT NULL,
      index_creation_time INT NOT NULL
    );
    CREATE TABLE Variant (
      chromosome TEXT NOT NULL,
      position INT NOT NULL,
      rsid TEXT NOT NULL,
      number_of_alleles INT NOT NULL,
      allele1 TEXT NOT NULL,
      allele2 TEXT NULL,
      file_start_position INT NOT NULL,
      size_in_bytes INT NOT NULL,
      PRIMARY KEY (chromosome, position, rsid, allele1, allele2, file_start_position)
    ) WITHOUT ROWID;
";

/// What the index says about its file.
#[derive(Debug)]
pub(super) struct Metadata<'a> {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    /// When the file was modified, in seconds since 1970; also the time of the index, which is the same whenever it is
    /// made.
    pub(super) modified_seconds: u64,
    /// The first [`BEGINNING_BYTES`] of the file, or all of a shorter one.
    pub(super) beginning: &'a [u8],
}

/// The place of a record in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) size_bytes: u64,
}

/// Returns the database of variants, which takes at most this many bytes.
///
/// # Errors
/// Returns why there is none: an error of a variant, or the limit.
pub(super) fn database<'a>(
    rows: impl Iterator<Item = Result<(Variant<'a>, Place), String>>,
    metadata: &Metadata<'_>,
    most_bytes: u64,
) -> Result<Vec<u8>, ContentError> {
    let why = |code, error: &Error| match code {
        Some(ErrorCode::DiskFull) => format!(
            "the index takes more than {most_bytes} bytes, an eighth of the memory limit: raise --memory-limit"
        ),
        _ => format!("the index cannot be made: SQLite: {error}"),
    };
    let failed = |error: Error| match error.sqlite_error_code() {
        Some(ErrorCode::OutOfMemory) => NoMemory(PAGE_BYTES).into(),
        code => ContentError::Absent(why(code, &error)),
    };
    let mut connection = Connection::open_in_memory().map_err(failed)?;
    let pages = (most_bytes / PAGE_BYTES).max(1);
    connection
        .execute_batch(&format!(
            "PRAGMA page_size = {PAGE_BYTES}; PRAGMA max_page_count = {pages}; {TABLES} BEGIN;"
        ))
        .map_err(failed)?;
    insert_metadata(&connection, metadata).map_err(failed)?;
    let statement = "INSERT INTO Variant VALUES (?, ?, ?, 2, ?, ?, ?, ?)";
    let mut insert = connection.prepare(statement).map_err(failed)?;
    for row in rows {
        let (variant, place) = row?;
        let values = params![
            variant.contig,
            variant.position,
            variant.id,
            variant.reference,
            variant.alternate,
            place.start.cast_signed(),
            place.size_bytes.cast_signed(),
        ];
        insert.execute(values).map_err(failed)?;
    }
    drop(insert);
    connection.execute_batch("COMMIT").map_err(failed)?;
    let database = connection.serialize(MAIN_DB).map_err(failed)?;
    let mut bytes = List::default();
    bytes.extend_from_slice(&database);
    Ok(bytes.finish()?)
}

fn insert_metadata(connection: &Connection, metadata: &Metadata<'_>) -> rusqlite::Result<()> {
    let seconds = metadata.modified_seconds.cast_signed();
    let values = params![
        metadata.name,
        metadata.size_bytes.cast_signed(),
        seconds,
        metadata.beginning,
        seconds,
    ];
    let statement = "INSERT INTO Metadata VALUES (?, ?, ?, ?, ?)";
    connection.execute(statement, values).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u64) -> impl Iterator<Item = Result<(Variant<'static>, Place), String>> {
        (0..count).map(|number| {
            let variant = Variant {
                contig: "chr1",
                position: number.cast_signed(),
                id: ".",
                reference: "A",
                alternate: "C",
            };
            let place = Place {
                start: 100 * number,
                size_bytes: 100,
            };
            Ok((variant, place))
        })
    }

    const METADATA: Metadata<'_> = Metadata {
        name: String::new(),
        size_bytes: 7,
        modified_seconds: 8,
        beginning: b"bgen",
    };

    #[test]
    fn databases_have_the_rows_and_are_the_same_each_time() {
        let database = database(rows(1000), &METADATA, 1 << 20).unwrap();
        assert!(database.starts_with(b"SQLite format 3\0"));
        assert_eq!(
            database,
            super::database(rows(1000), &METADATA, 1 << 20).unwrap()
        );
        let mut connection = Connection::open_in_memory().unwrap();
        let reader = &database[..];
        connection
            .deserialize_read_exact(MAIN_DB, reader, database.len(), true)
            .unwrap();
        let query = "SELECT count(*), max(file_start_position) FROM Variant WHERE position < 500";
        let found = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(found, Ok((500, 49900)));
        let query = "SELECT file_size, first_1000_bytes FROM Metadata";
        let found = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(found, Ok((7, b"bgen".to_vec())));
    }

    #[test]
    fn databases_above_the_limit_and_wrong_variants_are_errors() {
        let error = database(rows(10_000), &METADATA, 64 << 10);
        let is_too_long = |why: &str| why.contains("more than 65536 bytes");
        assert!(
            matches!(&error, Err(ContentError::Absent(why)) if is_too_long(why)),
            "{error:?}"
        );
        let wrong = std::iter::once(Err("variant 0 has no alleles".to_owned()));
        let error = database(wrong, &METADATA, 1 << 20);
        assert!(
            matches!(error, Err(ContentError::Absent(why)) if why == "variant 0 has no alleles")
        );
    }
}
