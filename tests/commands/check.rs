//! `zarrfs check`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{CommandOutput, output_of};
use crate::stores::*;
use crate::support::*;

/// Returns the keys of a list in the JSON document, without duplicates.
fn keys(document: &Value, list: &str) -> BTreeSet<String> {
    let findings = document[list].as_array().unwrap().iter();
    findings
        .map(|finding| finding["key"].as_str().unwrap().to_owned())
        .collect()
}

/// Asserts that the JSON document agrees with the exit code, and returns it.
#[track_caller]
fn checked(output: &CommandOutput) -> Value {
    let document = json_of(output);
    assert_eq!(
        output.code,
        Some(i32::from(document["ok"] == false)),
        "{output:?}"
    );
    document
}

#[test]
fn check_decodes_every_chunk_of_every_fixture_without_an_error() {
    for kind in ["dir", "zip"] {
        for entry in fs::read_dir(fixture(kind)).unwrap() {
            let path = entry.unwrap().path();
            let output = run_on("check", &path, &[&["--json"], folder_of(&path)].concat());
            let document = checked(&output);
            assert_eq!(document["ok"], true, "{path:?}: {output:?}");
            assert_eq!(
                document["summary"]["not_checked"], 0,
                "{path:?}: {output:?}"
            );
            let decoded = document["summary"]["decoded_inner_chunks"]
                .as_u64()
                .unwrap();
            assert!(decoded > 0, "{path:?}: {output:?}");
            if kind == "dir" {
                let chunks = chunk_keys(&path).len();
                assert_eq!(document["summary"]["chunks"], chunks, "{path:?}");
            }
        }
    }
}

/// Holes of a broken copy are no errors, and are named.
#[test]
fn check_names_absent_chunks() {
    let dir = scratch();
    array(
        dir.path(),
        &json!([40]),
        &regular(&json!([4])),
        &json!(["bytes"]),
    );
    for chunk in [0, 1, 3, 7, 8, 9] {
        write(dir.path().join(format!("c/{chunk}")), [1; 4]);
    }
    let output = run_on("check", dir.path(), &[]);
    let line = "4 of 10 chunks are absent and read as fill values: c/2, c/4 to c/6\n";
    assert!(output.ok().out.contains(line), "{output:?}");
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(document["arrays"][0]["absent"], 4);
    assert_eq!(
        document["arrays"][0]["absent_keys"],
        json!(["c/2", "c/4 to c/6"])
    );
    for chunk in [2, 4, 5, 6] {
        write(dir.path().join(format!("c/{chunk}")), [1; 4]);
    }
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(document["arrays"][0]["absent"], 0);
    assert_eq!(document["arrays"][0].get("absent_keys"), None);
}

