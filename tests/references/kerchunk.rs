//! References of local files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::io::Errno;
use serde_json::json;

use crate::support::*;
use crate::{copied, fixtures, is_equal, is_equal_at};

/// The reference files, and their arrays.
const ALL: [(&str, &str); 13] = [
    ("plain.json", "plain"),
    ("plain-v0.json", "plain"),
    ("climate.json", "climate"),
    ("climate-v0.json", "climate"),
    ("classic.json", "classic"),
    ("offset.json", "offset"),
    ("combined.json", "combined"),
    ("combined.json.gz", "combined"),
    ("combined.json.zst", "combined"),
    ("combined.parq", "combined"),
    ("combined.parq.zip", "combined"),
    ("virtual.json", "combined"),
    ("virtual.parq", "combined"),
];

#[test]
fn every_array_equals_the_one_that_the_library_of_its_format_reads() {
    for (references, expected) in ALL {
        let mount = Mount::new(fixtures().join(references));
        is_equal(&mount, expected);
        mount.unmount();
    }
}

/// A mount in the background, which is unmounted when this is dropped.
struct Background(tempfile::TempDir);

impl Drop for Background {
    fn drop(&mut self) {
        // The test may have failed before the mount.
        let _ = zarrfs().arg("umount").arg(self.0.path()).output();
    }
}

#[test]
fn references_in_the_current_directory_are_mounted_in_the_background() {
    for (references, expected) in [("plain.json", "plain"), ("combined.parq", "combined")] {
        let mount = Background(scratch());
        run(zarrfs()
            .current_dir(fixtures())
            .arg(references)
            .arg(mount.0.path()));
        is_equal_at(mount.0.path(), expected);
    }
}

#[test]
fn an_archive_of_the_directory_of_parquet_references_is_a_collection() {
    let archive = fixtures().join("nested.zip");
    let mount = Mount::new(&archive);
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    assert!(readme.contains("combined.parq/.zarrfs"), "{readme}");
    let inside = fs::read(mount.join("combined.parq/v/0.0.0")).unwrap();
    mount.unmount();
    let mount = Mount::with(&archive, &["--path", "combined.parq"]);
    is_equal(&mount, "combined");
    assert_eq!(fs::read(mount.join("v/0.0.0")).unwrap(), inside);
    mount.unmount();
    let inside = format!("{}|zip:combined.parq", archive.display());
    let mount = Mount::new(inside);
    is_equal(&mount, "combined");
    mount.unmount();
}

#[test]
fn native_keys_are_the_bytes_of_their_references() {
    let mount = Mount::new(fixtures().join("plain.json"));
    let file = fs::read(fixtures().join("plain.h5")).unwrap();
    let text = fs::read(fixtures().join("plain.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let (mut ranges, mut texts) = (0, 0);
    for (key, value) in json["refs"].as_object().unwrap() {
        let path = mount.join(key);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, path.metadata().unwrap().size(), "{key}");
        match value {
            serde_json::Value::String(text) if !text.starts_with("base64:") => {
                assert_eq!(bytes, text.as_bytes(), "{key}");
                texts += 1;
            }
            serde_json::Value::Array(list) => {
                let start = list[1].as_u64().unwrap() as usize;
                let length = list[2].as_u64().unwrap() as usize;
                assert_eq!(bytes, file[start..start + length], "{key}");
                ranges += 1;
            }
            _ => {}
        }
    }
    assert!(ranges > 50 && texts > 10, "{ranges} ranges, {texts} texts");
    // Chunks of the file that were never written have no references.
    assert!(mount.join("g/holes/1.1").exists() && !mount.join("g/holes/3.3").exists());
    assert!(!mount.join("g/absent").exists());
    let listed = fs::read_dir(mount.join("filtered")).unwrap().count();
    assert_eq!(listed, 40 + 2);
    mount.unmount();
}

#[test]
fn a_listing_of_parquet_references_has_all_chunks_of_all_partitions() {
    let mount = Mount::new(fixtures().join("combined.parq"));
    let listed = sh(&format!("ls {} | sort", mount.join("v").display()));
    let chunks: Vec<String> = (0..8)
        .flat_map(|t| ["0.0", "0.1", "1.0", "1.1"].map(|rest| format!("{t}.{rest}")))
        .collect();
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), chunks);
    assert!(!mount.join("v/8.0.0").exists() && !mount.join("v/0.0").exists());
    mount.unmount();
}

