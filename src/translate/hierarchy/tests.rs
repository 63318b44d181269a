use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::array::Engine;
use crate::runtime::block_on;
use crate::store::{MemoryStore, Store};
use crate::translate::tests::{TestStore, engine, engine_of};
use crate::translate::{TranslationDiagnostic, diagnostics};

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
fn the_object_model_has_the_content_of_documents_and_members() {
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
    let zom = |path: &str| block_on(zom_json(&store, &key(path), &engine()));
    let zmetadata = |path: &str| block_on(zmetadata_json(&store, &key(path), &engine()));
    let parsed = |whole: &HierarchyDocument| -> Value {
        serde_json::from_slice(&whole.text(&Key::root()).unwrap()).unwrap()
    };
    let found = zom("").unwrap();
    assert_eq!(parsed(&found), expected);
    assert_eq!(found.notes, ["without broken: its document is no object"]);
    let below = parsed(&zom("old/y").unwrap());
    assert_eq!(below["attributes"]["units"], "K");
    assert!(matches!(zom("nothing"), Err(HierarchyError::Absent(_))));
    assert!(matches!(zmetadata(""), Err(HierarchyError::Absent(_))));
    let copies = parsed(&zmetadata("old").unwrap());
    let expected = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {"zarr_format": 2}, "y/.zarray": zarray(), "y/.zattrs": {"units": "K"}}});
    assert_eq!(copies, expected);
}

/// A root whose consolidated metadata have other arrays than the store.
fn of_two_minds() -> MemoryStore {
    let mut root = group();
    let metadata = json!({"g": group(), "g/x": array(), "gone": array()});
    root["consolidated_metadata"] = json!({"kind": "inline", "metadata": metadata});
    let mut odd = array();
    odd["data_type"] = "bfloat16".into();
    odd["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    store(&[
        ("zarr.json", root),
        ("g/zarr.json", group()),
        ("g/x/zarr.json", odd),
        ("y/zarr.json", array()),
    ])
}

fn copied(tree: DocumentTree) -> Vec<String> {
    let copies = tree.translated(Target::V2).unwrap().zmetadata();
    let names = copies["metadata"].as_object().unwrap().keys();
    names
        .filter(|name| !name.ends_with(".zattrs"))
        .cloned()
        .collect()
}

#[test]
fn consolidated_metadata_describe_nodes_of_remote_stores() {
    let remote = TestStore::remote(of_two_minds());
    let tree = read(&remote).unwrap().tree;
    tree.diagnostics(
        Target::V2,
        &Key::root(),
        &HashSet::new(),
        &mut |key, why| {
            panic!("{key}: {why}");
        },
    );
    let expected = [".zgroup", "g/.zgroup", "g/x/.zarray", "gone/.zarray"];
    assert_eq!(copied(tree), expected);
}

#[test]
fn consolidated_metadata_of_a_parent_describe_inner_groups_of_remote_stores() {
    let zgroup = json!({"zarr_format": 2});
    let metadata = json!({
        ".zgroup": zgroup, "g/.zgroup": zgroup, "g/x/.zarray": zarray(),
        "g/h/.zgroup": zgroup, "g/h/y/.zarray": zarray(), "gg/.zgroup": zgroup,
    });
    let consolidated = json!({"zarr_consolidated_format": 1, "metadata": metadata.clone()});
    let values = || {
        let mut values = vec![(".zmetadata", consolidated.clone())];
        let documents = metadata.as_object().unwrap().iter();
        values.extend(documents.map(|(key, document)| (key.as_str(), document.clone())));
        values.push(("other/.zgroup", json!({"zarr_format": 2})));
        store(&values)
    };
    for path in ["g", "g/h"] {
        let (local, remote) = (values(), TestStore::remote(values()));
        for make in [super::zom_json, super::zmetadata_json] {
            let [local, remote]: [&dyn Store; 2] = [&local, &remote];
            let [local, remote] = [local, remote].map(|store| {
                let read = block_on(Hierarchy::read_documents(store, &key(path), &engine()));
                HierarchyDocument::of(&read, &key(path), make)
            });
            let [local, remote]: [Value; 2] = [local, remote].map(|whole| {
                serde_json::from_slice(&whole.unwrap().text(&Key::root()).unwrap()).unwrap()
            });
            assert_eq!(local, remote, "{path}");
        }
    }
    // Consolidated metadata that do not contain the node prove nothing about it.
    let remote = TestStore::remote(values());
    let none = block_on(zom_json(&remote, &key("other"), &engine()));
    assert!(matches!(none, Err(HierarchyError::Absent(_))), "{none:?}");
}