#[test]
fn the_parts_of_a_check_add_up_to_the_whole() {
    const PARTS: usize = 3;
    let dir = scratch();
    let store = dir.path().join("a.zarr");
    write(
        store.join("zarr.json"),
        r#"{"zarr_format": 3, "node_type": "group"}"#,
    );
    for name in ["a", "b"] {
        let (shape, grid) = (json!([400]), regular(&json!([4])));
        array(&store.join(name), &shape, &grid, &json!(["bytes"]));
        for chunk in (0..100).filter(|chunk| chunk % 9 != 0) {
            write(store.join(format!("{name}/c/{chunk}")), [1; 4]);
        }
    }
    for bad in [1, 50, 70] {
        write(store.join(format!("b/c/{bad}")), [1]);
    }
    write(store.join("a/notes.txt"), b"text");
    let arguments = |part: usize| [format!("--part={part}/{PARTS}"), "--json".into()];
    let mut results = Vec::new();
    let (mut chunks, mut bad) = (Vec::new(), 0);
    for part in 1..=PARTS {
        let arguments = arguments(part);
        let output = run_on("check", &store, &arguments.each_ref().map(String::as_str));
        let document = checked(&output);
        assert_eq!(document["part"], format!("{part}/{PARTS}"));
        chunks.push(document["summary"]["chunks"].as_u64().unwrap());
        bad += document["summary"]["bad"].as_u64().unwrap();
        let file = dir.path().join(format!("{part}.json"));
        write(&file, &output.out);
        results.push(file.to_str().unwrap().to_owned());
    }
    assert_eq!(bad, 3);
    assert!(chunks.iter().all(|chunks| *chunks > 30), "{chunks:?}");
    let merge = |files: &[&str], more: &[&str]| {
        output_of(zarrfs().args(["check", "--merge"]).args(files).args(more))
    };
    let [one, two, three] = [&results[0], &results[1], &results[2]].map(String::as_str);
    let without_time = |mut document: Value| {
        let summary = document["summary"].as_object_mut().unwrap();
        summary.remove("seconds").unwrap();
        summary.remove("decoded_mb_per_second").unwrap();
        for list in ["bad", "warnings"] {
            let findings = document[list].as_array_mut().unwrap();
            findings.sort_by_key(|finding| finding["key"].to_string());
        }
        document
    };
    let whole = without_time(checked(&run_on("check", &store, &["--json"])));
    let merged = without_time(checked(&merge(&[three, one, two], &["--json"])));
    assert_eq!(merged, whole);
    // The text too, but for the time and the order of the findings.
    let lines = |output: CommandOutput| {
        assert_eq!(output.code, Some(1), "{output:?}");
        let lines = output
            .out
            .lines()
            .map(|line| match line.split_once(" in ") {
                Some((before, after)) => format!("{before}:{}", after.rsplit_once(':').unwrap().1),
                None => line.to_owned(),
            });
        lines.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        lines(merge(&[one, two, three], &[])),
        lines(run_on("check", &store, &[]))
    );

    merge(&[one, three], &[]).failed(1, &["2 of 3", "missing: 2"]);
    merge(&[one, two, three, one], &[]).failed(1, &["part 1/3", "1.json"]);
    let other = dir.path().join("other.json");
    write(
        &other,
        run_on("check", "demo:", &["--part=2/3", "--json"]).out,
    );
    merge(&[one, other.to_str().unwrap(), three], &[]).failed(1, &["not of the same check"]);
    write(&other, run_on("check", &store, &["--json"]).out);
    merge(&[other.to_str().unwrap()], &[]).failed(1, &["without --part"]);
    write(&other, "{");
    merge(&[other.to_str().unwrap()], &[]).failed(1, &["other.json", "EOF"]);
    run_on("check", &store, &["--part", "4/3"]).failed(2, &["4/3", "I/N"]);
}

#[test]
fn check_passes_the_demo_store() {
    let output = run_on("check", "demo:", &[]);
    assert!(
        output.ok().out.contains("\n12 arrays, 56 chunks, "),
        "{output:?}"
    );
    let verdict = ": 0 bad\nOK: everything was read and decoded\n";
    assert!(output.out.ends_with(verdict), "{output:?}");
    let part = checked(&run_on(
        "check",
        "demo:",
        &["--path", "/v3/t2m_sharded/", "--json"],
    ));
    assert_eq!(part["summary"]["arrays"], 1);
    assert_eq!(part["summary"]["chunks"], 2);
    assert_eq!(part["summary"]["decoded_inner_chunks"], 48);
}

#[test]
fn arrays_of_version_1_and_nested_keys_without_a_separator_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let put = |key: &str, bytes: &[u8]| {
        let path = dir.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(path, bytes);
    };
    let shape =
        json!({"shape": [2, 2], "chunks": [1, 2], "dtype": "|u1", "fill_value": 0, "order": "C"});
    let document = |more: Value| {
        let mut document = shape.clone();
        document
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        document.to_string().into_bytes()
    };
    let v1 = json!({"zarr_format": 1, "compression": null, "compression_opts": null});
    put("v1/meta", &document(v1));
    put("v1/attrs", b"{}");
    put("v1/0.0", &[1, 2]);
    let v2 = json!({"zarr_format": 2, "compressor": null, "filters": null});
    put("nested/.zarray", &document(v2));
    put("nested/1/0", &[3, 4]);
    for name in ["v1", "nested"] {
        let store = dir.path().join(name);
        let document = checked(&run_on("check", &store, &["--json"]));
        assert_eq!(document["ok"], true, "{name}: {document}");
        assert_eq!(document["summary"]["chunks"], 1, "{name}: {document}");
        assert_eq!(document["warnings"], json!([]), "{name}: {document}");
        assert!(
            run_on("tree", &store, &[])
                .ok()
                .out
                .contains("uint8 (2, 2)")
        );
        assert!(
            run_on("info", &store, &[])
                .ok()
                .out
                .contains("chunks present     1")
        );
    }
}

