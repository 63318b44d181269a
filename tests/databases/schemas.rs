//! SQLite databases that are refused, each with a reason.

use std::path::Path;
use std::process::Command;

use zarrfs::runtime::block_on;
use zarrfs::store::{Key, OpenOptions, SourceName, Store};

use crate::support::*;

fn make(path: &Path, script: &str) {
    let program = "import sqlite3, sys\nsqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    run(Command::new("python3")
        .args(["-c", program])
        .arg(path)
        .arg(script));
}

fn open(path: &Path) -> Result<Box<dyn Store>, String> {
    let source = SourceName::parse(path).unwrap();
    block_on(source.open(&OpenOptions::default())).map_err(|e| e.to_string())
}

/// Scripts that create a database, and a word of the expected reason.
const REFUSED: [(&str, &str); 11] = [
    ("CREATE TABLE tiles(z, x, y, data)", "it has tiles"),
    (
        "CREATE TABLE t(k, v); CREATE VIEW zarr AS SELECT k, v FROM t",
        "is a view",
    ),
    (
        "CREATE VIRTUAL TABLE zarr USING fts5(k, v)",
        "is a virtual table",
    ),
    (
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB, w)",
        "other columns",
    ),
    (
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB AS (k))",
        "other columns",
    ),
    (
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID",
        "row numbers",
    ),
    ("CREATE TABLE zarr(k TEXT, v BLOB)", "no unique index"),
    (
        "CREATE TABLE zarr(k TEXT PRIMARY KEY COLLATE NOCASE, v BLOB)",
        "no unique index",
    ),
    (
        "CREATE TABLE zarr(k NUMERIC PRIMARY KEY, v BLOB)",
        "keys of the type",
    ),
    (
        "PRAGMA encoding = 'UTF-16'; CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB)",
        "UTF-16",
    ),
    (
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB); INSERT INTO zarr VALUES('a', 1), (x'61', 2)",
        "both text and blobs",
    ),
];

#[test]
fn a_table_that_cannot_be_read_is_refused_with_the_reason() {
    let scratch = scratch();
    for (number, (script, reason)) in REFUSED.iter().enumerate() {
        let path = scratch.path().join(number.to_string());
        make(&path, script);
        let error = open(&path).map(|_| ()).unwrap_err();
        assert!(error.contains(reason), "{script}: {error}");
    }
    let path = scratch.path().join("newer");
    make(
        &path,
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB);
         CREATE TABLE zarr_sqlitestore_metadata(k TEXT PRIMARY KEY, v TEXT);
         INSERT INTO zarr_sqlitestore_metadata VALUES('sqlitestore_version', '2.0')",
    );
    let error = open(&path).map(|_| ()).unwrap_err();
    assert!(error.contains("zarr-sqlite"), "{error}");
}

#[test]
fn a_name_of_a_file_is_no_uri_and_statistics_do_not_change_the_order() {
    let scratch = scratch();
    let path = scratch.path().join("file:a b%20?mode=memory&immutable=1#x");
    make(
        &path.with_file_name("plain"),
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB);
         INSERT INTO zarr VALUES('b', x'62'), ('a', x'6161'), ('n', 7), ('t', 'text');
         ANALYZE; UPDATE sqlite_stat1 SET stat = '4 4'",
    );
    std::fs::rename(path.with_file_name("plain"), &path).unwrap();
    let store = open(&path).unwrap();
    let stat = |name: &[u8]| block_on(store.stat(&Key::new(name).unwrap()));
    assert_eq!(stat(b"a").unwrap().size_bytes, 2);
    assert_eq!(stat(b"t").unwrap().size_bytes, 4);
    let number = stat(b"n").unwrap_err();
    assert!(number.to_string().contains("a number"), "{number}");
}
