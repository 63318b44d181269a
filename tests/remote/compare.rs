//! The served stores, and the comparison of their mounts with local mounts.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::servers::Remote;
use crate::support::*;

/// The hierarchies that are served as directories of keys.
pub const TREES: [&str; 5] = [
    "v2-flat",
    "v2-consolidated",
    "v3",
    "v3-consolidated",
    "v3-sharded",
];

/// The trees without names that begin with a dot, which nginx would not list.
pub const TREES_WITHOUT_DOTS: [&str; 3] = ["v3", "v3-consolidated", "v3-sharded"];

/// The hierarchies that are served as zips, stored and deflated.
pub const ZIPS: [&str; 4] = [
    "v2-zipstore.zip",
    "v2-deflate.zip",
    "v3-sharded-zip-0.zip",
    "v3-zip-r.zip",
];

/// The least number of arrays in each hierarchy whose views are compared.
const LEAST_ARRAYS: usize = 9;

/// Returns a directory with `TREES` and `ZIPS`, without empty directories, because object stores
/// cannot represent these.
pub fn served() -> tempfile::TempDir {
    let fixtures = in_repository("target/fixtures");
    let directory = scratch();
    let sources = TREES.map(|name| format!("dir/{name}")).into_iter();
    for source in sources.chain(ZIPS.map(|name| format!("zip/{name}"))) {
        let source = fixtures.join(source);
        assert!(
            source.exists(),
            "run tests/fixtures/setup.sh: no {source:?}"
        );
        // A server says when the files were made, which is some time ago.
        run(Command::new("cp")
            .args(["-r", "--preserve=timestamps"])
            .arg(source)
            .arg(directory.path()));
    }
    run(Command::new("find")
        .arg(directory.path())
        .args(["-type", "d", "-empty", "-delete"]));
    directory
}

