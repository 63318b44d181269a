//! The store, over stores in memory that can be made to fail.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::array::EngineOptions;
use crate::store::{Data, MemoryStore, Patience, never_waiting, read_to_end};

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// An engine that may take so much memory.
pub(super) fn engine_of(memory_limit_bytes: u64) -> Arc<Engine> {
    let options = EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes,
        threads: 1,
        timeout: Duration::from_millis(200),
    };
    Arc::new(Engine::new(options).unwrap())
}

pub(super) fn engine() -> Arc<Engine> {
    engine_of(256 << 20)
}

/// A store that can change, be far away, and fail for keys with a suffix.
#[derive(Debug)]
pub(super) struct Odd {
    values: MemoryStore,
    capabilities: Capabilities,
    fails: &'static str,
    is_denied: bool,
    version: AtomicU64,
    /// Reads, of which each takes its time.
    reads: Arc<AtomicU64>,
}

impl Odd {
    /// A store that is near and complete.
    pub(super) fn near(values: MemoryStore, fails: &'static str, is_denied: bool) -> Self {
        Self {
            values,
            capabilities: Capabilities {
                immutable: false,
                open_infallible: false,
                is_remote: false,
                listing: ListingSupport::Complete,
            },
            fails,
            is_denied,
            version: AtomicU64::new(1),
            reads: Arc::default(),
        }
    }

    /// A store that is far away.
    pub(super) fn far(values: MemoryStore) -> Self {
        let mut odd = Self::near(values, "", false);
        odd.capabilities.is_remote = true;
        odd
    }

    fn check(&self, key: &Key) -> Result<(), StoreError> {
        let key = key.clone();
        if self.fails.is_empty() || !key.as_bytes().ends_with(self.fails.as_bytes()) {
            return Ok(());
        }
        Err(match self.is_denied {
            true => StoreError::Denied {
                key,
                what: "as the test wants it".into(),
                status: None,
            },
            false => StoreError::TimedOut {
                key,
                what: "answer".into(),
            },
        })
    }
}

impl Store for Odd {
    fn label(&self) -> &str {
        "odd"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn extent(&self) -> Extent {
        self.values.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.check(key)?;
        let stat = self.values.stat(key)?;
        let version = Version(self.version.load(Ordering::Relaxed));
        Ok(Stat { version, ..stat })
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        if self.capabilities.is_remote {
            crate::store::may_wait(key)?;
        }
        self.check(key)?;
        let object = self.values.open(key)?;
        let version = Version(self.version.load(Ordering::Relaxed));
        Ok(Arc::new(Versioned(
            object,
            version,
            Arc::clone(&self.reads),
        )))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.check(prefix)?;
        self.values.list(prefix)
    }
}

#[derive(Debug)]
struct Versioned(Arc<dyn Object>, Version, Arc<AtomicU64>);

impl Object for Versioned {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn version(&self) -> Version {
        self.1
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let version = self.1;
        Ok(Stat {
            version,
            ..self.0.stat()?
        })
    }

    fn read(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        self.2.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        self.0.read(offset, size_bytes, buffer, patience)
    }
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn array(changes: &[(&str, Value)]) -> Value {
    let mut document = json!({"zarr_format": 3, "node_type": "array", "shape": [3, 4],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [little()]});
    for (name, value) in changes {
        document[*name] = value.clone();
    }
    document
}

/// Inner chunks of one row.
fn sharding() -> Value {
    json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 4],
        "codecs": [little()], "index_codecs": [little(), "crc32c"]}}])
}

/// A shard of two inner chunks of four bytes, of which one may lie.
fn shard(entries: [(u64, u64); 2]) -> Vec<u8> {
    let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let index: Vec<u8> = entries
        .iter()
        .flat_map(|(offset, length)| [offset.to_le_bytes(), length.to_le_bytes()].concat())
        .collect();
    bytes.extend(&index);
    bytes.extend(crc32c::crc32c(&index).to_le_bytes());
    bytes
}

const ABSENT: (u64, u64) = (u64::MAX, u64::MAX);

