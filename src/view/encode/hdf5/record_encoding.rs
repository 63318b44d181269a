//! Structures as compound types of HDF5. Most bytes of an element are copied; some members change their form.

use std::collections::HashSet;

use half::f16;

use super::{Datatype, Member};
use crate::node::code_points;
use crate::zarr::{ByteOrder, Field, Fixed, Scalar};

/// The change of the bytes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum MemberChange {
    /// The bytes stay the same.
    None,
    /// A half float becomes a float.
    HalfToFloat(ByteOrder),
    /// Code points become UTF-8, padded with NUL to the same number of bytes.
    Utf8(ByteOrder),
    /// Code points become a reference to a text in the heap.
    TextReference(ByteOrder),
}

/// The types that a format has for the members of a structure.
pub(in crate::view) trait MemberTypes {
    /// Returns the type of a value that is no structure and no sub-array, and its change.
    ///
    /// # Errors
    /// The format has no type for it.
    fn of_value(value: &Fixed) -> Result<(Datatype, MemberChange), String>;

    /// Returns the name of a member in the file.
    ///
    /// # Errors
    /// The format does not permit the name.
    fn name(name: &str) -> Result<String, String>;
}

/// The encoding of elements of a constant size.
#[derive(Debug)]
pub(in crate::view) struct RecordEncoding {
    pub(in crate::view) datatype: Datatype,
    parts: Vec<Part>,
    stored_bytes: usize,
}

/// Consecutive bytes of an element, at the offset `from` in the array and at `to` in the file.
#[derive(Debug)]
struct Part {
    from: usize,
    to: usize,
    size_bytes: usize,
    change: MemberChange,
}

/// Encoded elements.
#[derive(Debug)]
pub(in crate::view) struct EncodedRecords<R> {
    pub(in crate::view) bytes: Vec<u8>,
    /// The offsets of references to texts in `bytes`, in order.
    pub(in crate::view) texts: Vec<(usize, R)>,
}

/// The maximum number of parts of an element.
const MAX_PARTS: usize = 1 << 16;

impl RecordEncoding {
    /// Returns the encoding of elements of a type.
    ///
    /// # Errors
    /// The format has no type for a member, or HDF5 has no such structure.
    pub(in crate::view) fn of<T: MemberTypes>(data_type: &Fixed) -> Result<Self, String> {
        let mut parts = Vec::new();
        let datatype = add::<T>(data_type, 0, 0, &mut parts)?;
        match datatype.fits() {
            true => Ok(Self {
                datatype,
                parts,
                stored_bytes: data_type.size_bytes,
            }),
            false => Err("a structure that HDF5 cannot have: a name, or too many members".into()),
        }
    }

    /// Returns the number of parts that are encoded for each element.
    #[cfg(test)]
    pub(in crate::view) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Encodes the elements `bytes` of an array. `insert_text` inserts a text into the heap.
    ///
    /// # Errors
    /// The code points of a text are invalid.
    pub(in crate::view) fn encode<R>(
        &self,
        bytes: &[u8],
        mut insert_text: impl FnMut(String) -> R,
    ) -> Result<EncodedRecords<R>, String> {
        let item_bytes = self.datatype.size_bytes();
        let (mut encoded, mut texts) = (Vec::new(), Vec::new());
        for element in bytes.chunks_exact(self.stored_bytes.max(1)) {
            let start = encoded.len();
            encoded.resize(start + item_bytes, 0);
            for part in &self.parts {
                let stored = element.get(part.from..part.from + part.size_bytes);
                let stored = stored.ok_or(BEYOND)?;
                let to = start + part.to;
                if let MemberChange::TextReference(order) = part.change {
                    texts.push((to, insert_text(text(stored, order)?)));
                } else {
                    part.encode(stored, encoded.get_mut(to..).unwrap_or_default())?;
                }
            }
        }
        let bytes = encoded;
        Ok(EncodedRecords { bytes, texts })
    }
}

const BEYOND: &str = "a member beyond its structure";

/// Returns whether elements differ from those of the file.
pub(in crate::view) fn needs_encoding<T: MemberTypes>(data_type: &Fixed) -> bool {
    match &data_type.scalar {
        Scalar::SubArray { item, .. } => needs_encoding::<T>(item),
        Scalar::Struct(fields) => {
            let mut fields = fields.iter();
            fields.any(|field| needs_encoding::<T>(&field.data_type))
        }
        _ => T::of_value(data_type).is_ok_and(|(_, change)| change != MemberChange::None),
    }
}

