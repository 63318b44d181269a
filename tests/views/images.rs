//! NIfTI, MRC and FITS files, read by nibabel, SimpleITK, mrcfile, astropy and fitsverify.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{ENOENT, gauge};
use crate::stores::*;
use crate::support::*;

const PYTHON: &str = "tests/views/.venv/bin/python";

fn images(word: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join(PYTHON));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root.join("tests/views/images.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

#[test]
fn images_and_volumes_equal_those_that_their_programs_read() {
    if !may_run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    images("write", &[&store]);
    let mount = Mount::new(&store);
    let output = images("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    for (what, least) in [("nii", 25), ("mrc", 14), ("fits", 20)] {
        assert!(counts[what].as_u64().unwrap() >= least, "{counts}");
    }
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

/// Shapes and metadata that no file can represent give a diagnostic; other metadata are left out.
#[test]
fn hostile_images_have_a_diagnostic_or_a_file_of_the_right_size() {
    let stores = Stores::new();
    let of = |shape: Value, more: Value| {
        let mut metadata =
            json!({"shape": shape, "chunk_grid": grid(&[1; 9][..shape.as_array().unwrap().len()])});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        metadata
    };
    stores.v3("scalar", of(json!([]), json!({})), &[]);
    stores.v3("empty", of(json!([0, 3]), json!({})), &[]);
    stores.v3("deep", of(json!([1, 1, 1, 1, 1, 1, 1, 1]), json!({})), &[]);
    stores.v3(
        "vast",
        of(json!([1_u64 << 31, 1_u64 << 30]), json!({})),
        &[],
    );
    let odd = json!({"dimension_names": ["'\u{e9}\n", "x".repeat(100)], "attributes": {
        "units": "\u{0}'", "scale_factor": "no", "_FillValue": {}}});
    stores.v3("odd", of(json!([2, 3]), odd), &[]);
    let mount = stores.mount(&[]);
    let size = |name: &str, format: &str| {
        fs::metadata(view(&mount, name, &format!("{name}.{format}"))).map(|found| found.len())
    };
    for (name, format) in [
        ("scalar", "nii"),
        ("scalar", "mrc"),
        ("scalar", "fits"),
        ("empty", "nii"),
        ("empty", "fits"),
        ("deep", "nii"),
        ("deep", "mrc"),
        ("vast", "nii"),
        ("vast", "fits"),
    ] {
        assert_eq!(errno(size(name, format)), ENOENT, "{name}.{format}");
        let readme = fs::read_to_string(view(&mount, name, "README.txt")).unwrap();
        assert!(readme.contains(&format!("{name}.{format}: ")), "{readme}");
    }
    assert_eq!(size("odd", "nii").unwrap(), 384 + 2 * 3 * 4);
    assert_eq!(size("odd", "fits").unwrap(), 2 * 2880);
    assert_others_served(&mount, &stores);
}
