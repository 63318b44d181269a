//! Structures as compound types, which are named types in netCDF (netcdf-c, "User-Defined Types").

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization as _;

use crate::node::{Number, NumberKind};
use crate::view::dataset::MAX_NAME_BYTES;
use crate::view::encode::hdf5::record_encoding::{
    self, MemberChange, MemberTypes, RecordEncoding, array_of,
};
use crate::view::encode::hdf5::{self, Datatype, Object};
use crate::zarr::{ByteOrder, Fixed, Scalar};

/// The type of a character.
pub(super) const CHARACTER: Datatype = Datatype::Text {
    size_bytes: 1,
    is_ascii: true,
};
/// The maximum length of a name before a number is appended, in bytes.
const MAX_STEM_BYTES: usize = 200;

/// The members of structures in netCDF. Booleans are bytes as in other variables, byte strings are arrays of
/// characters, opaque bytes are arrays of bytes, half floats are floats. Text is an array of characters in
/// UTF-8, of as many bytes as the code points take, padded with NUL.
pub(super) struct NetCdfMembers;

impl MemberTypes for NetCdfMembers {
    fn of_value(value: &Fixed) -> Result<(Datatype, MemberChange), String> {
        let size_bytes = value.size_bytes;
        let byte = |kind| Datatype::Number(Number::new(kind, 1, ByteOrder::Little));
        let mut change = MemberChange::None;
        let datatype = match &value.scalar {
            Scalar::Bool => byte(NumberKind::Int),
            Scalar::Bytes => array_of(&[size_bytes], CHARACTER),
            Scalar::Raw => array_of(&[size_bytes], byte(NumberKind::UInt)),
            Scalar::Text(order) => {
                change = MemberChange::Utf8(*order);
                array_of(&[size_bytes], CHARACTER)
            }
            _ => match Number::of(value) {
                Some((part, 2)) if part.size_bytes > 2 => Datatype::complex(part),
                Some((half, 1)) if half.kind == NumberKind::Float && half.size_bytes == 2 => {
                    change = MemberChange::HalfToFloat(half.order);
                    Datatype::Number(Number::new(NumberKind::Float, 4, half.order))
                }
                Some((number, 1)) => Datatype::Number(number),
                _ => return Err(format!("netCDF has no data type for a member of {value}")),
            },
        };
        Ok((datatype, change))
    }

    fn name(name: &str) -> Result<String, String> {
        let in_nfc: String = name.nfc().collect();
        let is_name = in_nfc.len() <= MAX_NAME_BYTES
            && !in_nfc.contains('/')
            && !in_nfc.chars().any(char::is_control);
        match is_name {
            true => Ok(in_nfc),
            false => Err(format!("{name:?} is no name of a member in netCDF")),
        }
    }
}

/// Returns the compound type of a structure whose elements are the same in netCDF.
///
/// # Errors
/// netCDF does not support a member, or the elements have to be encoded.
pub(super) fn datatype(structure: &Fixed) -> Result<Datatype, String> {
    match needs_encoding(structure) {
        false => Ok(RecordEncoding::of::<NetCdfMembers>(structure)?.datatype),
        true => Err("structures with text or half floats that are not decoded".into()),
    }
}

/// Returns whether elements contain text or half floats, which netCDF does not have in structures.
pub(in crate::view) fn needs_encoding(data_type: &Fixed) -> bool {
    record_encoding::needs_encoding::<NetCdfMembers>(data_type)
}

/// The named types of a file.
#[derive(Default)]
pub(super) struct NamedTypes {
    /// A type, the stem of its name, and its object. Types come after the types of their members.
    all: Vec<(Datatype, String, usize)>,
}

impl NamedTypes {
    /// Names a compound type of the variable `of` and the types inside it, and returns its object.
    pub(super) fn name(
        &mut self,
        datatype: &Datatype,
        of: &str,
        file: &mut hdf5::File<'_>,
    ) -> usize {
        let object = self.add(datatype, of, file);
        if let Some(Object::Datatype(_, users)) = file.objects.get_mut(object) {
            *users = users.saturating_add(1);
        }
        object
    }

    fn add(&mut self, datatype: &Datatype, stem: &str, file: &mut hdf5::File<'_>) -> usize {
        if let Some((.., object)) = self.all.iter().find(|(known, ..)| known == datatype) {
            return *object;
        }
        if let Datatype::Compound { members, .. } = datatype {
            for member in members {
                let inner = match &member.datatype {
                    Datatype::Array { item, .. } => item,
                    other => other,
                };
                if let Datatype::Compound { .. } = inner {
                    self.add(inner, &format!("{stem}_{}", member.name), file);
                }
            }
        }
        let object = file.push(Object::Datatype(datatype.clone(), 0));
        self.all.push((datatype.clone(), stem.to_owned(), object));
        object
    }

