//! HDF5 encoder: all parts of a file before the elements (HDF5 File Format Specification Version 3.0), for
//! HDF5 1.8 and later. Superblock version 2, object headers version 2, groups with compact links in creation
//! order, contiguous or chunked datasets. Reads compute the chunk index, so the header does not grow with the
//! number of chunks.
//!
//! Attributes that are too large for a message are in dense storage.
//!
//! Addresses follow from the sizes of all objects, which do not depend on addresses. Objects are encoded once
//! to measure them and once more with their addresses.

mod attribute;
mod chunk_index;
mod datatype;
mod dense;
pub(in crate::view) mod file_body;
mod filter;
mod object;
pub(in crate::view) mod record_encoding;

use std::borrow::Cow;
use std::collections::HashMap;

pub(in crate::view) use attribute::{Attribute, Payload};
pub(in crate::view) use chunk_index::ChunkIndex;
pub(in crate::view) use datatype::{Datatype, Member};
pub(in crate::view) use filter::{Filter, MAX_FILTERS};
pub(in crate::view) use object::{Chunks, Dataset, Group, MAX_LINK_NAME_BYTES, MAX_RANK, Storage};

pub(in crate::view) use object::Writer;

/// The undefined address.
pub(in crate::view) const UNDEFINED: u64 = u64::MAX;
const SUPERBLOCK_BYTES: u64 = 48;

/// An object of a file, identified by its index in [`File::objects`]. The first object is the root group.
#[derive(Debug)]
pub(in crate::view) enum Object {
    Group(Group),
    Dataset(Dataset),
    /// A named (committed) datatype, and the number of datasets that use it.
    Datatype(Datatype, u32),
}

impl Object {
    fn attributes(&self) -> &[Attribute] {
        match self {
            Self::Group(group) => &group.attributes,
            Self::Dataset(dataset) => &dataset.attributes,
            Self::Datatype(..) => &[],
        }
    }
}

/// All objects of a file.
#[derive(Debug, Default)]
pub(in crate::view) struct File<'a> {
    pub(in crate::view) objects: Vec<Object>,
    /// The heap of values of variable length.
    pub(in crate::view) heap: Vec<HeapObject<'a>>,
}

/// A heap entry.
#[derive(Debug)]
pub(in crate::view) enum HeapObject<'a> {
    /// The address of an object.
    Address(usize),
    /// A text, or the items of a sequence.
    Bytes(Cow<'a, [u8]>),
}

