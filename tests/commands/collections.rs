//! Sources that are collections of hierarchies, in every kind of source, and sources without any.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::faulty::Server;
use crate::place::{CommandOutput, Place, output_of};
use crate::stores::*;
use crate::support::*;

const N5_DATASET: &str =
    r#"{"dimensions":[1],"blockSize":[1],"dataType":"uint8","compression":{"type":"raw"}}"#;

/// Writes two hierarchies of v3, one of them nested, an N5 hierarchy without `attributes.json` at its root,
/// and a file beside them.
fn write_collection(dir: &Path) {
    for store in ["a.zarr", "deep/b.zarr"] {
        group(&dir.join(store));
        let array_dir = dir.join(store).join("x");
        array(
            &array_dir,
            &json!([2]),
            &regular(&json!([1])),
            &json!(["bytes"]),
        );
        write(array_dir.join("c/0"), [7]);
    }
    write(dir.join("c.n5/s0/attributes.json"), N5_DATASET);
    write(dir.join("notes.txt"), "beside");
}

const HIERARCHIES: [&str; 3] = ["a.zarr", "c.n5/s0", "deep/b.zarr"];

/// Writes a collection as a directory, and as zip archives of it and of its parent directory.
fn collections(place: &Place) -> Vec<PathBuf> {
    let dir = place.make_dir("collection");
    write_collection(&dir);
    let zip = place.zip_of(&dir);
    vec![dir, zip]
}

#[test]
fn a_collection_mounts_as_it_is_and_every_command_takes_it() {
    let place = Place::new();
    for source in collections(&place) {
        let check = json_of(run_on("check", &source, &["--json"]).ok());
        assert_eq!(check["ok"], true, "{check}");
        assert_eq!(check["summary"]["arrays"], 3, "{check}");
        assert_eq!(run_on("check", &source, &["--strict"]).ok().err, "");
        let tree = json_of(run_on("tree", &source, &["--json"]).ok());
        assert_eq!(tree["totals"]["arrays"], 3, "{tree}");
        let info = json_of(run_on("info", &source, &["--json"]).ok());
        assert_eq!(info["hierarchies"], json!(HIERARCHIES), "{info}");
        let text = run_on("info", &source, &[]);
        assert!(text.ok().out.contains("    deep/b.zarr\n"), "{text:?}");
        let views = json_of(run_on("views", &source, &["--json"]).ok());
        assert_eq!(views["hierarchies"], json!(HIERARCHIES), "{views}");
        let file = place.join("x.npy");
        run_on(
            "export",
            &source,
            &["--path", "a.zarr/x", file.to_str().unwrap(), "--overwrite"],
        )
        .ok();
        place.mount(&source, &[]);
        let readme = std::fs::read_to_string(place.path.join(".zarrfs/README.txt")).unwrap();
        for path in HIERARCHIES {
            assert!(
                readme.contains(&format!("\n    {path}/.zarrfs\n")),
                "{readme}"
            );
        }
        let view = "a.zarr/.zarrfs/x.npy";
        assert_eq!(read(place.path.join(view)).unwrap(), read(&file).unwrap());
        assert_eq!(read(place.path.join("notes.txt")).unwrap(), b"beside");
        let mount = place.path.to_str().unwrap();
        let path = output_of(zarrfs().args(["path", mount, "a.zarr/x", "--as", "npy"]));
        assert!(path.ok().out.ends_with("x.npy\n"), "{path:?}");
        place.unmount(&[]).ok();
        let ran = zarrfs_run(&source, &["cat", "{deep/b.zarr/x.npy}"]);
        assert!(ran.ok().out.contains("NUMPY"), "{ran:?}");
    }
}

fn zarrfs_run(source: &Path, words: &[&str]) -> CommandOutput {
    output_of(zarrfs().arg("run").arg(source).arg("--").args(words))
}

