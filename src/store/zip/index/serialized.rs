//! Serializes an index for a cache that outlives the process: parsing a directory of a million
//! entries takes longer than reading these bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 48 | [`Head`] |
//! | 48 n | nodes |
//! | 4 (n - 1) | children of each directory, contiguous per directory |
//! | m | names |
//! | k | notes for users about the archive, as lines |
//!
//! Numbers are little-endian. State that was learnt by reading entries is not stored.

use std::sync::atomic::AtomicU32;

use super::name_table::{self, NameTable};
use super::{Directory, EntryMethod, Node, ZipIndex, name_of};
use crate::machine;
use crate::store::Position;

/// The name under which an index is stored. It must change with the format and with the rules for
/// accepting a directory.
pub(in crate::store::zip) const CACHE_NAME: &str = "zip index 2";

const HEAD_BYTES: usize = 48;
const NODE_BYTES: usize = 48;

/// The header before the nodes.
struct Head {
    nodes: u64,
    name_bytes: u64,
    note_bytes: u64,
    data_end: u64,
    archive_bytes: u64,
    open_infallible: bool,
}

impl Head {
    fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let numbers = [
            self.nodes,
            self.name_bytes,
            self.note_bytes,
            self.data_end,
            self.archive_bytes,
            self.open_infallible.into(),
        ];
        array(numbers.iter().flat_map(|number| number.to_le_bytes()))
    }

    fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut numbers = bytes.as_chunks::<8>().0.iter();
        let mut next = || numbers.next().map(|bytes| u64::from_le_bytes(*bytes));
        Some(Self {
            nodes: next()?,
            name_bytes: next()?,
            note_bytes: next()?,
            data_end: next()?,
            archive_bytes: next()?,
            open_infallible: match next()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        })
    }

    /// Lengths of nodes, order, names and notes in bytes.
    fn lengths(&self) -> Option<[usize; 4]> {
        let nodes = usize::try_from(self.nodes).ok()?;
        Some([
            nodes.checked_mul(NODE_BYTES)?,
            nodes.checked_sub(1)?.checked_mul(size_of::<u32>())?,
            usize::try_from(self.name_bytes).ok()?,
            usize::try_from(self.note_bytes).ok()?,
        ])
    }
}

/// Serializes the directory of an archive of `archive_bytes`; `None` if the result would exceed
/// `max_bytes`, or memory cannot be allocated.
pub(in crate::store::zip) fn serialize(
    directory: &Directory,
    archive_bytes: u64,
    max_bytes: u64,
) -> Option<Vec<u8>> {
    let index = &directory.index;
    let notes = directory.notes.join("\n");
    let head = Head {
        nodes: index.nodes.len() as u64,
        name_bytes: index.names.len() as u64,
        note_bytes: notes.len() as u64,
        data_end: directory.data_end,
        archive_bytes,
        open_infallible: index.open_infallible,
    };
    let length = HEAD_BYTES + head.lengths()?.iter().sum::<usize>();
    if length as u64 > max_bytes {
        return None;
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.extend_from_slice(&head.to_bytes());
    for node in &index.nodes {
        bytes.extend_from_slice(&node.to_bytes());
    }
    for position in &index.order {
        bytes.extend_from_slice(&position.0.to_le_bytes());
    }
    bytes.extend_from_slice(&index.names);
    bytes.extend_from_slice(notes.as_bytes());
    Some(bytes)
}

/// Returns how much memory restoring `length` bytes takes, in bytes, while they are held.
pub(in crate::store::zip) fn deserialized_bytes(length: u64) -> u64 {
    // Hashes are held while the table is built.
    let each = name_table::BYTES_PER_NODE + size_of::<u64>() as u64;
    let nodes = length / (NODE_BYTES as u64 + size_of::<u32>() as u64);
    length.saturating_add(nodes.saturating_mul(each))
}

/// Parses a serialized directory of an archive of `archive_bytes`; `None` if the bytes are not complete
/// and consistent.
pub(in crate::store::zip) fn deserialize(bytes: &[u8], archive_bytes: u64) -> Option<Directory> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let head = Head::from_bytes(head).filter(|head| head.archive_bytes == archive_bytes)?;
    let [nodes, order, names, notes] = head.lengths()?;
    let (nodes, rest) = rest.split_at_checked(nodes)?;
    let (order, rest) = rest.split_at_checked(order)?;
    let (names, rest) = rest.split_at_checked(names)?;
    if rest.len() != notes {
        return None;
    }
    let notes = std::str::from_utf8(rest).ok()?;
    let names = copy(names.iter().copied())?;
    let order: Vec<Position> =
        copy((order.as_chunks().0.iter()).map(|bytes| Position(u32::from_le_bytes(*bytes))))?;
    let records = nodes.as_chunks::<NODE_BYTES>().0;
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(records.len()).ok()?;
    for (at, record) in records.iter().enumerate() {
        let node = Node::from_bytes(record)?;
        if !node.is_consistent(at, names.len(), order.len()) {
            return None;
        }
        nodes.push(node);
    }
    let is_node = |position: &Position| (position.0 as usize) < nodes.len();
    if u32::try_from(nodes.len()).is_err() || !order.iter().all(is_node) {
        return None;
    }
    let name_of = name_of(&nodes, &names);
    let by_name = NameTable::of_nodes(nodes.len(), machine::cores(), name_of).ok()?;
    Some(Directory {
        index: ZipIndex {
            nodes,
            names,
            order,
            by_name,
            open_infallible: head.open_infallible,
        },
        data_end: head.data_end,
        notes: notes.lines().map(str::to_owned).collect(),
    })
}

