//! The bytes of a remote archive, pinned to the version that was found first.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use hashbrown::HashMap;

use super::bytes::{Blocks, PinnedObject};
#[cfg(test)]
use super::request::Meta;
use super::request::transfer_stats::TransferStats;
use crate::clock::Instant;
use crate::runtime;
use crate::store::{Data, SnapshotError, SnapshotReader, SpanGuard, StoreError};
use crate::sync::{Mutex, MutexGuard};

/// How long the readahead of an entry continues without a read or a reader.
const READ_GRACE: Duration = Duration::from_secs(1);
/// Number of spans among which those that are no longer read are looked for.
const MAX_SPANS: usize = 256;

/// An archive at a remote source, read by ranges.
#[derive(Debug)]
pub(in crate::store) struct RemoteArchive {
    label: String,
    object: Arc<PinnedObject>,
    /// The last bytes of the archive, which were fetched to determine its format.
    tail: Arc<Vec<u8>>,
    /// Set once another version of the archive was seen; no requests are sent from then on.
    is_changed: AtomicBool,
    spans: Arc<Mutex<Spans>>,
}

/// Entries that are read in blocks, like files, as long as one of their readers exists, and for a while after
/// each read: if the kernel opens no files, each read has a reader of its own.
#[derive(Debug, Default)]
struct Spans {
    known: HashMap<(u64, u64), Span>,
    /// Whether a task waits for following reads.
    is_waiting: bool,
}

#[derive(Debug)]
struct Span {
    blocks: Weak<Blocks>,
    /// Keeps the blocks after a read.
    recent: Option<Arc<Blocks>>,
    /// When the last read began or ended.
    used: Instant,
}

/// Drops the readahead of entries that were not read for a while, and have no reader.
async fn release_unread(spans: Weak<Mutex<Spans>>) {
    loop {
        runtime::sleep(READ_GRACE).await;
        let Some(spans) = spans.upgrade() else {
            return;
        };
        let mut unread = Vec::new();
        let mut spans = spans.lock();
        for span in spans.known.values_mut() {
            if span.used.elapsed() >= READ_GRACE {
                unread.extend(span.recent.take());
            }
        }
        spans.is_waiting = spans.known.values().any(|span| span.recent.is_some());
        let is_waiting = spans.is_waiting;
        // Dropped without the lock, because that cancels requests.
        drop(spans);
        drop(unread);
        if !is_waiting {
            return;
        }
    }
}

impl RemoteArchive {
    pub(super) fn new(label: &str, object: PinnedObject, tail: Arc<Vec<u8>>) -> Self {
        Self {
            label: label.to_owned(),
            object: Arc::new(object),
            tail,
            is_changed: AtomicBool::new(false),
            spans: Arc::default(),
        }
    }

    /// The name of the source for messages, without secrets.
    pub(in crate::store) fn label(&self) -> &str {
        &self.label
    }

    /// The version to which the archive is pinned.
    #[cfg(test)]
    pub(super) fn meta(&self) -> &Meta {
        self.object.meta()
    }

    fn record_change<T>(&self, response: Result<T, StoreError>) -> Result<T, SnapshotError> {
        response.map_err(|error| match error {
            StoreError::Stale { what, .. } => {
                self.is_changed.store(true, Ordering::Relaxed);
                SnapshotError::Changed(what)
            }
            error => SnapshotError::Store(error),
        })
    }

    fn check_range(&self, range: &Range<u64>) -> Result<(), SnapshotError> {
        self.check()?;
        match range.end <= self.object.size_bytes() {
            true => Ok(()),
            false => Err(SnapshotError::Short {
                offset: range.start,
                wanted: usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
                got: usize::try_from(self.object.size_bytes().saturating_sub(range.start))
                    .unwrap_or(0),
            }),
        }
    }

    /// Returns the bytes of a range that lies in the tail.
    fn in_tail(&self, range: &Range<u64>) -> Option<&[u8]> {
        let start = self
            .object
            .size_bytes()
            .checked_sub(self.tail.len() as u64)?;
        let index = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
        self.tail.get(index(range.start)?..index(range.end)?)
    }

