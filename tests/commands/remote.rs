//! The commands on a web server without listings: missing information is reported, and nothing is
//! requested twice.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faulty::{Fault, Server, on};
use crate::place::output_of;
use crate::stores::*;
use crate::support::{scratch, zarrfs};

/// Starts a server of a group without consolidated metadata, with an array that has two of its four chunks.
fn server() -> Server {
    let server = Server::files();
    server.put("s/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    put_array(&server, "s/a", &[4], &["bytes", "crc32c"]);
    for chunk in ["s/a/c/0", "s/a/c/3"] {
        server.put(chunk, with_crc32c(&[7]));
    }
    server
}

fn put_array(server: &Server, at: &str, shape: &[u64], codecs: &[&str]) {
    let document = document(shape, codecs);
    server.put(&format!("{at}/zarr.json"), document.to_string());
}

fn document(shape: &[u64], codecs: &[&str]) -> Value {
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint8",
        "chunk_grid": regular(&json!(vec![1; shape.len()])),
        "chunk_key_encoding": "default",
        "fill_value": 0,
        "codecs": codecs,
    })
}

const GROUP_WARNING: &str = "its children cannot be listed and are not checked";

#[test]
fn info_does_not_count_listed_names_as_chunks() {
    let server = server();
    let source = server.url_of("s");
    for at in ["s", "s/a"] {
        let (source, more) = match at {
            "s" => (&source, &["--path", "a"][..]),
            _ => (&server.url_of("s/a"), &[][..]),
        };
        let info = json_of(run_on("info", source, &[more, &["--json"]].concat()).ok());
        assert_eq!(info["chunks_present"], Value::Null, "{info}");
        assert!(info.as_object().unwrap().contains_key("chunks_present"));
        assert_eq!(info["chunks_total"], 4);
        for name in ["stored_bytes", "ratio", "chunks_counted"] {
            assert_eq!(info.get(name), None, "{info}");
        }
        let unknown = info["incomplete_listing"].as_str().unwrap();
        assert!(unknown.starts_with("chunks: "), "{info}");
        let lines = run_on("info", source, more);
        for words in [
            "chunks present     unknown: the server does not list them\n",
            "chunks total       4\n",
            "incomplete listing chunks: all that the shape has room for are listed;",
        ] {
            assert!(lines.ok().out.contains(words), "{words}: {lines:?}");
        }
    }
    assert!(server.requests_for("s/a/c/*").is_empty());
}

#[test]
fn info_of_a_group_reports_unknown_children() {
    let server = server();
    let words = "children: the server lists nothing";
    let info = json_of(run_on("info", server.url_of("s"), &["--json"]).ok());
    assert!(
        info["incomplete_listing"]
            .as_str()
            .unwrap()
            .starts_with(words),
        "{info}"
    );
    let lines = run_on("info", server.url_of("s"), &[]);
    let line = format!("incomplete listing {words}");
    assert!(lines.ok().out.contains(&line), "{lines:?}");
    let known = Server::over(&fixture("dir/v3-consolidated"));
    let info = json_of(run_on("info", known.url(), &["--json"]).ok());
    assert_eq!(info.get("incomplete_listing"), None, "{info}");
}

#[test]
fn tree_marks_groups_with_unknown_children() {
    let server = server();
    let tree = run_on("tree", server.url_of("s"), &[]);
    assert!(
        tree.ok().out.ends_with("  (group) children not known\n"),
        "{tree:?}"
    );
    let tree = json_of(run_on("tree", server.url_of("s"), &["--json"]).ok());
    assert_eq!(tree["nodes"][0]["children_known"], false, "{tree}");
    let known = Server::over(&fixture("dir/v2-consolidated"));
    let tree = run_on("tree", known.url(), &[]);
    assert!(!tree.ok().out.contains("not known"), "{tree:?}");
    assert!(tree.out.lines().count() > 40, "{tree:?}");
}