/// Returns a path in the repository.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns every file below `tree` as a key.
pub fn keys(tree: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![tree.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let key = path.strip_prefix(tree).unwrap();
                found.insert(key.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// Returns the path of every array below `tree`.
pub fn arrays(tree: &Path) -> BTreeSet<String> {
    let is_array = |key: &String| match Path::new(key).file_name().unwrap().to_str() {
        Some(".zarray") => true,
        Some("zarr.json") => {
            let document = fs::read(tree.join(key)).unwrap();
            let document: Value = serde_json::from_slice(&document).unwrap();
            document["node_type"] == "array"
        }
        _ => false,
    };
    let parent = |key: String| {
        Path::new(&key)
            .parent()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    keys(tree)
        .into_iter()
        .filter(is_array)
        .map(parent)
        .collect()
}

/// Asserts that `diff` and `find` see the same trees: every name is listed, with its size.
pub fn is_same_tree(what: &str, local: &Path, mounted: &Path) {
    const SAME: &str = r#"
        export LC_ALL=C.UTF-8
        list() { (cd "$1" && find . -type d -printf '%p/\n' -o -printf '%y %p %s\n' | sort); }
        diff <(list "$1") <(list "$2") && diff -r --no-dereference "$1" "$2"
    "#;
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", SAME, "bash"]);
    let output = run_for(
        command.arg(local).arg(mounted),
        std::time::Duration::from_secs(240),
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let first_lines = text.lines().take(20).collect::<Vec<_>>().join("\n");
    assert!(
        output.status.success() && text.is_empty(),
        "{what}: {}\n{first_lines}",
        output.status
    );
}

/// Asserts that every key of the local tree can be opened by name, and unknown names cannot.
pub fn is_same_by_name(what: &str, local: &Path, mounted: &Path) {
    let keys = keys(local);
    assert!(keys.len() > 50, "{what}: few keys: {keys:?}");
    for key in keys {
        let expected = fs::read(local.join(&key)).unwrap();
        let path = mounted.join(&key);
        let length = fs::metadata(&path).unwrap_or_else(|e| panic!("{what}: stat {key}: {e}"));
        assert_eq!(length.len(), expected.len() as u64, "{what}: size of {key}");
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{what}: read {key}: {e}"));
        assert!(bytes == expected, "{what}: {key} is not what it is locally");
    }
    for key in ["no-such-key", "raw/.no-such-key", "raw/99.99", "nowhere/0"] {
        let missing = fs::metadata(mounted.join(key));
        assert_eq!(
            missing.map_err(|e| e.kind()).err(),
            Some(ErrorKind::NotFound),
            "{what}: {key}"
        );
    }
}

/// Asserts that the `.npy` view of every array equals that of the local mount, or is absent in both.
pub fn is_same_in_views(what: &str, arrays: &BTreeSet<String>, local: &Path, mounted: &Path) {
    let mut compared = 0;
    for array in arrays {
        let name = Path::new(array).file_name().unwrap().to_str().unwrap();
        let view = format!("{array}/.zarrfs/{name}.npy");
        match (fs::read(local.join(&view)), fs::read(mounted.join(&view))) {
            (Ok(expected), Ok(bytes)) => {
                assert!(
                    bytes == expected,
                    "{what}: {view} is not what it is locally"
                );
                compared += 1;
            }
            (Err(expected), Err(error)) => {
                assert_eq!(error.kind(), expected.kind(), "{what}: {view}: {error}");
            }
            (expected, bytes) => panic!(
                "{what}: {view}: locally {:?}, remotely {:?}",
                expected.map(|b| b.len()),
                bytes.map(|b| b.len())
            ),
        }
    }
    assert!(compared >= LEAST_ARRAYS, "{what}: {compared} of {arrays:?}");
}

/// Returns the interpreter with zarr-python 2 or 3.
pub fn zarr_python(version: &str) -> PathBuf {
    let venv = std::env::var_os(format!("ZARRFS_VENV{version}")).map_or_else(
        || in_repository(&format!("tests/fixtures/.venv{version}")),
        PathBuf::from,
    );
    venv.join("bin/python")
}

/// Asserts that zarr-python reads the same values of every array, opened by its path.
pub fn is_same_to_zarr(what: &str, arrays: &BTreeSet<String>, local: &Path, mounted: &Path) {
    let half = if what.contains("v2") { "2" } else { "3" };
    let read = |mount: &Path| {
        run(Command::new(zarr_python(half))
            .arg(in_repository("tests/remote/read_arrays.py"))
            .arg(mount)
            .args(arrays))
    };
    let expected = read(local);
    assert_eq!(expected.lines().count(), arrays.len(), "{what}: {expected}");
    assert_eq!(read(mounted), expected, "{what}");
}

/// How complete the listings of a store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Every key is listed.
    Complete,
    /// Some keys, or all, are not listed and can only be opened by name.
    ByName,
}

/// Mounts one of `TREES` from a server, and compares everything with the local tree.
pub fn assert_tree_equals_local(served: &Path, remote: &Remote, name: &str, listing: Listing) {
    let what = remote.source(name);
    let tree = served.join(name);
    let local = Mount::new(&tree);
    let mounted = remote.mount(name);
    is_same_by_name(&what, &tree, mounted.path());
    if listing == Listing::Complete {
        is_same_tree(&what, &tree, mounted.path());
    }
    let arrays = arrays(&tree);
    is_same_in_views(&what, &arrays, local.path(), mounted.path());
    is_same_to_zarr(&what, &arrays, local.path(), mounted.path());
    ended_well(&what, mounted);
}

/// Mounts one of `ZIPS` from a server, and compares everything with the local zip. The listing of a
/// zip is complete, wherever the zip is.
pub fn assert_zip_equals_local(served: &Path, remote: &Remote, name: &str) {
    let local = Mount::new(served.join(name));
    let arrays = arrays(local.path());
    for source in [remote.source(name), remote.source_of_zip(name)] {
        let mounted = remote
            .attempt(&source)
            .unwrap_or_else(|e| panic!("zarrfs refused to mount {source}: {e:?}"));
        is_same_tree(&source, local.path(), mounted.path());
        is_same_in_views(&source, &arrays, local.path(), mounted.path());
        is_same_to_zarr(&source, &arrays, local.path(), mounted.path());
        ended_well(&source, mounted);
    }
}

/// Compares all of `TREES` and `ZIPS`.
pub fn assert_all_equal_local(served: &Path, remote: &Remote) {
    for name in TREES {
        assert_tree_equals_local(served, remote, name, Listing::Complete);
    }
    for name in ZIPS {
        assert_zip_equals_local(served, remote, name);
    }
}

/// Compares some of them, because read permissions do not depend on the kind of tree.
pub fn assert_some_equal_local(served: &Path, remote: &Remote) {
    for name in ["v2-consolidated", "v3-sharded"] {
        assert_tree_equals_local(served, remote, name, Listing::Complete);
    }
    assert_zip_equals_local(served, remote, "v3-zip-r.zip");
}

fn ended_well(what: &str, mount: Mount) {
    let log = mount.log();
    assert!(
        !log.contains("ERROR") && !log.contains("panicked"),
        "{what}: {log}"
    );
    mount.unmount();
}
