//! The chunk index of a dataset: a version 1 B-tree (III.A.1), which all versions of the library and other
//! readers support.
//!
//! Decoded chunks have one size and are consecutive in C order over the grid: keys and addresses follow from
//! the index of a node. For stored chunks, they follow from the table of chunk sizes; chunks that are not
//! stored have no entry. Nodes are computed when they are read, so the tree takes no memory.
//!
//! Nodes are in level order, the root first and the leaves last.

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::UNDEFINED;
use crate::array::{ArrayReader, ChunkTable, ServedVersions};
use crate::store::StoreError;
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::{RenderedContent, SegmentContent};

/// Entries of a node: twice the "indexed storage internal node K", which is 32 for a superblock without an
/// extension.
const NODE_ENTRIES: u64 = 64;
/// Signature, type, level, number of entries, addresses of both siblings.
const NODE_HEADER_BYTES: u64 = 24;
/// Size of a chunk and its filter mask, before its offsets.
const KEY_HEADER_BYTES: u64 = 8;
/// Size of an address, and of the offset of a chunk along an axis, in bytes.
const WORD_BYTES: u64 = 8;

/// The chunk index of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct ChunkIndex {
    /// Address of the root.
    start: u64,
    /// Address of the first chunk.
    chunks_start: u64,
    /// The axes of the array, followed by an axis for the bytes of an element.
    axes: Vec<Axis>,
    chunk_bytes: u32,
    /// Number of chunks that have an entry.
    chunks: u64,
    /// The sizes of the stored chunks, if chunks are stored as in the array.
    table: Option<Arc<ChunkTable>>,
    /// Number of nodes of each level, the root first.
    levels: Vec<u64>,
    size_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Axis {
    /// Number of elements of a chunk along the axis.
    extent: u64,
    /// Number of chunks along the axis.
    count: u64,
}

/// One level of the tree.
struct Level {
    /// The height; 0 for the leaves.
    height: u32,
    /// The index of its first node.
    first: u64,
    nodes: u64,
}

impl ChunkIndex {
    /// Returns the index of an array of `shape` with chunks of this shape and elements of `item_bytes`.
    /// `None` if the array has no chunks, or HDF5 does not support their size or number. [`Self::place`] sets
    /// the addresses.
    pub(in crate::view) fn new(shape: &[u64], chunk: &[u64], item_bytes: u64) -> Option<Self> {
        let axes = axes(shape, chunk, item_bytes);
        let chunks = product(&axes, |axis| axis.count)?;
        let index = Self::of_entries(axes, chunks)?;
        // Index and chunks must fit in one file.
        let chunks_bytes = chunks.checked_mul(index.chunk_bytes.into())?;
        index.size_bytes.checked_add(chunks_bytes)?;
        Some(index)
    }

    /// Returns the index of the stored chunks of a table. `None` also if HDF5 does not support the size of a
    /// stored chunk.
    pub(in crate::view) fn of_stored(
        shape: &[u64],
        chunk: &[u64],
        item_bytes: u64,
        table: Arc<ChunkTable>,
    ) -> Option<Self> {
        u32::try_from(table.largest_bytes()).ok()?;
        let index = Self::of_entries(axes(shape, chunk, item_bytes), table.len())?;
        index.size_bytes.checked_add(table.size_bytes())?;
        let table = Some(table);
        Some(Self { table, ..index })
    }

    /// Returns an index with this number of entries.
    fn of_entries(axes: Vec<Axis>, chunks: u64) -> Option<Self> {
        let chunk_bytes = u32::try_from(product(&axes, |axis| axis.extent)?).ok()?;
        if chunks == 0 || chunk_bytes == 0 {
            return None;
        }
        let mut levels = vec![chunks.div_ceil(NODE_ENTRIES)];
        while let Some(nodes) = levels.last().filter(|nodes| **nodes > 1) {
            levels.push(nodes.div_ceil(NODE_ENTRIES));
        }
        levels.reverse();
        let nodes = levels
            .iter()
            .try_fold(0_u64, |n, nodes| n.checked_add(*nodes))?;
        let size_bytes = nodes.checked_mul(node_bytes(axes.len()))?;
        Some(Self {
            start: 0,
            chunks_start: 0,
            axes,
            chunk_bytes,
            chunks,
            table: None,
            levels,
            size_bytes,
        })
    }

    /// Sets the addresses of the index and of the first chunk.
    pub(in crate::view) fn place(&mut self, start: u64, chunks_start: u64) {
        (self.start, self.chunks_start) = (start, chunks_start);
    }

    /// Returns the size of all nodes in bytes.
    pub(in crate::view) fn nodes_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the size of all chunks in bytes.
    pub(in crate::view) fn chunks_bytes(&self) -> u64 {
        match &self.table {
            Some(table) => table.size_bytes(),
            None => self.chunks.saturating_mul(self.chunk_bytes.into()),
        }
    }

