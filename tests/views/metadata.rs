//! B1 to B14: metadata that are wrong, unknown, enormous or contradict each other.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use crate::clients::ENOENT;
use crate::stores::*;
use crate::support::*;

/// No view of the elements is there, `why.txt` has `gist`, and the store's keys and the sibling are.
fn has_no_views(mount: &Mount, stores: &Stores, node: &str, key: &str, gist: &str) {
    let text = why(mount, node);
    assert!(text.contains(gist), "{node}: {gist:?} is not in {text:?}");
    for name in [
        format!("{node}.npy"),
        format!("{node}.bin"),
        "chunks".into(),
    ] {
        let path = view(mount, node, &name);
        assert_eq!(errno(fs::metadata(&path)), ENOENT, "{path:?}");
    }
    let listed = names(view(mount, node, ""));
    assert_eq!(
        listed,
        ["attributes.json", "info.json", "why.txt"],
        "{node}"
    );
    native(mount, stores, &format!("{node}/{key}"));
}

#[test]
fn b01_documents_that_are_no_json_leave_the_keys_and_say_where() {
    let _dog = watchdog("b01_documents_that_are_no_json", 60);
    let stores = Stores::new();
    let good = v3_document().to_string();
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let large = format!(
        "{{\"zarr_format\": 3, \"x\": \"{}\"}}",
        "a".repeat(16 << 20)
    );
    let cases: [(&str, &str, Vec<u8>, &str); 9] = [
        ("word", "zarr.json", b"{\n  zarr".to_vec(), "line 2"),
        ("empty", "zarr.json", Vec::new(), "zarr.json: line 1"),
        (
            "bom",
            "zarr.json",
            format!("\u{feff}{good}").into(),
            "byte order mark",
        ),
        (
            "trailing",
            "zarr.json",
            format!("{good}]").into(),
            "trailing",
        ),
        ("binary", ".zarray", vec![0, 255, 1, 2], ".zarray: line 1"),
        ("list", ".zarray", b"[1]".to_vec(), "expected an object"),
        ("deep", "zarr.json", deep.into(), "recursion limit"),
        ("large", "zarr.json", large.into(), "16777216"),
        (
            "half",
            ".zarray",
            good.as_bytes()[..good.len() / 2].into(),
            ".zarray: line 1",
        ),
    ];
    for (node, key, document, _) in &cases {
        stores.put(&format!("{node}/{key}"), document);
        stores.put(&format!("{node}/c/0"), b"a chunk");
    }
    let mount = stores.mount(&[]);
    for (node, key, _, gist) in &cases {
        has_no_views(&mount, &stores, node, key, gist);
        native(&mount, &stores, &format!("{node}/c/0"));
    }
    goes_on(&mount, &stores);
}

