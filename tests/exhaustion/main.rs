//! Level: the file system in process, with failures of memory, descriptors and threads. The n-th large allocation, the
//! n-th system call that returns a descriptor or the n-th start of a thread fails, during a mount, the lookup of a path,
//! and its listing or read. An ordinary run has some n; `ZARRFS_EXHAUSTION=all` has every n of every path.
//!
//! A request may fail with the errno of the failure. The process must not end, nothing may be held afterwards, and the
//! same request without a failure returns the right bytes. Each failure has a process of its own, because the process
//! ends if an allocation that cannot fail gets no memory (`std::alloc::handle_alloc_error`).
//!
//! Not tested: allocations of libraries in C (Blosc, Zstandard, xz, SQLite), which do not pass through Rust's allocator
//! and return an error; those of [`EXCLUDED`].

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod allocator;
mod cases;
mod hierarchy;
mod mounted;
mod syscalls;

#[allow(dead_code)]
#[path = "../corpus/coders.rs"]
mod coders;
#[allow(dead_code)]
#[path = "../model/kernel.rs"]
mod kernel;
#[allow(dead_code)]
#[path = "../corpus/records.rs"]
mod records;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code)]
#[path = "../corpus/zipmaker.rs"]
mod zipmaker;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cases::{Case, Failing, Outcome};
use mounted::{Found, mount, visit};
use support::faulty;
use zarrfs::fs::Fs;

/// Allocations that end the process: a part of the name of a function on their stack, and why they stay.
pub const EXCLUDED: [(&str, &str); 4] = [
    (
        "lru::LruCache",
        "the index of an LRU map of several thousand entries: the crate has no insertion that fails",
    ),
    (
        "zarrfs::store::remote::bytes::whole_values",
        "as above: the map of attributes, whose insertion is inlined",
    ),
    (
        "zarrfs::view::encode::hdf5",
        "the references to thousands of texts in one HDF5 file: its encoder has reasons why a file is absent, and no \
         other errors; texts are limited to 4 MiB",
    ),
    (
        "hyper::",
        "the buffer of a connection: the crate has no other way",
    ),
];

/// The number of failed allocations of a source that an ordinary run tries.
const SAMPLE: usize = 40;
/// The distance between the descriptors, and between the threads, of a path of which an ordinary run fails one each.
const STRIDE: u64 = 9;
/// The number of names in a directory that are visited, if it has many chunks.
const CHUNKS: usize = 2;

/// The paths that are visited if what fails does not depend on codecs and formats.
const FEW_PATHS: [&str; 4] = [
    "",
    "/climate/t2m/.zarrfs/t2m.npy",
    "/sharded/.zarrfs/sharded.npy",
    "/v2/zlib/0.0",
];

/// The number of chunks of an array whose index needs large allocations.
const INDEXED_CHUNKS: usize = 20_000;
/// The number of chunks of an array whose index is built on several threads.
const MANY_CHUNKS: usize = 150_000;

/// Waits until no other test of this process runs, because all share one allocator.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether every n is tried.
fn tries_all() -> bool {
    env::var_os("ZARRFS_EXHAUSTION").is_some_and(|value| value == "all")
}

/// Finds all files and directories below a path, and what a visit finds in each.
fn walk(fs: &Fs, path: &str, found: &mut BTreeMap<String, String>) {
    let content = visit(fs, path).unwrap_or_else(|failed| panic!("{path}: {failed:?}"));
    found.insert(path.to_owned(), content.to_string());
    let Found::Names(names) = content else { return };
    let few = if names.len() > 100 {
        CHUNKS
    } else {
        names.len()
    };
    for (name, is_directory) in names.into_iter().take(few) {
        let path = format!("{path}/{name}");
        // The views of the root read all nodes, and take long.
        let is_of_root = path.starts_with("/.zarrfs/") && !path.starts_with("/.zarrfs/as-");
        if name != "errors.txt" && (!is_of_root || name == "zom.json") {
            match is_directory {
                true => walk(fs, &path, found),
                false => {
                    let content = visit(fs, &path);
                    let content = content.unwrap_or_else(|failed| panic!("{path}: {failed:?}"));
                    found.insert(path, content.to_string());
                }
            }
        }
    }
}