    /// Fills `target` with the bytes of the index from `offset`; `None` beyond its end.
    fn render(&self, offset: u64, target: &mut [u8]) -> Option<()> {
        let node_bytes = node_bytes(self.axes.len());
        let mut node = Vec::new();
        let (mut at, mut rest) = (offset, target);
        while !rest.is_empty() {
            node.clear();
            self.encode(at / node_bytes, &mut node)?;
            let bytes = node.get(usize::try_from(at % node_bytes).ok()?..)?;
            let count = bytes.len().min(rest.len());
            let (filled, left) = rest.split_at_mut_checked(count)?;
            filled.copy_from_slice(bytes.get(..count)?);
            at = at.checked_add(count as u64)?;
            rest = left;
        }
        Some(())
    }

    /// Returns the level of a node.
    fn level(&self, number: u64) -> Option<Level> {
        let mut first = 0;
        for (height, nodes) in (0..u32::try_from(self.levels.len()).ok()?)
            .rev()
            .zip(&self.levels)
        {
            if number - first < *nodes {
                let nodes = *nodes;
                return Some(Level {
                    height,
                    first,
                    nodes,
                });
            }
            first += nodes;
        }
        None
    }

    /// Encodes the node with this index.
    fn encode(&self, number: u64, bytes: &mut Vec<u8>) -> Option<()> {
        let level = self.level(number)?;
        let place = number - level.first;
        // The number of chunks below each entry.
        let span = NODE_ENTRIES.saturating_pow(level.height);
        let first = place.checked_mul(NODE_ENTRIES)?.checked_mul(span)?;
        let below = self.chunks.checked_sub(first)?;
        let entries = below.div_ceil(span).min(NODE_ENTRIES);
        bytes.extend(b"TREE\x01");
        bytes.push(u8::try_from(level.height).ok()?);
        bytes.extend(u16::try_from(entries).ok()?.to_le_bytes());
        let left = number.checked_sub(1).filter(|_| place > 0);
        let right = number.checked_add(1).filter(|_| place + 1 < level.nodes);
        for sibling in [left, right] {
            let address = sibling.map_or(UNDEFINED, |sibling| self.address(sibling));
            bytes.extend(address.to_le_bytes());
        }
        for entry in 0..entries {
            let chunk = first + entry * span;
            self.encode_key(chunk, bytes)?;
            let child = match level.height {
                0 => self.chunk_start(chunk)?,
                _ => self.address(level.first + level.nodes + place * NODE_ENTRIES + entry),
            };
            bytes.extend(child.to_le_bytes());
        }
        let end = first.saturating_add(entries.saturating_mul(span));
        self.encode_key(end.min(self.chunks), bytes)?;
        // Each node has the size of a full node, because the library reads full nodes.
        bytes.resize(usize::try_from(node_bytes(self.axes.len())).ok()?, 0);
        Some(())
    }

    /// Returns the address of a chunk, by its entry.
    fn chunk_start(&self, chunk: u64) -> Option<u64> {
        let offset = match &self.table {
            Some(table) => table.range(chunk)?.start,
            None => chunk * u64::from(self.chunk_bytes),
        };
        self.chunks_start.checked_add(offset)
    }

    /// Returns the index of a chunk in C order over the grid and its size, by its entry.
    fn chunk(&self, chunk: u64) -> Option<(u64, u32)> {
        let Some(table) = &self.table else {
            return Some((chunk, self.chunk_bytes));
        };
        let range = table.range(chunk)?;
        let size = u32::try_from(range.end - range.start).ok()?;
        Some((table.number(chunk)?, size))
    }

    fn address(&self, node: u64) -> u64 {
        self.start + node * node_bytes(self.axes.len())
    }

    /// Encodes the key of a chunk. The key after the last chunk has the offsets of that chunk, with one more
    /// element along the axis of element bytes, and size 0.
    fn encode_key(&self, chunk: u64, bytes: &mut Vec<u8>) -> Option<()> {
        let is_end = chunk == self.chunks;
        let (number, size) = self.chunk(chunk - u64::from(is_end))?;
        let size = if is_end { 0 } else { size };
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 4]);
        let start = bytes.len();
        bytes.resize(start + size_of::<u64>() * self.axes.len(), 0);
        let (offsets, _) = bytes.get_mut(start..)?.as_chunks_mut();
        let mut rest = number;
        for (offset, axis) in offsets.iter_mut().zip(&self.axes).rev() {
            *offset = (rest % axis.count * axis.extent).to_le_bytes();
            rest /= axis.count;
        }
        if let (true, Some(offset), Some(item)) = (is_end, offsets.last_mut(), self.axes.last()) {
            *offset = item.extent.to_le_bytes();
        }
        Some(())
    }
}

