//! Missing values: each format marks those that xarray reads as missing from the store.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::netcdf::python;
use crate::stores::*;
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
    let (mut arguments, mut mounts) = (vec![PathBuf::from("check")], Vec::new());
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
        arguments.extend([store, mount.path().to_owned()]);
        mounts.push(mount);
    }
    let arguments: Vec<&Path> = arguments.iter().map(PathBuf::as_path).collect();
    script(&arguments);
}

#[test]
fn categories_of_numbers_and_booleans_are_columns_of_a_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("tests/views/.venv-anndata/bin/python");
    if !may_run(&program) {
        return;
    }
    let script = |arguments: &[&Path]| {
        let mut command = std::process::Command::new(&program);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        run(command
            .arg(root.join("tests/views/missing.py"))
            .args(arguments));
    };
    let directory = scratch();
    script(&[Path::new("write_cells"), directory.path()]);
    let store = directory.path().join("cells.zarr");
    let mount = Mount::new(&store);
    script(&[Path::new("check_cells"), &store, mount.path()]);
}

#[test]
fn names_of_axes_that_do_not_fit_are_in_the_diagnostics() {
    let stores = Stores::new();
    stores.v2("short", json!({"shape": [4, 2], "chunks": [4, 2]}), &[]);
    stores.put("short/.zattrs", br#"{"_ARRAY_DIMENSIONS": ["y"]}"#);
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let mount = Mount::new(stores.path());
    let why = "_ARRAY_DIMENSIONS has 1 names, the array has 2 axes";
    for file in ["short/.zarrfs/README.txt", ".zarrfs/README.txt"] {
        let text = std::fs::read_to_string(mount.path().join(file)).unwrap();
        assert!(text.contains(why), "{file}: {text}");
    }
}
