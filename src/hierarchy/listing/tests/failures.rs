//! Failures of the server, which are never absence.

use super::*;

#[test]
fn values_and_their_absence_come_from_the_inner_store() {
    let (server, store) = listing(v2_server());
    for there in ["a/0.0", "a/README", "g/n/1/0", "a/.zarray", ".zmetadata"] {
        assert_eq!(kind(&store, there), Kind::Object, "{there}");
        let object = block_on(store.open(&key(there), AccessHint::Ranges)).unwrap();
        block_on(read_to_end(&*object, &key(there), 10_000)).unwrap();
    }
    server.asked();
    for absent in ["a/0.1", "a/7.7", "a/x", "g/n/0/0", "g/n/0/5", "g/n/0/0/0"] {
        assert!(is_absent(&store, absent), "{absent}");
        assert_eq!(server.asked(), (1, 1, 0), "{absent}");
    }
    assert!(matches!(
        block_on(store.list(&key("a/README"))),
        Err(StoreError::NotAPrefix { .. })
    ));
    assert!(matches!(
        block_on(store.list(&key("a/0.0"))),
        Err(StoreError::NotAPrefix { .. })
    ));
    // The consolidated metadata contain the document.
    server.put(&[(".zmetadata", json!(1))]);
    assert!(is_absent(&store, "a/.zarray"));
}

#[test]
fn consolidated_metadata_that_cannot_be_fetched_are_not_absent() {
    for fault in [Fault::TimedOut, Fault::Unavailable] {
        let (server, store) = listing(nested_server(true));
        server.fault("g/.zmetadata", fault);
        assert!(block_on(store.incomplete_listing(&key("g/h"))).is_err());
        let error = block_on(store.stat(&key("g/implicit"))).unwrap_err();
        assert!(!matches!(error, StoreError::NotFound { .. }), "{error}");
        server.mend();
        let incomplete = block_on(store.incomplete_listing(&key("g/h")));
        assert_eq!(incomplete.unwrap(), None);
        assert_eq!(kind(&store, "g/implicit"), Kind::Prefix);
    }
    // Many servers deny names that begin with a dot. They are not asked again for each listing.
    let (server, store) = listing(nested_server(true));
    server.fault("g/.zmetadata", Fault::Denied);
    for requests in [None, Some((0, 0, 0))] {
        let incomplete = block_on(store.incomplete_listing(&key("g/h")));
        assert!(incomplete.unwrap().is_some());
        let asked = server.asked();
        assert!(
            requests.is_none_or(|requests| requests == asked),
            "{asked:?}"
        );
    }
}

#[test]
fn a_failure_is_never_absence() {
    for fault in [Fault::Denied, Fault::TimedOut, Fault::Unavailable] {
        let is_fault = |error: &StoreError| match error {
            StoreError::Denied { .. } => fault == Fault::Denied,
            StoreError::TimedOut { .. } => fault == Fault::TimedOut,
            StoreError::Unavailable { .. } => fault == Fault::Unavailable,
            _ => false,
        };
        let new = || {
            listing(Server::new(&[
                (".zgroup", zgroup()),
                ("a/.zarray", zarray(&[2], &[1], "/")),
                ("a/0", json!(1)),
            ]))
        };
        // A failure of the key itself, or of each document that could be below it.
        for name in ["x", "x/zarr.json", "x/.zarray", "x/.zgroup"] {
            let (server, store) = new();
            server.fault(name, fault);
            for _ in 0..2 {
                let error = block_on(store.stat(&key("x"))).unwrap_err();
                assert!(is_fault(&error), "{name}: {error}");
                let error = block_on(store.list(&key("x"))).unwrap_err();
                assert!(is_fault(&error), "{name}: {error}");
            }
            server.mend();
            assert!(is_absent(&store, "x"));
        }
        // A failure of a document above the key that could name it.
        for name in ["y/zarr.json", "zarr.json", ".zarray"] {
            let (server, store) = new();
            server.fault(name, fault);
            if !name.starts_with("y") {
                // A root that cannot be read may be an array.
                server.put(&[("unseen", json!(1))]);
            }
            let found = block_on(store.stat(&key("y/z"))).unwrap_err();
            assert!(is_fault(&found), "{name}: {found}");
            server.mend();
            if fault == Fault::Denied && !name.starts_with("y") {
                // A denied request is cached for a second.
                thread::sleep(Duration::from_millis(1100));
            }
            assert!(is_absent(&store, "y/z"));
        }
        // A failure of a chunk.
        let (server, store) = new();
        server.fault("a/1", fault);
        assert_eq!(kind(&store, "a"), Kind::Prefix);
        assert!(is_fault(&block_on(store.stat(&key("a/1"))).unwrap_err()));
        assert!(is_fault(
            &block_on(store.open(&key("a/1"), AccessHint::Ranges)).unwrap_err()
        ));
        server.mend();
        assert!(is_absent(&store, "a/1"));
    }
}