impl SegmentContent for ChunkIndex {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn memory_bytes(&self) -> u64 {
        let lists = size_of_val(&self.axes[..]) + size_of_val(&self.levels[..]);
        (size_of::<Self>() + lists) as u64
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        // The sizes of stored chunks are in the table of the file; the rest follows from these and the header.
        for word in [self.start, self.chunks_start, self.chunks, self.size_bytes] {
            hasher.write_u64(word);
        }
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        Some(SegmentSlice::Rendered(self, range))
    }
}

#[async_trait]
impl RenderedContent for ChunkIndex {
    async fn read(
        &self,
        _: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        _: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        let missing = || StoreError::internal("an index of chunks that is too short");
        self.render(range.start, target).ok_or_else(missing)
    }
}

/// Returns the axes of an array, and the axis for the bytes of an element.
fn axes(shape: &[u64], chunk: &[u64], item_bytes: u64) -> Vec<Axis> {
    let lengths = shape.iter().zip(chunk).map(|(length, extent)| Axis {
        extent: *extent,
        count: length.checked_next_multiple_of(*extent).unwrap_or(0) / (*extent).max(1),
    });
    let item = Axis {
        extent: item_bytes,
        count: 1,
    };
    lengths.chain([item]).collect()
}

fn product(axes: &[Axis], of: fn(&Axis) -> u64) -> Option<u64> {
    axes.iter()
        .try_fold(1_u64, |n, axis| n.checked_mul(of(axis)))
}

