//! Stores of the newest releases of zarr-python, anndata and icechunk, where a Python is here that has them.

use std::path::Path;
use std::process::Command;

use crate::stores::may_run;
use crate::support::{Mount, run, scratch, skipped};

#[test]
fn stores_of_the_newest_libraries_have_the_values_that_they_read() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views");
    let python = tests.join(".venv-newest/bin/python");
    if !python.exists() {
        return skipped("no Python 3.12 is here for the newest zarr, anndata and icechunk");
    }
    if !may_run(&python) {
        return;
    }
    let script = |word: &str| {
        let mut command = Command::new(&python);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(tests.join("newest.py")).arg(word);
        command
    };
    let directory = scratch();
    run(script("write").arg(directory.path()));
    for (store, count) in [
        ("arrays.zarr", 20),
        ("arrays.zarr-v2", 11),
        ("cells.zarr", 16),
        ("repository", 2),
    ] {
        let store = directory.path().join(store);
        let mount = Mount::new(&store);
        let compared = run(script("check").arg(&store).arg(mount.path()));
        assert_eq!(compared.trim(), count.to_string(), "{store:?}");
        mount.unmount();
    }
}
