//! The version of each chunk that a file has served.
//!
//! The kernel shares the pages of an inode among all handles, so a record belongs to an inode, not
//! to a handle. While the file is open, every read of a chunk must find the version that was served
//! first; another version is [`StoreError::Stale`]. The next open compares the record with the
//! source:
//!
//! - same versions: the kernel keeps its pages;
//! - a version differs, or the comparison takes too long: the record is cleared and the kernel drops
//!   its pages. While another handle is open, this is impossible, because both handles would share the
//!   new pages. Then the inode is retired, and the next lookup gives the file another inode.
//!
//! Lock order: a thread that holds a lock takes no other lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;

use super::chunk_cache::ChunkId;
use super::chunks::ArrayChunks;
use super::closed_records::Evict;
use super::engine::Engine;
use super::version_memory::PageReservation;
use super::version_record::{
    Admission, Comparison, PAGE_BYTES, PageId, ServedChunk, VersionRecord, version_code,
};
use crate::clock::Instant;
use crate::runtime::leave_session_thread;
use crate::store::{DocumentReads, Fetched, Key, StoreError, Version};
use crate::sync::{Mutex, MutexGuard};

/// The time limit of a comparison with the source.
const MAX_COMPARE_TIME: Duration = Duration::from_millis(100);
/// The largest number of chunks that a session thread compares.
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
    /// The number of open handles.
    handles: usize,
    record: VersionRecord,
    /// Whether the inode gets no more handles. Open handles continue with its pages.
    is_retired: bool,
}

impl ServedVersions {
    /// Creates an empty record.
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

