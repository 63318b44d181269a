use super::*;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::thread;

use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::runtime::{block_on, leave_session_thread, timeout};
use crate::store::{Listed, MemoryStore, Visit, Visited, read_to_end};
use crate::sync::Mutex;

/// A failure of the server for a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Denied,
    TimedOut,
    Unavailable,
}

/// A web server that has only values, and lists only the pages of the test.
#[derive(Debug, Default)]
struct Server {
    values: Mutex<MemoryStore>,
    faults: Mutex<BTreeMap<Key, Fault>>,
    listings: BTreeMap<Key, Vec<(&'static str, Kind)>>,
    refuses_listings: bool,
    opens: AtomicU32,
    stats: AtomicU32,
    lists: AtomicU32,
    /// Opens in progress, and their largest number at any time.
    opening: AtomicUsize,
    most: AtomicUsize,
    latency: Duration,
}

impl Server {
    fn new(values: &[(&str, Value)]) -> Self {
        let server = Self::default();
        server.put(values);
        server
    }

    fn put(&self, values: &[(&str, Value)]) {
        let values = values.iter();
        let values = values.map(|(name, value)| (key(name), value.to_string().into_bytes()));
        *self.values.lock() = MemoryStore::new(values);
    }

    fn values(&self) -> MemoryStore {
        self.values.lock().clone()
    }

    fn fault(&self, name: &str, fault: Fault) {
        self.faults.lock().insert(key(name), fault);
    }

    fn mend(&self) {
        self.faults.lock().clear();
    }

    async fn check(&self, key: &Key) -> Result<(), StoreError> {
        leave_session_thread().await;
        let fault = self.faults.lock().get(key).copied();
        let (key, what) = (key.clone(), "as the test wants it".to_owned());
        match fault {
            Some(Fault::Denied) => Err(StoreError::Denied {
                key,
                what,
                status: None,
            }),
            Some(Fault::TimedOut) => Err(StoreError::TimedOut { key, what }),
            Some(Fault::Unavailable) => Err(StoreError::Unavailable { key, what }),
            None => Ok(()),
        }
    }

    /// Returns the numbers of opens, stats and listings since the last call.
    fn asked(&self) -> (u32, u32, u32) {
        let count = |count: &AtomicU32| count.swap(0, Ordering::Relaxed);
        (count(&self.opens), count(&self.stats), count(&self.lists))
    }
}

fn not_found<T>(key: &Key, result: Result<T, StoreError>) -> Result<T, StoreError> {
    result.map_err(|error| match error {
        StoreError::NotAPrefix { .. } => StoreError::NotFound { key: key.clone() },
        error => error,
    })
}

#[async_trait]
impl Store for Server {
    fn label(&self) -> &str {
        "https://example.org/x.zarr"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: true,
            listing: ListingSupport::BestEffort,
        }
    }

