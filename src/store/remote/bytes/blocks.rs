//! A byte range of an object that can be read like a file: it is cached in blocks, with readahead for
//! sequential readers.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use async_task::Task;
use futures_util::future::try_join_all;

use super::PinnedObject;
use crate::runtime;
use crate::store::remote::memory::ReaderRegistration;
use crate::store::{Data, ReadBuffer, Readahead, StoreError, Window, in_memory, part, part_mut};
use crate::sync::Mutex;

/// Size of a block in bytes.
const BLOCK_BYTES: u64 = 256 << 10;
/// Largest number of consecutive blocks that one request fetches. A request fetches no blocks on both sides of a
/// multiple of this number, so that one lock between processes is enough for it.
const RUN_BLOCKS: u64 = 16;
/// Readahead window in bytes after a first read at the beginning.
const FIRST_READAHEAD_BYTES: u64 = 16 << 20;
/// Readahead window of a sequential reader in bytes.
const READAHEAD_BYTES: u64 = 64 << 20;

/// The bytes in `span` of one version of an object.
#[derive(Debug)]
pub(in crate::store::remote) struct Blocks {
    part: Arc<Spanned>,
    readahead: Readahead,
    /// Registration as a reader; set by the first readahead.
    reader: OnceLock<ReaderRegistration>,
    /// Dropping a task cancels its request, unless another reader waits for it: a closed file leaves none.
    prefetches: Mutex<Vec<Task<()>>>,
}

#[derive(Debug)]
struct Spanned {
    object: Arc<PinnedObject>,
    /// Blocks are counted from the start of the span, and none extends beyond its end.
    span: Range<u64>,
}

type Block = Arc<Vec<u8>>;

impl Blocks {
    /// `span` is within the object.
    pub(in crate::store::remote) fn new(object: &Arc<PinnedObject>, span: Range<u64>) -> Self {
        let object = Arc::clone(object);
        let part = Spanned { object, span };
        Self {
            part: Arc::new(part),
            readahead: Readahead::default(),
            reader: OnceLock::new(),
            prefetches: Mutex::default(),
        }
    }

    /// Reads a range of the object within the span.
    pub(in crate::store::remote) async fn read(
        &self,
        range: Range<u64>,
    ) -> Result<Data, StoreError> {
        let part = &self.part;
        let range = part.within(&range);
        self.read_ahead(&range);
        let _reserved;
        let blocks = match part.in_memory(&range) {
            Some(blocks) => blocks,
            None => {
                let numbers = numbers(&range);
                let bytes = (numbers.end - numbers.start).saturating_mul(BLOCK_BYTES);
                _reserved = part
                    .object
                    .source
                    .requests
                    .reserve(&part.object.key, bytes)
                    .await?;
                part.blocks(numbers).await?
            }
        };
        if let [block] = &blocks[..] {
            return shared(&range, block);
        }
        let need_bytes = range.end.saturating_sub(range.start);
        let no_memory = || StoreError::TooLarge {
            key: part.object.key.clone(),
            need_bytes,
            limit_bytes: 0,
        };
        let mut bytes = ReadBuffer::new(in_memory(need_bytes)?).ok_or_else(no_memory)?;
        let filled = part.copy(&range, &blocks, &mut bytes)?;
        Ok(Data::Owned(bytes, 0..filled))
    }

    /// Records a read, and starts to fetch the bytes that a sequential reader will read next.
    fn read_ahead(&self, range: &Range<u64>) {
        let part = &self.part;
        let length = part.span.end - part.span.start;
        let bytes = READAHEAD_BYTES.min(part.object.source.ranges.ahead_bytes());
        let window = Window {
            bytes,
            step_bytes: step_bytes(bytes),
            first_bytes: FIRST_READAHEAD_BYTES.min(bytes),
        };
        let Some(ahead) = self.readahead.observe(range, &window, length) else {
            return;
        };
        self.reader
            .get_or_init(|| part.object.source.ranges.reader());
        // The read itself fetches the block in which `ahead` begins.
        let mut from = ahead.start.div_ceil(BLOCK_BYTES);
        let end = numbers(&ahead).end;
        let mut prefetches = Vec::new();
        while from < end {
            let to = ((from / RUN_BLOCKS + 1) * RUN_BLOCKS).min(end);
            let part = Arc::clone(&self.part);
            let fetch = async move {
                let bytes = (to - from).saturating_mul(BLOCK_BYTES);
                if let Some(_reserved) = part.object.source.requests.try_reserve_spare(bytes) {
                    // On failure, a reader of these blocks requests them again and gets the error.
                    let _ = part.blocks(from..to).await;
                }
            };
            prefetches.push(runtime::spawn(fetch));
            from = to;
        }
        let mut running = self.prefetches.lock();
        running.retain(|prefetch| !prefetch.is_finished());
        running.append(&mut prefetches);
    }
}

/// Bytes of one readahead request, chosen so that several are in flight in a window.
fn step_bytes(window_bytes: u64) -> u64 {
    (window_bytes / 2 / BLOCK_BYTES).clamp(1, RUN_BLOCKS) * BLOCK_BYTES
}

/// Returns a range that lies in one block, without a copy.
fn shared(range: &Range<u64>, block: &Block) -> Result<Data, StoreError> {
    let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
    let range = in_memory(range.start - start)?..in_memory(range.end - start)?;
    Ok(Data::Shared(Arc::clone(block), range))
}