#[test]
fn an_archive_of_one_store_from_its_parent_directory_is_whole() {
    let place = Place::new();
    let parent = place.make_dir("parent");
    group(&parent.join("x.zarr"));
    array(
        &parent.join("x.zarr/v"),
        &json!([1]),
        &regular(&json!([1])),
        &json!(["bytes"]),
    );
    let zip = place.zip_of(&parent);
    let check = run_on("check", &zip, &[]).ok().out.clone();
    assert!(check.contains("OK"), "{check}");
    place.mount(&zip, &[]);
    assert!(place.path.join("x.zarr/.zarrfs/v.npy").exists());
    place.unmount(&[]).ok();
}

#[test]
fn a_source_without_any_hierarchy_fails_every_command_with_what_it_contains() {
    let place = Place::new();
    let plain = place.make_dir("plain");
    write(plain.join("data/notes.txt"), "no Zarr");
    for source in [plain.clone(), place.zip_of(&plain), place.make_dir("empty")] {
        let contents = match source.ends_with("empty") {
            true => "it is empty",
            false => "it contains data/",
        };
        let words = ["no zarr metadata (zarr.json", "attributes.json", contents];
        for command in ["tree", "info", "views"] {
            run_on(command, &source, &[]).failed(1, &words);
        }
        let file = place.join("x.nc");
        run_on("export", &source, &[file.to_str().unwrap()]).failed(1, &words);
        assert!(!file.exists());
        let check = run_on("check", &source, &[]);
        assert_eq!(check.code, Some(1), "{check:?}");
        assert!(check.out.contains(contents), "{check:?}");
        zarrfs_run(&source, &["true"]).failed(125, &words);
        place.attempt(&source, &[]).failed(32, &words);
    }
    place.assert_untouched();
}

/// Serves a collection of `count` stores on a web server with listings and in a bucket.
fn servers(count: usize) -> Vec<(Server, String, Vec<String>)> {
    let dir = scratch();
    for number in 0..count {
        let store = dir.path().join(format!("{number:03}.zarr"));
        group(&store);
        array(
            &store.join("x"),
            &json!([1]),
            &regular(&json!([1])),
            &json!(["bytes"]),
        );
    }
    let (web, bucket) = (Server::listing_files(), Server::s3("bucket"));
    for server in [&web, &bucket] {
        server.put_tree("s", dir.path());
    }
    let web_url = web.url_of("s");
    let options = ["--anonymous", "--endpoint-url", &bucket.url()].map(str::to_owned);
    vec![
        (web, web_url, Vec::new()),
        (bucket, "s3://bucket/s".to_owned(), options.to_vec()),
    ]
}

#[test]
fn hundreds_of_remote_stores_take_one_listing_and_not_one_request_each() {
    for (server, source, options) in servers(200) {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let info = json_of(run_on("info", &source, &[&options[..], &["--json"]].concat()).ok());
        assert_eq!(info["hierarchies"], json!(["000.zarr"]), "{info}");
        let unread = info["unread_directories"].as_array().unwrap();
        assert_eq!(unread.len(), 199, "{info}");
        assert!(server.requests().len() < 20, "{:?}", server.requests());
        server.forget_requests();
        let mount = Mount::with(&source, &options);
        let names = std::fs::read_dir(mount.path()).unwrap().count();
        assert_eq!(names, 200);
        assert!(server.requests().len() < 20, "{:?}", server.requests());
    }
}

#[test]
fn a_remote_collection_is_checked_to_its_last_store() {
    for (server, source, options) in servers(3) {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let check = |code| {
            let output = run_on("check", &source, &[&options[..], &["--json"]].concat());
            assert_eq!(output.code, Some(code), "{output:?}");
            json_of(&output)
        };
        assert_eq!(check(0)["summary"]["arrays"], 3);
        server.put("s/002.zarr/x/c/0", [1, 2]);
        let bad = check(1);
        assert_eq!(bad["bad"][0]["key"], "002.zarr/x/c/0", "{bad}");
        let tree = json_of(run_on("tree", &source, &[&options[..], &["--json"]].concat()).ok());
        assert_eq!(tree["totals"]["arrays"], 3, "{tree}");
        for number in 0..3 {
            for key in ["zarr.json", "x/zarr.json"] {
                server.remove(&format!("s/00{number}.zarr/{key}"));
            }
        }
        server.put("s/notes.txt", "no Zarr");
        for command in ["tree", "info", "views"] {
            let output = run_on(command, &source, &options);
            output.failed(1, &["no zarr metadata|neither a group nor an array"]);
        }
        assert_eq!(check(1)["ok"], false);
    }
}