#[test]
fn names_of_templates_are_replaced() {
    let directory = copied();
    let path = directory.path().join("templates.json");
    let text = fs::read_to_string(&path).unwrap();
    for prefix in ["", "./", directory.path().join("x/../").to_str().unwrap()] {
        fs::write(&path, text.replace("\"PREFIX\"", &format!("\"{prefix}\""))).unwrap();
        let mount = Mount::new(&path);
        is_equal(&mount, "combined");
        mount.unmount();
    }
}

/// Writes references to an array of 6 numbers, in 2 chunks whose values are in these targets. `long` is a template
/// with more bytes than a URL may have.
fn with_values(path: &std::path::Path, chunks: [serde_json::Value; 2]) {
    let zarray = json!({
        "zarr_format": 2, "shape": [6], "chunks": [3], "dtype": "<i2", "fill_value": 7,
        "order": "C", "compressor": null, "filters": null
    });
    let long = format!(
        "data:application/octet-stream;base64,{}AAECAwQF",
        "A".repeat(40_000)
    );
    let templates = json!({"u": "data:;base64,AAECAwQF", "v": "base64:AAECAwQF", "long": long, "t": "AAECAwQF"});
    let refs = json!({
        ".zgroup": "{\"zarr_format\": 2}", "x/.zarray": zarray.to_string(), "x/0": chunks[0], "x/1": chunks[1],
    });
    let references = json!({"version": 1, "templates": templates, "refs": refs});
    fs::write(path, references.to_string()).unwrap();
}

#[test]
fn targets_that_are_values_are_decoded_also_by_a_template() {
    let directory = scratch();
    let path = directory.path().join("values.json");
    for target in [
        json!(["data:text/plain;base64,AAECAwQF"]),
        json!(["data:;base64,AAECAwQF", 0, 6]),
        json!(["data:,%00%01%02%03%04%05"]),
        json!(["base64:AAECAwQF"]),
        json!(["base64:/wABAgMEBQ", 1, 6]),
        json!(["{{u}}"]),
        json!(["{{ u }}", 0, 6]),
        json!(["{{v}}"]),
        json!(["{{long}}", 30_000, 6]),
        json!(["data:;base64,{{t}}"]),
    ] {
        with_values(&path, [target.clone(), json!(["{{u}}"])]);
        let mount = Mount::new(&path);
        assert_eq!(
            read(mount.join("x/0")).unwrap(),
            [0, 1, 2, 3, 4, 5],
            "{target}"
        );
        assert_eq!(
            fs::metadata(mount.join("x/0")).unwrap().len(),
            6,
            "{target}"
        );
        let elements = read(mount.join("x/.zarrfs/x.bin")).unwrap();
        assert_eq!(elements, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5], "{target}");
        mount.unmount();
    }
}

/// Writes references to arrays of the texts `a`, `bc` and the empty text, in each object codec that can hold them, and
/// to two arrays of objects that are no text.
fn with_texts(path: &std::path::Path) {
    let json2 = || json!({"id": "json2", "encoding": "utf-8", "allow_nan": true, "strict": true});
    let labels = json!({"id": "categorize", "labels": ["a", "bc"], "dtype": "|O", "astype": "|u1"});
    let mut refs = serde_json::Map::new();
    refs.insert(".zgroup".into(), json!("{\"zarr_format\": 2}"));
    for (name, codec, chunk) in [
        ("json2", json2(), "[\"a\",\"bc\",\"\",\"|O\",[3]]"),
        ("missing", json2(), "[\"a\",\"bc\",null,\"|O\",[3]]"),
        (
            "msgpack2",
            json!({"id": "msgpack2"}),
            "base64:laFhomJjoKJ8T5ED",
        ),
        ("categories", labels, "base64:AQIA"),
        (
            "vlen",
            json!({"id": "vlen-utf8"}),
            "base64:AwAAAAEAAABhAgAAAGJjAAAAAA==",
        ),
        ("number", json2(), "[\"a\",1,\"\",\"|O\",[3]]"),
        ("nan", json2(), "[NaN,NaN,NaN,\"|O\",[3]]"),
    ] {
        let zarray = json!({
            "zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|O", "fill_value": null,
            "order": "C", "compressor": null, "filters": [codec]
        });
        refs.insert(format!("{name}/.zarray"), json!(zarray.to_string()));
        refs.insert(
            format!("{name}/.zattrs"),
            json!("{\"_ARRAY_DIMENSIONS\": [\"st\"]}"),
        );
        refs.insert(format!("{name}/0"), json!(chunk));
    }
    fs::write(path, json!({"version": 1, "refs": refs}).to_string()).unwrap();
}

