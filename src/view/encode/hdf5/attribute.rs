//! Attribute messages (IV.A.2.m).

use super::datatype::Datatype;
use super::object::{Writer, dataspace};

/// An attribute of an object.
#[derive(Debug, Clone)]
pub(in crate::view) struct Attribute {
    pub(in crate::view) name: String,
    pub(in crate::view) datatype: Datatype,
    pub(in crate::view) payload: Payload,
}

/// The values of an attribute.
#[derive(Debug, Clone)]
pub(in crate::view) enum Payload {
    /// No value.
    Null,
    /// One value.
    One(Vec<u8>),
    /// A list of values.
    Many(u64, Vec<u8>),
    /// A text of variable length: its length and its heap entry.
    Text((u32, usize)),
    /// Texts or sequences of variable length.
    Variable(Vec<(u32, usize)>),
    /// Objects with an axis each.
    Axes(Vec<(usize, u32)>),
}

/// The maximum size of a message, whose length field has 16 bits.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// The maximum size of an attribute in dense storage: readers hold it in memory.
const MAX_DENSE_BYTES: usize = 64 << 20;
/// The maximum number of attributes in dense storage; a node counts them in 16 bits.
const MAX_DENSE_COUNT: usize = 65_535;

impl Attribute {
    /// Returns whether the attribute fits in a message of an object header.
    pub(in crate::view) fn fits(&self) -> bool {
        self.encode(&Writer::nowhere()).len() <= MAX_MESSAGE_BYTES
    }

    /// Removes those attributes of an object that a file cannot contain, and returns them.
    pub(in crate::view) fn remove_unstorable(attributes: &mut Vec<Self>) -> Vec<Self> {
        let is_few = attributes.len() <= MAX_DENSE_COUNT;
        let is_storable = |attribute: &mut Self| {
            let has_name = !attribute.name.is_empty()
                && !attribute.name.contains('\0')
                && attribute.name.len() < MAX_MESSAGE_BYTES;
            let size = attribute.encode(&Writer::nowhere()).len();
            has_name && (size <= MAX_MESSAGE_BYTES || (is_few && size <= MAX_DENSE_BYTES))
        };
        attributes
            .extract_if(.., |attribute| !is_storable(attribute))
            .collect()
    }

    /// Encodes the message, version 3.
    pub(super) fn encode(&self, writer: &Writer) -> Vec<u8> {
        let datatype = self.datatype.encode();
        let (space, values) = match &self.payload {
            // A null dataspace.
            Payload::Null => (vec![2, 0, 0, 2], Vec::new()),
            Payload::One(value) => (dataspace(&[]), value.clone()),
            Payload::Many(count, values) => (dataspace(&[*count]), values.clone()),
            Payload::Text(text) => (dataspace(&[]), writer.heap_references(&[*text])),
            Payload::Variable(values) => {
                let space = dataspace(&[values.len() as u64]);
                (space, writer.heap_references(values))
            }
            Payload::Axes(axes) => {
                let mut values = Vec::new();
                for (object, axis) in axes {
                    values.extend(writer.object(*object).to_le_bytes());
                    values.extend(axis.to_le_bytes());
                    values.extend([0; 4]);
                }
                (dataspace(&[axes.len() as u64]), values)
            }
        };
        let mut bytes = vec![3, 0];
        for size in [self.name.len() + 1, datatype.len(), space.len()] {
            bytes.extend(u16::try_from(size).unwrap_or(u16::MAX).to_le_bytes());
        }
        bytes.push(u8::from(!self.name.is_ascii()));
        bytes.extend(self.name.as_bytes());
        bytes.push(0);
        bytes.extend(datatype);
        bytes.extend(space);
        bytes.extend(values);
        bytes
    }
}
