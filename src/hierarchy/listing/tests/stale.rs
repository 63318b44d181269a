//! Consolidated metadata that are older than the documents of the nodes.

use super::*;

use crate::runtime::caller;

fn default_array(shape: u64) -> Value {
    array(&[shape], &[2], json!("default"))
}

/// A server whose consolidated metadata have an array `a` of two chunks, and the given values.
fn stale(values: &[(&str, Value)]) -> (Arc<Server>, MetadataListingStore) {
    let copies = [
        ("a", default_array(4)),
        ("g", group()),
        ("g/x", default_array(4)),
        ("same", default_array(4)),
    ];
    let mut all = vec![
        ("zarr.json", consolidated(&copies)),
        ("same/zarr.json", default_array(4)),
        ("same/c/0", json!(0)),
    ];
    all.extend_from_slice(values);
    listing(Server::new(&all))
}

/// Lists a server by metadata that expire.
fn expiring(server: &Arc<Server>, ttl: Duration, absent_ttl: Duration) -> MetadataListingStore {
    MetadataListingStore::new(Arc::<Server>::clone(server) as _, ttl, absent_ttl)
}

fn is_denied<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Denied { .. }))
}

/// Looks up a document, as programs do that copy a directory.
fn read_documents(store: &MetadataListingStore) {
    assert_eq!(kind(store, "zarr.json"), Kind::Object);
}

fn open_document(store: &MetadataListingStore, name: &str) -> Result<(), StoreError> {
    block_on(store.open(&key(name), AccessHint::Ranges)).map(drop)
}

#[test]
fn documents_give_the_names_if_programs_read_documents() {
    let (server, store) = stale(&[("a/zarr.json", default_array(6))]);
    read_documents(&store);
    server.asked();
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    assert_eq!(names(&store, "same/c"), ["0", "1"]);
    assert_eq!(names(&store, "same"), ["c/", "zarr.json"]);
    // One document each, which programs that copy the directories open anyway.
    assert_eq!(server.asked(), (2, 0, 0));
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn a_document_with_more_names_than_a_walk_has_seen_fails_once() {
    let (server, store) = stale(&[("a/zarr.json", default_array(6))]);
    let mut keys = Vec::new();
    walk(&store, "", &mut keys);
    assert_eq!(server.asked(), (2, 0, 0));
    assert!(!keys.contains(&"a/c/2".to_owned()));
    // Views do not depend on listings of programs.
    let whole = AccessHint::Whole(1000);
    block_on(store.open(&key("a/zarr.json"), whole)).unwrap();
    let error = open_document(&store, "a/zarr.json").unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable { what, .. } if what.contains("list the directory again")),
        "{error}"
    );
    open_document(&store, "a/zarr.json").unwrap();
    open_document(&store, "same/zarr.json").unwrap();
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
}