#[test]
fn only_truncated_chunks_are_reported() {
    for name in ["dir/v2-flat", "dir/v2-nested", "dir/v3", "dir/v3-sharded"] {
        let dir = copy_of(name);
        let store = dir.path().join("store");
        let chunks = chunk_keys(&store);
        assert!(chunks.len() > 20, "{chunks:?}");
        for key in &chunks {
            let path = store.join(key);
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
        let document = checked(&run_on("check", &store, &["--json", "--jobs", "3"]));
        assert_eq!(document["ok"], false);
        let expected: BTreeSet<String> = chunks.iter().cloned().collect();
        assert_eq!(keys(&document, "bad"), expected, "{name}");

        let lines = run_on("check", &store, &[]);
        assert_eq!(lines.code, Some(1));
        // At most 20 findings of each array are printed, and the number of the others.
        let printed = lines.out.lines().filter(|line| line.starts_with("bad: "));
        let (more, named): (Vec<&str>, Vec<&str>) =
            printed.partition(|line| line.contains(": ... and "));
        let words = "more (all: --json)";
        assert!(more.iter().all(|line| line.ends_with(words)), "{lines:?}");
        let left_out = more.iter().map(|line| {
            let number = line.rsplit("... and ").next().unwrap();
            number
                .split(' ')
                .next()
                .unwrap()
                .replace(',', "")
                .parse::<usize>()
                .unwrap()
        });
        let bad = document["summary"]["bad"].as_u64().unwrap();
        let found = named.len() + left_out.sum::<usize>();
        assert_eq!(found as u64, bad, "{lines:?}");
        assert!(
            lines.out.ends_with(&format!("\nFAILED: {bad} bad\n")),
            "{lines:?}"
        );
    }
}

#[test]
fn one_damaged_chunk_does_not_hide_the_others() {
    let dir = scratch();
    let crc = json!(["bytes", "crc32c"]);
    array(dir.path(), &json!([6]), &regular(&json!([2])), &crc);
    for (number, bytes) in [[1, 2], [3, 4], [5, 6]].iter().enumerate() {
        write(dir.path().join(format!("c/{number}")), with_crc32c(bytes));
    }
    let good = run_on("check", dir.path(), &[]);
    assert!(
        good.ok().out.contains("1 array, 3 chunks, 1 other key, "),
        "{good:?}"
    );

    let mut bytes = fs::read(dir.path().join("c/1")).unwrap();
    bytes[0] ^= 1;
    fs::write(dir.path().join("c/1"), bytes).unwrap();
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(keys(&document, "bad"), ["c/1".to_owned()].into());
    assert!(
        document["bad"][0]["cause"]
            .as_str()
            .unwrap()
            .contains("crc32c"),
        "{document}"
    );
    assert_eq!(document["arrays"][0]["bad"], 1);
    assert_eq!(document["arrays"][0]["decoded_inner_chunks"], 2);
}

#[test]
fn every_damaged_inner_chunk_of_a_shard_is_named() {
    let dir = scratch();
    let sharding = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2],
        "codecs": ["bytes", "crc32c"],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"],
        "index_location": "end",
    }}]);
    array(dir.path(), &json!([8]), &regular(&json!([8])), &sharding);
    let damaged = |bytes: &[u8]| {
        let mut chunk = with_crc32c(bytes);
        chunk[0] ^= 0x80;
        Some(chunk)
    };
    let inner = [
        Some(with_crc32c(&[1, 2])),
        damaged(&[3, 4]),
        None,
        damaged(&[7, 8]),
    ];
    write(dir.path().join("c/0"), shard(&inner));
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    let causes: Vec<&str> = document["bad"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["cause"].as_str().unwrap())
        .collect();
    assert_eq!(causes.len(), 2, "{causes:?}");
    assert!(
        causes[0].contains("inner chunk 1") && causes[1].contains("inner chunk 3"),
        "{causes:?}"
    );
    assert_eq!(document["arrays"][0]["decoded_inner_chunks"], 1);

    // Without an index, one finding is reported, not one for each inner chunk.
    let mut bytes = shard(&inner);
    *bytes.last_mut().unwrap() ^= 1;
    write(dir.path().join("c/0"), bytes);
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(document["summary"]["bad"], 1, "{document}");
}

