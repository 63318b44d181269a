//! xarray reads the same dataset from a translation as from the store.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::clients::{EIO, ESTALE};
use crate::netcdf::python;
use crate::stores::*;
use crate::support::*;

#[test]
fn b16_xarray_reads_the_same_values_times_and_missing_values_from_a_translation() {
    let Some(mut command) = python() else {
        return;
    };
    let directory = scratch();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views/translated_xarray.py");
    run(command.arg(&script).arg("write").arg(directory.path()));
    let mut command = python().unwrap();
    command.arg(&script).arg("check");
    let mut mounts = Vec::new();
    for store in fs::read_dir(directory.path()).unwrap() {
        let store = store.unwrap().path();
        let target = match store.to_str().unwrap().ends_with("-v2.zarr") {
            true => "as-v3",
            false => "as-v2",
        };
        let mount = Mount::new(&store);
        command.args([&store, mount.path()]).arg(target);
        mounts.push(mount);
    }
    assert!(mounts.len() > 20);
    run(&mut command);
}

#[test]
fn b16_a_chunk_that_is_removed_from_an_array_with_the_mask_of_xarray_is_an_error() {
    let stores = Stores::new();
    let changes = serde_json::json!({
        "shape": [4], "data_type": "int8", "chunk_grid": grid(&[2]), "dimension_names": ["x"],
        "fill_value": 7, "codecs": ["bytes"],
    });
    stores.v3("a", changes, &[("c/0", &[1, 2]), ("c/1", &[3, 4])]);
    stores.put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    let mount = Mount::new(stores.path());
    let array = mount.path().join(".zarrfs/as-v2/a");
    let fill = || {
        let document = fs::read(array.join(".zarray")).unwrap();
        serde_json::from_slice::<Value>(&document).unwrap()["fill_value"].clone()
    };
    assert_eq!(fill(), Value::Null);
    fs::remove_file(stores.path().join("a/c/1")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let file = fs::File::open(array.join("1")).unwrap();
    let error = file
        .read_at(&mut [0; 2], 0)
        .unwrap_err()
        .raw_os_error()
        .unwrap();
    assert!([EIO, ESTALE].contains(&error), "{error}");
    assert_eq!(fs::read(array.join("0")).unwrap(), [1, 2]);
}
