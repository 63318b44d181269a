//! Level: real mounts of Icechunk repositories that icechunk 1 and 2 wrote, and of damaged ones.
//! The arrays that zarr-python reads from a mount are compared with those that were written.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod remote;
mod versions;

pub use support::servers;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{run, scratch};

/// The versions of the repository format.
const FORMATS: [&str; 2] = ["v1", "v2"];

/// The length of a prefix of virtual chunks in bytes; `make.py move` pads it with slashes.
const PREFIX_BYTES: usize = 129;

/// Returns a command of `make.py` with its Python.
fn make() -> Command {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/icechunk");
    let mut command = Command::new(tests.join(".venv/bin/python"));
    command.arg(tests.join("make.py"));
    command
}

/// A repository that a test can change, and the file of its virtual chunks.
struct Repository {
    dir: tempfile::TempDir,
}

impl Repository {
    /// Copies the repository of a format, with its virtual chunks in `targets` next to it.
    fn new(format: &str) -> Self {
        let repository = Self::bare(format);
        repository.move_targets(&format!("file://{}/", repository.targets().display()));
        repository
    }

    /// Copies the repository of a format, without its virtual chunks.
    fn bare(format: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/icechunk");
        let fixture = fixtures.join(format);
        assert!(
            fixture.exists(),
            "no {fixture:?}: run tests/icechunk/setup.sh"
        );
        let dir = scratch();
        let repository = Self { dir };
        run(Command::new("cp")
            .arg("-a")
            .arg(fixture)
            .arg(repository.path()));
        std::fs::create_dir(repository.targets()).unwrap();
        run(make()
            .arg("target")
            .arg(repository.targets().join("data.bin")));
        repository
    }

    /// Sets the prefix of the virtual chunks.
    fn move_targets(&self, prefix: &str) {
        run(make().arg("move").arg(self.path()).arg(prefix));
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn targets(&self) -> PathBuf {
        self.dir.path().join("targets")
    }

    /// Returns the arguments of a mount that may read virtual chunks.
    fn allowed(&self) -> [String; 2] {
        let targets = self.targets().to_str().unwrap().to_owned();
        ["--allow-target".into(), targets]
    }
}

/// Asserts that the arrays of a mount are those of a version of `make.py`.
fn is_version(mount: &Path, version: &str) {
    let compared = run(make().arg("compare").arg(mount).arg(version));
    assert!(
        compared.trim().parse::<u32>().unwrap() > 5,
        "{version}: {compared}"
    );
}
