//! `zarrfs tree` and `zarrfs info`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::output_of;
use crate::stores::*;
use crate::support::*;

/// Returns the nodes of `tree --json` by their paths.
fn nodes(document: &Value) -> BTreeMap<String, Value> {
    let nodes = document["nodes"].as_array().unwrap().iter();
    nodes
        .map(|node| (node["path"].as_str().unwrap().to_owned(), node.clone()))
        .collect()
}

#[test]
fn the_demo_store_is_drawn_as_a_tree() {
    let output = run_on("tree", "demo:", &[]);
    let lines: Vec<&str> = output.ok().out.lines().collect();
    assert_eq!(lines[0], "demo  (group)");
    assert_eq!(lines[1], "|-- v2  (group)");
    assert_eq!(
        lines[3],
        "|   |   |-- nino34  float32 (time 12)  degree_Celsius  chunks (6)  zlib  48 B  66 B stored (0.72)"
    );
    let last = "    `-- time  int32 (time 12)  days since 2023-01-01  chunks (12)  bytes  48 B  48 B stored (1.00)";
    assert_eq!(lines[lines.len() - 2], last);
    let totals = lines.last().unwrap();
    assert!(totals.starts_with("3 groups, 12 arrays, "), "{totals}");
    assert!(
        totals.contains(" decoded, ") && totals.contains(" stored (ratio "),
        "{totals}"
    );
    let part = run_on("tree", "demo:", &["--path", "v3/t2m"]);
    let line = "demo: v3/t2m  float32 (time 12, lat 32, lon 64)  K  chunks (3, 16, 32)  bytes | zstd  \
                96.0 KiB  23.2 KiB stored (4.12)\n";
    assert_eq!(part.ok().out, line);
}

#[test]
fn depth_limits_the_levels() {
    // The last line has the totals, if there are any.
    for (depth, lines) in [("0", 1), ("1", 4), ("2", 15), ("99", 17)] {
        let output = run_on("tree", "demo:", &["--depth", depth]);
        assert_eq!(
            output.ok().out.lines().count(),
            lines,
            "{depth}: {output:?}"
        );
    }
}

#[test]
fn boxes_are_drawn_on_a_terminal_of_utf_8() {
    let dir = scratch();
    let command = format!("{} tree demo: --depth 1", env!("CARGO_BIN_EXE_zarrfs"));
    let on_terminal = |locale: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]);
        script.env("LC_ALL", locale).env("NO_COLOR", "1");
        output_of(script.current_dir(dir.path()))
    };
    let utf8 = on_terminal("C.UTF-8");
    assert!(
        utf8.ok().out.contains("├── v2") && utf8.out.contains("└── v3"),
        "{utf8:?}"
    );
    let ascii = on_terminal("C");
    assert!(
        ascii.ok().out.is_ascii() && ascii.out.contains("`-- v3"),
        "{ascii:?}"
    );
}

#[test]
fn a_terminal_gets_colours_and_columns_and_a_program_neither() {
    let dir = scratch();
    let command = format!("{} tree demo: --path v3", env!("CARGO_BIN_EXE_zarrfs"));
    let on_terminal = |variables: &[(&str, &str)]| {
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]);
        for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            script.env_remove(variable);
        }
        script
            .env("TERM", "xterm")
            .env("LC_ALL", "C")
            .env("CI", "true");
        script
            .envs(variables.iter().copied())
            .current_dir(dir.path());
        output_of(&mut script).ok().out.replace("\r\n", "\n")
    };
    let coloured = on_terminal(&[]);
    assert!(coloured.contains("\u{1b}[1mlat\u{1b}[0m"), "{coloured:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(&[variable]);
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
        let columns: Vec<_> = plain.lines().map(|line| line.find("chunks")).collect();
        let columns = &columns[1..columns.len() - 1];
        assert!(
            columns[0].is_some() && columns.iter().all(|c| *c == columns[0]),
            "{plain}"
        );
    }
    let piped = run_on("tree", "demo:", &["--path", "v3"]);
    assert!(
        !piped.ok().out.contains('\u{1b}') && !piped.out.contains("   float32"),
        "{piped:?}"
    );
}

