//! Structures as compound types, which are named types in netCDF (netcdf-c, "User-Defined Types").

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization as _;

use crate::view::dataset::MAX_NAME_BYTES;
use crate::view::hdf5::{self, Datatype, Member, Object};
use crate::view::number::{Number, NumberKind};
use crate::zarr::{ByteOrder, Field, Fixed, Scalar};

/// The type of a character.
pub(super) const CHARACTER: Datatype = Datatype::Text {
    size_bytes: 1,
    is_ascii: true,
};
/// The maximum length of a name before a number is appended, in bytes.
const MAX_STEM_BYTES: usize = 200;

/// Returns the compound type of a structure in netCDF. Booleans are bytes as in other variables, byte strings
/// are arrays of characters, opaque bytes are arrays of bytes.
///
/// # Errors
/// netCDF does not support a member.
pub(super) fn datatype(structure: &Fixed) -> Result<Datatype, String> {
    let datatype = item(structure)?;
    match datatype.fits() {
        true => Ok(datatype),
        false => Err("a structure with too many members for HDF5".into()),
    }
}

fn item(fixed: &Fixed) -> Result<Datatype, String> {
    let size = fixed.size_bytes;
    let byte = |kind| Datatype::Number(Number::new(kind, 1, ByteOrder::Little));
    match &fixed.scalar {
        Scalar::Bool => Ok(byte(NumberKind::Int)),
        Scalar::Bytes => Ok(items(&[size], CHARACTER)),
        Scalar::Raw => Ok(items(&[size], byte(NumberKind::UInt))),
        Scalar::SubArray { shape, item: inner } => Ok(items(shape, item(inner)?)),
        Scalar::Struct(fields) => {
            let members: Vec<Member> = fields.iter().map(member).collect::<Result<_, _>>()?;
            let names: HashSet<&str> = members.iter().map(|member| &member.name[..]).collect();
            match names.len() == members.len() {
                true => Ok(Datatype::Compound {
                    size_bytes: size,
                    members,
                }),
                false => Err("two members of a structure have the same name in NFC".into()),
            }
        }
        _ => match Number::of(fixed) {
            Some((part, 2)) => Ok(Datatype::complex(part)),
            Some((number, _)) if number.kind != NumberKind::Float || size > 2 => {
                Ok(Datatype::Number(number))
            }
            _ => Err(format!("netCDF has no data type for a member of {fixed}")),
        },
    }
}

fn member(field: &Field) -> Result<Member, String> {
    let name: String = field.name.nfc().collect();
    let is_name =
        name.len() <= MAX_NAME_BYTES && !name.contains('/') && !name.chars().any(char::is_control);
    match is_name {
        true => Ok(Member {
            name,
            offset: field.offset,
            datatype: item(&field.data_type)?,
        }),
        false => Err(format!("{:?} is no name of a member in netCDF", field.name)),
    }
}

/// Returns an array of items; if the item is an array, its shape is appended.
fn items(shape: &[usize], item: Datatype) -> Datatype {
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
        let half = fixed(Scalar::Float(ByteOrder::Little), 2);
        let text = fixed(Scalar::Text(ByteOrder::Little), 8);
        let int = fixed(Scalar::Int(ByteOrder::Little), 4);
        for (name, data_type) in [("a", half), ("a", text), ("a/b", int.clone()), ("a\n", int)] {
            let found = datatype(&structure(vec![(name, data_type)]));
            assert!(found.is_err(), "{name}: {found:?}");
        }
    }
}