/// Returns the numbers of the blocks that overlap a range.
fn numbers(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

impl Spanned {
    /// Converts a range of the object to a range of the span.
    fn within(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.span.end);
        range.start.saturating_sub(self.span.start)..end.saturating_sub(self.span.start)
    }

    /// Returns the blocks of a range of the span, if all are in memory.
    fn in_memory(&self, range: &Range<u64>) -> Option<Vec<Block>> {
        let blocks = numbers(range).map(|number| self.object.in_memory(&self.block(number)));
        let blocks = blocks.collect::<Option<_>>()?;
        self.object.hit();
        Some(blocks)
    }

    /// Copies a range of the span from its blocks to the beginning of `target`; returns its length.
    fn copy(
        &self,
        range: &Range<u64>,
        blocks: &[Block],
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let mut filled = 0;
        for (number, bytes) in numbers(range).zip(blocks) {
            let start = number.saturating_mul(BLOCK_BYTES);
            let first = range.start.max(start) - start;
            let end = range.end.min(start.saturating_add(BLOCK_BYTES)) - start;
            let own = part(bytes, in_memory(first)?..in_memory(end)?)?;
            part_mut(target, filled..filled + own.len())?.copy_from_slice(own);
            filled += own.len();
        }
        Ok(filled)
    }

    fn block(&self, number: u64) -> Range<u64> {
        let offset = number.saturating_mul(BLOCK_BYTES);
        let start = self.span.start.saturating_add(offset);
        start..start.saturating_add(BLOCK_BYTES).min(self.span.end)
    }

    /// Returns blocks in order: cached ones, and the others with one request for each run of them.
    async fn blocks(self: &Arc<Self>, wanted: Range<u64>) -> Result<Vec<Block>, StoreError> {
        let mut blocks: Vec<Option<Block>> = Vec::new();
        for number in wanted.clone() {
            blocks.push(self.object.find_cached(&self.block(number)).await);
        }
        let missing: Vec<u64> = wanted
            .zip(&blocks)
            .filter(|(_, block)| block.is_none())
            .map(|(number, _)| number)
            .collect();
        let ranges = missing.iter().map(|number| self.block(*number));
        let start = |idle: Vec<usize>| {
            let loads = runs(&missing, idle).into_iter().map(|(group, run)| {
                let part = Arc::clone(self);
                (group, async move { part.load_run(run).await })
            });
            loads.collect()
        };
        let waiters = self.object.load_ranges(ranges, start);
        let mut fetched = try_join_all(waiters).await?.into_iter();
        for block in &mut blocks {
            if block.is_none() {
                *block = fetched.next();
            }
        }
        let blocks: Option<Vec<Block>> = blocks.into_iter().collect();
        blocks.ok_or_else(|| StoreError::internal("a block that was not fetched"))
    }

    /// Returns consecutive blocks, which no load of this process had cached: those that another process has put into the
    /// disk cache meanwhile, and the others with one request for each run of them.
    async fn load_run(&self, run: Range<u64>) -> Result<Vec<Block>, StoreError> {
        let object = &self.object;
        // Other processes may divide the blocks into other runs, so the lock is that of all runs in this place.
        let place = format!("{} {}", self.span.start, run.start / RUN_BLOCKS);
        let bytes = (run.end - run.start).saturating_mul(BLOCK_BYTES);
        let name = [object.key.as_bytes(), place.as_bytes()];
        let fetch_guard = object.source.disk.fetch_guard(&name, bytes).await;
        if !fetch_guard.is_shared() {
            return self.fetch_run(run).await;
        }
        let mut blocks = Vec::new();
        let mut missing = run.clone();
        for number in run {
            if let Some(block) = object.cached(&self.block(number)) {
                missing.end = number;
                blocks.extend(self.fetch_run(missing).await?);
                blocks.push(block);
                missing = number + 1..number + 1;
            }
            missing.end = number + 1;
        }
        match missing.is_empty() {
            true => object.hit(),
            false => blocks.extend(self.fetch_run(missing).await?),
        }
        Ok(blocks)
    }

    /// Fetches consecutive blocks with one request, and caches them.
    async fn fetch_run(&self, run: Range<u64>) -> Result<Vec<Block>, StoreError> {
        if run.is_empty() {
            return Ok(Vec::new());
        }
        let object = &self.object;
        let range = self.block(run.start).start..self.block(run.end.saturating_sub(1)).end;
        let piece_bytes = in_memory(BLOCK_BYTES)?;
        let body = object.fetch_in_pieces(range, piece_bytes).await?;
        let blocks: Vec<Block> = body
            .into_pieces(piece_bytes)
            .into_iter()
            .map(Arc::new)
            .collect();
        for (number, block) in run.zip(&blocks) {
            object.insert(self.block(number).start, block);
        }
        Ok(blocks)
    }
}

/// Groups block numbers, given by their indexes, into runs of consecutive numbers. A run ends before a multiple of
/// `RUN_BLOCKS`.
fn runs(numbers: &[u64], indexes: Vec<usize>) -> Vec<(Vec<usize>, Range<u64>)> {
    let mut runs: Vec<(Vec<usize>, Range<u64>)> = Vec::new();
    for index in indexes {
        let Some(number) = numbers.get(index).copied() else {
            continue;
        };
        match runs.last_mut() {
            Some((group, run)) if run.end == number && !number.is_multiple_of(RUN_BLOCKS) => {
                run.end += 1;
                group.push(index);
            }
            _ => runs.push((vec![index], number..number + 1)),
        }
    }
    runs
}
