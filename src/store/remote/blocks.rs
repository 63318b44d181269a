//! A run of bytes of an object as a file that anybody may read: in blocks, which are fetched ahead
//! of a reader that goes from beginning to end.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::Meta;
use super::bodies::Reserved;
use super::segments::Segment;
use super::store::Far;
use super::value::{fetch, wrong_length};
use crate::store::flight::{Claim, Lead};
use crate::store::waiting::may_wait;
use crate::store::{Ahead, Data, Key, Patience, StoreError, part_mut};

/// Files are fetched in blocks of this size.
const BLOCK_BYTES: u64 = 256 << 10;
/// And so many of them, that follow each other, with one request.
const RUN_BLOCKS: u64 = 16;
/// What is fetched ahead of a reader that goes on and on.
const AHEAD_BYTES: u64 = 32 << 20;

/// The bytes of `span` of one version of an object.
#[derive(Debug)]
pub(super) struct Blocks {
    part: Arc<Spanned>,
    ahead: Ahead,
}

#[derive(Debug)]
struct Spanned {
    far: Arc<Far>,
    key: Key,
    meta: Meta,
    /// Blocks are counted from its beginning, and none reaches beyond its end.
    span: Range<u64>,
}

impl Blocks {
    pub(super) fn new(far: &Arc<Far>, key: &Key, meta: &Meta, span: Range<u64>) -> Self {
        let part = Spanned {
            far: Arc::clone(far),
            key: key.clone(),
            meta: meta.clone(),
            span,
        };
        Self {
            part: Arc::new(part),
            ahead: Ahead::default(),
        }
    }

    /// Copies a range of the object, which lies in the span, to the beginning of `buffer`.
    pub(super) fn read(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let range = self.part.within(&range);
        let (blocks, _reserved) = self.blocks(&range, patience)?;
        let mut filled = 0;
        for own in self.part.slices(range, &blocks) {
            let own = own?;
            part_mut(buffer, filled..filled + own.len())?.copy_from_slice(own);
            filled += own.len();
        }
        Ok(Data::Filled(0..filled))
    }

    /// As [`Blocks::read`], into memory that is allocated once the bytes are there.
    pub(super) fn read_owned(&self, range: Range<u64>) -> Result<Data, StoreError> {
        let range = self.part.within(&range);
        let (blocks, _reserved) = self.blocks(&range, Patience::Wait)?;
        let need_bytes = range.end.saturating_sub(range.start);
        let length = usize::try_from(need_bytes).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| StoreError::TooLarge {
                key: self.part.key.clone(),
                need_bytes,
                limit_bytes: 0,
            })?;
        for own in self.part.slices(range, &blocks) {
            bytes.extend_from_slice(own?);
        }
        let length = bytes.len();
        Ok(Data::Shared(Arc::new(bytes), 0..length))
    }

    /// The blocks that hold a range of the span, with the memory that is reserved for them if they
    /// had to be fetched.
    fn blocks(&self, range: &Range<u64>, patience: Patience) -> Result<Fetched, StoreError> {
        let part = &self.part;
        let length = part.span.end - part.span.start;
        let window = AHEAD_BYTES.min(part.far.segments.budget_bytes() / 4);
        if let Some(ahead) = self.ahead.note(range, window, length) {
            self.begin(ahead);
        }
        let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let at_hand = |number| match patience {
            // Not even the disk is waited for.
            Patience::Now => part.far.segments.get(&part.segment(number)),
            Patience::Wait => part.at_hand(number),
        };
        let found: Option<Vec<_>> = numbers.clone().map(at_hand).collect();
        if let Some(blocks) = found {
            part.far.counters.hit(&part.key);
            return Ok((blocks, None));
        }
        if patience == Patience::Now {
            return Err(StoreError::WouldWait {
                key: part.key.clone(),
            });
        }
        may_wait(&part.key)?;
        let bytes = (numbers.end - numbers.start).saturating_mul(BLOCK_BYTES);
        let reserved = part.far.reserve(&part.key, bytes)?;
        Ok((part.fetch(numbers)?, Some(reserved)))
    }

    /// Has a range of the span fetched by other threads.
    fn begin(&self, range: Range<u64>) {
        let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let mut from = numbers.start;
        while from < numbers.end {
            let to = ((from / RUN_BLOCKS + 1) * RUN_BLOCKS).min(numbers.end);
            let part = Arc::clone(&self.part);
            self.part.far.network.spawn(move || {
                let bytes = (to - from).saturating_mul(BLOCK_BYTES);
                if let Some(_reserved) = part.far.reserve_spare(bytes) {
                    // Who reads it asks for it again, and is told then.
                    let _ = part.fetch(from..to);
                }
            });
            from = to;
        }
    }
}

/// Blocks that follow each other, by where they begin.
type Run = Vec<(u64, Arc<Vec<u8>>)>;

