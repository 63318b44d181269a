//! OME-TIFF and ImageJ hyperstacks, checked by tifffile and the schema of the OME Data Model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{ENOENT, gauge};
use crate::stores::*;
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn stacks(word: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(in_repository("tests/views/.venv/bin/python"));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(in_repository("tests/views/stacks.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

#[test]
fn stacks_equal_those_that_imagej_and_libvips_read() {
    if !(may_run(&in_repository("tests/views/.venv/bin/python")) && may_run(Path::new("vips"))) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    stacks("write", &[&store]);
    let mount = Mount::new(&store);
    for (word, expected) in [
        ("imagej", json!({"imagej": 6})),
        ("vips", json!({"files": 7, "levels": 13})),
    ] {
        let output = stacks(word, &[&store, mount.path()]);
        let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        assert_eq!(counts, expected);
    }
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

#[test]
fn stacks_equal_those_that_the_reference_library_reads() {
    if !may_run(&in_repository("tests/views/.venv/bin/python")) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    stacks("write", &[&store]);
    let mount = Mount::new(&store);
    let output = stacks("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(
        counts,
        json!({"ome": 16, "levels": 28, "imagej": 6, "refused": 9})
    );
    for (node, gist) in [
        ("long", "no integers of 64 bits"),
        ("complex", "ImageJ has uint8"),
        ("plain/turned", "are not shown transposed"),
        ("absent", "the level absent/0 is no array"),
        ("out", "is no path of a level"),
    ] {
        let text = readme(&mount, node);
        assert!(text.contains(gist), "{node}: {text}");
    }
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

#[test]
fn the_header_of_a_stack_decodes_nothing() {
    let stores = Stores::new();
    stores.put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    let mut document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [100, 40_000, 40_000], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 512, 512]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 3,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "dimension_names": ["z", "y", "x"],
    });
    stores.put("a/zarr.json", document.to_string().as_bytes());
    document["data_type"] = json!("float32");
    stores.put("planes/zarr.json", document.to_string().as_bytes());
    let mount = stores.mount(&[]);
    let text = run(Command::new("tiffinfo")
        .arg("-0")
        .arg(view(&mount, "a", "a.ome.tif")));
    assert!(
        text.contains("Image Width: 40000 Image Length: 40000"),
        "{text}"
    );
    let path = view(&mount, "a", "a.imagej.tif");
    assert!(path.metadata().unwrap().len() > 100 * 40_000 * 40_000 * 2);
    run(Command::new("head").arg("-c").arg("100000").arg(&path));
    // The offsets of the first plane would not fit in 32 bits.
    let long = fs::metadata(view(&mount, "planes", "planes.imagej.tif"));
    assert_eq!(errno(long), ENOENT);
    assert!(readme(&mount, "planes").contains("a plane that ends beyond 4 GiB"));
    assert!(
        view(&mount, "planes", "planes.ome.tif")
            .metadata()
            .unwrap()
            .len()
            > 100 << 32
    );
    assert_eq!(gauge(mount.path(), "chunks_decoded"), 0);
}
