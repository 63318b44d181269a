//! SQLite databases with a table of keys and values.
//!
//! One connection, which never writes. Each request is one read transaction, so that writers can run
//! checkpoints. The data version of SQLite tells whether another process has committed since the last
//! transaction. While the file does not change, a second connection reads it without locks (see
//! `connection`). In WAL mode even an idle connection keeps the last writer from a checkpoint, so such
//! a connection is closed when it is idle.
//!
//! The file is untrusted: triggers, views and functions of its schema are disabled, sizes are limited, and
//! only a real table with two columns is read (see `schema`). The file is never mapped into memory.
//!
//! **Invariant:** nothing in this process may open and close the file of a database beside its connection:
//! closing any descriptor of a file releases all POSIX locks that the process has on it.

mod connection;
mod files;
mod schema;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row as SqlRow, Statement, params_from_iter};

use self::connection::{Session, TransactionEnd};
use self::schema::{KeyType, Table};
use super::versions::identity_of;
use super::{
    Columns, Database, Failure, FoundValue, FoundWithNext, ReadValue, SMALL_BYTES, Snapshot,
    ValueMeta, VisitRow, WHOLE_BYTES, Wait, Work, corrupt, file_error, unsupported,
};
use crate::runtime;
use crate::store::{Extent, Key, StoreError};
use crate::sync::Mutex;

/// The first bytes of an SQLite database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// A database and its connection.
#[derive(Debug)]
pub(super) struct SqliteDatabase {
    path: PathBuf,
    heap_bytes: u64,
    state: Arc<Mutex<State>>,
}

impl SqliteDatabase {
    /// Creates a database that is opened at the first read. SQLite may use a part of the memory limit.
    pub(super) fn new(path: &Path, memory_limit_bytes: u64) -> io::Result<Self> {
        Ok(Self {
            heap_bytes: connection::heap_bytes(memory_limit_bytes),
            // SQLite never takes an absolute path for a URI.
            path: path.canonicalize()?,
            state: Arc::default(),
        })
    }
}

#[derive(Debug, Default)]
struct State {
    session: Option<Session>,
    /// The connection that reads the state of the last transaction of `session` without locks.
    unlocked: Option<Session>,
    generation: u64,
    /// When the connection was last used, if it is to be closed when idle.
    used: Option<Instant>,
}

impl State {
    /// Reads without locks; `None` if that is impossible, or the file has changed.
    fn read_unlocked(
        &mut self,
        path: &Path,
        wait: Wait,
        work: &mut Work<'_>,
    ) -> Option<Result<(), Failure>> {
        let open = self.unlocked.as_mut()?;
        match open.transaction(path, wait, &mut self.generation, work) {
            TransactionEnd::Read(result) => Some(result),
            // A transaction with locks finds the reason.
            TransactionEnd::Failed(_) | TransactionEnd::Moved => {
                self.unlocked = None;
                None
            }
        }
    }
}

/// How long a connection that blocks a writer may be idle.
const IDLE: Duration = Duration::from_secs(2);

/// Closes the connection once it has been idle for [`IDLE`].
async fn close_when_idle(state: Arc<Mutex<State>>) {
    loop {
        let _ = runtime::timeout(IDLE, std::future::pending::<()>()).await;
        let mut state = state.lock();
        if state.used.is_none_or(|used| used.elapsed() >= IDLE) {
            (state.session, state.used) = (None, None);
            return;
        }
    }
}

/// Number of connections that one call opens while the files change under them.
const MAX_SESSIONS: usize = 4;

impl Database for SqliteDatabase {
    fn read(&self, wait: Wait, work: &mut Work<'_>) -> Result<(), Failure> {
        let mut state = match wait {
            Wait::Blocking => self.state.lock(),
            Wait::NonBlocking => self
                .state
                .try_lock()
                .ok_or(Failure::Busy("connection to the database"))?,
        };
        if let Some(result) = state.read_unlocked(&self.path, wait, work) {
            return result;
        }
        let State {
            session,
            unlocked,
            generation,
            used,
        } = &mut *state;
        for _ in 0..MAX_SESSIONS {
            if let Some(open) = &*session
                && !open.is_proved_later()
                && !open.is_current(&self.path)?
            {
                *session = None;
            }
            let open = match session {
                Some(open) => open,
                None => {
                    *generation = generation.wrapping_add(1);
                    session.insert(Session::open(&self.path, self.heap_bytes)?)
                }
            };
            let is_in_the_way = open.is_in_the_way();
            match open.transaction(&self.path, wait, generation, work) {
                TransactionEnd::Read(result) => {
                    if is_in_the_way && used.replace(Instant::now()).is_none() {
                        runtime::spawn(close_when_idle(Arc::clone(&self.state))).detach();
                    }
                    // If this fails, reads continue with locks.
                    let file = open.take_unlocked();
                    *unlocked = file.and_then(|file| {
                        Session::open_unlocked(&self.path, self.heap_bytes, file).ok()
                    });
                    return result;
                }
                // The connection's own state may have caused the failure, so the next call opens another one.
                TransactionEnd::Failed(failure) => {
                    *session = None;
                    return Err(failure);
                }
                TransactionEnd::Moved => *session = None,
            }
        }
        Err(Failure::Busy("database that stays as it is for one read"))
    }

    fn extent(&self) -> Extent {
        Extent {
            bytes: std::fs::metadata(&self.path).map_or(0, |file| file.len()),
            keys: 0,
        }
    }
}

/// One read transaction.
struct Transaction<'a> {
    session: &'a Session,
    table: &'a Table,
    generation: u64,
    modified: SystemTime,
}

/// A key as an SQL value.
struct BoundKey<'a>(KeyType, &'a [u8]);