#[test]
fn containers_of_n5_without_a_document_at_the_root_are_collections() {
    let place = Place::new();
    let container = place.make_dir("image.n5");
    write(container.join("volume/s0/attributes.json"), N5_DATASET);
    write(container.join("volume/s0/0"), [0, 0, 0, 1, 0, 0, 0, 1, 9]);
    for source in [container.clone(), place.zip_of(&container)] {
        run_on("check", &source, &[]).ok();
        place.mount(&source, &[]);
        let view = read(place.path.join("volume/s0/.zarrfs/s0.npy")).unwrap();
        assert_eq!(view.last(), Some(&9));
        place.unmount(&[]).ok();
    }
}

#[test]
fn a_link_to_the_parent_does_not_stop_the_search() {
    let place = Place::new();
    let dir = place.make_dir("loop");
    group(&dir.join("x.zarr"));
    run(Command::new("ln").args(["-s", ".."]).arg(dir.join("a")));
    run_on("check", &dir, &[]);
    run_on("tree", &dir, &[]).ok();
}

/// Writes a zip archive of which one entry has a name with a leading slash, and two have one name.
fn zip_with_hidden_entries(place: &Place) -> PathBuf {
    let script = r#"
import sys, warnings, zipfile
warnings.simplefilter("ignore")
group = '{"zarr_format":3,"node_type":"group"}'
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    archive.writestr("zarr.json", group)
    archive.writestr("/lost/zarr.json", group)
    archive.writestr("kept/zarr.json", group)
"#;
    let zip = place.join("hidden.zip");
    run(Command::new("python3").args(["-c", script]).arg(&zip));
    zip
}

/// Asserts that every list of what is not shown has `words`: those of `check`, `tree`, `info`, `views` and
/// the mount.
#[track_caller]
fn assert_not_shown(place: &Place, source: &Path, words: &str) {
    let check = run_on("check", source, &[]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.out.contains(words), "{words}: {check:?}");
    for (command, list) in [
        ("tree", "problems"),
        ("info", "problems"),
        ("views", "diagnostics"),
    ] {
        let document = json_of(run_on(command, source, &["--json"]).ok());
        let node = match command {
            "tree" => &document["nodes"][0],
            _ => &document,
        };
        let list = node[list].to_string();
        assert!(
            list.replace("\\\"", "\"").contains(words),
            "{words}: {command}: {list}"
        );
    }
    place.mount(source, &[]);
    let readme = std::fs::read_to_string(place.path.join(".zarrfs/README.txt")).unwrap();
    let list = std::fs::read_to_string(place.path.join(".zarrfs/views.json")).unwrap();
    place.unmount(&[]).ok();
    assert!(readme.contains(words), "{words}: {readme}");
    assert!(
        list.replace("\\\"", "\"").contains(words),
        "{words}: {list}"
    );
}

#[test]
fn skipped_entries_of_an_archive_are_in_every_list_of_what_is_not_shown() {
    let place = Place::new();
    let zip = zip_with_hidden_entries(&place);
    let words = r#"skipped 1 entries with invalid names, such as "/lost/zarr.json""#;
    assert_not_shown(&place, &zip, words);
}

