//! Stores for the commands: copies of fixtures, and arrays made by hand.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{CommandOutput, output_of};
use crate::support::*;

/// Returns the path of a store that `tests/fixtures/setup.sh` has written.
pub fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/fixtures")
        .join(name);
    assert!(
        path.exists(),
        "no {name}: run tests/fixtures/setup.sh first"
    );
    path
}

/// Returns the options that select the hierarchy of a fixture: one zip has it in a folder.
pub fn folder_of(fixture: &Path) -> &'static [&'static str] {
    match fixture.ends_with("v2-in-a-folder.zip") {
        true => &["--path", "v2-flat"],
        false => &[],
    }
}

/// Returns a copy of a fixture, which a test may damage.
pub fn copy_of(name: &str) -> tempfile::TempDir {
    let dir = scratch();
    let copied = output_of(
        Command::new("cp")
            .arg("-r")
            .arg(fixture(name))
            .arg(dir.path().join("store")),
    );
    copied.ok();
    dir
}

/// Runs `zarrfs WORDS[0] SOURCE WORDS[1..]`.
pub fn run_on(command: &str, source: impl AsRef<OsStr>, more: &[&str]) -> CommandOutput {
    output_of(zarrfs().arg(command).arg(source.as_ref()).args(more))
}

/// Parses the output of a command as JSON.
pub fn json_of(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Writes a v3 group at `dir`.
pub fn group(dir: &Path) {
    write(
        dir.join("zarr.json"),
        r#"{"zarr_format":3,"node_type":"group"}"#,
    );
}

/// Writes a v3 array of bytes at `dir`, without chunks.
pub fn array(dir: &Path, shape: &Value, grid: &Value, codecs: &Value) {
    let document = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint8",
        "chunk_grid": grid,
        "chunk_key_encoding": "default",
        "fill_value": 0,
        "codecs": codecs,
    });
    write(dir.join("zarr.json"), document.to_string());
}

pub fn regular(chunk_shape: &Value) -> Value {
    json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
}

/// Encodes bytes with the codec `crc32c`.
pub fn with_crc32c(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat()
}

/// Encodes a shard of inner chunks, with its index at the end.
pub fn shard(inner: &[Option<Vec<u8>>]) -> Vec<u8> {
    let (mut shard, mut index) = (Vec::new(), Vec::new());
    for chunk in inner {
        let (offset, length) = match chunk {
            Some(bytes) => (shard.len() as u64, bytes.len() as u64),
            None => (u64::MAX, u64::MAX),
        };
        index.extend(offset.to_le_bytes());
        index.extend(length.to_le_bytes());
        shard.extend(chunk.iter().flatten());
    }
    [shard, with_crc32c(&index)].concat()
}

/// Returns the files below `dir` whose names are chunk keys, as keys.
pub fn chunk_keys(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            let numbers = name.strip_prefix("c.").unwrap_or(name);
            let is_number =
                |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if name == "c" || numbers.split('.').all(is_number) {
                let key = path.strip_prefix(dir).unwrap();
                found.push(key.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}
