//! Pages of Berkeley DB files and their items.

use super::ByteOrder;

/// The length of the head of a page in bytes.
pub(super) const HEAD_BYTES: usize = 26;

/// The type of a page, as far as this reader needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadType {
    Branch,
    Leaf,
    Hash,
    Overflow,
    Other,
}

/// The head of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) number: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
    entries: u16,
    /// Bytes of a long value in a page of its chain.
    pub(super) length: u16,
    pub(super) level: u8,
    pub(super) kind: HeadType,
}

impl Head {
    pub(super) fn of(order: ByteOrder, page: &[u8]) -> Option<Self> {
        Some(Self {
            number: order.u32(page, 8)?,
            previous: order.u32(page, 12)?,
            next: order.u32(page, 16)?,
            entries: order.u16(page, 20)?,
            length: order.u16(page, 22)?,
            level: *page.get(24)?,
            kind: match *page.get(25)? {
                2 | 13 => HeadType::Hash,
                3 => HeadType::Branch,
                5 => HeadType::Leaf,
                7 => HeadType::Overflow,
                _ => HeadType::Other,
            },
        })
    }

    /// Whether the page belongs to a hash table and has items.
    pub(super) fn has_keys(&self) -> bool {
        self.kind == HeadType::Hash && self.entries > 0
    }
}

/// The offsets of the items of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items<'a> {
    order: ByteOrder,
    page: &'a [u8],
    count: usize,
}

impl<'a> Items<'a> {
    /// Parses the offsets; `None` if the page is too small for their number.
    pub(super) fn of(order: ByteOrder, page: &'a [u8]) -> Option<Self> {
        let count = usize::from(Head::of(order, page)?.entries);
        let items = Self { order, page, count };
        (items.start() <= page.len()).then_some(items)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The lowest offset at which an item can begin.
    fn start(&self) -> usize {
        HEAD_BYTES + 2 * self.count
    }

    fn offset(&self, index: usize) -> Option<usize> {
        let offset = self.order.u16(self.page, HEAD_BYTES + 2 * index)?;
        let offset = usize::from(offset);
        (self.start()..self.page.len())
            .contains(&offset)
            .then_some(offset)
    }

    /// The start of an item, and the start of the item before it, which is where items of hash tables end.
    pub(super) fn bounds(&self, index: usize) -> Option<(usize, usize)> {
        let end = match index.checked_sub(1) {
            Some(before) => self.offset(before)?,
            None => self.page.len(),
        };
        Some((self.offset(index)?, end))
    }

    /// The pages below a branch.
    pub(super) fn children(&self) -> Option<Vec<u32>> {
        (0..self.count)
            .map(|index| self.order.u32(self.page, self.offset(index)? + 4))
            .collect()
    }
}

/// A key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Bytes in the page itself.
    Inline { start: usize, length: usize },
    /// A chain of pages.
    Chain { first: u32, size_bytes: u64 },
    /// A deleted item, left for a cursor that no process has any more.
    Deleted,
    /// Duplicates, or an external file.
    Other,
}

/// Parses an item in a page of a hash table; it ends where the item before it begins.
pub(super) fn item_of_hash(
    order: ByteOrder,
    page: &[u8],
    start: usize,
    end: usize,
) -> Option<Item> {
    let length = end.checked_sub(start)?.checked_sub(1)?;
    Some(match *page.get(start)? {
        1 => Item::Inline {
            start: start + 1,
            length,
        },
        3 => chain(order, page, start)?,
        _ => Item::Other,
    })
}

/// Parses an item of a leaf, which stores its own length.
pub(super) fn item_of_leaf(order: ByteOrder, page: &[u8], start: usize, _: usize) -> Option<Item> {
    let length = usize::from(order.u16(page, start)?);
    let kind = *page.get(start + 2)?;
    Some(match kind {
        _ if kind & 0x80 != 0 => Item::Deleted,
        1 => {
            page.get(start + 3..)?.get(..length)?;
            Item::Inline {
                start: start + 3,
                length,
            }
        }
        3 => chain(order, page, start)?,
        _ => Item::Other,
    })
}

fn chain(order: ByteOrder, page: &[u8], start: usize) -> Option<Item> {
    Some(Item::Chain {
        first: order.u32(page, start + 4)?,
        size_bytes: order.u32(page, start + 8)?.into(),
    })
}
