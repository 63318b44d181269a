//! Tests of translated stores over memory stores that can fail.

mod copied_document;
mod replaced;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::*;
use crate::array::EngineOptions;
use crate::runtime::block_on;
use crate::store::{
    Data, Listed, MemoryStore, ReadMode, Version, Visited, read_owned, read_to_end, visit_all,
};

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// Returns an engine with a memory limit in bytes.
pub(super) fn engine_of(memory_limit_bytes: u64) -> Arc<Engine> {
    let options = EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes,
        parallel: 1,
        timeout: Duration::from_millis(200),
    };
    Arc::new(Engine::new(options).unwrap())
}

pub(super) fn engine() -> Arc<Engine> {
    engine_of(256 << 20)
}

/// A store that can change, be remote, and fail for keys with a suffix.
#[derive(Debug)]
pub(super) struct TestStore {
    values: MemoryStore,
    capabilities: Capabilities,
    fails: &'static str,
    is_denied: bool,
    version: AtomicU64,
    /// The number of reads.
    reads: Arc<AtomicU64>,
}

impl TestStore {
    /// Creates a local store.
    pub(super) fn local(values: MemoryStore, fails: &'static str, is_denied: bool) -> Self {
        Self {
            values,
            capabilities: Capabilities {
                immutable: false,
                open_infallible: false,
                is_remote: false,
                listing: ListingSupport::Complete,
                joins_prefetches: false,
                lists_without_requests: true,
            },
            fails,
            is_denied,
            version: AtomicU64::new(1),
            reads: Arc::default(),
        }
    }

    /// Creates a remote store.
    pub(super) fn remote(values: MemoryStore) -> Self {
        let mut odd = Self::local(values, "", false);
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

#[async_trait]
impl Store for TestStore {
    fn label(&self) -> &str {
        "odd"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.check(key)?;
        let stat = self.values.stat(key).await?;
        let version = Version(self.version.load(Ordering::Relaxed));
        Ok(Stat { version, ..stat })
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        if self.capabilities.is_remote {
            leave_session_thread().await;
        }
        self.check(key)?;
        Ok(Arc::new(VersionedObject {
            object: self.values.open(key, hint).await?,
            version: Version(self.version.load(Ordering::Relaxed)),
            reads: Arc::clone(&self.reads),
        }))
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.check(prefix)?;
        self.values.list(prefix).await
    }
}

#[derive(Debug)]
struct VersionedObject {
    object: Arc<dyn Object>,
    version: Version,
    reads: Arc<AtomicU64>,
}

#[async_trait]
impl Object for VersionedObject {
    fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let version = self.version;
        Ok(Stat {
            version,
            ..self.object.stat()?
        })
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        leave_session_thread().await;
        self.object.read(offset, size_bytes).await
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

/// Returns a sharding codec with inner chunks of one row.
fn sharding() -> Value {
    json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 4],
        "codecs": [little()], "index_codecs": [little(), "crc32c"]}}])
}

/// Returns a shard of two inner chunks of four bytes, with the given index entries.
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

fn over(fails: &'static str, is_remote: bool, ttl: Duration) -> (Arc<TestStore>, Translated) {
    let mut store = TestStore::local(MemoryStore::new(values()), fails, false);
    store.capabilities.is_remote = is_remote;
    over_store(store, ttl)
}

fn over_store(store: TestStore, ttl: Duration) -> (Arc<TestStore>, Translated) {
    let store = Arc::new(store);
    let inner = Arc::clone(&store) as Arc<dyn Store>;
    let translated = Translated::new(inner, Key::root(), Target::V2, ttl, engine());
    (store, translated)
}

fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listing = list(store, prefix).unwrap();
    let visit = &mut |listed: Listed<'_>| {
        names.push(String::from_utf8(listed.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    };
    block_on(visit_all(&mut *listing, visit)).unwrap();
    assert_eq!(names[..2], [".", ".."]);
    names.drain(..2);
    names.sort();
    names
}

fn stat(store: &dyn Store, name: &str) -> Result<Stat, StoreError> {
    block_on(store.stat(&key(name)))
}

fn open(store: &dyn Store, name: &str) -> Result<Arc<dyn Object>, StoreError> {
    block_on(store.open(&key(name), AccessHint::Ranges))
}

fn list(store: &dyn Store, name: &str) -> Result<Box<dyn Listing>, StoreError> {
    block_on(store.list(&key(name)))
}

fn node(store: &Translated, name: &str) -> Arc<NodeView> {
    block_on(store.0.node(&key(name))).unwrap().unwrap()
}

