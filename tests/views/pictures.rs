//! Pictures of arrays, read by PIL.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge};
use crate::netcdf::decoded;
use crate::stores::*;
use crate::support::*;

const PYTHON: &str = "tests/views/.venv/bin/python";

fn pictures(word: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join(PYTHON));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root.join("tests/views/pictures.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

#[test]
fn images_have_the_colours_of_the_elements() {
    if !may_run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    pictures("write", &[&store]);
    let mount = Mount::new(&store);
    let output = pictures("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert!(counts["pictures"].as_u64().unwrap() >= 42, "{counts}");
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

fn plane(changes: Value) -> Value {
    changed(
        json!({"shape": [2, 4], "chunks": [2, 2], "dtype": "<i4"}),
        changes,
    )
}

#[test]
fn the_size_of_an_image_is_known_before_it_is_rendered() {
    let stores = Stores::new();
    let huge = json!({"shape": [100_000, 100_000], "chunks": [1000, 1000]});
    stores.v2("huge", huge, &[]);
    let chunks = [("0.0", &le(&[1, 2, 3, 4])[..]), ("0.1", &le(&[5, 6, 7, 8]))];
    stores.v2("a", plane(json!({})), &chunks);
    let mount = stores.mount(&[]);
    let path = view(&mount, "a", "a.png");
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(decoded(&mount), 0);
    assert_eq!(fs::read(&path).unwrap().len() as u64, size);
    assert_eq!(decoded(&mount), 2);
    for node in ["a", ""] {
        let listed = names(view(&mount, node, ""));
        assert!(
            !listed.iter().any(|name| name.contains("png")),
            "{listed:?}"
        );
    }
    // A picture without some chunks would be wrong.
    assert_eq!(
        errno(fs::metadata(view(&mount, "huge", "huge.png"))),
        ENOENT
    );
    let readme = readme(&mount, "huge");
    assert!(
        readme.contains("huge.png: 10000 chunks with 40000000000 bytes"),
        "{readme}"
    );
    assert_others_served(&mount, &stores);
}

#[test]
fn an_image_of_a_damaged_chunk_is_an_error() {
    let stores = Stores::new();
    let chunks = [("0.0", &le(&[1, 2, 3, 4])[..]), ("0.1", &b"short"[..])];
    stores.v2("a", plane(json!({})), &chunks);
    let mount = stores.mount(&[]);
    let path = view(&mount, "a", "a.png");
    assert!(fs::metadata(&path).is_ok());
    assert_eq!(errno(fs::read(&path)), EIO);
    assert_others_served(&mount, &stores);
}

#[test]
fn an_image_of_a_changed_array_is_rendered_again() {
    let stores = Stores::new();
    let chunks = [("0.0", &le(&[1, 2, 3, 4])[..]), ("0.1", &le(&[5, 6, 7, 8]))];
    stores.v2("a", plane(json!({})), &chunks);
    let mount = stores.mount(&["--ttl", "0s"]);
    let path = view(&mount, "a", "a.png");
    let first = fs::read(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    stores.put("a/0.1", &le(&[50, 60, 70, 80]));
    let second = fs::read(&path).unwrap();
    assert!(second != first && second.len() == first.len());
    assert_others_served(&mount, &stores);
}