    fn extent(&self) -> Extent {
        self.values().extent()
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.stats.fetch_add(1, Ordering::Relaxed);
        self.check(key).await?;
        let found = not_found(key, self.values().stat(key).await)?;
        match found.kind == Kind::Object || key.is_root() || self.listings.contains_key(key) {
            true => Ok(found),
            false => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        let opening = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(opening, Ordering::SeqCst);
        if !self.latency.is_zero() {
            timeout(self.latency, pending::<()>()).await;
        }
        self.opening.fetch_sub(1, Ordering::SeqCst);
        self.check(key).await?;
        not_found(key, self.values().open(key, hint).await)
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let (key, what) = (prefix.clone(), "listings".to_owned());
        match self.listings.get(prefix) {
            Some(names) => Ok(Box::new(Page(names.clone()))),
            None if self.refuses_listings => Err(StoreError::Denied {
                key,
                what,
                status: None,
            }),
            None => Err(StoreError::Unsupported { key, what }),
        }
    }
}

/// A page of names, whose cookies are not positions.
#[derive(Debug)]
struct Page(Vec<(&'static str, Kind)>);

impl Listing for Page {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        assert_eq!(cookie, 0);
        for (name, kind) in &self.0 {
            let listed = Listed {
                name: name.as_bytes(),
                kind: *kind,
                stat: None,
                next: u64::MAX,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        Ok(Visited::End)
    }
}

const LONG: Duration = Duration::from_secs(3600);

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn listing(server: Server) -> (Arc<Server>, MetadataListingStore) {
    let server = Arc::new(server);
    let inner: Arc<dyn Store> = Arc::<Server>::clone(&server);
    (server, MetadataListingStore::new(inner, LONG, LONG))
}

fn listed(store: &dyn Store, prefix: &str) -> Vec<(String, Kind)> {
    let mut listing = block_on(store.list(&key(prefix))).unwrap();
    let mut names = Vec::new();
    let mut cookie = 0;
    // One name at a time, as with a small reply buffer.
    loop {
        let before = names.len();
        listing
            .visit(cookie, &mut |listed| {
                if names.len() > before {
                    return ControlFlow::Break(());
                }
                assert!(listed.next > cookie, "{}", listed.next);
                cookie = listed.next;
                let name = String::from_utf8(listed.name.to_vec()).unwrap();
                names.push((name, listed.kind));
                ControlFlow::Continue(())
            })
            .unwrap();
        if names.len() == before {
            break;
        }
    }
    let all: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(all.len(), names.len(), "{names:?}");
    let dots: Vec<_> = names.drain(..2).map(|(name, _)| name).collect();
    assert_eq!(dots, [".", ".."]);
    names
}

/// Returns the sorted names of a listing; directories have a trailing `/`.
fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let names = listed(store, prefix).into_iter();
    let mut names: Vec<String> = names
        .map(|(name, kind)| match kind {
            Kind::Prefix => format!("{name}/"),
            Kind::Object => name,
        })
        .collect();
    names.sort();
    names
}

/// Adds all keys below a prefix.
fn walk(store: &dyn Store, prefix: &str, keys: &mut Vec<String>) {
    for (name, kind) in listed(store, prefix) {
        let path = match prefix {
            "" => name,
            prefix => format!("{prefix}/{name}"),
        };
        match kind {
            Kind::Object => keys.push(path),
            Kind::Prefix => {
                assert_eq!(
                    block_on(store.stat(&key(&path))).unwrap().kind,
                    Kind::Prefix
                );
                walk(store, &path, keys);
            }
        }
    }
}

fn kind(store: &dyn Store, name: &str) -> Kind {
    block_on(store.stat(&key(name))).unwrap().kind
}

fn is_absent(store: &dyn Store, name: &str) -> bool {
    let stat = block_on(store.stat(&key(name)));
    let open = block_on(store.open(&key(name), AccessHint::Ranges));
    let stat = matches!(stat, Err(StoreError::NotFound { .. }));
    assert_eq!(stat, matches!(open, Err(StoreError::NotFound { .. })));
    stat
}

fn zarray(shape: &[u64], chunks: &[u64], separator: &str) -> Value {
    json!({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i2", "fill_value": 0,
           "compressor": null, "filters": null, "order": "C", "dimension_separator": separator})
}

fn array(shape: &[u64], chunks: &[u64], keys: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int16",
           "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
           "chunk_key_encoding": keys, "fill_value": 0, "codecs": ["bytes"]})
}

fn group() -> Value {
    json!({"zarr_format": 3, "node_type": "group"})
}

fn zgroup() -> Value {
    json!({"zarr_format": 2})
}

fn members(copies: &[(&str, Value)]) -> serde_json::Map<String, Value> {
    let copies = copies.iter();
    let copies = copies.map(|(name, value)| ((*name).to_owned(), value.clone()));
    copies.collect()
}

fn zmetadata(copies: &[(&str, Value)]) -> Value {
    let copies = members(copies);
    json!({"zarr_consolidated_format": 1, "metadata": copies})
}

fn consolidated(copies: &[(&str, Value)]) -> Value {
    let copies = members(copies);
    let inline = json!({"kind": "inline", "must_understand": false, "metadata": copies});
    json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline})
}

