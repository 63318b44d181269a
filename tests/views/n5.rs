//! N5: hierarchies that zarr-python 2, z5py and the fixture generator write, wrong headers, and
//! directories that are both N5 and Zarr.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT};
use crate::stores::*;
use crate::support::*;
use crate::translated::{interpreter, zarr};

fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/n5");
    let path = path.join(name);
    assert!(path.exists(), "run tests/fixtures/setup.sh: no {path:?}");
    path
}

/// Lets a Python with that version of zarr compare views and translations. Returns the number of
/// comparisons.
fn compare(version: u8, mount: &Mount, targets: &[&str]) -> u64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views/n5.py");
    let mut client = zarr(version);
    client.arg(script).arg(mount.path());
    let output = run(client.arg(fixture("expected")).args(targets));
    let counts = output.lines().last().unwrap();
    counts.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn datasets_of_real_writers_have_the_values_that_were_written() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    for source in ["store", "store.zip"] {
        let mount = Mount::new(fixture(source));
        assert!(compare(3, &mount, &["as-v3", "as-v2"]) >= 3 * 39);
        let log = mount.log();
        assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
        let diff = Command::new("diff")
            .args(["-r", "--exclude=.zarrfs"])
            .args([&fixture("store"), mount.path()])
            .status();
        assert!(diff.unwrap().success(), "{source}");
    }
    let mount = Mount::new(fixture("store"));
    assert!(compare(2, &mount, &["as-v2"]) >= 2 * 39);
}

#[test]
fn groups_attributes_and_documents_are_those_of_the_hierarchy() {
    let mount = Mount::new(fixture("store"));
    let document =
        |path: &str| -> Value { serde_json::from_slice(&read(mount.join(path)).unwrap()).unwrap() };
    let deep = "zarr/a/b with space/\u{fc}ml";
    assert_eq!(
        document("zarr/.zarrfs/attributes.json"),
        json!({"title": "N5", "list": [1, 2]})
    );
    let of_array = document(&format!("{deep}/line/.zarrfs/attributes.json"));
    assert_eq!(of_array, json!({"units": "K"}));
    let info = document(&format!("{deep}/line/.zarrfs/info.json"));
    assert_eq!(
        (&info["format"], &info["node_type"]),
        (&json!("N5"), &json!("array"))
    );
    // The group `made` has no document.
    let group = document(".zarrfs/as-v3/made/zarr.json");
    assert_eq!(group["node_type"], "group");
    let root = document(".zarrfs/as-v3/zarr.json");
    assert_eq!(root["attributes"], json!({"title": "fixture"}));
    let copies = root["consolidated_metadata"]["metadata"]
        .as_object()
        .unwrap();
    assert!(copies.contains_key("made/short") && copies.contains_key(deep));
    let named = &copies[&format!("{deep}/named")];
    assert_eq!(named["dimension_names"], json!(["y", "x"]));
    let copies = &document(".zarrfs/as-v2/.zmetadata")["metadata"];
    assert_eq!(copies[&format!("{deep}/.zattrs")], json!({"depth": 3}));
    assert!(copies.get("made/attributes.json").is_none());
    // Blocks and chunks have different sizes, and absent blocks stay absent.
    let chunk = mount.join(".zarrfs/as-v3/made/short/c/2/3/0");
    assert_eq!(fs::metadata(chunk).unwrap().len(), 5 * 4 * 7 * 2);
    let absent = format!(".zarrfs/as-v3/{deep}/some-chunks/c/0/0/0");
    assert_eq!(errno(read(mount.join(absent))), ENOENT);
}

/// Returns a block of 4 big-endian `int32` along one axis, with a header.
fn block(header: &[u8]) -> Vec<u8> {
    let elements = GOOD[..4].iter().flat_map(|e| e.to_be_bytes());
    header.iter().copied().chain(elements).collect()
}

const FULL: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 4];

#[test]
fn a_wrong_header_is_an_error_that_names_key_and_cause() {
    let stores = Stores::new();
    fs::remove_dir_all(stores.path().join("good")).unwrap();
    stores.put("attributes.json", br#"{"n5":"4.0.0"}"#);
    let dataset = json!({"dimensions": [8], "blockSize": [4], "dataType": "int32",
        "compression": {"type": "raw"}});
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("truncated", block(&FULL)[..7].to_vec(), "3 bytes are left"),
        (
            "short",
            block(&FULL)[..23].to_vec(),
            "15 bytes, expected 16",
        ),
        (
            "huge",
            block(&[0, 0, 0, 1, 255, 255, 255, 255]),
            "4294967295 elements along axis 0",
        ),
        (
            "rank",
            block(&[0, 0, 255, 255, 0, 0, 0, 4]),
            "a header of 65535 axes",
        ),
        ("mode", block(&[0, 9, 0, 1, 0, 0, 0, 4]), "mode 9"),
        (
            "count",
            block(&[0, 1, 0, 1, 0, 0, 0, 4, 255, 255, 255, 255]),
            "4294967295 elements of",
        ),
    ];
    for (name, bytes, _) in &cases {
        let document = dataset.to_string();
        stores.put(&format!("{name}/attributes.json"), document.as_bytes());
        stores.put(&format!("{name}/0"), &block(&FULL));
        stores.put(&format!("{name}/1"), bytes);
    }
    let mut object = dataset.clone();
    object["dataType"] = "object".into();
    stores.put("object/attributes.json", object.to_string().as_bytes());
    let checked = zarrfs().arg("check").arg(stores.path()).output().unwrap();
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(!checked.contains("warning"), "{checked}");
    let mount = stores.mount(&[]);
    for (name, bytes, cause) in &cases {
        let whole = view(&mount, name, &format!("{name}.bin"));
        assert_eq!(errno(read(whole)), EIO, "{name}");
        let first = read(view(&mount, name, "chunks/0")).unwrap();
        assert_eq!(first, block(&[]), "{name}");
        let translated = mount.join(".zarrfs/as-v3").join(name);
        assert_eq!(read(translated.join("c/0")).unwrap(), block(&[]), "{name}");
        assert_eq!(errno(read(translated.join("c/1"))), EIO, "{name}");
        assert_eq!(&read(mount.join(name).join("1")).unwrap(), bytes, "{name}");
        let found =
            |line: &&str| line.starts_with(&format!("bad: {name}/1: ")) && line.contains(cause);
        assert!(
            checked.lines().any(|line| found(&line)),
            "{name}: {checked}"
        );
    }
    let text = readme(&mount, "object");
    assert!(text.contains("data type object of N5"), "{text}");
    assert_eq!(
        errno(read(mount.join(".zarrfs/as-v3/object/zarr.json"))),
        ENOENT
    );
}

