//! B1, B2, B7: documents and values that are invalid or unknown.

use std::fs;

use serde_json::{Value, json};

use crate::clients::ENOENT;
use crate::stores::*;
use crate::support::*;

/// Asserts that a node has no views of elements, that its `README.txt` has `gist`, and that other
/// keys can be read.
pub fn has_no_views(mount: &Mount, stores: &Stores, node: &str, key: &str, gist: &str) {
    let text = readme(mount, node);
    assert!(text.contains(gist), "{node}: {gist:?} is not in {text:?}");
    for name in [
        format!("{node}.npy"),
        format!("{node}.bin"),
        "chunks".into(),
    ] {
        let path = view(mount, node, &name);
        assert_eq!(errno(fs::metadata(&path)), ENOENT, "{path:?}");
    }
    let mut listed = names(view(mount, node, ""));
    // Attributes are known if their document is JSON, and those of v2 have a document of their own.
    listed.retain(|name| name != "attributes.json");
    assert_eq!(listed, ["README.txt", "info.json"], "{node}");
    native(mount, stores, &format!("{node}/{key}"));
}

#[test]
fn b01_documents_of_invalid_json_are_reported_with_their_position_and_keys_are_served() {
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
    assert_others_served(&mount, &stores);
}

#[test]
fn b02_unknown_and_missing_fields_are_named() {
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
    // The known metadata of an array with an unknown data type are still shown.
    let info = read(view(&mount, "dtype", "info.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["shape"], json!([8]));
    assert_eq!(info["node_type"], "array");
    assert_others_served(&mount, &stores);
}

#[test]
fn b07_fill_values_retain_their_bits_or_are_refused() {
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
    // Not allowed, but written by some programs.
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
    assert_others_served(&mount, &stores);
}