#[test]
fn the_tree_fits_a_terminal_of_80_columns() {
    let dir = scratch();
    for command in [
        "stty rows 24 cols 80; zarrfs tree demo:",
        "stty rows 24 cols 60; zarrfs tree demo:",
    ] {
        let path = Path::new(env!("CARGO_BIN_EXE_zarrfs")).parent().unwrap();
        let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
        let mut script = Command::new("script");
        script.args(["-qec", command, "/dev/null"]);
        script
            .env("PATH", path)
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8");
        let output = output_of(script.current_dir(dir.path()));
        let width = if command.contains("80") { 80 } else { 60 };
        let rows = output.ok().out.lines();
        for line in rows.filter(|line| !line.contains(" arrays, ")) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        assert!(
            output
                .out
                .contains("t2m_sharded  float32 (time 12, lat 32, "),
            "{output:?}"
        );
        assert!(output.out.contains("96.0 KiB"), "{output:?}");
    }
}

#[test]
fn a_group_is_shown_with_its_dimensions_coordinates_and_variables() {
    let output = run_on("info", "demo:", &["v3"]);
    for words in [
        "demo: v3: group, Zarr v3\n    5 arrays, 192.4 KiB decoded, ",
        "\nDimensions:\n    lat = 32\n    lon = 64\n    time = 12\n",
        "\nCoordinates:\n    lat  float32 (lat 32)  degrees_north  ",
        "\n    time  int32 (time 12)  days since 2023-01-01  2023-01-1",
        " to 2023-12-1",
        "\n        calendar: standard\n",
        "\nVariables:\n    t2m  float32 (time 12, lat 32, lon 64)  K\n        96.0 KiB, 23.2 KiB stored (ratio 4.12), \
         chunks (3, 16, 32), bytes | zstd\n",
        "\n        long_name: 2 metre temperature\n",
        "\nAttributes:\n    title: Air temperature of an invented planet\n",
        "\nViews:\n",
    ] {
        assert!(output.ok().out.contains(words), "{words:?}: {}", output.out);
    }
    let json = json_of(run_on("info", "demo:", &["v3", "--json"]).ok());
    assert_eq!(json["schema"], "zarrfs.info/1");
    assert_eq!(json["attribute_count"], 3, "{json}");
    assert_eq!(json["dimensions"][2], json!({"name": "time", "length": 12}));
    let arrays = json["arrays"].as_array().unwrap();
    let named = |name: &str| arrays.iter().find(|array| array["name"] == name).unwrap();
    assert_eq!(named("t2m")["type_name"], "float32");
    assert_eq!(named("t2m")["ratio"], 4.12);
    assert_eq!(named("time")["values"]["first"].as_i64(), Some(15));
    assert_eq!(named("time")["values"]["first_date"], "2023-01-16T00:00:00");
    assert_eq!(json["totals"]["arrays"], 5);
    // A group names its subgroups.
    let output = run_on("info", "demo:", &["v2"]);
    assert!(
        output.ok().out.contains("\nGroups:\n    indices\n"),
        "{output:?}"
    );
    assert!(
        output.out.contains("without those of the groups in it"),
        "{output:?}"
    );
}

#[test]
fn encoded_fill_values_and_long_attributes_are_printed_readably() {
    let dir = scratch();
    group(dir.path());
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [2], "fill_value": 0,
        "data_type": "float64", "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "chunk_grid": regular(&json!([2])), "chunk_key_encoding": "default",
        "attributes": {"_FillValue": "AAAAAAAA+H8=", "history": "x".repeat(5000)}});
    write(dir.path().join("x/zarr.json"), document.to_string());
    for arguments in [&[][..], &["x"]] {
        let output = run_on("info", dir.path(), arguments);
        assert!(output.ok().out.contains("_FillValue: NaN\n"), "{output:?}");
        let longest = output.out.lines().map(str::len).max().unwrap();
        assert!((100..1100).contains(&longest), "{longest}");
    }
    let json = json_of(run_on("info", dir.path(), &["x", "--json"]).ok());
    assert_eq!(json["attributes"]["history"].as_str().unwrap().len(), 5000);
}