#[test]
fn check_requests_each_chunk_once_and_names_absent_chunks() {
    let server = server();
    let output = run_on("check", server.url_of("s/a"), &["--json"]);
    let document = json_of(output.ok());
    let summary = &document["summary"];
    assert_eq!(summary["chunks"], 2, "{document}");
    assert_eq!(summary["warnings"], 0, "{document}");
    assert_eq!(document["arrays"][0]["stored_bytes"], 10, "{document}");
    let array = &document["arrays"][0];
    assert_eq!(array["decoded_bytes"], 2, "{document}");
    assert_eq!(array["absent"], 2, "{document}");
    assert_eq!(array["total_chunks"], 4, "{document}");
    assert_eq!(array["absent_keys"], json!(["c/1 to c/2"]), "{document}");
    for chunk in 0..4 {
        let requests = server.requests_for(&format!("s/a/c/{chunk}"));
        assert_eq!(requests.len(), 1, "{requests:?}");
    }
    server.put("s/a/c/3", [7; 5]);
    let output = run_on("check", server.url_of("s/a"), &[]);
    output.failed(1, &[]);
    for words in [
        "bad: c/3: ",
        "2 of 4 chunks are absent and read as fill values: c/1 to c/2\n",
        ": 1 bad\n",
    ] {
        assert!(output.out.contains(words), "{output:?}");
    }
    // An error is no absence.
    server.add(on("s/a/c/1"), Fault::status(503));
    let arguments = ["--json", "--retries", "0"];
    let document = json_of(&run_on("check", server.url_of("s/a"), &arguments));
    assert_eq!(
        document["arrays"][0]["absent_keys"],
        json!(["c/2"]),
        "{document}"
    );
    assert_eq!(document["summary"]["bad"], 2, "{document}");
}

#[test]
fn the_parts_of_a_check_name_their_absent_chunks() {
    let dir = scratch();
    let server = Server::files();
    put_array(&server, "a", &[40], &["bytes"]);
    for chunk in 0..30 {
        server.put(&format!("a/c/{chunk}"), [7]);
    }
    let mut counts = Vec::new();
    let parts = ["1/2", "2/2"].map(|part| {
        let arguments = ["--json", "--part", part];
        let output = run_on("check", server.url_of("a"), &arguments);
        let document = json_of(output.ok());
        counts.push(document["arrays"][0]["absent"].as_u64().unwrap());
        let file = dir.path().join(part.replace('/', "-"));
        write(&file, &output.out);
        file.into_os_string().into_string().unwrap()
    });
    assert!(
        counts.iter().all(|count| (1..10).contains(count)),
        "{counts:?}"
    );
    let merge = |more: &[&str]| {
        let command = ["check", "--merge"];
        output_of(zarrfs().args(command).args(&parts).args(more))
    };
    let line = "10 of 40 chunks are absent and read as fill values: c/3";
    assert!(merge(&[]).ok().out.contains(line), "{parts:?}");
    let merged = json_of(merge(&["--json"]).ok());
    assert_eq!(merged["arrays"][0]["absent"], 10, "{merged}");
}

#[test]
fn chunks_that_a_directory_page_lacks_are_named_and_not_requested() {
    let server = Server::listing_files();
    put_array(&server, "a", &[10], &["bytes"]);
    for chunk in [0, 1, 9] {
        server.put(&format!("a/c/{chunk}"), [7]);
    }
    let output = run_on("check", server.url_of("a"), &[]);
    let line = "7 of 10 chunks are not listed and not read: c/2 to c/8\n";
    assert!(output.ok().out.contains(line), "{output:?}");
    assert!(server.requests_for("a/c/5").is_empty());
    let document = json_of(run_on("check", server.url_of("a"), &["--json"]).ok());
    let array = &document["arrays"][0];
    assert_eq!(array["not_listed"], 7, "{document}");
    assert_eq!(
        array["not_listed_keys"],
        json!(["c/2 to c/8"]),
        "{document}"
    );
    assert_eq!(array["total_chunks"], 10, "{document}");
    assert_eq!(array["absent"], 0, "{document}");
    assert!(
        output.out.contains("OK, as far as keys are listed"),
        "{output:?}"
    );
    let strict = run_on("check", server.url_of("a"), &["--strict"]);
    assert_eq!(strict.code, Some(1), "{strict:?}");
    // An array below the array is in its pages, and not in its metadata.
    put_array(&server, "a/below", &[4], &["bytes"]);
    server.put("a/below/c/2", [7]);
    let output = run_on("check", server.url_of("a/below"), &[]);
    let line = "3 of 4 chunks are not listed and not read: c/0 to c/1, c/3\n";
    assert!(output.ok().out.contains(line), "{output:?}");
    let output = output_of(zarrfs().args(["check", &server.url_of("a"), "below"]));
    assert!(output.ok().out.contains(line), "{output:?}");
}

