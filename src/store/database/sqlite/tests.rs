//! Tests of reads without locks while writers are active.

use std::time::Instant;

use rusqlite::Connection;

use super::files::has_exact_times;
use super::*;
use crate::store::database::file_state::FileState;

const KEYS: u32 = 200;

/// Creates a database whose values all are `a`, and a connection that writes to it.
fn database(directory: &Path) -> (SqliteDatabase, Connection) {
    let path = directory.join("test.sqlite");
    let writer = Connection::open(&path).unwrap();
    // Changed pages are written before the end of a transaction.
    let setup = "PRAGMA cache_size = 1; CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB)";
    writer.execute_batch(setup).unwrap();
    for key in 0..KEYS {
        let row = (format!("x/{key}"), vec![b'a'; 2000]);
        writer
            .execute("INSERT INTO zarr VALUES(?, ?)", row)
            .unwrap();
    }
    (SqliteDatabase::new(&path, 1 << 30).unwrap(), writer)
}

/// Returns the first byte of the values of some keys in one snapshot, and its generation.
fn read(database: &SqliteDatabase) -> Result<(Vec<u8>, u64), Failure> {
    let mut found = Vec::new();
    let mut generation = 0;
    database.read(Wait::Blocking, &mut |snapshot| {
        found.clear();
        generation = snapshot.generation();
        for key in (0..KEYS).step_by(20) {
            let value = snapshot.find(format!("x/{key}").as_bytes())?.unwrap();
            found.push(value.content.unwrap()[0]);
        }
        Ok(())
    })?;
    Ok((found, generation))
}

/// Reads until a read needs no locks; returns whether the file system permits that.
fn read_until_unlocked(database: &SqliteDatabase, byte: u8) -> bool {
    let begun = Instant::now();
    while database.state.lock().unlocked.is_none() {
        let (found, _) = read(database).unwrap();
        assert!(found.iter().all(|first| *first == byte));
        let file = FileState::at(&database.path).unwrap();
        if begun.elapsed() > Duration::from_secs(10) {
            assert!(!has_exact_times(&database.path, &file), "locks are needed");
            return false;
        }
    }
    true
}

#[test]
fn reads_without_locks_see_each_commit_and_never_half_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let (database, writer) = database(directory.path());
    for byte in [b'b', b'c'] {
        if !read_until_unlocked(&database, byte - 1) {
            return;
        }
        let (_, before) = read(&database).unwrap();
        assert!(database.state.lock().unlocked.is_some());
        let update = format!(
            "BEGIN; UPDATE zarr SET v = CAST('{}' AS BLOB)",
            char::from(byte)
        );
        writer.execute_batch(&update).unwrap();
        // The writer has written pages, and its lock covers them.
        assert!(matches!(read(&database), Err(Failure::Busy(_))));
        assert!(database.state.lock().unlocked.is_none());
        writer.execute_batch("COMMIT").unwrap();
        let (found, after) = read(&database).unwrap();
        assert!(found.iter().all(|first| *first == byte));
        assert_ne!(before, after, "a change has a generation of its own");
    }
}

#[test]
fn a_database_that_changes_to_wal_mode_is_read_with_locks() {
    let directory = tempfile::tempdir().unwrap();
    let (database, writer) = database(directory.path());
    read_until_unlocked(&database, b'a');
    writer
        .execute_batch("PRAGMA journal_mode = WAL; UPDATE zarr SET v = x'62'")
        .unwrap();
    for _ in 0..100 {
        let (found, _) = read(&database).unwrap();
        assert!(found.iter().all(|first| *first == b'b'));
        assert!(database.state.lock().unlocked.is_none());
    }
}

#[test]
fn a_database_that_is_cut_in_its_header_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.sqlite");
    std::fs::write(&path, MAGIC).unwrap();
    let database = SqliteDatabase::new(&path, 1 << 30).unwrap();
    let error = format!("{:?}", read(&database).unwrap_err());
    assert!(error.contains("the database ends in its header"), "{error}");
}