    /// Inserts the types before all members of the root group. The name is `<variable>_t`, with a number if a
    /// member has that name.
    pub(super) fn add_links(&self, links: &mut Vec<(String, usize)>) {
        let mut taken: HashSet<String> = links.iter().map(|(name, _)| name.clone()).collect();
        let mut types = Vec::with_capacity(self.all.len());
        for (_, stem, object) in &self.all {
            let mut end = stem.len().min(MAX_STEM_BYTES);
            while !stem.is_char_boundary(end) {
                end -= 1;
            }
            let stem = stem.get(..end).unwrap_or_default();
            let numbered = (2_u64..).map(|number| format!("{stem}_t{number}"));
            let mut names = std::iter::once(format!("{stem}_t")).chain(numbered);
            // The search ends: its numbers are unbounded.
            let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
            taken.insert(name.clone());
            types.push((name, *object));
        }
        links.splice(..0, types);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::Field;

    fn fixed(scalar: Scalar, size_bytes: usize) -> Fixed {
        Fixed { scalar, size_bytes }
    }

    fn structure(fields: Vec<(&str, Fixed)>) -> Fixed {
        let mut offset = 0;
        let fields = fields.into_iter().map(|(name, data_type)| {
            let field = Field {
                name: name.to_owned(),
                offset,
                data_type,
            };
            offset += field.data_type.size_bytes;
            field
        });
        let fields = fields.collect();
        fixed(Scalar::Struct(fields), offset)
    }

    #[test]
    fn types_are_named_once_and_after_those_of_their_members() {
        let inner = structure(vec![("x", fixed(Scalar::Float(ByteOrder::Big), 8))]);
        let list = Scalar::SubArray {
            shape: vec![2, 3],
            item: Box::new(inner.clone()),
        };
        let outer = structure(vec![
            ("a", inner),
            ("b", fixed(list, 48)),
            ("c", fixed(Scalar::Bytes, 5)),
        ]);
        let datatype = datatype(&outer).unwrap();
        assert_eq!(datatype.size_bytes(), 61);
        let mut file = hdf5::File::default();
        let mut types = NamedTypes::default();
        let object = types.name(&datatype, "v", &mut file);
        assert_eq!(types.name(&datatype, "w", &mut file), object);
        let mut links = vec![("v_a_t".to_owned(), 7)];
        types.add_links(&mut links);
        let names: Vec<&str> = links.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["v_a_t2", "v_t", "v_a_t"]);
        let users = file.objects.iter().map(|object| match object {
            Object::Datatype(_, users) => *users,
            _ => 0,
        });
        assert_eq!(users.collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn members_that_netcdf_cannot_have_leave_the_variable_out() {
        let int = fixed(Scalar::Int(ByteOrder::Little), 4);
        for (name, data_type) in [("a/b", int.clone()), ("a\n", int)] {
            let found = datatype(&structure(vec![(name, data_type)]));
            assert!(found.is_err(), "{name}: {found:?}");
        }
    }

    #[test]
    fn text_and_half_floats_are_encoded_and_everything_else_is_copied() {
        let half = fixed(Scalar::Float(ByteOrder::Big), 2);
        let halves = Scalar::SubArray {
            shape: vec![2],
            item: Box::new(half),
        };
        let inner = structure(vec![("x", fixed(Scalar::Int(ByteOrder::Little), 2))]);
        let outer = structure(vec![
            ("a", fixed(Scalar::Bytes, 3)),
            ("b", fixed(Scalar::Text(ByteOrder::Little), 8)),
            ("c", fixed(halves, 4)),
            ("d", inner),
        ]);
        assert!(datatype(&outer).is_err());
        let encoding = RecordEncoding::of::<NetCdfMembers>(&outer).unwrap();
        assert_eq!(encoding.datatype.size_bytes(), 3 + 8 + 2 * 4 + 2);
        let text: Vec<u8> = "ü€"
            .chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect();
        let mut element = [&b"end"[..], &text, &[0x3c, 0, 0xfc, 0], &[1, 2]].concat();
        let mut expected = [&b"end"[..], "ü€".as_bytes(), &[0; 3]].concat();
        expected.extend([1_f32, f32::NEG_INFINITY].map(f32::to_be_bytes).concat());
        expected.extend([1, 2]);
        let encoded = encoding.encode(&element.repeat(2), |_| ()).unwrap();
        assert_eq!(encoded.bytes, expected.repeat(2));
        element[3..7].copy_from_slice(&0xD800_u32.to_le_bytes());
        assert!(encoding.encode(&element, |_| ()).is_err());
    }

    #[test]
    fn structures_that_stay_the_same_keep_the_places_of_their_members() {
        let fields = [0, 4].map(|offset| Field {
            name: format!("m{offset}"),
            offset,
            data_type: fixed(Scalar::Int(ByteOrder::Little), 2),
        });
        let padded = fixed(Scalar::Struct(fields.into()), 8);
        let Datatype::Compound {
            size_bytes,
            members,
        } = datatype(&padded).unwrap()
        else {
            panic!("no compound type");
        };
        let offsets: Vec<usize> = members.iter().map(|member| member.offset).collect();
        assert_eq!((size_bytes, offsets), (8, vec![0, 4]));
    }
}
