//! Structures as compound types, which are named types in netCDF (netcdf-c, "User-Defined Types").

use std::collections::HashSet;

use half::f16;
use unicode_normalization::UnicodeNormalization as _;

use crate::view::dataset::MAX_NAME_BYTES;
use crate::view::hdf5::{self, Datatype, Member, Object};
use crate::view::number::{Number, NumberKind, code_points};
use crate::zarr::{ByteOrder, Field, Fixed, Scalar};

/// The type of a character.
pub(super) const CHARACTER: Datatype = Datatype::Text {
    size_bytes: 1,
    is_ascii: true,
};
/// The maximum length of a name before a number is appended, in bytes.
const MAX_STEM_BYTES: usize = 200;

/// Returns the compound type of a structure whose elements are the same in netCDF.
///
/// # Errors
/// netCDF does not support a member, or the elements have to be encoded ([`Encoding`]).
pub(super) fn datatype(structure: &Fixed) -> Result<Datatype, String> {
    match needs_encoding(structure) {
        false => Ok(Encoding::of(structure)?.datatype),
        true => Err("structures with text or half floats that are not decoded".into()),
    }
}

/// Returns whether elements contain text or half floats, which netCDF does not have in structures.
pub(in crate::view) fn needs_encoding(fixed: &Fixed) -> bool {
    match &fixed.scalar {
        Scalar::Text(_) => true,
        Scalar::SubArray { item, .. } => needs_encoding(item),
        Scalar::Struct(fields) => fields.iter().any(|field| needs_encoding(&field.data_type)),
        _ => half_order(fixed).is_some(),
    }
}

/// Returns the byte order of a half float; `None` for other types.
fn half_order(fixed: &Fixed) -> Option<ByteOrder> {
    match Number::of(fixed)? {
        (number, 1) if number.kind == NumberKind::Float && number.size_bytes == 2 => {
            Some(number.order)
        }
        _ => None,
    }
}

/// The encoding of structures in netCDF. Booleans are bytes as in other variables, byte strings are arrays of
/// characters, opaque bytes are arrays of bytes, half floats are floats. Text is an array of characters in
/// UTF-8, of as many bytes as the code points take, padded with NUL.
pub(super) struct Encoding {
    pub(super) datatype: Datatype,
    parts: Vec<Part>,
    stored_bytes: usize,
}

/// Consecutive bytes of an element, at the offset `from` in the array and at `to` in the file.
struct Part {
    from: usize,
    to: usize,
    size_bytes: usize,
    change: Change,
}

/// The change of the bytes of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Half(ByteOrder),
    Text(ByteOrder),
}

/// The maximum number of parts of an element.
const MAX_PARTS: usize = 1 << 16;

impl Encoding {
    /// Returns the encoding of a structure.
    ///
    /// # Errors
    /// netCDF does not support a member.
    pub(super) fn of(structure: &Fixed) -> Result<Self, String> {
        let mut parts = Vec::new();
        let datatype = add(structure, 0, 0, &mut parts)?;
        match datatype.fits() {
            true => Ok(Self {
                datatype,
                parts,
                stored_bytes: structure.size_bytes,
            }),
            false => Err("a structure with too many members for HDF5".into()),
        }
    }

    /// Encodes the elements `bytes` of an array.
    ///
    /// # Errors
    /// The code points of a text are invalid.
    pub(super) fn encode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let item_bytes = self.datatype.size_bytes();
        let mut encoded = Vec::new();
        for element in bytes.chunks_exact(self.stored_bytes.max(1)) {
            let start = encoded.len();
            encoded.resize(start + item_bytes, 0);
            for part in &self.parts {
                let stored = element.get(part.from..part.from + part.size_bytes);
                let stored = stored.ok_or("a member beyond its structure")?;
                let target = encoded.get_mut(start + part.to..);
                part.encode(stored, target.unwrap_or_default())?;
            }
        }
        Ok(encoded)
    }
}

impl Part {
    /// Writes the part to the beginning of `target`.
    fn encode(&self, stored: &[u8], target: &mut [u8]) -> Result<(), String> {
        let put = |bytes: &[u8], target: &mut [u8]| match target.get_mut(..bytes.len()) {
            Some(target) => {
                target.copy_from_slice(bytes);
                Ok(())
            }
            None => Err("a member beyond its structure".to_owned()),
        };
        match (self.change, stored) {
            (Change::None, bytes) => put(bytes, target),
            (Change::Half(ByteOrder::Little), &[a, b]) => {
                put(&f16::from_le_bytes([a, b]).to_f32().to_le_bytes(), target)
            }
            (Change::Half(ByteOrder::Big), &[a, b]) => {
                put(&f16::from_be_bytes([a, b]).to_f32().to_be_bytes(), target)
            }
            (Change::Half(_), _) => Err("a half float of another size".into()),
            (Change::Text(order), bytes) => {
                let text = code_points(bytes, order).map(char::from_u32);
                let text = text.collect::<Option<String>>();
                let text = text.filter(|text| !text.contains('\0'));
                let text = text.ok_or("a text with NUL or invalid code points in it")?;
                put(text.as_bytes(), target)
            }
        }
    }
}

