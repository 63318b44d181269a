//! Level: a real mount of real stores. Every store that zarr-python 2 and 3 write, as a directory
//! and in a zip of every usual kind, is the same tree through the mount: for `diff`, `find`,
//! `rsync`, `tar` and `cp`, for every way in which the kernel reads a file, for zarr-python, xarray
//! and a C program, as root and as an unprivileged user.
//!
//! The stores are written by `tests/fixtures/setup.sh`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::{
    Mount, as_nobody, clean_up, is_mounted, is_root, run, run_for, scratch, skipped, wait_until,
};

/// Zips that are too big for every check, and have their own tests.
const BIG: [&str; 2] = ["v2-large-deflated-chunk.zip", "v2-many-entries.zip"];

/// Prints nothing if all tools see the tree at `$1` also at `$2`. `$3` is a directory for copies.
const SAME_TREE: &str = r#"
    reference=$1 mount=$2 copies=$3
    same() { diff -r --no-dereference "$reference" "$1"; }
    list() { (cd "$1" && find . -type d -printf '%p/\n' -o -printf '%y %p %s\n' | sort); }

    same "$mount"
    diff <(list "$reference") <(list "$mount")
    rsync -rc --delete --dry-run --itemize-changes "$reference/" "$mount/"
    rsync -rc "$mount/" "$copies/rsync/"
    same "$copies/rsync"
    mkdir "$copies/tar"
    tar -C "$mount" -cf - . | tar -C "$copies/tar" -xf -
    same "$copies/tar"
    cp -a "$mount" "$copies/cp"
    same "$copies/cp"
    rm -r "$copies/rsync" "$copies/tar" "$copies/cp"
"#;

/// Prints nothing if `diff` and `find` see the tree at `$1` also at `$2`.
const SAME_FILES: &str = r#"
    list() { (cd "$1" && find . -type d -printf '%p/\n' -o -printf '%y %p %s\n' | sort); }
    diff -r --no-dereference "$1" "$2"
    diff <(list "$1") <(list "$2")
"#;

/// Prints the inode number of everything below `$1`.
const INODES: &str = r#"cd "$1" && find . -printf '%i %p\n' | sort -k 2"#;

fn fixtures() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures");
    assert!(
        path.join("stamp").exists(),
        "no fixtures: run tests/fixtures/setup.sh first"
    );
    path
}

fn fixture(name: &str) -> PathBuf {
    let path = fixtures().join(name);
    assert!(
        path.exists(),
        "no {name}: run tests/fixtures/setup.sh first"
    );
    path
}

fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn zips() -> Vec<PathBuf> {
    let is_big = |path: &PathBuf| BIG.iter().any(|name| path.ends_with(name));
    list("zip")
        .into_iter()
        .filter(|path| !is_big(path))
        .collect()
}

fn directories() -> Vec<PathBuf> {
    list("dir")
}

fn list(kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture(kind)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "too few fixtures: {paths:?}");
    paths
}

/// Returns a bash script with its arguments, in a locale that supports all names.
fn script(text: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new("bash");
    let text = format!("export LC_ALL=C.UTF-8\n{text}");
    command
        .args(["-euo", "pipefail", "-c", &text, "bash"])
        .args(arguments);
    command
}

/// Runs a comparison, and asserts that it succeeds without output.
fn is_silent(command: &mut Command) {
    let output = run_for(command, Duration::from_secs(240));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let first_lines = text.lines().take(20).collect::<Vec<_>>().join("\n");
    assert!(
        output.status.success() && text.is_empty(),
        "{command:?}: {}\n{first_lines}",
        output.status
    );
}

/// Mounts a zip; in some zips, the hierarchy is in a folder.
fn mount_zip(zip: &Path) -> Mount {
    match zip.ends_with("v2-in-a-folder.zip") {
        true => Mount::of_keys(zip, &[]),
        false => Mount::new(zip),
    }
}

