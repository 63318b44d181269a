//! Which chunks of an array a listing has, so that the holes of an incomplete copy are seen.
//!
//! A chunk without a key is fill values by definition: absence is no error, and is reported with the keys.

use super::keys::ChunkKeyParser;

/// The largest number of chunks of an array whose presence is remembered: 8 MiB of bits.
const MAX_CHUNKS: u64 = 1 << 26;
/// The largest number of ranges of absent chunks that are named.
const MAX_RANGES: usize = 20;
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
        let name = |chunk| names.name(chunk).unwrap_or_default();
        let mut keys = Vec::new();
        let mut from = 0;
        while keys.len() < MAX_RANGES
            && let Some(first) = self.next(from, false)
        {
            let end = self.next(first, true).unwrap_or(self.total);
            keys.push(match end - first {
                1 => name(first),
                _ => format!("{} to {}", name(first), name(end - 1)),
            });
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

impl AbsentChunks {
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
