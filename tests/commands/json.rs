//! The members of all JSON documents, compared with the page of the manual that describes them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::faulty::{Fault, Server, on};
use crate::place::{Place, output_of};
use crate::stores::*;
use crate::support::*;

/// Members whose values come from the source.
const OF_THE_SOURCE: [&str; 4] = ["attributes", "codecs", "chunk_grid", "fill_value"];
/// Members that can be objects whose keys are names of views, arrays, versions or errnos.
const BY_NAME: [&str; 6] = [
    "views",
    "arrays",
    "branches",
    "tags",
    "snapshots",
    "failed_by_errno",
];

/// Returns the words in backticks of the sections that describe a schema.
fn documented(schema: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let more: &[&str] = match schema {
        "zarrfs.tree/1" => &["The members of a node"],
        "zarrfs.info/1" => &["The members of a node", "zarrfs.tree/1"],
        _ => &[],
    };
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    let is_described = sections.iter().any(|section| section.contains(schema));
    assert!(is_described, "{schema} is not in the manual");
    let wanted = sections.iter().filter(|section| {
        section.contains(schema) || more.iter().any(|title| section.starts_with(title))
    });
    let words = wanted.flat_map(|section| section.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

/// Adds the members that are not in `known`, and asserts that sizes, times and ratios are numbers.
fn check_members(value: &Value, known: &BTreeSet<String>, unknown: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if !known.contains(name) && name != "schema" {
                    unknown.insert(name.clone());
                }
                let is_number = ["_bytes", "_seconds", "ratio"];
                if is_number.iter().any(|end| name.ends_with(end)) {
                    assert!(value.is_number(), "{name}: {value}");
                }
                match value {
                    _ if OF_THE_SOURCE.contains(&name.as_str()) => {}
                    Value::Object(named) if BY_NAME.contains(&name.as_str()) => {
                        for value in named.values() {
                            check_members(value, known, unknown);
                        }
                    }
                    value => check_members(value, known, unknown),
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                check_members(value, known, unknown);
            }
        }
        _ => {}
    }
}

fn assert_documented(document: &Value, schema: &str) {
    assert_eq!(document["schema"], schema, "{document}");
    let mut unknown = BTreeSet::new();
    check_members(document, &documented(schema), &mut unknown);
    assert!(unknown.is_empty(), "{schema}: {unknown:?} in {document:#}");
}

fn assert_command(command: &[&str], schema: &str) {
    let output = output_of(zarrfs().args(command).arg("--json"));
    assert_documented(&json_of(&output), schema);
}

#[test]
fn every_member_of_a_document_about_a_source_is_in_the_manual() {
    let damaged = copy_of("dir/v3-sharded");
    let chunk = chunk_keys(&damaged.path().join("store")).pop().unwrap();
    write(damaged.path().join("store").join(chunk), "damaged");
    let server = Server::over(&fixture("dir/v3-xarray"));
    for source in [
        "demo:",
        server.url().as_str(),
        fixture("dir/v2-nested").to_str().unwrap(),
        fixture("formats/traps.zarr").to_str().unwrap(),
        fixture("icechunk/v2").to_str().unwrap(),
        damaged.path().join("store").to_str().unwrap(),
    ] {
        for command in ["tree", "info", "check", "views"] {
            let schema = format!("zarrfs.{command}/1");
            assert_command(&[command, source], &schema);
        }
        let tree = json_of(&run_on("tree", source, &["--json"]));
        let arrays = tree["nodes"].as_array().unwrap().iter();
        let arrays = arrays.filter(|node| node["node_type"] == "array");
        for path in arrays.map(|node| node["path"].as_str().unwrap()).take(3) {
            for command in ["info", "views"] {
                let schema = format!("zarrfs.{command}/1");
                assert_command(&[command, source, path], &schema);
            }
        }
    }
}

