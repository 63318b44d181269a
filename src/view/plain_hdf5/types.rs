//! HDF5 types of elements, as h5py writes them.

use crate::view::hdf5::{self, Datatype, Member};
use crate::view::netcdf4::body::DatasetValues;
use crate::view::number::{Conversion, Number, NumberKind, code_points};
use crate::zarr::{ByteOrder, DataType, Field, Fixed, MetadataError, Scalar, Variable};

/// Returns the type of elements in the file, and their conversion.
///
/// # Errors
/// HDF5 does not support the structure, or its text has to be decoded ([`RecordEncoding`]).
pub(super) fn of_elements(data_type: &Fixed) -> Result<(Datatype, Option<Conversion>), String> {
    let size_bytes = data_type.size_bytes;
    if let Scalar::Text(order) = data_type.scalar {
        let datatype = Datatype::Text {
            size_bytes,
            is_ascii: false,
        };
        return Ok((datatype, Some(Conversion::utf8(size_bytes, order))));
    }
    let records = RecordEncoding::of(data_type)?;
    match records.parts.iter().any(|part| part.text.is_some()) {
        true => Err("a structure with text".into()),
        false => Ok((records.datatype, None)),
    }
}

/// Returns the type of the items of elements of variable length.
///
/// # Errors
/// The elements are no lists, or HDF5 has no such items.
pub(super) fn of_items(data_type: &Result<DataType, MetadataError>) -> Result<Datatype, String> {
    let item = match data_type {
        Ok(DataType::Variable(Variable::Bytes)) => {
            let byte = Number::new(NumberKind::UInt, 1, ByteOrder::Little);
            return Ok(Datatype::Number(byte));
        }
        Ok(DataType::Variable(Variable::Array(item))) => item,
        _ => return Err("no lists".into()),
    };
    match of_elements(item)? {
        (datatype, None) => Ok(datatype),
        (_, Some(_)) => Err(format!("lists of {item}: they are in .json")),
    }
}

/// The encoding of elements in the file: copied bytes, and texts as references into the heap.
pub(super) struct RecordEncoding {
    pub(super) datatype: Datatype,
    parts: Vec<RecordPart>,
    stored_bytes: usize,
}

/// Consecutive bytes of an element, at the offset `from` in the array and at `to` in the file.
struct RecordPart {
    from: usize,
    to: usize,
    size_bytes: usize,
    /// The byte order of the code points, if the part is a text.
    text: Option<ByteOrder>,
}

/// The maximum number of parts of an element.
const MAX_PARTS: usize = 1 << 16;

impl RecordEncoding {
    /// Returns the encoding of elements of any type of constant size.
    ///
    /// # Errors
    /// The type has too many members.
    pub(super) fn of(data_type: &Fixed) -> Result<Self, String> {
        let mut parts = Vec::new();
        let datatype = add(data_type, 0, 0, &mut parts)?;
        match datatype.fits() {
            true => Ok(Self {
                datatype,
                parts,
                stored_bytes: data_type.size_bytes,
            }),
            false => Err("a structure that HDF5 cannot have: a name, or too many members".into()),
        }
    }

    /// Encodes the elements `bytes` of an array for the file.
    ///
    /// # Errors
    /// The code points of a text are invalid.
    pub(super) fn encode(
        &self,
        bytes: &[u8],
        file: &mut hdf5::File<'_>,
    ) -> Result<DatasetValues, String> {
        let item_bytes = self.datatype.size_bytes();
        let (mut encoded, mut texts) = (Vec::new(), Vec::new());
        for element in bytes.chunks_exact(self.stored_bytes.max(1)) {
            let start = encoded.len();
            encoded.resize(start + item_bytes, 0);
            for part in &self.parts {
                let stored = element.get(part.from..part.from + part.size_bytes);
                let stored = stored.ok_or("a member beyond its structure")?;
                if let Some(order) = part.text {
                    let points = code_points(stored, order).map(char::from_u32);
                    let text = points.collect::<Option<String>>();
                    let text = text.filter(|text| !text.contains('\0'));
                    let text = text.ok_or("a text with NUL or invalid code points in it")?;
                    texts.push((start + part.to, file.push_text(text)));
                } else {
                    let to = start + part.to;
                    let target = encoded.get_mut(to..to + part.size_bytes);
                    let target = target.ok_or("a member beyond its structure")?;
                    target.copy_from_slice(stored);
                }
            }
        }
        Ok(DatasetValues::Records(encoded, texts))
    }
}

