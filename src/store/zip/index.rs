//! The central directory as a tree in memory: 48 bytes per entry, plus its name, 4 bytes of order
//! and about 10 bytes of hash table. Positions follow the order of entries in the archive, so the
//! same archive always has the same positions.

mod build;
mod name_table;
mod record;
mod serialized;

pub(super) use build::build;
pub(super) use serialized::{CACHE_NAME, deserialize, deserialized_bytes, serialize};

use std::sync::atomic::{AtomicU32, Ordering};

use self::name_table::NameTable;
use crate::store::{Key, Position};

/// How an entry is encoded, or why it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryMethod {
    Directory,
    Stored,
    Deflated,
    Zstd,
    Encrypted,
    /// An unsupported method; its number is in the node's CRC field.
    UnsupportedMethod,
    /// The archive is split into several files.
    Split,
    /// Another entry claims some of the same bytes.
    Overlapping,
    /// The entry would end after the beginning of the central directory.
    OutOfBounds,
    /// The two declared sizes contradict each other.
    ImpossibleSize,
    Bzip2,
    Lzma,
    Xz,
}

impl EntryMethod {
    fn is_readable(self) -> bool {
        self == Self::Directory || self.number().is_some()
    }

    /// Returns the number of the method (APPNOTE 4.4.5); `None` if the entry cannot be read.
    pub(super) fn number(self) -> Option<u16> {
        match self {
            Self::Stored => Some(0),
            Self::Deflated => Some(8),
            Self::Bzip2 => Some(12),
            Self::Lzma => Some(14),
            Self::Zstd => Some(93),
            Self::Xz => Some(95),
            Self::Directory
            | Self::Encrypted
            | Self::UnsupportedMethod
            | Self::Split
            | Self::Overlapping
            | Self::OutOfBounds
            | Self::ImpossibleSize => None,
        }
    }
}

/// One entry. For a directory, the three long fields are: its first child in the order, the number of
/// its children, and the number of directories among them.
#[derive(Debug)]
pub(super) struct Node {
    name_start: u32,
    parent: u32,
    crc: u32,
    modified_unix: u32,
    state: AtomicU32,
    name_length: u8,
    method: EntryMethod,
    header_offset: u64,
    compressed_bytes: u64,
    size_bytes: u64,
}

// State that is learnt while reading, in `Node::state`.
const HEADER_LENGTH: u32 = (1 << 18) - 1;
const CRC_GOOD: u32 = 1 << 18;
const CRC_BAD: u32 = 1 << 19;

impl Node {
    /// Returns the name, which is a part of `names`.
    fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        let start = self.name_start as usize;
        let name = names.get(start..start.saturating_add(self.name_length.into()));
        name.unwrap_or_default()
    }

    pub(super) fn method(&self) -> EntryMethod {
        self.method
    }

    /// Returns the number of directories directly in a directory; `None` for a file.
    pub(super) fn subdirectories(&self) -> Option<u32> {
        (self.method == EntryMethod::Directory)
            .then(|| u32::try_from(self.size_bytes).unwrap_or(u32::MAX))
    }

    /// Returns the declared decoded size in bytes, cut to what the kernel can represent.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.min(i64::MAX.unsigned_abs())
    }

    pub(super) fn compressed_bytes(&self) -> u64 {
        self.compressed_bytes
    }

    pub(super) fn header_offset(&self) -> u64 {
        self.header_offset
    }

    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    pub(super) fn modified_unix(&self) -> u32 {
        self.modified_unix
    }

    /// Returns the length of the local header in bytes, once it was verified.
    pub(super) fn header_length(&self) -> Option<u64> {
        let length = self.state.load(Ordering::Relaxed) & HEADER_LENGTH;
        (length != 0).then_some(length.into())
    }

    pub(super) fn set_header_length(&self, length: u32) {
        self.state
            .fetch_or(length & HEADER_LENGTH, Ordering::Relaxed);
    }

    /// Whether the CRC is right or wrong; `None` if it was not checked yet.
    pub(super) fn crc_verdict(&self) -> Option<bool> {
        match self.state.load(Ordering::Relaxed) {
            state if state & CRC_BAD != 0 => Some(false),
            state if state & CRC_GOOD != 0 => Some(true),
            _ => None,
        }
    }

    /// Compares and records the CRC of the whole entry; a wrong CRC is final.
    pub(super) fn verify_crc(&self, actual: u32) -> bool {
        let good = actual == self.crc;
        self.state
            .fetch_or(if good { CRC_GOOD } else { CRC_BAD }, Ordering::Relaxed);
        good
    }
}

