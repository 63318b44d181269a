//! A hierarchy written by zarr-python 2.18, in every kind of database and in a zip.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use crate::{write, write_dbm};

/// Returns the files below a directory for which `is_wanted` holds, with their contents. `may_lack`
/// allows listed chunks that do not exist.
fn files(
    root: &Path,
    is_wanted: &dyn Fn(&str) -> bool,
    may_lack: bool,
) -> BTreeMap<String, Vec<u8>> {
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
                    let bytes = match fs::read(&path) {
                        Err(e) if may_lack && e.kind() == ErrorKind::NotFound => continue,
                        bytes => bytes.unwrap_or_else(|e| panic!("{path:?}: {e}")),
                    };
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

/// Arrays that are decoded, and the hierarchy in version 3.
const DECODED: [&str; 5] = [
    "filtered.npy",
    "long.npy",
    "holes.npy",
    "nested.npy",
    "as-v3/",
];

/// The keys and the decoded files of a hierarchy, with their contents.
pub(crate) type Served = (BTreeMap<String, Vec<u8>>, BTreeMap<String, Vec<u8>>);

/// Returns the keys and the decoded files of a mount of the hierarchy. Translations of a remote
/// source also list chunks that do not exist.
pub(crate) fn served(mount: Mount, is_remote: bool) -> Served {
    let native = files(mount.path(), &is_native, false);
    let mut views = BTreeMap::new();
    for directory in [".zarrfs", "g/.zarrfs"] {
        let is_wanted =
            |name: &str| name == "as-v3" || DECODED.iter().any(|wanted| name.starts_with(wanted));
        for (name, bytes) in files(&mount.join(directory), &is_wanted, is_remote) {
            views.insert(format!("{directory}/{name}"), bytes);
        }
    }
    mount.unmount();
    (native, views)
}

/// Asserts that a mount of a remote source has all keys of the zip and all its decoded arrays. Its
/// translations lack nodes, unless the source has consolidated metadata.
pub(crate) fn is_as_zip(mount: Mount, zip: &Served) {
    let source = mount_entry(mount.path()).unwrap();
    let (native, views) = served(mount, true);
    assert!(native == zip.0, "{source} differs from the zip");
    // In a local translation, the root has consolidated metadata.
    let root = ".zarrfs/as-v3/zarr.json";
    for (name, bytes) in zip.1.iter().filter(|(name, _)| *name != root) {
        match views.get(name) {
            None => assert!(name.contains("as-v3/"), "{source}: no {name}"),
            found => assert!(found == Some(bytes), "{source}: {name} differs"),
        }
    }
    assert!(
        views.keys().all(|name| zip.1.contains_key(name)),
        "{source}"
    );
    assert!(views.contains_key(".zarrfs/as-v3/holes/c/2/5"), "{source}");
}

#[test]
fn keys_and_decoded_arrays_equal_those_of_a_zip() {
    let scratch = scratch();
    let names = run(write().arg("hierarchy").arg(scratch.path()));
    let dbm = run(write_dbm()
        .arg("copy")
        .arg(scratch.path().join("h.zip"))
        .arg(scratch.path()));
    let served = |name: &str| served(Mount::new(scratch.path().join(name)), false);
    let zip = served("h.zip");
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
        let found = served(name);
        assert!(found == zip, "{name} differs from the zip");
        compared += 1;
    }
    // dbm.dumb counts as available if its two files exist.
    assert_eq!(compared, 7 + 7, "{names}{dbm}");
}

#[test]
fn an_unprivileged_user_reads_a_database_in_a_read_only_directory() {
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
