use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;

use super::super::Backwards;
use crate::runtime::block_on;
use crate::store::{AccessHint, Capabilities, Listing, MemoryStore, Stat, StoreError};

/// The number of keys that a new stream prefetches in these tests, where the size of values is unknown.
const WINDOW: usize = FIRST_WINDOW_OF_UNKNOWN;

/// A store that records prefetches, and can let them hang or refuse them.
#[derive(Debug)]
struct Prefetches {
    inner: Arc<dyn Store>,
    keys: Mutex<Vec<Key>>,
    running: AtomicUsize,
    hangs: AtomicBool,
    refuses: AtomicBool,
    joins: bool,
    /// The number of prefetches of [`Prefetch::AttributesOfVisited`].
    visited: AtomicUsize,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for Prefetches {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            joins_prefetches: self.joins,
            ..self.inner.capabilities()
        }
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        self.inner.stat(key).await
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.inner.open(key, hint).await
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn prefetch(&self, key: &Key, what: Prefetch) -> bool {
        if what == Prefetch::AttributesOfVisited {
            self.visited.fetch_add(1, Ordering::Relaxed);
        }
        self.keys.lock().push(key.clone());
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(&self.running);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        !self.refuses.load(Ordering::Relaxed)
    }
}

fn key(number: usize) -> Key {
    Key::new(format!("a/{number:03}").as_bytes()).unwrap()
}

fn watched() -> (KeyReadahead, Arc<Prefetches>) {
    watched_by(false)
}

fn watched_by(joins: bool) -> (KeyReadahead, Arc<Prefetches>) {
    watched_over(
        MemoryStore::new((0..200).map(|number| (key(number), vec![1]))),
        joins,
    )
}

fn watched_over(inner: MemoryStore, joins: bool) -> (KeyReadahead, Arc<Prefetches>) {
    let store = Arc::new(Prefetches {
        inner: Arc::new(inner),
        keys: Mutex::default(),
        running: AtomicUsize::new(0),
        hangs: AtomicBool::new(false),
        refuses: AtomicBool::new(false),
        joins,
        visited: AtomicUsize::new(0),
    });
    let readahead = of_store(&store, Prefetch::Value);
    (readahead, store)
}

fn of_store(store: &Arc<Prefetches>, what: Prefetch) -> KeyReadahead {
    let own: Arc<dyn Store> = Arc::clone(store) as _;
    let orders = KeyOrders::new(Arc::clone(&own), Backwards);
    KeyReadahead::new(own, Arc::new(orders), what)
}

fn settles(store: &Prefetches, count: usize) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if store.keys.lock().len() == count {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_lookup_that_waits_for_a_prefetch_widens_the_window_once() {
    let (readahead, store) = watched();
    let all_done = |count: usize| {
        let is_done = || {
            let state = readahead.0.state.lock();
            let mut prefetched = state.streams.iter().flat_map(|stream| &stream.prefetched);
            prefetched.all(|prefetched| prefetched.state == PrefetchState::Done)
        };
        let end = Instant::now() + Duration::from_secs(10);
        while !(settles(&store, count) && is_done()) {
            assert!(Instant::now() < end, "{}", store.keys.lock().len());
        }
    };
    readahead.observe(&key(0), None);
    readahead.observe(&key(1), None);
    all_done(WINDOW);
    for number in 2..10 {
        readahead.observe(&key(number), None);
        all_done(WINDOW + number - 1);
    }
    store.hangs.store(true, Ordering::Relaxed);
    readahead.observe(&key(10), None);
    assert!(settles(&store, 2 * WINDOW + 1));
    for _ in 0..3 {
        readahead.anticipate(&key(18));
    }
    assert!(settles(&store, 3 * WINDOW + 1));
    std::thread::sleep(Duration::from_millis(50));
    assert!(settles(&store, 3 * WINDOW + 1));
}

#[test]
fn keys_in_order_are_fetched_once_each_and_the_window_grows_while_the_reader_waits() {
    let (readahead, store) = watched();
    readahead.observe(&key(0), None);
    assert!(settles(&store, 0));
    store.hangs.store(true, Ordering::Relaxed);
    readahead.observe(&key(1), None);
    assert!(settles(&store, WINDOW));
    // The reader waits for a key in flight.
    readahead.observe(&key(2), None);
    readahead.observe(&key(3), None);
    let window = 2 * WINDOW;
    let begun = || store.keys.lock().len();
    let end = Instant::now() + Duration::from_secs(10);
    while begun() < window && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun() >= window, "{}", begun());
    // Prefetches begin on several threads, in any order.
    let mut keys = store.keys.lock().clone();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.first(), keys.len()), (Some(&key(2)), count));
}

