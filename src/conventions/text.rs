//! Numbers and attributes as text for GDAL.

use std::fmt::Write as _;

use crate::fallible::Text;
use crate::node::Value;

/// The maximum length of the text of an attribute.
const MAX_TEXT_BYTES: usize = 4096;

/// Formats a number in C notation, with all digits.
pub(crate) fn shown(value: Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) if value.is_nan() => "nan".into(),
        Value::Float(value) if value.is_infinite() => {
            if value > 0.0 { "inf" } else { "-inf" }.into()
        }
        Value::Float(value) if value != 0.0 && !(1e-5..1e16).contains(&value.abs()) => {
            format!("{value:e}")
        }
        Value::Float(value) => value.to_string(),
    }
}

/// Returns whether a text is one line and valid in XML.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_character = |c: char| !c.is_control() && !matches!(c, '\u{FFFE}' | '\u{FFFF}');
    text.len() <= MAX_TEXT_BYTES && text.chars().all(is_character)
}

/// Appends a GDAL metadata item: of a band with a role, or of the dataset.
pub(crate) fn item(target: &mut Text, name: &str, band: Option<(u64, &str)>, value: &str) {
    // GDAL escapes values twice.
    let value = escape(&escape(value));
    // Writing to a Text does not fail.
    let _ = match band {
        None => writeln!(target, "  <Item name=\"{}\">{value}</Item>", escape(name)),
        Some((band, role)) => writeln!(
            target,
            "  <Item name=\"{name}\" sample=\"{band}\" role=\"{role}\">{value}</Item>"
        ),
    };
}

/// Escapes text for XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_all_digits() {
        for (value, expected) in [
            (Value::Int(u64::MAX.into()), "18446744073709551615"),
            (Value::Float(f64::NAN), "nan"),
            (Value::Float(f64::NEG_INFINITY), "-inf"),
            (Value::Float(-1.0), "-1"),
            (Value::Float(0.1_f32.into()), "0.10000000149011612"),
            (Value::Float(1e20_f32.into()), "1.0000000200408773e20"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }

    #[test]
    fn texts_are_escaped_in_items() {
        let mut text = Text::default();
        item(&mut text, "a\"<", None, "</Item>&");
        assert_eq!(
            &*text,
            "  <Item name=\"a&quot;&lt;\">&amp;lt;/Item&amp;gt;&amp;amp;</Item>\n"
        );
        assert!(is_plain("m s-1 \u{b0}") && !is_plain("a\0b") && !is_plain("a\nb"));
        assert!(!is_plain(&"a".repeat(5000)));
    }
}
