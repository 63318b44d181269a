//! Readahead across keys: the keys that a program will open next, when it opens them in an order.
//!
//! Two keys that follow each other in some order ([`KeyOrder`](super::key_order::KeyOrder)), or three
//! in equal strides, start a stream; after streams that were not continued, more keys are needed. The
//! window of a stream doubles whenever the program has to wait for a key that is still being fetched, so
//! it becomes what latency times bandwidth needs; it halves when the store has no memory for more. A
//! stream that is not continued and whose files are closed ends after [`IDLE`], and cancels its
//! requests.
//!
//! Lock order: the lock of the state is not held while a directory is listed, a prefetch is started or
//! a task is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_task::Task;

use super::key_order::{KeyOrders, Step};
use crate::hierarchy::is_document;
use crate::runtime;
use crate::store::{Key, Object, Prefetch, Store};
use crate::sync::{Mutex, MutexGuard};

/// Programs, or threads of them, that are told apart.
const MAX_STREAMS: usize = 8;
/// Keys that were opened lately, in which an order is looked for.
const MAX_RECENT: usize = 12;
/// Keys that a new stream fetches.
const FIRST_WINDOW: usize = 8;
/// Keys that any stream fetches, at most.
const MAX_WINDOW: usize = 64;
/// Keys that a program with several threads may open later than their successors.
const MAX_DISORDER: usize = 16;
/// A stream of which so many keys were used was no accident.
const CONTINUED: usize = 4;
/// After so many accidents a pair of keys starts no stream.
const MAX_FALSE_STARTS: u32 = 2;
/// A stream without open files ends after this time.
const IDLE: Duration = Duration::from_secs(1);
/// Any other stream ends after this time.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// Watches which keys of a tree are used, and prefetches those that follow.
#[derive(Debug)]
pub(super) struct KeyReadahead(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    what: Prefetch,
    orders: Arc<KeyOrders>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest key first.
    recent: VecDeque<Key>,
    streams: Vec<Stream>,
    next_id: u64,
    /// Streams that were not continued since the last one that was.
    false_starts: u32,
    is_recognizing: bool,
    is_watched: bool,
}

/// Keys that are used one after the other.
#[derive(Debug)]
struct Stream {
    id: u64,
    step: Step,
    /// The last key that a prefetch was started for.
    cursor: Key,
    /// Keys that are prefetched and not used yet, in order.
    ahead: VecDeque<Ahead>,
    /// Keys of `ahead` that were opened lately: their prefetches go on until a read joins them.
    opened: VecDeque<Ahead>,
    /// Number of keys in `ahead` that is aimed at.
    window: usize,
    /// Number of keys of `ahead` that were used.
    used: usize,
    last_used: Instant,
    /// The object that was opened last.
    object: Option<Weak<dyn Object>>,
    is_filling: bool,
}

#[derive(Debug)]
struct Ahead {
    key: Key,
    state: AheadState,
    /// The window was widened because the program waits for this key.
    is_awaited: bool,
    /// Dropping it cancels the prefetch.
    _task: Task<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AheadState {
    InFlight,
    Done,
    /// The store has no memory for it, or failed.
    Refused,
}

impl State {
    /// The stream that has prefetched a key, and the key's place in it.
    fn place_of(&self, key: &Key) -> Option<(usize, usize)> {
        let mut streams = self.streams.iter().enumerate();
        streams.find_map(|(number, stream)| {
            let place = stream.ahead.iter().position(|ahead| ahead.key == *key)?;
            Some((number, place))
        })
    }

    fn note_false_starts(&mut self, over: &[Stream]) {
        let unused = over.iter().filter(|stream| stream.used < CONTINUED).count();
        let unused = u32::try_from(unused).unwrap_or(u32::MAX);
        self.false_starts = self.false_starts.saturating_add(unused);
    }
}

impl Stream {
    /// Notes the use of a key that is prefetched. Returns keys that the program has passed over, or has
    /// opened long ago.
    fn advance(&mut self, place: usize) -> Vec<Ahead> {
        let Some(used) = self.ahead.remove(place) else {
            return Vec::new();
        };
        self.used = self.used.saturating_add(1);
        match used.state {
            AheadState::InFlight if !used.is_awaited => self.set_window(self.window * 2),
            AheadState::Refused => self.set_window(self.window / 2),
            AheadState::InFlight | AheadState::Done => {}
        }
        let passed = place.saturating_sub(MAX_DISORDER);
        let mut dropped: Vec<Ahead> = self.ahead.drain(..passed).collect();
        self.opened.push_back(used);
        if self.opened.len() > MAX_DISORDER {
            dropped.extend(self.opened.pop_front());
        }
        dropped
    }

