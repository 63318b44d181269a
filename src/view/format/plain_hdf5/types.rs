//! HDF5 types of elements, as h5py writes them.

use crate::node::{Conversion, Number, NumberKind};
use crate::view::encode::hdf5::file_body::DatasetValues;
use crate::view::encode::hdf5::record_encoding::{
    MemberChange, MemberTypes, RecordEncoding, needs_encoding,
};
use crate::view::encode::hdf5::{self, Datatype};
use crate::zarr::{ByteOrder, DataType, Fixed, MetadataError, Scalar, Variable};

/// Returns the type of elements in the file, and their conversion.
///
/// # Errors
/// HDF5 does not support the structure, or its text has to be encoded ([`encode`]).
pub(super) fn of_elements(data_type: &Fixed) -> Result<(Datatype, Option<Conversion>), String> {
    let size_bytes = data_type.size_bytes;
    if let Scalar::Text(order) = data_type.scalar {
        let datatype = Datatype::Text {
            size_bytes,
            is_ascii: false,
        };
        return Ok((datatype, Some(Conversion::utf8(size_bytes, order))));
    }
    match needs_encoding::<PlainMembers>(data_type) {
        true => Err("a structure with text".into()),
        false => Ok((
            RecordEncoding::of::<PlainMembers>(data_type)?.datatype,
            None,
        )),
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

/// The members of structures as h5py writes them: texts are references into the heap.
pub(super) struct PlainMembers;

impl MemberTypes for PlainMembers {
    fn of_value(value: &Fixed) -> Result<(Datatype, MemberChange), String> {
        let size_bytes = value.size_bytes;
        let datatype = match &value.scalar {
            Scalar::Text(order) => {
                return Ok((Datatype::VariableText, MemberChange::TextReference(*order)));
            }
            Scalar::Bool => Datatype::Bool,
            Scalar::Bytes => Datatype::Text {
                size_bytes,
                is_ascii: true,
            },
            Scalar::Raw | Scalar::Other { .. } => Datatype::Opaque(size_bytes),
            _ => match Number::of(value) {
                Some((part, 2)) => Datatype::complex(part),
                Some((number, _)) => Datatype::Number(number),
                None => return Err(format!("HDF5 has no data type for {value}")),
            },
        };
        Ok((datatype, MemberChange::None))
    }

    fn name(name: &str) -> Result<String, String> {
        Ok(name.to_owned())
    }
}

/// Encodes the elements `bytes` of an array for the file.
///
/// # Errors
/// The code points of a text are invalid.
pub(super) fn encode(
    encoding: &RecordEncoding,
    bytes: &[u8],
    file: &mut hdf5::File<'_>,
) -> Result<DatasetValues, String> {
    let records = encoding.encode(bytes, |text| file.push_text(text))?;
    Ok(DatasetValues::Records(records.bytes, records.texts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::Field;

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
        let records = RecordEncoding::of::<PlainMembers>(&data_type).unwrap();
        assert_eq!(records.datatype.size_bytes(), 2 + 3 * REFERENCE_BYTES + 3);
        let mut element = vec![1, 2];
        for text in ["x", "yz", ""] {
            let points = text.chars().map(u32::from).chain([0; 2]).take(2);
            element.extend(points.flat_map(u32::to_le_bytes));
        }
        element.extend(b"end");
        let mut file = hdf5::File::default();
        let Ok(DatasetValues::Records(bytes, texts)) =
            encode(&records, &element.repeat(2), &mut file)
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
        assert!(encode(&records, &element, &mut file).is_err());
    }

    #[test]
    fn large_arrays_without_text_in_structures_are_one_part() {
        let items = Scalar::SubArray {
            shape: vec![1000, 1000],
            item: Box::new(fixed(Scalar::Bool, 1)),
        };
        let fields = vec![field("a", 0, fixed(items, 1_000_000))];
        let structure = fixed(Scalar::Struct(fields), 1_000_000);
        let records = RecordEncoding::of::<PlainMembers>(&structure).unwrap();
        assert_eq!(records.part_count(), 1);
        assert_eq!(records.datatype.size_bytes(), 1_000_000);
    }
}
