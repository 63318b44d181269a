//! Which chunks of an array are absent, so that the holes of an incomplete copy are seen.
//!
//! A chunk without a key is fill values by definition: absence is no error, and is reported with the keys. A complete
//! listing tells which are absent ([`ListedChunks`]); without one, the reads of all chunks do ([`ChunkRanges`]).

use std::collections::BTreeMap;

use super::keys::ChunkKeyParser;

/// The largest number of chunks of an array whose presence is remembered: 8 MiB of bits.
const MAX_CHUNKS: u64 = 1 << 26;
/// The largest number of ranges of absent chunks that are named.
const MAX_RANGES: usize = 20;
/// The largest number of ranges of an array that are kept while they grow and meet.
const MAX_KEPT_RANGES: usize = 4096;
const WORD_BITS: u64 = u64::BITS as u64;

/// The chunks of an array that were listed.
#[derive(Debug)]
pub(super) struct ListedChunks {
    total: u64,
    /// A bit for each chunk; empty if the array has more than [`MAX_CHUNKS`].
    words: Vec<u64>,
}

/// The chunks of an array that are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AbsentChunks {
    pub(super) count: u64,
    pub(super) total: u64,
    /// The first keys below the array, or ranges of keys in the order of chunks.
    pub(super) keys: Vec<String>,
}

impl ListedChunks {
    /// Returns the state before a listing of the chunks of an array.
    pub(super) fn of(names: &ChunkKeyParser) -> Self {
        let total = names.chunk_count();
        let words = match total <= MAX_CHUNKS {
            true => usize::try_from(total.div_ceil(WORD_BITS)).unwrap_or(0),
            false => 0,
        };
        Self {
            total,
            words: vec![0; words],
        }
    }

    /// Adds a chunk by its number in C order.
    pub(super) fn add(&mut self, chunk: u64) {
        let word = usize::try_from(chunk / WORD_BITS).ok();
        if let Some(word) = word.and_then(|word| self.words.get_mut(word)) {
            *word |= 1 << (chunk % WORD_BITS);
        }
    }

    /// Returns the chunks that were not listed; `None` if all were, or the array has too many.
    pub(super) fn absent(&self, names: &ChunkKeyParser) -> Option<AbsentChunks> {
        if self.words.is_empty() {
            return None;
        }
        let present: u64 = self
            .words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        let count = self.total.checked_sub(present).filter(|count| *count > 0)?;
        let mut keys = Vec::new();
        let mut from = 0;
        while keys.len() < MAX_RANGES
            && let Some(first) = self.next(from, false)
        {
            let end = self.next(first, true).unwrap_or(self.total);
            keys.push(range_text(names, first, end));
            from = end;
        }
        Some(AbsentChunks {
            count,
            total: self.total,
            keys,
        })
    }

