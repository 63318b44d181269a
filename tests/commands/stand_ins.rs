//! Values in whose place stands something else, such as a pointer of Git LFS.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::place::{CommandOutput, GROUP, output_of};
use crate::support::*;

const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
const ANNEX: &str = "/annex/objects/SHA256E-s12345--4d7a.bin\n";
const PAGE: &str = "<!DOCTYPE html><title>Sign in</title>";
const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int32",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"fill_value":0,
    "chunk_key_encoding":{"name":"default"},"codecs":[CODECS]}"#;
const BYTES: &str = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;
const GZIP: &str = r#"{"name":"gzip","configuration":{"level":1}}"#;

/// Writes a group with two arrays of one chunk each.
fn store(directory: &Path, name: &OsStr) {
    for (name, codecs) in [
        (name, BYTES.to_owned()),
        (OsStr::new("packed"), format!("{BYTES},{GZIP}")),
    ] {
        let array = directory.join(name);
        fs::create_dir_all(array.join("c")).unwrap();
        fs::write(array.join("zarr.json"), ARRAY.replace("CODECS", &codecs)).unwrap();
    }
    fs::write(directory.join("zarr.json"), GROUP).unwrap();
}

/// Asserts that the check fails, and that its output has the words.
fn check_fails(directory: &Path, key: &str, words: &str) {
    let output = output_of(zarrfs().arg("check").arg(directory).arg(key));
    assert_eq!(output.code, Some(1), "{output:?}");
    says(&output, words);
}

/// Asserts that a line of the output has the words, once.
fn says(output: &CommandOutput, words: &str) {
    let text = format!("{}{}", output.out, output.err);
    let mut lines = text.lines();
    let once = lines.any(|line| line.matches(words).count() == 1);
    assert!(once, "{words}: {output:?}");
}

#[test]
fn a_pointer_or_a_page_in_place_of_a_chunk_or_a_document_is_named() {
    let scratch = scratch();
    let directory = scratch.path().join("s.zarr");
    for (content, words) in [
        (LFS, "git lfs pull"),
        (ANNEX, "git annex get"),
        (PAGE, "an HTML page"),
    ] {
        store(&directory, "raw".as_ref());
        for name in ["raw", "packed"] {
            fs::write(directory.join(name).join("c/0"), content).unwrap();
            check_fails(&directory, name, words);
        }
        fs::write(directory.join("raw/zarr.json"), content).unwrap();
        check_fails(&directory, "raw", words);
        says(
            &output_of(zarrfs().arg("info").arg(&directory).arg("raw")),
            words,
        );
        let file = scratch.path().join("file.zip");
        fs::write(&file, content).unwrap();
        check_fails(&file, "", words);
    }
}

#[test]
fn a_key_that_is_not_utf8_is_a_key_of_every_command() {
    let scratch = scratch();
    let directory = scratch.path().join("s.zarr");
    let name = OsStr::from_bytes(b"l\xe4nge");
    store(&directory, name);
    fs::write(directory.join(name).join("c/0"), [7; 16]).unwrap();
    for command in ["check", "info", "tree", "views"] {
        output_of(zarrfs().arg(command).arg(&directory).arg(name)).ok();
    }
    output_of(
        zarrfs()
            .arg("check")
            .arg(&directory)
            .arg("--path")
            .arg(name),
    )
    .ok();
    let exported = scratch.path().join("x.npy");
    let mut place = directory.clone().into_os_string();
    place.push(":");
    place.push(name);
    output_of(zarrfs().arg("export").arg(place).arg(&exported)).ok();
    assert!(fs::read(exported).unwrap().ends_with(&[7; 16]));
    let mount = Mount::new(&directory);
    let path = zarrfs()
        .arg("path")
        .arg(mount.join(""))
        .arg(name)
        .args(["--as", "npy"])
        .output();
    let path = path.unwrap();
    assert!(path.status.success(), "{path:?}");
    let path = Path::new(OsStr::from_bytes(path.stdout.trim_ascii_end()));
    assert!(fs::read(path).unwrap().ends_with(&[7; 16]));
}
