//! Object headers (IV.A.1.b) of groups and datasets.

use super::attribute::Attribute;
use super::datatype::Datatype;
use super::filter::{self, Filter};
use super::{MAX_HEAP_ENTRIES, Object, UNDEFINED, checksum, dense};

/// The maximum number of axes of a dataset (`H5S_MAX_RANK`).
pub(in crate::view) const MAX_RANK: usize = 32;
/// The maximum length of an object name in bytes: its message has other parts, too.
pub(in crate::view) const MAX_LINK_NAME_BYTES: usize = 65_000;
/// The maximum size of a fill value in bytes.
const MAX_FILL_VALUE_BYTES: usize = 65_000;

/// A group: the names and indices of other objects, in order.
#[derive(Debug, Default)]
pub(in crate::view) struct Group {
    pub(in crate::view) links: Vec<(String, usize)>,
    pub(in crate::view) attributes: Vec<Attribute>,
}

/// An array in the file.
#[derive(Debug)]
pub(in crate::view) struct Dataset {
    pub(in crate::view) datatype: Datatype,
    /// The object of the named (committed) datatype, if the type has a name.
    pub(in crate::view) named_type: Option<usize>,
    pub(in crate::view) shape: Vec<u64>,
    /// The fill value.
    pub(in crate::view) fill: Option<Vec<u8>>,
    pub(in crate::view) storage: Storage,
    pub(in crate::view) attributes: Vec<Attribute>,
}

/// The storage of the elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) enum Storage {
    /// No storage: all elements are the fill value.
    Unallocated,
    /// Contiguous in C order at this address.
    Contiguous(u64),
    /// Chunks, with the index at this address.
    Chunked(u64, Chunks),
}

/// The chunks of a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::view) struct Chunks {
    /// The shape of a chunk.
    pub(in crate::view) extents: Vec<u64>,
    /// The filters of each chunk, in the order of encoding.
    pub(in crate::view) filters: Vec<Filter>,
    /// The maximum length of each axis, if it differs from the shape of the dataset.
    pub(in crate::view) max_shape: Option<Vec<u64>>,
}

/// The addresses of objects and heaps.
#[derive(Debug)]
pub(in crate::view) struct Writer {
    pub(super) objects: Vec<u64>,
    pub(super) heaps: Vec<u64>,
    /// The dense attribute storage of each object that has one.
    pub(super) storages: Vec<Option<u64>>,
    /// The end of objects, heaps and storages.
    pub(in crate::view) end: u64,
}

impl Writer {
    /// Returns undefined addresses, which suffice to measure objects.
    pub(super) fn nowhere() -> Self {
        Self {
            objects: Vec::new(),
            heaps: Vec::new(),
            storages: Vec::new(),
            end: 0,
        }
    }

    /// Returns the address of an object.
    pub(super) fn object(&self, number: usize) -> u64 {
        self.objects.get(number).copied().unwrap_or(UNDEFINED)
    }

    /// Returns the heap address and the index of an entry.
    pub(super) fn heap_entry(&self, entry: usize) -> (u64, u32) {
        let heap = self.heaps.get(entry / MAX_HEAP_ENTRIES);
        let number = u32::try_from(entry % MAX_HEAP_ENTRIES + 1).unwrap_or(0);
        (heap.copied().unwrap_or(UNDEFINED), number)
    }