#[test]
fn a_document_that_is_denied_after_it_named_keys_is_an_error_of_the_listing() {
    let is_denied = |store: &MetadataListingStore, prefix: &str| {
        let error = block_on(store.list(&key(prefix))).unwrap_err();
        matches!(error, StoreError::Denied { .. })
    };
    let expire = || thread::sleep(Duration::from_millis(30));
    let server = |documents: &[(&str, Value)]| {
        let server = Arc::new(Server::new(documents));
        let inner: Arc<dyn Store> = Arc::clone(&server) as _;
        let ttl = Duration::from_millis(20);
        (server, MetadataListingStore::new(inner, ttl, ttl))
    };
    let document = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {
        "kind": "inline", "must_understand": false, "metadata": {"g": group(), "g/h": group()}}});
    let documents = [
        ("zarr.json", document),
        ("g/zarr.json", group()),
        ("x", json!(1)),
    ];
    let (denied, store) = server(&documents);
    assert_eq!(names(&store, ""), ["g/", "zarr.json"]);
    assert_eq!(names(&store, "g"), ["h/", "zarr.json"]);
    denied.fault("zarr.json", Fault::Denied);
    for _ in 0..2 {
        expire();
        assert!(is_denied(&store, ""));
        assert!(is_denied(&store, "g"));
        let error = block_on(store.stat(&key("g/h"))).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
        // Keys that need no document are read as before.
        assert_eq!(kind(&store, "x"), Kind::Object);
    }
    denied.mend();
    expire();
    assert_eq!(names(&store, ""), ["g/", "zarr.json"]);
    assert_eq!(names(&store, "g"), ["h/", "zarr.json"]);
    // A document that does not exist any more is no failure.
    denied.put(&[("zarr.json", group()), ("g/zarr.json", group())]);
    expire();
    assert_eq!(names(&store, ""), ["zarr.json"]);

    let (denied, store) = server(&[
        (".zgroup", zgroup()),
        ("g/.zgroup", zgroup()),
        ("g/.zattrs", json!({})),
        (
            "g/.zmetadata",
            json!({"zarr_consolidated_format": 1, "metadata": {".zgroup": zgroup(), "h/.zgroup": zgroup(),
                ".zattrs": {}}}),
        ),
    ]);
    let all = [".zattrs", ".zgroup", ".zmetadata", "h/"];
    assert_eq!(names(&store, "g"), all);
    denied.fault("g/.zattrs", Fault::Denied);
    expire();
    assert_eq!(names(&store, "g"), all);
    denied.fault("g/.zmetadata", Fault::Denied);
    for _ in 0..2 {
        expire();
        assert!(is_denied(&store, "g"));
    }
    // A document without names keeps its own.
    denied.mend();
    denied.put(&[
        (".zgroup", zgroup()),
        ("g/.zgroup", zgroup()),
        ("g/.zattrs", json!({})),
    ]);
    expire();
    assert_eq!(names(&store, "g"), [".zattrs", ".zgroup"]);
    denied.fault("g/.zattrs", Fault::Denied);
    expire();
    assert_eq!(names(&store, "g"), [".zattrs", ".zgroup"]);
}

