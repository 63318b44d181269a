//! One version of a remote object, read in parts.
//!
//! A decoder reads exactly the ranges that it needs. For other readers, a short value is fetched whole
//! with one request, and a long one in blocks, with readahead for sequential readers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::future::join_all;

use super::whole_values::LoadPurpose;
use super::{Blocks, FetchedValue, KnownBytes, PinnedObject};
use crate::store::remote::memory::ReservedBody;
use crate::store::remote::request::RequestError;
use crate::store::{Data, Key, Object, Stat, StoreError, Version, in_memory};

/// One version of an object.
#[derive(Debug)]
pub(in crate::store::remote) struct RemoteObject {
    object: Arc<PinnedObject>,
    /// The whole value, if the open has fetched it.
    bytes: Option<Arc<Vec<u8>>>,
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
        /// Whether the whole value was fetched for this object. It is not fetched whole again: after it was evicted
        /// from the cache, only the blocks of each read are fetched.
        is_fetched: AtomicBool,
    },
    /// The whole value, because no part of it can be requested.
    Whole {
        /// The bytes of a value that is too long for the cache.
        held: OnceLock<(Arc<Vec<u8>>, ReservedBody)>,
    },
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
                held: OnceLock::new(),
            },
            (false, true) => Access::Range,
            (false, false) => Access::File {
                blocks: OnceLock::new(),
                is_fetched: AtomicBool::new(false),
            },
        };
        Self {
            object: Arc::new(PinnedObject::new(source, key, value.meta)),
            bytes: value.bytes,
            access,
            is_read: AtomicBool::new(false),
        }
    }

    /// Cuts a range at the end of the object.
    fn clamp(&self, offset: u64, size_bytes: usize) -> Range<u64> {
        let end = offset.saturating_add(size_bytes as u64);
        offset..end.min(self.size_bytes())
    }

    /// The whole value, if this object has it.
    fn value(&self) -> Option<&Arc<Vec<u8>>> {
        let held = match &self.access {
            Access::Whole { held } => held.get().map(|(bytes, _)| bytes),
            Access::Range | Access::File { .. } => None,
        };
        self.bytes.as_ref().or(held)
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
        is_fetched: &AtomicBool,
    ) -> Result<Data, StoreError> {
        let is_short = self.size_bytes() <= self.object.source.whole_limit();
        if is_short && !is_fetched.load(Ordering::Relaxed) {
            return self.read_whole(&range).await;
        }
        if let Some(bytes) = self.object.read_in_memory(&self.object.whole()) {
            self.record_read();
            return shared(bytes, &range);
        }
        let blocks = blocks.get_or_init(|| Blocks::new(&self.object, self.object.whole()));
        blocks.read(range).await
    }

    /// Returns a range of the value, after fetching and caching the whole value.
    async fn read_whole(&self, range: &Range<u64>) -> Result<Data, StoreError> {
        let (object, size_bytes) = (&self.object, self.size_bytes());
        if let Some(bytes) = object.read_cached(&object.whole()).await {
            self.record_read();
            return shared(bytes, range);
        }
        let source = &object.source;
        let reserved = source.requests.reserve(&object.key, size_bytes).await?;
        if let Some(bytes) = self.value() {
            return shared(Arc::clone(bytes), range);
        }
        let load = source.load_whole(&object.key, size_bytes, LoadPurpose::Read);
        let fetched = load.await;
        if let Access::File { is_fetched, .. } = &self.access {
            is_fetched.store(true, Ordering::Relaxed);
        }
        self.record_read();
        let gone = |what: &str| RequestError::Changed(what.into()).of(&object.key);
        match fetched {
            Ok(FetchedValue {
                meta: now,
                bytes: Some(bytes),
            }) if now.is_same(&object.meta) => {
                if let Access::Whole { held } = &self.access
                    && size_bytes > source.whole_limit()
                {
                    // A concurrent read may have set it first.
                    let _ = held.set((Arc::clone(&bytes), reserved));
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
        if let Some(bytes) = self.value() {
            return shared(Arc::clone(bytes), &range);
        }
        match &self.access {
            Access::Range => {
                let bytes = self.object.read(range).await?;
                let length = bytes.len();
                Ok(Data::Shared(bytes, 0..length))
            }
            Access::File { blocks, is_fetched } => self.read_file(range, blocks, is_fetched).await,
            Access::Whole { .. } => self.read_whole(&range).await,
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    /// Fetches neighbouring ranges together; each is cached separately.
    async fn prefetch(&self, ranges: &[Range<u64>]) {
        if self.bytes.is_some() {
            return;
        }
        if let Access::Whole { .. } = &self.access {
            // On failure, the next read fetches the value again.
            let _ = self.read_whole(&(0..0)).await;
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