#[test]
fn keys_of_references_that_are_no_names_of_files_are_in_every_list() {
    let place = Place::new();
    let references = place.join("references.json");
    let group = r#"{\"zarr_format\":3,\"node_type\":\"group\"}"#;
    let text = format!(r#"{{"version":1,"refs":{{"zarr.json":"{group}","a//b":"x"}}}}"#);
    write(&references, text);
    assert_not_shown(
        &place,
        &references,
        "1 keys are no names of files and are not shown",
    );
}

/// Writes a v2 group with an array at `s0` and these attributes.
fn group_with(dir: &Path, attributes: &str) {
    write(dir.join(".zgroup"), r#"{"zarr_format":2}"#);
    write(dir.join(".zattrs"), attributes);
    let array = r#"{"zarr_format":2,"shape":[1],"chunks":[1],"dtype":"|u1","compressor":null,
        "filters":null,"fill_value":0,"order":"C"}"#;
    write(dir.join("s0/.zarray"), array);
}

#[test]
fn a_member_that_metadata_name_and_that_is_absent_is_in_every_list() {
    let cases = [
        (
            r#"{"multiscales":[{"datasets":[{"path":"s0"},{"path":"s1"}]}]}"#,
            "s1 is named by `multiscales`, but absent",
        ),
        (
            r#"{"plate":{"wells":[{"path":"A/1"}]}}"#,
            "A/1 is named by `plate`, but absent",
        ),
        (
            r#"{"encoding-type":"dataframe","column-order":["age"],"_index":"s0"}"#,
            "age is named by `column-order`, but absent",
        ),
    ];
    let place = Place::new();
    for (number, (attributes, words)) in cases.into_iter().enumerate() {
        let dir = place.make_dir(format!("store{number}"));
        group_with(&dir, attributes);
        for source in [dir.clone(), place.zip_of(&dir)] {
            assert_not_shown(&place, &source, words);
        }
    }
    // Below a collection, too.
    let collection = place.make_dir("collection");
    group_with(&collection.join("image"), cases[0].0);
    let check = run_on("check", &collection, &[]);
    assert!(
        check.out.contains(&format!("image: {}", cases[0].1)),
        "{check:?}"
    );
}

#[test]
fn a_node_of_consolidated_metadata_that_is_absent_is_in_every_list() {
    let place = Place::new();
    let dir = place.make_dir("store");
    group_with(&dir, "{}");
    let array = std::fs::read_to_string(dir.join("s0/.zarray")).unwrap();
    let documents = format!(
        r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{{"zarr_format":2}},".zattrs":{{}},
            "s0/.zarray":{array},"old/.zarray":{array}}}}}"#
    );
    write(dir.join(".zmetadata"), documents);
    let words = "old is named by the consolidated metadata, but absent";
    for source in [dir.clone(), place.zip_of(&dir)] {
        assert_not_shown(&place, &source, words);
    }
    // Over a network, a listing proves it.
    let server = Server::s3("bucket");
    server.put_tree("s", &dir);
    let options = ["--anonymous", "--endpoint-url", &server.url()];
    let check = run_on("check", "s3://bucket/s", &options);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.out.contains(words), "{check:?}");
    write(dir.join("old/.zarray"), array);
    run_on("check", &dir, &[]).ok();
}

#[test]
fn an_absent_level_on_a_web_server_is_reported() {
    let dir = scratch();
    group_with(
        dir.path(),
        r#"{"multiscales":[{"datasets":[{"path":"s0"},{"path":"s1"}]}]}"#,
    );
    let server = Server::files();
    server.put_tree("s", dir.path());
    let check = run_on("check", server.url_of("s"), &[]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(
        check
            .out
            .contains("s1 is named by `multiscales`, but absent"),
        "{check:?}"
    );
}

#[test]
fn an_archive_of_which_every_entry_is_skipped_is_not_called_empty() {
    let place = Place::new();
    let zip = place.join("all.zip");
    let script = "import sys, zipfile\n\
                  zipfile.ZipFile(sys.argv[1], 'w').writestr('/zarr.json', '{}')";
    run(Command::new("python3").args(["-c", script]).arg(&zip));
    let words = ["no zarr metadata", "skipped 1 entries with invalid names"];
    for command in ["tree", "info", "views"] {
        run_on(command, &zip, &[]).failed(1, &words);
    }
    place.attempt(&zip, &[]).failed(32, &words);
}

#[test]
fn keys_that_a_database_leaves_out_are_in_every_list() {
    let place = Place::new();
    let database = place.join("keys.sqldb");
    let script = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("create table zarr(k text primary key, v blob)")
for key in [".zgroup", "g/.zgroup", "g/x//y"]:
    connection.execute("insert into zarr values(?, ?)", (key, b'{"zarr_format":2}'))
connection.commit()
"#;
    run(Command::new("python3").args(["-c", script]).arg(&database));
    assert_not_shown(
        &place,
        &database,
        r#"keys that are no file names are left out, such as "g/x//y""#,
    );
}