    /// Encodes elements of variable length: length and heap entry of each text or sequence. An empty one has
    /// an entry too: readers take address 0 for a null pointer.
    pub(in crate::view) fn heap_references(&self, elements: &[(u32, usize)]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(elements.len() * 16);
        for (length, entry) in elements {
            let (heap, number) = self.heap_entry(*entry);
            bytes.extend(length.to_le_bytes());
            bytes.extend(heap.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }
}

/// Encodes a dataspace message, version 2 (IV.A.2.b): one value (no axes), or an array.
pub(super) fn dataspace(shape: &[u64]) -> Vec<u8> {
    dataspace_within(shape, None)
}

/// As [`dataspace`], for an array whose axes have a maximum length.
fn dataspace_within(shape: &[u64], max_shape: Option<&[u64]>) -> Vec<u8> {
    let rank = u8::try_from(shape.len()).unwrap_or(u8::MAX);
    let has_max = u8::from(max_shape.is_some());
    let mut bytes = vec![2, rank, has_max, u8::from(rank > 0)];
    let lengths = shape.iter().chain(max_shape.unwrap_or_default());
    bytes.extend(lengths.flat_map(|length| length.to_le_bytes()));
    bytes
}

/// The types of messages.
mod message {
    pub(super) const DATASPACE: u8 = 0x01;
    pub(super) const LINK_INFO: u8 = 0x02;
    pub(super) const DATATYPE: u8 = 0x03;
    pub(super) const FILL_VALUE: u8 = 0x05;
    pub(super) const LINK: u8 = 0x06;
    pub(super) const LAYOUT: u8 = 0x08;
    pub(super) const GROUP_INFO: u8 = 0x0A;
    pub(super) const FILTER_PIPELINE: u8 = 0x0B;
    pub(super) const ATTRIBUTE: u8 = 0x0C;
    pub(super) const ATTRIBUTE_INFO: u8 = 0x15;
    pub(super) const REFERENCE_COUNT: u8 = 0x16;
    /// The flag of a message that is stored in another object.
    pub(super) const IS_SHARED: u8 = 0b10;
}

impl Object {
    /// Encodes the object header, with the address of its dense attribute storage, if any.
    pub(super) fn encode(&self, writer: &Writer, storage: Option<u64>) -> Vec<u8> {
        let mut messages = Messages::default();
        // Without this message, the library reports 0 attributes (`H5Oget_info`). It comes first: pyfive
        // reads beyond its end.
        if !self.attributes().is_empty() {
            messages.add(message::ATTRIBUTE_INFO, &dense::info(storage));
        }
        match self {
            Self::Group(group) => {
                let mut info = vec![0, 1];
                // Creation order is tracked; all links are compact, without a heap.
                info.extend((group.links.len() as u64).to_le_bytes());
                info.extend([0xFF; 16]);
                messages.add(message::LINK_INFO, &info);
                messages.add(message::GROUP_INFO, &[0, 0]);
                for (order, (name, object)) in (0_u64..).zip(&group.links) {
                    let link = link(order, name, writer.object(*object));
                    messages.add(message::LINK, &link);
                }
            }
            Self::Dataset(dataset) => {
                messages.add(message::DATASPACE, &dataset.dataspace());
                match dataset.named_type {
                    // Version 3, a named type.
                    Some(object) => {
                        let address = writer.object(object).to_le_bytes();
                        let shared = [&[3, 2][..], &address].concat();
                        messages.add_with(message::DATATYPE, message::IS_SHARED, &shared);
                    }
                    None => messages.add(message::DATATYPE, &dataset.datatype.encode()),
                }
                messages.add(message::FILL_VALUE, &dataset.fill_value());
                if let Storage::Chunked(_, chunks) = &dataset.storage
                    && !chunks.filters.is_empty()
                {
                    messages.add(message::FILTER_PIPELINE, &filter::pipeline(&chunks.filters));
                }
                messages.add(message::LAYOUT, &dataset.layout());
            }
            Self::Datatype(datatype, users) => {
                messages.add(message::DATATYPE, &datatype.encode());
                // The name of the type is one reference.
                let count = users.saturating_add(1).to_le_bytes();
                messages.add(message::REFERENCE_COUNT, &[&[0][..], &count].concat());
            }
        }
        if storage.is_none() {
            for attribute in self.attributes() {
                messages.add(message::ATTRIBUTE, &attribute.encode(writer));
            }
        }
        messages.into_header()
    }
}

/// The messages of an object header.
#[derive(Default)]
struct Messages(Vec<u8>);

impl Messages {
    fn add(&mut self, kind: u8, body: &[u8]) {
        self.add_with(kind, 0, body);
    }

    fn add_with(&mut self, kind: u8, flags: u8, body: &[u8]) {
        self.0.push(kind);
        let size = u16::try_from(body.len()).unwrap_or(u16::MAX);
        self.0.extend(size.to_le_bytes());
        self.0.push(flags);
        self.0.extend(body);
    }

    /// Encodes a header of version 2; the size of the messages has four bytes.
    fn into_header(self) -> Vec<u8> {
        let mut bytes = b"OHDR\x02\x02".to_vec();
        let size = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        bytes.extend(size.to_le_bytes());
        bytes.extend(self.0);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }
}

/// Encodes a hard link with a name in UTF-8 (IV.A.2.g).
fn link(order: u64, name: &str, address: u64) -> Vec<u8> {
    // The length of the name has two bytes; the link has a creation order and a character set.
    let mut bytes = vec![1, 0b1_0101];
    bytes.extend(order.to_le_bytes());
    bytes.push(1);
    bytes.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(address.to_le_bytes());
    bytes
}

impl Dataset {
    /// Returns whether a file can contain a fill value.
    pub(in crate::view) fn fits_fill_value(value: &[u8]) -> bool {
        value.len() <= MAX_FILL_VALUE_BYTES
    }

    fn dataspace(&self) -> Vec<u8> {
        let max_shape = match &self.storage {
            Storage::Chunked(_, chunks) => chunks.max_shape.as_deref(),
            Storage::Contiguous(_) | Storage::Unallocated => None,
        };
        dataspace_within(&self.shape, max_shape)
    }

    /// Returns the size of all elements in bytes, if they are contiguous.
    fn size_bytes(&self) -> u64 {
        let item = self.datatype.size_bytes() as u64;
        self.shape
            .iter()
            .fold(item, |size, length| size.saturating_mul(*length))
    }

    /// Encodes a fill value message, version 3 (IV.A.2.f), with the allocation time that the library uses for
    /// the layout. Fill values are written if the dataset has one.
    fn fill_value(&self) -> Vec<u8> {
        let (late, incremental) = (0b1010, 0b1011);
        let times = match self.storage {
            Storage::Chunked(..) => incremental,
            Storage::Contiguous(_) | Storage::Unallocated => late,
        };
        let is_defined = 0b10_0000;
        match &self.fill {
            Some(value) if Self::fits_fill_value(value) => {
                let mut bytes = vec![3, times | is_defined];
                bytes.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
                bytes.extend(value);
                bytes
            }
            _ => vec![3, times],
        }
    }

    /// Encodes a layout message, version 3 (IV.A.2.i).
    fn layout(&self) -> Vec<u8> {
        let (address, chunk) = match &self.storage {
            Storage::Unallocated => (UNDEFINED, None),
            Storage::Contiguous(address) => (*address, None),
            Storage::Chunked(address, chunks) => (*address, Some(&chunks.extents)),
        };
        let Some(chunk) = chunk else {
            let mut bytes = vec![3, 1];
            bytes.extend(address.to_le_bytes());
            bytes.extend(self.size_bytes().to_le_bytes());
            return bytes;
        };
        let item = [self.datatype.size_bytes() as u64];
        let extents = chunk.iter().chain(&item);
        let mut bytes = vec![3, 2, u8::try_from(chunk.len() + 1).unwrap_or(u8::MAX)];
        bytes.extend(address.to_le_bytes());
        // A chunk has fewer than 2^32 bytes.
        bytes.extend(extents.flat_map(|extent| {
            let extent = u32::try_from(*extent).unwrap_or(u32::MAX);
            extent.to_le_bytes()
        }));
        bytes
    }
}
