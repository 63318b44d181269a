//! fio writes a file with checksums in each of its blocks. As a key, and as chunks of an array whose view is the file,
//! it is read through the mount by each engine of fio, which verifies the checksums and the offsets in the blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::has;
use crate::support::*;

const MIB: usize = 1 << 20;
const SIZE: usize = 4 * MIB;
/// No multiple of a block, so that blocks are in two chunks.
const CHUNK: usize = 300_007;
/// Engines that open a file by its path and read from it. All others of fio have no file (net, null, cpuio), write
/// (falloc, ftruncate, filecreate, filedelete, e4defrag), or need a device or a server (sg, mtd, rados, nbd, ...).
const ENGINES: [&str; 9] = [
    "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "libaio", "io_uring",
];

/// Runs fio with options of all jobs; each of `jobs` has the options of one.
fn fio(directory: &Path, name: &Path, jobs: &[Vec<String>]) -> Result<(), String> {
    let mut command = Command::new("fio");
    // The state of a run is written to the working directory.
    command
        .current_dir(directory)
        .arg("--thread")
        .arg("--size=4m");
    command.arg(format!("--filename={}", name.display()));
    command.args([
        "--verify=crc32c",
        "--verify_interval=4k",
        "--verify_fatal=1",
    ]);
    for (i, job) in jobs.iter().enumerate() {
        command.arg(format!("--name=job-{i}")).args(job);
    }
    let output = run_for(&mut command, Duration::from_secs(90));
    match output.status.success() {
        true => Ok(()),
        false => {
            let text =
                String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            Err(format!("{jobs:?}: {text}"))
        }
    }
}

/// Returns the options of a job that reads and verifies.
fn reader(engine: &str, order: &str, direct: u8) -> Vec<String> {
    let sizes = ["--readonly", "--bs=4k-128k", "--iodepth=8"].map(str::to_owned);
    let how = [
        format!("--ioengine={engine}"),
        format!("--rw={order}"),
        format!("--direct={direct}"),
    ];
    [&sizes[..], &how[..]].concat()
}

/// Returns a reader for each engine, order and kind of input and output that works here on a plain file.
fn readers(directory: &Path, plain: &Path) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for engine in ENGINES {
        // A container may refuse the system calls.
        if engine == "io_uring" && fio(directory, plain, &[reader(engine, "read", 0)]).is_err() {
            println!("io_uring does not work here");
            continue;
        }
        all.extend(["read", "randread"].map(|order| reader(engine, order, 0)));
        // Pages of a mapping and of a pipe are those of the page cache.
        if !["mmap", "splice"].contains(&engine) {
            all.push(reader(engine, "randread", 1));
        }
    }
    all
}

/// Writes a store with the file as the key `file` and as the array `array`, compressed with gzip.
fn write_store(store: &Path) {
    fs::create_dir_all(store.join("array/c")).unwrap();
    let writer = [
        "--rw=write",
        "--bs=64k",
        "--do_verify=0",
        "--ioengine=psync",
    ]
    .map(str::to_owned);
    fio(
        store.parent().unwrap(),
        &store.join("file"),
        &[writer.to_vec()],
    )
    .unwrap();
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
    fs::write(store.join("zarr.json"), group.to_string()).unwrap();
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [SIZE], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "attributes": {},
        "codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}],
    });
    fs::write(store.join("array/zarr.json"), array.to_string()).unwrap();
    let mut content = fs::read(store.join("file")).unwrap();
    assert_eq!(content.len(), SIZE);
    content.resize(SIZE.next_multiple_of(CHUNK), 0);
    for (i, chunk) in content.chunks(CHUNK).enumerate() {
        let file = fs::File::create(store.join(format!("array/c/{i}"))).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::new(1));
        std::io::Write::write_all(&mut encoder, chunk).unwrap();
        encoder.finish().unwrap();
    }
}

fn zip_of(store: &Path) -> PathBuf {
    let zip = store.with_extension("zip");
    let mut command = Command::new("zip");
    command.current_dir(store).args(["-q", "-r"]).arg(&zip);
    run(command.arg("."));
    zip
}

#[test]
fn every_engine_of_fio_verifies_keys_and_views() {
    if !has("fio") {
        return skipped("needs fio");
    }
    let place = scratch();
    let store = place.path().join("store");
    write_store(&store);
    let jobs = readers(place.path(), &store.join("file"));
    for source in [store.clone(), zip_of(&store)] {
        let mount = Mount::new(&source);
        for path in ["file", "array/.zarrfs/array.bin"].map(|name| mount.join(name)) {
            assert_eq!(fio(place.path(), &path, &jobs), Ok(()), "{source:?}");
        }
        mount.unmount();
    }
}

#[test]
fn fio_finds_a_byte_that_is_wrong() {
    if !has("fio") {
        return skipped("needs fio");
    }
    let place = scratch();
    let store = place.path().join("store");
    write_store(&store);
    let mut content = fs::read(store.join("file")).unwrap();
    content[MIB + 1234] ^= 1;
    fs::write(store.join("file"), content).unwrap();
    let mount = Mount::new(&store);
    for engine in ["psync", "mmap"] {
        let result = fio(
            place.path(),
            &mount.join("file"),
            &[reader(engine, "read", 0)],
        );
        assert!(result.unwrap_err().contains("verify"), "{engine}");
    }
    mount.unmount();
}
