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

/// Returns the names of the files in a directory that begin with a period.
fn hidden_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().flatten();
    let names = names.map(|file| file.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn processes_write_the_parts_of_a_file_at_the_same_time() {
    let dir = scratch();
    let store = long_array(dir.path());
    let source = store.to_str().unwrap();
    let [whole, parallel] = ["whole.npy", "parallel.npy"].map(|name| dir.path().join(name));
    export(source, &whole, &[]).ok();
    let whole = read(&whole).unwrap();
    // More processes than pieces of 4 MiB, and parts that run twice.
    for (count, repeated) in [(2, 1), (9, 2)] {
        let parts = (1..=count).cycle().take(count * repeated);
        let running = parts.map(|part| {
            let mut command = zarrfs();
            command.args(["export", source]).arg(&parallel);
            command.arg(format!("--part={part}/{count}"));
            command
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        });
        let mut left = 0;
        for process in running.collect::<Vec<_>>() {
            let output = process.wait_with_output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            let is_late = repeated > 1 && text.contains("parallel.npy");
            assert!(output.status.success() || is_late, "{text}");
            left += usize::from(text.contains("is not yet"));
        }
        assert!(left < count * repeated, "one process completes the file");
        assert!(read(&parallel).unwrap() == whole, "{count}");
        fs::remove_file(&parallel).unwrap();
    }
    let part = |part: &str, more: &[&str]| export(source, &parallel, &[&[part], more].concat());
    part("--part=1/2", &["--resume"]).failed(2, &["--resume"]);
    let output = ["export", source, "-", "--as", "npy", "--part=1/2"];
    output_of(zarrfs().args(output)).failed(1, &["--part needs a file"]);
}

#[test]
fn a_part_that_failed_is_written_again_alone() {
    let dir = scratch();
    let store = long_array(dir.path());
    let source = store.to_str().unwrap();
    let file = dir.path().join("long.bin");
    let part = |number: usize| export(source, &file, &[&format!("--part={number}/3")]);
    part(3).ok();
    write(store.join("c/6"), b"short");
    part(2).failed(1, &["c/6"]);
    part(1).ok();
    assert!(!file.exists());
    let [hidden] = &*hidden_in(dir.path()) else {
        panic!("{:?}", hidden_in(dir.path()));
    };
    // Marks a byte of a part that is complete.
    let data = dir.path().join(hidden).join("data");
    let data = fs::File::options().write(true).open(data).unwrap();
    data.write_all_at(&[99], 10 << 20).unwrap();
    assert!(part(3).ok().err.contains("part 2 is not yet"));
    write(store.join("c/6"), vec![6; CHUNK_BYTES]);
    part(2).ok();
    let bytes = read(&file).unwrap();
    let expected = |at: usize| match at {
        0 | 1 => 0,
        chunk => u8::try_from(chunk).unwrap(),
    };
    assert_eq!(bytes[10 << 20], 99, "a complete part is not written again");
    for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
        assert!(
            chunk[1..].iter().all(|byte| *byte == expected(number)),
            "{number}"
        );
    }
    assert!(hidden_in(dir.path()).is_empty());
    part(1).failed(1, &["long.bin", "--overwrite"]);

    // What a process leaves that is killed after it has completed the file.
    let left = dir.path().join(hidden);
    fs::create_dir(&left).unwrap();
    write(left.join("1"), b"");
    for number in 1..=3 {
        let number = format!("--part={number}/3");
        export(source, &file, &[&number, "--overwrite"]).ok();
    }
    let bytes = read(&file).unwrap();
    assert_eq!(bytes[10 << 20], 10);
    assert_eq!(bytes.len(), CHUNKS * CHUNK_BYTES);
    assert!(hidden_in(dir.path()).is_empty());
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
