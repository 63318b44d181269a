//! Level: real mounts of databases, written by the usual libraries. The same keys in a zip are the
//! reference.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::servers;

mod damage;
mod dbm;
mod hierarchies;
mod mongodb;
mod overwrites;
mod redis;
mod schemas;
mod writers;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the Python of the fixtures.
fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/.venv2");
    let python = std::env::var_os("ZARRFS_VENV2").map_or(own, PathBuf::from);
    let python = python.join("bin/python");
    assert!(
        python.exists(),
        "no {python:?}: run tests/fixtures/setup.sh"
    );
    python
}

/// Returns a command of `write.py` with the Python of the fixtures.
fn write() -> Command {
    let mut command = Command::new(python());
    command.arg("-Wignore");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/databases/write.py"));
    command
}

/// Returns a command of `write_dbm.py` with the Python of the system, which has the database packages.
fn write_dbm() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-Wignore");
    command.arg(root.join("tests/databases/write_dbm.py"));
    command
}

/// The kinds of databases of `write.py`.
const KINDS: [&str; 4] = ["sqlite", "wal", "lmdb0", "lmdb1"];
