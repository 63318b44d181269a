//! Readahead across keys: prefetches the keys that a program will open next, if it opens keys in an order.
//!
//! Two keys that follow each other in some order ([`KeyOrder`]), or three in equal strides, start a
//! stream. After streams that were not continued, more keys are needed. A single key is enough if it is
//! opened right after its directory and is the first value of the directory. The window of a stream
//! doubles when the program waits for a key in flight. So it grows to the product of latency and
//! bandwidth. It halves when the store has no memory for more. If the store joins prefetches, a window is
//! filled once half of it is used, so that several prefetches can share a request. A stream that is not
//! continued and has no open files ends after [`IDLE`], and cancels its requests.
//!
//! Lock order: the lock of the state is not held while a directory is listed, a prefetch is polled or a
//! task is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_task::Task;

use super::key_order::{KeyOrder, KeyOrders, Step};
use crate::clock::Instant;
use crate::hierarchy::is_document;
use crate::runtime;
use crate::store::{Key, Object, Prefetch, Store};
use crate::sync::{Mutex, MutexGuard};

/// The largest number of streams, which are programs or their threads.
const MAX_STREAMS: usize = 8;
/// The number of recently used keys in which an order is searched.
const MAX_RECENT: usize = 12;
/// The largest number of keys whose values a new stream prefetches.
const FIRST_WINDOW: usize = 16;
/// The number of keys whose attributes a new stream prefetches.
const FIRST_WINDOW_OF_ATTRIBUTES: usize = 32;
/// As [`FIRST_WINDOW`], as long as the size of values is unknown.
const FIRST_WINDOW_OF_UNKNOWN: usize = 8;
/// As [`FIRST_WINDOW`], for a program that has just listed the directory, and will most likely read all of it.
const FIRST_WINDOW_OF_LISTED: usize = 32;
/// As [`FIRST_WINDOW_OF_LISTED`], as long as the size of values is unknown. The store then fetches at most 1 MiB of each.
const FIRST_WINDOW_OF_UNKNOWN_LISTED: usize = 16;
/// The approximate total size in bytes of the values that a new stream prefetches.
const FIRST_WINDOW_BYTES: u64 = 16 << 20;
/// The largest number of keys that any stream prefetches.
const MAX_WINDOW: usize = 64;
/// The number of keys that a program with several threads may open later than their successors.
const MAX_DISORDER: usize = 16;
/// The largest number of documents that are looked up together with the first one of a directory.
const MAX_DOCUMENTS: usize = 3;
/// The number of used keys from which a stream counts as continued.
const CONTINUED: usize = 4;
/// The number of recently opened directories that are recorded.
const MAX_LISTED: usize = 8;
/// A program that opens the first key of a directory within this time after the directory is expected
/// to read all keys.
const JUST_LISTED: Duration = Duration::from_secs(1);
/// After this number of streams that were not continued, a pair of keys starts no stream.
const MAX_FALSE_STARTS: u32 = 2;
/// The time since its last use after which a stream without open files ends.
const IDLE: Duration = Duration::from_secs(1);
/// The time since its last use after which any other stream ends.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// Observes which keys of a tree are used, and prefetches the keys that follow.
#[derive(Debug)]
pub struct KeyReadahead(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    what: Prefetch,
    /// Whether the store joins prefetches, so that keys are prefetched several at a time.
    in_batches: bool,
    orders: Arc<KeyOrders>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The recently used keys, newest first.
    recent: VecDeque<Key>,
    /// The recently opened directories with the time of the opening, newest first.
    listed: VecDeque<(Key, Instant)>,
    /// The size in bytes of the last opened value, or else of the first prefetched one; 0 if unknown.
    value_bytes: u64,
    streams: Vec<Stream>,
    next_id: u64,
    /// The number of streams that were not continued, since the last continued one.
    false_starts: u32,
    /// The order of the last continued stream.
    last_order: Option<KeyOrder>,
    is_recognizing: bool,
    is_watched: bool,
}