#[test]
fn a_listing_of_readahead_does_not_count_as_seen_by_a_program() {
    let (_, store) = stale(&[("a/zarr.json", default_array(6))]);
    assert_eq!(names(&store, "a/c"), ["0", "1"]);
    // Readahead looks up the document, and lists the directory with the names of the document.
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    drop(block_on(store.list(&key("a/c"))).unwrap());
    assert!(open_document(&store, "a/zarr.json").is_err());
    // The program lists the directory again.
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn a_process_that_lists_or_opens_later_makes_no_listing_of_another_complete() {
    // No numbers of real processes.
    let (one, other, third) = (1 << 30, 1 + (1 << 30), 2 + (1 << 30));
    let (_, store) = stale(&[("a/zarr.json", default_array(6))]);
    for process in [one, other] {
        let listed = caller::at_once_for(process, || names(&store, "a/c"));
        assert_eq!(listed, ["0", "1"]);
    }
    let open = |process| caller::at_once_for(process, || open_document(&store, "a/zarr.json"));
    assert!(open(one).is_err());
    open(one).unwrap();
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    let listed = caller::at_once_for(one, || names(&store, "a/c"));
    assert_eq!(listed, ["0", "1", "2"]);
    open(third).unwrap();
    assert!(open(other).is_err());
    open(other).unwrap();
}

#[test]
fn a_process_that_has_listed_nothing_may_have_the_names_of_another() {
    let (_, store) = stale(&[("a/zarr.json", default_array(6))]);
    let (one, other) = (1 << 30, 1 + (1 << 30));
    caller::at_once_for(one, || names(&store, "a/c"));
    let open = |process| caller::at_once_for(process, || open_document(&store, "a/zarr.json"));
    assert!(open(other).is_err());
    open(other).unwrap();
    assert!(open(one).is_err());
}

#[test]
fn a_complete_directory_completes_none_above_it() {
    let square = |rows: u64| array(&[rows, 4], &[2, 2], json!("default"));
    let copies = [("a", square(4))];
    let (_, store) = listing(Server::new(&[
        ("zarr.json", consolidated(&copies)),
        ("a/zarr.json", square(6)),
    ]));
    assert_eq!(names(&store, "a/c"), ["0/", "1/"]);
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    assert_eq!(names(&store, "a/c/0"), ["0", "1"]);
    assert!(open_document(&store, "a/zarr.json").is_err());
    // The names in the directory of the array are the same in each grid.
    let (_, store) = listing(Server::new(&[
        ("zarr.json", consolidated(&copies)),
        ("a/zarr.json", square(6)),
    ]));
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    assert_eq!(names(&store, "a/c"), ["0/", "1/", "2/"]);
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn a_document_that_was_denied_when_its_directory_was_listed_is_compared_when_it_is_opened() {
    let (server, _) = stale(&[("a/zarr.json", default_array(6))]);
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    read_documents(&store);
    server.fault("a/zarr.json", Fault::Denied);
    assert_eq!(names(&store, "a/c"), ["0", "1"]);
    assert!(is_denied(&open_document(&store, "a/zarr.json")));
    server.mend();
    let error = open_document(&store, "a/zarr.json").unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn listings_from_metadata_that_expire_at_once_are_compared_too() {
    let (server, _) = stale(&[("a/zarr.json", default_array(6))]);
    let store = MetadataListingStore::new(server, Duration::ZERO, Duration::ZERO);
    assert_eq!(names(&store, "a/c"), ["0", "1"]);
    assert!(open_document(&store, "a/zarr.json").is_err());
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn a_listing_that_a_document_precedes_shows_the_names_from_before() {
    let (_, store) = stale(&[("a/zarr.json", default_array(6))]);
    let listing = block_on(store.list(&key("a/c"))).unwrap();
    // The document is compared before the program sees the names.
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    listing.record_shown();
    assert!(open_document(&store, "a/zarr.json").is_err());
    open_document(&store, "a/zarr.json").unwrap();
}

#[test]
fn a_document_that_cannot_be_read_for_now_gives_no_old_names() {
    let (server, store) = stale(&[("a/zarr.json", default_array(6))]);
    read_documents(&store);
    server.fault("a/zarr.json", Fault::TimedOut);
    let listed = block_on(store.list(&key("a/c")));
    assert!(
        matches!(listed, Err(StoreError::TimedOut { .. })),
        "{listed:?}"
    );
    server.mend();
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
}

#[test]
fn a_group_that_became_an_array_lists_chunks() {
    let (_, store) = stale(&[("g/zarr.json", default_array(6))]);
    read_documents(&store);
    assert_eq!(names(&store, "g"), ["c/", "zarr.json"]);
    assert_eq!(names(&store, "g/c"), ["0", "1", "2"]);
}

#[test]
fn nodes_in_the_consolidated_metadata_of_a_group_are_listed_too() {
    let copies = [("x", default_array(4)), ("y", default_array(4))];
    let values = [
        ("g/zarr.json", consolidated(&copies)),
        ("g/x/zarr.json", default_array(4)),
        ("g/y/zarr.json", default_array(4)),
    ];
    let (_, store) = stale(&values);
    read_documents(&store);
    assert_eq!(names(&store, "g"), ["x/", "y/", "zarr.json"]);
    assert_eq!(names(&store, "g/y/c"), ["0", "1"]);
    let (_, store) = stale(&values);
    let mut keys = Vec::new();
    walk(&store, "", &mut keys);
    assert!(open_document(&store, "g/zarr.json").is_err());
    open_document(&store, "g/x/zarr.json").unwrap();
}

#[test]
fn an_array_that_was_removed_is_absent_once_its_document_was_looked_for() {
    let (_, store) = stale(&[]);
    read_documents(&store);
    block_on(store.list(&key("a"))).unwrap();
    assert!(is_absent(&store, "a"));
    assert_eq!(names(&store, ""), ["g/", "same/", "zarr.json"]);
}

#[test]
fn an_array_whose_document_is_absent_for_a_moment_is_not_listed_by_its_copy() {
    let (server, _) = stale(&[("a/zarr.json", default_array(6))]);
    let store = expiring(&server, Duration::from_millis(200), Duration::ZERO);
    open_document(&store, "a/zarr.json").unwrap();
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    // The comparison expires.
    thread::sleep(Duration::from_millis(250));
    let before = server.values();
    server.put(&[("zarr.json", consolidated(&[("a", default_array(4))]))]);
    let listed = block_on(store.list(&key("a/c")));
    assert!(
        matches!(listed, Err(StoreError::NotFound { .. })),
        "{listed:?}"
    );
    *server.values.lock() = before;
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
    assert!(names(&store, "").contains(&"a/".to_owned()));
}

#[test]
fn a_document_that_is_denied_after_a_comparison_gives_no_old_names() {
    let (server, _) = stale(&[("a/zarr.json", default_array(6))]);
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    read_documents(&store);
    assert_eq!(names(&store, "a"), ["c/", "zarr.json"]);
    open_document(&store, "a/zarr.json").unwrap();
    server.fault("a/zarr.json", Fault::Denied);
    for _ in 0..2 {
        assert!(is_denied(&block_on(store.list(&key("a/c")))));
    }
    server.mend();
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
}

#[test]
fn a_denied_document_that_the_copy_does_not_name_is_absent() {
    let array = |rows: u64| zarray(&[rows], &[2], "/");
    let copies = [(".zgroup", zgroup()), ("a/.zarray", array(4))];
    let (server, store) = listing(Server::new(&[
        (".zmetadata", zmetadata(&copies)),
        ("a/.zarray", array(6)),
    ]));
    // A bucket that denies its listing answers so for each absent key.
    for absent in ["zarr.json", "a/zarr.json"] {
        server.fault(absent, Fault::Denied);
    }
    assert_eq!(names(&store, "a"), [".zarray", "0", "1"]);
    assert!(open_document(&store, "a/.zarray").is_err());
    open_document(&store, "a/.zarray").unwrap();
    assert_eq!(kind(&store, "a/.zarray"), Kind::Object);
    assert_eq!(names(&store, "a"), [".zarray", "0", "1", "2"]);
}

#[test]
fn listings_by_metadata_that_are_not_cached_are_recorded() {
    let copies = [
        (".zgroup", zgroup()),
        ("a/.zarray", zarray(&[4], &[2], "/")),
    ];
    let (server, store) = listing(Server::new(&[
        (".zmetadata", zmetadata(&copies)),
        ("a/.zarray", zarray(&[6], &[2], "/")),
    ]));
    // The root's metadata are used, and are not complete.
    server.fault("zarr.json", Fault::TimedOut);
    assert_eq!(names(&store, "a"), [".zarray", "0", "1"]);
    server.mend();
    assert!(open_document(&store, "a/.zarray").is_err());
    open_document(&store, "a/.zarray").unwrap();
}

#[test]
fn directories_that_only_the_document_names_are_found_if_the_copy_expires_at_once() {
    let grid = |rows: u64| array(&[rows, 4], &[2, 2], json!("default"));
    for copied in [0, 4] {
        let (server, _) = listing(Server::new(&[
            ("zarr.json", consolidated(&[("a", grid(copied))])),
            ("a/zarr.json", grid(8)),
        ]));
        let store = expiring(&server, Duration::ZERO, Duration::ZERO);
        assert_eq!(kind(&store, "a/c/3"), Kind::Prefix);
        assert_eq!(names(&store, "a/c/3"), ["0", "1"]);
        for absent in ["a/c/4", "a/c/.git", "a/.zattrs"] {
            assert!(is_absent(&store, absent), "{absent}");
        }
        server.fault("a/zarr.json", Fault::Denied);
        assert!(is_denied(&block_on(store.stat(&key("a/c/3")))));
    }
}

#[test]
fn directories_that_only_the_document_names_are_found_below_a_group_that_names_the_array() {
    let grid = |rows: u64| array(&[rows, 4], &[2, 2], json!("default"));
    let (server, _) = listing(Server::new(&[
        ("zarr.json", group()),
        ("g/zarr.json", consolidated(&[("a", grid(4))])),
        ("g/a/zarr.json", grid(8)),
    ]));
    for ttl in [Duration::ZERO, LONG] {
        let store = expiring(&server, ttl, ttl);
        assert_eq!(kind(&store, "g/a/c/3"), Kind::Prefix);
        assert_eq!(names(&store, "g/a/c/2"), ["0", "1"]);
        assert!(is_absent(&store, "g/a/c/4"));
    }
}

#[test]
fn a_document_that_is_denied_after_it_was_opened_gives_no_old_names() {
    let (server, _) = stale(&[("a/zarr.json", default_array(6))]);
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    open_document(&store, "a/zarr.json").unwrap();
    server.fault("a/zarr.json", Fault::Denied);
    assert!(is_denied(&block_on(store.list(&key("a/c")))));
}

#[test]
fn a_group_whose_document_cannot_be_read_any_more_lists_its_nodes() {
    let copies = [("g", group()), ("g/x", default_array(4))];
    let values = [
        ("zarr.json", consolidated(&copies)),
        ("g/x/zarr.json", default_array(4)),
        ("g/zarr.json", group()),
    ];
    let (server, _) = listing(Server::new(&values));
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    read_documents(&store);
    assert_eq!(names(&store, "g"), ["x/", "zarr.json"]);
    server.fault("g/zarr.json", Fault::Denied);
    assert_eq!(names(&store, "g"), ["x/", "zarr.json"]);
    server.mend();
    server.put(&values[..2]);
    assert_eq!(names(&store, "g"), ["x/", "zarr.json"]);
}

#[test]
fn a_copy_that_replaces_another_is_compared_again() {
    let values = |copied, own| {
        [
            ("zarr.json", consolidated(&[("a", default_array(copied))])),
            ("a/zarr.json", default_array(own)),
        ]
    };
    let (server, _) = listing(Server::new(&values(6, 6)));
    let ttl = Duration::from_millis(500);
    let store = expiring(&server, ttl, ttl);
    block_on(store.load(&Key::root(), Depth::Node)).unwrap();
    thread::sleep(ttl / 2);
    read_documents(&store);
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
    // The root's metadata expire before the comparison.
    server.put(&values(4, 6));
    thread::sleep(ttl / 2 + ttl / 10);
    server.asked();
    assert_eq!(names(&store, "a/c"), ["0", "1", "2"]);
    assert_eq!(server.asked().0, 2 + 1);
}

#[test]
fn a_node_whose_document_is_broken_names_no_directories() {
    let broken = json!({"zarr_format": 3, "node_type": "array"});
    let (_, store) = stale(&[("a/zarr.json", broken), ("a/c/1", json!(1))]);
    read_documents(&store);
    assert_eq!(kind(&store, "a/zarr.json"), Kind::Object);
    drop(block_on(store.list(&key("a"))));
    assert_eq!(kind(&store, "a/c/1"), Kind::Object);
    let found = block_on(store.stat(&key("a/c/0")));
    assert!(
        matches!(found, Err(StoreError::Corrupt { .. })),
        "{found:?}"
    );
}

/// Returns a server without consolidated metadata in its root, which answers for directories, and lists none.
fn server_of_directories(values: &[(&str, Value)]) -> Arc<Server> {
    let mut server = Server::new(values);
    server.refuses_listings = true;
    server.directories = ["g", "g/a", "g/a/c"].map(key).into();
    Arc::new(server)
}

#[test]
fn chunks_of_a_directory_that_the_server_does_not_list_are_those_of_the_document() {
    let server = server_of_directories(&[
        ("zarr.json", group()),
        ("g/zarr.json", consolidated(&[("a", default_array(4))])),
        ("g/a/zarr.json", default_array(6)),
        ("g/a/c/0", json!(1)),
    ]);
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    assert_eq!(names(&store, "g/a"), ["c/", "zarr.json"]);
    read_documents(&store);
    open_document(&store, "g/a/zarr.json").unwrap();
    assert_eq!(names(&store, "g/a/c"), ["0", "1", "2"]);
}

#[test]
fn chunks_of_an_array_that_is_denied_now_are_not_absent() {
    let server = server_of_directories(&[
        ("zarr.json", group()),
        ("g/zarr.json", group()),
        ("g/a/zarr.json", default_array(6)),
        ("g/a/c/0", json!(1)),
    ]);
    let store = expiring(&server, Duration::ZERO, Duration::ZERO);
    assert_eq!(names(&store, "g/a/c"), ["0", "1", "2"]);
    // A group says nothing about chunks.
    server.fault("g/zarr.json", Fault::Denied);
    assert_eq!(names(&store, "g/a/c"), ["0", "1", "2"]);
    server.fault("g/a/zarr.json", Fault::Denied);
    assert!(is_denied(&block_on(store.list(&key("g/a/c")))));
}

#[test]
fn a_directory_is_not_empty_because_its_document_cannot_be_read_any_more() {
    let values = [
        ("zarr.json", group()),
        ("g/zarr.json", group()),
        ("g/a/c/0", json!(1)),
        ("g/a/zarr.json", default_array(6)),
    ];
    for (is_listed_before, is_denied) in
        [(true, true), (false, true), (true, false), (false, false)]
    {
        let server = server_of_directories(&values);
        let store = expiring(&server, Duration::ZERO, Duration::ZERO);
        if is_listed_before {
            assert_eq!(names(&store, "g/a"), ["c/", "zarr.json"]);
        }
        open_document(&store, "g/a/zarr.json").unwrap();
        match is_denied {
            true => server.fault("g/a/zarr.json", Fault::Denied),
            false => server.put(&values[..3]),
        }
        for directory in ["g/a", "g/a/c"] {
            let listed = block_on(store.list(&key(directory)));
            let is_right = match &listed {
                Err(StoreError::Denied { .. }) => is_denied,
                Err(StoreError::Unavailable { .. }) => !is_denied,
                _ => false,
            };
            assert!(is_right, "{directory}: {listed:?}");
        }
        assert_eq!(names(&store, "g"), ["zarr.json"]);
    }
}
