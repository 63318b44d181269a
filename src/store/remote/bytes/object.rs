//! One version of a remote object, read in parts.
//!
//! A decoder reads exactly the ranges that it needs. For other readers, a short value is fetched whole
//! with one request, and a long one in blocks, with readahead for sequential readers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{Either, join_all};

use super::whole_values::LoadPurpose;
use super::{Blocks, FetchedValue, KnownBytes, PinnedObject};
use crate::runtime;
use crate::store::remote::memory::ReservedBody;
use crate::store::remote::request::RequestError;
use crate::store::{Data, Key, Object, ReadBuffer, Stat, StoreError, Version, in_memory};

/// A read waits for the whole value if fewer bytes than this follow: they arrive as fast as a wake-up. The values of the
/// simulation are short.
const MIN_REST_BYTES: u64 = if cfg!(test) { 1 } else { 256 << 10 };

/// One version of an object.
#[derive(Debug)]
pub(in crate::store::remote) struct RemoteObject {
    object: Arc<PinnedObject>,
    /// The whole value, if the open has fetched it, or if no part of it can be requested and it is too long for the
    /// cache.
    bytes: OnceLock<Arc<Vec<u8>>>,
    access: Access,
    /// Whether a read was answered from the whole value.
    is_read: AtomicBool,
}

/// What is fetched for a read.
#[derive(Debug)]
enum Access {
    /// Exactly the range of the read, without readahead.
    Range,
    /// The whole value if it is short, and else blocks of it.
    File {
        /// The blocks, from the first read of one.
        blocks: OnceLock<Blocks>,
        load: Arc<WholeLoad>,
    },
    /// The whole value, because no part of it can be requested.
    Whole {
        /// The memory of a value that is too long for the cache.
        reserved: OnceLock<ReservedBody>,
    },
}

/// The load of the whole value of a short file.
#[derive(Debug, Default)]
struct WholeLoad {
    /// Whether the value was fetched for this object. It is not fetched whole again: after it was evicted from the
    /// cache, only the blocks of each read are fetched.
    is_fetched: AtomicBool,
    /// Whether the load continues without a read that waits for it, with the memory that is reserved for it.
    is_detached: AtomicBool,
}

impl RemoteObject {
    /// Returns an object that is read by ranges. `is_exact` means that exactly the requested ranges are fetched, if the
    /// source returns parts of values.
    pub(in crate::store::remote) fn new(
        source: &Arc<KnownBytes>,
        key: &Key,
        value: FetchedValue,
        is_exact: bool,
    ) -> Self {
        let access = match (source.identity.reads_whole(), is_exact) {
            (true, _) => Access::Whole {
                reserved: OnceLock::new(),
            },
            (false, true) => Access::Range,
            (false, false) => Access::File {
                blocks: OnceLock::new(),
                load: Arc::default(),
            },
        };
        Self {
            object: Arc::new(PinnedObject::new(source, key, value.meta)),
            bytes: value.bytes.map_or_else(OnceLock::new, OnceLock::from),
            access,
            is_read: AtomicBool::new(false),
        }
    }

