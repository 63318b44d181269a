//! Readahead across keys: the keys that a program will open next, when it opens them in an order.
//!
//! Two keys that follow each other in some order ([`KeyOrder`]), or three
//! in equal strides, start a stream; after streams that were not continued, more keys are needed. One key
//! does if it is opened right after its directory and is the first value in it. The
//! window of a stream doubles whenever the program has to wait for a key that is still being fetched, so
//! it becomes what latency times bandwidth needs; it halves when the store has no memory for more. Where
//! the store joins prefetches, a window is filled once half of it is used, so that there is something to
//! join. A stream that is not continued and whose files are closed ends after [`IDLE`], and cancels its
//! requests.
//!
//! Lock order: the lock of the state is not held while a directory is listed, a prefetch is started or
//! a task is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_task::Task;

use super::key_order::{KeyOrder, KeyOrders, Step};
use crate::hierarchy::is_document;
use crate::runtime;
use crate::store::{Key, Object, Prefetch, Store};
use crate::sync::{Mutex, MutexGuard};

/// Programs, or threads of them, that are told apart.
const MAX_STREAMS: usize = 8;
/// Keys that were opened lately, in which an order is looked for.
const MAX_RECENT: usize = 12;
/// Keys that a new stream fetches, at most.
const FIRST_WINDOW: usize = 16;
/// The same as long as the size of values is unknown.
const FIRST_WINDOW_OF_UNKNOWN: usize = 8;
/// Values that a new stream fetches have about so many bytes together.
const FIRST_WINDOW_BYTES: u64 = 16 << 20;
/// Keys that any stream fetches, at most.
const MAX_WINDOW: usize = 64;
/// Keys that a program with several threads may open later than their successors.
const MAX_DISORDER: usize = 16;
/// A stream of which so many keys were used was no accident.
const CONTINUED: usize = 4;
/// Directories that were opened lately.
const MAX_LISTED: usize = 8;
/// A program that opens the first key of a directory so soon after it has opened the directory is expected to
/// read all keys.
const JUST_LISTED: Duration = Duration::from_secs(1);
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
    /// Keys are prefetched several at a time.
    in_batches: bool,
    orders: Arc<KeyOrders>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest key first.
    recent: VecDeque<Key>,
    /// Directories that a program has opened, and when, the newest first.
    listed: VecDeque<(Key, Instant)>,
    /// Size of the value that was opened last, or of the first one that was prefetched; 0 if it is not known.
    value_bytes: u64,
    streams: Vec<Stream>,
    next_id: u64,
    /// Streams that were not continued since the last one that was.
    false_starts: u32,
    /// The order of the stream that was continued last.
    usual: Option<KeyOrder>,
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

    /// Whether the use of a key says nothing about the next one: programs read the documents of a node at
    /// any time. One that has listed the directory before will most likely read all of it, in order.
    fn is_ignored(&self, key: &Key) -> bool {
        is_document(key) && self.listed_at(&key.parent()).is_none()
    }

    /// When a program has last opened a directory, to list it.
    fn listed_at(&self, prefix: &Key) -> Option<Instant> {
        let mut listed = self.listed.iter();
        listed.find_map(|(listed, at)| (listed == prefix).then_some(*at))
    }

    /// Whether the opening of a key may start a stream by itself: its directory has just been listed, and no
    /// stream that was started so has been an accident.
    fn may_be_first(&self, key: &Key) -> bool {
        let listed_at = self.listed_at(&key.parent());
        listed_at.is_some_and(|at| at.elapsed() < JUST_LISTED)
            && self.false_starts == 0
            && !is_document(key)
            && !self
                .recent
                .iter()
                .any(|recent| recent.parent() == key.parent())
    }

    /// Number of keys that a new stream fetches.
    fn first_window(&self, what: Prefetch) -> usize {
        match (what, self.value_bytes) {
            (Prefetch::Attributes, _) => FIRST_WINDOW,
            (Prefetch::Value, 0) => FIRST_WINDOW_OF_UNKNOWN,
            (Prefetch::Value, bytes) => usize::try_from(FIRST_WINDOW_BYTES / bytes)
                .unwrap_or(FIRST_WINDOW)
                .clamp(1, FIRST_WINDOW),
        }
    }

    fn note_false_starts(&mut self, over: &[Stream]) {
        let is_unused = |stream: &&Stream| stream.used < CONTINUED && !stream.ahead.is_empty();
        let unused = over.iter().filter(is_unused).count();
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

    /// Marks the stream as one that is being filled; returns its number if it was none and needs more keys.
    fn begin_filling(&mut self, in_batches: bool) -> Option<u64> {
        let is_low = !in_batches || self.ahead.len() <= self.window / 2;
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
    /// Watches a tree of a remote store; `what` is what is prefetched.
    pub(super) fn new(store: Arc<dyn Store>, orders: Arc<KeyOrders>, what: Prefetch) -> Self {
        Self(Arc::new(Shared {
            in_batches: store.joins_prefetches(),
            orders,
            store,
            what,
            state: Mutex::default(),
        }))
    }

    /// Notes that a program has opened a directory, to list it.
    pub(super) fn note_listed(&self, prefix: &Key) {
        let mut state = self.0.state.lock();
        state.listed.retain(|(listed, _)| listed != prefix);
        state.listed.push_front((prefix.clone(), Instant::now()));
        state.listed.truncate(MAX_LISTED);
    }

    /// Notes the use of a key: that it was opened, or for attributes that it was looked up.
    pub(super) fn observe(&self, key: &Key, object: Option<&Arc<dyn Object>>) {
        let mut state = self.0.state.lock();
        if state.is_ignored(key) {
            return;
        }
        if let Some(object) = object.filter(|_| !is_document(key)) {
            state.value_bytes = object.size_bytes();
        }
        let place = state.place_of(key);
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
            state.usual = Some(stream.step.order);
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

    /// Notes that a key is looked up, and that this waits for an answer: if the key follows others
    /// that were used, it will be used, too, and those behind it need not wait for the answer. If it is
    /// being prefetched, the window is too small.
    pub(super) fn anticipate(&self, key: &Key) {
        self.anticipate_use(key, false);
    }

    /// Notes that a key is opened, and that this waits for an answer, as [`KeyReadahead::anticipate`] does.
    pub(super) fn anticipate_open(&self, key: &Key) {
        self.anticipate_use(key, true);
    }

    fn anticipate_use(&self, key: &Key, is_opened: bool) {
        let mut state = self.0.state.lock();
        let may_be_first = is_opened && state.may_be_first(key);
        let is_alone = state.recent.is_empty() && !may_be_first;
        if state.is_ignored(key) || is_alone || state.recent.contains(key) {
            return;
        }
        if let Some((number, place)) = state.place_of(key) {
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

    /// Looks for an order in keys, the newest first, and starts a stream; if the newest key may be the first
    /// one of a stream, also in the keys of its directory.
    fn recognize(&self, mut state: MutexGuard<'_, State>, recent: Vec<Key>, may_be_first: bool) {
        if (recent.len() < 2 && !may_be_first) || state.is_recognizing {
            return;
        }
        state.is_recognizing = true;
        let is_certain = state.false_starts >= MAX_FALSE_STARTS;
        let usual = state.usual;
        drop(state);
        let shared = Arc::clone(&self.0);
        let recognize = async move {
            if let [newest, older @ ..] = &recent[..] {
                let step = match shared.step(newest, older, is_certain, usual).await {
                    None if may_be_first => shared.orders.first_step(newest, usual).await,
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
        is_certain: bool,
        usual: Option<KeyOrder>,
    ) -> Option<Step> {
        // Attributes are only fetched where a lookup brings no more than them.
        let is_wanted = match self.what {
            Prefetch::Attributes => self.store.prefetch(newest, self.what).await,
            Prefetch::Value => true,
        };
        match is_wanted {
            true => self.orders.step(newest, older, is_certain, usual).await,
            false => None,
        }
    }

    /// Starts a stream behind a key, unless one has its next key already.
    async fn start(self: &Arc<Self>, key: &Key, step: Step) {
        let Some(next) = self.orders.after(key, &step).await else {
            return;
        };
        // Documents lead to the values beside them, not to the nodes below.
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
        let has_next = |stream: &Stream| stream.ahead.iter().any(|ahead| ahead.key == next);
        if state.streams.iter().any(has_next) {
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        let window = state.first_window(self.what);
        state.streams.insert(
            0,
            Stream {
                id,
                step,
                cursor: key.clone(),
                ahead: VecDeque::new(),
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
mod tests;