const TEXTS: [&str; 5] = ["categories", "json2", "missing", "msgpack2", "vlen"];

/// Returns the texts that zarr-python reads from `as-v3`, with and without consolidated metadata.
fn translated_texts(mount: &Mount) -> String {
    let script = "import sys, zarr
for name in sys.argv[2:]:
    found = [zarr.open_group(sys.argv[1], mode='r', use_consolidated=use)[name] for use in (True, False)]
    assert all(array.metadata.zarr_format == 3 for array in found)
    assert found[0][:].tolist() == found[1][:].tolist()
    print(found[0][:].tolist())";
    let python =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references/.venv/bin/python");
    let mut client = Command::new(python);
    client.args(["-c", script]).arg(mount.join(".zarrfs/as-v3"));
    run(client.args(TEXTS))
}

/// kerchunk writes the strings of NetCDF-4 with `json2`.
#[test]
fn objects_that_are_all_text_are_text_in_views() {
    let directory = scratch();
    let path = directory.path().join("texts.json");
    with_texts(&path);
    let mount = Mount::new(&path);
    let views = mount.join(".zarrfs");
    let view = |name: &str| views.join(name).display().to_string();
    let nc = sh(&format!("ncdump {}", view("root.nc")));
    let classic = sh(&format!("ncdump {}", view("root.cdf.nc")));
    let h5 = sh(&format!("h5dump {}", view("root.h5")));
    for name in TEXTS {
        assert!(nc.contains(&format!("string {name}(st)")), "{nc}");
        assert!(nc.contains(&format!("{name} = \"a\", \"bc\", _")), "{nc}");
        assert!(
            classic.contains(&format!("char {name}(st, string2)")),
            "{classic}"
        );
        assert!(h5.contains(&format!("DATASET \"{name}\"")), "{h5}");
    }
    assert!(!nc.contains("number") && !nc.contains("nan"), "{nc}");
    assert_eq!(
        h5.matches("(0): \"a\", \"bc\", \"\"").count(),
        TEXTS.len(),
        "{h5}"
    );
    let csv = fs::read_to_string(views.join("root.csv")).unwrap();
    let rows = [
        "row,categories,json2,missing,msgpack2,vlen".to_owned(),
        format!("0{}", ",\"a\"".repeat(5)),
        format!("1{}", ",\"bc\"".repeat(5)),
        format!("2{}", ",\"\"".repeat(5)),
    ];
    let lines: Vec<&str> = csv.lines().map(str::trim_start).collect();
    assert_eq!(lines, rows);
    assert!(
        fs::read(views.join("root.parquet"))
            .unwrap()
            .starts_with(b"PAR1")
    );
    assert_eq!(
        translated_texts(&mount),
        "['a', 'bc', '']\n".repeat(TEXTS.len())
    );
    assert!(!views.join("as-v3/number").exists() && !views.join("as-v3/nan").exists());
    let readme = fs::read_to_string(views.join("README.txt")).unwrap();
    assert!(readme.contains("nan is not in it: elements of variable length that are no text"));
    mount.unmount();
}

#[test]
fn many_files_become_one_netcdf_file() {
    let mount = Mount::new(fixtures().join("combined.json"));
    let view = sh(&format!(
        "ls {}/.zarrfs/*.nc | head -n 1",
        mount.path().display()
    ));
    let header = sh(&format!("ncdump -h {}", view.trim()));
    assert!(
        header.contains("short v(time, lat, lon)")
            && header.contains("time = UNLIMITED ; // (8 currently)"),
        "{header}"
    );
    mount.unmount();
}

