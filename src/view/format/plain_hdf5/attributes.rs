//! HDF5 attributes from JSON, with the types that h5py gives the values of Python.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::conventions::anndata::NA_VALUE;
use crate::conventions::cf;
use crate::node::{Number, NumberKind, Value};
use crate::view::encode::hdf5::{self, Attribute, Datatype, Payload};
use crate::zarr::ByteOrder;

const I8: Number = Number::new(NumberKind::Int, 8, ByteOrder::Little);
const U8: Number = Number::new(NumberKind::UInt, 8, ByteOrder::Little);
const F8: Number = Number::new(NumberKind::Float, 8, ByteOrder::Little);

/// Texts in the heap, with their lengths and entries.
#[derive(Debug, Default)]
pub(super) struct HeapTexts(HashMap<String, (u32, usize)>);

impl HeapTexts {
    fn add(&mut self, text: &str, file: &mut hdf5::File<'_>) -> (u32, usize) {
        match self.0.get(text) {
            Some(known) => *known,
            None => {
                let added = file.push_text(text.to_owned());
                self.0.insert(text.to_owned(), added);
                added
            }
        }
    }
}

/// Encodes an attribute. The second value is whether it became JSON text because HDF5 has no such value:
/// objects, lists of lists or of mixed types, and text with NUL.
pub(super) fn encode(
    name: &str,
    json: &Json,
    texts: &mut HeapTexts,
    file: &mut hdf5::File<'_>,
) -> (Attribute, bool) {
    let value = match json {
        Json::Null => Some((Datatype::Number(F8), Payload::Null)),
        Json::String(text) if name == NA_VALUE || cf::special(text).is_none() => {
            of_text(json, texts, file)
        }
        Json::Array(list) => texts_of_list(list, texts, file).or_else(|| {
            let (datatype, bytes) = values(list)?;
            Some((datatype, Payload::Many(list.len() as u64, bytes)))
        }),
        single => values(std::slice::from_ref(single))
            .map(|(datatype, bytes)| (datatype, Payload::One(bytes))),
    };
    let is_text = value.is_none();
    let (datatype, payload) = value.unwrap_or_else(|| {
        let text = texts.add(&json.to_string(), file);
        (Datatype::VariableText, Payload::Text(text))
    });
    let attribute = Attribute {
        name: name.to_owned(),
        datatype,
        payload,
    };
    (attribute, is_text)
}

fn of_text(
    json: &Json,
    texts: &mut HeapTexts,
    file: &mut hdf5::File<'_>,
) -> Option<(Datatype, Payload)> {
    let text = texts.add(plain_text(json)?, file);
    Some((Datatype::VariableText, Payload::Text(text)))
}

fn texts_of_list(
    list: &[Json],
    texts: &mut HeapTexts,
    file: &mut hdf5::File<'_>,
) -> Option<(Datatype, Payload)> {
    let plain: Vec<&str> = list.iter().map(plain_text).collect::<Option<_>>()?;
    if plain.iter().all(|text| cf::special(text).is_some()) {
        return None;
    }
    let plain = plain.into_iter().map(|text| texts.add(text, file));
    let entries: Vec<(u32, usize)> = plain.collect();
    (!entries.is_empty()).then_some((Datatype::VariableText, Payload::Variable(entries)))
}

/// Returns a text without NUL.
fn plain_text(json: &Json) -> Option<&str> {
    json.as_str().filter(|text| !text.contains('\0'))
}

/// Returns booleans, or numbers of one type; an empty list has doubles, as in h5py.
fn values(list: &[Json]) -> Option<(Datatype, Vec<u8>)> {
    if list.is_empty() {
        return Some((Datatype::Number(F8), Vec::new()));
    }
    let booleans: Option<Vec<u8>> = list
        .iter()
        .map(|json| json.as_bool().map(u8::from))
        .collect();
    if let Some(booleans) = booleans {
        return Some((Datatype::Bool, booleans));
    }
    let numbers: Vec<Value> = list
        .iter()
        .map(cf::number_or_special)
        .collect::<Option<_>>()?;
    let is_whole = numbers.iter().all(|value| matches!(value, Value::Int(_)));
    let write = |target: Number| {
        let words: Option<Vec<Vec<u8>>> =
            numbers.iter().map(|value| target.write(*value)).collect();
        Some((Datatype::Number(target), words?.concat()))
    };
    match is_whole {
        true => [I8, U8].into_iter().find_map(write),
        false => write(F8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_the_types_of_h5py() {
        let (mut texts, mut file) = (HeapTexts::default(), hdf5::File::default());
        let mut of = |json: Json| {
            let (attribute, is_text) = encode("a", &json, &mut texts, &mut file);
            (attribute.datatype, attribute.payload, is_text)
        };
        let number = |number| Datatype::Number(number);
        for (json, datatype, is_text) in [
            (json!(5), number(I8), false),
            (json!(u64::MAX), number(U8), false),
            (json!(0.5), number(F8), false),
            (json!([1, 2.5]), number(F8), false),
            (json!("NaN"), number(F8), false),
            (json!([1, "Infinity"]), number(F8), false),
            (json!(["NaN", "-Infinity"]), number(F8), false),
            (json!(["NaN", "a"]), Datatype::VariableText, false),
            (json!([]), number(F8), false),
            (json!(true), Datatype::Bool, false),
            (json!([true, false]), Datatype::Bool, false),
            (json!(null), number(F8), false),
            (json!("a"), Datatype::VariableText, false),
            (json!(["a", "b"]), Datatype::VariableText, false),
            (json!("a\u{0}"), Datatype::VariableText, true),
            (json!(["a", "b\u{0}"]), Datatype::VariableText, true),
            (json!({"a": 1}), Datatype::VariableText, true),
            (json!([[1], [2]]), Datatype::VariableText, true),
            (json!([1, true]), Datatype::VariableText, true),
            (json!([1, "a"]), Datatype::VariableText, true),
            (json!([u64::MAX, -1]), Datatype::VariableText, true),
            (json!([u64::MAX, 0.5]), Datatype::VariableText, true),
        ] {
            let (found, _, found_text) = of(json.clone());
            assert_eq!((found, found_text), (datatype, is_text), "{json}");
        }
        let (_, payload, _) = of(json!([true, false]));
        assert!(matches!(payload, Payload::Many(2, bytes) if bytes == [1, 0]));
        let Payload::Text(first) = of(json!("a")).1 else {
            panic!("no text");
        };
        let Payload::Variable(list) = of(json!(["b", "a"])).1 else {
            panic!("no texts");
        };
        assert_eq!(list[1], first);
        let (na_value, _) = encode(NA_VALUE, &json!("NaN"), &mut texts, &mut file);
        assert_eq!(na_value.datatype, Datatype::VariableText);
    }
}