#[test]
fn b02_what_is_not_known_or_missing_is_named() {
    let _dog = watchdog("b02_what_is_not_known_or_missing_is_named", 60);
    let stores = Stores::new();
    let v3 = [
        ("dtype", json!({"data_type": "quaternion"}), "quaternion"),
        (
            "codec",
            json!({"codecs": [little(), {"name": "middle-out"}]}),
            "middle-out",
        ),
        (
            "chain",
            json!({"codecs": [{"name": "zstd", "configuration": {"level": 1}}]}),
            "zstd",
        ),
        ("nochain", json!({"codecs": []}), "codecs"),
        (
            "grid",
            json!({"chunk_grid": {"name": "hexagonal", "configuration": {}}}),
            "hexagonal",
        ),
        (
            "keys",
            json!({"chunk_key_encoding": {"name": "base32"}}),
            "base32",
        ),
        ("member", json!({"wormhole": {"name": "x"}}), "wormhole"),
        (
            "demanded",
            json!({"wormhole": {"must_understand": true}}),
            "wormhole",
        ),
        (
            "transformer",
            json!({"storage_transformers": [{"name": "rot13"}]}),
            "rot13",
        ),
        ("nodtype", json!({"data_type": "DROP"}), "data_type"),
        ("nogrid", json!({"chunk_grid": "DROP"}), "chunk_grid"),
        ("nocodecs", json!({"codecs": "DROP"}), "codecs"),
        ("nofill", json!({"fill_value": "DROP"}), "fill_value"),
        ("noshape", json!({"shape": "DROP"}), "shape"),
        ("badrank", json!({"chunk_grid": grid(&[4, 4])}), "2 axes"),
        ("negative", json!({"shape": [-8]}), "shape"),
        ("format", json!({"zarr_format": 4}), "zarr_format"),
    ];
    for (node, changes, _) in &v3 {
        stores.v3(node, changes.clone(), &[("c/0", &le(&[1, 2, 3, 4]))]);
    }
    let v2 = [
        ("v2dtype", json!({"dtype": "<q4"}), "<q4"),
        (
            "v2codec",
            json!({"compressor": {"id": "middle-out"}}),
            "middle-out",
        ),
        ("v2filter", json!({"filters": [{"id": "rot13"}]}), "rot13"),
        ("v2noid", json!({"compressor": {"level": 1}}), "compressor"),
        ("v2order", json!({"order": "Z"}), "order"),
        ("v2nochunks", json!({"chunks": "DROP"}), "chunks"),
        ("v2rank", json!({"chunks": [4, 4]}), "chunks"),
    ];
    for (node, changes, _) in &v2 {
        stores.v2(node, changes.clone(), &[("0", &le(&[1, 2, 3, 4]))]);
    }
    let mount = stores.mount(&[]);
    for (node, _, gist) in &v3 {
        has_no_views(&mount, &stores, node, "zarr.json", gist);
        native(&mount, &stores, &format!("{node}/c/0"));
    }
    for (node, _, gist) in &v2 {
        has_no_views(&mount, &stores, node, ".zarray", gist);
        native(&mount, &stores, &format!("{node}/0"));
    }
    // What is known of an array with an unknown data type is still told.
    let info = read(view(&mount, "dtype", "info.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["shape"], json!([8]));
    assert_eq!(info["node_type"], "array");
    goes_on(&mount, &stores);
}

#[test]
fn b03_geometry_that_can_not_be_counted_is_refused_and_rank_0_works() {
    let _dog = watchdog("b03_geometry_that_can_not_be_counted", 60);
    let stores = Stores::new();
    let most = u64::MAX;
    let cases = [
        (
            "elements",
            json!({"shape": [most, 2], "chunk_grid": grid(&[4, 4])}),
            "2^64",
        ),
        (
            "bytes",
            json!({"shape": [most / 2], "chunk_grid": grid(&[4])}),
            "2^64",
        ),
        (
            "chunk",
            json!({"shape": [8, 8], "chunk_grid": grid(&[most, 2])}),
            "2^64",
        ),
        ("zero", json!({"chunk_grid": grid(&[0])}), "chunk"),
        (
            "rank1000",
            json!({"shape": vec![1; 1000], "chunk_grid": grid(&[1; 1000])}),
            "1000",
        ),
        ("notawhole", json!({"shape": [1.5]}), "shape"),
        ("beyond", json!({"shape": [1e30]}), "shape"),
    ];
    for (node, changes, _) in &cases {
        stores.v3(node, changes.clone(), &[]);
    }
    stores.v3(
        "scalar",
        json!({"shape": [], "chunk_grid": grid(&[])}),
        &[("c", &le(&[42]))],
    );
    stores.v2(
        "scalar2",
        json!({"shape": [], "chunks": []}),
        &[("0", &le(&[43]))],
    );
    stores.v2("none", json!({"shape": [0, 5], "chunks": [2, 2]}), &[]);
    let mount = stores.mount(&[]);
    for (node, _, gist) in &cases {
        has_no_views(&mount, &stores, node, "zarr.json", gist);
    }
    assert_eq!(
        read(view(&mount, "scalar", "scalar.bin")).unwrap(),
        le(&[42])
    );
    assert_eq!(read(view(&mount, "scalar", "chunks/c")).unwrap(), le(&[42]));
    assert_eq!(
        read(view(&mount, "scalar2", "scalar2.bin")).unwrap(),
        le(&[43])
    );
    assert_eq!(
        read(view(&mount, "scalar2", "chunks/0")).unwrap(),
        le(&[43])
    );
    assert_eq!(read(view(&mount, "none", "none.bin")).unwrap(), [0; 0]);
    assert_eq!(names(view(&mount, "none", "chunks")), [""; 0]);
    goes_on(&mount, &stores);
}

#[test]
fn b04_a_view_longer_than_any_file_is_not_there_and_its_chunks_are() {
    let _dog = watchdog("b04_a_view_longer_than_any_file", 60);
    let stores = Stores::new();
    let changes = json!({"shape": [1_u64 << 61], "chunks": [4]});
    stores.v2("endless", changes, &[("1", &le(&[1, 2, 3, 4]))]);
    // 2^63 - 8 bytes: the .bin has a name, the .npy with its header would not fit.
    stores.v2(
        "edge",
        json!({"shape": [(1_u64 << 61) - 2], "chunks": [4]}),
        &[],
    );
    let mount = stores.mount(&[]);
    for name in ["endless.npy", "endless.bin"] {
        assert_eq!(errno(fs::metadata(view(&mount, "endless", name))), ENOENT);
    }
    let text = why(&mount, "endless");
    assert!(text.contains("9223372036854775808"), "{text}");
    assert_eq!(
        read(view(&mount, "endless", "chunks/1")).unwrap(),
        le(&[1, 2, 3, 4])
    );
    assert_eq!(
        read(view(&mount, "endless", "chunks/2")).unwrap(),
        le(&[FILL; 4])
    );
    let bin = view(&mount, "edge", "edge.bin");
    assert_eq!(fs::metadata(&bin).unwrap().len(), (1 << 63) - 8);
    assert_eq!(
        errno(fs::metadata(view(&mount, "edge", "edge.npy"))),
        ENOENT
    );
    let mut part = [0; 4];
    File::open(bin)
        .unwrap()
        .read_exact_at(&mut part, 1 << 62)
        .unwrap();
    assert_eq!(part[..], le(&[FILL])[..]);
    goes_on(&mount, &stores);
}

#[test]
fn b05_an_absent_chunk_of_any_size_is_fill_values_that_take_no_memory() {
    let _dog = watchdog("b05_an_absent_chunk_of_any_size", 60);
    let stores = Stores::new();
    let huge = 1_u64 << 40;
    let zstd = json!({"shape": [huge], "chunks": [huge], "compressor": {"id": "zstd", "level": 1}});
    stores.v2("compressed", zstd, &[]);
    stores.v2("raw", json!({"shape": [huge], "chunks": [huge]}), &[]);
    stores.v2(
        "f",
        json!({"shape": [1 << 20, 1 << 20], "chunks": [1 << 20, 1 << 20], "order": "F"}),
        &[],
    );
    let mount = stores.mount(&["--memory-limit", "64M"]);
    let before = mount.memory("VmHWM");
    for (node, chunk) in [
        ("compressed", "chunks/0"),
        ("raw", "chunks/0"),
        ("f", "chunks/0.0"),
    ] {
        for name in [chunk, &format!("{node}.bin")] {
            let path = view(&mount, node, name);
            assert_eq!(fs::metadata(&path).unwrap().len(), 4 * huge);
            let file = File::open(&path).unwrap();
            for offset in [0, 4, 4 * huge / 3 / 4 * 4, 4 * huge - 4096] {
                let mut part = [0; 4096];
                file.read_exact_at(&mut part, offset)
                    .unwrap_or_else(|e| panic!("{path:?} at {offset}: {e}"));
                assert_eq!(part[..], le(&[FILL; 1024])[..], "{path:?} at {offset}");
            }
        }
    }
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes");
    goes_on(&mount, &stores);
}

#[test]
fn b06_a_chunk_larger_than_the_memory_limit_is_enomem() {
    let _dog = watchdog("b06_a_chunk_larger_than_the_memory_limit_is_enomem", 60);
    let stores = Stores::new();
    let chunk = zlib(&vec![1; 32 << 20]);
    let changes =
        json!({"shape": [16 << 20], "chunks": [8 << 20], "compressor": {"id": "zlib", "level": 1}});
    stores.v2("large", changes, &[("0", &chunk)]);
    let mount = stores.mount(&["--memory-limit", "16M"]);
    let enomem = rustix::io::Errno::NOMEM.raw_os_error();
    for name in ["chunks/0", "large.bin"] {
        let path = view(&mount, "large", name);
        assert_eq!(errno(read(&path)), enomem, "{name}");
    }
    let need = (32_u64 << 20) + chunk.len() as u64;
    let needs = format!("needs {need} bytes of memory, the limit is ");
    logged(&mount, &["large/0", &needs, "ENOMEM"]);
    // The part that no chunk holds does not need it.
    let mut part = [0; 4096];
    let file = File::open(view(&mount, "large", "large.bin")).unwrap();
    file.read_exact_at(&mut part, 48 << 20).unwrap();
    assert_eq!(part[..], le(&[FILL; 1024])[..]);
    native(&mount, &stores, "large/0");
    goes_on(&mount, &stores);
}

#[test]
fn b07_fill_values_keep_their_bits_or_are_refused() {
    let _dog = watchdog("b07_fill_values_keep_their_bits_or_are_refused", 60);
    let stores = Stores::new();
    let exact: [(&str, &str, Value, Vec<u8>); 10] = [
        (
            "payload",
            "float32",
            json!("0x7fc00123"),
            vec![0x23, 0x01, 0xc0, 0x7f],
        ),
        (
            "signalling",
            "float32",
            json!("0x7f800001"),
            vec![0x01, 0, 0x80, 0x7f],
        ),
        (
            "nan",
            "float64",
            json!("NaN"),
            f64::NAN.to_le_bytes().into(),
        ),
        (
            "minus",
            "float32",
            json!("-Infinity"),
            f32::NEG_INFINITY.to_le_bytes().into(),
        ),
        (
            "zero",
            "float32",
            json!(-0.0),
            (-0.0_f32).to_le_bytes().into(),
        ),
        (
            "third",
            "float64",
            json!(1.0 / 3.0),
            (1.0_f64 / 3.0).to_le_bytes().into(),
        ),
        ("big", "uint64", json!(u64::MAX), vec![0xff; 8]),
        (
            "small",
            "int64",
            json!(i64::MIN),
            i64::MIN.to_le_bytes().into(),
        ),
        (
            "odd",
            "int64",
            json!(9_007_199_254_740_993_i64),
            9_007_199_254_740_993_i64.to_le_bytes().into(),
        ),
        (
            "complex",
            "complex64",
            json!([1.5, "NaN"]),
            [1.5_f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat(),
        ),
    ];
    for (node, data_type, fill, _) in &exact {
        stores.v3(
            node,
            json!({"data_type": data_type, "fill_value": fill}),
            &[],
        );
    }
    let wrong = [
        ("word", "int32", json!("seven")),
        ("list", "int32", json!([1])),
        ("beyond", "int8", json!(300)),
        ("negative", "uint8", json!(-1)),
        ("hex", "float32", json!("0x7fc001")),
        ("part", "complex64", json!([1.0])),
    ];
    for (node, data_type, fill) in &wrong {
        stores.v3(
            node,
            json!({"data_type": data_type, "fill_value": fill}),
            &[],
        );
    }
    stores.v2("v2null", json!({"fill_value": null}), &[]);
    // Not allowed, but written.
    stores.v3("v3null", json!({"fill_value": null}), &[]);
    stores.v2(
        "v2bytes",
        json!({"dtype": "|S3", "fill_value": "YWI="}),
        &[],
    );
    let mount = stores.mount(&[]);
    for (node, _, _, bytes) in &exact {
        assert_eq!(
            read(view(&mount, node, &format!("{node}.bin"))).unwrap(),
            bytes.repeat(8),
            "{node}"
        );
    }
    for (node, ..) in &wrong {
        has_no_views(&mount, &stores, node, "zarr.json", "fill_value");
    }
    assert_eq!(read(view(&mount, "v2null", "v2null.bin")).unwrap(), [0; 32]);
    assert_eq!(read(view(&mount, "v3null", "v3null.bin")).unwrap(), [0; 32]);
    assert_eq!(
        read(view(&mount, "v2bytes", "v2bytes.bin")).unwrap(),
        b"ab\0".repeat(8)
    );
    goes_on(&mount, &stores);
}

#[test]
fn b08_the_documents_of_a_node_are_believed_and_not_the_consolidated_ones() {
    let _dog = watchdog("b08_the_documents_of_a_node_are_believed", 60);
    let stores = Stores::new();
    let lie = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {"zarr_format": 2},
        "good/.zarray": {"zarr_format": 2, "shape": [99], "chunks": [9], "dtype": "<f8", "order": "C",
            "compressor": null, "filters": null, "fill_value": 0},
        "ghost/.zarray": {"zarr_format": 2, "shape": [9], "chunks": [9], "dtype": "<f8", "order": "C",
            "compressor": null, "filters": null, "fill_value": 0}}});
    stores.put(".zmetadata", lie.to_string().as_bytes());
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let inline = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {
        "kind": "inline", "must_understand": false, "metadata": {"x": changed(v3_document(), json!({"shape": [99]}))}}});
    stores.put("g/zarr.json", inline.to_string().as_bytes());
    stores.v3("g/x", json!({}), &[("c/0", &le(&[1, 2, 3, 4]))]);
    let mount = stores.mount(&[]);
    assert_eq!(
        fs::metadata(view(&mount, "good", "good.bin"))
            .unwrap()
            .len(),
        32
    );
    assert_eq!(
        fs::metadata(view(&mount, "g/x", "x.bin")).unwrap().len(),
        32
    );
    assert_eq!(errno(fs::metadata(mount.join("ghost"))), ENOENT);
    goes_on(&mount, &stores);
}