/// Keys that are used in an order.
#[derive(Debug)]
struct Stream {
    id: u64,
    step: Step,
    /// The last key whose prefetch was started.
    cursor: Key,
    /// The prefetched keys that are not used yet, in order.
    prefetched: VecDeque<PrefetchedKey>,
    /// The keys of `prefetched` that were opened recently: their prefetches continue until a read joins them.
    opened: VecDeque<PrefetchedKey>,
    /// The target length of `prefetched`.
    window: usize,
    /// The number of prefetched keys that were used.
    used: usize,
    last_used: Instant,
    /// The last opened object.
    object: Option<Weak<dyn Object>>,
    is_filling: bool,
}

#[derive(Debug)]
struct PrefetchedKey {
    key: Key,
    state: PrefetchState,
    /// Whether the window was widened because the program waits for this key.
    is_awaited: bool,
    /// The prefetch; dropping the task cancels it.
    _task: Task<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrefetchState {
    InFlight,
    Done,
    /// The store has no memory for the prefetch, or the prefetch failed.
    Refused,
}

impl State {
    /// Returns the indexes of the stream that has prefetched a key, and of the key in its prefetched keys.
    fn position_of(&self, key: &Key) -> Option<(usize, usize)> {
        let mut streams = self.streams.iter().enumerate();
        streams.find_map(|(number, stream)| {
            let place = stream
                .prefetched
                .iter()
                .position(|prefetched| prefetched.key == *key)?;
            Some((number, place))
        })
    }

    /// Returns whether the use of a key is no evidence of the next key: programs read the documents of a node
    /// at any time. A program that has listed the directory before will most likely read all keys, in order.
    fn is_ignored(&self, key: &Key) -> bool {
        is_document(key) && self.listed_at(&key.parent()).is_none()
    }

    /// Returns the last time when a program opened a directory to list it.
    fn listed_at(&self, prefix: &Key) -> Option<Instant> {
        let mut listed = self.listed.iter();
        listed.find_map(|(listed, at)| (listed == prefix).then_some(*at))
    }

    fn is_just_listed(&self, prefix: &Key) -> bool {
        let listed_at = self.listed_at(prefix);
        listed_at.is_some_and(|at| at.elapsed() < JUST_LISTED)
    }

    /// Returns whether no key of the directory of a key was used recently.
    fn is_first_used(&self, key: &Key) -> bool {
        let (prefix, mut recent) = (key.parent(), self.recent.iter());
        recent.all(|recent| recent.parent() != prefix)
    }

    /// Returns whether the opening of a key may start a stream by itself. Its directory was just listed, and no
    /// other key of it was used recently. No false start followed the last continued stream.
    fn may_be_first(&self, key: &Key) -> bool {
        self.is_just_listed(&key.parent())
            && self.false_starts == 0
            && !is_document(key)
            && self.is_first_used(key)
    }

    /// Returns the number of keys that a new stream after `key` prefetches. It is larger after a listing, as long as no
    /// false start has shown that a listing is no evidence.
    fn first_window(&self, key: &Key, what: Prefetch) -> usize {
        let is_listed = self.false_starts == 0 && self.is_just_listed(&key.parent());
        match (what, self.value_bytes, is_listed) {
            (Prefetch::Attributes | Prefetch::AttributesOfVisited, _, true) => MAX_WINDOW,
            (Prefetch::Attributes | Prefetch::AttributesOfVisited, _, false) => {
                FIRST_WINDOW_OF_ATTRIBUTES
            }
            (Prefetch::Value, 0, true) => FIRST_WINDOW_OF_UNKNOWN_LISTED,
            (Prefetch::Value, 0, false) => FIRST_WINDOW_OF_UNKNOWN,
            (Prefetch::Value, bytes, is_listed) => {
                let most = match is_listed {
                    true => FIRST_WINDOW_OF_LISTED,
                    false => FIRST_WINDOW,
                };
                let window = usize::try_from(FIRST_WINDOW_BYTES / bytes).unwrap_or(most);
                window.clamp(1, most)
            }
        }
    }

