use super::*;
use crate::store::MemoryStore;

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn store(values: &[(&str, Value)]) -> MemoryStore {
    let values = values.iter();
    MemoryStore::new(values.map(|(name, value)| (key(name), value.to_string().into_bytes())))
}

fn group() -> Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}})
}

fn array() -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": "default", "fill_value": 0, "codecs": ["bytes"]})
}

fn zarray() -> Value {
    json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|i1", "fill_value": 0,
        "order": "C", "filters": null, "compressor": null})
}

#[test]
fn the_object_model_holds_what_documents_say_and_members() {
    let zgroup = json!({"zarr_format": 2});
    let mut odd = group();
    odd["members"] = json!({"must_understand": false});
    odd["_members"] = json!({"must_understand": false});
    let store = store(&[
        ("zarr.json", group()),
        ("x/zarr.json", array()),
        ("x/c/0", json!(1)),
        ("old/.zgroup", zgroup),
        ("old/y/.zarray", zarray()),
        ("old/y/.zattrs", json!({"units": "K"})),
        ("odd/zarr.json", odd),
        ("nothing/readme", json!("text")),
        ("broken/zarr.json", json!("x")),
    ]);
    let mut x = array();
    x["attributes"] = json!({});
    let mut y = zarray();
    y["attributes"] = json!({"units": "K"});
    let expected = json!({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}, "members": {
        "x": x,
        "odd": {"zarr_format": 3, "node_type": "group", "attributes": {"a": 1},
            "_members": {"must_understand": false}, "__members": {"must_understand": false},
            "members": {}},
        "old": {"zarr_format": 2, "attributes": {}, "members": {"y": y}},
    }});
    let mut found: Value =
        serde_json::from_slice(&zom_json(&store, &Key::root()).unwrap()).unwrap();
    // What is no document of a node is only text.
    let members = found["members"].as_object_mut().unwrap();
    members.shift_remove("broken");
    assert_eq!(found, expected);
    let below: Value = serde_json::from_slice(&zom_json(&store, &key("old/y")).unwrap()).unwrap();
    assert_eq!(below["attributes"]["units"], "K");
    assert!(matches!(
        zom_json(&store, &key("nothing")),
        Err(NoOutline::Absent(_))
    ));
    assert!(matches!(
        zmetadata_json(&store, &Key::root()),
        Err(NoOutline::Absent(_))
    ));
    let copies: Value =
        serde_json::from_slice(&zmetadata_json(&store, &key("old")).unwrap()).unwrap();
    let expected = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {"zarr_format": 2}, "y/.zarray": zarray(), "y/.zattrs": {"units": "K"}}});
    assert_eq!(copies, expected);
}

#[test]
fn copies_are_read_where_there_are_any() {
    let mut root = group();
    let metadata = json!({"g": group(), "g/x": array()});
    root["consolidated_metadata"] = json!({"kind": "inline", "metadata": metadata});
    // Not in the copies, so that a walk would be seen.
    let store = store(&[("zarr.json", root), ("y/zarr.json", array())]);
    let outline = Outline::read(&store, &Key::root()).unwrap();
    let copies = outline.consolidated_metadata();
    assert_eq!(copies["metadata"], metadata);
    let translated = outline.translated(Target::V2, &Key::root(), &mut |key, why| {
        panic!("{key}: {why}");
    });
    let copies = translated.unwrap().zmetadata();
    let names: Vec<&String> = copies["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            ".zgroup",
            ".zattrs",
            "g/.zgroup",
            "g/.zattrs",
            "g/x/.zarray"
        ]
    );
}

#[test]
fn what_is_left_out_is_told_with_its_reason() {
    let mut odd = array();
    odd["data_type"] = "bfloat16".into();
    odd["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let store = store(&[
        ("zarr.json", group()),
        ("x/zarr.json", array()),
        ("odd/zarr.json", odd),
        ("broken/zarr.json", json!([])),
    ]);
    let left_out = super::super::left_out(&store, &Key::root()).unwrap();
    let found: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "as-v2/broken: zarr.json: expected an object, not a list",
            "as-v2/odd: data type bfloat16 has no name in v2",
            "unsharded/broken: zarr.json: expected an object, not a list",
        ]
    );
}

#[test]
fn too_many_nodes_and_too_deep_ones_have_no_outline() {
    let names: Vec<String> = (0..=MAX_NODES).map(|i| format!("{i}/.zgroup")).collect();
    let values = names.iter().map(|name| (key(name), b"{}".to_vec()));
    let budget = &mut Budget {
        nodes: 100,
        bytes: MAX_MEMORY_BYTES,
    };
    let many = MemoryStore::new(values.take(200));
    let walked = Outline::default().walk(&many, &Key::root(), 0, budget);
    assert!(matches!(walked, Err(NoOutline::Absent(_))), "{walked:?}");
    let deep = MemoryStore::new([(key(&format!("{}x", "a/".repeat(100))), vec![])]);
    let outline = Outline::read(&deep, &Key::root());
    assert!(matches!(outline, Err(NoOutline::Absent(_))), "{outline:?}");
}
