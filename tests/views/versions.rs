//! Views of arrays whose chunks are replaced: each open file has one version of a chunk, and each
//! version is decoded once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::clients::{ESTALE, gauge};
use crate::stores::*;
use crate::support::*;

const SOON: Duration = Duration::from_secs(10);
/// The value of `--ttl` in these mounts.
const TTL: Duration = Duration::from_millis(50);
/// The number of elements along each axis of the only chunk of an array, and of the inner chunks of a shard.
const EDGE: usize = 512;
const INNER: usize = 256;

fn elements(count: usize, value: i32) -> Vec<u8> {
    le(&vec![value; count])
}

/// Returns a shard whose four inner chunks consist of one value.
fn shard(value: i32) -> Vec<u8> {
    let inner = compressed(&elements(INNER * INNER, value));
    let length = inner.len() as u64;
    let mut bytes = inner.repeat(4);
    for number in 0..4 {
        bytes.extend((number * length).to_le_bytes());
        bytes.extend(length.to_le_bytes());
    }
    bytes
}

/// Returns the stored form of an inner chunk.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd(bytes)
}

/// A function that returns the stored form of a chunk that consists of one value.
type Encode = fn(i32) -> Vec<u8>;

/// The three arrays of a store, each with one chunk: name, chunk key, and encoder.
const ARRAYS: [(&str, &str, Encode); 3] = [
    ("raw/x", "0.0", |value| elements(EDGE * EDGE, value)),
    ("zlib/x", "0.0", |value| zlib(&elements(EDGE * EDGE, value))),
    ("sharded/x", "c/0/0", shard),
];

fn arrays() -> Stores {
    let stores = Stores::new();
    let shape = json!([EDGE, EDGE]);
    let of_v2 = |compressor| json!({"shape": shape, "chunks": shape, "compressor": compressor});
    stores.put("raw/.zgroup", br#"{"zarr_format": 2}"#);
    stores.v2("raw/x", of_v2(json!(null)), &[]);
    stores.put("zlib/.zgroup", br#"{"zarr_format": 2}"#);
    stores.v2("zlib/x", of_v2(json!({"id": "zlib", "level": 1})), &[]);
    let group = br#"{"zarr_format": 3, "node_type": "group"}"#;
    stores.put("sharded/zarr.json", group);
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let sharding = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [INNER, INNER], "codecs": [little(), zstd], "index_codecs": [little()]}}]);
    let changes = json!({"shape": shape, "chunk_grid": grid(&[EDGE as u64, EDGE as u64]),
        "codecs": sharding});
    stores.v3("sharded/x", changes, &[]);
    for (name, key, chunk) in ARRAYS {
        replace(stores.path(), &format!("{name}/{key}"), &chunk(1));
    }
    stores
}

/// Replaces a key by rename.
fn replace(root: &Path, key: &str, bytes: &[u8]) {
    let new = root.join(".new");
    fs::write(&new, bytes).unwrap();
    let path = root.join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::rename(new, path).unwrap();
}

/// Returns all files of a mount that have elements of an array.
fn views(mount: &Mount, array: &str) -> Vec<PathBuf> {
    let group = array.strip_suffix("/x").unwrap();
    let own = |name: &str| view(mount, array, name);
    let of_group = |name: &str| view(mount, group, &format!("{group}.{name}"));
    let mut views = vec![own("x.npy"), own("x.bin"), own("x.tif")];
    views.extend([of_group("nc"), of_group("cdf.nc")]);
    views.extend(match group {
        "sharded" => vec![own("chunks/c/0/0"), own("inner/0/0"), own("inner/1/1")],
        _ => vec![own("chunks/0.0")],
    });
    for path in &views {
        assert!(fs::metadata(path).is_ok(), "{path:?}");
    }
    views
}

/// Returns the value of all elements at an offset, read without the page cache; panics if they differ.
fn value_at(file: &File, offset: u64) -> io::Result<i32> {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, offset)?;
    let (words, _) = bytes.as_chunks::<4>();
    let value = words[0];
    assert!(words.iter().all(|word| *word == value), "a mix at {offset}");
    // Classic NetCDF is big-endian.
    let (little, big) = (i32::from_le_bytes(value), i32::from_be_bytes(value));
    Ok(
        match little == FILL || little.unsigned_abs() <= big.unsigned_abs() {
            true => little,
            false => big,
        },
    )
}

