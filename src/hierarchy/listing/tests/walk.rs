//! Names of metadata documents and chunks, as a walk finds them.

use super::*;

#[test]
fn consolidated_v2_metadata_name_everything() {
    let (server, store) = listing(v2_server());
    let root = [
        ".zattrs",
        ".zgroup",
        ".zmetadata",
        "a/",
        "g-x/",
        "g/",
        "implicit/",
    ];
    assert_eq!(names(&store, ""), root);
    let a = [".zarray", ".zattrs", "0.0", "0.1", "1.0", "1.1"];
    assert_eq!(names(&store, "a"), a);
    assert_eq!(names(&store, "g"), [".zgroup", "n/"]);
    assert_eq!(names(&store, "g/n"), [".zarray", "0/", "1/"]);
    assert_eq!(names(&store, "g/n/1"), ["0", "1"]);
    assert_eq!(names(&store, "implicit"), ["s/"]);
    assert_eq!(names(&store, "implicit/s"), [".zarray", "0"]);
    for (prefix, links) in [("", 6), ("a", 2), ("g", 3), ("g/n", 4), ("g/n/0", 2)] {
        let stat = block_on(store.stat(&key(prefix))).unwrap();
        assert_eq!((stat.kind, stat.links), (Kind::Prefix, links), "{prefix}");
        assert!(matches!(
            block_on(store.open(&key(prefix), AccessHint::Ranges)),
            Err(StoreError::NotAPrefix { .. })
        ));
    }
    for name in [
        "zarr.json",
        "a/zarr.json",
        "a/.zgroup",
        "g/n/.zattrs",
        "g/.zarray",
        "g-x/zarr.json",
    ] {
        assert!(is_absent(&store, name), "{name}");
    }
    assert_eq!(server.asked(), (2, 0, 0));
}

#[test]
fn consolidated_v3_metadata_name_everything() {
    let dot = json!({"name": "default", "configuration": {"separator": "."}});
    let sharded = json!({"zarr_format": 3, "node_type": "array", "shape": [8, 8],
        "data_type": "int16", "fill_value": 0, "chunk_key_encoding": "default",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 8]}},
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 2],
            "codecs": ["bytes"], "index_codecs": ["bytes", "crc32c"]}}]});
    let mut odd = array(&[2], &[1], json!("default"));
    odd["data_type"] = json!("not known");
    let copies = [
        ("dot", array(&[2, 1], &[1, 1], dot)),
        ("g", group()),
        ("g/v2", array(&[2, 1], &[1, 1], json!("v2"))),
        ("odd", odd),
        ("scalar", array(&[], &[], json!("default"))),
        ("sharded", sharded),
        (
            "unknown",
            array(&[2], &[1], json!({"name": "by the weather"})),
        ),
        ("empty", array(&[0, 7], &[1, 1], json!("default"))),
    ];
    let (server, store) = listing(Server::new(&[
        ("zarr.json", consolidated(&copies)),
        ("unknown/whatever", json!(1)),
        ("scalar/c", json!(1)),
    ]));
    let mut keys = Vec::new();
    walk(&store, "", &mut keys);
    keys.sort();
    let expected = [
        "dot/c.0.0",
        "dot/c.1.0",
        "dot/zarr.json",
        "empty/zarr.json",
        "g/v2/0.0",
        "g/v2/1.0",
        "g/v2/zarr.json",
        "g/zarr.json",
        "odd/c/0",
        "odd/c/1",
        "odd/zarr.json",
        "scalar/c",
        "scalar/zarr.json",
        "sharded/c/0/0",
        "sharded/c/1/0",
        "sharded/zarr.json",
        "unknown/zarr.json",
        "zarr.json",
    ];
    assert_eq!(keys, expected);
    // The inner store may list the chunks of an unsupported grid.
    assert_eq!(server.asked(), (2, 0, 1));
    for name in [".zgroup", "g/.zattrs", "g/v2/.zarray", "dot/.zmetadata"] {
        assert!(is_absent(&store, name), "{name}");
    }
    assert_eq!(server.asked(), (0, 0, 0));
    assert_eq!(kind(&store, "unknown/whatever"), Kind::Object);
    assert_eq!(kind(&store, "scalar/c"), Kind::Object);
    assert_eq!(kind(&store, "sharded/c/1"), Kind::Prefix);
    assert!(is_absent(&store, "sharded/c/2") && is_absent(&store, "empty/c"));
}

