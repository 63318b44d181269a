//! Pages of the tree of keys, checked when they are read.

use super::format::{BRANCH, Format, Head, LEAF, u16_at, u32_at, u64_at};
use crate::store::database::{Failure, corrupt};

/// Flags of a leaf entry: a long value; a database or duplicates instead of a value.
const LONG: u16 = 1;
const NO_VALUE: u16 = 2 | 4;
const ENTRY_HEAD_BYTES: usize = 8;

/// A page of the tree; its entries were checked to be in bounds and in order.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Vec<u8>,
    /// Number of entries.
    count: usize,
    format: Format,
    pub(super) is_leaf: bool,
}

/// An entry of a leaf.
#[derive(Debug)]
pub(super) enum LeafValue<'a> {
    /// Bytes in the leaf itself.
    Inline(&'a [u8]),
    /// Separate pages.
    Long { page: u64, size_bytes: u64 },
    /// A database in the database, or duplicates.
    Other,
}

impl Page {
    /// Checks a page that was read as page `number` in the state of transaction `txn`.
    pub(super) fn new(
        format: Format,
        bytes: Vec<u8>,
        number: u64,
        txn: u64,
    ) -> Result<Self, Failure> {
        let bad = |what: &str| corrupt(format!("page {number}: {what}"));
        let head = Head::of(&format, &bytes).ok_or_else(|| bad("it is too short"))?;
        let is_leaf = match head.flags {
            BRANCH => false,
            LEAF => true,
            _ => return Err(bad("it belongs to no tree of keys")),
        };
        if head.number != number || head.txn > txn {
            return Err(bad("it is another page"));
        }
        let start = format.head_bytes - format.base;
        let (lower, upper) = (head.lower, head.upper);
        let end = bytes.len() - format.base;
        if lower < start || lower > upper || upper > end || !(lower - start).is_multiple_of(2) {
            return Err(bad("its bounds cannot be"));
        }
        let count = (lower - start) / 2;
        for index in 0..count {
            u16_at(&bytes, format.head_bytes + 2 * index)
                .filter(|offset| usize::from(*offset) >= upper)
                .ok_or_else(|| bad("an entry is outside of it"))?;
        }
        let page = Self {
            bytes,
            count,
            format,
            is_leaf,
        };
        page.check_entries().map_err(bad)?;
        Ok(page)
    }

    fn check_entries(&self) -> Result<(), &'static str> {
        if self.count == 0 {
            return Err("it has no entries");
        }
        let mut last: Option<&[u8]> = None;
        for index in 0..self.len() {
            let key = self.key_of(index).ok_or("an entry ends outside of it")?;
            // The key of the first entry of a branch is not used.
            let is_used = self.is_leaf || index > 0;
            if is_used && last.is_some_and(|last| last >= key) {
                return Err("its keys are not in order");
            }
            last = is_used.then_some(key);
            if self.is_leaf {
                self.stored(index).ok_or("a value ends outside of it")?;
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn entry(&self, index: usize) -> Option<&[u8]> {
        let slot = self.format.head_bytes.checked_add(2 * index)?;
        let offset = u16_at(&self.bytes, slot).filter(|_| index < self.count)?;
        let start = usize::from(offset).checked_add(self.format.base)?;
        self.bytes.get(start..)
    }

    fn key_of(&self, index: usize) -> Option<&[u8]> {
        let entry = self.entry(index)?;
        let length = usize::from(u16_at(entry, 6)?);
        entry.get(ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES.checked_add(length)?)
    }

    /// Returns the key of an entry.
    pub(super) fn key(&self, index: usize) -> &[u8] {
        self.key_of(index).unwrap_or_default()
    }

    /// Returns the page below an entry of a branch.
    pub(super) fn child(&self, index: usize) -> Option<u64> {
        let entry = self.entry(index)?;
        let low = u32_at(entry, 0)?;
        let high = u16_at(entry, 4)?;
        Some(u64::from(low) | u64::from(high) << 32)
    }

    /// Returns the value of an entry of a leaf.
    pub(super) fn stored(&self, index: usize) -> Option<LeafValue<'_>> {
        let entry = self.entry(index)?;
        let size = u32_at(entry, 0)?;
        let flags = u16_at(entry, 4)?;
        let key = self.key_of(index)?.len();
        // Format 1.0 aligns values.
        let key = match self.format.has_txn {
            true => key.next_multiple_of(2),
            false => key,
        };
        let data = entry.get(ENTRY_HEAD_BYTES.checked_add(key)?..)?;
        if flags & NO_VALUE != 0 {
            return Some(LeafValue::Other);
        }
        if flags & LONG != 0 {
            let page = u64_at(data, 0)?;
            return Some(LeafValue::Long {
                page,
                size_bytes: size.into(),
            });
        }
        data.get(..usize::try_from(size).ok()?)
            .map(LeafValue::Inline)
    }

    /// Returns the first entry whose key is not less than `key`.
    pub(super) fn first_at(&self, key: &[u8]) -> usize {
        self.partition(0, |there| there < key)
    }

    /// Returns the entry of a branch whose subtree contains `key`.
    pub(super) fn branch_of(&self, key: &[u8]) -> usize {
        self.partition(1, |there| there <= key).saturating_sub(1)
    }

    /// Returns the first entry from `start` on whose key does not satisfy `is_before`.
    fn partition(&self, start: usize, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (start, self.len().max(start));
        while low < high {
            let middle = low.midpoint(high);
            match is_before(self.key(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}