impl ToSql for BoundKey<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            KeyType::Text => ValueRef::Text(self.1),
            KeyType::Blob => ValueRef::Blob(self.1),
        }))
    }
}

impl Transaction<'_> {
    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Failure> {
        let statement = self.session.connection().prepare_cached(sql);
        statement.map_err(connection::failure)
    }

    fn key<'k>(&self, key: &'k [u8]) -> BoundKey<'k> {
        BoundKey(self.table.key_type, key)
    }

    /// Calls `visit` for each row of a statement whose parameters are keys.
    fn rows<const N: usize>(
        &self,
        statement: &mut Statement<'_>,
        keys: [&[u8]; N],
        visit: &mut dyn FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let keys = params_from_iter(keys.map(|key| self.key(key)));
        let mut rows = statement.query(keys).map_err(connection::failure)?;
        while let Some(row) = rows.next().map_err(connection::failure)? {
            if visit(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A column of a row.
fn column<'a>(row: &'a SqlRow<'_>, index: usize) -> Result<ValueRef<'a>, Failure> {
    row.get_ref(index).map_err(connection::failure)
}

/// Returns the bytes of the key in the first column.
fn key_of<'a>(row: &'a SqlRow<'_>) -> Result<&'a [u8], Failure> {
    key_at(row, 0)
}

/// Returns the bytes of the key in a column.
fn key_at<'a>(row: &'a SqlRow<'_>, index: usize) -> Result<&'a [u8], Failure> {
    match column(row, index)? {
        ValueRef::Text(key) | ValueRef::Blob(key) => Ok(key),
        _ => Err(corrupt("a key that is neither text nor a blob")),
    }
}

/// Returns the value of a row with the columns of [`Table::rows`], and its bytes if it has at most `most`.
fn value_of<'a>(
    row: &'a SqlRow<'_>,
    most: u64,
) -> Result<Result<ReadValue<'a>, StoreError>, Failure> {
    let size_bytes = match column(row, 1)? {
        ValueRef::Integer(size) => u64::try_from(size).ok(),
        _ => None,
    };
    let Some(size_bytes) = size_bytes else {
        return Ok(Err(no_value("NULL")));
    };
    Ok(match column(row, 2)? {
        ValueRef::Text(content) | ValueRef::Blob(content) => {
            let value = ValueMeta {
                size_bytes: content.len() as u64,
                identity: (content.len() as u64 <= SMALL_BYTES).then(|| identity_of(content)),
            };
            Ok((value, Some(content.into())))
        }
        // Numbers have a length too, but never this many digits.
        ValueRef::Null if size_bytes > most => {
            let identity = None;
            Ok((
                ValueMeta {
                    size_bytes,
                    identity,
                },
                None,
            ))
        }
        _ => Err(no_value("a number")),
    })
}

fn no_value(what: &str) -> StoreError {
    StoreError::Corrupt {
        key: Key::root(),
        what: format!("its value is {what} and no blob"),
    }
}

impl Snapshot for Transaction<'_> {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn modified(&self) -> SystemTime {
        self.modified
    }

    fn may_have_writer(&self) -> bool {
        self.session.is_in_the_way()
    }

    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut found = None;
        let mut statement = self.prepare(&self.table.seek)?;
        self.rows(&mut statement, [bound], &mut |row| {
            found = Some(key_of(row)?.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    fn find(&mut self, key: &[u8]) -> Result<Option<FoundValue>, Failure> {
        let mut found = None;
        let mut statement = self.prepare(&self.table.row)?;
        self.rows(&mut statement, [key], &mut |row| {
            let (value, content) = value_of(row, WHOLE_BYTES)??;
            let content = content.map(Cow::into_owned);
            found = Some(FoundValue { value, content });
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    fn find_with_next(&mut self, key: &[u8], bound: &[u8]) -> Result<FoundWithNext, Failure> {
        let mut found = None;
        let mut statement = self.prepare(&self.table.row_with_next)?;
        self.rows(&mut statement, [key, bound], &mut |row| {
            // After the last key the column is NULL. Keys below this one hide its value. In both cases the
            // caller finds the entry in another way.
            let next = match column(row, 3)? {
                ValueRef::Null => None,
                _ => Some(key_at(row, 3)?).filter(|next| !next.starts_with(bound)),
            };
            if let Some(next) = next {
                let (value, content) = value_of(row, WHOLE_BYTES)??;
                let content = content.map(Cow::into_owned);
                found = Some((FoundValue { value, content }, next.to_vec()));
            }
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        let sql = match columns {
            Columns::Keys => &self.table.keys,
            Columns::All => &self.table.rows,
        };
        let mut statement = self.prepare(sql)?;
        self.rows(&mut statement, [bound], &mut |row| {
            let value = match columns {
                Columns::Keys => None,
                Columns::All => value_of(row, SMALL_BYTES)?.ok(),
            };
            Ok(visit(key_of(row)?, value))
        })
    }

    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let mut row_number = None;
        let mut statement = self.prepare(&self.table.number)?;
        self.rows(&mut statement, [key], &mut |row| {
            row_number = match column(row, 0)? {
                ValueRef::Integer(number) => Some(number),
                _ => None,
            };
            Ok(ControlFlow::Break(()))
        })?;
        let lost = || StoreError::internal("a row that was found is gone");
        let table = self.table;
        let connection = self.session.connection();
        let blob = connection
            .blob_open(
                "main",
                table.name,
                table.value,
                row_number.ok_or_else(lost)?,
                true,
            )
            .map_err(connection::failure)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        blob.read_at_exact(target, start)
            .map_err(connection::failure)
    }
}