#[test]
fn documents_describe_nodes_of_local_stores() {
    let store = of_two_minds();
    let tree = read(&store).unwrap().tree;
    assert_eq!(copied(tree), [".zgroup", "g/.zgroup", "y/.zarray"]);
    assert_eq!(
        lines(store.clone()),
        ["as-v2/g/x: data type bfloat16 has no name in v2"]
    );
}

#[test]
fn implicit_groups_are_groups_in_consolidated_metadata() {
    let zgroup = json!({"zarr_format": 2});
    let store = store(&[(".zgroup", zgroup.clone()), ("a/b/.zarray", zarray())]);
    let copies = |target| read(&store).unwrap().tree.translated(target).unwrap();
    let found = copies(Target::V3).consolidated_metadata();
    let node_type = |path: &str| found["metadata"][path]["node_type"].clone();
    assert_eq!(node_type("a"), "group");
    assert_eq!(node_type("a/b"), "array");
    assert_eq!(
        copies(Target::V2).zmetadata()["metadata"]["a/.zgroup"],
        zgroup
    );
}

#[test]
fn nodes_with_the_names_of_documents_are_omitted() {
    let store = store(&[
        ("zarr.json", group()),
        (".zattrs/zarr.json", array()),
        ("x/zarr.json", array()),
    ]);
    let why = "its name is that of a document";
    let expected = ["as-v2", "as-v3", "unsharded"].map(|target| format!("{target}/.zattrs: {why}"));
    assert_eq!(lines(store.clone()), expected);
    assert_eq!(copied(read(&store).unwrap().tree), [".zgroup", "x/.zarray"]);
    let below = diagnosed(store, &key("x"));
    assert!(below.is_empty());
}

#[test]
fn an_omitted_node_has_its_path_in_the_translation() {
    let store = store(&[
        ("sub/zarr.json", group()),
        ("sub/.zarray/zarr.json", array()),
    ]);
    let found = diagnosed(store, &key("sub"));
    assert_eq!(found[0].key, key("sub/.zarray"));
    assert!(found[0].to_string().starts_with("as-v2/.zarray: "));
}

#[test]
fn omitted_nodes_are_reported_with_the_reason() {
    let mut odd = array();
    odd["data_type"] = "bfloat16".into();
    odd["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let store = store(&[
        ("zarr.json", group()),
        ("x/zarr.json", array()),
        ("odd/zarr.json", odd),
        ("broken/zarr.json", json!([])),
    ]);
    assert_eq!(
        lines(store.clone()),
        [
            "as-v2/broken: zarr.json: expected an object, not a list",
            "as-v2/odd: data type bfloat16 has no name in v2",
            "unsharded/broken: zarr.json: expected an object, not a list",
        ]
    );
}

#[test]
fn too_many_nodes_and_too_deep_ones_are_errors() {
    let names: Vec<String> = (0..=MAX_NODES).map(|i| format!("{i}/.zgroup")).collect();
    let values = names.iter().map(|name| (key(name), b"{}".to_vec()));
    let many = MemoryStore::new(values.take(200));
    let walked = |most| {
        let (root, engine) = (Key::root(), engine());
        let read = Hierarchy::read(&many, &root, &engine, most);
        block_on(read).map(drop)
    };
    assert!(walked(200).is_ok());
    assert!(matches!(walked(100), Err(HierarchyError::Absent(_))));
    let deep = MemoryStore::new([(key(&format!("{}x", "a/".repeat(100))), vec![])]);
    assert!(matches!(read(&deep), Err(HierarchyError::Absent(_))));
    let large = read_with(&many, &engine_of(1 << 16));
    assert!(matches!(large, Err(HierarchyError::Absent(_))), "{large:?}");
}