    fn count_false_starts(&mut self, over: &[Stream]) {
        let is_unused = |stream: &&Stream| stream.used < CONTINUED && !stream.prefetched.is_empty();
        let unused = over.iter().filter(is_unused).count();
        let unused = u32::try_from(unused).unwrap_or(u32::MAX);
        self.false_starts = self.false_starts.saturating_add(unused);
    }
}

impl Stream {
    /// Records the use of a prefetched key. Returns the removed keys, which the program has skipped or has
    /// opened long ago.
    fn advance(&mut self, place: usize) -> Vec<PrefetchedKey> {
        let Some(used) = self.prefetched.remove(place) else {
            return Vec::new();
        };
        self.used = self.used.saturating_add(1);
        match used.state {
            PrefetchState::InFlight if !used.is_awaited => self.set_window(self.window * 2),
            PrefetchState::Refused => self.set_window(self.window / 2),
            PrefetchState::InFlight | PrefetchState::Done => {}
        }
        let passed = place.saturating_sub(MAX_DISORDER);
        let mut dropped: Vec<PrefetchedKey> = self.prefetched.drain(..passed).collect();
        self.opened.push_back(used);
        if self.opened.len() > MAX_DISORDER {
            dropped.extend(self.opened.pop_front());
        }
        dropped
    }

    /// Sets the window, whose limit grows with the number of used keys.
    fn set_window(&mut self, window: usize) {
        let most = self
            .used
            .saturating_mul(4)
            .saturating_add(FIRST_WINDOW_OF_LISTED);
        let most = most.max(self.window).min(MAX_WINDOW);
        self.window = window.clamp(1, most);
    }

    /// Widens the window if the key that the program waits for is still in flight.
    fn await_key(&mut self, place: usize) {
        if let Some(prefetched) = self.prefetched.get_mut(place)
            && prefetched.state == PrefetchState::InFlight
            && !prefetched.is_awaited
        {
            prefetched.is_awaited = true;
            self.set_window(self.window * 2);
        }
    }

