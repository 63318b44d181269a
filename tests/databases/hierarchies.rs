//! One hierarchy that zarr-python 2.18 wrote, in every kind of database and in a zip.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use crate::{write, write_dbm};

/// The files below a directory for which `is_wanted` holds, with their contents.
fn files(root: &Path, is_wanted: &dyn Fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if !is_wanted(&name) {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => pending.push(path),
                false => {
                    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    assert_eq!(
                        bytes.len() as u64,
                        path.metadata().unwrap().len(),
                        "{path:?}"
                    );
                    found.insert(name, bytes);
                }
            }
        }
    }
    found
}

fn is_native(name: &str) -> bool {
    !name.contains(".zarrfs")
}

/// Arrays that are decoded, and the hierarchy as one of version 3.
const DECODED: [&str; 5] = [
    "filtered.npy",
    "long.npy",
    "holes.npy",
    "nested.npy",
    "as-v3/",
];

/// The native keys of a source, and views of it.
fn served(source: &Path) -> (BTreeMap<String, Vec<u8>>, BTreeMap<String, Vec<u8>>) {
    let mount = Mount::new(source);
    let native = files(mount.path(), &is_native);
    let mut views = BTreeMap::new();
    for directory in [".zarrfs", "g/.zarrfs"] {
        let is_wanted =
            |name: &str| name == "as-v3" || DECODED.iter().any(|wanted| name.starts_with(wanted));
        for (name, bytes) in files(&mount.join(directory), &is_wanted) {
            views.insert(format!("{directory}/{name}"), bytes);
        }
    }
    mount.unmount();
    (native, views)
}

#[test]
fn keys_and_decoded_arrays_equal_those_of_a_zip() {
    let scratch = scratch();
    let names = run(write().arg("hierarchy").arg(scratch.path()));
    let dbm = run(write_dbm()
        .arg("copy")
        .arg(scratch.path().join("h.zip"))
        .arg(scratch.path()));
    let zip = served(&scratch.path().join("h.zip"));
    assert!(zip.0.contains_key("holes/2.5") && zip.0.contains_key("nested/0/1"));
    assert!(!zip.0.contains_key("holes/0.0"));
    for view in [
        "g/.zarrfs/filtered.npy",
        ".zarrfs/long.npy",
        ".zarrfs/holes.npy",
    ] {
        assert!(zip.1.contains_key(view), "{view}: {:?}", zip.1.keys());
    }
    assert!(
        zip.1
            .keys()
            .any(|name| name.contains("as-v3/g/filtered/c/"))
    );
    let mut compared = 0;
    let others = names
        .lines()
        .filter(|name| *name != "h.zip" && !name.ends_with("-lock"));
    for name in others.chain(dbm.lines()) {
        let found = served(&scratch.path().join(name));
        assert!(found == zip, "{name} differs from the zip");
        compared += 1;
    }
    // That of zarr-python with dbm.dumb is there by the names of two files.
    assert_eq!(compared, 7 + 7, "{names}{dbm}");
}

#[test]
fn a_user_without_rights_reads_a_directory_that_he_may_not_write() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root has another user to be");
    }
    let scratch = scratch();
    run(write().arg("hierarchy").arg(scratch.path()));
    run(write_dbm()
        .arg("copy")
        .arg(scratch.path().join("h.zip"))
        .arg(scratch.path()));
    sh(&format!("chmod -R a-w,a+rX {}", scratch.path().display()));
    for name in [
        "h.sqlite",
        "h.dbm",
        "h.lmdb",
        "h-1.0.lmdb",
        "h-gnu",
        "h-ndbm",
        "h-dumb",
        "h-btree",
    ] {
        let checked = Command::new("setpriv")
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .arg(zarrfs().get_program())
            .arg("check")
            .arg(scratch.path().join(name))
            .output()
            .unwrap();
        assert!(checked.status.success(), "{name}: {checked:?}");
    }
}
