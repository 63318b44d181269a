//! Missing values: each format marks those that xarray reads as missing from the store.

use std::path::Path;

use crate::netcdf::python;
use crate::support::*;

fn script(arguments: &[&Path]) -> bool {
    let Some(mut command) = python() else {
        return false;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(command
        .arg(root.join("tests/views/missing.py"))
        .args(arguments));
    true
}

#[test]
fn b15_a_zero_that_xarray_chose_is_missing_in_every_format_and_a_default_zero_is_a_value() {
    let directory = scratch();
    if !script(&[Path::new("write"), directory.path()]) {
        return;
    }
    for name in [
        "product",
        "tree",
        "scaled",
        "siblings",
        "series",
        "v3",
        "by_hand",
        "by_hand_scaled",
        "alone",
    ] {
        let store = directory.path().join(format!("{name}.zarr"));
        let mount = Mount::new(&store);
        script(&[Path::new("check"), &store, mount.path()]);
    }
}