#[test]
fn b09_version_3_wins_over_version_2_and_it_is_said() {
    let _dog = watchdog("b09_version_3_wins_over_version_2_and_it_is_said", 60);
    let stores = Stores::new();
    stores.v2("both", json!({"shape": [4]}), &[("0", &le(&[1, 2, 3, 4]))]);
    stores.v3("both", json!({}), &[("c/0", &le(&[5, 6, 7, 8]))]);
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "both", "both.bin")).unwrap(),
        le(&[5, 6, 7, 8, FILL, FILL, FILL, FILL])
    );
    assert!(why(&mount, "both").contains(".zarray is not read"));
    logged(&mount, &["both", ".zarray is not read", "zarr.json"]);
    native(&mount, &stores, "both/0");
    goes_on(&mount, &stores);
}

#[test]
fn b10_attributes_with_hostile_names_are_served_as_far_as_the_kernel_can() {
    let _dog = watchdog("b10_attributes_with_hostile_names", 60);
    let stores = Stores::new();
    let long = "n".repeat(300);
    let zattrs = format!(
        "{{\"a/b\": 1, \"..\": 2, \"\": 3, \"nul\\u0000name\": 4, \"{long}\": 5, \"\u{fc}\": \"\u{fc}\", \
         \"new\\nline\": 6, \"large\": \"{}\"}}",
        "x".repeat(100_000)
    );
    stores.v2("x", json!({}), &[]);
    stores.put("x/.zattrs", zattrs.as_bytes());
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "x", "attributes.json")).unwrap(),
        zattrs.as_bytes()
    );
    let x = mount.join("x");
    for (name, value) in [
        ("a/b", "1"),
        ("..", "2"),
        ("\u{fc}", "\u{fc}"),
        ("new\nline", "6"),
    ] {
        assert_eq!(
            xattr(&x, &format!("user.zarr.attrs.{name}")).as_deref(),
            Some(value),
            "{name:?}"
        );
    }
    let mut list = vec![0; 65536];
    let length = rustix::fs::listxattr(&x, &mut list).unwrap();
    let list = String::from_utf8(list[..length].into()).unwrap();
    let listed: Vec<&str> = list.split_terminator('\0').collect();
    assert!(listed.contains(&"user.zarr.attrs.a/b"), "{listed:?}");
    for absent in ["user.zarr.attrs.nul", "user.zarr.attrs.large"] {
        assert!(!listed.contains(&absent), "{listed:?}");
    }
    for name in &listed {
        assert!(
            xattr(&x, name).is_some(),
            "{name:?} is listed and can not be had"
        );
    }
    assert_eq!(names(view(&mount, "x", "")).len(), 9);
    goes_on(&mount, &stores);
}