    /// Sets the window, which grows no faster than the stream has proved to be one.
    fn set_window(&mut self, window: usize) {
        let most = self.used.saturating_mul(4).saturating_add(FIRST_WINDOW);
        self.window = window.clamp(1, most.min(MAX_WINDOW));
    }

    /// Widens the window if a key is still being fetched, for which the program waits.
    fn await_key(&mut self, place: usize) {
        if let Some(ahead) = self.ahead.get_mut(place)
            && ahead.state == AheadState::InFlight
            && !ahead.is_awaited
        {
            ahead.is_awaited = true;
            self.set_window(self.window * 2);
        }
    }

    fn is_over(&self) -> bool {
        let is_open = self
            .object
            .as_ref()
            .is_some_and(|object| object.strong_count() > 0);
        self.last_used.elapsed() > if is_open { MAX_IDLE } else { IDLE }
    }
}

impl KeyReadahead {
    /// Watches a tree of a remote store; `what` is what is prefetched.
    pub(super) fn new(store: Arc<dyn Store>, orders: Arc<KeyOrders>, what: Prefetch) -> Self {
        Self(Arc::new(Shared {
            orders,
            store,
            what,
            state: Mutex::default(),
        }))
    }

    /// Notes the use of a key: that it was opened, or for attributes that it was looked up.
    pub(super) fn observe(&self, key: &Key, object: Option<&Arc<dyn Object>>) {
        // Programs read the documents of a node at any time.
        if is_document(key) {
            return;
        }
        let mut state = self.0.state.lock();
        let place = state.place_of(key);
        if state.recent.front() != Some(key) {
            state.recent.push_front(key.clone());
            state.recent.truncate(MAX_RECENT);
        }
        let Some((number, place)) = place else {
            let recent = state.recent.iter().cloned().collect();
            self.recognize(state, recent);
            return;
        };
        let mut stream = state.streams.remove(number);
        let dropped = stream.advance(place);
        stream.last_used = Instant::now();
        if stream.used == CONTINUED {
            state.false_starts = 0;
        }
        stream.object = object.map(Arc::downgrade).or(stream.object);
        let id = (!stream.is_filling).then_some(stream.id);
        stream.is_filling = true;
        state.streams.insert(0, stream);
        drop(state);
        drop(dropped);
        if let Some(id) = id {
            self.0.fill(id);
        }
    }

    /// Notes that a key is looked up, and that the lookup waits for an answer: if the key follows others
    /// that were used, it will be used, too, and those behind it need not wait for the answer. If it is
    /// being prefetched, the window is too small.
    pub(super) fn anticipate(&self, key: &Key) {
        let mut state = self.0.state.lock();
        if is_document(key) || state.recent.is_empty() || state.recent.contains(key) {
            return;
        }
        if let Some((number, place)) = state.place_of(key) {
            let stream = state.streams.get_mut(number);
            let id = stream.and_then(|stream| {
                stream.await_key(place);
                let is_filling = std::mem::replace(&mut stream.is_filling, true);
                (!is_filling).then_some(stream.id)
            });
            drop(state);
            if let Some(id) = id {
                self.0.fill(id);
            }
            return;
        }
        let recent = std::iter::once(key).chain(&state.recent).cloned().collect();
        self.recognize(state, recent);
    }

