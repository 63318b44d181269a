//! The number of requests: each costs a round trip, so none is superfluous.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags};

use crate::compare::*;
use crate::servers::{Nginx, Request};
use crate::support::*;

/// Returns the body bytes that were sent for these requests.
fn bytes(requests: &[Request]) -> u64 {
    let is_value = |request: &&Request| request.method == "GET" && request.status < 300;
    let sent = requests.iter().filter(is_value);
    sent.map(|request| request.bytes).sum()
}

fn local(served: &Path, key: &str) -> Vec<u8> {
    fs::read(served.join(key)).unwrap()
}

#[test]
fn a_consolidated_hierarchy_is_mounted_and_listed_in_three_requests() {
    let served = served();
    for name in ["v2-consolidated", "v3-consolidated"] {
        let nginx = Nginx::start(served.path());
        let mounted = nginx.remote("").mount(name);
        let found = sh(&format!("find {} | wc -l", mounted.path().display()));
        assert!(found.trim().parse::<usize>().unwrap() > 300, "{found}");
        let requests = nginx.requests();
        assert!(requests.len() <= 3, "{name}: {requests:?}");
        mounted.unmount();
    }
}

#[test]
fn an_array_is_read_with_a_request_for_each_chunk_and_two_more() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v2-consolidated");
    let local = support_mount(served.path().join("v2-consolidated"));
    let before = nginx.requests().len();
    let view = "zlib/.zarrfs/zlib.npy";
    let (there, here) = (read(mounted.join(view)), read(local.join(view)));
    assert_eq!(there.unwrap(), here.unwrap());
    let requests = nginx.requests().split_off(before);
    let chunks = requests.iter().filter(|r| !r.path.contains("/."));
    assert_eq!(chunks.count(), 16, "{requests:?}");
    // The documents of the array.
    assert!(requests.len() <= 16 + 2, "{requests:?}");
    // The second read comes from memory.
    read(mounted.join("zlib/.zarrfs/zlib.bin")).unwrap();
    assert_eq!(nginx.requests().len(), before + requests.len());
    mounted.unmount();
}

#[test]
fn a_view_is_found_with_requests_for_its_node_and_its_attributes_with_none() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v3");
    // Reads the group.
    fs::metadata(mounted.join(".zarrfs")).unwrap();
    let before = nginx.requests().len();
    let view = mounted.join(".zarrfs/zstd.npy");
    let size = fs::metadata(&view).unwrap().len();
    let requests = nginx.requests().split_off(before);
    assert!(
        requests.iter().all(|r| r.path.contains("/zstd")),
        "{requests:?}"
    );
    for _ in 0..3 {
        let (flags, wanted) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
        let stat = rustix::fs::statx(rustix::fs::CWD, &view, flags, wanted).unwrap();
        assert_eq!(stat.stx_size, size);
    }
    let asked = nginx.requests().split_off(before + requests.len());
    assert!(asked.is_empty(), "{asked:?}");
    mounted.unmount();
}

#[test]
fn inner_chunks_of_a_shard_are_fetched_together() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v3-sharded");
    let local = support_mount(served.path().join("v3-sharded"));
    let view = "zstd/.zarrfs/zstd.npy";
    let there = read(mounted.join(view)).unwrap();
    assert_eq!(there, read(local.join(view)).unwrap());
    let requests = nginx.requests();
    let shards = fs_count(&served.path().join("v3-sharded/zstd/c"));
    let of_shards = requests.iter().filter(|r| r.path.contains("zstd/c/"));
    // The index, and once or twice the range of a read with its readahead.
    assert!(of_shards.count() <= 3 * shards, "{requests:?}");
    mounted.unmount();
}

#[test]
fn a_zip_is_mounted_in_three_requests_and_no_byte_is_read_twice() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v2-zipstore.zip");
    let before = nginx.requests().len();
    assert!(before <= 3, "{:?}", nginx.requests());
    let large = read(mounted.join("large/.zarrfs/large.bin")).unwrap();
    assert_eq!(large, local(served.path(), "v2-consolidated/large/0"));
    let requests = nginx.requests().split_off(before);
    let sent = bytes(&requests);
    assert!(sent <= large.len() as u64 / 20 * 21, "{requests:?}");
    mounted.unmount();
}

