//! The version of each chunk that a file has been served from.
//!
//! The kernel shares the pages of an inode among all handles, so one record belongs to an inode, not
//! to a handle. While the file is open, every read of a chunk must find the version of the first one;
//! another version is [`StoreError::Stale`]. An open that follows compares the record with the
//! source:
//!
//! - the same versions: the kernel keeps its pages;
//! - something differs, or comparing takes too long: the record starts empty and the kernel drops
//!   its pages. While another handle is open that is impossible, because both would share the new
//!   pages; the record retires, and the next lookup gives the file another inode.
//!
//! Records of closed files are evicted, least recently used first, when memory for versions runs out.
//!
//! Lock order: no lock is held while another one is taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use lru::LruCache;

use super::cache::PieceKey;
use super::engine::Engine;
use super::memory::Reservation;
use super::reader::ArrayReader;
use crate::runtime::leave_session_thread;
use crate::store::{Key, StoreError, Version};
use crate::sync::{Mutex, MutexGuard};

/// Chunks whose versions are allocated together.
const PAGE_CHUNKS: u64 = PAGE_SLOTS as u64;
const PAGE_SLOTS: usize = 16;
/// What a page takes at most, with its entry in the table.
const PAGE_BYTES: u64 = 256;
/// An open compares no more chunks than this with the source, and takes no longer.
const MAX_COMPARED: usize = 1 << 14;
const MAX_COMPARE_TIME: Duration = Duration::from_millis(100);
/// More chunks than this are not compared by a session thread.
const MAX_COMPARED_AT_ONCE: usize = 16;

/// The versions of the chunks that one inode has served.
#[derive(Debug)]
pub struct ServedVersions {
    engine: Arc<Engine>,
    number: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Open handles.
    handles: usize,
    record: Record,
    /// The inode gets no more handles: those that are open go on with its pages.
    is_retired: bool,
}

/// What was served since the kernel has dropped the pages of the inode.
#[derive(Debug, Default)]
struct Record {
    /// By array and number of the page; 0 is a chunk that was not served.
    pages: HashMap<(u64, u64), [u64; PAGE_SLOTS]>,
    /// Chunks that were served.
    chunks: usize,
    /// When the chunk that was checked first was checked.
    oldest_ms: u64,
    /// A read has found another version than was served.
    has_changed: bool,
    memory: Option<Room>,
}

/// Memory for pages: as part of what all records may take, and of what all decoding may take.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) versions: Reservation,
    pub(super) memory: Reservation,
}

impl Room {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn add(&mut self, other: Self) {
        self.versions.add(other.versions);
        self.memory.add(other.memory);
    }

    fn shrink(&mut self, bytes: u64) {
        self.versions.shrink(bytes);
        self.memory.shrink(bytes);
    }
}

/// How a version, or that a chunk is absent, stands in a page.
fn code(version: Option<Version>) -> u64 {
    match version {
        None => 1,
        Some(Version(version)) => version.wrapping_add(2).max(2),
    }
}

/// The page of a chunk, and the place in it.
fn place(key: &PieceKey) -> ((u64, u64), usize) {
    let page = (key.array, key.chunk / PAGE_CHUNKS);
    (page, usize::try_from(key.chunk % PAGE_CHUNKS).unwrap_or(0))
}

/// What an open has found out about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Nothing was served. No page may be kept before a read proves that the kernel has dropped the
    /// old ones.
    Nothing,
    Same,
    Changed,
    TooCostly,
}

/// One chunk of a record: its array, its number, the code of its version.
type Entry = (u64, u64, u64);