/// Returns the type of a value, at offset `from` in the element and `to` in the file, and adds its parts.
fn add(fixed: &Fixed, from: usize, to: usize, parts: &mut Vec<Part>) -> Result<Datatype, String> {
    let size_bytes = fixed.size_bytes;
    let byte = |kind| Datatype::Number(Number::new(kind, 1, ByteOrder::Little));
    let mut change = Change::None;
    let datatype = match &fixed.scalar {
        Scalar::Struct(fields) => return add_members((fields, size_bytes), from, to, parts),
        Scalar::SubArray { shape, item } => return add_items(shape, item, from, to, parts),
        Scalar::Bool => byte(NumberKind::Int),
        Scalar::Bytes => items(&[size_bytes], CHARACTER),
        Scalar::Raw => items(&[size_bytes], byte(NumberKind::UInt)),
        Scalar::Text(order) => {
            change = Change::Text(*order);
            items(&[size_bytes], CHARACTER)
        }
        _ => match Number::of(fixed) {
            Some((part, 2)) if part.size_bytes > 2 => Datatype::complex(part),
            Some((number, 1)) => match half_order(fixed) {
                Some(order) => {
                    change = Change::Half(order);
                    Datatype::Number(Number::new(NumberKind::Float, 4, order))
                }
                None => Datatype::Number(number),
            },
            _ => return Err(format!("netCDF has no data type for a member of {fixed}")),
        },
    };
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

fn add_members(
    (fields, size_bytes): (&[Field], usize),
    from: usize,
    to: usize,
    parts: &mut Vec<Part>,
) -> Result<Datatype, String> {
    let first = parts.len();
    let is_changed = fields.iter().any(|field| needs_encoding(&field.data_type));
    let mut members = Vec::with_capacity(fields.len());
    let mut names = HashSet::new();
    let mut offset = 0;
    for field in fields {
        let name: String = field.name.nfc().collect();
        let is_name = name.len() <= MAX_NAME_BYTES
            && !name.contains('/')
            && !name.chars().any(char::is_control);
        if !is_name {
            return Err(format!("{:?} is no name of a member in netCDF", field.name));
        }
        if !names.insert(name.clone()) {
            return Err("two members of a structure have the same name in NFC".into());
        }
        if !is_changed {
            offset = field.offset;
        }
        let datatype = add(&field.data_type, from + field.offset, to + offset, parts)?;
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
            change: Change::None,
        });
        offset = size_bytes;
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
    parts: &mut Vec<Part>,
) -> Result<Datatype, String> {
    let first = parts.len();
    let datatype = add(item, from, to, parts)?;
    let count: usize = shape.iter().product();
    match needs_encoding(item) {
        false => {
            // The item bytes stay the same.
            parts.truncate(first);
            parts.push(Part {
                from,
                to,
                size_bytes: item.size_bytes * count,
                change: Change::None,
            });
        }
        true => {
            for number in 1..count {
                let from = from + number * item.size_bytes;
                add(item, from, to + number * datatype.size_bytes(), parts)?;
            }
        }
    }
    Ok(items(shape, datatype))
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
        let encoding = Encoding::of(&outer).unwrap();
        assert_eq!(encoding.datatype.size_bytes(), 3 + 8 + 2 * 4 + 2);
        let text: Vec<u8> = "ü€"
            .chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect();
        let mut element = [&b"end"[..], &text, &[0x3c, 0, 0xfc, 0], &[1, 2]].concat();
        let mut expected = [&b"end"[..], "ü€".as_bytes(), &[0; 3]].concat();
        expected.extend([1_f32, f32::NEG_INFINITY].map(f32::to_be_bytes).concat());
        expected.extend([1, 2]);
        let encoded = encoding.encode(&element.repeat(2)).unwrap();
        assert_eq!(encoded, expected.repeat(2));
        element[3..7].copy_from_slice(&0xD800_u32.to_le_bytes());
        assert!(encoding.encode(&element).is_err());
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