    /// Marks a stream that needs more keys as being filled; returns its ID, unless it was marked before.
    fn begin_filling(&mut self, in_batches: bool) -> Option<u64> {
        let is_low = !in_batches || self.prefetched.len() <= self.window / 2;
        let begins = is_low && !self.is_filling;
        self.is_filling |= begins;
        begins.then_some(self.id)
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
    /// Observes a tree of a remote store; `what` is what is prefetched: values or attributes.
    pub fn new(store: Arc<dyn Store>, orders: Arc<KeyOrders>, what: Prefetch) -> Self {
        Self(Arc::new(Shared {
            in_batches: store.capabilities().joins_prefetches,
            orders,
            store,
            what,
            state: Mutex::default(),
        }))
    }

    /// Records that a program has opened a directory to list it.
    pub fn record_listed(&self, prefix: &Key) {
        let mut state = self.0.state.lock();
        state.listed.retain(|(listed, _)| listed != prefix);
        state.listed.push_front((prefix.clone(), Instant::now()));
        state.listed.truncate(MAX_LISTED);
    }

    /// Records that a lookup of a key waits for the store. If the key is a document, its directory was just listed, and
    /// none of its keys was used, the program visits the directory and will look up the next documents too. Each would
    /// take a round trip of its own, so they are looked up at the same time. Other programs, which know what they want,
    /// cause no lookup.
    pub fn anticipate_documents(&self, key: &Key) {
        let state = self.0.state.lock();
        let is_visited = is_document(key)
            && state.is_just_listed(&key.parent())
            && state.is_first_used(key)
            && state.false_starts == 0;
        drop(state);
        if !is_visited {
            return;
        }
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        let look_up = async move {
            for document in shared.orders.documents_after(&key, MAX_DOCUMENTS).await {
                let store = Arc::clone(&shared.store);
                let look_up = async move {
                    // It is fetched with its attributes. After a failure, the program's lookup sends a request again.
                    store.prefetch(&document, Prefetch::Value).await;
                };
                runtime::spawn(look_up).detach();
            }
        };
        runtime::spawn(look_up).detach();
    }

    /// Records, for attributes, that a program has opened a key: what it has looked up before says no longer that it
    /// opens none.
    pub fn record_opened(&self) {
        self.0.state.lock().recent.clear();
    }

    /// Records the use of a key: its opening, or for attributes its lookup.
    pub fn observe(&self, key: &Key, object: Option<&Arc<dyn Object>>) {
        let mut state = self.0.state.lock();
        if state.is_ignored(key) {
            return;
        }
        if let Some(object) = object.filter(|_| !is_document(key)) {
            state.value_bytes = object.size_bytes();
        }
        let place = state.position_of(key);
        if state.recent.front() != Some(key) {
            state.recent.push_front(key.clone());
            state.recent.truncate(MAX_RECENT);
        }
        let Some((number, place)) = place else {
            let recent = state.recent.iter().cloned().collect();
            self.recognize(state, recent, false);
            return;
        };
        let mut stream = state.streams.remove(number);
        let dropped = stream.advance(place);
        stream.last_used = Instant::now();
        if stream.used == CONTINUED {
            state.false_starts = 0;
            state.last_order = Some(stream.step.order);
        }
        stream.object = object.map(Arc::downgrade).or(stream.object);
        let id = stream.begin_filling(self.0.in_batches);
        state.streams.insert(0, stream);
        drop(state);
        drop(dropped);
        if let Some(id) = id {
            self.0.fill(id);
        }
    }

    /// Records that a lookup of a key waits for the store. If the key follows used keys, it will be used
    /// too, so the prefetch of its successors starts at once. If the key itself is being prefetched, the
    /// window is too small.
    pub fn anticipate(&self, key: &Key) {
        self.anticipate_use(key, false);
    }

    /// As [`KeyReadahead::anticipate`], for the opening of a key.
    pub fn anticipate_open(&self, key: &Key) {
        self.anticipate_use(key, true);
    }

    fn anticipate_use(&self, key: &Key, is_opened: bool) {
        let mut state = self.0.state.lock();
        let may_be_first = is_opened && state.may_be_first(key);
        let is_alone = state.recent.is_empty() && !may_be_first;
        if state.is_ignored(key) || is_alone || state.recent.contains(key) {
            return;
        }
        if let Some((number, place)) = state.position_of(key) {
            let stream = state.streams.get_mut(number);
            let id = stream.and_then(|stream| {
                stream.await_key(place);
                stream.begin_filling(self.0.in_batches)
            });
            drop(state);
            if let Some(id) = id {
                self.0.fill(id);
            }
            return;
        }
        let recent = std::iter::once(key).chain(&state.recent).cloned().collect();
        self.recognize(state, recent, may_be_first);
    }

    /// Searches for an order in `recent`, newest first, and starts a stream. If the newest key may be the
    /// first one of a stream, its directory is searched too.
    fn recognize(&self, mut state: MutexGuard<'_, State>, recent: Vec<Key>, may_be_first: bool) {
        if (recent.len() < 2 && !may_be_first) || state.is_recognizing {
            return;
        }
        state.is_recognizing = true;
        let needs_two_pairs = state.false_starts >= MAX_FALSE_STARTS;
        let last_order = state.last_order;
        drop(state);
        let shared = Arc::clone(&self.0);
        let recognize = async move {
            if let [newest, older @ ..] = &recent[..] {
                let step = match shared
                    .step(newest, older, needs_two_pairs, last_order)
                    .await
                {
                    None if may_be_first => shared.orders.first_step(newest, last_order).await,
                    step => step,
                };
                if let Some(step) = step {
                    shared.start(newest, step).await;
                }
            }
            shared.state.lock().is_recognizing = false;
        };
        runtime::spawn(recognize).detach();
    }
}

impl Shared {
    async fn step(
        &self,
        newest: &Key,
        older: &[Key],
        needs_two_pairs: bool,
        last_order: Option<KeyOrder>,
    ) -> Option<Step> {
        // Attributes are prefetched only if a lookup fetches nothing but attributes.
        let is_visited = |previous: &Key| {
            is_document(previous) && is_document(newest) && previous.parent() == newest.parent()
        };
        let is_wanted = match (self.what, older) {
            (Prefetch::Value, _) => true,
            (_, [previous, ..]) if is_visited(previous) => {
                let what = Prefetch::AttributesOfVisited;
                self.store.prefetch(newest, what).await
            }
            (what, _) => self.store.prefetch(newest, what).await,
        };
        match is_wanted {
            true => {
                self.orders
                    .step(newest, older, needs_two_pairs, last_order)
                    .await
            }
            false => None,
        }
    }