#[test]
fn a_node_that_cannot_be_read_is_in_no_consolidated_document() {
    let values = || {
        store(&[
            (".zgroup", json!({"zarr_format": 2})),
            ("a/.zarray", zarray()),
            ("b/.zgroup", json!({"zarr_format": 2})),
            ("b/x/.zarray", zarray()),
        ])
    };
    let wholes = |store: &TestStore| {
        let root = &Key::root();
        [
            block_on(zom_json(store, root, &engine())),
            block_on(zmetadata_json(store, root, &engine())),
            read_all(store).map(|_| HierarchyDocument::default()),
        ]
    };
    for whole in wholes(&TestStore::local(values(), "", true)) {
        assert!(whole.unwrap().notes.is_empty());
    }
    // Failures of a document, and of the listing of a group.
    for fails in ["a/.zarray", "b"] {
        for whole in wholes(&TestStore::local(values(), fails, true)) {
            let Err(HierarchyError::Absent(why)) = whole else {
                panic!("{fails}: {whole:?}");
            };
            assert!(why.contains(fails) && why.contains("denied"), "{why}");
        }
    }
    for fails in ["a/.zarray", "b"] {
        for whole in wholes(&TestStore::local(values(), fails, false)) {
            assert!(matches!(whole, Err(HierarchyError::Failed(_))), "{whole:?}");
        }
    }
    // The other differences are still reported.
    let denied = "a/.zarray: access denied: as the test wants it";
    let copies = "no consolidated metadata, some metadata below it cannot be read";
    assert_eq!(
        lines(TestStore::local(values(), "a/.zarray", true)),
        [
            &format!("as-v2/a: {denied}"),
            &format!("as-v3/a: {denied}"),
            &format!("as-v3/zarr.json: {copies}: {denied}"),
            "unsharded/: it is not of version 3",
        ]
    );
}

#[test]
fn a_node_of_invalid_json_is_named_in_notes_and_has_no_consolidated_copy() {
    let mut values = vec![(key(".zgroup"), b"{\"zarr_format\": 2}".to_vec())];
    values.push((key("g/a/.zarray"), b"{".to_vec()));
    values.push((key("b/.zarray"), zarray().to_string().into_bytes()));
    let store = MemoryStore::new(values);
    let whole = block_on(zom_json(&store, &Key::root(), &engine())).unwrap();
    let model: Value = serde_json::from_slice(&whole.text(&Key::root()).unwrap()).unwrap();
    assert_eq!(model["members"].as_object().unwrap().len(), 1);
    assert_eq!(
        whole.notes,
        ["without g: no document says that it is a group"]
    );
    let below = MemoryStore::new([
        (key(".zgroup"), b"{}".to_vec()),
        (key("a/.zarray"), b"{".to_vec()),
    ]);
    let notes = block_on(zom_json(&below, &Key::root(), &engine()))
        .unwrap()
        .notes;
    assert!(notes[0].starts_with("without a: .zarray: "), "{notes:?}");
    let none = block_on(zmetadata_json(&store, &Key::root(), &engine()));
    let Err(HierarchyError::Absent(why)) = none else {
        panic!("{none:?}");
    };
    assert!(
        why.starts_with("a document is not consolidated: g/a/.zarray: "),
        "{why}"
    );
}

async fn zom_json(
    store: &dyn Store,
    key: &Key,
    engine: &Engine,
) -> Result<HierarchyDocument, HierarchyError> {
    let read = Hierarchy::read_documents(store, key, engine).await;
    HierarchyDocument::of(&read, key, super::zom_json)
}

async fn zmetadata_json(
    store: &dyn Store,
    key: &Key,
    engine: &Engine,
) -> Result<HierarchyDocument, HierarchyError> {
    let read = Hierarchy::read_documents(store, key, engine).await;
    HierarchyDocument::of(&read, key, super::zmetadata_json)
}

fn read(store: &dyn Store) -> Result<Hierarchy, HierarchyError> {
    read_with(store, &engine())
}

fn read_with(store: &dyn Store, engine: &Engine) -> Result<Hierarchy, HierarchyError> {
    block_on(Hierarchy::read(store, &Key::root(), engine, MAX_NODES))
}

fn read_all(store: &dyn Store) -> Result<Hierarchy, HierarchyError> {
    block_on(Hierarchy::read_all(
        store,
        &Key::root(),
        &engine(),
        MAX_NODES,
    ))
}

fn diagnosed(store: impl Store + 'static, root: &Key) -> Vec<TranslationDiagnostic> {
    let store: Arc<dyn Store> = Arc::new(store);
    let engine = engine();
    let read = block_on(Hierarchy::read_for_diagnostics(&*store, root, &engine)).unwrap();
    block_on(diagnostics(&read, &store, root, &engine)).unwrap()
}

fn lines(store: impl Store + 'static) -> Vec<String> {
    let diagnostics = diagnosed(store, &Key::root());
    diagnostics.iter().map(ToString::to_string).collect()
}
