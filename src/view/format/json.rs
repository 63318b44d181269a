//! Elements of variable length as a JSON document.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::Renderer;
use super::row::{FormatRow, JSON_TOOL, ViewName};
use crate::array::Elements;
use crate::codec::Element;
use crate::zarr::{ByteOrder, DataType, Fixed, Scalar, Variable};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "json",
    ViewName::Suffix(".json"),
    "the elements, which have variable length",
    JSON_TOOL,
    Renderer::Elements,
)
.expressing(&[])];

/// Renders an array as nested lists, one element per line: text as strings, bytes in base64, arrays as lists,
/// objects unchanged.
///
/// `None` if the text would be longer than `limit_bytes`.
pub(in crate::view) fn render(
    elements: &Elements,
    data_type: &DataType,
    shape: &[u64],
    limit_bytes: usize,
) -> Option<Vec<u8>> {
    let item = match data_type {
        DataType::Variable(Variable::Array(item)) => Some(item),
        _ => None,
    };
    let mut text = Vec::new();
    let mut values = elements.iter();
    nest(shape, &mut text, limit_bytes, &mut || match values.next() {
        Some(element) => value(element, item),
        None => Value::Null,
    })?;
    text.push(b'\n');
    Some(text)
}

/// Writes nested lists. Empty lists count against the limit too: a shape can have very many of them.
fn nest(
    shape: &[u64],
    text: &mut Vec<u8>,
    limit_bytes: usize,
    next: &mut dyn FnMut() -> Value,
) -> Option<()> {
    let Some((length, inner)) = shape.split_first() else {
        text.extend(next().to_string().into_bytes());
        return (text.len() <= limit_bytes).then_some(());
    };
    text.push(b'[');
    for i in 0..*length {
        text.extend(if i == 0 { &b"\n"[..] } else { b",\n" });
        nest(inner, text, limit_bytes, next)?;
        if text.len() > limit_bytes {
            return None;
        }
    }
    text.push(b']');
    Some(())
}

fn value(element: &Element, item: Option<&Fixed>) -> Value {
    match (element, item) {
        (Element::Text(text), _) => text.as_str().into(),
        (Element::Json(value), _) => (**value).clone(),
        (Element::Array(bytes), Some(item)) if item.size_bytes > 0 => bytes
            .chunks_exact(item.size_bytes)
            .map(|bytes| number(item, bytes).unwrap_or_else(|| BASE64.encode(bytes).into()))
            .collect(),
        (Element::Bytes(bytes) | Element::Array(bytes), _) => BASE64.encode(bytes).into(),
    }
}

/// Returns an element as a JSON number, if its type is a number.
fn number(item: &Fixed, bytes: &[u8]) -> Option<Value> {
    let (order, is_signed) = match item.scalar {
        Scalar::Bool => return Some((bytes != [0]).into()),
        Scalar::UInt(order) => (order, false),
        Scalar::Int(order) | Scalar::Float(order) => (order, true),
        _ => return None,
    };
    let mut word = bytes.to_vec();
    if order == ByteOrder::Big {
        word.reverse();
    }
    if let Scalar::Float(_) = item.scalar {
        let number = match *word {
            [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        return Some(match number {
            number if number.is_nan() => "NaN".into(),
            f64::INFINITY => "Infinity".into(),
            f64::NEG_INFINITY => "-Infinity".into(),
            number => number.into(),
        });
    }
    let is_negative = is_signed && word.last().is_some_and(|byte| *byte > 0x7F);
    word.resize(8, if is_negative { 0xFF } else { 0 });
    let word = <[u8; 8]>::try_from(word).ok()?;
    Some(match is_signed {
        true => i64::from_le_bytes(word).into(),
        false => u64::from_le_bytes(word).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_nested_as_the_array_is() {
        let texts = ["a", "b\"", "", "d"].map(|text| Element::Text(text.into()));
        let elements = Elements::new(texts.into());
        let text = render(
            &elements,
            &DataType::Variable(Variable::Text),
            &[2, 2],
            1000,
        )
        .unwrap();
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value, serde_json::json!([["a", "b\""], ["", "d"]]));
        let scalar = Elements::new(vec![Element::Bytes(vec![0, 255])]);
        let text = render(&scalar, &DataType::Variable(Variable::Bytes), &[], 1000).unwrap();
        assert_eq!(text, b"\"AP8=\"\n");
        let nothing = Elements::new(Vec::new());
        let text = DataType::Variable(Variable::Text);
        assert!(render(&nothing, &text, &[1 << 40, 0], 1 << 20).is_none());
    }

    #[test]
    fn items_of_arrays_are_numbers() {
        let item = |scalar, size_bytes| Fixed { scalar, size_bytes };
        let cases = [
            (
                item(Scalar::Int(ByteOrder::Big), 2),
                vec![0xFF, 0xFE],
                Some((-2).into()),
            ),
            (
                item(Scalar::UInt(ByteOrder::Little), 4),
                vec![1, 1, 0, 0],
                Some(257.into()),
            ),
            (
                item(Scalar::Float(ByteOrder::Little), 4),
                f32::NAN.to_le_bytes().to_vec(),
                Some("NaN".into()),
            ),
            (item(Scalar::Raw, 2), vec![1, 2], None),
        ];
        for (item, bytes, expected) in cases {
            assert_eq!(number(&item, &bytes), expected);
        }
    }
}
