//! Level: real mounts of references that kerchunk and VirtualiZarr wrote, and of hostile ones. The
//! data that h5py and netCDF4 read from the files are the expected values.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

#[path = "../support/mod.rs"]
mod support;

mod grib;
mod hostile;
mod kerchunk;
mod prefetch;
mod remote;
mod tiff;

pub use support::{clients, faulty, servers};

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Mount, run, scratch};

/// Returns the directory of the files that `make.py` wrote.
fn fixtures() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/references");
    assert!(
        path.join("stamp").exists(),
        "no {path:?}: run tests/references/setup.sh"
    );
    path
}

/// Copies these files, with their times, so that a test can change them.
fn copied() -> tempfile::TempDir {
    let directory = scratch();
    run(Command::new("cp")
        .arg("-a")
        .arg(fixtures().join("."))
        .arg(directory.path()));
    directory
}

/// Returns a command of `make.py` with its Python.
fn make() -> Command {
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references/make.py"));
    command
}

fn python() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references/.venv/bin/python"))
}

/// Asserts that the arrays of a mount are those of one file, or of several files.
fn is_equal(mount: &Mount, expected: &str) {
    is_equal_at(mount.path(), expected);
}

/// As [`is_equal`], for a mount at a path.
fn is_equal_at(mountpoint: &Path, expected: &str) {
    let compared = run(make()
        .arg("compare")
        .arg(mountpoint)
        .arg(fixtures().join("expected").join(expected)));
    assert!(compared.trim().parse::<u32>().unwrap() > 0, "{compared}");
}