#[test]
fn a_failed_load_of_the_root_is_repeated() {
    for fault in [Fault::TimedOut, Fault::Unavailable] {
        let (server, store) = listing(v2_server());
        server.fault(".zmetadata", fault);
        assert!(
            block_on(store.stat(&key("a"))).is_err()
                || block_on(store.stat(&key("g/n/0"))).is_err()
        );
        assert!(block_on(store.list(&Key::root())).is_err());
        server.mend();
        assert_eq!(names(&store, "g/n/0"), ["0", "1"]);
        // One of the documents is enough to know the names.
        let (server, store) = listing(v2_server());
        server.fault("zarr.json", fault);
        assert_eq!(names(&store, "g/n/0"), ["0", "1"]);
        let found = block_on(store.open(&key("a/zarr.json"), AccessHint::Ranges)).unwrap_err();
        assert!(matches!(found, StoreError::NotFound { .. }), "{found}");
        assert!(block_on(store.open(&key("zarr.json"), AccessHint::Ranges)).is_err());
        server.mend();
        server.asked();
        assert_eq!(names(&store, "g/n/0"), ["0", "1"]);
        assert_eq!(server.asked(), (2, 0, 0));
    }
}

#[test]
fn the_walk_continues_past_names_that_the_server_refuses() {
    // Many servers deny names that begin with a dot.
    let (server, store) = listing(Server::new(&[
        ("zarr.json", group()),
        ("a/zarr.json", array(&[1], &[1], json!("default"))),
    ]));
    for name in [".zmetadata", "a/.zarray", "a/.zgroup", "b/.zgroup"] {
        server.fault(name, Fault::Denied);
    }
    assert_eq!(names(&store, ""), ["zarr.json"]);
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    let absent = block_on(store.stat(&key("b"))).unwrap_err();
    assert!(matches!(absent, StoreError::Denied { .. }));
    let absent = block_on(store.open(&key("a/.zarray"), AccessHint::Ranges)).unwrap_err();
    assert!(matches!(absent, StoreError::Denied { .. }));
    server.asked();
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    assert_eq!(server.asked(), (0, 0, 0));

    // Consolidated metadata are sufficient, even if other documents are denied.
    let (server, store) = listing(v2_server());
    server.fault("zarr.json", Fault::Denied);
    assert_eq!(names(&store, "g/n/0"), ["0", "1"]);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(names(&store, "g/n/0"), ["0", "1"]);
    assert_eq!(server.asked(), (2, 0, 0));

    // A bucket that denies listings denies keys that do not exist.
    let mut values = Server::new(&[
        ("raw/a/.zgroup", zgroup()),
        ("file", json!(1)),
        ("zarr.json", json!(1)),
    ]);
    values.refuses_listings = true;
    values.put(&[("raw/a/.zgroup", zgroup()), ("file", json!(1))]);
    let (server, store) = listing(values);
    for name in ["zarr.json", ".zmetadata", ".zgroup", ".zarray"] {
        for prefix in ["", "raw/", "raw/a/"] {
            if (prefix, name) != ("raw/a/", ".zgroup") {
                server.fault(&format!("{prefix}{name}"), Fault::Denied);
            }
        }
    }
    server.fault("raw/a", Fault::Denied);
    assert_eq!(kind(&store, ""), Kind::Prefix);
    assert!(names(&store, "").is_empty());
    assert_eq!(kind(&store, "file"), Kind::Object);
    assert!(block_on(store.stat(&key("raw/a"))).is_err());
}

#[test]
fn a_root_without_valid_metadata_opens_files_by_name() {
    let long = json!("x".repeat(zarr_limit()));
    for broken in [json!("not metadata"), json!({"zarr_format": 9}), long] {
        let (server, store) = listing(Server::new(&[
            ("zarr.json", broken),
            ("file", json!(1)),
            ("a/.zarray", zarray(&[1], &[1], ".")),
        ]));
        assert_eq!(names(&store, ""), ["zarr.json"]);
        assert_eq!(kind(&store, "file"), Kind::Object);
        assert!(
            block_on(store.open(&key("file"), AccessHint::Ranges)).is_ok()
                && block_on(store.open(&key("zarr.json"), AccessHint::Ranges)).is_ok()
        );
        assert_eq!(names(&store, "a"), [".zarray", "0"]);
        server.asked();
        assert_eq!(kind(&store, ""), Kind::Prefix);
        assert_eq!(server.asked(), (0, 0, 0));
    }
    let (_, store) = listing(Server::new(&[
        (".zmetadata", json!({})),
        (".zgroup", zgroup()),
        ("a/.zgroup", zgroup()),
    ]));
    assert_eq!(names(&store, ""), [".zgroup", ".zmetadata"]);
    assert_eq!(names(&store, "a"), [".zgroup"]);
}
