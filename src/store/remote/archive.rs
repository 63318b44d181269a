//! The bytes of an archive that is somewhere else, held to the version that was found at first.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lru::LruCache;

use super::blocks::Blocks;
use super::store::Far;
use super::value::fetch;
use super::{Meta, RequestError, TransferStats};
use crate::store::waiting::may_wait;
use crate::store::{Key, Patience, SnapshotError, SnapshotReader, StoreError};

/// Entries that are read in parts at the same time.
const MAX_SPANS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// An archive at a source that is asked for ranges of it.
#[derive(Debug)]
pub(in crate::store) struct RemoteArchive {
    far: Arc<Far>,
    meta: Meta,
    /// Its last bytes, which were fetched to find out what it is.
    tail: Arc<Vec<u8>>,
    /// It was seen to be another one: it is not asked again.
    is_changed: AtomicBool,
    /// Entries that are read like files.
    spans: Mutex<LruCache<(u64, u64), Arc<Blocks>>>,
}

impl RemoteArchive {
    pub(super) fn new(far: &Arc<Far>, meta: Meta, tail: Arc<Vec<u8>>) -> Self {
        Self {
            far: Arc::clone(far),
            meta,
            tail,
            is_changed: AtomicBool::new(false),
            spans: Mutex::new(LruCache::new(MAX_SPANS)),
        }
    }

    /// The source as a person would write it, without secrets.
    pub(in crate::store) fn label(&self) -> &str {
        &self.far.label
    }

    fn judge<T>(&self, answer: Result<T, StoreError>) -> Result<T, SnapshotError> {
        answer.map_err(|error| match error {
            StoreError::Stale { what, .. } => {
                self.is_changed.store(true, Ordering::Relaxed);
                SnapshotError::Changed(what)
            }
            StoreError::WouldWait { .. } => SnapshotError::WouldWait,
            error => SnapshotError::Store(error),
        })
    }

    fn prepare(&self, range: &Range<u64>) -> Result<(), SnapshotError> {
        self.check()?;
        match range.end <= self.meta.size_bytes {
            true => Ok(()),
            false => Err(SnapshotError::Short {
                offset: range.start,
                wanted: usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
                got: usize::try_from(self.meta.size_bytes.saturating_sub(range.start)).unwrap_or(0),
            }),
        }
    }

    /// The bytes of a range that lies in the tail.
    fn in_tail(&self, range: &Range<u64>) -> Option<&[u8]> {
        let start = self.meta.size_bytes.checked_sub(self.tail.len() as u64)?;
        let index = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
        self.tail.get(index(range.start)?..index(range.end)?)
    }

    fn exact(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), StoreError> {
        let root = Key::root();
        if let Some(bytes) = self
            .in_tail(&range)
            .filter(|bytes| bytes.len() == buffer.len())
        {
            buffer.copy_from_slice(bytes);
            return Ok(());
        }
        let bytes = match self.far.at_hand(&root, &self.meta, range.clone()) {
            Some(bytes) => {
                self.far.counters.hit(&root);
                bytes
            }
            None if patience == Patience::Now => return Err(StoreError::WouldWait { key: root }),
            None => {
                may_wait(&root)?;
                let start = range.start;
                let bytes = Arc::new(fetch(&self.far, &root, &self.meta, range)?);
                if self.far.disk.is_some() {
                    self.far.keep(&root, &self.meta, start, &bytes);
                }
                bytes
            }
        };
        match bytes.len() == buffer.len() {
            true => {
                buffer.copy_from_slice(&bytes);
                Ok(())
            }
            false => Err(RequestError::lasting("another number of bytes came").of(&root)),
        }
    }

    fn blocks(&self, span: Range<u64>) -> Arc<Blocks> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (span.start, span.end);
        Arc::clone(spans.get_or_insert(place, || {
            Arc::new(Blocks::new(&self.far, &Key::root(), &self.meta, span))
        }))
    }
}

impl SnapshotReader for RemoteArchive {
    fn size_bytes(&self) -> u64 {
        self.meta.size_bytes
    }

    fn modified(&self) -> SystemTime {
        self.meta.modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn read_exact_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
        patience: Patience,
    ) -> Result<(), SnapshotError> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if range.is_empty() {
            return Ok(());
        }
        self.prepare(&range)?;
        self.judge(self.exact(range, buffer, patience))
    }

    fn read_within(
        &self,
        buffer: &mut [u8],
        offset: u64,
        span: Range<u64>,
        patience: Patience,
    ) -> Result<(), SnapshotError> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if range.is_empty() {
            return Ok(());
        }
        self.prepare(&range)?;
        let is_inside = span.start <= range.start && range.end <= span.end;
        if self.in_tail(&range).is_some() || !is_inside || span.end > self.meta.size_bytes {
            return self.judge(self.exact(range, buffer, patience));
        }
        let blocks = self.blocks(span);
        self.judge(blocks.read(range, buffer, patience).map(drop))
    }

    fn check(&self) -> Result<(), SnapshotError> {
        match self.is_changed.load(Ordering::Relaxed) {
            true => Err(SnapshotError::Changed(
                "it was seen to be another one".into(),
            )),
            false => Ok(()),
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// Which of the arrays inside it was for is not known here.
    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(TransferStats {
            arrays: Vec::new(),
            ..self.far.usage()
        })
    }
}