#[test]
fn an_array_in_a_zip_is_read_with_one_request_for_each_chunk() {
    let served = scratch();
    let (store, archive) = (served.path().join("store"), served.path().join("store.zip"));
    fs::create_dir_all(store.join("x")).unwrap();
    let chunk = vec![7; 500_000];
    let document = serde_json::json!({"zarr_format": 2, "shape": [CHUNKS * chunk.len()],
        "chunks": [chunk.len()], "dtype": "|u1", "order": "C", "compressor": null,
        "filters": null, "fill_value": 0});
    fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    fs::write(store.join("x/.zarray"), document.to_string()).unwrap();
    for number in 0..CHUNKS {
        fs::write(store.join(format!("x/{number}")), &chunk).unwrap();
    }
    sh(&format!(
        "cd {} && python3 -m zipfile -c {} .zgroup x",
        store.display(),
        archive.display()
    ));
    let nginx = Nginx::start(served.path());
    // The next chunks are still on their way when the first read ends.
    let mounted = nginx.remote("slow").mount("store.zip");
    let before = nginx.requests().len();
    let view = read(mounted.join("x/.zarrfs/x.bin")).unwrap();
    assert!(view == chunk.repeat(CHUNKS));
    let requests = nginx.requests().split_off(before);
    assert!(requests.len() <= CHUNKS + 4, "{requests:?}");
    mounted.unmount();
}

#[test]
fn ordinary_tools_read_the_keys_of_a_remote_zip_with_one_request_each() {
    let copy = scratch();
    for level in ["-0", "-1"] {
        let served = scratch();
        let store = served.path().join("store");
        fs::create_dir_all(store.join("x")).unwrap();
        for number in 0..CHUNKS {
            let factor = 2_654_435_761 + u32::try_from(number).unwrap();
            let chunk: Vec<u8> = (0..200_000_u32)
                .map(|at| at.wrapping_mul(factor).to_be_bytes()[0])
                .collect();
            fs::write(store.join(format!("x/{number}")), chunk).unwrap();
        }
        let document = serde_json::json!({"zarr_format": 2, "shape": [CHUNKS * 200_000],
            "chunks": [200_000], "dtype": "|u1", "order": "C", "compressor": null,
            "filters": null, "fill_value": 0});
        fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
        fs::write(store.join("x/.zarray"), document.to_string()).unwrap();
        sh(&format!(
            "cd {} && zip -q {level} -r ../store.zip .",
            store.display()
        ));
        let tools = [
            "for n in $(seq 0 39); do cat MNT/x/$n; done | cmp - COPY/all",
            "cp -r MNT COPY/cp && diff -r STORE COPY/cp && rm -r COPY/cp",
            "tar -C MNT -cf COPY/x.tar . && tar -C STORE -df COPY/x.tar",
            "cat $(ls -d MNT/x/*) | cmp - COPY/by-name",
        ];
        sh(&format!(
            "cd {}/x && cat $(seq 0 39) > {copy}/all && cat * > {copy}/by-name",
            store.display(),
            copy = copy.path().display()
        ));
        for script in tools {
            let nginx = Nginx::start(served.path());
            let mounted = nginx.remote("slow").mount("store.zip");
            let before = nginx.requests().len();
            let script = script
                .replace("MNT", &mounted.path().display().to_string())
                .replace("STORE", &store.display().to_string())
                .replace("COPY", &copy.path().display().to_string());
            sh(&script);
            let requests = nginx.requests().split_off(before);
            assert!(
                requests.len() <= CHUNKS + MORE,
                "{level} {script}: {requests:?}"
            );
            let sent = bytes(&requests);
            let most = fs::metadata(served.path().join("store.zip")).unwrap().len() / 20 * 21;
            assert!(sent <= most, "{level} {script}: {sent} bytes of {most}");
            mounted.unmount();
        }
    }
}

