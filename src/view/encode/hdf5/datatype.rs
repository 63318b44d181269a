//! Datatype messages (IV.A.2.d).

use super::object::MAX_RANK;
use crate::node::{Number, NumberKind};
use crate::zarr::ByteOrder;

/// The type of an element, or of an attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) enum Datatype {
    /// A number of 1, 2, 4 or 8 bytes; floats of 2, 4 or 8.
    Number(Number),
    /// One byte, 0 or 1: the enumeration `FALSE`, `TRUE` that h5py writes and reads as booleans.
    Bool,
    /// Opaque bytes.
    Opaque(usize),
    /// Text of constant size, padded with NUL.
    Text { size_bytes: usize, is_ascii: bool },
    /// Text of constant size, terminated by NUL: required for the attributes of dimension scales.
    Terminated(usize),
    /// UTF-8 text of variable length, in a heap.
    VariableText,
    /// Named members.
    Compound {
        size_bytes: usize,
        members: Vec<Member>,
    },
    /// Items in C order, as a member of a compound type.
    Array { shape: Vec<usize>, item: Box<Self> },
    /// The address of an object.
    Reference,
    /// A list of any length, in a heap.
    Sequence(Box<Self>),
    /// The address of a dataset and the index of one of its axes, for the `REFERENCE_LIST` of a dimension
    /// scale.
    AxisReference,
}

/// A member of a compound type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct Member {
    /// The name, without NUL.
    pub(in crate::view) name: String,
    /// Offset in bytes from the start of the compound.
    pub(in crate::view) offset: usize,
    pub(in crate::view) datatype: Datatype,
}

/// The maximum size of a message, whose length field has 16 bits.
const MAX_MESSAGE_BYTES: usize = 65_535;

impl Datatype {
    /// Returns the type of complex numbers in h5py: a compound of `r` and `i`.
    pub(in crate::view) fn complex(part: Number) -> Self {
        let member = |name: &str, offset| Member {
            name: name.to_owned(),
            offset,
            datatype: Self::Number(part),
        };
        Self::Compound {
            size_bytes: 2 * part.size_bytes,
            members: vec![member("r", 0), member("i", part.size_bytes)],
        }
    }

    /// Returns the size of one value in bytes.
    pub(in crate::view) fn size_bytes(&self) -> usize {
        match self {
            Self::Number(number) => number.size_bytes,
            Self::Bool => 1,
            Self::Opaque(size_bytes)
            | Self::Text { size_bytes, .. }
            | Self::Terminated(size_bytes)
            | Self::Compound { size_bytes, .. } => *size_bytes,
            Self::Array { shape, item } => shape.iter().fold(item.size_bytes(), |size, length| {
                size.saturating_mul(*length)
            }),
            Self::Reference => 8,
            Self::Sequence(_) | Self::AxisReference | Self::VariableText => 16,
        }
    }

    /// Returns whether HDF5 supports the type.
    pub(in crate::view) fn fits(&self) -> bool {
        self.has_valid_parts() && self.encode().len() <= MAX_MESSAGE_BYTES
    }

    fn has_valid_parts(&self) -> bool {
        match self {
            Self::Compound { members, .. } => {
                u16::try_from(members.len()).is_ok()
                    && members.iter().all(|member| {
                        !member.name.contains('\0') && member.datatype.has_valid_parts()
                    })
            }
            Self::Array { shape, item } => shape.len() <= MAX_RANK && item.has_valid_parts(),
            Self::Sequence(item) => item.has_valid_parts(),
            _ => true,
        }
    }