impl Node {
    fn to_bytes(&self) -> [u8; NODE_BYTES] {
        let long = [self.header_offset, self.compressed_bytes, self.size_bytes];
        let short = [self.name_start, self.parent, self.crc, self.modified_unix];
        let long = long.iter().flat_map(|number| number.to_le_bytes());
        let short = short.iter().flat_map(|number| number.to_le_bytes());
        array(
            long.chain(short)
                .chain([self.name_length, self.method as u8]),
        )
    }

    fn from_bytes(bytes: &[u8; NODE_BYTES]) -> Option<Self> {
        let (long, rest) = bytes.split_first_chunk::<24>()?;
        let (short, rest) = rest.split_first_chunk::<16>()?;
        let [a, b, c] = long.as_chunks::<8>().0 else {
            return None;
        };
        let [d, e, f, g] = short.as_chunks::<4>().0 else {
            return None;
        };
        let [name_length, method, 0, 0, 0, 0, 0, 0] = *rest else {
            return None;
        };
        Some(Self {
            name_start: u32::from_le_bytes(*d),
            parent: u32::from_le_bytes(*e),
            crc: u32::from_le_bytes(*f),
            modified_unix: u32::from_le_bytes(*g),
            state: AtomicU32::new(0),
            name_length,
            method: EntryMethod::from_number(method)?,
            header_offset: u64::from_le_bytes(*a),
            compressed_bytes: u64::from_le_bytes(*b),
            size_bytes: u64::from_le_bytes(*c),
        })
    }

    /// Whether all parts that a node refers to exist, and its directory precedes it.
    fn is_consistent(&self, at: usize, names: usize, order: usize) -> bool {
        let name_end = self.name_start as usize + usize::from(self.name_length);
        let is_directory = self.method == EntryMethod::Directory;
        let is_placed = match at {
            0 => is_directory && self.parent == 0,
            at => (self.parent as usize) < at && self.name_length > 0,
        };
        let children_end = self.header_offset.checked_add(self.compressed_bytes);
        is_placed
            && name_end <= names
            && (!is_directory || children_end.is_some_and(|end| end <= order as u64))
    }
}

impl EntryMethod {
    fn from_number(number: u8) -> Option<Self> {
        let all = [
            Self::Directory,
            Self::Stored,
            Self::Deflated,
            Self::Zstd,
            Self::Encrypted,
            Self::UnsupportedMethod,
            Self::Split,
            Self::Overlapping,
            Self::OutOfBounds,
            Self::ImpossibleSize,
            Self::Bzip2,
            Self::Lzma,
            Self::Xz,
        ];
        all.into_iter().find(|method| *method as u8 == number)
    }
}

/// Collects bytes into an array, padded with 0.
fn array<const N: usize>(bytes: impl Iterator<Item = u8>) -> [u8; N] {
    let mut all = [0; N];
    for (place, byte) in all.iter_mut().zip(bytes) {
        *place = byte;
    }
    all
}

fn copy<T>(items: impl ExactSizeIterator<Item = T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(items.len()).ok()?;
    all.extend(items);
    Some(all)
}
