//! The keys of a database in byte order, with the locations of their values.
//!
//! An entry takes 24 bytes and the bytes of its key.

use crate::store::database::{Failure, corrupt, unsupported};
use crate::store::{Key, StoreError};

/// The location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueLocation {
    /// At an offset of the file of values.
    Offset(u64),
    /// In the chain of pages that begins with this page.
    Chain(u32),
}

/// Flag of an entry for [`ValueLocation::Chain`].
const CHAIN: u64 = 1 << 63;

/// Length of the longest key: a key's length and offset share an integer.
pub(super) const MAX_STORED_KEY_BYTES: usize = (1 << KEY_BITS) - 1;
const KEY_BITS: u32 = 16;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

/// Limits the memory of an index.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    used_bytes: u64,
}

impl Budget {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
        }
    }

    /// Reserves memory for `more` elements of a vector.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the limit is exceeded.
    pub(super) fn grow<T>(&mut self, vector: &mut Vec<T>, more: usize) -> Result<(), Failure> {
        let needed = vector.len().saturating_add(more);
        let capacity = vector.capacity();
        if needed <= capacity {
            return Ok(());
        }
        let wanted = needed.max(capacity.saturating_add(capacity / 2)).max(64);
        let added = wanted
            .saturating_sub(capacity)
            .saturating_mul(size_of::<T>());
        let need_bytes = self.used_bytes.saturating_add(added as u64);
        let too_large = |limit_bytes| {
            Failure::Failed(StoreError::TooLarge {
                key: Key::root(),
                need_bytes,
                limit_bytes,
            })
        };
        if need_bytes > self.limit_bytes {
            return Err(too_large(self.limit_bytes));
        }
        vector
            .try_reserve_exact(wanted.saturating_sub(vector.len()))
            .map_err(|_| too_large(0))?;
        self.used_bytes = need_bytes;
        Ok(())
    }
}

/// How a second entry for a key is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    /// The file is damaged.
    Corrupt,
    /// The second entry is a newer value.
    Replace,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The offset of the key in `keys`; the lowest bits hold its length.
    key: u64,
    location: u64,
    size_bytes: u64,
}

/// Builds an [`Index`].
#[derive(Debug)]
pub(super) struct Builder {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    pub(super) budget: Budget,
}

impl Builder {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            keys: Vec::new(),
            entries: Vec::new(),
            budget: Budget::new(limit_bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the budget is used up, [`StoreError::Unsupported`] for a key that is too
    /// long.
    pub(super) fn push(
        &mut self,
        key: &[u8],
        location: ValueLocation,
        size_bytes: u64,
    ) -> Result<(), Failure> {
        check_key_length(key.len() as u64)?;
        self.budget.grow(&mut self.keys, key.len())?;
        self.budget.grow(&mut self.entries, 1)?;
        self.entries.push(Entry {
            key: ((self.keys.len() as u64) << KEY_BITS) | key.len() as u64,
            location: match location {
                ValueLocation::Offset(offset) => offset & !CHAIN,
                ValueLocation::Chain(page) => CHAIN | u64::from(page),
            },
            size_bytes,
        });
        self.keys.extend_from_slice(key);
        Ok(())
    }

    /// Sorts the keys.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a duplicate key, if duplicates are damage.
    pub(super) fn finish(mut self, duplicates: Duplicates) -> Result<Index, Failure> {
        let keys = &self.keys[..];
        let order = |a: &Entry, b: &Entry| {
            let by_key = key_of(keys, a).cmp(key_of(keys, b));
            // The newest entry of a key comes first.
            by_key.then(b.key.cmp(&a.key))
        };
        self.entries.sort_unstable_by(order);
        let before = self.entries.len();
        self.entries
            .dedup_by(|next, first| key_of(keys, next) == key_of(keys, first));
        if duplicates == Duplicates::Corrupt && self.entries.len() < before {
            return Err(corrupt("a key is there twice"));
        }
        self.keys.shrink_to_fit();
        self.entries.shrink_to_fit();
        Ok(Index {
            keys: self.keys,
            entries: self.entries,
        })
    }
}

/// Refuses a key that an index cannot hold, before it is read.
pub(super) fn check_key_length(length: u64) -> Result<(), Failure> {
    match length <= MAX_STORED_KEY_BYTES as u64 {
        true => Ok(()),
        false => Err(unsupported(format!("a key of {length} bytes"))),
    }
}

fn key_of<'a>(keys: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = usize::try_from(entry.key >> KEY_BITS).unwrap_or(usize::MAX);
    let length = usize::try_from(entry.key & KEY_MASK).unwrap_or(0);
    keys.get(start..start.saturating_add(length))
        .unwrap_or_default()
}

