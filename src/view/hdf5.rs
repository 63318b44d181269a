//! The beginning of an HDF5 file: everything but the elements (HDF5 File Format Specification
//! Version 3.0). Superblock version 2, object headers version 2, groups with compact links in the
//! order of their creation, datasets contiguous or in chunks with an implicit index, so that the
//! header of a file does not grow with the number of chunks.
//!
//! Addresses are known only when all sizes are. Nothing that is written is longer for another
//! address: objects are written once to be measured and once for good.

mod attribute;
mod datatype;
mod object;

pub(super) use attribute::{Attribute, Payload};
pub(super) use datatype::Datatype;
pub(super) use object::{Dataset, Group, Storage};

use object::Writer;

/// The address of what is nowhere.
const UNDEFINED: u64 = u64::MAX;
const SUPERBLOCK_BYTES: u64 = 48;

/// An object of a file: its number is its place in [`File::objects`], where the first one is the
/// root group.
#[derive(Debug)]
pub(super) enum Object {
    Group(Group),
    Dataset(Dataset),
}

/// All objects of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) objects: Vec<Object>,
    /// Objects that attributes of variable length refer to; each is one entry of a heap.
    pub(super) referred: Vec<usize>,
}

/// A heap has at most so many objects: their numbers have 16 bits.
const MAX_HEAP_OBJECTS: usize = 60_000;
/// The smallest heap that the library reads.
const MIN_HEAP_BYTES: usize = 4096;

impl File {
    /// Bytes that [`File::header`] writes, so that the elements can be put behind them.
    pub(super) fn header_bytes(&self) -> u64 {
        let sizes = self.sizes();
        SUPERBLOCK_BYTES + sizes.iter().sum::<u64>() + self.heaps_bytes()
    }

    fn sizes(&self) -> Vec<u64> {
        let nowhere = Writer::nowhere();
        let sizes = self.objects.iter();
        sizes
            .map(|object| object.encode(&nowhere).len() as u64)
            .collect()
    }

    /// Says where the elements of a dataset begin.
    pub(super) fn place(&mut self, object: usize, start: u64) {
        if let Some(Object::Dataset(dataset)) = self.objects.get_mut(object)
            && let Storage::Contiguous(address) | Storage::Chunked(address, _) =
                &mut dataset.storage
        {
            *address = start;
        }
    }

    /// Writes the header of a file of `end` bytes in all, once all datasets have their places.
    pub(super) fn header(&self, end: u64) -> Vec<u8> {
        let mut addresses = Vec::with_capacity(self.objects.len());
        let mut at = SUPERBLOCK_BYTES;
        for size in self.sizes() {
            addresses.push(at);
            at += size;
        }
        let heaps = at;
        let writer = Writer {
            heap_addresses: heap_addresses(heaps, self.referred.len()),
            objects: addresses,
        };
        let mut bytes = superblock(end, writer.object(0));
        for object in &self.objects {
            bytes.extend(object.encode(&writer));
        }
        for referred in self.referred.chunks(MAX_HEAP_OBJECTS) {
            bytes.extend(heap(referred, &writer));
        }
        bytes
    }

    fn heaps_bytes(&self) -> u64 {
        let heaps = self.referred.chunks(MAX_HEAP_OBJECTS);
        heaps.map(|heap| heap_bytes(heap.len()) as u64).sum()
    }
}

/// Superblock version 2 (II.A).
fn superblock(end: u64, root: u64) -> Vec<u8> {
    let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
    // Version, sizes of offsets and of lengths, flags.
    bytes.extend([2, 8, 8, 0]);
    for address in [0, UNDEFINED, end, root] {
        bytes.extend(address.to_le_bytes());
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Header, one entry of 24 bytes for each object, and the entry of what is free.
fn heap_bytes(objects: usize) -> usize {
    (16 + 24 * objects + 16)
        .next_multiple_of(8)
        .max(MIN_HEAP_BYTES)
}

fn heap_addresses(first: u64, objects: usize) -> Vec<u64> {
    let mut addresses = Vec::new();
    let (mut at, mut left) = (first, objects);
    while left > 0 {
        let here = left.min(MAX_HEAP_OBJECTS);
        addresses.push(at);
        at += heap_bytes(here) as u64;
        left -= here;
    }
    addresses
}

/// A global heap collection (III.E) whose entries are references to objects.
fn heap(referred: &[usize], writer: &Writer) -> Vec<u8> {
    let size = heap_bytes(referred.len());
    let mut bytes = b"GCOL\x01\0\0\0".to_vec();
    bytes.extend((size as u64).to_le_bytes());
    for (number, object) in (1_u16..).zip(referred) {
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(8_u64.to_le_bytes());
        bytes.extend(writer.object(*object).to_le_bytes());
    }
    // Entry 0 is what is free, itself included.
    let free = size - bytes.len();
    bytes.extend([0; 8]);
    bytes.extend((free as u64).to_le_bytes());
    bytes.resize(size, 0);
    bytes
}

/// Metadata checksums are lookup3 (III, "Checksums").
fn checksum(bytes: &[u8]) -> u32 {
    crate::codec::lookup3(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_as_long_as_they_say() {
        let writer = Writer {
            objects: vec![7; 10],
            heap_addresses: Vec::new(),
        };
        for count in [0, 1, 10, 500] {
            let referred = vec![3; count];
            let heap = heap(&referred, &writer);
            assert_eq!(heap.len(), heap_bytes(count));
            assert!(heap.len() >= MIN_HEAP_BYTES && heap.starts_with(b"GCOL"));
        }
        let addresses = heap_addresses(100, MAX_HEAP_OBJECTS + 1);
        let second = 100 + heap_bytes(MAX_HEAP_OBJECTS) as u64;
        assert_eq!(addresses, [100, second]);
    }

    #[test]
    fn a_superblock_has_its_checksum() {
        let block = superblock(4096, 48);
        assert_eq!(block.len() as u64, SUPERBLOCK_BYTES);
        let (body, sum) = block.split_at(44);
        assert_eq!(sum, checksum(body).to_le_bytes());
    }
}