#[test]
fn a_failure_has_a_document_with_its_kind() {
    let page = documented("zarrfs.error/1");
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (empty, missing, file) = (path("empty"), path("missing"), path("t2m.npy"));
    std::fs::create_dir(&empty).unwrap();
    write(&file, "old");
    let server = Server::over(&fixture("dir/v3-xarray"));
    server.add(on("*"), Fault::status(403));
    let url = server.url();
    for (kind, code, command) in [
        ("not_found", 1, vec!["tree", &missing]),
        ("not_found", 1, vec!["info", "demo:", "v4"]),
        ("not_found", 32, vec!["mount", &missing, &empty]),
        ("not_zarr", 1, vec!["views", &empty]),
        (
            "not_zarr",
            32,
            vec!["mount", &empty, &path("new"), "--mkdir"],
        ),
        ("denied", 32, vec!["mount", &url, &empty, "--retries", "0"]),
        (
            "unreachable",
            1,
            vec!["tree", "http://127.0.0.1:1/a.zarr", "--retries", "0"],
        ),
        ("mountpoint", 32, vec!["mount", "demo:", &missing]),
        (
            "mountpoint",
            32,
            vec!["mount", "demo:", &missing, "--foreground"],
        ),
        ("not_mounted", 1, vec!["stats", &empty]),
        ("exists", 1, vec!["export", "demo:v3/t2m", &file]),
        (
            "no_view",
            1,
            vec!["export", "demo:v3/lat", &path("lat.tif")],
        ),
        ("no_view", 1, vec!["export", "demo:v3", &path("v3.tif")]),
        (
            "usage",
            1,
            vec!["export", "demo:v3/lat", "-", "--as", "npy"],
        ),
        ("usage", 1, vec!["tree", "foo://host/a"]),
        ("usage", 2, vec!["tree", "demo:", "--depht", "1"]),
        ("usage", 2, vec!["info"]),
        ("usage", 2, vec!["stats", &empty, "--prometheus"]),
    ] {
        let output = output_of(zarrfs().args(&command).arg("--json"));
        assert_eq!(output.code, Some(code), "{command:?}");
        let document = json_of(&output);
        assert_documented(&document, "zarrfs.error/1");
        assert_eq!(document["kind"], kind, "{command:?}: {document}");
        assert!(page.contains(kind), "{kind} is not in the manual");
        let message = document["message"].as_str().unwrap();
        assert!(output.err.contains(message), "{command:?}: {}", output.err);
    }
    assert_eq!(read(&file).unwrap(), b"old");
    let file = path("new.npy");
    let exported = ["export", "demo:v3/t2m", &file];
    assert_command(&exported, "zarrfs.export/1");
    assert!(Path::new(&file).exists());
}

#[test]
fn bad_keys_of_a_check_have_a_kind() {
    let damaged = copy_of("dir/v3-sharded");
    let store = damaged.path().join("store");
    let chunk = chunk_keys(&store).pop().unwrap();
    write(store.join(chunk), "damaged");
    let source = store.to_str().unwrap();
    let document = json_of(&run_on("check", source, &["--json"]));
    let bad = document["bad"].as_array().unwrap();
    assert!(!bad.is_empty(), "{document}");
    assert!(bad.iter().all(|bad| bad["kind"] == "corrupt"), "{document}");
}

#[test]
fn every_member_of_a_document_about_a_mount_is_in_the_manual() {
    let place = Place::new();
    let server = Server::over(&fixture("dir/v3-xarray"));
    let cache = place.make_dir("cache");
    let options = ["--retries", "0", "--disk-cache", cache.to_str().unwrap()];
    let mut mount = place.command(server.url(), &options);
    let mounted = json_of(output_of(mount.arg("--json")).ok());
    assert_documented(&mounted, "zarrfs.mount/1");
    let path = place.path.to_str().unwrap();
    let file = place.path.join(".zarrfs/t2m.npy");
    server.add(on("*/c/*"), Fault::status(403));
    assert!(read(&file).is_err());
    server.heal();
    read(&file).unwrap();
    let stats = json_of(run_on("stats", path, &["--json"]).ok());
    for member in ["errors", "store", "arrays", "disk_cache", "fetched_bytes"] {
        assert!(stats.get(member).is_some(), "{member}: {stats}");
    }
    assert!(!stats["errors"].as_array().unwrap().is_empty(), "{stats}");
    assert_documented(&stats, "zarrfs.stats/1");
    assert_command(&["stats"], "zarrfs.stats-of-all/1");
    assert_command(&["mounts"], "zarrfs.mounts/1");
    assert_command(&["views", path], "zarrfs.views/1");
    place.unmount(&[]).ok();
}
