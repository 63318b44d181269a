//! Dense attribute storage, for objects with an attribute that is too large for a message: a fractal heap
//! (III.G) and a version 2 B-tree (III.A.2) of the names.
//!
//! The storage holds all attributes of such an object, each as a "huge" object of the heap: bytes in the
//! file, which a second B-tree finds. The heap itself has no blocks. Both trees consist of one leaf.

use super::attribute::Attribute;
use super::object::Writer;
use super::{UNDEFINED, checksum};

/// Size of a heap header in bytes.
const HEAP_BYTES: usize = 146;
/// Size of a tree header in bytes.
const TREE_BYTES: usize = 38;
/// Size of a leaf without its records, in bytes: signature, version, type, checksum.
const LEAF_BYTES: usize = 10;
/// The minimum size of a leaf, which is the size in the library.
const MIN_LEAF_BYTES: usize = 512;

/// The type of each tree and the size of its records in bytes.
const HUGE_OBJECTS: (u8, u16) = (1, 24);
const NAMES: (u8, u16) = (8, 17);

/// Returns whether attributes need dense storage.
pub(super) fn is_needed(attributes: &[Attribute]) -> bool {
    !attributes.iter().all(Attribute::fits)
}

/// Encodes the attribute info message (IV.A.2.v) of an object, with the address of its dense storage, if any,
/// and without a creation order.
pub(super) fn info(storage: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    let (heap, names) = match storage {
        Some(start) => (start, start.saturating_add(HEAP_BYTES as u64)),
        None => (UNDEFINED, UNDEFINED),
    };
    bytes.extend(heap.to_le_bytes());
    bytes.extend(names.to_le_bytes());
    bytes
}

/// Encodes the storage at this address: heap header, tree headers, leaves, attributes. Its size does not
/// depend on addresses.
pub(super) fn encode(attributes: &[Attribute], writer: &Writer, start: u64) -> Vec<u8> {
    let messages: Vec<Vec<u8>> = (attributes.iter())
        .map(|attribute| attribute.encode(writer))
        .collect();
    let count = messages.len();
    let at = |offset: usize| start.saturating_add(offset as u64);
    let huge_tree = HEAP_BYTES + TREE_BYTES;
    let names_leaf = huge_tree + TREE_BYTES;
    let huge_leaf = names_leaf + leaf_bytes(NAMES, count);
    let mut end = huge_leaf + leaf_bytes(HUGE_OBJECTS, count);

    let mut huge_objects = Vec::with_capacity(count);
    for (id, message) in (1_u64..).zip(&messages) {
        let numbers = [at(end), message.len() as u64, id];
        huge_objects.push(numbers.map(u64::to_le_bytes).concat());
        end += message.len();
    }
    let mut bytes = heap_header(&messages, at(huge_tree));
    bytes.extend(tree_header(NAMES, count, at(names_leaf)));
    bytes.extend(tree_header(HUGE_OBJECTS, count, at(huge_leaf)));
    bytes.extend(leaf(NAMES, &names(attributes)));
    bytes.extend(leaf(HUGE_OBJECTS, &huge_objects));
    bytes.extend(messages.into_iter().flatten());
    bytes
}

/// Returns the records of attributes by name, sorted by hash and name: heap ID, message flags, creation
/// order, hash.
fn names(attributes: &[Attribute]) -> Vec<Vec<u8>> {
    let mut keys: Vec<(u32, &str, u64)> = (attributes.iter())
        .zip(1_u64..)
        .map(|(attribute, id)| (checksum(attribute.name.as_bytes()), &attribute.name[..], id))
        .collect();
    keys.sort_unstable();
    let record = |(hash, _, id): (u32, &str, u64)| {
        // A huge object, with a 7-byte index.
        let mut record = vec![0x10];
        record.extend(id.to_le_bytes().iter().take(7));
        record.push(0);
        record.extend(u32::try_from(id - 1).unwrap_or(u32::MAX).to_le_bytes());
        record.extend(hash.to_le_bytes());
        record
    };
    keys.into_iter().map(record).collect()
}

