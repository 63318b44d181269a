//! Which chunks of an array are absent, so that the holes of an incomplete copy are seen.
//!
//! A chunk without a key is fill values by definition: absence is no error, and is reported with the keys. A complete
//! listing tells which chunks are absent; without one, reads tell it of those that are tried.

use std::collections::BTreeMap;

use super::keys::ChunkKeyParser;

/// The largest number of chunks of an array that a set can have.
const MAX_CHUNKS: u64 = 1 << 26;
/// The largest number of ranges of chunks that are named.
const MAX_RANGES: usize = 20;
const WORD_BITS: u64 = u64::BITS as u64;

/// Some chunks of an array.
#[derive(Debug)]
pub(super) struct ChunkSet {
    /// The number of chunks of the array.
    total: u64,
    /// The chunks as bits of words, by the number of the word, without words that are 0: the memory depends on the chunks
    /// that were named, and not on their numbers. Empty if the array has more than [`MAX_CHUNKS`].
    words: BTreeMap<u64, u64>,
}

/// Why a chunk has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unread {
    /// A listing or a request has proved that it has no key.
    Absent,
    /// The source does not list it, and its listing can be incomplete. It was not requested.
    NotListed,
}

/// The number and the keys of some chunks of an array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedChunks {
    pub(super) count: u64,
    /// The number of all chunks of the array.
    pub(super) total: u64,
    /// The first keys below the array, or ranges of keys in the order of chunks.
    pub(super) keys: Vec<String>,
    /// Whether there are more keys.
    pub(super) has_more: bool,
}

impl ChunkSet {
    /// Returns an empty set of the chunks of an array.
    pub(super) fn of(names: &ChunkKeyParser) -> Self {
        Self {
            total: names.chunk_count(),
            words: BTreeMap::new(),
        }
    }

    fn has_too_many(&self) -> bool {
        self.total > MAX_CHUNKS
    }

    /// Adds a chunk by its number in C order.
    pub(super) fn add(&mut self, chunk: u64) {
        if !self.has_too_many() && chunk < self.total {
            *self.words.entry(chunk / WORD_BITS).or_default() |= 1 << (chunk % WORD_BITS);
        }
    }

    /// Returns the chunks of the set; `None` if the array has too many.
    pub(super) fn members(&self, names: &ChunkKeyParser) -> Option<NamedChunks> {
        self.named(names, true)
    }

    /// Returns the chunks of the array that are not in the set; `None` if the array has too many.
    pub(super) fn others(&self, names: &ChunkKeyParser) -> Option<NamedChunks> {
        self.named(names, false)
    }

    fn named(&self, names: &ChunkKeyParser, is_member: bool) -> Option<NamedChunks> {
        if self.has_too_many() {
            return None;
        }
        let ones = self.words.values().map(|word| u64::from(word.count_ones()));
        let members: u64 = ones.sum();
        let count = match is_member {
            true => members,
            false => self.total.checked_sub(members)?,
        };
        let name = |chunk| names.name(chunk).unwrap_or_default();
        let mut keys = Vec::new();
        let mut from = 0;
        while keys.len() < MAX_RANGES
            && let Some(first) = self.next(from, is_member)
        {
            let end = self.next(first, !is_member).unwrap_or(self.total);
            keys.push(match end - first {
                1 => name(first),
                _ => format!("{} to {}", name(first), name(end - 1)),
            });
            from = end;
        }
        Some(NamedChunks {
            count,
            total: self.total,
            keys,
            has_more: self.next(from, is_member).is_some(),
        })
    }

    /// Returns the first chunk from `from` on that is in the set, or that is not.
    fn next(&self, from: u64, is_member: bool) -> Option<u64> {
        let mut chunk = from;
        while chunk < self.total {
            let index = chunk / WORD_BITS;
            let word = match (self.words.get(&index), is_member) {
                (Some(word), _) => *word,
                (None, false) => 0,
                (None, true) => {
                    let (next, _) = self.words.range(index..).next()?;
                    chunk = next * WORD_BITS;
                    continue;
                }
            };
            let wanted = if is_member { word } else { !word } >> (chunk % WORD_BITS);
            if wanted != 0 {
                let found = chunk + u64::from(wanted.trailing_zeros());
                return (found < self.total).then_some(found);
            }
            chunk = (chunk / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }
}

impl Unread {
    pub(super) const ALL: [Self; 2] = [Self::Absent, Self::NotListed];

    /// Returns the name of the member of a JSON document with the number of chunks.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::NotListed => "not_listed",
        }
    }