#[test]
fn a_long_key_in_a_zip_is_read_ahead_and_no_part_of_it_twice() {
    let served = scratch();
    let long = vec![7; 20 << 20];
    fs::write(served.path().join("long"), &long).unwrap();
    fs::write(served.path().join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    sh(&format!(
        "cd {} && python3 -m zipfile -c store.zip .zgroup long",
        served.path().display()
    ));
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("slow").mount("store.zip");
    let before = nginx.requests().len();
    assert!(read(mounted.join("long")).unwrap() == long);
    let requests = nginx.requests().split_off(before);
    assert!(requests.len() <= 20, "{requests:?}");
    let sent = bytes(&requests);
    assert!(sent <= long.len() as u64 / 20 * 21, "{requests:?}");
    mounted.unmount();
}

#[test]
fn a_second_mount_with_a_warm_disk_cache_fetches_no_data() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let cache = scratch();
    let cache = cache.path().join("cache");
    for (source, views) in [
        (
            "v2-consolidated",
            &["zlib/.zarrfs/zlib.npy", "large/.zarrfs/large.bin"][..],
        ),
        ("v3-sharded", &["zstd/.zarrfs/zstd.npy"]),
        ("v2-zipstore.zip", &["large/.zarrfs/large.bin"]),
    ] {
        let mut first = Vec::new();
        for round in 0..2 {
            let remote = nginx
                .remote("")
                .arg("--disk-cache")
                .arg(cache.to_str().unwrap());
            let mounted = remote.mount(source);
            let native = read(mounted.join("large/0")).unwrap_or_default();
            let before = nginx.requests().len();
            let values: Vec<_> = views
                .iter()
                .map(|view| read(mounted.join(view)).unwrap())
                .collect();
            let requests = nginx.requests().split_off(before);
            if round == 0 {
                first = values;
            } else {
                assert!(first == values, "{source}");
                assert_eq!(bytes(&requests), 0, "{source}: {requests:?}");
            }
            assert!(native.is_empty() || native == local(served.path(), "v2-consolidated/large/0"));
            mounted.unmount();
        }
    }
}

#[test]
fn n5_takes_five_requests_for_each_node_and_one_for_each_block() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/n5");
    let nginx = Nginx::start(&fixtures);
    let mounted = nginx.remote("").mount("store");
    let opened = nginx.requests().len();
    // First the Zarr documents, two at a time, then `attributes.json`.
    assert!(opened <= 5, "{:?}", nginx.requests());
    let view = "made/short/.zarrfs/short.npy";
    let local = support_mount(fixtures.join("store"));
    let there = read(mounted.join(view)).unwrap();
    assert_eq!(there, read(local.join(view)).unwrap());
    let requests = nginx.requests().split_off(opened);
    let blocks = requests
        .iter()
        .filter(|r| !r.path.contains(".z") && !r.path.ends_with(".json"));
    let blocks = blocks.filter(|r| r.path.contains("/short/"));
    assert_eq!(blocks.count(), 3 * 4, "{requests:?}");
    // The documents of the dataset, and the lookups of the group and of the dataset.
    assert!(
        requests.len() <= 12 + 5 + 2,
        "{} {requests:?}",
        requests.len()
    );
    let before = nginx.requests().len();
    read(mounted.join("made/short/.zarrfs/short.bin")).unwrap();
    assert_eq!(nginx.requests().len(), before);
    mounted.unmount();
}

#[test]
fn documents_of_n5_are_not_requested_in_a_hierarchy_of_zarr() {
    let served = served();
    let nginx = Nginx::start(served.path());
    for (location, name, view) in [
        ("", "v2-flat", "zlib/.zarrfs/zlib.npy"),
        ("", "v3", "zstd/.zarrfs/zstd.npy"),
        ("index", "v3", "zstd/.zarrfs/zstd.npy"),
    ] {
        let bare = served.path().join(name).join("bare");
        fs::create_dir_all(&bare).unwrap();
        fs::write(bare.join("notes.txt"), "no document").unwrap();
        let mounted = nginx.remote(location).mount(name);
        read(mounted.join(view)).unwrap();
        assert!(read(mounted.join("nowhere")).is_err());
        assert!(read(mounted.join("a/nowhere/x")).is_err());
        // A directory without documents.
        let is_known = read(mounted.join("bare/.zarrfs/README.txt")).is_ok();
        assert!(is_known || location.is_empty());
        mounted.unmount();
    }
    let requests = nginx.requests();
    let n5 = requests.iter().find(|r| r.path.contains("attributes.json"));
    assert!(n5.is_none() && requests.len() > 10, "{n5:?}");
}