/// Returns the size of a node whose keys have one offset for each axis.
fn node_bytes(axes: usize) -> u64 {
    let key_bytes = KEY_HEADER_BYTES + WORD_BYTES * axes as u64;
    NODE_HEADER_BYTES + NODE_ENTRIES * WORD_BYTES + (NODE_ENTRIES + 1) * key_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u64 {
        let bytes = bytes.iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn read(index: &ChunkIndex, offset: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0xAA; size];
        index.render(offset, &mut bytes).unwrap();
        bytes
    }

    /// A decoded node.
    struct Node {
        height: u8,
        siblings: [u64; 2],
        /// One key more than children: the size of the chunk, and its offsets.
        keys: Vec<(u64, Vec<u64>)>,
        children: Vec<u64>,
    }

    fn node(index: &ChunkIndex, address: u64) -> Node {
        let size = usize::try_from(node_bytes(index.axes.len())).unwrap();
        let bytes = read(index, address - index.start, size);
        assert_eq!(bytes[..5], *b"TREE\x01");
        let entries = number(&bytes[6..8]);
        assert!((1..=NODE_ENTRIES).contains(&entries));
        let mut at = 24;
        let mut take = |size: usize| {
            at += size;
            number(&bytes[at - size..at])
        };
        let (mut keys, mut children) = (Vec::new(), Vec::new());
        for entry in 0..=entries {
            let (size, mask) = (take(4), take(4));
            assert_eq!(mask, 0);
            keys.push((size, index.axes.iter().map(|_| take(8)).collect()));
            if entry < entries {
                children.push(take(8));
            }
        }
        assert!(bytes[at..].iter().all(|byte| *byte == 0));
        Node {
            height: bytes[5],
            siblings: [number(&bytes[8..16]), number(&bytes[16..24])],
            keys,
            children,
        }
    }

    /// Walks a tree, and returns the offsets and the address of each chunk.
    fn walk(index: &ChunkIndex) -> Vec<(Vec<u64>, u64)> {
        let mut level = vec![index.start];
        loop {
            let nodes: Vec<Node> = level.iter().map(|at| node(index, *at)).collect();
            for (place, node) in nodes.iter().enumerate() {
                let left = place.checked_sub(1).map_or(UNDEFINED, |left| level[left]);
                let right = level.get(place + 1).copied().unwrap_or(UNDEFINED);
                assert_eq!(node.siblings, [left, right]);
                assert!(node.keys.is_sorted_by(|a, b| a.1 < b.1));
                // The next node begins at the end of a node.
                let end = node.keys.last().unwrap();
                assert_eq!(nodes.get(place + 1).map_or(end, |next| &next.keys[0]), end);
            }
            let height = nodes[0].height;
            assert!(nodes.iter().all(|node| node.height == height));
            let (size, end) = nodes.last().unwrap().keys.last().unwrap();
            assert_eq!(*size, 0);
            let last_chunk = index.axes.iter();
            let last_chunk = last_chunk.map(|axis| (axis.count - 1) * axis.extent);
            assert!(end.iter().copied().gt(last_chunk));
            if height == 0 {
                let entries = nodes.into_iter().flat_map(|node| {
                    let starts = node.keys.into_iter().map(|(_, offsets)| offsets);
                    starts.zip(node.children).collect::<Vec<_>>()
                });
                return entries.collect();
            }
            level = nodes.into_iter().flat_map(|node| node.children).collect();
        }
    }

    #[test]
    fn the_index_has_the_offset_of_each_chunk() {
        for (shape, chunk, levels) in [
            (&[7, 5][..], &[2, 5][..], 1),
            (&[64], &[1], 1),
            (&[65], &[1], 2),
            (&[130, 99, 3], &[2, 1, 2], 3),
        ] {
            let mut index = ChunkIndex::new(shape, chunk, 4).unwrap();
            index.place(1000, 1_000_000);
            assert_eq!(index.levels.len(), levels);
            let found = walk(&index);
            assert_eq!(found.len() as u64, index.chunks);
            let chunk_bytes = 4 * chunk.iter().product::<u64>();
            assert_eq!(index.chunks_bytes(), found.len() as u64 * chunk_bytes);
            for (place, (offsets, address)) in (0..).zip(found) {
                assert_eq!(address, 1_000_000 + place * chunk_bytes);
                let inside = offsets.iter().zip(shape.iter().chain([&1]));
                assert!(inside.clone().all(|(offset, length)| offset < length));
                let steps = offsets.iter().zip(chunk.iter().chain([&4]));
                assert!(steps.clone().all(|(offset, extent)| offset % extent == 0));
            }
        }
    }

    #[test]
    fn any_range_of_a_tree_of_many_chunks_is_read_by_itself() {
        // 10^12 chunks: some 60 TB of nodes.
        let mut index = ChunkIndex::new(&[1_000_000, 1_000_000], &[1, 1], 8).unwrap();
        index.place(1 << 20, 1 << 50);
        assert_eq!(
            index.levels,
            [1, 15, 932, 59_605, 3_814_698, 244_140_625, 15_625_000_000]
        );
        assert!(index.memory_bytes() < 1000);
        let whole = read(&index, 0, 10_000);
        for (offset, size) in [(0, 1), (5, 20), (2599, 3), (2600, 2600), (1, 9999)] {
            let start = usize::try_from(offset).unwrap();
            assert_eq!(read(&index, offset, size), whole[start..start + size]);
        }
        let last = node(&index, index.start + index.nodes_bytes() - node_bytes(3));
        assert_eq!(last.height, 0);
        assert_eq!(last.keys.last().unwrap(), &(0, vec![999_999, 999_999, 8]));
        let chunk = *last.children.last().unwrap();
        assert_eq!(chunk, (1 << 50) + 8 * (1_000_000_000_000 - 1));
        assert_eq!(index.render(index.nodes_bytes() - 1, &mut [0; 2]), None);
    }

    #[test]
    fn a_node_matches_that_of_the_library() {
        // From a file of h5py 3.16: `create_dataset("a", (3, 5), "<i2", chunks=(2, 3))`, with the addresses
        // of its chunks, which are consecutive there as well.
        let mut index = ChunkIndex::new(&[3, 5], &[2, 3], 2).unwrap();
        index.place(0x320, 0x1000);
        let mut expected = b"TREE\x01\0\x04\0".to_vec();
        expected.extend([0xFF; 16]);
        for (size, offsets, child) in [
            (12, [0, 0, 0], Some(0x1000_u64)),
            (12, [0, 3, 0], Some(0x100C)),
            (12, [2, 0, 0], Some(0x1018)),
            (12, [2, 3, 0], Some(0x1024)),
            (0, [2, 3, 2_u64], None),
        ] {
            expected.extend(u64::to_le_bytes(size));
            expected.extend(offsets.into_iter().flat_map(u64::to_le_bytes));
            expected.extend(child.into_iter().flat_map(u64::to_le_bytes));
        }
        let size = usize::try_from(node_bytes(3)).unwrap();
        expected.resize(size, 0);
        assert_eq!(read(&index, 0, size), expected);
        assert_eq!(index.nodes_bytes(), size as u64);
    }

    #[test]
    fn chunks_that_hdf5_cannot_have_get_no_index() {
        assert_eq!(ChunkIndex::new(&[0], &[1], 4), None);
        assert_eq!(ChunkIndex::new(&[4], &[0], 4), None);
        assert_eq!(ChunkIndex::new(&[1 << 31], &[1 << 30], 4), None);
        assert!(ChunkIndex::new(&[1 << 31], &[(1 << 30) - 1], 4).is_some());
        assert_eq!(ChunkIndex::new(&[1 << 40, 1 << 40], &[1, 1], 4), None);
        assert_eq!(ChunkIndex::new(&[u64::MAX], &[2], 4), None);
        assert_eq!(ChunkIndex::new(&[1 << 59], &[1], 8), None);
    }
}