/// Returns two offsets of elements in a file, in different inner chunks if it has several.
fn places(file: &File) -> (u64, u64) {
    let size = file.metadata().unwrap().len();
    (size - (1 << 18), size - 4096)
}

#[test]
fn an_open_view_serves_one_version_of_a_chunk_and_a_new_open_the_new_one() {
    let stores = arrays();
    let mount = stores.mount(&["--ttl", "50ms"]);
    for (name, key, chunk) in ARRAYS {
        let mut value = 1;
        for path in views(&mount, name) {
            let file = File::open(&path).unwrap();
            let (first, second) = places(&file);
            assert_eq!(value_at(&file, first).unwrap(), value, "{path:?}");
            let old = value;
            value += 1;
            replace(stores.path(), &format!("{name}/{key}"), &chunk(value));
            let is_stale = || match value_at(&file, second) {
                Ok(found) => found != old && panic!("{path:?}: {old}, and then {found}"),
                Err(error) => error.raw_os_error() == Some(ESTALE),
            };
            assert!(wait_until(SOON, is_stale), "{path:?} is not stale");
            // Readers of the new content do not share pages with the old handle.
            let new = File::open(&path).unwrap();
            for place in [first, second] {
                assert_eq!(value_at(&new, place).unwrap(), value, "{path:?}");
                let error = value_at(&file, place).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(ESTALE), "{path:?}");
            }
            assert_eq!(value_at(&new, first).unwrap(), value, "{path:?}");
        }
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn a_chunk_that_is_written_while_a_view_is_open_is_estale_and_not_partly_fill_values() {
    let stores = arrays();
    fs::remove_file(stores.path().join("zlib/x/0.0")).unwrap();
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "zlib/x", "x.bin");
    let file = File::open(&path).unwrap();
    let (first, second) = places(&file);
    assert_eq!(value_at(&file, first).unwrap(), FILL);
    replace(stores.path(), "zlib/x/0.0", &ARRAYS[1].2(2));
    let is_stale = || match value_at(&file, second) {
        Ok(found) => found != FILL && panic!("fill values, and then {found}"),
        Err(error) => error.raw_os_error() == Some(ESTALE),
    };
    assert!(wait_until(SOON, is_stale));
    assert_eq!(value_at(&File::open(&path).unwrap(), first).unwrap(), 2);
    assert_others_served(&mount, &stores);
}

#[test]
fn an_open_file_of_a_translation_has_one_version_of_a_chunk() {
    let stores = arrays();
    let mount = stores.mount(&["--ttl", "50ms"]);
    for (name, key, as_v3) in [
        ("raw/x", "0.0", "as-v3/raw/x/c/0/0"),
        ("zlib/x", "0.0", "as-v3/zlib/x/c/0/0"),
        ("sharded/x", "c/0/0", "unsharded/sharded/x/c/1/1"),
    ] {
        let path = view(&mount, "", as_v3);
        let before = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file = File::open(&path).unwrap();
        let (_, _, chunk) = ARRAYS.iter().find(|array| array.0 == name).unwrap();
        replace(stores.path(), &format!("{name}/{key}"), &chunk(2));
        let is_new = || read(&path).is_ok_and(|now| now != before);
        assert!(wait_until(SOON, is_new), "{path:?}: the old content stays");
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        let mut bytes = vec![0; before.len()];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => assert!(bytes == before, "{path:?}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE), "{path:?}"),
        }
    }
}

