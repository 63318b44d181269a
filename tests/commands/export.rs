//! `export`: the bytes of views, the files of interrupted exports, and refused exports.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::place::{CommandOutput, output_of};
use crate::stores::*;
use crate::support::*;

fn export(source: &str, file: &Path, more: &[&str]) -> CommandOutput {
    export_with(&mut zarrfs(), source, file, more)
}

fn export_with(program: &mut Command, source: &str, file: &Path, more: &[&str]) -> CommandOutput {
    output_of(program.arg("export").arg(source).arg(file).args(more))
}

#[test]
fn every_view_of_the_demo_is_that_of_a_mount() {
    assert_exports_are_views_of_a_mount(zarrfs);
}

/// Compares the exports of the demo store by a program with the files of a mount.
pub fn assert_exports_are_views_of_a_mount(program: impl Fn() -> Command) {
    let mount = Mount::new("demo:");
    let dir = scratch();
    let mut compared = 0;
    for key in ["", "v2", "v3", "v3/t2m", "v3/lat", "v2/sst"] {
        let source = format!("demo:{key}");
        let info = json_of(
            run_on(
                "info",
                "demo:",
                &[key, "--json"][usize::from(key.is_empty())..],
            )
            .ok(),
        );
        for (name, view) in info["views"].as_object().unwrap() {
            let expected = mount.join(key).join(".zarrfs").join(name);
            if view["available"] != true || expected.is_dir() {
                continue;
            }
            let file = dir.path().join(name);
            export_with(&mut program(), &source, &file, &["--overwrite"]).ok();
            assert!(
                read(&file).unwrap() == read(&expected).unwrap(),
                "{key} {name}"
            );
            compared += 1;
        }
    }
    assert!(compared > 24, "{compared}");
    let output = run_for(
        program().args(["export", "demo:v3", "-", "--as", "netcdf"]),
        std::time::Duration::from_secs(40),
    );
    assert!(output.stdout == read(mount.join("v3/.zarrfs/v3.nc")).unwrap());
    let left = fs::read_dir(dir.path()).unwrap().flatten();
    assert!(
        left.into_iter()
            .all(|file| !file.file_name().to_string_lossy().ends_with(".part"))
    );
}

const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS: usize = 12;

/// Writes an array of 12 chunks of 1 MiB, two of which are all zeros.
fn long_array(dir: &Path) -> PathBuf {
    let store = dir.join("long.zarr");
    let shape = json!([CHUNKS * CHUNK_BYTES]);
    array(
        &store,
        &shape,
        &regular(&json!([CHUNK_BYTES])),
        &json!(["bytes"]),
    );
    for chunk in 0..CHUNKS {
        let byte = if chunk < 2 {
            0
        } else {
            u8::try_from(chunk).unwrap()
        };
        write(store.join(format!("c/{chunk}")), vec![byte; CHUNK_BYTES]);
    }
    store
}

fn part_in(dir: &Path) -> PathBuf {
    let mut parts = fs::read_dir(dir).unwrap().flatten().map(|file| file.path());
    let part = parts.find(|path| path.extension().is_some_and(|suffix| suffix == "part"));
    part.expect("an incomplete file is kept")
}

#[test]
fn an_interrupted_export_resumes_at_the_end_of_the_written_part() {
    let dir = scratch();
    let store = long_array(dir.path());
    let file = dir.path().join("long.bin");
    let source = store.to_str().unwrap();
    // Limits the file to 9 MiB.
    let script = r#"ulimit -f 9216; exec "$0" export "$1" "$2""#;
    let mut limited = Command::new("bash");
    limited
        .args(["-c", script])
        .arg(zarrfs().get_program())
        .arg(source)
        .arg(&file);
    assert!(output_of(&mut limited).code != Some(0));
    assert!(!file.exists());
    let part = part_in(dir.path());
    // Marks a byte that only the first run has written.
    let written = fs::File::options().write(true).open(&part).unwrap();
    written.write_all_at(&[99], 3 << 20).unwrap();
    export(source, &file, &["--resume"]).ok();
    let bytes = read(&file).unwrap();
    assert_eq!(bytes.len(), CHUNKS * CHUNK_BYTES);
    assert_eq!(bytes[3 << 20], 99, "the beginning is not written again");
    assert!(
        bytes[4 << 20..]
            .chunks(CHUNK_BYTES)
            .zip(4_u8..)
            .all(|(chunk, byte)| { chunk.iter().all(|found| *found == byte) })
    );
    assert!(!part.exists());
    export(source, &file, &["--overwrite"]).ok();
    assert_eq!(read(&file).unwrap()[3 << 20], 3);
    let blocks = fs::metadata(&file).unwrap().blocks() * 512;
    assert!(
        blocks <= 10 * CHUNK_BYTES as u64 + (1 << 20),
        "zeros are holes: {blocks}"
    );
}

#[test]
fn a_key_may_be_an_argument_of_its_own() {
    let dir = scratch();
    let [one, two] = ["one.npy", "two.npy"].map(|name| dir.path().join(name));
    export("demo:v3/t2m", &one, &[]).ok();
    output_of(zarrfs().args(["export", "demo:", "v3/t2m"]).arg(&two)).ok();
    assert!(read(&one).unwrap() == read(&two).unwrap());
    let path = ["export", "demo:", "sst", "x.npy", "--path", "v3"];
    output_of(zarrfs().args(path)).failed(2, &["--path"]);
}

#[test]
fn a_chunk_that_cannot_be_read_is_named_and_no_file_is_created() {
    let dir = scratch();
    let store = long_array(dir.path());
    write(store.join("c/7"), b"short");
    let file = dir.path().join("long.npy");
    let failed = export(store.to_str().unwrap(), &file, &[]);
    failed.failed(1, &["c/7", "--resume", ".part"]);
    assert!(!file.exists());
}

#[test]
fn an_unavailable_export_is_refused_with_the_list_of_views() {
    let dir = scratch();
    let file = |name: &str| dir.path().join(name);
    export("demo:v3/t2m", &file("a.cdf.nc"), &[]).failed(1, &["v3/t2m", "an array", "--as", "npy"]);
    export("demo:v3/t2m", &file("a"), &["--as", "cdf.nc"])
        .failed(1, &["an array", "no `cdf`", "npy"]);
    export("demo:v3", &file("a.npy"), &[]).failed(1, &["v3", "a group", "nc"]);
    export("demo:v3/nope", &file("a.npy"), &[]).failed(1, &["v3/nope", "no such key"]);
    export("demo:v3", &file("a"), &["--as", "gif"]).failed(2, &["gif", "unknown format"]);
    export("demo:v3", dir.path(), &["--as", "nc"]).failed(1, &["a directory"]);
    export("demo:v3", Path::new("-"), &[]).failed(1, &["--as"]);
    export("demo:v3", &file("no/a.nc"), &[]).failed(1, &["no/", "is no directory"]);
    export("demo:v3/t2m", &file("a.tiff"), &[]).ok();
    export("demo:v3/t2m", &file("attributes.json"), &[]).ok();
    write(file("a.nc"), b"kept");
    export("demo:v3", &file("a.nc"), &[]).failed(1, &["a.nc", "exists", "--overwrite"]);
    assert_eq!(read(file("a.nc")).unwrap(), b"kept");
}