/// A value: its location and its exact size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredValue {
    pub(super) location: ValueLocation,
    pub(super) size_bytes: u64,
}

/// All keys of one state of a database.
#[derive(Debug)]
pub(super) struct Index {
    keys: Vec<u8>,
    entries: Vec<Entry>,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of keys before `bound`.
    pub(super) fn first_at(&self, bound: &[u8]) -> usize {
        self.entries
            .partition_point(|entry| key_of(&self.keys, entry) < bound)
    }

    /// Returns the key with this number, and its value.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], StoredValue)> {
        let entry = self.entries.get(number)?;
        let location = match entry.location & CHAIN {
            0 => ValueLocation::Offset(entry.location),
            _ => ValueLocation::Chain(u32::try_from(entry.location & !CHAIN).unwrap_or(0)),
        };
        let value = StoredValue {
            location,
            size_bytes: entry.size_bytes,
        };
        Some((key_of(&self.keys, entry), value))
    }

    /// The value of a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<StoredValue> {
        let (found, value) = self.get(self.first_at(key))?;
        (found == key).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(index: &Index) -> Vec<&[u8]> {
        (0..index.len())
            .map(|number| index.get(number).unwrap().0)
            .collect()
    }

    #[test]
    fn keys_are_sorted_and_found_with_the_offsets_of_their_values() {
        let mut builder = Builder::new(1 << 20);
        builder.push(b"b", ValueLocation::Offset(7), 3).unwrap();
        builder.push(b"", ValueLocation::Chain(9), 1 << 40).unwrap();
        builder
            .push(b"a/b", ValueLocation::Offset(1 << 40), 0)
            .unwrap();
        let index = builder.finish(Duplicates::Corrupt).unwrap();
        let expected: [&[u8]; 3] = [b"", b"a/b", b"b"];
        assert_eq!(keys(&index), expected);
        let chain = StoredValue {
            location: ValueLocation::Chain(9),
            size_bytes: 1 << 40,
        };
        assert_eq!(index.find(b""), Some(chain));
        assert_eq!(
            index.find(b"b").map(|found| found.location),
            Some(ValueLocation::Offset(7))
        );
        assert_eq!((index.find(b"a"), index.find(b"c")), (None, None));
        assert_eq!((index.first_at(b"a/"), index.first_at(b"z")), (1, 3));
    }

    #[test]
    fn a_second_value_of_a_key_is_damage_or_the_newer_one() {
        let builder = || {
            let mut builder = Builder::new(1 << 20);
            for (key, offset) in [(b"k", 1), (b"a", 2), (b"k", 3), (b"k", 4)] {
                builder.push(key, ValueLocation::Offset(offset), 0).unwrap();
            }
            builder
        };
        assert!(builder().finish(Duplicates::Corrupt).is_err());
        let index = builder().finish(Duplicates::Replace).unwrap();
        assert_eq!(index.len(), 2);
        assert_eq!(
            index.find(b"k").map(|found| found.location),
            Some(ValueLocation::Offset(4))
        );
    }

    #[test]
    fn keys_that_exceed_the_memory_limit_are_refused_before_they_are_stored() {
        let mut builder = Builder::new(10_000);
        let error = (0..10_000_u64)
            .find_map(|n| {
                builder
                    .push(&n.to_be_bytes(), ValueLocation::Offset(n), 0)
                    .err()
            })
            .unwrap();
        assert!(
            matches!(
                error,
                Failure::Failed(StoreError::TooLarge {
                    limit_bytes: 10_000,
                    ..
                })
            ),
            "{error:?}"
        );
        let long = vec![b'x'; MAX_STORED_KEY_BYTES + 1];
        assert!(
            Builder::new(1 << 20)
                .push(&long, ValueLocation::Offset(0), 0)
                .is_err()
        );
    }
}