    async fn exact(&self, range: Range<u64>) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.in_tail(&range) {
            return Ok(Arc::new(bytes.to_vec()));
        }
        if self.object.is_on_disk() {
            return self.object.read(range).await;
        }
        // Not inserted into the cache: the zip store caches the decoded bytes.
        match self.object.in_memory(&range) {
            Some(bytes) => Ok(bytes),
            None => self.object.fetch_shared(range).await,
        }
    }

    /// Whether a range is read in blocks of its span.
    fn is_in_blocks(&self, range: &Range<u64>, span: &Range<u64>) -> bool {
        let is_inside = span.start <= range.start && range.end <= span.end;
        self.in_tail(range).is_none() && is_inside && span.end <= self.object.size_bytes()
    }

    fn blocks(&self, span: &Range<u64>) -> Arc<Blocks> {
        let mut spans = self.spans.lock();
        let ends = (span.start, span.end);
        if spans.known.len() >= MAX_SPANS {
            let is_in_use = |span: &Span| span.blocks.strong_count() > 0;
            spans.known.retain(|_, span| is_in_use(span));
        }
        let known = spans.known.get(&ends);
        let blocks = known.and_then(|span| span.blocks.upgrade());
        let blocks = blocks.unwrap_or_else(|| Arc::new(Blocks::new(&self.object, span.clone())));
        self.keep_blocks(spans, span, &blocks);
        blocks
    }

    /// Keeps the blocks of a span for a while from now on.
    fn keep_blocks(
        &self,
        mut spans: MutexGuard<'_, Spans>,
        span: &Range<u64>,
        blocks: &Arc<Blocks>,
    ) {
        let own = Span {
            blocks: Arc::downgrade(blocks),
            recent: Some(Arc::clone(blocks)),
            used: Instant::now(),
        };
        let before = spans.known.insert((span.start, span.end), own);
        if !spans.is_waiting {
            spans.is_waiting = true;
            runtime::spawn(release_unread(Arc::downgrade(&self.spans))).detach();
        }
        drop(spans);
        drop(before);
    }
}

fn range_of(offset: u64, length: usize) -> Range<u64> {
    offset..offset.saturating_add(length as u64)
}

#[async_trait]
impl SnapshotReader for RemoteArchive {
    fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    fn modified(&self) -> SystemTime {
        self.object
            .meta()
            .modified
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    async fn read_exact_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        let range = range_of(offset, length);
        self.check_range(&range)?;
        self.record_change(self.exact(range).await)
    }

    async fn read_once_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        let range = range_of(offset, length);
        self.check_range(&range)?;
        let fetched = self.object.fetch(range).await;
        self.record_change(fetched.map(Arc::new))
    }

    fn derived(&self, name: &str, max_bytes: u64) -> Option<Vec<u8>> {
        self.object.derived(name, max_bytes)
    }

    fn cache_derived(&self, name: &str, make: &mut dyn FnMut() -> Option<Vec<u8>>) {
        self.object.insert_derived(name, make);
    }

    fn keep_span(&self, span: Range<u64>) -> Option<SpanGuard> {
        let blocks: SpanGuard = self.blocks(&span);
        Some(blocks)
    }

    async fn read_within(
        &self,
        offset: u64,
        length: usize,
        span: Range<u64>,
    ) -> Result<Data, SnapshotError> {
        let range = range_of(offset, length);
        if !self.is_in_blocks(&range, &span) {
            let bytes = self.read_exact_at(offset, length).await?;
            return Ok(Data::part_of(&bytes, 0, length));
        }
        self.check_range(&range)?;
        let blocks = self.blocks(&span);
        let data = blocks.read(range).await;
        // The read may have waited for longer than blocks are kept after its begin.
        self.keep_blocks(self.spans.lock(), &span, &blocks);
        self.record_change(data)
    }

    fn is_on_disk(&self) -> bool {
        self.object.is_on_disk()
    }

    fn begin_prefetch(&self, start: u64, bytes: u64, budget_bytes: u64) -> bool {
        self.object.begin_prefetch(start, bytes, budget_bytes)
    }

    fn end_prefetch(&self, start: u64, bytes: u64, is_fetched: bool) {
        self.object.end_prefetch(start, bytes, is_fetched);
    }

    fn record_read(&self, start: u64, bytes: u64) {
        self.object.record_read(start, bytes);
    }

    fn check(&self) -> Result<(), SnapshotError> {
        match self.is_changed.load(Ordering::Relaxed) {
            true => Err(SnapshotError::Changed(
                "it was seen to be another one".into(),
            )),
            false => Ok(()),
        }
    }

    /// Counters of the whole archive; transfers are not counted per array.
    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(TransferStats {
            arrays: Vec::new(),
            ..self.object.source().transfer_stats()
        })
    }
}