impl ServedVersions {
    /// An empty record.
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self {
            engine: Arc::clone(engine),
            number: engine.closed.next_number(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Opens a handle of a file that is filled from `readers`. `None` if the inode has retired: its
    /// name must be looked up again.
    ///
    pub async fn open(self: &Arc<Self>, readers: &[Arc<ArrayReader>]) -> Option<Handle> {
        let (known, entries) = {
            let mut state = self.lock();
            if state.is_retired {
                return None;
            }
            state.handles += 1;
            let record = &state.record;
            let known = record.told_by_itself(readers);
            (known, known.is_none().then(|| record.entries()))
        };
        let mut handle = Handle {
            versions: Arc::clone(self),
            keeps_pages: false,
        };
        let found = match (known, entries) {
            (None, Some(entries)) => match compare(readers, entries).await {
                Comparison::TooCostly => self.lock().record.told_by_age(readers),
                found => found,
            },
            (known, _) => known.unwrap_or(Comparison::TooCostly),
        };
        if found == Comparison::Changed {
            // What is cached of the chunks was checked before they changed.
            readers.iter().for_each(|reader| reader.pieces.distrust());
        }
        let mut state = self.lock();
        match (found, state.handles) {
            (Comparison::Nothing, _) => {}
            (Comparison::Same, _) => handle.keeps_pages = true,
            (Comparison::Changed | Comparison::TooCostly, 1) => {
                state.record = Record::default();
            }
            (Comparison::Changed | Comparison::TooCostly, _) => {
                state.is_retired = true;
                drop(state);
                return None;
            }
        }
        drop(state);
        Some(handle)
    }

    /// Whether an open needs another inode, as far as is known without asking the source.
    pub fn is_retired(&self, readers: &[Arc<ArrayReader>]) -> bool {
        let mut state = self.lock();
        if state.handles > 0 && state.record.told_by_itself(readers) == Some(Comparison::TooCostly)
        {
            state.is_retired = true;
        }
        state.is_retired
    }

    /// Allocates what recording these pieces takes, if that memory is free; returns whether it was.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files take all that versions may take.
    pub(super) fn try_make_room(
        &self,
        keys: &[PieceKey],
        name: impl Fn(u64) -> Key,
    ) -> Result<bool, StoreError> {
        let Some((key, missing)) = self.missing_pages(keys, name) else {
            return Ok(true);
        };
        let bytes = PAGE_BYTES * missing.len() as u64;
        match self.engine.try_reserve_versions(&key, bytes)? {
            Some(room) => self.add_pages(key, missing, room).map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`ServedVersions::try_make_room`]; waits for memory.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files take all that versions may take;
    /// [`StoreError::TimedOut`] if decoding takes the rest.
    pub(super) async fn make_room(
        &self,
        keys: &[PieceKey],
        name: impl Fn(u64) -> Key,
    ) -> Result<(), StoreError> {
        let Some((key, missing)) = self.missing_pages(keys, name) else {
            return Ok(());
        };
        let bytes = PAGE_BYTES * missing.len() as u64;
        let room = self.engine.reserve_versions(&key, bytes).await?;
        self.add_pages(key, missing, room)
    }

    /// Pages that recording these pieces needs and the record lacks, and the key of the first chunk.
    fn missing_pages(
        &self,
        keys: &[PieceKey],
        name: impl Fn(u64) -> Key,
    ) -> Option<(Key, Vec<(u64, u64)>)> {
        let first = keys.first()?;
        let mut missing: Vec<_> = keys.iter().map(|key| place(key).0).collect();
        missing.dedup();
        {
            let state = self.lock();
            missing.retain(|page| !state.record.pages.contains_key(page));
        }
        missing.sort_unstable();
        missing.dedup();
        (!missing.is_empty()).then(|| (name(first.chunk), missing))
    }

    fn add_pages(&self, key: Key, missing: Vec<(u64, u64)>, room: Room) -> Result<(), StoreError> {
        let mut state = self.lock();
        let record = &mut state.record;
        record
            .pages
            .try_reserve(missing.len())
            .map_err(|_| StoreError::TooLarge {
                key,
                need_bytes: PAGE_BYTES * missing.len() as u64,
                limit_bytes: self.engine.memory_limit_bytes(),
            })?;
        for page in missing {
            record.pages.entry(page).or_default();
        }
        // Another read may have made the same pages meanwhile.
        let used = PAGE_BYTES * record.pages.len() as u64;
        let memory = match record.memory.take() {
            Some(mut memory) => {
                memory.add(room);
                memory
            }
            None => room,
        };
        record.memory.insert(memory).shrink(used);
        Ok(())
    }

    /// Records the version of a chunk that is about to be served; `None` if the chunk is absent.
    /// `checked_ms` is when it was last compared with the source.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if another version was served.
    pub(super) fn admit(
        &self,
        key: &PieceKey,
        name: impl Fn(u64) -> Key,
        version: Option<Version>,
        checked_ms: u64,
    ) -> Result<(), StoreError> {
        let (page, at) = place(key);
        let mut state = self.lock();
        let record = &mut state.record;
        let page = record.pages.get_mut(&page);
        let Some(slot) = page.and_then(|page| page.get_mut(at)) else {
            return Err(StoreError::Internal {
                key: name(key.chunk),
                what: "no room for the version of a chunk that is served".into(),
            });
        };
        match *slot {
            0 => {
                *slot = code(version);
                record.oldest_ms = match record.chunks {
                    0 => checked_ms,
                    _ => record.oldest_ms.min(checked_ms),
                };
                record.chunks += 1;
                Ok(())
            }
            served if served == code(version) => {
                record.oldest_ms = record.oldest_ms.min(checked_ms);
                Ok(())
            }
            _ => {
                record.has_changed = true;
                Err(StoreError::Stale {
                    key: name(key.chunk),
                    what: "another version of it was served from this file".into(),
                })
            }
        }
    }

    fn close(self: &Arc<Self>) {
        let bytes = {
            let mut state = self.lock();
            state.handles -= 1;
            if state.handles == 0 && state.is_retired {
                state.record = Record::default();
            }
            match (state.handles, &state.record.memory) {
                (0, Some(memory)) => memory.bytes(),
                _ => return,
            }
        };
        self.engine
            .closed
            .put(self.number, Arc::downgrade(self), bytes);
    }

    /// Gives up the record of a file that is not open; returns whether that freed memory.
    fn evict(&self) -> bool {
        let mut state = self.lock();
        if state.handles > 0 {
            return false;
        }
        std::mem::take(&mut state.record).memory.is_some()
    }
}

impl Record {
    /// What can be told without asking the source.
    fn told_by_itself(&self, readers: &[Arc<ArrayReader>]) -> Option<Comparison> {
        if self.chunks == 0 {
            return Some(Comparison::Nothing);
        }
        if self.has_changed {
            return Some(Comparison::Changed);
        }
        if readers
            .iter()
            .all(|reader| reader.pieces.is_trusted_for_good())
        {
            return Some(Comparison::Same);
        }
        let is_remote = readers.iter().any(|reader| reader.pieces.is_remote());
        (is_remote || self.chunks > MAX_COMPARED).then(|| self.told_by_age(readers))
    }

    /// What can be told if all chunks were checked a short time ago.
    fn told_by_age(&self, readers: &[Arc<ArrayReader>]) -> Comparison {
        let mut pieces = readers.iter().map(|reader| &reader.pieces);
        match pieces.all(|pieces| pieces.is_trusted(self.oldest_ms)) {
            true => Comparison::Same,
            false => Comparison::TooCostly,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.chunks);
        for ((array, page), codes) in &self.pages {
            let chunks = (page * PAGE_CHUNKS..).zip(codes);
            let served = chunks.filter(|(_, code)| **code != 0);
            entries.extend(served.map(|(chunk, code)| (*array, chunk, *code)));
        }
        entries.sort_unstable();
        entries
    }
}

impl Drop for ServedVersions {
    fn drop(&mut self) {
        self.engine.closed.remove(self.number);
    }
}

/// Compares chunks, in the order of their arrays, with the source.
async fn compare(readers: &[Arc<ArrayReader>], entries: Vec<Entry>) -> Comparison {
    let end = Instant::now() + MAX_COMPARE_TIME;
    if entries.len() > MAX_COMPARED_AT_ONCE {
        leave_session_thread().await;
    }
    let by_number: HashMap<u64, _> = readers
        .iter()
        .map(|reader| (reader.pieces.number(), &reader.pieces))
        .collect();
    let mut last = None;
    for (array, chunk, served) in entries {
        if Instant::now() > end {
            return Comparison::TooCostly;
        }
        let Some(pieces) = by_number.get(&array) else {
            return Comparison::Changed;
        };
        if last.replace(array) != Some(array) && pieces.check_document().await.is_err() {
            return Comparison::Changed;
        }
        match pieces.present_version(chunk).await {
            Ok(version) if code(version) == served => {}
            // What fails is told by the read that needs it.
            Ok(_) | Err(_) => return Comparison::Changed,
        }
    }
    Comparison::Same
}

/// An open file that keeps to one version of each chunk.
#[derive(Debug)]
pub struct Handle {
    versions: Arc<ServedVersions>,
    keeps_pages: bool,
}

impl Handle {
    /// Whether all pages that the kernel has of the inode are current.
    pub fn keeps_pages(&self) -> bool {
        self.keeps_pages
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.versions.close();
    }
}

/// Records of files that are closed, whose pages the kernel may still have.
#[derive(Debug)]
pub(super) struct ClosedRecords {
    records: Mutex<LruCache<u64, (Weak<ServedVersions>, u64)>>,
    numbers: AtomicU64,
}

impl Default for ClosedRecords {
    fn default() -> Self {
        Self {
            records: Mutex::new(LruCache::unbounded()),
            numbers: AtomicU64::new(0),
        }
    }
}

impl ClosedRecords {
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<u64, (Weak<ServedVersions>, u64)>> {
        self.records.lock()
    }

    fn put(&self, number: u64, record: Weak<ServedVersions>, bytes: u64) {
        self.lock().put(number, (record, bytes));
    }

    fn remove(&self, number: u64) {
        self.lock().pop(&number);
    }

    /// Gives up records of at least `bytes`; returns whether any memory was freed.
    pub(super) fn evict(&self, bytes: u64) -> bool {
        let mut freed = 0;
        while freed < bytes {
            let Some((_, (record, size))) = self.lock().pop_lru() else {
                break;
            };
            if record.upgrade().is_some_and(|record| record.evict()) {
                freed += size;
            }
        }
        freed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::EngineOptions;
    use super::*;
    use crate::runtime::block_on;

    fn engine(memory_limit_bytes: u64) -> Arc<Engine> {
        let options = EngineOptions {
            cache_bytes: 0,
            memory_limit_bytes,
            parallel: 1,
            timeout: Duration::from_millis(100),
        };
        Arc::new(Engine::new(options).unwrap())
    }

    fn key(chunk: u64) -> PieceKey {
        PieceKey {
            array: 1,
            chunk,
            inner: None,
        }
    }

    fn name(chunk: u64) -> Key {
        Key::new(format!("c/{chunk}").as_bytes()).unwrap()
    }

    fn serve(
        record: &ServedVersions,
        chunk: u64,
        version: Option<Version>,
    ) -> Result<(), StoreError> {
        block_on(record.make_room(&[key(chunk)], name))?;
        record.admit(&key(chunk), name, version, 1)
    }

    #[test]
    fn a_chunk_is_served_in_one_version_and_so_is_its_absence() {
        let record = ServedVersions::new(&engine(1 << 20));
        for version in [0, u64::MAX - 1, u64::MAX] {
            assert!(code(Some(Version(version))) > code(None));
        }
        let versions = [None, Some(Version(0)), Some(Version(1)), Some(Version(7))];
        for (chunk, version) in (0..).zip(versions) {
            for _ in 0..2 {
                serve(&record, chunk * 10, version).unwrap();
            }
            for other in versions.into_iter().filter(|other| *other != version) {
                let error = serve(&record, chunk * 10, other).unwrap_err();
                assert!(matches!(error, StoreError::Stale { .. }), "{error}");
                assert!(error.to_string().contains(&format!("c/{}", chunk * 10)));
            }
        }
    }

    #[test]
    fn a_version_without_room_is_an_internal_error() {
        let record = ServedVersions::new(&engine(1 << 20));
        let error = record.admit(&key(1), name, None, 1).unwrap_err();
        assert!(matches!(error, StoreError::Internal { .. }), "{error}");
    }

    #[test]
    fn records_of_open_files_are_bounded_and_those_of_closed_files_make_room() {
        let most = 4 * PAGE_BYTES;
        let engine = engine(most * 8);
        let open = Arc::new(ServedVersions::new(&engine));
        let handle = block_on(open.open(&[])).unwrap();
        assert!(!handle.keeps_pages());
        let closed = Arc::new(ServedVersions::new(&engine));
        let other = block_on(closed.open(&[])).unwrap();
        for chunk in 0..2 {
            serve(&closed, chunk * PAGE_CHUNKS, None).unwrap();
        }
        drop(other);
        // Two pages of the closed file, then four of the open one.
        for chunk in 0..4 {
            serve(&open, chunk * PAGE_CHUNKS, None).unwrap();
        }
        assert_eq!(closed.lock().record.chunks, 0, "it made room");
        let error = serve(&open, 4 * PAGE_CHUNKS, None).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
        // Nothing is forgotten: another version is still an error.
        assert!(serve(&open, 0, Some(Version(1))).is_err());
        let used = || engine.gauges()[0].1;
        assert_eq!(used(), most);
        drop((handle, open));
        assert_eq!(used(), 0);
        serve(&closed, 0, None).unwrap();
    }

    #[test]
    fn what_has_changed_is_forgotten_at_an_open_unless_another_handle_is_open() {
        let engine = engine(1 << 20);
        let record = Arc::new(ServedVersions::new(&engine));
        let open = || block_on(record.open(&[]));
        let first = open().unwrap();
        serve(&record, 0, None).unwrap();
        // No reader can change: what was served stays right.
        assert!(open().unwrap().keeps_pages());
        assert!(serve(&record, 0, Some(Version(3))).is_err());
        assert!(open().is_none(), "the first handle is still open");
        assert!(record.is_retired(&[]));
        drop(first);
        assert!(open().is_none(), "it has retired for good");

        let record = Arc::new(ServedVersions::new(&engine));
        let first = block_on(record.open(&[]));
        serve(&record, 0, None).unwrap();
        assert!(serve(&record, 0, Some(Version(3))).is_err());
        drop(first);
        let second = block_on(record.open(&[])).unwrap();
        assert!(!second.keeps_pages());
        serve(&record, 0, Some(Version(3))).unwrap();
    }
}
