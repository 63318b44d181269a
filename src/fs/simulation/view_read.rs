//! The check of what a view has returned, against the history of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::content::{Array, ELEMENT_BYTES, Element};
use super::shown::Shown;
use crate::store::simulated::Value;

/// What the reads of one open view have returned.
pub(super) struct ViewRead {
    array: Array,
    /// The version of the metadata.
    epoch: Option<u32>,
    /// The version of each chunk; `None` for fill values.
    chunks: BTreeMap<u64, Option<u32>>,
}

/// The length of the header of a `.npy` file with one axis.
pub(super) const HEADER_BYTES: u64 = 128;

impl ViewRead {
    pub(super) fn new(array: Array) -> Self {
        Self {
            array,
            epoch: None,
            chunks: BTreeMap::new(),
        }
    }

    /// Returns what is wrong with bytes of the view.
    pub(super) fn check(
        &mut self,
        shown: &Shown,
        time: (Duration, Duration),
        offset: u64,
        bytes: &[u8],
    ) -> Option<String> {
        let length = |bytes: u64| usize::try_from(bytes).expect("short");
        let mut at = length(offset.saturating_sub(HEADER_BYTES));
        let mut elements = bytes.get(length(HEADER_BYTES.saturating_sub(offset))..)?;
        let first = elements.get(at.next_multiple_of(ELEMENT_BYTES) - at..)?;
        let first = Element::of(*first.first_chunk()?);
        if first.array != self.array.number {
            return Some(format!("of another array: {first:?}"));
        }
        let epoch = *self.epoch.get_or_insert(first.epoch);
        let chunk_bytes = length(self.array.chunk) * ELEMENT_BYTES;
        while !elements.is_empty() {
            let (chunk, from) = (at / chunk_bytes, at % chunk_bytes);
            let own;
            (own, elements) = elements.split_at(elements.len().min(chunk_bytes - from));
            if let Some(what) = self.check_chunk(shown, time, (chunk as u64, epoch), (from, own)) {
                return Some(format!("chunk {chunk}: {what}, metadata {epoch}: {own:?}"));
            }
            at += own.len();
        }
        None
    }

    /// Returns what is wrong with the bytes of a chunk from a position in it on.
    fn check_chunk(
        &mut self,
        shown: &Shown,
        (since, to): (Duration, Duration),
        (chunk, epoch): (u64, u32),
        (from, bytes): (usize, &[u8]),
    ) -> Option<String> {
        let key = self.array.chunk_key(chunk);
        let versions = shown.history(|history| {
            let version = |value: &Value| {
                let first = Element::of(*value.bytes.first_chunk()?);
                // Decoded with other metadata than its own, a chunk has no version.
                Some(first).filter(|first| first.epoch == epoch)?.version
            };
            let states = history.states(&key, since, to);
            let versions = states.into_iter().filter_map(|state| match state {
                Some(value) => version(value).map(Some),
                None => Some(None),
            });
            versions.collect::<BTreeSet<Option<u32>>>()
        });
        let is_own = |version: &Option<u32>| {
            let elements = self.array.elements(epoch, *version);
            elements.get(from..from + bytes.len()) == Some(bytes)
        };
        let matching: Vec<Option<u32>> = versions.into_iter().filter(is_own).collect();
        match (self.chunks.get(&chunk), &matching[..]) {
            (_, []) => Some("of no version".into()),
            (Some(seen), all) if !all.contains(seen) => {
                Some(format!("of another version than {seen:?}"))
            }
            (None, [one]) => {
                self.chunks.insert(chunk, *one);
                None
            }
            _ => None,
        }
    }
}