    /// Encodes the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (class, bits) = self.class();
        let mut bytes = vec![class];
        bytes.extend(bits);
        let size = u32::try_from(self.size_bytes()).unwrap_or(u32::MAX);
        bytes.extend(size.to_le_bytes());
        match self {
            Self::Number(number) => encode_number(*number, &mut bytes),
            Self::Bool => {
                bytes.extend(Self::Number(BYTE).encode());
                // The names are padded to multiples of 8 bytes.
                bytes.extend(b"FALSE\0\0\0TRUE\0\0\0\0\0\x01");
            }
            // The only base type that the library accepts for text.
            Self::VariableText => {
                let byte = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
                bytes.extend(Self::Number(byte).encode());
            }
            Self::Compound {
                size_bytes,
                members,
            } => encode_members(*size_bytes, members, &mut bytes),
            Self::Array { shape, item } => {
                bytes.push(u8::try_from(shape.len()).unwrap_or(u8::MAX));
                for length in shape {
                    let length = u32::try_from(*length).unwrap_or(u32::MAX);
                    bytes.extend(length.to_le_bytes());
                }
                bytes.extend(item.encode());
            }
            Self::Sequence(item) => bytes.extend(item.encode()),
            Self::AxisReference => {
                let axis = Number::new(NumberKind::Int, 4, ByteOrder::Little);
                let members = [
                    ("dataset", 0, Self::Reference),
                    ("dimension", 8, Self::Number(axis)),
                ];
                let members = members.map(|(name, offset, datatype)| Member {
                    name: name.to_owned(),
                    offset,
                    datatype,
                });
                encode_members(16, &members, &mut bytes);
            }
            Self::Opaque(_) | Self::Text { .. } | Self::Terminated(_) | Self::Reference => {}
        }
        bytes
    }

    /// Returns the version (upper half of the byte) and the class, and the bit field of the class.
    fn class(&self) -> (u8, [u8; 3]) {
        match self {
            Self::Number(number) => match number.kind {
                NumberKind::Int => (0x10, [order(*number) | 0x08, 0, 0]),
                NumberKind::UInt => (0x10, [order(*number), 0, 0]),
                // The highest bit of the mantissa is implied; the sign is the highest bit.
                NumberKind::Float => {
                    let sign = u8::try_from(8 * number.size_bytes - 1).unwrap_or(0);
                    (0x11, [order(*number) | 0x20, sign, 0])
                }
            },
            // Two members.
            Self::Bool => (0x18, [2, 0, 0]),
            Self::Opaque(_) => (0x15, [0, 0, 0]),
            // Padded with NUL; ASCII or UTF-8.
            Self::Text { is_ascii, .. } => (0x13, [if *is_ascii { 0x01 } else { 0x11 }, 0, 0]),
            Self::Terminated(_) => (0x13, [0, 0, 0]),
            Self::Compound { members, .. } => {
                let count = u16::try_from(members.len()).unwrap_or(u16::MAX);
                let [low, high] = count.to_le_bytes();
                (0x36, [low, high, 0])
            }
            Self::Array { .. } => (0x3A, [0, 0, 0]),
            Self::Reference => (0x17, [0, 0, 0]),
            Self::VariableText => (0x19, [1, 1, 0]),
            Self::Sequence(_) => (0x19, [0, 0, 0]),
            Self::AxisReference => (0x36, [2, 0, 0]),
        }
    }
}

/// The base type of booleans.
const BYTE: Number = Number::new(NumberKind::Int, 1, ByteOrder::Little);

fn encode_number(number: Number, bytes: &mut Vec<u8>) {
    if number.kind != NumberKind::Float {
        let bits = u16::try_from(number.size_bytes * 8).unwrap_or(0);
        bytes.extend([0, 0]);
        bytes.extend(bits.to_le_bytes());
        return;
    }
    // Bit offset and precision, exponent, mantissa, bias.
    let (parts, bias) = match number.size_bytes {
        2 => ([0, 0, 16, 0, 10, 5, 0, 10], 15_u32),
        4 => ([0, 0, 32, 0, 23, 8, 0, 23], 127),
        _ => ([0, 0, 64, 0, 52, 11, 0, 52], 1023),
    };
    bytes.extend(parts);
    bytes.extend(bias.to_le_bytes());
}

/// Encodes the members of a version 3 compound type. Offsets have as many bytes as its size needs.
fn encode_members(size_bytes: usize, members: &[Member], bytes: &mut Vec<u8>) {
    let width = (usize::BITS - size_bytes.leading_zeros()).div_ceil(8) as usize;
    for member in members {
        bytes.extend(member.name.as_bytes());
        bytes.push(0);
        bytes.extend(member.offset.to_le_bytes().iter().take(width.max(1)));
        bytes.extend(member.datatype.encode());
    }
}

fn order(number: Number) -> u8 {
    u8::from(number.order == ByteOrder::Big)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enumerations_and_floats_match_those_of_the_library() {
        // h5py 3.16: `numpy.bool_` and `<f2`.
        let mut expected = b"\x18\x02\0\0\x01\0\0\0\x10\x08\0\0\x01\0\0\0\0\0\x08\0".to_vec();
        expected.extend(b"FALSE\0\0\0TRUE\0\0\0\0\0\x01");
        assert_eq!(Datatype::Bool.encode(), expected);
        let half = Number::new(NumberKind::Float, 2, ByteOrder::Little);
        let expected = b"\x11\x20\x0F\0\x02\0\0\0\0\0\x10\0\x0A\x05\0\x0A\x0F\0\0\0";
        assert_eq!(Datatype::Number(half).encode(), expected);
    }

    #[test]
    fn offsets_of_members_have_the_bytes_of_the_size() {
        let member = |name: &str, offset| Member {
            name: name.to_owned(),
            offset,
            datatype: Datatype::Opaque(1),
        };
        for (size_bytes, width) in [(1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3)] {
            let members = vec![member("a", size_bytes - 1)];
            let compound = Datatype::Compound {
                size_bytes,
                members,
            };
            assert_eq!(compound.encode().len(), 8 + 2 + width + 8, "{size_bytes}");
        }
        let many = |count| Datatype::Compound {
            size_bytes: count,
            members: (0..count).map(|offset| member("a", offset)).collect(),
        };
        assert!(many(5000).fits() && !many(10_000).fits() && !many(70_000).fits());
        let named = Datatype::Compound {
            size_bytes: 1,
            members: vec![member("a\0", 0)],
        };
        assert!(!named.fits());
    }
}