fn values() -> Vec<(Key, Vec<u8>)> {
    let group = json!({"zarr_format": 3, "node_type": "group"});
    let odd = array(&[("data_type", "int4".into())]);
    let mut broken = shard([(0, 4), (4, 4)]);
    broken[10] ^= 1;
    let text = |value: &Value| value.to_string().into_bytes();
    [
        ("zarr.json", text(&group)),
        ("readme.txt", b"text".to_vec()),
        ("plain/zarr.json", text(&array(&[]))),
        ("plain/c/0/0", vec![9; 8]),
        ("shards/zarr.json", text(&array(&[("codecs", sharding())]))),
        ("shards/c/0/0", shard([(4, 4), (0, 4)])),
        ("shards/c/1/0", shard([(0, 4), ABSENT])),
        ("holes/zarr.json", text(&array(&[("codecs", sharding())]))),
        ("holes/c/0/0", shard([ABSENT, (100, 4)])),
        ("broken/zarr.json", text(&array(&[("codecs", sharding())]))),
        ("broken/c/0/0", broken),
        ("broken/c/1/0", vec![1, 2]),
        ("odd/zarr.json", text(&odd)),
        ("odd/c/0/0", vec![9; 8]),
    ]
    .map(|(name, value)| (key(name), value))
    .into()
}

fn translated(target: Target) -> Translated {
    let store = Arc::new(MemoryStore::new(values()));
    Translated::new(store, Key::root(), target, Duration::ZERO, engine())
}

fn over(fails: &'static str, is_remote: bool, ttl: Duration) -> (Arc<Odd>, Translated) {
    let mut store = Odd::near(MemoryStore::new(values()), fails, false);
    store.capabilities.is_remote = is_remote;
    over_store(store, ttl)
}

fn over_store(store: Odd, ttl: Duration) -> (Arc<Odd>, Translated) {
    let store = Arc::new(store);
    let inner = Arc::clone(&store) as Arc<dyn Store>;
    let translated = Translated::new(inner, Key::root(), Target::V2, ttl, engine());
    (store, translated)
}

fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listing = store.list(&key(prefix)).unwrap();
    listing
        .visit(0, &mut |listed| {
            names.push(String::from_utf8(listed.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(names[..2], [".", ".."]);
    names.drain(..2);
    names.sort();
    names
}

fn read(store: &dyn Store, name: &str) -> Result<Vec<u8>, StoreError> {
    let key = key(name);
    let stat = store.stat(&key)?;
    let object = store.open(&key)?;
    assert_eq!(
        (stat.size_bytes, stat.version),
        (object.size_bytes(), object.version())
    );
    assert_eq!(object.stat()?.size_bytes, stat.size_bytes);
    read_to_end(&*object, &key, 1 << 20)
}

fn is_absent<T: std::fmt::Debug>(found: Result<T, StoreError>) -> bool {
    matches!(found, Err(StoreError::NotFound { .. }))
}

#[test]
fn names_are_those_of_the_other_version() {
    let store = translated(Target::V2);
    let root = [
        ".zgroup",
        ".zmetadata",
        "broken",
        "holes",
        "plain",
        "shards",
    ];
    assert_eq!(names(&store, ""), root);
    assert_eq!(names(&store, "plain"), [".zarray", "0"]);
    assert_eq!(names(&store, "plain/0"), ["0"]);
    assert_eq!(names(&store, "shards"), [".zarray", "0", "1", "2"]);
    assert_eq!(names(&store, "shards/1"), ["0"]);
    // What can not be read is not hidden; what the index says is absent is.
    assert_eq!(names(&store, "holes/1"), ["0"]);
    assert!(names(&store, "holes/0").is_empty());
    assert_eq!(names(&store, "broken/1"), ["0"]);
    for absent in [
        "zarr.json",
        "plain/zarr.json",
        "plain/c",
        "plain/c/0/0",
        "plain/1/0",
        "plain/1",
        "plain/0/1",
        "plain/00/0",
        "odd",
        "odd/zarr.json",
        "odd/c/0/0",
        "readme.txt",
        "nothing",
        "nothing/.zarray",
        ".zgroup/x",
        "shards/3",
        "holes/0/0",
        "plain/.zgroup",
    ] {
        assert!(is_absent(store.stat(&key(absent))), "{absent}");
        assert!(is_absent(store.open(&key(absent))), "{absent}");
    }
    let store = translated(Target::Unsharded);
    assert_eq!(
        names(&store, ""),
        ["broken", "holes", "odd", "plain", "shards", "zarr.json"]
    );
    assert_eq!(names(&store, "shards"), ["c", "zarr.json"]);
    assert_eq!(names(&store, "shards/c"), ["0", "1", "2"]);
    assert_eq!(read(&store, "plain/c/0/0").unwrap(), [9; 8]);
    assert_eq!(read(&store, "odd/c/0/0").unwrap(), [9; 8]);
}

#[test]
fn values_are_the_same_bytes_or_a_range_of_a_shard() {
    let store = translated(Target::V2);
    assert_eq!(read(&store, "plain/0/0").unwrap(), [9; 8]);
    assert_eq!(read(&store, "shards/0/0").unwrap(), [5, 6, 7, 8]);
    assert_eq!(read(&store, "shards/1/0").unwrap(), [1, 2, 3, 4]);
    assert_eq!(read(&store, "shards/2/0").unwrap(), [1, 2, 3, 4]);
    let object = store.open(&key("shards/0/0")).unwrap();
    let part = |offset: u64, size: usize| {
        let mut buffer = vec![0; size];
        let data = object
            .read(offset, size, &mut buffer, Patience::Wait)
            .unwrap();
        data.bytes(&buffer).unwrap().to_vec()
    };
    assert_eq!(part(1, 2), [6, 7]);
    assert_eq!(part(3, 100), [8]);
    assert!(part(4, 1).is_empty() && part(u64::MAX, 1).is_empty());
    assert!(object.backing().is_none());
}

#[test]
fn an_index_that_lies_is_an_error_and_never_absence() {
    let store = translated(Target::V2);
    for (name, what) in [
        ("holes/1/0", "inner chunk 1"),
        ("broken/0/0", "crc32c"),
        ("broken/1/0", "crc32c"),
        ("broken/2/0", "a shard of 2 bytes"),
    ] {
        let error = read(&store, name).unwrap_err();
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{name}: {error}"
        );
        assert!(error.to_string().contains(what), "{name}: {error}");
    }
}

#[test]
fn no_failure_of_the_store_becomes_absence() {
    for (fails, asked) in [
        ("plain/zarr.json", "plain/.zarray"),
        ("plain/zarr.json", "plain/0/0"),
        ("plain/.zarray", "plain/0/0"),
        ("zarr.json", "plain"),
        ("c/0/0", "plain/0/0"),
        ("c/0/0", "shards/1/0"),
        ("plain/c/0", "plain/0"),
        ("nothing", "nothing"),
        ("holes/zarr.json", ".zmetadata"),
    ] {
        let (_, store) = over(fails, false, Duration::ZERO);
        for error in [store.stat(&key(asked)).err(), store.open(&key(asked)).err()] {
            let is_right = matches!(
                error,
                Some(StoreError::TimedOut { .. } | StoreError::NotAPrefix { .. })
            );
            assert!(is_right, "{fails} {asked}: {error:?}");
        }
    }
    // One node that can not be had does not hide the others.
    let (_, store) = over("holes/zarr.json", false, Duration::ZERO);
    let found = names(&store, "");
    assert!(found.contains(&"holes".into()) && found.contains(&"plain".into()));
}

#[test]
fn who_does_not_wait_is_told_so() {
    let (_, store) = over("", true, Duration::MAX);
    let would_wait = |name: &str| {
        let found = never_waiting(|| store.open(&key(name)).map(drop));
        matches!(found, Err(StoreError::WouldWait { .. }))
    };
    assert!(would_wait("plain/.zarray") && would_wait("shards/0/0"));
    assert!(read(&store, "plain/.zarray").is_ok());
    assert!(!would_wait("plain/.zarray"), "it is known by now");
    assert_eq!(read(&store, "shards/0/0").unwrap(), [5, 6, 7, 8]);
    // A walk would take a request for each node.
    assert!(is_absent(store.stat(&key(".zmetadata"))));
    let capabilities = store.capabilities();
    assert!(
        capabilities.is_remote
            && capabilities.listing == ListingSupport::BestEffort
            && !capabilities.open_infallible
    );
    // All of the grid: which chunks there are would take requests.
    assert_eq!(names(&store, "holes/0"), ["0"]);
}

#[test]
fn who_does_not_wait_gathers_nothing_of_a_near_store_either() {
    let (_, store) = over("", false, Duration::MAX);
    let would_wait = |ask: &dyn Fn() -> Result<(), StoreError>| {
        matches!(never_waiting(ask), Err(StoreError::WouldWait { .. }))
    };
    let list = |name: &str| {
        let mut listing = store.list(&key(name))?;
        listing.visit(0, &mut |_| ControlFlow::Continue(()))
    };
    let zmetadata = || store.stat(&key(".zmetadata")).map(drop);
    let zarray = || store.open(&key("plain/.zarray")).map(drop);
    assert!(would_wait(&zarray), "no document is at hand");
    store.stat(&Key::root()).unwrap();
    assert!(would_wait(&zmetadata), "only that of the root is");
    assert!(would_wait(&|| list("")));
    list("").unwrap();
    assert!(!would_wait(&zmetadata) && !would_wait(&|| list("")));
    assert!(!would_wait(&zarray));
    let shard = || store.open(&key("shards/0/0")).map(drop);
    assert!(would_wait(&shard), "the index is not at hand");
    assert!(would_wait(&|| list("plain/0")), "each chunk is asked for");
    shard().unwrap();
    assert!(!would_wait(&shard));
    // Others may be reading the hierarchy for as long as they like.
    let (_, store) = over("", false, Duration::MAX);
    let root = store.0.node(&Key::root()).unwrap().unwrap();
    let (told, is_told) = std::sync::mpsc::channel();
    let shared = Arc::clone(&store.0);
    let asking = Arc::clone(&root);
    let reading = store.0.consolidating.once(root.version, || {
        std::thread::spawn(move || told.send(never_waiting(|| shared.consolidated(&asking))));
        let answer = is_told.recv_timeout(Duration::from_secs(20));
        answer.unwrap().map(|_| unreachable!("nobody has read it"))
    });
    assert!(matches!(reading, Err(StoreError::WouldWait { .. })));
}

#[test]
fn an_index_is_read_once_for_all_who_want_it() {
    let (inner, store) = over("", false, Duration::MAX);
    store.stat(&key("shards")).unwrap();
    inner.reads.store(0, Ordering::Relaxed);
    let all = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                all.wait();
                store.open(&key("shards/0/0")).unwrap();
            });
        }
    });
    assert_eq!(inner.reads.load(Ordering::Relaxed), 1);
}

