//! Berkeley DB files, as hash tables and as B-trees.
//!
//! Each page has a head of 26 bytes with its number, its neighbours and its type. Pages of hash tables
//! and leaves have an array of offsets, of keys and values alternately. An item that is too long
//! for a page has a chain of pages (see `chain`).
//! Source: `db_page.h`, `hash_page.c`, `hash_func.c` and `bt_split.c` of Berkeley DB 5.3.
//!
//! The format has neither checksums nor a flag for active writers. The reader instead checks that all pages
//! of the keys are of one state. Each page has its own number and is used once, and a key is in the bucket
//! of its hash. Leaves are linked in tree order, and pages of buckets that do not exist yet are empty.

mod chain;
mod page;

use super::bytes::{ByteOrder, Bytes};
use super::index::{Builder, ValueLocation, check_key_length};
use crate::store::database::{Failure, corrupt, unsupported};

pub(super) use self::chain::Chains;
use self::page::{Head, HeadType, Item, Items, item_of_hash, item_of_leaf};

const HASH_MAGIC: u32 = 0x0006_1561;
const BTREE_MAGIC: u32 = 0x0005_3162;
/// Format versions of Berkeley DB 3.1 to 6; earlier and later releases have other pages.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=10;
const META_BYTES: usize = 512;

/// Whether a file begins like a Berkeley DB file.
pub(super) fn is_berkeley(header: &[u8]) -> bool {
    magic(header).is_some()
}

fn magic(header: &[u8]) -> Option<(ByteOrder, u32)> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .filter_map(|order| Some((order, order.u32(header, 12)?)))
        .find(|(_, magic)| [HASH_MAGIC, BTREE_MAGIC].contains(magic))
}

/// The page layout of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    order: ByteOrder,
    page_bytes: usize,
    last_page: u32,
}

impl Layout {
    fn offset(&self, number: u32) -> u64 {
        u64::from(number).saturating_mul(self.page_bytes as u64)
    }
}

/// The content of page 0.
#[derive(Debug)]
struct Meta {
    layout: Layout,
    method: Method,
}

/// How keys are stored.
#[derive(Debug)]
enum Method {
    Hash(HashTable),
    /// The page number of the root.
    Btree(u32),
}

#[derive(Debug)]
struct HashTable {
    max_bucket: u32,
    high_mask: u32,
    low_mask: u32,
    /// For each doubling of the table, the number to add to a bucket's number to get its page number.
    spares: [u32; 32],
}

/// A text whose hash is stored in the file, to check that keys were hashed with the usual function.
const PROBE: &[u8] = b"%$sniglet^&\0";

impl Meta {
    fn read(file: Bytes<'_>) -> Result<Self, Failure> {
        let mut bytes = [0; META_BYTES];
        file.read(0, &mut bytes)?;
        Self::of(&bytes, file.size_bytes)
            .unwrap_or_else(|| Err(corrupt("page 0: it is none of a hash table or a B-tree")))
    }

    fn of(bytes: &[u8], file_bytes: u64) -> Option<Result<Self, Failure>> {
        let bad = |what: &str| Some(Err(corrupt(format!("page 0: {what}"))));
        let (order, magic) = magic(bytes)?;
        let integer = |at| order.u32(bytes, at);
        let version = integer(16)?;
        if !VERSIONS.contains(&version) {
            return Some(Err(unsupported(format!(
                "a Berkeley DB file of version {version}; db_upgrade and db_dump read it"
            ))));
        }
        let (encryption, flags) = (*bytes.get(24)?, *bytes.get(26)?);
        if encryption != 0 || flags != 0 {
            return Some(Err(unsupported(
                "a Berkeley DB file with checksums, encryption or partitions",
            )));
        }
        let page_bytes = integer(20)? as usize;
        if !page_bytes.is_power_of_two() || !(512..=1 << 16).contains(&page_bytes) {
            return bad("a page size that cannot be");
        }
        let layout = Layout {
            order,
            page_bytes,
            last_page: integer(32)?,
        };
        if layout.offset(layout.last_page) >= file_bytes {
            return bad(
                "the file ends before its last page: it was cut, or a program that has not closed it has \
                 written only some pages",
            );
        }
        let page_type = *bytes.get(25)?;
        let flags = integer(48)?;
        let method = match (magic, page_type) {
            (HASH_MAGIC, 8) => {
                if flags != 0 {
                    return Some(Err(several(flags & 2 != 0)));
                }
                if integer(92)? != hash(PROBE) {
                    return Some(Err(unsupported("a hash table with a hash of its own")));
                }
                let mut spares = [0; 32];
                for (number, spare) in spares.iter_mut().enumerate() {
                    *spare = integer(96 + 4 * number)?;
                }
                Method::Hash(HashTable {
                    max_bucket: integer(72)?,
                    high_mask: integer(76)?,
                    low_mask: integer(80)?,
                    spares,
                })
            }
            // Flag 4: the tree counts its records, which makes no difference to this reader.
            (BTREE_MAGIC, 9) if flags & !4 == 0 => Method::Btree(integer(88)?),
            (BTREE_MAGIC, 9) => return Some(Err(several(flags & 0x20 != 0))),
            _ => return bad("it is of another type"),
        };
        Some(Ok(Self { layout, method }))
    }
}

