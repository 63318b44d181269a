//! Tables of keys and values: how they are found, and the statements that read them.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use super::connection::failure;
use super::{Failure, SMALL_BYTES, WHOLE_BYTES, unsupported};

/// Table, key column and value column, as written by zarr-python 2 and zarr-sqlite, and by Python's
/// `dbm.sqlite3`.
const KNOWN: [(&str, &str, &str); 2] = [("zarr", "k", "v"), ("Dict", "key", "value")];

/// The SQL type of all keys in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    Text,
    Blob,
}

/// A table that can be read.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) value: &'static str,
    pub(super) key_type: KeyType,
    /// Statement: the first key at or after a bound.
    pub(super) seek: String,
    /// Statement: the keys at and after a bound.
    pub(super) keys: String,
    /// Statement: rows at and after a bound, with key, size of the value, and the value if it is small.
    pub(super) rows: String,
    /// Statement: the row of a key, with the same columns; the value if it is held.
    pub(super) row: String,
    /// Statement: the same, and the first key at or after a second bound.
    pub(super) row_with_next: String,
    /// Statement: the row number of a key.
    pub(super) number: String,
}

impl Table {
    /// The statements compare keys byte by byte, whatever the table declares, and use its index in index
    /// order, whatever statistics the database has.
    fn new(
        (name, key, value): (&'static str, &'static str, &'static str),
        index: &str,
        key_type: KeyType,
    ) -> Self {
        let index = index.replace('"', "\"\"");
        let source = format!("main.{name} INDEXED BY \"{index}\"");
        let behind = |bound: &str| match key_type {
            // In SQLite any text sorts before any blob.
            KeyType::Text => {
                format!("{key} COLLATE BINARY >= {bound} AND {key} COLLATE BINARY < x''")
            }
            KeyType::Blob => format!("{key} COLLATE BINARY >= {bound}"),
        };
        let columns = |most: u64| {
            format!(
                "{key}, octet_length({value}), \
                 CASE WHEN octet_length({value}) <= {most} THEN {value} END"
            )
        };
        let (small, held) = (columns(SMALL_BYTES), columns(WHOLE_BYTES));
        let order = format!("ORDER BY {key} COLLATE BINARY");
        let is_key = format!("{key} COLLATE BINARY = ?1");
        let seek = |bound| {
            let behind = behind(bound);
            format!("SELECT {key} FROM {source} WHERE {behind} {order} LIMIT 1")
        };
        let (next, behind) = (seek("?2"), behind("?1"));
        Self {
            name,
            value,
            key_type,
            seek: seek("?1"),
            keys: format!("SELECT {key} FROM {source} WHERE {behind} {order}"),
            rows: format!("SELECT {small} FROM {source} WHERE {behind} {order}"),
            row: format!("SELECT {held} FROM {source} WHERE {is_key}"),
            row_with_next: format!("SELECT {held}, ({next}) FROM {source} WHERE {is_key}"),
            number: format!("SELECT rowid FROM {source} WHERE {is_key}"),
        }
    }
}

/// Finds the table of keys and values.
pub(super) fn find(connection: &Connection) -> Result<Table, Failure> {
    let encoding: String = one(connection, "PRAGMA main.encoding", "")?.unwrap_or_default();
    if encoding != "UTF-8" {
        return Err(unsupported(format!(
            "an SQLite database of the encoding {encoding}; the keys of Zarr are UTF-8"
        )));
    }
    for (name, key, value) in KNOWN {
        let kind = "SELECT CASE WHEN type = 'table' AND rootpage > 0 THEN 'table' \
             WHEN type = 'table' THEN 'virtual table' ELSE type END \
             FROM main.sqlite_schema WHERE name = ?1";
        let kind: Option<String> = one(connection, kind, name)?;
        let Some(kind) = kind else { continue };
        if kind != "table" {
            return Err(unsupported(format!(
                "an SQLite database whose `{name}` is a {kind} and no table"
            )));
        }
        check_columns(connection, name, key, value)?;
        let index = index_of(connection, name, key)?;
        check_version(connection)?;
        let key_type = key_type(connection, name, key)?;
        let table = Table::new((name, key, value), &index, key_type);
        if connection.prepare(&table.number).is_err() {
            return Err(unsupported(format!(
                "an SQLite database whose table `{name}` has no row numbers"
            )));
        }
        return Ok(table);
    }
    Err(unsupported(format!(
        "an SQLite database without a table of Zarr keys, which is zarr(k, v) or Dict(key, value); {}",
        tables(connection)?
    )))
}

/// Returns the first column of the first row; `None` if no row exists or the column is NULL.
fn one<T: rusqlite::types::FromSql>(
    connection: &Connection,
    sql: &str,
    parameter: &str,
) -> Result<Option<T>, Failure> {
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    let found = match statement.parameter_count() {
        0 => statement.query_row([], |row| row.get(0)),
        _ => statement.query_row([parameter], |row| row.get(0)),
    };
    Ok(found.optional().map_err(failure)?.flatten())
}

/// Lists the tables of the database, for messages.
fn tables(connection: &Connection) -> Result<String, Failure> {
    let names = "SELECT group_concat(name, ', ') FROM (SELECT name FROM main.sqlite_schema \
         WHERE type = 'table' ORDER BY name LIMIT 8)";
    let names: Option<String> = one(connection, names, "")?;
    Ok(match names {
        Some(names) => format!("it has {}", names.escape_debug()),
        None => "it is empty".into(),
    })
}

/// Checks that the table has exactly the two columns, neither generated nor converting operands.
fn check_columns(
    connection: &Connection,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), Failure> {
    let columns: Option<String> = one(
        connection,
        "SELECT group_concat(name || ' ' || hidden, ',') FROM \
         (SELECT name, hidden FROM pragma_table_xinfo(?1) ORDER BY cid)",
        name,
    )?;
    if columns.as_deref() != Some(&format!("{key} 0,{value} 0")) {
        return Err(unsupported(format!(
            "an SQLite database whose table `{name}` has other columns than {key} and {value}"
        )));
    }
    let key_type: Option<String> = one(
        connection,
        "SELECT upper(type) FROM pragma_table_xinfo(?1) WHERE cid = 0",
        name,
    )?;
    let key_type = key_type.unwrap_or_default();
    // The rules of column affinity: https://sqlite.org/datatype3.html, 3.1.
    let is_text = ["CHAR", "CLOB", "TEXT"]
        .iter()
        .any(|part| key_type.contains(part));
    let is_blob = key_type.is_empty() || key_type.contains("BLOB");
    if key_type.contains("INT") || !(is_text || is_blob) {
        return Err(unsupported(format!(
            "an SQLite database whose table `{name}` has keys of the type {key_type:?}"
        )));
    }
    Ok(())
}

/// Returns the name of a unique index over the keys in byte order.
fn index_of(connection: &Connection, name: &str, key: &str) -> Result<String, Failure> {
    let index: Option<String> = one(
        connection,
        "SELECT list.name FROM pragma_index_list(?1) AS list WHERE \"unique\" = 1 AND partial = 0 AND \
         (SELECT group_concat(info.name || ' ' || coll, ',') FROM pragma_index_xinfo(list.name) AS info \
          WHERE info.key = 1) IN ('k BINARY', 'key BINARY')",
        name,
    )?;
    index.ok_or_else(|| {
        unsupported(format!(
            "an SQLite database whose table `{name}` has no unique index of {key}"
        ))
    })
}

/// Checks that a database of zarr-sqlite has version 1 of its specification, without incompatible
/// features.
fn check_version(connection: &Connection) -> Result<(), Failure> {
    const METADATA: &str = "zarr_sqlitestore_metadata";
    let kind = "SELECT type FROM main.sqlite_schema WHERE name = ?1";
    let kind: Option<String> = one(connection, kind, METADATA)?;
    if kind.as_deref() != Some("table") {
        return Ok(());
    }
    let entry = |name: &str| -> Result<String, Failure> {
        let value = "SELECT v FROM main.zarr_sqlitestore_metadata WHERE k = ?1";
        Ok(one(connection, value, name)?.unwrap_or_default())
    };
    let (version, flags) = (entry("sqlitestore_version")?, entry("incompatible_flags")?);
    let is_known = version.is_empty() || version.split('.').next() == Some("1");
    match is_known && flags.is_empty() {
        true => Ok(()),
        false => Err(unsupported(format!(
            "an SQLite database of version {version:?} of zarr-sqlite, with the features {flags:?}"
        ))),
    }
}

/// Returns the type of all keys: the type of the first and the last one, since types sort in order too.
fn key_type(connection: &Connection, name: &str, key: &str) -> Result<KeyType, Failure> {
    let edge = |order: &str| -> Result<Option<KeyType>, Failure> {
        let sql =
            format!("SELECT {key} FROM main.{name} ORDER BY {key} COLLATE BINARY {order} LIMIT 1");
        let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
        let mut rows = statement.query([]).map_err(failure)?;
        let Some(row) = rows.next().map_err(failure)? else {
            return Ok(None);
        };
        match row.get_ref(0).map_err(failure)? {
            ValueRef::Text(_) => Ok(Some(KeyType::Text)),
            ValueRef::Blob(_) => Ok(Some(KeyType::Blob)),
            _ => Err(unsupported(format!(
                "an SQLite database whose table `{name}` has keys that are neither text nor blobs"
            ))),
        }
    };
    match (edge("ASC")?, edge("DESC")?) {
        (Some(first), Some(last)) if first == last => Ok(first),
        (None, None) => Ok(KeyType::Text),
        _ => Err(unsupported(format!(
            "an SQLite database whose table `{name}` has both text and blobs as keys"
        ))),
    }
}
