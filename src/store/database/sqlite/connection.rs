//! A read-only connection, and how it is opened while writers are active.
//!
//! | files | how the database is opened |
//! |---|---|
//! | a database in WAL mode, without content in a `-wal` file | as immutable; a read is valid if the files are the same before and after it, so SQLite neither needs nor creates a `-shm` file |
//! | a database in WAL mode, with a `-wal` file that has content, and a `-shm` file | with the locks of SQLite |
//! | the same without a `-shm` file, which SQLite would have to write | not at all |
//! | any other one | with the locks of SQLite, which rolls back nothing: an interrupted transaction is an error |
//!
//! A database whose `-wal` file has content is never opened as immutable: SQLite would ignore that content.
//!
//! Programs such as cp(1) and rsync(1) overwrite a file without locks, and the new database can have the change
//! counter of the old one, for which SQLite keeps its page cache. So a read with locks is valid if the state of
//! the file is the same before and after it, and if the file was settled, for which a transaction waits while
//! its lock excludes writers. If the file changes although no transaction was committed, the connection is
//! replaced, and its database has another generation. In WAL mode a checkpoint has that effect too, and it can
//! run during a read, so there the state is compared only between reads.
//!
//! After many reads without a change, a database that is not in WAL mode is opened a second time, as
//! immutable, beside the connection with locks. The state of its files was recorded in a transaction with
//! locks, when no writer was active, and every write changes the times of the file. So a read is valid if
//! the state is the same after it. A lookup takes 3 system calls without locks, and 11 with them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, ffi};

use super::files::{self, Files};
use super::schema::{self, Table};
use super::{Failure, MAGIC, Transaction, Work, corrupt, file_error, unsupported};
use crate::store::database::Wait;
use crate::store::database::file_state::FileState;
use crate::store::{Key, StoreError};

/// A connection and the state of its database.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    files: Files,
    /// Whether SQLite opened the database as immutable, without locks.
    is_immutable: bool,
    /// Whether the database was in WAL mode when it was opened.
    is_wal: bool,
    state: Option<LastState>,
    /// The file in the last transaction, if reads without locks are worthwhile and can be proved.
    unlocked: Option<FileState>,
}

/// The state of the database in the last transaction.
#[derive(Debug)]
struct LastState {
    data_version: i64,
    /// The database file; of an immutable database, its files are compared instead.
    database: FileState,
    modified: SystemTime,
    table: Table,
    /// Number of transactions since then.
    reads: u32,
}

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum TransactionEnd {
    /// The work returned this result, which is proved.
    Read(Result<(), Failure>),
    /// The transaction returned no result.
    Failed(Failure),
    /// The files changed under the connection; another connection is needed.
    Moved,
}

/// Number of transactions without a change after which reads use no locks.
const READS_WITH_LOCKS: u32 = 16;
/// Bytes that all connections together may allocate: the least that they need, and the upper limit.
const HEAP_BYTES: RangeInclusive<u64> = 16 << 20..=128 << 20;
/// The longest key, and the longest SQL statement of a schema, in bytes.
const MAX_LENGTH: i32 = 16 << 20;

/// Bytes that all connections together may allocate, given the memory limit.
pub(super) fn heap_bytes(memory_limit_bytes: u64) -> u64 {
    (memory_limit_bytes / 16).clamp(*HEAP_BYTES.start(), *HEAP_BYTES.end())
}

/// Settings for an untrusted database. Those that need no access to the file come first.
const SETTINGS: &str = "PRAGMA trusted_schema = OFF; PRAGMA query_only = ON; \
    PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;";

impl Session {
    /// Opens the database at an absolute path. No other descriptor of the file may be open in this process.
    pub(super) fn open(path: &Path, heap_bytes: u64) -> Result<Self, Failure> {
        let failed = |error| Failure::Failed(file_error(error));
        let files = Files::of(path).map_err(failed)?;
        let is_wal = is_wal(path).map_err(failed)?;
        let is_immutable = is_wal && !files.has_wal() && !files.has_journal();
        if is_immutable && !files.database().is_settled() {
            return Err(Failure::Busy("end of a write to the database"));
        }
        if is_wal && files.has_wal() && !files::beside(path, "-shm").exists() {
            return Err(unavailable(
                "its -wal file has changes, but there is no -shm file; open it once with a program \
                 that may write to the directory",
            ));
        }
        Self::connect(path, heap_bytes, files, is_wal, is_immutable)
    }

