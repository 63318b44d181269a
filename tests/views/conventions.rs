//! What attributes say, in each format: OME-Zarr 0.4 to 0.6 as ngff-zarr writes it, orientations, transforms, channels,
//! N5 and CF, read by nibabel, SimpleITK, tifffile, astropy, mrcfile and pynrrd.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::gauge;
use crate::stores::*;
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn conventions(environment: &str, word: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(in_repository(environment));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore")
        .arg(in_repository("tests/views/conventions.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

const PYTHON: &str = "tests/views/.venv/bin/python";
const NGFF: &str = "tests/views/.venv-ngff/bin/python";

#[test]
fn what_attributes_say_is_in_each_format_or_in_the_list_of_views() {
    if ![PYTHON, NGFF]
        .iter()
        .all(|python| may_run(&in_repository(python)))
    {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    std::fs::create_dir(&store).unwrap();
    conventions(NGFF, "ngff", &[&store]);
    conventions(PYTHON, "write", &[&store]);
    let mount = Mount::with(&store, &["--force"]);
    let output = conventions(PYTHON, "check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(counts, json!({"stores": 11, "files": 70, "differences": 0}));
    assert_eq!(gauge(mount.path(), "panics"), 0);
}