impl Part {
    /// Writes the part to the beginning of `target`.
    fn encode(&self, stored: &[u8], target: &mut [u8]) -> Result<(), String> {
        match (self.change, stored) {
            (MemberChange::None, bytes) => put(bytes, target),
            (MemberChange::HalfToFloat(ByteOrder::Little), &[a, b]) => {
                put(&f16::from_le_bytes([a, b]).to_f32().to_le_bytes(), target)
            }
            (MemberChange::HalfToFloat(ByteOrder::Big), &[a, b]) => {
                put(&f16::from_be_bytes([a, b]).to_f32().to_be_bytes(), target)
            }
            (MemberChange::HalfToFloat(_), _) => Err("a half float of another size".into()),
            (MemberChange::Utf8(order) | MemberChange::TextReference(order), bytes) => {
                put(text(bytes, order)?.as_bytes(), target)
            }
        }
    }
}

fn put(bytes: &[u8], target: &mut [u8]) -> Result<(), String> {
    target
        .get_mut(..bytes.len())
        .ok_or(BEYOND)?
        .copy_from_slice(bytes);
    Ok(())
}

fn text(bytes: &[u8], order: ByteOrder) -> Result<String, String> {
    let text = code_points(bytes, order).map(char::from_u32);
    let text = text.collect::<Option<String>>();
    let text = text.filter(|text| !text.contains('\0'));
    text.ok_or_else(|| "a text with NUL or invalid code points in it".into())
}

/// Returns the type of a value, at offset `from` in the element and `to` in the file, and adds its parts.
fn add<T: MemberTypes>(
    data_type: &Fixed,
    from: usize,
    to: usize,
    parts: &mut Vec<Part>,
) -> Result<Datatype, String> {
    let size_bytes = data_type.size_bytes;
    match &data_type.scalar {
        Scalar::Struct(fields) => add_members::<T>((fields, size_bytes), from, to, parts),
        Scalar::SubArray { shape, item } => add_items::<T>(shape, item, from, to, parts),
        _ => {
            let (datatype, change) = T::of_value(data_type)?;
            if parts.len() >= MAX_PARTS {
                return Err(format!("a structure of more than {MAX_PARTS} values"));
            }
            parts.push(Part {
                from,
                to,
                size_bytes,
                change,
            });
            Ok(datatype)
        }
    }
}

fn add_members<T: MemberTypes>(
    (fields, size_bytes): (&[Field], usize),
    from: usize,
    to: usize,
    parts: &mut Vec<Part>,
) -> Result<Datatype, String> {
    let first = parts.len();
    let mut fields_to_encode = fields.iter();
    let is_changed = fields_to_encode.any(|field| needs_encoding::<T>(&field.data_type));
    let mut members = Vec::with_capacity(fields.len());
    let mut names = HashSet::new();
    let mut offset = 0;
    for field in fields {
        let name = T::name(&field.name)?;
        if !names.insert(name.clone()) {
            return Err("two members of a structure have the same name in the file".into());
        }
        if !is_changed {
            offset = field.offset;
        }
        let datatype = add::<T>(&field.data_type, from + field.offset, to + offset, parts)?;
        let member_bytes = datatype.size_bytes();
        members.push(Member {
            name,
            offset,
            datatype,
        });
        offset += member_bytes;
    }
    if !is_changed {
        parts.truncate(first);
        parts.push(Part {
            from,
            to,
            size_bytes,
            change: MemberChange::None,
        });
        offset = size_bytes;
    }
    Ok(Datatype::Compound {
        size_bytes: offset,
        members,
    })
}

fn add_items<T: MemberTypes>(
    shape: &[usize],
    item: &Fixed,
    from: usize,
    to: usize,
    parts: &mut Vec<Part>,
) -> Result<Datatype, String> {
    let first = parts.len();
    let datatype = add::<T>(item, from, to, parts)?;
    let count: usize = shape.iter().product();
    match needs_encoding::<T>(item) {
        false => {
            parts.truncate(first);
            parts.push(Part {
                from,
                to,
                size_bytes: item.size_bytes * count,
                change: MemberChange::None,
            });
        }
        true => {
            for number in 1..count {
                let from = from + number * item.size_bytes;
                add::<T>(item, from, to + number * datatype.size_bytes(), parts)?;
            }
        }
    }
    Ok(array_of(shape, datatype))
}

/// Returns the type of an array of items; if the item is an array, its shape is appended.
pub(in crate::view) fn array_of(shape: &[usize], item: Datatype) -> Datatype {
    let mut shape = shape.to_vec();
    match item {
        Datatype::Array { shape: inner, item } => {
            shape.extend(inner);
            Datatype::Array { shape, item }
        }
        item => Datatype::Array {
            shape,
            item: Box::new(item),
        },
    }
}