#[test]
fn requests_find_names_without_consolidated_metadata() {
    let values = [
        (".zgroup", zgroup()),
        (".zattrs", json!({})),
        ("g/.zgroup", zgroup()),
        ("g/a/.zarray", zarray(&[2, 2], &[1, 1], "/")),
        ("g/a/.zattrs", json!({})),
        ("g/a/0/1", json!(1)),
        ("three/zarr.json", array(&[2], &[1], json!("default"))),
    ];
    let (server, store) = listing(Server::new(&values));
    assert_eq!(kind(&store, ""), Kind::Prefix);
    assert_eq!(server.asked(), (4, 0, 0));
    assert_eq!(names(&store, ""), [".zattrs", ".zgroup"]);
    assert_eq!(server.asked(), (0, 1, 1));
    assert_eq!(kind(&store, "g"), Kind::Prefix);
    assert_eq!(server.asked(), (3, 1, 0));
    assert_eq!(kind(&store, "g/a"), Kind::Prefix);
    assert_eq!(server.asked(), (3, 1, 0));
    assert_eq!(kind(&store, "g/a/0"), Kind::Prefix);
    assert_eq!(block_on(store.stat(&key("g/a"))).unwrap().links, 4);
    assert_eq!(names(&store, "g/a/0"), ["0", "1"]);
    assert!(is_absent(&store, "g/a/zarr.json") && is_absent(&store, "g/a/.zgroup"));
    assert_eq!(server.asked(), (0, 0, 0));
    assert_eq!(names(&store, "g/a"), [".zarray", ".zattrs", "0/", "1/"]);
    assert_eq!(names(&store, "g"), [".zgroup"]);
    // A server that has answered once that it does not list gets no further list requests.
    assert_eq!(server.asked(), (1, 2, 0));
    assert!(is_absent(&store, "g/a/1/1"));
    assert_eq!(server.asked(), (1, 1, 0));
    assert_eq!(kind(&store, "g/a/0/1"), Kind::Object);
    assert_eq!(names(&store, "three"), ["c/", "zarr.json"]);
    server.asked();
    assert!(is_absent(&store, "nothing"));
    assert_eq!(server.asked(), (4, 1, 0));
    assert!(matches!(
        block_on(store.stat(&key("nothing"))),
        Err(StoreError::NotFound { .. })
    ));
    assert_eq!(server.asked(), (0, 0, 0));
}

#[test]
fn directories_of_chunks_are_found_without_a_walk_from_the_root() {
    let values = [
        ("zarr.json", group()),
        ("g/zarr.json", group()),
        ("g/a/zarr.json", array(&[2, 2], &[1, 1], json!("default"))),
    ];
    for ttl in [LONG, Duration::ZERO] {
        let server = Arc::new(Server::new(&values));
        let store = || MetadataListingStore::new(Arc::<Server>::clone(&server), ttl, ttl);
        assert_eq!(kind(&store(), "g/a/c/1"), Kind::Prefix);
        assert_eq!(names(&store(), "g/a/c/1"), ["0", "1"]);
        assert_eq!(names(&store(), "g/a/c"), ["0/", "1/"]);
        assert_eq!(names(&store(), "g/a"), ["c/", "zarr.json"]);
        assert!(is_absent(&store(), "g/a/c/1/0"));
        assert!(is_absent(&store(), "g/a/c/2"));
    }
}

#[test]
fn arrays_may_be_the_root() {
    let (_, store) = listing(Server::new(&[
        (".zarray", zarray(&[2, 1], &[1, 1], ".")),
        ("0.0", json!(1)),
    ]));
    assert_eq!(names(&store, ""), [".zarray", "0.0", "1.0"]);
    assert_eq!(kind(&store, "0.0"), Kind::Object);
    assert!(is_absent(&store, "1.0"));
    let array = array(&[2], &[1], json!("default"));
    let (_, store) = listing(Server::new(&[("zarr.json", array)]));
    assert_eq!(names(&store, ""), ["c/", "zarr.json"]);
    assert_eq!(names(&store, "c"), ["0", "1"]);
    let scalar = zarray(&[], &[], "/");
    let (_, store) = listing(Server::new(&[(".zarray", scalar), ("0", json!(1))]));
    assert_eq!(names(&store, ""), [".zarray", "0"]);
    assert_eq!(kind(&store, "0"), Kind::Object);
}

#[test]
fn requests_find_nodes_that_consolidated_metadata_lack() {
    let (server, store) = listing(v2_server());
    assert_eq!(kind(&store, "new"), Kind::Prefix);
    assert_eq!(names(&store, "new"), [".zgroup"]);
    assert!(is_absent(&store, "new/x") && is_absent(&store, "g/x"));
    server.asked();
    assert_eq!(kind(&store, "new"), Kind::Prefix);
    assert_eq!(server.asked(), (0, 0, 0));
}

#[test]
fn both_formats_may_be_at_one_root() {
    let three = [
        ("a", array(&[2], &[1], json!("v2"))),
        ("b", group()),
        ("3", group()),
    ];
    let two = [
        (".zgroup", zgroup()),
        ("a/.zarray", zarray(&[2], &[1], ".")),
        ("2/.zgroup", zgroup()),
    ];
    let (server, store) = listing(Server::new(&[
        ("zarr.json", consolidated(&three)),
        (".zmetadata", zmetadata(&two)),
    ]));
    let root = [".zgroup", ".zmetadata", "2/", "3/", "a/", "b/", "zarr.json"];
    assert_eq!(names(&store, ""), root);
    assert_eq!(names(&store, "a"), [".zarray", "0", "1", "zarr.json"]);
    assert!(is_absent(&store, "2/zarr.json") && is_absent(&store, "3/.zgroup"));
    assert_eq!(server.asked(), (2, 0, 0));
    // Consolidated metadata of v2 do not contain documents of v3.
    let (server, store) = listing(Server::new(&[
        ("zarr.json", group()),
        (".zmetadata", zmetadata(&two)),
        ("a/zarr.json", array(&[2], &[1], json!("v2"))),
    ]));
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    assert_eq!(server.asked(), (2, 1, 0));
}

#[test]
fn nodes_and_chunks_of_one_name_are_listed_once() {
    let copies = [
        (".zgroup", zgroup()),
        ("a/.zarray", zarray(&[3], &[1], ".")),
        ("a/1/.zgroup", zgroup()),
    ];
    let (_, store) = listing(Server::new(&[(".zmetadata", zmetadata(&copies))]));
    assert_eq!(names(&store, "a"), [".zarray", "0", "1/", "2"]);
    assert_eq!(kind(&store, "a/1"), Kind::Prefix);
}