#[test]
fn chunks_of_rectilinear_grids_are_decoded_too() {
    let dir = scratch();
    let grid = json!({"name": "rectilinear", "configuration": {
        "kind": "inline", "chunk_shapes": [[2, [3, 2]]],
    }});
    array(dir.path(), &json!([8]), &grid, &json!(["bytes"]));
    write(dir.path().join("c/0"), [1, 2]);
    write(dir.path().join("c/1"), [1, 2, 3]);
    let good = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(good["ok"], true, "{good}");
    assert_eq!(good["summary"]["decoded_bytes"], 5);
    write(dir.path().join("c/2"), [1, 2]);
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(keys(&document, "bad"), ["c/2".to_owned()].into());
}

#[test]
fn an_unsupported_codec_is_skipped_and_fails_only_a_strict_check() {
    let dir = scratch();
    group(dir.path());
    array(
        &dir.path().join("odd"),
        &json!([2]),
        &regular(&json!([2])),
        &json!(["bytes", "mystery"]),
    );
    write(dir.path().join("odd/c/0"), [1, 2]);
    array(
        &dir.path().join("good"),
        &json!([2]),
        &regular(&json!([2])),
        &json!(["bytes"]),
    );
    write(dir.path().join("good/c/0"), [1, 2]);
    let lines = run_on("check", dir.path(), &[]);
    assert!(
        lines
            .ok()
            .out
            .contains("not checked: odd: codec mystery is not supported"),
        "{lines:?}"
    );
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(keys(&document, "not_checked"), ["odd".to_owned()].into());
    assert_eq!(document["summary"]["decoded_inner_chunks"], 1);
    let strict = checked(&run_on("check", dir.path(), &["--json", "--strict"]));
    assert_eq!(
        (&strict["ok"], &strict["summary"]["bad"]),
        (&json!(false), &json!(0))
    );
}

#[test]
fn metadata_that_cannot_be_read_are_named() {
    let dir = scratch();
    group(dir.path());
    write(
        dir.path().join("torn/zarr.json"),
        r#"{"zarr_format":3,"node_"#,
    );
    write(
        dir.path().join("attributes/.zgroup"),
        r#"{"zarr_format":2}"#,
    );
    write(dir.path().join("attributes/.zattrs"), "[1");
    array(
        &dir.path().join("edge"),
        &json!([4]),
        &regular(&json!([0])),
        &json!(["bytes"]),
    );
    array(
        &dir.path().join("good"),
        &json!([2]),
        &regular(&json!([2])),
        &json!(["bytes"]),
    );
    write(dir.path().join("good/c/0"), [1, 2]);
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    let expected = ["attributes", "edge", "torn/zarr.json"].map(str::to_owned);
    assert_eq!(keys(&document, "bad"), expected.into(), "{document}");
    assert_eq!(document["summary"]["decoded_inner_chunks"], 1);
}

#[test]
fn other_names_than_chunks_are_warnings() {
    let dir = scratch();
    array(
        dir.path(),
        &json!([4]),
        &regular(&json!([2])),
        &json!(["bytes"]),
    );
    for name in ["c/0", "c/2", "c/00", "c/0.tmp", "note", "x/y"] {
        write(dir.path().join(name), [1, 2]);
    }
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(document["ok"], true, "{document}");
    let expected = ["c/00", "c/0.tmp", "c/2", "note", "x"].map(str::to_owned);
    assert_eq!(keys(&document, "warnings"), expected.into());
    for number in 0..100 {
        write(dir.path().join(format!("stray {number}")), "");
    }
    let many = run_on("check", dir.path(), &[]);
    assert!(
        many.ok().out.contains("85 more keys are not chunks"),
        "{many:?}"
    );
    assert_eq!(
        many.out.matches("not a chunk of the array's grid").count(),
        20
    );
}