#[test]
fn readers_during_a_write_never_see_two_versions_of_a_chunk() {
    let stores = arrays();
    let mount = stores.mount(&["--ttl", "50ms"]);
    let paths: Vec<PathBuf> = ARRAYS
        .iter()
        .flat_map(|(name, _, _)| views(&mount, name))
        .collect();
    let (is_over, good, stale) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..4 {
            let (paths, is_over, good, stale) = (&paths, &is_over, &good, &stale);
            scope.spawn(move || {
                for path in paths.iter().cycle().skip(reader * 3) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let read = || {
                        let file = File::open(path)?;
                        let (first, second) = places(&file);
                        let values = [value_at(&file, first)?, value_at(&file, second)?];
                        assert_eq!(values[0], values[1], "{path:?}: a mix");
                        Ok::<_, io::Error>(())
                    };
                    match read() {
                        Ok(()) => good.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(ESTALE), "{path:?}: {error}");
                            stale.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            });
        }
        let end = std::time::Instant::now() + Duration::from_millis(1500);
        let mut value = 1;
        while std::time::Instant::now() < end {
            for (name, key, chunk) in ARRAYS {
                value += 1;
                replace(stores.path(), &format!("{name}/{key}"), &chunk(value));
            }
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (good, stale) = (good.into_inner(), stale.into_inner());
    assert!(good > 0, "nothing was read, and {stale} reads were stale");
    assert_others_served(&mount, &stores);
}

const CHUNKS: i32 = 8;

/// Creates an array of eight compressed chunks of four elements.
fn many_chunks() -> Stores {
    let stores = Stores::new();
    let changes = json!({"shape": [4 * CHUNKS], "compressor": {"id": "zlib", "level": 1}});
    stores.v2("x", changes, &[]);
    for number in 0..CHUNKS {
        let key = format!("x/{number}");
        replace(stores.path(), &key, &zlib(&le(&[number; 4])));
    }
    stores
}

fn content(changed: Option<i32>) -> Vec<u8> {
    let value = |number| if changed == Some(number) { -1 } else { number };
    (0..CHUNKS)
        .flat_map(|number| le(&[value(number); 4]))
        .collect()
}

/// Returns the numbers of decoded chunks, and of chunks that readers found decoded.
fn counters(mount: &Mount) -> (u64, u64) {
    let of = |name| gauge(mount.path(), name);
    (of("chunks_decoded"), of("chunks_reused"))
}

#[test]
fn an_unchanged_file_stays_in_the_page_cache_after_close() {
    let stores = many_chunks();
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "x", "x.bin");
    assert!(read(&path).unwrap() == content(None));
    let before = counters(&mount);
    assert_eq!(before.0, CHUNKS as u64);
    for _ in 0..3 {
        thread::sleep(2 * TTL);
        assert!(read(&path).unwrap() == content(None));
        assert_eq!(counters(&mount), before, "the kernel sent another request");
    }

    // After one chunk is replaced, only that one is decoded again, and the next open sees it.
    replace(stores.path(), "x/3", &zlib(&le(&[-1; 4])));
    assert!(read(&path).unwrap() == content(Some(3)));
    assert_eq!(counters(&mount).0, before.0 + 1);
    let before = counters(&mount);
    assert!(read(&path).unwrap() == content(Some(3)));
    assert_eq!(counters(&mount), before, "the kernel sent another request");

    // The same, with another open handle.
    let held = File::open(&path).unwrap();
    replace(stores.path(), "x/3", &zlib(&le(&[3; 4])));
    assert!(read(&path).unwrap() == content(None));
    assert_eq!(counters(&mount).0, before.0 + 1);
    // The old handle can only read its previous content.
    let mut bytes = vec![0; content(None).len()];
    match held.read_exact_at(&mut bytes, 0) {
        Ok(()) => assert!(bytes == content(Some(3))),
        Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE)),
    }

    // After a change of the metadata, the pages are dropped too.
    let document = fs::read_to_string(stores.path().join("x/.zarray")).unwrap();
    replace(
        stores.path(),
        "x/.zarray",
        document.replace("<i4", ">i4").as_bytes(),
    );
    let header = || read(view(&mount, "x", "x.npy")).unwrap_or_default();
    assert!(wait_until(SOON, || header()
        .windows(3)
        .any(|word| word == b">i4")));
    assert_others_served(&mount, &stores);
}

#[test]
fn with_ttl_inf_a_directory_is_read_once() {
    let stores = many_chunks();
    let mount = stores.mount(&["--ttl", "inf"]);
    let path = view(&mount, "x", "x.bin");
    assert!(read(&path).unwrap() == content(None));
    let before = counters(&mount);
    // The source is not checked for changes.
    replace(stores.path(), "x/3", &zlib(&le(&[-1; 4])));
    assert!(read(&path).unwrap() == content(None));
    assert_eq!(counters(&mount), before);
    assert!(read(view(&mount, "x", "chunks/3")).unwrap() == le(&[3; 4]));
    assert_others_served(&mount, &stores);
}