#[test]
fn a_directory_with_zarr_metadata_is_zarr() {
    let stores = Stores::new();
    let root = br#"{"n5":"4.0.0","of":"n5"}"#;
    let dataset =
        br#"{"dimensions":[4],"blockSize":[4],"dataType":"int32","compression":{"type":"raw"}}"#;
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    stores.put("attributes.json", root);
    stores.put("good/attributes.json", dataset);
    stores.put("directory/attributes.json", dataset);
    let mount = stores.mount(&[]);
    let good = read(view(&mount, "good", "good.bin")).unwrap();
    assert_eq!(good, le(&GOOD));
    assert_eq!(read(view(&mount, "", "attributes.json")).unwrap(), b"{}\n");
    // In a Zarr hierarchy, it is an ordinary value.
    assert!(read(view(&mount, "directory", "directory.bin")).is_err());
    assert_eq!(read(mount.join("attributes.json")).unwrap(), root);
    mount.unmount();
    fs::remove_file(stores.path().join(".zgroup")).unwrap();
    let mount = stores.mount(&[]);
    let good = read(view(&mount, "good", "good.bin")).unwrap();
    assert_eq!(good, le(&GOOD), "an array of Zarr in a hierarchy of N5");
    stores.put("directory/0", &block(&FULL));
    let directory = read(view(&mount, "directory", "directory.bin")).unwrap();
    assert_eq!(directory, block(&[]));
}

#[test]
fn blocks_that_are_not_compressed_are_read_behind_their_headers() {
    const BLOCK: usize = 1 << 16;
    const LENGTH: usize = 4 * BLOCK + 1000;
    let stores = Stores::new();
    let dataset = json!({"dimensions": [LENGTH], "blockSize": [BLOCK], "dataType": "uint16",
        "compression": {"type": "raw"}});
    stores.put("attributes.json", br#"{"n5":"4.0.0"}"#);
    stores.put("long/attributes.json", dataset.to_string().as_bytes());
    let elements = |block: usize, count: usize| -> Vec<u8> {
        let of = |n: usize| u16::try_from((block + 7) * n % 65_521).unwrap();
        (0..count).flat_map(|n| of(n).to_be_bytes()).collect()
    };
    let header = |mode: u16, count: usize| -> Vec<u8> {
        let count = u32::try_from(count).unwrap().to_be_bytes();
        [&mode.to_be_bytes()[..], &[0, 1], &count].concat()
    };
    let count = u32::try_from(BLOCK).unwrap().to_be_bytes();
    // A full block, a full one with an element count, an absent one, a short one, and a full one at the edge.
    for (number, header, count) in [
        (0, header(0, BLOCK), BLOCK),
        (1, [header(1, BLOCK), count.to_vec()].concat(), BLOCK),
        (3, header(0, 60_000), 60_000),
        (4, header(0, BLOCK), BLOCK),
    ] {
        let block = [header, elements(number, count)].concat();
        stores.put(&format!("long/{number}"), &block);
    }
    let expected = [
        elements(0, BLOCK),
        elements(1, BLOCK),
        vec![0; 2 * BLOCK],
        elements(3, 60_000),
        vec![0; 2 * (BLOCK - 60_000)],
        elements(4, 1000),
    ]
    .concat();
    let mount = stores.mount(&["--ttl", "0"]);
    let path = view(&mount, "long", "long.bin");
    let file = fs::File::open(&path).unwrap();
    let mut random = 1_u64;
    for _ in 0..200 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let start = usize::try_from(random >> 33).unwrap() % expected.len();
        let end = (start + usize::try_from(random >> 13).unwrap() % 300_000).min(expected.len());
        let mut found = vec![0; end - start];
        file.read_exact_at(&mut found, start as u64).unwrap();
        assert!(found == expected[start..end], "{start}..{end}");
    }
    assert!(read(&path).unwrap() == expected);
    // A block of the right size with another header is decoded, and is invalid.
    stores.put(
        "long/0",
        &[header(0, BLOCK - 1), elements(0, BLOCK)].concat(),
    );
    assert_eq!(errno(read(view(&mount, "long", "long.bin"))), EIO);
    assert_eq!(errno(read(view(&mount, "long", "chunks/0"))), EIO);
}