    /// Opens the database at an absolute path for reads without locks. `database` was returned by
    /// [`Session::take_unlocked`].
    pub(super) fn open_unlocked(
        path: &Path,
        heap_bytes: u64,
        database: FileState,
    ) -> Result<Self, Failure> {
        Self::connect(path, heap_bytes, Files::alone(database), false, true)
    }

    fn connect(
        path: &Path,
        heap_bytes: u64,
        files: Files,
        is_wal: bool,
        is_immutable: bool,
    ) -> Result<Self, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match is_immutable {
            true => {
                let path = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
                let uri = format!("file:{path}?immutable=1");
                Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
            }
            false => Connection::open_with_flags(path, flags),
        };
        let connection = connection.map_err(failure)?;
        configure(&connection, heap_bytes).map_err(failure)?;
        Ok(Self {
            connection,
            files,
            is_immutable,
            is_wal,
            state: None,
            unlocked: None,
        })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether the files at `path` are still those of the connection. This proves a read without locks.
    pub(super) fn is_current(&self, path: &Path) -> Result<bool, Failure> {
        let is_current = match (self.is_immutable, self.is_wal) {
            (true, true) => Files::of(path).map(|files| files == self.files),
            (true, false) => FileState::at(path).map(|file| file == *self.files.database()),
            (false, _) => FileState::at(path).map(|file| file.is_same_file(self.files.database())),
        };
        is_current.map_err(|error| Failure::Failed(file_error(error)))
    }

    /// Whether [`Session::transaction`] itself fails if the files have changed.
    pub(super) fn is_proved_later(&self) -> bool {
        self.is_immutable
    }

    /// Whether the connection keeps a writer in WAL mode from a checkpoint when it closes the database.
    pub(super) fn is_in_the_way(&self) -> bool {
        !self.is_immutable && self.files.has_wal()
    }

    /// Calls `work` in one read transaction. A change by another process increases `generation`.
    pub(super) fn transaction(
        &mut self,
        path: &Path,
        wait: Wait,
        generation: &mut u64,
        work: &mut Work<'_>,
    ) -> TransactionEnd {
        let result = match self.begin(path, wait, generation) {
            Ok(true) => self.work(*generation, work),
            Ok(false) => return TransactionEnd::Moved,
            Err(failure) => Err(failure),
        };
        self.unlocked = match &result {
            Ok(()) => self.file_without_locks(path),
            Err(_) => None,
        };
        let is_proved = self.is_unchanged(path);
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("COMMIT")
        {
            return TransactionEnd::Failed(error);
        }
        if !is_proved {
            return TransactionEnd::Moved;
        }
        match result {
            Err(Failure::Failed(
                error @ (StoreError::Corrupt { .. }
                | StoreError::Io { .. }
                | StoreError::Unavailable { .. }),
            )) => TransactionEnd::Failed(Failure::Failed(error)),
            result => TransactionEnd::Read(result),
        }
    }

    /// Whether no program has written to the files during a transaction.
    fn is_unchanged(&self, path: &Path) -> bool {
        match &self.state {
            _ if self.is_immutable => self.is_current(path).unwrap_or(false),
            Some(state) if !self.has_checkpoints() => {
                FileState::at(path).is_ok_and(|file| file == state.database)
            }
            _ => true,
        }
    }

    /// Whether a program may write to the database file while the connection has the lock of a reader.
    fn has_checkpoints(&self) -> bool {
        self.is_wal && !self.is_immutable
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        let statement = self.connection.prepare_cached(sql);
        let executed = statement.and_then(|mut statement| statement.execute([]));
        executed.map(|_| ()).map_err(failure)
    }

    /// Returns the file for [`Session::open_unlocked`], once, in a transaction whose locks exclude writers.
    fn file_without_locks(&mut self, path: &Path) -> Option<FileState> {
        let state = self.state.as_mut().filter(|_| !self.is_immutable)?;
        state.reads = state.reads.wrapping_add(1);
        if !state.reads.is_multiple_of(READS_WITH_LOCKS) {
            return None;
        }
        let database = state.database;
        // A writer may have changed the mode since the database was opened.
        let mode = self.connection.prepare_cached("PRAGMA main.journal_mode");
        let mode = mode.and_then(|mut it| it.query_row([], |row| row.get::<_, String>(0)));
        let has_rollback_journal = !self.is_wal && mode.is_ok_and(|mode| mode == "delete");
        (has_rollback_journal && files::has_exact_times(path, &database)).then_some(database)
    }

    /// Returns the file for reads without locks, if the last transaction has recorded it.
    pub(super) fn take_unlocked(&mut self) -> Option<FileState> {
        self.unlocked.take()
    }

