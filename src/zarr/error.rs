//! What can be wrong with metadata.

use serde_json::Value;

/// Why a document, or a part of it, was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The document is larger than any that is read.
    #[error("{actual} {unit} of metadata, the limit is {limit}")]
    TooLarge {
        /// What was found.
        actual: usize,
        /// What is allowed.
        limit: usize,
        /// What is counted: bytes or values.
        unit: &'static str,
    },
    /// The bytes are not JSON.
    #[error("line {line}, column {column}: {what}")]
    Json {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
        /// What was found there.
        what: String,
    },
    /// JSON that breaks the specification.
    #[error("{field}: {what}")]
    Invalid {
        /// The member of the document, such as `chunk_grid`.
        field: String,
        /// What is wrong with it.
        what: String,
    },
    /// Metadata that may be right, but are not known here.
    #[error("{0}")]
    Unsupported(Unsupported),
}

/// The name of something that is not known here, such as `data type foo`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not supported")]
pub struct Unsupported {
    /// What it is, and its name.
    pub what: String,
}

impl From<Unsupported> for MetadataError {
    fn from(unsupported: Unsupported) -> Self {
        Self::Unsupported(unsupported)
    }
}

impl MetadataError {
    pub(super) fn invalid(field: &str, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.to_owned(),
            what: what.into(),
        }
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(Unsupported { what: what.into() })
    }

    /// A product of sizes that no `u64` holds.
    pub(super) fn overflow(field: &str, product: &str) -> Self {
        Self::invalid(field, format!("{product} is more than 2^64 - 1"))
    }
}

/// What kind of JSON value it is, for messages that must not repeat the whole value.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The longest text that a message repeats.
const SHOWN_BYTES: usize = 80;

/// A name for a message, printable and cut where it is long.
pub(super) fn shown(name: &str) -> String {
    let (start, cut) = cut(name);
    format!("{}{cut}", start.escape_debug())
}

/// A value for a message, cut where it is long.
pub(super) fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > SHOWN_BYTES => "a long list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => {
            let (start, cut) = cut(text);
            format!("{start:?}{cut}")
        }
        value => {
            let text = value.to_string();
            let (start, cut) = cut(&text);
            format!("{start}{cut}")
        }
    }
}

/// The beginning of a text, and dots where that is not all.
fn cut(text: &str) -> (&str, &'static str) {
    let ends = (0..=SHOWN_BYTES.min(text.len())).rev();
    let start = ends
        .filter_map(|end| text.get(..end))
        .next()
        .unwrap_or_default();
    (start, if start.len() < text.len() { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_repeat_short_values_and_the_beginning_of_long_ones() {
        assert_eq!(excerpt(&json!([1, "a"])), "[1,\"a\"]");
        assert_eq!(excerpt(&json!("a\n")), "\"a\\n\"");
        assert_eq!(excerpt(&json!({"a": 1})), "an object");
        assert_eq!(excerpt(&json!(vec![0; 1000])), "a long list");
        let long = "\u{e9}".repeat(1000);
        assert_eq!(
            excerpt(&json!(long)),
            format!("{:?}...", "\u{e9}".repeat(40))
        );
        assert_eq!(
            shown(&format!("a{long}")),
            format!("a{}...", "\u{e9}".repeat(39))
        );
        assert_eq!(shown("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(kind_of(&json!(null)), "null");
    }
}
