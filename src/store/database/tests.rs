//! Tests of the tree over a database in memory, and of values that change.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::SystemTime;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::versions::identity_of;
use super::*;
use crate::runtime::block_on;
use crate::store::{AccessHint, Listed, Store, visit_all};
use crate::sync::Mutex;

/// An in-memory database that can be replaced; if `is_busy`, its lock is never free.
#[derive(Debug, Clone, Default)]
struct Map(Arc<Mutex<Content>>);

#[derive(Debug, Clone, Default)]
struct Content {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    generation: u64,
    is_busy: bool,
    reads: usize,
}

impl Database for Map {
    fn read(&self, _: Wait, work: &mut Work<'_>) -> Result<(), Failure> {
        self.0.lock().reads += 1;
        let mut content = self.0.lock().clone();
        match content.is_busy {
            true => Err(Failure::Busy("lock of a test")),
            false => work(&mut content),
        }
    }

    fn extent(&self) -> Extent {
        Extent::default()
    }
}

fn value_of(content: &[u8]) -> ValueMeta {
    let size_bytes = content.len() as u64;
    ValueMeta {
        size_bytes,
        identity: (size_bytes <= SMALL_BYTES).then(|| identity_of(content)),
    }
}

impl Snapshot for Content {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn modified(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self
            .values
            .range(bound.to_vec()..)
            .next()
            .map(|(key, _)| key.clone()))
    }

    fn find(&mut self, key: &[u8]) -> Result<Option<FoundValue>, Failure> {
        Ok(self.values.get(key).map(|content| {
            let value = value_of(content);
            let content = (value.size_bytes <= WHOLE_BYTES).then(|| content.clone());
            FoundValue { value, content }
        }))
    }

    fn find_with_next(&mut self, key: &[u8], bound: &[u8]) -> Result<FoundWithNext, Failure> {
        // Like LMDB, which does not find the next key at the end of a leaf.
        let next = self.seek(bound)?;
        Ok(self.find(key)?.zip(next))
    }

    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        for (key, content) in self.values.range(bound.to_vec()..) {
            let value = (columns == Columns::All).then(|| {
                let value = value_of(content);
                (value, value.identity.map(|_| content.into()))
            });
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let start = usize::try_from(offset).unwrap();
        target.copy_from_slice(&self.values[key][start..start + target.len()]);
        Ok(())
    }
}

fn store(keys: &[&[u8]]) -> (Map, DatabaseStore) {
    let map = Map::default();
    let values = keys.iter().map(|key| (key.to_vec(), b"value".to_vec()));
    map.0.lock().values = values.collect();
    let timeout = Duration::from_millis(30);
    let options = DatabaseOptions {
        timeout,
        ..DatabaseOptions::default()
    };
    let store = DatabaseStore::new("map", Box::new(map.clone()), options);
    (map, store)
}

fn key(text: &[u8]) -> Key {
    Key::new(text).unwrap()
}

fn names(store: &DatabaseStore, prefix: &[u8]) -> Vec<(Vec<u8>, Kind)> {
    let mut found = Vec::new();
    block_on(async {
        let mut listing = store.list(&key(prefix)).await.unwrap();
        let mut note = |listed: Listed<'_>| {
            if !matches!(listed.name, b"." | b"..") {
                found.push((listed.name.to_vec(), listed.kind));
            }
            ControlFlow::Continue(())
        };
        visit_all(&mut *listing, &mut note).await.unwrap();
    });
    found
}

fn stat(store: &DatabaseStore, text: &[u8]) -> Result<Stat, StoreError> {
    block_on(store.stat(&key(text)))
}

#[test]
fn a_prefix_hides_a_value_of_its_name_and_no_other_names() {
    let (_, store) = store(&[b"a", b"a-b", b"a.b/c", b"a/b", b"a0", b"b", b"b.c"]);
    let expected: [(&[u8], Kind); 6] = [
        (b"a-b", Kind::Object),
        (b"a.b", Kind::Prefix),
        (b"a", Kind::Prefix),
        (b"a0", Kind::Object),
        (b"b", Kind::Object),
        (b"b.c", Kind::Object),
    ];
    let expected = expected.map(|(name, kind)| (name.to_vec(), kind));
    assert_eq!(names(&store, b""), expected);
    assert_eq!(stat(&store, b"a").unwrap().kind, Kind::Prefix);
    assert_eq!(stat(&store, b"b").unwrap().kind, Kind::Object);
}