    /// Cuts a range at the end of the object.
    fn clamp(&self, offset: u64, size_bytes: usize) -> Range<u64> {
        let end = offset.saturating_add(size_bytes as u64);
        offset..end.min(self.size_bytes())
    }

    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            let source = &self.object.source;
            source.record_read(&self.object.key, 0, self.size_bytes());
        }
    }

    /// Returns a range of a value that is read like a file.
    async fn read_file(
        &self,
        range: Range<u64>,
        blocks: &OnceLock<Blocks>,
        load: &Arc<WholeLoad>,
    ) -> Result<Data, StoreError> {
        let is_short = self.size_bytes() <= self.object.source.whole_limit();
        if is_short && !load.is_fetched.load(Ordering::Relaxed) {
            return self.read_whole(&range, Some(load)).await;
        }
        if let Some(bytes) = self.object.read_in_memory(&self.object.whole()) {
            self.record_read();
            return shared(bytes, &range);
        }
        let blocks = blocks.get_or_init(|| Blocks::new(&self.object, self.object.whole()));
        blocks.read(range).await
    }

    /// Returns a range of the value, which is fetched whole and cached. With `file`, the range may be returned before
    /// the rest of the value has arrived; the rest arrives nevertheless.
    async fn read_whole(
        &self,
        range: &Range<u64>,
        file: Option<&Arc<WholeLoad>>,
    ) -> Result<Data, StoreError> {
        let (object, size_bytes) = (&self.object, self.size_bytes());
        if let Some(bytes) = object.read_cached(&object.whole()).await {
            self.record_read();
            return shared(bytes, range);
        }
        let source = &object.source;
        let rest_bytes = size_bytes.saturating_sub(range.end);
        let early = file.filter(|_| !range.is_empty() && rest_bytes >= MIN_REST_BYTES);
        let version = (&object.key, &object.meta);
        let place = in_memory(range.start)?..in_memory(range.end)?;
        // A second read reserves no memory while the load keeps the one for the value.
        if early.is_some_and(|load| load.is_detached.load(Ordering::Relaxed))
            && let Some(bytes) = source.arriving.arrived(version, place.clone())
        {
            return Ok(owned(bytes));
        }
        let memory = source.requests.reserve(&object.key, size_bytes).await?;
        if let Some(bytes) = self.bytes.get() {
            return shared(Arc::clone(bytes), range);
        }
        let (own, key, of_file) = (Arc::clone(source), object.key.clone(), file.cloned());
        let mut load = async move {
            let fetched = own.load_whole(&key, size_bytes, LoadPurpose::Read).await;
            if let Some(load) = of_file {
                load.is_fetched.store(true, Ordering::Relaxed);
            }
            (fetched, memory)
        }
        .boxed();
        let (fetched, memory) = match early {
            None => load.await,
            Some(of_file) => match source.arriving.first_of(&mut load, version, place).await {
                Either::Left(loaded) => loaded,
                Either::Right(bytes) => {
                    // One waiter is enough for the load; the memory of all others is released.
                    if !of_file.is_detached.swap(true, Ordering::Relaxed) {
                        let of_file = Arc::clone(of_file);
                        let rest = load.map(move |_| {
                            of_file.is_detached.store(false, Ordering::Relaxed);
                        });
                        runtime::spawn(rest).detach();
                    }
                    self.record_read();
                    return Ok(owned(bytes));
                }
            },
        };
        self.record_read();
        let gone = |what: &str| RequestError::Changed(what.into()).of(&object.key);
        match fetched {
            Ok(FetchedValue {
                meta: now,
                bytes: Some(bytes),
            }) if now.is_same(&object.meta) => {
                if let Access::Whole { reserved } = &self.access
                    && size_bytes > source.whole_limit()
                    // A concurrent read may have set it first.
                    && self.bytes.set(Arc::clone(&bytes)).is_ok()
                {
                    let _ = reserved.set(memory);
                }
                shared(bytes, range)
            }
            Ok(_) => Err(gone("it has another content by now")),
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                Err(gone("it is gone"))
            }
            Err(error) => Err(error),
        }
    }
}

fn owned(bytes: ReadBuffer) -> Data {
    let length = bytes.len();
    Data::Owned(bytes, 0..length)
}

/// Returns a range of a value.
fn shared(bytes: Arc<Vec<u8>>, range: &Range<u64>) -> Result<Data, StoreError> {
    let range = in_memory(range.start)?..in_memory(range.end)?;
    Ok(Data::Shared(bytes, range))
}

#[async_trait]
impl Object for RemoteObject {
    fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    fn version(&self) -> Version {
        self.object.meta.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.object.meta.stat())
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let range = self.clamp(offset, size_bytes);
        if range.is_empty() {
            return Ok(Data::empty());
        }
        if let Some(bytes) = self.bytes.get() {
            return shared(Arc::clone(bytes), &range);
        }
        match &self.access {
            Access::Range => {
                let bytes = self.object.read(range).await?;
                let length = bytes.len();
                Ok(Data::Shared(bytes, 0..length))
            }
            Access::File { blocks, load } => self.read_file(range, blocks, load).await,
            Access::Whole { .. } => self.read_whole(&range, None).await,
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    /// Fetches neighbouring ranges together; each is cached separately.
    async fn prefetch(&self, ranges: &[Range<u64>]) {
        if self.bytes.get().is_some() {
            return;
        }
        if let Access::Whole { .. } = &self.access {
            // On failure, the next read fetches the value again.
            let _ = self.read_whole(&(0..0), None).await;
            return;
        }
        let is_missing = |range: &&Range<u64>| {
            let is_inside = range.start < range.end && range.end <= self.size_bytes();
            is_inside && self.object.cached(range).is_none()
        };
        let mut missing: Vec<Range<u64>> = ranges.iter().filter(is_missing).cloned().collect();
        missing.sort_by_key(|range| range.start);
        missing.dedup();
        let load = |_: &[usize], all: Range<u64>, own| {
            let object = Arc::clone(&self.object);
            async move {
                let start = all.start;
                let bytes = object.fetch(all).await?;
                object.insert_parts((start, &bytes), own)
            }
        };
        // A range that cannot be fetched fails when it is read.
        let _ = join_all(self.object.load_joined(&missing, load)).await;
    }
}
