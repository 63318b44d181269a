//! Handmade stores: a directory of arrays, each given by its metadata and the bytes of its chunks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::EIO;
use crate::support::*;

/// Returns whether this user may run a program that was installed for the tests; otherwise the test
/// is skipped. Root always may.
pub fn may_run(program: &Path) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .output();
    if let Err(error) = &found {
        let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied && !is_root();
        assert!(is_denied, "run scripts/test once: {program:?}: {error}");
        skipped(format_args!(
            "other users may not run {}",
            program.display()
        ));
    }
    found.is_ok()
}

/// A directory with arrays.
pub struct Stores(tempfile::TempDir);

/// The fill value, which no present chunk contains: in a result, it stems from an absent chunk.
pub const FILL: i32 = 1_234_567_891;

/// The elements of the array `good`.
pub const GOOD: [i32; 8] = [10, -11, 12, -13, 14, -15, 16, -17];

impl Stores {
    /// Creates a directory with one valid array, `good`.
    pub fn new() -> Self {
        let stores = Self(scratch());
        stores.v2(
            "good",
            json!({}),
            &[("0", &le(&GOOD[..4])), ("1", &le(&GOOD[4..]))],
        );
        stores
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the value of a key.
    pub fn put(&self, key: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a v2 array of 8 `<i4` in uncompressed chunks of 4, with changes of its metadata.
    pub fn v2(&self, name: &str, changes: Value, chunks: &[(&str, &[u8])]) {
        let document = changed(
            json!({
                "zarr_format": 2, "shape": [8], "chunks": [4], "dtype": "<i4", "order": "C",
                "compressor": null, "filters": null, "fill_value": FILL,
            }),
            changes,
        );
        self.put(&format!("{name}/.zarray"), document.to_string().as_bytes());
        self.chunks(name, chunks);
    }

    /// As [`Stores::v2`], but in v3; chunk keys are `c/0` and `c/1`.
    pub fn v3(&self, name: &str, changes: Value, chunks: &[(&str, &[u8])]) {
        let document = changed(v3_document(), changes);
        self.put(
            &format!("{name}/zarr.json"),
            document.to_string().as_bytes(),
        );
        self.chunks(name, chunks);
    }

    fn chunks(&self, name: &str, chunks: &[(&str, &[u8])]) {
        for (key, bytes) in chunks {
            self.put(&format!("{name}/{key}"), bytes);
        }
    }

    pub fn mount(&self, args: &[&str]) -> Mount {
        Mount::of_keys(self.path(), args)
    }
}

/// Returns the name of a source, with which the views of its root begin.
pub fn source_name(source: &Path) -> String {
    let name = source.file_name().unwrap().to_str().unwrap();
    name.trim_end_matches(".zarr").to_owned()
}

/// Returns the metadata on which [`Stores::v3`] is based.
pub fn v3_document() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "int32",
        "chunk_grid": grid(&[4]),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": FILL, "codecs": [little()],
    })
}

/// Returns a regular v3 chunk grid.
pub fn grid(chunk_shape: &[u64]) -> Value {
    json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
}

/// Returns the codec `bytes` in little-endian order.
pub fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

/// Sets members of a document, and removes those that become `"DROP"`.
pub fn changed(mut document: Value, changes: Value) -> Value {
    let members = document.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value.as_str() {
            Some("DROP") => _ = members.shift_remove(name),
            _ => _ = members.insert(name.clone(), value.clone()),
        }
    }
    document
}

pub fn le(elements: &[i32]) -> Vec<u8> {
    elements.iter().flat_map(|e| e.to_le_bytes()).collect()
}

pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

/// Returns the path of a view of a node.
pub fn view(mount: &Mount, node: &str, name: &str) -> PathBuf {
    mount.join(node).join(".zarrfs").join(name)
}

/// Returns the text of `README.txt` of a node.
pub fn readme(mount: &Mount, node: &str) -> String {
    fs::read_to_string(view(mount, node, "README.txt")).unwrap()
}

/// Returns the names in a directory, sorted.
pub fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Asserts that the rest of the mount works: the array `good` and the store's own keys can be read.
pub fn assert_others_served(mount: &Mount, stores: &Stores) {
    assert_eq!(
        read(view(mount, "good", "good.bin")).unwrap(),
        le(&GOOD),
        "the sibling's view"
    );
    assert_eq!(
        read(view(mount, "good", "chunks/1")).unwrap(),
        le(&GOOD[4..]),
        "the sibling's chunk"
    );
    assert_eq!(names(mount.path()), names(stores.path()));
    assert_eq!(crate::clients::gauge(mount.path(), "panics"), 0);
}

/// Asserts that a key of the store reads unchanged through the mount.
pub fn native(mount: &Mount, stores: &Stores, key: &str) {
    assert_eq!(
        read(mount.join(key)).unwrap(),
        fs::read(stores.path().join(key)).unwrap(),
        "the native key {key}"
    );
}

/// Reading a view is EIO, whole and in part; the log names the key and says `gist`.
pub fn is_corrupt(mount: &Mount, node: &str, name: &str, key: &str, gist: &str) {
    let path = view(mount, node, name);
    let words = [&format!("{node}/{key}"), gist, "EIO"];
    let is_logged = || {
        assert_eq!(errno(read(&path)), EIO, "{path:?}");
        let file = fs::File::open(&path).unwrap();
        let part = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 4], 4);
        assert_eq!(errno(part), EIO, "a part of {path:?}");
        has_line(&mount.log(), &words)
    };
    // The log is limited in lines per second, so some failures are not logged.
    assert!(
        wait_until(Duration::from_secs(10), || {
            let is_logged = is_logged();
            std::thread::sleep(Duration::from_millis(50));
            is_logged
        }),
        "no line of the log has {words:?}:\n{}",
        mount.log()
    );
}

fn has_line(log: &str, words: &[&str]) -> bool {
    log.lines()
        .any(|line| words.iter().all(|word| line.contains(word)))
}

/// Asserts that a line of the log has all of `words`.
pub fn logged(mount: &Mount, words: &[&str]) {
    // The line is written after the reply.
    assert!(
        wait_until(Duration::from_secs(2), || has_line(&mount.log(), words)),
        "no line of the log has {words:?}:\n{}",
        mount.log()
    );
}
