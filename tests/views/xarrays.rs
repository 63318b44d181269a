//! xarray reads the same dataset from a view as from the store.

use std::path::Path;

use crate::netcdf::python;
use crate::support::*;

#[test]
fn files_equal_the_dataset_that_xarray_reads_from_the_store() {
    let Some(mut command) = python() else {
        return;
    };
    let directory = scratch();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views/xarrays.py");
    run(command.arg(&script).arg("write").arg(directory.path()));
    for name in ["signs", "texts", "deltas", "tree"] {
        let store = directory.path().join(format!("{name}.zarr"));
        let mount = Mount::new(&store);
        let mut command = python().unwrap();
        let command = command.arg(&script).arg(name);
        run(command.args([&store, mount.path()]));
    }
}