#[test]
fn values_that_cannot_be_read_are_a_note() {
    let dir = copy_of("dir/v3-xarray");
    let store = dir.path().join("store");
    let before = run_on("info", &store, &[]);
    assert!(before.ok().out.contains("\nCoordinates:\n"), "{before:?}");
    for key in chunk_keys(&store) {
        fs::write(store.join(key), "torn").unwrap();
    }
    let after = run_on("info", &store, &[]);
    assert!(
        after.ok().out.contains("        ! lat/c/0: corrupt"),
        "{after:?}"
    );
    assert!(after.out.contains("\nVariables:\n"), "{after:?}");
}

#[test]
fn info_and_the_readme_of_a_mount_name_the_same_views() {
    let mount = Mount::new(fixture("dir/v3"));
    for node in ["", "a", "words", "scalar", "raw"] {
        let readme = fs::read_to_string(mount.join(node).join(".zarrfs/README.txt")).unwrap();
        let arguments: &[&str] = if node.is_empty() {
            &["--json"]
        } else {
            &[node, "--json"]
        };
        let info = json_of(run_on("info", fixture("dir/v3"), arguments).ok());
        for (name, view) in info["views"].as_object().unwrap() {
            let line = match view["reason"].as_str() {
                None => format!("\n{name}  ("),
                Some(reason) => format!("\n{name}: {reason}\n"),
            };
            assert!(
                readme.contains(&line),
                "{node}: {line:?} is not in {readme}"
            );
        }
    }
}

#[test]
fn every_fixture_is_one_json_document_with_all_its_arrays() {
    for kind in ["dir", "zip"] {
        for entry in fs::read_dir(fixture(kind)).unwrap() {
            let path = entry.unwrap().path();
            let options = [&["--json"], folder_of(&path)].concat();
            let tree = run_on("tree", &path, &options);
            let tree = nodes(&json_of(tree.ok()));
            let arrays = |node: &&Value| node["node_type"] == "array";
            let found = tree.values().filter(arrays).count();
            let check = json_of(run_on("check", &path, &options).ok());
            assert_eq!(found, check["arrays"].as_array().unwrap().len(), "{path:?}");
            for node in tree.values() {
                assert!(node.get("unreadable").is_none(), "{path:?}: {node}");
            }
        }
    }
}

#[test]
fn consolidated_metadata_show_the_same_tree_as_the_documents() {
    let dir = copy_of("dir/v2-consolidated");
    let store = dir.path().join("store");
    let with = nodes(&json_of(run_on("tree", &store, &["--json"]).ok()));
    fs::remove_file(store.join(".zmetadata")).unwrap();
    let mut without = nodes(&json_of(run_on("tree", &store, &["--json"]).ok()));
    // Only the store itself knows directories that are not nodes.
    without.retain(|_, node| node["node_type"] != "directory");
    assert_eq!(with, without);
    assert!(with.len() > 40);
}

#[test]
fn an_invalid_node_does_not_stop_the_tree() {
    let dir = scratch();
    group(dir.path());
    write(
        dir.path().join("a torn/zarr.json"),
        "{\"zarr_format\": 3,\n x",
    );
    write(
        dir.path().join("b attributes/.zgroup"),
        r#"{"zarr_format":2}"#,
    );
    write(dir.path().join("b attributes/.zattrs"), "[1");
    array(
        &dir.path().join("c odd"),
        &json!([2]),
        &regular(&json!([2])),
        &json!(["bytes", "mystery"]),
    );
    array(
        &dir.path().join("d edge"),
        &json!([2]),
        &regular(&json!([0])),
        &json!(["bytes"]),
    );
    fs::create_dir(dir.path().join("e plain")).unwrap();
    array(
        &dir.path().join("f good"),
        &json!([2]),
        &regular(&json!([2])),
        &json!(["bytes"]),
    );
    let output = run_on("tree", dir.path(), &[]);
    let lines: Vec<&str> = output.ok().out.lines().collect();
    for (line, words) in lines[1..7].iter().zip([
        "|-- a torn  ! zarr.json: line 2",
        "|-- b attributes  (group)  ! ",
        "|-- c odd  uint8 (2)  chunks (2)  bytes | mystery  2 B  0 B stored  ! codec mystery is not supported",
        "|-- d edge  uint8 (2)  chunks ?  bytes  2 B  0 B stored  ! chunk grid: the chunk shape is 0 along axis 0",
        "|-- e plain  (directory)",
        "`-- f good  uint8 (2)  chunks (2)  bytes  2 B  0 B stored",
    ]) {
        assert!(line.starts_with(words), "{line:?} is not {words:?}");
    }
    assert_eq!(lines[7..], ["1 group, 3 arrays, 6 B decoded, 0 B stored"]);
    let tree = nodes(&json_of(run_on("tree", dir.path(), &["--json"]).ok()));
    assert_eq!(tree["a torn"]["node_type"], "broken");
    assert_eq!(
        tree["c odd"]["unreadable"],
        "codec mystery is not supported"
    );
    assert_eq!(tree["f good"]["size_bytes"], 2);
    run_on("info", dir.path().join("e plain"), &[]).failed(1, &["no zarr metadata", "it is empty"]);
    for name in ["a torn", "b attributes", "c odd", "d edge"] {
        let source = dir.path().join(name);
        let info = json_of(run_on("info", &source, &["--json"]).ok());
        assert_eq!(info["node_type"], tree[name]["node_type"], "{name}");
        run_on("info", &source, &[]).ok();
    }
}