fn read(store: &dyn Store, name: &str) -> Result<Vec<u8>, StoreError> {
    let (stat, object) = (stat(store, name)?, open(store, name)?);
    assert_eq!(
        (stat.size_bytes, stat.version),
        (object.size_bytes(), object.version())
    );
    assert_eq!(object.stat()?.size_bytes, stat.size_bytes);
    block_on(read_to_end(&*object, &key(name), 1 << 20))
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
    // A chunk that cannot be read is listed, but not one that the index lacks.
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
        assert!(is_absent(stat(&store, absent)), "{absent}");
        assert!(is_absent(open(&store, absent)), "{absent}");
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
    let object = open(&store, "shards/0/0").unwrap();
    let part = |offset: u64, size: usize| {
        let awaited = block_on(object.read(offset, size)).unwrap();
        let awaited = awaited.bytes(&[]).unwrap().to_vec();
        for mode in [ReadMode::NonBlocking, ReadMode::Blocking] {
            let local = read_owned(object.as_local().unwrap(), offset, size, mode).unwrap();
            assert_eq!(local.bytes(&[]).unwrap(), awaited);
        }
        awaited
    };
    assert_eq!(part(1, 2), [6, 7]);
    assert_eq!(part(3, 100), [8]);
    assert!(part(4, 1).is_empty() && part(u64::MAX, 1).is_empty());
    assert!(object.backing().is_none());
}

#[test]
fn a_corrupt_shard_index_is_an_error_and_never_absence() {
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
        for error in [stat(&store, asked).err(), open(&store, asked).err()] {
            let is_right = matches!(
                error,
                Some(StoreError::TimedOut { .. } | StoreError::NotAPrefix { .. })
            );
            assert!(is_right, "{fails} {asked}: {error:?}");
        }
    }
    // An unreadable node does not hide the other nodes.
    let (_, store) = over("holes/zarr.json", false, Duration::ZERO);
    let found = names(&store, "");
    assert!(found.contains(&"holes".into()) && found.contains(&"plain".into()));
}

#[test]
fn a_cached_remote_result_is_ready_at_the_first_poll() {
    let (_, store) = over("", true, Duration::MAX);
    let is_ready = |name: &str| {
        let chunk = key(name);
        store
            .open(&chunk, AccessHint::Ranges)
            .now_or_never()
            .is_some()
    };
    assert!(!is_ready("plain/.zarray") && !is_ready("shards/0/0"));
    assert!(read(&store, "plain/.zarray").is_ok());
    assert!(is_ready("plain/.zarray"));
    assert_eq!(read(&store, "shards/0/0").unwrap(), [5, 6, 7, 8]);
    // A walk would take a request for each node.
    assert!(is_absent(stat(&store, ".zmetadata")));
    let capabilities = store.capabilities();
    assert!(
        capabilities.is_remote
            && capabilities.listing == ListingSupport::BestEffort
            && !capabilities.open_infallible
    );
    // All chunks of the grid are listed, because looking up each chunk would take requests.
    assert_eq!(names(&store, "holes/0"), ["0"]);
}