    /// Begins a transaction; returns false if the file has changed and no commit explains that.
    fn begin(&mut self, path: &Path, wait: Wait, generation: &mut u64) -> Result<bool, Failure> {
        if self.is_immutable && self.state.is_some() {
            return Ok(true);
        }
        self.execute("BEGIN")?;
        let data_version = {
            let statement = self.connection.prepare_cached("PRAGMA data_version");
            let version = statement.and_then(|mut it| it.query_row([], |row| row.get(0)));
            version.map_err(failure)?
        };
        let Some(database) = self.settled_file(path, wait)? else {
            return Ok(false);
        };
        match &self.state {
            Some(state) if state.data_version == data_version => {
                return Ok(state.database == database);
            }
            Some(_) => *generation = generation.wrapping_add(1),
            None => {}
        }
        self.state = None;
        self.state = Some(LastState {
            data_version,
            database,
            modified: files::modified(path),
            table: schema::find(&self.connection)?,
            reads: 0,
        });
        Ok(true)
    }

    /// Returns the state of the database file in a transaction, once any later write would change it; `None`
    /// if it has changed meanwhile.
    fn settled_file(&self, path: &Path, wait: Wait) -> Result<Option<FileState>, Failure> {
        let state = || FileState::at(path).map_err(|error| Failure::Failed(file_error(error)));
        let database = state()?;
        if !database.is_same_file(self.files.database()) {
            return Ok(None);
        }
        let left = database.settles_in();
        if left.is_zero() || self.is_immutable || self.has_checkpoints() {
            return Ok(Some(database));
        }
        if wait == Wait::NonBlocking {
            return Err(Failure::Busy("end of a write to the database"));
        }
        // The lock of the transaction keeps writers from changing the file again.
        std::thread::sleep(left);
        Ok((state()? == database).then_some(database))
    }

    fn work(&self, generation: u64, work: &mut Work<'_>) -> Result<(), Failure> {
        let state = self
            .state
            .as_ref()
            .ok_or_else(|| StoreError::internal("a transaction without a table"))?;
        work(&mut Transaction {
            session: self,
            table: &state.table,
            generation,
            modified: state.modified,
        })
    }
}

/// Whether the header of a database says that it is in WAL mode.
fn is_wal(path: &Path) -> io::Result<bool> {
    const WAL: u8 = 2;
    let mut header = [0; 20];
    let read = File::open(path)?.read_exact(&mut header);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("the database ends in its header"),
        _ => error,
    })?;
    Ok(header.starts_with(MAGIC) && header.ends_with(&[WAL, WAL]))
}

fn configure(connection: &Connection, heap_bytes: u64) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::ZERO)?;
    for (setting, is_on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    ] {
        connection.set_db_config(setting, is_on)?;
    }
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    connection.execute_batch(SETTINGS)?;
    // Size of the page cache in KiB; there are two connections.
    let cache = heap_bytes / 16 / 1024;
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit = {heap_bytes}; PRAGMA cache_size = -{cache};"
    ))
}

fn unavailable(what: impl Into<String>) -> Failure {
    Failure::Failed(StoreError::Unavailable {
        key: Key::root(),
        what: what.into(),
    })
}

/// Converts an error of SQLite.
pub(super) fn failure(error: Error) -> Failure {
    let Error::SqliteFailure(code, message) = &error else {
        return match error {
            Error::BlobSizeError => corrupt("a value is shorter than it was"),
            error => unsupported(format!("SQLite: {error}")),
        };
    };
    let what = message.clone().unwrap_or_else(|| code.to_string());
    let key = Key::root();
    match code.code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => Failure::Busy("lock of the database"),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => corrupt(what),
        ErrorCode::TooBig => unsupported("a key of more than 16 MiB"),
        ErrorCode::OutOfMemory => Failure::Failed(StoreError::TooLarge {
            key,
            need_bytes: *HEAP_BYTES.end(),
            limit_bytes: *HEAP_BYTES.end(),
        }),
        ErrorCode::SystemIoFailure => Failure::Failed(StoreError::Io {
            key,
            source: Arc::new(io::Error::other(what)),
        }),
        ErrorCode::OperationAborted => Failure::Failed(StoreError::Stale { key, what }),
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_ROLLBACK => unavailable(
            "a writer was interrupted; open the database once with a program that may write, which \
             rolls its transaction back",
        ),
        _ => unavailable(format!("SQLite: {what}")),
    }
}