fn v2_server() -> Server {
    let copies = [
        (".zgroup", zgroup()),
        (".zattrs", json!({})),
        ("a/.zarray", zarray(&[4, 3], &[2, 2], ".")),
        ("a/.zattrs", json!({})),
        ("g/.zgroup", zgroup()),
        ("g/n/.zarray", zarray(&[4, 3], &[2, 2], "/")),
        ("g-x/.zgroup", zgroup()),
        ("implicit/s/.zarray", zarray(&[], &[], ".")),
    ];
    let mut values = copies.to_vec();
    values.push((".zmetadata", zmetadata(&copies)));
    values.push(("a/0.0", json!(1)));
    values.push(("a/README", json!(1)));
    values.push(("g/n/1/0", json!(1)));
    values.push(("new/.zgroup", zgroup()));
    Server::new(&values)
}

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
fn values_are_the_inner_stores_and_only_it_proves_that_they_are_not_there() {
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
fn threads_ask_for_the_same_metadata_once() {
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
fn without_consolidated_metadata_names_are_found_by_asking() {
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
fn directories_of_chunks_are_known_without_having_been_walked_to() {
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
fn nodes_that_the_copies_do_not_name_are_found_by_asking() {
    let (server, store) = listing(v2_server());
    assert_eq!(kind(&store, "new"), Kind::Prefix);
    assert_eq!(names(&store, "new"), [".zgroup"]);
    assert!(is_absent(&store, "new/x") && is_absent(&store, "g/x"));
    server.asked();
    assert_eq!(kind(&store, "new"), Kind::Prefix);
    assert_eq!(server.asked(), (0, 0, 0));
}

#[test]
fn groups_below_the_root_may_have_their_own_copies() {
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

/// Returns a group with consolidated metadata in a root without them. The server lists some pages.
fn nested_server(lists: bool) -> Server {
    let copies = [
        (".zgroup", zgroup()),
        ("h/.zgroup", zgroup()),
        ("h/a/.zarray", zarray(&[1], &[1], ".")),
        ("implicit/a/.zarray", zarray(&[1], &[1], ".")),
    ];
    let mut server = Server::new(&[
        (".zgroup", zgroup()),
        ("g/.zgroup", zgroup()),
        ("g/.zmetadata", zmetadata(&copies)),
        ("g/h/.zgroup", zgroup()),
        ("g/h/a/.zarray", zarray(&[1], &[1], ".")),
        ("g/implicit/a/.zarray", zarray(&[1], &[1], ".")),
    ]);
    if lists {
        for (prefix, name) in [("", "g"), ("g", "h"), ("g/h", "a"), ("g/h/a", "0")] {
            let page = vec![(name, Kind::Prefix)];
            server.listings.insert(key(prefix), page);
        }
    }
    server
}

#[test]
fn consolidated_metadata_above_a_group_count_whatever_was_loaded_before() {
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
fn what_failed_at_the_root_is_asked_again() {
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
fn a_server_that_refuses_some_names_is_still_walked() {
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
fn a_root_of_which_nothing_is_known_still_gives_files_by_name() {
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

fn zarr_limit() -> usize {
    crate::zarr::document::MAX_DOCUMENT_BYTES
}

#[test]
fn what_the_inner_store_lists_is_added_once() {
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
fn what_was_learnt_is_used_until_it_is_old() {
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
fn documents_that_were_not_there_may_come_while_the_rest_is_still_known() {
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
fn a_store_that_can_not_change_is_asked_once() {
    let values = [(key(".zgroup"), b"{\"zarr_format\":2}".to_vec())];
    let inner = Arc::new(MemoryStore::new(values));
    let store = MetadataListingStore::new(inner, Duration::ZERO, Duration::ZERO);
    block_on(store.stat(&Key::root())).unwrap();
    assert!(store.loader.cache.metadata(&Key::root()).is_some());
    assert!(store.capabilities().immutable);
    assert_eq!(store.capabilities().listing, ListingSupport::BestEffort);
    assert_eq!((store.label(), store.extent().keys), ("memory", 1));
}

#[test]
fn cached_answers_are_ready_at_the_first_poll() {
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

#[test]
fn hostile_shapes_are_only_arithmetic() {
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
        assert!(is_absent(&store, &format!("{prefix}/0")));
    }
    let mut keys = Vec::new();
    walk(&store, "ranks", &mut keys);
    assert_eq!(keys.last().unwrap().len(), "ranks".len() + 64 * 2);
    assert_eq!(server.asked().0, 2 + 6);
}

#[test]
fn hostile_names_are_left_out() {
    let long = "x".repeat(256);
    let deep = format!("deep{}", "/d".repeat(5000));
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
    let half = &deep[..5000];
    assert_eq!(names(&store, half), ["d/"]);
    assert_eq!(names(&store, &deep), ["zarr.json"]);
    let odd = Key::new(b"g/\xff").unwrap();
    assert!(matches!(
        block_on(store.stat(&odd)),
        Err(StoreError::NotFound { .. })
    ));
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

#[test]
fn what_can_not_be_known_is_told() {
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
fn what_the_server_lists_is_told_from_what_nobody_does() {
    let mut server = Server::new(&[
        (".zgroup", zgroup()),
        ("a/.zarray", zarray(&[3], &[1], ".")),
    ]);
    server.listings.insert(key(""), vec![("a", Kind::Prefix)]);
    server.listings.insert(key("a"), vec![("1", Kind::Object)]);
    let (server, store) = listing(server);
    for (prefix, about) in [("", "children: "), ("a", "chunks: ")] {
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
