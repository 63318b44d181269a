//! Items that are too long for a page and have a chain of pages of their own. All but the last are full.

use super::page::{HEAD_BYTES, Head, HeadType};
use super::{Bytes, Layout};
use crate::store::StoreError;
use crate::store::database::{Failure, corrupt};
use crate::sync::Mutex;

/// Number of remembered positions in values, so that a read continues where an earlier one ended.
const MAX_POSITIONS: usize = 16;
/// Longest read, in bytes.
const READ_BYTES: usize = 1 << 18;

impl Layout {
    /// Bytes of an item in each of its pages but the last one.
    fn capacity(&self) -> u64 {
        (self.page_bytes - HEAD_BYTES) as u64
    }
}

/// Refuses an item that is longer than the file.
pub(super) fn check(layout: &Layout, first: u32, size_bytes: u64) -> Result<(), Failure> {
    let pages = u64::from(layout.last_page);
    let is_there = (1..=layout.last_page).contains(&first)
        && size_bytes > 0
        && size_bytes.div_ceil(layout.capacity()) <= pages;
    match is_there {
        true => Ok(()),
        false => Err(corrupt(format!(
            "a value of {size_bytes} bytes at page {first} of {pages}"
        ))),
    }
}

/// A page in the chain of an item.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// The first page of the item.
    first: u32,
    /// The index of this page in the chain.
    index: u64,
    page: u32,
    /// The page before this one; 0 for the first page.
    previous: u32,
}

/// Reads items that have chains of pages.
#[derive(Debug)]
pub(in super::super) struct Chains {
    layout: Layout,
    positions: Mutex<Vec<Position>>,
}

impl Chains {
    pub(in super::super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            positions: Mutex::default(),
        }
    }

    /// Fills `target` from `offset` of an item.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if pages of the item are missing or not linked.
    pub(in super::super) fn read(
        &self,
        file: Bytes<'_>,
        first: u32,
        size_bytes: u64,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), Failure> {
        check(&self.layout, first, size_bytes)?;
        let capacity = self.layout.capacity();
        let end = offset.saturating_add(target.len() as u64);
        if end > size_bytes {
            return Err(corrupt("a value is shorter than it was"));
        }
        let last = size_bytes.div_ceil(capacity) - 1;
        let mut position = self.start(first, offset / capacity);
        let mut buffer = Vec::new();
        let mut filled = 0_usize;
        while filled < target.len() {
            let wanted = end.div_ceil(capacity).saturating_sub(position.index);
            self.load(file, position.page, wanted, &mut buffer)?;
            for page in buffer.chunks_exact(self.layout.page_bytes) {
                let head = self.check_page(page, &position, last, size_bytes)?;
                let skip = offset + filled as u64 - position.index * capacity;
                let content = page.get(HEAD_BYTES..HEAD_BYTES + usize::from(head.length));
                filled += copy(content.unwrap_or_default(), skip, target, filled);
                if filled == target.len() {
                    self.remember(position);
                    return Ok(());
                }
                if position.index == last {
                    return Err(StoreError::internal("a value without its end").into());
                }
                let is_adjacent = head.next == position.page.saturating_add(1);
                position = Position {
                    first,
                    index: position.index + 1,
                    page: head.next,
                    previous: position.page,
                };
                if !is_adjacent {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the last known position at or before page `index` of an item.
    fn start(&self, first: u32, index: u64) -> Position {
        let positions = self.positions.lock();
        let known = positions
            .iter()
            .filter(|position| position.first == first && position.index <= index)
            .max_by_key(|position| position.index);
        known.copied().unwrap_or(Position {
            first,
            index: 0,
            page: first,
            previous: 0,
        })
    }

    fn remember(&self, position: Position) {
        let mut positions = self.positions.lock();
        positions.retain(|known| known.first != position.first);
        if positions.len() >= MAX_POSITIONS {
            positions.remove(0);
        }
        positions.push(position);
    }

    /// Reads up to `wanted` pages from `page` on, because the pages of an item are mostly adjacent.
    fn load(
        &self,
        file: Bytes<'_>,
        page: u32,
        wanted: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let left = u64::from(self.layout.last_page.saturating_sub(page)) + 1;
        if !(1..=self.layout.last_page).contains(&page) {
            return Err(corrupt(format!("page {page} of a value")));
        }
        let most = READ_BYTES / self.layout.page_bytes;
        let pages = wanted.clamp(1, left).min(most as u64);
        buffer.resize(
            usize::try_from(pages).unwrap_or(1) * self.layout.page_bytes,
            0,
        );
        file.read(self.layout.offset(page), buffer)
    }

    fn check_page(
        &self,
        page: &[u8],
        position: &Position,
        last: u64,
        size_bytes: u64,
    ) -> Result<Head, Failure> {
        let number = position.page;
        let bad = |what: &str| corrupt(format!("page {number} of a value: {what}"));
        let head = Head::of(self.layout.order, page).ok_or_else(|| bad("it is too short"))?;
        let capacity = self.layout.capacity();
        let is_last = position.index == last;
        let length = match is_last {
            true => size_bytes - last * capacity,
            false => capacity,
        };
        let is_page = head.number == number
            && head.kind == HeadType::Overflow
            && head.previous == position.previous
            && u64::from(head.length) == length
            && (head.next == 0) == is_last;
        match is_page {
            true => Ok(head),
            false => Err(bad("it is another page")),
        }
    }
}

/// Copies `content` without its first `skip` bytes to `target`, from `filled` on; returns the bytes copied.
fn copy(content: &[u8], skip: u64, target: &mut [u8], filled: usize) -> usize {
    let skip = usize::try_from(skip).map_or(content.len(), |skip| skip.min(content.len()));
    let (_, part) = content.split_at(skip);
    let rest = target.get_mut(filled..).unwrap_or_default();
    let length = part.len().min(rest.len());
    let ((to, _), (from, _)) = (rest.split_at_mut(length), part.split_at(length));
    to.copy_from_slice(from);
    length
}
