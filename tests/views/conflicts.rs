//! B8 to B14: contradictory documents, hostile names, exact numbers, pickles.

use std::fs;

use serde_json::{Value, json};

use crate::clients::ENOENT;
use crate::metadata::has_no_views;
use crate::stores::*;
use crate::support::*;

#[test]
fn b08_the_documents_of_a_node_have_precedence_over_consolidated_metadata() {
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
    assert_others_served(&mount, &stores);
}

#[test]
fn b09_version_3_has_precedence_over_version_2_and_is_reported() {
    let stores = Stores::new();
    stores.v2("both", json!({"shape": [4]}), &[("0", &le(&[1, 2, 3, 4]))]);
    stores.v3("both", json!({}), &[("c/0", &le(&[5, 6, 7, 8]))]);
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "both", "both.bin")).unwrap(),
        le(&[5, 6, 7, 8, FILL, FILL, FILL, FILL])
    );
    assert!(readme(&mount, "both").contains(".zarray is not read"));
    logged(&mount, &["both", ".zarray is not read", "zarr.json"]);
    native(&mount, &stores, "both/0");
    assert_others_served(&mount, &stores);
}

#[test]
fn b10_attributes_with_hostile_names_are_served_within_the_limits_of_the_kernel() {
    let stores = Stores::new();
    let long = "n".repeat(300);
    let zattrs = format!(
        "{{\"a/b\": 1, \"..\": 2, \"\": 3, \"nul\\u0000name\": 4, \"{long}\": 5, \"\u{fc}\": \"\u{fc}\", \
         \"new\\nline\": 6, \"large\": \"{}\", \"history\": \"{}\"}}",
        "x".repeat(100_000),
        "h".repeat(5000)
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
    // Copies of the directory keep the listed attributes, for which other file systems have little room.
    assert!(
        xattr(&x, "user.zarr.attrs.history").is_some()
            && !listed.contains(&"user.zarr.attrs.history")
    );
    let sizes = listed
        .iter()
        .filter_map(|name| Some(name.len() + xattr(&x, name)?.len()));
    assert!(sizes.sum::<usize>() < 4000);
    for name in &listed {
        assert!(
            xattr(&x, name).is_some(),
            "{name:?} is listed and cannot be had"
        );
    }
    assert_eq!(names(view(&mount, "x", "")).len(), 10);
    assert_others_served(&mount, &stores);
}

#[test]
fn b12_numbers_of_attributes_retain_all_digits() {
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
    assert_others_served(&mount, &stores);
}

#[test]
fn b13_separators_and_implicit_groups_follow_the_specification() {
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
    // An implicit group, without documents, has its views.
    assert_eq!(
        read(view(&mount, "implicit", "dots.bin")).unwrap(),
        expected
    );
    assert_others_served(&mount, &stores);
}

#[test]
fn b14_pickles_are_never_read() {
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
    assert_others_served(&mount, &stores);
}

#[test]
fn b09_a_document_that_exceeds_the_limit_is_not_replaced_by_another_version() {
    let stores = Stores::new();
    stores.v2("x", json!({}), &[("0", &le(&GOOD[..4]))]);
    stores.put("x/zarr.json", &vec![b' '; (16 << 20) + 1]);
    let mount = stores.mount(&[]);
    assert!(readme(&mount, "x").contains("zarr.json"));
    assert_eq!(errno(fs::metadata(view(&mount, "x", "x.bin"))), ENOENT);
    native(&mount, &stores, "x/0");
    assert_others_served(&mount, &stores);
}