#[test]
fn b12_numbers_of_attributes_keep_all_their_digits() {
    let _dog = watchdog("b12_numbers_of_attributes_keep_all_their_digits", 60);
    let stores = Stores::new();
    let attributes = "{\"odd\": 9007199254740993, \"large\": 1e400, \"long\": 0.1000000000000000055511151231257827}";
    let document = v3_document().to_string();
    let document = format!(
        "{}, \"attributes\": {attributes}}}",
        &document[..document.len() - 1]
    );
    stores.put("three/zarr.json", document.as_bytes());
    stores.v2("two", json!({}), &[]);
    stores.put("two/.zattrs", attributes.as_bytes());
    stores.v3("fill", json!({"data_type": "uint64"}), &[]);
    let fill = fs::read_to_string(stores.path().join("fill/zarr.json")).unwrap();
    stores.put(
        "fill/zarr.json",
        fill.replace(&FILL.to_string(), "18446744073709551616")
            .as_bytes(),
    );
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "two", "attributes.json")).unwrap(),
        attributes.as_bytes()
    );
    let three = String::from_utf8(read(view(&mount, "three", "attributes.json")).unwrap()).unwrap();
    for digits in ["9007199254740993", "0.1000000000000000055511151231257827"] {
        assert!(three.contains(digits), "{three}");
    }
    assert!(
        three.to_lowercase().replace('+', "").contains("1e400"),
        "{three}"
    );
    assert_eq!(
        xattr(&mount.join("two"), "user.zarr.attrs.odd").as_deref(),
        Some("9007199254740993")
    );
    has_no_views(&mount, &stores, "fill", "zarr.json", "fill_value");
    goes_on(&mount, &stores);
}

