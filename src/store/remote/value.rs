//! One version of an object that is somewhere else, read in parts.
//!
//! Who decodes asks for exactly what it needs, and gets exactly that. Who reads a file like any
//! other gets blocks, and a reader that goes from beginning to end gets them fetched ahead, many at
//! a time.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;

use super::blocks::Blocks;
use super::segments::Segment;
use super::store::Far;
use super::{Get, Meta, Part, RequestError};
use crate::store::flight::Claim;
use crate::store::waiting::may_wait;
use crate::store::{Data, Key, Object, Patience, Stat, StoreError, Version};

/// What an answer brought.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) meta: Meta,
    /// All bytes, if they were asked for and are not too many.
    pub(super) bytes: Option<Arc<Vec<u8>>>,
}

/// Parts with no more than this between them are fetched together.
const GAP_BYTES: u64 = 64 << 10;
/// But not more than this.
const JOINED_BYTES: u64 = 8 << 20;

/// One version of an object.
#[derive(Debug)]
pub(super) struct RemoteObject {
    far: Arc<Far>,
    key: Key,
    value: Value,
    is_exact: bool,
    blocks: Blocks,
}

impl RemoteObject {
    /// `is_exact` says that parts are asked for as they are needed, and not as a file is read.
    pub(super) fn new(far: &Arc<Far>, key: &Key, value: Value, is_exact: bool) -> Self {
        Self {
            far: Arc::clone(far),
            key: key.clone(),
            blocks: Blocks::new(far, key, &value.meta, 0..value.meta.size_bytes),
            value,
            is_exact,
        }
    }

    fn exact(&self, range: Range<u64>, patience: Patience) -> Result<Data, StoreError> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let shared = |bytes| Ok(Data::Shared(bytes, 0..length));
        let (far, meta) = (&self.far, &self.value.meta);
        if let Some(bytes) = far.at_hand(&self.key, meta, range.clone()) {
            far.counters.hit(&self.key);
            return shared(bytes);
        }
        if patience == Patience::Now {
            return Err(StoreError::WouldWait {
                key: self.key.clone(),
            });
        }
        may_wait(&self.key)?;
        let ask = || fetch(far, &self.key, meta, range.clone()).map(Arc::new);
        let question = self.segment(range.clone());
        let answer = far.parts.answer(question, far.deadline(), || {
            let bytes = ask()?;
            far.keep(&self.key, meta, range.start, &bytes);
            Ok(bytes)
        });
        shared(answer.unwrap_or_else(|| Err(far.late(&self.key)))?)
    }

    fn segment(&self, range: Range<u64>) -> Segment {
        Segment {
            key: self.key.clone(),
            version: self.value.meta.version(),
            start: range.start,
            end: range.end,
        }
    }
}

pub(super) fn wrong_length(key: &Key, got: u64, wanted: u64) -> StoreError {
    RequestError::lasting(format!("{got} bytes came, {wanted} were asked for")).of(key)
}

/// Bytes of one version of an object, all that were asked for.
pub(super) fn fetch(
    far: &Far,
    key: &Key,
    meta: &Meta,
    range: Range<u64>,
) -> Result<Vec<u8>, StoreError> {
    let length = range.end.saturating_sub(range.start);
    let mut get = Get::new(key, Part::Range(range));
    get.expected = Some(meta.clone());
    let got = far.get(&get).map_err(|error| gone(error, key))?;
    match got.bytes.len() as u64 == length && got.meta.is_same(meta) {
        true => Ok(got.bytes),
        false => Err(wrong_length(key, got.bytes.len() as u64, length)),
    }
}

/// What was there and is not any more is stale for who has it open.
fn gone(error: RequestError, key: &Key) -> StoreError {
    match error {
        RequestError::NotFound => RequestError::Changed("it is gone".into()).of(key),
        error => error.of(key),
    }
}

impl Object for RemoteObject {
    fn size_bytes(&self) -> u64 {
        self.value.meta.size_bytes
    }

    fn version(&self) -> Version {
        self.value.meta.version()
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.value.meta.stat())
    }

    fn read(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        let end = offset
            .saturating_add(size_bytes as u64)
            .min(self.size_bytes());
        if offset >= end {
            return Ok(Data::Filled(0..0));
        }
        let range = offset..end;
        if let Some(bytes) = &self.value.bytes {
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            return Ok(Data::Shared(Arc::clone(bytes), index(offset)..index(end)));
        }
        if self.is_exact {
            return self.exact(range, patience);
        }
        self.blocks.read(range, buffer, patience)
    }

    fn read_owned(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let end = offset.saturating_add(size_bytes as u64);
        if self.value.bytes.is_none() && !self.is_exact && offset < self.size_bytes() {
            return self.blocks.read_owned(offset..end.min(self.size_bytes()));
        }
        // Nothing is copied.
        self.read(offset, size_bytes, &mut [], Patience::Wait)
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        self.is_exact
    }

    /// Fetches neighbours together; each is kept by itself.
    fn prepare(&self, ranges: &[Range<u64>]) {
        let (far, meta) = (&self.far, &self.value.meta);
        if self.value.bytes.is_some() || may_wait(&self.key).is_err() {
            return;
        }
        let mut leads = Vec::new();
        for range in ranges {
            let is_inside = range.start < range.end && range.end <= meta.size_bytes;
            if !is_inside || far.at_hand(&self.key, meta, range.clone()).is_some() {
                continue;
            }
            if let Claim::Lead(lead) = far.parts.claim(self.segment(range.clone())) {
                leads.push(lead);
            }
        }
        leads.sort_by_key(|lead| lead.question().start);
        let mut joined: Vec<(Range<u64>, Vec<_>)> = Vec::new();
        for lead in leads {
            let (start, end) = (lead.question().start, lead.question().end);
            match joined.last_mut() {
                Some((range, group))
                    if start <= range.end.saturating_add(GAP_BYTES)
                        && end.max(range.end) - range.start <= JOINED_BYTES =>
                {
                    range.end = range.end.max(end);
                    group.push(lead);
                }
                _ => joined.push((start..end, vec![lead])),
            }
        }
        let gets: Vec<Get> = joined
            .iter()
            .map(|(range, _)| Get {
                expected: Some(meta.clone()),
                ..Get::new(&self.key, Part::Range(range.clone()))
            })
            .collect();
        let answers = far
            .network
            .wait(join_all(gets.iter().map(|get| far.remote.get(get))));
        for ((range, group), answer) in joined.into_iter().zip(answers) {
            let answer = answer.map_err(|error| gone(error, &self.key));
            for lead in group {
                let index = |at: u64| usize::try_from(at - range.start).unwrap_or(usize::MAX);
                let (start, end) = (lead.question().start, lead.question().end);
                let own = match &answer {
                    Ok(got) => match got.bytes.get(index(start)..index(end)) {
                        Some(bytes) => Ok(Arc::new(bytes.to_vec())),
                        None => Err(wrong_length(&self.key, got.bytes.len() as u64, end)),
                    },
                    Err(error) => Err(error.clone()),
                };
                if let Ok(bytes) = &own {
                    far.keep(&self.key, meta, start, bytes);
                }
                let _ = lead.tell(own);
            }
        }
    }
}