/// Returns whether a note of [`Directory::notes`] is about data that no key shows. Entries that cannot be
/// read are listed, and reading them fails.
pub(super) fn is_loss(note: &str) -> bool {
    [INVALID_NAMES, HIDDEN_FILES]
        .iter()
        .any(|what| note.contains(what))
}

const INVALID_NAMES: &str = "entries with invalid names";
const HIDDEN_FILES: &str = "files are hidden by directories";

/// A parsed central directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) index: ZipIndex,
    /// Where the central directory begins; entries end before it.
    pub(super) data_end: u64,
    /// Notes for users about the archive, one per line.
    pub(super) notes: Vec<String>,
}

/// The tree of entries.
#[derive(Debug)]
pub(super) struct ZipIndex {
    nodes: Vec<Node>,
    /// All names, concatenated.
    names: Vec<u8>,
    /// Children of each directory, contiguous per directory.
    order: Vec<Position>,
    by_name: NameTable,
    open_infallible: bool,
}

impl ZipIndex {
    #[expect(clippy::indexing_slicing, reason = "positions come from this index")]
    pub(super) fn node(&self, position: Position) -> &Node {
        &self.nodes[position.0 as usize]
    }

    pub(super) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(super) fn open_infallible(&self) -> bool {
        self.open_infallible
    }

    pub(super) fn parent(&self, position: Position) -> Position {
        Position(self.node(position).parent)
    }

    pub(super) fn name(&self, position: Position) -> &[u8] {
        self.node(position).name(&self.names)
    }

    pub(super) fn children(&self, parent: Position) -> &[Position] {
        let node = self.node(parent);
        if node.method != EntryMethod::Directory {
            return &[];
        }
        let (Ok(first), Ok(count)) = (
            usize::try_from(node.header_offset),
            usize::try_from(node.compressed_bytes),
        ) else {
            return &[];
        };
        self.order
            .get(first..first.saturating_add(count))
            .unwrap_or_default()
    }

    pub(super) fn child(&self, parent: Position, name: &[u8]) -> Option<Position> {
        self.by_name
            .find(parent.0, name, name_of(&self.nodes, &self.names))
            .map(Position)
    }

    /// Iterates over the components of a key from the last to the first.
    fn ancestry(&self, position: Position) -> impl Iterator<Item = &[u8]> {
        let mut at = position;
        std::iter::from_fn(move || {
            let name = (at != Position(0)).then(|| self.name(at));
            at = self.parent(at);
            name
        })
    }

    pub(super) fn key(&self, position: Position) -> Key {
        let mut components: Vec<&[u8]> = self.ancestry(position).collect();
        components.reverse();
        // Cannot fail: every component was checked when the index was built.
        Key::new(&components.join(&b'/')).unwrap_or_default()
    }

    /// Whether `name` is the full name of an entry, with slashes or backslashes.
    pub(super) fn is_named(&self, position: Position, name: &[u8]) -> bool {
        let name = record::with_slashes(name);
        let mut rest = Some(&*name);
        for (i, component) in self.ancestry(position).enumerate() {
            if i > 0 {
                rest = rest.and_then(|rest| rest.strip_suffix(b"/"));
            }
            rest = rest.and_then(|rest| rest.strip_suffix(component));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// Returns the length of the full name of an entry in bytes.
    pub(super) fn key_length(&self, position: Position) -> u64 {
        self.ancestry(position)
            .map(|name| name.len() as u64 + 1)
            .sum::<u64>()
            .saturating_sub(1)
    }
}

/// Returns the parent and the name of a node.
fn name_of<'a>(nodes: &'a [Node], names: &'a [u8]) -> impl Fn(u32) -> (u32, &'a [u8]) + Copy {
    move |at| match nodes.get(at as usize) {
        Some(node) => (node.parent, node.name(names)),
        None => (0, &[]),
    }
}