fn support_mount(source: std::path::PathBuf) -> Mount {
    Mount::new(&source)
}

fn fs_count(directory: &Path) -> usize {
    let found = sh(&format!("find '{}' -type f | wc -l", directory.display()));
    found.trim().parse().unwrap()
}

/// The number of chunks of the array that ordinary tools read.
const CHUNKS: usize = 40;
/// The number of requests for its documents, and before an order is detected.
const MORE: usize = 4;

/// Returns a consolidated group with one array of incompressible chunks, in two levels of prefixes.
pub fn array_of_many_chunks() -> tempfile::TempDir {
    let served = scratch();
    let array = served.path().join("many/x");
    let document = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [10, 4, 25_000], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 25_000]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes"}], "fill_value": 0, "attributes": {},
    });
    let group = serde_json::json!({
        "zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {
            "kind": "inline", "must_understand": false, "metadata": {"x": document},
        },
    });
    for chunk in 0..CHUNKS {
        let directory = array.join(format!("c/{}/{}", chunk / 4, chunk % 4));
        fs::create_dir_all(&directory).unwrap();
        fs::write(
            directory.join("0"),
            vec![u8::try_from(chunk).unwrap() + 1; 25_000],
        )
        .unwrap();
    }
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
    fs::write(served.path().join("many/zarr.json"), group.to_string()).unwrap();
    served
}

#[test]
fn ordinary_tools_read_native_keys_with_one_request_each() {
    let served = array_of_many_chunks();
    let copy = scratch();
    let copy = copy.path().display();
    let python = zarr_python("3");
    let tools = [
        (
            "cat",
            "cat $(find MNT/c -type f | sort) > COPY/x && test $(stat -c %s COPY/x) = 1000000",
        ),
        ("cp", "cp -r MNT COPY/cp && diff -r MNT COPY/cp"),
        (
            "tar",
            "tar -C MNT -cf COPY/x.tar . && tar -C MNT -df COPY/x.tar",
        ),
        (
            "zarr-python",
            "PYTHON -c 'import zarr; print(zarr.open_array(\"MNT\", mode=\"r\")[...].sum())' | grep -x 20500000",
        ),
    ];
    for (tool, script) in tools {
        let nginx = Nginx::start(served.path());
        let mounted = nginx.remote("").mount("many");
        let before = nginx.requests().len();
        let array = mounted.path().join("x");
        let script = script.replace("MNT", &array.display().to_string());
        let script = script.replace("COPY", &copy.to_string());
        sh(&script.replace("PYTHON", &python.display().to_string()));
        let requests = nginx.requests().split_off(before);
        assert!(requests.len() <= CHUNKS + MORE, "{tool}: {requests:?}");
        // Few bytes were fetched but not read.
        let sent = bytes(&requests);
        assert!(sent <= 1_100_000, "{tool}: {sent} bytes");
        mounted.unmount();
    }
}

#[test]
fn a_stat_of_many_keys_fetches_few_values() {
    for size in [700_000, 500] {
        let served = array_of_many_chunks();
        for chunk in 0..CHUNKS {
            let name = format!("many/x/c/{}/{}/0", chunk / 4, chunk % 4);
            fs::write(served.path().join(name), vec![1; size]).unwrap();
        }
        let nginx = Nginx::start(served.path());
        let mounted = nginx.remote("").mount("many");
        let before = nginx.requests().len();
        let found = sh(&format!(
            "find {}/x/c -type f -size {size}c | wc -l",
            mounted.path().display()
        ));
        assert_eq!(found.trim(), CHUNKS.to_string());
        let requests = nginx.requests().split_off(before);
        assert!(requests.len() <= CHUNKS + MORE, "{requests:?}");
        // The second lookup shows that the first key was not opened.
        let values = requests.iter().filter(|request| request.method == "GET");
        assert!(values.count() <= 1, "{requests:?}");
        mounted.unmount();
    }
}

