//! The two formats of LMDB data files: the numbers of pages, their headers and their meta pages.
//!
//! Integers are those of a 64-bit little-endian machine. The head of a page has its number (8 bytes), in
//! format 1.0 its transaction (8), 2 unused bytes, and flags (2). Then follow the lower and upper bounds of
//! its free space (2 each) or, for a long value, the number of its pages (4).
//! Source: `mdb.c` of LMDB 0.9 and 1.0, and the verifier of py-lmdb 3.0.

use crate::store::database::{Failure, corrupt, unsupported};

/// The properties that differ between the formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    /// The length of the head of a page in bytes.
    pub(super) head_bytes: usize,
    /// The position in a page from which its offsets are counted.
    pub(super) base: usize,
    /// Whether a page stores the number of the transaction that wrote it.
    pub(super) has_txn: bool,
    version: u32,
    max_page_bytes: usize,
}

/// The longest head of a page in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 24;

const FORMATS: [Format; 2] = [
    Format {
        head_bytes: 16,
        base: 0,
        has_txn: false,
        version: 1,
        max_page_bytes: 1 << 15,
    },
    Format {
        head_bytes: MAX_HEAD_BYTES,
        base: 24,
        has_txn: true,
        version: 3,
        max_page_bytes: 1 << 16,
    },
];

const MAGIC: u32 = 0xBEEF_C0DE;
const MIN_PAGE_BYTES: usize = 256;
/// The root of an empty database.
const NO_PAGE: u64 = u64::MAX;

pub(super) const BRANCH: u16 = 1;
pub(super) const LEAF: u16 = 2;
pub(super) const OVERFLOW: u16 = 4;
const META: u16 = 8;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The format of a file that begins with `header`; `None` if it is no LMDB data file.
pub(super) fn format_of(header: &[u8]) -> Option<Format> {
    let mut formats = FORMATS.iter();
    let found = formats.find(|format| u32_at(header, format.head_bytes) == Some(MAGIC));
    found.copied()
}

/// The head of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) number: u64,
    /// The transaction that wrote the page; 0 in format 0.9.
    pub(super) txn: u64,
    pub(super) flags: u16,
    pub(super) lower: usize,
    pub(super) upper: usize,
    /// Number of pages of a long value.
    pub(super) pages: u64,
}

impl Head {
    pub(super) fn of(format: &Format, page: &[u8]) -> Option<Self> {
        let end = format.head_bytes;
        Some(Self {
            number: u64_at(page, 0)?,
            txn: match format.has_txn {
                true => u64_at(page, 8)?,
                false => 0,
            },
            flags: u16_at(page, end - 6)?,
            lower: u16_at(page, end - 4)?.into(),
            upper: u16_at(page, end - 2)?.into(),
            pages: u32_at(page, end - 4)?.into(),
        })
    }
}

/// The current state of a file, from its meta pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_bytes: usize,
    pub(super) txn: u64,
    /// The last page in use.
    pub(super) last_page: u64,
    /// The root of the tree of keys; `None` if it is empty.
    pub(super) root: Option<u64>,
    /// Number of levels of the tree.
    pub(super) depth: u16,
    /// Number of keys in the tree.
    pub(super) entries: u64,
}

/// Bytes of a meta page that are read, after its head.
pub(super) const META_BYTES: usize = 136;
/// Number of levels of the largest tree.
const MAX_DEPTH: u16 = 32;

/// Offsets of the two trees after the head of a meta page.
const FREE_TREE: usize = 24;
const MAIN_TREE: usize = 72;

impl Meta {
    /// Reads the head and the body of meta page `number` (0 or 1).
    pub(super) fn parse(format: &Format, bytes: &[u8], number: u64) -> Result<Self, Failure> {
        Self::fields(format, bytes, number)
            .unwrap_or_else(|| Err(corrupt(format!("meta page {number} is too short"))))
    }

    fn fields(format: &Format, bytes: &[u8], number: u64) -> Option<Result<Self, Failure>> {
        let head = Head::of(format, bytes)?;
        let body = bytes.get(format.head_bytes..)?;
        let bad = |what: &str| Some(Err(corrupt(format!("meta page {number}: {what}"))));
        if u32_at(body, 0)? != MAGIC || head.flags & META == 0 || head.number != number {
            return bad("it is none");
        }
        let version = u32_at(body, 4)?;
        if version != format.version {
            return Some(Err(unsupported(format!(
                "an LMDB file of data version {version}"
            ))));
        }
        let page_bytes = u32_at(body, FREE_TREE)? as usize;
        let is_size = page_bytes.is_power_of_two()
            && (MIN_PAGE_BYTES..=format.max_page_bytes).contains(&page_bytes);
        if !is_size {
            return bad("a page size that cannot be");
        }
        let txn = u64_at(body, 128)?;
        // A commit writes the meta page whose number is the parity of its transaction.
        if txn & 1 != number && txn != 0 {
            return bad("a transaction that belongs to the other one");
        }
        if u16_at(body, MAIN_TREE + 4)? != 0 {
            return Some(Err(unsupported(
                "an LMDB database with duplicates or keys in another order than that of bytes",
            )));
        }
        let depth = u16_at(body, MAIN_TREE + 6)?;
        let counts = [8, 16, 24, 32].map(|at| u64_at(body, MAIN_TREE + at));
        let entries = u64_at(body, MAIN_TREE + 32)?;
        let root = u64_at(body, MAIN_TREE + 40)?;
        let last_page = u64_at(body, 120)?;
        let is_empty = depth == 0 && counts.iter().all(|count| *count == Some(0));
        let is_tree = (2..=last_page).contains(&root) && (1..=MAX_DEPTH).contains(&depth);
        let root = match root {
            NO_PAGE if is_empty => None,
            root if is_tree && entries > 0 => Some(root),
            _ => return bad("a tree that cannot be"),
        };
        Some(Ok(Self {
            page_bytes,
            txn,
            last_page,
            root,
            depth,
            entries,
        }))
    }
}