#[test]
fn metadata_of_a_local_store_are_not_read_in_the_first_poll() {
    let (_, store) = over("", false, Duration::MAX);
    let is_listed = |name: &str| list(&store, name).is_ok();
    let list = |name: &str| store.list(&key(name)).now_or_never().is_some();
    let zmetadata = || store.stat(&key(".zmetadata")).now_or_never().is_some();
    let open = |name: &str| {
        let chunk = key(name);
        store
            .open(&chunk, AccessHint::Ranges)
            .now_or_never()
            .is_some()
    };
    assert!(!open("plain/.zarray"), "no document is cached");
    stat(&store, "").unwrap();
    assert!(!zmetadata(), "only that of the root is cached");
    assert!(!list(""));
    assert!(is_listed(""));
    assert!(zmetadata() && list("") && open("plain/.zarray"));
    assert!(!open("shards/0/0"), "the index is not cached");
    read(&store, "shards/0/0").unwrap();
    assert!(open("shards/0/0"));
    let mut listing = block_on(store.list(&key("plain/0"))).unwrap();
    let mut seen = 0;
    let visited = listing.visit(0, &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(
        (visited.unwrap(), seen),
        (Visited::Pending, 2),
        "each chunk is looked up"
    );
    assert!(listing.load().now_or_never().is_none());
    assert_eq!(names(&store, "plain/0"), ["0"]);
}

#[test]
fn chunks_are_looked_up_in_batches() {
    let mut document = array(&[("shape", json!([5000, 4]))]);
    document["chunk_grid"]["configuration"]["chunk_shape"] = json!([1, 4]);
    document["chunk_key_encoding"] = json!({"name": "v2", "configuration": {"separator": "."}});
    let values = (0..5000)
        .step_by(7)
        .map(|at| (key(&format!("{at}.0")), vec![0; 4]));
    let document = (key("zarr.json"), document.to_string().into_bytes());
    let store = Arc::new(MemoryStore::new(values.chain([document])));
    let store = Translated::new(store, Key::root(), Target::V2, Duration::ZERO, engine());
    let found = names(&store, "");
    assert_eq!(found.len(), 1 + 5000_usize.div_ceil(7));
    assert!(found.contains(&"0.0".into()) && found.contains(&"4998.0".into()));
}

#[test]
fn an_index_is_read_once_for_all_requests() {
    let (inner, store) = over("", false, Duration::MAX);
    stat(&store, "shards").unwrap();
    inner.reads.store(0, Ordering::Relaxed);
    let chunk = key("shards/0/0");
    let opened = (0..8).map(|_| store.open(&chunk, AccessHint::Ranges));
    assert!(block_on(join_all(opened)).iter().all(Result::is_ok));
    assert_eq!(inner.reads.load(Ordering::Relaxed), 1);
}

#[test]
fn cached_metadata_take_reserved_memory() {
    let over = |memory: &Arc<Engine>| {
        let (store, root) = (Arc::new(MemoryStore::new(values())), Key::root());
        Translated::new(store, root, Target::V2, Duration::ZERO, Arc::clone(memory))
    };
    let used = |memory: &Engine| memory.gauges()[0].1;
    let memory = engine();
    let store = over(&memory);
    open(&store, "shards/0/0").unwrap();
    let index = used(&memory);
    assert!(index > 0, "the index");
    open(&store, "shards/1/0").unwrap();
    assert_eq!(used(&memory), index);
    stat(&store, ".zmetadata").unwrap();
    let all = used(&memory);
    assert!(all > index, "the consolidated metadata");
    drop(store);
    assert_eq!(used(&memory), 0);
    // No memory is left for the node.
    let store = over(&memory);
    stat(&store, "shards").unwrap();
    let taken = memory.reserve_now(&Key::root(), 256 << 20).unwrap();
    for name in ["shards/0/0", ".zmetadata", "plain"] {
        let error = stat(&store, name).unwrap_err();
        assert!(
            matches!(error, StoreError::TimedOut { .. }),
            "{name}: {error}"
        );
    }
    drop(taken);
    read(&store, ".zmetadata").unwrap();
    // The memory limit is too small for any cache.
    let small = engine_of(200 << 10);
    let store = over(&small);
    read(&store, "plain/0/0").unwrap();
    assert!(
        is_absent(stat(&store, ".zmetadata")),
        "it would be too large"
    );
    let error = stat(&over(&engine_of(500)), "shards/0/0");
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn an_index_of_other_metadata_is_read_again() {
    let (inner, store) = over("", false, Duration::ZERO);
    open(&store, "shards/0/0").unwrap();
    let shards = node(&store, "shards");
    inner.reads.store(0, Ordering::Relaxed);
    let object = open(&*inner, "shards/c/0/0").unwrap();
    let layout = shards.chunks().unwrap().shards.as_ref().unwrap();
    let reads = |mapping: u64| {
        let (object, source) = (Arc::clone(&object), key("shards/c/0/0"));
        let chunks = &store.0.inner_chunks;
        block_on(chunks.open(layout, object, &source, &[0], mapping)).unwrap();
        inner.reads.load(Ordering::Relaxed)
    };
    assert_eq!(reads(shards.version), 0);
    assert_eq!(reads(shards.version + 1), 1);
}

#[test]
fn a_node_that_cannot_be_read_prevents_consolidated_metadata() {
    let asked = |fails: &'static str, is_denied: bool| {
        let odd = TestStore::local(MemoryStore::new(values()), fails, is_denied);
        stat(&over_store(odd, Duration::ZERO).1, ".zmetadata")
    };
    assert!(asked("", false).is_ok());
    // Without consolidated metadata, programs read the documents.
    assert!(is_absent(asked("holes/zarr.json", true)));
    let late = asked("holes/zarr.json", false);
    assert!(matches!(late, Err(StoreError::TimedOut { .. })), "{late:?}");
}

#[test]
fn listings_that_may_lack_names_are_incomplete() {
    let unknown = |fails: &'static str, is_remote: bool, prefix: &str| {
        let (_, store) = over(fails, is_remote, Duration::ZERO);
        let incomplete = block_on(store.incomplete_listing(&key(prefix)));
        incomplete.map(|incomplete| incomplete.map(|incomplete| incomplete.is_unlisted))
    };
    let failed = unknown("plain/zarr.json", false, "plain");
    assert!(
        matches!(failed, Err(StoreError::TimedOut { .. })),
        "{failed:?}"
    );
    for known in ["", "plain", "plain/0", "nothing", "plain/7"] {
        assert_eq!(unknown("", false, known).unwrap(), None, "{known}");
    }
    for guessed in ["", "plain", "plain/0"] {
        assert_eq!(
            unknown("", true, guessed).unwrap(),
            Some(false),
            "{guessed}"
        );
    }
}