fn is_same_tree(reference: &Path, tree: &Path) {
    let copies = scratch();
    is_silent(&mut script(SAME_TREE, &[reference, tree, copies.path()]));
}

fn every_read_is_equal(reference: &Path, tree: &Path) {
    is_silent(
        Command::new("python3")
            .arg(tool("read_files.py"))
            .args([reference, tree]),
    );
}

/// Unpacks a zip with `unzip`, which warns with status 1 about bytes before the first entry.
fn unzip(zip: &Path) -> tempfile::TempDir {
    let into = scratch();
    let unzip = r#"unzip -qqo "$1" -d "$2" || [ $? = 1 ]; chmod -R u+rwX "$2""#;
    run(&mut script(unzip, &[zip, into.path()]));
    into
}

#[test]
fn a_zip_is_the_tree_that_unzip_makes_of_it() {
    for zip in zips() {
        let reference = unzip(&zip);
        let mount = mount_zip(&zip);
        is_same_tree(reference.path(), mount.path());
        mount.unmount();
    }
}

#[test]
fn a_directory_store_is_its_own_tree() {
    for directory in directories() {
        let mount = Mount::new(&directory);
        is_same_tree(&directory, mount.path());
        mount.unmount();
    }
}

#[test]
fn every_way_of_reading_a_file_of_a_zip_gives_its_bytes() {
    for zip in zips() {
        let reference = unzip(&zip);
        every_read_is_equal(reference.path(), mount_zip(&zip).path());
    }
}

#[test]
fn every_way_of_reading_a_file_of_a_directory_gives_its_bytes() {
    for directory in directories() {
        every_read_is_equal(&directory, Mount::new(&directory).path());
    }
}

#[test]
fn a_zip_of_more_entries_than_sixteen_bits_count_is_whole() {
    let zip = fixture("zip/v2-many-entries.zip");
    let reference = unzip(&zip);
    let mount = Mount::new(&zip);
    assert_eq!(fs::read_dir(mount.join("many")).unwrap().count(), 66_001);
    is_silent(&mut script(SAME_FILES, &[reference.path(), mount.path()]));
}

#[test]
fn a_long_deflated_chunk_is_the_same_in_every_order_of_reads() {
    let zip = fixture("zip/v2-large-deflated-chunk.zip");
    let reference = unzip(&zip);
    every_read_is_equal(reference.path(), Mount::new(&zip).path());
    is_silent(&mut script(
        SAME_FILES,
        &[reference.path(), Mount::new(&zip).path()],
    ));
}

/// Returns all stores of the Zarr formats that this zarr-python reads. It does not find those in a
/// folder of a zip.
fn stores(formats: &[&str]) -> Vec<PathBuf> {
    let readable = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        formats.iter().any(|format| name.starts_with(format)) && name != "v2-in-a-folder.zip"
    };
    [list("dir"), list("zip")]
        .concat()
        .into_iter()
        .filter(readable)
        .collect()
}