#[test]
fn what_is_read_and_kept_is_in_the_memory_that_there_is() {
    let over = |memory: &Arc<Engine>| {
        let (store, root) = (Arc::new(MemoryStore::new(values())), Key::root());
        Translated::new(store, root, Target::V2, Duration::ZERO, Arc::clone(memory))
    };
    let used = |memory: &Engine| memory.gauges()[0].1;
    let memory = engine();
    let store = over(&memory);
    store.open(&key("shards/0/0")).unwrap();
    let index = used(&memory);
    assert!(index > 0, "the index");
    store.open(&key("shards/1/0")).unwrap();
    assert_eq!(used(&memory), index);
    store.stat(&key(".zmetadata")).unwrap();
    let all = used(&memory);
    assert!(all > index, "the consolidated metadata");
    drop(store);
    assert_eq!(used(&memory), 0);
    // Nothing is left for it.
    let store = over(&memory);
    store.stat(&key("shards")).unwrap();
    let taken = memory.reserve_now(&Key::root(), 256 << 20).unwrap();
    for name in ["shards/0/0", ".zmetadata", "plain"] {
        let error = store.stat(&key(name)).unwrap_err();
        assert!(
            matches!(error, StoreError::TimedOut { .. }),
            "{name}: {error}"
        );
    }
    drop(taken);
    read(&store, ".zmetadata").unwrap();
    // There is too little for anything.
    let small = engine_of(200 << 10);
    let store = over(&small);
    read(&store, "plain/0/0").unwrap();
    assert!(
        is_absent(store.stat(&key(".zmetadata"))),
        "it would be too large"
    );
    let error = over(&engine_of(500)).stat(&key("shards/0/0"));
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn an_index_of_other_metadata_is_read_again() {
    let (inner, store) = over("", false, Duration::ZERO);
    store.open(&key("shards/0/0")).unwrap();
    let shards = store.0.node(&key("shards")).unwrap().unwrap();
    inner.reads.store(0, Ordering::Relaxed);
    let object = inner.open(&key("shards/c/0/0")).unwrap();
    let layout = shards.chunks().unwrap().shards.as_ref().unwrap();
    let open = |mapping: u64| {
        let (object, source) = (Arc::clone(&object), key("shards/c/0/0"));
        let opened = store.0.indexes.open(layout, object, &source, &[0], mapping);
        opened.unwrap();
        inner.reads.load(Ordering::Relaxed)
    };
    assert_eq!(open(shards.version), 0);
    assert_eq!(open(shards.version + 1), 1);
}

#[test]
fn copies_are_left_out_where_a_node_can_not_be_read() {
    let asked = |fails: &'static str, is_denied: bool| {
        let odd = Odd::near(MemoryStore::new(values()), fails, is_denied);
        over_store(odd, Duration::ZERO).1.stat(&key(".zmetadata"))
    };
    assert!(asked("", false).is_ok());
    // Who finds none looks for the nodes themselves.
    assert!(is_absent(asked("holes/zarr.json", true)));
    let late = asked("holes/zarr.json", false);
    assert!(matches!(late, Err(StoreError::TimedOut { .. })), "{late:?}");
}