    /// Returns the name of the member of a JSON document with the keys of chunks.
    pub(super) fn keys_name(self) -> &'static str {
        match self {
            Self::Absent => "absent_keys",
            Self::NotListed => "not_listed_keys",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Absent => "absent and read as fill values",
            Self::NotListed => "not listed and not read",
        }
    }
}

impl NamedChunks {
    /// Returns those that a JSON document has.
    pub(super) fn read(count: u64, total: u64, keys: Vec<String>) -> Self {
        Self {
            count,
            total,
            has_more: keys.len() >= MAX_RANGES,
            keys,
        }
    }

    /// Adds those that another part of a check has found in the same array.
    pub(super) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.keys.extend(other.keys);
        self.has_more |= other.has_more || self.keys.len() > MAX_RANGES;
        self.keys.truncate(MAX_RANGES);
    }

    /// Returns a text such as `3 of 12 chunks are absent and read as fill values: 0.1 to 0.3`.
    pub(super) fn text(&self, why: Unread) -> String {
        let (count, total, why) = (self.count, self.total, why.text());
        let verb = if count == 1 { "is" } else { "are" };
        let more = if self.has_more { ", ..." } else { "" };
        let keys = self.keys.join(", ");
        format!("{count} of {total} chunks {verb} {why}: {keys}{more}")
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
    fn chunks_are_named_by_ranges_of_keys() {
        let names = names("[4, 50]", "[1, 1]");
        let (mut listed, mut absent) = (ChunkSet::of(&names), ChunkSet::of(&names));
        assert_eq!(listed.others(&names).unwrap().keys, ["0.0 to 3.49"]);
        assert_eq!(absent.members(&names).unwrap().count, 0);
        let gaps = [199, 64, 7, 65, 63];
        for chunk in (0..200).filter(|chunk| !gaps.contains(chunk)) {
            listed.add(chunk);
            listed.add(chunk);
        }
        gaps.into_iter().for_each(|chunk| absent.add(chunk));
        let named = listed.others(&names).unwrap();
        assert_eq!((named.count, named.total), (5, 200));
        assert_eq!(named.keys, ["0.7", "1.13 to 1.15", "3.49"]);
        assert_eq!(absent.members(&names).as_ref(), Some(&named));
        let text = "5 of 200 chunks are absent and read as fill values: 0.7, 1.13 to 1.15, 3.49";
        assert_eq!(named.text(Unread::Absent), text);
        gaps.into_iter().for_each(|chunk| listed.add(chunk));
        listed.add(200);
        let none = listed.others(&names).unwrap();
        assert_eq!((none.count, none.keys.len()), (0, 0));
        assert_eq!(listed.members(&names).unwrap().keys, ["0.0 to 3.49"]);
    }

    #[test]
    fn many_ranges_are_cut_off_and_many_chunks_are_not_remembered() {
        let exact = names("[40]", "[1]");
        let mut listed = ChunkSet::of(&exact);
        (0..40).step_by(2).for_each(|chunk| listed.add(chunk));
        let others = listed.others(&exact).unwrap();
        assert_eq!((others.keys.len(), others.has_more), (MAX_RANGES, false));
        let few = names("[100]", "[1]");
        let mut listed = ChunkSet::of(&few);
        (0..100).step_by(2).for_each(|chunk| listed.add(chunk));
        let mut others = listed.others(&few).unwrap();
        assert_eq!((others.count, others.keys.len()), (50, MAX_RANGES));
        assert!(others.text(Unread::NotListed).ends_with(", ..."));
        let first = others.keys.clone();
        others.add(listed.members(&few).unwrap());
        assert_eq!((others.count, others.keys), (100, first));
        let many = names("[9000000000]", "[1]");
        let mut listed = ChunkSet::of(&many);
        listed.add(8_000_000_000);
        assert!(listed.words.is_empty());
        assert_eq!(listed.others(&many), None);
        assert_eq!(listed.members(&many), None);
        // One chunk of many takes little memory, whatever its number.
        let sparse = names("[60000000]", "[1]");
        let mut listed = ChunkSet::of(&sparse);
        listed.add(59_999_998);
        assert_eq!(listed.words.len(), 1);
        assert_eq!(listed.members(&sparse).unwrap().keys, ["59999998"]);
        let others = listed.others(&sparse).unwrap();
        assert_eq!(others.keys, ["0 to 59999997", "59999999"]);
    }
}