/// Returns the paths to visit: a directory of keys and one of views, a key, all arrays as `.npy`, and a file of each
/// other format.
fn paths(source: &str) -> BTreeMap<String, String> {
    let fs = mount(source).unwrap();
    let mut found = BTreeMap::new();
    walk(&fs, "", &mut found);
    for (group, suffixes) in [
        ("calls", &["bgen", "bgen.bgi", "sample"][..]),
        ("climate", &["packed.nc"]),
        ("v2/zlib", &["packed.nc", "packed.tif"]),
    ] {
        let name = group.rsplit('/').next().unwrap();
        for suffix in suffixes {
            let path = format!("/{group}/.zarrfs/{name}.{suffix}");
            // A remote group has no file of its stored chunks.
            if source.starts_with("http") && path == "/climate/.zarrfs/climate.packed.nc" {
                continue;
            }
            let content = visit(&fs, &path).unwrap_or_else(|failed| panic!("{path}: {failed:?}"));
            found.insert(path, content.to_string());
        }
    }
    let mut formats = BTreeSet::new();
    found.retain(|path, content| {
        let (directory, name) = path.rsplit_once('/').unwrap_or_default();
        let suffix = name.split_once('.').map_or("", |(_, suffix)| suffix);
        let is_view = path.contains("/.zarrfs");
        let is_array = directory.ends_with("/.zarrfs") && suffix == "npy";
        let kind = (content.starts_with("directory"), is_view, suffix.to_owned());
        formats.insert(kind) || is_array
    });
    found
}