#[test]
fn names_that_nobody_could_find_out_are_unknown() {
    let unknown = |fails: &'static str, is_remote: bool, prefix: &str| {
        let (_, store) = over(fails, is_remote, Duration::ZERO);
        store
            .incomplete_listing(&key(prefix))
            .map(|unknown| unknown.is_unlisted)
    };
    assert_eq!(unknown("plain/zarr.json", false, "plain"), Some(true));
    for known in ["", "plain", "plain/0", "nothing", "plain/7"] {
        assert_eq!(unknown("", false, known), None, "{known}");
    }
    for guessed in ["", "plain", "plain/0"] {
        assert_eq!(unknown("", true, guessed), Some(false), "{guessed}");
    }
}

#[test]
fn inner_chunks_of_metadata_that_have_changed_are_stale_once() {
    let (inner, store) = over("", false, Duration::MAX);
    let before = store.stat(&key("shards/0/0")).unwrap().version;
    inner.version.store(2, Ordering::Relaxed);
    let error = store.open(&key("shards/0/0")).unwrap_err();
    assert!(matches!(error, StoreError::Stale { .. }), "{error}");
    assert_ne!(store.stat(&key("shards/0/0")).unwrap().version, before);
    assert_eq!(read(&store, "shards/0/0").unwrap(), [5, 6, 7, 8]);
}

#[test]
fn chunks_are_absent_only_by_metadata_that_have_not_changed() {
    let (inner, store) = over("", false, Duration::MAX);
    assert!(is_absent(store.stat(&key("plain/1/0"))));
    assert!(is_absent(store.open(&key("plain/1/0"))));
    inner.version.store(2, Ordering::Relaxed);
    let found = store.stat(&key("plain/1/0"));
    assert!(matches!(found, Err(StoreError::Stale { .. })), "{found:?}");
    assert!(is_absent(store.stat(&key("plain/1/0"))));
    inner.version.store(3, Ordering::Relaxed);
    let found = store.open(&key("plain/1/0"));
    assert!(matches!(found, Err(StoreError::Stale { .. })), "{found:?}");
    assert_eq!(read(&*Arc::new(store), "plain/0/0").unwrap(), [9; 8]);
}

#[test]
fn what_is_told_of_a_hierarchy_is_told_below_its_root_only() {
    let store = Arc::new(MemoryStore::new(values()));
    let store = Translated::new(store, key("plain"), Target::V2, Duration::ZERO, engine());
    assert!(store.differs().unwrap());
    assert_eq!(read(&store, "plain/0/0").unwrap(), [9; 8]);
    for outside in ["", "shards", "plain2", "plai"] {
        assert!(is_absent(store.stat(&key(outside))), "{outside}");
    }
    let differs = Target::ALL.map(|target| translated(target).differs().unwrap());
    assert_eq!(differs, [true, false, true]);
}

