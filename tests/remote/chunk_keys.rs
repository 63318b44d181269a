//! Chunk key encodings of zarr-extensions: from a directory, and from a server that lists nothing, where the names of
//! chunks come from the metadata.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::servers::Nginx;
use crate::support::*;

const SHAPE: [u64; 2] = [5, 7];
const CHUNK: [u64; 2] = [2, 3];

/// The names of arrays, their encodings, and the keys of their chunks.
type Encoding = (&'static str, Value, fn(u64, u64) -> String);

fn encodings() -> Vec<Encoding> {
    let suffix = |suffix: &str, base: Value| json!({"name": "suffix", "configuration": {"suffix": suffix, "base_encoding": base}});
    let template = |text: &str| json!({"name": "template", "configuration": {"template": text, "separator": "_"}});
    vec![
        (
            "suffix",
            suffix(".tiff", json!({"name": "default"})),
            |i, j| format!("c/{i}/{j}.tiff"),
        ),
        ("suffix-v2", suffix(".shard.zip", json!("v2")), |i, j| {
            format!("{i}.{j}.shard.zip")
        }),
        (
            "default_suffix",
            json!({"name": "zarrs.default_suffix", "configuration": {"suffix": ".x", "separator": "."}}),
            |i, j| format!("c.{i}.{j}.x"),
        ),
        (
            "prefix",
            json!({"name": "prefix", "configuration": {"prefix": "x/", "base_encoding": "v2"}}),
            |i, j| format!("x/{i}.{j}"),
        ),
        ("stack", template("images/{-1:04}/z{*}.png"), |i, j| {
            format!("images/{j:04}/z{i}.png")
        }),
        ("names", template("{1}_{0}"), |i, j| format!("{j}_{i}")),
        (
            "fanout",
            json!({"name": "fanout", "configuration": {"max_children": 100}}),
            |i, j| format!("c/0/{i:02}/0/{j:02}"),
        ),
    ]
}

fn value(row: u64, column: u64) -> i16 {
    i16::try_from(row * 100 + column).unwrap()
}

fn write(root: &Path) {
    fs::create_dir_all(root).unwrap();
    fs::write(
        root.join("zarr.json"),
        r#"{"zarr_format":3,"node_type":"group"}"#,
    )
    .unwrap();
    for (name, encoding, key) in encodings() {
        let array = root.join(name);
        fs::create_dir_all(&array).unwrap();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNK}},
            "chunk_key_encoding": encoding, "fill_value": -1,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "dimension_names": ["y", "x"],
        });
        fs::write(array.join("zarr.json"), document.to_string()).unwrap();
        for i in 0..SHAPE[0].div_ceil(CHUNK[0]) {
            for j in 0..SHAPE[1].div_ceil(CHUNK[1]) {
                let rows = (0..CHUNK[0]).flat_map(|row| {
                    (0..CHUNK[1])
                        .map(move |column| value(i * CHUNK[0] + row, j * CHUNK[1] + column))
                });
                let path = array.join(key(i, j));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, rows.flat_map(i16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
            }
        }
    }
}

/// Writes an array with more chunks along an axis than `fanout` puts into a directory.
fn write_many(array: &Path) {
    fs::create_dir_all(array).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [10_102], "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "fanout", "configuration": {"max_children": 100}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "fill_value": -1,
    });
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
    for (chunk, key) in [
        (7_i16, "c/0/07"),
        (100, "c/1/01/00"),
        (9_999, "c/1/99/99"),
        (10_101, "c/2/01/01/01"),
    ] {
        let path = array.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, chunk.to_le_bytes()).unwrap();
    }
}

fn files_below(directory: &Path) -> BTreeSet<String> {
    let found = sh(&format!("cd {} && find . -type f", directory.display()));
    found.lines().map(str::to_owned).collect()
}

#[test]
fn key_encodings_of_extensions_are_read_and_listed() {
    let served = scratch();
    write(&served.path().join("keys.zarr"));
    write_many(&served.path().join("keys.zarr/many"));
    let nginx = Nginx::start(served.path());
    let local = Mount::new(served.path().join("keys.zarr"));
    let remote = nginx.remote("").mount("keys.zarr");
    let expected: Vec<u8> = (0..SHAPE[0])
        .flat_map(|row| (0..SHAPE[1]).map(move |column| value(row, column)))
        .flat_map(i16::to_le_bytes)
        .collect();
    for (name, ..) in encodings() {
        let keys = files_below(&served.path().join("keys.zarr").join(name));
        assert_eq!(keys.len(), 10, "{name}");
        for mount in [&local, &remote] {
            let array = mount.join(name);
            let bin = |below: &str| read(mount.join(below).join(format!(".zarrfs/{name}.bin")));
            assert_eq!(bin(name).unwrap(), expected, "{name}");
            assert_eq!(files_below(&array), keys, "{name}");
            assert_eq!(
                files_below(&array.join(".zarrfs/chunks")).len(),
                9,
                "{name}"
            );
            let npy = read(mount.join(format!("{name}/.zarrfs/{name}.npy"))).unwrap();
            assert!(npy.ends_with(&expected), "{name}");
            // The translation has the keys of v2.
            for (i, j) in [(0, 0), (2, 1)] {
                let separator = if keys.iter().any(|key| key.matches('/').count() > 1) {
                    "/"
                } else {
                    "."
                };
                let key = format!(".zarrfs/as-v2/{name}/{i}{separator}{j}");
                let chunk = read(mount.join(key)).unwrap();
                assert_eq!(
                    chunk[..2],
                    value(i * CHUNK[0], j * CHUNK[1]).to_le_bytes(),
                    "{name}"
                );
            }
            for absent in [
                "c/0/0",
                "c/9/9.tiff",
                "0.0",
                "x/9.9",
                "c/0/01/0/03",
                "c/0/1",
                "images/0001/z01.png",
                "images/1",
            ] {
                let is_key = keys.contains(&format!("./{absent}"));
                assert_eq!(array.join(absent).exists(), is_key, "{name}: {absent}");
            }
        }
        let checked = zarrfs()
            .arg("check")
            .arg(served.path().join("keys.zarr"))
            .output();
        assert!(checked.unwrap().status.success());
    }
    for mount in [&local, &remote] {
        let array = mount.join("many");
        let values = read(array.join(".zarrfs/many.bin")).unwrap();
        for (at, value) in (0_i16..).zip(values.chunks_exact(2)) {
            let is_stored = [7, 100, 9_999, 10_101].contains(&at);
            assert_eq!(value, if is_stored { at } else { -1 }.to_le_bytes(), "{at}");
        }
        let chunks = array.join(".zarrfs/chunks/c");
        let listed = |below: &str| fs::read_dir(chunks.join(below)).unwrap().count();
        let counts = ["", "0", "1", "1/01", "2", "2/01", "2/01/01"].map(listed);
        assert_eq!(counts, [3, 100, 99, 100, 1, 2, 2]);
        let last = read(chunks.join("2/01/01/01")).unwrap();
        assert_eq!(last, 10_101_i16.to_le_bytes());
        assert_eq!(
            read(array.join("c/1/99/99")).unwrap(),
            9_999_i16.to_le_bytes()
        );
        assert!(!array.join("c/2/01/01/02").exists() && !array.join("c/0/100").exists());
    }
    local.unmount();
    remote.unmount();
}