#[test]
fn inner_chunks_of_metadata_that_have_changed_are_stale_once() {
    let (inner, store) = over("", false, Duration::MAX);
    let before = stat(&store, "shards/0/0").unwrap().version;
    inner.version.store(2, Ordering::Relaxed);
    let error = open(&store, "shards/0/0").unwrap_err();
    assert!(matches!(error, StoreError::Stale { .. }), "{error}");
    assert_ne!(stat(&store, "shards/0/0").unwrap().version, before);
    assert_eq!(read(&store, "shards/0/0").unwrap(), [5, 6, 7, 8]);
}

#[test]
fn chunks_are_absent_only_by_metadata_that_have_not_changed() {
    let (inner, store) = over("", false, Duration::MAX);
    assert!(is_absent(stat(&store, "plain/1/0")));
    assert!(is_absent(open(&store, "plain/1/0")));
    inner.version.store(2, Ordering::Relaxed);
    let found = stat(&store, "plain/1/0");
    assert!(matches!(found, Err(StoreError::Stale { .. })), "{found:?}");
    assert!(is_absent(stat(&store, "plain/1/0")));
    inner.version.store(3, Ordering::Relaxed);
    let found = open(&store, "plain/1/0");
    assert!(matches!(found, Err(StoreError::Stale { .. })), "{found:?}");
    assert_eq!(read(&*Arc::new(store), "plain/0/0").unwrap(), [9; 8]);
}

#[test]
fn a_translation_serves_only_keys_below_its_root() {
    let store = Arc::new(MemoryStore::new(values()));
    let store = Translated::new(store, key("plain"), Target::V2, Duration::ZERO, engine());
    assert!(block_on(store.differs()).unwrap());
    assert_eq!(read(&store, "plain/0/0").unwrap(), [9; 8]);
    for outside in ["", "shards", "plain2", "plai"] {
        assert!(is_absent(stat(&store, outside)), "{outside}");
    }
    let differs = Target::ALL.map(|target| block_on(translated(target).differs()).unwrap());
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
    let mut listing = list(&store, "").unwrap();
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
    assert!(is_absent(stat(&store, "1099511627775/0")));
    let short = open(&store, "0/0").unwrap();
    let error = block_on(read_to_end(&*short, &key("0/0"), 1));
    assert!(
        matches!(error, Err(StoreError::Corrupt { .. })),
        "{error:?}"
    );
}

#[test]
fn a_chunk_that_cannot_be_read_exists_and_changes_with_its_shard() {
    let (store, shown) = over("", false, Duration::ZERO);
    for chunk in ["broken/0/0", "broken/2/0"] {
        let before = stat(&shown, chunk).unwrap();
        assert_eq!((before.kind, before.size_bytes), (Kind::Object, 1));
        let object = open(&shown, chunk).unwrap();
        assert_eq!(object.version(), before.version);
        let error = block_on(object.read(0, 1)).unwrap_err().to_string();
        assert!(error.starts_with("broken/c/"), "{error}");
        store.version.fetch_add(1, Ordering::Relaxed);
        assert_ne!(stat(&shown, chunk).unwrap().version, before.version);
    }
}

/// A v2 root whose consolidated metadata have an array that has changed, and one that was removed.
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
fn consolidated_metadata_equal_the_documents_of_nodes() {
    let shown = |store: Arc<dyn Store>, target| {
        Translated::new(store, Key::root(), target, Duration::ZERO, engine())
    };
    let local: Arc<dyn Store> = Arc::new(of_two_minds());
    let v2 = shown(Arc::clone(&local), Target::V2);
    assert_eq!(names(&v2, ""), [".zgroup", ".zmetadata", "a", "x"]);
    let copies = parsed(&v2, ".zmetadata")["metadata"].take();
    let copied: Vec<&String> = copies.as_object().unwrap().keys().collect();
    assert_eq!(copied, [".zgroup", "a/.zgroup", "a/b/.zarray", "x/.zarray"]);
    for (name, copy) in copies.as_object().unwrap() {
        assert_eq!(parsed(&v2, name), *copy, "{name}");
    }
    let remote: Arc<dyn Store> = Arc::new(TestStore::remote(of_two_minds()));
    for (store, data_type) in [(local, "int16"), (remote, "uint8")] {
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
fn a_name_of_a_document_is_never_a_node() {
    let store = Arc::new(of_two_minds());
    let v3 = Translated::new(store, Key::root(), Target::V3, Duration::ZERO, engine());
    assert_eq!(names(&v3, "a"), ["b", "zarr.json"]);
    assert_eq!(parsed(&v3, "a/zarr.json")["node_type"], "group");
    assert!(is_absent(stat(&v3, "a/zarr.json/.zarray")));
}