impl HeapObject<'_> {
    fn size_bytes(&self) -> usize {
        match self {
            Self::Address(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The maximum number of entries of a heap, whose indices have 16 bits.
const MAX_HEAP_ENTRIES: usize = 60_000;
/// The minimum size of a heap in the HDF5 library.
const MIN_HEAP_BYTES: usize = 4096;
/// Alignment of dense attribute storage.
const DENSE_ALIGNMENT_BYTES: u64 = 8;

impl<'a> File<'a> {
    /// Adds an object and returns its index.
    pub(in crate::view) fn push(&mut self, object: Object) -> usize {
        self.objects.push(object);
        self.objects.len() - 1
    }

    /// Adds a text to the heap, and returns its length and its entry.
    pub(in crate::view) fn push_text(&mut self, text: impl Into<Cow<'a, str>>) -> (u32, usize) {
        let bytes = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.heap.push(HeapObject::Bytes(bytes));
        (length, self.heap.len() - 1)
    }

    /// Adds texts to the heap, each distinct text once.
    pub(in crate::view) fn push_texts(&mut self, texts: &'a [String]) -> Vec<(u32, usize)> {
        let mut known: HashMap<&str, (u32, usize)> = HashMap::new();
        let add = |text: &'a String| *known.entry(text).or_insert_with(|| self.push_text(text));
        texts.iter().map(add).collect()
    }

    /// Adds a sequence of items of `item_bytes` to the heap, and returns its length and its entry.
    pub(in crate::view) fn push_sequence(
        &mut self,
        items: &'a [u8],
        item_bytes: usize,
    ) -> (u32, usize) {
        let length = items.len() / item_bytes.max(1);
        self.heap.push(HeapObject::Bytes(items.into()));
        (
            u32::try_from(length).unwrap_or(u32::MAX),
            self.heap.len() - 1,
        )
    }

    /// Computes the addresses of everything except the elements.
    pub(in crate::view) fn writer(&self) -> Writer {
        let nowhere = Writer::nowhere();
        let mut objects = Vec::with_capacity(self.objects.len());
        let mut at = SUPERBLOCK_BYTES;
        for object in &self.objects {
            objects.push(at);
            let storage = dense::is_needed(object.attributes()).then_some(0);
            at += object.encode(&nowhere, storage).len() as u64;
        }
        let mut heaps = Vec::new();
        for entries in self.heap.chunks(MAX_HEAP_ENTRIES) {
            heaps.push(at);
            at += heap_bytes(entries) as u64;
        }
        let mut storages = Vec::with_capacity(self.objects.len());
        for object in &self.objects {
            let storage = dense::is_needed(object.attributes()).then(|| {
                let start = at.next_multiple_of(DENSE_ALIGNMENT_BYTES);
                at = start + dense::encode(object.attributes(), &nowhere, start).len() as u64;
                start
            });
            storages.push(storage);
        }
        Writer {
            objects,
            heaps,
            storages,
            end: at,
        }
    }

    /// Sets the address of a dataset's elements, or of its chunk index.
    pub(in crate::view) fn place(&mut self, object: usize, start: u64) {
        if let Some(Object::Dataset(dataset)) = self.objects.get_mut(object)
            && let Storage::Contiguous(address) | Storage::Chunked(address, _) =
                &mut dataset.storage
        {
            *address = start;
        }
    }

    /// Encodes the header of a file of `end` bytes, after all addresses are set.
    pub(in crate::view) fn header(&self, writer: &Writer, end: u64) -> Vec<u8> {
        let mut bytes = superblock(end, writer.object(0));
        let storages = || self.objects.iter().zip(&writer.storages);
        for (object, storage) in storages() {
            bytes.extend(object.encode(writer, *storage));
        }
        for entries in self.heap.chunks(MAX_HEAP_ENTRIES) {
            bytes.extend(heap(entries, writer));
        }
        for (object, storage) in storages() {
            if let Some(start) = storage {
                let aligned = (bytes.len() as u64).next_multiple_of(DENSE_ALIGNMENT_BYTES);
                bytes.resize(usize::try_from(aligned).unwrap_or(bytes.len()), 0);
                bytes.extend(dense::encode(object.attributes(), writer, *start));
            }
        }
        bytes
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

/// Returns the size of a heap: header, entries with a header of 16 bytes each, and the free-space entry.
fn heap_bytes(entries: &[HeapObject<'_>]) -> usize {
    let sizes = entries
        .iter()
        .map(|entry| 16 + entry.size_bytes().next_multiple_of(8));
    (16 + sizes.sum::<usize>() + 16).max(MIN_HEAP_BYTES)
}

/// Encodes a global heap collection (III.E).
fn heap(entries: &[HeapObject<'_>], writer: &Writer) -> Vec<u8> {
    let size = heap_bytes(entries);
    let mut bytes = b"GCOL\x01\0\0\0".to_vec();
    bytes.extend((size as u64).to_le_bytes());
    for (number, entry) in (1_u16..).zip(entries) {
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend((entry.size_bytes() as u64).to_le_bytes());
        match entry {
            HeapObject::Address(object) => bytes.extend(writer.object(*object).to_le_bytes()),
            HeapObject::Bytes(value) => bytes.extend(&**value),
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    // Object 0 of the heap is the free space, including itself.
    let free = size - bytes.len();
    bytes.extend([0; 8]);
    bytes.extend((free as u64).to_le_bytes());
    bytes.resize(size, 0);
    bytes
}

/// Returns the checksum of metadata: lookup3 (III, "Checksums").
fn checksum(bytes: &[u8]) -> u32 {
    crate::codec::lookup3(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u64 {
        let bytes = bytes.iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Decodes a heap: the indices and values of its entries, and the declared and the actual size of the
    /// entry of free space.
    fn read_heap(heap: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64, usize) {
        assert_eq!(heap[..8], *b"GCOL\x01\0\0\0");
        assert_eq!(number(&heap[8..16]), heap.len() as u64);
        let (mut at, mut entries) = (16, Vec::new());
        loop {
            let (place, size) = (number(&heap[at..at + 2]), number(&heap[at + 8..at + 16]));
            if place == 0 {
                assert!(heap[at + 16..].iter().all(|byte| *byte == 0));
                return (entries, size, heap.len() - at);
            }
            let length = usize::try_from(size).unwrap();
            let body = &heap[at + 16..][..length.next_multiple_of(8)];
            assert!(body[length..].iter().all(|byte| *byte == 0));
            entries.push((place, body[..length].to_vec()));
            at += 16 + body.len();
        }
    }

    #[test]
    fn heaps_have_each_entry_under_its_number_and_their_free_space() {
        let writer = Writer {
            objects: (0..10).map(|object| 100 * object).collect(),
            heaps: Vec::new(),
            storages: Vec::new(),
            end: 0,
        };
        for count in [0, 1, 10, 500] {
            let entries: Vec<HeapObject<'_>> = (0..count)
                .map(|number| match number % 2 {
                    0 => HeapObject::Address(number % 10),
                    _ => HeapObject::Bytes("ä".repeat(number).into_bytes().into()),
                })
                .collect();
            let heap = heap(&entries, &writer);
            assert_eq!(heap.len(), heap_bytes(&entries));
            assert!(heap.len() >= MIN_HEAP_BYTES);
            let (found, free, rest) = read_heap(&heap);
            assert_eq!(free, rest as u64);
            assert!(rest >= 16);
            assert_eq!(found.len(), count);
            for (entry, (place, (number, bytes))) in entries.iter().zip((1..).zip(found)) {
                assert_eq!(number, place);
                match entry {
                    HeapObject::Address(object) => {
                        assert_eq!(bytes, (100 * *object as u64).to_le_bytes());
                    }
                    HeapObject::Bytes(value) => assert_eq!(bytes, **value),
                }
            }
        }
    }

    #[test]
    fn entries_are_identified_by_heap_and_number() {
        let writer = Writer {
            objects: Vec::new(),
            heaps: vec![1000, 2000],
            storages: Vec::new(),
            end: 0,
        };
        assert_eq!(writer.heap_entry(0), (1000, 1));
        assert_eq!(writer.heap_entry(MAX_HEAP_ENTRIES - 1), (1000, 60_000));
        assert_eq!(writer.heap_entry(MAX_HEAP_ENTRIES), (2000, 1));
        assert_eq!(writer.heap_entry(2 * MAX_HEAP_ENTRIES).0, UNDEFINED);
    }

    #[test]
    fn a_superblock_matches_that_of_the_library() {
        // An empty file of h5py with `libver="v108"`.
        let mut expected = b"\x89HDF\r\n\x1a\n\x02\x08\x08\0".to_vec();
        for address in [0, u64::MAX, 0xB3, 0x30] {
            expected.extend(address.to_le_bytes());
        }
        expected.extend([0x87, 0x67, 0x2A, 0x28]);
        assert_eq!(superblock(0xB3, 0x30), expected);
    }

    #[test]
    fn checksums_are_those_of_lookup3() {
        // Bob Jenkins, lookup3.c, driver5.
        let text = b"Four score and seven years ago";
        assert_eq!(checksum(text), 0x1777_0551);
        assert_eq!(checksum(b""), 0xDEAD_BEEF);
    }
}
