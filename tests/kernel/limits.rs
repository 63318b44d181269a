//! E4, E5, E9: few descriptors, and many names.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

/// Returns a scratch directory for very many files, in memory if possible.
fn large_scratch() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("zarrfs-test-");
    builder
        .tempdir_in("/dev/shm")
        .or_else(|_| builder.tempdir())
        .unwrap()
}

const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"codecs":[{"name":"bytes"}],
    "chunk_key_encoding":{"name":"default"},"fill_value":0}"#;

#[test]
fn e06_more_files_can_be_open_than_the_daemon_may_have_descriptors() {
    // Passthrough is for files of 64 KiB and more.
    let content = |i: u64| pattern(i, 70_000);
    for passthrough in PASSTHROUGH {
        let source = scratch();
        for i in 0..200 {
            fs::write(source.path().join(i.to_string()), content(i)).unwrap();
        }
        fs::create_dir_all(source.path().join("a/c")).unwrap();
        fs::write(source.path().join("a/zarr.json"), ARRAY).unwrap();
        fs::write(source.path().join("a/c/0"), [1, 2, 3, 4]).unwrap();
        let args = ["--passthrough", passthrough];
        let mount = Foreground::new(&["prlimit", "--nofile=64:64"], &[], source.path(), &args);
        // Most of them are handles of one file.
        let number = |i: u64| if i < 200 { i } else { 7 };
        let open = |i: u64| File::open(mount.join(number(i).to_string()));
        let mut files: Vec<_> = (0..1000).map(|i| (number(i), open(i).unwrap())).collect();
        for turn in 0..2 {
            for (i, file) in files.iter_mut().step_by(3) {
                let mut bytes = vec![0; 1000];
                file.read_exact_at(&mut bytes, 1000 * turn).unwrap();
                let start = 1000 * usize::try_from(turn).unwrap();
                assert!(bytes == content(*i)[start..start + 1000], "file {i}");
            }
        }
        // Everything else works meanwhile.
        assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 201);
        assert_eq!(read(mount.join("a/.zarrfs/a.bin")).unwrap(), [1, 2, 3, 4]);
        drop(files);
        for i in 0..200 {
            assert!(read(mount.join(i.to_string())).unwrap() == content(i));
        }
        assert!(!mount.log().contains("WARN"), "{}", mount.log());
    }
}