#[test]
fn a_window_is_filled_when_half_of_it_is_used_if_the_store_joins_prefetches() {
    let (readahead, store) = watched_by(true);
    let is_done = || {
        let state = readahead.0.state.lock();
        let mut prefetched = state.streams.iter().flat_map(|stream| &stream.prefetched);
        prefetched.all(|prefetched| prefetched.state == PrefetchState::Done)
    };
    let settled = |count| settles(&store, count) && (0..500).any(|_| is_done() || pause());
    readahead.observe(&key(0), None);
    readahead.observe(&key(1), None);
    assert!(settled(WINDOW));
    for number in 2..5 {
        readahead.observe(&key(number), None);
    }
    pause();
    assert_eq!(store.keys.lock().len(), WINDOW);
    readahead.observe(&key(5), None);
    assert!(settled(WINDOW + WINDOW / 2));
}

/// Sleeps for 20 ms; returns false.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(20));
    false
}

#[test]
fn a_stream_that_is_not_continued_cancels_its_requests() {
    let (readahead, store) = watched();
    store.hangs.store(true, Ordering::Relaxed);
    readahead.observe(&key(0), None);
    readahead.observe(&key(1), None);
    assert!(settles(&store, WINDOW));
    let end = Instant::now() + 10 * IDLE;
    while store.running.load(Ordering::Relaxed) > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.running.load(Ordering::Relaxed), 0);
    assert!(readahead.0.state.lock().streams.is_empty());
}

#[test]
fn a_store_without_memory_gets_a_smaller_window() {
    let (readahead, store) = watched();
    store.refuses.store(true, Ordering::Relaxed);
    readahead.observe(&key(0), None);
    readahead.observe(&key(1), None);
    let end = Instant::now() + Duration::from_secs(10);
    while store.keys.lock().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 2..30 {
        readahead.observe(&key(number), None);
        std::thread::sleep(Duration::from_millis(2));
    }
    let windows: Vec<usize> = {
        let state = readahead.0.state.lock();
        state.streams.iter().map(|stream| stream.window).collect()
    };
    assert!(windows.iter().any(|window| *window < WINDOW), "{windows:?}");
}

#[test]
fn random_keys_and_documents_start_no_stream() {
    let (readahead, store) = watched();
    for number in 0..40 {
        readahead.observe(&key(number * 83 % 200), None);
        readahead.observe(&Key::new(b"a/.zarray").unwrap(), None);
        std::thread::sleep(Duration::from_millis(2));
    }
    block_on(runtime::timeout(
        Duration::from_millis(50),
        std::future::pending::<()>(),
    ));
    assert_eq!(store.keys.lock().len(), 0);
}

#[test]
fn documents_of_a_listed_directory_predict_its_values() {
    let names = [
        "a/.zarray",
        "a/.zattrs",
        "a/0",
        "a/1",
        "b/.zattrs",
        "b/.zgroup",
        "b/c/.zarray",
        "b/c/0",
    ];
    let key = |name: &str| Key::new(name.as_bytes()).unwrap();
    let (readahead, store) = watched_over(
        MemoryStore::new(names.map(|name| (key(name), vec![1]))),
        false,
    );
    let open = |one: &str, other: &str| {
        readahead.observe(&key(one), None);
        pause();
        readahead.anticipate(&key(other));
        pause();
    };
    open("a/.zarray", "a/.zattrs");
    readahead.record_listed(&key("b"));
    open("b/.zattrs", "b/.zgroup");
    assert_eq!(*store.keys.lock(), []);
    readahead.record_listed(&key("a"));
    open("a/.zarray", "a/.zattrs");
    assert!(settles(&store, 2));
    // They are fetched at the same time.
    let mut keys = store.keys.lock().clone();
    keys.sort();
    assert_eq!(keys, [key("a/0"), key("a/1")]);
}

