//! The codecs `zfp` and `numcodecs.zfpy`, compared with the C library through PyPI's `zfpy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stores::may_run;
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn every_mode_type_and_rank_of_zfp_equals_the_output_of_the_library() {
    let venv = std::env::var_os("ZARRFS_VENV3")
        .map_or_else(|| in_repository("tests/fixtures/.venv3"), PathBuf::from);
    let python = venv.join("bin/python");
    if !may_run(&python) {
        return;
    }
    let found = Command::new(&python).args(["-c", "import zfpy"]).status();
    if !found.unwrap().success() {
        println!("zfpy cannot be installed here");
        return;
    }
    let scratch = scratch();
    let [store, expected] = ["store", "expected"].map(|name| scratch.path().join(name));
    fs::create_dir_all(&store).unwrap();
    fs::create_dir_all(&expected).unwrap();
    run(Command::new(&python)
        .arg(in_repository("tests/views/zfp.py"))
        .args([&store, &expected]));
    let mount = Mount::new(&store);
    let mut arrays = 0;
    for file in fs::read_dir(&expected).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let array = name.strip_suffix(".bin").unwrap();
        let found = fs::read(mount.join(array).join(".zarrfs").join(&name)).unwrap();
        assert!(found == fs::read(file.path()).unwrap(), "{array}");
        arrays += 1;
    }
    assert_eq!(arrays, 96);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}