#[test]
fn a_directory_without_nodes_fails_the_check() {
    let dir = scratch();
    write(dir.path().join("some/file"), "no Zarr");
    let output = run_on("check", dir.path(), &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.out.starts_with("bad: /: no Zarr metadata"),
        "{output:?}"
    );
    assert!(output.out.ends_with("\nFAILED: 1 bad\n"), "{output:?}");
    let document = json_of(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(
        (&document["ok"], &document["summary"]["bad"]),
        (&json!(false), &json!(1))
    );
    // A hierarchy below the source makes it a collection.
    group(&dir.path().join("deep/ocean.zarr"));
    run_on("check", dir.path(), &[]).ok();
    run_on("check", dir.path(), &["--path", "deep/ocean.zarr"]).ok();
    for command in ["info", "tree"] {
        let output = run_on(command, dir.path(), &["--json"]);
        assert_eq!(output.ok().err, "");
        assert_eq!(json_of(&output)["source"], dir.path().to_str().unwrap());
        let output = run_on(command, dir.path().join("deep/ocean.zarr"), &[]);
        assert_eq!(output.ok().err, "");
    }
}

#[test]
fn an_array_with_many_bad_chunks_hides_no_other_array() {
    let dir = scratch();
    group(dir.path());
    for (name, length) in [("a", 50), ("b", 2)] {
        let path = dir.path().join(name);
        array(
            &path,
            &json!([length]),
            &regular(&json!([1])),
            &json!(["bytes"]),
        );
        for number in 0..length {
            write(path.join(format!("c/{number}")), [1, 2]);
        }
    }
    let output = run_on("check", dir.path(), &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(output.out.matches("bad: a/c/").count(), 20, "{output:?}");
    assert!(
        output
            .out
            .contains("\nbad: a: ... and 30 more (all: --json)\n"),
        "{output:?}"
    );
    assert_eq!(output.out.matches("bad: b/c/").count(), 2, "{output:?}");
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(document["schema"], "zarrfs.check/1");
    assert_eq!(keys(&document, "bad").len(), 52);
}

#[test]
fn a_good_verdict_is_green_on_a_terminal() {
    let dir = scratch();
    let command = format!("{} check demo: v3/lat", env!("CARGO_BIN_EXE_zarrfs"));
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm");
    let output = output_of(script.env_remove("NO_COLOR").current_dir(dir.path()));
    let verdict = "\u{1b}[1m\u{1b}[32mOK: everything was read and decoded";
    assert!(output.ok().out.contains(verdict), "{output:?}");
}

#[test]
fn a_directory_in_place_of_a_chunk_is_bad() {
    let dir = scratch();
    array(
        dir.path(),
        &json!([4, 4]),
        &regular(&json!([2, 2])),
        &json!(["bytes"]),
    );
    write(dir.path().join("c/0/0/file"), "");
    write(dir.path().join("c/1"), "");
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    let expected = ["c/0/0", "c/1"].map(str::to_owned);
    assert_eq!(keys(&document, "bad"), expected.into(), "{document}");
}

#[test]
fn dangling_links_and_links_out_of_the_store_are_reported() {
    let dir = scratch();
    array(
        &dir.path().join("s"),
        &json!([6]),
        &regular(&json!([2])),
        &json!(["bytes"]),
    );
    write(dir.path().join("outside"), [1, 2]);
    write(dir.path().join("s/c/0"), [1, 2]);
    symlink("nowhere", dir.path().join("s/c/1")).unwrap();
    symlink("../../outside", dir.path().join("s/c/2")).unwrap();
    let source = dir.path().join("s");
    let document = checked(&run_on("check", &source, &["--json"]));
    assert_eq!(
        keys(&document, "bad"),
        ["c/1".to_owned(), "c/2".to_owned()].into(),
        "{document}"
    );
    let followed = checked(&run_on("check", &source, &["--json", "--follow-symlinks"]));
    assert_eq!(
        keys(&followed, "bad"),
        ["c/1".to_owned()].into(),
        "{followed}"
    );
}

#[test]
fn a_zip_entry_with_a_wrong_crc_is_named_even_if_it_is_no_chunk() {
    let mut bytes = fs::read(fixture("zip/v2-flat-zip-r.zip")).unwrap();
    let dir = scratch();
    let path = dir.path().join("store.zip");
    // The JSON is still equivalent, so only the checksum detects the change.
    let at = bytes
        .windows(18)
        .position(|window| window == b"\"zarr_format\": 2\n}")
        .expect("a stored .zgroup");
    bytes[at + 14] = b'\t';
    fs::write(&path, bytes).unwrap();
    let document = checked(&run_on("check", &path, &["--json"]));
    assert_eq!(document["summary"]["bad"], 1, "{document}");
    let bad = &document["bad"][0];
    assert!(bad["key"].as_str().unwrap().ends_with(".zgroup"), "{bad}");
    assert!(
        bad["cause"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("crc"),
        "{bad}"
    );
}

#[test]
fn a_chunk_that_needs_more_memory_than_allowed_is_bad_and_not_skipped() {
    let dir = scratch();
    array(
        dir.path(),
        &json!([4_194_304]),
        &regular(&json!([4_194_304])),
        &json!(["bytes", "gzip"]),
    );
    write(dir.path().join("c/0"), [0x1f, 0x8b]);
    let output = run_on("check", dir.path(), &["--memory-limit", "1MiB"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output
            .out
            .contains("bad: c/0: needs 4194306 bytes of memory"),
        "{output:?}"
    );
}

#[test]
fn check_visits_only_stored_chunks_of_a_huge_grid() {
    let dir = scratch();
    let shape = json!([1_u64 << 30, 1_u64 << 30]);
    array(
        dir.path(),
        &shape,
        &regular(&json!([1, 1])),
        &json!(["bytes"]),
    );
    write(dir.path().join("c/1073741823/7"), [1]);
    let document = checked(&run_on("check", dir.path(), &["--json"]));
    assert_eq!(
        (&document["ok"], &document["summary"]["chunks"]),
        (&json!(true), &json!(1))
    );
}

#[test]
fn a_check_with_a_closed_pipe_ends_without_success() {
    let dir = scratch();
    array(
        dir.path(),
        &json!([200_000]),
        &regular(&json!([1])),
        &json!(["bytes"]),
    );
    for number in 0..5_000 {
        write(dir.path().join(format!("c/{number}")), [1, 2]);
    }
    let script = r#"set -o pipefail; "$1" check "$2" | head -n 1"#;
    let output = output_of(
        Command::new("bash")
            .args(["-c", script, "bash", env!("CARGO_BIN_EXE_zarrfs")])
            .arg(dir.path()),
    );
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.out.starts_with("bad: c/") && output.err.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_terminal_gets_a_progress_bar() {
    let dir = scratch();
    let store = fixture("zip/v2-many-entries.zip");
    let command = format!("{} check {}", env!("CARGO_BIN_EXE_zarrfs"), store.display());
    let output = output_of(
        Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(dir.path()),
    );
    assert!(output.ok().out.contains(" left)"), "{output:?}");
    assert!(output.out.contains("1 array, 66000 chunks"), "{output:?}");
    let quiet = run_on("check", &store, &[]);
    assert!(
        !quiet.ok().err.contains(" left)") && !quiet.out.contains('\x1b'),
        "{quiet:?}"
    );
}

/// Returns the peak memory of a command in bytes, and its output.
fn peak_of(command: &Command) -> (u64, String) {
    let script = "import resource, subprocess, sys\n\
                  done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n\
                  print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n\
                  print(done.returncode, done.stdout, done.stderr)";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(command.get_program());
    let text = run(python.args(command.get_args()));
    let (peak, rest) = text.split_once('\n').unwrap();
    (peak.parse().unwrap(), rest.to_owned())
}

#[test]
fn chunks_that_declare_very_many_elements_stay_within_the_memory_limit() {
    let elements: u64 = 1 << 28;
    for codec in [
        "vlen-utf8",
        "vlen-bytes",
        "vlen-array",
        "json2",
        "msgpack2",
        "categorize",
    ] {
        let dir = scratch();
        let filter = match codec {
            "vlen-array" => json!({"id": codec, "dtype": "<i4"}),
            "categorize" => {
                json!({"id": codec, "labels": ["a", "b"], "dtype": "|O", "astype": "|u1"})
            }
            _ => json!({"id": codec}),
        };
        let array = json!({"zarr_format": 2, "shape": [elements * 8], "chunks": [elements],
            "dtype": "|O", "filters": [filter], "compressor": {"id": "zstd", "level": 1},
            "fill_value": null, "order": "C"});
        fs::write(dir.path().join(".zarray"), array.to_string()).unwrap();
        // Valid empty elements would take 4 bytes each: 1 GiB of zeros in total.
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        let claim = u32::try_from(elements).unwrap().to_le_bytes();
        std::io::Write::write_all(&mut encoder, &claim).unwrap();
        for _ in 0..256 {
            std::io::Write::write_all(&mut encoder, &vec![0; 1 << 20]).unwrap();
        }
        let chunk = encoder.finish().unwrap();
        for number in 0..8 {
            fs::write(dir.path().join(number.to_string()), &chunk).unwrap();
        }
        let mut check = zarrfs();
        check
            .arg("check")
            .arg(dir.path())
            .args(["--memory-limit", "64MiB", "--jobs", "8"]);
        let (peak, text) = peak_of(&check);
        assert!(
            text.starts_with('1') && text.contains("bytes of memory"),
            "{codec}: {text}"
        );
        assert!(peak <= 128 << 20, "{codec}: {peak} bytes");
    }
}