#[test]
fn documents_replace_invalid_consolidated_metadata() {
    let dir = copy_of("dir/v2-consolidated");
    let store = dir.path().join("store");
    fs::write(store.join(".zmetadata"), "{").unwrap();
    let output = run_on("tree", &store, &[]);
    assert!(
        output.ok().out.contains("! consolidated metadata: line 1"),
        "{output:?}"
    );
    assert!(output.out.lines().count() > 40, "{output:?}");
    let check = run_on("check", &store, &[]);
    assert_eq!(check.code, Some(1));
    assert!(
        check.out.contains("consolidated metadata: line 1"),
        "{check:?}"
    );
}

#[test]
fn hostile_names_and_metadata_are_escaped() {
    let dir = scratch();
    group(dir.path());
    group(&dir.path().join("x\x1b[2J\ny"));
    group(&dir.path().join(OsStr::from_bytes(b"\xff\xfe")));
    let codec = json!(["bytes", "\u{1b}]0;title\u{7}"]);
    array(
        &dir.path().join("z"),
        &json!([2]),
        &regular(&json!([2])),
        &codec,
    );
    write(
        dir.path().join("huge/zarr.json"),
        vec![b' '; (16 << 20) + 1],
    );
    write(dir.path().join("deep/zarr.json"), "[".repeat(200_000));
    for command in ["tree", "info", "check"] {
        let output = run_on(command, dir.path(), &[]);
        let is_plain = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n');
        assert!(is_plain(&output.out) && is_plain(&output.err), "{output:?}");
        assert!(!output.err.contains("panicked"), "{output:?}");
        json_of(&run_on(command, dir.path(), &["--json"]));
    }
    let output = run_on("tree", dir.path(), &[]);
    for words in [
        "x\\u{1b}[2J\\ny  (group)",
        "huge  ! zarr.json: 16777217 bytes of metadata",
        "deep  ! zarr.json: line 1",
    ] {
        assert!(output.ok().out.contains(words), "{words}: {output:?}");
    }
    assert_eq!(output.out.lines().count(), 7);
}

#[test]
fn an_endless_hierarchy_is_truncated() {
    let dir = scratch();
    let mut path = dir.path().to_owned();
    for _ in 0..300 {
        path.push("d");
    }
    fs::create_dir_all(&path).unwrap();
    let output = run_on("tree", dir.path(), &[]);
    assert_eq!(output.ok().out.lines().count(), 257, "{output:?}");
    assert!(
        output.out.contains("deeper levels are not shown"),
        "{output:?}"
    );
    let check = run_on("check", dir.path(), &[]);
    assert_eq!(check.code, Some(1), "{check:?}");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let dir = scratch();
    group(dir.path());
    for number in 0..4_000 {
        group(
            &dir.path()
                .join(format!("a group with quite a long name {number}")),
        );
    }
    for arguments in ["tree", "tree --json", "completions bash", "man mount"] {
        let source = if arguments.starts_with("tree") {
            "\"$2\""
        } else {
            ""
        };
        let script = format!("set -o pipefail; \"$1\" {arguments} {source} | head -n 1");
        let output = output_of(
            Command::new("bash")
                .args(["-c", &script, "bash", env!("CARGO_BIN_EXE_zarrfs")])
                .arg(dir.path()),
        );
        assert!(output.ok().err.is_empty(), "{arguments}: {output:?}");
        assert_eq!(output.out.lines().count(), 1);
    }
    let full = output_of(
        Command::new("bash")
            .args(["-c", "\"$1\" tree demo: >/dev/full", "bash"])
            .arg(env!("CARGO_BIN_EXE_zarrfs")),
    );
    full.failed(1, &["no space"]);
}