#[test]
fn an_unknown_codec_is_named_at_its_array_only() {
    let directory = copied();
    let path = directory.path().join("plain.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (array, codec) in [
        ("filtered", "fill_hdf_strings"),
        ("big", "imagecodecs_jpeg2k"),
    ] {
        let name = format!("{array}/.zarray");
        let document = &json["refs"][&name];
        let mut zarray: serde_json::Value = match document {
            serde_json::Value::String(text) => serde_json::from_str(text).unwrap(),
            other => other.clone(),
        };
        zarray["filters"] = serde_json::json!([{"id": codec}]);
        json["refs"][&name] = serde_json::json!(zarray.to_string());
    }
    fs::write(&path, json.to_string()).unwrap();
    let mount = Mount::new(&path);
    for (array, codec) in [
        ("filtered", "fill_hdf_strings"),
        ("big", "imagecodecs_jpeg2k"),
    ] {
        let readme = fs::read_to_string(mount.join(array).join(".zarrfs/README.txt")).unwrap();
        assert!(readme.contains(codec), "{readme}");
        assert!(read(mount.join(array).join("0.0")).is_ok());
        let view = mount.join(array).join(format!(".zarrfs/{array}.npy"));
        assert!(read(view).is_err());
    }
    assert!(read(mount.join("checked/.zarrfs/checked.npy")).is_ok());
    mount.unmount();
}

#[test]
fn commands_read_references() {
    let references = fixtures().join("combined.parq");
    let info = run(zarrfs().arg("info").arg(&references).args(["--path", "v"]));
    assert!(
        info.contains("chunks present     32") && info.contains("(8, 20, 30)"),
        "{info}"
    );
    run(zarrfs().arg("check").arg(&references));
    let tree = run(zarrfs().arg("tree").arg(fixtures().join("plain.json")));
    assert!(
        tree.contains("filtered") && tree.contains("holes"),
        "{tree}"
    );
}

#[test]
fn a_target_that_is_newer_than_its_references_is_stale() {
    let directory = copied();
    run(Command::new("touch").arg(directory.path().join("plain.h5")));
    let references = directory.path().join("plain.json");
    let mount = Mount::new(&references);
    let chunk = mount.join("filtered/0.0");
    assert_eq!(errno(read(&chunk)), Errno::STALE.raw_os_error());
    assert!(
        mount.log().contains("--allow-newer-targets"),
        "{}",
        mount.log()
    );
    // Values that the references contain can be read.
    assert!(read(mount.join("filtered/.zarray")).is_ok());
    mount.unmount();
    let mount = Mount::with(&references, &["--allow-newer-targets"]);
    is_equal(&mount, "plain");
    mount.unmount();
}

#[test]
fn a_target_that_changes_is_stale_and_one_that_is_replaced_keeps_its_content() {
    let directory = copied();
    let target = directory.path().join("plain.h5");
    let original = fs::read(&target).unwrap();
    let args = ["--allow-newer-targets"];
    let mount = Mount::with(directory.path().join("plain.json"), &args);
    let first = read(mount.join("filtered/0.0")).unwrap();
    assert!(original.windows(first.len()).any(|part| part == first));
    let changed: Vec<u8> = original.iter().map(|byte| byte ^ 1).collect();
    fs::rename(&target, directory.path().join("moved")).unwrap();
    fs::write(&target, &changed).unwrap();
    let second = read(mount.join("filtered/0.1")).unwrap();
    assert!(original.windows(second.len()).any(|part| part == second));
    fs::write(directory.path().join("moved"), &changed).unwrap();
    for chunk in ["filtered/0.2", "filtered/0.3"] {
        let found = read(mount.join(chunk));
        assert_eq!(errno(found), Errno::STALE.raw_os_error());
    }
    mount.unmount();
}

#[test]
fn references_that_are_written_again_are_not_mixed() {
    let directory = copied();
    let references = directory.path().join("combined.parq");
    let mount = Mount::with(&references, &["--ttl", "0"]);
    assert!(read(mount.join("v/0.0.0")).is_ok());
    let document = references.join(".zmetadata");
    let text = fs::read_to_string(&document).unwrap();
    fs::write(&document, text + " ").unwrap();
    assert_eq!(
        errno(read(mount.join("v/7.1.1"))),
        Errno::STALE.raw_os_error()
    );
    mount.unmount();
}