    /// Starts a stream after a key, unless another stream has the next key already.
    async fn start(self: &Arc<Self>, key: &Key, step: Step) {
        let Some(next) = self.orders.after(key, &step).await else {
            return;
        };
        // A document starts a stream of the values beside it, but not of nodes below it.
        if is_document(key) && (is_document(&next) || next.parent() != key.parent()) {
            return;
        }
        let size_bytes = match self.store.try_stat(&next) {
            Some(Ok(stat)) => stat.size_bytes,
            _ => 0,
        };
        let mut state = self.state.lock();
        if state.value_bytes == 0 {
            state.value_bytes = size_bytes;
        }
        let has_next = |stream: &Stream| {
            stream
                .prefetched
                .iter()
                .any(|prefetched| prefetched.key == next)
        };
        if state.streams.iter().any(has_next) {
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        let window = state.first_window(key, self.what);
        state.streams.insert(
            0,
            Stream {
                id,
                step,
                cursor: key.clone(),
                prefetched: VecDeque::new(),
                opened: VecDeque::new(),
                window,
                used: 0,
                last_used: Instant::now(),
                object: None,
                is_filling: true,
            },
        );
        let kept = MAX_STREAMS.min(state.streams.len());
        let dropped = state.streams.split_off(kept);
        state.count_false_starts(&dropped);
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

    /// Returns the last prefetched key and the step; `None`, and ends the filling, if the window is full.
    fn next_of(&self, id: u64) -> Option<(Key, Step)> {
        let mut state = self.state.lock();
        let stream = state.streams.iter_mut().find(|stream| stream.id == id)?;
        let is_refused = stream
            .prefetched
            .iter()
            .any(|prefetched| prefetched.state == PrefetchState::Refused);
        if stream.prefetched.len() >= stream.window || is_refused {
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
                true => PrefetchState::Done,
                false => PrefetchState::Refused,
            };
            let Some(shared) = weak.upgrade() else { return };
            let mut state = shared.state.lock();
            let stream = state.streams.iter_mut().find(|stream| stream.id == id);
            let prefetched = stream.and_then(|stream| {
                stream
                    .prefetched
                    .iter_mut()
                    .find(|prefetched| prefetched.key == wanted)
            });
            if let Some(prefetched) = prefetched {
                prefetched.state = ended;
            }
        };
        let mut state = self.state.lock();
        let Some(stream) = state.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        stream.cursor = key.clone();
        stream.prefetched.push_back(PrefetchedKey {
            key: key.clone(),
            state: PrefetchState::InFlight,
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
            // The stream is at its end. It stays marked as being filled, so that it is not filled again.
            None => return,
        }
    }
}

/// Ends streams that are not continued, until no stream is left.
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
        state.count_false_starts(&over);
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
mod tests;