/// The directories of a collection share the descriptors of the daemon.
#[test]
fn e06_many_files_of_each_directory_of_a_collection_can_be_open() {
    let source = scratch();
    let names = ["a", "b", "c", "d"];
    for (first, name) in (0..).step_by(100).zip(names) {
        let store = source.path().join(format!("{name}.zarr"));
        fs::create_dir_all(store.join("x/c")).unwrap();
        fs::write(store.join("x/zarr.json"), ARRAY).unwrap();
        fs::write(store.join("x/c/0"), [1, 2, 3, 4]).unwrap();
        fs::write(
            store.join("zarr.json"),
            r#"{"zarr_format":3,"node_type":"group"}"#,
        )
        .unwrap();
        for i in 0..100 {
            fs::write(store.join(i.to_string()), pattern(first + i, 70_000)).unwrap();
        }
    }
    let assets = names
        .map(|name| format!(r#""{name}":{{"href":"{name}.zarr"}}"#))
        .join(",");
    let item = source.path().join("item.json");
    let document = format!(r#"{{"type":"Feature","stac_version":"1.1.0","assets":{{{assets}}}}}"#);
    fs::write(&item, document).unwrap();
    let args = ["--passthrough", "off"];
    let mount = Foreground::new(&["prlimit", "--nofile=64:64"], &[], &item, &args);
    let mut files = Vec::new();
    // One directory after the other, so that the last one finds the descriptors used.
    for (first, name) in (0..).step_by(100).zip(names) {
        for i in 0..100_u64 {
            let file = File::open(mount.join(format!("{name}/{i}"))).unwrap();
            files.push((first + i, file));
        }
    }
    for (i, file) in &files {
        let mut bytes = vec![0; 1000];
        file.read_exact_at(&mut bytes, 2000).unwrap();
        assert!(bytes == pattern(*i, 70_000)[2000..3000], "file {i}");
    }
    for name in names {
        assert_eq!(fs::read_dir(mount.join(name)).unwrap().count(), 102);
        assert_eq!(
            read(mount.join(format!("{name}/x/.zarrfs/x.bin"))).unwrap(),
            [1, 2, 3, 4]
        );
    }
    assert!(!mount.log().contains("WARN"), "{}", mount.log());
}

#[test]
fn e04_a_file_that_is_replaced_or_removed_after_its_descriptor_was_closed_is_stale() {
    let source = scratch();
    let path = |i: u64| source.path().join(i.to_string());
    for i in 0..100 {
        // The kernel has the content of smaller files from the open on.
        fs::write(path(i), pattern(i, 70_000)).unwrap();
    }
    let args = ["--passthrough", "off"];
    let mount = Foreground::new(&["prlimit", "--nofile=64:64"], &[], source.path(), &args);
    let files: Vec<_> = (0..100)
        .map(|i| File::open(mount.join(i.to_string())).unwrap())
        .collect();
    fs::remove_file(path(0)).unwrap();
    fs::rename(path(99), path(1)).unwrap();
    let read = |i: usize| files[i].read_at(&mut [0; 100], 0);
    for i in [0, 1] {
        assert_eq!(errno(read(i)), Errno::STALE.raw_os_error(), "file {i}");
    }
    assert_eq!(read(2).unwrap(), 100);
    assert!(mount.log().contains("while it was open"), "{}", mount.log());
}

#[test]
fn e05_names_that_are_listed_and_not_looked_up_take_no_memory() {
    const NAMES: usize = 50_000;
    let source = large_scratch();
    let mut directory = source.path().join("d0");
    fs::create_dir(&directory).unwrap();
    let name = |i: usize| format!("a_rather_long_name_of_a_chunk_that_costs_some_memory.{i}");
    for i in 0..NAMES {
        File::create(directory.join(name(i))).unwrap();
    }
    let mount = Mount::of_keys(source.path(), &[]);
    let mut after = Vec::new();
    // In each round the directory has another name, so all names below it are new.
    for round in 0..6 {
        let listed = fs::read_dir(mount.join(format!("d{round}"))).unwrap();
        assert_eq!(listed.count(), NAMES);
        // A listing begins with a few attributes, see `readdir`.
        assert!(gauge(mount.path(), "inodes") < 500);
        after.push(mount.memory("VmRSS"));
        let renamed = source.path().join(format!("d{}", round + 1));
        fs::rename(&directory, &renamed).unwrap();
        directory = renamed;
    }
    // The names would add 4 MiB in each round.
    assert!(after[5] < after[1] + (4 << 20), "{after:?}");
}

#[test]
fn e05_forgotten_inodes_take_no_memory() {
    const NAMES: usize = 50_000;
    if !is_root() {
        return skipped("needs root");
    }
    let source = large_scratch();
    let mut directory = source.path().join("d0");
    fs::create_dir(&directory).unwrap();
    let name = |i: usize| format!("a_rather_long_name_of_a_chunk_that_costs_some_memory.{i}");
    for i in 0..NAMES {
        File::create(directory.join(name(i))).unwrap();
    }
    let mount = Mount::of_keys(source.path(), &[]);
    fs::metadata(mount.path()).unwrap();
    let baseline = mount.memory("VmRSS");

    // In each round the directory has another name, so all names below it are new.
    let mut after = Vec::new();
    for round in 0..4 {
        let below = mount.join(format!("d{round}"));
        let counted = || {
            for i in 0..NAMES {
                assert!(fs::metadata(below.join(name(i))).unwrap().is_file());
            }
            gauge(mount.path(), "inodes") > NAMES as u64 / 2
        };
        // Another test can drop the kernel's caches at any moment.
        assert!(
            wait_until(Duration::from_secs(30), counted),
            "the gauge of inodes does not count them"
        );
        let forgotten = || {
            drop_caches();
            gauge(mount.path(), "inodes") <= 3
        };
        let inodes = || gauge(mount.path(), "inodes");
        assert!(
            wait_until(Duration::from_secs(10), forgotten),
            "{} inodes are left in round {round}",
            inodes()
        );
        after.push(mount.memory("VmRSS"));
        let renamed = source.path().join(format!("d{}", round + 1));
        fs::rename(&directory, &renamed).unwrap();
        directory = renamed;
    }
    // Cached names would add 7 MiB in each round; allocator fragmentation adds less.
    assert!(
        after[3] < after[0] + (12 << 20),
        "memory grows from round to round: {after:?}"
    );
    assert!(
        after[3] < baseline + (32 << 20),
        "{baseline} became {after:?}"
    );
    assert_eq!(gauge(mount.path(), "handles"), 0);
}

#[test]
fn e09_a_directory_of_100000_files_is_listed_exactly() {
    let source = large_scratch();
    let inside = source.path().join("many");
    fs::create_dir(&inside).unwrap();
    let names: BTreeSet<String> = (0..100_000).map(|i| format!("c.{i}")).collect();
    for name in &names {
        File::create(inside.join(name)).unwrap();
    }
    let tool = readdir_tool(source.path());
    let mount = Mount::of_keys(source.path(), &[]);
    let many = mount.join("many");
    expect_listing(&tool, "list", &many, &names);
    expect_listing(&tool, "seek", &many, &names);

    let listed_out = AtomicBool::new(false);
    let listing = std::thread::scope(|scope| {
        scope.spawn(|| change(&inside, &listed_out));
        let listing = listing(&tool, "slow", &many);
        listed_out.store(true, Ordering::Relaxed);
        listing
    });
    let untouched: Vec<&String> = listing
        .iter()
        .filter(|name| name.starts_with("c."))
        .collect();
    let distinct: BTreeSet<String> = untouched.iter().map(|&name| name.clone()).collect();
    assert_eq!(
        untouched.len(),
        distinct.len(),
        "unchanged files were listed twice"
    );
    assert!(distinct == names, "unchanged files were missed");
}

#[test]
fn e09_a_zip_directory_of_100000_entries_is_listed_exactly() {
    let source = scratch();
    let names: BTreeSet<String> = (0..100_000).map(|i| format!("c.{i}")).collect();
    let files: Vec<_> = names
        .iter()
        .map(|name| (format!("many/{name}"), Vec::new()))
        .collect();
    let zip = source.path().join("many.zip");
    fs::write(&zip, zip_bytes(&files, false)).unwrap();
    let tool = readdir_tool(source.path());
    let mount = Mount::of_keys(&zip, &[]);
    for mode in ["list", "seek", "slow"] {
        expect_listing(&tool, mode, &mount.join("many"), &names);
    }
}

/// Compiles tests/kernel/readdir.c.
fn readdir_tool(dir: &Path) -> PathBuf {
    let tool = dir.join("readdir");
    run(Command::new("cc")
        .args(["-O2", "-Wall", "-o"])
        .arg(&tool)
        .arg(own_file("readdir.c")));
    tool
}

fn listing(tool: &Path, mode: &str, directory: &Path) -> Vec<String> {
    let listed = run(Command::new(tool)
        .arg(mode)
        .arg(directory)
        .stdin(Stdio::null()));
    listed.lines().map(str::to_owned).collect()
}

fn expect_listing(tool: &Path, mode: &str, directory: &Path, names: &BTreeSet<String>) {
    let listed = listing(tool, mode, directory);
    assert_eq!(listed.len(), names.len(), "{mode} of {directory:?}");
    assert!(
        listed.into_iter().collect::<BTreeSet<_>>() == *names,
        "{mode} of {directory:?} has other names"
    );
}

/// Adds and removes files until `stop` is set.
fn change(directory: &Path, stop: &AtomicBool) {
    let mut i = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        File::create(directory.join(format!("new.{i}"))).unwrap();
        if i >= 100 {
            fs::remove_file(directory.join(format!("new.{}", i - 100))).unwrap();
        }
        i += 1;
    }
}
