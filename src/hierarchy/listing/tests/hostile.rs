//! Hostile shapes and names.

use super::*;

#[test]
fn hostile_shapes_allocate_nothing() {
    let billion = 1_000_000_000;
    let most = u64::MAX;
    let ones = [1; 64];
    let copies = [
        (".zgroup", zgroup()),
        ("big/.zarray", zarray(&[billion, billion], &[1, 1], ".")),
        ("deep/.zarray", zarray(&[billion, billion], &[1, 1], "/")),
        (
            "most/.zarray",
            json!({"zarr_format": 2, "shape": [most], "chunks": [1], "dtype": "|i1"}),
        ),
        ("over/.zarray", zarray(&[most, most], &[1, 1], ".")),
        (
            "empty/.zarray",
            json!({"zarr_format": 2, "shape": [most, most, 0], "chunks": [1, 1, 1],
            "dtype": "|i1", "dimension_separator": "/"}),
        ),
        ("ranks/.zarray", zarray(&ones, &ones, "/")),
        ("many/.zarray", zarray(&[1; 65], &[1; 65], "/")),
        ("none/.zarray", zarray(&[4], &[0], ".")),
        ("odd/.zarray", json!({"zarr_format": 2, "shape": "x"})),
        ("no/.zarray", json!(null)),
    ];
    let (server, store) = listing(Server::new(&[(".zmetadata", zmetadata(&copies))]));
    let first = |prefix: &str, cookie: u64| {
        let mut found = Vec::new();
        let mut listing = block_on(store.list(&key(prefix))).unwrap();
        let visited = listing.visit(cookie, &mut |listed| {
            found.push(String::from_utf8_lossy(listed.name).into_owned());
            match found.len() {
                5 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        (found, visited.is_ok())
    };
    let big = ["..", ".zarray", "0.0", "0.1", "0.2"].map(str::to_owned);
    assert_eq!(first("big", 1), (big.to_vec(), true));
    let last = ["999999999.999999998", "999999999.999999999"].map(str::to_owned);
    let chunks = billion * billion;
    assert_eq!(first("big", 3 + chunks - 2), (last.to_vec(), true));
    assert_eq!(first("big", 3 + chunks), (vec![], true));
    assert_eq!(first("big", u64::MAX), (vec![], true));
    assert_eq!(first("most", u64::MAX), (vec![], false));
    assert_eq!(
        block_on(store.stat(&key("deep"))).unwrap().links,
        2 + 1_000_000_000
    );
    let nested = ["0", "1", "2", "3", "4"].map(str::to_owned);
    assert_eq!(first("deep/999999999", 2), (nested.to_vec(), true));
    for prefix in ["over", "empty", "many", "none", "odd", "no"] {
        assert_eq!(names(&store, prefix), [".zarray"], "{prefix}");
        // It might be a directory of chunks, which the server does not list.
        let found = block_on(store.stat(&key(&format!("{prefix}/0"))));
        let is_right = match found {
            Err(StoreError::NotFound { .. }) => prefix == "empty",
            Err(StoreError::Corrupt { what, .. }) => what.contains(&format!("of {prefix}")),
            _ => false,
        };
        assert!(is_right, "{prefix}");
    }
    let mut keys = Vec::new();
    walk(&store, "ranks", &mut keys);
    assert_eq!(keys.last().unwrap().len(), "ranks".len() + 64 * 2);
    // Below a broken array, the documents of a node are looked for; for an array without chunks, its own ones.
    assert_eq!(server.asked().0, 2 + 6 + 4 * 7);
}

#[test]
fn hostile_names_are_left_out() {
    let long = "x".repeat(256);
    let deep = format!("deep{}", "/d".repeat(2000));
    let zarr_copies = [
        ("../up", group()),
        ("a//b", group()),
        ("/root", group()),
        ("nul\0", group()),
        (long.as_str(), group()),
        ("zarr.json", group()),
        ("zarr.json/x", group()),
        ("g/zarr.json", group()),
        ("g", group()),
        ("g0", group()),
        ("g-x", group()),
        ("g/y", group()),
        (deep.as_str(), group()),
    ];
    let (_, store) = listing(Server::new(&[("zarr.json", consolidated(&zarr_copies))]));
    assert_eq!(
        names(&store, ""),
        ["deep/", "g-x/", "g/", "g0/", "zarr.json"]
    );
    assert_eq!(names(&store, "g"), ["y/", "zarr.json"]);
    assert_eq!(kind(&store, "zarr.json"), Kind::Object);
    let half = &deep[..2000];
    assert_eq!(names(&store, half), ["d/"]);
    assert_eq!(names(&store, &deep), ["zarr.json"]);
    let odd = Key::new(b"g/\xff").unwrap();
    assert!(matches!(
        block_on(store.stat(&odd)),
        Err(StoreError::NotFound { .. })
    ));
}