/// Asserts that the zarr-python (and xarray) of one environment reads all `stores` equally with and
/// without a mount.
fn reads_the_same(variable: &str, environment: &str, stores: &[PathBuf]) {
    let environment = std::env::var_os(variable).map_or_else(|| tool(environment), PathBuf::from);
    let python = environment.join("bin/python");
    if !is_root() && fs::read_link(&python).is_ok() && !python.exists() {
        return skipped("the Python of the fixtures is where this user may not go");
    }
    assert!(
        python.exists(),
        "no {python:?}: run tests/fixtures/setup.sh first"
    );
    let read = |paths: &[&Path]| run(Command::new(&python).arg(tool("read_store.py")).args(paths));

    let mounts: Vec<_> = stores.iter().map(Mount::new).collect();
    let wanted = read(&stores.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let got = read(&mounts.iter().map(Mount::path).collect::<Vec<_>>());
    for (got, wanted) in got.split("store ").zip(wanted.split("store ")) {
        assert_eq!(
            got, wanted,
            "a store reads differently through its mount: {stores:?}"
        );
    }
    assert_eq!(got.lines().count(), wanted.lines().count());
    assert_eq!(wanted.matches("store ").count(), stores.len());
    assert!(
        wanted.contains("array") && wanted.contains("xarray t2m"),
        "{wanted}"
    );
}

#[test]
fn zarr_python_2_and_xarray_read_the_same_arrays() {
    reads_the_same("ZARRFS_VENV2", ".venv2", &stores(&["v2"]));
}

#[test]
fn zarr_python_3_and_xarray_read_the_same_arrays() {
    reads_the_same("ZARRFS_VENV3", ".venv3", &stores(&["v2", "v3"]));
}

#[test]
fn a_c_program_reads_the_same_numbers() {
    let scratch = scratch();
    let program = scratch.path().join("read_raw");
    run(Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .arg(&program)
        .arg(tool("read_raw.c")));
    let read = |file: PathBuf| run(Command::new(&program).arg(file));

    let sources = [
        "dir/v2-flat",
        "zip/v2-zipstore.zip",
        "zip/v2-flat-zip-r.zip",
        "zip/v2-zip64-everywhere.zip",
        "zip/v2-prefix-not-counted.zip",
    ];
    for source in sources {
        let mount = Mount::new(fixture(source));
        for key in ["raw/0.0", "large/0"] {
            let wanted = read(fixture("dir/v2-flat").join(key));
            assert_eq!(read(mount.join(key)), wanted, "{key} of {source}");
        }
    }
}

/// A mount by the user `nobody`, with fusermount3, of a copy of a source.
#[derive(Debug)]
struct UnprivilegedMount {
    dir: tempfile::TempDir,
    pid: Option<u32>,
}

impl UnprivilegedMount {
    fn new(source: &Path) -> Self {
        let prepare = r#"
            chmod 755 "$1"
            cp "$2" "$1/zarrfs"
            cp -r "$3" "$1/source"
            cp "$4" "$1/read_files.py"
            mkdir "$1/mnt" "$1/own"
            chmod -R a+rX "$1"
            chown nobody: "$1/mnt" "$1/own"
        "#;
        let mut mount = Self {
            dir: scratch(),
            pid: None,
        };
        let binary = Path::new(env!("CARGO_BIN_EXE_zarrfs"));
        run(&mut script(
            prepare,
            &[mount.dir.path(), binary, source, &tool("read_files.py")],
        ));
        run(&mut mount
            .as_nobody(Command::new(mount.at("zarrfs")).args([mount.at("source"), mount.path()])));
        let xattr = r#"getfattr --absolute-names --only-values -n user.zarrfs.pid "$1""#;
        mount.pid = run(&mut mount.as_nobody(&script(xattr, &[&mount.path()])))
            .parse()
            .ok();
        assert!(
            mount.pid.is_some(),
            "an attribute of the root directory has the daemon's pid"
        );
        mount
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn path(&self) -> PathBuf {
        self.at("mnt")
    }

    fn as_nobody(&self, command: &Command) -> Command {
        let mut command = as_nobody(command);
        // The user nobody cannot use programs in the home of root.
        command
            .current_dir(self.dir.path())
            .env("PATH", "/usr/bin:/bin");
        command
    }

    fn is_gone(&self) -> bool {
        !is_mounted(&self.path()) && !self.pid.is_some_and(is_running)
    }
}

/// Returns whether a process runs. A zombie does not run.
fn is_running(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

impl Drop for UnprivilegedMount {
    fn drop(&mut self) {
        clean_up(&self.path());
        if !wait_until(Duration::from_secs(10), || self.is_gone()) {
            eprintln!(
                "the daemon {:?} of the user nobody outlived its mount",
                self.pid
            );
        }
    }
}

#[test]
fn user_nobody_mounts_and_sees_the_same_tree() {
    if !is_root() {
        return skipped("needs root");
    }
    let zip = fixture("zip/v3-zip-r.zip");
    let unzipped = unzip(&zip);
    let directory = fixture("dir/v2-nested");
    for (source, reference) in [(&zip, unzipped.path()), (&directory, &directory)] {
        let mount = UnprivilegedMount::new(source);
        let seen_by_nobody = mount.at("reference");
        run(&mut script(
            r#"cp -r "$1" "$2"; chmod -R a+rX "$2""#,
            &[reference, &seen_by_nobody],
        ));

        let compare = script(
            SAME_TREE,
            &[&seen_by_nobody, &mount.path(), &mount.at("own")],
        );
        is_silent(&mut mount.as_nobody(&compare));
        let mut read = Command::new("python3");
        read.arg(mount.at("read_files.py"))
            .args([&seen_by_nobody, &mount.path()]);
        is_silent(&mut mount.as_nobody(&read));

        let mut unmount = Command::new(mount.at("zarrfs"));
        unmount.arg("umount").arg(mount.path());
        run(&mut mount.as_nobody(&unmount));
        assert!(mount.is_gone(), "umount left something behind");
    }
}

#[test]
fn path_mounts_the_sub_tree() {
    let cases = [
        ("zip/v2-in-a-folder.zip", "v2-flat", "dir/v2-flat"),
        ("zip/v2-in-a-folder.zip", "v2-flat/a/b/", "dir/v2-flat/a/b"),
        (
            "zip/v2-flat-zip-r.zip",
            "with space",
            "dir/v2-flat/with space",
        ),
        (
            "zip/v3-zip-to-a-pipe.zip",
            "\u{fc}ml\u{e4}ut",
            "dir/v3-consolidated/\u{fc}ml\u{e4}ut",
        ),
        ("dir/v3", "a/b", "dir/v3/a/b"),
        ("dir/v2-nested", "raw", "dir/v2-nested/raw"),
    ];
    for (source, path, reference) in cases {
        let mount = Mount::with(fixture(source), &["--path", path]);
        is_same_tree(&fixture(reference), mount.path());
    }
    for source in ["zip/v3-zip-r.zip", "dir/v3"] {
        let refusal = Mount::attempt(fixture(source), &["--path", "a/nowhere"]).unwrap_err();
        assert_eq!(refusal.code, Some(32), "{refusal:?}");
        assert!(refusal.stderr.contains("a/nowhere"), "{refusal:?}");
    }
}

#[test]
fn two_mounts_of_one_source_are_independent() {
    for source in ["zip/v2-deflate.zip", "dir/v2-consolidated"] {
        let (first, second) = (Mount::new(fixture(source)), Mount::new(fixture(source)));
        assert_ne!(first.pid(), second.pid());
        is_silent(&mut script(SAME_FILES, &[first.path(), second.path()]));
        first.unmount();
        is_same_tree(&fixture("dir/v2-consolidated"), second.path());
    }
}

#[test]
fn inode_numbers_are_the_same_after_a_remount() {
    for source in [
        "zip/v3-zip-r.zip",
        "zip/v2-zipstore.zip",
        "dir/v2-flat",
        "dir/v3",
    ] {
        let inodes = |mount: &Mount| run(&mut script(INODES, &[mount.path()]));
        let first = Mount::new(fixture(source));
        let before = inodes(&first);
        first.unmount();
        let second = Mount::new(fixture(source));
        // Lookups in another order must result in the same numbers.
        fs::metadata(second.join("with space/x")).unwrap();
        fs::metadata(second.join("a/b/c")).unwrap();
        assert_eq!(inodes(&second), before, "{source}");

        let numbers: Vec<_> = before
            .lines()
            .map(|line| line.split_once(' ').unwrap().0)
            .collect();
        let distinct: BTreeSet<_> = numbers.iter().collect();
        assert_eq!(
            distinct.len(),
            numbers.len(),
            "{source} has an inode number twice"
        );
    }
}