    /// Returns the first chunk from `from` on that is listed, or that is not.
    fn next(&self, from: u64, is_listed: bool) -> Option<u64> {
        let mut chunk = from;
        while chunk < self.total {
            let word = *self.words.get(usize::try_from(chunk / WORD_BITS).ok()?)?;
            let wanted = if is_listed { word } else { !word } >> (chunk % WORD_BITS);
            if wanted != 0 {
                let found = chunk + u64::from(wanted.trailing_zeros());
                return (found < self.total).then_some(found);
            }
            chunk = (chunk / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }
}

/// Returns the keys of the chunks from `first` up to `end`.
fn range_text(names: &ChunkKeyParser, first: u64, end: u64) -> String {
    let name = |chunk| names.name(chunk).unwrap_or_default();
    match end - first {
        1 => name(first),
        _ => format!("{} to {}", name(first), name(end - 1)),
    }
}

/// Chunks of an array that come one at a time, each once and nearly in order, as their number and first ranges.
#[derive(Debug, Default)]
pub(super) struct ChunkRanges {
    count: u64,
    /// The ends of ranges by their first chunks. Neighbours are one range.
    ends: BTreeMap<u64, u64>,
    /// The first chunk of the first range that was left out, after which no range is kept.
    left_out: Option<u64>,
}

impl ChunkRanges {
    /// Adds a chunk by its number in C order.
    pub(super) fn add(&mut self, chunk: u64) {
        self.count += 1;
        if self.left_out.is_some_and(|first| chunk >= first) {
            return;
        }
        let before = self.ends.range(..chunk).next_back();
        let first = before.map_or(
            chunk,
            |(first, end)| if *end == chunk { *first } else { chunk },
        );
        let end = chunk.saturating_add(1);
        let end = self.ends.remove(&end).unwrap_or(end);
        self.ends.insert(first, end);
        if self.ends.len() > MAX_KEPT_RANGES {
            self.left_out = self.ends.pop_last().map(|(first, _)| first);
        }
    }

    /// Returns the chunks as absent ones; `None` if there are none.
    pub(super) fn absent(&self, names: &ChunkKeyParser) -> Option<AbsentChunks> {
        let ranges = self.ends.iter().take(MAX_RANGES);
        (self.count > 0).then(|| AbsentChunks {
            count: self.count,
            total: names.chunk_count(),
            keys: ranges
                .map(|(first, end)| range_text(names, *first, *end))
                .collect(),
        })
    }
}

impl AbsentChunks {
    /// Adds those that another part of a check has found in the same array.
    pub(super) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.keys.extend(other.keys);
        self.keys.truncate(MAX_RANGES);
    }

    /// Returns a text such as `3 of 12 chunks are absent and read as fill values: 0.1 to 0.3`.
    pub(super) fn text(&self) -> String {
        let (count, total) = (self.count, self.total);
        let verb = if count == 1 { "is" } else { "are" };
        let more = if self.keys.len() == MAX_RANGES {
            ", ..."
        } else {
            ""
        };
        let keys = self.keys.join(", ");
        format!("{count} of {total} chunks {verb} absent and read as fill values: {keys}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::Array;

    fn names(shape: &str, chunks: &str) -> ChunkKeyParser {
        let zarray = format!(
            r#"{{"zarr_format":2,"shape":{shape},"chunks":{chunks},"dtype":"|u1","fill_value":0,
            "filters":null,"compressor":null,"order":"C"}}"#
        );
        ChunkKeyParser::of(&Array::from_v2(zarray.as_bytes(), None).unwrap()).unwrap()
    }

    #[test]
    fn absent_chunks_are_ranges_of_keys() {
        let names = names("[4, 50]", "[1, 1]");
        let mut listed = ListedChunks::of(&names);
        assert_eq!(listed.absent(&names).unwrap().keys, ["0.0 to 3.49"]);
        for chunk in (0..200).filter(|chunk| ![7, 63, 64, 65, 199].contains(chunk)) {
            listed.add(chunk);
            listed.add(chunk);
        }
        let absent = listed.absent(&names).unwrap();
        assert_eq!((absent.count, absent.total), (5, 200));
        assert_eq!(absent.keys, ["0.7", "1.13 to 1.15", "3.49"]);
        let text = "5 of 200 chunks are absent and read as fill values: 0.7, 1.13 to 1.15, 3.49";
        assert_eq!(absent.text(), text);
        [7, 63, 64, 65, 199]
            .into_iter()
            .for_each(|chunk| listed.add(chunk));
        assert_eq!(listed.absent(&names), None);
    }

    #[test]
    fn absent_chunks_that_are_found_one_at_a_time_are_the_same_ranges() {
        let names = names("[4, 50]", "[1, 1]");
        let mut found = ChunkRanges::default();
        assert_eq!(found.absent(&names), None);
        for chunk in [64, 7, 199, 63, 65] {
            found.add(chunk);
        }
        let mut absent = found.absent(&names).unwrap();
        let keys = ["0.7", "1.13 to 1.15", "3.49"];
        assert_eq!((absent.count, absent.total), (5, 200));
        assert_eq!(absent.keys, keys);
        absent.add(AbsentChunks {
            count: 30,
            total: 200,
            keys: vec!["2.0 to 2.1".to_owned(); MAX_RANGES],
        });
        assert_eq!((absent.count, absent.keys.len()), (35, MAX_RANGES));
        assert_eq!(absent.keys[..3], keys);
    }

    #[test]
    fn the_first_ranges_are_kept_in_little_memory() {
        let names = names("[9000000000]", "[1]");
        let mut found = ChunkRanges::default();
        // From the end, so that each one is before those that are kept.
        for chunk in (0..20_000).rev().filter(|chunk| chunk % 3 != 0) {
            found.add(chunk);
        }
        assert_eq!(found.ends.len(), MAX_KEPT_RANGES);
        let absent = found.absent(&names).unwrap();
        assert_eq!((absent.count, absent.keys.len()), (13_333, MAX_RANGES));
        assert_eq!(absent.keys[..2], ["1 to 2", "4 to 5"]);
        // Parts of a range that was left out do not come back.
        found.add(19_998);
        assert_eq!(found.absent(&names).unwrap().keys, absent.keys);
        assert_eq!(found.ends.len(), MAX_KEPT_RANGES);
    }

    #[test]
    fn many_ranges_are_cut_off_and_many_chunks_are_not_remembered() {
        let few = names("[100]", "[1]");
        let mut listed = ListedChunks::of(&few);
        (0..100).step_by(2).for_each(|chunk| listed.add(chunk));
        let absent = listed.absent(&few).unwrap();
        assert_eq!((absent.count, absent.keys.len()), (50, MAX_RANGES));
        assert!(absent.text().ends_with(", ..."));
        let many = names("[9000000000]", "[1]");
        assert_eq!(ListedChunks::of(&many).absent(&many), None);
    }
}
