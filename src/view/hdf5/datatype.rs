//! Datatype messages (IV.A.2.d).

use crate::view::number::{Number, NumberKind};
use crate::zarr::ByteOrder;

/// The type of an element, or of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum Datatype {
    /// A number of 1, 2, 4 or 8 bytes; floats of 4 or 8.
    Number(Number),
    /// Text of constant size, padded with NUL.
    Text { size_bytes: usize, is_ascii: bool },
    /// Text of constant size, terminated by NUL: required for the attributes of dimension scales.
    Terminated(usize),
    /// UTF-8 text of variable length, in a heap.
    VariableText,
    /// The address of an object.
    Reference,
    /// A list of addresses in a heap.
    References,
    /// The address of a dataset and the index of one of its axes, for the `REFERENCE_LIST` of a dimension
    /// scale.
    AxisReference,
}

impl Datatype {
    /// Bytes of one value.
    pub(in crate::view) fn size_bytes(self) -> usize {
        match self {
            Self::Number(number) => number.size_bytes,
            Self::Text { size_bytes, .. } | Self::Terminated(size_bytes) => size_bytes,
            Self::Reference => 8,
            Self::References | Self::AxisReference | Self::VariableText => 16,
        }
    }

    /// The message.
    pub(super) fn encode(self) -> Vec<u8> {
        // The lower half of the first byte is the class, the upper one the version.
        let (class, bits) = match self {
            Self::Number(number) => match number.kind {
                NumberKind::Int => (0x10, [order(number) | 0x08, 0, 0]),
                NumberKind::UInt => (0x10, [order(number), 0, 0]),
                // The highest bit of the mantissa is implied; the sign is the highest bit.
                NumberKind::Float => {
                    let sign = if number.size_bytes == 4 { 31 } else { 63 };
                    (0x11, [order(number) | 0x20, sign, 0])
                }
            },
            // Padded with NUL; ASCII or UTF-8.
            Self::Text { is_ascii, .. } => (0x13, [if is_ascii { 0x01 } else { 0x11 }, 0, 0]),
            Self::Terminated(_) => (0x13, [0, 0, 0]),
            Self::Reference => (0x17, [0, 0, 0]),
            Self::VariableText => (0x19, [1, 1, 0]),
            Self::References => (0x19, [0, 0, 0]),
            Self::AxisReference => (0x36, [2, 0, 0]),
        };
        let mut bytes = vec![class];
        bytes.extend(bits);
        bytes.extend(
            u32::try_from(self.size_bytes())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        match self {
            Self::Number(number) if number.kind == NumberKind::Float => {
                // Offset and precision in bits, exponent, mantissa, bias.
                match number.size_bytes {
                    4 => {
                        bytes.extend([0, 0, 32, 0, 23, 8, 0, 23]);
                        bytes.extend(127_u32.to_le_bytes());
                    }
                    _ => {
                        bytes.extend([0, 0, 64, 0, 52, 11, 0, 52]);
                        bytes.extend(1023_u32.to_le_bytes());
                    }
                }
            }
            Self::Number(number) => {
                let bits = u16::try_from(number.size_bytes * 8).unwrap_or(0);
                bytes.extend([0, 0]);
                bytes.extend(bits.to_le_bytes());
            }
            // The only base type that the library accepts for text.
            Self::VariableText => {
                let byte = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
                bytes.extend(Self::Number(byte).encode());
            }
            Self::References => bytes.extend(Self::Reference.encode()),
            Self::AxisReference => {
                let axis = Number::new(NumberKind::Int, 4, ByteOrder::Little);
                for (name, offset, member) in [
                    (&b"dataset\0"[..], 0, Self::Reference),
                    (b"dimension\0", 8, Self::Number(axis)),
                ] {
                    bytes.extend(name);
                    bytes.push(offset);
                    bytes.extend(member.encode());
                }
            }
            Self::Text { .. } | Self::Terminated(_) | Self::Reference => {}
        }
        bytes
    }
}

fn order(number: Number) -> u8 {
    u8::from(number.order == ByteOrder::Big)
}