/// The outcomes of the failures of a source.
#[derive(Default)]
struct Tally {
    failures: usize,
    excluded: usize,
    effects: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Tally {
    /// Tries a failure; returns false if there are fewer than `n` things that can fail.
    fn attempt(&mut self, case: Case<'_>) -> bool {
        let Case { path, n, .. } = case;
        // Always with the stack, because what fails depends on the schedule of threads.
        match case.run(true) {
            Outcome::NoFailure => return false,
            Outcome::Survived(effect) => drop(self.effects.insert(effect)),
            Outcome::Wrong(why) => {
                let is_abort = case.failing == Failing::Allocation && why.contains("SIGABRT");
                let excluded = EXCLUDED.iter().any(|(part, _)| why.contains(part));
                match is_abort && excluded {
                    true => self.excluded += 1,
                    false => self.wrong.push(format!("{path}, {n}: {why}")),
                }
            }
        }
        self.failures += 1;
        true
    }
}

/// Tries failures of all paths of a source.
fn try_all(failing: Failing, source: &str, paths: &BTreeMap<String, String>) {
    let mut tally = Tally::default();
    let case = |path, n| Case {
        failing,
        source,
        path,
        expected: &paths[path],
        n,
    };
    if failing == Failing::Allocation && !tries_all() {
        let all = paths.keys().flat_map(|path| {
            let count = cases::large_allocations(source, path);
            (1..=count).map(move |n| (path, n))
        });
        let all: Vec<_> = all.collect();
        // Not the same ones for all sources.
        let step = all.len().div_ceil(SAMPLE);
        for (path, n) in all.into_iter().skip(source.len() % step).step_by(step) {
            tally.attempt(case(path, n));
        }
    } else {
        let step = if tries_all() { 1 } else { STRIDE };
        for (number, path) in (0..).zip(paths.keys()) {
            let mut n = 1 + number % step;
            while tally.attempt(case(path, n)) {
                n += step;
            }
        }
    }
    let Tally {
        failures,
        excluded,
        effects,
        wrong,
    } = tally;
    println!(
        "{failing:?}: {} paths, {failures} failures, {} wrong, {excluded} excluded",
        paths.len(),
        wrong.len()
    );
    for effect in effects {
        println!("  {effect}");
    }
    assert!(failures > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns what visits of paths find.
fn visit_all(source: &str, paths: &[&str]) -> BTreeMap<String, String> {
    let fs = mount(source).unwrap();
    let content = |path: &&str| {
        let content = visit(&fs, path).unwrap_or_else(|failed| panic!("{path}: {failed:?}"));
        ((*path).to_owned(), content.to_string())
    };
    paths.iter().map(content).collect()
}

/// Tries failures of allocations for a source whose index is long.
fn try_index(kind: &str) {
    let _alone = alone();
    let place = support::scratch();
    let server = faulty::Server::listing_files();
    let archive = || hierarchy::zip_with_odd_entries(&hierarchy::many_values(INDEXED_CHUNKS));
    let source = match kind {
        "archive" => {
            let path = place.path().join("store.zarr.zip");
            fs::write(&path, archive()).unwrap();
            path.to_str().unwrap().to_owned()
        }
        "remote archive" => {
            server.put("store.zarr.zip", archive());
            server.url_of("store.zarr.zip")
        }
        _ => {
            let path = place.path().join("store.json");
            hierarchy::write_references(INDEXED_CHUNKS, &path);
            path.to_str().unwrap().to_owned()
        }
    };
    let found = visit_all(&source, &["", "/a/1"]);
    try_all(Failing::Allocation, &source, &found);
}

#[test]
fn every_large_allocation_for_the_index_of_an_archive_can_fail() {
    try_index("archive");
}

#[test]
fn every_large_allocation_for_the_index_of_a_remote_archive_can_fail() {
    try_index("remote archive");
}

#[test]
fn every_large_allocation_for_the_index_of_references_can_fail() {
    try_index("references");
}

#[test]
fn an_index_is_built_if_its_threads_do_not_start() {
    let _alone = alone();
    let place = support::scratch();
    let archive = place.path().join("store.zarr.zip");
    hierarchy::write_zip(&hierarchy::many_values(MANY_CHUNKS), &archive);
    let source = archive.to_str().unwrap();
    let found = visit_all(source, &[""]);
    // Two times as many threads as there are further processors; those of the mount start later.
    for n in 1..=2 {
        let case = Case {
            failing: Failing::Thread,
            source,
            path: "",
            expected: &found[""],
            n,
        };
        let outcome = case.run(true);
        assert!(matches!(outcome, Outcome::Survived(_)), "{n}: {outcome:?}");
    }
}

/// Tries failures of a directory, an archive or a web server with the hierarchy.
fn try_source(failing: Failing, kind: &str) {
    let _alone = alone();
    let place = support::scratch();
    let values = hierarchy::values();
    let directory = place.path().join("store.zarr");
    let archive = place.path().join("store.zarr.zip");
    let server = faulty::Server::listing_files();
    let source = match kind {
        "directory" => {
            hierarchy::write_directory(&values, &directory);
            directory.to_str().unwrap().to_owned()
        }
        "archive" => {
            hierarchy::write_zip(&values, &archive);
            archive.to_str().unwrap().to_owned()
        }
        _ => {
            for (key, value) in &values {
                server.put(&format!("store.zarr/{key}"), value.clone());
            }
            server.url_of("store.zarr")
        }
    };
    let found = match failing {
        Failing::Allocation => paths(&source),
        // Codecs and formats open no files and start no threads.
        Failing::Descriptor | Failing::Thread => visit_all(&source, &FEW_PATHS),
    };
    try_all(failing, &source, &found);
}

macro_rules! failures {
    ($($name:ident: $failing:ident $source:literal;)*) => {$(
        #[test]
        fn $name() {
            try_source(Failing::$failing, $source);
        }
    )*};
}

failures! {
    every_large_allocation_for_a_directory_can_fail: Allocation "directory";
    every_large_allocation_for_an_archive_can_fail: Allocation "archive";
    every_large_allocation_for_a_web_server_can_fail: Allocation "server";
    every_open_of_a_descriptor_for_a_directory_can_fail: Descriptor "directory";
    every_open_of_a_descriptor_for_an_archive_can_fail: Descriptor "archive";
    every_open_of_a_descriptor_for_a_web_server_can_fail: Descriptor "server";
    every_start_of_a_thread_for_a_directory_can_fail: Thread "directory";
    every_start_of_a_thread_for_a_web_server_can_fail: Thread "server";
}