fn several(has_databases: bool) -> Failure {
    unsupported(match has_databases {
        true => "a Berkeley DB file with databases of their own names in it",
        false => {
            "a Berkeley DB file with several values for a key, with numbers for keys, or compressed"
        }
    })
}

/// Reads all keys, and returns the layout to read values with.
///
/// # Errors
/// [`Failure::Failed`] if a key cannot be read.
pub(super) fn read_index(file: Bytes<'_>, builder: &mut Builder) -> Result<Layout, Failure> {
    let Meta { layout, method } = Meta::read(file)?;
    let mut reader = Reader::new(file, layout, builder)?;
    match method {
        Method::Hash(table) => reader.read_table(&table)?,
        Method::Btree(root) => reader.read_tree(root)?,
    }
    Ok(layout)
}

struct Reader<'a> {
    file: Bytes<'a>,
    layout: Layout,
    builder: &'a mut Builder,
    /// One bit per page, set for pages that were read.
    seen: Vec<u64>,
    page: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(file: Bytes<'a>, layout: Layout, builder: &'a mut Builder) -> Result<Self, Failure> {
        let words = layout.last_page as usize / 64 + 1;
        let mut seen = Vec::new();
        builder.budget.grow(&mut seen, words)?;
        seen.resize(words, 0);
        Ok(Self {
            file,
            layout,
            builder,
            seen,
            page: vec![0; layout.page_bytes],
        })
    }

    /// Marks a page as used; fails if it was used before.
    fn claim(&mut self, number: u32) -> Result<(), Failure> {
        let word = self.seen.get_mut(number as usize / 64);
        let bit = 1 << (number % 64);
        match word.filter(|_| (1..=self.layout.last_page).contains(&number)) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                Ok(())
            }
            Some(_) => Err(corrupt(format!("page {number} is used twice"))),
            None => Err(corrupt(format!(
                "page {number} of {}",
                self.layout.last_page
            ))),
        }
    }

    /// Reads a page into the buffer; `None` if all its bytes are zero.
    fn load(&mut self, number: u32) -> Result<Option<Head>, Failure> {
        self.file.read(self.layout.offset(number), &mut self.page)?;
        let head = Head::of(self.layout.order, &self.page);
        match head {
            Some(head) if head.number == number => Ok(Some(head)),
            _ if self.page.iter().all(|byte| *byte == 0) => Ok(None),
            _ => Err(corrupt(format!("page {number}: it is another page"))),
        }
    }

    /// Adds the keys of the page in the buffer.
    fn add_items(
        &mut self,
        number: u32,
        item_of: fn(ByteOrder, &[u8], usize, usize) -> Option<Item>,
        check: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let bad = |what: &str| corrupt(format!("page {number}: {what}"));
        let page = std::mem::take(&mut self.page);
        let items = Items::of(self.layout.order, &page).ok_or_else(|| bad("too many items"))?;
        if !items.count().is_multiple_of(2) {
            return Err(bad("a key without a value"));
        }
        let item = |index| {
            let (start, end) = items.bounds(index)?;
            item_of(self.layout.order, &page, start, end)
        };
        let odd = || bad("an item that cannot be");
        for index in (0..items.count()).step_by(2) {
            let key = item(index).ok_or_else(odd)?;
            let value = item(index + 1).ok_or_else(odd)?;
            if key == Item::Deleted || value == Item::Deleted {
                continue;
            }
            let held;
            let key = match key {
                Item::Inline { start, length } => page.get(start..start + length),
                Item::Chain { first, size_bytes } => {
                    held = self.long_key(first, size_bytes)?;
                    Some(&held[..])
                }
                Item::Deleted | Item::Other => None,
            };
            let key = key.ok_or_else(|| unsupported_item(number))?;
            if !check(key) {
                return Err(bad("a key that belongs to another bucket"));
            }
            let (place, size_bytes) = match value {
                Item::Inline { start, length } => {
                    let offset = self.layout.offset(number).saturating_add(start as u64);
                    (ValueLocation::Offset(offset), length as u64)
                }
                Item::Chain { first, size_bytes } => {
                    chain::check(&self.layout, first, size_bytes)?;
                    (ValueLocation::Chain(first), size_bytes)
                }
                Item::Deleted | Item::Other => return Err(unsupported_item(number)),
            };
            self.builder.push(key, place, size_bytes)?;
        }
        self.page = page;
        Ok(())
    }

    fn long_key(&self, first: u32, size_bytes: u64) -> Result<Vec<u8>, Failure> {
        check_key_length(size_bytes)?;
        let mut key = vec![0; usize::try_from(size_bytes).unwrap_or(0)];
        let chains = Chains::new(self.layout);
        chains.read(self.file, first, size_bytes, 0, &mut key)?;
        Ok(key)
    }

    fn read_table(&mut self, table: &HashTable) -> Result<(), Failure> {
        let HashTable {
            max_bucket,
            high_mask,
            low_mask,
            ..
        } = *table;
        let is_mask = |mask: u32| mask == u32::MAX || (mask + 1).is_power_of_two();
        if !is_mask(high_mask)
            || low_mask != high_mask >> 1
            || max_bucket > high_mask
            || max_bucket < low_mask
            || max_bucket >= self.layout.last_page
        {
            return Err(corrupt("page 0: buckets that cannot be"));
        }
        let mut unused = None;
        for bucket in 0..=max_bucket {
            if !self.read_bucket(table, bucket)? {
                unused = Some(bucket);
            }
            let is_odd = max_bucket > 1 || self.builder.len() > MAX_IN_ONE_BUCKET;
            if let Some(bucket) = unused.filter(|_| is_odd) {
                return Err(corrupt(format!(
                    "the page of bucket {bucket} has no content: damage, or a table that was made larger than \
                     its keys, which db_dump and db_load make smaller"
                )));
            }
        }
        // Pages are allocated for all buckets up to the next doubling of the table.
        let allocated = max_bucket.saturating_add(1).next_power_of_two();
        for bucket in max_bucket.saturating_add(1)..allocated {
            let number = table.page_of(bucket);
            let Some(number) = number.filter(|number| *number <= self.layout.last_page) else {
                break;
            };
            let head = self.load(number)?;
            if head.is_some_and(|head| head.has_keys()) {
                return Err(corrupt(format!(
                    "page {number}: it has keys, but its bucket {bucket} is none yet"
                )));
            }
        }
        Ok(())
    }

    /// Reads all pages of a bucket. `false` if the bucket was never used.
    fn read_bucket(&mut self, table: &HashTable, bucket: u32) -> Result<bool, Failure> {
        let mut next = table.page_of(bucket).unwrap_or(0);
        let mut previous = 0;
        let is_here = |key: &[u8]| table.bucket_of(key) == bucket;
        loop {
            self.claim(next)?;
            let Some(head) = self.load(next)? else {
                if previous == 0 {
                    return Ok(false);
                }
                return Err(corrupt(format!("page {next}: it has no content")));
            };
            if head.kind != HeadType::Hash || head.previous != previous {
                return Err(corrupt(format!(
                    "page {next}: it is not one of bucket {bucket}"
                )));
            }
            self.add_items(next, item_of_hash, &is_here)?;
            previous = next;
            next = head.next;
            if next == 0 {
                return Ok(true);
            }
        }
    }

    /// Reads the leaves from left to right.
    fn read_tree(&mut self, root: u32) -> Result<(), Failure> {
        self.claim(root)?;
        let mut pending = vec![(root, None)];
        let (mut previous, mut expected) = (0, None);
        while let Some((number, level)) = pending.pop() {
            let bad = |what: &str| corrupt(format!("page {number}: {what}"));
            let head = self.load(number)?.ok_or_else(|| bad("it has no content"))?;
            if level.is_some_and(|level| level != head.level) {
                return Err(bad("it is of another level"));
            }
            match head.kind {
                HeadType::Leaf if head.level == 1 => {
                    if head.previous != previous || expected.is_some_and(|next| next != number) {
                        return Err(bad("it is not linked with the leaf before it"));
                    }
                    self.add_items(number, item_of_leaf, &|_| true)?;
                    (previous, expected) = (number, Some(head.next));
                }
                HeadType::Branch if head.level > 1 => {
                    let items = Items::of(self.layout.order, &self.page);
                    let children = items.and_then(|items| items.children());
                    let children = children.ok_or_else(|| bad("an entry that cannot be"))?;
                    for child in children.into_iter().rev() {
                        self.claim(child)?;
                        self.builder.budget.grow(&mut pending, 1)?;
                        pending.push((child, Some(head.level - 1)));
                    }
                }
                _ => return Err(bad("it is none of a tree")),
            }
        }
        match expected {
            Some(0) => Ok(()),
            Some(next) => Err(corrupt(format!("page {next}: it is in no branch"))),
            None => Err(corrupt("a tree without leaves")),
        }
    }
}

/// The most keys that a table of two buckets plausibly has in only one of them.
const MAX_IN_ONE_BUCKET: usize = 16;

fn unsupported_item(number: u32) -> Failure {
    unsupported(format!(
        "an item of page {number} that is no plain value: several values for a key, or an external file"
    ))
}

impl HashTable {
    /// The first page of a bucket.
    fn page_of(&self, bucket: u32) -> Option<u32> {
        let doublings = bucket.checked_add(1)?.checked_next_power_of_two()?;
        let spare = self.spares.get(doublings.trailing_zeros() as usize)?;
        bucket.checked_add(*spare)
    }

    fn bucket_of(&self, key: &[u8]) -> u32 {
        let hash = hash(key);
        match hash & self.high_mask {
            bucket if bucket > self.max_bucket => bucket & self.low_mask,
            bucket => bucket,
        }
    }
}

/// The usual hash function of keys: FNV (Fowler-Noll-Vo), starting at 0.
fn hash(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, byte| {
        hash.wrapping_mul(16_777_619) ^ u32::from(*byte)
    })
}