#[test]
fn keys_that_are_no_file_names_are_left_out_with_all_below_them() {
    let long = [&b"p/"[..], &[b'x'; 256], b"/y"].concat();
    let keys: [&[u8]; 9] = [
        b"", b"/a", b"p//x", b"p/../y", b"p/a\0b", b"p/", b"q//z", &long, b"p/good",
    ];
    let (_, store) = store(&keys);
    assert_eq!(names(&store, b""), [(b"p".to_vec(), Kind::Prefix)]);
    assert_eq!(names(&store, b"p"), [(b"good".to_vec(), Kind::Object)]);
    let absent = stat(&store, b"q");
    assert!(
        matches!(absent, Err(StoreError::NotFound { .. })),
        "{absent:?}"
    );
}

#[test]
fn a_listing_of_many_batches_has_each_name_once() {
    let keys: Vec<Vec<u8>> = (0..10_000_u32)
        .map(|n| n.to_string().into_bytes())
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (_, store) = store(&keys);
    let mut found: Vec<Vec<u8>> = names(&store, b"")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    found.sort();
    let mut expected: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_lock_that_is_not_released_is_a_timeout_and_not_absence() {
    let (map, store) = store(&[b"a"]);
    map.0.lock().is_busy = true;
    let error = stat(&store, b"a").unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    assert!(store.try_stat(&key(b"a")).is_none());
}

fn put(map: &Map, name: &[u8], content: Vec<u8>) {
    let mut map = map.0.lock();
    map.values.insert(name.to_vec(), content);
    map.generation += 1;
}

#[test]
fn a_long_value_is_the_same_if_another_key_has_changed_and_stale_if_it_has() {
    const LONG: usize = 100_000;
    let (map, store) = store(&[b"a"]);
    put(&map, b"long", vec![1; LONG]);
    let open = || block_on(store.open(&key(b"long"), AccessHint::Ranges)).unwrap();
    let read = |object: &dyn Object| {
        let data = block_on(object.read(0, LONG))?;
        Ok::<_, StoreError>(data.bytes(&[]).unwrap().to_vec())
    };
    stat(&store, b"a").unwrap();
    // No digest was computed before a writer was seen, so nothing proves that the content is the same.
    let first = open();
    put(&map, b"other", vec![0]);
    assert!(matches!(read(&*first), Err(StoreError::Stale { .. })));
    let second = open();
    put(&map, b"other", vec![1]);
    assert_eq!(read(&*second).unwrap(), [1; LONG]);
    assert_eq!(open().version(), second.version());
    assert_eq!(stat(&store, b"long").unwrap().version, second.version());
    put(&map, b"long", vec![2; LONG]);
    assert!(matches!(read(&*second), Err(StoreError::Stale { .. })));
    assert_ne!(stat(&store, b"long").unwrap().version, second.version());
    assert_eq!(read(&*open()).unwrap(), [2; LONG]);
}

/// Computes the names directly below a prefix from all keys.
fn expected_names(keys: &[Vec<u8>], prefix: &[u8]) -> BTreeMap<Vec<u8>, Kind> {
    let mut found = BTreeMap::new();
    for valid in keys
        .iter()
        .filter(|key| !key.is_empty() && Key::new(key).is_ok())
    {
        let Some(below) = valid.strip_prefix(prefix) else {
            continue;
        };
        match below.iter().position(|byte| *byte == b'/') {
            Some(end) => {
                found.insert(below[..end].to_vec(), Kind::Prefix);
            }
            None => {
                found.entry(below.to_vec()).or_insert(Kind::Object);
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_are_those_of_a_scan_of_all_keys(
        keys in prop::collection::vec("[a./0-]{0,5}", 0..30)
    ) {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        let refs: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let (_, store) = store(&refs);
        let mut pending = vec![Vec::new()];
        while let Some(prefix) = pending.pop() {
            let directory = match prefix.is_empty() {
                true => Vec::new(),
                false => [&prefix[..], b"/"].concat(),
            };
            let found = names(&store, &prefix);
            let expected = expected_names(&keys, &directory);
            prop_assert_eq!(found.len(), expected.len());
            for (name, kind) in found {
                prop_assert_eq!(expected.get(&name), Some(&kind));
                let key = [&directory[..], &name].concat();
                prop_assert_eq!(stat(&store, &key).unwrap().kind, kind);
                if kind == Kind::Prefix {
                    pending.push(key);
                }
            }
        }
    }
}

#[test]
fn an_open_uses_the_small_value_of_the_preceding_lookup() {
    let (map, store) = store(&[b"a"]);
    let open = || block_on(store.open(&key(b"a"), AccessHint::Ranges)).unwrap();
    let looked_up = stat(&store, b"a").unwrap();
    put(&map, b"a", b"other".to_vec());
    let first = open();
    assert_eq!(first.version(), looked_up.version);
    let data = first.read(0, 10).now_or_never().unwrap().unwrap();
    assert_eq!(data.bytes(&[]).unwrap(), b"value");
    assert_ne!(open().version(), looked_up.version, "only once");
    stat(&store, b"a").unwrap();
    put(&map, b"a", b"third".to_vec());
    std::thread::sleep(Duration::from_millis(150));
    let data = open().read(0, 10).now_or_never().unwrap().unwrap();
    assert_eq!(data.bytes(&[]).unwrap(), b"third");
}

/// Looks up, opens and reads a key, as a program would.
fn use_key(store: &DatabaseStore, text: &[u8]) -> Vec<u8> {
    let found = store.try_stat(&key(text)).unwrap().unwrap();
    let object = store.try_open(&key(text), AccessHint::Ranges);
    let object = object.unwrap().unwrap();
    assert_eq!(object.version(), found.version);
    let data = object.read(0, 1 << 20).now_or_never().unwrap().unwrap();
    data.bytes(&[]).unwrap().to_vec()
}

fn numbered(count: usize, length: usize) -> (Map, DatabaseStore, Vec<Vec<u8>>) {
    let names: Vec<Vec<u8>> = (0..count)
        .map(|number| format!("a/{number:03}").into_bytes())
        .collect();
    let (map, store) = store(&[]);
    let values = (0_u8..).zip(&names);
    map.0.lock().values = values
        .map(|(number, name)| (name.clone(), vec![number; length]))
        .collect();
    (map, store, names)
}

#[test]
fn small_keys_in_their_order_share_transactions() {
    let (map, store, names) = numbered(200, 700);
    for (number, name) in (0_u8..).zip(&names) {
        assert_eq!(use_key(&store, name), vec![number; 700]);
    }
    let reads = map.0.lock().reads;
    assert!(reads <= 40, "{reads}");
    // In any other order each key takes one transaction.
    for name in names.iter().rev() {
        use_key(&store, name);
    }
    assert!(map.0.lock().reads >= reads + 200);
}

#[test]
fn a_short_value_takes_one_transaction_and_a_long_one_a_transaction_for_each_step() {
    let used = |length: usize| {
        let (map, store, names) = numbered(1, length);
        store.try_stat(&key(&names[0])).unwrap().unwrap();
        let object = store.try_open(&key(&names[0]), AccessHint::Ranges);
        let object = object.unwrap().unwrap();
        let read = block_on(object.read(0, length)).unwrap();
        assert_eq!(read.bytes(&[]).unwrap(), vec![0; length]);
        map.0.lock().reads
    };
    for (length, reads) in [(60_000, 1), (70_000, 3)] {
        // On a busy machine a read may take longer than the maximum age, so the best of five counts.
        assert_eq!((0..5).map(|_| used(length)).min(), Some(reads));
    }
}

#[test]
fn values_that_exceed_the_value_cache_are_read_by_ranges() {
    let (_, store, names) = numbered(1, 60_000);
    let open = || store.try_open(&key(&names[0]), AccessHint::Ranges);
    let open = || open().unwrap().unwrap();
    let is_held = |object: &dyn Object| object.as_local().is_some();
    let value_cache = &store.shared.value_cache;
    let all: Vec<_> = std::iter::from_fn(|| value_cache.reserve(60_000)).collect();
    assert_eq!(all.len(), (64 << 20) / 60_000);
    let object = open();
    assert!(!is_held(&*object));
    let read = block_on(object.read(0, 60_000)).unwrap();
    assert_eq!(read.bytes(&[]).unwrap().len(), 60_000);
    drop(all);
    assert!(is_held(&*open()));
}

#[test]
fn a_change_behind_prefetched_values_is_seen() {
    let (map, store, names) = numbered(20, 10);
    for name in &names[..3] {
        use_key(&store, name);
    }
    {
        let mut content = map.0.lock();
        content.generation += 1;
        for name in &names {
            content.values.insert(name.clone(), vec![9; 20]);
        }
    }
    // The next transaction notices the change.
    assert_eq!(use_key(&store, &names[19]), [9; 20]);
    assert_eq!(use_key(&store, &names[3]), [9; 20]);
    map.0.lock().values.remove(&names[5]);
    // Without another transaction, the change is seen after a moment.
    std::thread::sleep(Duration::from_millis(150));
    let gone = store.try_stat(&key(&names[5])).unwrap();
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}

#[test]
fn a_value_that_a_prefix_hides_is_not_prefetched() {
    let (_, store) = store(&[b"a/0", b"a/00", b"a/1", b"a/1!", b"a/1/x", b"a/2"]);
    for name in [&b"a/0"[..], b"a/00"] {
        assert_eq!(use_key(&store, name), b"value");
    }
    assert_eq!(stat(&store, b"a/1").unwrap().kind, Kind::Prefix);
    assert_eq!(use_key(&store, b"a/1!"), b"value");
    assert_eq!(use_key(&store, b"a/2"), b"value");
}