/// Encodes a fractal heap header with the parameters that the library uses for attributes.
fn heap_header(messages: &[Vec<u8>], huge_tree: u64) -> Vec<u8> {
    let (id_bytes, flags, max_managed_bytes) = (8_u16, 0b10_u8, 4096_u32);
    let count = messages.len() as u64;
    let total_bytes: u64 = messages.iter().map(|message| message.len() as u64).sum();
    let mut bytes = b"FRHP\0".to_vec();
    bytes.extend(id_bytes.to_le_bytes());
    // No filters.
    bytes.extend([0, 0, flags]);
    bytes.extend(max_managed_bytes.to_le_bytes());
    // Last index of a huge object and tree of huge objects; free space of managed blocks and its manager;
    // managed space, allocated space, offset, objects; huge bytes, huge objects; tiny bytes, tiny objects.
    let numbers = [
        count,
        huge_tree,
        0,
        UNDEFINED,
        0,
        0,
        0,
        0,
        total_bytes,
        count,
        0,
        0,
    ];
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    // Width of the doubling table, sizes of the first and of the largest block, bits of the heap's size,
    // first rows, address of the root block, its rows.
    bytes.extend(4_u16.to_le_bytes());
    bytes.extend([1024, 65_536].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend([40, 1].into_iter().flat_map(u16::to_le_bytes));
    bytes.extend(UNDEFINED.to_le_bytes());
    bytes.extend([0, 0]);
    sealed(bytes)
}

fn tree_header((kind, record_bytes): (u8, u16), count: usize, root: u64) -> Vec<u8> {
    let node_bytes = u32::try_from(leaf_bytes((kind, record_bytes), count)).unwrap_or(u32::MAX);
    let mut bytes = b"BTHD\0".to_vec();
    bytes.push(kind);
    bytes.extend(node_bytes.to_le_bytes());
    bytes.extend(record_bytes.to_le_bytes());
    // Depth, and the fill levels in percent at which nodes are split and merged.
    bytes.extend([0, 0, 100, 40]);
    bytes.extend(root.to_le_bytes());
    bytes.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend((count as u64).to_le_bytes());
    sealed(bytes)
}

fn leaf_bytes((_, record_bytes): (u8, u16), count: usize) -> usize {
    (LEAF_BYTES + count * usize::from(record_bytes)).max(MIN_LEAF_BYTES)
}

fn leaf(tree: (u8, u16), records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"BTLF\0".to_vec();
    bytes.push(tree.0);
    bytes.extend(records.iter().flatten());
    let mut bytes = sealed(bytes);
    bytes.resize(leaf_bytes(tree, records.len()), 0);
    bytes
}

/// Appends the checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::encode::hdf5::{Datatype, Payload};

    fn attribute(name: &str, size: usize) -> Attribute {
        Attribute {
            name: name.to_owned(),
            datatype: Datatype::Opaque(size),
            payload: Payload::One(vec![7; size]),
        }
    }

    #[test]
    fn each_attribute_is_found_by_its_name_and_number() {
        let attributes: Vec<Attribute> = (0..100)
            .map(|number| attribute(&format!("a{number}"), 700 * number))
            .collect();
        assert!(is_needed(&attributes) && !is_needed(&attributes[..90]));
        let writer = Writer::nowhere();
        let start = 1 << 32;
        let bytes = encode(&attributes, &writer, start);
        assert_eq!(bytes.len(), encode(&attributes, &writer, 0).len());
        let number = |at: usize, size: usize| {
            let bytes = bytes[at..at + size].iter().rev();
            bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let names = HEAP_BYTES + 2 * TREE_BYTES + 6;
        let huge = HEAP_BYTES + 2 * TREE_BYTES + leaf_bytes(NAMES, 100) + 6;
        let mut last = 0;
        for place in 0..100 {
            let record = names + 17 * place;
            let (id, hash) = (number(record + 1, 7), number(record + 13, 4));
            assert!(hash >= last && bytes[record] == 0x10);
            last = hash;
            let expected = &attributes[usize::try_from(id - 1).unwrap()];
            assert_eq!(hash, u64::from(checksum(expected.name.as_bytes())));
            let found = huge + 24 * usize::try_from(id - 1).unwrap();
            assert_eq!(number(found + 16, 8), id);
            let at = usize::try_from(number(found, 8) - start).unwrap();
            let size = usize::try_from(number(found + 8, 8)).unwrap();
            assert_eq!(bytes[at..at + size], expected.encode(&writer));
        }
    }
}