#[test]
fn a_missing_source_is_named() {
    for command in ["tree", "info", "check"] {
        run_on(command, "demo:", &["--path", "v2/nothing"])
            .failed(1, &["demo", "v2/nothing", "no such key"]);
        run_on(command, "demo:", &["--path", "v2/.zgroup"]).failed(1, &["v2/.zgroup", "a value"]);
        run_on(command, "demo:", &["--path", "a/../b"]).failed(2, &["--path a/../b"]);
        run_on(command, "/nowhere/at/all", &[]).failed(1, &["/nowhere/at/all", "no such file"]);
        let secret = run_on(command, "s3://key:secret@host/bucket", &[]);
        secret.failed(1, &["s3"]);
        assert!(!secret.err.contains("secret"), "{secret:?}");
        run_on(command, "demo:", &["--bogus"]).failed(2, &["--bogus"]);
    }
    run_on("check", "demo:", &["--jobs", "0"]).failed(2, &["--jobs"]);
}

#[test]
fn info_counts_the_stored_chunks() {
    let dir = scratch();
    let crc = json!(["bytes", "crc32c"]);
    array(dir.path(), &json!([12]), &regular(&json!([4])), &crc);
    write(dir.path().join("c/0"), with_crc32c(&[1, 2, 3, 4]));
    write(dir.path().join("c/2"), with_crc32c(&[5, 6, 7, 8]));
    write(dir.path().join("note"), "no chunk");
    let info = json_of(run_on("info", dir.path(), &["--json"]).ok());
    let name = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
    for (name, value) in [
        ("chunks_present", json!(2)),
        ("chunks_total", json!(3)),
        ("chunks_counted", json!(true)),
        ("chunks_absent", json!(1)),
        ("absent_keys", json!(["c/1"])),
        ("stored_bytes", json!(16)),
        ("other_keys", json!(1)),
        ("ratio", json!(0.5)),
        ("codec_chain", json!("bytes | crc32c")),
    ] {
        assert_eq!(info[name], value, "{name}: {info}");
    }
    assert_eq!(
        info["views"][format!("{name}.bin")],
        json!({"available": true, "size_bytes": 12})
    );
    assert_eq!(info["views"]["inner"]["available"], false);
    let lines = run_on("info", dir.path(), &[]);
    assert!(
        lines.ok().out.contains("stored bytes       16 (16 B)\n"),
        "{lines:?}"
    );
    assert!(
        lines.out.contains("no inner: its chunks are no shards"),
        "{lines:?}"
    );
}

#[test]
fn info_responds_at_once_for_a_grid_of_a_billion_billion_chunks() {
    let dir = scratch();
    let shape = json!([1_u64 << 30, 1_u64 << 30]);
    array(
        dir.path(),
        &shape,
        &regular(&json!([1, 1])),
        &json!(["bytes"]),
    );
    let info = json_of(run_on("info", dir.path(), &["--json"]).ok());
    assert_eq!(info["chunks_total"], 1_u64 << 60);
    assert_eq!(info["chunks_present"], 0);
    assert_eq!(info.get("chunks_absent"), None);
}

#[test]
fn info_prints_the_reason_for_missing_views() {
    let words = json_of(run_on("info", fixture("dir/v3"), &["--path", "words", "--json"]).ok());
    assert_eq!(words["views"]["words.json"]["available"], true, "{words}");
    let reason = words["views"]["words.npy"]["reason"].as_str().unwrap();
    assert!(reason.contains("variable length"), "{reason}");
    let group = json_of(run_on("info", "demo:", &["--path", "v2", "--json"]).ok());
    assert_eq!(group["attributes"]["Conventions"], "CF-1.11");
}
