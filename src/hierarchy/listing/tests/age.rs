//! How often the server is asked, and for how long answers are used.

use super::*;

#[test]
fn consolidated_metadata_are_loaded_again_after_they_expire() {
    let server = Arc::new(nested_server(true));
    let inner: Arc<dyn Store> = Arc::<Server>::clone(&server);
    let store = MetadataListingStore::new(inner, Duration::ZERO, Duration::ZERO);
    assert_eq!(
        names(&store, "g"),
        [".zgroup", ".zmetadata", "h/", "implicit/"]
    );
    let node = block_on(store.load(&key("g"), Depth::Node)).unwrap();
    assert!(node.is_consolidated());
    // The server lists only `h`.
    assert_eq!(names(&store, "g/implicit"), ["a/"]);
    server.put(&[(".zgroup", zgroup()), ("g/.zgroup", zgroup())]);
    let node = block_on(store.load(&key("g"), Depth::Node)).unwrap();
    assert!(!node.is_consolidated());
}

#[test]
fn a_thousand_keys_cost_two_requests_made_at_the_same_time() {
    let mut copies = vec![(".zgroup".to_owned(), zgroup())];
    for i in 0..100 {
        copies.push((format!("g{}/.zgroup", i / 10), zgroup()));
        let array = zarray(&[10], &[1], ".");
        copies.push((format!("g{}/a{i}/.zarray", i / 10), array));
    }
    let copies: Vec<_> = copies
        .iter()
        .map(|(n, v)| (n.as_str(), v.clone()))
        .collect();
    let mut server = Server::new(&[(".zmetadata", zmetadata(&copies))]);
    server.latency = Duration::from_millis(50);
    let (server, store) = listing(server);
    let mut keys = Vec::new();
    walk(&store, "", &mut keys);
    assert_eq!(keys.len(), 2 + 10 + 100 * 11);
    assert_eq!(server.asked(), (2, 0, 0));
    assert_eq!(server.most.load(Ordering::SeqCst), 2);
}

#[test]
fn concurrent_threads_load_the_same_metadata_once() {
    let mut server = v2_server();
    server.latency = Duration::from_millis(100);
    let (server, store) = listing(server);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(kind(&store, "g/n/0"), Kind::Prefix));
        }
    });
    assert_eq!(server.asked(), (2, 0, 0));
}

#[test]
fn cached_metadata_are_used_until_they_expire() {
    let server = Arc::new(v2_server());
    let inner: Arc<dyn Store> = Arc::<Server>::clone(&server);
    let (ttl, absent_ttl) = (Duration::from_millis(400), Duration::from_millis(100));
    let store = MetadataListingStore::new(inner, ttl, absent_ttl);
    assert_eq!(kind(&store, "a"), Kind::Prefix);
    assert!(block_on(store.stat(&key("later"))).is_err());
    server.asked();
    assert!(block_on(store.stat(&key("later"))).is_err());
    assert_eq!(server.asked(), (0, 0, 0));
    server.put(&[("later/zarr.json", group()), ("zarr.json", group())]);
    thread::sleep(absent_ttl);
    assert_eq!(kind(&store, "later"), Kind::Prefix);
    assert_eq!(kind(&store, "a"), Kind::Prefix);
    thread::sleep(ttl);
    assert!(is_absent(&store, "a"));
    assert_eq!(kind(&store, "later"), Kind::Prefix);
}

#[test]
fn new_documents_appear_while_other_metadata_are_still_cached() {
    let server = Arc::new(Server::new(&[
        (".zgroup", zgroup()),
        ("a/.zgroup", zgroup()),
    ]));
    let inner: Arc<dyn Store> = Arc::<Server>::clone(&server);
    let absent_ttl = Duration::from_millis(100);
    let store = MetadataListingStore::new(inner, LONG, absent_ttl);
    assert!(is_absent(&store, "zarr.json"));
    assert_eq!(kind(&store, "a"), Kind::Prefix);
    assert!(is_absent(&store, "a/zarr.json"));
    server.put(&[("zarr.json", group()), ("a/zarr.json", group())]);
    thread::sleep(absent_ttl);
    for name in ["zarr.json", "a/zarr.json"] {
        assert_eq!(kind(&store, name), Kind::Object);
        assert!(block_on(store.open(&key(name), AccessHint::Ranges)).is_ok());
    }
}

#[test]
fn metadata_of_an_immutable_store_are_loaded_once() {
    let values = [(key(".zgroup"), b"{\"zarr_format\":2}".to_vec())];
    let inner = Arc::new(MemoryStore::new(values));
    let store = MetadataListingStore::new(inner, Duration::ZERO, Duration::ZERO);
    block_on(store.stat(&Key::root())).unwrap();
    assert!(store.loader.cache.metadata(&Key::root()).is_some());
    assert!(store.capabilities().immutable);
    assert_eq!(store.capabilities().listing, ListingSupport::BestEffort);
    let extent = store.info().unwrap().extent();
    assert_eq!((store.label(), extent.keys), ("memory", 1));
}

#[test]
fn cached_results_are_ready_at_the_first_poll() {
    let (_, store) = listing(v2_server());
    let is_ready = |name: &str| {
        let document = key(name).join(b"zarr.json").unwrap();
        let ready = [
            store.stat(&key(name)).now_or_never().is_some(),
            store.list(&key(name)).now_or_never().is_some(),
            store
                .open(&document, AccessHint::Ranges)
                .now_or_never()
                .is_some(),
        ];
        assert_eq!(ready, [ready[0]; 3], "{name}");
        ready[0]
    };
    assert!(!is_ready("a"));
    assert_eq!(kind(&store, "g"), Kind::Prefix);
    assert!(is_ready("a") && is_ready("g/n"));
    assert!(!is_ready("x"));
    assert!(is_absent(&store, "x"));
    let absent = store.stat(&key("x")).now_or_never();
    assert!(matches!(absent, Some(Err(StoreError::NotFound { .. }))));
}