    /// Looks for an order in keys, the newest first, and starts a stream.
    fn recognize(&self, mut state: MutexGuard<'_, State>, recent: Vec<Key>) {
        if recent.len() < 2 || state.is_recognizing {
            return;
        }
        state.is_recognizing = true;
        let is_certain = state.false_starts >= MAX_FALSE_STARTS;
        drop(state);
        let shared = Arc::clone(&self.0);
        let recognize = async move {
            if let [newest, older @ ..] = &recent[..]
                && let Some(step) = shared.step(newest, older, is_certain).await
            {
                shared.start(newest, step).await;
            }
            shared.state.lock().is_recognizing = false;
        };
        runtime::spawn(recognize).detach();
    }
}

impl Shared {
    async fn step(&self, newest: &Key, older: &[Key], is_certain: bool) -> Option<Step> {
        // Attributes are only fetched where a lookup brings no more than them.
        let is_wanted = match self.what {
            Prefetch::Attributes => self.store.prefetch(newest, self.what).await,
            Prefetch::Value => true,
        };
        match is_wanted {
            true => self.orders.step(newest, older, is_certain).await,
            false => None,
        }
    }

    /// Starts a stream behind a key, unless one has its next key already.
    async fn start(self: &Arc<Self>, key: &Key, step: Step) {
        let Some(next) = self.orders.after(key, &step).await else {
            return;
        };
        let mut state = self.state.lock();
        let has_next = |stream: &Stream| stream.ahead.iter().any(|ahead| ahead.key == next);
        if state.streams.iter().any(has_next) {
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.streams.insert(
            0,
            Stream {
                id,
                step,
                cursor: key.clone(),
                ahead: VecDeque::new(),
                opened: VecDeque::new(),
                window: FIRST_WINDOW,
                used: 0,
                last_used: Instant::now(),
                object: None,
                is_filling: true,
            },
        );
        let kept = MAX_STREAMS.min(state.streams.len());
        let dropped = state.streams.split_off(kept);
        state.note_false_starts(&dropped);
        let is_watched = std::mem::replace(&mut state.is_watched, true);
        drop(state);
        drop(dropped);
        if !is_watched {
            runtime::spawn(watch(Arc::downgrade(self))).detach();
        }
        self.fill(id);
    }

    /// Prefetches keys until the window of a stream is full.
    fn fill(self: &Arc<Self>, id: u64) {
        runtime::spawn(fill(Arc::downgrade(self), id)).detach();
    }

    /// The last key that was prefetched, if the stream needs more; else notes that it is filled.
    fn next_of(&self, id: u64) -> Option<(Key, Step)> {
        let mut state = self.state.lock();
        let stream = state.streams.iter_mut().find(|stream| stream.id == id)?;
        let is_refused = stream
            .ahead
            .iter()
            .any(|ahead| ahead.state == AheadState::Refused);
        if stream.ahead.len() >= stream.window || is_refused {
            stream.is_filling = false;
            return None;
        }
        Some((stream.cursor.clone(), stream.step.clone()))
    }

    /// Prefetches one key for a stream.
    fn prefetch(self: &Arc<Self>, id: u64, key: &Key) {
        let (weak, store) = (Arc::downgrade(self), Arc::clone(&self.store));
        let (wanted, what) = (key.clone(), self.what);
        let prefetch = async move {
            let ended = match store.prefetch(&wanted, what).await {
                true => AheadState::Done,
                false => AheadState::Refused,
            };
            let Some(shared) = weak.upgrade() else { return };
            let mut state = shared.state.lock();
            let stream = state.streams.iter_mut().find(|stream| stream.id == id);
            let ahead =
                stream.and_then(|stream| stream.ahead.iter_mut().find(|ahead| ahead.key == wanted));
            if let Some(ahead) = ahead {
                ahead.state = ended;
            }
        };
        let mut state = self.state.lock();
        let Some(stream) = state.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        stream.cursor = key.clone();
        stream.ahead.push_back(Ahead {
            key: key.clone(),
            state: AheadState::InFlight,
            is_awaited: false,
            _task: runtime::spawn(prefetch),
        });
    }
}

async fn fill(shared: Weak<Shared>, id: u64) {
    while let Some(shared) = shared.upgrade()
        && let Some((cursor, step)) = shared.next_of(id)
    {
        match shared.orders.after(&cursor, &step).await {
            Some(next) => shared.prefetch(id, &next),
            // The stream is at its end: it is not filled again.
            None => return,
        }
    }
}

/// Ends streams that are not continued, as long as there are any.
async fn watch(shared: Weak<Shared>) {
    loop {
        runtime::timeout(IDLE / 2, std::future::pending::<()>()).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut state = shared.state.lock();
        let (over, left) = state.streams.drain(..).partition(Stream::is_over);
        let over: Vec<Stream> = over;
        state.streams = left;
        state.note_false_starts(&over);
        state.is_watched = !state.streams.is_empty();
        let is_watched = state.is_watched;
        drop(state);
        drop(over);
        if !is_watched {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::super::hashed::Numbers;
    use crate::runtime::block_on;
    use crate::store::{AccessHint, Capabilities, Extent, Listing, MemoryStore, Stat, StoreError};

    /// Counts prefetches, which take a while, or refuses them.
    #[derive(Debug)]
    struct Prefetches {
        inner: Arc<dyn Store>,
        keys: Mutex<Vec<Key>>,
        running: AtomicUsize,
        hangs: AtomicBool,
        refuses: AtomicBool,
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
            self.inner.capabilities()
        }

        fn extent(&self) -> Extent {
            self.inner.extent()
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

        async fn prefetch(&self, key: &Key, _: Prefetch) -> bool {
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
        let inner = MemoryStore::new((0..200).map(|number| (key(number), vec![1])));
        let store = Arc::new(Prefetches {
            inner: Arc::new(inner),
            keys: Mutex::default(),
            running: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
        });
        let own: Arc<dyn Store> = Arc::clone(&store) as _;
        let orders = KeyOrders::new(Arc::clone(&own), Key::root(), Numbers::NATIVE);
        let readahead = KeyReadahead::new(own, Arc::new(orders), Prefetch::Value);
        (readahead, store)
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
                let mut ahead = state.streams.iter().flat_map(|stream| &stream.ahead);
                ahead.all(|ahead| ahead.state == AheadState::Done)
            };
            let end = Instant::now() + Duration::from_secs(10);
            while !(settles(&store, count) && is_done()) {
                assert!(Instant::now() < end, "{}", store.keys.lock().len());
            }
        };
        readahead.observe(&key(0), None);
        readahead.observe(&key(1), None);
        all_done(FIRST_WINDOW);
        for number in 2..10 {
            readahead.observe(&key(number), None);
            all_done(FIRST_WINDOW + number - 1);
        }
        store.hangs.store(true, Ordering::Relaxed);
        readahead.observe(&key(10), None);
        assert!(settles(&store, 2 * FIRST_WINDOW + 1));
        for _ in 0..3 {
            readahead.anticipate(&key(18));
        }
        assert!(settles(&store, 3 * FIRST_WINDOW + 1));
        std::thread::sleep(Duration::from_millis(50));
        assert!(settles(&store, 3 * FIRST_WINDOW + 1));
    }

    #[test]
    fn keys_in_order_are_fetched_once_each_and_the_window_grows_while_the_reader_waits() {
        let (readahead, store) = watched();
        readahead.observe(&key(0), None);
        assert!(settles(&store, 0));
        store.hangs.store(true, Ordering::Relaxed);
        readahead.observe(&key(1), None);
        assert!(settles(&store, FIRST_WINDOW));
        // The reader waits for one that is in flight.
        readahead.observe(&key(2), None);
        readahead.observe(&key(3), None);
        let window = 2 * FIRST_WINDOW;
        let begun = || store.keys.lock().len();
        let end = Instant::now() + Duration::from_secs(10);
        while begun() < window && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(begun() >= window, "{}", begun());
        let mut keys = store.keys.lock().clone();
        assert_eq!(keys.first(), Some(&key(2)));
        keys.dedup();
        assert_eq!(keys.len(), begun());
    }

    #[test]
    fn a_stream_that_is_not_continued_cancels_its_requests() {
        let (readahead, store) = watched();
        store.hangs.store(true, Ordering::Relaxed);
        readahead.observe(&key(0), None);
        readahead.observe(&key(1), None);
        assert!(settles(&store, FIRST_WINDOW));
        let end = Instant::now() + 10 * IDLE;
        while store.running.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(store.running.load(Ordering::Relaxed), 0);
        assert!(readahead.0.state.lock().streams.is_empty());
    }

    #[test]
    fn a_store_without_memory_is_asked_for_less() {
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
        assert!(
            windows.iter().any(|window| *window < FIRST_WINDOW),
            "{windows:?}"
        );
    }

    #[test]
    fn keys_at_random_and_documents_begin_nothing() {
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
}
