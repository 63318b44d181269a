//! What the server lists itself, and what cannot be listed.

use super::*;

#[test]
fn names_that_the_inner_store_lists_are_added_once() {
    let mut server = Server::new(&[
        ("zarr.json", group()),
        ("a/zarr.json", array(&[1], &[1], json!("default"))),
        ("raw/file", json!(1)),
    ]);
    let page = vec![
        (".", Kind::Prefix),
        ("zarr.json", Kind::Object),
        ("a", Kind::Prefix),
        ("raw", Kind::Prefix),
        ("a", Kind::Prefix),
    ];
    server.listings.insert(Key::root(), page);
    server
        .listings
        .insert(key("raw"), vec![("file", Kind::Object)]);
    server
        .listings
        .insert(key("a"), vec![("stray", Kind::Object)]);
    let (server, store) = listing(server);
    assert_eq!(names(&store, ""), ["a/", "raw/", "zarr.json"]);
    assert_eq!(names(&store, "raw"), ["file"]);
    // A listing of an array by the server is better than the names that the grid allows.
    assert_eq!(names(&store, "a"), ["stray", "zarr.json"]);
    for name in ["zarr.json", ".zgroup", ".zarray"] {
        server.fault(&format!("raw/{name}"), Fault::Denied);
    }
    assert_eq!(names(&store, "raw"), ["file"]);
}

#[test]
fn incomplete_listings_are_reported() {
    let (_, store) = listing(v2_server());
    let unknown = |prefix: &str| {
        let unknown = block_on(store.incomplete_listing(&key(prefix))).unwrap()?;
        assert!(unknown.is_unlisted, "{unknown:?}");
        Some(unknown.what)
    };
    assert_eq!(unknown(""), None);
    assert_eq!(unknown("g"), None);
    assert!(unknown("a").unwrap().starts_with("chunks: all"));
    assert!(unknown("g/n/0").unwrap().starts_with("chunks: all"));
    let new = unknown("new").unwrap();
    assert!(new.contains("lists nothing and there are no consolidated metadata"));
    let nothing = block_on(store.incomplete_listing(&key("nothing")));
    assert!(matches!(nothing, Err(StoreError::NotFound { .. })));
    assert_eq!(unknown("a/README"), None);
}

#[test]
fn listed_prefixes_differ_from_unlisted_prefixes() {
    let mut server = Server::new(&[
        (".zgroup", zgroup()),
        ("a/.zarray", zarray(&[3], &[1], ".")),
        ("a/more/.zarray", zarray(&[3], &[1], ".")),
    ]);
    server.listings.insert(key(""), vec![("a", Kind::Prefix)]);
    server
        .listings
        .insert(key("a"), vec![("1", Kind::Object), ("more", Kind::Prefix)]);
    server
        .listings
        .insert(key("a/more"), vec![("1", Kind::Object)]);
    let (server, store) = listing(server);
    // The metadata of an array do not explain directories below it.
    for (prefix, about) in [
        ("", "children: "),
        ("a", "chunks: "),
        ("a/more", "children: "),
    ] {
        let unknown = block_on(store.incomplete_listing(&key(prefix)));
        let unknown = unknown.unwrap().unwrap();
        assert!(!unknown.is_unlisted, "{unknown:?}");
        assert!(unknown.what.starts_with(about), "{unknown:?}");
        assert!(unknown.what.contains("may lack some"), "{unknown:?}");
    }
    server.asked();
    for _ in 0..3 {
        assert!(block_on(store.incomplete_listing(&key(""))).is_ok());
    }
    assert_eq!(server.asked(), (0, 0, 0), "each format of a group asks");
}
