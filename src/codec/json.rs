//! `json2`: a JSON list of the elements, then the numpy type and the shape.

use std::borrow::Cow;

use serde_json::Value;

use super::element::{Budget, Element, NODE_BYTES, flatten};
use super::error::DecodeError;
use crate::zarr::document::quote_constants;

/// # Errors
/// The text is not such a list, or exceeds the budget.
pub(super) fn decode(
    src: &[u8],
    expected: u64,
    budget: &mut Budget,
) -> Result<Vec<Element>, DecodeError> {
    let nodes = src
        .iter()
        .filter(|b| matches!(b, b',' | b':' | b'[' | b'{'))
        .count();
    budget.take(nodes.saturating_mul(NODE_BYTES))?;
    budget.take(src.len())?;
    let text = quote_constants(src);
    let items: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|error| DecodeError::corrupt(format!("not a JSON list: {error}")))?;
    let element = match text {
        Cow::Borrowed(_) => Element::from,
        Cow::Owned(_) => Element::beside_constants,
    };
    let mut elements = budget.list(expected)?;
    elements.extend(flatten(items, expected)?.into_iter().map(element));
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(text: &str, expected: u64) -> Result<Vec<Element>, DecodeError> {
        decode(text.as_bytes(), expected, &mut Budget::new(100_000))
    }

    fn values(list: &[Value]) -> Vec<Element> {
        list.iter().cloned().map(Element::from).collect()
    }

    #[test]
    fn lists_are_flattened_by_their_shape() {
        assert_eq!(
            parse(r#"[1,"two",[3],"|O",[3]]"#, 3).unwrap(),
            values(&[json!(1), json!("two"), json!([3])])
        );
        assert_eq!(parse(r#"[[1,2],[3,4],"|O",[2,2]]"#, 4).unwrap().len(), 4);
        assert_eq!(parse(r#"["x","|O",[]]"#, 1).unwrap(), values(&[json!("x")]));
    }

    #[test]
    fn numbers_that_are_not_finite_become_strings() {
        let text = r#"[NaN,-Infinity,"NaN \" Infinity",{"a":Infinity},"|O",[4]]"#;
        let expected = [
            json!("NaN"),
            json!("-Infinity"),
            json!("NaN \" Infinity"),
            json!({"a": "Infinity"}),
        ];
        let expected = expected.map(Element::beside_constants);
        assert_eq!(parse(text, 4).unwrap(), expected);
        assert!(matches!(expected[0], Element::Json(_)));
        let text = r#"["NaN","Infinity","|O",[2]]"#;
        let texts = ["NaN", "Infinity"].map(|text| Element::Text(text.into()));
        assert_eq!(parse(text, 2).unwrap(), texts);
    }

    #[test]
    fn malformed_lists_are_errors() {
        for text in [
            "",
            "[",
            "{}",
            "[]",
            r#"["|O"]"#,
            r#"[1,"|O",[2]]"#,
            r#"[1,2,"|O",[1]]"#,
            r#"[1,2,[2]]"#,
            r#"[1,2,3,"|O",[2,2]]"#,
            r#"[1,"|O",[1]] x"#,
            r#"["|O",[18446744073709551615,9]]"#,
        ] {
            assert!(parse(text, 1).is_err(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep, 1).is_err());
    }
}