/// Blocks, and the memory that is reserved while they are copied.
type Fetched = (Vec<Arc<Vec<u8>>>, Option<Reserved>);

impl Spanned {
    /// A range of the object as one of the span.
    fn within(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.span.end);
        range.start.saturating_sub(self.span.start)..end.saturating_sub(self.span.start)
    }

    /// The parts of blocks that a range of the span consists of.
    fn slices<'a>(
        &'a self,
        range: Range<u64>,
        blocks: &'a [Arc<Vec<u8>>],
    ) -> impl Iterator<Item = Result<&'a [u8], StoreError>> {
        let numbers = range.start / BLOCK_BYTES..;
        numbers.zip(blocks).map(move |(number, bytes)| {
            let start = number.saturating_mul(BLOCK_BYTES);
            let first = range.start.max(start) - start;
            let end = range.end.min(start.saturating_add(BLOCK_BYTES)) - start;
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let own = bytes.get(index(first)..index(end));
            own.ok_or_else(|| wrong_length(&self.key, bytes.len() as u64, end))
        })
    }

    fn block(&self, number: u64) -> Range<u64> {
        let offset = number.saturating_mul(BLOCK_BYTES);
        let start = self.span.start.saturating_add(offset);
        start..start.saturating_add(BLOCK_BYTES).min(self.span.end)
    }

    fn segment(&self, number: u64) -> Segment {
        let range = self.block(number);
        Segment {
            key: self.key.clone(),
            version: self.meta.version(),
            start: range.start,
            end: range.end,
        }
    }

    fn at_hand(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        self.far.at_hand(&self.key, &self.meta, self.block(number))
    }

    /// Blocks in order: those at hand, and the others with one request for each run of them.
    fn fetch(&self, numbers: Range<u64>) -> Result<Vec<Arc<Vec<u8>>>, StoreError> {
        let far = &self.far;
        let deadline = far.deadline();
        let mut runs: Vec<Vec<_>> = Vec::new();
        let mut awaited = Vec::new();
        // What was fetched here, which others may push out of the cache at once.
        let mut fetched: HashMap<u64, Arc<Vec<u8>>> = HashMap::new();
        for number in numbers.clone() {
            let question = self.segment(number);
            if far.segments.has(&question) {
                continue;
            }
            let start = question.start;
            let lead = match far.parts.claim(question) {
                Claim::Follow(flight) => {
                    awaited.push((start, flight));
                    continue;
                }
                Claim::Lead(lead) => lead,
            };
            if let Some(bytes) = self.at_hand(number) {
                let _ = lead.tell(Ok(bytes));
                continue;
            }
            match runs.last_mut() {
                Some(run) if ends_at(run, start) && (run.len() as u64) < RUN_BLOCKS => {
                    run.push(lead);
                }
                _ => runs.push(vec![lead]),
            }
        }
        for run in runs {
            fetched.extend(self.fetch_run(run)?);
        }
        for (start, flight) in awaited {
            match flight.wait(deadline) {
                Some(Some(answer)) => drop(fetched.insert(start, answer?)),
                Some(None) => {}
                None => return Err(far.late(&self.key)),
            }
        }
        // What has been pushed out meanwhile is fetched by itself.
        let mut found = |number| {
            let fetched = fetched.remove(&self.block(number).start);
            fetched.or_else(|| self.at_hand(number))
        };
        let each = numbers.map(|number| match found(number) {
            Some(bytes) => Ok(bytes),
            None if Instant::now() < deadline => {
                fetch(far, &self.key, &self.meta, self.block(number)).map(Arc::new)
            }
            None => Err(far.late(&self.key)),
        });
        each.collect()
    }

    /// Fetches blocks that follow each other, and tells those who wait for them. Returns them by
    /// where they begin.
    fn fetch_run(&self, run: Vec<Lead<'_, Segment, Arc<Vec<u8>>>>) -> Result<Run, StoreError> {
        let start = run.first().map_or(0, |lead| lead.question().start);
        let end = run.last().map_or(0, |lead| lead.question().end);
        let bytes = match fetch(&self.far, &self.key, &self.meta, start..end) {
            Ok(bytes) => bytes,
            Err(error) => {
                for lead in run {
                    let _ = lead.tell(Err(error.clone()));
                }
                return Err(error);
            }
        };
        let mut rest = &bytes[..];
        let mut blocks = Vec::new();
        for lead in run {
            let at = lead.question().start;
            let length = usize::try_from(lead.question().end - at).unwrap_or(usize::MAX);
            let (own, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            let own = Arc::new(own.to_vec());
            self.far.keep(&self.key, &self.meta, at, &own);
            blocks.push((at, Arc::clone(&own)));
            let _ = lead.tell(Ok(own));
        }
        Ok(blocks)
    }
}

fn ends_at(run: &[Lead<'_, Segment, Arc<Vec<u8>>>], start: u64) -> bool {
    run.last().is_some_and(|lead| lead.question().end == start)
}