#[test]
fn the_documents_of_a_listed_directory_are_looked_up_together() {
    let names = [
        ".zattrs",
        ".zgroup",
        "a/.zarray",
        "a/.zattrs",
        "a/0",
        "a/1",
        "b/0",
    ];
    let key = |name: &str| Key::new(name.as_bytes()).unwrap();
    let watched = || {
        watched_over(
            MemoryStore::new(names.map(|name| (key(name), vec![1]))),
            false,
        )
    };
    let looked_up = |store: &Prefetches, count| {
        settles(store, count);
        // Further keys would follow.
        pause();
        std::mem::take(&mut *store.keys.lock())
    };
    let (readahead, store) = watched();
    // A program that has not listed the directory knows what it wants.
    readahead.anticipate_documents(&key("a/.zarray"));
    readahead.record_listed(&key("a"));
    readahead.anticipate_documents(&key("a/0"));
    assert_eq!(looked_up(&store, 0), []);
    readahead.anticipate_documents(&key("a/.zarray"));
    assert_eq!(looked_up(&store, 1), [key("a/.zattrs")]);
    // Neither a directory nor a value is looked up.
    readahead.record_listed(&Key::root());
    readahead.anticipate_documents(&key(".zgroup"));
    assert_eq!(looked_up(&store, 0), []);
    // The other documents are those behind the first one, and only once.
    readahead.observe(&key("a/.zarray"), None);
    readahead.anticipate_documents(&key("a/.zarray"));
    assert_eq!(looked_up(&store, 0), []);
    // Nor are they after a stream that was not continued.
    let (readahead, store) = watched();
    readahead.0.state.lock().false_starts = 1;
    readahead.record_listed(&key("a"));
    readahead.anticipate_documents(&key("a/.zarray"));
    assert_eq!(looked_up(&store, 0), []);
}

#[test]
fn documents_that_are_looked_up_and_not_opened_predict_lookups_of_the_values() {
    let names = ["a/.zarray", "a/.zattrs", "a/0", "a/1"];
    let key = |name: &str| Key::new(name.as_bytes()).unwrap();
    for (is_opened, expected) in [(false, 1), (true, 0)] {
        let (_, store) = watched_over(
            MemoryStore::new(names.map(|name| (key(name), vec![1]))),
            false,
        );
        let attributes = of_store(&store, Prefetch::Attributes);
        attributes.record_listed(&key("a"));
        attributes.observe(&key("a/.zarray"), None);
        if is_opened {
            attributes.record_opened();
        }
        attributes.observe(&key("a/.zattrs"), None);
        let prefetched = || store.keys.lock().contains(&key("a/1"));
        match is_opened {
            true => assert!(!prefetched() && !pause() && !prefetched()),
            false => assert!((0..500).any(|_| prefetched() || pause())),
        }
        assert_eq!(store.visited.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn the_first_key_of_a_directory_that_was_just_listed_starts_a_stream() {
    let (readahead, store) = watched();
    // No stream starts without a listing, or for a key that is not the first one.
    readahead.anticipate_open(&key(0));
    readahead.record_listed(&Key::new(b"a").unwrap());
    readahead.anticipate_open(&key(3));
    pause();
    assert_eq!(store.keys.lock().len(), 0);
    readahead.anticipate_open(&key(0));
    assert!(settles(&store, FIRST_WINDOW_OF_UNKNOWN_LISTED));
    assert_eq!(store.keys.lock().first(), Some(&key(1)));
    // After a stream that was not continued, two keys are needed.
    let (readahead, store) = watched();
    readahead.0.state.lock().false_starts = 1;
    readahead.record_listed(&Key::new(b"a").unwrap());
    readahead.anticipate_open(&key(0));
    pause();
    assert_eq!(store.keys.lock().len(), 0);
}

#[test]
fn a_new_stream_fetches_fewer_keys_where_values_are_long() {
    for (bytes, is_listed, window) in [
        (1000, false, FIRST_WINDOW),
        (1000, true, FIRST_WINDOW_OF_LISTED),
        (4 << 20, false, 4),
        (4 << 20, true, 4),
        (20 << 20, true, 1),
    ] {
        let (readahead, store) = watched();
        if is_listed {
            readahead.record_listed(&Key::new(b"a").unwrap());
        }
        store.hangs.store(true, Ordering::Relaxed);
        readahead.0.state.lock().value_bytes = bytes;
        for number in 0..2 {
            readahead.observe(&key(number), None);
        }
        assert!(settles(&store, window), "{bytes}");
        pause();
        assert_eq!(store.keys.lock().len(), window);
    }
}
