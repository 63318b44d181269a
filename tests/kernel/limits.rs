//! E4, E5, E9: few descriptors, and many names.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
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

#[test]
fn e04_open_fails_when_descriptors_run_out_and_recovers() {
    let source = scratch();
    let content = |i: u64| pattern(i, 5000);
    for i in 0..200 {
        fs::write(source.path().join(i.to_string()), content(i)).unwrap();
    }
    for passthrough in PASSTHROUGH {
        let args = ["--passthrough", passthrough];
        let mount = Foreground::new(&["prlimit", "--nofile=64:64"], &[], source.path(), &args);
        let paths: Vec<PathBuf> = (0..200).map(|i| mount.join(i.to_string())).collect();

        let (mut open, mut refused) = (Vec::new(), 0);
        for (i, path) in paths.iter().enumerate() {
            match File::open(path) {
                Ok(file) => open.push((i, file)),
                Err(e) => {
                    let expected = [Errno::MFILE, Errno::NFILE, Errno::IO].map(Errno::raw_os_error);
                    assert!(
                        expected.contains(&e.raw_os_error().unwrap()),
                        "{path:?}: {e}"
                    );
                    refused += 1;
                }
            }
        }
        assert!(
            refused > 0,
            "the daemon never came to its limit of 64 descriptors"
        );
        assert!(
            open.len() > 10,
            "only {} of 64 descriptors were of use",
            open.len()
        );
        for (i, file) in &mut open {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert!(bytes == content(*i as u64), "file {i} at the limit");
        }
        assert!(
            mount.log().contains("WARN"),
            "nothing in the log: {:?}",
            mount.log()
        );

        drop(open);
        let works = || paths[..20].iter().all(|path| File::open(path).is_ok());
        assert!(
            wait_until(Duration::from_secs(5), works),
            "still no descriptors after all was closed"
        );
        for (i, path) in paths.iter().enumerate() {
            assert!(
                read(path).unwrap() == content(i as u64),
                "file {i} afterwards"
            );
        }
        assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 200);
    }
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
        for i in 0..NAMES {
            assert!(fs::metadata(below.join(name(i))).unwrap().is_file());
        }
        assert!(
            gauge(mount.path(), "inodes") > NAMES as u64 / 2,
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