    /// Opens a handle of a file that is rendered from the chunks of `arrays`. `None` if the inode
    /// is retired, so that its name must be looked up again.
    pub async fn open(self: &Arc<Self>, arrays: &[&ArrayChunks]) -> Option<ServedHandle> {
        let (known, entries) = {
            let mut state = self.lock();
            if state.is_retired {
                return None;
            }
            state.handles += 1;
            let record = &state.record;
            let known = record.compare_cached(arrays);
            (known, known.is_none().then(|| record.entries()))
        };
        let mut handle = ServedHandle {
            versions: Arc::clone(self),
            keeps_pages: false,
        };
        let found = match (known, entries) {
            (None, Some(entries)) => match compare(arrays, entries).await {
                Comparison::TooCostly => self.lock().record.compare_by_age(arrays),
                found => found,
            },
            (known, _) => known.unwrap_or(Comparison::TooCostly),
        };
        if found == Comparison::Changed {
            // The cached chunks were checked before they changed.
            arrays.iter().for_each(|chunks| chunks.store.expire());
        }
        let mut state = self.lock();
        match (found, state.handles) {
            (Comparison::Nothing, _) => {}
            (Comparison::Same, _) => handle.keeps_pages = true,
            (Comparison::Changed | Comparison::TooCostly, 1) => {
                state.record = VersionRecord::default();
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

    /// Returns whether an open needs another inode, as far as is known without a request to the source.
    pub fn is_retired(&self, arrays: &[&ArrayChunks]) -> bool {
        let mut state = self.lock();
        if state.handles > 0 && state.record.compare_cached(arrays) == Some(Comparison::TooCostly) {
            state.is_retired = true;
        }
        state.is_retired
    }

    /// Reserves the memory for recording these chunks.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if open files use all memory for versions, [`StoreError::TimedOut`]
    /// if decoding uses the rest.
    pub(super) async fn reserve_pages(
        &self,
        ids: &[ChunkId],
        name: impl Fn(u64) -> Key,
    ) -> Result<(), StoreError> {
        let Some((key, missing)) = self.missing_pages(ids, name) else {
            return Ok(());
        };
        let bytes = PAGE_BYTES * missing.len() as u64;
        let reservation = self.engine.reserve_versions(&key, bytes).await?;
        self.add_pages(key, missing, reservation)
    }

    /// Returns the pages that the record lacks for these chunks, and the key of the first chunk.
    fn missing_pages(
        &self,
        ids: &[ChunkId],
        name: impl Fn(u64) -> Key,
    ) -> Option<(Key, Vec<PageId>)> {
        let first = ids.first()?;
        let missing = self.lock().record.missing_pages(ids);
        (!missing.is_empty()).then(|| (name(first.chunk), missing))
    }

    fn add_pages(
        &self,
        key: Key,
        missing: Vec<PageId>,
        reservation: PageReservation,
    ) -> Result<(), StoreError> {
        let need_bytes = PAGE_BYTES * missing.len() as u64;
        let added = self.lock().record.add_pages(missing, reservation);
        added.map_err(|_| StoreError::TooLarge {
            key,
            need_bytes,
            limit_bytes: self.engine.memory_limit_bytes(),
        })
    }

    /// Records the version of a chunk before it is served; `None` if the chunk is absent.
    /// `checked_ms` is the time of its last comparison with the source.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if another version was served.
    pub(super) fn admit(
        &self,
        id: &ChunkId,
        name: impl Fn(u64) -> Key,
        version: Option<Version>,
        checked_ms: u64,
    ) -> Result<(), StoreError> {
        match self.lock().record.admit(id, version, checked_ms) {
            Admission::Served => Ok(()),
            Admission::Changed => Err(StoreError::Stale {
                key: name(id.chunk),
                what: "another version of it was served from this file".into(),
            }),
            Admission::NoPage => Err(StoreError::Internal {
                key: name(id.chunk),
                what: "no room for the version of a chunk that is served".into(),
            }),
        }
    }

    fn close(self: &Arc<Self>) {
        let bytes = {
            let mut state = self.lock();
            state.handles -= 1;
            if state.handles == 0 && state.is_retired {
                state.record = VersionRecord::default();
            }
            match (state.handles, state.record.memory_bytes()) {
                (0, Some(bytes)) => bytes,
                _ => return,
            }
        };
        let record: Weak<Self> = Arc::downgrade(self);
        self.engine.closed.put(self.number, record, bytes);
    }
}

impl Evict for ServedVersions {
    fn evict(&self) -> bool {
        let mut state = self.lock();
        if state.handles > 0 {
            return false;
        }
        std::mem::take(&mut state.record).memory_bytes().is_some()
    }
}

impl Drop for ServedVersions {
    fn drop(&mut self) {
        self.engine.closed.remove(self.number);
    }
}

/// Compares chunks with the source, in the order of their arrays.
async fn compare(arrays: &[&ArrayChunks], entries: Vec<ServedChunk>) -> Comparison {
    let end = Instant::now() + MAX_COMPARE_TIME;
    if entries.len() > MAX_COMPARED_AT_ONCE {
        leave_session_thread().await;
    }
    let by_number: HashMap<u64, _> = arrays
        .iter()
        .map(|chunks| (chunks.number(), chunks))
        .collect();
    for entries in entries.chunk_by(|(one, ..), (other, ..)| one == other) {
        let array = entries.first().and_then(|(array, ..)| by_number.get(array));
        let Some(chunks) = array else {
            return Comparison::Changed;
        };
        let compared = |reads| compare_under(reads, chunks, entries, end);
        match chunks.store.fetch(compared).await.map(Fetched::into_value) {
            Ok(Comparison::Same) => {}
            Ok(other) => return other,
            // A read that needs the chunks returns the error.
            Err(_) => return Comparison::Changed,
        }
    }
    Comparison::Same
}

/// Compares chunks of one array with the source, until a point in time.
async fn compare_under(
    reads: DocumentReads<'_>,
    chunks: &ArrayChunks,
    entries: &[ServedChunk],
    end: Instant,
) -> Result<Comparison, StoreError> {
    // Also if all chunks are cached: pages of the kernel must not survive an array that was replaced.
    reads.check_as_of_now();
    for (_, chunk, served) in entries {
        if Instant::now() > end {
            return Ok(Comparison::TooCostly);
        }
        let found = chunks.present_stat(&reads, *chunk).await?;
        if version_code(found.map(|stat| stat.version)) != *served {
            return Ok(Comparison::Changed);
        }
    }
    Ok(Comparison::Same)
}

/// An open file that serves one version of each chunk.
#[derive(Debug)]
pub struct ServedHandle {
    versions: Arc<ServedVersions>,
    keeps_pages: bool,
}

impl ServedHandle {
    /// Returns whether all pages that the kernel caches for the inode are current.
    pub fn keeps_pages(&self) -> bool {
        self.keeps_pages
    }
}

impl Drop for ServedHandle {
    fn drop(&mut self) {
        self.versions.close();
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::EngineOptions;
    use super::super::reader::ArrayReader;
    use super::super::version_record::PAGE_CHUNKS;
    use super::*;
    use crate::codec::Pipeline;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;
    use crate::units::FOREVER;
    use crate::zarr::Array;

    fn engine(memory_limit_bytes: u64) -> Arc<Engine> {
        let options = EngineOptions {
            cache_bytes: 0,
            memory_limit_bytes,
            parallel: 1,
            timeout: Duration::from_millis(100),
        };
        Arc::new(Engine::new(options).unwrap())
    }

    /// Returns an array, the first one of its engine, in which no reader can see changes.
    fn array(engine: &Arc<Engine>) -> ArrayReader {
        let metadata = br#"{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}"#;
        let array = Array::from_v3(metadata).unwrap();
        let parts = array.decodable().unwrap();
        let pipeline =
            Pipeline::new(parts.codecs, parts.data_type, &[1], parts.fill_value).unwrap();
        let store = Arc::new(MemoryStore::new([]));
        let (pipeline, engine) = (Arc::new(pipeline), Arc::clone(engine));
        let key = Key::root();
        ArrayReader::open(store, key, &array, pipeline, engine, FOREVER, None).unwrap()
    }

    fn id(chunk: u64) -> ChunkId {
        ChunkId {
            array: 0,
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
        block_on(record.reserve_pages(&[id(chunk)], name))?;
        record.admit(&id(chunk), name, version, 1)
    }

    #[test]
    fn a_chunk_is_served_in_one_version_and_so_is_its_absence() {
        let record = ServedVersions::new(&engine(1 << 20));
        for version in [0, u64::MAX - 1, u64::MAX] {
            assert!(version_code(Some(Version(version))) > version_code(None));
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
    fn a_version_that_exceeds_the_memory_for_records_is_an_internal_error() {
        let record = ServedVersions::new(&engine(1 << 20));
        let error = record.admit(&id(1), name, None, 1).unwrap_err();
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
        // Two pages for the closed file, then four for the open one.
        for chunk in 0..4 {
            serve(&open, chunk * PAGE_CHUNKS, None).unwrap();
        }
        assert_eq!(closed.lock().record.memory_bytes(), None, "it made room");
        let error = serve(&open, 4 * PAGE_CHUNKS, None).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
        // The record is kept: another version is still an error.
        assert!(serve(&open, 0, Some(Version(1))).is_err());
        let used = || engine.gauges()[0].1;
        assert_eq!(used(), most);
        drop((handle, open));
        assert_eq!(used(), 0);
        serve(&closed, 0, None).unwrap();
    }

    #[test]
    fn an_open_drops_changed_versions_unless_another_handle_is_open() {
        let engine = engine(1 << 20);
        let record = Arc::new(ServedVersions::new(&engine));
        let reader = array(&engine);
        let open = || block_on(record.open(&[reader.chunks()]));
        let first = open().unwrap();
        serve(&record, 0, None).unwrap();
        // If no reader can see changes, the served bytes stay right.
        assert!(open().unwrap().keeps_pages());
        assert!(serve(&record, 0, Some(Version(3))).is_err());
        assert!(open().is_none(), "the first handle is still open");
        assert!(record.is_retired(&[]));
        drop(first);
        assert!(open().is_none(), "it has retired for good");

        let record = Arc::new(ServedVersions::new(&engine));
        let open = |array: &ArrayReader| block_on(record.open(&[array.chunks()])).unwrap();
        let first = open(&reader);
        serve(&record, 0, None).unwrap();
        assert!(serve(&record, 0, Some(Version(3))).is_err());
        drop(first);
        let second = open(&reader);
        assert!(!second.keeps_pages());
        serve(&record, 0, Some(Version(3))).unwrap();
        drop(second);
        assert!(open(&reader).keeps_pages());
        let replaced = array(&engine);
        assert!(
            !open(&replaced).keeps_pages(),
            "these are chunks of another array"
        );
    }
}