#[test]
fn a_source_that_does_not_change_is_read_from_a_warm_disk_cache_without_requests() {
    let served = array_of_many_chunks();
    let nginx = Nginx::start(served.path());
    for option in ["--immutable", "--ttl=inf"] {
        reads_from_a_warm_disk_cache(&nginx, option);
    }
}

fn reads_from_a_warm_disk_cache(nginx: &Nginx, option: &str) {
    let cache = scratch();
    let cache = cache.path().join("cache");
    let rounds = [0, 1].map(|round| {
        let remote = nginx.remote("").arg(option);
        let remote = remote.arg("--disk-cache").arg(cache.to_str().unwrap());
        let mounted = remote.mount("many");
        let before = nginx.requests().len();
        let view = read(mounted.join("x/.zarrfs/x.bin")).unwrap();
        let keys = sh(&format!(
            "cat {}/x/c/*/*/0 | md5sum",
            mounted.path().display()
        ));
        let requests = nginx.requests().split_off(before);
        if round == 1 {
            assert!(requests.is_empty(), "{requests:?}");
        }
        mounted.unmount();
        (view, keys)
    });
    assert!(rounds[0] == rounds[1]);
    assert_eq!(rounds[0].0.len(), 1_000_000);
}

#[test]
fn the_disk_cache_has_the_index_of_a_zip() {
    let served = scratch();
    let zip = served.path().join("many.zip");
    let make = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr(".zgroup", '{"zarr_format": 2}')
    for n in range(20000):
        z.writestr(f"directory-{n % 7}/key-{n}", str(n))
"#;
    run(Command::new("python3").arg("-c").arg(make).arg(&zip));
    let cache = scratch();
    let cache = cache.path().join("cache");
    let nginx = Nginx::start(served.path());
    let mut mounts = Vec::new();
    for _ in 0..2 {
        let before = nginx.requests().len();
        let remote = nginx.remote("").arg("--disk-cache");
        let mounted = remote.arg(cache.to_str().unwrap()).mount("many.zip");
        let requests = nginx.requests().split_off(before);
        let found = sh(&format!(
            "cd {} && find . -type f | LC_ALL=C sort | md5sum && cat directory-3/key-10 directory-6/key-19998",
            mounted.path().display()
        ));
        let is_cached = || fs_bytes(&cache) > 20_000 * 48;
        assert!(wait_until(Duration::from_secs(10), is_cached));
        mounts.push((requests, found));
        mounted.unmount();
    }
    let [(cold, first), (warm, second)] = &mounts[..] else {
        panic!("two mounts");
    };
    assert_eq!(first, second);
    assert!(first.ends_with("1019998"), "{first}");
    assert!(bytes(cold) > 20_000 * 46, "{cold:?}");
    assert!(warm.len() <= 1 && bytes(warm) == 0, "{warm:?}");
    // Other content has another index.
    run(Command::new("python3")
        .arg("-c")
        .arg(make.replace("20000", "20001"))
        .arg(&zip));
    let remote = nginx.remote("").arg("--disk-cache");
    let mounted = remote.arg(cache.to_str().unwrap()).mount("many.zip");
    assert_eq!(
        read(mounted.join("directory-1/key-20000")).unwrap(),
        b"20000"
    );
    mounted.unmount();
}

/// Returns the size of all files below a directory in bytes, while others may rename and delete files of it.
fn fs_bytes(directory: &Path) -> u64 {
    let listed = sh(&format!(
        "find {} -ignore_readdir_race -type f -printf '%s\\n'",
        directory.display()
    ));
    listed
        .lines()
        .map(|line| line.parse::<u64>().unwrap())
        .sum()
}