#[test]
fn b13_separators_and_groups_without_documents_are_those_of_the_specification() {
    let _dog = watchdog("b13_separators_and_groups_without_documents", 60);
    let stores = Stores::new();
    let (shape, one) = (json!([2, 2]), le(&[7]));
    let with = |changes: Value| changed(json!({"shape": shape, "chunks": [1, 1]}), changes);
    stores.v2("implicit/dots", with(json!({})), &[("1.0", &one)]);
    stores.v2(
        "implicit/slashes",
        with(json!({"dimension_separator": "/"})),
        &[("1/0", &one)],
    );
    let cells = |changes: Value| {
        changed(
            json!({"shape": shape, "chunk_grid": grid(&[1, 1])}),
            changes,
        )
    };
    stores.v3(
        "default",
        cells(json!({"chunk_key_encoding": {"name": "default"}})),
        &[("c/1/0", &one)],
    );
    let dots =
        json!({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}});
    stores.v3("dots", cells(dots), &[("c.1.0", &one)]);
    stores.v3(
        "as2",
        cells(json!({"chunk_key_encoding": {"name": "v2"}})),
        &[("1.0", &one)],
    );
    let mount = stores.mount(&[]);
    let expected = le(&[FILL, FILL, 7, FILL]);
    for (node, key) in [
        ("implicit/dots", "1.0"),
        ("implicit/slashes", "1/0"),
        ("default", "c/1/0"),
        ("dots", "c.1.0"),
        ("as2", "1.0"),
    ] {
        let name = node.rsplit('/').next().unwrap();
        assert_eq!(
            read(view(&mount, node, &format!("{name}.bin"))).unwrap(),
            expected,
            "{node}"
        );
        assert_eq!(
            read(view(&mount, node, &format!("chunks/{key}"))).unwrap(),
            one,
            "{node}"
        );
    }
    // Nothing says that it is a group, and it has its views.
    assert_eq!(
        read(view(&mount, "implicit", "dots.bin")).unwrap(),
        expected
    );
    goes_on(&mount, &stores);
}

#[test]
fn b14_pickles_are_never_read() {
    let _dog = watchdog("b14_pickles_are_never_read", 60);
    let stores = Stores::new();
    let marker = scratch();
    let witness = marker.path().join("the pickle was executed");
    let pickle = format!("cos\nsystem\n(S'touch \"{}\"'\ntR.", witness.display());
    let object = json!({"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": null});
    stores.v2("pickled", object, &[("0", pickle.as_bytes())]);
    stores.v2(
        "bare",
        json!({"dtype": "|O", "fill_value": null}),
        &[("0", pickle.as_bytes())],
    );
    let mount = stores.mount(&[]);
    has_no_views(&mount, &stores, "pickled", ".zarray", "pickle");
    has_no_views(&mount, &stores, "bare", ".zarray", "object codec");
    assert_eq!(
        errno(fs::metadata(view(&mount, "pickled", "pickled.json"))),
        ENOENT
    );
    assert!(!witness.exists());
    goes_on(&mount, &stores);
}