/// Returns the type of a value, at offset `from` in the element and `to` in the file, and adds its parts.
fn add(
    data_type: &Fixed,
    from: usize,
    to: usize,
    parts: &mut Vec<RecordPart>,
) -> Result<Datatype, String> {
    let size_bytes = data_type.size_bytes;
    let (datatype, text) = match &data_type.scalar {
        Scalar::Struct(fields) => return add_members(fields, from, to, parts),
        Scalar::SubArray { shape, item } => return add_items(shape, item, from, to, parts),
        Scalar::Text(order) => (Datatype::VariableText, Some(*order)),
        Scalar::Bool => (Datatype::Bool, None),
        Scalar::Bytes => {
            let is_ascii = true;
            let datatype = Datatype::Text {
                size_bytes,
                is_ascii,
            };
            (datatype, None)
        }
        Scalar::Raw | Scalar::Other { .. } => (Datatype::Opaque(size_bytes), None),
        _ => match Number::of(data_type) {
            Some((part, 2)) => (Datatype::complex(part), None),
            Some((number, _)) => (Datatype::Number(number), None),
            None => return Err(format!("HDF5 has no data type for {data_type}")),
        },
    };
    if parts.len() >= MAX_PARTS {
        return Err(format!("a structure of more than {MAX_PARTS} values"));
    }
    parts.push(RecordPart {
        from,
        to,
        size_bytes,
        text,
    });
    Ok(datatype)
}

fn add_members(
    fields: &[Field],
    from: usize,
    to: usize,
    parts: &mut Vec<RecordPart>,
) -> Result<Datatype, String> {
    let mut members = Vec::with_capacity(fields.len());
    let mut offset = 0;
    for field in fields {
        let datatype = add(&field.data_type, from + field.offset, to + offset, parts)?;
        let size_bytes = datatype.size_bytes();
        members.push(Member {
            name: field.name.clone(),
            offset,
            datatype,
        });
        offset += size_bytes;
    }
    Ok(Datatype::Compound {
        size_bytes: offset,
        members,
    })
}

fn add_items(
    shape: &[usize],
    item: &Fixed,
    from: usize,
    to: usize,
    parts: &mut Vec<RecordPart>,
) -> Result<Datatype, String> {
    let first = parts.len();
    let datatype = add(item, from, to, parts)?;
    let count: usize = shape.iter().product();
    let is_text = |part: &RecordPart| part.text.is_some();
    if !parts.get(first..).unwrap_or_default().iter().any(is_text) {
        // The item bytes stay the same, whatever their type is.
        parts.truncate(first);
        parts.push(RecordPart {
            from,
            to,
            size_bytes: item.size_bytes * count,
            text: None,
        });
    } else {
        for number in 1..count {
            let (from, to) = (
                from + number * item.size_bytes,
                to + number * datatype.size_bytes(),
            );
            add(item, from, to, parts)?;
        }
    }
    Ok(Datatype::Array {
        shape: shape.to_vec(),
        item: Box::new(datatype),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE_BYTES: usize = 16;

    fn fixed(scalar: Scalar, size_bytes: usize) -> Fixed {
        Fixed { scalar, size_bytes }
    }

    fn field(name: &str, offset: usize, data_type: Fixed) -> Field {
        Field {
            name: name.to_owned(),
            offset,
            data_type,
        }
    }

    #[test]
    fn texts_of_structures_are_references_and_everything_else_is_copied() {
        let text = fixed(Scalar::Text(ByteOrder::Little), 8);
        let texts = Scalar::SubArray {
            shape: vec![2],
            item: Box::new(text.clone()),
        };
        let fields = vec![
            field("a", 0, fixed(Scalar::Int(ByteOrder::Big), 2)),
            field("b", 2, text),
            field("c", 10, fixed(texts, 16)),
            field("d", 26, fixed(Scalar::Bytes, 3)),
        ];
        let data_type = fixed(Scalar::Struct(fields), 29);
        assert!(of_elements(&data_type).is_err());
        let records = RecordEncoding::of(&data_type).unwrap();
        assert_eq!(records.datatype.size_bytes(), 2 + 3 * REFERENCE_BYTES + 3);
        let mut element = vec![1, 2];
        for text in ["x", "yz", ""] {
            let points = text.chars().map(u32::from).chain([0; 2]).take(2);
            element.extend(points.flat_map(u32::to_le_bytes));
        }
        element.extend(b"end");
        let mut file = hdf5::File::default();
        let Ok(DatasetValues::Records(bytes, texts)) =
            records.encode(&element.repeat(2), &mut file)
        else {
            panic!("no records");
        };
        assert_eq!(bytes[..2], [1, 2]);
        assert_eq!(bytes[50..55], *b"end\x01\x02");
        let places = texts.iter().map(|(at, (length, _))| (*at, *length));
        let expected = [(2, 1), (18, 2), (34, 0), (55, 1), (71, 2), (87, 0)];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        let text = 0xD800_u32.to_le_bytes().repeat(2);
        element[2..10].copy_from_slice(&text);
        assert!(records.encode(&element, &mut file).is_err());
    }

    #[test]
    fn large_arrays_without_text_in_structures_are_one_part() {
        let items = Scalar::SubArray {
            shape: vec![1000, 1000],
            item: Box::new(fixed(Scalar::Bool, 1)),
        };
        let fields = vec![field("a", 0, fixed(items, 1_000_000))];
        let records = RecordEncoding::of(&fixed(Scalar::Struct(fields), 1_000_000)).unwrap();
        assert_eq!(
            (records.parts.len(), records.datatype.size_bytes()),
            (1, 1_000_000)
        );
    }
}
