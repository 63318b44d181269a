//! Consolidated metadata of groups below the root.

use super::*;

#[test]
fn groups_below_the_root_may_have_their_own_consolidated_metadata() {
    let copies = [("x", array(&[1], &[1], json!("default")))];
    let v2 = [
        (".zgroup", zgroup()),
        ("y/.zarray", zarray(&[1], &[1], ".")),
    ];
    let (server, store) = listing(Server::new(&[
        ("zarr.json", group()),
        ("three/zarr.json", consolidated(&copies)),
        ("two/.zgroup", zgroup()),
        ("two/.zmetadata", zmetadata(&v2)),
    ]));
    assert_eq!(names(&store, "three"), ["x/", "zarr.json"]);
    assert_eq!(names(&store, "two"), [".zgroup", ".zmetadata", "y/"]);
    server.asked();
    assert_eq!(names(&store, "three/x/c"), ["0"]);
    assert_eq!(names(&store, "two/y"), [".zarray", "0"]);
    assert!(is_absent(&store, "two/y/zarr.json"));
    assert_eq!(server.asked(), (0, 0, 0));
}

#[test]
fn consolidated_metadata_above_a_group_apply_regardless_of_earlier_loads() {
    for lists in [false, true] {
        for before in ["", "g", "g/h", "g/h/a", "g/x", "g/h/x"] {
            for is_listed in [false, true] {
                let (_, store) = listing(nested_server(lists));
                match is_listed {
                    true => drop(block_on(store.list(&key(before)))),
                    false => drop(block_on(store.stat(&key(before)))),
                }
                let case = format!("{lists} {before} {is_listed}");
                // As when a prefix is used again after its metadata have expired.
                block_on(store.load(&key("g/h"), Depth::Listing)).unwrap();
                let incomplete = block_on(store.incomplete_listing(&key("g/h"))).unwrap();
                assert_eq!(incomplete, None, "{case}");
                assert_eq!(names(&store, "g/h"), [".zgroup", "a/"], "{case}");
                assert_eq!(names(&store, "g/h/a"), [".zarray", "0"], "{case}");
                assert_eq!(kind(&store, "g/implicit"), Kind::Prefix, "{case}");
            }
        }
    }
}

#[test]
fn consolidated_metadata_above_a_group_are_loaded_once() {
    let (server, store) = listing(nested_server(false));
    assert_eq!(kind(&store, "g/h/a"), Kind::Prefix);
    // The root, and three documents each of `g`, `h` and `a`.
    assert_eq!(server.asked(), (4 + 3 * 3, 1, 0));
    assert_eq!(names(&store, "g/h"), [".zgroup", "a/"]);
    // Two more documents each of `g` and `h`.
    assert_eq!(server.asked(), (2, 2, 1));
    assert_eq!(names(&store, "g/h"), [".zgroup", "a/"]);
    assert_eq!(kind(&store, "g/implicit/a"), Kind::Prefix);
    let all = [".zgroup", ".zmetadata", "h/", "implicit/"];
    assert_eq!(names(&store, "g"), all);
    assert_eq!(server.asked(), (0, 0, 0));
}

#[test]
fn a_listing_of_the_server_needs_no_documents_above() {
    let (server, store) = listing(nested_server(true));
    assert_eq!(names(&store, "g/h"), [".zgroup", "a/"]);
    // The root, and all documents of `h`.
    assert_eq!(server.asked(), (4 + 4, 2, 1));
}

#[test]
fn loads_of_one_prefix_share_their_requests() {
    let mut server = nested_server(false);
    server.latency = Duration::from_millis(100);
    let (server, store) = listing(server);
    block_on(store.load(&Key::root(), Depth::Node)).unwrap();
    server.asked();
    thread::scope(|scope| {
        for depth in [Depth::Node, Depth::Listing, Depth::Node, Depth::Listing] {
            let store = &store;
            scope.spawn(move || block_on(store.load(&key("g"), depth)).unwrap());
        }
    });
    assert_eq!(server.asked(), (4, 1, 0));
    let cached = store.loader.cached(&key("g"), Depth::Listing);
    assert!(cached.unwrap().is_consolidated());
}