#[test]
fn absent_chunks_of_an_array_that_cannot_be_decoded_are_no_warnings() {
    let server = Server::files();
    put_array(&server, "a", &[5], &["bytes", "no-such-codec"]);
    server.put("a/c/1", [7]);
    let document = json_of(run_on("check", server.url_of("a"), &["--json"]).ok());
    let array = &document["arrays"][0];
    assert_eq!(
        array["absent_keys"],
        json!(["c/0", "c/2 to c/4"]),
        "{document}"
    );
    assert_eq!(document["summary"]["warnings"], 0, "{document}");
    assert_eq!(document["summary"]["not_checked"], 1, "{document}");
}

#[test]
fn an_unlisted_group_is_a_warning_and_fails_a_strict_check() {
    let server = server();
    let output = run_on("check", server.url_of("s"), &[]);
    assert!(output.ok().out.contains(GROUP_WARNING), "{output:?}");
    assert!(
        output
            .out
            .contains(": 0 bad, 1 warning\nOK, as far as keys are listed"),
        "{output:?}"
    );
    let strict = run_on("check", server.url_of("s"), &["--strict", "--json"]);
    assert_eq!(strict.code, Some(1), "{strict:?}");
    let document = json_of(&strict);
    assert_eq!(document["ok"], false);
    assert_eq!(document["summary"]["unlisted"], 1);
    assert_eq!(document["warnings"][0]["cause"], GROUP_WARNING);
    // The shape of an array determines the names of its chunks.
    run_on("check", server.url_of("s/a"), &["--strict"]).ok();
}

#[test]
fn consolidated_fixtures_are_checked_to_the_last_chunk() {
    for name in ["dir/v2-consolidated", "dir/v3-consolidated"] {
        let server = Server::over(&fixture(name));
        let output = run_on("check", server.url(), &["--strict", "--json"]);
        let document = json_of(output.ok());
        let summary = &document["summary"];
        let chunks = chunk_keys(&fixture(name)).len();
        assert_eq!(summary["chunks"], chunks, "{name}: {document}");
        assert_eq!(summary["warnings"], 0, "{name}: {document}");
    }
}

#[test]
fn check_requests_many_chunks_of_a_remote_store_in_parallel() {
    let server = Server::files();
    put_array(&server, "a", &[64], &["bytes"]);
    for chunk in 0..64 {
        server.put(&format!("a/c/{chunk}"), [1]);
    }
    server.set_latency(Duration::from_millis(100));
    run_on("check", server.url_of("a"), &["--strict"]).ok();
    let most = server.most_at_a_time();
    assert!(most > 8, "{most}");
    server.forget_requests();
    run_on("check", server.url_of("a"), &["--jobs", "2"]).ok();
    let most = server.most_at_a_time();
    assert!(most <= 4, "{most}");
}

#[test]
fn info_of_a_consolidated_group_takes_few_requests() {
    let server = Server::over(&fixture("dir/v3-consolidated"));
    let info = json_of(run_on("info", server.url(), &["--json"]).ok());
    let arrays = info["arrays"].as_array().unwrap().len();
    let requests = server.requests().len();
    assert!(arrays > 20 && requests <= 6, "{:#?}", server.requests());
    // At most two chunks of each coordinate are read, and no others.
    let server = Server::over(&fixture("dir/v3-xarray"));
    let info = json_of(run_on("info", server.url(), &["--json"]).ok());
    let coordinates = info["arrays"].as_array().unwrap().iter();
    let read = coordinates
        .filter(|array| array.get("values").is_some())
        .count();
    let chunks = server.requests_for("*/c/*").len();
    assert!(
        read > 0 && chunks <= 4 * read,
        "{read}: {:#?}",
        server.requests()
    );
}