#[test]
fn a_grid_of_a_billion_inner_chunks_takes_no_memory() {
    let mut document = array(&[
        ("codecs", sharding()),
        ("shape", json!([1_u64 << 40, 1 << 10])),
    ]);
    document["chunk_grid"]["configuration"]["chunk_shape"] = json!([1 << 10, 1 << 10]);
    let store = MemoryStore::new([
        (key("zarr.json"), document.to_string().into_bytes()),
        (key("c/0/0"), vec![0; 10]),
    ]);
    let store = Translated::new(
        Arc::new(store),
        Key::root(),
        Target::V2,
        Duration::ZERO,
        engine(),
    );
    let mut listing = store.list(&Key::root()).unwrap();
    let mut seen = 0;
    listing
        .visit(1_u64 << 39, &mut |listed| {
            seen += 1;
            assert_eq!(listed.kind, Kind::Prefix);
            if seen == 1000 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
    assert_eq!(seen, 1000);
    assert!(is_absent(store.stat(&key("1099511627775/0"))));
    let short = store.open(&key("0/0")).unwrap();
    let error = read_to_end(&*short, &key("0/0"), 1);
    assert!(
        matches!(error, Err(StoreError::Corrupt { .. })),
        "{error:?}"
    );
}

#[test]
fn a_chunk_that_can_not_be_read_is_there_and_another_one_when_its_shard_is() {
    let (store, shown) = over("", false, Duration::ZERO);
    for chunk in ["broken/0/0", "broken/2/0"] {
        let stat = shown.stat(&key(chunk)).unwrap();
        assert_eq!((stat.kind, stat.size_bytes), (Kind::Object, 1));
        let object = shown.open(&key(chunk)).unwrap();
        assert_eq!(object.version(), stat.version);
        let read = object.read(0, 1, &mut [0; 64], Patience::Wait);
        let error = read.unwrap_err().to_string();
        assert!(error.starts_with("broken/c/"), "{error}");
        store.version.fetch_add(1, Ordering::Relaxed);
        assert_ne!(shown.stat(&key(chunk)).unwrap().version, stat.version);
    }
}

/// A root of v2 whose copies name an array that is not what it was, and one that is gone.
fn of_two_minds() -> MemoryStore {
    let zgroup = json!({"zarr_format": 2});
    let zarray = |dtype: &str| {
        json!({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": dtype, "fill_value": 0,
            "order": "C", "filters": null, "compressor": null})
    };
    let copies = json!({".zgroup": zgroup, "x/.zarray": zarray("|u1"), "z/.zarray": zarray("|u1"),
        "gone/.zarray": zarray("|u1")});
    let z = array(&[("data_type", "bfloat16".into())]);
    let text = |value: &Value| value.to_string().into_bytes();
    MemoryStore::new(
        [
            (".zgroup", text(&zgroup)),
            (
                ".zmetadata",
                text(&json!({"zarr_consolidated_format": 1, "metadata": copies})),
            ),
            ("x/.zarray", text(&zarray("<i2"))),
            ("z/.zarray", text(&zarray("|u1"))),
            ("z/zarr.json", text(&z)),
            ("a/b/.zarray", text(&zarray("|u1"))),
            ("a/zarr.json/.zarray", text(&zarray("|u1"))),
        ]
        .map(|(name, value)| (key(name), value)),
    )
}

fn parsed(store: &dyn Store, name: &str) -> Value {
    serde_json::from_slice(&read(store, name).unwrap()).unwrap()
}

#[test]
fn what_is_consolidated_is_what_nodes_are() {
    let shown = |store: Arc<dyn Store>, target| {
        Translated::new(store, Key::root(), target, Duration::ZERO, engine())
    };
    let near: Arc<dyn Store> = Arc::new(of_two_minds());
    let v2 = shown(Arc::clone(&near), Target::V2);
    assert_eq!(names(&v2, ""), [".zgroup", ".zmetadata", "a", "x"]);
    let copies = parsed(&v2, ".zmetadata")["metadata"].take();
    let copied: Vec<&String> = copies.as_object().unwrap().keys().collect();
    assert_eq!(copied, [".zgroup", "a/.zgroup", "a/b/.zarray", "x/.zarray"]);
    for (name, copy) in copies.as_object().unwrap() {
        assert_eq!(parsed(&v2, name), *copy, "{name}");
    }
    let far: Arc<dyn Store> = Arc::new(Odd::far(of_two_minds()));
    for (store, data_type) in [(near, "int16"), (far, "uint8")] {
        let v3 = shown(store, Target::V3);
        let copies = parsed(&v3, "zarr.json")["consolidated_metadata"]["metadata"].take();
        assert_eq!(copies["x"]["data_type"], data_type);
        for (path, copy) in copies.as_object().unwrap() {
            if path != "gone" {
                assert_eq!(parsed(&v3, &format!("{path}/zarr.json")), *copy, "{path}");
            }
        }
    }
}

#[test]
fn no_name_of_a_document_is_a_node() {
    let store = Arc::new(of_two_minds());
    let v3 = Translated::new(store, Key::root(), Target::V3, Duration::ZERO, engine());
    assert_eq!(names(&v3, "a"), ["b", "zarr.json"]);
    assert_eq!(parsed(&v3, "a/zarr.json")["node_type"], "group");
    assert!(is_absent(v3.stat(&key("a/zarr.json/.zarray"))));
}
